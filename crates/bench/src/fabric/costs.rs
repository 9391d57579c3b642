//! What operations cost that move no data to another process. Paper: miba §2.1.

use super::Found;
use super::end::{self, ring};
use super::memory;
use super::opening::Opening;
use super::private::Private;
use super::sampling::{Sampling, Taken, nanoseconds};
use anyhow::{Context as _, Result, bail};
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, Endpoint, MemoryRegion, Operation, Payload, ProtectionDomain,
    QueuePair, QueuePairAttributes, ReceiveRequest, ScatterGather, SendRequest, SharedMemory, WorkCompletion,
};
use std::collections::BTreeMap;
use std::time::Instant;

/// Requests posted between two looks at the completion queue.
const BATCH: u64 = 16;

/// Polls of the other end between two of the measured one's.
const POLLS_THERE: u32 = 200;

/// Runs one of the tests.
///
/// # Errors
/// If the device refuses something, or there is no such test.
pub fn measure(
    test: &str,
    opening: &Opening,
    bytes: u64,
    parameters: &BTreeMap<String, String>,
    sampling: &Sampling,
) -> Result<Vec<Found>> {
    let taken = match test {
        "memory" => return memory::measure(opening),
        "post-send" | "poll" => {
            let [mut here, mut there] = two(opening.several(2)?)?;
            let operation = parameters.get("operation").map_or("send", String::as_str);
            posting(&mut here, &mut there, operation, bytes, test == "post-send", sampling)?
        }
        "post-receive" => {
            let [mut here, mut there] = two(opening.several(2)?)?;
            receives(&mut here, &mut there, bytes, sampling)?
        }
        _ => alone(test, opening.several(1)?.pop().context("the device was opened")?, bytes, sampling)?,
    };
    match test {
        "post-send" | "post-receive" | "poll" | "poll-empty" => Ok(Found::short_time(taken)),
        _ => Ok(Found::time(taken)),
    }
}

/// What needs no other end.
fn alone(test: &str, mut context: Box<dyn Context>, bytes: u64, sampling: &Sampling) -> Result<Taken> {
    let context = context.as_mut();
    let domain = context.allocate_protection_domain()?;
    match test {
        "register" | "deregister" => registration(context, domain, bytes, test == "register", sampling),
        "poll-empty" => {
            let queue = context.create_completion_queue(64)?;
            let mut done = [WorkCompletion::default()];
            Ok(sampling.take(|| context.poll(queue, &mut done).map(drop))?)
        }
        "connect" | "disconnect" => connections(context, domain, test == "connect", sampling),
        _ => bail!("there is no test {test:?}"),
    }
}

/// Samples of one part of a pair of operations; the other part is done beside the clock. `pair` returns the
/// nanoseconds of the part that counts, for so many operations.
fn part(sampling: &Sampling, per_sample: u64, mut pair: impl FnMut() -> Result<f64>) -> Result<Taken> {
    let start = Instant::now();
    for _ in 0..4 {
        pair()?;
    }
    let (count, _) = sampling.plan(nanoseconds(start) / 4.0);
    let samples: Result<Vec<f64>> = (0..count).map(|_| Ok(pair()? / per_sample as f64)).collect();
    Ok(Taken { per_sample, samples: samples? })
}

fn registration(
    context: &mut dyn Context,
    domain: ProtectionDomain,
    bytes: u64,
    first: bool,
    sampling: &Sampling,
) -> Result<Taken> {
    let memory = Private::new(usize::try_from(bytes)?);
    part(sampling, BATCH, || {
        let mut regions = Vec::with_capacity(BATCH as usize);
        let start = Instant::now();
        for _ in 0..BATCH {
            regions.push(context.register(domain, memory.as_target(), Access::REMOTE_ALL)?);
        }
        let registering = nanoseconds(start);
        let start = Instant::now();
        for region in regions {
            context.deregister(region)?;
        }
        Ok(if first { registering } else { nanoseconds(start) })
    })
}

fn connect_to_itself(context: &mut dyn Context, qp: QueuePair) -> Result<()> {
    let remote = context.endpoint(qp)?;
    Ok(fabric::connect(context, qp, Some(remote), &ConnectOptions::default())?)
}

/// What posting, and polling that finds something, take of this processor. The other end is in this process, too, and is
/// polled beside the clock: what must reach it has reached it when this end's completions are polled for.
fn posting(
    here: &mut Side,
    there: &mut Side,
    operation: &str,
    bytes: u64,
    count_posting: bool,
    sampling: &Sampling,
) -> Result<Taken> {
    // An atomic has no other length.
    let length = if operation == "fetch-add" { 8 } else { u32::try_from(bytes)?.max(8) };
    let (source, target) = (here.allocate(length)?, there.allocate(length)?);
    let (list, there_list) = ([source.part(0, length)], [target.part(0, length)]);
    let operation = match operation {
        "send" => Operation::Send,
        "write" => Operation::RdmaWrite(target.remote(0)),
        "read" => Operation::RdmaRead(target.remote(0)),
        "fetch-add" => Operation::FetchAdd { remote: target.remote(0), add: 1 },
        other => bail!("there is no operation {other:?}"),
    };
    let takes_receive = operation.takes_receive();
    part(sampling, BATCH, || {
        if takes_receive {
            (0..BATCH).try_for_each(|id| there.post_receive(id, &there_list))?;
        }
        let start = Instant::now();
        for id in 0..BATCH {
            if here.context.post_send(here.qp, &[SendRequest::new(id, operation, Payload::Memory(&list))])? != 1 {
                bail!("the send queue was full");
            }
        }
        let posting = nanoseconds(start);
        let arrives = if takes_receive { BATCH } else { 0 };
        let polling = here.complete(there, (BATCH, arrives))?;
        Ok(if count_posting { posting } else { polling })
    })
}

/// One of two ends in this process that are connected.
pub struct Side {
    /// The device.
    pub context: Box<dyn Context>,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    /// Its end of the connection.
    pub qp: QueuePair,
    /// What regions lie in.
    memory: Vec<SharedMemory>,
}

impl Side {
    /// An end that is not connected yet.
    ///
    /// # Errors
    /// If the device refuses something.
    pub fn new(mut context: Box<dyn Context>) -> Result<Self> {
        let domain = context.allocate_protection_domain()?;
        let completions = context.create_completion_queue(256)?;
        let qp = context.create_queue_pair(&QueuePairAttributes::new(domain, completions))?;
        Ok(Self { context, domain, completions, qp, memory: Vec::new() })
    }

    /// Connects it.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn connect(&mut self, remote: Endpoint) -> Result<()> {
        Ok(fabric::connect(self.context.as_mut(), self.qp, Some(remote), &ConnectOptions::default())?)
    }

    /// Memory that the other end reaches.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn allocate(&mut self, len_bytes: u32) -> Result<MemoryRegion> {
        let (region, memory) = self.context.allocate(self.domain, len_bytes as usize, Access::REMOTE_ALL)?;
        self.memory.push(memory);
        Ok(region)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// If the device refuses, or the queue is full.
    pub fn post_receive(&mut self, id: u64, list: &[ScatterGather]) -> Result<()> {
        if self.context.post_receive(self.qp, &[ReceiveRequest { id, list }])? != 1 {
            bail!("the receive queue was full");
        }
        Ok(())
    }

    /// Takes completions; returns how many.
    ///
    /// # Errors
    /// If one is not a success.
    pub fn poll(&mut self) -> Result<u64> {
        let mut done = [WorkCompletion::default(); BATCH as usize];
        let found = self.context.poll(self.completions, &mut done)?;
        end::successes(&done[..found])?;
        Ok(found as u64)
    }

    /// Polls until so many requests are complete here, and so many receives there; returns the nanoseconds of those polls
    /// here that found something.
    fn complete(&mut self, there: &mut Self, (mut here, mut arrives): (u64, u64)) -> Result<f64> {
        let (mut spent, deadline) = (0.0, Instant::now() + end::PATIENCE);
        let mut turns = 0u32;
        while here > 0 || arrives > 0 {
            // The other end first, until it has nothing left to do.
            for _ in 0..POLLS_THERE {
                arrives -= there.poll()?.min(arrives);
            }
            let start = Instant::now();
            let found = self.poll()?;
            if found > 0 {
                spent += nanoseconds(start);
            }
            here -= found.min(here);
            turns += 1;
            if turns.is_multiple_of(POLLS_THERE) {
                std::thread::yield_now();
                if Instant::now() > deadline {
                    bail!("what must come did not come in {} s", end::PATIENCE.as_secs());
                }
            }
        }
        Ok(spent)
    }
}

/// Two ends of a device that are connected to each other.
fn two(contexts: Vec<Box<dyn Context>>) -> Result<[Side; 2]> {
    let sides = contexts.into_iter().map(Side::new).collect::<Result<Vec<_>>>()?;
    let Ok([mut here, mut there]) = <[Side; 2]>::try_from(sides) else { bail!("the device was opened twice") };
    here.connect(there.context.endpoint(there.qp)?)?;
    there.connect(here.context.endpoint(here.qp)?)?;
    Ok([here, there])
}

/// What posting a receive takes; the receives are taken again by sends, beside the clock.
fn receives(here: &mut Side, there: &mut Side, bytes: u64, sampling: &Sampling) -> Result<Taken> {
    let length = u32::try_from(bytes)?.max(8);
    let (target, source) = ([here.allocate(length)?.part(0, length)], [there.allocate(length)?.part(0, length)]);
    part(sampling, BATCH, || {
        let start = Instant::now();
        (0..BATCH).try_for_each(|id| here.post_receive(id, &target))?;
        let posting = nanoseconds(start);
        ring(BATCH, |id| {
            let request = SendRequest::new(id, Operation::Send, Payload::Memory(&source));
            Ok(there.context.post_send(there.qp, &[request])?)
        })?;
        there.complete(here, (BATCH, BATCH))?;
        Ok(posting)
    })
}

fn connections(context: &mut dyn Context, domain: ProtectionDomain, first: bool, sampling: &Sampling) -> Result<Taken> {
    let completions = context.create_completion_queue(256)?;
    part(sampling, 1, || {
        let start = Instant::now();
        let qp = context.create_queue_pair(&QueuePairAttributes::new(domain, completions))?;
        connect_to_itself(context, qp)?;
        let connecting = nanoseconds(start);
        let start = Instant::now();
        context.destroy_queue_pair(qp)?;
        Ok(if first { connecting } else { nanoseconds(start) })
    })
}
