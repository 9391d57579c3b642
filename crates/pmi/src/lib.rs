//! Process-manager wires: how a rank finds its launcher, and how our launcher answers a rank.
//!
//! Floor: root. Uses no other crate of the workspace; `boot` is the client, `launcher` the server.
//!
//! The wire is PMI-1: lines of `cmd=name key=value …` over a socket that the launcher left open
//! (`PMI_FD`) or that the rank connects to (`PMI_PORT`). MPICH's Hydra, Slurm's `pmi2` plugin, Flux
//! and our own `mpiexec` all serve it.
//!
//! **Invariants**
//!
//! - **A launcher's variables without a launcher behind them are an error**, never a world of one:
//!   [`Client::from_env`] answers `None` only where no variable of any launcher it knows is set.
//! - **The server does no I/O**: bytes of a rank go in, [`Event`]s come out; whoever owns the sockets
//!   carries them. The same holds for [`Message`], [`LineBuffer`] and [`ProcessMapping`].
//! - **Every received byte is hostile until parsed**: lines, fields, keys, values and the whole key
//!   space have limits; an answer that does not fit its question is an error that quotes it.
//! - **No silent hang**: every question has a deadline except the barrier, which ends when the
//!   launcher answers or goes away.
//!
//! Deliberately absent: PMI-2 and PMIx (recognised and refused with advice), spawning (answered with
//! "not supported"), any global state, unsafe code.
//!
//! # Example
//! ```
//! use std::os::unix::net::UnixStream;
//! use pmi::{Client, Event, Job, Server, Timeouts};
//!
//! // A launcher with one rank, played by a thread.
//! let (mine, launcher) = UnixStream::pair().unwrap();
//! std::thread::spawn(move || {
//!     use std::io::{Read, Write};
//!     let mut server = Server::new(Job::on_one_node("demo", &[0]));
//!     let (mut socket, mut bytes, mut events) = (launcher, [0; 4096], Vec::new());
//!     while let Ok(count @ 1..) = socket.read(&mut bytes) {
//!         server.receive(0, &bytes[..count], &mut events).unwrap();
//!         for event in events.drain(..) {
//!             if let Event::Reply { line, .. } = event {
//!                 socket.write_all(line.as_bytes()).unwrap();
//!             }
//!         }
//!     }
//! });
//! let mut client = Client::over(mine.into(), 0, 1, Timeouts::default()).unwrap();
//! client.put("address-0", "here").unwrap();
//! client.barrier().unwrap();
//! assert_eq!(client.get("address-0").unwrap(), "here");
//! client.finalize().unwrap();
//! ```
#![forbid(unsafe_code)]

mod client;
mod environment;
mod error;
mod lines;
mod mapping;
mod message;
mod server;
mod wire;

pub use client::{Client, Limits, World};
pub use environment::{Launcher, adopt_inherited};
pub use error::PmiError;
pub use lines::{LINE_BYTES_MAX, LineBuffer};
pub use mapping::ProcessMapping;
pub use message::{FIELD_COUNT_MAX, Message};
pub use server::{Event, Job, Phase, Server, ServerError};
pub use wire::Timeouts;
