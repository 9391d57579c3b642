//! Writing a schedule: what algorithms say, checked and turned into steps.

use crate::data::Place;
use crate::schedule::{BufferId, Region, Schedule, Step, TAG_OFFSETS_MAX, Temp};

/// A message posted by a [`Builder`], to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted(u64);

/// Collects the steps of one rank.
///
/// Empty messages are left out on both sides: both know the size. Whoever wants an empty message to
/// arrive says [`Builder::signal`].
#[derive(Debug)]
pub(crate) struct Builder {
    place: Place,
    steps: Vec<Step>,
    temps: Vec<Temp>,
    tag_offset: u32,
    /// Messages posted, and of these the oldest ones known complete.
    posted: u64,
    completed: u64,
    outstanding_max: u64,
}

impl Builder {
    pub(crate) fn new(place: Place) -> Builder {
        Builder {
            place,
            steps: Vec::new(),
            temps: Vec::new(),
            tag_offset: 0,
            posted: 0,
            completed: 0,
            outstanding_max: 0,
        }
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn rank(&self) -> u32 {
        self.place.rank
    }

    pub(crate) fn size(&self) -> u32 {
        self.place.size
    }

    /// The rank `distance` after this one, round the ring.
    pub(crate) fn after(&self, distance: u32) -> u32 {
        ring(self.place.rank, i64::from(distance), self.place.size)
    }

    /// The rank `distance` before this one, round the ring.
    pub(crate) fn before(&self, distance: u32) -> u32 {
        ring(self.place.rank, -i64::from(distance), self.place.size)
    }

    /// From here on messages cannot meet those posted before; every rank says it at the same place.
    pub(crate) fn phase(&mut self) {
        self.tag_offset += 1;
        assert!(self.tag_offset < TAG_OFFSETS_MAX, "an algorithm has few phases");
    }

    pub(crate) fn temp_bytes(&mut self, len_bytes: u64) -> BufferId {
        self.temp(Temp::Bytes { len_bytes })
    }

    pub(crate) fn temp_elements(&mut self, count: u64) -> BufferId {
        self.temp(Temp::Elements { count })
    }

    pub(crate) fn send(&mut self, peer: u32, region: Region) -> Posted {
        self.send_tagged(peer, self.tag_offset, region)
    }

    pub(crate) fn recv(&mut self, peer: u32, region: Region) -> Posted {
        self.recv_tagged(peer, self.tag_offset, region)
    }

    pub(crate) fn send_tagged(&mut self, peer: u32, tag_offset: u32, region: Region) -> Posted {
        if region.count == 0 {
            return Posted(self.completed);
        }
        self.post(Step::Send { peer, tag_offset, region })
    }

    pub(crate) fn recv_tagged(&mut self, peer: u32, tag_offset: u32, region: Region) -> Posted {
        if region.count == 0 {
            return Posted(self.completed);
        }
        self.post(Step::Recv { peer, tag_offset, region })
    }

    /// An empty message that does arrive.
    pub(crate) fn signal(&mut self, peer: u32) -> Posted {
        self.post(Step::Send { peer, tag_offset: self.tag_offset, region: Region::NOTHING })
    }

    /// The receiving side of [`Builder::signal`].
    pub(crate) fn await_signal(&mut self, peer: u32) -> Posted {
        self.post(Step::Recv { peer, tag_offset: self.tag_offset, region: Region::NOTHING })
    }

    /// Goes on once `message` and all posted before it have completed.
    pub(crate) fn wait(&mut self, message: Posted) {
        if message.0 > self.completed {
            self.completed = message.0;
            self.steps.push(Step::Wait { leaving: (self.posted - message.0) as u32 });
        }
    }

    /// Goes on once everything posted has completed.
    pub(crate) fn wait_all(&mut self) {
        self.wait(Posted(self.posted));
    }

    /// Keeps at most `window` messages under way.
    pub(crate) fn wait_window(&mut self, window: u64) {
        self.wait(Posted(self.posted.saturating_sub(window)));
    }

    pub(crate) fn copy(&mut self, from: Region, to: Region) {
        if from.count > 0 && from != to {
            self.steps.push(Step::Copy { from, to });
        }
    }

    /// `into = from op into`.
    pub(crate) fn reduce(&mut self, from: Region, into: Region) {
        if into.count > 0 {
            self.steps.push(Step::Reduce { from, into });
        }
    }

    pub(crate) fn finish(mut self, algorithm: &'static str) -> Schedule {
        self.wait_all();
        Schedule {
            algorithm,
            steps: self.steps.into_boxed_slice(),
            temps: self.temps.into_boxed_slice(),
            outstanding_max: self.outstanding_max as u32,
        }
    }

    fn temp(&mut self, temp: Temp) -> BufferId {
        let number = u16::try_from(self.temps.len()).expect("an algorithm has few temporaries");
        self.temps.push(temp);
        BufferId::Temp(number)
    }

    fn post(&mut self, step: Step) -> Posted {
        self.steps.push(step);
        self.posted += 1;
        self.outstanding_max = self.outstanding_max.max(self.posted - self.completed);
        Posted(self.posted)
    }
}

/// The rank `distance` from `rank` round a ring of `size`.
pub(crate) fn ring(rank: u32, distance: i64, size: u32) -> u32 {
    (i64::from(rank) + distance).rem_euclid(i64::from(size)) as u32
}
