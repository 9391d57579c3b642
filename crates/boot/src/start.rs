//! Starting: who we are, which device there is for whom, an engine over it.

use std::time::Duration;

use base::Config;
use base::config::{CrossMemory, DeviceChoice, InitialErrors};
use base::copy::PAGE_BYTES;
use base::log::{Level, Log};
use collectives::Selection;
use engine::{CHANNEL_MEMORY_MAX_BYTES, Engine, WaitPolicy};
use fabric::PeerIndex;
use fabric_soft::shm::{Shape, ShmPeers, StopPolicy, probe_cross_memory};
use mpi_core::environment::Predefined;
use mpi_core::{ProcessManager, ThreadLevel, World};
use protocol::fastpath::Geometry;

use crate::hardware::{cache_share_bytes, near_cache_share_bytes};
use crate::manager::Manager;
use crate::{BootError, connected, segment, ways};

/// Address space of the shuttles of one process, at most.
const SHUTTLES_MAX_BYTES: usize = 64 << 20;

/// The settings of this process, from its environment; unknown names with our prefix are pointed out.
///
/// # Errors
/// The first setting that is not understood.
pub fn configuration() -> Result<Config, BootError> {
    configuration_with(&[])
}

/// As [`configuration`], with `overrides` (names and values) in place of what the environment says.
///
/// # Errors
/// As [`configuration`].
pub fn configuration_with(overrides: &[(String, String)]) -> Result<Config, BootError> {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (config, unknown) = Config::parse(variables.chain(overrides.iter().cloned()))?;
    for line in unknown {
        Log::new(config.log, None).say(Level::Warn, format_args!("{line}"));
    }
    Ok(config)
}

/// The world of this process: all processes its launcher started with it, or itself alone if it was started by hand.
///
/// # Errors
/// One line that says what is in the way.
pub fn start(thread_level: ThreadLevel) -> Result<World, BootError> {
    connect()?.start(thread_level, &[])
}

/// Greets the launcher, if there is one; no other process is waited for.
///
/// # Errors
/// One line that says what is in the way.
pub fn connect() -> Result<Job, BootError> {
    let config = configuration()?;
    let manager = Manager::from_environment(&config)?;
    Ok(Job { config, manager })
}

/// A process that knows its launcher and has not met the other processes.
pub struct Job {
    config: Config,
    manager: Manager,
}

impl Job {
    /// Index of this process among all.
    pub fn rank(&self) -> u32 {
        self.manager.rank()
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.manager.size()
    }

    /// Whoever started the processes.
    pub fn process_manager(&self) -> &dyn ProcessManager {
        &self.manager
    }

    /// Meets the other processes of the job; returns once all of them have come. Settings named in `overrides`
    /// have these values in place of those of the environment.
    ///
    /// # Errors
    /// One line that says what is in the way.
    pub fn start(self, thread_level: ThreadLevel, overrides: &[(String, String)]) -> Result<World, BootError> {
        let Job { mut config, mut manager } = self;
        if !overrides.is_empty() {
            config = configuration_with(overrides)?;
            manager.limit_hosts(config.host_ranks_max);
        }
        if manager.size() > 1 && manager.rank() == 0 {
            manager.put(CORES_KEY, &core_count(&config).to_string())?;
        }
        let mut engine = start_engine(&manager, &config)?;
        let mut selection = Selection::default();
        selection.oversubscribed = manager.hosts().ranks_at_most() > agreed_core_count(&manager, &config)?;
        engine.set_crowded(selection.oversubscribed);
        selection.reproducible = config.reproducible;
        selection.shared = config.shared_collectives;
        selection.read_min_bytes = config.collective_read_min_bytes.map(|bytes| bytes as u64);
        selection.apply(&config.collectives)?;
        let world = World::new(engine, Box::new(manager), thread_level, selection);
        world.limit_context_ids(config.context_ids_max);
        world.set_initial_error_handler(match config.initial_errors {
            InitialErrors::Fatal => Predefined::Fatal,
            InitialErrors::Abort => Predefined::Abort,
            InitialErrors::Return => Predefined::Return,
        });
        Ok(world)
    }
}

fn start_engine(manager: &Manager, config: &Config) -> Result<Engine, BootError> {
    let (rank, size) = (manager.rank(), manager.size());
    let log = Log::new(config.log, Some(rank));
    let beside = manager.hosts().ranks_beside(rank);
    let policy = wait_policy(beside, config);
    let channel_memory_bytes = config.channel_memory_bytes.or_else(|| channel_memory(beside, core_count(config)));
    let near_cache_bytes = near_cache_share_bytes(beside);
    let config = &Config { channel_memory_bytes, near_cache_bytes, ..config.clone() };
    let device = ways::device(config.device, manager.hosts(), rank)?;
    manager.use_device(device);
    // A process alone sends to nobody but itself.
    if device != DeviceChoice::Shm && size > 1 {
        let (mut engine, device) = connected::start(manager, config, device, policy, log)?;
        manager.use_device(device);
        crate::tuples::use_if_wanted(&mut engine, manager, device, config, &log)?;
        return Ok(engine);
    }
    let segment = segment::of_all(manager, shape(size, config))?;
    let cross_memory = cross_memory(config);
    let copies = copies(&cross_memory);
    log.say(Level::Info, format_args!("device shm, {size} processes, {copies}"));
    let peers =
        ShmPeers::join(segment, PeerIndex(rank), cross_memory)?.with_stop_policy(stop_policy(config, log, Vec::new()));
    let mut engine = Engine::new(Box::new(peers), config, policy)?;
    crate::tuples::use_if_wanted(&mut engine, manager, device, config, &log)?;
    Ok(engine)
}

/// The segment of `process_count` mapped peers.
pub(crate) fn shape(process_count: u32, config: &Config) -> Shape {
    let geometry = Geometry::new(config);
    let part = (SHUTTLES_MAX_BYTES / process_count.max(1) as usize) & !(PAGE_BYTES - 1);
    let shuttle_bytes = lockfree::Shuttles::footprint(geometry.shuttle_bytes()).min(part);
    Shape { process_count, channel_bytes: geometry.reserved_bytes(), shuttle_bytes, arena_bytes: 0 }
}

/// Whether processes may copy from each other here, and may want to; the reason if not.
pub(crate) fn cross_memory(config: &Config) -> Result<(), String> {
    match config.cross_memory {
        CrossMemory::Auto => probe_cross_memory(),
        CrossMemory::Off => Err("switched off by FERROVIA_CROSS_MEMORY".into()),
    }
}

/// What is done about processes of this host that are stopped; `ranks`: theirs, by place.
pub(crate) fn stop_policy(config: &Config, log: Log, ranks: Vec<u32>) -> StopPolicy {
    StopPolicy { silence: config.silence, log, ranks }
}

/// Whether processes copy from each other, in a few words.
pub(crate) fn copies(cross_memory: &Result<(), String>) -> String {
    match cross_memory {
        Ok(()) => "cross-memory attach allowed".to_owned(),
        Err(why) => format!("no cross-memory attach: {why}"),
    }
}

/// What the channels into a process may take of the cache that all processes of this host fill: half of its share, or all
/// where few of them run at a time, and use little of a block.
fn channel_memory(process_count: u32, core_count: u32) -> Option<usize> {
    let share = cache_share_bytes(process_count)?;
    let part = if process_count > core_count { share } else { share / 2 };
    Some(part.min(CHANNEL_MEMORY_MAX_BYTES))
}

fn wait_policy(process_count: u32, config: &Config) -> WaitPolicy {
    let policy = WaitPolicy::for_host(process_count, core_count(config));
    let spin_count = config.spin_count.unwrap_or(policy.polls());
    let close_count = policy.close_count.min(spin_count);
    WaitPolicy {
        close_count,
        spin_count: spin_count - close_count,
        yield_count: config.yield_count.unwrap_or(policy.yield_count),
        // Who asks for yields gets them, whatever they cost.
        dear_yield: config.yield_count.map_or(policy.dear_yield, |_| Duration::MAX),
    }
}

/// Under which the first process tells the others on how many cores it may run.
const CORES_KEY: &str = "ferrovia-cores";

/// Cores as the first process counts them. Processes may be bound to different numbers of cores, and all must choose the
/// same algorithms; asked once the processes have met.
fn agreed_core_count(manager: &Manager, config: &Config) -> Result<u32, BootError> {
    if manager.size() == 1 {
        return Ok(core_count(config));
    }
    let told = manager.get(CORES_KEY)?;
    // A process manager that garbles a number garbles it alike for all.
    Ok(told.parse().unwrap_or(1))
}

/// Cores this process may run on, or what was said of them.
fn core_count(config: &Config) -> u32 {
    let counted =
        || std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
    config.core_count.unwrap_or_else(counted).max(1)
}
