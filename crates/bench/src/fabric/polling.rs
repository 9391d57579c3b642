//! What a turn of an engine costs that has many peers, and nothing to do. Paper: veloblock §6.3.2, where polling more
//! channels costs more than they bring.

use super::Found;
use super::sampling::Sampling;
use anyhow::{Context as _, Result, bail};
use base::Config;
use datatype::SendBuf;
use engine::ContextId;
use std::collections::BTreeMap;

/// More turns than it takes until channels that are not used are not polled.
const TURNS_UNTIL_COLD: u32 = 3 * 4096;

/// Runs the test: `peers` engines of this process have each sent a message to one, and are silent from then on.
///
/// # Errors
/// If the parameters make no sense, or the system has no memory for so many.
pub fn measure(values: &BTreeMap<String, String>, sampling: &Sampling) -> Result<Vec<Found>> {
    let value = |name: &str| values.get(name).with_context(|| format!("the test has no parameter {name}"));
    let peers: u32 = value("peers")?.parse().context("peers is a count")?;
    let channels_polled_min = match value("polled")?.as_str() {
        "all" => u32::MAX,
        "used" => Config::default().channels_polled_min,
        other => bail!("polled is all or used, not {other}"),
    };
    let config = Config { channels_polled_min, channels_max: u32::MAX, ..Config::default() };
    let mut engines = boot::local_engines(peers + 1, &config)?;
    let (owner, others) = engines.split_first_mut().context("there are engines")?;
    let message = SendBuf::from_owned(Box::new([7; 8]));
    for engine in others {
        if !engine.try_send(0, ContextId(1), 1, &message) {
            bail!("an empty channel has no room");
        }
    }
    for _ in 0..TURNS_UNTIL_COLD {
        owner.progress();
    }
    if owner.unexpected_count() != peers as usize {
        bail!("{} of {peers} messages came", owner.unexpected_count());
    }
    let taken = sampling.take(|| {
        owner.progress();
        Ok::<(), anyhow::Error>(())
    })?;
    Ok(Found::time(taken))
}
