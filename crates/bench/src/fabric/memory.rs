//! What queue pairs and peers cost of this process's memory: of the heap, and of what is mapped and was touched, such as
//! channels to peers and an adapter's queues.
//!
//! The kernel's own part, such as socket buffers and an adapter's tables, is not in it, nor are pages of this process alone that
//! are not the allocator's: longer memory that a device allocates for its user.

use super::Found;
use super::costs::Side;
use super::opening::Opening;
use super::sampling::Taken;
use anyhow::{Context as _, Result, bail};
use fabric::{ConnectOptions, Context, Operation, Payload, QueuePairAttributes, SendRequest, WorkCompletion};
use std::collections::BTreeMap;

/// Queue pairs over whose memory is averaged.
const QUEUE_PAIRS: u32 = 1024;
/// Peers.
const PEERS: u32 = 16;

/// A queue pair that was made, and a peer that was connected to and sent one message.
///
/// # Errors
/// If the device refuses something, or the system does not tell.
pub fn measure(opening: &Opening) -> Result<Vec<Found>> {
    let found = |of: &str, bytes: f64| Found {
        suffix: "",
        parameters: BTreeMap::from([("of".to_owned(), of.to_owned())]),
        unit: "B",
        amount: 0.0,
        taken: Taken { per_sample: 1, samples: vec![bytes] },
    };
    Ok(vec![found("queue-pair", queue_pair(opening)?), found("peer", peer(opening)?)])
}

fn queue_pair(opening: &Opening) -> Result<f64> {
    let mut context = opening.several(1)?.pop().context("the device was opened")?;
    let domain = context.allocate_protection_domain()?;
    let completions = context.create_completion_queue(256)?;
    let make = |context: &mut Box<dyn Context>, count: u32| -> Result<()> {
        for _ in 0..count {
            context.create_queue_pair(&QueuePairAttributes::new(domain, completions))?;
        }
        Ok(())
    };
    // What the first needs stays.
    make(&mut context, 16)?;
    let before = held_bytes()?;
    make(&mut context, QUEUE_PAIRS)?;
    Ok((held_bytes()? - before) / f64::from(QUEUE_PAIRS))
}

/// What one end's calls add while it meets its peers; the other ends are in this process, too, and what their calls add is
/// left out.
fn peer(opening: &Opening) -> Result<f64> {
    let mut contexts = opening.several(PEERS + 1)?.into_iter();
    let mut own = contexts.next().context("the device was opened")?;
    let mut others = contexts.map(Side::new).collect::<Result<Vec<_>>>()?;
    let domain = own.allocate_protection_domain()?;
    let completions = own.create_completion_queue(256)?;
    let make = |_| own.create_queue_pair(&QueuePairAttributes::new(domain, completions));
    let pairs = (0..PEERS).map(make).collect::<Result<Vec<_>, _>>()?;
    let mut added = 0.0;
    for (qp, other) in pairs.into_iter().zip(&mut others) {
        other.connect(own.endpoint(qp)?)?;
        let list = [other.allocate(64)?.part(0, 64)];
        other.post_receive(0, &list)?;
        let remote = other.context.endpoint(other.qp)?;
        let before = held_bytes()?;
        fabric::connect(own.as_mut(), qp, Some(remote), &ConnectOptions::default())?;
        own.post_send(qp, &[SendRequest::new(0, Operation::Send, Payload::Inline(&[7; 8]))])?;
        added += held_bytes()? - before;
        let mut missing = 1;
        while missing > 0 {
            other.poll()?;
            let before = held_bytes()?;
            let mut done = [WorkCompletion::default()];
            missing -= own.poll(completions, &mut done)?;
            added += held_bytes()? - before;
        }
    }
    Ok(added / f64::from(PEERS))
}

/// Bytes of the heap that are in use, and of shared and mapped pages that are in memory. The pages are counted one by one:
/// what `/proc/self/status` says of them is late by some for each processor.
fn held_bytes() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")
        .context("the system does not tell of this process's memory")?;
    let kib = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let pages = kib("Rss:").zip(kib("Anonymous:")).context("the system does not tell of mapped memory")?;
    Ok((pages.0 - pages.1) * 1024.0 + heap_bytes()?)
}

#[allow(unsafe_code)]
fn heap_bytes() -> Result<f64> {
    // Looked up, so that older C libraries, and others, need not have it.
    // SAFETY: the name is a string with its end, and every library that is loaded may be searched.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
    if found.is_null() {
        bail!("the C library does not count its heap (glibc does from 2.33 on)");
    }
    // SAFETY: that is what glibc, which alone has this name, declares it to be.
    let count = unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> libc::mallinfo2>(found) };
    let heap = count();
    Ok((heap.uordblks + heap.hblkhd) as f64)
}

#[cfg(test)]
mod tests {
    use super::super::opening::Ends;
    use super::*;

    #[test]
    fn queue_pairs_and_peers_cost_something_and_not_too_much() {
        // A connection has no buffer of its own.
        for (device, peer) in [("shm", 4096.0..65536.0), ("tcp", 4096.0..16384.0), ("sim", 100.0..65536.0)] {
            let opening = Opening { device: device.to_owned(), ends: Ends::Threads, mtu_bytes: None };
            let bytes =
                || -> Vec<f64> { measure(&opening).unwrap().iter().map(|found| found.taken.samples[0]).collect() };
            let is_right = |found: &Vec<f64>| (100.0..8192.0).contains(&found[0]) && peer.contains(&found[1]);
            // Other tests of this process may allocate meanwhile.
            let found = (0..5).map(|_| bytes()).find(is_right);
            assert!(found.is_some(), "{device}: bytes for a queue pair and a peer: {:?}", bytes());
        }
    }
}
