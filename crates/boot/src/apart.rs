//! A device opened by several processes that reach each other, so that it can be measured between processes without a
//! job: one invites, the others come.
//!
//! ```text
//!   invite ── invitation, over a pipe ──▶ accept
//!   Invitation::open    (each opens the device; endpoints are exchanged by whoever asked)
//! ```

use base::Config;
use base::config::Medium;
use base::log::Log;
use fabric::Context;
use fabric_soft::shm::{Segment, SegmentServer, Shape, join};
use fabric_soft::tcp::{self, JobSecret};

use crate::pair::{ARENA_BYTES, adapter, in_segment, local_sockets};
use crate::secret::{draw, from_text, to_text};
use crate::segment::unique_name;

/// The devices that processes can open together.
pub const APART: [&str; 3] = ["shm", "tcp", "verbs"];

const SECRET_BYTES: usize = 32;

/// What the inviting process holds until it opens the device itself.
pub struct Invitation {
    text: String,
    opening: Opening,
}

enum Opening {
    Shm { server: SegmentServer, others: u32 },
    Tcp { secret: [u8; SECRET_BYTES] },
    Verbs,
}

/// Prepares `device` for this process and `others` more.
///
/// # Errors
/// Why there is no such device here, or only within one process.
pub fn invite(device: &str, others: u32, config: &Config) -> Result<Invitation, String> {
    let (text, opening) = match device {
        "shm" => {
            let shape = shape(others + 1, config.sizes(Medium::Memory).channel_bytes);
            let segment = Segment::create(shape).map_err(|error| error.to_string())?;
            let bound = SegmentServer::bind(segment, &unique_name()).map_err(|error| error.to_string())?;
            let text = format!("shm {} {} {}", bound.1, shape.process_count, shape.channel_bytes);
            (text, Opening::Shm { server: bound.0, others })
        }
        "tcp" => {
            let secret = draw().map_err(|error| error.to_string())?;
            (format!("tcp {}", to_text(&secret)), Opening::Tcp { secret })
        }
        "verbs" => ("verbs".to_owned(), Opening::Verbs),
        _ => return Err(format!("{device} is no device of several processes; there are {}", APART.join(", "))),
    };
    Ok(Invitation { text, opening })
}

impl Invitation {
    /// What the others are told, by a way that nobody else reads: it holds the secret of the connections.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Opens the device in this process, which is number 0; on shared memory, once all others have come.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn open(self, config: &Config) -> Result<Box<dyn Context>, String> {
        match self.opening {
            Opening::Shm { server, others } => {
                let segment = server.serve(others).map_err(|error| error.to_string())?;
                in_segment(segment, 0, config).map_err(|error| error.to_string())
            }
            Opening::Tcp { secret } => sockets(secret, config),
            Opening::Verbs => adapter(config),
        }
    }
}

/// Opens the device in a process that was invited; `place` numbers these from 1.
///
/// # Errors
/// Why it cannot be opened, or that the text is no invitation.
pub fn accept(invitation: &str, place: u32, config: &Config) -> Result<Box<dyn Context>, String> {
    let damaged = || "no invitation to a device".to_owned();
    let words: Vec<&str> = invitation.split(' ').collect();
    match words[..] {
        ["shm", name, count, channel] => {
            let count: u32 = count.parse().map_err(|_| damaged())?;
            let channel = channel.parse().map_err(|_| damaged())?;
            if !(1..count).contains(&place) {
                return Err(format!("place {place} among {count}"));
            }
            let segment = join(name, shape(count, channel)).map_err(|error| error.to_string())?;
            in_segment(segment, place, config).map_err(|error| error.to_string())
        }
        ["tcp", text] => {
            let secret = from_text(text).and_then(|bytes| bytes.try_into().ok());
            sockets(secret.ok_or_else(damaged)?, config)
        }
        ["verbs"] => adapter(config),
        _ => Err(damaged()),
    }
}

fn shape(process_count: u32, channel_bytes: usize) -> Shape {
    Shape { process_count, channel_bytes, arena_bytes: ARENA_BYTES, ..Shape::default() }
}

fn sockets(secret: [u8; SECRET_BYTES], config: &Config) -> Result<Box<dyn Context>, String> {
    let options = local_sockets(config, JobSecret::new(secret), Log::new(config.log, None));
    options.and_then(tcp::open).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::CrossMemory;

    #[test]
    fn whoever_is_invited_comes() {
        let config = Config::default();
        for device in ["shm", "tcp"] {
            let invitation = invite(device, 2, &config).unwrap();
            let text = invitation.text().to_owned();
            let guests: Vec<_> = (1..3)
                .map(|place| {
                    let text = text.clone();
                    std::thread::spawn(move || accept(&text, place, &Config::default()).map(drop))
                })
                .collect();
            let context = invitation.open(&config).unwrap();
            assert_eq!(context.capabilities().kind.name(), device);
            guests.into_iter().for_each(|guest| guest.join().unwrap().unwrap());
        }
    }

    #[test]
    fn memory_of_others_is_left_alone_where_the_settings_say_so() {
        let config = Config { cross_memory: CrossMemory::Off, ..Config::default() };
        let context = invite("shm", 0, &config).unwrap().open(&config).unwrap();
        assert!(context.capabilities().single_copy.as_ref().is_err_and(|why| why.contains("FERROVIA_CROSS_MEMORY")));
    }

    #[test]
    fn what_is_no_invitation_is_refused() {
        let config = Config::default();
        assert!(invite("loopback", 1, &config).is_err_and(|why| why.contains("shm")));
        for text in ["", "shm", "shm x 2", "shm x two 65536", "shm x 2 65536", "tcp 12", "tcp zz", "verbs x"] {
            assert!(accept(text, 1, &config).is_err(), "{text}");
        }
    }
}
