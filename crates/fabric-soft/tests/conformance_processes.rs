//! The rules of `fabric` between two processes: the second context is opened, and called, in another one.

use std::sync::atomic::{AtomicU32, Ordering};

use base::log::{Level, Log};
use fabric::{Context, PeerIndex};
use fabric_conformance::remote::{Remote, process, serve};
use fabric_conformance::{Fixture, Other};
use fabric_soft::SoftContext;
use fabric_soft::shm::{Segment, SegmentServer, Shape, ShmLink, join, probe_cross_memory};
use fabric_soft::tcp::{self, JobSecret, Progress, TcpOptions};

const SHAPE: Shape = Shape { process_count: 2, channel_bytes: 64 << 10, shuttle_bytes: 0, arena_bytes: 16 << 20 };

fn over_shm(segment: Segment, place: u32) -> Result<Box<dyn Context>, String> {
    let link = ShmLink::join(segment, PeerIndex(place), probe_cross_memory()).map_err(|error| error.to_string())?;
    Ok(Box::new(SoftContext::new(link)))
}

fn over_tcp(progress: Progress) -> Result<Box<dyn Context>, String> {
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    let options = TcpOptions::new(JobSecret::new([42; 32]), listen, Log::new(Level::Error, None));
    tcp::open(TcpOptions { progress, ..options }).map_err(|error| error.to_string())
}

/// What the other process runs; nothing when the tests are run as usual.
#[test]
fn other_process() {
    let Some(stream) = process::parent().expect("a stream") else { return };
    let open = |how: &str| match how.split_once(' ') {
        Some((_, name)) => over_shm(join(name, SHAPE).map_err(|error| error.to_string())?, 1),
        None if how == "tcp-thread" => over_tcp(Progress::Thread),
        None => over_tcp(Progress::Caller),
    };
    serve(stream, open).expect("calls until the end");
}

/// Shared memory.
struct Shm {
    other: Remote,
    /// The device's own memory serves the cases.
    mapped: bool,
}

impl Fixture for Shm {
    fn name(&self) -> &'static str {
        "shm between processes"
    }

    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("rules-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let segment = Segment::create(SHAPE).map_err(|error| error.to_string())?;
        let (server, name) = SegmentServer::bind(segment.clone(), &unique).map_err(|error| error.to_string())?;
        let there = std::thread::scope(|scope| {
            scope.spawn(|| server.serve(1).expect("the other process fetches the segment"));
            self.other.open(&format!("shm {name}"))
        });
        Ok((over_shm(segment, 0)?, there?.into()))
    }

    fn allocates_memory(&self) -> bool {
        self.mapped
    }
}

/// Sockets.
struct Tcp {
    other: Remote,
    progress: Progress,
}

impl Fixture for Tcp {
    fn name(&self) -> &'static str {
        "tcp between processes"
    }

    fn open(&mut self) -> Result<(Box<dyn Context>, Other), String> {
        let how = if self.progress == Progress::Thread { "tcp-thread" } else { "tcp" };
        Ok((over_tcp(self.progress)?, self.other.open(how)?.into()))
    }
}

fn start() -> Remote {
    process::start("other_process").expect("a process")
}

fn run(fixture: &mut dyn Fixture, skipped: &[&str]) {
    let report = fabric_conformance::run(fixture, |_| true);
    println!("{report}");
    let names: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, skipped);
}

#[test]
fn shm() {
    run(&mut Shm { other: start(), mapped: false }, &[]);
}

#[test]
fn shm_in_mapped_memory() {
    run(&mut Shm { other: start(), mapped: true }, &[]);
}

#[test]
fn tcp() {
    run(&mut Tcp { other: start(), progress: Progress::Caller }, &["a_multicast_reaches_who_joined"]);
}

#[test]
fn tcp_with_adapter_threads() {
    run(&mut Tcp { other: start(), progress: Progress::Thread }, &["a_multicast_reaches_who_joined"]);
}
