//! The link between hosts under what may happen to it: strangers, a wrong secret, connections cut at any byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base::log::{Level, Log};
use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, Endpoint, LocalMemory, MemoryRegion, Operation, Payload,
    QueuePair, QueuePairAttributes, ReceiveRequest, SendRequest, WcStatus, WorkCompletion,
};
use fabric_soft::SoftContext;
use fabric_soft::tcp::{JobSecret, TcpLink, TcpOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Longer than anything but a hang takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of each side's memory.
const MEMORY_BYTES: usize = 1 << 20;

struct Side {
    adapter: SoftContext<TcpLink>,
    completions: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
    memory: *mut u8,
    done: Vec<WorkCompletion>,
}

impl Side {
    fn new(secret: u8, check_payloads: bool, patience: Duration) -> Self {
        let listen = vec!["127.0.0.1:0".parse().expect("an address")];
        let options = TcpOptions::new(JobSecret::new([secret; 32]), listen, Log::new(Level::Error, None));
        let link = TcpLink::new(TcpOptions { check_payloads, patience, ..options }).expect("a link");
        let mut adapter = SoftContext::new(link);
        let domain = adapter.allocate_protection_domain().expect("a domain");
        let completions = adapter.create_completion_queue(4096).expect("a queue");
        let mut attributes = QueuePairAttributes::new(domain, completions);
        attributes.send_depth = 256;
        attributes.receive_depth = 256;
        let qp = adapter.create_queue_pair(&attributes).expect("a queue pair");
        let words: &'static mut [u64] = Box::leak(vec![0u64; MEMORY_BYTES / 8].into_boxed_slice());
        let memory = words.as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever, and is reached through raw pointers only from now on.
        let range = unsafe { WriteRange::new(memory, MEMORY_BYTES) };
        let region = adapter.register(domain, LocalMemory::Target(range), Access::REMOTE_ALL).expect("a region");
        Self { adapter, completions, qp, region, memory, done: Vec::new() }
    }

    fn socket(&mut self) -> SocketAddr {
        self.adapter.link().listening()[0]
    }

    fn poll(&mut self) {
        let mut into = [WorkCompletion::default(); 64];
        let count = self.adapter.poll(self.completions, &mut into).expect("the queue is whole");
        self.done.extend_from_slice(&into[..count]);
    }

    fn fill(&self, offset: usize, len: usize, seed: u8) {
        assert!(offset + len <= MEMORY_BYTES);
        for at in 0..len {
            // SAFETY: inside the allocation, which is never freed.
            unsafe { self.memory.add(offset + at).write_volatile(byte_at(at, seed)) };
        }
    }

    fn check(&self, offset: usize, len: usize, seed: u8, what: &str) {
        assert!(offset + len <= MEMORY_BYTES);
        for at in 0..len {
            // SAFETY: inside the allocation, which is never freed.
            let byte = unsafe { self.memory.add(offset + at).read_volatile() };
            assert_eq!(byte, byte_at(at, seed), "{what}: byte {at} of {len}");
        }
    }

    fn word(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= MEMORY_BYTES && offset.is_multiple_of(8));
        // SAFETY: inside the allocation, aligned.
        unsafe { self.memory.add(offset).cast::<u64>().read_volatile() }
    }

    fn post(&mut self, id: u64, operation: Operation, offset: usize, len: usize) {
        let list = [self.region.part(offset as u64, len as u32)];
        let request = SendRequest::new(id, operation, Payload::Memory(&list));
        assert_eq!(self.adapter.post_send(self.qp, &[request]), Ok(1));
    }

    fn receive(&mut self, id: u64, offset: usize, len: usize) {
        let list = [self.region.part(offset as u64, len as u32)];
        assert_eq!(self.adapter.post_receive(self.qp, &[ReceiveRequest { id, list: &list }]), Ok(1));
    }
}

fn byte_at(at: usize, seed: u8) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7] ^ seed
}

fn join(sides: &mut [Side; 2]) {
    let [here, there] = sides;
    let ours = here.adapter.endpoint(here.qp).expect("an endpoint");
    let theirs = there.adapter.endpoint(there.qp).expect("an endpoint");
    let options = ConnectOptions::default();
    fabric::connect(&mut here.adapter, here.qp, Some(theirs), &options).expect("connects");
    fabric::connect(&mut there.adapter, there.qp, Some(ours), &options).expect("connects");
}

fn until(sides: &mut [Side; 2], what: &str, mut ready: impl FnMut(&mut [Side; 2]) -> bool) {
    let start = Instant::now();
    while !ready(sides) {
        assert!(start.elapsed() < PATIENCE, "{what} does not come: {:?} {:?}", sides[0].done, sides[1].done);
        sides.iter_mut().for_each(Side::poll);
        std::thread::sleep(Duration::from_micros(20));
    }
}

fn take(side: &mut Side) -> Option<WorkCompletion> {
    (!side.done.is_empty()).then(|| side.done.remove(0))
}

/// One message from 0 to 1.
fn message(sides: &mut [Side; 2], seed: u8) {
    sides[0].fill(0, 1000, seed);
    sides[1].receive(2, 0, 1000);
    sides[0].post(1, Operation::Send, 0, 1000);
    until(sides, "a message", |sides| sides.iter().all(|side| !side.done.is_empty()));
    for side in sides.iter_mut() {
        let done = take(side).expect("seen");
        assert_eq!(done.status, WcStatus::Success);
    }
    sides[1].check(0, 1000, seed, "the message");
}

#[test]
fn whatever_strangers_send_is_refused_and_the_job_goes_on() {
    let mut rng = StdRng::seed_from_u64(5);
    let mut sides = [Side::new(1, false, PATIENCE), Side::new(1, false, PATIENCE)];
    join(&mut sides);
    message(&mut sides, 1);
    let socket = sides[1].socket();
    let mut begun = b"FRVTCP\x00\x01".to_vec();
    begun.resize(40, 7);
    for round in 0..40u64 {
        let mut stranger = TcpStream::connect(socket).expect("it listens");
        let len = rng.random_range(1..3000);
        let mut noise: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        if round % 2 == 0 {
            let whole = begun.len().min(len);
            noise[..whole].copy_from_slice(&begun[..whole]);
        }
        // It may be hung up on while it speaks.
        let _ = stranger.write_all(&noise);
        drop(stranger.shutdown(std::net::Shutdown::Write));
        until(&mut sides, "a refusal", |sides| sides[1].adapter.link().refused_connections() == round + 1);
        stranger.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // Whatever it is answered, the end comes.
        let _ = stranger.read_to_end(&mut Vec::new());
        message(&mut sides, round as u8);
    }
    // One that says nothing is no burden either.
    let silent = TcpStream::connect(socket).expect("it listens");
    message(&mut sides, 99);
    drop(silent);
    assert_eq!(sides[0].adapter.link().connections_made(), 1, "the connection was left alone");
}

#[test]
fn who_does_not_know_the_secret_is_no_peer() {
    let patience = Duration::from_millis(300);
    let mut sides = [Side::new(1, false, patience), Side::new(2, false, patience)];
    join(&mut sides);
    sides[1].fill(0, 8, 3);
    sides[1].receive(2, 0, 8);
    sides[0].post(1, Operation::RdmaWrite(sides[1].region.remote(0)), 64, 8);
    until(&mut sides, "the end of the write", |sides| !sides[0].done.is_empty());
    assert_ne!(sides[0].done[0].status, WcStatus::Success);
    sides[1].check(0, 8, 3, "nothing was written");
    assert!(sides[0].adapter.link().refused_connections() + sides[1].adapter.link().refused_connections() > 0);
    assert_eq!(sides[0].adapter.link().connections_made(), 0);
}

#[test]
fn who_leaves_is_lost() {
    let mut sides = [Side::new(1, false, PATIENCE), Side::new(1, false, PATIENCE)];
    join(&mut sides);
    message(&mut sides, 1);
    sides[0].receive(5, 0, 8);
    let [mut here, there] = sides;
    drop(there);
    let start = Instant::now();
    while here.done.is_empty() {
        assert!(start.elapsed() < PATIENCE, "nobody tells of the loss");
        here.poll();
        std::thread::sleep(Duration::from_micros(50));
    }
    assert_eq!((here.done[0].id, here.done[0].status), (5, WcStatus::WorkRequestFlushed));
}

/// A network that fails while nobody speaks costs nobody its peer, however often.
#[test]
fn cuts_in_silence_are_forgiven() {
    let mut sides = [Side::new(1, false, PATIENCE), Side::new(1, false, PATIENCE)];
    join(&mut sides);
    message(&mut sides, 1);
    for _ in 0..80 {
        let before = sides.each_mut().map(|side| side.adapter.link().connections_made());
        sides[0].adapter.link().cut_connections();
        until(&mut sides, "a new connection", |sides| {
            (0..2).all(|at| sides[at].adapter.link().connections_made() > before[at])
        });
    }
    message(&mut sides, 2);
}

/// In the environment of a process that plays the peer: the other's endpoint.
const PEER_OF: &str = "FABRIC_SOFT_TCP_PEER_OF";

/// The peer of the next test, in a process of its own; without its variable it has nothing to do.
#[test]
fn a_peer_process() {
    let Ok(endpoint) = std::env::var(PEER_OF) else { return };
    let endpoint: Endpoint = endpoint.parse().expect("an endpoint");
    let mut side = Side::new(1, false, PATIENCE);
    let own = side.adapter.endpoint(side.qp).expect("an endpoint");
    fabric::connect(&mut side.adapter, side.qp, Some(endpoint), &ConnectOptions::default()).expect("connects");
    println!("\npeer {own} {} {}", side.region.address, side.region.rkey.0);
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        side.poll();
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn a_killed_peer_is_lost_and_what_was_posted_to_it_ends() {
    let mut side = Side::new(1, false, PATIENCE);
    let own = side.adapter.endpoint(side.qp).expect("an endpoint");
    let mut peer = Command::new(std::env::current_exe().expect("this program"))
        .args(["a_peer_process", "--exact", "--nocapture"])
        .env(PEER_OF, own.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = BufReader::new(peer.stdout.take().expect("piped")).lines();
    let told = lines.map_while(Result::ok).find(|line| line.starts_with("peer ")).expect("the peer speaks");
    let words: Vec<&str> = told.split(' ').collect();
    let endpoint = words[1].parse().expect("an endpoint");
    let (address, rkey) = (words[2].parse().expect("an address"), words[3].parse().expect("a key"));
    let far = fabric::RemoteMemory { address, rkey: fabric::Rkey(rkey) };
    fabric::connect(&mut side.adapter, side.qp, Some(endpoint), &ConnectOptions::default()).expect("connects");
    let next = |side: &mut Side| {
        let start = Instant::now();
        loop {
            if let Some(done) = take(side) {
                return done;
            }
            assert!(start.elapsed() < PATIENCE, "nothing ends");
            side.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
    };
    side.post(1, Operation::RdmaWrite(far), 0, 4096);
    assert_eq!(next(&mut side).status, WcStatus::Success);
    side.post(2, Operation::RdmaWrite(far), 0, MEMORY_BYTES);
    peer.kill().expect("it is ours");
    peer.wait().expect("it is ours");
    side.post(3, Operation::RdmaRead(far), 0, MEMORY_BYTES);
    side.post(4, Operation::Send, 0, 64);
    let ended: Vec<WorkCompletion> = (0..3).map(|_| next(&mut side)).collect();
    assert_eq!(ended.iter().map(|one| one.id).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(ended[1..].iter().all(|one| one.status != WcStatus::Success), "{ended:?}");
}

/// Places in each side's memory: one for each message in flight, halves for what is sent and what comes.
const SLOT_BYTES: usize = 48 << 10;
const SLOTS: u64 = 8;
const COMING: usize = 512 << 10;
/// Where the counter of each side is.
const COUNTER: usize = MEMORY_BYTES - 8;

/// Mixed traffic both ways; every so often all connections of one side are cut.
fn under_cuts(seed: u64, check_payloads: bool) {
    println!("seed {seed}, checked {check_payloads}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut sides = [Side::new(1, check_payloads, PATIENCE), Side::new(1, check_payloads, PATIENCE)];
    join(&mut sides);
    let mut added = [0u64; 2];
    let mut cuts = 0;
    for round in 0..150u64 {
        let len: Vec<usize> = (0..SLOTS).map(|_| rng.random_range(0..SLOT_BYTES)).collect();
        let what: Vec<u32> = (0..SLOTS).map(|_| rng.random_range(0..4)).collect();
        let seed_of = |from: usize, slot: u64| (round * 16 + slot * 2 + from as u64) as u8;
        let count = what.iter().filter(|kind| **kind == 0).count() as u64;
        for (from, to) in [(0, 1), (1, 0)] {
            for id in 0..count {
                let slot = what.iter().enumerate().filter(|(_, kind)| **kind == 0).nth(id as usize).expect("counted").0;
                sides[to].receive(100 + slot as u64, COMING + slot * SLOT_BYTES, SLOT_BYTES);
            }
            for slot in 0..SLOTS {
                let (at, len) = (slot as usize * SLOT_BYTES, len[slot as usize]);
                match what[slot as usize] {
                    2 => sides[to].fill(at, len, seed_of(from, slot)),
                    _ => sides[from].fill(at, len, seed_of(from, slot)),
                }
            }
        }
        for (from, to) in [(0, 1), (1, 0)] {
            for slot in 0..SLOTS {
                let (at, len) = (slot as usize * SLOT_BYTES, len[slot as usize]);
                let far = sides[to].region;
                match what[slot as usize] {
                    0 => sides[from].post(slot, Operation::Send, at, len),
                    1 => sides[from].post(slot, Operation::RdmaWrite(far.remote((COMING + at) as u64)), at, len),
                    2 => sides[from].post(slot, Operation::RdmaRead(far.remote(at as u64)), COMING + at, len),
                    _ => {
                        let remote = far.remote(COUNTER as u64);
                        sides[from].post(slot, Operation::FetchAdd { remote, add: round + slot }, COMING + at, 8);
                        added[to] += round + slot;
                    }
                }
            }
        }
        let expected = (SLOTS + count) as usize;
        until(&mut sides, "all of a round", |sides| {
            if rng.random_range(0..12) == 0 {
                sides[rng.random_range(0..2)].adapter.link().cut_connections();
                cuts += 1;
            }
            sides.iter().all(|side| side.done.len() >= expected)
        });
        for (from, to) in [(0, 1), (1, 0)] {
            let done = std::mem::take(&mut sides[from].done);
            assert_eq!(done.len(), expected, "round {round}: each request ends once");
            assert!(done.iter().all(|one| one.status == WcStatus::Success), "round {round}: {done:?}");
            let sent: Vec<u64> = done.iter().map(|one| one.id).filter(|id| *id < 100).collect();
            assert!(sent.is_sorted() && sent.len() as u64 == SLOTS, "round {round}: in order {sent:?}");
            for slot in 0..SLOTS {
                let (at, len) = (COMING + slot as usize * SLOT_BYTES, len[slot as usize]);
                match what[slot as usize] {
                    0 => {
                        let one = done.iter().find(|one| one.id == 100 + slot).expect("it came");
                        assert_eq!(one.bytes, len as u64);
                        sides[from].check(at, len, seed_of(to, slot), "sent");
                    }
                    1 => sides[from].check(at, len, seed_of(to, slot), "written"),
                    2 => sides[from].check(at, len, seed_of(from, slot), "read"),
                    _ => assert_eq!(sides[to].word(COUNTER), added[to], "nothing was added twice or not at all"),
                }
            }
        }
    }
    let made = sides[0].adapter.link().connections_made();
    println!("{cuts} cuts, {made} connections");
    assert!(made > 10, "connections were cut and made anew: {made}");
}

#[test]
fn nothing_is_lost_or_doubled_when_connections_are_cut() {
    under_cuts(11, false);
}

#[test]
fn nothing_is_lost_or_doubled_when_connections_with_checks_are_cut() {
    under_cuts(12, true);
}
