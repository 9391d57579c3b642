//! Opening a device for a test: the measured end, its helpers beside it in threads or processes, and whose time counts.

use super::end::{End, Shape, Source};
use super::helper::{Helper, Role};
use super::process::{Process, Setup};
use super::turns::turns;
use anyhow::{Context as _, Result, bail};
use base::Config;
use boot::SimulatedTime;
use fabric::Context;
use std::time::{Duration, Instant};

/// Where the ends of a connection live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Ends {
    /// Each in a process of its own, where the device can do that; otherwise in threads.
    Processes,
    /// In threads of one process.
    Threads,
}

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Its name.
    pub device: String,
    /// Where ends live.
    pub ends: Ends,
    /// The longest packet, in bytes, if that is chosen.
    pub mtu_bytes: Option<u64>,
}

/// A helper that is wanted.
pub struct Wanted {
    /// What its end is like.
    pub shape: Shape,
    /// What comes into its buffers.
    pub sources: Vec<Source>,
    /// What it does.
    pub role: Role,
}

/// Whose time counts.
pub enum Clock {
    /// This machine's.
    Real(Instant),
    /// That of the simulated network.
    Simulated(SimulatedTime),
}

impl Clock {
    /// Nanoseconds since some moment.
    pub fn now_ns(&self) -> f64 {
        match self {
            Self::Real(start) => start.elapsed().as_nanos() as f64,
            Self::Simulated(time) => time.now().as_nanos() as f64,
        }
    }

    /// Lets so much time pass with computing.
    pub fn compute(&self, time: Duration) {
        match self {
            Self::Real(_) => super::helper::spin(time),
            Self::Simulated(simulated) if !time.is_zero() => simulated.pass(time),
            Self::Simulated(_) => {}
        }
    }
}

/// The measured end, connected to its helpers.
pub struct Meeting {
    /// The measured end.
    pub mine: End,
    /// The others.
    pub helpers: Vec<Helper>,
    /// Whose time counts.
    pub clock: Clock,
}

impl Opening {
    /// The settings, with what the opening chooses.
    fn settings(&self) -> Vec<(String, String)> {
        let mtu = self.mtu_bytes.filter(|_| self.device == "verbs");
        mtu.iter().map(|bytes| ("FERROVIA_VERBS_MTU".to_owned(), bytes.to_string())).collect()
    }

    fn config(&self) -> Result<Config> {
        boot::configuration_with(&self.settings()).context("the settings in the environment")
    }

    /// So many contexts of the device in this process.
    ///
    /// # Errors
    /// Why there is no such device here.
    pub fn several(&self, count: u32) -> Result<Vec<Box<dyn Context>>> {
        boot::open_together(&self.device, count, &self.config()?).map_err(anyhow::Error::msg)
    }

    /// The measured end and its helpers, connected. `sources`: what comes into the measured end's buffers.
    ///
    /// # Errors
    /// If the device refuses something, or a process cannot be started.
    pub fn meet(&self, shape: &Shape, sources: Vec<Source>, wanted: Vec<Wanted>) -> Result<Meeting> {
        let has_packets = matches!(self.device.as_str(), "sim" | "verbs");
        if self.mtu_bytes.is_some() && !has_packets {
            bail!("{} does not cut messages into packets: it has no MTU to choose", self.device);
        }
        if self.device == "sim" {
            return self.simulated(shape, sources, wanted);
        }
        if self.ends == Ends::Processes && boot::APART.contains(&self.device.as_str()) {
            return self.apart(shape, sources, wanted);
        }
        let count = u32::try_from(wanted.len() + 1)?;
        let contexts = boot::open_together(&self.device, count, &self.config()?).map_err(anyhow::Error::msg)?;
        let (mine, others) = together(contexts, shape, sources, &wanted)?;
        let helpers = others.into_iter().zip(wanted).map(|(end, wanted)| Helper::thread(end, wanted.role, None));
        Ok(Meeting { mine, helpers: helpers.collect(), clock: Clock::Real(Instant::now()) })
    }

    fn simulated(&self, shape: &Shape, sources: Vec<Source>, wanted: Vec<Wanted>) -> Result<Meeting> {
        let (contexts, time) = boot::open_simulated(u32::try_from(wanted.len() + 1)?, self.mtu_bytes)?;
        let (mut mine, others) = together(contexts, shape, sources, &wanted)?;
        let mut turns = turns(wanted.len() + 1).into_iter();
        mine.take_turns(turns.next().context("the measured end has a turn")?);
        let helpers = others
            .into_iter()
            .zip(wanted)
            .zip(turns)
            .map(|((end, wanted), turn)| Helper::thread(end, wanted.role, Some(turn)));
        Ok(Meeting { mine, helpers: helpers.collect(), clock: Clock::Simulated(time) })
    }

    fn apart(&self, shape: &Shape, sources: Vec<Source>, wanted: Vec<Wanted>) -> Result<Meeting> {
        let (config, settings) = (self.config()?, self.settings());
        let invitation =
            boot::invite(&self.device, u32::try_from(wanted.len())?, &config).map_err(anyhow::Error::msg)?;
        let (mut processes, ends) = (Vec::new(), wanted.len() + 1);
        for (connection, wanted) in wanted.into_iter().enumerate() {
            processes.push(Process::start(&Setup {
                invitation: invitation.text().to_owned(),
                place: u32::try_from(connection + 1)?,
                ends,
                settings: settings.clone(),
                shape: wanted.shape,
                sources: wanted.sources,
                connection,
                role: wanted.role,
            })?);
        }
        let context = invitation.open(&config).map_err(anyhow::Error::msg)?;
        let mut mine = End::new(context, shape, 0, sources)?;
        let card = mine.card()?;
        let cards = processes.iter_mut().map(Process::card).collect::<Result<Vec<_>>>()?;
        mine.connect(&cards, 0)?;
        processes.iter_mut().try_for_each(|process| process.connect(&card))?;
        let helpers = processes.into_iter().map(Helper::Process).collect();
        Ok(Meeting { mine, helpers, clock: Clock::Real(Instant::now()) })
    }
}

/// Ends in contexts of this process, connected: the measured one and the others.
fn together(
    contexts: Vec<Box<dyn Context>>,
    shape: &Shape,
    sources: Vec<Source>,
    wanted: &[Wanted],
) -> Result<(End, Vec<End>)> {
    let mut contexts = contexts.into_iter();
    let mut mine = End::new(contexts.next().context("the device was opened")?, shape, 0, sources)?;
    let mut others = Vec::new();
    for (side, (context, wanted)) in (1..).zip(contexts.zip(wanted)) {
        others.push(End::new(context, &wanted.shape, side, wanted.sources.clone())?);
    }
    let card = mine.card()?;
    let cards = others.iter().map(End::card).collect::<Result<Vec<_>>>()?;
    mine.connect(&cards, 0)?;
    for (place, other) in others.iter_mut().enumerate() {
        other.connect(std::slice::from_ref(&card), place)?;
    }
    Ok((mine, others))
}
