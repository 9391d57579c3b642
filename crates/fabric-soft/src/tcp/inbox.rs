//! What has come on a connection and is not used yet.
//!
//! A link has one room to read into, which serves the connection that is being looked at: a message that fits comes with
//! one read, and a connection of which nothing is left over costs no memory for it.

/// Room for the bytes of somebody who has proved nothing.
pub(super) const STRANGER_BYTES: usize = 1 << 10;
/// The room of a link, for what peers send besides payload that is read straight to its place.
pub(super) const ROOM_BYTES: usize = 80 << 10;

/// Bytes in the order in which they came.
pub(super) struct Inbox {
    /// The room while it is here; else what was left over, or place for a stranger's bytes.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    has_room: bool,
}

impl Inbox {
    /// Of somebody who has proved nothing.
    pub(super) fn of_stranger() -> Self {
        Self { bytes: vec![0; STRANGER_BYTES], start: 0, end: 0, has_room: false }
    }

    /// Has the link's `room` until [`Inbox::leave`].
    #[inline]
    pub(super) fn enter(&mut self, room: &mut Vec<u8>) {
        if self.has_room {
            return;
        }
        prepare(room);
        let kept = self.end - self.start;
        if kept > 0 {
            room[..kept].copy_from_slice(&self.bytes[self.start..self.end]);
        }
        std::mem::swap(&mut self.bytes, room);
        (self.start, self.end, self.has_room) = (0, kept, true);
    }

    /// Gives the room back, and keeps what is not used.
    #[inline]
    pub(super) fn leave(&mut self, room: &mut Vec<u8>) {
        if !std::mem::take(&mut self.has_room) {
            return;
        }
        std::mem::swap(&mut self.bytes, room);
        self.bytes.clear();
        if !self.is_empty() {
            self.bytes.extend_from_slice(&room[self.start..self.end]);
        } else if self.bytes.capacity() > STRANGER_BYTES {
            self.bytes = Vec::new();
        }
        (self.start, self.end) = (0, self.bytes.len());
    }

    /// What is not used yet.
    pub(super) fn unused(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `count` of what is not used are used now.
    pub(super) fn use_up(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start, "only what has come can be used");
        self.start += count;
    }

    /// Exactly `N` bytes, once they have come.
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.unused().first_chunk::<N>()?;
        self.use_up(N);
        Some(bytes)
    }

    /// Where more may come.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// As [`Inbox::space`], in the room, which is not entered before something has come there: mostly nothing has.
    #[inline]
    pub(super) fn space_in<'a>(&'a mut self, room: &'a mut Vec<u8>) -> &'a mut [u8] {
        if self.has_room || !self.is_empty() {
            self.enter(room);
            return self.space();
        }
        prepare(room);
        room
    }

    /// So many bytes have come there.
    pub(super) fn came(&mut self, count: usize) {
        self.end += count;
    }
}

/// The room is made when it is needed first.
fn prepare(room: &mut Vec<u8>) {
    if room.len() != ROOM_BYTES {
        *room = vec![0; ROOM_BYTES];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever comes and is used in whichever steps, of two connections with one room: every byte, once, in order.
        #[test]
        fn what_comes_is_what_is_used(
            steps in prop::collection::vec((any::<bool>(), 1..40_000_usize, 0..40_000_usize), 1..60),
        ) {
            let mut room = Vec::new();
            let mut inboxes = [Inbox::of_stranger(), Inbox::of_stranger()];
            let (mut came, mut used) = ([0_u32; 2], [0_u32; 2]);
            for (second, comes, uses) in steps {
                let which = usize::from(second);
                let inbox = &mut inboxes[which];
                let space = inbox.space_in(&mut room);
                let count = comes.min(space.len());
                for byte in &mut space[..count] {
                    *byte = (came[which] % 251) as u8;
                    came[which] += 1;
                }
                inbox.enter(&mut room);
                inbox.came(count);
                let count = uses.min(inbox.unused().len());
                for byte in &inbox.unused()[..count] {
                    prop_assert_eq!(*byte, (used[which] % 251) as u8);
                    used[which] += 1;
                }
                inbox.use_up(count);
                inbox.leave(&mut room);
                prop_assert_eq!(inbox.unused().len() as u32, came[which] - used[which]);
                prop_assert!(!inbox.is_empty() || inbox.bytes.capacity() <= STRANGER_BYTES, "nothing is kept for nothing");
            }
        }
    }
}
