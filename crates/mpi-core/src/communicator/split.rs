//! Splitting a communicator into disjoint ones.
//!
//! All members learn everybody's colour and key in one round up and down a tree. With them travels
//! a context id each member would offer if it became the first of its new group, so that nothing
//! more needs to be said in the common case.
//!
//! MPI: §7.4.2

use std::sync::Arc;

use super::Comm;
use super::agreement::Agreement;
use super::context_ids::{CommId, Proposal};
use super::create::ready;
use super::tree::{Tree, TreeRound};
use crate::constants::UNDEFINED;
use crate::environment::Hardware;
use crate::error::{ErrorClass, Result};
use crate::group::Group;
use crate::info::Info;
use crate::session::{SELF_SET, WORLD_SET, known_set};
use crate::world::World;

/// By what a communicator is split.
///
/// MPI: §7.4.2 `MPI_Comm_split_type`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitType {
    /// Processes that can share memory.
    Shared,
    /// The kind of resource the hints name.
    HardwareGuided,
    /// The highest level of the hardware that splits the communicator.
    HardwareUnguided,
    /// The kind of resource the hints name, of whatever sort.
    ResourceGuided,
    /// No new communicator for this process.
    Undefined,
}

/// What one member says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record {
    /// `None` for a process that wants no communicator.
    colour: Option<u64>,
    key: i32,
    offer: Option<Proposal>,
}

const RECORD_BYTES: usize = 18;
/// Pieces of hardware of one kind are numbered below this.
const INSTANCES_MAX: u64 = 1 << 16;
/// The hint that names a kind of hardware.
const RESOURCE_TYPE: &str = "mpi_hw_resource_type";
/// Kinds of hardware, from those that hold others to those that are held.
const LEVELS: [&str; 8] = [
    "mpi_shared_memory",
    "hwloc://Package",
    "hwloc://NUMANode",
    "hwloc://Die",
    "hwloc://L3Cache",
    "hwloc://L2Cache",
    "hwloc://Core",
    "hwloc://PU",
];
/// A piece of one level in a message: whether there is one, and its number.
const PIECE_BYTES: usize = 9;

impl World {
    /// One new communicator per colour, ranks ordered by key and then by old rank; `None` for a
    /// process without colour (`UNDEFINED`).
    ///
    /// Collective.
    ///
    /// # Errors
    /// `Arg` for a negative colour, `NoMem` when no context id is left.
    ///
    /// MPI: §7.4.2 `MPI_Comm_split`
    pub fn comm_split(&self, comm: &Arc<Comm>, colour: i32, key: i32) -> Result<Option<Arc<Comm>>> {
        let colour = match colour {
            UNDEFINED => None,
            0.. => Some(colour as u64),
            _ => return ErrorClass::Arg.fail(format!("colour {colour} is neither MPI_UNDEFINED nor at least 0")),
        };
        self.split_by(comm, colour, key)
    }

    /// New communicators of processes that have something in common.
    ///
    /// The guided kinds give a communicator to processes restricted to one piece of the hardware the hints name. The
    /// unguided kind finds the highest level by itself at which not all processes share a piece, and names it in `info`
    /// and in the hints of the new communicator. Those are a copy, which later changes of `info` do not reach.
    ///
    /// Collective.
    ///
    /// # Errors
    /// `NoMem` when no context id is left.
    ///
    /// MPI: §7.4.2 `MPI_Comm_split_type`
    pub fn comm_split_type(
        &self,
        comm: &Arc<Comm>,
        kind: SplitType,
        key: i32,
        info: Option<&Arc<Info>>,
    ) -> Result<Option<Arc<Comm>>> {
        let hint = |name| info.and_then(|info| info.value(name));
        let guided = || self.piece_of(&self.process_manager().hardware(), &hint(RESOURCE_TYPE)?);
        let colour = match kind {
            SplitType::Undefined => None,
            SplitType::HardwareUnguided => return self.split_by_hardware(comm, key, info),
            SplitType::Shared => Some(self.process_manager().node_key()),
            SplitType::HardwareGuided => guided(),
            SplitType::ResourceGuided => match hint("mpi_pset_name").as_deref().and_then(known_set) {
                Some(WORLD_SET) => Some(0),
                Some(SELF_SET) => Some(u64::from(self.peer())),
                _ => guided(),
            },
        };
        let new = self.split_by(comm, colour, key)?;
        if let Some(new) = &new {
            new.set_info(info.map(|info| Arc::new(info.duplicate())));
        }
        Ok(new)
    }

    /// A number for the piece of this kind that this process is restricted to, the same for no other piece anywhere.
    fn piece_of(&self, hardware: &Hardware, kind: &str) -> Option<u64> {
        let node = self.process_manager().node_key();
        if matches!(kind, "mpi_shared_memory" | "node" | "machine") {
            return Some(node);
        }
        let instance = hardware.instance(kind)?;
        Some(node.wrapping_mul(INSTANCES_MAX).wrapping_add(instance.into()))
    }

    /// All tell each other their pieces of every level, and split by the first that divides them.
    fn split_by_hardware(&self, comm: &Arc<Comm>, key: i32, info: Option<&Arc<Info>>) -> Result<Option<Arc<Comm>>> {
        let hardware = self.process_manager().hardware();
        let pieces = LEVELS.map(|kind| self.piece_of(&hardware, kind));
        let mut round =
            TreeRound::gather(comm.collective_tree(), pieces.iter().flat_map(|p| encode_piece(*p)).collect());
        let mut decide = |records: &[u8], _: &[u8]| Ok(records.to_vec());
        let table = self.wait_until(|world| ready(round.advance(world, &mut decide)))?;
        let Some(level) = dividing_level(&table) else { return Ok(None) };
        let new = self.split_by(comm, pieces[level], key)?;
        if let Some(new) = &new {
            let hints = info.map_or_else(Info::new, |info| info.duplicate());
            hints.set(RESOURCE_TYPE, LEVELS[level])?;
            new.set_info(Some(Arc::new(hints)));
            // One that cannot be changed stays as it is; a full one was refused above.
            let _ = info.map(|info| info.set(RESOURCE_TYPE, LEVELS[level]));
        }
        Ok(new)
    }

    /// The split proper.
    pub(crate) fn split_by(&self, comm: &Arc<Comm>, colour: Option<u64>, key: i32) -> Result<Option<Arc<Comm>>> {
        let offer = if colour.is_some() && comm.size() > 1 && !comm.is_inter() {
            self.commons.ids.propose().ok()
        } else {
            None
        };
        let tree = comm.collective_tree();
        let mut round = TreeRound::gather(tree.clone(), Record { colour, key, offer }.encode());
        let mut decide = |records: &[u8], _: &[u8]| Ok(records.to_vec());
        let table = self.wait_until(|world| ready(round.advance(world, &mut decide)))?;
        let records = decode(&table, tree.group.size())?;
        if comm.is_inter() {
            return self.split_between(comm, &records, colour, tree);
        }
        let members = colour.map_or_else(Vec::new, |colour| members_of(&records, colour));
        let leads = members.first().is_some_and(|(rank, _)| *rank == comm.rank());
        if let Some(offer) = offer.filter(|offer| !leads || members.len() == 1 || offer.is_recycled) {
            self.commons.ids.withdraw(offer);
        }
        if members.is_empty() {
            return Ok(None);
        }
        let peers = members.iter().map(|(rank, _)| comm.peer_of(*rank)).collect();
        let group = Arc::new(comm.group().of_peers(peers));
        let new = Comm::new(Arc::clone(&group), &self.commons, comm.error_handler());
        match members[0].1.offer {
            Some(Proposal { id, is_recycled: false }) if members.len() > 1 => {
                if !leads && !self.commons.ids.claim(id) {
                    return ErrorClass::Intern.fail("splitting a communicator: a fresh context id is in use");
                }
                new.settle(id);
            }
            _ => {
                let rank = new.rank();
                let mut agreement = Agreement::new(Tree { group, rank, ..tree }, &self.commons);
                new.settle(self.wait_until(|world| ready(agreement.advance(world)))?);
            }
        }
        Ok(Some(Arc::new(new)))
    }
}

impl World {
    /// The same between two groups: those of one colour in both, if it occurs in both.
    fn split_between(
        &self,
        comm: &Comm,
        records: &[Record],
        colour: Option<u64>,
        tree: Tree,
    ) -> Result<Option<Arc<Comm>>> {
        let Some(colour) = colour else { return Ok(None) };
        let (first, second) = comm.halves();
        let (first_records, second_records) = records.split_at(first.size() as usize);
        let part = |group: &Group, records: &[Record]| {
            let peers = members_of(records, colour).iter().map(|(rank, _)| group.peer(*rank)).collect();
            Arc::new(comm.group().of_peers(peers))
        };
        let (first, second) = (part(first, first_records), part(second, second_records));
        if first.size() == 0 || second.size() == 0 {
            return Ok(None);
        }
        let (own, other) = if first.rank().is_some() { (first, second) } else { (second, first) };
        let new = Comm::inter(own, other, &self.commons, comm.error_handler());
        self.agree(&new, new.tree(tree.context, tree.tag))?;
        Ok(Some(Arc::new(new)))
    }
}

fn encode_piece(piece: Option<u64>) -> [u8; PIECE_BYTES] {
    let mut bytes = [0; PIECE_BYTES];
    bytes[0] = piece.is_some().into();
    bytes[1..].copy_from_slice(&piece.unwrap_or(0).to_le_bytes());
    bytes
}

/// The first level at which some process has a piece that not all have, by the pieces of all processes.
fn dividing_level(table: &[u8]) -> Option<usize> {
    let rows = table.chunks_exact(LEVELS.len() * PIECE_BYTES);
    (0..LEVELS.len()).find(|level| {
        let mut pieces = rows.clone().map(|row| &row[level * PIECE_BYTES..(level + 1) * PIECE_BYTES]);
        let first = pieces.next();
        pieces.any(|piece| Some(piece) != first)
    })
}

/// Ranks of one colour in their new order, with what they said.
fn members_of(records: &[Record], colour: u64) -> Vec<(u32, Record)> {
    let mut members: Vec<_> = (0..).zip(records.iter().copied()).filter(|(_, r)| r.colour == Some(colour)).collect();
    members.sort_by_key(|(rank, record)| (record.key, *rank));
    members
}

impl Record {
    fn encode(self) -> Vec<u8> {
        let recycled = self.offer.is_some_and(|offer| offer.is_recycled);
        let flags = [self.colour.is_some(), self.offer.is_some(), recycled];
        let mut bytes = Vec::with_capacity(RECORD_BYTES);
        bytes
            .extend(flags.iter().enumerate().fold(0_u16, |all, (bit, set)| all | u16::from(*set) << bit).to_le_bytes());
        bytes.extend(self.colour.unwrap_or(0).to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        bytes.extend(self.offer.map_or(0, |offer| offer.id.0).to_le_bytes());
        bytes
    }
}

fn decode(table: &[u8], size: u32) -> Result<Vec<Record>> {
    if table.len() != size as usize * RECORD_BYTES {
        return ErrorClass::Intern
            .fail(format!("splitting a communicator of {size}: the table has {} bytes", table.len()));
    }
    Ok(table.chunks_exact(RECORD_BYTES).map(decode_record).collect())
}

fn decode_record(bytes: &[u8]) -> Record {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let has = |bit: u32| bytes[0] & (1 << bit) != 0;
    let colour = u64::from(word(2)) | u64::from(word(6)) << 32;
    Record {
        colour: has(0).then_some(colour),
        key: word(10) as i32,
        offer: has(1).then_some(Proposal { id: CommId(word(14)), is_recycled: has(2) }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_survives_its_journey() {
        let offer = Some(Proposal { id: CommId(77), is_recycled: true });
        let records = [
            Record { colour: Some(u64::MAX - 5), key: -3, offer },
            Record { colour: None, key: i32::MAX, offer: None },
            Record { colour: Some(0), key: 0, offer: Some(Proposal { id: CommId(1), is_recycled: false }) },
        ];
        let table: Vec<u8> = records.iter().flat_map(|r| r.encode()).collect();
        assert_eq!(decode(&table, 3).unwrap(), records);
        assert!(decode(&table, 2).is_err());
    }

    #[test]
    fn the_highest_level_that_divides_is_found() {
        let row =
            |pieces: [Option<u64>; LEVELS.len()]| pieces.iter().flat_map(|p| encode_piece(*p)).collect::<Vec<u8>>();
        let same = [Some(1), Some(2), None, None, None, None, None, None];
        let mut other = same;
        assert_eq!(dividing_level(&row(same)), None);
        assert_eq!(dividing_level(&[row(same), row(other)].concat()), None);
        other[7] = Some(0);
        assert_eq!(dividing_level(&[row(same), row(other)].concat()), Some(7));
        other[1] = Some(3);
        assert_eq!(dividing_level(&[row(other), row(other), row(same)].concat()), Some(1));
        other[0] = None;
        assert_eq!(dividing_level(&[row(same), row(other)].concat()), Some(0));
    }

    #[test]
    fn members_are_ordered_by_key_then_rank() {
        let record = |colour, key| Record { colour, key, offer: None };
        let records =
            [record(Some(1), 5), record(Some(2), 0), record(Some(1), -1), record(None, 0), record(Some(1), 5)];
        let ranks = |colour| members_of(&records, colour).iter().map(|(rank, _)| *rank).collect::<Vec<_>>();
        assert_eq!(ranks(1), [2, 0, 4]);
        assert_eq!(ranks(2), [1]);
        assert!(ranks(3).is_empty());
    }

    proptest! {
        #[test]
        fn whatever_table_comes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100), size in 0u32..6, fits: bool) {
            let mut bytes = bytes;
            if fits {
                bytes.resize(size as usize * RECORD_BYTES, 7);
            }
            match decode(&bytes, size) {
                Ok(records) => {
                    prop_assert_eq!(bytes.len(), size as usize * RECORD_BYTES);
                    let colour = records.first().and_then(|record| record.colour).unwrap_or(0);
                    let members = members_of(&records, colour);
                    prop_assert!(members.iter().all(|(rank, record)| records[*rank as usize] == *record));
                    prop_assert!(records.iter().all(|record| decode_record(&record.encode()) == *record));
                }
                Err(_) => prop_assert_ne!(bytes.len(), size as usize * RECORD_BYTES),
            }
            prop_assert!(dividing_level(&bytes).is_none_or(|level| level < LEVELS.len()));
        }
    }
}
