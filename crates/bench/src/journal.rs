//! The records of a run in the making.

use crate::record::{Record, Records};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The records of the run, kept and, where asked for, written at once.
pub struct Journal {
    /// All so far.
    pub records: Records,
    file: Option<File>,
}

impl Journal {
    /// A journal that is also appended to a file, if one is named.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            File::options()
                .append(true)
                .create(true)
                .open(path)
                .with_context(|| format!("cannot write {}", path.display()))
        };
        Ok(Self { records: Records::default(), file: path.map(open).transpose()? })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, record: Record) -> Result<()> {
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(&record)?;
            writeln!(file, "{line}").context("cannot write the records")?;
        }
        self.records.add(record);
        Ok(())
    }
}
