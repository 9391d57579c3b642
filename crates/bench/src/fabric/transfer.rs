//! Transfers between a measured end and its helpers. Paper: miba §2.2.

use super::Found;
use super::end::{End, Movement, Shape, from_the_other};
use super::helper::{Helper, Order, Role, stream};
use super::opening::{Clock, Meeting, Opening, Wanted};
use super::places::Place;
use super::sampling::{Sampling, Taken};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;

/// Operations from which the duration of one is estimated.
const TRIAL: u64 = 16;
/// Halves of a window that are timed together: what one half waits for, the next finds done.
const HALVES: u64 = 8;
/// Most ends of a hot spot beside the one in the middle.
const SLAVES_MAX: u64 = 64;

/// Runs one of the tests with these parameters.
///
/// # Errors
/// If the device refuses something, a payload is wrong, or there is no such test or parameter.
pub fn measure(
    test: &str,
    opening: &Opening,
    bytes: u64,
    parameters: &BTreeMap<String, String>,
    sampling: &Sampling,
) -> Result<Vec<Found>> {
    let shape = shape(bytes, parameters)?;
    let mut opening = opening.clone();
    if parameters.contains_key("mtu") {
        opening.mtu_bytes = Some(number(parameters, "mtu", 4096)?);
    }
    let compute = Duration::from_micros(number(parameters, "compute", 0)?);
    let half = (shape.window / 2).max(1);
    let stream_sampling = Sampling { operations_min: HALVES, ..*sampling };
    let sampling = if test.contains("bandwidth") || test.contains("computation") { &stream_sampling } else { sampling };
    let amount = (half * shape.bytes) as f64;
    let with = |role| Pair { opening: &opening, shape: &shape, role, sampling };
    match test {
        "latency" if shape.movement == Movement::Read => {
            let step = |end: &mut End, _: &Clock| end.send().and_then(|()| end.drain(0));
            Ok(Found::time(with(Role::Help).conduct(step)?))
        }
        "latency" => Ok(Found::time(with(Role::Answer).conduct(exchange)?.scaled(0.5))),
        "bidirectional-latency" => Ok(Found::time(with(Role::Exchange).conduct(exchange)?)),
        "overhead" => overhead(&with(Role::Answer)),
        "bandwidth" | "computation" => {
            let role = if shape.movement.takes_receive() { Role::Take(half) } else { Role::Help };
            let step = |end: &mut End, clock: &Clock| stream(end, half, || clock.compute(compute));
            let taken = with(role).conduct(step)?;
            Ok(with_share(test, compute, taken, amount))
        }
        "bidirectional-bandwidth" | "bidirectional-computation" => {
            if !shape.movement.takes_receive() {
                bail!("both ends must learn of what arrives: send, write-immediate or write-then-send");
            }
            let role = Role::Stream { half, compute_us: u64::try_from(compute.as_micros())? };
            let step = |end: &mut End, clock: &Clock| {
                stream(end, half, || clock.compute(compute))?;
                (0..half).try_for_each(|_| end.arrive())
            };
            let taken = with(role).conduct(step)?;
            Ok(with_share(test, compute, taken, 2.0 * amount))
        }
        "hot-spot-send" | "hot-spot-send-receive" => {
            let slaves = number(parameters, "slaves", 1)?.clamp(1, SLAVES_MAX);
            hot_spot(&opening, &shape, slaves, test == "hot-spot-send-receive", sampling)
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

fn exchange(end: &mut End, _: &Clock) -> Result<()> {
    end.send()?;
    end.arrive()
}

/// The bandwidth and, where there is computing in between, the share of the time that it gets.
fn with_share(test: &str, compute: Duration, taken: Taken, amount: f64) -> Vec<Found> {
    let share = |step_ns: &f64| (100.0 * compute.as_nanos() as f64 / step_ns.max(1.0)).min(100.0);
    let shares = Taken { per_sample: taken.per_sample, samples: taken.samples.iter().map(share).collect() };
    let mut found = Found::rate(taken, amount);
    if test.ends_with("computation") {
        found.push(Found { suffix: "-available", parameters: BTreeMap::new(), unit: "%", amount: 0.0, taken: shares });
    }
    found
}

/// Two ends, of which one is measured.
struct Pair<'a> {
    opening: &'a Opening,
    shape: &'a Shape,
    role: Role,
    sampling: &'a Sampling,
}

impl Pair<'_> {
    /// Takes samples of `step`, while the helper does its own; then checks what lies in the buffers of both.
    fn conduct(&self, step: impl FnMut(&mut End, &Clock) -> Result<()>) -> Result<Taken> {
        let shape = self.shape;
        let helper = Wanted { shape: shape.clone(), sources: from_the_other(1, shape), role: self.role };
        let meeting = self.opening.meet(shape, from_the_other(0, shape), vec![helper])?;
        let reads = shape.movement == Movement::Read;
        sample(meeting, self.sampling, step, |mine, sent| mine.check(if reads { mine.counts().0 } else { sent[0] }))
    }
}

/// Drives the measured end by `step` in this thread. `check`: of the measured end, with what each helper sent.
fn sample(
    meeting: Meeting,
    sampling: &Sampling,
    step: impl FnMut(&mut End, &Clock) -> Result<()>,
    check: impl FnOnce(&End, &[u64]) -> Result<()>,
) -> Result<Taken> {
    let Meeting { mut mine, mut helpers, clock } = meeting;
    let apart = helpers.iter().all(|helper| matches!(helper, Helper::Process(_)));
    let _place = apart.then(|| Place::take(0, helpers.len() + 1));
    let measured = samples(&mut mine, &mut helpers, &clock, sampling, step);
    let checks = measured.is_ok();
    let sent_here = mine.counts().0;
    for helper in &mut helpers {
        // One that has failed says why when it is asked for its end.
        let _ = helper.tell(Order::Finish(if checks { sent_here / mine.peers() } else { 0 }));
    }
    mine.leave_turns();
    // What is under way to the helpers may need this end's polling.
    let ended: Result<Vec<u64>> =
        helpers.into_iter().map(|helper| helper.end_while(|| mine.progress().map(drop))).collect();
    // If both failed, the one's failure is the other's reason, and which is which nobody here can tell.
    let taken = match (measured, &ended) {
        (Err(here), Err(there)) => bail!("{here:#}; {there:#}"),
        (measured, _) => measured?,
    };
    check(&mine, &ended?)?;
    Ok(taken)
}

fn samples(
    mine: &mut End,
    helpers: &mut [Helper],
    clock: &Clock,
    sampling: &Sampling,
    mut step: impl FnMut(&mut End, &Clock) -> Result<()>,
) -> Result<Taken> {
    let mut tell = |count| helpers.iter_mut().try_for_each(|helper| helper.tell(Order::Steps(count)));
    tell(2 * TRIAL)?;
    // The helpers sleep while they wait for orders, and everything is cold: the first ones tell nothing.
    for _ in 0..TRIAL {
        step(mine, clock)?;
    }
    let start = clock.now_ns();
    for _ in 0..TRIAL {
        step(mine, clock)?;
    }
    let each_ns = (clock.now_ns() - start) / TRIAL as f64;
    let (count, per_sample) = match clock {
        Clock::Real(_) => sampling.plan(each_ns),
        // Virtual time has no noise to average over, and its clock costs nothing to read.
        Clock::Simulated(_) => (sampling.plan(each_ns).0.min(16), 4),
    };
    tell(count * per_sample)?;
    let mut taken = Taken { per_sample, samples: Vec::new() };
    for _ in 0..count {
        let start = clock.now_ns();
        for _ in 0..per_sample {
            step(mine, clock)?;
        }
        taken.samples.push((clock.now_ns() - start) / per_sample as f64);
    }
    mine.drain(0)?;
    Ok(taken)
}

/// The processor's part of the latency test: posting, and the polls that find something.
fn overhead(pair: &Pair<'_>) -> Result<Vec<Found>> {
    let (mut posting, mut polling) = (Vec::new(), Vec::new());
    pair.conduct(|end, _| {
        end.spent();
        end.send()?;
        end.arrive()?;
        let (post, poll) = end.spent();
        posting.push(post);
        polling.push(poll);
        Ok(())
    })?;
    let found = |part: &str, samples: Vec<f64>| Found {
        suffix: "",
        parameters: BTreeMap::from([("part".to_owned(), part.to_owned())]),
        unit: "us",
        amount: 0.0,
        taken: Taken { per_sample: 1, samples },
    };
    Ok(vec![found("posting", posting), found("polling", polling)])
}

/// One end among several that talk with it alone. Paper: miba §2.2.8: it sends to each and hears from one of them
/// ("send"), or sends to each and hears from each ("send-receive").
fn hot_spot(
    opening: &Opening,
    shape: &Shape,
    slaves: u64,
    all_answer: bool,
    sampling: &Sampling,
) -> Result<Vec<Found>> {
    if shape.movement != Movement::Send {
        bail!("hot spots are measured with sends");
    }
    let middle = Shape { connections: slaves, buffers: slaves, window: slaves, ..shape.clone() };
    // Buffer k of the middle is for slave k + 1, and each slave has one buffer.
    let sources = (0..slaves).map(|k| (k + 1, 0)).collect();
    let slave = Shape { connections: 1, buffers: 1, ..shape.clone() };
    let wanted = (0..slaves).map(|k| Wanted {
        shape: slave.clone(),
        sources: vec![(0, k)],
        role: if all_answer || k + 1 == slaves { Role::Answer } else { Role::Take(1) },
    });
    let meeting = opening.meet(&middle, sources, wanted.collect())?;
    let answers = if all_answer { slaves } else { 1 };
    let step = |end: &mut End, _: &Clock| {
        (0..slaves).try_for_each(|_| end.send())?;
        (0..answers).try_for_each(|_| end.arrive())
    };
    let check = |mine: &End, sent: &[u64]| {
        let mut answered = (0..slaves).filter(|k| sent[*k as usize] > 0);
        answered.try_for_each(|buffer| mine.check_buffer(buffer))
    };
    Ok(Found::time(sample(meeting, sampling, step, check)?))
}
