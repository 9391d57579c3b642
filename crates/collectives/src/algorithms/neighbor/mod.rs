//! The neighbourhood collectives: `MPI_Neighbor_allgather(v)` and `MPI_Neighbor_alltoall(v, w)`.

pub(crate) mod linear;

use crate::algorithms::common::layout::Layout;
use crate::call::{NeighborAllgather, NeighborAllgatherv, NeighborAlltoall, NeighborAlltoallv, NeighborAlltoallw};
use crate::collective::Collective;
use crate::data::{Neighbours, Part, Place};
use crate::error::BuildError;
use crate::schedule::{BufferId, Region, TypeSlot};
use crate::selection::{Algorithm, CollectiveCall, Row};

/// What the algorithms see of a call.
pub(crate) trait Neighbourhood: CollectiveCall {
    fn neighbours(&self) -> &Neighbours;
    /// What goes to the destination at this place of the list.
    fn outgoing(&self, index: u32) -> Region;
    /// Where the block of the source at this place of the list goes.
    fn incoming(&self, index: u32) -> Region;
}

/// Lengths of the lists.
fn degrees(neighbours: &Neighbours) -> (usize, usize) {
    (neighbours.sources().len(), neighbours.destinations().len())
}

impl CollectiveCall for NeighborAllgather {
    const COLLECTIVE: Collective = Collective::NeighborAllgather;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Self>] = &[&linear::ALLGATHER];
    const TABLE: &'static [Row<Self>] = &[Row::of(&linear::ALLGATHER)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.neighbours.check(Self::COLLECTIVE, place)?;
        let blocks = u32::try_from(self.neighbours.sources().len()).unwrap_or(u32::MAX);
        self.send.check(Self::COLLECTIVE, "the send buffer", 1)?;
        self.recv.check(Self::COLLECTIVE, "the receive buffer", blocks)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Neighbourhood for NeighborAllgather {
    fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    fn outgoing(&self, _index: u32) -> Region {
        self.send.blocks(BufferId::Send, TypeSlot::Send, 0, 1)
    }

    fn incoming(&self, index: u32) -> Region {
        self.recv.blocks(BufferId::Recv, TypeSlot::Recv, index, 1)
    }
}

impl CollectiveCall for NeighborAllgatherv {
    const COLLECTIVE: Collective = Collective::NeighborAllgatherv;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Self>] = &[&linear::ALLGATHERV];
    const TABLE: &'static [Row<Self>] = &[Row::of(&linear::ALLGATHERV)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.neighbours.check(Self::COLLECTIVE, place)?;
        let (sources, _) = degrees(&self.neighbours);
        self.send.check(Self::COLLECTIVE, "the send buffer", 1)?;
        self.recv.check(Self::COLLECTIVE, ["receive counts", "receive displacements"], sources)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Neighbourhood for NeighborAllgatherv {
    fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    fn outgoing(&self, _index: u32) -> Region {
        self.send.blocks(BufferId::Send, TypeSlot::Send, 0, 1)
    }

    fn incoming(&self, index: u32) -> Region {
        self.recv.block(BufferId::Recv, TypeSlot::Recv, index)
    }
}

impl CollectiveCall for NeighborAlltoall {
    const COLLECTIVE: Collective = Collective::NeighborAlltoall;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Self>] = &[&linear::ALLTOALL];
    const TABLE: &'static [Row<Self>] = &[Row::of(&linear::ALLTOALL)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.neighbours.check(Self::COLLECTIVE, place)?;
        let (sources, destinations) = degrees(&self.neighbours);
        let blocks = |degree| u32::try_from(degree).unwrap_or(u32::MAX);
        self.send.check(Self::COLLECTIVE, "the send buffer", blocks(destinations))?;
        self.recv.check(Self::COLLECTIVE, "the receive buffer", blocks(sources))
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Neighbourhood for NeighborAlltoall {
    fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    fn outgoing(&self, index: u32) -> Region {
        self.send.blocks(BufferId::Send, TypeSlot::Send, index, 1)
    }

    fn incoming(&self, index: u32) -> Region {
        self.recv.blocks(BufferId::Recv, TypeSlot::Recv, index, 1)
    }
}

impl CollectiveCall for NeighborAlltoallv {
    const COLLECTIVE: Collective = Collective::NeighborAlltoallv;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Self>] = &[&linear::ALLTOALLV];
    const TABLE: &'static [Row<Self>] = &[Row::of(&linear::ALLTOALLV)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.neighbours.check(Self::COLLECTIVE, place)?;
        let (sources, destinations) = degrees(&self.neighbours);
        self.send.check(Self::COLLECTIVE, ["send counts", "send displacements"], destinations)?;
        self.recv.check(Self::COLLECTIVE, ["receive counts", "receive displacements"], sources)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Neighbourhood for NeighborAlltoallv {
    fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    fn outgoing(&self, index: u32) -> Region {
        self.send.block(BufferId::Send, TypeSlot::Send, index)
    }

    fn incoming(&self, index: u32) -> Region {
        self.recv.block(BufferId::Recv, TypeSlot::Recv, index)
    }
}

impl CollectiveCall for NeighborAlltoallw {
    const COLLECTIVE: Collective = Collective::NeighborAlltoallw;
    const MEASURE: &'static str = "nothing";
    const ALGORITHMS: &'static [&'static Algorithm<Self>] = &[&linear::ALLTOALLW];
    const TABLE: &'static [Row<Self>] = &[Row::of(&linear::ALLTOALLW)];

    fn check(&self, place: Place) -> Result<(), BuildError> {
        self.neighbours.check(Self::COLLECTIVE, place)?;
        let (sources, destinations) = degrees(&self.neighbours);
        Part::check(&self.send, Self::COLLECTIVE, "send counts", destinations)?;
        Part::check(&self.recv, Self::COLLECTIVE, "receive counts", sources)
    }

    fn len_bytes(&self, _place: Place) -> u64 {
        0
    }
}

impl Neighbourhood for NeighborAlltoallw {
    fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    fn outgoing(&self, index: u32) -> Region {
        Layout::typed(BufferId::Send, &self.send).block(index)
    }

    fn incoming(&self, index: u32) -> Region {
        Layout::typed(BufferId::Recv, &self.recv).block(index)
    }
}
