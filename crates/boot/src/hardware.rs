//! What the kernel tells of the processors of this machine: which of them share which piece of hardware.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mpi_core::environment::Hardware;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Processors with higher numbers are not looked at.
const CPUS_MAX: u32 = 1 << 16;

/// The hardware of this machine; what the kernel does not show is left out.
pub fn hardware() -> Hardware {
    read(Path::new("/sys/devices/system"), allowed())
}

/// What each of `process_count` processes spread over this machine has of the last cache, in bytes; `None` if the kernel
/// does not tell.
pub(crate) fn cache_share_bytes(process_count: u32) -> Option<usize> {
    cache_share(Path::new("/sys/devices/system"), *allowed().first()?, None, process_count)
}

/// The same of the cache next to a core, or to a few of them.
pub(crate) fn near_cache_share_bytes(process_count: u32) -> Option<usize> {
    cache_share(Path::new("/sys/devices/system"), *allowed().first()?, Some("2"), process_count)
}

/// Of the first cache of a level, or of the last of all.
fn cache_share(system: &Path, cpu: u32, level: Option<&str>, process_count: u32) -> Option<usize> {
    let folders = (0..).map(|index| system.join(format!("cpu/cpu{cpu}/cache/index{index}")));
    let mut folders = folders.take_while(|folder| folder.join("level").exists());
    let cache = match level {
        Some(_) => folders.find(|folder| line(&folder.join("level")).as_deref() == level)?,
        None => folders.last()?,
    };
    let kib: usize = line(&cache.join("size"))?.strip_suffix('K')?.parse().ok()?;
    let sharing = cpu_list(&cache.join("shared_cpu_list")).len();
    let online = cpu_list(&system.join("cpu/online")).len().max(1);
    let processes = (process_count as usize * sharing).div_ceil(online).max(1);
    kib.checked_mul(1024).map(|bytes| bytes / processes)
}

/// Processors this process may run on.
fn allowed() -> Vec<u32> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect(),
        Err(_) => Vec::new(),
    }
}

/// Reads the folder `system` as the kernel lays it out.
fn read(system: &Path, allowed: Vec<u32>) -> Hardware {
    let mut hardware = Hardware::new(allowed);
    let cpus = cpu_list(&system.join("cpu/online"));
    let of_each_cpu = |file: &str| -> Vec<Vec<u32>> {
        cpus.iter().map(|cpu| cpu_list(&system.join(format!("cpu/cpu{cpu}/{file}")))).collect()
    };
    hardware.add("hwloc://Package", of_each_cpu("topology/package_cpus_list"));
    hardware.add("hwloc://Die", of_each_cpu("topology/die_cpus_list"));
    hardware.add("hwloc://NUMANode", numa_nodes(system));
    for level in ["3", "2", "1"] {
        hardware.add(&format!("hwloc://L{level}Cache"), caches(system, &cpus, level));
    }
    hardware.add("hwloc://Core", of_each_cpu("topology/core_cpus_list"));
    hardware.add("hwloc://PU", cpus.iter().map(|cpu| vec![*cpu]));
    hardware
}

fn numa_nodes(system: &Path) -> Vec<Vec<u32>> {
    let nodes = cpu_list(&system.join("node/online"));
    nodes.iter().map(|node| cpu_list(&system.join(format!("node/node{node}/cpulist")))).collect()
}

/// Who shares each data or unified cache of this level.
fn caches(system: &Path, cpus: &[u32], level: &str) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    for cpu in cpus {
        for index in 0.. {
            let folder = system.join(format!("cpu/cpu{cpu}/cache/index{index}"));
            let Some(its_level) = line(&folder.join("level")) else { break };
            let holds_data = line(&folder.join("type")).is_some_and(|kind| kind != "Instruction");
            if its_level == level && holds_data {
                found.push(cpu_list(&folder.join("shared_cpu_list")));
            }
        }
    }
    found
}

fn line(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Numbers of a list such as `0-2,5`; nothing if it is not one.
fn cpu_list(path: &Path) -> Vec<u32> {
    line(path).and_then(|text| parse_list(&text)).unwrap_or_default()
}

fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = BTreeSet::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= CPUS_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_understood_or_refused() {
        assert_eq!(parse_list("0-2,5,7-7"), Some(vec![0, 1, 2, 5, 7]));
        assert_eq!(parse_list(""), Some(vec![]));
        for bad in ["x", "1-", "-1", "0-4294967295", "1,,a"] {
            assert_eq!(parse_list(bad), None, "{bad}");
        }
    }

    /// A machine of two packages with two cores of two threads each, laid out as the kernel does.
    #[test]
    fn the_kernels_folders_become_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        write("cpu/online".into(), "0-7");
        write("node/online".into(), "0-1");
        for cpu in 0..8 {
            let (package, core) = (if cpu < 4 { "0-3" } else { "4-7" }, format!("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1));
            write(format!("node/node{}/cpulist", cpu / 4), package);
            write(format!("cpu/cpu{cpu}/topology/package_cpus_list"), package);
            write(format!("cpu/cpu{cpu}/topology/core_cpus_list"), &core);
            for (index, level, kind, shared) in
                [(0, "1", "Instruction", "9"), (1, "1", "Data", &core), (2, "3", "Unified", package)]
            {
                write(format!("cpu/cpu{cpu}/cache/index{index}/level"), level);
                write(format!("cpu/cpu{cpu}/cache/index{index}/type"), kind);
                write(format!("cpu/cpu{cpu}/cache/index{index}/shared_cpu_list"), shared);
            }
        }
        let instances = |allowed: &[u32]| {
            let hardware = read(folder.path(), allowed.to_vec());
            ["Package", "Die", "NUMANode", "L3Cache", "L2Cache", "L1Cache", "Core", "PU"]
                .map(|kind| hardware.instance(&format!("hwloc://{kind}")))
        };
        assert_eq!(instances(&[6]), [Some(4), None, Some(4), Some(4), None, Some(6), Some(6), Some(6)]);
        assert_eq!(instances(&[2, 3]), [Some(0), None, Some(0), Some(0), None, Some(2), Some(2), None]);
        assert_eq!(instances(&[0, 7]), [None; 8]);
        assert_eq!(read(Path::new("/nonexistent"), vec![0]).info().len(), 2, "the machine is always known");
    }

    #[test]
    fn a_cache_is_shared_by_those_who_are_near_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        write("cpu/online", "0-7");
        for (index, level, size, shared) in [(0, "1", "32K", "5"), (1, "2", "2048K", "4-5"), (2, "3", "32768K", "4-7")]
        {
            write(&format!("cpu/cpu5/cache/index{index}/level"), level);
            write(&format!("cpu/cpu5/cache/index{index}/size"), size);
            write(&format!("cpu/cpu5/cache/index{index}/shared_cpu_list"), shared);
        }
        let share = |processes| cache_share(folder.path(), 5, None, processes);
        assert_eq!([1, 2, 4, 8, 64].map(share), [32, 32, 16, 8, 1].map(|mib| Some(mib << 20)));
        let near = |processes| cache_share(folder.path(), 5, Some("2"), processes);
        assert_eq!([1, 4, 8, 16].map(near), [2048, 2048, 1024, 512].map(|kib| Some(kib << 10)));
        assert_eq!(cache_share(folder.path(), 5, Some("4"), 1), None);
        assert_eq!(cache_share(folder.path(), 0, None, 2), None, "nothing is told of this one");
    }

    #[test]
    fn this_process_may_run_somewhere() {
        assert!(!allowed().is_empty());
        assert!(hardware().info().value("hwloc://Machine").is_some());
    }
}
