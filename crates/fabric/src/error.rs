//! What goes wrong outside a work request; what goes wrong inside one is a [`WcStatus`](crate::WcStatus).

use crate::QueuePairState;

/// What went wrong in a call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The device has no more of these.
    #[error("no {object} left: {max} exist already")]
    Exhausted {
        /// What was to be made, in the plural.
        object: &'static str,
        /// The device's limit.
        max: u32,
    },
    /// The handle names nothing, or nothing any more.
    #[error("there is no such {0}")]
    NoSuch(&'static str),
    /// There is no such peer on this device.
    #[error("peer {0} is not reachable by this device")]
    NoSuchPeer(u32),
    /// It cannot go while others depend on it.
    #[error("the {object} is still used by a {by}")]
    InUse {
        /// What was to go.
        object: &'static str,
        /// What depends on it.
        by: &'static str,
    },
    /// More was asked for than the device, or the object, allows.
    #[error("{what}: {asked} is beyond the limit of {max}")]
    BeyondLimit {
        /// Of what.
        what: &'static str,
        /// How much.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// The queue pair is in a state in which this cannot be done.
    #[error("{operation} is not possible in the state {state:?}")]
    InvalidState {
        /// What was tried.
        operation: &'static str,
        /// The state.
        state: QueuePairState,
    },
    /// The arguments do not go together.
    #[error("{operation}: {reason}")]
    InvalidRequest {
        /// What was tried.
        operation: &'static str,
        /// What does not fit.
        reason: &'static str,
    },
    /// The device can not do this.
    #[error("{operation} is not supported by this device: {reason}")]
    Unsupported {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// Completions came faster than they were polled, and some are lost (InfiniBand: CQ overrun).
    #[error("the completion queue overran: more than {depth} completions were waiting")]
    CompletionQueueOverrun {
        /// Its depth.
        depth: u32,
    },
    /// The bytes are not the endpoint of a queue pair, or of another kind of device.
    #[error("not an endpoint for this device: {0}")]
    BadEndpoint(&'static str),
    /// The operating system refused something.
    #[error("{operation}: {reason}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        reason: String,
    },
}
