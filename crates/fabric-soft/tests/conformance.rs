//! The rules of `fabric`, on the software adapter over each of its links.

use base::log::{Level, Log};
use fabric::{Context, PeerIndex};
use fabric_conformance::{Fixture, Other};
use fabric_soft::shm::{Segment, Shape, ShmLink, probe_cross_memory};
use fabric_soft::tcp::{self, JobSecret, Progress, TcpOptions};
use fabric_soft::{LoopbackHub, SimNetwork, SimPlan, SoftContext};

struct Loopback;

impl Fixture for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String> {
        let hub = LoopbackHub::new();
        let open = || -> Result<Box<dyn Context>, String> {
            let link = hub.link().map_err(|error| error.to_string())?;
            Ok(Box::new(SoftContext::new(link)))
        };
        Ok((open()?, open()?.into()))
    }
}

#[test]
fn loopback() {
    let report = fabric_conformance::run(&mut Loopback, is_quick);
    println!("{report}");
    assert!(report.skipped.is_empty(), "the software adapter can do everything");
}

/// All cases; under miri, which takes seconds for each, those that reach every access to registered memory.
fn is_quick(name: &str) -> bool {
    const UNDER_MIRI: &[&str] = &[
        "a_send_fills_a_receive",
        "keys_bounds_and_rights_are_checked_at_the_target",
        "writes_and_reads_move_exactly_what_they_name",
        "atomics_return_what_was_there",
        "device_memory_is_registered_and_shared",
        "xrc_reaches_shared_queues_by_number",
        "lists_of_different_shapes_are_gathered_and_scattered",
        "inline_bytes_are_the_callers_again_at_once",
    ];
    !cfg!(miri) || UNDER_MIRI.contains(&name)
}

/// Shared memory, both ends in this process.
struct Shm {
    channel_bytes: usize,
    cross_memory: Result<(), String>,
    /// Memory is mapped at both ends.
    mapped: bool,
}

impl Fixture for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String> {
        let shape =
            Shape { process_count: 2, channel_bytes: self.channel_bytes, shuttle_bytes: 0, arena_bytes: 16 << 20 };
        let segment = Segment::create(shape).map_err(|error| error.to_string())?;
        let open = |place| -> Result<Box<dyn Context>, String> {
            let link = ShmLink::join(segment.clone(), PeerIndex(place), self.cross_memory.clone());
            Ok(Box::new(SoftContext::new(link.map_err(|error| error.to_string())?)))
        };
        Ok((open(0)?, open(1)?.into()))
    }

    fn allocates_memory(&self) -> bool {
        self.mapped
    }
}

#[test]
fn shm() {
    let cross_memory = probe_cross_memory();
    if let Err(why) = &cross_memory {
        println!("skipped: the case in which memory is copied once: {why}");
        return;
    }
    over_shm(Shm { channel_bytes: 64 << 10, cross_memory, mapped: false }, |_| true);
}

#[test]
fn shm_in_mapped_memory() {
    let cross_memory = Err("switched off by the test".into());
    over_shm(Shm { channel_bytes: 64 << 10, cross_memory, mapped: true }, is_quick);
}

fn over_shm(mut shm: Shm, wanted: impl Fn(&str) -> bool) {
    let report = fabric_conformance::run(&mut shm, wanted);
    println!("{report}");
    assert!(report.skipped.is_empty(), "the software adapter can do everything");
}

#[test]
fn shm_staged_through_a_small_channel() {
    let cross_memory = Err("switched off by the test".into());
    over_shm(Shm { channel_bytes: 4 << 10, cross_memory, mapped: false }, is_quick);
}

/// The simulator, both ends in one network.
struct Sim(SimPlan);

impl Fixture for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String> {
        let network = SimNetwork::new(self.0.clone());
        let open = || -> Result<Box<dyn Context>, String> {
            Ok(Box::new(SoftContext::new(network.link().map_err(|error| error.to_string())?)))
        };
        Ok((open()?, open()?.into()))
    }
}

fn over_sim(plan: SimPlan) {
    let report = fabric_conformance::run(&mut Sim(plan), |_| true);
    println!("{report}");
    let without_descriptor = report.skipped.iter().all(|(_, why)| why.contains("descriptor"));
    assert!(without_descriptor, "virtual time cannot be slept through; all else it can do: {:?}", report.skipped);
}

#[test]
fn sim() {
    over_sim(SimPlan::new(1));
}

#[test]
fn sim_with_delays() {
    over_sim(SimPlan { jitter_ns: 50_000, ..SimPlan::new(2) });
}

/// Connections keep every rule while packets vanish and links are full; datagrams do not arrive all, so their cases
/// have no meaning here.
#[test]
fn sim_with_losses() {
    let plan = SimPlan { jitter_ns: 5_000, loss_ppm: 50_000, full_ppm: 50_000, packets_max: 8, ..SimPlan::new(3) };
    let report =
        fabric_conformance::run(&mut Sim(plan), |name| !name.contains("datagram") && !name.contains("multicast"));
    println!("{report}");
    assert!(report.passed.len() > 30, "{report}");
}

/// Sockets, both ends in this process.
struct Tcp {
    listen: &'static str,
    check_payloads: bool,
    connections: usize,
    progress: Progress,
}

const PLAIN: Tcp = Tcp { listen: "127.0.0.1:0", check_payloads: false, connections: 1, progress: Progress::Caller };

impl Fixture for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String> {
        let open = || -> Result<Box<dyn Context>, String> {
            let listen = vec![self.listen.parse().expect("an address")];
            let log = Log::new(Level::Error, None);
            let options = TcpOptions::new(JobSecret::new([42; 32]), listen, log);
            let (check_payloads, connections, progress) = (self.check_payloads, self.connections, self.progress);
            let options = TcpOptions { check_payloads, connections, progress, ..options };
            tcp::open(options).map_err(|error| error.to_string())
        };
        Ok((open()?, open()?.into()))
    }
}

fn over_tcp(mut tcp: Tcp) {
    let report = fabric_conformance::run(&mut tcp, |_| true);
    println!("{report}");
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, ["a_multicast_reaches_who_joined"], "everything but multicast");
}

#[test]
fn tcp() {
    over_tcp(PLAIN);
}

#[test]
fn tcp_with_checked_payloads() {
    over_tcp(Tcp { check_payloads: true, ..PLAIN });
}

#[test]
fn tcp_over_several_connections() {
    over_tcp(Tcp { connections: 4, ..PLAIN });
}

#[test]
fn tcp_with_adapter_threads() {
    over_tcp(Tcp { progress: Progress::Thread, ..PLAIN });
}

#[test]
fn tcp_over_ipv6() {
    if let Err(why) = std::net::TcpListener::bind("[::1]:0") {
        println!("skipped: no IPv6 here: {why}");
        return;
    }
    over_tcp(Tcp { listen: "[::1]:0", ..PLAIN });
}
