//! Sends to shared queues that do not wait for each other.

use std::collections::VecDeque;

use fabric::{
    Access, ConnectOptions, Destination, FabricError, LoneSend, MultiQueueReceive, Operation, Payload, QueuePair,
    QueuePairAttributes, ReceiveRequest, SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber,
    Transport, WcStatus, WorkCompletion, XrcDomain,
};

use super::{with_ability, with_pair};
use crate::memory::Memory;
use crate::side::{Pair, pattern};
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[
    Case { name: "queues_are_independent_only_where_that_is_offered", run: offered_or_refused },
    Case { name: "a_send_that_waits_for_its_queue_holds_up_none_to_others", run: others_pass },
    Case { name: "an_independent_message_waits_for_a_receive_that_is_long_enough", run: patience },
    Case { name: "independent_queues_deliver_each_in_order_whatever_waits_elsewhere", run: random_traffic },
    Case { name: "independent_sends_that_wait_end_with_their_queue_or_target", run: ends },
];

/// Bytes of a message that no device sends with its header.
const LONG_BYTES: usize = 100_000;

/// A queue pair whose sends are independent, the queues it reaches, and its far end.
struct Lines {
    qp: QueuePair,
    far: QueuePair,
    queues: Vec<SharedReceiveQueue>,
    numbers: Vec<SrqNumber>,
}

fn attributes(pair: &mut Pair) -> (QueuePairAttributes, QueuePairAttributes, XrcDomain) {
    let domain = pair.there.context.open_xrc_domain().expect("an XRC domain");
    let (mut ours, mut theirs) = (pair.here.attributes(), pair.there.attributes());
    (ours.transport, ours.receive_depth, ours.independent_queues) = (Transport::XrcInitiator, 0, true);
    (theirs.transport, theirs.send_depth, theirs.receive_depth) = (Transport::XrcTarget(domain), 0, 0);
    (ours, theirs, domain)
}

fn lines(pair: &mut Pair, queue_count: usize) -> Lines {
    let (ours, theirs, domain) = attributes(pair);
    let connection = pair.connect_as(&ConnectOptions::default(), &ours, &theirs);
    let queues: Vec<_> = (0..queue_count)
        .map(|_| {
            let xrc = Some((domain, pair.there.completions));
            let protection_domain = pair.there.domain;
            let attributes = SharedReceiveQueueAttributes { protection_domain, depth: 16, entries_max: 2, xrc };
            pair.there.context.create_shared_receive_queue(&attributes).expect("a shared receive queue")
        })
        .collect();
    let number = |queue: &SharedReceiveQueue| pair.there.context.shared_receive_queue_number(*queue).expect("a number");
    let numbers = queues.iter().map(number).collect();
    Lines { qp: connection.here, far: connection.there, queues, numbers }
}

/// How a send is handed to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Posted,
    /// With its memory, where the device takes that.
    Lone,
}

impl How {
    const BOTH: [How; 2] = [How::Posted, How::Lone];

    /// What the receive is told beside the bytes.
    fn immediate(self, id: u64) -> Option<u32> {
        (self == How::Posted).then_some(id as u32)
    }
}

impl Lines {
    fn send(&self, pair: &mut Pair, id: u64, queue: usize, memory: &Memory, (at, len): (usize, usize), how: How) {
        let number = self.numbers[queue];
        if how == How::Lone {
            match pair.here.context.post_lone_send(self.qp, number, id, memory.range(at, len)) {
                Ok(LoneSend::Done) => {
                    // Those before it are told first.
                    pair.here.poll();
                    return pair.here.done.push(WorkCompletion { id, bytes: len as u64, ..WorkCompletion::default() });
                }
                Ok(LoneSend::Posted) => return,
                Err(why) => assert!(matches!(why, FabricError::Unsupported { .. }), "{why}"),
            }
        }
        let list = [memory.part(at as u64, len as u32)];
        let operation = how.immediate(id).map_or(Operation::Send, Operation::SendWithImmediate);
        let mut request = SendRequest::new(id, operation, Payload::Memory(&list));
        request.destination = Destination::SharedReceiveQueue(number);
        pair.here.post(self.qp, &request);
    }

    fn receive(
        &self,
        pair: &mut Pair,
        id: u64,
        queue: usize,
        memory: &Memory,
        (at, len): (usize, usize),
    ) -> MultiQueueReceive {
        let list = [memory.part(at as u64, len as u32)];
        let request = ReceiveRequest { id, list: &list };
        pair.there.context.post_multi_queue_receive(&[self.queues[queue]], &request).expect("there is room")
    }
}

fn offered_or_refused(fixture: &mut dyn Fixture) -> Outcome {
    with_pair(fixture, |pair| {
        if !pair.here.context.capabilities().xrc {
            return;
        }
        let (mut ours, _, _) = attributes(pair);
        let is_offered = pair.here.context.capabilities().independent_queues;
        match pair.here.context.create_queue_pair(&ours) {
            Ok(_) => assert!(is_offered, "what the device can not do it refuses"),
            Err(why) => assert!(!is_offered && matches!(why, FabricError::Unsupported { .. }), "{why}"),
        }
        (ours.transport, ours.receive_depth) = (Transport::ReliableConnection, 4);
        let refused = pair.here.context.create_queue_pair(&ours);
        let is_refused = matches!(refused, Err(FabricError::InvalidRequest { .. } | FabricError::Unsupported { .. }));
        assert!(is_refused, "{refused:?}: a connection has one queue");
    })
}

fn with_lines(fixture: &mut dyn Fixture, case: impl FnOnce(&mut Pair)) -> Outcome {
    with_ability(fixture, "independent queues", |has| has.independent_queues && has.multi_queue_receives, case)
}

fn others_pass(fixture: &mut dyn Fixture) -> Outcome {
    with_lines(fixture, |pair| How::BOTH.into_iter().for_each(|how| others_pass_those_that_wait(pair, how)))
}

fn others_pass_those_that_wait(pair: &mut Pair, how: How) {
    let lines = lines(pair, 3);
    let (source, target) = (pair.here.memory(LONG_BYTES, Access::LOCAL), pair.there.memory(LONG_BYTES, Access::LOCAL));
    let bytes = pattern(LONG_BYTES, 7);
    source.write(0, &bytes);
    // Nobody receives from the first two: a short message and a long one wait, more behind each.
    for (id, queue, len) in [(1, 0, 10), (2, 1, LONG_BYTES), (3, 0, LONG_BYTES), (4, 1, 0)] {
        lines.send(pair, id, queue, &source, (0, len), how);
    }
    for (id, len) in [(10, 8), (11, LONG_BYTES), (12, 0)] {
        lines.send(pair, id, 2, &source, (0, len), how);
        lines.receive(pair, id, 2, &target, (0, LONG_BYTES));
        let got = pair.expect_there(id, WcStatus::Success, "a message to another queue");
        assert_eq!((got.bytes, got.immediate), (len as u64, how.immediate(id)));
        assert_eq!(target.read(0, len), bytes[..len]);
        pair.expect_here(id, WcStatus::Success, "a send to another queue");
    }
    pair.check_quiet();
    for (queue, id, len) in [(1, 2, LONG_BYTES), (0, 1, 10), (0, 3, LONG_BYTES), (1, 4, 0)] {
        target.fill(0);
        lines.receive(pair, 100 + id, queue, &target, (0, LONG_BYTES));
        let got = pair.expect_there(100 + id, WcStatus::Success, "what waited");
        assert_eq!((got.bytes, got.immediate), (len as u64, how.immediate(id)), "in the order of its queue");
        assert_eq!(target.read(0, len), bytes[..len]);
        pair.expect_here(id, WcStatus::Success, "a send that waited");
    }
    pair.check_quiet();
}

fn patience(fixture: &mut dyn Fixture) -> Outcome {
    with_lines(fixture, |pair| {
        let lines = lines(pair, 2);
        let (source, target) =
            (pair.here.memory(LONG_BYTES, Access::LOCAL), pair.there.memory(LONG_BYTES, Access::LOCAL));
        source.write(0, &pattern(LONG_BYTES, 8));
        for (len, how) in [100, LONG_BYTES].into_iter().flat_map(|len| How::BOTH.map(|how| (len, how))) {
            let short = lines.receive(pair, 1, 0, &target, (0, len - 1));
            lines.send(pair, 2, 0, &source, (0, len), how);
            lines.send(pair, 3, 0, &source, (0, 4), how);
            lines.receive(pair, 4, 1, &target, (0, 8));
            lines.send(pair, 5, 1, &source, (0, 8), how);
            pair.expect_there(4, WcStatus::Success, "the other queue goes on");
            pair.expect_here(5, WcStatus::Success, "the other queue goes on");
            let next = lines.receive(pair, 6, 0, &target, (0, len));
            pair.check_quiet();
            assert_eq!(pair.there.context.withdraw_receive(short), Ok(true), "nothing has taken it");
            let got = pair.expect_there(6, WcStatus::Success, "the first receive that is long enough");
            assert_eq!((got.bytes, target.read(0, len)), (len as u64, pattern(LONG_BYTES, 8)[..len].to_vec()));
            assert_eq!(pair.there.context.withdraw_receive(next), Ok(false), "claimed");
            lines.receive(pair, 7, 0, &target, (0, 4));
            pair.expect_there(7, WcStatus::Success, "the one behind it");
            let ids: Vec<u64> = pair.here(2).iter().map(|done| done.id).collect();
            assert_eq!(ids, [2, 3]);
        }
        // What was withdrawn before its message came is not filled, whether the message had been called for or not.
        lines.send(pair, 8, 0, &source, (0, LONG_BYTES), How::Posted);
        let early = lines.receive(pair, 9, 0, &target, (0, LONG_BYTES));
        if pair.there.context.withdraw_receive(early) == Ok(true) {
            lines.receive(pair, 9, 0, &target, (0, LONG_BYTES));
        }
        pair.expect_there(9, WcStatus::Success, "called for twice, filled once");
        pair.expect_here(8, WcStatus::Success, "sent once");
        pair.check_quiet();
    })
}

/// Against the naive way: in each queue the first message goes to the first receive.
fn random_traffic(fixture: &mut dyn Fixture) -> Outcome {
    const QUEUES: usize = 4;
    const MESSAGES: u64 = 160;
    /// Of one message in the memory of either side.
    const PLACE_BYTES: usize = 40_000;
    /// Receives of one queue that are not filled, and messages under way, at most.
    const AHEAD_MAX: u64 = 8;
    const UNDER_WAY_MAX: u64 = 48;
    with_lines(fixture, |pair| {
        let lines = lines(pair, QUEUES);
        let source = pair.here.memory(PLACE_BYTES * MESSAGES as usize, Access::LOCAL);
        let target = pair.there.memory(PLACE_BYTES * MESSAGES as usize, Access::LOCAL);
        let mut state = 11u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let lens = [0, 1, 700, 9000, 20_000, PLACE_BYTES];
        let plan: Vec<(usize, usize, How)> = (0..MESSAGES)
            .map(|_| {
                let (queue, len) = (random(QUEUES as u64) as usize, lens[random(lens.len() as u64) as usize]);
                (queue, len, How::BOTH[random(2) as usize])
            })
            .collect();
        // What each queue has yet to receive, in order; a receive has the number of its message.
        let mut due: [VecDeque<u64>; QUEUES] = Default::default();
        (0..MESSAGES).for_each(|id| due[plan[id as usize].0].push_back(id));
        let place = |id: u64, len: usize| (PLACE_BYTES * id as usize, len);
        let (mut sent, mut ahead, mut here, mut there) = (0u64, [0u64; QUEUES], Vec::new(), Vec::new());
        while there.len() < MESSAGES as usize || here.len() < MESSAGES as usize {
            if sent < MESSAGES && sent - (here.len() as u64) < UNDER_WAY_MAX && random(2) == 0 {
                let (queue, len, how) = plan[sent as usize];
                source.write(PLACE_BYTES * sent as usize, &pattern(len, sent));
                lines.send(pair, sent, queue, &source, place(sent, len), how);
                sent += 1;
            }
            let queue = random(QUEUES as u64) as usize;
            if ahead[queue] < AHEAD_MAX
                && random(3) == 0
                && let Some(id) = due[queue].front().copied()
            {
                // Not always as long as it could be; sometimes it is taken back, unless its message was quicker.
                let room = if random(2) == 0 { plan[id as usize].1 } else { PLACE_BYTES };
                let receive = lines.receive(pair, id, queue, &target, place(id, room));
                if random(4) > 0 || pair.there.context.withdraw_receive(receive) != Ok(true) {
                    due[queue].pop_front();
                    ahead[queue] += 1;
                }
            }
            pair.pump();
            here.append(&mut pair.here.done);
            for done in pair.there.done.drain(..) {
                ahead[plan[done.id as usize].0] -= 1;
                there.push(done);
            }
        }
        assert!(here.iter().chain(&there).all(|done| done.status == WcStatus::Success), "{here:?} {there:?}");
        for done in &there {
            let (_, len, how) = plan[done.id as usize];
            assert_eq!((done.immediate, done.bytes), (how.immediate(done.id), len as u64), "receive {}", done.id);
            assert_eq!(target.read(PLACE_BYTES * done.id as usize, len), pattern(len, done.id), "receive {}", done.id);
        }
        for queue in 0..QUEUES {
            let its = |id: &u64| plan[*id as usize].0 == queue;
            assert!(here.iter().map(|done| done.id).filter(its).is_sorted(), "sends end in the order of their queue");
        }
        let mut ids: Vec<u64> = here.iter().map(|done| done.id).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..MESSAGES), "each send ends once");
    })
}

fn ends(fixture: &mut dyn Fixture) -> Outcome {
    with_lines(fixture, |pair| {
        let source = pair.here.memory(LONG_BYTES, Access::LOCAL);
        let kinds = [(8, false), (8, true), (LONG_BYTES, false), (LONG_BYTES, true)];
        for ((len, is_queue), how) in kinds.into_iter().flat_map(|kind| How::BOTH.map(|how| (kind, how))) {
            let lines = lines(pair, 2);
            // The first is received: the target is known to be there.
            let target = pair.there.memory(8, Access::LOCAL);
            lines.receive(pair, 1, 0, &target, (0, 8));
            lines.send(pair, 2, 0, &source, (0, 8), how);
            pair.expect_there(1, WcStatus::Success, "a message");
            pair.expect_here(2, WcStatus::Success, "a send");
            (3..6).for_each(|id| lines.send(pair, id, 1, &source, (0, len), how));
            (0..20).for_each(|_| pair.pump());
            let expected = if is_queue {
                pair.there.context.destroy_shared_receive_queue(lines.queues[1]).expect("it is there");
                WcStatus::RemoteInvalidRequest
            } else {
                pair.there.context.destroy_queue_pair(lines.far).expect("it is there");
                WcStatus::TransportRetryExceeded
            };
            pair.expect_here(3, expected, "the first that waited");
            for id in 4..6 {
                pair.expect_here(id, WcStatus::WorkRequestFlushed, "those behind it");
            }
        }
    })
}
