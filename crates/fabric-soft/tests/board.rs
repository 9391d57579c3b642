//! Sends to shared receive queues over shared memory: the second to arrive moves the data, and nobody else is needed.

use std::collections::VecDeque;

use base::memory::{ReadRange, WriteRange};
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, Destination, FabricError, LocalMemory, LoneSend, MemoryRegion,
    MultiQueueReceive, Operation, Payload, PeerIndex, ProtectionDomain, QueuePair, QueuePairAttributes, ReceiveRequest,
    SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber, Transition, Transport, WcStatus,
    WorkCompletion,
};
use fabric_soft::SoftContext;
use fabric_soft::shm::{Segment, Shape, ShmLink, probe_cross_memory};

const BYTES: usize = 1 << 20;

struct Side {
    context: SoftContext<ShmLink>,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    bytes: *mut u8,
    region: MemoryRegion,
}

impl Side {
    fn new(segment: Segment, place: u32) -> Self {
        let link = ShmLink::join(segment, PeerIndex(place), probe_cross_memory()).expect("a place");
        let mut context = SoftContext::new(link);
        let domain = context.allocate_protection_domain().expect("a domain");
        let completions = context.create_completion_queue(1024).expect("a completion queue");
        let words: &'static mut [u64] = Box::leak(vec![0u64; BYTES / 8].into_boxed_slice());
        let bytes = words.as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever, and is reached through raw pointers only.
        let range = unsafe { WriteRange::new(bytes, BYTES) };
        let region = context.register(domain, LocalMemory::Target(range), Access::LOCAL).expect("a region");
        Self { context, domain, completions, bytes, region }
    }

    fn byte(&self, at: usize) -> u8 {
        assert!(at < BYTES);
        // SAFETY: inside the leaked memory; peers may write, hence volatile.
        unsafe { self.bytes.add(at).read_volatile() }
    }

    fn fill(&self, at: usize, len: usize, byte: u8) {
        assert!(at + len <= BYTES);
        // SAFETY: inside the leaked memory.
        unsafe { self.bytes.add(at).write_bytes(byte, len) };
    }

    fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut into = [WorkCompletion::default(); 256];
        let count = self.context.poll(self.completions, &mut into).expect("a whole completion queue");
        into[..count].to_vec()
    }

    /// What has come, as ids, all of it well.
    fn ids(&mut self) -> Vec<u64> {
        let done = self.poll();
        assert!(done.iter().all(|done| done.status == WcStatus::Success), "{done:?}");
        done.iter().map(|done| done.id).collect()
    }
}

/// A sender, an owner of three queues, and the way from one to the other.
struct Board {
    sender: Side,
    owner: Side,
    qp: QueuePair,
    far: QueuePair,
    queues: [SharedReceiveQueue; 3],
    numbers: [SrqNumber; 3],
}

/// `None` where the system refuses cross-memory attach.
fn board(independent_queues: bool) -> Option<Board> {
    if let Err(why) = probe_cross_memory() {
        println!("skipped: whoever comes second moves the data: {why}");
        return None;
    }
    let shape = Shape { process_count: 2, channel_bytes: 16 << 10, ..Shape::default() };
    let segment = Segment::create(shape).expect("memory");
    let (mut sender, mut owner) = (Side::new(segment.clone(), 0), Side::new(segment, 1));
    let xrc = owner.context.open_xrc_domain().expect("an XRC domain");
    let queues = [(), (), ()].map(|()| {
        let attributes = SharedReceiveQueueAttributes {
            protection_domain: owner.domain,
            depth: 64,
            entries_max: 8,
            xrc: Some((xrc, owner.completions)),
        };
        owner.context.create_shared_receive_queue(&attributes).expect("a queue")
    });
    let numbers = queues.map(|queue| owner.context.shared_receive_queue_number(queue).expect("a number"));
    let usual = QueuePairAttributes::new(sender.domain, sender.completions);
    let attributes = QueuePairAttributes { transport: Transport::XrcInitiator, independent_queues, ..usual };
    let qp = sender.context.create_queue_pair(&attributes).expect("a queue pair");
    let usual = QueuePairAttributes::new(owner.domain, owner.completions);
    let attributes = QueuePairAttributes { transport: Transport::XrcTarget(xrc), ..usual };
    let far = owner.context.create_queue_pair(&attributes).expect("a queue pair");
    let (ours, theirs) = (sender.context.endpoint(qp).expect("one"), owner.context.endpoint(far).expect("one"));
    let options = ConnectOptions::default();
    fabric::connect(&mut owner.context, far, Some(ours), &options).expect("connects");
    fabric::connect(&mut sender.context, qp, Some(theirs), &options).expect("connects");
    Some(Board { sender, owner, qp, far, queues, numbers })
}

impl Board {
    fn send(&mut self, id: u64, queue: usize, at: u64, len: u32) {
        let list = [self.sender.region.part(at, len)];
        let operation = Operation::SendWithImmediate(id as u32);
        let mut request = SendRequest::new(id, operation, Payload::Memory(&list));
        request.destination = Destination::SharedReceiveQueue(self.numbers[queue]);
        assert_eq!(self.sender.context.post_send(self.qp, &[request]), Ok(1));
    }

    /// Sends memory that has no key.
    fn send_lone(&mut self, id: u64, queue: usize, at: usize, len: usize) -> Option<LoneSend> {
        assert!(at + len <= BYTES);
        // SAFETY: inside the leaked memory.
        let memory = unsafe { ReadRange::new(self.sender.bytes.add(at), len) };
        match self.sender.context.post_lone_send(self.qp, self.numbers[queue], id, memory) {
            Ok(sent) => Some(sent),
            Err(FabricError::Unsupported { .. }) => None,
            Err(why) => panic!("{why}"),
        }
    }

    fn receive(&mut self, id: u64, queue: usize, at: u64, len: u32) -> MultiQueueReceive {
        let list = [self.owner.region.part(at, len)];
        let request = ReceiveRequest { id, list: &list };
        self.owner.context.post_multi_queue_receive(&[self.queues[queue]], &request).expect("there is room")
    }
}

#[test]
fn a_receiver_that_never_polls_gets_all_messages_into_receives_it_posted() {
    let Some(mut board) = board(false) else { return };
    for id in 0..40u64 {
        board.receive(id, id as usize % 3, id * 8192, 8192);
    }
    for id in 0..40u64 {
        board.sender.fill(0, 8192, id as u8 + 1);
        board.send(100 + id, id as usize % 3, 0, 8191 - id as u32);
        assert_eq!(board.sender.ids(), [100 + id], "complete, though nobody polls at the other side");
    }
    for id in 0..40usize {
        let len = 8191 - id;
        assert_eq!((board.owner.byte(id * 8192), board.owner.byte(id * 8192 + len - 1)), (id as u8 + 1, id as u8 + 1));
        assert_eq!(board.owner.byte(id * 8192 + len), 0, "and no byte more");
    }
    let done = board.owner.poll();
    assert_eq!(done.len(), 40);
    for done in done {
        assert_eq!((done.bytes, done.immediate), (8191 - done.id, Some(100 + done.id as u32)));
    }
}

#[test]
fn a_sender_that_never_polls_loses_its_messages_to_receives_posted_later() {
    let Some(mut board) = board(true) else { return };
    for id in 0..40u64 {
        board.sender.fill(id as usize * 8192, 8192, id as u8 + 1);
        board.send(100 + id, id as usize % 3, id * 8192, 8192);
    }
    // Backwards by queue: none waits for another.
    for queue in [2, 1, 0] {
        for id in (0..40u64).filter(|id| *id as usize % 3 == queue) {
            board.receive(id, queue, id * 8192, 8192);
            assert_eq!(board.owner.byte(id as usize * 8192 + 8191), id as u8 + 1, "there when posting returns");
            assert_eq!(board.owner.ids(), [id]);
        }
    }
    let mut sent = board.sender.ids();
    sent.sort_unstable();
    assert!(sent.into_iter().eq(100..140));
}

#[test]
fn a_send_of_memory_without_a_key_is_over_at_once_or_ends_when_it_is_fetched() {
    let Some(mut board) = board(true) else { return };
    board.sender.fill(0, BYTES, 7);
    board.receive(1, 0, 0, 9000);
    assert_eq!(board.send_lone(2, 0, 0, 8999), Some(LoneSend::Done), "its receive was there");
    assert_eq!((board.owner.byte(8998), board.owner.byte(8999)), (7, 0));
    assert_eq!((board.owner.ids(), board.sender.ids()), (vec![1], vec![]), "nothing more is told of it");
    assert_eq!(board.send_lone(3, 0, 0, 100_000), Some(LoneSend::Posted));
    assert_eq!(board.send_lone(4, 0, 0, 0), Some(LoneSend::Posted), "behind it");
    board.send(5, 0, 0, 10);
    assert_eq!(board.send_lone(6, 0, 0, 20), Some(LoneSend::Posted), "behind one with a key");
    assert_eq!(board.sender.ids(), []);
    for (receive, send, len) in [(13, 3, 100_000), (14, 4, 0), (15, 5, 10), (16, 6, 20)] {
        board.receive(receive, 0, 200_000, 100_000);
        let done = board.owner.poll();
        assert_eq!(done.iter().map(|done| (done.id, done.bytes)).collect::<Vec<_>>(), [(receive, len)]);
        assert_eq!(board.sender.ids(), [send]);
    }
    assert_eq!((board.owner.byte(200_000), board.owner.byte(299_999), board.owner.byte(300_000)), (7, 7, 0));
}

#[test]
fn memory_without_a_key_is_sent_only_where_receivers_fetch_it() {
    let Some(mut of_one_line) = board(false) else { return };
    assert_eq!(of_one_line.send_lone(1, 0, 0, 8), None, "its queues are not independent");
    let Some(mut board) = board(true) else { return };
    board.sender.fill(0, 64, 9);
    assert_eq!(board.send_lone(1, 0, 0, 64), Some(LoneSend::Posted));
    // A receive in two queues takes them off the board: what waited comes as a packet all the same, read where it is.
    let list = [board.owner.region.part(0, 64)];
    let request = ReceiveRequest { id: 2, list: &list };
    board.owner.context.post_multi_queue_receive(&board.queues[..2], &request).expect("there is room");
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        sent.append(&mut board.sender.ids());
        received.append(&mut board.owner.ids());
    }
    assert_eq!((sent, received, board.owner.byte(63)), (vec![1], vec![2], 9));
    assert_eq!(board.send_lone(3, 0, 0, 8), None, "from now on by packets");
    board.sender.context.modify(board.qp, &Transition::Error).expect("it may");
    assert_eq!(board.send_lone(4, 1, 0, 8), None, "it sends nothing any more");
    board.sender.context.destroy_queue_pair(board.qp).expect("it is there");
    assert_eq!(board.send_lone(5, 1, 0, 8), None, "there is no such queue pair");
}

#[test]
fn sends_of_memory_without_a_key_end_with_their_queue_pair_and_count_among_those_of_it() {
    let Some(mut board) = board(true) else { return };
    let depth = QueuePairAttributes::new(board.sender.domain, board.sender.completions).send_depth as u64;
    for id in 0..depth {
        assert_eq!(board.send_lone(id, 0, 0, 8), Some(LoneSend::Posted), "send {id} of {depth}");
    }
    assert_eq!(board.send_lone(depth, 0, 0, 8), None, "the queue is full");
    board.sender.context.modify(board.qp, &Transition::Error).expect("it may");
    let mut flushed = Vec::new();
    while flushed.len() < depth as usize {
        flushed.append(&mut board.sender.poll());
    }
    assert!(flushed.iter().all(|done| done.status == WcStatus::WorkRequestFlushed), "{flushed:?}");
    assert!(flushed.iter().map(|done| done.id).eq(0..depth));
    board.receive(1, 0, 0, 8);
    assert_eq!(board.owner.ids(), [], "nothing of them is left");
}

/// A receive, and the send that filled it, by its length; where it told its number, too, that is the same.
fn known_again(done: &WorkCompletion) -> (u64, u64) {
    let send = done.bytes / 10;
    assert!(done.immediate.is_none_or(|told| u64::from(told) == send), "{done:?}");
    (done.id, send)
}

/// Against the naive way: per queue, the first send goes to the first receive.
#[test]
fn random_programs_match_first_to_first() {
    for seed in 1..=20u64 {
        let Some(mut board) = board(true) else { return };
        let mut state = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut posted: [VecDeque<(u64, MultiQueueReceive)>; 3] = Default::default();
        let mut sent: [VecDeque<u64>; 3] = Default::default();
        let (mut pairs, mut got, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for id in 0..400u64 {
            let queue = random(3) as usize;
            let at = (id % 200) * 4096;
            match random(5) {
                0 | 1 if posted[queue].len() < 20 => {
                    let handle = board.receive(id, queue, at, 4096);
                    match sent[queue].pop_front() {
                        Some(send) => pairs.push((id, send)),
                        None => posted[queue].push_back((id, handle)),
                    }
                }
                2 | 3 if sent.iter().map(VecDeque::len).sum::<usize>() < 40 => {
                    // By its length a message is known again.
                    let len = 10 * id as u32 + 1;
                    if random(2) == 0 {
                        board.send(id, queue, at, len);
                    } else if board.send_lone(id, queue, at as usize, len as usize) == Some(LoneSend::Done) {
                        done.push(id);
                    }
                    match posted[queue].pop_front() {
                        Some((receive, _)) => pairs.push((receive, id)),
                        None => sent[queue].push_back(id),
                    }
                }
                4 if !posted[queue].is_empty() => {
                    let which = random(posted[queue].len() as u64) as usize;
                    let (_, handle) = posted[queue].remove(which).expect("inside");
                    assert_eq!(board.owner.context.withdraw_receive(handle), Ok(true), "seed {seed}");
                    assert_eq!(board.owner.context.withdraw_receive(handle), Ok(false), "seed {seed}: once");
                }
                _ if random(2) == 0 => {
                    got.extend(board.owner.poll().iter().map(known_again));
                    done.extend(board.sender.ids());
                }
                _ => {}
            }
        }
        got.extend(board.owner.poll().iter().map(known_again));
        done.extend(board.sender.ids());
        let mut expected: Vec<u64> = pairs.iter().map(|(_, send)| *send).collect();
        pairs.sort_unstable();
        got.sort_unstable();
        expected.sort_unstable();
        done.sort_unstable();
        assert_eq!((got, done), (pairs, expected), "seed {seed}");
    }
}

#[test]
fn a_message_that_is_too_long_fails_at_both_sides_whoever_comes_first() {
    for sender_first in [false, true] {
        let Some(mut board) = board(false) else { return };
        if !sender_first {
            board.receive(1, 0, 0, 16);
        }
        board.send(2, 0, 0, 17);
        if sender_first {
            board.receive(1, 0, 0, 16);
        }
        let (mut here, mut there) = (Vec::new(), Vec::new());
        while here.is_empty() || there.is_empty() {
            here.extend(board.sender.poll());
            there.extend(board.owner.poll());
        }
        assert_eq!((here[0].id, here[0].status), (2, WcStatus::RemoteInvalidRequest), "sender first: {sender_first}");
        assert_eq!((there[0].id, there[0].status), (1, WcStatus::LocalLengthError));
    }
}

#[test]
fn where_queues_are_independent_a_message_that_is_too_long_waits() {
    let Some(mut board) = board(true) else { return };
    let short = board.receive(1, 0, 0, 16);
    board.send(2, 0, 0, 17);
    board.send(3, 0, 0, 4);
    assert!(board.sender.poll().is_empty() && board.owner.poll().is_empty());
    assert_eq!(board.owner.context.withdraw_receive(short), Ok(true));
    board.receive(4, 0, 0, 17);
    board.receive(5, 0, 0, 16);
    assert_eq!((board.owner.ids(), board.sender.ids()), (vec![4, 5], vec![2, 3]));
}

#[test]
fn memory_that_goes_is_not_touched_any_more() {
    let Some(mut board) = board(true) else { return };
    board.receive(1, 0, 0, 16);
    board.send(2, 1, 0, 16);
    let (mine, theirs) = (board.sender.region, board.owner.region);
    board.owner.context.deregister(theirs).expect("it is there");
    board.sender.fill(0, 16, 9);
    board.send(3, 0, 0, 16);
    board.sender.context.deregister(mine).expect("it is there");
    let (mut here, mut there) = (Vec::new(), Vec::new());
    while here.len() < 2 || there.is_empty() {
        here.extend(board.sender.poll());
        there.extend(board.owner.poll());
    }
    assert_eq!((there[0].id, there[0].status), (1, WcStatus::LocalProtectionError));
    assert!(here.iter().all(|done| done.status != WcStatus::Success), "{here:?}");
    assert_eq!(board.owner.byte(0), 0);
}

#[test]
fn sends_that_wait_end_with_their_queue_pair_or_that_of_their_peer_or_their_queue() {
    for case in ["own", "peer's", "queue"] {
        let Some(mut board) = board(true) else { return };
        for id in 0..3 {
            board.send(id, 0, 0, 16);
        }
        match case {
            "own" => board.sender.context.modify(board.qp, &Transition::Error).expect("any state"),
            "peer's" => board.owner.context.destroy_queue_pair(board.far).expect("it is there"),
            _ => board.owner.context.destroy_shared_receive_queue(board.queues[0]).expect("it is there"),
        }
        let mut done = Vec::new();
        while done.len() < 3 {
            done.extend(board.sender.poll());
            board.owner.poll();
        }
        let expected = match case {
            "own" => WcStatus::WorkRequestFlushed,
            "peer's" => WcStatus::TransportRetryExceeded,
            _ => WcStatus::RemoteInvalidRequest,
        };
        assert_eq!((done[0].id, done[0].status), (0, expected), "{case}");
        assert!(done[1..].iter().all(|done| done.status == WcStatus::WorkRequestFlushed), "{case} {done:?}");
    }
}

#[test]
fn a_full_send_queue_counts_what_waits_on_the_board() {
    let Some(mut board) = board(true) else { return };
    let list = [board.sender.region.part(0, 8)];
    let mut request = SendRequest::new(1, Operation::Send, Payload::Memory(&list));
    request.destination = Destination::SharedReceiveQueue(board.numbers[0]);
    let depth = 64;
    for _ in 0..depth {
        assert_eq!(board.sender.context.post_send(board.qp, &[request]), Ok(1));
    }
    assert_eq!(board.sender.context.post_send(board.qp, &[request]), Ok(0), "full");
    board.receive(2, 0, 0, 8);
    assert_eq!(board.sender.ids(), [1]);
    assert_eq!(board.sender.context.post_send(board.qp, &[request]), Ok(1), "room again");
}
