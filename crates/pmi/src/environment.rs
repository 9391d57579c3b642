//! What the environment says about who started this process.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use crate::PmiError;

/// Where the launcher of this process can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// Nobody started this process as part of a job: a world of one.
    None,
    /// A socket was left open.
    Inherited {
        /// Number of the descriptor (`PMI_FD`).
        fd: RawFd,
        /// This process (`PMI_RANK`).
        rank: u32,
        /// All processes (`PMI_SIZE`).
        size: u32,
    },
    /// A port to connect to.
    Port {
        /// `host:port` (`PMI_PORT`).
        address: String,
        /// What to introduce ourselves as (`PMI_ID`).
        id: u32,
    },
}

/// Launchers that do not serve PMI-1, known by a variable.
struct Foreign {
    variable: &'static str,
    name: &'static str,
    /// A variable that holds the number of processes; a job of one is a world of one.
    size: Option<&'static str>,
    advice: &'static str,
}

const USE_OURS: &str = "start it with Ferrovia's or MPICH's mpiexec";
const USE_SRUN: &str = "start it with `srun --mpi=pmi2` or with mpiexec inside the allocation";

const FOREIGN: &[Foreign] = &[
    Foreign {
        variable: "OMPI_COMM_WORLD_SIZE",
        name: "Open MPI's mpirun",
        size: Some("OMPI_COMM_WORLD_SIZE"),
        advice: USE_OURS,
    },
    Foreign {
        variable: "PMIX_NAMESPACE",
        name: "a PMIx launcher",
        size: Some("OMPI_COMM_WORLD_SIZE"),
        advice: USE_OURS,
    },
    Foreign { variable: "PMIX_RANK", name: "a PMIx launcher", size: Some("OMPI_COMM_WORLD_SIZE"), advice: USE_OURS },
    Foreign {
        variable: "MV2_COMM_WORLD_SIZE",
        name: "MVAPICH's mpirun_rsh",
        size: Some("MV2_COMM_WORLD_SIZE"),
        advice: USE_OURS,
    },
    Foreign { variable: "JSM_NAMESPACE_SIZE", name: "jsrun", size: Some("JSM_NAMESPACE_SIZE"), advice: USE_OURS },
    Foreign { variable: "PALS_RANKID", name: "PALS", size: Some("PMI_SIZE"), advice: USE_OURS },
    Foreign { variable: "ALPS_APP_PE", name: "aprun", size: Some("PMI_SIZE"), advice: USE_OURS },
    Foreign {
        variable: "SLURM_STEP_NUM_TASKS",
        name: "srun without PMI",
        size: Some("SLURM_STEP_NUM_TASKS"),
        advice: USE_SRUN,
    },
];

impl Launcher {
    /// Reads the environment.
    ///
    /// # Errors
    /// Variables of a launcher that is not there, that is not spoken to here, or that are damaged.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, PmiError> {
        if let Some(fd) = env("PMI_FD") {
            let fd = number("PMI_FD", &fd, "the number of an open descriptor")?;
            let required = |variable: &str| {
                env(variable).ok_or_else(|| PmiError::NoServer {
                    variable: "PMI_FD".to_owned(),
                    value: fd.to_string(),
                    problem: format!("{variable} is not set"),
                })
            };
            let rank = number("PMI_RANK", &required("PMI_RANK")?, "a rank")?;
            let size_text = required("PMI_SIZE")?;
            let size = number("PMI_SIZE", &size_text, "a number of processes")?;
            if rank >= size {
                return Err(PmiError::BadVariable {
                    variable: "PMI_SIZE".to_owned(),
                    value: size_text,
                    expected: "above PMI_RANK",
                });
            }
            let fd = RawFd::try_from(fd).map_err(|_| PmiError::BadVariable {
                variable: "PMI_FD".to_owned(),
                value: fd.to_string(),
                expected: "the number of an open descriptor",
            })?;
            return Ok(Self::Inherited { fd, rank, size });
        }
        if let Some(address) = env("PMI_PORT") {
            let id = match env("PMI_ID") {
                Some(id) => number("PMI_ID", &id, "a number")?,
                None => {
                    return Err(PmiError::NoServer {
                        variable: "PMI_PORT".to_owned(),
                        value: address,
                        problem: "PMI_ID is not set".to_owned(),
                    });
                }
            };
            return Ok(Self::Port { address, id });
        }
        for foreign in FOREIGN {
            let Some(value) = env(foreign.variable) else { continue };
            let size = foreign.size.and_then(&env).and_then(|size| size.parse::<u32>().ok());
            if size != Some(1) {
                return Err(PmiError::OtherLauncher {
                    launcher: foreign.name.to_owned(),
                    variable: foreign.variable.to_owned(),
                    value,
                    advice: foreign.advice.to_owned(),
                });
            }
        }
        for variable in ["PMI_RANK", "PMI_SIZE", "PMI_ID", "PMI_JOBID"] {
            if let Some(value) = env(variable) {
                return Err(PmiError::NoServer {
                    variable: variable.to_owned(),
                    value,
                    problem: "neither PMI_FD nor PMI_PORT leads to it".to_owned(),
                });
            }
        }
        Ok(Self::None)
    }
}

/// Duplicates an inherited descriptor of this process into an owned one, closed on exec.
///
/// A safe way through the kernel's own bookkeeping; where a sandbox forbids `pidfd_getfd`, the caller
/// must adopt the descriptor itself.
///
/// # Errors
/// The descriptor is not open, or the kernel refuses.
pub fn adopt_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let me = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(me, fd, PidfdGetfdFlags::empty())?)
}

fn number(variable: &str, value: &str, expected: &'static str) -> Result<u32, PmiError> {
    value.trim().parse().map_err(|_| PmiError::BadVariable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launcher(variables: &[(&str, &str)]) -> Result<Launcher, PmiError> {
        Launcher::from_env(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_set_is_a_world_of_one() {
        assert_eq!(launcher(&[]).unwrap(), Launcher::None);
        assert_eq!(
            launcher(&[("PATH", "/bin"), ("SLURM_JOB_ID", "1"), ("SLURM_NTASKS", "8")]).unwrap(),
            Launcher::None
        );
        assert_eq!(launcher(&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")]).unwrap(), Launcher::None);
        assert_eq!(launcher(&[("SLURM_STEP_NUM_TASKS", "1")]).unwrap(), Launcher::None);
    }

    #[test]
    fn our_wires() {
        let inherited = launcher(&[("PMI_FD", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMIX_RANK", "1")]);
        assert_eq!(inherited.unwrap(), Launcher::Inherited { fd: 7, rank: 1, size: 2 });
        let port = launcher(&[("PMI_PORT", "node1:4000"), ("PMI_ID", "3")]);
        assert_eq!(port.unwrap(), Launcher::Port { address: "node1:4000".to_owned(), id: 3 });
    }

    #[test]
    fn never_a_silent_singleton() {
        let check = |variables: &[(&str, &str)], expected: &str| {
            let message = launcher(variables).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        };
        check(&[("PMI_RANK", "0")], "PMI_RANK=0");
        check(&[("PMI_SIZE", "1")], "unset PMI_SIZE");
        check(&[("PMI_FD", "7"), ("PMI_RANK", "0")], "PMI_SIZE is not set");
        check(&[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], "PMI_FD=x is not");
        check(&[("PMI_FD", "4294967295"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")], "PMI_FD=4294967295 is not");
        check(&[("PMI_FD", "7"), ("PMI_RANK", "2"), ("PMI_SIZE", "2")], "above PMI_RANK");
        check(&[("PMI_PORT", "a:1")], "PMI_ID is not set");
        check(&[("PMIX_NAMESPACE", "prterun-1"), ("PMIX_RANK", "0")], "PMIx");
        check(&[("OMPI_COMM_WORLD_SIZE", "4")], "Open MPI");
        check(&[("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_PROCID", "0")], "srun --mpi=pmi2");
        check(&[("MV2_COMM_WORLD_SIZE", "nonsense")], "mpirun_rsh");
    }

    #[test]
    fn an_open_descriptor_can_be_adopted() {
        use std::io::{Read, Write};
        use std::os::fd::AsRawFd;
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let Ok(adopted) = adopt_inherited(theirs.as_raw_fd()) else {
            eprintln!("skipped: pidfd_getfd is not permitted here");
            return;
        };
        std::os::unix::net::UnixStream::from(adopted).write_all(b"x").unwrap();
        let mut byte = [0];
        ours.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        assert!(adopt_inherited(1_000_000).is_err());
    }
}
