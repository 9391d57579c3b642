//! `ferrovia info --fabric`: a block per kind of device, with what it can do or why it is not used.

use anyhow::Result;
use boot::DeviceReport;
use fabric::{Capabilities, WriteOrder};
use serde::Serialize;
use std::collections::BTreeMap;

/// One kind of device.
#[derive(Serialize)]
pub struct Device {
    name: &'static str,
    available: bool,
    /// Why it is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<String>,
    /// Which adapter and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    capabilities: BTreeMap<&'static str, bool>,
    limits: BTreeMap<&'static str, u64>,
    /// What is worse than it could be, and why; ports that are not used.
    notes: Vec<String>,
}

/// Looks for devices with the settings of the environment.
///
/// # Errors
/// A setting that is not understood.
pub fn devices() -> Result<Vec<Device>> {
    let config = boot::configuration()?;
    Ok(boot::devices(&config).into_iter().map(described).collect())
}

fn described(report: DeviceReport) -> Device {
    let mut device = Device {
        name: report.name,
        available: report.found.is_ok(),
        rejected: None,
        description: None,
        capabilities: BTreeMap::new(),
        limits: BTreeMap::new(),
        notes: report.notes,
    };
    match report.found {
        Err(why) => device.rejected = Some(why),
        Ok(found) => {
            device.capabilities = abilities(&found).into();
            device.limits = found.limits.rows().into();
            let lacking = [("asynchronous progress", found.asynchronous), ("single copy", found.single_copy)];
            let reasons =
                lacking.into_iter().filter_map(|(what, has)| has.err().map(|why| format!("no {what}: {why}")));
            device.notes.extend(reasons);
            device.description = Some(found.description);
        }
    }
    device
}

fn abilities(found: &Capabilities) -> [(&'static str, bool); 12] {
    [
        ("reliable_connections", found.reliable_connections),
        ("xrc", found.xrc),
        ("datagrams", found.datagrams),
        ("multicast", found.multicast),
        ("atomics", found.atomics),
        ("completion_descriptor", found.completion_descriptor),
        ("multi_queue_receives", found.multi_queue_receives),
        ("independent_queues", found.independent_queues),
        ("mapped_memory", found.mapped_memory),
        ("asynchronous", found.asynchronous.is_ok()),
        ("single_copy", found.single_copy.is_ok()),
        ("last_word_last", found.write_order == WriteOrder::ByWord),
    ]
}

/// For people.
pub fn print(devices: &[Device]) {
    for device in devices {
        match (&device.description, &device.rejected) {
            (Some(description), _) => println!("{}  {description}", device.name),
            (None, why) => println!("{}  not used: {}", device.name, why.as_deref().unwrap_or("unknown")),
        }
        let names = |wanted| {
            let chosen = device.capabilities.iter().filter(move |(_, has)| **has == wanted).map(|(name, _)| *name);
            chosen.collect::<Vec<_>>().join(", ")
        };
        if device.available {
            println!("    can      {}", names(true));
            println!("    cannot   {}", names(false));
        }
        device.limits.iter().for_each(|(name, value)| println!("    {name:<26} {value}"));
        device.notes.iter().for_each(|note| println!("    {note}"));
        println!();
    }
}
