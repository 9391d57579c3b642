//! RDMA: writes, reads, atomics, fences.

use fabric::{Access, CompletionOpcode, Operation, Payload, SendFlags, SendRequest, WcStatus};

use super::{with_ability, with_pair};
use crate::side::pattern;
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[
    Case { name: "writes_and_reads_move_exactly_what_they_name", run: exact },
    Case { name: "a_write_with_immediate_consumes_a_receive_and_leaves_its_memory", run: write_with_immediate },
    Case { name: "atomics_return_what_was_there", run: atomics },
    Case { name: "atomics_from_both_sides_add_up", run: adding_up },
    Case { name: "completions_come_in_the_order_of_posting_whatever_the_operation", run: mixed_order },
    Case { name: "a_fence_waits_for_reads", run: fence },
    Case { name: "a_message_behind_a_write_finds_it_done", run: write_then_send },
    Case { name: "a_list_of_requests_is_posted_at_once", run: list_post },
];

fn exact(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let near = pair.here.memory(128, Access::LOCAL);
        let far = pair.there.memory(128, Access::REMOTE_ALL);
        near.write(0, &pattern(128, 5));
        far.fill(9);
        let write = Operation::RdmaWrite(far.remote(30));
        pair.here.send(qp.here, 1, write, &[near.part(3, 10), near.part(64, 7)]);
        let done = pair.expect_here(1, WcStatus::Success, "a write");
        assert_eq!(done.opcode, CompletionOpcode::RdmaWrite);
        assert_eq!(far.read(30, 17), [near.read(3, 10), near.read(64, 7)].concat());
        assert!(far.read(0, 30).iter().chain(&far.read(47, 81)).all(|byte| *byte == 9));
        near.fill(1);
        pair.here.send(qp.here, 2, Operation::RdmaRead(far.remote(29)), &[near.part(100, 4), near.part(0, 15)]);
        let done = pair.expect_here(2, WcStatus::Success, "a read");
        assert_eq!((done.opcode, done.bytes), (CompletionOpcode::RdmaRead, 19));
        assert_eq!([near.read(100, 4), near.read(0, 15)].concat(), far.read(29, 19));
        assert!(near.read(15, 85).iter().chain(&near.read(104, 24)).all(|byte| *byte == 1));
        pair.check_quiet();
    })
}

fn write_with_immediate(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let near = pair.here.memory(32, Access::LOCAL);
        let far = pair.there.memory(32, Access::REMOTE_WRITE);
        let receive = pair.there.memory(32, Access::LOCAL);
        near.write(0, &pattern(32, 8));
        receive.fill(4);
        pair.there.receive(qp.there, 7, &[receive.part(0, 32)]);
        let write = Operation::RdmaWriteWithImmediate(far.remote(4), 77);
        pair.here.send(qp.here, 1, write, &[near.part(0, 20)]);
        let got = pair.expect_there(7, WcStatus::Success, "the receive it consumes");
        assert_eq!((got.opcode, got.immediate), (CompletionOpcode::ReceiveRdmaWithImmediate, Some(77)));
        assert_eq!(got.bytes, 20);
        pair.expect_here(1, WcStatus::Success, "a write with immediate data");
        assert_eq!((far.read(4, 20), receive.all()), (near.read(0, 20), vec![4; 32]));
    })
}

fn atomics(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "atomics",
        |has| has.atomics,
        |pair| {
            let qp = pair.connect();
            let near = pair.here.memory(24, Access::LOCAL);
            let far = pair.there.memory(24, Access::REMOTE_ALL);
            let remote = far.remote(8);
            far.write(8, &u64::MAX.to_ne_bytes());
            let steps: [(&str, Operation, u64, u64); 4] = [
                ("an add that wraps", Operation::FetchAdd { remote, add: 6 }, u64::MAX, 5),
                ("a swap that holds", Operation::CompareSwap { remote, compare: 5, swap: 100 }, 5, 100),
                ("a swap that does not", Operation::CompareSwap { remote, compare: 5, swap: 7 }, 100, 100),
                ("an add of nothing", Operation::FetchAdd { remote, add: 0 }, 100, 100),
            ];
            for (id, (name, operation, before, after)) in steps.into_iter().enumerate() {
                near.fill(0);
                pair.here.send(qp.here, id as u64, operation, &[near.part(8, 8)]);
                pair.expect_here(id as u64, WcStatus::Success, name);
                assert_eq!((near.word(8), far.word(8)), (before, after), "{name}");
                assert_eq!((near.word(0), near.word(16), far.word(0), far.word(16)), (0, 0, 0, 0), "{name}");
            }
        },
    )
}

fn adding_up(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "atomics",
        |has| has.atomics,
        |pair| {
            const COUNT: usize = 40;
            let qp = pair.connect();
            let sum = pair.there.memory(8, Access::REMOTE_ALL);
            let ours = pair.here.memory(8 * COUNT, Access::LOCAL);
            for index in 0..COUNT as u64 {
                let add = Operation::FetchAdd { remote: sum.remote(0), add: 1 };
                pair.here.send(qp.here, index, add, &[ours.part(8 * index, 8)]);
            }
            let done = pair.here(COUNT);
            assert!(
                done.iter()
                    .enumerate()
                    .all(|(index, done)| done.id == index as u64 && done.status == WcStatus::Success)
            );
            assert_eq!(sum.word(0), COUNT as u64);
            assert!((0..COUNT).all(|index| ours.word(8 * index) == index as u64), "each saw those before it");
        },
    )
}

fn mixed_order(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let atomics = pair.here.context.capabilities().atomics;
        let near = pair.here.memory(512, Access::LOCAL);
        let far = pair.there.memory(512, Access::REMOTE_ALL);
        let mut receives = 0;
        for id in 0..48u64 {
            let remote = far.remote(8 * id);
            let operation = match id % 5 {
                0 => Operation::Send,
                1 => Operation::RdmaRead(remote),
                2 => Operation::RdmaWrite(remote),
                3 if atomics => Operation::FetchAdd { remote, add: id },
                _ => Operation::RdmaWriteWithImmediate(remote, 1),
            };
            if operation.takes_receive() {
                pair.there.receive(qp.there, 1000 + receives, &[far.part(0, 8)]);
                receives += 1;
            }
            pair.here.send(qp.here, id, operation, &[near.part(8 * id, 8)]);
        }
        let done: Vec<_> = pair.here(48).iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(done, (0..48).map(|id| (id, WcStatus::Success)).collect::<Vec<_>>());
        let got: Vec<_> = pair.there(receives as usize).iter().map(|done| done.id).collect();
        assert_eq!(got, (1000..1000 + receives).collect::<Vec<_>>());
    })
}

fn fence(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let near = pair.here.memory(1 << 16, Access::LOCAL);
        let far = pair.there.memory(1 << 16, Access::REMOTE_ALL);
        let target = pair.there.memory(1 << 16, Access::LOCAL);
        for round in 0..8 {
            far.write(0, &pattern(1 << 16, round));
            near.fill(0);
            pair.there.receive(qp.there, 3, &[target.part(0, 1 << 16)]);
            pair.here.send(qp.here, 1, Operation::RdmaRead(far.remote(0)), &[near.part(0, 1 << 16)]);
            // Without the fence this could gather what the read has not brought yet.
            let list = [near.part(0, 1 << 16)];
            let mut request = SendRequest::new(2, Operation::Send, Payload::Memory(&list));
            request.flags = SendFlags { fence: true, ..SendFlags::SIGNALLED };
            pair.here.post(qp.here, &request);
            pair.expect_here(1, WcStatus::Success, "a read");
            pair.expect_here(2, WcStatus::Success, "a fenced send");
            pair.expect_there(3, WcStatus::Success, "its receive");
            assert!(target.all() == pattern(1 << 16, round), "round {round}");
        }
    })
}

fn write_then_send(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let near = pair.here.memory(1 << 16, Access::LOCAL);
        let far = pair.there.memory(1 << 16, Access::REMOTE_WRITE);
        for round in 0..8 {
            near.write(0, &pattern(1 << 16, round));
            pair.there.receive(qp.there, 3, &[]);
            let list = [near.part(0, 1 << 16)];
            let mut write = SendRequest::new(1, Operation::RdmaWrite(far.remote(0)), Payload::Memory(&list));
            write.flags = SendFlags::default();
            pair.here.post(qp.here, &write);
            pair.here.post(qp.here, &SendRequest::new(2, Operation::Send, Payload::Inline(b"")));
            pair.expect_there(3, WcStatus::Success, "the message behind the write");
            assert!(far.all() == pattern(1 << 16, round), "round {round}");
            pair.expect_here(2, WcStatus::Success, "its send");
        }
    })
}

fn list_post(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let near = pair.here.memory(64, Access::LOCAL);
        let far = pair.there.memory(64, Access::REMOTE_WRITE);
        near.write(0, &pattern(64, 2));
        let lists: Vec<_> = (0..16).map(|index| [near.part(4 * index, 4)]).collect();
        let requests: Vec<_> = lists
            .iter()
            .enumerate()
            .map(|(index, list)| {
                let write = Operation::RdmaWrite(far.remote(60 - 4 * index as u64));
                SendRequest::new(index as u64, write, Payload::Memory(list))
            })
            .collect();
        assert_eq!(pair.here.context.post_send(qp.here, &requests), Ok(16));
        assert!(
            pair.here(16).iter().enumerate().all(|(id, done)| done.id == id as u64 && done.status == WcStatus::Success)
        );
        assert!((0..16).all(|index| far.read(60 - 4 * index, 4) == near.read(4 * index, 4)));
        // A list stops at what cannot be posted; what came before it is done.
        let too_long = vec![near.part(0, 1); 1 << 10];
        let mixed = [requests[0], SendRequest::new(99, Operation::Send, Payload::Memory(&too_long)), requests[1]];
        assert_eq!(pair.here.context.post_send(qp.here, &mixed), Ok(1));
        pair.expect_here(0, WcStatus::Success, "the one before");
        assert!(pair.here.context.post_send(qp.here, &mixed[1..]).is_err());
        pair.check_quiet();
    })
}
