//! Queues that are full, and messages that are too long for their receives, beyond the usual kind of queue.

use fabric::{
    Access, AsynchronousEvent, ConnectOptions, FabricError, Operation, Payload, QueuePairState, ReceiveRequest,
    SendRequest, WcStatus, WorkCompletion,
};

use super::queues::{connect_to_domain, connect_xrc, fill, post_shared, xrc_queue, xrc_queues, xrc_send};
use super::{with_ability, with_pair};
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[
    Case { name: "a_completion_queue_that_receives_overrun_says_so", run: receives_overrun },
    Case { name: "a_full_xrc_shared_queue_takes_no_more_and_loses_nothing", run: xrc_queue_full },
    Case { name: "a_receive_in_several_queues_needs_a_place_in_each", run: several_of_which_one_is_full },
    Case { name: "truncation_over_xrc_fails_at_both_sides", run: xrc_truncation },
];

fn receives_overrun(fixture: &mut dyn Fixture) -> Outcome {
    if !fixture.has_exact_depths() {
        return Outcome::Skipped("the device rounds depths and tells of an overrun by its own ways".into());
    }
    with_pair(fixture, |pair| {
        let small = pair.there.context.create_completion_queue(4).expect("a completion queue");
        let (ours, mut theirs) = (pair.here.attributes(), pair.there.attributes());
        theirs.receive_completions = small;
        let qp = pair.connect_as(&ConnectOptions::default(), &ours, &theirs);
        let other = pair.connect();
        for id in 0..6 {
            pair.there.receive(qp.there, id, &[]);
            pair.here.post(qp.here, &SendRequest::new(id, Operation::Send, Payload::Inline(b"")));
        }
        pair.until("the overrun", |pair| pair.there.state(qp.there) == QueuePairState::Error);
        let event = pair.there.context.next_event();
        assert_eq!(event, Some(AsynchronousEvent::CompletionQueueOverrun(small)));
        let mut into = [WorkCompletion::default(); 8];
        let saved = pair.there.context.poll(small, &mut into).expect("what was saved");
        let saved: Vec<_> = into[..saved].iter().map(|done| (done.id, done.status)).collect();
        assert_eq!(saved, [0, 1, 2, 3].map(|id| (id, WcStatus::Success)));
        let overrun = pair.there.context.poll(small, &mut into);
        assert!(matches!(overrun, Err(FabricError::CompletionQueueOverrun { .. })), "{overrun:?}");
        pair.until("the end of the sends", |pair| pair.here.done.len() >= 6);
        pair.here.done.clear();
        pair.check_alive(other);
    })
}

fn xrc_queue_full(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "XRC",
        |has| has.xrc,
        |pair| {
            let (qp, domain) = connect_xrc(pair);
            let (queue, number) = xrc_queue(&mut pair.there, domain);
            // A second time when all places were used once.
            for _ in 0..2 {
                let taken = fill(|request| pair.there.context.post_shared_receive(queue, &[*request]));
                for id in 0..taken {
                    xrc_send(pair, qp, id, number, b"");
                    pair.expect_there(id, WcStatus::Success, "each receive is filled in its turn");
                    pair.expect_here(id, WcStatus::Success, "a send");
                }
            }
            pair.check_quiet();
        },
    )
}

fn several_of_which_one_is_full(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "receives in several queues",
        |has| has.multi_queue_receives,
        |pair| {
            let (qp, domain) = connect_xrc(pair);
            let (queues, [number, _]) = xrc_queues(pair, domain);
            let [full, other] = queues;
            let taken = fill(|request| pair.there.context.post_shared_receive(full, &[*request]));
            let in_both = ReceiveRequest { id: 1000, list: &[] };
            for _ in 0..100 {
                let refused = pair.there.context.post_multi_queue_receive(&queues, &in_both);
                assert!(matches!(refused, Err(FabricError::Exhausted { .. })), "{refused:?}");
            }
            let beside = fill(|request| pair.there.context.post_shared_receive(other, &[*request]));
            assert_eq!(beside, taken, "what was refused takes no place in the other queue");
            xrc_send(pair, qp, 1, number, b"");
            pair.expect_there(0, WcStatus::Success, "the first of the full queue");
            pair.expect_here(1, WcStatus::Success, "its send");
            let refused = pair.there.context.post_multi_queue_receive(&queues, &in_both);
            assert!(matches!(refused, Err(FabricError::Exhausted { .. })), "the other is full now: {refused:?}");
            pair.there.context.post_multi_queue_receive(&[full], &in_both).expect("there is room again");
        },
    )
}

fn xrc_truncation(fixture: &mut dyn Fixture) -> Outcome {
    with_ability(
        fixture,
        "XRC",
        |has| has.xrc,
        |pair| {
            let (qp, domain) = connect_xrc(pair);
            let (queue, number) = xrc_queue(&mut pair.there, domain);
            let target = pair.there.memory(32, Access::LOCAL);
            target.fill(7);
            post_shared(&mut pair.there, queue, 1, &[target.part(8, 8)]);
            post_shared(&mut pair.there, queue, 2, &[target.part(16, 16)]);
            xrc_send(pair, qp, 3, number, b"too long");
            pair.expect_there(1, WcStatus::Success, "one that just fits");
            pair.expect_here(3, WcStatus::Success, "its send");
            post_shared(&mut pair.there, queue, 4, &[target.part(0, 8)]);
            xrc_send(pair, qp, 5, number, b"longer than sixteen bytes");
            pair.expect_there(2, WcStatus::LocalLengthError, "a receive that is too short");
            pair.expect_here(5, WcStatus::RemoteInvalidRequest, "its send");
            assert_eq!(pair.here.state(qp), QueuePairState::Error);
            assert_eq!(target.all(), [&[7; 8][..], b"too long", &[7; 16]].concat(), "nothing of it is written");
            // The queue is not its queue pair's, and serves others.
            let another = connect_to_domain(pair, domain);
            xrc_send(pair, another, 6, number, b"another");
            pair.expect_there(4, WcStatus::Success, "the next receive");
            pair.expect_here(6, WcStatus::Success, "its send");
            assert_eq!(target.read(0, 7), b"another");
        },
    )
}
