//! Messages from one rank to another.

use mpi_core::constants::{ANY_SOURCE, ANY_TAG, TAG_UB};
use mpi_core::point_to_point::Mode;
use mpi_core::{Comm, ErrorClass};

use crate::borrowed::{incoming, outgoing};
use crate::communicator::Communicator;
use crate::element::{Element, size_bytes, zeroed};
use crate::error::Result;
use crate::scope::One;
use crate::shared::Checked;

/// From whom to receive; a rank is one, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Whoever sends first.
    Any,
    /// This rank.
    Rank(u32),
}

impl From<u32> for Source {
    fn from(rank: u32) -> Self {
        Source::Rank(rank)
    }
}

/// Which messages to receive; a number is one, too. Sends name a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// Any message.
    Any,
    /// Messages sent with this number.
    Is(u32),
}

impl Tag {
    /// The greatest number a message can be sent with.
    pub const MAX: u32 = TAG_UB as u32;
}

impl From<u32> for Tag {
    fn from(number: u32) -> Self {
        Tag::Is(number)
    }
}

/// What is known of a message that has come.
///
/// MPI: §3.2.5
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Rank of the sender.
    pub source: u32,
    /// The number it was sent with.
    pub tag: u32,
    /// Its length.
    pub len_bytes: usize,
}

impl Status {
    /// Number of whole elements in the message.
    pub fn count<T: Element>(&self) -> usize {
        self.len_bytes / size_bytes::<T>()
    }

    pub(crate) fn new(status: mpi_core::Status) -> Status {
        Status { source: status.source() as u32, tag: status.tag() as u32, len_bytes: status.len_bytes as usize }
    }
}

impl<'u> Communicator<'u> {
    /// Sends elements and returns when they may be changed again, received or not.
    ///
    /// ```
    /// use ferrovia::{Source, Tag};
    /// ferrovia::local::run(2, |universe| {
    ///     let world = universe.world();
    ///     if world.rank() == 0 {
    ///         world.send(&[1.5, 2.5], 1, 7).unwrap();
    ///     } else {
    ///         let mut numbers = [0.0; 8];
    ///         let status = world.recv(&mut numbers, Source::Any, Tag::Any).unwrap();
    ///         assert_eq!((status.source, status.tag, status.count::<f64>()), (0, 7, 2));
    ///         assert_eq!(numbers[..2], [1.5, 2.5]);
    ///     }
    /// });
    /// ```
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments, `Other` when the message cannot be delivered.
    ///
    /// MPI: §3.2.1 `MPI_Send`
    #[inline]
    pub fn send<T: Element>(&self, data: &[T], to: u32, tag: u32) -> Result<()> {
        self.shared().call("send", |world| {
            let (to, tag) = (self.peer(to)?, tag_number(tag)?);
            // SAFETY: the call returns when the message is gone.
            let buf = unsafe { outgoing(data).into_inner() };
            world.send(self.comm(), to, tag, buf)
        })
    }

    /// Sends elements and returns when the receiver has begun to receive them.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    ///
    /// MPI: §3.4 `MPI_Ssend`
    pub fn ssend<T: Element>(&self, data: &[T], to: u32, tag: u32) -> Result<()> {
        self.shared().call("ssend", |world| {
            let (to, tag) = (self.peer(to)?, tag_number(tag)?);
            // SAFETY: the call returns when the message is gone.
            let buf = unsafe { outgoing(data).into_inner() };
            world.send_in_mode(Mode::Synchronous, self.comm(), to, tag, buf)
        })
    }

    /// Receives a message of at most as many elements as `into` has room for.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments, `Truncate` for a longer message, `Other` when it cannot be delivered.
    ///
    /// MPI: §3.2.4 `MPI_Recv`
    #[inline]
    pub fn recv<T: Element>(&self, into: &mut [T], from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let (from, tag) = (from.into(), tag.into());
        self.shared().call("recv", |world| {
            let (from, tag) = (self.source(from)?, tag_pattern(tag)?);
            // SAFETY: the call returns when the message has come.
            let buf = unsafe { incoming(into).into_inner() };
            Ok(Status::new(world.recv(self.comm(), from, tag, buf)?))
        })
    }

    /// Receives a message of whatever length.
    ///
    /// # Errors
    /// As [`Communicator::recv`]; `Type` when the message is no whole number of elements (it is received nevertheless).
    ///
    /// MPI: §3.8.2 `MPI_Mprobe`, §3.8.3 `MPI_Mrecv`
    pub fn receive_vec<T: Element>(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<(Vec<T>, Status)> {
        let (from, tag) = (from.into(), tag.into());
        self.shared().call("receive_vec", |world| {
            let (message, found) = world.mprobe(self.comm(), self.source(from)?, tag_pattern(tag)?)?;
            let status = Status::new(found);
            if !status.len_bytes.is_multiple_of(size_bytes::<T>()) {
                let mut bytes = zeroed::<u8>(status.len_bytes);
                // SAFETY: the call returns when the message has come.
                world.mrecv(message, unsafe { incoming(&mut bytes).into_inner() })?;
                return Err(broken_element::<T>(self.comm(), &status));
            }
            let mut elements = zeroed::<T>(status.count::<T>());
            // SAFETY: the call returns when the message has come.
            world.mrecv(message, unsafe { incoming(&mut elements).into_inner() })?;
            Ok((elements, status))
        })
    }

    /// Sends one message while receiving another.
    ///
    /// ```
    /// ferrovia::local::run(3, |universe| {
    ///     let world = universe.world();
    ///     let (left, right) = ((world.rank() + 2) % 3, (world.rank() + 1) % 3);
    ///     let mut token = [0];
    ///     world.sendrecv(&[world.rank()], right, 0, &mut token, left, 0).unwrap();
    ///     assert_eq!(token, [left]);
    /// });
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::recv`].
    ///
    /// MPI: §3.11 `MPI_Sendrecv`
    pub fn sendrecv<S: Element, R: Element>(
        &self,
        data: &[S],
        to: u32,
        send_tag: u32,
        into: &mut [R],
        from: impl Into<Source>,
        receive_tag: impl Into<Tag>,
    ) -> Result<Status> {
        let (from, receive_tag) = (from.into(), receive_tag.into());
        self.shared().call("sendrecv", |world| {
            let (to, send_tag) = (self.peer(to)?, tag_number(send_tag)?);
            let (from, receive_tag) = (self.source(from)?, tag_pattern(receive_tag)?);
            // SAFETY: both operations are over when this returns: the receive is waited for below, whatever happens.
            let (out, room) = unsafe { (outgoing(data).into_inner(), incoming(into).into_inner()) };
            let receive = One::new(world.irecv(self.comm(), from, receive_tag, room)?);
            let sent = world.send(self.comm(), to, send_tag, out);
            if sent.is_err() {
                // Refused only by generalized requests.
                let _ = world.cancel(&receive);
            }
            let received = world.wait(&receive);
            sent?;
            Ok(Status::new(received?))
        })
    }

    /// Waits for a message and says what it is, without receiving it.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.8.1 `MPI_Probe`
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let (from, tag) = (from.into(), tag.into());
        self.shared()
            .call("probe", |world| world.probe(self.comm(), self.source(from)?, tag_pattern(tag)?).map(Status::new))
    }

    /// Says what message could be received now, if any.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments.
    ///
    /// MPI: §3.8.1 `MPI_Iprobe`
    pub fn iprobe(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>> {
        let (from, tag) = (from.into(), tag.into());
        self.shared().call("iprobe", |world| {
            let found = world.iprobe(self.comm(), self.source(from)?, tag_pattern(tag)?)?;
            Ok(found.map(Status::new))
        })
    }

    pub(crate) fn source(&self, from: Source) -> Checked<i32> {
        match from {
            Source::Any => Ok(ANY_SOURCE),
            Source::Rank(rank) => self.peer(rank),
        }
    }
}

/// The tag of a send as the floor below takes it.
pub(crate) fn tag_number(tag: u32) -> Checked<i32> {
    match i32::try_from(tag) {
        Ok(number @ 0..=TAG_UB) => Ok(number),
        _ => ErrorClass::Tag.fail(format!("tag {tag} is greater than {TAG_UB}")),
    }
}

/// The tag of a receive as the floor below takes it.
pub(crate) fn tag_pattern(tag: Tag) -> Checked<i32> {
    match tag {
        Tag::Any => Ok(ANY_TAG),
        Tag::Is(number) => tag_number(number),
    }
}

#[cold]
fn broken_element<T: Element>(comm: &Comm, status: &Status) -> mpi_core::Error {
    ErrorClass::Type.error(format!(
        "rank {} sent {} bytes with tag {} on {comm}, which is no whole number of {} ({} bytes each)",
        status.source,
        status.len_bytes,
        status.tag,
        std::any::type_name::<T>(),
        size_bytes::<T>(),
    ))
}
