//! Datagrams, XRC and atomics between two processes, over shared memory and over sockets.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use base::log::{Level, Log};
use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, DatagramAddress, Destination, Endpoint, LocalMemory,
    MemoryRegion, Operation, Payload, PeerIndex, ProtectionDomain, Qkey, QueuePair, QueuePairAttributes,
    ReceiveRequest, RemoteMemory, Rkey, SendRequest, SharedMemory, SharedReceiveQueueAttributes, SrqNumber, Transport,
    WcStatus, WorkCompletion,
};
use fabric_soft::SoftContext;
use fabric_soft::shm::{Segment, SegmentServer, Shape, ShmLink, join, probe_cross_memory};
use fabric_soft::tcp::{self, JobSecret, Progress, TcpOptions};

/// In the environment of the other process: how to open the device.
const OPENING: &str = "FABRIC_SOFT_APART";
const SHAPE: Shape = Shape { process_count: 2, channel_bytes: 64 << 10, shuttle_bytes: 0, arena_bytes: 1 << 20 };
const PATIENCE: Duration = Duration::from_secs(60);
const KEY: Qkey = Qkey(0x77);
const BYTES: usize = 4096;
/// Additions by each process to each counter.
const ADDITIONS: u64 = 500;

/// A device with all that the tests need.
struct Node {
    context: Box<dyn Context>,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    /// Memory of the process.
    private: &'static [AtomicU64],
    region: MemoryRegion,
    /// Memory of the device.
    page: MemoryRegion,
    page_memory: SharedMemory,
}

impl Node {
    fn new(mut context: Box<dyn Context>) -> Self {
        let domain = context.allocate_protection_domain().expect("a domain");
        let completions = context.create_completion_queue(256).expect("a queue");
        let private: &'static [AtomicU64] = Box::leak((0..BYTES / 8).map(|_| AtomicU64::new(0)).collect());
        // SAFETY: leaked memory is valid for ever, and atomics expect to be changed by others.
        let range = unsafe { WriteRange::new(private.as_ptr().cast::<u8>().cast_mut(), BYTES) };
        let region = context.register(domain, LocalMemory::Target(range), Access::REMOTE_ALL).expect("a region");
        let (page, page_memory) = context.allocate(domain, BYTES, Access::REMOTE_ALL).expect("memory");
        Self { context, domain, completions, private, region, page, page_memory }
    }

    fn queue_pair(&mut self, transport: Transport) -> (QueuePair, Endpoint) {
        let mut attributes = QueuePairAttributes::new(self.domain, self.completions);
        attributes.transport = transport;
        let qp = self.context.create_queue_pair(&attributes).expect("a queue pair");
        (qp, self.context.endpoint(qp).expect("an endpoint"))
    }

    fn connect(&mut self, qp: QueuePair, remote: Option<Endpoint>) {
        let options = ConnectOptions { qkey: KEY, ..ConnectOptions::default() };
        fabric::connect(self.context.as_mut(), qp, remote, &options).expect("connects");
    }

    fn poll(&mut self) -> Option<WorkCompletion> {
        let mut into = [WorkCompletion::default()];
        let count = self.context.poll(self.completions, &mut into).expect("a whole queue");
        if count == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
        (count > 0).then_some(into[0])
    }

    fn wait(&mut self, id: u64) {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "{id} does not end");
            if let Some(done) = self.poll() {
                assert_eq!((done.id, done.status), (id, WcStatus::Success));
                return;
            }
        }
    }

    /// Does an atomic at the other side; returns what was there.
    fn atomic(&mut self, qp: QueuePair, operation: Operation) -> u64 {
        let list = [self.region.part(8, 8)];
        assert_eq!(self.context.post_send(qp, &[SendRequest::new(9, operation, Payload::Memory(&list))]), Ok(1));
        self.wait(9);
        self.private[1].load(Ordering::Acquire)
    }
}

fn word<T: FromStr<Err: std::fmt::Debug>>(words: &mut dyn Iterator<Item = String>) -> T {
    words.next().expect("a word").parse().expect("it is one")
}

fn words(line: &str) -> impl Iterator<Item = String> + use<> {
    line.trim().split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn sockets(progress: Progress) -> Box<dyn Context> {
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    let options = TcpOptions::new(JobSecret::new([9; 32]), listen, Log::new(Level::Error, None));
    tcp::open(TcpOptions { progress, ..options }).expect("a device")
}

fn shared_memory(segment: Segment, place: u32) -> Box<dyn Context> {
    Box::new(SoftContext::new(ShmLink::join(segment, PeerIndex(place), probe_cross_memory()).expect("a place")))
}

/// What the other process runs; nothing when the tests are run as usual.
#[test]
fn other_process() {
    let Ok(opening) = std::env::var(OPENING) else { return };
    let context = match opening.split_once(' ') {
        Some((_, name)) => shared_memory(join(name, SHAPE).expect("the segment"), 1),
        None if opening == "tcp-thread" => sockets(Progress::Thread),
        None => sockets(Progress::Caller),
    };
    let mut node = Node::new(context);
    let xrc = node.context.open_xrc_domain().expect("an XRC domain");
    let attributes = SharedReceiveQueueAttributes {
        protection_domain: node.domain,
        depth: 8,
        entries_max: 1,
        xrc: Some((xrc, node.completions)),
    };
    let queue = node.context.create_shared_receive_queue(&attributes).expect("a queue");
    let number = node.context.shared_receive_queue_number(queue).expect("a number");
    let transports = [Transport::ReliableConnection, Transport::UnreliableDatagram, Transport::XrcTarget(xrc)];
    let [connected, datagrams, target] = transports.map(|transport| node.queue_pair(transport));
    let header = u64::from(node.context.capabilities().limits.datagram_header_bytes);
    node.connect(datagrams.0, None);
    let list = [node.region.part(1024, 256)];
    assert_eq!(node.context.post_receive(datagrams.0, &[ReceiveRequest { id: 1, list: &list }]), Ok(1));
    let list = [node.region.part(2048, 256)];
    assert_eq!(node.context.post_shared_receive(queue, &[ReceiveRequest { id: 2, list: &list }]), Ok(1));
    let ends = format!("{} {} {} {}", connected.1, datagrams.1, target.1, number.0);
    let memory = format!("{} {} {} {}", node.region.address, node.region.rkey.0, node.page.address, node.page.rkey.0);
    println!("HERE {ends} {memory}");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("the test speaks");
    let mut theirs = words(&line);
    node.connect(connected.0, Some(word(&mut theirs)));
    node.connect(target.0, Some(word(&mut theirs)));
    println!("READY");
    std::thread::spawn(|| {
        std::io::stdin().lock().lines().for_each(drop);
        std::process::exit(0);
    });
    for added in 0.. {
        if added < ADDITIONS {
            node.private[0].fetch_add(1, Ordering::AcqRel);
            node.page_memory.word(0).fetch_add(1, Ordering::AcqRel);
        }
        if let Some(done) = node.poll() {
            let at = if done.id == 1 { 1024 + header } else { 2048 } as usize / 8;
            let text = node.private[at].load(Ordering::Acquire);
            println!("GOT {} {} {} {text}", done.id, done.bytes, done.immediate.unwrap_or(0));
        }
    }
}

/// The other process, ended with this.
struct Other {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Other {
    fn start(opening: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["other_process", "--exact", "--nocapture"])
            .env(OPENING, opening)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { stdin: child.stdin.take(), child, lines }
    }

    /// The rest of the next line that begins with `start`; `node` is polled until it comes.
    fn hear(&self, start: &str, node: &mut Node) -> String {
        let since = Instant::now();
        loop {
            match self.lines.try_recv() {
                // The first line stands behind what the test program says.
                Ok(line) => {
                    if let Some((_, rest)) = line.split_once(start) {
                        return rest.to_owned();
                    }
                }
                Err(TryRecvError::Disconnected) => panic!("the other process has ended"),
                Err(TryRecvError::Empty) => {}
            }
            assert!(since.elapsed() < PATIENCE, "{start} does not come");
            assert_eq!(node.poll(), None, "nothing is under way");
        }
    }
}

fn over(mut node: Node, other: Other) {
    let mut theirs = words(&other.hear("HERE ", &mut node));
    let [connected, datagrams, target]: [Endpoint; 3] = std::array::from_fn(|_| word(&mut theirs));
    let number = SrqNumber(word(&mut theirs));
    let [private, page] = [(); 2].map(|()| RemoteMemory { address: word(&mut theirs), rkey: Rkey(word(&mut theirs)) });
    let transports = [Transport::ReliableConnection, Transport::UnreliableDatagram, Transport::XrcInitiator];
    let [(reliable, our_end), (ud, _), (xrc, xrc_end)] = transports.map(|transport| node.queue_pair(transport));
    writeln!(other.stdin.as_ref().expect("open"), "{our_end} {xrc_end}").expect("it listens");
    node.connect(reliable, Some(connected));
    node.connect(xrc, Some(target));
    node.connect(ud, None);
    other.hear("READY", &mut node);

    let to = DatagramAddress::Endpoint(&datagrams);
    let address = node.context.create_address_handle(node.domain, to).expect("the way there");
    let send = |id: u64, text: u64, destination| {
        let text = text.to_ne_bytes();
        (Operation::SendWithImmediate(id as u32), text, destination)
    };
    let header = u64::from(node.context.capabilities().limits.datagram_header_bytes);
    let datagram = Destination::Datagram { address, qp: datagrams.qp(), qkey: KEY };
    for (qp, (operation, text, destination), expected) in [
        (ud, send(31, 0xfeed, datagram), format!("1 {} 31 {}", 8 + header, 0xfeed)),
        (xrc, send(32, 0xbeef, Destination::SharedReceiveQueue(number)), format!("2 8 32 {}", 0xbeef)),
    ] {
        let mut request = SendRequest::new(5, operation, Payload::Inline(&text));
        request.destination = destination;
        assert_eq!(node.context.post_send(qp, &[request]), Ok(1));
        node.wait(5);
        assert_eq!(other.hear("GOT ", &mut node), expected);
    }

    for remote in [private, page] {
        let mut last = None;
        for _ in 0..ADDITIONS {
            let before = node.atomic(reliable, Operation::FetchAdd { remote, add: 1 });
            assert!(last.is_none_or(|last| before > last), "{before} after {last:?}");
            last = Some(before);
        }
        // The other has added as often, and nothing was lost between a load and a store.
        let start = Instant::now();
        while node.atomic(reliable, Operation::FetchAdd { remote, add: 0 }) < 2 * ADDITIONS {
            assert!(start.elapsed() < PATIENCE, "an addition is missing");
        }
        let swap = Operation::CompareSwap { remote, compare: 2 * ADDITIONS, swap: 77 };
        assert_eq!([(); 2].map(|()| node.atomic(reliable, swap)), [2 * ADDITIONS, 77]);
    }
}

#[test]
fn datagrams_xrc_and_atomics_over_shared_memory() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let unique = format!("apart-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let segment = Segment::create(SHAPE).expect("memory");
    let (server, name) = SegmentServer::bind(segment.clone(), &unique).expect("a socket");
    let other = Other::start(&format!("shm {name}"));
    server.serve(1).expect("the other fetches the segment");
    over(Node::new(shared_memory(segment, 0)), other);
}

#[test]
fn datagrams_xrc_and_atomics_over_sockets() {
    over(Node::new(sockets(Progress::Caller)), Other::start("tcp"));
}

#[test]
fn datagrams_xrc_and_atomics_over_sockets_with_adapter_threads() {
    over(Node::new(sockets(Progress::Thread)), Other::start("tcp-thread"));
}

/// What an adapter with a thread is asked for is done though its owner does nothing.
#[test]
fn an_adapter_thread_needs_no_owner() {
    let [mut here, mut there] = [Progress::Caller, Progress::Thread].map(|progress| Node::new(sockets(progress)));
    assert!(here.context.capabilities().asynchronous.is_err() && there.context.capabilities().asynchronous.is_ok());
    let [(ours, our_end), (theirs, their_end)] =
        [&mut here, &mut there].map(|node| node.queue_pair(Transport::ReliableConnection));
    here.connect(ours, Some(their_end));
    there.connect(theirs, Some(our_end));
    let list = [there.region.part(64, 8)];
    assert_eq!(there.context.post_receive(theirs, &[ReceiveRequest { id: 4, list: &list }]), Ok(1));
    there.context.arm(there.completions, fabric::NotifyOn::Any).expect("a whole queue");
    // From here on nobody calls the other side.
    let remote = there.region.remote(0);
    assert_eq!(here.atomic(ours, Operation::FetchAdd { remote, add: 5 }), 0);
    assert_eq!(here.atomic(ours, Operation::FetchAdd { remote, add: 1 }), 5);
    let text = 99u64.to_ne_bytes();
    for (id, operation) in [(1, Operation::RdmaWrite(there.region.remote(8))), (2, Operation::Send)] {
        let request = SendRequest::new(id, operation, Payload::Inline(&text));
        assert_eq!(here.context.post_send(ours, &[request]), Ok(1));
        here.wait(id);
    }
    assert_eq!([0, 1, 8].map(|at| there.private[at].load(Ordering::Acquire)), [6, 99, 99]);
    // Its owner would have been woken.
    let descriptor = there.context.descriptor(there.completions).expect("a descriptor");
    let mut wanted = [rustix::event::PollFd::new(&descriptor, rustix::event::PollFlags::IN)];
    let patience = rustix::event::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wanted, Some(&patience)), Ok(1));
    assert_eq!(there.poll().map(|done| (done.id, done.status)), Some((4, WcStatus::Success)));
}
