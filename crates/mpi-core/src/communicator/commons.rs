//! What all communicators of one process share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use collectives::Selection;
use datatype::{Basic, Datatype};
use engine::BoardTable;

use super::context_ids::ContextIds;
use super::inbox::Strays;
use crate::partitioned::TagPool;

/// The context ids of this process and its choice of collective algorithms.
pub(crate) struct Commons {
    pub ids: ContextIds,
    pub selection: Arc<Selection>,
    /// The type of plain bytes.
    pub byte: Arc<Datatype>,
    /// Boards that groups of this host show things on.
    pub boards: Arc<BoardTable>,
    partition_tags: Mutex<TagPool>,
    strays: Mutex<Strays>,
}

impl Commons {
    /// What process `rank` of `size` shares among its communicators.
    pub fn new(rank: u32, size: u32, selection: Selection) -> Self {
        Commons {
            ids: ContextIds::new(rank, size),
            selection: Arc::new(selection),
            byte: Datatype::predefined(Basic::Byte),
            boards: Arc::default(),
            partition_tags: Mutex::default(),
            strays: Mutex::default(),
        }
    }

    /// Messages of creations without a parent that were received under another name.
    pub fn strays(&self) -> MutexGuard<'_, Strays> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tags of partitions on their way to this process.
    pub fn partition_tags(&self) -> MutexGuard<'_, TagPool> {
        self.partition_tags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
