//! One line of the wire as a command with fields.

use crate::PmiError;
use crate::error::shortened;

/// Most fields a message may have.
pub const FIELD_COUNT_MAX: usize = 64;

/// A parsed line `cmd=name key=value key=value …`, borrowed from the line.
///
/// ```
/// let message = pmi::Message::parse("cmd=put kvsname=job key=a value=b=c").unwrap();
/// assert_eq!(message.command(), "put");
/// assert_eq!(message.field("value"), Some("b=c"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    command: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Message<'a> {
    /// Takes a line apart. Fields are separated by spaces; `message` and `msg` run to the end of the
    /// line, because people write spaces into them.
    ///
    /// # Errors
    /// A line without a command, a field without `=`, or too many fields.
    pub fn parse(line: &'a str) -> Result<Self, PmiError> {
        let garbled = |problem| PmiError::Garbled { problem, line: shortened(line) };
        let mut rest = line.trim();
        let mut command = None;
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=').ok_or_else(|| garbled("a field without '='"))?;
            if key.is_empty() || key.contains(char::is_whitespace) {
                return Err(garbled("a field without '='"));
            }
            let to_the_end = command.is_some() && matches!(key, "message" | "msg");
            let (value, remaining) = match after.find(' ') {
                Some(end) if !to_the_end => (&after[..end], after[end..].trim_start()),
                _ => (after, ""),
            };
            rest = remaining;
            if command.is_none() {
                if !matches!(key, "cmd" | "mcmd") || value.is_empty() {
                    return Err(garbled("it does not begin with a command"));
                }
                command = Some(value);
            } else if fields.len() == FIELD_COUNT_MAX {
                return Err(garbled("too many fields"));
            } else {
                fields.push((key, value));
            }
        }
        let command = command.ok_or_else(|| garbled("it does not begin with a command"))?;
        Ok(Self { command, fields })
    }

    /// The command's name.
    pub fn command(&self) -> &'a str {
        self.command
    }

    /// The value of the first field of that name.
    pub fn field(&self, name: &str) -> Option<&'a str> {
        self.fields.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// A field that must be there and be a number.
    ///
    /// # Errors
    /// The field is missing or no number that fits.
    pub fn number<N: std::str::FromStr>(&self, name: &str) -> Result<N, PmiError> {
        self.field(name).and_then(|text| text.parse().ok()).ok_or_else(|| PmiError::Garbled {
            problem: "a number is missing or out of range",
            line: shortened(&format!("cmd={} {name}={}", self.command, self.field(name).unwrap_or("(absent)"))),
        })
    }
}

/// True if the text can be a key or a value: printable, without blanks, not empty.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_known_launchers() {
        let line = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1 ";
        let message = Message::parse(line).unwrap();
        assert_eq!(message.command(), "response_to_init");
        assert_eq!(message.number::<u32>("pmi_version").unwrap(), 1);
        assert!(message.number::<u32>("nothing").is_err());

        let abort = Message::parse("cmd=abort exitcode=7 message=out of cheese = error").unwrap();
        assert_eq!(abort.field("message"), Some("out of cheese = error"));
    }

    #[test]
    fn garbage_is_refused() {
        for line in ["", "   ", "hello", "key=value", "cmd=", "cmd=put key", "cmd=a =b", "=", "cmd=x a b=c"] {
            assert!(Message::parse(line).is_err(), "{line:?} was accepted");
        }
        let crowded = format!("cmd=x {}", "a=b ".repeat(FIELD_COUNT_MAX + 1));
        assert!(Message::parse(&crowded).is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(line in "\\PC{0,200}") {
            let _ = Message::parse(&line);
        }

        #[test]
        fn what_was_written_is_read(
            command in "[a-z_]{1,12}",
            fields in prop::collection::vec(("[a-l_]{1,8}", "[!-~]{0,20}"), 0..FIELD_COUNT_MAX),
        ) {
            let mut line = format!("cmd={command}");
            for (key, value) in &fields {
                line.push_str(&format!(" {key}={value}"));
            }
            let message = Message::parse(&line).unwrap();
            prop_assert_eq!(message.command(), command.as_str());
            for (key, _) in &fields {
                let first = fields.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_str());
                prop_assert_eq!(message.field(key), first);
            }
        }
    }
}
