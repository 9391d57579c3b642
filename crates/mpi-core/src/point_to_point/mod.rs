//! Messages from one process to another.
//!
//! The blocking calls are the fast path: a small send hands its bytes to the engine and returns,
//! a receive waits for one engine request; neither allocates nor counts references.
//!
//! Wherever a rank is asked for, `PROC_NULL` is accepted and nothing happens.
//!
//! MPI: §3

mod buffered;
mod exchange;
mod persistent;
mod probe;
mod receive;
mod send;

pub use buffered::{AttachedBuffer, Budget, BufferOwner};
pub use exchange::End;
pub use probe::Message;
pub use send::{Destination, Mode};

use engine::{Source, TagPattern};

use crate::communicator::Comm;
use crate::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL, TAG_UB};
use crate::error::{ErrorClass, Result};

/// Accepts the tag of a send.
#[inline]
pub(crate) fn send_tag(tag: i32) -> Result<i32> {
    if (0..=TAG_UB).contains(&tag) { Ok(tag) } else { Err(no_such_tag(tag)) }
}

/// Accepts the tag of a receive or a probe.
#[inline]
pub(crate) fn tag_pattern(tag: i32) -> Result<TagPattern> {
    if (0..=TAG_UB).contains(&tag) {
        Ok(TagPattern::Exact(tag))
    } else if tag == ANY_TAG {
        Ok(TagPattern::Any)
    } else {
        Err(no_such_tag(tag))
    }
}

/// The process a receive or probe asks for; `None` for `PROC_NULL`.
#[inline(always)]
pub(crate) fn source_pattern(comm: &Comm, source: i32) -> Result<Option<Source>> {
    if (0..comm.peer_count() as i32).contains(&source) {
        Ok(Some(Source::Peer(comm.peer_of(source as u32))))
    } else if source == ANY_SOURCE {
        Ok(Some(Source::Any))
    } else if source == PROC_NULL {
        Ok(None)
    } else {
        Err(comm.no_such_rank(source))
    }
}

#[cold]
fn no_such_tag(tag: i32) -> crate::Error {
    ErrorClass::Tag.error(format!("tag {tag} is not among 0 to {TAG_UB}"))
}
