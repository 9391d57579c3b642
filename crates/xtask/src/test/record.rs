//! How each test ended when it was run last: what `docs/CONFORMANCE.md` counts.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::paths;

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// As it should.
    Passed,
    /// It should have ended otherwise.
    Failed,
    /// It could not be tried.
    Skipped,
}

impl State {
    const ALL: [(State, &'static str); 3] =
        [(State::Passed, "passed"), (State::Failed, "failed"), (State::Skipped, "skipped")];
}

/// Last ends by the names of tests.
#[derive(Default)]
pub struct Record(BTreeMap<String, State>);

impl Record {
    /// What was written by earlier runs of this working tree.
    pub fn read() -> Self {
        Self::parse(&std::fs::read_to_string(place()).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (word, name) = line.split_once(' ')?;
            let state = State::ALL.iter().find(|(_, known)| *known == word)?.0;
            Some((name.to_owned(), state))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Notes an end.
    pub fn note(&mut self, name: &str, state: State) {
        self.0.insert(name.to_owned(), state);
    }

    /// How a test ended, if it was run.
    pub fn state(&self, name: &str) -> Option<State> {
        self.0.get(name).copied()
    }

    /// Keeps the record for later.
    pub fn write(&self) -> Result<()> {
        std::fs::write(place(), self.text()).with_context(|| format!("cannot write {}", place().display()))
    }

    fn text(&self) -> String {
        let word = |state: State| State::ALL.iter().find(|(known, _)| *known == state).map_or("", |(_, word)| *word);
        self.0.iter().map(|(name, state)| format!("{} {name}\n", word(*state))).collect()
    }
}

fn place() -> PathBuf {
    paths::target().join("test-record.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = Record::parse("passed c/ping-2\nnonsense\nfailed c/a b\n");
        record.note("c/ping-2", State::Skipped);
        assert_eq!(record.text(), "failed c/a b\nskipped c/ping-2\n");
        assert_eq!(Record::parse(&record.text()).state("c/a b"), Some(State::Failed));
        assert_eq!(record.state("c/unknown"), None);
    }
}
