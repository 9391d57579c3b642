//! What both sides of a connection say over TCP, before they share memory. Paper: via2sisci §1.4.1.
//!
//! ```text
//!   who asks                                   who is asked
//!   hello: who, whom, VI, node, segment ─────▶ somebody waits for it?
//!          ◀───────────────────────── heard, at once; then the program decides
//!          ◀───────────────────────── answer: accepted with VI, node, segment; or why not
//!   mapped, receives are posted ─────────────▶ the same here
//!   connected ◀───────────────────────── ready: connected
//! ```
//! Each frame is its length (4 bytes) and so many bytes; numbers are little-endian. **A stranger may say anything**: a frame
//! is short, is read up to a deadline, and is parsed or refused.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::address::NetAddress;
use crate::link::RemoteAttributes;
use crate::segments::NodeReference;
use crate::status::Reliability;

const MAGIC: u64 = u64::from_le_bytes(*b"VIPLferr");
const VERSION: u16 = 2;
const FRAME_MAX: usize = 512;

/// A VI as the other side needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// What it is like.
    pub attributes: RemoteAttributes,
    /// The number of its protection tag.
    pub ptag: u64,
    /// Its node.
    pub node: NodeReference,
    /// The segment of the VI.
    pub segment: u32,
    /// What its host is called, so that others are not looked for in this one.
    pub host: u64,
}

/// How a connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// By a client of a server.
    ClientServer,
    /// By one of two peers.
    Peers,
}

/// The first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// How it is asked for.
    pub model: Model,
    /// Who asks.
    pub from: NetAddress,
    /// Who is asked.
    pub to: NetAddress,
    /// The VI that asks.
    pub end: End,
}

/// Why nothing comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The program does not want it.
    Rejected = 1,
    /// Nobody waits for it here.
    NoMatch = 2,
    /// The reliability levels differ.
    Reliability = 3,
    /// The transfer sizes differ.
    Mtu = 4,
    /// The segments cannot be mapped.
    NotReachable = 5,
}

/// The second frame.
pub type Answer = Result<End, Refusal>;

/// A frame could not be sent or understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// The time was up.
    TimedOut,
    /// The other side is gone, or says what makes no sense.
    Broken,
}

/// Sends a frame.
pub fn tell(mut socket: &TcpStream, frame: &[u8]) -> Result<(), LineError> {
    let mut bytes = (frame.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(frame);
    socket.write_all(&bytes).map_err(|_| LineError::Broken)
}

/// Reads a frame; `None` waits for ever.
pub fn hear(mut socket: &TcpStream, deadline: Option<Instant>) -> Result<Vec<u8>, LineError> {
    let mut read = |bytes: &mut [u8]| -> Result<(), LineError> {
        let mut done = 0;
        while done < bytes.len() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(LineError::TimedOut);
            }
            socket.set_read_timeout(left).map_err(|_| LineError::Broken)?;
            match socket.read(&mut bytes[done..]) {
                Ok(0) => return Err(LineError::Broken),
                Ok(count) => done += count,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Err(LineError::Broken),
            }
        }
        Ok(())
    };
    let mut len = [0; 4];
    read(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > FRAME_MAX {
        return Err(LineError::Broken);
    }
    let mut frame = vec![0; len];
    read(&mut frame)?;
    Ok(frame)
}

impl Hello {
    /// As a frame.
    pub fn frame(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend(MAGIC.to_le_bytes());
        to.extend(VERSION.to_le_bytes());
        to.push(u8::from(self.model == Model::Peers));
        self.from.put(&mut to);
        self.to.put(&mut to);
        self.end.put(&mut to);
        to
    }

    /// Of a frame; `None` if it is none.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut rest = frame;
        if u64::from_le_bytes(take(&mut rest)?) != MAGIC || u16::from_le_bytes(take(&mut rest)?) != VERSION {
            return None;
        }
        let model = match take::<1>(&mut rest)? {
            [0] => Model::ClientServer,
            [1] => Model::Peers,
            _ => return None,
        };
        let hello = Self {
            model,
            from: NetAddress::parse(&mut rest)?,
            to: NetAddress::parse(&mut rest)?,
            end: End::parse(&mut rest)?,
        };
        rest.is_empty().then_some(hello)
    }
}

/// An answer as a frame.
pub fn answer_frame(answer: &Answer) -> Vec<u8> {
    match answer {
        Ok(end) => {
            let mut to = vec![0];
            end.put(&mut to);
            to
        }
        Err(refusal) => vec![*refusal as u8],
    }
}

/// An answer of a frame; `None` if it is none.
pub fn parse_answer(frame: &[u8]) -> Option<Answer> {
    let mut rest = frame;
    let answer = match take::<1>(&mut rest)? {
        [0] => Ok(End::parse(&mut rest)?),
        [1] => Err(Refusal::Rejected),
        [2] => Err(Refusal::NoMatch),
        [3] => Err(Refusal::Reliability),
        [4] => Err(Refusal::Mtu),
        [5] => Err(Refusal::NotReachable),
        _ => return None,
    };
    rest.is_empty().then_some(answer)
}

/// What comes before an answer that may take long: whoever listens here speaks this language, and somebody decides.
pub const HEARD: &[u8] = b"heard";
/// The third frame: who asked has mapped everything, and its receives are posted.
pub const MAPPED: &[u8] = b"mapped";
/// The last frame: and so has who was asked.
pub const READY: &[u8] = b"ready";

impl End {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend((self.attributes.reliability as u16).to_le_bytes());
        to.extend(self.attributes.transfer_max_bytes.to_le_bytes());
        to.push(u8::from(self.attributes.rdma_write) | u8::from(self.attributes.rdma_read) << 1);
        to.extend(self.ptag.to_le_bytes());
        to.extend(self.node.process.to_le_bytes());
        to.extend(self.node.descriptor.to_le_bytes());
        to.extend(self.node.number.to_le_bytes());
        to.extend(self.segment.to_le_bytes());
        to.extend(self.host.to_le_bytes());
    }

    fn parse(rest: &mut &[u8]) -> Option<Self> {
        let reliability = Reliability::of_bits(u16::from_le_bytes(take(rest)?))?;
        let transfer_max_bytes = u64::from_le_bytes(take(rest)?);
        let [rights] = take(rest)?;
        let (rdma_write, rdma_read) = (rights & 1 != 0, rights & 2 != 0);
        Some(Self {
            attributes: RemoteAttributes { reliability, transfer_max_bytes, rdma_write, rdma_read },
            ptag: u64::from_le_bytes(take(rest)?),
            node: NodeReference {
                process: u32::from_le_bytes(take(rest)?),
                descriptor: u32::from_le_bytes(take(rest)?),
                number: u64::from_le_bytes(take(rest)?),
            },
            segment: u32::from_le_bytes(take(rest)?),
            host: u64::from_le_bytes(take(rest)?),
        })
    }
}

pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

    fn end() -> End {
        End {
            attributes: RemoteAttributes {
                reliability: Reliability::Reception,
                transfer_max_bytes: 1 << 40,
                rdma_write: true,
                rdma_read: false,
            },
            ptag: 7,
            node: NodeReference { process: 1, descriptor: 2, number: 3 << 60 },
            segment: 9,
            host: 11,
        }
    }

    fn hello(discriminator: &[u8]) -> Hello {
        Hello {
            model: Model::Peers,
            from: NetAddress::new(Ipv6Addr::LOCALHOST.into(), discriminator).unwrap(),
            to: NetAddress::new(Ipv4Addr::LOCALHOST.into(), &[7; 32]).unwrap(),
            end: end(),
        }
    }

    #[test]
    fn answers_come_out_as_they_went_in() {
        for answer in [Ok(end()), Err(Refusal::Rejected), Err(Refusal::NoMatch), Err(Refusal::NotReachable)] {
            assert_eq!(parse_answer(&answer_frame(&answer)), Some(answer));
        }
        assert_eq!(parse_answer(&[9]), None);
        assert_eq!(parse_answer(&[]), None);
    }

    #[test]
    fn a_stranger_who_says_nothing_or_too_much_costs_no_more_than_the_deadline() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let soon = || Some(Instant::now() + Duration::from_millis(20));
        assert_eq!(hear(&here, soon()), Err(LineError::TimedOut));
        tell(&stranger, b"hello").unwrap();
        assert_eq!(hear(&here, None), Ok(b"hello".to_vec()));
        (&stranger).write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert_eq!(hear(&here, soon()), Err(LineError::Broken));
        drop(stranger);
        assert_eq!(hear(&here, None), Err(LineError::Broken));
    }

    proptest! {
        #[test]
        fn hellos_come_out_as_they_went_in_and_nothing_else_does(
            discriminator in prop::collection::vec(any::<u8>(), 0..33), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let frame = hello(&discriminator).frame();
            prop_assert!(frame.len() <= FRAME_MAX);
            prop_assert_eq!(Hello::parse(&frame), Some(hello(&discriminator)));
            let mut damaged = frame.clone();
            let at = at.index(frame.len());
            damaged[at] = byte;
            let _ = Hello::parse(&damaged);
            prop_assert_eq!(Hello::parse(&frame[..at]), None);
            let longer = [&frame[..], &[byte]].concat();
            prop_assert_eq!(Hello::parse(&longer), None);
        }

        #[test]
        fn whatever_a_stranger_says_is_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..FRAME_MAX)) {
            prop_assert_eq!(Hello::parse(&bytes), None);
            let _ = parse_answer(&bytes);
        }
    }
}
