//! `ferrovia bench report`: the records of runs as one page, with nothing to fetch, or as Markdown.

mod figure;
mod markdown;
mod page;
mod plot;

pub(crate) use markdown::circumstances;

use crate::record::Records;
use crate::suite::Suite;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// What to draw, and where to.
#[derive(clap::Args)]
pub struct Options {
    /// Records, as written by --output
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The report: a page if the name ends in .html, Markdown if it ends in .md
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Its heading
    #[arg(long, default_value = "Performance")]
    title: String,
    /// What is to be said about the figures, in Markdown; stands in front of the tables of a Markdown report
    #[arg(long, value_name = "FILE")]
    remarks: Option<PathBuf>,
}

/// Reads all files and writes the report.
///
/// # Errors
/// If a file cannot be read or written, or the output's name says neither page nor Markdown.
pub fn run(options: &Options) -> Result<ExitCode> {
    let mut records = Records::default();
    for file in &options.files {
        records.append(Records::read(file)?);
    }
    let suite = Suite::everything()?;
    let remarks = options
        .remarks
        .as_ref()
        .map(|path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())));
    let remarks = remarks.transpose()?;
    let text = match options.output.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => page::page(&options.title, &records, &suite),
        Some("md") => markdown::document(&options.title, remarks.as_deref(), &records, &suite),
        _ => bail!("{} ends in neither .html nor .md", options.output.display()),
    };
    std::fs::write(&options.output, text).with_context(|| format!("cannot write {}", options.output.display()))?;
    eprintln!(
        "{}: {} rows, {} libraries",
        options.output.display(),
        records.rows(&suite).len(),
        records.libraries().len()
    );
    Ok(ExitCode::SUCCESS)
}
