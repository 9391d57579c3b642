//! `ferrovia info --protocols`: which protocol carries which message, and the settings that change it.

use anyhow::Result;
use base::Config;
use base::config::VARIABLES;
use boot::ProtocolReport;
use serde::Serialize;

/// What the settings that protocols look at begin with.
const SETTINGS: &[&str] = &[
    "FERROVIA_CHANNEL",
    "FERROVIA_EAGER",
    "FERROVIA_SHARED_COPY",
    "FERROVIA_UNEXPECTED",
    "FERROVIA_RENDEZVOUS",
    "FERROVIA_LARGE_COPY",
    "FERROVIA_CROSS_MEMORY",
    "FERROVIA_REGISTRATION",
    "FERROVIA_POOL",
    "FERROVIA_CREDITS",
    "FERROVIA_TUPLE",
    "FERROVIA_DATATYPE",
];

/// The whole answer.
#[derive(Serialize)]
pub struct Protocols {
    devices: Vec<DeviceProtocols>,
    settings: Vec<Choice>,
}

/// One device.
#[derive(Serialize)]
struct DeviceProtocols {
    device: &'static str,
    note: String,
    rows: Vec<Row>,
}

/// Messages of these sizes go this way.
#[derive(Serialize)]
struct Row {
    from_bytes: u64,
    to_bytes: Option<u64>,
    in_one_piece: Option<bool>,
    way: &'static str,
    settings: &'static [&'static str],
}

/// A setting that protocols look at.
#[derive(Serialize)]
struct Choice {
    name: &'static str,
    value: String,
    is_default: bool,
    help: &'static str,
}

/// The protocols with the settings of the environment.
///
/// # Errors
/// A setting that is not understood.
pub fn protocols() -> Result<Protocols> {
    let config = boot::configuration()?;
    let default = Config::default();
    let is_meant = |name: &str| SETTINGS.iter().any(|prefix| name.starts_with(prefix));
    let settings = VARIABLES.iter().filter(|variable| is_meant(variable.name)).map(|variable| Choice {
        name: variable.name,
        value: variable.value(&config),
        is_default: variable.value(&config) == variable.value(&default),
        help: variable.help,
    });
    let devices = boot::protocols(&config).into_iter().map(described).collect();
    Ok(Protocols { devices, settings: settings.collect() })
}

fn described(report: ProtocolReport) -> DeviceProtocols {
    let row = |row: protocol::table::Row| Row {
        from_bytes: row.from_bytes,
        to_bytes: row.to_bytes,
        in_one_piece: row.in_one_piece,
        way: row.way.description(),
        settings: row.way.settings(),
    };
    DeviceProtocols { device: report.device, note: report.note, rows: report.rows.into_iter().map(row).collect() }
}

/// As tables.
pub fn print(protocols: &Protocols) {
    for device in &protocols.devices {
        println!("{}", device.device);
        if !device.note.is_empty() {
            println!("  ({})", device.note);
        }
        for row in &device.rows {
            let to = row.to_bytes.map_or("and more".into(), |to| format!("to {to}"));
            let shape = match row.in_one_piece {
                None => "",
                Some(true) => "in one piece",
                Some(false) => "in pieces",
            };
            println!("  {:>10} {to:<13}{shape:<14}{:<68}{}", row.from_bytes, row.way, row.settings.join(" "));
        }
        println!();
    }
    println!("settings that protocols look at");
    for choice in &protocols.settings {
        let changed = if choice.is_default { "" } else { "  (set in the environment)" };
        println!("  {:<38}{}{changed}", choice.name, choice.value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_that_a_row_names_is_in_the_registry() {
        let protocols = protocols().expect("the environment of tests is understood");
        assert!(protocols.devices.iter().any(|device| device.device == "shm"));
        for setting in protocols.devices.iter().flat_map(|device| &device.rows).flat_map(|row| row.settings) {
            assert!(VARIABLES.iter().any(|variable| variable.name == *setting), "{setting}");
            assert!(protocols.settings.iter().any(|choice| choice.name == *setting), "{setting} is listed");
        }
        assert!(protocols.settings.iter().any(|choice| choice.name == "FERROVIA_REGISTRATION_CACHE"));
    }
}
