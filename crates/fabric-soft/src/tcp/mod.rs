//! The link between hosts: packets over sockets.
//!
//! ```text
//!   dialler ── Hello ─────────────▶ acceptor     who I am, whom I mean, a nonce
//!           ◀────────── Challenge ──             a nonce, and proof that the job's secret is known
//!           ── Proof ─────────────▶              the same, and where the dialler listens
//!           ◀──── Resume, frames ─▶              how much each has received; from there on, frames
//! ```
//! A process listens at its addresses, which travel in its endpoints; whoever has something to send dials them, the near
//! ones first. Each frame is kept until it is acknowledged, so a lost connection is made anew and goes on where the
//! receiver stands. Of two processes the one with the smaller identity chooses which connection counts, so dialling at
//! the same time ends with one.
//!
//! Between two processes there are one or several *lanes*, each with a connection of its own. Packets travel on the first
//! in order; a long payload is cut into parts, one for each lane, and its packet is finished when all have come.
//!
//! A peer is given up when it says that it ends, when its host cannot be reached, when nobody listens at its addresses any
//! more, or when it owes an answer for too long though its host is there: its process may be stopped.
//!
//! **Invariants**
//! - Nothing but a greeting of fixed size is read from somebody who has not proved the secret.
//! - A payload is read from its socket straight to where it belongs, and written gathered from where it lies.
//! - Every frame is finished exactly once, in order, however often the connection breaks.
//!
//! Deliberately absent: encryption, and proof of single frames: who can change packets on their way can change
//! frames.

mod address;
mod connection;
mod frame;
mod greeting;
#[cfg(test)]
mod hostile;
mod inbox;
mod interfaces;
mod link;
mod meeting;
mod outbox;
mod peer;
mod socket;
mod strangers;

use std::net::SocketAddr;
use std::time::Duration;

use base::log::Log;
use fabric::{Context, FabricError};

pub use self::greeting::JobSecret;
pub use self::interfaces::{Interface, listening_addresses};
pub use self::link::TcpLink;
use crate::{SoftContext, ThreadedContext};

/// When the work of an adapter over sockets is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// Inside the calls of its owner.
    #[default]
    Caller,
    /// By a thread of its own, too.
    Thread,
}

/// Opens the device as `options` say.
///
/// # Errors
/// As [`TcpLink::new`] and [`ThreadedContext::new`].
pub fn open(options: TcpOptions) -> Result<Box<dyn Context>, FabricError> {
    let progress = options.progress;
    let adapter = SoftContext::new(TcpLink::new(options)?);
    Ok(match progress {
        Progress::Caller => Box::new(adapter),
        Progress::Thread => Box::new(ThreadedContext::new(adapter)?),
    })
}

/// How a [`TcpLink`] is made.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// What the processes of the job know, and nobody else.
    pub secret: JobSecret,
    /// Where to listen: addresses of this host that peers can reach, port 0 for any. At most 16.
    pub listen: Vec<SocketAddr>,
    /// Send a CRC32C behind each payload. Payload is then copied before it is sent.
    pub check_payloads: bool,
    /// Connections to each peer, 1 to 16: long payloads travel over all of them in parts. Each side chooses for what it
    /// sends.
    pub connections: usize,
    /// How long a peer may be out of reach until it is lost: its host does not answer.
    pub patience: Duration,
    /// How long a peer whose host answers may owe an answer until it is lost. `None`: half a minute for one that answers
    /// without its process polling, an hour for one that may be computing. Where one is given, a peer that owes nothing
    /// is asked, so that it does.
    pub silence: Option<Duration>,
    /// When the work is done: peers are told, and expect answers accordingly.
    pub progress: Progress,
    /// Where strangers are told of, once.
    pub log: Log,
}

impl TcpOptions {
    /// Listening at `listen`, unchecked payloads, one connection to a peer, a patience of 10 s.
    pub fn new(secret: JobSecret, listen: Vec<SocketAddr>, log: Log) -> Self {
        let patience = Duration::from_secs(10);
        Self {
            secret,
            listen,
            check_payloads: false,
            connections: 1,
            patience,
            silence: None,
            progress: Progress::Caller,
            log,
        }
    }
}
