//! Depths, shared receive queues, XRC, receives in several queues, completion queues.

use fabric::{
    Access, AsynchronousEvent, CompletionQueue, ConnectOptions, Destination, FabricError, Operation, Payload,
    QueuePair, QueuePairState, ReceiveRequest, SendFlags, SendRequest, SharedReceiveQueue,
    SharedReceiveQueueAttributes, SrqNumber, Transport, WcStatus, WorkCompletion, XrcDomain,
};

use super::{with_ability, with_pair};
use crate::side::{Connection, Pair, Side};
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[
    Case { name: "a_full_send_queue_takes_no_more_and_loses_nothing", run: send_queue_full },
    Case { name: "a_full_receive_queue_takes_no_more_and_loses_nothing", run: receive_queue_full },
    Case { name: "a_completion_queue_that_overruns_says_so", run: completion_overrun },
    Case { name: "two_queue_pairs_share_receives", run: shared_receives },
    Case { name: "a_shared_queue_tells_when_it_runs_low", run: receive_limit },
    Case { name: "a_full_shared_queue_takes_no_more", run: shared_queue_full },
    Case { name: "xrc_reaches_shared_queues_by_number", run: xrc },
    Case { name: "xrc_to_a_queue_that_is_not_there_is_invalid", run: xrc_wrong_number },
    Case { name: "an_xrc_send_waits_for_the_queue_it_names", run: xrc_waits },
    Case { name: "a_receive_in_several_queues_is_claimed_once", run: multi_queue },
    Case { name: "a_receive_in_several_queues_can_be_taken_back", run: withdrawal },
    Case { name: "an_armed_completion_queue_makes_its_descriptor_readable", run: notification },
    Case { name: "a_solicited_notification_sleeps_through_the_rest", run: solicited },
];

fn send_queue_full(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect_with(&ConnectOptions::default(), |attributes| attributes.send_depth = 8);
        // Nothing can complete: there is no receive.
        let mut taken = 0u64;
        for _ in 0..1 << 16 {
            let bytes = taken.to_le_bytes();
            let request = SendRequest::new(taken, Operation::Send, Payload::Inline(&bytes));
            match pair.here.context.post_send(qp.here, &[request]) {
                Ok(1) => taken += 1,
                other => {
                    assert_eq!(other, Ok(0), "no room is no error");
                    break;
                }
            }
        }
        assert!((8..1 << 16).contains(&taken), "the depth is at least what was asked for: {taken}");
        let target = pair.there.memory(8, Access::LOCAL);
        for id in 0..taken {
            pair.there.receive(qp.there, id, &[target.part(0, 8)]);
            pair.expect_there(id, WcStatus::Success, "what was taken arrives");
            assert_eq!(target.all(), id.to_le_bytes());
            pair.expect_here(id, WcStatus::Success, "and completes");
        }
        pair.check_alive(qp);
    })
}

fn receive_queue_full(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let qp = pair.connect_with(&ConnectOptions::default(), |attributes| attributes.receive_depth = 8);
        let taken = fill(|request| pair.there.context.post_receive(qp.there, &[*request]));
        for id in 0..taken {
            pair.here.post(qp.here, &SendRequest::new(id, Operation::Send, Payload::Inline(b"")));
            pair.expect_there(id, WcStatus::Success, "each receive is filled in its turn");
            pair.expect_here(id, WcStatus::Success, "a send");
        }
        pair.check_alive(qp);
    })
}

/// Posts empty receives until there is no room.
pub(super) fn fill(mut post: impl FnMut(&ReceiveRequest<'_>) -> Result<usize, FabricError>) -> u64 {
    for id in 0..1 << 16 {
        match post(&ReceiveRequest { id, list: &[] }) {
            Ok(1) => {}
            other => {
                assert_eq!(other, Ok(0), "no room is no error");
                assert!(id >= 8, "the depth is at least what was asked for: {id}");
                return id;
            }
        }
    }
    panic!("the queue has no end");
}

fn completion_overrun(fixture: &mut dyn Fixture) -> Outcome {
    if !fixture.has_exact_depths() {
        return Outcome::Skipped("the device rounds depths and tells of an overrun by its own ways".into());
    }
    with_pair(fixture, |pair| {
        let small = pair.here.context.create_completion_queue(4).expect("a completion queue");
        let mut ours = pair.here.attributes();
        ours.send_completions = small;
        let theirs = pair.there.attributes();
        let qp = pair.connect_as(&ConnectOptions::default(), &ours, &theirs);
        let other = pair.connect();
        let memory = pair.there.memory(8, Access::REMOTE_WRITE);
        for id in 0..6 {
            let write = Operation::RdmaWrite(memory.remote(0));
            pair.here.post(qp.here, &SendRequest::new(id, write, Payload::Inline(b"x")));
        }
        pair.until("the overrun", |pair| pair.here.state(qp.here) == QueuePairState::Error);
        let event = pair.here.context.next_event();
        assert_eq!(event, Some(AsynchronousEvent::CompletionQueueOverrun(small)));
        let mut into = [WorkCompletion::default(); 8];
        let saved = pair.here.context.poll(small, &mut into).expect("what was saved");
        assert_eq!(into[..saved].iter().map(|done| done.id).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let overrun = pair.here.context.poll(small, &mut into);
        assert!(matches!(overrun, Err(FabricError::CompletionQueueOverrun { .. })), "{overrun:?}");
        pair.check_alive(other);
    })
}

pub(super) fn shared_queue(side: &mut Side, xrc: Option<(XrcDomain, CompletionQueue)>) -> SharedReceiveQueue {
    let protection_domain = side.domain;
    let attributes = SharedReceiveQueueAttributes { protection_domain, depth: 8, entries_max: 2, xrc };
    side.context.create_shared_receive_queue(&attributes).expect("a shared receive queue")
}

pub(super) fn post_shared(side: &mut Side, queue: SharedReceiveQueue, id: u64, list: &[fabric::ScatterGather]) {
    assert_eq!(side.context.post_shared_receive(queue, &[ReceiveRequest { id, list }]), Ok(1));
}

fn connect_shared(pair: &mut Pair, queue: SharedReceiveQueue) -> Connection {
    let ours = pair.here.attributes();
    let mut theirs = pair.there.attributes();
    (theirs.shared_receives, theirs.receive_depth) = (Some(queue), 0);
    pair.connect_as(&ConnectOptions::default(), &ours, &theirs)
}

fn shared_receives(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let queue = shared_queue(&mut pair.there, None);
        let qps = [connect_shared(pair, queue), connect_shared(pair, queue)];
        let target = pair.there.memory(64, Access::LOCAL);
        for id in 0..4u64 {
            post_shared(&mut pair.there, queue, id, &[target.part(8 * id, 8)]);
        }
        for id in 0..4u64 {
            let qp = qps[id as usize % 2];
            pair.here.post(qp.here, &SendRequest::new(id, Operation::Send, Payload::Inline(&[id as u8 + 1; 8])));
            let got = pair.expect_there(id, WcStatus::Success, "the next receive of the queue");
            assert_eq!(got.qp, pair.there.context.endpoint(qp.there).unwrap().qp(), "it tells which queue pair");
            pair.expect_here(id, WcStatus::Success, "a send");
        }
        assert!((0..4).all(|id| target.read(8 * id, 8) == [id as u8 + 1; 8]));
        // Both wait for the one receive that comes; one gets it, the other the next.
        for (id, qp) in qps.into_iter().enumerate() {
            pair.here.post(qp.here, &SendRequest::new(id as u64, Operation::Send, Payload::Inline(b"waits")));
        }
        post_shared(&mut pair.there, queue, 10, &[target.part(0, 8)]);
        let first = pair.here(1)[0];
        post_shared(&mut pair.there, queue, 11, &[target.part(0, 8)]);
        assert_eq!(pair.here(1)[0].id, 1 - first.id);
        let ids: Vec<_> = pair.there(2).iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(ids, [(10, WcStatus::Success), (11, WcStatus::Success)]);
        let own = pair.there.context.post_receive(qps[0].there, &[ReceiveRequest { id: 0, list: &[] }]);
        assert!(matches!(own, Err(FabricError::InvalidRequest { .. })), "{own:?}");
        let used = pair.there.context.destroy_shared_receive_queue(queue);
        assert!(matches!(used, Err(FabricError::InUse { .. })), "{used:?}");
    })
}

fn receive_limit(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let queue = shared_queue(&mut pair.there, None);
        let qp = connect_shared(pair, queue);
        for id in 0..6 {
            post_shared(&mut pair.there, queue, id, &[]);
        }
        pair.there.context.set_receive_limit(queue, 3).expect("below the depth");
        for id in 0..6u64 {
            assert_eq!(pair.there.context.next_event(), None, "{id} taken of 6");
            pair.here.post(qp.here, &SendRequest::new(id, Operation::Send, Payload::Inline(b"")));
            pair.expect_here(id, WcStatus::Success, "a send");
            pair.expect_there(id, WcStatus::Success, "a receive");
            if id == 3 {
                let mut event = None;
                pair.until("the event", |pair| {
                    event = event.or_else(|| pair.there.context.next_event());
                    event.is_some()
                });
                assert_eq!(event, Some(AsynchronousEvent::ReceiveLimitReached(queue)));
            }
        }
    })
}

fn shared_queue_full(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        let queue = shared_queue(&mut pair.there, None);
        let qp = connect_shared(pair, queue);
        let taken = fill(|request| pair.there.context.post_shared_receive(queue, &[*request]));
        for id in 0..taken {
            pair.here.post(qp.here, &SendRequest::new(id, Operation::Send, Payload::Inline(b"")));
            pair.expect_there(id, WcStatus::Success, "each receive is filled in its turn");
            pair.expect_here(id, WcStatus::Success, "a send");
        }
        let long = [fabric::ScatterGather { address: 0, len_bytes: 0, lkey: fabric::Lkey(0) }; 256];
        let refused = pair.there.context.post_shared_receive(queue, &[ReceiveRequest { id: 0, list: &long }]);
        assert!(matches!(refused, Err(FabricError::BeyondLimit { .. })), "{refused:?}");
    })
}

/// An XRC connection from here to there, and the domain it reaches.
pub(super) fn connect_xrc(pair: &mut Pair) -> (QueuePair, XrcDomain) {
    let domain = pair.there.context.open_xrc_domain().expect("an XRC domain");
    (connect_to_domain(pair, domain), domain)
}

/// A connection through which sends reach the queues of a domain.
pub(super) fn connect_to_domain(pair: &mut Pair, domain: XrcDomain) -> QueuePair {
    let (mut ours, mut theirs) = (pair.here.attributes(), pair.there.attributes());
    (ours.transport, ours.receive_depth) = (Transport::XrcInitiator, 0);
    (theirs.transport, theirs.send_depth, theirs.receive_depth) = (Transport::XrcTarget(domain), 0, 0);
    pair.connect_as(&ConnectOptions::default(), &ours, &theirs).here
}

/// Shared receive queues in a domain, and the numbers by which sends name them.
pub(super) fn xrc_queues<const N: usize>(
    pair: &mut Pair,
    domain: XrcDomain,
) -> ([SharedReceiveQueue; N], [SrqNumber; N]) {
    let both = [(); N].map(|()| xrc_queue(&mut pair.there, domain));
    (both.map(|(queue, _)| queue), both.map(|(_, number)| number))
}

/// One of them.
pub(super) fn xrc_queue(side: &mut Side, domain: XrcDomain) -> (SharedReceiveQueue, SrqNumber) {
    let completions = side.completions;
    let queue = shared_queue(side, Some((domain, completions)));
    (queue, side.context.shared_receive_queue_number(queue).expect("an XRC queue has a number"))
}

pub(super) fn xrc_send(pair: &mut Pair, qp: QueuePair, id: u64, to: SrqNumber, text: &[u8]) {
    let mut request = SendRequest::new(id, Operation::Send, Payload::Inline(text));
    request.destination = Destination::SharedReceiveQueue(to);
    pair.here.post(qp, &request);
}

fn xrc(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "XRC",
        |has| has.xrc,
        |pair| {
            let (qp, domain) = connect_xrc(pair);
            let (queues, numbers) = xrc_queues::<3>(pair, domain);
            let target = pair.there.memory(64, Access::LOCAL);
            for (index, queue) in queues.into_iter().enumerate() {
                for turn in 0..2u64 {
                    let id = index as u64 * 10 + turn;
                    post_shared(&mut pair.there, queue, id, &[target.part(id, 1)]);
                }
            }
            let order = [2, 0, 0, 1, 2, 1];
            let mut turns = [0; 3];
            for (step, index) in order.into_iter().enumerate() {
                xrc_send(pair, qp, step as u64, numbers[index], &[step as u8 + 1]);
                let id = index as u64 * 10 + turns[index];
                turns[index] += 1;
                pair.expect_there(id, WcStatus::Success, "the receive of the queue that was named");
                pair.expect_here(step as u64, WcStatus::Success, "an XRC send");
                assert_eq!(target.read(id as usize, 1), [step as u8 + 1]);
            }
            let far = pair.there.memory(8, Access::REMOTE_ALL);
            let write = SendRequest::new(50, Operation::RdmaWrite(far.remote(0)), Payload::Inline(b"by XRC"));
            pair.here.post(qp, &write);
            pair.expect_here(50, WcStatus::Success, "an RDMA write needs no queue");
            assert_eq!(far.read(0, 6), b"by XRC");
            let unnamed = SendRequest::new(51, Operation::Send, Payload::Inline(b"x"));
            let refused = pair.here.context.post_send(qp, &[unnamed]);
            assert!(matches!(refused, Err(FabricError::InvalidRequest { .. })), "{refused:?}");
            let used = pair.there.context.close_xrc_domain(domain);
            assert!(matches!(used, Err(FabricError::InUse { .. })), "{used:?}");
        },
    )
}

fn xrc_wrong_number(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "XRC",
        |has| has.xrc,
        |pair| {
            let (first, _) = connect_xrc(pair);
            xrc_send(pair, first, 1, SrqNumber(0x00ab_cdef), b"nowhere");
            pair.expect_here(1, WcStatus::RemoteInvalidRequest, "no such queue");
            // A queue of another domain is as good as none.
            let (second, _) = connect_xrc(pair);
            let other = pair.there.context.open_xrc_domain().expect("another domain");
            let (queue, number) = xrc_queue(&mut pair.there, other);
            post_shared(&mut pair.there, queue, 9, &[]);
            xrc_send(pair, second, 2, number, b"");
            pair.expect_here(2, WcStatus::RemoteInvalidRequest, "a queue of another domain");
            assert!(pair.there.done.is_empty(), "its receive is untouched");
        },
    )
}

fn xrc_waits(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "XRC",
        |has| has.xrc,
        |pair| {
            let (qp, domain) = connect_xrc(pair);
            let ([full, empty], [to_full, to_empty]) = xrc_queues(pair, domain);
            post_shared(&mut pair.there, full, 1, &[]);
            xrc_send(pair, qp, 10, to_empty, b"");
            xrc_send(pair, qp, 11, to_full, b"");
            let other = pair.connect();
            for _ in 0..20 {
                pair.check_alive(other);
            }
            pair.check_quiet();
            post_shared(&mut pair.there, empty, 2, &[]);
            pair.expect_there(2, WcStatus::Success, "the first send goes first");
            pair.expect_there(1, WcStatus::Success, "then the second");
            pair.expect_here(10, WcStatus::Success, "the first");
            pair.expect_here(11, WcStatus::Success, "the second");
        },
    )
}

fn multi_queue(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "receives in several queues",
        |has| has.multi_queue_receives,
        |pair| {
            let (qp, domain) = connect_xrc(pair);
            let (queues, numbers) = xrc_queues::<2>(pair, domain);
            let target = pair.there.memory(64, Access::LOCAL);
            for round in 0..40u64 {
                let named = round as usize % 2;
                let everywhere = [target.part(0, 8)];
                let request = ReceiveRequest { id: 100 + round, list: &everywhere };
                pair.there.context.post_multi_queue_receive(&queues, &request).expect("there is room");
                for (index, queue) in queues.into_iter().enumerate() {
                    post_shared(&mut pair.there, queue, index as u64, &[target.part(8 + 8 * index as u64, 8)]);
                }
                xrc_send(pair, qp, 1, numbers[named], b"first");
                pair.expect_there(100 + round, WcStatus::Success, "the one posted first, to both");
                xrc_send(pair, qp, 2, numbers[1 - named], b"other");
                pair.expect_there(1 - named as u64, WcStatus::Success, "it is gone from the other queue");
                xrc_send(pair, qp, 3, numbers[named], b"again");
                pair.expect_there(named as u64, WcStatus::Success, "and from this one");
                assert_eq!(pair.here(3).iter().map(|done| done.id).collect::<Vec<_>>(), [1, 2, 3]);
            }
            pair.check_quiet();
        },
    )
}

fn withdrawal(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "receives in several queues",
        |has| has.multi_queue_receives,
        |pair| {
            let (qp, domain) = connect_xrc(pair);
            let (queues, [number, _]) = xrc_queues(pair, domain);
            // Taken back as often as the queue is deep and more: no place is lost.
            for id in 0..100 {
                let request = ReceiveRequest { id, list: &[] };
                let receive = pair.there.context.post_multi_queue_receive(&queues, &request).expect("there is room");
                assert_eq!(pair.there.context.withdraw_receive(receive), Ok(true));
                assert_eq!(pair.there.context.withdraw_receive(receive), Ok(false), "once");
            }
            let request = ReceiveRequest { id: 200, list: &[] };
            let receive = pair.there.context.post_multi_queue_receive(&queues, &request).expect("there is room");
            xrc_send(pair, qp, 1, number, b"");
            pair.expect_there(200, WcStatus::Success, "a message claims it");
            assert_eq!(pair.there.context.withdraw_receive(receive), Ok(false), "claimed");
        },
    )
}

fn notification(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "completion descriptor",
        |has| has.completion_descriptor,
        |pair| {
            let qp = pair.connect();
            for round in 0..5u64 {
                let queue = pair.there.completions;
                pair.there.receive(qp.there, round, &[]);
                // Woken to look after its link, perhaps, but not for ever.
                pair.until("silence", |pair| {
                    pair.there.context.acknowledge(queue).expect("acknowledged");
                    pair.there.context.arm(queue, fabric::NotifyOn::Any).expect("armed");
                    pair.there.poll();
                    !pair.there.is_readable()
                });
                assert!(pair.there.done.is_empty(), "nothing has come");
                pair.here.post(qp.here, &SendRequest::new(round, Operation::Send, Payload::Inline(b"")));
                // Only the sender is polled: what is readable there comes from the descriptor.
                let start = std::time::Instant::now();
                while !pair.there.is_readable() {
                    pair.here.poll();
                    std::thread::sleep(std::time::Duration::from_micros(50));
                    assert!(start.elapsed() < std::time::Duration::from_secs(60), "the descriptor stays silent");
                }
                pair.expect_there(round, WcStatus::Success, "what it told of");
                pair.expect_here(round, WcStatus::Success, "the send");
                pair.until("silence", |pair| {
                    pair.there.context.acknowledge(queue).expect("acknowledged");
                    !pair.there.is_readable()
                });
            }
        },
    )
}

fn solicited(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "completion descriptor",
        |has| has.completion_descriptor,
        |pair| {
            let qp = pair.connect();
            let queue = pair.there.completions;
            for id in 0..3 {
                pair.there.receive(qp.there, id, &[]);
            }
            pair.there.context.arm(queue, fabric::NotifyOn::Solicited).expect("armed");
            pair.here.post(qp.here, &SendRequest::new(1, Operation::Send, Payload::Inline(b"")));
            pair.expect_here(1, WcStatus::Success, "an ordinary send");
            pair.expect_there(0, WcStatus::Success, "its receive");
            // A link may have woken us to do its work; that is over when it is acknowledged.
            pair.until("silence", |pair| {
                pair.there.context.acknowledge(queue).expect("acknowledged");
                !pair.there.is_readable()
            });
            let mut request = SendRequest::new(2, Operation::Send, Payload::Inline(b""));
            request.flags = SendFlags { solicited: true, ..SendFlags::SIGNALLED };
            pair.here.post(qp.here, &request);
            pair.expect_here(2, WcStatus::Success, "a solicited send");
            pair.expect_there(1, WcStatus::Success, "its receive");
            pair.until("the bell", |pair| pair.there.is_readable());
        },
    )
}
