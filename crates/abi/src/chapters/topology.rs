//! Process topologies: no communicator has one so far.
//!
//! MPI: §8

use std::sync::Arc;

use mpi_core::{Comm, Result};

use crate::constants::MPI_UNDEFINED;
use crate::face::{Face, Out};

pub(crate) fn topo_test(_face: &Face, _comm: &Arc<Comm>, status: Out<i32>) -> Result<()> {
    status.set(MPI_UNDEFINED);
    Ok(())
}
