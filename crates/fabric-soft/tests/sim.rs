//! The simulated network: what it costs, what it breaks, and what connections keep all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, DatagramAddress, Destination, FabricError, LocalMemory,
    MemoryRegion, Operation, Payload, ProtectionDomain, Qkey, QueuePair, QueuePairAttributes, QueuePairState,
    ReceiveRequest, SendRequest, Transport, WcStatus, WorkCompletion,
};
use fabric_soft::SoftContext;
use fabric_soft::link::{HEADER_BYTES, Link, LinkPeer, Outgoing, Placement, Responder, SendOutcome};
use fabric_soft::sim::{Fault, LinkCost, SimClock, SimLink, SimNetwork, SimPlan};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Bytes in front of a datagram.
const HEADER: usize = 40;

/// An adapter with what a test needs of it.
struct Side {
    context: SoftContext<SimLink>,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    region: MemoryRegion,
    bytes: *const u8,
}

impl Side {
    fn new(network: &SimNetwork, len_bytes: usize) -> Self {
        let mut context = SoftContext::new(network.link().unwrap());
        let domain = context.allocate_protection_domain().unwrap();
        let completions = context.create_completion_queue(4096).unwrap();
        let start = Box::leak(vec![0u64; len_bytes.div_ceil(8)].into_boxed_slice()).as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever; it is read between polls only, when no adapter writes.
        let range = unsafe { WriteRange::new(start, len_bytes) };
        let region = context.register(domain, LocalMemory::Target(range), Access::REMOTE_ALL).unwrap();
        Self { context, domain, completions, region, bytes: start }
    }

    fn attributes(&self, transport: Transport) -> QueuePairAttributes {
        QueuePairAttributes {
            transport,
            send_depth: 512,
            receive_depth: 512,
            ..QueuePairAttributes::new(self.domain, self.completions)
        }
    }

    fn queue_pair(&mut self, transport: Transport) -> QueuePair {
        let attributes = self.attributes(transport);
        self.context.create_queue_pair(&attributes).unwrap()
    }

    fn datagram_queue_pair(&mut self) -> QueuePair {
        let qp = self.queue_pair(Transport::UnreliableDatagram);
        let options = ConnectOptions { qkey: Qkey(7), ..ConnectOptions::default() };
        fabric::connect(&mut self.context, qp, None, &options).unwrap();
        qp
    }

    fn receive(&mut self, qp: QueuePair, id: u64, at: u64, len_bytes: u32) {
        let list = [self.region.part(at, len_bytes)];
        assert_eq!(self.context.post_receive(qp, &[ReceiveRequest { id, list: &list }]), Ok(1));
    }

    fn send(&mut self, qp: QueuePair, id: u64, at: u64, len_bytes: u32) {
        let list = [self.region.part(at, len_bytes)];
        let request = SendRequest::new(id, Operation::Send, Payload::Memory(&list));
        assert_eq!(self.context.post_send(qp, &[request]), Ok(1));
    }

    fn send_number(&mut self, qp: QueuePair, number: u64, destination: Destination) {
        let bytes = number.to_le_bytes();
        let request = SendRequest { destination, ..SendRequest::new(number, Operation::Send, Payload::Inline(&bytes)) };
        assert_eq!(self.context.post_send(qp, &[request]), Ok(1));
    }

    fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut done = [WorkCompletion::default(); 64];
        let count = self.context.poll(self.completions, &mut done).unwrap();
        done[..count].to_vec()
    }

    fn number_at(&self, at: usize) -> u64 {
        // SAFETY: the places are inside the leaked memory and multiples of 8; no adapter writes between polls.
        unsafe { self.bytes.add(at).cast::<u64>().read_volatile() }
    }
}

fn connect(here: &mut Side, there: &mut Side) -> [QueuePair; 2] {
    let rc = Transport::ReliableConnection;
    let [ours, theirs] = [here.queue_pair(rc), there.queue_pair(rc)];
    let (here_is, there_is) = (here.context.endpoint(ours).unwrap(), there.context.endpoint(theirs).unwrap());
    fabric::connect(&mut there.context, theirs, Some(here_is), &ConnectOptions::default()).unwrap();
    fabric::connect(&mut here.context, ours, Some(there_is), &ConnectOptions::default()).unwrap();
    [ours, theirs]
}

/// Polls both in turn until `end`; in virtual time, so a limit of polls is no limit of time.
fn until(here: &mut Side, there: &mut Side, mut end: impl FnMut(&[WorkCompletion], &[WorkCompletion]) -> bool) {
    for _ in 0..2_000_000 {
        let (ours, theirs) = (here.poll(), there.poll());
        if end(&ours, &theirs) {
            return;
        }
    }
    panic!("it does not end");
}

const COST: LinkCost = LinkCost { latency_ns: 1300, overhead_ns: 170, gap_ns: 400, gap_per_byte_ps: 2500 };

#[test]
fn a_ping_pong_costs_what_log_g_p_says() {
    // o + (k - 1) G + L + o, by hand: 170 + 1300 + 170, and 2.5 ns for each byte after the first.
    for (len_bytes, one_way_ns) in [(0, 1640), (1, 1640), (9, 1660), (4097, 11880), (1 << 20, 2_623_077)] {
        let network = SimNetwork::new(SimPlan { cost: COST, timeout_ns: 1 << 40, ..SimPlan::new(1) });
        let (mut here, mut there) = (Side::new(&network, 1 << 20), Side::new(&network, 1 << 20));
        let [ours, theirs] = connect(&mut here, &mut there);
        for round in 0..5 {
            here.receive(ours, 1, 0, 1 << 20);
            there.receive(theirs, 2, 0, 1 << 20);
            let start = network.now();
            here.send(ours, 3, 0, len_bytes);
            let mut there_at = Duration::ZERO;
            until(&mut here, &mut there, |_, done| {
                there_at = network.now();
                done.iter().any(|done| done.id == 2)
            });
            assert_eq!((there_at - start).as_nanos(), one_way_ns, "ping of {len_bytes}, round {round}");
            there.send(theirs, 4, 0, len_bytes);
            until(&mut here, &mut there, |done, _| done.iter().any(|done| done.id == 1));
            assert_eq!((network.now() - start).as_nanos(), 2 * one_way_ns, "there and back, {len_bytes} bytes");
            network.pass(Duration::from_millis(10));
        }
    }
}

#[test]
fn messages_in_a_row_are_a_gap_apart_and_a_slow_link_is_slow_one_way() {
    let slow = LinkCost { latency_ns: 50_000, ..COST };
    let plan = SimPlan { cost: COST, costs: vec![(1, 0, slow)], ..SimPlan::new(1) };
    let network = SimNetwork::new(plan);
    let (mut here, mut there) = (Side::new(&network, 4096), Side::new(&network, 4096));
    let [ours, theirs] = connect(&mut here, &mut there);
    for id in 0..8 {
        there.receive(theirs, id, 0, 64);
    }
    let start = network.now();
    for id in 0..8 {
        here.send(ours, id, 0, 41);
    }
    let (mut arrivals, mut ends) = (Vec::new(), Vec::new());
    until(&mut here, &mut there, |ours, theirs| {
        let now_ns = (network.now() - start).as_nanos() as u64;
        arrivals.extend(theirs.iter().map(|_| now_ns));
        ends.extend(ours.iter().map(|_| now_ns));
        ends.len() == 8
    });
    // The first: 170 + 100 + 1300 + 170. The next: g + (k - 1) G = 500 later, for o is less.
    assert_eq!(arrivals, (0..8).map(|index| 1740 + 500 * index).collect::<Vec<_>>());
    // The adapter's acknowledgement costs the latency of the way back and nothing else.
    assert_eq!(ends, arrivals.iter().map(|arrival| arrival + 50_000).collect::<Vec<_>>());
}

#[test]
fn packets_of_a_message_bring_headers_of_their_own() {
    // By hand: 4,096 bytes in packets of 1,024 are four, three of which add 26 bytes; 2.5 ns each.
    for (mtu_bytes, len_bytes, one_way_ns) in
        [(None, 4097, 11_880), (Some(4096), 4096, 11_877), (Some(1024), 4096, 12_072), (Some(1024), 1, 1640)]
    {
        let plan = SimPlan { cost: COST, mtu_bytes, timeout_ns: 1 << 40, ..SimPlan::new(1) };
        let network = SimNetwork::new(plan);
        let (mut here, mut there) = (Side::new(&network, 1 << 16), Side::new(&network, 1 << 16));
        let [ours, theirs] = connect(&mut here, &mut there);
        there.receive(theirs, 2, 0, 1 << 16);
        let start = network.now();
        here.send(ours, 3, 0, len_bytes);
        let mut there_at = Duration::ZERO;
        until(&mut here, &mut there, |_, done| {
            there_at = network.now();
            done.iter().any(|done| done.id == 2)
        });
        assert_eq!((there_at - start).as_nanos(), one_way_ns, "{len_bytes} bytes in packets of {mtu_bytes:?}");
    }
}

/// What a plan may do to traffic.
struct Storm {
    plan: SimPlan,
    /// Somebody dies or a cut lasts.
    may_fail: bool,
}

fn storm(seed: u64) -> Storm {
    let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
    let mut plan = SimPlan {
        jitter_ns: [0, 300, 20_000][random.random_range(0..3)],
        loss_ppm: [0, 10_000, 100_000][random.random_range(0..3)],
        reorder_ppm: [0, 300_000][random.random_range(0..2)],
        reorder_ns: 30_000,
        full_ppm: [0, 200_000][random.random_range(0..2)],
        packets_max: [1, 4, 256][random.random_range(0..3)],
        timeout_ns: 100_000,
        ..SimPlan::new(seed)
    };
    let at_ns = random.random_range(0..400_000);
    let may_fail = match random.random_range(0..4) {
        0 => {
            plan.faults.push(Fault::Death { node: random.random_range(0..2), at_ns });
            true
        }
        1 => {
            plan.faults.push(Fault::Cut { between: [0, 1], at_ns, until_ns: u64::MAX });
            true
        }
        2 => {
            // Shorter than the retries last.
            plan.faults.push(Fault::Cut { between: [1, 0], at_ns, until_ns: at_ns + 250_000 });
            false
        }
        _ => false,
    };
    Storm { plan, may_fail }
}

#[test]
fn a_connection_delivers_in_order_and_once_or_fails_and_flushes() {
    const MESSAGES: u64 = 120;
    let (mut failed, mut resent, mut full, mut whole) = (0, 0, 0, 0);
    for seed in 0..300 {
        let Storm { plan, may_fail } = storm(seed);
        let dead = plan.faults.iter().find_map(|fault| match fault {
            Fault::Death { node, .. } => Some(*node),
            Fault::Cut { .. } | Fault::QueuePairError { .. } => None,
        });
        let network = SimNetwork::new(plan);
        let (mut here, mut there) = (Side::new(&network, 64), Side::new(&network, 8 * MESSAGES as usize));
        let [ours, theirs] = connect(&mut here, &mut there);
        let mut random = StdRng::seed_from_u64(seed);
        // The first is sent at once: somebody who has never heard of a peer does not miss it.
        here.send_number(ours, 0, Destination::Connected);
        let (mut sent, mut posted) = (1, 0);
        let (mut ends, mut received) = (Vec::new(), Vec::new());
        let all = |ends: &[WorkCompletion], received: &[WorkCompletion]| {
            // A dead adapter ends nothing; the other one must end everything.
            let ours = dead == Some(0) || ends.len() as u64 == MESSAGES;
            ours && (dead == Some(1) || received.len() as u64 == MESSAGES)
        };
        let mut polls = 0;
        while !all(&ends, &received) {
            while posted < MESSAGES && random.random_range(0..3) > 0 {
                there.receive(theirs, posted, 8 * posted, 8);
                posted += 1;
            }
            while sent < MESSAGES && random.random_range(0..3) > 0 {
                here.send_number(ours, sent, Destination::Connected);
                sent += 1;
            }
            ends.extend(here.poll());
            received.extend(there.poll());
            polls += 1;
            // A receiver whose sender is gone, with nothing of its own to send, is told by the network, late.
            assert!(polls < 1_000_000, "seed {seed}: {} ends, {} received", ends.len(), received.len());
        }
        let good = ends.iter().take_while(|end| end.status == WcStatus::Success).count();
        assert!(ends.iter().map(|end| end.id).eq(0..ends.len() as u64), "seed {seed}: in order, each once");
        let arrived = received.iter().take_while(|end| end.status == WcStatus::Success).count();
        assert!(received.iter().map(|end| end.id).eq(0..received.len() as u64), "seed {seed}: receives in order");
        assert!((0..arrived).all(|index| there.number_at(8 * index) == index as u64), "seed {seed}: what was sent");
        assert!(good <= arrived, "seed {seed}: {good} sends ended well, {arrived} arrived");
        let flushed = |end: &WorkCompletion| end.status == WcStatus::WorkRequestFlushed;
        assert!(received[arrived..].iter().all(flushed), "seed {seed}: receives after the failure");
        if let Some((first, rest)) = ends[good..].split_first() {
            assert!(may_fail, "seed {seed}: {first:?}");
            let told = matches!(first.status, WcStatus::TransportRetryExceeded | WcStatus::WorkRequestFlushed);
            assert!(told && rest.iter().all(flushed), "seed {seed}: {first:?} {rest:?}");
            assert_eq!(here.context.queue_pair_state(ours), Ok(QueuePairState::Error), "seed {seed}");
            failed += 1;
        } else if ends.len() as u64 == MESSAGES {
            assert_eq!(arrived as u64, MESSAGES, "seed {seed}");
            whole += 1;
        }
        resent += network.counts().resent;
        full += network.counts().full;
    }
    println!("{whole} whole, {failed} failed, {resent} packets sent again, {full} times full");
    assert!(whole > 50 && failed > 30 && resent > 1000 && full > 1000, "the storms did what they should");
}

#[test]
fn writes_reads_and_atomics_happen_once_and_in_order_or_fail_and_flush() {
    const REQUESTS: u64 = 120;
    let (mut whole, mut failed) = (0, 0);
    for seed in 1000..1200 {
        let Storm { plan, may_fail } = storm(seed);
        let initiator_dies = plan.faults.iter().any(|fault| matches!(fault, Fault::Death { node: 0, .. }));
        let network = SimNetwork::new(plan);
        let len_bytes = 8 * REQUESTS as usize;
        let (mut here, mut there) = (Side::new(&network, len_bytes), Side::new(&network, len_bytes));
        let [ours, _] = connect(&mut here, &mut there);
        // By turns: 1 is added to the first word, word n becomes n, and that word is read.
        for number in 0..REQUESTS {
            let list = [here.region.part(8 * number, 8)];
            let bytes = number.to_le_bytes();
            let remote = |word| there.region.remote(8 * word);
            let (operation, payload) = match number % 3 {
                0 => (Operation::FetchAdd { remote: remote(0), add: 1 }, Payload::Memory(&list[..])),
                1 => (Operation::RdmaWrite(remote(number)), Payload::Inline(&bytes[..])),
                _ => (Operation::RdmaRead(remote(number - 1)), Payload::Memory(&list[..])),
            };
            let posted = here.context.post_send(ours, &[SendRequest::new(number, operation, payload)]);
            assert_eq!(posted, Ok(1), "seed {seed}");
        }
        let (mut ends, mut quiet) = (Vec::new(), 0);
        while (ends.len() as u64) < REQUESTS && quiet < 20_000 {
            let now = here.poll();
            quiet = if now.is_empty() { quiet + 1 } else { 0 };
            ends.extend(now);
            assert!(there.poll().is_empty(), "seed {seed}: the target notices nothing");
        }
        assert!(initiator_dies || ends.len() as u64 == REQUESTS, "seed {seed}: only {} ended", ends.len());
        assert!(ends.iter().map(|end| end.id).eq(0..ends.len() as u64), "seed {seed}: in order, each once");
        let good = ends.iter().take_while(|end| end.status == WcStatus::Success).count() as u64;
        for number in 0..good {
            let (near, far) = (here.number_at(8 * number as usize), there.number_at(8 * number as usize));
            match number % 3 {
                0 => assert_eq!(near, number / 3, "seed {seed}: what was there before addition {number}"),
                1 => assert_eq!(far, number, "seed {seed}: write {number}"),
                _ => assert_eq!(near, number - 1, "seed {seed}: read {number}"),
            }
        }
        let added = there.number_at(0);
        assert!((good.div_ceil(3)..=REQUESTS.div_ceil(3)).contains(&added), "seed {seed}: {added} for {good} requests");
        // What was done without its answer was done in order too.
        let done = (0..REQUESTS).filter(|number| number % 3 == 1);
        let done: Vec<_> = done.map(|number| (number, there.number_at(8 * number as usize))).collect();
        let written = done.iter().take_while(|(number, there)| number == there).count();
        assert!(done[written..].iter().all(|(_, there)| *there == 0), "seed {seed}: {done:?}");
        assert!([written as u64, written as u64 + 1].contains(&added), "seed {seed}: {added} added, {written} written");
        if good < ends.len() as u64 {
            assert!(may_fail, "seed {seed}: {:?}", ends[good as usize]);
            let flushed = |end: &WorkCompletion| end.status == WcStatus::WorkRequestFlushed;
            assert!(ends[good as usize + 1..].iter().all(flushed), "seed {seed}");
            failed += 1;
        } else {
            whole += u64::from(good == REQUESTS);
        }
    }
    println!("{whole} whole, {failed} failed");
    assert!(whole > 50 && failed > 20, "the storms did what they should");
}

/// What a link hands over, as numbers.
#[derive(Default)]
struct Handed {
    begun: Vec<u64>,
    finished: usize,
    lost: usize,
}

impl Responder for Handed {
    fn begin(&mut self, _from: LinkPeer, header: &[u8; HEADER_BYTES], _payload_bytes: u64) -> Placement {
        assert_eq!((self.finished, self.lost), (self.begun.len(), 0), "one after the other, none after the loss");
        self.begun.push(u64::from_le_bytes(header[32..40].try_into().unwrap()));
        Placement::discard()
    }

    fn finish(&mut self, _from: LinkPeer) {
        self.finished += 1;
    }

    fn lost(&mut self, _peer: LinkPeer) {
        self.lost += 1;
    }
    fn is_armed(&self) -> bool {
        false
    }
}

/// Below the adapter, which would forgive a link much: what the link itself promises.
#[test]
fn a_link_hands_over_every_packet_once_and_in_order_or_tells_of_the_loss() {
    const PACKETS: u64 = 150;
    let mut lost = 0;
    for seed in 0..300 {
        let Storm { plan, may_fail } = storm(seed);
        let network = SimNetwork::new(plan);
        let mut links = [network.link().unwrap(), network.link().unwrap()];
        let mut handed = [Handed::default(), Handed::default()];
        let mut sent = [0, 0];
        let mut gone = [false, false];
        let mut random = StdRng::seed_from_u64(seed);
        let mut quiet = 0;
        while quiet < 400 {
            quiet += 1;
            for (node, link) in links.iter_mut().enumerate() {
                let before = handed[node].begun.len();
                while sent[node] < PACKETS && !gone[node] && random.random_range(0..4) > 0 {
                    // A send, and sometimes an answer, of the adapter's wire, with a number where an address is.
                    let mut header = [0; HEADER_BYTES];
                    header[..4].copy_from_slice(&[[1, 16][random.random_range(0..2)], 0, 0, 2]);
                    header[32..40].copy_from_slice(&sent[node].to_le_bytes());
                    match link.send(LinkPeer(1 - node as u32), &header, Outgoing::NONE) {
                        SendOutcome::Taken => sent[node] += 1,
                        SendOutcome::Full => break,
                        SendOutcome::Gone => gone[node] = true,
                    }
                }
                link.progress(&mut handed[node]);
                if handed[node].begun.len() > before || sent[node] < PACKETS && !gone[node] {
                    quiet = 0;
                }
            }
        }
        for (node, got) in handed.iter().enumerate() {
            let other = 1 - node;
            assert!(got.begun.iter().copied().eq(0..got.begun.len() as u64), "seed {seed}: {:?}", got.begun);
            assert!(got.begun.len() as u64 <= sent[other] && got.lost <= 1, "seed {seed}");
            let whole = got.begun.len() as u64 == PACKETS;
            assert!(whole || may_fail, "seed {seed}: {} packets came, {} sent", got.begun.len(), sent[other]);
            lost += got.lost;
        }
    }
    assert!(lost > 50, "{lost} losses were told of");
}

#[test]
fn a_datagram_arrives_at_most_once() {
    const DATAGRAMS: u64 = 200;
    let (mut lost, mut overtaken) = (0, 0);
    for seed in 0..200 {
        let plan = storm(seed).plan;
        let loses = plan.loss_ppm > 0 || !plan.faults.is_empty();
        let network = SimNetwork::new(plan);
        let place = 48;
        let (mut here, mut there) = (Side::new(&network, 64), Side::new(&network, place * DATAGRAMS as usize));
        let [ours, theirs] = [here.datagram_queue_pair(), there.datagram_queue_pair()];
        let endpoint = there.context.endpoint(theirs).unwrap();
        let address = here.context.create_address_handle(here.domain, DatagramAddress::Endpoint(&endpoint)).unwrap();
        for id in 0..DATAGRAMS {
            there.receive(theirs, id, place as u64 * id, place as u32);
        }
        let destination = Destination::Datagram { address, qp: endpoint.qp(), qkey: Qkey(7) };
        for number in 0..DATAGRAMS {
            here.send_number(ours, 1000 + number, destination);
        }
        let mut received = Vec::new();
        // All that can come has come when the network is quiet for a while.
        let mut quiet = 0;
        while quiet < 200 {
            here.poll();
            let now = there.poll();
            quiet = if now.is_empty() { quiet + 1 } else { 0 };
            received.extend(now);
        }
        let numbers: Vec<u64> =
            received.iter().map(|done| there.number_at(place * done.id as usize + HEADER)).collect();
        let unique: BTreeSet<_> = numbers.iter().copied().collect();
        assert_eq!(unique.len(), numbers.len(), "seed {seed}: none twice");
        assert!(unique.iter().all(|number| (1000..1000 + DATAGRAMS).contains(number)), "seed {seed}: none made up");
        assert!(loses || numbers.len() as u64 == DATAGRAMS, "seed {seed}: nothing loses them, {} came", numbers.len());
        assert!(numbers.is_sorted() || network.counts().overtaken > 0, "seed {seed}: only a fault changes the order");
        lost += DATAGRAMS - numbers.len() as u64;
        overtaken += u64::from(!numbers.is_sorted());
    }
    println!("{lost} lost, {overtaken} runs out of order");
    assert!(lost > 1000 && overtaken > 20, "the storms did what they should");
}

/// Everything that happened, and when.
fn trace(seed: u64) -> Vec<(u128, u64, WcStatus)> {
    let plan = SimPlan { loss_ppm: 100_000, jitter_ns: 5_000, full_ppm: 100_000, ..SimPlan::new(seed) };
    let network = SimNetwork::new(plan);
    let (mut here, mut there) = (Side::new(&network, 64), Side::new(&network, 64));
    let [ours, theirs] = connect(&mut here, &mut there);
    let mut trace = Vec::new();
    for id in 0..50 {
        there.receive(theirs, 100 + id, 0, 8);
        here.send_number(ours, id, Destination::Connected);
    }
    until(&mut here, &mut there, |ours, theirs| {
        let now_ns = network.now().as_nanos();
        trace.extend(ours.iter().chain(theirs).map(|done| (now_ns, done.id, done.status)));
        trace.len() == 100
    });
    trace
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let first = trace(11);
    assert_eq!(first, trace(11));
    assert_ne!(first, trace(12));
}

#[test]
fn a_peer_that_dies_is_lost_when_the_retries_are_spent() {
    let plan = SimPlan {
        timeout_ns: 50_000,
        retry_max: 3,
        faults: vec![Fault::Death { node: 1, at_ns: 10_000 }],
        cost: LinkCost { latency_ns: 1000, ..LinkCost::FREE },
        ..SimPlan::new(1)
    };
    let network = SimNetwork::new(plan);
    let (mut here, mut there) = (Side::new(&network, 64), Side::new(&network, 64));
    let [ours, theirs] = connect(&mut here, &mut there);
    there.receive(theirs, 1, 0, 8);
    there.receive(theirs, 2, 8, 8);
    here.send_number(ours, 5, Destination::Connected);
    until(&mut here, &mut there, |ours, _| ours.iter().any(|done| done.id == 5 && done.status == WcStatus::Success));
    network.pass(Duration::from_nanos(20_000) - network.now());
    here.send_number(ours, 6, Destination::Connected);
    here.send_number(ours, 7, Destination::Connected);
    let mut ends = Vec::new();
    until(&mut here, &mut there, |ours, theirs| {
        assert!(theirs.iter().all(|done| done.id == 1), "the dead take nothing");
        ends.extend(ours.iter().map(|done| (done.id, done.status)));
        ends.len() == 2
    });
    assert_eq!(ends, [(6, WcStatus::TransportRetryExceeded), (7, WcStatus::WorkRequestFlushed)]);
    // Of two ways to notice the earlier one counts: the first packet and three more, 50 µs each, from 20 µs on; or
    // four times 50 µs after the death.
    assert_eq!(network.now(), Duration::from_nanos(210_000));
    assert_eq!(here.context.queue_pair_state(ours), Ok(QueuePairState::Error));
}

#[test]
fn more_than_a_thousand_adapters_in_one_network() {
    const ADAPTERS: usize = 1200;
    const MESSAGES: u64 = 4;
    const STRIDES: [usize; 3] = [1, 7, 331];
    let plan = SimPlan { clock: SimClock::Driven, loss_ppm: 20_000, jitter_ns: 2_000, ..SimPlan::new(5) };
    let network = SimNetwork::new(plan);
    let mut sides: Vec<Side> = (0..ADAPTERS).map(|_| Side::new(&network, 128)).collect();
    let mut expected: BTreeMap<(usize, u32), Vec<u64>> = BTreeMap::new();
    let mut got = expected.clone();
    let mut sends = Vec::new();
    for from in 0..ADAPTERS {
        for stride in STRIDES {
            let to = (from + stride) % ADAPTERS;
            let [low, high] = [from.min(to), from.max(to)];
            let (left, right) = sides.split_at_mut(high);
            let [ours, theirs] = if from < to {
                connect(&mut left[low], &mut right[0])
            } else {
                let [theirs, ours] = connect(&mut left[low], &mut right[0]);
                [ours, theirs]
            };
            for id in 0..MESSAGES {
                sides[to].receive(theirs, id, 8 * id, 8);
            }
            let number = sides[to].context.endpoint(theirs).unwrap().qp().0;
            expected.insert((to, number), (0..MESSAGES).collect());
            sends.push((from, ours));
        }
    }
    for (from, qp) in sends {
        for number in 0..MESSAGES {
            sides[from].send_number(qp, 100 + number, Destination::Connected);
        }
    }
    let mut ends = 0;
    while let Some(awake) = network.step() {
        for node in awake {
            for done in sides[node as usize].poll() {
                assert_eq!(done.status, WcStatus::Success, "adapter {node}: {done:?}");
                if done.id >= 100 {
                    ends += 1;
                } else {
                    got.entry((node as usize, done.qp.0)).or_default().push(done.id);
                }
            }
        }
    }
    assert_eq!(ends, ADAPTERS * STRIDES.len() * MESSAGES as usize);
    assert!(got == expected, "every connection delivered its messages in order");
    assert!(network.counts().resent > 100, "{:?}", network.counts());
}

/// A peer that nobody polls is slow and not dead: requests wait for it without error, however much time passes.
#[test]
fn an_adapter_that_is_not_polled_holds_nobody_up_for_ever() {
    let network = SimNetwork::new(SimPlan::new(1));
    let (mut here, mut there, mut third) = (Side::new(&network, 64), Side::new(&network, 64), Side::new(&network, 64));
    let [ours, theirs] = connect(&mut here, &mut there);
    let [other, others] = connect(&mut here, &mut third);
    there.receive(theirs, 1, 0, 8);
    third.receive(others, 2, 0, 8);
    here.send_number(ours, 10, Destination::Connected);
    here.send_number(other, 11, Destination::Connected);
    until(&mut here, &mut third, |ours, _| {
        assert!(ours.iter().all(|done| done.id == 11), "the other one was never polled");
        !ours.is_empty()
    });
    network.pass(Duration::from_secs(10));
    until(&mut here, &mut there, |ours, _| {
        assert!(ours.iter().all(|done| (done.id, done.status) == (10, WcStatus::Success)), "{ours:?}");
        !ours.is_empty()
    });
}

#[test]
fn addresses_of_other_networks_are_refused() {
    let networks = [1, 2].map(|seed| SimNetwork::new(SimPlan::new(seed)));
    let [mut link, other] = networks.each_ref().map(|network| network.link().unwrap());
    let good = networks[0].link().unwrap().address();
    assert_eq!(link.resolve(&good), Ok(LinkPeer(1)));
    assert!(matches!(link.resolve(&other.address()), Err(FabricError::BadEndpoint(_))), "another seed");
    let mut beyond = good.clone();
    *beyond.last_mut().unwrap() = 0xff;
    assert!(matches!(link.resolve(&beyond), Err(FabricError::NoSuchPeer(_))), "a number nobody has");
    for len in 0..good.len() {
        assert!(matches!(link.resolve(&good[..len]), Err(FabricError::BadEndpoint(_))), "{len} bytes of an address");
    }
}

/// Set for the run that must fail.
const FAIL: &str = "SIM_TEST_FAILS";

#[test]
fn a_test_that_fails_prints_its_seed() {
    let name = "a_test_that_fails_prints_its_seed";
    if std::env::var_os(FAIL).is_some() {
        let _network = SimNetwork::new(SimPlan::new(987_654_321));
        panic!("on purpose");
    }
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(FAIL, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && told.contains("seed: 987654321"), "{told}");
}
