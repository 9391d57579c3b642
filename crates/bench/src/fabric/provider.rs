//! The VI Provider Library beside raw segments. Paper: via2sisci §1.
//!
//! The measured end is a client; the other end is a server in a process of its own, or in a thread. Both know what is
//! measured, so that nothing is said about it while it is: the server does what [`Task::help`] says until the client
//! disconnects.

use super::Found;
use super::opening::Ends;
use super::places::Place;
use super::sampling::{Sampling, Taken};
use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vipl::segments::{DmaQueue, Mapping, Node, NodeReference, PeerNode, Published};
use vipl::{
    Completion, CompletionQueue, Counter, Descriptor, Error, MemoryAttributes, MemoryHandle, NetAddress, Nic,
    OwnedMemory, Reliability, SegmentMemory, Settings, Vi, ViAttributes, WorkQueue,
};

/// The name under which it is asked for.
pub const NAME: &str = "vipl";
/// What `ferrovia bench` is called with in the process of the other end.
pub const END: &str = "vipl-end";
/// After so long without what must come, something is broken.
const PATIENCE: Duration = Duration::from_secs(20);
/// Messages under way in a stream.
const WINDOW: u64 = 32;
/// Empty looks at memory before the processor is offered to others.
const LOOKS: u32 = 10_000;
/// The longest message.
const BYTES_MAX: u64 = 1 << 28;

/// How bytes move.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
enum How {
    /// Send and receive.
    Send,
    /// RDMA write, noticed by looking at the last word.
    Write,
    /// RDMA read.
    Read,
    /// Words stored to the mapped segment of the other side.
    Stores,
    /// A memory copy to it.
    Copy,
    /// A block of a DMA queue to it.
    Dma,
}

impl How {
    /// Without the provider.
    fn is_raw(self) -> bool {
        matches!(self, Self::Stores | Self::Copy | Self::Dma)
    }
}

/// How an end learns that a receive is complete.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
enum Notice {
    /// It asks again and again.
    Poll,
    /// It waits, and sleeps if that takes long.
    Wait,
    /// It waits at a completion queue.
    Queue,
    /// A handler is called on a thread of the NIC.
    Handler,
}

/// What both ends do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
enum What {
    /// Messages there and back.
    Latency,
    /// A stream of messages to the server, or reads from it.
    Stream,
    /// Connections, one after the other.
    Connect,
    /// A stream of short messages from the server, which asks for descriptors.
    Push,
}

/// What the other end is told.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Task {
    what: What,
    how: How,
    /// 2: registered memory with a shadow; 3: memory inside a segment.
    way: u32,
    notice: Notice,
    /// Both ends ask for the connection, rather than one that waits and one that asks.
    by_peers: bool,
    bytes: u64,
    push: usize,
    /// The address of the server.
    name: String,
}

/// What an end shows the other in its first message.
#[derive(Clone, Copy)]
struct Shown {
    remote: (u64, MemoryHandle),
    node: NodeReference,
    segment: u32,
}

/// Memory of either way, by words.
enum Memory {
    Owned(OwnedMemory),
    Segment(SegmentMemory),
}

impl Memory {
    fn segment(&self, offset: u64, len_bytes: u64) -> vipl::DataSegment {
        match self {
            Self::Owned(memory) => memory.segment(offset as usize, len_bytes as u32),
            Self::Segment(memory) => memory.segment(offset as usize, len_bytes as u32),
        }
    }

    fn load(&self, offset: u64) -> u64 {
        match self {
            Self::Owned(memory) => memory.load(offset as usize / 8),
            Self::Segment(memory) => memory.mapping().load(offset as usize).expect("offsets are words inside"),
        }
    }

    fn store(&self, offset: u64, value: u64) {
        match self {
            Self::Owned(memory) => memory.store(offset as usize / 8, value),
            Self::Segment(memory) => memory.mapping().store(offset as usize, value).expect("offsets are words inside"),
        }
    }
}

/// One end, connected.
///
/// Its memory: what is sent, behind it slots for what comes, and two lines for what is said beside.
struct End {
    task: Task,
    nic: Nic,
    vi: Vi,
    queue: CompletionQueue,
    dma: RefCell<DmaQueue>,
    memory: Memory,
    /// The raw segment: what comes there, and its counterpart.
    local: Mapping,
    remote: Option<Mapping>,
    theirs: Option<Shown>,
    sent: u64,
    taken: u64,
    _segment: vipl::segments::LocalSegment,
    _node: Node,
}

impl End {
    fn new(task: &Task) -> Result<Self> {
        let nic = Nic::open(Settings { push_max: task.push, ..Settings::default() })?;
        let ptag = nic.create_ptag()?;
        let attributes = ViAttributes {
            reliability: Reliability::Delivery,
            transfer_max_bytes: BYTES_MAX,
            ptag,
            rdma_write: true,
            rdma_read: true,
        };
        let queue = nic.create_queue(64)?;
        let told = (task.notice == Notice::Queue).then_some(&queue);
        let vi = nic.create_vi(&attributes, None, told)?;
        let len = task.stride() * (1 + task.slots()) + 128;
        let rights = MemoryAttributes { ptag, rdma_write: true, rdma_read: true };
        let memory = match task.way {
            2 => Memory::Owned(nic.register_owned(len as usize / 8, rights)?),
            _ => Memory::Segment(nic.allocate(len as usize, rights)?),
        };
        let node = Node::create()?;
        let segment = node.create_segment(len as usize)?;
        segment.publish(&Published::default());
        let local = segment.mapping().clone();
        let (remote, theirs) = (None, None);
        let end = Self {
            task: task.clone(),
            nic,
            vi,
            queue,
            dma: RefCell::new(DmaQueue::new(1)),
            memory,
            local,
            remote,
            theirs,
            sent: 0,
            taken: 0,
            _segment: segment,
            _node: node,
        };
        for word in 0..task.bytes / 8 {
            end.memory.store(word * 8, content(word));
            end.local.store(word as usize * 8, content(word))?;
        }
        Ok(end)
    }

    /// Where one end tells the other, by a word in the raw segment, how many messages it has taken.
    fn line(&self) -> u64 {
        self.task.stride() * (1 + self.task.slots())
    }

    /// What is there before there is a connection: a receive for what the other end shows, and those of the test.
    fn prepare(&self, is_server: bool) -> Result<()> {
        self.post_introduction()?;
        let is_target = self.task.how == How::Send && matches!(self.task.what, What::Latency | What::Stream);
        for slot in 0..if is_target { self.task.slots() } else { 0 } {
            self.post_receive(slot, self.task.bytes.max(8))?;
        }
        // What is read there is what a message would hold.
        for place in (0..self.task.slots()).map(|number| self.slot(number)).filter(|_| is_server) {
            if self.task.how == How::Read {
                (0..self.task.bytes / 8).for_each(|word| self.memory.store(place + word * 8, content(word)));
            }
        }
        // What the client asks for descriptors with; or what comes back when it has gone.
        let is_asked = self.task.what == What::Push || self.task.how == How::Read;
        if is_server && is_asked { self.post_receive(1, 8) } else { Ok(()) }
    }

    /// A receive for what the other end shows, behind everything else: the first message may be quicker than its reader.
    fn post_introduction(&self) -> Result<()> {
        let list = vec![self.memory.segment(self.line() + 64, 48)];
        Ok(self.vi.post_receive(Descriptor::of(list, 0))?)
    }

    fn slot(&self, number: u64) -> u64 {
        self.task.stride() * (1 + number % self.task.slots())
    }

    fn post_receive(&self, slot: u64, len_bytes: u64) -> Result<()> {
        let list = vec![self.memory.segment(self.slot(slot), len_bytes)];
        Ok(self.vi.post_receive(Descriptor::of(list, slot))?)
    }

    fn post(&self, descriptor: Descriptor) -> Result<()> {
        self.vi.post_send(descriptor)?;
        self.complete(WorkQueue::Send).map(drop)
    }

    fn complete(&self, which: WorkQueue) -> Result<Completion> {
        let completion = match (which, self.task.notice) {
            (WorkQueue::Send, _) | (_, Notice::Wait) => self.vi.wait(which, Some(PATIENCE))?,
            (_, Notice::Poll) => {
                let done = RefCell::new(None);
                let look = || {
                    *done.borrow_mut() = self.vi.done(which);
                    done.borrow().is_some()
                };
                self.wait_until(look)?;
                done.take().context("it was there")?
            }
            (_, Notice::Queue) => {
                self.queue.wait(Some(PATIENCE))?;
                self.vi.done(which).context("the completion queue told of a descriptor that is not there")?
            }
            (_, Notice::Handler) => {
                let (tell, told) = mpsc::channel();
                let handler = move |completion| {
                    // Nobody listens any more only after the time was up.
                    let _ = tell.send(completion);
                };
                self.vi.notify(which, Box::new(handler))?;
                told.recv_timeout(PATIENCE).context("no handler was called")?
            }
        };
        match completion.status.is_error() {
            true => Err(anyhow!("a descriptor ended with {:?}", completion.status)),
            false => Ok(completion),
        }
    }

    /// Both ends show where their memory is.
    fn introduce(&mut self) -> Result<()> {
        let node = self._node.reference();
        let place = self.memory.segment(0, 0);
        let words = [
            place.address,
            place.handle.0.into(),
            node.process.into(),
            node.descriptor.into(),
            node.number,
            self._segment.id().into(),
        ];
        let line = self.line();
        (0..6).for_each(|word| self.memory.store(line + word * 8, words[word as usize]));
        self.post(Descriptor::of(vec![self.memory.segment(line, 48)], 0))?;
        self.complete(WorkQueue::Receive)?;
        let word = |index: u64| self.memory.load(line + 64 + index * 8);
        let shown = Shown {
            remote: (word(0), MemoryHandle(word(1) as u32)),
            node: NodeReference { process: word(2) as u32, descriptor: word(3) as u32, number: word(4) },
            segment: word(5) as u32,
        };
        self.remote = Some(PeerNode::connect(shown.node)?.connect_segment(shown.segment)?.map()?);
        self.theirs = Some(shown);
        Ok(())
    }

    /// Moves the next message to the other end.
    fn send(&mut self) -> Result<()> {
        let (number, bytes) = (self.sent, self.task.bytes);
        self.sent += 1;
        let slot = self.slot(number);
        let shown = self.theirs.context("the ends have not been introduced")?;
        let there = (shown.remote.0 + slot, shown.remote.1);
        match self.task.how {
            How::Send => self.post(Descriptor::of(vec![self.memory.segment(0, bytes)], number)),
            How::Write => {
                self.memory.store(bytes - 8, number + 1);
                self.post(Descriptor::rdma_write(vec![self.memory.segment(0, bytes)], there, number))
            }
            How::Read => self.post(Descriptor::rdma_read(vec![self.memory.segment(slot, bytes)], there, number)),
            How::Stores | How::Copy | How::Dma => {
                let remote = self.remote.as_ref().context("the ends have not been introduced")?;
                let (at, len_bytes) = (slot as usize, bytes as usize - 8);
                match self.task.how {
                    How::Copy => self.local.copy(0, remote, at, len_bytes)?,
                    How::Dma => {
                        let mut dma = self.dma.borrow_mut();
                        dma.enqueue((&self.local, 0), (remote, at), len_bytes)?;
                        dma.post()?;
                    }
                    _ => (0..bytes / 8 - 1)
                        .try_for_each(|word| remote.store((slot + word * 8) as usize, content(word)))?,
                }
                Ok(remote.store(at + len_bytes, number + 1)?)
            }
        }
    }

    /// Waits for the next message.
    fn arrive(&mut self) -> Result<()> {
        let number = self.taken;
        self.taken += 1;
        if self.task.how == How::Send {
            let done = self.complete(WorkQueue::Receive)?;
            if u64::from(done.len_bytes) != self.task.bytes {
                bail!("a message of {} bytes instead of {}", done.len_bytes, self.task.bytes);
            }
            return self.post_receive(done.context, self.task.bytes.max(8));
        }
        let last = self.slot(number) + self.task.bytes - 8;
        let raw = self.task.how.is_raw();
        let look = || if raw { self.local.load(last as usize).unwrap_or(0) } else { self.memory.load(last) };
        self.wait_until(|| look() == number + 1)
    }

    /// Looks at memory until it is as it should be, for as long as there is a connection.
    fn wait_until(&self, is_so: impl Fn() -> bool) -> Result<()> {
        let mut looks = 0;
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            looks += 1;
            if looks % LOOKS == 0 {
                std::thread::yield_now();
                if !self.is_connected() {
                    bail!("the other end has gone");
                }
                if Instant::now() > deadline {
                    bail!("nothing came for {} s", PATIENCE.as_secs());
                }
            }
        }
        Ok(())
    }

    fn is_connected(&self) -> bool {
        self.vi.query().state == vipl::State::Connected
    }

    /// What came last is what the other end holds, but for the stamp by which it was noticed.
    fn check(&self) -> Result<()> {
        let (count, stamps) = match self.task.how {
            How::Read => (self.sent, 0),
            How::Send => (self.taken, 0),
            _ => (self.taken, 1),
        };
        let raw = self.task.how.is_raw();
        let words = if count == 0 { 0 } else { (self.task.bytes / 8).saturating_sub(stamps) };
        for at in (0..words).map(|word| word * 8) {
            let place = self.slot(count - 1) + at;
            let found = if raw { self.local.load(place as usize)? } else { self.memory.load(place) };
            if found != content(at / 8) {
                bail!("wrong data at byte {at}");
            }
        }
        Ok(())
    }
}

impl Task {
    /// From one message to the next in memory.
    fn stride(&self) -> u64 {
        self.bytes.max(64).next_multiple_of(64)
    }

    /// Places for messages that come.
    fn slots(&self) -> u64 {
        match self.what {
            What::Stream | What::Push => WINDOW,
            _ => 2,
        }
    }

    fn address(&self, role: &str) -> Result<NetAddress> {
        NetAddress::new(NetAddress::local_host(), format!("{}{role}", self.name).as_bytes()).context("a short address")
    }

    /// The server's life.
    fn help(&self) -> Result<()> {
        let mut end = End::new(self)?;
        end.prepare(true)?;
        loop {
            match self.by_peers {
                true => {
                    end.vi.connect_peer(&self.address("")?, &self.address("c")?, Some(PATIENCE))?.wait().map(drop)?
                }
                false => end.nic.connect_wait(&self.address("")?, Some(PATIENCE))?.accept(&end.vi)?,
            }
            if self.what != What::Connect {
                break;
            }
            // The client disconnects at once; the first of them that says so ends it.
            let first = end.vi.wait(WorkQueue::Receive, Some(PATIENCE))?;
            end.vi.disconnect();
            if first.len_bytes > 0 {
                return Ok(());
            }
            while end.vi.done(WorkQueue::Receive).is_some() {}
            end.post_introduction()?;
        }
        let served = end.introduce().and_then(|()| {
            // The NIC has its threads by now, which stay free.
            let _place = Place::take(1, 2);
            self.serve(&mut end)
        });
        match served {
            // The client is content and has gone.
            Err(error) if end.is_connected() || error.to_string().contains("wrong data") => Err(error),
            Err(_) => Ok(()),
            other => other,
        }
    }

    fn serve(&self, end: &mut End) -> Result<()> {
        match (self.what, self.how) {
            (What::Latency, How::Read) | (What::Stream, How::Read) | (What::Connect, _) => {
                end.complete(WorkQueue::Receive).map(drop)
            }
            (What::Latency, _) => loop {
                end.arrive()?;
                end.send()?;
            },
            (What::Stream, How::Send) => loop {
                for _ in 0..WINDOW / 2 {
                    end.arrive()?;
                }
                end.check()?;
                end.post(Descriptor::of(vec![], 0))?;
            },
            (What::Stream, _) => loop {
                for _ in 0..WINDOW / 2 {
                    end.arrive()?;
                }
                end.check()?;
                let remote = end.remote.as_ref().context("the ends have not been introduced")?;
                remote.store(end.line() as usize, end.taken)?;
            },
            (What::Push, _) => loop {
                // The client asks, by a message, for as many as it has posted receives for.
                end.complete(WorkQueue::Receive)?;
                end.post_receive(1, 8)?;
                for _ in 0..WINDOW {
                    end.post(Descriptor::of(vec![end.memory.segment(0, 8)], 0))?;
                }
            },
        }
    }
}

/// The life of the process of the other end.
///
/// # Errors
/// If the task makes no sense, or something fails.
pub fn live(task: &str) -> Result<()> {
    serde_json::from_str::<Task>(task).context("the task of this end")?.help()
}

/// The other end.
enum Server {
    Process(Child),
    Thread(Option<JoinHandle<Result<()>>>),
}

impl Server {
    fn start(task: &Task, ends: Ends) -> Result<Self> {
        if ends == Ends::Threads {
            let task = task.clone();
            return Ok(Self::Thread(Some(std::thread::spawn(move || task.help()))));
        }
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let child = Command::new(&program)
            .args(["bench", END, &serde_json::to_string(task)?])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self::Process(child))
    }

    /// Waits for its end, which must be a good one.
    fn end(mut self) -> Result<()> {
        match &mut self {
            Self::Process(child) => match child.wait()?.success() {
                true => Ok(()),
                false => bail!("the other end failed"),
            },
            Self::Thread(thread) => {
                let thread = thread.take().context("it ends once")?;
                thread.join().map_err(|_| anyhow!("the other end panicked"))?
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            // It may be in the middle of a wait that nobody will end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs one of the tests with these parameters.
///
/// # Errors
/// If something fails, a payload is wrong, or there is no such test or parameter.
pub fn measure(
    test: &str,
    ends: Ends,
    bytes: u64,
    parameters: &BTreeMap<String, String>,
    sampling: &Sampling,
) -> Result<Vec<Found>> {
    let (what, operations_min) = match test {
        "vipl-latency" => (What::Latency, 1),
        "vipl-bandwidth" => (What::Stream, 8),
        "vipl-connect" => (What::Connect, 1),
        "vipl-push" => (What::Push, 1),
        "vipl-notice" => (What::Latency, 1),
        _ => bail!("the VI Provider Library has no test {test:?}"),
    };
    let (how, way) = match parameters.get("operation").map_or("send-3", String::as_str) {
        "send-2" => (How::Send, 2),
        "send-3" => (How::Send, 3),
        "write-2" => (How::Write, 2),
        "write-3" => (How::Write, 3),
        "read-2" => (How::Read, 2),
        "read-3" => (How::Read, 3),
        "stores" => (How::Stores, 3),
        "copy" => (How::Copy, 3),
        "dma" => (How::Dma, 3),
        other => bail!("there is no operation {other:?}"),
    };
    let notice = match parameters.get("notice").map_or("wait", String::as_str) {
        "poll" => Notice::Poll,
        "wait" => Notice::Wait,
        "queue" => Notice::Queue,
        "handler" => Notice::Handler,
        other => bail!("nobody is told by {other:?}"),
    };
    let by_peers = match parameters.get("model").map_or("client-server", String::as_str) {
        "client-server" => false,
        "peers" => true,
        other => bail!("there is no connection model {other:?}"),
    };
    let push = parameters.get("push").map_or(Ok(32), |text| text.parse()).context("push is a number")?;
    let bytes = bytes.clamp(8, BYTES_MAX).next_multiple_of(8);
    let name = format!("bench {:x}", rand::random::<u64>());
    let task = Task { what, how, way, notice, by_peers, bytes, push, name };
    let sampling = Sampling { operations_min, ..*sampling };
    let server = Server::start(&task, ends)?;
    match (conduct(&task, &sampling), server.end()) {
        (Ok(found), Ok(())) => Ok(found),
        // One failed because the other did; which, they say themselves.
        (Err(here), Err(there)) => Err(anyhow!("{here:#}; the other end: {there:#}")),
        (Err(error), Ok(())) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The client's life.
fn conduct(task: &Task, sampling: &Sampling) -> Result<Vec<Found>> {
    let mut end = End::new(task)?;
    end.prepare(false)?;
    if task.what == What::Connect {
        return connections(&end, sampling);
    }
    connect(&end)?;
    end.introduce()?;
    let _place = Place::take(0, 2);
    let found = match task.what {
        What::Latency if task.how == How::Read => Found::time(sampling.take(|| end.send())?),
        What::Latency => {
            let taken = sampling.take(|| end.send().and_then(|()| end.arrive()))?;
            Found::time(taken.scaled(0.5))
        }
        What::Stream => {
            let half = WINDOW / 2;
            Found::rate(sampling.take(|| stream(&mut end, half))?, (half * task.bytes) as f64)
        }
        _ => pushes(sampling, &end)?,
    };
    end.check()?;
    end.vi.disconnect();
    Ok(found)
}

/// Half a window of messages, once the other end has room for it.
fn stream(end: &mut End, half: u64) -> Result<()> {
    match end.task.how {
        How::Read => {}
        // One half may be on its way; what the other end says comes out in turn.
        How::Send if end.sent >= 2 * half => {
            let done = end.complete(WorkQueue::Receive)?;
            end.post_receive(done.context, end.task.bytes.max(8))?;
        }
        How::Send => {}
        _ => {
            let (taken, line) = (end.sent.saturating_sub(half), end.line() as usize);
            end.wait_until(|| end.local.load(line).is_ok_and(|count| count >= taken))?;
        }
    }
    (0..half).try_for_each(|_| end.send())
}

/// Receives that are posted all at once and filled one by one: what one costs, and how many are pushed at a time.
fn pushes(sampling: &Sampling, end: &End) -> Result<Vec<Found>> {
    let before = end.nic.counts();
    let taken = sampling.take(|| -> Result<()> {
        for slot in 0..WINDOW {
            end.post_receive(slot, 8)?;
        }
        end.post(Descriptor::of(vec![end.memory.segment(0, 8)], 0))?;
        (0..WINDOW).try_for_each(|_| end.complete(WorkQueue::Receive).map(drop))
    })?;
    let counts = end.nic.counts().since(&before);
    let at_a_time = counts.of(Counter::DescriptorsPushed) as f64 / counts.of(Counter::Pushes).max(1) as f64;
    let mut found = Found::time(taken.scaled(1.0 / WINDOW as f64));
    let count = Taken { per_sample: 1, samples: vec![at_a_time; 8] };
    found.push(Found { suffix: "-at-a-time", parameters: BTreeMap::new(), unit: "count", amount: 0.0, taken: count });
    Ok(found)
}

fn connections(end: &End, sampling: &Sampling) -> Result<Vec<Found>> {
    let taken = sampling.take(|| -> Result<()> {
        connect(end)?;
        end.vi.disconnect();
        while end.vi.done(WorkQueue::Receive).is_some() {}
        end.post_introduction()
    })?;
    connect(end)?;
    end.post(Descriptor::of(vec![end.memory.segment(0, 8)], 0))?;
    end.vi.disconnect();
    Ok(Found::time(taken))
}

/// Asks until the server waits; a peer is waited for anyway.
fn connect(end: &End) -> Result<()> {
    if end.task.by_peers {
        let asked = end.vi.connect_peer(&end.task.address("c")?, &end.task.address("")?, Some(PATIENCE))?;
        return Ok(asked.wait().map(drop)?);
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = end.vi.connect_request(&end.task.address("c")?, &end.task.address("")?, Some(PATIENCE));
        match asked {
            Err(Error::NoMatch(_)) if Instant::now() < deadline => std::thread::sleep(Duration::from_micros(50)),
            other => return Ok(other.map(drop)?),
        }
    }
}

/// What stands in each word of a message.
fn content(word: u64) -> u64 {
    word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5555
}
