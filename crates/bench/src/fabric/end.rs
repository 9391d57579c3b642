//! One end of a transfer: a context with its queues, connections and buffers.

use super::card::Card;
use super::sampling::nanoseconds;
use super::turns::Turn;
use anyhow::{Context as _, Result, bail};
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, DeviceKind, MemoryRegion, NotifyOn, Operation, Payload,
    ProtectionDomain, QueuePair, QueuePairAttributes, ReceiveRequest, ScatterGather, SendRequest, SharedMemory,
    WcStatus, WorkCompletion,
};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Empty polls before the processor is offered to others.
const POLLS: u32 = 200;
/// After so long without a completion that must come, something is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Completions taken at once.
const COMPLETIONS: usize = 16;
/// Requests that are not known to be complete before completions are taken in passing.
const OUTSTANDING_MAX: u64 = 64;
/// Looks at memory between two polls, where writes arrive without this end's help.
const LOOKS: u32 = 1000;
/// The longest message.
const BYTES_MAX: u64 = 1 << 30;

/// How bytes move.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum Movement {
    /// Send and receive.
    Send,
    /// RDMA write, noticed by looking at the last bytes.
    Write,
    /// RDMA write with immediate data.
    WriteImmediate,
    /// RDMA write and a send of nothing behind it.
    WriteThenSend,
    /// RDMA read.
    Read,
}

impl Movement {
    /// By the name in suites.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "send" => Self::Send,
            "write" => Self::Write,
            "write-immediate" => Self::WriteImmediate,
            "write-then-send" => Self::WriteThenSend,
            "read" => Self::Read,
            _ => bail!("there is no operation {name:?}"),
        })
    }

    /// Whether it consumes a receive.
    pub fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::WriteImmediate | Self::WriteThenSend)
    }
}

/// What an end is like; those that lead to each other agree on the first two.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Shape {
    /// How bytes move.
    pub movement: Movement,
    /// Bytes of a message, a multiple of 8.
    pub bytes: u64,
    /// Buffers.
    pub buffers: u64,
    /// Per cent of messages that use the first buffer again; `None`: all in turn.
    pub reuse: Option<u64>,
    /// Connections used in turn.
    pub connections: u64,
    /// Longest scatter/gather list that queue pairs are made for.
    pub entries: u32,
    /// Segments of a message.
    pub segments: u64,
    /// Messages under way.
    pub window: u64,
    /// Sleep instead of polling.
    pub blocking: bool,
}

impl Shape {
    /// No two buffers in lines that a processor fetches together: one end writes to a source while the other writes to a
    /// target.
    fn stride(&self) -> u64 {
        self.bytes.next_multiple_of(128)
    }

    /// Receives kept posted: a multiple of the connections, so that each keeps its share.
    fn receives(&self) -> u64 {
        (2 * self.window).max(64).next_multiple_of(self.connections)
    }

    /// Which buffer message `i` uses. Paper: miba §2.2.7.
    pub fn buffer(&self, i: u64) -> u64 {
        let Some(rate) = self.reuse.filter(|_| self.buffers > 1) else { return i % self.buffers };
        let (before, after) = (i * rate / 100, (i + 1) * rate / 100);
        if after > before { 0 } else { 1 + (i - before) % (self.buffers - 1) }
    }
}

/// Whose message comes into a buffer: the side that sends it, and the buffer it is sent from.
pub type Source = (u64, u64);

/// The next message, put together while nobody waits for it.
struct Next {
    buffer: usize,
    connection: QueuePair,
    operation: Operation,
    /// Where the stamp stands by which a write is noticed.
    stamp: u64,
}

/// One end.
pub struct End {
    context: Box<dyn Context>,
    shape: Shape,
    side: u64,
    /// By target buffer.
    sources: Vec<Source>,
    turn: Option<Turn>,
    send_queue: CompletionQueue,
    receive_queue: CompletionQueue,
    connections: Vec<QueuePair>,
    region: MemoryRegion,
    memory: SharedMemory,
    /// By connection, what it leads to.
    remotes: Vec<MemoryRegion>,
    peers: u64,
    /// Requests posted and not known to be complete: each may be a completion that waits in the send queue.
    outstanding: u64,
    /// As many as that queue holds.
    outstanding_max: u64,
    /// Where polls put what has completed; a program has such memory, and does not clear it for each.
    done: Vec<WorkCompletion>,
    /// Receives filled and not yet taken notice of, by their numbers.
    arrived: VecDeque<u64>,
    sent: u64,
    /// Once it is connected.
    next: Option<Next>,
    taken: u64,
    /// By source buffer, what is sent of it.
    segments: Vec<Vec<ScatterGather>>,
    /// Looks at memory between two polls.
    looks: u32,
    /// Nanoseconds in posting, and in polling that found something, since last asked; counted once that was asked.
    spent: Option<(f64, f64)>,
}

impl End {
    /// An end in `context`, not connected yet; it is number `side`, and `sources` tells by target buffer what will come.
    ///
    /// # Errors
    /// If the device refuses something.
    pub fn new(mut context: Box<dyn Context>, shape: &Shape, side: u64, sources: Vec<Source>) -> Result<Self> {
        if !(8..=BYTES_MAX).contains(&shape.bytes) {
            bail!("a message of {} bytes; 8 to {BYTES_MAX} are possible", shape.bytes);
        }
        let domain = context.allocate_protection_domain()?;
        let depth = u32::try_from(4 * shape.receives() + 4 * shape.window)?;
        let (send_queue, receive_queue) =
            (context.create_completion_queue(depth)?, context.create_completion_queue(depth)?);
        let length = usize::try_from(2 * shape.buffers * shape.stride())?;
        let (region, memory) = context.allocate(domain, length, Access::REMOTE_ALL)?;
        let connections = (0..shape.connections)
            .map(|_| Ok(context.create_queue_pair(&attributes(domain, send_queue, receive_queue, shape)?)?))
            .collect::<Result<Vec<_>>>()?;
        // Polling takes longer than a look at memory, and is of no use to such a write.
        let needs_no_help = matches!(context.capabilities().kind, DeviceKind::Shm | DeviceKind::Verbs);
        let mut end = Self {
            looks: if needs_no_help && !shape.blocking { LOOKS } else { 1 },
            segments: Vec::new(),
            context,
            shape: shape.clone(),
            side,
            sources,
            turn: None,
            send_queue,
            receive_queue,
            connections,
            region,
            memory,
            remotes: Vec::new(),
            peers: 1,
            outstanding: 0,
            outstanding_max: depth.into(),
            done: vec![WorkCompletion::default(); COMPLETIONS],
            arrived: VecDeque::new(),
            sent: 0,
            next: None,
            taken: 0,
            spent: None,
        };
        end.fill();
        let is_source = shape.movement != Movement::Read;
        end.segments = (0..shape.buffers).map(|buffer| end.segments_at(end.place(buffer, !is_source))).collect();
        Ok(end)
    }

    /// What others need to connect to this end.
    ///
    /// # Errors
    /// If a queue pair is not there.
    pub fn card(&self) -> Result<Card> {
        let endpoints: Result<Vec<_>, _> = self.connections.iter().map(|qp| self.context.endpoint(*qp)).collect();
        Ok(Card::new(&self.region, &endpoints?))
    }

    /// Connects to ends: each connection in turn to the next of them, and to the queue pair there that was made for it.
    /// `place`: which of the other side's connections is the first for this end.
    ///
    /// # Errors
    /// If a card makes no sense, or the device refuses.
    pub fn connect(&mut self, others: &[Card], place: usize) -> Result<()> {
        self.peers = others.len().max(1) as u64;
        for (index, qp) in self.connections.iter().enumerate() {
            let (number, card) =
                (index / others.len(), others.get(index % others.len()).context("nobody to connect to")?);
            let endpoint = card.endpoint(place + number)?;
            fabric::connect(self.context.as_mut(), *qp, Some(endpoint), &ConnectOptions::default())?;
            self.remotes.push(card.region());
        }
        self.next = Some(self.prepare()?);
        self.post_receives()
    }

    /// How many ends its connections lead to.
    pub fn peers(&self) -> u64 {
        self.peers
    }

    /// Polls without waiting for its turn from now on; the others go on without it.
    pub fn leave_turns(&mut self) {
        self.turn = None;
    }

    /// From now on this end polls when it is its turn.
    pub fn take_turns(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    /// Where a buffer begins: sources first, targets behind them.
    fn place(&self, buffer: u64, target: bool) -> u64 {
        (buffer + if target { self.shape.buffers } else { 0 }) * self.shape.stride()
    }

    fn word(&self, offset: u64) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(usize::try_from(offset).expect("the memory was allocated with this length"))
    }

    fn fill(&mut self) {
        for buffer in 0..self.shape.buffers {
            for word in 0..self.shape.bytes / 8 {
                let place = self.place(buffer, false) + word * 8;
                self.word(place).store(content(self.side, buffer, word), Ordering::Relaxed);
            }
        }
    }

    /// Every buffer that a message came into holds what the buffer holds that it was sent from.
    ///
    /// # Errors
    /// If a byte is wrong.
    pub fn check(&self, messages: u64) -> Result<()> {
        let last = messages.saturating_sub(self.shape.buffers)..messages;
        last.map(|i| self.shape.buffer(i)).try_for_each(|buffer| self.check_buffer(buffer))
    }

    /// One buffer holds what the buffer holds that its message was sent from.
    ///
    /// # Errors
    /// If a byte is wrong.
    pub fn check_buffer(&self, buffer: u64) -> Result<()> {
        // The last word is the stamp by which a write is noticed.
        let words = self.shape.bytes / 8 - u64::from(self.shape.movement == Movement::Write);
        let (side, sent) = self.sources[buffer as usize];
        for word in 0..words {
            let found = self.word(self.place(buffer, true) + word * 8).load(Ordering::Relaxed);
            if found != content(side, sent, word) {
                bail!("wrong data at byte {} of buffer {buffer}", word * 8);
            }
        }
        Ok(())
    }

    fn segments_at(&self, start: u64) -> Vec<ScatterGather> {
        let each = self.shape.bytes / self.shape.segments;
        (0..self.shape.segments)
            .map(|k| {
                let length = if k + 1 == self.shape.segments { self.shape.bytes - k * each } else { each };
                self.region.part(start + k * each, u32::try_from(length).expect("messages are shorter than 4 GiB"))
            })
            .collect()
    }

    fn post_receives(&mut self) -> Result<()> {
        if self.shape.movement.takes_receive() {
            for i in 0..self.shape.receives() {
                self.post_receive(i)?;
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, i: u64) -> Result<()> {
        let target = self.place(self.shape.buffer(i), true);
        let list = [self.region.part(target, u32::try_from(self.shape.bytes)?)];
        let qp = self.connections[(i % self.shape.connections) as usize];
        if self.context.post_receive(qp, &[ReceiveRequest { id: i, list: &list }])? != 1 {
            bail!("the receive queue was full");
        }
        Ok(())
    }

    /// Posts the next message.
    ///
    /// # Errors
    /// If the device refuses it.
    pub fn send(&mut self) -> Result<()> {
        self.post(false)?;
        if self.shape.movement == Movement::WriteThenSend {
            self.post(true)?;
        }
        self.sent += 1;
        self.next = Some(self.prepare()?);
        Ok(())
    }

    /// What the next message is. A program knows that before it is time to send it.
    fn prepare(&self) -> Result<Next> {
        let i = self.sent;
        let (buffer, number) = (self.shape.buffer(i), (i % self.shape.connections) as usize);
        let remote = self.remotes.get(number).context("the end is not connected")?;
        let there = remote.remote(self.place(buffer, self.shape.movement != Movement::Read));
        let operation = match self.shape.movement {
            Movement::Send => Operation::Send,
            Movement::Write | Movement::WriteThenSend => Operation::RdmaWrite(there),
            Movement::WriteImmediate => Operation::RdmaWriteWithImmediate(there, i as u32),
            Movement::Read => Operation::RdmaRead(there),
        };
        let stamp = self.place(buffer, false) + self.shape.bytes - 8;
        Ok(Next { buffer: buffer as usize, connection: self.connections[number], operation, stamp })
    }

    /// Posts the next message, or the send of nothing behind it, until there is room.
    fn post(&mut self, behind: bool) -> Result<()> {
        // Ends that nobody waits for may lag behind, and what they have taken then completes all at once.
        if self.outstanding >= self.outstanding_max {
            self.drain(self.outstanding_max - 1)?;
        }
        let mut deadline = None;
        while !self.try_post(behind)? {
            self.progress()?;
            if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + PATIENCE) {
                bail!("the send queue stayed full");
            }
        }
        self.outstanding += 1;
        Ok(())
    }

    /// False if there is no room.
    #[inline]
    fn try_post(&mut self, behind: bool) -> Result<bool> {
        let Next { buffer, connection, operation, stamp } = self.next.as_ref().context("the end is not connected")?;
        if self.shape.movement == Movement::Write {
            self.word(*stamp).store(self.sent + 1, Ordering::Release);
        }
        let request = if behind {
            SendRequest::new(self.sent, Operation::Send, Payload::Inline(&[]))
        } else {
            SendRequest::new(self.sent, *operation, Payload::Memory(&self.segments[*buffer]))
        };
        let start = self.spent.map(|_| Instant::now());
        let accepted = self.context.post_send(*connection, &[request])?;
        if let (Some(start), Some((posting, _))) = (start, &mut self.spent) {
            *posting += nanoseconds(start);
        }
        Ok(accepted == 1)
    }

    /// Takes completions of both queues; returns how many.
    ///
    /// # Errors
    /// If one is not a success.
    pub fn progress(&mut self) -> Result<usize> {
        let found = self.poll()?;
        if found == 0 {
            self.pass_turn();
        }
        Ok(found)
    }

    fn pass_turn(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.pass();
        }
    }

    fn poll(&mut self) -> Result<usize> {
        let start = self.spent.map(|_| Instant::now());
        let sends = self.poll_one(self.send_queue)?;
        self.outstanding -= sends as u64;
        // Where nothing can complete there, looking would only delay.
        let takes = self.shape.movement.takes_receive();
        let receives = if takes { self.poll_one(self.receive_queue)? } else { 0 };
        self.arrived.extend(self.done[..receives].iter().map(|completion| completion.id));
        if let (Some(start), Some((_, polling))) = (start, &mut self.spent)
            && sends + receives > 0
        {
            *polling += nanoseconds(start);
        }
        Ok(sends + receives)
    }

    /// Takes what has completed in a queue, all of it successes; what the device tells of one that is none goes with it.
    fn poll_one(&mut self, queue: CompletionQueue) -> Result<usize> {
        let count = self.context.poll(queue, &mut self.done)?;
        successes(&self.done[..count]).map_err(|error| match self.context.next_event() {
            Some(event) => error.context(format!("the device tells of {event:?}")),
            None => error,
        })?;
        Ok(count)
    }

    /// Waits until the next message is there, and posts a receive in place of the one it used.
    ///
    /// # Errors
    /// If it does not come.
    pub fn arrive(&mut self) -> Result<()> {
        let i = self.taken;
        self.taken += 1;
        if self.shape.movement.takes_receive() {
            self.wait_until(|end| !end.arrived.is_empty())?;
            let filled = self.arrived.pop_front().context("a receive was filled")?;
            // The same connection's next one: each keeps its share.
            return self.post_receive(filled + self.shape.receives());
        }
        let stamp = self.place(self.shape.buffer(i), true) + self.shape.bytes - 8;
        if self.outstanding >= OUTSTANDING_MAX {
            self.poll()?;
        }
        let looks = self.looks;
        self.wait_until(|end| (0..looks).any(|look| end.has_come(stamp, i, look)))
    }

    /// Whether the stamp of message `i` is there; the processor pauses before all looks but the first.
    #[inline]
    fn has_come(&self, stamp: u64, i: u64, look: u32) -> bool {
        if look > 0 {
            std::hint::spin_loop();
        }
        self.word(stamp).load(Ordering::Acquire) > i
    }

    /// Waits until at most so many requests are not complete.
    ///
    /// # Errors
    /// If they do not complete.
    pub fn drain(&mut self, outstanding: u64) -> Result<()> {
        self.wait_until(|end| end.outstanding <= outstanding)
    }

    fn wait_until(&mut self, reached: impl Fn(&Self) -> bool) -> Result<()> {
        let mut deadline = None;
        let mut empty = 0;
        while !reached(self) {
            if self.poll()? > 0 {
                empty = 0;
                continue;
            }
            // A write may have come though no completion did.
            if self.turn.is_some() && reached(self) {
                break;
            }
            self.pass_turn();
            empty += 1;
            if self.shape.blocking {
                self.sleep()?;
            } else if self.turn.is_none() && empty % POLLS == 0 {
                std::thread::yield_now();
            }
            if empty % POLLS == 0 && Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + PATIENCE) {
                bail!("what must come did not come in {} s", PATIENCE.as_secs());
            }
        }
        Ok(())
    }

    /// Sleeps until a completion, or for a moment.
    fn sleep(&mut self) -> Result<()> {
        self.context.arm(self.send_queue, NotifyOn::Any)?;
        self.context.arm(self.receive_queue, NotifyOn::Any)?;
        if self.progress()? > 0 {
            return Ok(());
        }
        let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        {
            let (sends, receives) =
                (self.context.descriptor(self.send_queue)?, self.context.descriptor(self.receive_queue)?);
            let mut wanted = [PollFd::new(&sends, PollFlags::IN), PollFd::new(&receives, PollFlags::IN)];
            match poll(&mut wanted, Some(&moment)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.context.acknowledge(self.send_queue)?;
        self.context.acknowledge(self.receive_queue)?;
        Ok(())
    }

    /// Whether messages are fetched rather than sent.
    pub fn reads(&self) -> bool {
        self.shape.movement == Movement::Read
    }

    /// Messages sent and taken so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent, self.taken)
    }

    /// Nanoseconds spent in posting, and in polling that found something, since last asked.
    pub fn spent(&mut self) -> (f64, f64) {
        self.spent.replace((0.0, 0.0)).unwrap_or_default()
    }
}

/// What comes into the buffers of one of two ends: from the other's buffer of the same number.
pub fn from_the_other(side: u64, shape: &Shape) -> Vec<Source> {
    (0..shape.buffers).map(|buffer| (1 - side, buffer)).collect()
}

fn attributes(
    domain: ProtectionDomain,
    send_queue: CompletionQueue,
    receive_queue: CompletionQueue,
    shape: &Shape,
) -> Result<QueuePairAttributes> {
    let mut attributes = QueuePairAttributes::new(domain, send_queue);
    attributes.receive_completions = receive_queue;
    attributes.send_depth = u32::try_from((2 * shape.window).max(64))?;
    attributes.receive_depth = u32::try_from(shape.receives())?;
    attributes.send_entries_max = shape.entries.max(u32::try_from(shape.segments)?);
    attributes.receive_entries_max = shape.entries.max(1);
    Ok(attributes)
}

/// What stands in a word of a buffer.
fn content(side: u64, buffer: u64, word: u64) -> u64 {
    (side + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ buffer.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ word
}

/// Nothing but successes.
///
/// # Errors
/// The first that is none.
pub fn successes(done: &[WorkCompletion]) -> Result<()> {
    match done.iter().find(|completion| completion.status != WcStatus::Success) {
        Some(failed) => bail!("a request ended with {:?}", failed.status),
        None => Ok(()),
    }
}

/// Posts one after another, each of which must be accepted.
///
/// # Errors
/// If one is not.
pub fn ring(count: u64, mut post: impl FnMut(u64) -> Result<usize>) -> Result<()> {
    for id in 0..count {
        if post(id)? != 1 {
            bail!("the send queue was full");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(buffers: u64, reuse: Option<u64>) -> Shape {
        Shape {
            movement: Movement::Send,
            bytes: 8,
            buffers,
            reuse,
            connections: 1,
            entries: 4,
            segments: 1,
            window: 1,
            blocking: false,
        }
    }

    /// Two ends in this process.
    fn connected(device: &str, shape: &Shape) -> (End, End) {
        let contexts = boot::open_together(device, 2, &base::Config::default()).unwrap();
        let mut ends: Vec<End> = (0..)
            .zip(contexts)
            .map(|(side, context)| End::new(context, shape, side, from_the_other(side, shape)).unwrap())
            .collect();
        let cards: Vec<Card> = ends.iter().map(|end| end.card().unwrap()).collect();
        ends[0].connect(&cards[1..], 0).unwrap();
        ends[1].connect(&cards[..1], 0).unwrap();
        let (b, a) = (ends.pop().unwrap(), ends.pop().unwrap());
        (a, b)
    }

    /// More sends than their completion queue holds, all of which the others answer before the sender looks.
    #[test]
    fn no_more_is_under_way_than_can_complete() {
        let (mut a, mut b) = connected("shm", &Shape { connections: 8, ..shape(8, None) });
        let messages = 8 * 64;
        assert!(messages > a.outstanding_max, "each connection's queue takes 64");
        let (tell, told) = std::sync::mpsc::channel();
        let taker = std::thread::spawn(move || {
            (0..messages).try_for_each(|_| b.arrive()).unwrap();
            // Acknowledgements leave with the polls.
            (0..COMPLETIONS).try_for_each(|_| b.progress().map(drop)).unwrap();
            tell.send(()).unwrap();
            b
        });
        (0..messages).try_for_each(|_| a.send()).unwrap();
        // What was not ready comes again, and acknowledgements come, but no completion is taken.
        while told.try_recv().is_err() && !taker.is_finished() {
            a.context.poll(a.receive_queue, &mut []).unwrap();
            std::thread::yield_now();
        }
        a.drain(0).unwrap();
        taker.join().unwrap();
    }

    #[test]
    fn buffers_are_used_as_the_paper_says() {
        let order = |shape: Shape| (0..12).map(|i| shape.buffer(i)).collect::<Vec<_>>();
        assert_eq!(order(shape(4, None)), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        let quarter = order(shape(64, Some(25)));
        assert_eq!(quarter.iter().filter(|buffer| **buffer == 0).count(), 3);
        let mut others: Vec<u64> = quarter.into_iter().filter(|buffer| *buffer != 0).collect();
        others.dedup();
        assert_eq!(others.len(), 9, "all others differ");
        assert!(order(shape(64, Some(100))).iter().all(|buffer| *buffer == 0));
        assert!(order(shape(64, Some(0))).iter().all(|buffer| *buffer != 0));
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let (mut a, mut b) = connected("loopback", &shape(1, None));
        a.send().unwrap();
        while b.arrived.is_empty() {
            a.progress().unwrap();
            b.progress().unwrap();
        }
        b.arrive().unwrap();
        b.check(1).unwrap();
        let place = b.place(0, true);
        b.word(place).fetch_xor(1, Ordering::Relaxed);
        assert!(b.check(1).unwrap_err().to_string().contains("wrong data"));
    }
}
