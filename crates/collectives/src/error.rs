//! What can be wrong with a request for a schedule.

use crate::collective::Collective;

/// Why no schedule could be built; always a mistake in the parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The place names no member of the communicator.
    #[error("rank {rank} is not in a communicator of {size}")]
    RankOutOfRange {
        /// The rank given.
        rank: u32,
        /// Ranks in the communicator.
        size: u32,
    },
    /// The root is no member of the communicator.
    #[error("{collective}: root {root} is not in a communicator of {size} ranks")]
    RootOutOfRange {
        /// The operation.
        collective: Collective,
        /// The root given.
        root: u32,
        /// Ranks in the communicator.
        size: u32,
    },
    /// A list does not have one entry per peer.
    #[error("{collective}: {list} has {actual_count} entries where {expected_count} are needed")]
    ListLength {
        /// The operation.
        collective: Collective,
        /// Which list.
        list: &'static str,
        /// Entries given.
        actual_count: usize,
        /// Entries needed.
        expected_count: usize,
    },
    /// Counts or displacements reach further than an address can.
    #[error("{collective}: {list} reaches beyond what 63-bit byte offsets can address")]
    TooLarge {
        /// The operation.
        collective: Collective,
        /// Which data.
        list: &'static str,
    },
    /// The collective is not defined between two groups.
    #[error("{collective} is not defined on intercommunicators")]
    NotBetweenGroups {
        /// The operation.
        collective: Collective,
    },
    /// A neighbour's tag offset or rank is out of range.
    #[error("{collective}: neighbour {index} of {list} has rank {rank} and tag offset {tag_offset}, out of range")]
    Neighbour {
        /// The operation.
        collective: Collective,
        /// `sources` or `destinations`.
        list: &'static str,
        /// Place in the list.
        index: usize,
        /// Its rank.
        rank: u32,
        /// Its tag offset.
        tag_offset: u32,
    },
}

/// Why a text does not name a choice of algorithms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// An item is not `collective=algorithm`.
    #[error("'{item}' is not of the form collective=algorithm")]
    Form {
        /// The item.
        item: String,
    },
    /// No such collective.
    #[error("there is no collective '{name}'; there are: {known}")]
    Collective {
        /// The name given.
        name: String,
        /// All names.
        known: String,
    },
    /// The collective has no such algorithm.
    #[error("{collective} has no algorithm '{name}'; it has: {known}")]
    Algorithm {
        /// The operation.
        collective: Collective,
        /// The name given.
        name: String,
        /// All names.
        known: String,
    },
}
