//! Bare TCP sockets as if they were a device: the floor of what the `tcp` device can do, in the same run.
//!
//! Both ends poll, as those of a device do, and are put on processors as those are; a message is its bytes and nothing
//! else.

use super::Found;
use super::places::Place;
use super::sampling::{Sampling, Taken};
use anyhow::{Context as _, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// The name under which it is asked for.
pub const NAME: &str = "socket";
/// Empty reads before the processor is offered to others.
const LOOKS: u32 = 100;
/// Bytes of a request to be answered.
const REQUEST_BYTES: usize = 8;

/// Runs one of the tests of the suite, if sockets have something like it.
///
/// # Errors
/// If they have not, or the system refuses something.
pub fn measure(
    test: &str,
    bytes: u64,
    parameters: &BTreeMap<String, String>,
    sampling: &Sampling,
) -> Result<Vec<Found>> {
    if !has(test, parameters) {
        bail!("bare sockets have nothing like it");
    }
    let bytes = usize::try_from(bytes.max(8).next_multiple_of(8))?;
    match test {
        "latency" if parameters.get("operation").is_some_and(|operation| operation == "read") => {
            Ok(Found::time(conduct((bytes, REQUEST_BYTES), sampling, there_and_back)?))
        }
        "latency" => Ok(Found::time(conduct((bytes, bytes), sampling, there_and_back)?.scaled(0.5))),
        _ => {
            let window: usize = parameters.get("window").map_or(Ok(1), |text| text.parse())?;
            let half = (window / 2).max(1);
            Ok(Found::rate(conduct((0, half * bytes), sampling, one_way)?, (half * bytes) as f64))
        }
    }
}

/// Whether sockets have something like a test of the suite with these parameters.
pub fn has(test: &str, parameters: &BTreeMap<String, String>) -> bool {
    let is_plain = parameters.iter().all(|(name, value)| match name.as_str() {
        "operation" => matches!(value.as_str(), "send" | "write" | "read"),
        "window" => true,
        _ => false,
    });
    is_plain && matches!(test, "latency" | "bandwidth")
}

/// Sends `sent` bytes and waits for as many as come back.
fn there_and_back(mine: &mut End, sent: usize) -> Result<()> {
    mine.write(sent)?;
    mine.fill()
}

fn one_way(mine: &mut End, sent: usize) -> Result<()> {
    mine.write(sent)
}

/// A socket and memory for what comes and goes.
struct End {
    socket: TcpStream,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl End {
    fn new(socket: TcpStream, outgoing: usize, incoming: usize) -> Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, outgoing: vec![1; outgoing], incoming: vec![0; incoming] })
    }

    fn write(&mut self, len: usize) -> Result<()> {
        let (mut done, mut looks) = (0, 0);
        while done < len {
            match self.socket.write(&self.outgoing[done..len]) {
                Ok(count) => done += count,
                Err(why) => pause(why.kind(), &mut looks).ok_or(why)?,
            }
        }
        Ok(())
    }

    /// Reads until the memory for it is full.
    fn fill(&mut self) -> Result<()> {
        let (mut done, mut looks) = (0, 0);
        while done < self.incoming.len() {
            match self.socket.read(&mut self.incoming[done..]) {
                Ok(0) => bail!("the other end has closed"),
                Ok(count) => done += count,
                Err(why) => pause(why.kind(), &mut looks).ok_or(why)?,
            }
        }
        Ok(())
    }
}

/// Goes on if there is merely nothing to do now.
fn pause(kind: ErrorKind, looks: &mut u32) -> Option<()> {
    *looks += 1;
    if looks.is_multiple_of(LOOKS) {
        std::thread::yield_now();
    }
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted).then_some(())
}

/// Repeats `step` at one end; the other answers each `sent` bytes with `answered` of its own.
fn conduct(
    (answered, sent): (usize, usize),
    sampling: &Sampling,
    mut step: impl FnMut(&mut End, usize) -> Result<()>,
) -> Result<Taken> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening")?;
    let mine = TcpStream::connect(listener.local_addr()?).context("connecting")?;
    let (theirs, _) = listener.accept().context("accepting")?;
    let (mut mine, mut theirs) = (End::new(mine, sent, answered)?, End::new(theirs, answered, sent)?);
    std::thread::scope(|scope| {
        // It ends when this end closes.
        let other = scope.spawn(move || {
            let _place = Place::take(1, 2);
            while theirs.fill().and_then(|()| theirs.write(answered)).is_ok() {}
        });
        let place = Place::take(0, 2);
        let measured = sampling.take(|| step(&mut mine, sent));
        drop(place);
        drop(mine);
        other.join().map_err(|_| anyhow!("the thread of the other end panicked"))?;
        measured
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_latency_and_bandwidth_and_nothing_else() {
        let sampling = Sampling { seconds: 0.0, samples_max: 1, operations_min: 1 };
        let with = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        for (test, parameters) in [
            ("latency", with(&[("operation", "send")])),
            ("latency", with(&[("operation", "read")])),
            ("bandwidth", with(&[("operation", "write"), ("window", "4")])),
        ] {
            let found = measure(test, 100, &parameters, &sampling).unwrap();
            assert!(found.iter().all(|found| found.taken.samples.iter().all(|sample| *sample > 0.0)), "{test}");
        }
        assert!(measure("latency", 8, &with(&[("blocking", "1")]), &sampling).is_err());
        assert!(measure("overhead", 8, &BTreeMap::new(), &sampling).is_err());
    }
}
