//! Two and three processes over shared memory: every operation between them, and a peer killed (SIGKILL) in the middle
//! of every operation, as target and as initiator.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, Destination, Endpoint, Lkey, LocalMemory, MemoryRegion, NotifyOn,
    Operation, Payload, PeerIndex, ProtectionDomain, QueuePair, QueuePairAttributes, QueuePairState, ReceiveRequest,
    Rkey, SendRequest, SharedMemory, SharedReceiveQueueAttributes, SrqNumber, Transport, WcStatus, WorkCompletion,
};
use fabric_conformance::operations_of_every_kind;
use fabric_soft::SoftContext;
use fabric_soft::link::LinkPeer;
use fabric_soft::shm::{Segment, SegmentServer, Shape, ShmLink, StopPolicy, join, probe_cross_memory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

const SHAPE: Shape = Shape { process_count: 3, channel_bytes: 64 << 10, shuttle_bytes: 0, arena_bytes: 1 << 20 };
const BYTES: usize = 1 << 20;
/// How a process ends that finds out that it was given up.
const LEFT_ALONE: i32 = 7;
/// Longer than anything but a hang takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// An adapter with one completion queue and a megabyte for everybody.
struct Adapter {
    context: SoftContext<ShmLink>,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    bytes: *mut u8,
    region: MemoryRegion,
    /// A page that everybody maps.
    page: MemoryRegion,
    page_memory: SharedMemory,
}

impl Adapter {
    fn new(segment: Segment, place: u32) -> Self {
        let link = ShmLink::join(segment, PeerIndex(place), cross_memory()).expect("a place");
        let mut context = SoftContext::new(link);
        let domain = context.allocate_protection_domain().expect("a domain");
        let completions = context.create_completion_queue(1024).expect("a completion queue");
        let words: &'static mut [u64] = Box::leak(vec![0u64; BYTES / 8].into_boxed_slice());
        let bytes = words.as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever, and is reached through raw pointers only.
        let range = unsafe { WriteRange::new(bytes, BYTES) };
        let region = context.register(domain, LocalMemory::Target(range), Access::REMOTE_ALL).expect("a region");
        let (page, page_memory) = context.allocate(domain, 4096, Access::REMOTE_ALL).expect("mapped memory");
        Self { context, domain, completions, bytes, region, page, page_memory }
    }

    fn queue_pair(&mut self) -> (QueuePair, Endpoint) {
        self.queue_pair_of(Transport::ReliableConnection)
    }

    fn queue_pair_of(&mut self, transport: Transport) -> (QueuePair, Endpoint) {
        let usual = QueuePairAttributes::new(self.domain, self.completions);
        let attributes = QueuePairAttributes { transport, ..usual };
        let qp = self.context.create_queue_pair(&attributes).expect("a queue pair");
        (qp, self.context.endpoint(qp).expect("an endpoint"))
    }

    fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut into = [WorkCompletion::default(); 64];
        let count = self.context.poll(self.completions, &mut into).expect("a whole completion queue");
        if count == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
        into[..count].to_vec()
    }

    fn wait(&mut self, count: usize) -> Vec<WorkCompletion> {
        let start = Instant::now();
        let mut done = Vec::new();
        while done.len() < count {
            done.extend(self.poll());
            assert!(start.elapsed() < PATIENCE, "{} of {count} completions: {done:?}", done.len());
        }
        done
    }

    /// Sleeps on the completion descriptor until so many are complete; returns them, and how often it woke.
    fn sleep_until(&mut self, count: usize) -> (Vec<WorkCompletion>, u32) {
        let start = Instant::now();
        let (mut done, mut wakes) = (Vec::new(), 0);
        loop {
            self.context.arm(self.completions, NotifyOn::Any).expect("armed");
            let mut into = [WorkCompletion::default(); 64];
            let found = self.context.poll(self.completions, &mut into).expect("a whole completion queue");
            done.extend(&into[..found]);
            if done.len() >= count {
                return (done, wakes);
            }
            if found == 0 {
                let descriptor = self.context.descriptor(self.completions).expect("a descriptor");
                let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
                poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).expect("a poll");
                wakes += 1;
            }
            self.context.acknowledge(self.completions).expect("acknowledged");
            assert!(start.elapsed() < PATIENCE, "{} of {count} completions: {done:?}", done.len());
        }
    }

    /// Peers that are stopped are given up.
    fn give_up_after(&mut self, silence: Option<Duration>) {
        self.context.link().set_stop_policy(StopPolicy { silence, ..StopPolicy::patient() });
    }

    fn fill(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= BYTES);
        // SAFETY: inside the leaked memory, and `bytes` is not.
        unsafe { self.bytes.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= BYTES);
        // SAFETY: inside the leaked memory; peers may write, hence volatile.
        (offset..offset + len).map(|at| unsafe { self.bytes.add(at).read_volatile() }).collect()
    }

    fn post(&mut self, qp: QueuePair, id: u64, operation: Operation, offset: u64, len: u32) -> usize {
        let list = [self.region.part(offset, len)];
        let request = SendRequest::new(id, operation, Payload::Memory(&list));
        self.context.post_send(qp, &[request]).expect("the queue pair exists")
    }

    fn receive(&mut self, qp: QueuePair, id: u64, offset: u64, len: u32) {
        let list = [self.region.part(offset, len)];
        assert_eq!(self.context.post_receive(qp, &[ReceiveRequest { id, list: &list }]), Ok(1));
    }
}

/// As the environment says: the same tests run with and without it.
fn cross_memory() -> Result<(), String> {
    match std::env::var("FERROVIA_TEST_STAGED") {
        Ok(_) => Err("switched off by the test".into()),
        Err(_) => probe_cross_memory(),
    }
}

/// Another process, killed when it is dropped.
struct Peer {
    child: Child,
    stdin: ChildStdin,
    endpoint: Endpoint,
    region: MemoryRegion,
    page: MemoryRegion,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Peer {
    fn kill(&mut self) {
        // It may have been killed before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is ours");
    }

    /// Stops it; it does nothing any more when this returns.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let id = rustix::process::WaitId::Pid(Pid::from_child(&self.child));
        let options = rustix::process::WaitIdOptions::STOPPED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(id, options).expect("it is ours");
    }

    fn tell(&mut self, text: &str) {
        writeln!(self.stdin, "{text}").expect("the peer listens");
    }
}

/// The segment, this process's adapter at place 0, and one peer per role.
fn start(roles: &[&str], staged: bool) -> (Adapter, Vec<Peer>) {
    // A name of its own each time: a process just being forked may hold the socket before for a moment.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let unique = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let segment = Segment::create(SHAPE).expect("memory");
    let (server, name) = SegmentServer::bind(segment.clone(), &unique).expect("a socket");
    let mut children = Vec::new();
    for (index, role) in roles.iter().enumerate() {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["peer_process", "--exact", "--nocapture"]).env("FERROVIA_TEST_PEER", role);
        command.env("FERROVIA_TEST_SEGMENT", &name).env("FERROVIA_TEST_PLACE", (index + 1).to_string());
        if staged {
            command.env("FERROVIA_TEST_STAGED", "1");
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        children.push(child.expect("a process"));
    }
    server.serve(roles.len() as u32).expect("the peers fetch the segment");
    let peers = children.into_iter().map(|mut child| {
        let stdin = child.stdin.take().expect("piped");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = lines.find_map(|line| line.ok()?.split_once("PEER ").map(|(_, said)| said.to_owned()));
        let said = line.expect("the peer tells where it is");
        let [endpoint, address, key, page, page_key] = said.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{said}")
        };
        let [region, page] = [(address, key, BYTES as u64), (page, page_key, 4096)].map(|(address, key, len_bytes)| {
            let (address, key) = (address.parse().expect("an address"), key.parse().expect("a key"));
            MemoryRegion { address, len_bytes, lkey: Lkey(key), rkey: Rkey(key) }
        });
        // Whatever it prints from now on goes nowhere.
        std::thread::spawn(move || lines.for_each(drop));
        Peer { child, stdin, endpoint: endpoint.parse().expect("an endpoint"), region, page }
    });
    let peers = peers.collect();
    (Adapter::new(segment, 0), peers)
}

fn connect(adapter: &mut Adapter, peer: &mut Peer) -> QueuePair {
    let (qp, endpoint) = adapter.queue_pair();
    peer.tell(&format!("{endpoint} {} {}", adapter.region.address, adapter.region.rkey.0));
    fabric::connect(&mut adapter.context, qp, Some(peer.endpoint.clone()), &ConnectOptions::default())
        .expect("connects");
    qp
}

/// What a peer process runs; nothing when the tests are run as usual.
#[test]
fn peer_process() {
    let Ok(role) = std::env::var("FERROVIA_TEST_PEER") else { return };
    let variable = |name: &str| std::env::var(name).expect("set by the test");
    let segment = join(&variable("FERROVIA_TEST_SEGMENT"), SHAPE).expect("the segment");
    let mut adapter = Adapter::new(segment, variable("FERROVIA_TEST_PLACE").parse().expect("a place"));
    let transport = if role == "claim" { Transport::XrcInitiator } else { Transport::ReliableConnection };
    let (qp, endpoint) = adapter.queue_pair_of(transport);
    let (region, page) = (adapter.region, adapter.page);
    println!("PEER {endpoint} {} {} {} {}", region.address, region.rkey.0, page.address, page.rkey.0);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("the test tells who it is");
    let [remote, address, key] = line.trim().split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let remote: Endpoint = remote.parse().expect("an endpoint");
    let key: u32 = key.parse().expect("a key");
    let theirs = MemoryRegion {
        address: address.parse().expect("an address"),
        len_bytes: BYTES as u64,
        lkey: Lkey(key),
        rkey: Rkey(key),
    };
    // The test is over when it closes our input.
    std::thread::spawn(|| {
        std::io::stdin().lock().lines().for_each(drop);
        std::process::exit(0);
    });
    fabric::connect(&mut adapter.context, qp, Some(remote), &ConnectOptions::default()).expect("connects");
    match role.as_str() {
        "echo" => echo(&mut adapter, qp),
        "sink" => sink(&mut adapter, qp),
        "left" => left(&mut adapter, qp),
        "idle" => idle(&mut adapter, qp),
        "claim" => claim(&mut adapter, qp, SrqNumber(key)),
        other => pour(&mut adapter, qp, theirs, other.parse().expect("a kind of operation")),
    }
}

/// Sends back what comes.
fn echo(adapter: &mut Adapter, qp: QueuePair) {
    for id in 0..8 {
        adapter.receive(qp, id, id * (64 << 10), 64 << 10);
    }
    loop {
        for done in adapter.poll().into_iter().filter(|done| done.status == WcStatus::Success) {
            if done.id < 8 {
                adapter.post(qp, 100 + done.id, Operation::Send, done.id * (64 << 10), done.bytes as u32);
            } else {
                let id = done.id - 100;
                adapter.receive(qp, id, id * (64 << 10), 64 << 10);
            }
        }
    }
}

/// Takes one message and never polls again; shows what it finds in its page.
fn idle(adapter: &mut Adapter, qp: QueuePair) {
    adapter.receive(qp, 0, 0, 8);
    adapter.wait(1);
    loop {
        std::thread::sleep(Duration::from_millis(1));
        let found = adapter.page_memory.word(8).load(Ordering::Acquire);
        adapter.page_memory.word(16).store(found, Ordering::Release);
    }
}

/// Takes what comes.
fn sink(adapter: &mut Adapter, qp: QueuePair) {
    for id in 0..16 {
        adapter.receive(qp, id, 0, BYTES as u32);
    }
    loop {
        for done in adapter.poll() {
            adapter.receive(qp, done.id, 0, BYTES as u32);
        }
    }
}

/// Takes one message, and ends when nobody can bring another.
fn left(adapter: &mut Adapter, qp: QueuePair) {
    (0..2).for_each(|id| adapter.receive(qp, id, 0, 8));
    adapter.wait(1);
    let flushed = adapter.wait(1)[0].status == WcStatus::WorkRequestFlushed;
    std::process::exit(if flushed { LEFT_ALONE } else { 1 });
}

/// Does one kind of operation as often as it can.
fn pour(adapter: &mut Adapter, qp: QueuePair, theirs: MemoryRegion, kind: usize) {
    let mut id = 0;
    loop {
        let (operation, len) = operation(kind, theirs, id);
        id += adapter.post(qp, id, operation, 0, len) as u64;
        adapter.poll();
    }
}

/// Sends into a shared queue as often as it can.
fn claim(adapter: &mut Adapter, qp: QueuePair, queue: SrqNumber) {
    loop {
        let list = [adapter.region.part(0, BYTES as u32)];
        let mut request = SendRequest::new(0, Operation::Send, Payload::Memory(&list));
        request.destination = Destination::SharedReceiveQueue(queue);
        adapter.context.post_send(qp, &[request]).expect("the queue pair exists");
        adapter.poll();
    }
}

/// A sender that dies while it fills a receive costs that receive at most, and the queue serves others on.
#[test]
fn a_sender_killed_over_shared_receives_leaves_their_queue_whole() {
    for round in 0..4u64 {
        let (mut adapter, mut peers) = start(&["claim", "claim"], false);
        let xrc = adapter.context.open_xrc_domain().expect("an XRC domain");
        let attributes = SharedReceiveQueueAttributes {
            protection_domain: adapter.domain,
            depth: 64,
            entries_max: 1,
            xrc: Some((xrc, adapter.completions)),
        };
        let queue = adapter.context.create_shared_receive_queue(&attributes).expect("a queue");
        let number = adapter.context.shared_receive_queue_number(queue).expect("a number");
        let qps: Vec<QueuePair> = peers
            .iter_mut()
            .map(|peer| {
                let (qp, endpoint) = adapter.queue_pair_of(Transport::XrcTarget(xrc));
                peer.tell(&format!("{endpoint} 0 {}", number.0));
                fabric::connect(&mut adapter.context, qp, Some(peer.endpoint.clone()), &ConnectOptions::default())
                    .expect("connects");
                qp
            })
            .collect();
        let list = [adapter.region.part(0, BYTES as u32)];
        let mut posted = 0u64;
        let mut ended = 0u64;
        let mut turn = |adapter: &mut Adapter, target: u64| {
            while ended < target {
                while posted < ended + 16 {
                    let request = ReceiveRequest { id: posted, list: &list };
                    assert_eq!(adapter.context.post_shared_receive(queue, &[request]), Ok(1));
                    posted += 1;
                }
                let done = adapter.poll();
                for done in &done {
                    use WcStatus::{Success, WorkRequestFlushed};
                    assert!(matches!(done.status, Success | WorkRequestFlushed), "{done:?}");
                }
                ended += done.len() as u64;
            }
        };
        turn(&mut adapter, 20 + round * 7);
        peers[0].kill();
        let start = Instant::now();
        while adapter.context.queue_pair_state(qps[0]) != Ok(QueuePairState::Error) {
            turn(&mut adapter, 1);
            adapter.poll();
            assert!(start.elapsed() < PATIENCE, "the death is noticed");
        }
        turn(&mut adapter, 200 + round);
        assert_eq!(adapter.context.queue_pair_state(qps[1]), Ok(QueuePairState::ReadyToSend), "the other goes on");
        adapter.context.destroy_shared_receive_queue(queue).expect("nothing holds it");
    }
}

const KINDS: usize = 7;

/// Operation number `id` of a kind; short and long ones in turn.
fn operation(kind: usize, target: MemoryRegion, id: u64) -> (Operation, u32) {
    let len = if id.is_multiple_of(2) { BYTES as u32 } else { 8 };
    let operation = operations_of_every_kind(target.remote(0))[kind];
    (operation, if kind >= 5 { 8 } else { len })
}

fn every_operation(staged: bool) {
    let (mut adapter, mut peers) = start(&["echo"], staged);
    let qp = connect(&mut adapter, &mut peers[0]);
    let region = peers[0].region;
    let bytes: Vec<u8> = (0..BYTES / 2).map(|at| (at * 7 + at / 251) as u8).collect();
    for len in [1, 8, 100, 4096, 8191, 65_536] {
        adapter.fill(0, &bytes[..len]);
        adapter.receive(qp, 1, BYTES as u64 / 2, 64 << 10);
        adapter.post(qp, 2, Operation::Send, 0, len as u32);
        let mut done: Vec<_> = adapter.wait(2).iter().map(|done| (done.id, done.status)).collect();
        done.sort_by_key(|(id, _)| *id);
        assert_eq!(done, [(1, WcStatus::Success), (2, WcStatus::Success)], "{len} bytes there and back");
        assert!(adapter.read(BYTES / 2, len) == bytes[..len], "{len} bytes there and back");
    }
    for len in [1, 8, 5000, BYTES / 4] {
        adapter.fill(0, &bytes[..len]);
        let remote = region.remote(BYTES as u64 / 2 + 3);
        adapter.post(qp, 3, Operation::RdmaWrite(remote), 0, len as u32);
        adapter.fill(BYTES / 2, &vec![0; len]);
        assert_eq!(adapter.wait(1)[0].status, WcStatus::Success);
        adapter.post(qp, 4, Operation::RdmaRead(remote), BYTES as u64 / 2, len as u32);
        assert_eq!(adapter.wait(1)[0].status, WcStatus::Success);
        assert!(adapter.read(BYTES / 2, len) == bytes[..len], "{len} bytes written and read back");
    }
    let remote = region.remote(BYTES as u64 - 8);
    for (operation, before) in [
        (Operation::FetchAdd { remote, add: 5 }, 0u64),
        (Operation::CompareSwap { remote, compare: 5, swap: 9 }, 5),
        (Operation::CompareSwap { remote, compare: 5, swap: 1 }, 9),
        (Operation::FetchAdd { remote, add: 1 }, 9),
    ] {
        adapter.post(qp, 5, operation, 0, 8);
        assert_eq!(adapter.wait(1)[0].status, WcStatus::Success);
        assert_eq!(adapter.read(0, 8), before.to_ne_bytes(), "{operation:?}");
    }
    let past_the_end = region.remote(BYTES as u64 - 4);
    adapter.post(qp, 6, Operation::RdmaWrite(past_the_end), 0, 8);
    assert_eq!(adapter.wait(1)[0].status, WcStatus::RemoteAccessError);
    assert_eq!(adapter.context.queue_pair_state(qp), Ok(QueuePairState::Error));
}

#[test]
fn every_operation_between_two_processes() {
    every_operation(false);
}

#[test]
fn every_operation_between_two_processes_staged() {
    every_operation(true);
}

/// The other peer is alive and well.
fn check_survivor(adapter: &mut Adapter, qp: QueuePair, what: &str) {
    adapter.receive(qp, 500, 0, 64);
    adapter.post(qp, 501, Operation::Send, 64, 64);
    let done = adapter.wait(2);
    assert!(done.iter().all(|done| done.id >= 500 && done.status == WcStatus::Success), "{what}: {done:?}");
}

#[test]
fn a_target_killed_in_the_middle_of_every_operation_costs_its_own_queue_pair_only() {
    for kind in 0..KINDS {
        for after in [0, 1, 30] {
            let (mut adapter, mut peers) = start(&["echo", "sink"], false);
            let survivor = connect(&mut adapter, &mut peers[0]);
            let qp = connect(&mut adapter, &mut peers[1]);
            let target = peers[1].region;
            let what = format!("kind {kind}, killed after {after}");
            adapter.receive(qp, 900, 0, 8);
            let (mut posted, mut done) = (0u64, Vec::new());
            let start = Instant::now();
            let mut killed = false;
            while !killed || done.len() < posted as usize + 1 {
                while !killed && posted < done.len() as u64 + 12 {
                    let (operation, len) = operation(kind, target, posted);
                    posted += adapter.post(qp, posted, operation, 0, len) as u64;
                }
                if !killed && done.len() >= after {
                    peers[1].kill();
                    killed = true;
                    // What follows meets a peer that is no more.
                    let (operation, len) = operation(kind, target, posted);
                    posted += adapter.post(qp, posted, operation, 0, len) as u64;
                }
                done.extend(adapter.poll());
                assert!(start.elapsed() < PATIENCE, "{what}: {} of {posted} end: {done:?}", done.len());
            }
            let (received, sent): (Vec<WorkCompletion>, Vec<WorkCompletion>) =
                done.iter().partition(|done| done.id == 900);
            assert_eq!(received[0].status, WcStatus::WorkRequestFlushed, "{what}: the receive");
            assert!(sent.iter().enumerate().all(|(id, done)| done.id == id as u64), "{what}: in order");
            let first_bad = sent.iter().position(|done| done.status != WcStatus::Success).unwrap_or(sent.len());
            let gone = |status| matches!(status, WcStatus::TransportRetryExceeded | WcStatus::WorkRequestFlushed);
            assert!(first_bad < sent.len(), "{what}: the last one cannot have been done");
            assert!(sent[first_bad..].iter().all(|done| gone(done.status)), "{what}: {sent:?}");
            assert_eq!(adapter.context.queue_pair_state(qp), Ok(QueuePairState::Error), "{what}");
            check_survivor(&mut adapter, survivor, &what);
        }
    }
}

#[test]
fn an_initiator_killed_in_the_middle_of_every_operation_leaves_its_target_whole() {
    for kind in 0..KINDS {
        let role = kind.to_string();
        let (mut adapter, mut peers) = start(&["echo", role.as_str()], false);
        let survivor = connect(&mut adapter, &mut peers[0]);
        let qp = connect(&mut adapter, &mut peers[1]);
        let what = format!("kind {kind}");
        for id in 0..16 {
            adapter.receive(qp, id, 0, BYTES as u32);
        }
        // Let it work for some rounds, then kill it in the middle of one.
        let start = Instant::now();
        let (mut rounds, mut flushed) = (0, 0);
        let mut killed = false;
        while flushed < 16 {
            if rounds == 200 {
                peers[1].kill();
                killed = true;
            }
            rounds += 1;
            for done in adapter.poll() {
                match done.status {
                    WcStatus::Success => adapter.receive(qp, done.id, 0, BYTES as u32),
                    status => {
                        assert!(killed && status == WcStatus::WorkRequestFlushed, "{what}: {done:?}");
                        flushed += 1;
                    }
                }
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {flushed} of 16 receives are flushed");
        }
        assert_eq!(adapter.context.queue_pair_state(qp), Ok(QueuePairState::Error), "{what}");
        check_survivor(&mut adapter, survivor, &what);
        // A dead initiator does not keep the region.
        adapter.context.deregister(adapter.region).expect("registered");
    }
}

/// Reads, writes and atomics on memory of a process that does not poll.
fn without_help(staged: bool) {
    let (mut adapter, mut peers) = start(&["idle"], staged);
    let qp = connect(&mut adapter, &mut peers[0]);
    let (region, page) = (peers[0].region, peers[0].page);
    adapter.post(qp, 0, Operation::Send, 0, 0);
    assert_eq!(adapter.wait(1)[0].status, WcStatus::Success, "the last message it polls for");
    adapter.fill(0, &7u64.to_ne_bytes());
    adapter.post(qp, 1, Operation::RdmaWrite(page.remote(8)), 0, 8);
    assert_eq!(adapter.wait(1)[0].status, WcStatus::Success, "a write to mapped memory");
    let start = Instant::now();
    // The peer copies the word it finds: what was written is really there.
    while adapter.read(8, 8) != 7u64.to_ne_bytes() {
        adapter.post(qp, 2, Operation::RdmaRead(page.remote(16)), 8, 8);
        assert_eq!(adapter.wait(1)[0].status, WcStatus::Success, "a read of mapped memory");
        assert!(start.elapsed() < PATIENCE, "the peer does not see the write");
    }
    adapter.post(qp, 3, Operation::FetchAdd { remote: page.remote(8), add: 1 }, 16, 8);
    assert_eq!(adapter.wait(1)[0].status, WcStatus::Success, "an atomic on mapped memory");
    assert_eq!(adapter.read(16, 8), 7u64.to_ne_bytes());
    if !staged && cross_memory().is_ok() {
        adapter.fill(0, &[5; 5000]);
        adapter.post(qp, 4, Operation::RdmaWrite(region.remote(100)), 0, 5000);
        assert_eq!(adapter.wait(1)[0].status, WcStatus::Success, "a write to private memory");
        adapter.post(qp, 5, Operation::RdmaRead(region.remote(99)), 10_000, 5002);
        assert_eq!(adapter.wait(1)[0].status, WcStatus::Success, "a read of private memory");
        assert_eq!(adapter.read(10_000, 5002), [&[0][..], &[5; 5000], &[0]].concat());
    }
    peers[0].kill();
    adapter.post(qp, 6, Operation::RdmaWrite(page.remote(8)), 0, 8);
    let done = adapter.wait(1)[0];
    // The memory is mapped still, so a write may be done until the death is noticed; then it must not hang.
    assert!(matches!(done.status, WcStatus::Success | WcStatus::TransportRetryExceeded), "{done:?}");
}

#[test]
fn reads_writes_and_atomics_need_nobodys_help() {
    without_help(false);
}

#[test]
fn reads_writes_and_atomics_on_mapped_memory_need_no_cross_memory_attach() {
    without_help(true);
}

#[test]
fn a_sleeper_learns_of_a_death() {
    let (mut adapter, mut peers) = start(&["sink"], false);
    let qp = connect(&mut adapter, &mut peers[0]);
    adapter.post(qp, 0, Operation::Send, 0, 8);
    assert_eq!(adapter.wait(1)[0].status, WcStatus::Success);
    adapter.receive(qp, 1, 0, 8);
    peers[0].kill();
    let (done, _) = adapter.sleep_until(1);
    assert_eq!((done[0].id, done[0].status), (1, WcStatus::WorkRequestFlushed));
}

/// Of the calling thread.
fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// A peer that is stopped costs what needs it an error after the deadline, and no processor time until then; what does
/// not need it is done, and others go on.
#[test]
fn a_stopped_peer_is_given_up_after_the_deadline_and_nobody_spins_for_it() {
    // What needs the peer, and what does not.
    for kind in [0, 2] {
        let (mut adapter, mut peers) = start(&["echo", "sink"], false);
        adapter.give_up_after(Some(Duration::from_millis(600)));
        let survivor = connect(&mut adapter, &mut peers[0]);
        let qp = connect(&mut adapter, &mut peers[1]);
        adapter.post(qp, 0, Operation::Send, 0, 8);
        assert_eq!(adapter.wait(1)[0].status, WcStatus::Success);
        peers[1].stop();
        let what = format!("kind {kind}");
        adapter.receive(qp, 900, 0, 8);
        let (operation, len) = operation(kind, peers[1].region, 1);
        // More than wait in the channel and in the receives of one that does not look.
        for id in 1..=40 {
            assert_eq!(adapter.post(qp, id, operation, 0, len), 1, "{what}");
        }
        let before = processor_time();
        let (done, wakes) = adapter.sleep_until(41);
        assert!(processor_time() - before < Duration::from_millis(200), "{what}: it does not spin");
        assert!(wakes < 50, "{what}: {wakes} wakes");
        let (received, sent): (Vec<WorkCompletion>, Vec<WorkCompletion>) = done.iter().partition(|done| done.id == 900);
        assert_eq!(received[0].status, WcStatus::WorkRequestFlushed, "{what}: the receive");
        assert!(sent.iter().zip(1..).all(|(done, id)| done.id == id), "{what}: in order");
        let first_bad = sent.iter().position(|done| done.status != WcStatus::Success).unwrap_or(sent.len());
        // Writes are done by this processor, whatever the peer does.
        let expected = if kind == 2 && cross_memory().is_ok() { 40 } else { 0 };
        assert_eq!(first_bad, expected, "{what}: {sent:?}");
        let gone = |status| matches!(status, WcStatus::TransportRetryExceeded | WcStatus::WorkRequestFlushed);
        assert!(sent[first_bad..].iter().all(|done| gone(done.status)), "{what}: {sent:?}");
        assert_eq!(adapter.context.queue_pair_state(qp), Ok(QueuePairState::Error), "{what}");
        let why = adapter.context.link().why_given_up(LinkPeer(2)).expect("it is given up").to_owned();
        assert!(why.contains("rank 2") && why.contains("has been stopped for"), "{why}");
        check_survivor(&mut adapter, survivor, &what);
    }
}

/// Without a deadline a peer may be stopped for as long as it likes; nothing is lost meanwhile.
#[test]
fn a_peer_that_goes_on_finds_everything() {
    let (mut adapter, mut peers) = start(&["sink"], false);
    let qp = connect(&mut adapter, &mut peers[0]);
    peers[0].stop();
    for id in 0..40 {
        let (operation, len) = operation(0, peers[0].region, id);
        assert_eq!(adapter.post(qp, id, operation, 0, len), 1);
    }
    // Looked at several times.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        assert!(adapter.poll().is_empty());
    }
    peers[0].signal(Signal::CONT);
    let done = adapter.wait(40);
    assert!(done.iter().zip(0..).all(|(done, id)| (done.id, done.status) == (id, WcStatus::Success)), "{done:?}");
}

/// One that was given up and goes on after all learns that nobody waits for it.
#[test]
fn who_was_given_up_is_told_when_it_goes_on() {
    let (mut adapter, mut peers) = start(&["left"], false);
    adapter.give_up_after(Some(Duration::from_millis(100)));
    let qp = connect(&mut adapter, &mut peers[0]);
    adapter.post(qp, 0, Operation::Send, 0, 8);
    assert_eq!(adapter.wait(1)[0].status, WcStatus::Success);
    peers[0].stop();
    adapter.receive(qp, 1, 0, 8);
    assert_eq!(adapter.wait(1)[0].status, WcStatus::WorkRequestFlushed);
    peers[0].signal(Signal::CONT);
    // It ends when what it has posted was flushed.
    assert_eq!(peers[0].child.wait().expect("ours").code(), Some(LEFT_ALONE));
}
