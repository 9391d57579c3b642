//! The link between hosts: packets over sockets.
//!
//! ```text
//!   dialler ── Hello ─────────────▶ acceptor     who I am, whom I mean, a nonce
//!           ◀────────── Challenge ──             a nonce, and proof that the job's secret is known
//!           ── Proof ─────────────▶              the same, and where the dialler listens
//!           ◀──── Resume, frames ─▶              how much each has received; from there on, frames
//! ```
//! A process listens at its addresses, which travel in its endpoints; whoever has something to send dials. Each frame
//! has a sequence number and is kept until it is acknowledged, so a lost connection is made anew and goes on where the
//! receiver stands. Of two processes the one with the smaller identity chooses which connection counts, so dialling at
//! the same time ends with one.
//!
//! **Invariants**
//! - Nothing but a greeting of fixed size is read from somebody who has not proved the secret.
//! - A payload is read from its socket straight to where it belongs, and written gathered from where it lies.
//! - Every frame is finished exactly once, in order, however often the connection breaks.
//!
//! Deliberately absent: encryption, and proof of single frames: who can change packets on their way can change
//! frames. Several connections to one peer at the same time.

mod address;
mod connection;
mod frame;
mod greeting;
mod interfaces;
mod link;
mod meeting;
mod peer;
mod socket;

use std::net::SocketAddr;
use std::time::Duration;

use base::log::Log;

pub use self::greeting::JobSecret;
pub use self::interfaces::{Interface, listening_addresses};
pub use self::link::TcpLink;

/// How a [`TcpLink`] is made.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// What the processes of the job know, and nobody else.
    pub secret: JobSecret,
    /// Where to listen: addresses of this host that peers can reach, port 0 for any. At most 16.
    pub listen: Vec<SocketAddr>,
    /// Send a CRC32C behind each payload. Payload is then copied before it is sent.
    pub check_payloads: bool,
    /// How long a peer may be out of reach until it is lost.
    pub patience: Duration,
    /// Where strangers are told of, once.
    pub log: Log,
}

impl TcpOptions {
    /// Listening at `listen`, unchecked payloads, a patience of 10 s.
    pub fn new(secret: JobSecret, listen: Vec<SocketAddr>, log: Log) -> Self {
        Self { secret, listen, check_payloads: false, patience: Duration::from_secs(10), log }
    }
}
