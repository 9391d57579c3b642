//! The machine and its state, as far as the system tells.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// Where a run took place.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Environment {
    /// Model of the processor.
    pub processor: String,
    /// Cores this process may use.
    pub cores: u32,
    /// Memory of the machine.
    pub memory_kib: u64,
    /// Operating system and its release.
    pub kernel: String,
    /// Frequency governor; empty where there is none to be seen, as in most virtual machines.
    pub governor: String,
    /// Hypervisor, if the processor says that it is virtual.
    pub virtual_machine: bool,
    /// Processes ready to run, averaged over the last minute, when the run began.
    pub load: f64,
    /// Version of Ferrovia's tools.
    pub version: String,
    /// Variables that set an MPI library.
    pub variables: BTreeMap<String, String>,
    /// What the caller adds, such as the commit.
    pub notes: BTreeMap<String, String>,
}

impl Environment {
    /// What can be seen now.
    pub fn captured(notes: &[(String, String)]) -> Self {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = rustix::system::uname();
        let mpi = ["FERROVIA_", "MPIR_", "I_MPI_", "OMPI_", "UCX_", "FI_"];
        Self {
            processor: member(&processor, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cores(),
            memory_kib: member(&read("/proc/meminfo"), "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse().ok())
                .unwrap_or(0),
            kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim().to_owned(),
            virtual_machine: member(&processor, "flags").is_some_and(|flags| flags.contains(" hypervisor")),
            load: read("/proc/loadavg").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            variables: std::env::vars().filter(|(name, _)| mpi.iter().any(|start| name.starts_with(start))).collect(),
            notes: notes.iter().cloned().collect(),
        }
    }

    /// One line for a person.
    pub fn shown(&self) -> String {
        let machine = if self.virtual_machine { ", virtual" } else { "" };
        let governor = if self.governor.is_empty() { "" } else { ", governor " };
        format!(
            "{}{machine}, {} cores, {}{governor}{}, load {:.2} at the start",
            self.processor, self.cores, self.kernel, self.governor, self.load
        )
    }
}

/// Cores this process may use.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `name : value`.
fn member(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_seen_here() {
        let environment = Environment::captured(&[("commit".to_owned(), "abc".to_owned())]);
        assert!(environment.cores > 0 && environment.memory_kib > 0 && !environment.kernel.is_empty());
        assert_eq!(environment.notes["commit"], "abc");
        assert!(environment.shown().contains("cores"));
    }

    #[test]
    fn members() {
        let text = "processor\t: 0\nmodel name\t: A: B\n";
        assert_eq!(member(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(member(text, "model"), None);
    }
}
