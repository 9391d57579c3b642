//! Sends and receives on a reliable connection.

use fabric::{Access, CompletionOpcode, Operation, Payload, SendFlags, SendRequest, WcStatus};

use super::with_pair;
use crate::side::pattern;
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[
    Case { name: "a_send_fills_a_receive", run: a_send_fills_a_receive },
    Case { name: "immediate_data_comes_with_the_completion", run: immediate },
    Case { name: "lists_of_different_shapes_are_gathered_and_scattered", run: shapes },
    Case { name: "a_message_may_be_empty", run: empty },
    Case { name: "inline_bytes_are_the_callers_again_at_once", run: inline },
    Case { name: "large_messages_arrive_whole", run: large },
    Case { name: "messages_keep_their_order_in_both_directions", run: order },
    Case { name: "what_is_unsignalled_completes_silently", run: unsignalled },
    Case { name: "a_queue_pair_talks_to_its_own_device", run: own_device },
];

fn a_send_fills_a_receive(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let source = pair.here.memory(64, Access::LOCAL);
        let target = pair.there.memory(64, Access::LOCAL);
        source.write(0, &pattern(64, 1));
        target.fill(7);
        pair.there.receive(qp.there, 20, &[target.part(0, 32)]);
        pair.here.send(qp.here, 10, Operation::Send, &[source.part(8, 16)]);
        let sent = pair.expect_here(10, WcStatus::Success, "a send");
        let got = pair.expect_there(20, WcStatus::Success, "its receive");
        assert_eq!((sent.opcode, got.opcode), (CompletionOpcode::Send, CompletionOpcode::Receive));
        assert_eq!((got.bytes, got.immediate), (16, None));
        assert_eq!(sent.qp, pair.here.context.endpoint(qp.here).unwrap().qp());
        assert_eq!(got.qp, pair.there.context.endpoint(qp.there).unwrap().qp());
        assert_eq!((target.read(0, 16), target.read(16, 48)), (source.read(8, 16), vec![7; 48]));
        pair.check_quiet();
    })
}

fn immediate(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let target = pair.there.memory(16, Access::LOCAL);
        for (id, value) in [0, 1, u32::MAX, 0x0102_0304].into_iter().enumerate() {
            pair.there.receive(qp.there, id as u64, &[target.part(0, 16)]);
            let request = SendRequest::new(5, Operation::SendWithImmediate(value), Payload::Inline(b"x"));
            pair.here.post(qp.here, &request);
            assert_eq!(pair.expect_there(id as u64, WcStatus::Success, "a receive").immediate, Some(value));
            pair.expect_here(5, WcStatus::Success, "a send");
        }
    })
}

fn shapes(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let source = pair.here.memory(256, Access::LOCAL);
        let target = pair.there.memory(256, Access::LOCAL);
        source.write(0, &pattern(256, 3));
        target.fill(0);
        pair.there.receive(qp.there, 1, &[target.part(200, 3), target.part(0, 1), target.part(10, 50)]);
        pair.here.send(
            qp.here,
            2,
            Operation::Send,
            &[source.part(100, 7), source.part(0, 1), source.part(255, 1), source.part(50, 20)],
        );
        pair.expect_here(2, WcStatus::Success, "a gathered send");
        assert_eq!(pair.expect_there(1, WcStatus::Success, "a scattered receive").bytes, 29);
        let sent = [source.read(100, 7), source.read(0, 1), source.read(255, 1), source.read(50, 20)].concat();
        let got = [target.read(200, 3), target.read(0, 1), target.read(10, 25)].concat();
        assert_eq!(got, sent);
        assert_eq!(target.read(35, 25), vec![0; 25], "what the message did not reach is untouched");
    })
}

fn empty(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        pair.there.receive(qp.there, 1, &[]);
        pair.here.send(qp.here, 2, Operation::Send, &[]);
        assert_eq!(pair.expect_there(1, WcStatus::Success, "nothing into nothing").bytes, 0);
        pair.expect_here(2, WcStatus::Success, "an empty send");
        let target = pair.there.memory(8, Access::REMOTE_WRITE);
        target.fill(7);
        pair.there.receive(qp.there, 3, &[target.part(0, 8)]);
        pair.here.post(qp.here, &SendRequest::new(4, Operation::Send, Payload::Inline(b"")));
        assert_eq!(pair.expect_there(3, WcStatus::Success, "nothing into something").bytes, 0);
        pair.expect_here(4, WcStatus::Success, "an empty inline send");
        pair.here.send(qp.here, 5, Operation::RdmaWrite(target.remote(0)), &[]);
        pair.expect_here(5, WcStatus::Success, "an empty write");
        assert_eq!(target.all(), [7; 8]);
    })
}

fn inline(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let target = pair.there.memory(64, Access::REMOTE_WRITE);
        let mut bytes = *b"first words";
        // No receive yet: the bytes must have been taken when posting returns.
        pair.here.post(qp.here, &SendRequest::new(1, Operation::Send, Payload::Inline(&bytes)));
        bytes.fill(b'!');
        let write = Operation::RdmaWrite(target.remote(32));
        pair.here.post(qp.here, &SendRequest::new(2, write, Payload::Inline(b"then a write")));
        pair.there.receive(qp.there, 3, &[target.part(0, 32)]);
        pair.expect_here(1, WcStatus::Success, "an inline send");
        pair.expect_here(2, WcStatus::Success, "an inline write");
        pair.expect_there(3, WcStatus::Success, "a receive");
        assert_eq!((target.read(0, 11), target.read(32, 12)), (b"first words".to_vec(), b"then a write".to_vec()));
    })
}

fn large(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let max = pair.here.context.capabilities().limits.message_max_bytes;
        let lengths = [4095, 4096, 65_537, 1 << 20, (3 << 20) + 5].into_iter().filter(|len| *len as u64 <= max);
        for (id, len) in lengths.enumerate() {
            let source = pair.here.memory(len, Access::REMOTE_WRITE);
            let target = pair.there.memory(len + 16, Access::REMOTE_ALL);
            let bytes = pattern(len, id as u64);
            source.write(0, &bytes);
            let half = len as u32 / 3;
            pair.there.receive(qp.there, 1, &[target.part(0, half), target.part(half.into(), len as u32 + 16 - half)]);
            pair.here.send(qp.here, 2, Operation::Send, &[source.part(0, len as u32)]);
            pair.expect_here(2, WcStatus::Success, "a large send");
            pair.expect_there(1, WcStatus::Success, "a large receive");
            assert!(target.read(0, len) == bytes && target.read(len, 16) == [0; 16], "{len} bytes sent");
            target.fill(0);
            pair.here.send(qp.here, 3, Operation::RdmaWrite(target.remote(16)), &[source.part(0, len as u32)]);
            pair.expect_here(3, WcStatus::Success, "a large write");
            assert!(target.read(16, len) == bytes && target.read(0, 16) == [0; 16], "{len} bytes written");
            source.fill(0);
            pair.here.send(qp.here, 4, Operation::RdmaRead(target.remote(16)), &[source.part(0, len as u32)]);
            pair.expect_here(4, WcStatus::Success, "a large read");
            assert!(source.all() == bytes, "{len} bytes read");
        }
    })
}

fn order(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        const COUNT: u64 = 200;
        let qp = pair.connect();
        let ours = pair.here.memory(8 * COUNT as usize, Access::LOCAL);
        let theirs = pair.there.memory(8 * COUNT as usize, Access::LOCAL);
        let mut posted = [0; 4];
        let mut seen = [0; 4];
        pair.until("the last message", |pair| {
            for (slot, (side, qp, memory)) in
                [(&mut pair.here, qp.here, &ours), (&mut pair.there, qp.there, &theirs)].into_iter().enumerate()
            {
                while posted[slot] < COUNT && posted[slot] < seen[slot] + 16 {
                    side.receive(qp, posted[slot], &[memory.part(8 * posted[slot], 8)]);
                    posted[slot] += 1;
                }
                let sends = slot + 2;
                while posted[sends] < COUNT && posted[sends] < seen[sends] + 16 {
                    let bytes = posted[sends].to_le_bytes();
                    let id = 1000 + posted[sends];
                    side.post(qp, &SendRequest::new(id, Operation::Send, Payload::Inline(&bytes)));
                    posted[sends] += 1;
                }
                for done in side.done.drain(..) {
                    assert_eq!(done.status, WcStatus::Success);
                    let (slot, id) = if done.id >= 1000 { (sends, done.id - 1000) } else { (slot, done.id) };
                    assert_eq!(id, seen[slot], "in the order of posting");
                    seen[slot] += 1;
                }
            }
            seen == [COUNT; 4]
        });
        for memory in [&ours, &theirs] {
            assert!((0..COUNT).all(|index| memory.word(8 * index as usize) == u64::from_ne_bytes(index.to_le_bytes())));
        }
    })
}

fn unsignalled(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let target = pair.there.memory(64, Access::REMOTE_WRITE);
        for id in 0..5u8 {
            let write = Operation::RdmaWrite(target.remote(u64::from(id) * 8));
            let bytes = [id + 1; 8];
            let mut request = SendRequest::new(id.into(), write, Payload::Inline(&bytes));
            request.flags = if id == 4 { SendFlags::SIGNALLED } else { SendFlags::default() };
            pair.here.post(qp.here, &request);
        }
        pair.expect_here(4, WcStatus::Success, "the only one that is signalled");
        assert!((0..5).all(|id| target.read(id * 8, 8) == [id as u8 + 1; 8]), "all are done");
        let mut request = SendRequest::new(9, Operation::RdmaWrite(target.remote(1000)), Payload::Inline(b"outside"));
        request.flags = SendFlags::default();
        pair.here.post(qp.here, &request);
        pair.expect_here(9, WcStatus::RemoteAccessError, "a failure is reported all the same");
    })
}

fn own_device(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let attributes = pair.here.attributes();
        let context = pair.here.context.as_mut();
        let [first, second] = [(), ()].map(|()| context.create_queue_pair(&attributes).expect("a queue pair"));
        let options = fabric::ConnectOptions::default();
        for (qp, other) in [(first, second), (second, first)] {
            let remote = context.endpoint(other).expect("an endpoint");
            fabric::connect(context, qp, Some(remote), &options).expect("connects");
        }
        let target = pair.here.memory(64, Access::REMOTE_ALL);
        pair.here.receive(second, 1, &[target.part(0, 16)]);
        pair.here.post(first, &SendRequest::new(2, Operation::Send, Payload::Inline(b"to myself")));
        pair.here.post(first, &SendRequest::new(3, Operation::RdmaWrite(target.remote(32)), Payload::Inline(b"again")));
        let mut done: Vec<_> = pair.here(3).iter().map(|done| (done.id, done.status)).collect();
        done.sort_by_key(|(id, _)| *id);
        assert_eq!(done, [1, 2, 3].map(|id| (id, WcStatus::Success)));
        assert_eq!((target.read(0, 9), target.read(32, 5)), (b"to myself".to_vec(), b"again".to_vec()));
    })
}
