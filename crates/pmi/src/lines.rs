//! Bytes in, whole lines out.

use crate::PmiError;
use crate::error::shortened;

/// Longest line of the wire in bytes, without its newline.
pub const LINE_BYTES_MAX: usize = 8192;

/// Collects received bytes and hands out whole lines, none longer than [`LINE_BYTES_MAX`].
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl LineBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what was received.
    pub fn push(&mut self, received: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(received);
    }

    /// The next whole line without its newline, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// A line that is longer than the limit or not UTF-8; the buffer is of no use afterwards.
    pub fn next_line(&mut self) -> Result<Option<String>, PmiError> {
        let rest = &self.bytes[self.start..];
        let Some(end) = rest.iter().take(LINE_BYTES_MAX + 1).position(|&byte| byte == b'\n') else {
            if rest.len() > LINE_BYTES_MAX {
                return Err(garbled("longer than 8192 bytes", rest));
            }
            return Ok(None);
        };
        let line = &rest[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = match std::str::from_utf8(line) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(garbled("not UTF-8", line)),
        };
        self.start += end + 1;
        Ok(Some(text))
    }

    /// True if bytes of an unfinished line are left.
    pub fn has_partial_line(&self) -> bool {
        self.start < self.bytes.len()
    }
}

fn garbled(problem: &'static str, line: &[u8]) -> PmiError {
    let shown = &line[..line.len().min(200)];
    PmiError::Garbled { problem, line: shortened(&String::from_utf8_lossy(shown)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = LineBuffer::new();
        lines.push(&[b'a'; LINE_BYTES_MAX]);
        assert!(lines.next_line().unwrap().is_none());
        lines.push(b"a");
        assert!(matches!(lines.next_line(), Err(PmiError::Garbled { .. })));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let mut lines = LineBuffer::new();
        lines.push(b"\xff\xfe\n");
        assert!(matches!(lines.next_line(), Err(PmiError::Garbled { .. })));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(
            lines in prop::collection::vec("[a-z= ]{0,40}", 0..20),
            cut_bytes in 1usize..50,
        ) {
            let mut text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            text.push_str("tail");
            let mut buffer = LineBuffer::new();
            let mut received = Vec::new();
            for piece in text.as_bytes().chunks(cut_bytes) {
                buffer.push(piece);
                while let Some(line) = buffer.next_line().unwrap() {
                    received.push(line);
                }
            }
            prop_assert_eq!(received, lines);
            prop_assert!(buffer.has_partial_line());
        }
    }
}
