//! The second context of a pair in another process, or on another machine.
//!
//! ```text
//!   cases ── RemoteContext ──▶ Remote ◀══ bytes: calls, answers ══▶ serve ──▶ a context
//!     └───── RemoteBytes ────────┘                                    └─────▶ its memory
//! ```
//! [`Remote`] sends each call of [`fabric::Context`] over a stream of bytes and waits for the answer; [`serve`] makes it
//! on a context of its own process. So a device that works inside its calls works there when the case polls it, as it
//! would here. Memory of a case is registered there and looked at by calls, too.
//!
//! ```no_run
//! # fn open() -> Result<Box<dyn fabric::Context>, String> { Err("not here".into()) }
//! # fn main() -> std::io::Result<()> {
//! // In one process:
//! let (stream, _) = std::net::TcpListener::bind("0.0.0.0:7471")?.accept()?;
//! fabric_conformance::remote::serve(stream, |_| open())?;
//! // In the other:
//! let stream = std::net::TcpStream::connect("10.77.0.1:7471")?;
//! let there = fabric_conformance::remote::Remote::new(stream).open("");
//! # Ok(())
//! # }
//! ```

mod call;
mod context;
pub mod process;
mod serve;
mod values;
mod wire;

pub(crate) use context::RemoteBytes;
pub use context::{Remote, RemoteContext};
pub(crate) use serve::is_readable;
pub use serve::serve;
