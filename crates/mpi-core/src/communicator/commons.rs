//! What all communicators of one process share.

use std::sync::Arc;

use collectives::Selection;
use datatype::{Basic, Datatype};

use super::context_ids::ContextIds;

/// The context ids of this process and its choice of collective algorithms.
#[derive(Debug)]
pub(crate) struct Commons {
    pub ids: ContextIds,
    pub selection: Arc<Selection>,
    /// The type of plain bytes.
    pub byte: Arc<Datatype>,
}

impl Commons {
    /// What process `rank` of `size` shares among its communicators.
    pub fn new(rank: u32, size: u32, selection: Selection) -> Self {
        Commons {
            ids: ContextIds::new(rank, size),
            selection: Arc::new(selection),
            byte: Datatype::predefined(Basic::Byte),
        }
    }
}
