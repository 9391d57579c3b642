//! `ferrovia info`: version, library, settings, coverage, devices.

use crate::library::Library;
use anyhow::Result;
use base::Config;
use base::config::VARIABLES;
use serde::Serialize;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Options {
    /// Every setting: its value here, its default, what may be written, what it does
    #[arg(long)]
    config: bool,
    /// Which procedures of MPI 5 the library implements
    #[arg(long)]
    coverage: bool,
    /// Which devices carry RDMA here: what they can do, or why they are not used
    #[arg(long)]
    fabric: bool,
    /// Which protocol carries messages of which size, on which device, and the settings that change it
    #[arg(long)]
    protocols: bool,
    /// The same as JSON
    #[arg(long)]
    json: bool,
    /// With --config: the defaults as a page, docs/CONFIG.md
    #[arg(long, requires = "config", conflicts_with = "json")]
    markdown: bool,
}

#[derive(Serialize)]
struct Setting {
    name: &'static str,
    value: String,
    default: String,
    values: &'static str,
    help: &'static str,
}

#[derive(Serialize)]
struct Coverage {
    implemented: Vec<String>,
    missing: Vec<String>,
}

#[derive(Serialize)]
struct Summary {
    version: &'static str,
    library: String,
    says: String,
    cores: usize,
    device: String,
}

/// Prints what the options ask for.
///
/// # Errors
/// If the library cannot be asked, or a setting in the environment is not understood.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.config && options.markdown {
        print!("{}", settings_page());
    } else if options.config {
        let (settings, unknown) = settings()?;
        if options.json {
            print_json(&settings)?
        } else {
            print_settings(&settings)
        }
        unknown.iter().for_each(|warning| eprintln!("warning: {warning}"));
    } else if options.coverage {
        let coverage = coverage()?;
        if options.json { print_json(&coverage)? } else { print_coverage(&coverage) }
    } else if options.fabric {
        let devices = crate::fabric::devices()?;
        if options.json { print_json(&devices)? } else { crate::fabric::print(&devices) }
    } else if options.protocols {
        let protocols = crate::protocols::protocols()?;
        if options.json { print_json(&protocols)? } else { crate::protocols::print(&protocols) }
    } else {
        let summary = summary()?;
        if options.json { print_json(&summary)? } else { print_summary(&summary) }
    }
    Ok(ExitCode::SUCCESS)
}

fn settings() -> Result<(Vec<Setting>, Vec<String>)> {
    let (config, unknown) = Config::parse(std::env::vars())?;
    let default = Config::default();
    let settings = VARIABLES.iter().map(|variable| Setting {
        name: variable.name,
        value: variable.value(&config),
        default: variable.value(&default),
        values: variable.values,
        help: variable.help,
    });
    Ok((settings.collect(), unknown))
}

fn print_settings(settings: &[Setting]) {
    for setting in settings {
        let changed = if setting.value == setting.default { "" } else { "  (set in the environment)" };
        println!("{}={}{changed}", setting.name, setting.value);
        println!("    {}", setting.help);
        println!("    {}; default {:?}\n", setting.values, setting.default);
    }
}

/// `docs/CONFIG.md`: every setting with its default, wherever this runs.
fn settings_page() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         Environment variables that the library reads when MPI is initialised. `ferrovia info --config` shows them \
         with their values here; a name with this prefix that nobody knows is pointed out. Each is a control \
         variable of the tool interface (`MPI_T_cvar_*`) under the same name. Bytes may end in K, M or G.\n\n\
         This page is written by `cargo xtask docs`.\n\n\
         | variable | values | default | what it does |\n|---|---|---|---|\n",
    );
    let default = Config::default();
    for variable in VARIABLES {
        let value = variable.value(&default);
        let shown = if value.is_empty() { String::new() } else { format!("`{value}`") };
        let values = variable.values.replace('|', "\\|");
        page.push_str(&format!("| `{}` | {values} | {shown} | {} |\n", variable.name, variable.help));
    }
    page
}

fn coverage() -> Result<Coverage> {
    let (implemented, missing): (Vec<_>, Vec<_>) =
        Library::beside_this_program()?.coverage()?.into_iter().partition(|(_, implemented)| *implemented);
    let names = |list: Vec<(String, bool)>| list.into_iter().map(|(name, _)| name).collect();
    Ok(Coverage { implemented: names(implemented), missing: names(missing) })
}

fn print_coverage(coverage: &Coverage) {
    let total = coverage.implemented.len() + coverage.missing.len();
    println!("{} of {total} procedures of MPI 5 are implemented:", coverage.implemented.len());
    print_columns(&coverage.implemented);
    println!("\n{} are missing and return MPI_ERR_UNSUPPORTED_OPERATION:", coverage.missing.len());
    print_columns(&coverage.missing);
}

fn print_columns(names: &[String]) {
    const WIDTH: usize = 38;
    for row in names.chunks(3) {
        let line: String = row.iter().map(|name| format!("  {name:<WIDTH$}")).collect();
        println!("{}", line.trim_end());
    }
}

fn summary() -> Result<Summary> {
    let library = Library::beside_this_program()?;
    let (config, _) = Config::parse(std::env::vars())?;
    Ok(Summary {
        version: env!("CARGO_PKG_VERSION"),
        says: library.version()?,
        library: library.path.canonicalize().unwrap_or_else(|_| library.path.clone()).display().to_string(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        device: format!("{}: {}", config.device.name(), boot::ways(config.device)),
    })
}

fn print_summary(summary: &Summary) {
    println!("Ferrovia {}", summary.version);
    println!("library   {}", summary.library);
    println!("says      {}", summary.says);
    println!("cores     {}", summary.cores);
    println!("device    {}", summary.device);
    println!("\nferrovia info --config    every setting");
    println!("ferrovia info --coverage  which procedures are implemented");
    println!("ferrovia info --fabric    which devices carry RDMA here");
    println!("ferrovia info --protocols which protocol carries which message");
    println!("ferrovia doctor           what stands in the way on this machine");
}

fn print_json(value: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_settings_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CONFIG.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == settings_page(), "docs/CONFIG.md is stale; `cargo xtask docs` writes it anew");
    }

    #[test]
    fn every_setting_has_a_help_and_a_default() {
        let (settings, _) = settings().unwrap();
        assert!(!settings.is_empty());
        for setting in settings {
            assert!(setting.name.starts_with("FERROVIA_") && !setting.help.is_empty(), "{}", setting.name);
        }
    }
}
