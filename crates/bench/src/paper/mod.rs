//! `ferrovia bench paper NAME`: the tables and figures of a paper, as far as the devices at hand allow. The papers'
//! figures are of hardware twenty years older; what can be reproduced is the ratio that a mechanism makes.
//!
//! A paper is a file of data in `bench/papers`; `bench/papers/README.md` explains its members. It says which test
//! measures what a figure of the paper shows, and on which variants of our library: the same library under settings
//! that choose the paper's designs. All variants take turns within one run, as libraries do.

mod comparison;
mod data;
mod print;
mod request;

use crate::record::Records;
use crate::rounds::{self, Effort};
use crate::suite::Level;
use crate::{fabric, measure};
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Which paper, and how long to measure.
#[derive(clap::Args)]
pub struct Options {
    /// miba, mpich2-ib, tupleq, datatypes, veloblock or via2sisci; several, or all; `ferrovia bench paper list` tells
    /// what each is
    #[arg(required = true)]
    names: Vec<String>,
    /// The devices whose verbs stand beside the paper's
    #[arg(short, long, value_delimiter = ',', default_value = fabric::PRESENT, value_name = "NAME")]
    device: Vec<String>,
    #[command(flatten)]
    effort: Effort,
    /// Seconds of samples for each point
    #[arg(long, default_value_t = 0.1, value_name = "S", value_parser = measure::positive)]
    seconds: f64,
    /// Most samples of a point
    #[arg(long, default_value_t = 2000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    samples: u64,
    /// Ends a job that takes longer
    #[arg(long, default_value_t = 60.0, value_name = "S", value_parser = measure::positive)]
    limit: f64,
    /// Order of the jobs (default: drawn, and recorded)
    #[arg(long)]
    seed: Option<u64>,
    /// The installation that is measured (default: the one this program belongs to)
    #[arg(long, value_name = "DIR")]
    prefix: Option<String>,
    /// Also append the records, as JSON lines, to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write the comparison to this file, as a Markdown document that says where and when it was measured
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// The comparison as JSON lines
    #[arg(long, group = "form")]
    json: bool,
    /// The comparison as CSV
    #[arg(long, group = "form")]
    csv: bool,
    /// The comparison as Markdown
    #[arg(long, group = "form")]
    markdown: bool,
}

/// Options of another subcommand, read from words.
#[derive(clap::Parser)]
struct Words<T: clap::Args> {
    #[command(flatten)]
    options: T,
}

fn read<T: clap::Args>(words: Vec<String>) -> Result<T> {
    let words = std::iter::once("paper".to_owned()).chain(words);
    Ok(<Words<T> as clap::Parser>::try_parse_from(words)?.options)
}

/// Measures and compares.
///
/// # Errors
/// If there is no such paper, or nothing could be measured.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.names == ["list"] {
        for (name, _) in data::PAPERS {
            let paper = data::paper(name)?;
            println!(
                "{name:<10} {} ({} rows, {} figures, {} not reproduced)",
                paper.title,
                paper.rows.len(),
                paper.figures.len(),
                paper.missing.len()
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    let names: Vec<&str> = match options.names.iter().any(|name| name == "all") {
        true => data::PAPERS.iter().map(|(name, _)| *name).collect(),
        false => options.names.iter().map(String::as_str).collect(),
    };
    let mut papers = names.iter().map(|name| data::paper(name)).collect::<Result<Vec<_>>>()?;
    let devices = fabric::devices(&options.device)?;
    let present = fabric::devices(&[fabric::PRESENT.to_owned()])?;
    papers.iter_mut().for_each(|paper| paper.keep_devices(&present));
    let mut failed = false;
    let (mut sections, mut all) = (String::new(), Records::default());
    for paper in papers.iter().take_while(|_| !rounds::is_interrupted()) {
        let records = measured(paper, &devices, options)?;
        let compared = comparison::compare(&paper.entries(), &records, &devices);
        let text = match options {
            Options { json: true, .. } => print::json(&compared)?,
            Options { csv: true, .. } => print::csv(&compared)?,
            _ => print::text(paper, &compared, &devices, options.markdown),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        for failure in &records.failures {
            eprintln!("{} on {} ranks, {}: {}", failure.test, failure.ranks, failure.library, failure.reason);
        }
        if options.json || options.csv {
            for line in compared.iter().filter(|line| line.here.is_none()) {
                eprintln!("nothing was measured of {}", print::of_whom(line));
            }
        }
        failed |= !records.failures.is_empty() || compared.iter().any(|line| line.here.is_none());
        sections.push('\n');
        sections.push_str(&print::text(paper, &compared, &devices, true));
        all.append(records);
    }
    if let Some(file) = &options.document {
        let document = print::document(&all, &sections);
        std::fs::write(file, document).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if rounds::is_interrupted() {
        return Ok(rounds::interrupted_code());
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs whatever the paper has rows of.
fn measured(paper: &data::Paper, devices: &[String], options: &Options) -> Result<Records> {
    let entries = paper.entries();
    let mut records = Records::default();
    let mut suites = Vec::new();
    for level in [Level::Fabric, Level::Mpi, Level::App] {
        let suite = request::suite(level, &entries, devices)?;
        if !suite.tests.is_empty() {
            suites.push((level, suite));
        }
    }
    let (began, count) = (Instant::now(), suites.len());
    for (index, (level, suite)) in suites.into_iter().enumerate().take_while(|_| !rounds::is_interrupted()) {
        let mut words = options.words(&options.effort.share(began.elapsed(), count - index));
        records.append(match level {
            Level::Fabric => {
                // Those asked for, and those that rows name.
                let named = entries.iter().filter(|entry| entry.measurement.level == Level::Fabric);
                let mut all = devices.to_vec();
                all.extend(named.filter_map(|entry| entry.measurement.device.clone()));
                words.extend(["--device".to_owned(), all.join(",")]);
                fabric::records(&suite, &read(words)?)?
            }
            Level::Mpi | Level::App => {
                words.extend(["--no-floor", "--limit"].map(str::to_owned));
                words.push(options.limit.to_string());
                words.extend(options.prefix.iter().flat_map(|prefix| ["--prefix".to_owned(), prefix.clone()]));
                let mut measuring: measure::Options = read(words)?;
                measuring.with_variants(paper.library_variants()?, entries.iter().any(|row| row.paper_peer.is_some()));
                measure::records(&suite, &measuring)?
            }
        });
    }
    if records.runs.is_empty() && !paper.rows.is_empty() {
        bail!("nothing was measured");
    }
    Ok(records)
}

impl Options {
    /// The words that all levels share.
    fn words(&self, effort: &Effort) -> Vec<String> {
        let mut words = vec!["all".to_owned()];
        words.extend(effort.words());
        words.extend(["--seconds".to_owned(), self.seconds.to_string()]);
        words.extend(["--samples".to_owned(), self.samples.to_string()]);
        words.extend(self.seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
        words.extend(self.output.iter().flat_map(|path| ["--output".to_owned(), path.display().to_string()]));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_the_other_subcommands_are_understood() {
        let options: Options = read(["miba", "--seed", "7", "--output", "x"].map(str::to_owned).to_vec()).unwrap();
        read::<measure::Options>(options.words(&options.effort)).unwrap();
        read::<fabric::Options>(options.words(&options.effort)).unwrap();
    }
}
