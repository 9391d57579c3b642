//! Engines over verbs: a device is opened, and the processes exchange what they need to greet each other.
//!
//! ```text
//!   first process          the others
//!   put secret  ────────── barrier ──────────  get secret
//!   open the device, put the card              open the device, put the card
//!   ────────────────────── barrier ──────────────────────────────
//!   get all cards                              get all cards
//! ```
//! Adapters exchange the tables of their ports in the first step, too.

use std::time::Duration;

use base::Config;
use base::config::DeviceChoice;
use base::log::Log;
use engine::{Engine, Port, WaitPolicy};
use fabric::{Context, Device, Endpoint, FabricError};
use fabric_soft::shm::Shape;
use fabric_soft::tcp::{self, JobSecret};
use fabric_verbs::Survey;
use fabric_verbs::choice::{Wanted, choose_together, table_from_bytes, table_to_bytes};
use rustix::time::{ClockId, clock_gettime};

use crate::BootError;
use crate::manager::Manager;
use crate::pair::{in_segment, local_sockets, tcp_options};
use crate::secret::{draw, from_text, to_text};
use crate::start::shared_segment;

/// Bytes that a process of the job knows and others do not: a number for the job, and the secret of its sockets.
const SECRET_BYTES: usize = 40;
/// Ports of one process that others are told of: as many as fit a value of any process manager.
const OFFERS_MAX: usize = 15;

/// An engine for one of several processes, over the device that was chosen.
pub(crate) fn start(
    manager: &Manager,
    config: &Config,
    device: DeviceChoice,
    policy: WaitPolicy,
    log: Log,
) -> Result<Engine, BootError> {
    let survey = match device {
        DeviceChoice::Verbs => Some(survey(config)?),
        _ => None,
    };
    let first = Secret::draw()?;
    if manager.rank() == 0 {
        manager.put("ferrovia-secret", &to_text(&first.0))?;
    }
    if let Some(survey) = &survey {
        let offers = survey.offers();
        let table = table_to_bytes(&offers[..offers.len().min(OFFERS_MAX)]);
        manager.put(&format!("ferrovia-ports-{}", manager.rank()), &to_text(&table))?;
    }
    manager.barrier()?;
    let secret = Secret::parse(&manager.get("ferrovia-secret")?)?;
    let context: Box<dyn Context> = match (device, &survey) {
        (_, Some(survey)) => adapter(manager, survey)?,
        (DeviceChoice::Tcp, _) => sockets(manager, config, secret.of_sockets(), log)?,
        _ => shared_memory(manager, config)?,
    };
    let mut port = Port::open(context, manager.rank(), secret.job(), config, monotonic)?;
    manager.put(&format!("ferrovia-card-{}", manager.rank()), &port.card().to_string())?;
    manager.barrier()?;
    port.meet(cards(manager)?)?;
    Ok(Engine::over_port(port, config, policy)?)
}

/// Engines over contexts that reach each other, all in this process.
pub(crate) fn together(
    contexts: Vec<Box<dyn Context>>,
    config: &Config,
    policy: WaitPolicy,
) -> Result<Vec<Engine>, BootError> {
    let open = |(me, context)| Port::open(context, me, 1, config, monotonic);
    let mut ports = (0..).zip(contexts).map(open).collect::<Result<Vec<_>, _>>()?;
    let cards: Vec<Option<Endpoint>> = ports.iter().map(|port| Some(port.card().clone())).collect();
    ports.iter_mut().try_for_each(|port| port.meet(cards.clone()))?;
    ports.into_iter().map(|port| Ok(Engine::over_port(port, config, policy)?)).collect()
}

fn cards(manager: &Manager) -> Result<Vec<Option<Endpoint>>, BootError> {
    let keys: Vec<String> = (0..manager.size()).map(|rank| format!("ferrovia-card-{rank}")).collect();
    let cards = manager.get_all(&keys)?;
    cards.iter().map(|card| Ok(Some(card.parse()?))).collect()
}

/// Time since the system started.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn shared_memory(manager: &Manager, config: &Config) -> Result<Box<dyn Context>, BootError> {
    // The pool lies in the arena; what connections need at least may go beyond its limit. Pages are taken when touched.
    let arena_bytes = (config.pool_max_bytes + config.pool_max_bytes / 4 + (64 << 20)).next_multiple_of(4096);
    let shape = Shape { process_count: manager.size(), channel_bytes: config.channel_bytes, arena_bytes };
    Ok(in_segment(shared_segment(manager, "ferrovia-segment", shape)?, manager.rank(), config)?)
}

fn sockets(manager: &Manager, config: &Config, secret: JobSecret, log: Log) -> Result<Box<dyn Context>, BootError> {
    let options = match manager.first_rank_elsewhere() {
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

/// The port on whose network all processes are.
fn adapter(manager: &Manager, survey: &Survey) -> Result<Box<dyn Context>, BootError> {
    let keys: Vec<String> = (0..manager.size()).map(|rank| format!("ferrovia-ports-{rank}")).collect();
    let no = |why: String| BootError::NoAdapter(why);
    let mut tables = Vec::new();
    for (rank, table) in manager.get_all(&keys)?.iter().enumerate() {
        let table = from_text(table).and_then(|bytes| table_from_bytes(&bytes));
        tables.push(table.ok_or_else(|| no(format!("rank {rank} sent a table of ports that makes no sense")))?);
    }
    let Some(places) = choose_together(&tables) else {
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
    fn a_secret_travels_as_text() {
        let secret = Secret::draw().expect("random bytes");
        assert_eq!(Secret::parse(&to_text(&secret.0)).map(|again| again.job()).ok(), Some(secret.job()));
        assert!(Secret::parse("x00").is_err());
    }
}
