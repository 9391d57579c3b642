//! What operations cost that move no data to another process. Paper: miba §2.1.

use super::Found;
use super::end::{self, ring};
use super::private::Private;
use super::sampling::{Sampling, Taken, nanoseconds};
use anyhow::{Result, bail};
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, MemoryRegion, Operation, Payload, ProtectionDomain, QueuePair,
    QueuePairAttributes, ReceiveRequest, SendRequest, WorkCompletion,
};
use std::time::Instant;

/// Requests posted between two looks at the completion queue.
const BATCH: u64 = 16;

/// Runs one of the tests.
///
/// # Errors
/// If the device refuses something, or there is no such test.
pub fn measure(test: &str, mut context: Box<dyn Context>, bytes: u64, sampling: &Sampling) -> Result<Vec<Found>> {
    let context = context.as_mut();
    let domain = context.allocate_protection_domain()?;
    let taken = match test {
        "register" | "deregister" => registration(context, domain, bytes, test == "register", sampling)?,
        "post-send" | "poll" => posting(context, domain, bytes, test == "post-send", sampling)?,
        "post-receive" => receives(context, domain, bytes, sampling)?,
        "poll-empty" => {
            let queue = context.create_completion_queue(64)?;
            let mut done = [WorkCompletion::default()];
            sampling.take(|| context.poll(queue, &mut done).map(drop))?
        }
        "connect" | "disconnect" => connections(context, domain, test == "connect", sampling)?,
        _ => bail!("there is no test {test:?}"),
    };
    Ok(Found::time(taken))
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

/// A queue pair that is its own peer.
fn own_peer(context: &mut dyn Context, domain: ProtectionDomain) -> Result<(QueuePair, CompletionQueue)> {
    let completions = context.create_completion_queue(256)?;
    let qp = context.create_queue_pair(&QueuePairAttributes::new(domain, completions))?;
    connect_to_itself(context, qp)?;
    Ok((qp, completions))
}

fn connect_to_itself(context: &mut dyn Context, qp: QueuePair) -> Result<()> {
    let remote = context.endpoint(qp)?;
    Ok(fabric::connect(context, qp, Some(remote), &ConnectOptions::default())?)
}

fn posting(
    context: &mut dyn Context,
    domain: ProtectionDomain,
    bytes: u64,
    count_posting: bool,
    sampling: &Sampling,
) -> Result<Taken> {
    let (qp, completions) = own_peer(context, domain)?;
    let length = u32::try_from(bytes)?.max(8);
    let (region, _memory) = context.allocate(domain, 2 * length as usize, Access::REMOTE_ALL)?;
    let list = [region.part(0, length)];
    let write = Operation::RdmaWrite(region.remote(u64::from(length)));
    part(sampling, BATCH, || {
        let start = Instant::now();
        for id in 0..BATCH {
            if context.post_send(qp, &[SendRequest::new(id, write, Payload::Memory(&list))])? != 1 {
                bail!("the send queue was full");
            }
        }
        let posting = nanoseconds(start);
        let start = Instant::now();
        end::wait(context, completions, BATCH)?;
        Ok(if count_posting { posting } else { nanoseconds(start) })
    })
}

/// Receives are taken again by sends, beside the clock.
fn receives(context: &mut dyn Context, domain: ProtectionDomain, bytes: u64, sampling: &Sampling) -> Result<Taken> {
    let (qp, completions) = own_peer(context, domain)?;
    let length = u32::try_from(bytes)?.max(8);
    let (region, _memory): (MemoryRegion, _) = context.allocate(domain, 2 * length as usize, Access::REMOTE_ALL)?;
    let (source, target) = ([region.part(0, length)], [region.part(u64::from(length), length)]);
    part(sampling, BATCH, || {
        let start = Instant::now();
        for id in 0..BATCH {
            if context.post_receive(qp, &[ReceiveRequest { id, list: &target }])? != 1 {
                bail!("the receive queue was full");
            }
        }
        let posting = nanoseconds(start);
        ring(BATCH, |id| {
            Ok(context.post_send(qp, &[SendRequest::new(id, Operation::Send, Payload::Memory(&source))])?)
        })?;
        end::wait(context, completions, 2 * BATCH)?;
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
