//! Many streams in, whole lines out: the merging of the ranks' output, without I/O.

use std::collections::BTreeMap;

/// Longest line that is held back until it is whole; a longer one is passed on in parts.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// Identifies a stream within a merger.
pub(crate) type StreamId = u32;

/// Merges streams into one, whole line by whole line.
///
/// The end of a stream without a newline is passed on as it is; should another stream speak after it,
/// a newline is put in between, and only then is a byte added that no rank has written.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    streams: BTreeMap<StreamId, Stream>,
    /// The stream whose unfinished line stands last in the output.
    open_line: Option<StreamId>,
}

#[derive(Debug, Default)]
struct Stream {
    tag: Vec<u8>,
    unfinished: Vec<u8>,
    pass_through: bool,
}

impl Merger {
    /// Adds a stream, every line of which begins with `tag`.
    pub fn add(&mut self, id: StreamId, tag: &[u8]) {
        self.streams.insert(id, Stream { tag: tag.to_vec(), ..Stream::default() });
    }

    /// Adds a stream that is alone: its bytes are passed on as they come.
    pub fn add_alone(&mut self, id: StreamId) {
        self.streams.insert(id, Stream { pass_through: true, ..Stream::default() });
    }

    /// Takes bytes of a stream and appends to `out` what may be written.
    pub fn feed(&mut self, id: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(mut stream) = self.streams.remove(&id) else { return };
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            _ if stream.pass_through => self.write(id, &stream.tag, bytes, out),
            Some(end) => {
                let whole = &bytes[..=end];
                if stream.unfinished.is_empty() {
                    self.write(id, &stream.tag, whole, out);
                } else {
                    stream.unfinished.extend_from_slice(whole);
                    self.write(id, &stream.tag, &stream.unfinished, out);
                    stream.unfinished.clear();
                }
                stream.unfinished.extend_from_slice(&bytes[end + 1..]);
            }
            None => stream.unfinished.extend_from_slice(bytes),
        }
        if stream.unfinished.len() > LINE_BYTES_MAX {
            self.write(id, &stream.tag, &stream.unfinished, out);
            stream.unfinished = Vec::new();
        }
        self.streams.insert(id, stream);
    }

    /// True if some stream holds an unfinished line.
    pub fn has_unfinished(&self) -> bool {
        self.streams.values().any(|stream| !stream.unfinished.is_empty())
    }

    /// Passes on all unfinished lines: someone waits for a prompt, or nothing more will come.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        ids.into_iter().for_each(|id| self.flush_stream(id, out));
    }

    /// Passes on the unfinished line of one stream and forgets the stream.
    pub fn finish(&mut self, id: StreamId, out: &mut Vec<u8>) {
        self.flush_stream(id, out);
        self.streams.remove(&id);
    }

    fn flush_stream(&mut self, id: StreamId, out: &mut Vec<u8>) {
        let Some(mut stream) = self.streams.remove(&id) else { return };
        self.write(id, &stream.tag, &stream.unfinished, out);
        stream.unfinished.clear();
        self.streams.insert(id, stream);
    }

    fn write(&mut self, id: StreamId, tag: &[u8], bytes: &[u8], out: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let continued = self.open_line == Some(id);
        if self.open_line.is_some() && !continued {
            out.push(b'\n');
        }
        if tag.is_empty() {
            out.extend_from_slice(bytes);
        } else {
            for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
                if index > 0 || !continued {
                    out.extend_from_slice(tag);
                }
                out.extend_from_slice(line);
            }
        }
        self.open_line = if bytes.ends_with(b"\n") { None } else { Some(id) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn merged(tagged: bool, pieces: &[(StreamId, &str)]) -> String {
        let mut merger = Merger::default();
        for id in 0..4 {
            merger.add(id, if tagged { format!("[{id}] ").into_bytes() } else { Vec::new() }.as_slice());
        }
        let mut out = Vec::new();
        for (id, text) in pieces {
            merger.feed(*id, text.as_bytes(), &mut out);
        }
        (0..4).for_each(|id| merger.finish(id, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_stay_whole() {
        assert_eq!(merged(false, &[(0, "a"), (1, "b\n"), (0, "c\nd"), (1, "e\n")]), "b\nac\ne\nd");
        assert_eq!(merged(false, &[(0, "no end"), (1, "none either")]), "no end\nnone either");
        assert_eq!(merged(true, &[(0, "x\ny\n"), (2, "z"), (0, "w")]), "[0] x\n[0] y\n[0] w\n[2] z");
        assert_eq!(merged(true, &[(3, "\n\n")]), "[3] \n[3] \n");
    }

    #[test]
    fn a_prompt_is_shown_and_its_line_goes_on() {
        let mut merger = Merger::default();
        merger.add(0, b"[0] ");
        merger.add(1, b"[1] ");
        let mut out = Vec::new();
        merger.feed(0, b"name? ", &mut out);
        assert!(out.is_empty() && merger.has_unfinished());
        merger.flush(&mut out);
        assert!(!merger.has_unfinished());
        merger.feed(0, b"yes\n", &mut out);
        merger.feed(0, b"half", &mut out);
        merger.flush(&mut out);
        merger.feed(1, b"other\n", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "[0] name? yes\n[0] half\n[1] other\n");
    }

    #[test]
    fn endless_lines_do_not_fill_the_memory() {
        let mut merger = Merger::default();
        merger.add(0, b"");
        let mut out = Vec::new();
        let piece = vec![b'x'; 1 << 16];
        for _ in 0..40 {
            merger.feed(0, &piece, &mut out);
        }
        merger.finish(0, &mut out);
        assert_eq!(out.len(), 40 << 16);
    }

    proptest! {
        #[test]
        fn every_line_arrives_whole_and_in_order(
            texts in prop::collection::vec(prop::collection::vec("[a-c]{0,6}", 0..12), 1..4),
            cuts in prop::collection::vec((0usize..4, 1usize..9), 0..80),
        ) {
            // Every line carries its stream, so that the output can be taken apart again.
            let whole: Vec<String> = texts
                .iter()
                .enumerate()
                .map(|(id, lines)| lines.iter().map(|line| format!("{id}:{line}\n")).collect())
                .collect();
            let mut merger = Merger::default();
            let mut rest: Vec<&[u8]> = whole.iter().map(|text| text.as_bytes()).collect();
            (0..).zip(&rest).for_each(|(id, _)| merger.add(id, b""));
            let mut out = Vec::new();
            let all = (0..rest.len()).map(|id| (id, usize::MAX));
            for (id, count) in cuts.into_iter().filter(|(id, _)| *id < whole.len()).chain(all.collect::<Vec<_>>()) {
                let (now, later) = rest[id].split_at(count.min(rest[id].len()));
                merger.feed(id as StreamId, now, &mut out);
                rest[id] = later;
            }
            let out = String::from_utf8(out).unwrap();
            for (id, text) in whole.iter().enumerate() {
                let mine: String =
                    out.split_inclusive('\n').filter(|line| line.starts_with(&format!("{id}:"))).collect();
                prop_assert_eq!(&mine, text);
            }
            prop_assert_eq!(out.len(), whole.iter().map(String::len).sum::<usize>());
        }
    }
}
