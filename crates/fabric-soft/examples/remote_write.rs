//! RDMA without hardware: one process writes into the memory of another, which sleeps until it has.
//!
//! `cargo run -p fabric-soft --example remote_write`
//!
//! The program starts itself a second time. What each must know of the other (a secret of the job, the endpoint of a queue
//! pair, the address and key of memory) travels through pipes here; any channel of a program's own will do.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use base::log::{Level, Log};
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, NotifyOn, Operation, Payload, QueuePair,
    QueuePairAttributes, RemoteMemory, Rkey, SendRequest, SharedMemory, WcStatus, WorkCompletion,
};
use fabric_soft::tcp::{self, JobSecret, TcpOptions};
use rustix::event::{PollFd, PollFlags, poll};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The argument by which the second process knows itself.
const TARGET: &str = "target";
const ANSWER: u64 = 42;

/// An adapter with one queue pair, and memory that peers may write.
struct End {
    adapter: Box<dyn Context>,
    completions: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
    memory: SharedMemory,
}

impl End {
    fn open(secret: [u8; 32]) -> Result<Self> {
        let log = Log::new(Level::Warn, None);
        let mut adapter = tcp::open(TcpOptions::new(JobSecret::new(secret), vec!["127.0.0.1:0".parse()?], log))?;
        let domain = adapter.allocate_protection_domain()?;
        let completions = adapter.create_completion_queue(16)?;
        let qp = adapter.create_queue_pair(&QueuePairAttributes::new(domain, completions))?;
        let (region, memory) = adapter.allocate(domain, 64, Access::REMOTE_WRITE)?;
        Ok(Self { adapter, completions, qp, region, memory })
    }

    /// What the other process must know, on one line.
    fn card(&self) -> Result<String> {
        Ok(format!("{} {} {}", self.adapter.endpoint(self.qp)?, self.region.address, self.region.rkey.0))
    }

    /// Connects to the process with this card, and tells where its memory is.
    fn connect(&mut self, card: &str) -> Result<RemoteMemory> {
        let words: Vec<&str> = card.split_whitespace().collect();
        let [endpoint, address, rkey] = words[..] else { return Err(format!("no card: {card:?}").into()) };
        let endpoint: Endpoint = endpoint.parse()?;
        fabric::connect(self.adapter.as_mut(), self.qp, Some(endpoint), &ConnectOptions::default())?;
        Ok(RemoteMemory { address: address.parse()?, rkey: Rkey(rkey.parse()?) })
    }

    /// Sleeps until `reached`, which is asked with each completion, and whenever something may have come.
    fn wait(&mut self, mut reached: impl FnMut(&SharedMemory, Option<&WorkCompletion>) -> bool) -> Result<()> {
        let mut done = [WorkCompletion::default()];
        loop {
            // What comes from here on makes the descriptor readable, so nothing is missed between the poll and the sleep.
            self.adapter.arm(self.completions, NotifyOn::Any)?;
            let count = self.adapter.poll(self.completions, &mut done)?;
            if reached(&self.memory, done[..count].first()) {
                return Ok(());
            }
            if count == 0 {
                let descriptor = self.adapter.descriptor(self.completions)?;
                poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None)?;
                self.adapter.acknowledge(self.completions)?;
            }
        }
    }
}

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some(TARGET) { target() } else { initiator() }
}

/// The process that writes.
fn initiator() -> Result<()> {
    let mut secret = [0; 32];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
    let mut end = End::open(secret)?;
    let mut child: Child =
        Command::new(std::env::current_exe()?).arg(TARGET).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut to_child = child.stdin.take().ok_or("it has no standard input")?;
    let mut from_child = BufReader::new(child.stdout.take().ok_or("it has no standard output")?).lines();
    to_child.write_all(&secret)?;
    writeln!(to_child, "{}", end.card()?)?;
    to_child.flush()?;
    let there = end.connect(&from_child.next().ok_or("it has ended")??)?;

    let value = ANSWER.to_ne_bytes();
    end.adapter.post_send(end.qp, &[SendRequest::new(1, Operation::RdmaWrite(there), Payload::Inline(&value))])?;
    let mut status = None;
    end.wait(|_, done| {
        status = done.map(|completion| completion.status);
        status.is_some()
    })?;
    println!("the write is complete: {:?}", status.unwrap_or(WcStatus::GeneralError));
    println!("{}", from_child.next().ok_or("it has ended")??);
    child.wait()?.success().then_some(()).ok_or_else(|| "the other process failed".into())
}

/// The process whose memory is written.
fn target() -> Result<()> {
    let mut input = std::io::stdin().lock();
    let (mut secret, mut card) = ([0; 32], String::new());
    std::io::Read::read_exact(&mut input, &mut secret)?;
    let mut end = End::open(secret)?;
    println!("{}", end.card()?);
    input.read_line(&mut card)?;
    end.connect(&card)?;
    let found = |memory: &SharedMemory| memory.word(0).load(Ordering::Acquire);
    end.wait(|memory, _| found(memory) != 0)?;
    println!("the other process found {} in its memory", found(&end.memory));
    Ok(())
}
