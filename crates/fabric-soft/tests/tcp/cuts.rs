//! Mixed traffic both ways while connections are cut at any byte: nothing is lost, doubled or changed.

use std::time::{Duration, Instant};

use base::log::{Level, Log};
use fabric::{Operation, WcStatus};
use fabric_soft::tcp::{JobSecret, TcpOptions};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::side::{PATIENCE, Side, join, until};

/// Messages each way in flight at once.
const SLOTS: u64 = 8;
/// In the environment: how many seconds the storm shall last instead of a few.
const STORM_SECONDS: &str = "FABRIC_SOFT_STORM_SECONDS";

/// One request of the traffic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Send,
    SendWithImmediate,
    Write,
    WriteWithImmediate,
    Read,
    FetchAdd,
    CompareSwap,
}

impl What {
    const ALL: [Self; 7] = [
        Self::Send,
        Self::SendWithImmediate,
        Self::Write,
        Self::WriteWithImmediate,
        Self::Read,
        Self::FetchAdd,
        Self::CompareSwap,
    ];

    fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendWithImmediate | Self::WriteWithImmediate)
    }

    fn has_immediate(self) -> bool {
        matches!(self, Self::SendWithImmediate | Self::WriteWithImmediate)
    }
}

/// What the words of a side that atomics change hold when all are done.
#[derive(Default)]
struct Words {
    added: u64,
    swapped: u64,
}

/// Traffic, and what is done to it.
struct Storm {
    seed: u64,
    /// Longest message; each has a place of its own, halves of the memory for what is sent and what comes.
    slot_bytes: usize,
    check_payloads: bool,
    connections: usize,
    /// Rounds of messages, or until this much time has passed; more of them until so many connections were made.
    rounds: u64,
    lasts: Option<Duration>,
    made_min: u64,
    /// All connections of one side are cut this often, or else once in a dozen looks.
    cut_every: Option<Duration>,
}

impl Storm {
    fn coming(&self) -> usize {
        self.slot_bytes * SLOTS as usize
    }

    /// Where the counter of each side is, and behind it the word that is swapped.
    fn counter(&self) -> usize {
        2 * self.coming()
    }

    fn swapped(&self) -> usize {
        self.counter() + 8
    }

    fn sides(&self) -> [Side; 2] {
        [(); 2].map(|()| {
            let listen = vec!["127.0.0.1:0".parse().expect("an address")];
            let options = TcpOptions::new(JobSecret::new([1; 32]), listen, Log::new(Level::Warn, None));
            let (check_payloads, connections) = (self.check_payloads, self.connections);
            let options = TcpOptions { check_payloads, connections, patience: PATIENCE, ..options };
            Side::with(options, self.swapped() + 8)
        })
    }

    /// Goes on however long connections take to be made anew.
    fn run(&self) {
        println!("seed {}", self.seed);
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut sides = self.sides();
        join(&mut sides);
        let start = Instant::now();
        let (mut words, mut cuts, mut cut_at) =
            ([(); 2].map(|()| Words::default()), 0, self.cut_every.unwrap_or_default());
        let is_over = |round| match self.lasts {
            Some(lasts) => start.elapsed() >= lasts,
            None => round >= self.rounds,
        };
        let mut round = 0u64;
        while !is_over(round) || sides[0].adapter.link().connections_made() < self.made_min {
            self.round(round, &mut sides, &mut words, &mut rng, |sides, rng| {
                let is_time = match self.cut_every {
                    Some(every) if start.elapsed() >= cut_at => {
                        cut_at += every;
                        true
                    }
                    Some(_) => false,
                    None => rng.random_range(0..12) == 0,
                };
                if is_time {
                    sides[rng.random_range(0..2)].adapter.link().cut_connections();
                    cuts += 1;
                }
            });
            round += 1;
        }
        let made = sides[0].adapter.link().connections_made();
        println!("{round} rounds, {cuts} cuts, {made} connections in {:?}", start.elapsed());
    }

    /// Requests of all kinds both ways, all checked when they are done.
    fn round(
        &self,
        round: u64,
        sides: &mut [Side; 2],
        words: &mut [Words; 2],
        rng: &mut StdRng,
        mut meddle: impl FnMut(&mut [Side; 2], &mut StdRng),
    ) {
        let coming = self.coming();
        let place = |slot: u64| slot as usize * self.slot_bytes;
        let len: Vec<usize> = (0..SLOTS).map(|_| rng.random_range(0..self.slot_bytes)).collect();
        let what: Vec<What> = (0..SLOTS).map(|_| What::ALL[rng.random_range(0..What::ALL.len())]).collect();
        // Other in each round, for each side and slot.
        let number_of = |from: usize, slot: u64| round * 16 + slot * 2 + from as u64 + 1;
        let seed_of = |from: usize, slot: u64| number_of(from, slot) as u8;
        let received: Vec<u64> = (0..SLOTS).filter(|slot| what[*slot as usize].takes_receive()).collect();
        // By side and slot, what a swap must have found.
        let mut found = [[0; SLOTS as usize]; 2];
        for (from, to) in [(0, 1), (1, 0)] {
            for slot in &received {
                sides[to].receive(100 + slot, coming + place(*slot), self.slot_bytes);
            }
            for slot in 0..SLOTS {
                let source = if what[slot as usize] == What::Read { to } else { from };
                sides[source].fill(place(slot), len[slot as usize], seed_of(from, slot));
            }
        }
        for (from, to) in [(0, 1), (1, 0)] {
            for slot in 0..SLOTS {
                let (at, len) = (place(slot), len[slot as usize]);
                let far = sides[to].region;
                let (written, number) = (far.remote((coming + at) as u64), number_of(from, slot));
                let side = &mut sides[from];
                match what[slot as usize] {
                    What::Send => side.post(slot, Operation::Send, at, len),
                    What::SendWithImmediate => side.post(slot, Operation::SendWithImmediate(number as u32), at, len),
                    What::Write => side.post(slot, Operation::RdmaWrite(written), at, len),
                    What::WriteWithImmediate => {
                        side.post(slot, Operation::RdmaWriteWithImmediate(written, number as u32), at, len);
                    }
                    What::Read => side.post(slot, Operation::RdmaRead(far.remote(at as u64)), coming + at, len),
                    What::FetchAdd => {
                        let remote = far.remote(self.counter() as u64);
                        side.post(slot, Operation::FetchAdd { remote, add: number }, coming + at, 8);
                        words[to].added += number;
                    }
                    What::CompareSwap => {
                        let remote = far.remote(self.swapped() as u64);
                        let compare = std::mem::replace(&mut words[to].swapped, number);
                        side.post(slot, Operation::CompareSwap { remote, compare, swap: number }, coming + at, 8);
                        found[from][slot as usize] = compare;
                    }
                }
            }
        }
        let expected = SLOTS as usize + received.len();
        until(sides, "all of a round", |sides| {
            meddle(sides, rng);
            sides.iter().all(|side| side.done.len() >= expected)
        });
        for (from, to) in [(0, 1), (1, 0)] {
            let done = std::mem::take(&mut sides[from].done);
            assert_eq!(done.len(), expected, "round {round}: each request ends once");
            assert!(done.iter().all(|one| one.status == WcStatus::Success), "round {round}: {done:?}");
            let sent: Vec<u64> = done.iter().map(|one| one.id).filter(|id| *id < 100).collect();
            assert!(sent.is_sorted() && sent.len() as u64 == SLOTS, "round {round}: in order {sent:?}");
            for slot in 0..SLOTS {
                let (at, len) = (coming + place(slot), len[slot as usize]);
                let what = what[slot as usize];
                if what.takes_receive() {
                    let one = done.iter().find(|one| one.id == 100 + slot).expect("it came");
                    let immediate = what.has_immediate().then(|| number_of(to, slot) as u32);
                    assert_eq!((one.bytes, one.immediate), (len as u64, immediate), "round {round}");
                }
                match what {
                    What::Read => sides[from].check(at, len, seed_of(from, slot), "read"),
                    What::FetchAdd => {
                        let counter = sides[to].word(self.counter());
                        assert_eq!(counter, words[to].added, "nothing was added twice or not at all");
                    }
                    What::CompareSwap => {
                        // One that is done twice does not find the second time what it found before.
                        assert_eq!(sides[from].word(at), found[from][slot as usize], "round {round}: what was there");
                        assert_eq!(sides[to].word(self.swapped()), words[to].swapped, "round {round}: swapped");
                    }
                    _ => sides[from].check(at, len, seed_of(to, slot), "brought"),
                }
            }
        }
    }
}

const SHORT: Storm = Storm {
    seed: 11,
    slot_bytes: 48 << 10,
    check_payloads: false,
    connections: 1,
    rounds: 150,
    lasts: None,
    made_min: 11,
    cut_every: None,
};

#[test]
fn nothing_is_lost_or_doubled_when_connections_are_cut() {
    SHORT.run();
}

#[test]
fn nothing_is_lost_or_doubled_when_connections_with_checks_are_cut() {
    Storm { seed: 12, check_payloads: true, ..SHORT }.run();
}

#[test]
fn nothing_is_lost_or_doubled_when_parts_on_several_connections_are_cut() {
    Storm { seed: 13, slot_bytes: 400 << 10, connections: 4, rounds: 25, ..SHORT }.run();
}

#[test]
fn nothing_is_lost_or_doubled_when_checked_parts_are_cut() {
    Storm { seed: 14, slot_bytes: 400 << 10, connections: 3, check_payloads: true, rounds: 15, ..SHORT }.run();
}

/// Every socket killed each 100 ms, for a few seconds or as many as `FABRIC_SOFT_STORM_SECONDS` says.
#[test]
fn a_storm_is_weathered() {
    let seconds = std::env::var(STORM_SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let (lasts, cut_every) = (Some(Duration::from_secs(seconds)), Some(Duration::from_millis(100)));
    Storm { seed: 15, slot_bytes: 512 << 10, connections: 3, lasts, made_min: 10 * seconds, cut_every, ..SHORT }.run();
}
