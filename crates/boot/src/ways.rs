//! Which device carries messages between whom.

use base::config::DeviceChoice;

use crate::BootError;
use crate::hosts::Hosts;

/// The device of a job as `rank` sees it, from what was asked for; [`DeviceChoice::Auto`] where that is for the processes
/// to find out when they meet.
///
/// # Errors
/// [`BootError::OtherHost`] if it does not reach all hosts.
pub(crate) fn device(asked: DeviceChoice, hosts: &Hosts, rank: u32) -> Result<DeviceChoice, BootError> {
    match (asked, hosts.first_elsewhere(rank)) {
        (DeviceChoice::Shm | DeviceChoice::ShmVerbs, Some(rank)) => {
            Err(BootError::OtherHost { rank, device: asked.name() })
        }
        _ if may_be_mixed(asked) && !hosts.are_several() => Ok(DeviceChoice::Shm),
        _ => Ok(asked),
    }
}

/// True if processes of a host share memory beside the device between hosts.
pub(crate) fn is_mixed(device: DeviceChoice) -> bool {
    device != between(device)
}

/// True if they do, or will once the processes of a job have found out what lies between their hosts.
pub(crate) fn may_be_mixed(device: DeviceChoice) -> bool {
    device == DeviceChoice::Auto || is_mixed(device)
}

/// The device between processes that do not share memory.
pub(crate) fn between(device: DeviceChoice) -> DeviceChoice {
    match device {
        DeviceChoice::ShmAndTcp => DeviceChoice::Tcp,
        DeviceChoice::ShmAndVerbs => DeviceChoice::Verbs,
        device => device,
    }
}

/// The device between two processes.
pub(crate) fn way(device: DeviceChoice, hosts: &Hosts, one: u32, other: u32) -> &'static str {
    let near = is_mixed(device) && hosts.first_mate(one) == hosts.first_mate(other);
    if near { DeviceChoice::Shm.name() } else { between(device).name() }
}

/// What goes which way under a setting, in a few words.
pub fn ways(asked: DeviceChoice) -> String {
    match asked {
        DeviceChoice::Auto => "shm among the processes of a host, between hosts InfiniBand if all are on one \
             subnet of it, otherwise tcp"
            .to_owned(),
        device @ (DeviceChoice::Shm | DeviceChoice::ShmVerbs) => format!("{} (one host only)", device.name()),
        device if is_mixed(device) => {
            format!("shm among the processes of a host, {} between hosts", between(device).name())
        }
        device => format!("{} between all processes", device.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: DeviceChoice, hosts: &Hosts, expected: Option<&str>) {
        assert_eq!(device(asked, hosts, 0).ok().map(DeviceChoice::name), expected, "{asked:?} {hosts:?}");
    }

    #[test]
    fn a_job_takes_the_device_that_reaches_its_hosts() {
        let one = Hosts::new(vec![0; 4], 0);
        let two = Hosts::new(vec![0, 0, 1, 1], 0);
        let treated_as_two = Hosts::new(vec![0; 4], 2);
        for (asked, on_one, on_two) in [
            (DeviceChoice::Auto, "shm", Some("auto")),
            (DeviceChoice::Shm, "shm", None),
            (DeviceChoice::ShmVerbs, "shm-verbs", None),
            (DeviceChoice::Tcp, "tcp", Some("tcp")),
            (DeviceChoice::ShmAndVerbs, "shm", Some("shm+verbs")),
        ] {
            check(asked, &one, Some(on_one));
            check(asked, &two, on_two);
            check(asked, &treated_as_two, on_two.or(Some(on_one)));
        }
    }

    #[test]
    fn each_pair_has_its_way() {
        let hosts = Hosts::new(vec![0, 1, 0, 1], 0);
        let of = |device, other| way(device, &hosts, 0, other);
        assert_eq!([1, 2, 3].map(|other| of(DeviceChoice::ShmAndTcp, other)), ["tcp", "shm", "tcp"]);
        assert_eq!([1, 2, 3].map(|other| of(DeviceChoice::Tcp, other)), ["tcp"; 3]);
        assert!(
            ways(DeviceChoice::Auto).contains("otherwise tcp")
                && ways(DeviceChoice::ShmAndTcp).contains("tcp between hosts")
        );
    }
}
