//! Transfers between two ends, each driven by a thread of its own. Paper: miba §2.2.

use super::Found;
use super::end::{self, End, Movement, Shape};
use super::sampling::{Sampling, Taken, nanoseconds};
use anyhow::{Context as _, Result, anyhow, bail};
use fabric::Context;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Operations from which the duration of one is estimated.
const TRIAL: u64 = 16;
/// Empty polls of an end that only helps, before the processor is offered to others.
const POLLS: u32 = 100;

/// Runs one of the tests with these parameters.
///
/// # Errors
/// If the device refuses something, a payload is wrong, or there is no such test or parameter.
pub fn measure(
    test: &str,
    contexts: Vec<Box<dyn Context>>,
    bytes: u64,
    parameters: &BTreeMap<String, String>,
    sampling: &Sampling,
) -> Result<Vec<Found>> {
    let shape = shape(bytes, parameters)?;
    let compute = Duration::from_micros(number(parameters, "compute", 0)?);
    let half = (shape.window / 2).max(1);
    let amount = (half * shape.bytes) as f64;
    match test {
        "latency" if shape.movement == Movement::Read => {
            let step = |end: &mut End| end.send().and_then(|()| end.drain(0));
            Ok(Found::time(conduct(contexts, &shape, sampling, step, None)?))
        }
        "latency" => {
            let step = |end: &mut End| end.send().and_then(|()| end.arrive());
            Ok(Found::time(conduct(contexts, &shape, sampling, step, Some(&answer))?.scaled(0.5)))
        }
        "bidirectional-latency" => {
            let step = |end: &mut End| end.send().and_then(|()| end.arrive());
            Ok(Found::time(conduct(contexts, &shape, sampling, step, Some(&step))?))
        }
        "overhead" => overhead(contexts, &shape, sampling),
        "bandwidth" | "computation" => {
            let step = |end: &mut End| stream(end, half, compute);
            let take = |end: &mut End| (0..half).try_for_each(|_| end.arrive());
            let takes = shape.movement.takes_receive();
            let peer: Option<Step> = if takes { Some(&take) } else { None };
            Ok(Found::rate(conduct(contexts, &shape, sampling, step, peer)?, amount))
        }
        "bidirectional-bandwidth" => {
            if !shape.movement.takes_receive() {
                bail!("both ends must learn of what arrives: send, write-immediate or write-then-send");
            }
            let step = |end: &mut End| {
                stream(end, half, compute)?;
                (0..half).try_for_each(|_| end.arrive())
            };
            Ok(Found::rate(conduct(contexts, &shape, sampling, step, Some(&step))?, 2.0 * amount))
        }
        _ => bail!("there is no test {test:?}"),
    }
}

fn shape(bytes: u64, parameters: &BTreeMap<String, String>) -> Result<Shape> {
    let movement = Movement::named(parameters.get("operation").map_or("send", String::as_str))?;
    let at_least_one =
        |name: &str, otherwise| -> Result<u64> { Ok(number(parameters, name, otherwise)?.clamp(1, 4096)) };
    let reuse = parameters.contains_key("reuse").then(|| number(parameters, "reuse", 100)).transpose()?;
    let shape = Shape {
        movement,
        bytes: bytes.max(8).next_multiple_of(8),
        buffers: at_least_one("buffers", 1)?,
        reuse: reuse.map(|rate| rate.min(100)),
        connections: at_least_one("connections", 1)?,
        entries: u32::try_from(at_least_one("entries", 4)?)?,
        segments: at_least_one("segments", 1)?,
        window: at_least_one("window", 1)?,
        blocking: number(parameters, "blocking", 0)? != 0,
    };
    if shape.segments > shape.bytes {
        bail!("{} bytes cannot be {} segments", shape.bytes, shape.segments);
    }
    Ok(shape)
}

fn number(parameters: &BTreeMap<String, String>, name: &str, otherwise: u64) -> Result<u64> {
    match parameters.get(name) {
        Some(text) => text.parse().with_context(|| format!("{name}={text} is no number")),
        None => Ok(otherwise),
    }
}

/// What one end does again and again.
type Step<'a> = &'a (dyn Fn(&mut End) -> Result<()> + Sync);

fn answer(end: &mut End) -> Result<()> {
    end.arrive()?;
    end.send()
}

/// Posts half a window and waits until no more than half a window is under way. Paper: miba §2.2.2.
fn stream(end: &mut End, half: u64, compute: Duration) -> Result<()> {
    for _ in 0..half {
        end.send()?;
    }
    let until = Instant::now() + compute;
    while !compute.is_zero() && Instant::now() < until {
        std::hint::spin_loop();
    }
    end.drain(half)
}

/// Drives one end by `step` in this thread and the other by `peer`, or by polling alone, in another.
fn conduct(
    contexts: Vec<Box<dyn Context>>,
    shape: &Shape,
    sampling: &Sampling,
    mut step: impl FnMut(&mut End) -> Result<()>,
    peer: Option<Step>,
) -> Result<Taken> {
    let [mut mine, mut theirs] = end::pair(contexts, shape)?;
    let (orders, ordered) = channel::<u64>();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || -> Result<End> {
            serve(&mut theirs, peer, &ordered)?;
            Ok(theirs)
        });
        let measured = (|| {
            let tell = |count| orders.send(count).map_err(|_| anyhow!("the other end has failed"));
            tell(TRIAL)?;
            let start = Instant::now();
            for _ in 0..TRIAL {
                step(&mut mine)?;
            }
            let (count, per_sample) = sampling.plan(nanoseconds(start) / TRIAL as f64);
            tell(count * per_sample)?;
            let mut taken = Taken { per_sample, samples: Vec::new() };
            for _ in 0..count {
                let start = Instant::now();
                for _ in 0..per_sample {
                    step(&mut mine)?;
                }
                taken.samples.push(nanoseconds(start) / per_sample as f64);
            }
            mine.drain(0)?;
            Ok(taken)
        })();
        drop(orders);
        let other = other.join().map_err(|_| anyhow!("the thread of the other end panicked"))?;
        // If both failed, the other end's reason is the earlier one more often than not.
        let (theirs, taken) = match (other, measured) {
            (Ok(theirs), Ok(taken)) => (theirs, taken),
            (Err(error), _) => return Err(error.context("the other end")),
            (_, Err(error)) => return Err(error),
        };
        check(&mine, &theirs)?;
        Ok(taken)
    })
}

/// Does as many steps as ordered, and helps the other end by polling in between, until there will be no more orders.
fn serve(end: &mut End, step: Option<Step>, orders: &Receiver<u64>) -> Result<()> {
    let mut empty = 0_u32;
    loop {
        match orders.try_recv() {
            Ok(count) => {
                if let Some(step) = step {
                    (0..count).try_for_each(|_| step(end))?;
                }
            }
            Err(TryRecvError::Empty) => {
                empty = if end.progress()? > 0 { 0 } else { empty + 1 };
                if empty > 0 && empty.is_multiple_of(POLLS) {
                    std::thread::yield_now();
                }
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

/// What each end sent lies in the other's buffers; what was read, in its own.
fn check(mine: &End, theirs: &End) -> Result<()> {
    if mine.reads() {
        return mine.check(mine.counts().0);
    }
    theirs.check(mine.counts().0)?;
    mine.check(theirs.counts().0)
}

/// The processor's part of the latency test: posting, and the polls that find something.
fn overhead(contexts: Vec<Box<dyn Context>>, shape: &Shape, sampling: &Sampling) -> Result<Vec<Found>> {
    let (mut posting, mut polling) = (Vec::new(), Vec::new());
    let step = |end: &mut End| {
        end.spent();
        end.send()?;
        end.arrive()?;
        let (post, poll) = end.spent();
        posting.push(post);
        polling.push(poll);
        Ok(())
    };
    conduct(contexts, shape, sampling, step, Some(&answer))?;
    let found = |part: &str, samples: Vec<f64>| Found {
        parameters: BTreeMap::from([("part".to_owned(), part.to_owned())]),
        unit: "us",
        amount: 0.0,
        taken: Taken { per_sample: 1, samples },
    };
    Ok(vec![found("posting", posting), found("polling", polling)])
}
