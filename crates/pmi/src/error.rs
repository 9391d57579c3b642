//! What can go wrong between a rank and its launcher, seen from the rank.

use std::time::Duration;

/// An error of the process-manager client; each is one line that says what to do where that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmiError {
    /// The environment names a launcher that cannot be reached.
    #[error(
        "{variable}={value} says this process was started by an MPI launcher, but {problem}; \
         start it with mpiexec, or unset {variable} to run it alone"
    )]
    NoServer {
        /// The variable that gave the launcher away.
        variable: String,
        /// Its value.
        value: String,
        /// Why there is no server behind it.
        problem: String,
    },
    /// A launcher whose wire is not spoken here.
    #[error("this process was started by {launcher} ({variable}={value}), whose wire is not spoken here; {advice}")]
    OtherLauncher {
        /// The launcher in words.
        launcher: String,
        /// The variable that gave it away.
        variable: String,
        /// Its value.
        value: String,
        /// What to do instead.
        advice: String,
    },
    /// A launcher variable does not hold what it should.
    #[error("{variable}={value} is not {expected}; the environment of the launcher is damaged")]
    BadVariable {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The socket to the launcher failed.
    #[error("the connection to the launcher failed while {doing}: {source}")]
    Io {
        /// The operation.
        doing: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The launcher closed the connection.
    #[error("the launcher closed the connection while {doing}; it has ended or refused this process")]
    Closed {
        /// The operation.
        doing: String,
    },
    /// The launcher did not answer in time.
    #[error(
        "the launcher did not answer within {waited:?} while {doing}; is the socket it left behind really its own?"
    )]
    Timeout {
        /// The operation.
        doing: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Something arrived that is not an answer to what was asked.
    #[error("the launcher answered {received:?} while {doing}; expected {expected}")]
    Unexpected {
        /// The operation.
        doing: String,
        /// The line, shortened.
        received: String,
        /// What would have fitted.
        expected: String,
    },
    /// The launcher said no.
    #[error("the launcher refused while {doing}: {reason}")]
    Refused {
        /// The operation.
        doing: String,
        /// Its reason.
        reason: String,
    },
    /// A key nobody has put.
    #[error("no rank has published the key {key:?} ({reason})")]
    KeyMissing {
        /// The key.
        key: String,
        /// The launcher's words.
        reason: String,
    },
    /// A key or value that the wire cannot carry.
    #[error("the {what} {text:?} cannot be published: {problem}")]
    Unprintable {
        /// "key" or "value".
        what: &'static str,
        /// The text, shortened.
        text: String,
        /// Why.
        problem: String,
    },
    /// A line of the wire that is no line of the wire.
    #[error("garbled line on the launcher's wire ({problem}): {line:?}")]
    Garbled {
        /// What is wrong with it.
        problem: &'static str,
        /// The line, shortened.
        line: String,
    },
    /// A process mapping that cannot be read.
    #[error("the process mapping {text:?} is malformed: {problem}")]
    BadMapping {
        /// The text, shortened.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// The first characters of a text, for quoting it in one line.
pub(crate) fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 120;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
