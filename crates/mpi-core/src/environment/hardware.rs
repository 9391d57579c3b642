//! Pieces of hardware, and to which of them this process is bound.
//!
//! A process is *restricted* to a piece if all processors it may run on belong to that piece. The kinds have the
//! names that programs know from the hwloc library; it is not needed.
//!
//! MPI: §9.1.5, §7.4.2

use crate::info::Info;

/// The kind whose pieces are whole machines.
const MACHINE: &str = "hwloc://Machine";
/// The kind whose pieces are sets of processes that can share memory: machines.
const SHARED_MEMORY: &str = "mpi_shared_memory";

/// The kinds of hardware of one machine, as one process sees them.
///
/// ```
/// use mpi_core::environment::Hardware;
/// // Two packages of two processors; this process may run on the second package.
/// let mut hardware = Hardware::new([2, 3]);
/// hardware.add("hwloc://Package", [vec![0, 1], vec![2, 3]]);
/// hardware.add("hwloc://PU", (0..4).map(|cpu| vec![cpu]));
/// assert_eq!(hardware.instance("hwloc://Package"), Some(2));
/// assert_eq!(hardware.instance("hwloc://PU"), None);
/// assert_eq!(hardware.instance("hwloc://Machine"), Some(0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Hardware {
    /// Processors this process may run on.
    allowed: Vec<u32>,
    /// Each kind with the pieces of it, as the processors that belong to each.
    kinds: Vec<(String, Vec<Vec<u32>>)>,
}

impl Hardware {
    /// A machine of which only the processors are known that this process may run on.
    pub fn new(allowed: impl IntoIterator<Item = u32>) -> Self {
        Hardware { allowed: allowed.into_iter().collect(), kinds: Vec::new() }
    }

    /// Adds a kind of hardware and its pieces, each as its processors; nothing if there is no piece.
    pub fn add(&mut self, kind: &str, pieces: impl IntoIterator<Item = Vec<u32>>) {
        let mut pieces: Vec<Vec<u32>> = pieces.into_iter().filter(|cpus| !cpus.is_empty()).collect();
        pieces.iter_mut().for_each(|cpus| cpus.sort_unstable());
        pieces.sort_unstable();
        pieces.dedup();
        if !pieces.is_empty() {
            self.kinds.push((kind.to_owned(), pieces));
        }
    }

    /// The piece of this kind that the process is restricted to, as its first processor: the same number for all
    /// processes of the machine that are restricted to it. `None` if there is no such kind or no such piece.
    pub fn instance(&self, kind: &str) -> Option<u32> {
        if matches!(kind, MACHINE | SHARED_MEMORY) {
            return Some(0);
        }
        let (_, pieces) = self.kinds.iter().find(|(name, _)| name == kind)?;
        let holds_all = |piece: &&Vec<u32>| self.allowed.iter().all(|cpu| piece.contains(cpu));
        let piece = pieces.iter().find(holds_all).filter(|_| !self.allowed.is_empty())?;
        piece.first().copied()
    }

    /// The kinds by which communicators can be split, each `true` if this process is restricted to one piece of it.
    ///
    /// MPI: §9.1.5 `MPI_Get_hw_resource_info`
    pub fn info(&self) -> Info {
        let known = self.kinds.iter().map(|(kind, _)| kind.as_str());
        let all = [SHARED_MEMORY, MACHINE].into_iter().chain(known);
        Info::read_only(all.map(|kind| (kind, self.instance(kind).is_some().to_string()))).duplicate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(allowed: &[u32]) -> Hardware {
        let mut hardware = Hardware::new(allowed.iter().copied());
        hardware.add("hwloc://NUMANode", [vec![4, 5, 6, 7], vec![3, 2, 1, 0]]);
        hardware.add("hwloc://Core", [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7], vec![1, 0]]);
        hardware.add("hwloc://L4Cache", [vec![]]);
        hardware
    }

    #[test]
    fn a_process_is_restricted_to_what_holds_all_of_its_processors() {
        let check = |allowed: &[u32], node, core| {
            let hardware = machine(allowed);
            assert_eq!(hardware.instance("hwloc://NUMANode"), node, "{allowed:?}");
            assert_eq!(hardware.instance("hwloc://Core"), core, "{allowed:?}");
            assert_eq!(hardware.instance("mpi_shared_memory"), Some(0));
            assert_eq!(hardware.instance("hwloc://L4Cache"), None, "a kind without pieces");
        };
        check(&[0, 1, 2, 3, 4, 5, 6, 7], None, None);
        check(&[5, 4], Some(4), Some(4));
        check(&[1], Some(0), Some(0));
        check(&[1, 2], Some(0), None);
        check(&[], None, None);
    }

    #[test]
    fn hardware_is_said_in_truth_values() {
        let info = machine(&[6]).info();
        let keys: Vec<_> = (0..info.len() as i32).map(|n| info.nth_key(n).unwrap()).collect();
        assert_eq!(keys, ["mpi_shared_memory", "hwloc://Machine", "hwloc://NUMANode", "hwloc://Core"]);
        assert!(keys.iter().all(|key| info.value(key).as_deref() == Some("true")));
        assert_eq!(machine(&[3, 4]).info().value("hwloc://NUMANode").as_deref(), Some("false"));
    }
}
