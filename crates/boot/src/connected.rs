//! Engines over verbs: a device is opened, and the processes exchange what they need to greet each other.
//!
//! ```text
//!   first process          the others
//!   put secret  ────────── barrier ──────────  get secret
//!   open the device, put the card              open the device, put the card
//!   ────────────────────── barrier ──────────────────────────────
//!   get all cards                              get all cards
//! ```
//! Adapters exchange the tables of their ports in the first step, too. Where the device is for the way between hosts only,
//! the first process of each host offers the others its segment in that step, and cards of host-mates are left aside.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Config;
use base::config::{DeviceChoice, Medium, Sizes};
use base::log::{Level, Log};
use engine::{Engine, Port, WaitPolicy};
use fabric::{Access, Context, Device, Endpoint, FabricError, PeerIndex};
use fabric_soft::shm::{Segment, Shape, ShmPeers};
use fabric_soft::tcp::{self, JobSecret};
use fabric_verbs::choice::{Wanted, choose_together, table_from_bytes, table_to_bytes};
use fabric_verbs::{Survey, VerbsDevice};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::hosts::{Hosts, ranges};
use crate::manager::Manager;
use crate::pair::{in_segment, local_sockets, tcp_options};
use crate::secret::{draw, from_text, to_text};
use crate::segment::Offer;
use crate::start::{copies, cross_memory, shape, stop_policy};
use crate::ways::{between, is_mixed, may_be_mixed};
use crate::{BootError, segment};

/// Bytes that a process of the job knows and others do not: a number for the job, and the secret of its sockets.
const SECRET_BYTES: usize = 40;
/// Ports of one process that others are told of: as many as fit a value of any process manager.
const OFFERS_MAX: usize = 15;

/// An engine for one of several processes, over the device that was chosen, or that all of them find to be the best; and
/// which that is.
pub(crate) fn start(
    manager: &Manager,
    config: &Config,
    device: DeviceChoice,
    policy: WaitPolicy,
    log: Log,
) -> Result<(Engine, DeviceChoice), BootError> {
    let is_auto = device == DeviceChoice::Auto;
    let survey = match between(device) {
        DeviceChoice::Verbs => Some(survey(config)?),
        _ if is_auto => survey_that_works(config, &log),
        _ => None,
    };
    let first = Secret::draw()?;
    if manager.rank() == 0 {
        manager.put("ferrovia-secret", &to_text(&first.0))?;
    }
    if is_auto || survey.is_some() {
        let offers = survey.as_ref().map_or(&[][..], Survey::offers);
        let table = table_to_bytes(&offers[..offers.len().min(OFFERS_MAX)]);
        manager.put(&format!("ferrovia-ports-{}", manager.rank()), &to_text(&table))?;
    }
    let mates = if may_be_mixed(device) { manager.hosts().mates(manager.rank()) } else { Vec::new() };
    let shape = shape(mates.len() as u32, config);
    // Who is alone on its host needs none.
    let offer = (mates.len() > 1).then(|| Offer::new(manager, "segment", &mates, shape, true)).transpose()?;
    manager.barrier()?;
    let secret = Secret::parse(&manager.get("ferrovia-secret")?)?;
    let segment = offer.map(|offer| offer.take(manager)).transpose()?;
    let places = if is_auto || survey.is_some() { places(manager)? } else { None };
    let device = match (is_auto, &places) {
        (true, Some(_)) => DeviceChoice::ShmAndVerbs,
        (true, None) => DeviceChoice::ShmAndTcp,
        (false, _) => device,
    };
    let context: Box<dyn Context> = match (between(device), &survey) {
        (DeviceChoice::Verbs, Some(survey)) => adapter(manager, survey, places)?,
        (DeviceChoice::Tcp, _) => sockets(manager, config, secret.of_sockets(), log)?,
        _ => shared_memory(manager, config)?,
    };
    let mut port = Port::open(context, manager.rank(), secret.job(), config, monotonic)?;
    manager.put(&format!("ferrovia-card-{}", manager.rank()), &port.card().to_string())?;
    manager.barrier()?;
    port.meet(cards(manager, if segment.is_some() { &mates } else { &[] })?)?;
    let neighbours = segment.map(|segment| Neighbours { segment, mates });
    say_ways(manager, config, device, neighbours.as_ref(), log);
    Ok((engine(port, neighbours, config, policy)?, device))
}

/// One line on who is reached how.
fn say_ways(manager: &Manager, config: &Config, device: DeviceChoice, neighbours: Option<&Neighbours>, log: Log) {
    let (start, others) = (format!("device {}, {} processes", device.name(), manager.size()), between(device).name());
    let Some(Neighbours { mates, .. }) = neighbours else {
        let all = if is_mixed(device) { format!(": {others} to all") } else { String::new() };
        return log.say(Level::Info, format_args!("{start}{all}"));
    };
    let (among, copies) = (ranges(mates), copies(&cross_memory(config)));
    log.say(Level::Info, format_args!("{start}: shm among ranks {among}, {others} to the others; {copies}"));
}

/// The processes of one host, as far as they share memory: by place, in ascending order.
struct Neighbours {
    segment: Segment,
    mates: Vec<u32>,
}

/// An engine over a port that knows everybody but the neighbours.
fn engine(
    port: Port,
    neighbours: Option<Neighbours>,
    config: &Config,
    policy: WaitPolicy,
) -> Result<Engine, BootError> {
    let Some(Neighbours { segment, mates }) = neighbours else {
        return Ok(Engine::over_port(port, config, policy)?);
    };
    let place = mates.iter().position(|mate| *mate == port.rank()).unwrap_or(mates.len());
    let mut peers = ShmPeers::join(segment, PeerIndex(place as u32), cross_memory(config))?;
    if config.host_ranks_max > 0 {
        peers.share_processors();
    }
    let peers = peers.with_stop_policy(stop_policy(config, Log::new(config.log, Some(port.rank())), mates.clone()));
    Ok(Engine::with_neighbours(Box::new(peers), mates, port, config, policy)?)
}

/// Engines over contexts that reach each other, all in this process and, as far as the first settings want that, on one
/// host. Each has its own settings; where there are none for it, the first.
pub(crate) fn together(
    contexts: Vec<Box<dyn Context>>,
    configs: &[&Config],
    policy: WaitPolicy,
    clock: fn() -> Duration,
) -> Result<Vec<Engine>, BootError> {
    let Some(first) = configs.first() else { return Ok(Vec::new()) };
    let is_mixed = is_mixed(first.device);
    let hosts = Hosts::new(vec![0; contexts.len()], first.host_ranks_max);
    let config_of = |rank: u32| configs.get(rank as usize).unwrap_or(first);
    let open = |(me, context)| Port::open(context, me, 1, config_of(me), clock);
    let mut ports = (0..).zip(contexts).map(open).collect::<Result<Vec<_>, _>>()?;
    let cards: Vec<Endpoint> = ports.iter().map(|port| port.card().clone()).collect();
    let mut segments: BTreeMap<u32, Segment> = BTreeMap::new();
    let mut neighbours = Vec::new();
    for (me, port) in (0..).zip(&mut ports) {
        let mates = if is_mixed { hosts.mates(me) } else { Vec::new() };
        let known = (0..).zip(&cards).map(|(rank, card)| (!mates.contains(&rank)).then(|| card.clone()));
        port.meet(known.collect())?;
        let Some(leader) = mates.first() else {
            neighbours.push(None);
            continue;
        };
        let bells = || Ok(Segment::create_with_bells(shape(mates.len() as u32, first))?);
        let segment = segment::of_host(&mut segments, *leader, bells)?;
        neighbours.push(Some(Neighbours { segment, mates }));
    }
    let engine = |(port, neighbours): (Port, _)| {
        let config = config_of(port.rank());
        engine(port, neighbours, config, policy)
    };
    ports.into_iter().zip(neighbours).map(engine).collect()
}

/// The cards of all processes, but for those that are reached otherwise.
fn cards(manager: &Manager, mates: &[u32]) -> Result<Vec<Option<Endpoint>>, BootError> {
    let others = (0..manager.size()).filter(|rank| !mates.contains(rank));
    let keys: Vec<String> = others.clone().map(|rank| format!("ferrovia-card-{rank}")).collect();
    let mut cards = vec![None; manager.size() as usize];
    for (rank, card) in others.zip(manager.get_all(&keys)?) {
        cards[rank as usize] = Some(card.parse()?);
    }
    Ok(cards)
}

/// Time since the system started.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn shared_memory(manager: &Manager, config: &Config) -> Result<Box<dyn Context>, BootError> {
    // The pool lies in the arena; what connections need at least may go beyond its limit. Pages are taken when touched.
    let Sizes { pool_max_bytes, channel_bytes, .. } = config.sizes(Medium::Memory);
    let arena_bytes = (pool_max_bytes + pool_max_bytes / 4 + (64 << 20)).next_multiple_of(4096);
    let shape = Shape { process_count: manager.size(), channel_bytes, arena_bytes, ..Shape::default() };
    Ok(in_segment(segment::of_all(manager, shape)?, manager.rank(), config)?)
}

fn sockets(manager: &Manager, config: &Config, secret: JobSecret, log: Log) -> Result<Box<dyn Context>, BootError> {
    let options = match manager.hosts().first_elsewhere(manager.rank()) {
        None => local_sockets(config, secret, log)?,
        Some(rank) => {
            let options = tcp_options(config, secret, log)?;
            if options.listen.iter().all(|address| address.ip().is_loopback()) {
                return Err(BootError::NoNetwork { rank, interfaces: config.tcp.interfaces.clone() });
            }
            options
        }
    };
    Ok(tcp::open(options)?)
}

fn survey(config: &Config) -> Result<Survey, BootError> {
    Survey::new(&Wanted::from(&config.verbs)).map_err(|why| BootError::NoAdapter(why.to_string()))
}

/// The adapters of this host that can be used, if any can: that one is there says little where memory may not be pinned.
fn survey_that_works(config: &Config, log: &Log) -> Option<Survey> {
    let tried = || -> Result<Survey, String> {
        let mut survey = Survey::new(&Wanted::from(&config.verbs)).map_err(|why| why.to_string())?;
        let may_pin = may_pin(getrlimit(Resource::Memlock).current, config.sizes(Medium::Memory).pool_max_bytes);
        survey.offer_unasked(|device| may_pin.clone().and_then(|()| trial(device).map_err(|why| why.to_string())));
        if survey.offers().is_empty() {
            let rejected: Vec<String> = survey.rejections().iter().map(ToString::to_string).collect();
            return Err(rejected.join("; "));
        }
        Ok(survey)
    };
    tried().inspect_err(|why| log.say(Level::Info, format_args!("no adapter to other hosts: {why}"))).ok()
}

/// Opens an adapter and registers memory with it.
fn trial(device: VerbsDevice) -> Result<(), FabricError> {
    const TRIED_BYTES: usize = 1 << 20;
    let mut context = Box::new(device).open()?;
    let domain = context.allocate_protection_domain()?;
    let (region, _memory) = context.allocate(domain, TRIED_BYTES, Access::REMOTE_ALL)?;
    context.deregister(region)?;
    context.deallocate_protection_domain(domain)
}

/// Whether a process may pin what a job takes, by its limit on that; `None`: there is no limit.
fn may_pin(limit: Option<u64>, pool_max_bytes: usize) -> Result<(), String> {
    /// Beside the pool: queues, rings and the first messages of users.
    const BESIDE_BYTES: u64 = 16 << 20;
    let needed = (pool_max_bytes as u64).saturating_add(BESIDE_BYTES);
    match limit.filter(|limit| *limit < needed) {
        None => Ok(()),
        Some(limit) => Err(format!(
            "{} KiB of memory may be pinned (ulimit -l), and with FERROVIA_POOL_MAX up to {} KiB are",
            limit >> 10,
            needed >> 10
        )),
    }
}

/// For each process, which of the ports it offers is on the network of all; `None` if there is no such network.
fn places(manager: &Manager) -> Result<Option<Vec<usize>>, BootError> {
    let key = |rank: u32| format!("ferrovia-ports-{rank}");
    let parsed = |rank: usize, table: &str| {
        let table = from_text(table).and_then(|bytes| table_from_bytes(&bytes));
        table.ok_or_else(|| BootError::NoAdapter(format!("rank {rank} sent a table of ports that makes no sense")))
    };
    // Where the first has none the others need not be asked.
    if parsed(0, &manager.get(&key(0))?)?.is_empty() {
        return Ok(None);
    }
    let keys: Vec<String> = (0..manager.size()).map(key).collect();
    let tables = manager.get_all(&keys)?;
    let tables = tables.iter().enumerate().map(|(rank, table)| parsed(rank, table)).collect::<Result<Vec<_>, _>>()?;
    Ok(choose_together(&tables))
}

/// The port on whose network all processes are.
fn adapter(manager: &Manager, survey: &Survey, places: Option<Vec<usize>>) -> Result<Box<dyn Context>, BootError> {
    let no = |why: String| BootError::NoAdapter(why);
    let Some(places) = places else {
        let rejected: Vec<String> = survey.rejections().iter().map(ToString::to_string).collect();
        return Err(no(format!("there is no network on which all processes have a port; {}", rejected.join("; "))));
    };
    let device = survey.device(places[manager.rank() as usize]).map_err(|why| no(why.to_string()))?;
    Ok(Box::new(device).open()?)
}

/// What the processes of a job know, and nobody else.
struct Secret([u8; SECRET_BYTES]);

impl Secret {
    fn draw() -> Result<Self, BootError> {
        Ok(Self(draw()?))
    }

    fn parse(text: &str) -> Result<Self, BootError> {
        let secret = from_text(text).and_then(|bytes| bytes.try_into().ok());
        secret.map(Self).ok_or_else(|| FabricError::BadEndpoint("the job's secret is garbled").into())
    }

    fn job(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("eight of them"))
    }

    fn of_sockets(&self) -> JobSecret {
        JobSecret::new(self.0[8..].try_into().expect("32 of them"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_taken_unasked_where_enough_memory_may_be_pinned() {
        let pool = 64 << 20;
        assert_eq!(may_pin(None, pool), Ok(()));
        assert_eq!(may_pin(Some(80 << 20), pool), Ok(()));
        let why = may_pin(Some(8 << 20), pool).expect_err("too little");
        assert!(why.contains("8192 KiB") && why.contains("81920 KiB"), "{why}");
        assert!(may_pin(Some(u64::MAX - 1), usize::MAX).is_err());
    }

    #[test]
    fn a_secret_travels_as_text() {
        let secret = Secret::draw().expect("random bytes");
        assert_eq!(Secret::parse(&to_text(&secret.0)).map(|again| again.job()).ok(), Some(secret.job()));
        assert!(Secret::parse("x00").is_err());
    }
}
