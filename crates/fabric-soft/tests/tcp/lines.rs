//! Sends to shared queues that do not wait for each other: over broken connections, and in silence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::log::{Level, Log};
use base::memory::WriteRange;
use fabric::{
    Access, ConnectOptions, Context, Destination, LocalMemory, MemoryRegion, Operation, Payload, ProtectionDomain,
    QueuePair, QueuePairAttributes, ReceiveRequest, SendRequest, SharedReceiveQueue, SharedReceiveQueueAttributes,
    SrqNumber, Transport, WcStatus,
};
use fabric_soft::tcp::{self, JobSecret, Progress, TcpOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::side::{PATIENCE, Side, until};

const QUEUES: usize = 5;
const MESSAGES: u64 = 300;
const PLACE_BYTES: usize = 64 << 10;
const CUTS: u32 = 60;
/// Connections that were made, one after another, before the last message is sent.
const MADE_MIN: u64 = 6;

struct Lines {
    sides: [Side; 2],
    qp: QueuePair,
    queues: Vec<SharedReceiveQueue>,
    numbers: Vec<SrqNumber>,
}

impl Lines {
    /// A way from the first side to queues of the second.
    fn new(connections: usize) -> Self {
        let mut sides = [(); 2].map(|()| {
            let listen = vec!["127.0.0.1:0".parse().expect("an address")];
            let options = TcpOptions::new(JobSecret::new([3; 32]), listen, Log::new(Level::Warn, None));
            Side::with(TcpOptions { connections, patience: PATIENCE, ..options }, MESSAGES as usize * PLACE_BYTES)
        });
        let [here, there] = &mut sides;
        let xrc = there.adapter.open_xrc_domain().expect("an XRC domain");
        let attributes = SharedReceiveQueueAttributes {
            protection_domain: there.domain,
            depth: MESSAGES as u32,
            entries_max: 1,
            xrc: Some((xrc, there.completions)),
        };
        let queues: Vec<_> =
            (0..QUEUES).map(|_| there.adapter.create_shared_receive_queue(&attributes).expect("a queue")).collect();
        let number = |queue: &SharedReceiveQueue| there.adapter.shared_receive_queue_number(*queue).expect("a number");
        let numbers = queues.iter().map(number).collect();
        let ours = QueuePairAttributes {
            transport: Transport::XrcInitiator,
            independent_queues: true,
            send_depth: MESSAGES as u32,
            ..QueuePairAttributes::new(here.domain, here.completions)
        };
        let theirs = QueuePairAttributes {
            transport: Transport::XrcTarget(xrc),
            ..QueuePairAttributes::new(there.domain, there.completions)
        };
        let qp = here.adapter.create_queue_pair(&ours).expect("a queue pair");
        let far = there.adapter.create_queue_pair(&theirs).expect("a queue pair");
        let here_is = here.adapter.endpoint(qp).expect("an endpoint");
        let there_is = there.adapter.endpoint(far).expect("an endpoint");
        let options = ConnectOptions::default();
        fabric::connect(&mut there.adapter, far, Some(here_is), &options).expect("connects");
        fabric::connect(&mut here.adapter, qp, Some(there_is), &options).expect("connects");
        Self { sides, qp, queues, numbers }
    }

    fn send(&mut self, id: u64, queue: usize, len: usize) {
        let list = [self.sides[0].region.part(id * PLACE_BYTES as u64, len as u32)];
        let mut request = SendRequest::new(id, Operation::Send, Payload::Memory(&list));
        request.destination = Destination::SharedReceiveQueue(self.numbers[queue]);
        assert_eq!(self.sides[0].adapter.post_send(self.qp, &[request]), Ok(1));
    }

    fn receive(&mut self, id: u64, queue: usize) {
        let list = [self.sides[1].region.part(id * PLACE_BYTES as u64, PLACE_BYTES as u32)];
        let request = ReceiveRequest { id, list: &list };
        assert_eq!(self.sides[1].adapter.post_shared_receive(self.queues[queue], &[request]), Ok(1));
    }
}

fn under_cuts(seed: u64, connections: usize) {
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut lines = Lines::new(connections);
    let plan: Vec<(usize, usize)> = (0..MESSAGES)
        .map(|_| (rng.random_range(0..QUEUES), [0, 40, 5000, rng.random_range(0..PLACE_BYTES)][rng.random_range(0..4)]))
        .collect();
    let (mut sent, mut due): (u64, Vec<u64>) = (0, (0..MESSAGES).collect());
    let (mut here, mut there, mut cuts, start) = (Vec::new(), Vec::new(), 0, Instant::now());
    while here.len() < MESSAGES as usize || there.len() < MESSAGES as usize {
        let made = lines.sides[0].adapter.link().connections_made();
        // However long it takes to make one anew, the last message comes after several.
        let sendable = if made < MADE_MIN { MESSAGES - 1 } else { MESSAGES };
        if sent < sendable && rng.random_range(0..2) == 0 {
            let (queue, len) = plan[sent as usize];
            lines.sides[0].fill(sent as usize * PLACE_BYTES, len, sent as u8);
            lines.send(sent, queue, len);
            sent += 1;
        }
        if rng.random_range(0..2) == 0 {
            // The next of a random queue.
            let queue = rng.random_range(0..QUEUES);
            if let Some(at) = due.iter().position(|id| plan[*id as usize].0 == queue) {
                lines.receive(due.remove(at), queue);
            }
        }
        if (cuts < CUTS || made < MADE_MIN) && rng.random_range(0..12) == 0 {
            lines.sides[rng.random_range(0..2)].adapter.link().cut_connections();
            cuts += 1;
        }
        lines.sides.iter_mut().for_each(Side::poll);
        here.append(&mut lines.sides[0].done);
        there.append(&mut lines.sides[1].done);
        assert!(
            start.elapsed() < PATIENCE,
            "{} ended here, {} there, {cuts} cuts, {made} connections",
            here.len(),
            there.len()
        );
        std::thread::sleep(Duration::from_micros(50));
    }
    assert!(here.iter().chain(&there).all(|done| done.status == WcStatus::Success), "{here:?} {there:?}");
    for done in &there {
        let len = plan[done.id as usize].1;
        assert_eq!(done.bytes, len as u64, "receive {}: the message that was next in its queue", done.id);
        lines.sides[1].check(done.id as usize * PLACE_BYTES, len, done.id as u8, "sent");
    }
    let mut ids: Vec<u64> = here.iter().map(|done| done.id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(0..MESSAGES), "each once");
}

#[test]
fn each_queue_gets_its_messages_once_and_in_order_when_connections_are_cut() {
    (21..25).for_each(|seed| under_cuts(seed, 1));
}

#[test]
fn each_queue_gets_its_messages_once_and_in_order_when_parts_are_cut() {
    (31..33).for_each(|seed| under_cuts(seed, 3));
}

/// A long message, for which receive and send are posted in either order, is where it belongs before anybody has polled.
#[test]
fn with_adapter_threads_nobody_polls_for_what_comes_second() {
    const BYTES: usize = 3 << 20;
    for is_receive_first in [true, false] {
        let [mut here, mut there] = [(); 2].map(|()| {
            let listen = vec!["127.0.0.1:0".parse().expect("an address")];
            let options = TcpOptions::new(JobSecret::new([4; 32]), listen, Log::new(Level::Warn, None));
            tcp::open(TcpOptions { progress: Progress::Thread, patience: PATIENCE, ..options }).expect("a device")
        });
        let [(ours, here_done), (theirs, there_done)] = [&mut here, &mut there].map(|side| {
            let domain = side.allocate_protection_domain().expect("a domain");
            (domain, side.create_completion_queue(16).expect("a queue"))
        });
        let xrc = there.open_xrc_domain().expect("an XRC domain");
        let attributes = SharedReceiveQueueAttributes {
            protection_domain: theirs,
            depth: 4,
            entries_max: 1,
            xrc: Some((xrc, there_done)),
        };
        let queue = there.create_shared_receive_queue(&attributes).expect("a queue");
        let number = there.shared_receive_queue_number(queue).expect("a number");
        let initiator = QueuePairAttributes {
            transport: Transport::XrcInitiator,
            independent_queues: true,
            ..QueuePairAttributes::new(ours, here_done)
        };
        let target = QueuePairAttributes {
            transport: Transport::XrcTarget(xrc),
            ..QueuePairAttributes::new(theirs, there_done)
        };
        let qp = here.create_queue_pair(&initiator).expect("a queue pair");
        let far = there.create_queue_pair(&target).expect("a queue pair");
        let (here_is, there_is) = (here.endpoint(qp).expect("one"), there.endpoint(far).expect("one"));
        fabric::connect(there.as_mut(), far, Some(here_is), &ConnectOptions::default()).expect("connects");
        fabric::connect(here.as_mut(), qp, Some(there_is), &ConnectOptions::default()).expect("connects");
        let (source, source_bytes) = words(here.as_mut(), ours, BYTES);
        let (into, into_bytes) = words(there.as_mut(), theirs, BYTES);
        source_bytes.iter().enumerate().for_each(|(at, word)| word.store(!(at as u64), Ordering::Relaxed));
        let receive = |there: &mut dyn Context| {
            let list = [into.part(0, BYTES as u32)];
            let request = ReceiveRequest { id: 2, list: &list };
            there.post_multi_queue_receive(&[queue], &request).expect("there is room");
        };
        if is_receive_first {
            receive(there.as_mut());
        }
        let list = [source.part(0, BYTES as u32)];
        let mut request = SendRequest::new(1, Operation::Send, Payload::Memory(&list));
        request.destination = Destination::SharedReceiveQueue(number);
        assert_eq!(here.post_send(qp, &[request]), Ok(1));
        if !is_receive_first {
            std::thread::sleep(Duration::from_millis(20));
            receive(there.as_mut());
        }
        let start = Instant::now();
        let is_there = |word: usize| into_bytes[word].load(Ordering::Relaxed) == !(word as u64);
        while !(0..BYTES / 8).all(is_there) {
            assert!(start.elapsed() < PATIENCE, "it does not come by itself, receive first: {is_receive_first}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Registered memory that is never freed.
fn words(context: &mut dyn Context, domain: ProtectionDomain, len: usize) -> (MemoryRegion, &'static [AtomicU64]) {
    let words: &'static [AtomicU64] = Box::leak((0..len / 8).map(|_| AtomicU64::new(0)).collect());
    // SAFETY: leaked memory is valid for ever, and its words are atomic: others may write them at any moment.
    let range = unsafe { WriteRange::new(words.as_ptr().cast_mut().cast(), len) };
    (context.register(domain, LocalMemory::Target(range), Access::LOCAL).expect("a region"), words)
}

#[test]
fn what_waits_for_its_receive_costs_no_packets() {
    let mut lines = Lines::new(1);
    for id in 0..2 * QUEUES as u64 {
        lines.sides[0].fill(id as usize * PLACE_BYTES, PLACE_BYTES, id as u8);
        lines.send(id, id as usize % QUEUES, if id % 2 == 0 { PLACE_BYTES } else { 100 });
    }
    // Whatever there is to say has been said: messages to oneself, as it were, go all the way.
    for _ in 0..200 {
        lines.sides.iter_mut().for_each(Side::poll);
        std::thread::sleep(Duration::from_micros(100));
    }
    let writes = |lines: &mut Lines| lines.sides.each_mut().map(|side| side.adapter.link().writes());
    let before = writes(&mut lines);
    let start = Instant::now();
    // Longer than a held send of a connection waits until it asks again.
    while start.elapsed() < Duration::from_millis(250) {
        lines.sides.iter_mut().for_each(Side::poll);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(writes(&mut lines), before, "nobody asks again");
    for id in 0..2 * QUEUES as u64 {
        lines.receive(id, id as usize % QUEUES);
    }
    until(&mut lines.sides, "what waited", |sides| sides.iter().all(|side| side.done.len() == 2 * QUEUES));
    for id in 0..2 * QUEUES {
        let len = if id % 2 == 0 { PLACE_BYTES } else { 100 };
        lines.sides[1].check(id * PLACE_BYTES, len, id as u8, "sent");
    }
}
