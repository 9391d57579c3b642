//! States, transitions, handles, and what depends on what.

use std::time::Duration;

use fabric::{
    Access, ConnectOptions, DeviceKind, Endpoint, FabricError, LocalMemory, Operation, Payload, QpNumber,
    QueuePairState, ReceiveRequest, SendRequest, Transition, WcStatus,
};

use super::with_pair;
use crate::side::Connection;
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[
    Case { name: "work_is_posted_only_in_the_states_for_it", run: posting_states },
    Case { name: "steps_the_state_machine_lacks_are_refused", run: wrong_steps },
    Case { name: "an_endpoint_that_is_none_is_refused", run: wrong_endpoints },
    Case { name: "a_send_waits_until_its_peer_is_connected", run: early_send },
    Case { name: "a_drained_queue_pair_holds_its_sends", run: drain },
    Case { name: "a_queue_pair_works_again_after_a_reset", run: reset },
    Case { name: "what_others_depend_on_stays", run: dependencies },
    Case { name: "handles_of_what_is_gone_are_refused", run: stale_handles },
    Case { name: "limits_are_told_and_kept", run: limits },
    Case { name: "device_memory_is_registered_and_shared", run: device_memory },
];

fn posting_states(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let attributes = pair.here.attributes();
        let memory = pair.here.memory(8, Access::LOCAL);
        let side = &mut pair.here;
        let qp = side.context.create_queue_pair(&attributes).expect("a queue pair");
        let list = [memory.part(0, 8)];
        let send = SendRequest::new(1, Operation::Send, Payload::Memory(&list));
        let receive = ReceiveRequest { id: 1, list: &list };
        let refused = side.context.post_receive(qp, &[receive]);
        assert!(matches!(refused, Err(FabricError::InvalidState { state: QueuePairState::Reset, .. })), "{refused:?}");
        let remote = side.context.endpoint(qp).expect("an endpoint");
        for transition in ConnectOptions::default().transitions(Some(remote)) {
            let state = side.state(qp);
            let refused = side.context.post_send(qp, &[send]);
            assert!(matches!(refused, Err(FabricError::InvalidState { .. })), "{state:?}: {refused:?}");
            side.context.modify(qp, &transition).expect("the way to ready");
            assert_eq!(side.state(qp), transition.state());
            assert_eq!(side.context.post_receive(qp, &[receive]), Ok(1), "{:?}", transition.state());
        }
        assert_eq!(side.context.post_send(qp, &[]), Ok(0));
        assert_eq!(side.context.post_send(qp, &[send]), Ok(1), "now it may");
    })
}

fn wrong_steps(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let attributes = pair.here.attributes();
        let side = &mut pair.here;
        let qp = side.context.create_queue_pair(&attributes).expect("a queue pair");
        let remote = side.context.endpoint(qp).expect("an endpoint");
        let [init, receive, send] = ConnectOptions::default().transitions(Some(remote));
        let refused = |side: &mut crate::side::Side, transition: &Transition| {
            let state = side.state(qp);
            let refused = side.context.modify(qp, transition);
            assert!(matches!(refused, Err(FabricError::InvalidState { .. })), "{state:?} {transition:?}: {refused:?}");
            assert_eq!(side.state(qp), state, "it stays where it is");
        };
        for wrong in [&receive, &send, &Transition::Drain, &Transition::Resume] {
            refused(side, wrong);
        }
        side.context.modify(qp, &init).expect("from reset");
        refused(side, &send);
        side.context.modify(qp, &receive).expect("from init");
        refused(side, &init);
        refused(side, &Transition::Drain);
        side.context.modify(qp, &send).expect("from ready to receive");
        refused(side, &receive);
        refused(side, &Transition::Resume);
        side.context.modify(qp, &Transition::Error).expect("from anywhere");
        for wrong in [&init, &receive, &send, &Transition::Drain] {
            refused(side, wrong);
        }
        side.context.modify(qp, &Transition::Reset).expect("from anywhere");
        side.context.modify(qp, &init).expect("from reset");
    })
}

fn wrong_endpoints(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let attributes = pair.here.attributes();
        let side = &mut pair.here;
        let kind = side.context.capabilities().kind;
        let qp = side.context.create_queue_pair(&attributes).expect("a queue pair");
        let good = side.context.endpoint(qp).expect("an endpoint");
        assert_eq!(Endpoint::parse(&good.to_bytes()), Ok(good.clone()), "it survives the journey");
        let [init, ..] = ConnectOptions::default().transitions(None);
        side.context.modify(qp, &init).expect("from reset");
        let other = if kind == DeviceKind::Tcp { DeviceKind::Shm } else { DeviceKind::Tcp };
        let wrong = [
            None,
            Some(Endpoint::new(other, QpNumber(1), good.address())),
            Some(Endpoint::new(kind, QpNumber(1), b"")),
            Some(Endpoint::new(kind, QpNumber(1), &[0xff; 3])),
            Some(Endpoint::new(kind, QpNumber(1), &[0xff; 300])),
        ];
        for remote in wrong {
            let [_, receive, _] = ConnectOptions::default().transitions(remote.clone());
            let refused = side.context.modify(qp, &receive);
            assert!(refused.is_err(), "{remote:?}");
            assert_eq!(side.state(qp), QueuePairState::Init, "{remote:?}");
        }
    })
}

fn early_send(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let (ours, theirs) = (pair.here.attributes(), pair.there.attributes());
        let here = pair.here.context.create_queue_pair(&ours).expect("a queue pair");
        let there = pair.there.context.create_queue_pair(&theirs).expect("a queue pair");
        let options =
            ConnectOptions { timeout: Duration::from_millis(250), retry_count: 7, ..ConnectOptions::default() };
        let to = pair.there.context.endpoint(there).expect("an endpoint");
        fabric::connect(pair.here.context.as_mut(), here, Some(to), &options).expect("here connects");
        let target = pair.there.memory(8, Access::LOCAL);
        pair.here.post(here, &SendRequest::new(1, Operation::Send, Payload::Inline(b"early")));
        for _ in 0..20 {
            pair.pump();
        }
        assert!(pair.here.done.is_empty(), "it waits: {:?}", pair.here.done);
        let to = pair.here.context.endpoint(here).expect("an endpoint");
        fabric::connect(pair.there.context.as_mut(), there, Some(to), &options).expect("there connects");
        pair.there.receive(there, 2, &[target.part(0, 8)]);
        pair.expect_here(1, WcStatus::Success, "a send that was early");
        pair.expect_there(2, WcStatus::Success, "its receive");
        assert_eq!(target.read(0, 5), b"early");
    })
}

fn drain(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let (qp, other) = (pair.connect(), pair.connect());
        let far = pair.there.memory(16, Access::REMOTE_WRITE);
        pair.check_alive(qp);
        pair.here.context.modify(qp.here, &Transition::Drain).expect("from ready to send");
        let write = Operation::RdmaWrite(far.remote(0));
        pair.here.post(qp.here, &SendRequest::new(1, write, Payload::Inline(b"held back")));
        for _ in 0..10 {
            pair.check_alive(other);
        }
        assert_eq!((far.read(0, 9), pair.here.done.len()), (vec![0; 9], 0));
        pair.here.context.modify(qp.here, &Transition::Resume).expect("from drained");
        pair.expect_here(1, WcStatus::Success, "what was held back");
        assert_eq!(far.read(0, 9), b"held back");
    })
}

fn reset(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let memory = pair.here.memory(8, Access::LOCAL);
        for _ in 0..3 {
            pair.check_alive(qp);
            // One end fails, the other has work under way: both are reset.
            pair.here.receive(qp.here, 77, &[memory.part(0, 8)]);
            pair.there.post(qp.there, &SendRequest::new(78, Operation::Send, Payload::Inline(b"x")));
            pair.until("the message", |pair| pair.here.done.len() == 1 && pair.there.done.len() == 1);
            pair.here.done.clear();
            pair.there.done.clear();
            pair.here.receive(qp.here, 79, &[memory.part(0, 8)]);
            for (side, qp) in [(&mut pair.here, qp.here), (&mut pair.there, qp.there)] {
                side.context.modify(qp, &Transition::Reset).expect("from anywhere");
            }
            pair.check_quiet();
            pair.join(Connection { ..qp }, &ConnectOptions::default());
        }
        pair.check_alive(qp);
    })
}

fn dependencies(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let side = &mut pair.here;
        let domain = side.context.allocate_protection_domain().expect("a domain");
        let queue = side.context.create_completion_queue(16).expect("a completion queue");
        let mut attributes = side.attributes();
        attributes.protection_domain = domain;
        attributes.send_completions = queue;
        let qp = side.context.create_queue_pair(&attributes).expect("a queue pair");
        let in_use = |result: Result<(), FabricError>| {
            assert!(matches!(result, Err(FabricError::InUse { .. })), "{result:?}");
        };
        in_use(side.context.deallocate_protection_domain(domain));
        in_use(side.context.destroy_completion_queue(queue));
        side.context.destroy_queue_pair(qp).expect("nothing depends on it");
        side.context.destroy_completion_queue(queue).expect("no longer used");
        let usual = std::mem::replace(&mut side.domain, domain);
        let memory = side.memory(8, Access::LOCAL);
        side.domain = usual;
        in_use(side.context.deallocate_protection_domain(domain));
        side.context.deregister(memory.region).expect("registered");
        side.context.deallocate_protection_domain(domain).expect("no longer used");
    })
}

fn stale_handles(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let side = &mut pair.here;
        let attributes = side.attributes();
        let gone = side.context.create_queue_pair(&attributes).expect("a queue pair");
        side.context.destroy_queue_pair(gone).expect("it exists");
        // Another may have its place, but not its handle.
        let next = side.context.create_queue_pair(&attributes).expect("a queue pair");
        assert_ne!(gone, next);
        let refused = |result: Result<(), FabricError>| {
            assert!(matches!(result, Err(FabricError::NoSuch(_))), "{result:?}");
        };
        refused(side.context.destroy_queue_pair(gone));
        refused(side.context.endpoint(gone).map(drop));
        refused(side.context.queue_pair_state(gone).map(drop));
        refused(side.context.modify(gone, &Transition::Reset));
        refused(side.context.post_send(gone, &[SendRequest::new(1, Operation::Send, Payload::Inline(b""))]).map(drop));
        refused(side.context.post_receive(gone, &[ReceiveRequest { id: 1, list: &[] }]).map(drop));
        let queue = side.context.create_completion_queue(1).expect("a completion queue");
        side.context.destroy_completion_queue(queue).expect("it exists");
        refused(side.context.destroy_completion_queue(queue));
        refused(side.context.poll(queue, &mut []).map(drop));
        refused(side.context.create_queue_pair(&fabric::QueuePairAttributes::new(side.domain, queue)).map(drop));
        let domain = side.context.allocate_protection_domain().expect("a domain");
        side.context.deallocate_protection_domain(domain).expect("it exists");
        refused(side.context.deallocate_protection_domain(domain));
        // SAFETY: nothing is reached: the domain is gone, so registering fails.
        let range = unsafe { base::memory::ReadRange::new([0u8; 1].as_ptr(), 1) };
        refused(side.context.register(domain, LocalMemory::Source(range), Access::LOCAL).map(drop));
    })
}

fn limits(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let side = &mut pair.here;
        let limits = side.context.capabilities().limits;
        assert!(limits.scatter_gather_max >= 1 && limits.message_max_bytes >= 1 << 20);
        let beyond = |result: Result<(), FabricError>| {
            assert!(
                matches!(result, Err(FabricError::BeyondLimit { .. } | FabricError::Exhausted { .. })),
                "{result:?}"
            );
        };
        beyond(side.context.create_completion_queue(limits.completion_depth_max + 1).map(drop));
        let usual = side.attributes();
        for wrong in [
            fabric::QueuePairAttributes { send_depth: limits.send_depth_max + 1, ..usual },
            fabric::QueuePairAttributes { receive_depth: limits.receive_depth_max + 1, ..usual },
            fabric::QueuePairAttributes { send_entries_max: limits.scatter_gather_max + 1, ..usual },
            fabric::QueuePairAttributes { receive_entries_max: limits.scatter_gather_max + 1, ..usual },
            fabric::QueuePairAttributes { inline_max_bytes: limits.inline_max_bytes + 1, ..usual },
        ] {
            beyond(side.context.create_queue_pair(&wrong).map(drop));
        }
        let memory = side.memory(8, Access::LOCAL);
        let qp = pair.connect();
        let side = &mut pair.here;
        let entries = vec![memory.part(0, 1); limits.scatter_gather_max as usize + 1];
        let send = SendRequest::new(1, Operation::Send, Payload::Memory(&entries));
        beyond(side.context.post_send(qp.here, &[send]).map(drop));
        let bytes = vec![0; limits.inline_max_bytes as usize + 1];
        let send = SendRequest::new(1, Operation::Send, Payload::Inline(&bytes));
        beyond(side.context.post_send(qp.here, &[send]).map(drop));
        beyond(side.context.post_receive(qp.here, &[ReceiveRequest { id: 1, list: &entries }]).map(drop));
        let read = SendRequest::new(1, Operation::RdmaRead(memory.remote(0)), Payload::Inline(b"x"));
        let refused = side.context.post_send(qp.here, &[read]);
        assert!(matches!(refused, Err(FabricError::InvalidRequest { .. })), "{refused:?}");
        pair.check_alive(qp);
    })
}

fn device_memory(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect();
        let allocated = pair.there.device_memory(4096, Access::REMOTE_ALL);
        if let Err(FabricError::Unsupported { .. }) = allocated {
            return;
        }
        let memory = allocated.expect("device memory");
        let region = memory.region;
        assert_eq!((region.len_bytes, memory.all()), (4096, vec![0; 4096]));
        let write = Operation::RdmaWrite(region.remote(4088));
        pair.here.post(qp.here, &SendRequest::new(1, write, Payload::Inline(&5u64.to_ne_bytes())));
        pair.expect_here(1, WcStatus::Success, "a write to device memory");
        assert_eq!(memory.word(4088), 5);
        let near = pair.here.memory(4096, Access::LOCAL);
        near.write(0, &crate::side::pattern(4096, 9));
        pair.here.send(
            qp.here,
            2,
            Operation::RdmaWrite(region.remote(0)),
            &[near.part(0, 1000), near.part(2000, 3088)],
        );
        pair.expect_here(2, WcStatus::LocalProtectionError, "a list that leaves its region");
        let qp = pair.connect();
        pair.here.send(
            qp.here,
            3,
            Operation::RdmaWrite(region.remote(8)),
            &[near.part(0, 1001), near.part(2000, 2000)],
        );
        pair.expect_here(3, WcStatus::Success, "a longer write");
        let written = [near.read(0, 1001), near.read(2000, 2000)].concat();
        near.fill(0);
        pair.here.send(qp.here, 4, Operation::RdmaRead(region.remote(8)), &[near.part(0, 3001)]);
        pair.expect_here(4, WcStatus::Success, "a read of device memory");
        assert!(near.read(0, 3001) == written && near.read(3001, 1095) == [0; 1095]);
        if pair.here.context.capabilities().atomics {
            let add = Operation::FetchAdd { remote: region.remote(4088), add: 3 };
            pair.here.send(qp.here, 5, add, &[near.part(0, 8)]);
            pair.expect_here(5, WcStatus::Success, "an atomic on device memory");
            assert_eq!((near.word(0), memory.word(4088)), (5, 8));
        }
        for wrong in [region.remote(4090), region.remote(0u64.wrapping_sub(8))] {
            let qp = pair.connect();
            pair.here.send(qp.here, 6, Operation::RdmaWrite(wrong), &[near.part(0, 8)]);
            pair.expect_here(6, WcStatus::RemoteAccessError, "outside of it");
        }
        pair.there.context.deregister(region).expect("registered");
        let qp = pair.connect();
        pair.here.send(qp.here, 7, Operation::RdmaWrite(region.remote(0)), &[near.part(0, 8)]);
        pair.expect_here(7, WcStatus::RemoteAccessError, "no longer registered");
        assert_eq!(memory.word(4088), if pair.here.context.capabilities().atomics { 8 } else { 5 });
    })
}
