//! Random traffic against a naive oracle: what each side's memory must hold is computed beside.

use fabric::{Access, ConnectOptions, Operation, Payload, SendFlags, SendRequest, WcStatus};

use super::with_pair;
use crate::side::Pair;
use crate::{Case, Fixture, Outcome};

pub(super) const CASES: &[Case] = &[Case { name: "random_traffic_leaves_what_was_computed", run: random_traffic }];

/// A small generator whose whole state is its seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

const BYTES: usize = 8192;

fn random_traffic(fixture: &mut dyn Fixture) -> Outcome {
    for seed in 0..12 {
        let outcome = with_pair(fixture, |pair| traffic(pair, seed));
        if outcome != Outcome::Passed {
            return outcome;
        }
    }
    Outcome::Passed
}

/// One side sends in bursts; receives are posted late, early and sometimes only when the sender waits.
fn traffic(pair: &mut Pair, seed: u64) {
    let mut random = Random(seed);
    let qp = pair.connect_with(&ConnectOptions::default(), |attributes| attributes.send_depth = 32);
    let atomics = pair.here.context.capabilities().atomics;
    let near = pair.here.memory(BYTES, Access::LOCAL);
    let far = pair.there.memory(BYTES, Access::REMOTE_ALL);
    let inbox = pair.there.memory(BYTES, Access::LOCAL);
    let start: Vec<u8> = (0..BYTES).map(|_| random.next() as u8).collect();
    near.write(0, &start);
    let (mut near_is, mut far_is, mut inbox_is) = (start, vec![0u8; BYTES], vec![0u8; BYTES]);
    for burst in 0..30u64 {
        let count = 1 + random.below(12);
        let (mut receives, mut lengths) = (Vec::new(), Vec::new());
        for index in 0..count {
            let len = [0, 1, 8, 63, 300, 1500][random.below(6) as usize];
            let here = random.below((BYTES - len) as u64) as usize;
            let there = random.below((BYTES - len) as u64) as usize;
            let remote = far.remote(there as u64);
            let (operation, len, here) = match random.below(6) {
                0 => (Operation::RdmaWrite(remote), len, here),
                1 => (Operation::RdmaRead(remote), len, here),
                2 if atomics => {
                    let word = there & !7;
                    (
                        Operation::FetchAdd { remote: far.remote(word as u64), add: random.next() },
                        8,
                        here.min(BYTES - 8),
                    )
                }
                3 => (Operation::RdmaWriteWithImmediate(remote, index as u32), len, here),
                4 => (Operation::SendWithImmediate(index as u32), len, here),
                _ => (Operation::Send, len, here),
            };
            let (from, to) = (here..here + len, there..there + len);
            match operation {
                Operation::RdmaWrite(_) => far_is[to].copy_from_slice(&near_is[from]),
                Operation::RdmaRead(_) => near_is[from].copy_from_slice(&far_is[to]),
                Operation::FetchAdd { add, .. } => {
                    let word = (there & !7)..(there & !7) + 8;
                    let before: [u8; 8] = far_is[word.clone()].try_into().expect("eight bytes");
                    near_is[from].copy_from_slice(&before);
                    far_is[word].copy_from_slice(&u64::from_ne_bytes(before).wrapping_add(add).to_ne_bytes());
                }
                Operation::RdmaWriteWithImmediate(..) => {
                    far_is[to].copy_from_slice(&near_is[from]);
                    receives.push((there, 0));
                    lengths.push(len);
                }
                _ => {
                    inbox_is[there..there + len].copy_from_slice(&near_is[from]);
                    receives.push((there, len));
                    lengths.push(len);
                }
            }
            let list = split(&mut random, near.part(here as u64, len as u32));
            let mut request = SendRequest::new(burst * 100 + index, operation, Payload::Memory(&list));
            let last = index + 1 == count;
            // Every request looks at what those before it left: reads are fenced off.
            request.flags = SendFlags {
                signalled: last || random.below(2) == 0,
                fence: true,
                solicited: false,
                unhurried: random.below(2) == 0,
            };
            let early = random.below(2) == 0;
            if early {
                post_receives(pair, qp.there, &inbox, &mut receives);
            }
            pair.here.post(qp.here, &request);
            if random.below(3) == 0 {
                pair.pump();
            }
        }
        post_receives(pair, qp.there, &inbox, &mut receives);
        let last = burst * 100 + count - 1;
        pair.until("the last of a burst", |pair| {
            assert!(pair.here.done.iter().all(|done| done.status == WcStatus::Success), "{:?}", pair.here.done);
            pair.here.done.last().is_some_and(|done| done.id == last) && pair.there.done.len() == lengths.len()
        });
        let ids: Vec<_> = pair.here.done.drain(..).map(|done| done.id).collect();
        assert!(ids.is_sorted(), "seed {seed}: {ids:?}");
        let got: Vec<_> = pair.there.done.drain(..).map(|done| (done.status, done.bytes as usize)).collect();
        assert_eq!(got, lengths.iter().map(|len| (WcStatus::Success, *len)).collect::<Vec<_>>(), "seed {seed}");
        assert!(near.all() == near_is, "seed {seed}, burst {burst}: memory here");
        assert!(far.all() == far_is, "seed {seed}, burst {burst}: memory there");
        assert!(inbox.all() == inbox_is, "seed {seed}, burst {burst}: what was received");
    }
}

fn post_receives(
    pair: &mut Pair,
    qp: fabric::QueuePair,
    inbox: &crate::memory::Memory,
    receives: &mut Vec<(usize, usize)>,
) {
    for (at, len) in receives.drain(..) {
        pair.there.receive(qp, 0, &[inbox.part(at as u64, len as u32)]);
    }
}

/// The same bytes in one, two or three entries.
fn split(random: &mut Random, whole: fabric::ScatterGather) -> Vec<fabric::ScatterGather> {
    let cut = random.below(u64::from(whole.len_bytes) + 1) as u32;
    match random.below(3) {
        0 => vec![whole],
        count => {
            let first = fabric::ScatterGather { len_bytes: cut, ..whole };
            let rest = fabric::ScatterGather {
                address: whole.address + u64::from(cut),
                len_bytes: whole.len_bytes - cut,
                ..whole
            };
            if count == 1 {
                vec![first, rest]
            } else {
                vec![first, fabric::ScatterGather { len_bytes: 0, ..rest }, rest]
            }
        }
    }
}
