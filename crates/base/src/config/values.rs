//! What may be written as the value of a variable.

use std::time::Duration;

/// A number of bytes with an optional K, M or G (powers of 1024).
pub(super) fn bytes(text: &str) -> Option<usize> {
    let (digits, shift) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 10),
        'm' | 'M' => (&text[..text.len() - 1], 20),
        'g' | 'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// A duration long enough to mean something, and not for ever.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    text.parse().ok().filter(|seconds| (0.1..=86400.0).contains(seconds)).map(Duration::from_secs_f64)
}

pub(super) fn auto(text: &str) -> Option<Option<u32>> {
    if text == "auto" { Some(None) } else { text.parse().ok().map(Some) }
}

/// An adapter's name and port.
pub(super) fn adapter(text: &str) -> Option<(Option<String>, Option<u8>)> {
    match text.split_once(':') {
        _ if text == "auto" => Some((None, None)),
        None if text.is_empty() => None,
        None => Some((Some(text.to_owned()), None)),
        Some(("", _)) => None,
        Some((device, port)) => Some((Some(device.to_owned()), Some(port.parse().ok().filter(|port| *port > 0)?))),
    }
}

/// A partition key; all but the default's membership bit zero names none.
pub(super) fn partition(text: &str) -> Option<Option<u16>> {
    if text == "auto" {
        return Some(None);
    }
    let key = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (key & 0x7fff != 0).then_some(Some(key))
}

/// What kind of value a variable has, as `values` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number of bytes; of some variables also `auto`.
    Bytes,
    /// A number, or `auto`.
    Number,
    /// One of these words.
    Choice(Vec<&'static str>),
    /// Anything.
    Text,
}

/// What was wrong with a setting.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value does not parse.
    #[error("{name}={value:?} is not understood; expected {expected}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What was written.
        value: String,
        /// What may be written.
        expected: &'static str,
    },
}
