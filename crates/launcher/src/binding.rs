//! Which processors a rank may run on.

use rustix::thread::{CpuSet, sched_getaffinity};

use crate::LaunchError;

/// The processor sets that ranks are dealt, in turn; none if ranks are not bound.
pub(crate) fn places(what: &str) -> Result<Vec<CpuSet>, LaunchError> {
    let unit = what.split(':').next().unwrap_or_default();
    match unit {
        "none" | "" => Ok(Vec::new()),
        "hwthread" => Ok(allowed()?.into_iter().map(|cpu| set_of(&[cpu])).collect()),
        "core" => {
            let allowed = allowed()?;
            let mut cores: Vec<(String, Vec<usize>)> = Vec::new();
            for cpu in allowed {
                let siblings = siblings(cpu);
                match cores.iter_mut().find(|(name, _)| *name == siblings) {
                    Some((_, cpus)) => cpus.push(cpu),
                    None => cores.push((siblings, vec![cpu])),
                }
            }
            Ok(cores.iter().map(|(_, cpus)| set_of(cpus)).collect())
        }
        other => Err(LaunchError::Usage(format!("--bind-to {other} is not supported; use none, core or hwthread"))),
    }
}

fn allowed() -> Result<Vec<usize>, LaunchError> {
    let set =
        sched_getaffinity(None).map_err(|error| LaunchError::system("cannot read the processor affinity", error))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// The kernel's list of the hardware threads of a core; its own number where the kernel does not say.
fn siblings(cpu: usize) -> String {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    std::fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string())
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allowed_processor_has_its_place() {
        let all = allowed().unwrap();
        for unit in ["core", "hwthread", "core:overload-allowed"] {
            let places = places(unit).unwrap();
            let mut covered: Vec<usize> =
                all.iter().copied().filter(|cpu| places.iter().any(|set| set.is_set(*cpu))).collect();
            covered.sort_unstable();
            assert_eq!(covered, all, "{unit}");
            assert_eq!(places.iter().map(|set| set.count() as usize).sum::<usize>(), all.len(), "{unit}");
        }
        assert!(places("none").unwrap().is_empty());
        assert!(places("moon").is_err());
    }
}
