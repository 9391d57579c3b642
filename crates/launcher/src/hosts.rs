//! Hosts on the command line: accepted if they name this machine.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;

use crate::LaunchError;

/// Refuses a list such as `node1,node2:4` unless every name in it is this machine's.
pub(crate) fn check_list(list: &str) -> Result<(), LaunchError> {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).try_for_each(check_entry)
}

/// Refuses a host file unless every host in it is this machine.
pub(crate) fn check_file(path: &Path) -> Result<(), LaunchError> {
    const FILE_BYTES_MAX: u64 = 16 << 20;
    let doing = || format!("cannot read the host file {}", path.display());
    let bytes = std::fs::metadata(path).map_err(|error| LaunchError::system(doing(), error))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(LaunchError::Usage(format!("the host file {} is larger than 16 MiB", path.display())));
    }
    let text = std::fs::read_to_string(path).map_err(|error| LaunchError::system(doing(), error))?;
    text.lines()
        .filter_map(|line| line.split('#').next().unwrap_or_default().split_whitespace().next())
        .try_for_each(check_entry)
}

fn check_entry(entry: &str) -> Result<(), LaunchError> {
    let host = host_of(entry);
    if is_this_machine(host) {
        return Ok(());
    }
    Err(LaunchError::Usage(format!(
        "{host} is not this machine, and this mpiexec starts ranks on this machine only; \
         use the cluster's launcher (srun --mpi=pmi2, Hydra): programs need not be rebuilt"
    )))
}

/// `host`, `host:slots` or an address.
fn host_of(entry: &str) -> &str {
    if entry.parse::<IpAddr>().is_ok() {
        return entry;
    }
    match entry.rsplit_once(':') {
        Some((host, slots)) if !slots.is_empty() && slots.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => entry,
    }
}

fn is_this_machine(host: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if host.eq_ignore_ascii_case("localhost") || (!own.is_empty() && host.eq_ignore_ascii_case(&own)) {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(address) => is_own_address(address),
        Err(_) if !own.is_empty() && short(host) == short(&own) => true,
        Err(_) => (host, 0).to_socket_addrs().is_ok_and(|mut found| found.any(|found| is_own_address(found.ip()))),
    }
}

/// Only a machine's own addresses can be bound to.
fn is_own_address(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for list in ["localhost", "127.0.0.1:4,localhost:2", "::1", "", "LOCALHOST"] {
            assert!(check_list(list).is_ok(), "{list}");
        }
        assert!(check_list(&own).is_ok());
        assert!(check_list(&format!("{own}:2")).is_ok());
        let error = check_list("localhost,192.0.2.7").unwrap_err().to_string();
        assert!(error.contains("192.0.2.7 is not this machine") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn host_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        std::fs::write(&path, "# ours\nlocalhost slots=4\n\n127.0.0.1:2 # again\n").unwrap();
        assert!(check_file(&path).is_ok());
        std::fs::write(&path, "localhost\n192.0.2.7 slots=4\n").unwrap();
        assert!(check_file(&path).is_err());
        assert!(check_file(&folder.path().join("absent")).is_err());
    }
}
