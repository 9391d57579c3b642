//! What all communicators of one process share.

use std::sync::Arc;

use collectives::Selection;

use super::context_ids::ContextIds;

/// The context ids of this process and its choice of collective algorithms.
#[derive(Debug)]
pub(crate) struct Commons {
    pub ids: ContextIds,
    pub selection: Arc<Selection>,
}
