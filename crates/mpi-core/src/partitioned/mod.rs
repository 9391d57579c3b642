//! Partitioned communication: a message that several contributors fill, each with its part.
//!
//! ```text
//!   sender                                             receiver
//!   psend_init: greeting (pieces, their length) ─────► precv_init: takes greetings of this
//!               its own tag for the answer             sender and tag in order, sets tags aside
//!               first tag of the pieces ◄───────────── answer
//!   start                                              start: a receive for every piece
//!   pready(2):  piece 2 ────── tag first + 2 ────────► parrived(j): all pieces that reach into
//!   pready(0):  piece 0 ────── tag first + 0 ────────►              partition j are here
//!   complete once every piece has left                 complete once every piece is here
//! ```
//! A piece is one partition of the sender, sent when it is ready; the receiver's partitions are looked
//! at through them and may be of another number. What is ready before the answer has come waits for it.
//!
//! Cost: two short messages for each pair of requests, then α + nβ for each piece.
//!
//! MPI: §4.2

mod receive;
mod send;
mod tags;

pub(crate) use tags::TagPool;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datatype::{Datatype, UserMemory, UserMemoryMut};

use crate::communicator::Comm;
use crate::error::{ErrorClass, Result};
use crate::point_to_point::send_tag;
use crate::request::{Elements, Request, RequestSet, State, Template};
use crate::status::Status;
use crate::world::World;
use receive::ReceiveChannel;
use send::SendChannel;

/// Most partitions of one request.
pub const PARTITIONS_MAX: u32 = 1 << 22;

/// What a partitioned request starts.
pub(crate) enum Partitioned {
    Send(Arc<Mutex<SendChannel>>),
    Receive(Arc<Mutex<ReceiveChannel>>),
    /// To or from `MPI_PROC_NULL`.
    Nobody {
        partitions: u32,
        is_send: bool,
    },
}

impl World {
    /// Makes a send of `partitions` times `count` elements, which can be started any number of times.
    ///
    /// # Errors
    /// `Rank` or `Tag` for bad arguments, `Arg` for a number of partitions that is negative, `NoMem` for
    /// more than [`PARTITIONS_MAX`].
    ///
    /// MPI: §4.2.1 `MPI_Psend_init`
    #[allow(clippy::too_many_arguments, reason = "the arguments of the call")]
    pub fn psend_init(
        &self,
        comm: &Arc<Comm>,
        dest: i32,
        tag: i32,
        memory: UserMemory,
        partitions: i32,
        count: u64,
        datatype: &Arc<Datatype>,
    ) -> Result<Request> {
        let (tag, partitions) = (send_tag(tag)?, partition_count(partitions)?);
        let template = match comm.peer_argument(dest)? {
            Some(peer) => {
                let elements = whole(memory, partitions, count, datatype)?;
                Partitioned::Send(SendChannel::open(self, comm, peer, tag, elements, partitions)?)
            }
            None => Partitioned::Nobody { partitions, is_send: true },
        };
        Ok(Request::persistent(comm, Template::Partitioned(template), "MPI_Psend_init"))
    }

    /// Makes a receive of `partitions` times `count` elements, which can be started any number of times.
    ///
    /// # Errors
    /// As [`World::psend_init`]; `Rank` also for `MPI_ANY_SOURCE`.
    ///
    /// MPI: §4.2.1 `MPI_Precv_init`
    #[allow(clippy::too_many_arguments, reason = "the arguments of the call")]
    pub fn precv_init(
        &self,
        comm: &Arc<Comm>,
        source: i32,
        tag: i32,
        memory: UserMemoryMut,
        partitions: i32,
        count: u64,
        datatype: &Arc<Datatype>,
    ) -> Result<Request> {
        let (tag, partitions) = (send_tag(tag)?, partition_count(partitions)?);
        let template = match comm.peer_argument(source)? {
            Some(peer) => {
                let elements = whole(memory, partitions, count, datatype)?;
                let from = (source as u32, peer);
                Partitioned::Receive(ReceiveChannel::open(self, comm, from, tag, elements, partitions)?)
            }
            None => Partitioned::Nobody { partitions, is_send: false },
        };
        Ok(Request::persistent(comm, Template::Partitioned(template), "MPI_Precv_init"))
    }

    /// Partitions of request 0 of `set` are ready to be sent.
    ///
    /// # Errors
    /// `Request` when it is no partitioned send that was started, `Arg` for a partition that does not
    /// exist or was ready before; those named before it are ready then.
    ///
    /// MPI: §4.2.1 `MPI_Pready`, `MPI_Pready_range`, `MPI_Pready_list`
    pub fn pready(&self, set: &impl RequestSet, partitions: impl IntoIterator<Item = i32>) -> Result<()> {
        let mark = |request: &mut Request| {
            let is_active = request.is_active();
            let all = partition_range(request)?;
            let send = match partitioned(request)? {
                Partitioned::Send(send) if is_active => Some(send),
                Partitioned::Nobody { is_send: true, .. } if is_active => None,
                Partitioned::Send(_) | Partitioned::Nobody { is_send: true, .. } => {
                    return ErrorClass::Request.fail("the partitioned send has not been started");
                }
                _ => return ErrorClass::Request.fail("the request is a partitioned receive, not a send"),
            };
            let mut channel = send.map(|send| lock(send));
            for partition in partitions {
                if !all.contains(&partition) {
                    return Err(no_partition(partition, all.end));
                }
                if let Some(channel) = &mut channel {
                    channel.ready(self, partition as u32)?;
                }
            }
            Ok(channel.is_some_and(|channel| channel.is_waiting()))
        };
        let is_waiting = set.with(0, mark).unwrap_or_else(null_request)?;
        if is_waiting {
            self.progress();
        }
        self.wake_sleepers();
        Ok(())
    }

    /// True if a partition of request 0 of `set` has arrived; also if the request is not active.
    ///
    /// # Errors
    /// `Request` when it is no partitioned receive, `Arg` for a partition that does not exist.
    ///
    /// MPI: §4.2.2 `MPI_Parrived`
    pub fn parrived(&self, set: &impl RequestSet, partition: i32) -> Result<bool> {
        let look = |request: &mut Request| {
            let is_active = request.is_active();
            let all = partition_range(request)?;
            let receive = match partitioned(request)? {
                Partitioned::Receive(receive) => Some(receive),
                Partitioned::Nobody { is_send: false, .. } => None,
                _ => return ErrorClass::Request.fail("the request is a partitioned send, not a receive"),
            };
            if !all.contains(&partition) {
                return Err(no_partition(partition, all.end));
            }
            Ok(!is_active || receive.is_none_or(|receive| lock(receive).has_arrived(self, partition as u32)))
        };
        let arrived = self.poll_twice(|_| match set.with(0, look).unwrap_or_else(null_request) {
            Ok(false) => None,
            told => Some(told),
        });
        arrived.unwrap_or(Ok(false))
    }
}

impl Partitioned {
    /// The request of one start.
    pub fn start(&self, world: &World, comm: &Arc<Comm>, call: &'static str) -> Request {
        let key = match self {
            Partitioned::Send(channel) => world.operations.start(SendChannel::start(channel)),
            Partitioned::Receive(channel) => world.operations.start(ReceiveChannel::start(channel, world)),
            Partitioned::Nobody { .. } => return Request::finished(self.status(), call),
        };
        Request::operation(key, Arc::clone(comm), call)
    }

    /// The status of a start that went well.
    pub fn status(&self) -> Status {
        match self {
            Partitioned::Send(_) | Partitioned::Nobody { is_send: true, .. } => Status::EMPTY,
            Partitioned::Receive(channel) => lock(channel).status(),
            Partitioned::Nobody { is_send: false, .. } => Status::PROC_NULL,
        }
    }

    fn partitions(&self) -> u32 {
        match self {
            Partitioned::Send(channel) => lock(channel).partitions(),
            Partitioned::Receive(channel) => lock(channel).partitions(),
            Partitioned::Nobody { partitions, .. } => *partitions,
        }
    }
}

/// The memory of all partitions, as one buffer.
fn whole<M>(memory: M, partitions: u32, count: u64, datatype: &Arc<Datatype>) -> Result<Elements<M>> {
    let total = u64::from(partitions).checked_mul(count);
    let in_bounds = total.filter(|total| total.checked_mul(datatype.size().max(1)).is_some_and(|n| n < 1 << 62));
    match in_bounds {
        Some(total) => Ok(Elements { memory, count: total, datatype: Arc::clone(datatype) }),
        None => ErrorClass::Count.fail(format!("{partitions} partitions of {count} elements are too many")),
    }
}

fn partition_count(partitions: i32) -> Result<u32> {
    match u32::try_from(partitions) {
        Ok(count) if count <= PARTITIONS_MAX => Ok(count),
        Ok(count) => ErrorClass::NoMem.fail(format!("{count} partitions; a request has at most {PARTITIONS_MAX}")),
        Err(_) => ErrorClass::Arg.fail(format!("the number of partitions is {partitions}")),
    }
}

fn partitioned(request: &Request) -> Result<&Partitioned> {
    if let State::Persistent(persistent) = &request.state
        && let Template::Partitioned(partitioned) = &persistent.template
    {
        return Ok(partitioned);
    }
    ErrorClass::Request.fail(format!("the request of {} is not partitioned", request.call()))
}

fn partition_range(request: &Request) -> Result<std::ops::Range<i32>> {
    Ok(0..partitioned(request)?.partitions() as i32)
}

#[cold]
fn no_partition(partition: i32, count: i32) -> crate::Error {
    ErrorClass::Arg.error(format!("partition {partition} is not among the {count} of the request"))
}

fn null_request<T>() -> Result<T> {
    ErrorClass::Request.fail("the request is MPI_REQUEST_NULL")
}

fn lock<T>(channel: &Arc<Mutex<T>>) -> MutexGuard<'_, T> {
    // Uncontended: the gate of the world keeps threads apart.
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a sender tells of its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Greeting {
    pieces: u32,
    piece_bytes: u64,
    /// The tag of the answer.
    answer_tag: i32,
}

impl Greeting {
    const BYTES: usize = 16;

    fn encode(self) -> Vec<u8> {
        let parts = [&self.pieces.to_le_bytes()[..], &self.answer_tag.to_le_bytes(), &self.piece_bytes.to_le_bytes()];
        parts.concat()
    }

    /// What another process wrote; `None` if it makes no sense.
    fn decode(bytes: &[u8]) -> Option<Greeting> {
        let (pieces, rest) = bytes.split_first_chunk::<4>()?;
        let (answer_tag, rest) = rest.split_first_chunk::<4>()?;
        let greeting = Greeting {
            pieces: u32::from_le_bytes(*pieces),
            piece_bytes: u64::from_le_bytes(rest.try_into().ok()?),
            answer_tag: i32::from_le_bytes(*answer_tag),
        };
        let total = u64::from(greeting.pieces).checked_mul(greeting.piece_bytes)?;
        (greeting.pieces <= PARTITIONS_MAX && greeting.answer_tag >= 0 && total < 1 << 62).then_some(greeting)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn greetings_come_back_as_they_went_and_nonsense_is_refused() {
        let greeting = Greeting { pieces: 3, piece_bytes: 1 << 40, answer_tag: i32::MAX };
        let bytes = greeting.encode();
        assert_eq!((bytes.len(), Greeting::decode(&bytes)), (Greeting::BYTES, Some(greeting)));
        for len in 0..Greeting::BYTES {
            assert_eq!(Greeting::decode(&bytes[..len]), None);
        }
        for wrong in [
            Greeting { pieces: PARTITIONS_MAX + 1, ..greeting },
            Greeting { piece_bytes: u64::MAX, ..greeting },
            Greeting { answer_tag: -1, ..greeting },
        ] {
            assert_eq!(Greeting::decode(&wrong.encode()), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_greets_within_the_limits_or_is_refused(
            bytes in proptest::collection::vec(prop_oneof![3 => Just(0), 1 => any::<u8>()], 15..18),
        ) {
            if let Some(greeting) = Greeting::decode(&bytes) {
                prop_assert!(greeting.pieces <= PARTITIONS_MAX && greeting.answer_tag >= 0);
                prop_assert!(u64::from(greeting.pieces).checked_mul(greeting.piece_bytes).is_some());
                prop_assert_eq!(greeting.encode(), bytes);
            }
        }
    }
}
