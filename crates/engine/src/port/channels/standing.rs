//! How it stands with the channels to and from a peer.

use std::fmt::Write;

use lockfree::fastpath::RecordSender;

use super::{Inward, Next, Pair, Written};

impl Pair {
    /// True if memory is spent on one of these channels, at either end.
    pub(in crate::port) fn holds_memory(&self) -> bool {
        let has_next = !matches!(self.next, Next::Nothing);
        let Self { open, before, inward, inward_next, .. } = self;
        open.is_some() || before.is_some() || has_next || inward.is_some() || inward_next.is_some()
    }

    /// Which channels there are, what was written into them, and what waits to be said about them.
    pub(in crate::port) fn write_standing(&self, text: &mut String) -> std::fmt::Result {
        for (written, what) in [(&self.open, "open"), (&self.before, "before")] {
            if let Some(Written { sender, announced, is_full, is_over, .. }) = written.as_deref() {
                write!(text, "\n  channel {what}: {} written, hint {:x}", sender.produced(), sender.hint())?;
                write!(text, ", announced for {announced:x}, full {is_full}, over {is_over}")?;
            }
        }
        let next = match self.next {
            Next::Nothing => "nothing",
            Next::Asked(_) => "asked for",
            Next::Granted(_) => "granted",
        };
        let Self { must_close, ask_in, credits, answers, to_show, to_announce, .. } = self;
        write!(text, "\n  next {next}, must close {must_close}, asks in {ask_in}, to announce {to_announce}")?;
        for (inward, what) in [(&self.inward, "used"), (&self.inward_next, "not used yet")] {
            if let Some(Inward { told_cold, marks, .. }) = inward {
                write!(text, "\n  channel granted and {what}: told that nobody looks {told_cold}, {marks} marks")?;
            }
        }
        write!(text, "\n  credits to go along {credits:?}, {answers:?}, to show {to_show}")
    }
}
