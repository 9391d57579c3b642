//! The block alone, between one sender and one receiver.

use super::*;
use crate::fastpath::RecordReceiver;
use crate::{Allowance, times};
use std::collections::VecDeque;

fn pair(block_bytes: usize) -> (BlockSender, BlockReceiver) {
    let memory = SharedMemory::private(BlockSender::footprint(block_bytes));
    (BlockSender::new(memory.clone(), block_bytes), BlockReceiver::new(memory, block_bytes))
}

/// A small generator of numbers; the seed is printed when something fails.
struct Random(u64);
impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn records_arrive_whole_in_order_and_nothing_else_does() {
    for seed in 0..times(200, 2) {
        let (mut sender, mut receiver) = pair(1024 << (seed % 3));
        let mut random = Random(seed);
        let mut sent: VecDeque<(Record, Vec<u8>)> = VecDeque::new();
        let mut number = 0u32;
        for _ in 0..times(2000, 300) {
            if random.below(2) == 0 {
                let len = random.below(sender.payload_max_bytes() + 1);
                if random.below(2) == 0 {
                    sender.prepare(len, [Reader::Elsewhere, Reader::Here][random.below(2)]);
                }
                // Payload that looks like flags, to catch a stale one being taken for an arrival.
                let payload = vec![0xff; len];
                let record = Record {
                    kind: 1 + (number % 200) as u8,
                    short: number & 0xffffff,
                    long: 1 << 100,
                    ..Record::default()
                };
                let pushed = sender.push(record, len, |space| space.copy_from_slice(&payload));
                assert!(pushed || !sent.is_empty(), "seed {seed}: an empty block has room");
                if pushed {
                    sent.push_back((record, payload));
                    number += 1;
                }
            } else {
                let expected = sent.front().cloned();
                let seen = receiver.peek();
                assert_eq!(seen, expected.as_ref().map(|(record, payload)| (*record, payload.len())), "seed {seed}");
                let mut got = None;
                receiver.pop(|record, payload| got = Some((record, payload.to_vec())));
                assert_eq!(got, expected, "seed {seed}");
                sent.pop_front();
                receiver.return_credits(false);
            }
        }
        assert!(u64::from(number) > times(100, 20), "seed {seed}: the channel moved on");
    }
}

/// Records whose room was found before them are pushed, wherever in a lap, and while the block follows its traffic.
#[test]
fn what_is_reserved_has_room() {
    for seed in 0..times(200, 2) {
        let (first_bytes, long_bytes) = (2048, 16 << 10);
        let memory = SharedMemory::private(BlockSender::footprint(long_bytes));
        let bounds = Bounds { min_bytes: 1024, max_bytes: 8192, long_bytes, ..Bounds::default() };
        let mut sender = BlockSender::resizable(memory.clone(), first_bytes, bounds);
        let mut receiver = BlockReceiver::new(memory, first_bytes);
        let mut random = Random(seed);
        let (mut reserved, mut refused) = (0, 0);
        for _ in 0..times(2000, 300) {
            if random.below(3) == 0 {
                receiver.pop(|_, payload| assert!(payload.iter().all(|byte| *byte == 0xff), "seed {seed}"));
                receiver.return_credits(false);
                continue;
            }
            let most = random.below(sender.block_bytes() / 2);
            let lens: Vec<usize> = (0..1 + random.below(4)).map(|_| random.below(most + 1)).collect();
            if !sender.reserve(lens.iter().copied()) {
                refused += 1;
                continue;
            }
            reserved += 1;
            for len in lens {
                let record = Record { kind: 1, ..Record::default() };
                let pushed = match len < MEDIUM_MIN_BYTES {
                    true => sender.push(record, len, |space| space.fill(0xff)),
                    false => sender.push_long(record, len, |space, _| space.fill(0xff)),
                };
                assert!(pushed, "seed {seed}: {len} bytes");
            }
        }
        assert!(reserved > times(50, 10) && refused > 0, "seed {seed}: {reserved} and {refused}");
    }
}

/// Where the reader shares a processor, records lie in the same few lines again and again, and the block follows its traffic
/// all the same.
#[test]
fn an_empty_block_is_begun_anew_for_a_reader_that_shares_a_processor() {
    for (reader, lines_max) in [(None, 1024), (Some(Reader::Elsewhere), 130), (Some(Reader::Here), 130)] {
        let (mut sender, mut receiver) = pair(64 << 10);
        let (record, len) = (Record { kind: 1, ..Record::default() }, lines_bytes(64));
        let (mut furthest, mut laps, mut ordinary) = (0, 0, 0);
        for number in 0..times(300, 40) {
            let began = sender.traffic.lap_began;
            if let Some(reader) = reader {
                sender.prepare(len, reader);
            }
            let pushed = sender.push_long(record, len, |space, stores| {
                ordinary += u32::from(stores == Stores::Ordinary);
                space.fill(number as u8);
            });
            assert!(pushed, "{reader:?} {number}");
            laps += u64::from(sender.traffic.lap_began != began);
            furthest = furthest.max(sender.position);
            let expected = vec![number as u8; len];
            assert!(receiver.pop(|_, payload| assert!(payload == expected)));
            receiver.return_credits(false);
        }
        assert!(furthest <= lines_max && furthest >= lines_max - 64, "{reader:?}: {furthest} lines");
        assert_eq!(ordinary as u64 == times(300, 40), reader == Some(Reader::Here), "{reader:?}: {ordinary}");
        assert!(laps >= times(15, 2), "{reader:?}: a lap ends all the same, {laps}");
    }
}

/// What is not known to be empty is not written to, whatever is asked for.
#[test]
fn a_block_is_not_begun_anew_while_records_are_unread() {
    let (mut sender, mut receiver) = pair(16 << 10);
    let (record, len) = (Record { kind: 1, ..Record::default() }, lines_bytes(40));
    let take = |receiver: &mut BlockReceiver, expected: u8| {
        assert!(receiver.pop(|_, payload| assert!(payload.iter().all(|byte| *byte == expected))));
    };
    for number in 0..3 {
        sender.prepare(len, Reader::Here);
        assert!(sender.push_long(record, len, |space, _| space.fill(number)));
    }
    assert_eq!(sender.position, 120);
    take(&mut receiver, 0);
    take(&mut receiver, 1);
    receiver.return_credits(false);
    sender.prepare(len, Reader::Here);
    assert_eq!(sender.position, 120, "one is unread");
    take(&mut receiver, 2);
    sender.prepare(len, Reader::Here);
    assert_eq!(sender.position, 120, "the sender does not know");
    receiver.return_credits(false);
    sender.prepare(len, Reader::Here);
    assert_eq!(sender.position, 0);
    assert!(sender.push_long(record, len, |space, _| space.fill(3)));
    take(&mut receiver, 3);
    receiver.return_credits(false);
    sender.prepare(len, Reader::Here);
    assert_eq!(sender.position, 40, "the record would reach the line that sends the reader back");
    sender.prepare(lines_bytes(39), Reader::Here);
    assert_eq!(sender.position, 0);
}

#[test]
#[should_panic(expected = "three eighths at most")]
fn a_record_that_no_block_takes_is_a_mistake() {
    let (mut sender, _receiver) = pair(1024);
    sender.push(Record { kind: 1, ..Record::default() }, sender.payload_max_bytes() + 1, |_| ());
}

/// The payload of a record of so many lines, in bytes.
fn lines_bytes(lines: usize) -> usize {
    lines * CACHE_LINE_BYTES - HEADER_BYTES
}

#[test]
fn a_full_block_says_so_and_recovers() {
    let (mut sender, mut receiver) = pair(1024);
    let mut count = 0;
    while sender.push(Record { kind: 1, ..Record::default() }, 8, |_| ()) {
        count += 1;
    }
    assert_eq!(count, 15, "one line stays free for the next arrival");
    for _ in 0..count {
        assert!(receiver.pop(|_, _| ()));
        receiver.return_credits(false);
    }
    assert!(!receiver.pop(|_, _| ()));
    assert!(sender.push(Record { kind: 1, ..Record::default() }, 8, |_| ()));
}

#[test]
fn a_length_beyond_the_block_is_refused() {
    let memory = SharedMemory::private(BlockSender::footprint(1024));
    let mut receiver = BlockReceiver::new(memory.clone(), 1024);
    memory.word(CONTROL_BYTES + 1024 - 8).store(1 << 56 | 0xffff_ffff, Ordering::Release);
    assert!(!receiver.pop(|_, _| panic!("nothing valid arrived")));
}

/// Sends bursts of `burst` records of `len` bytes, each taken before the next; how long the block is in the end.
fn length_after(bursts: usize, burst: usize, len: usize) -> usize {
    let memory = SharedMemory::private(BlockSender::footprint(256 << 10));
    let bounds = Bounds { min_bytes: 16 << 10, max_bytes: 256 << 10, ..Bounds::default() };
    let mut sender = BlockSender::resizable(memory.clone(), 32 << 10, bounds);
    let mut receiver = BlockReceiver::new(memory, 32 << 10);
    for _ in 0..bursts {
        let (mut sent, mut got) = (0, 0);
        while got < burst {
            while sent < burst && sender.push(Record { kind: 1, ..Record::default() }, len, |_| ()) {
                sent += 1;
            }
            while receiver.pop(|_, _| got += 1) {
                if receiver.credits_due() {
                    receiver.return_credits(false);
                }
            }
            if receiver.credits_due() {
                receiver.return_credits(false);
            }
        }
    }
    assert_eq!(sender.block_bytes(), receiver.block_bytes());
    sender.block_bytes()
}

/// The receiver is told with which stores each payload was written, in a block whose sender tries both.
#[test]
fn a_record_says_whether_it_was_streamed() {
    let (mut sender, mut receiver) = pair_for_long(&Allowance::new(300 << 10));
    let record = Record { kind: 1, ..Record::default() };
    let mut seen = [0; 2];
    for _ in 0..times(2000, 40) {
        let mut written = None;
        sender.push_long(record, 4096, |space, stores| {
            written = Some(stores);
            stores.copy(space, &[7; 4096]);
        });
        let streamed = written == Some(Stores::Streaming);
        while receiver.pop(|got, payload| {
            assert_eq!((got, payload.len()), (Record { streamed, ..record }, 4096));
            seen[usize::from(streamed)] += 1;
        }) {}
        receiver.return_credits(false);
    }
    assert!(cfg!(miri) || seen.iter().all(|count| *count > 0), "both were tried: {seen:?}");
    // What no streaming was thought of for says nothing of the sort.
    while !sender.push(record, 4096, |space| space.fill(7)) {
        receiver.pop(|_, _| ());
    }
    assert!(receiver.pop(|got, _| assert_eq!(got, record)));
}

/// How often there is something to ready after a record of 4 KiB.
fn moments(sender: &mut BlockSender) -> usize {
    std::iter::repeat_with(|| sender.ready(true)).take_while(|more| *more).count() + 1
}

#[test]
fn the_lines_of_the_next_record_are_readied_when_there_is_time() {
    const LEN: usize = 4096;
    let (mut sender, mut receiver) = pair(64 << 10);
    let mut pass = |sender: &mut BlockSender, streamed| {
        let record = Record { kind: 1, streamed, ..Record::default() };
        assert!(sender.push(record, LEN, |space| space.fill(1)));
        assert!(receiver.pop(|_, _| {}));
        receiver.return_credits(false);
    };
    assert!(!sender.ready(true), "nothing was sent");
    pass(&mut sender, false);
    assert!(sender.ready(false), "no time, and nothing done");
    assert_eq!(moments(&mut sender), lines_of(LEN).div_ceil(OWN_STEP_LINES));
    pass(&mut sender, true);
    assert!(!sender.ready(true), "written past the caches");
    pass(&mut sender, false);
    pass(&mut sender, false);
    assert!(!sender.ready(true), "the second followed at once: its lines were asked for with it");
    pass(&mut sender, false);
    assert_eq!(moments(&mut sender), lines_of(LEN).div_ceil(OWN_STEP_LINES));
    // What the receiver has not read is left alone, wherever in a lap.
    let (mut sender, mut receiver) = pair(64 << 10);
    let mut is_short_of_lines = false;
    for round in 0..200 {
        let len = LEN - round % 7 * CACHE_LINE_BYTES;
        // In which nothing is timed.
        sender.traffic.pace = Pace::default();
        if sender.push(Record { kind: 1, ..Record::default() }, len, |space| space.fill(1)) {
            let free = sender.lines - (sender.produced - receiver.consumed()) as usize;
            sender.ready(true);
            is_short_of_lines |= free < lines_of(len) && sender.position + lines_of(len) <= sender.lines;
            assert!(sender.traffic.later.end.saturating_sub(sender.position) <= free, "round {round}");
        }
        if round % 3 == 0 {
            receiver.pop(|_, _| {});
            receiver.return_credits(false);
        }
    }
    assert!(is_short_of_lines);
}

#[cfg_attr(miri, ignore = "growth takes thousands of records, with no access that other tests do not make")]
#[test]
fn a_block_is_as_long_as_its_traffic_needs() {
    assert_eq!(length_after(2000, 1, 40), 32 << 10, "too little was sent to tell");
    assert_eq!(length_after(20_000, 1, 40), 16 << 10, "one at a time needs no more than the least");
    assert_eq!(length_after(200, 2000, 40), 192 << 10, "bursts of 2000 lines: 128 KiB would refuse some");
    assert_eq!(length_after(200, 10_000, 40), 256 << 10, "it does not grow beyond its bound");
    assert_eq!(length_after(3, 1, 20_000), 64 << 10, "one long record: three eighths of 64 KiB");
    assert_eq!(length_after(3000, 1, 20_000), 64 << 10, "and it stays long enough for it");
}

/// A pair that may be 256 KiB long while its records are, if `allowance` grants it.
fn pair_for_long(allowance: &Allowance) -> (BlockSender, BlockReceiver) {
    let memory = SharedMemory::private(BlockSender::footprint(256 << 10));
    let bounds = Bounds { min_bytes: 16 << 10, max_bytes: 64 << 10, long_bytes: 256 << 10, ..Bounds::default() };
    let sender = BlockSender::resizable(memory.clone(), 32 << 10, bounds);
    (sender, BlockReceiver::new(memory, 32 << 10).within(allowance.clone()))
}

/// Sends records of `len` bytes, each taken before the next.
fn one_by_one((sender, receiver): &mut (BlockSender, BlockReceiver), count: u32, len: usize) {
    let record = Record { kind: 1, ..Record::default() };
    for _ in 0..count {
        let mut sent = false;
        while !sent {
            sent = match len < MEDIUM_MIN_BYTES {
                true => sender.push(record, len, |space| space.fill(7)),
                false => sender.push_long(record, len, |space, stores| stores.copy(space, &[7; 8192][..len])),
            };
            while receiver.pop(|_, payload| assert!(payload.iter().all(|byte| *byte == 7))) {}
            if receiver.credits_due() {
                receiver.return_credits(false);
            }
        }
    }
    assert_eq!(sender.block_bytes(), receiver.block_bytes());
}

#[cfg_attr(miri, ignore = "growth takes thousands of records, with no access that other tests do not make")]
#[test]
fn long_records_get_a_long_block_as_far_as_memory_is_granted() {
    let allowance = Allowance::new(300 << 10);
    let [mut first, mut second] = [(); 2].map(|()| pair_for_long(&allowance));
    one_by_one(&mut first, 500, 8192);
    assert_eq!((first.0.block_bytes(), allowance.left_bytes()), (256 << 10, 76 << 10));
    assert_eq!(first.1.take_spare(), None);
    one_by_one(&mut second, 500, 8192);
    let (second_bytes, left_bytes) = (second.0.block_bytes(), allowance.left_bytes());
    assert_eq!((second_bytes, left_bytes), (64 << 10, 44 << 10), "a quarter: half would leave nothing to others");
    one_by_one(&mut first, 20_000, 40);
    assert!(first.0.block_bytes() <= 32 << 10, "short records do not need it: {}", first.0.block_bytes());
    assert_eq!(allowance.left_bytes(), 268 << 10);
    assert_eq!(first.1.take_spare(), Some(CONTROL_BYTES + first.0.block_bytes()));
    assert_eq!(first.1.take_spare(), None, "said once");
    one_by_one(&mut second, 20_000, 4096);
    assert_eq!((second.0.block_bytes(), allowance.left_bytes()), (256 << 10, 76 << 10), "it asks again, rarely");
    drop(second);
    assert_eq!(allowance.left_bytes(), 300 << 10);
}

/// A block that is long for long records takes some that it may not grow for. When it is short again they are refused.
#[cfg_attr(miri, ignore = "growth takes thousands of records, with no access that other tests do not make")]
#[test]
fn a_long_block_takes_longer_records_while_it_is_long() {
    const LEN: usize = 90 << 10;
    let record = Record { kind: 1, ..Record::default() };
    let declined = Allowance::new(0);
    let (mut sender, mut receiver) = pair_for_long(&Allowance::new(1 << 20));
    assert!(sender.payload_max_bytes() < LEN && sender.present_payload_max_bytes() < LEN);
    assert!(sender.long_payload_max_bytes() >= LEN, "it will be as long as that");
    assert!(!sender.push_long(record, LEN, |_, _| ()), "not yet");
    let mut pair = (sender, receiver);
    one_by_one(&mut pair, 500, 8192);
    (sender, receiver) = pair;
    assert!(sender.present_payload_max_bytes() >= LEN);
    let mut sent = 0;
    for _ in 0..10 {
        sent += u32::from(sender.push_long(record, LEN, |space, _| space.fill(7)));
        while receiver.pop(|_, payload| assert!(payload.iter().all(|byte| *byte == 7))) {}
        receiver.return_credits(false);
    }
    assert!(sent >= 9, "{sent}");
    pair = (sender, receiver);
    one_by_one(&mut pair, 20_000, 40);
    assert!(!pair.0.push_long(record, LEN, |_, _| ()) && pair.0.block_bytes() <= 64 << 10);
    one_by_one(&mut pair, 100, 40);
    let mut pair = pair_for_long(&declined);
    one_by_one(&mut pair, 500, 8192);
    assert!(pair.0.long_payload_max_bytes() < LEN, "it was not granted that length");
}

#[cfg_attr(miri, ignore = "growth takes thousands of records, with no access that other tests do not make")]
#[test]
fn short_records_do_not_get_a_long_block() {
    let mut pair = pair_for_long(&Allowance::new(1 << 20));
    one_by_one(&mut pair, 100_000, MEDIUM_MIN_BYTES - 1);
    assert!(pair.0.block_bytes() <= 64 << 10, "{}", pair.0.block_bytes());
}

/// Whether it stays long is a matter of time, which is no matter of tests.
#[cfg_attr(miri, ignore = "growth takes thousands of records, with no access that other tests do not make")]
#[test]
fn medium_records_try_a_long_block() {
    let mut pair = pair_for_long(&Allowance::new(1 << 20));
    let was_long = (0..200).any(|_| {
        one_by_one(&mut pair, 100, 1000);
        pair.0.block_bytes() == 256 << 10
    });
    assert!(was_long, "a MiB, twice, and some laps to be granted it");
}

#[test]
fn a_length_beyond_the_memory_is_not_granted() {
    let memory = SharedMemory::private(BlockSender::footprint(1024));
    let mut receiver = BlockReceiver::new(memory.clone(), 1024);
    for (wanted, granted) in [(u64::MAX >> 32, 1024), (0, 1024)] {
        let flag = u64::from(RESIZE) << 56 | wanted;
        memory.word(CONTROL_BYTES + 1024 - 8).store(flag, Ordering::Release);
        assert!(receiver.pop(|_, _| panic!("it is not a record")) && receiver.credits_due());
        assert_eq!(receiver.block_bytes(), granted);
    }
}

#[test]
fn two_threads_pass_a_stream() {
    let (mut sender, mut receiver) = pair(4096);
    let total = times(20_000, 60);
    let writer = std::thread::spawn(move || {
        for number in 0..total {
            let len = 8 + (number as usize * 37) % 900;
            while !sender.push(Record { kind: 3, short: 0, long: number.into(), ..Record::default() }, len, |space| {
                space.fill(number as u8);
                space[..8].copy_from_slice(&number.to_ne_bytes());
            }) {
                std::thread::yield_now();
            }
        }
    });
    let mut next = 0u64;
    while next < total {
        let moved = receiver.pop(|record, payload| {
            assert_eq!(record.long, next.into());
            assert_eq!(payload[..8], next.to_ne_bytes());
            assert!(payload[8..].iter().all(|byte| *byte == next as u8));
            next += 1;
        });
        if receiver.credits_due() {
            receiver.return_credits(false);
        } else if !moved {
            std::thread::yield_now();
        }
    }
    writer.join().expect("no panic");
}

/// Dies after `accesses` accesses to shared words in the midst of `work`.
fn killed<T>(accesses: u32, work: impl FnOnce() -> T) -> T {
    crate::shared::dying::AFTER.set(Some(accesses));
    let result = work();
    crate::shared::dying::AFTER.set(None);
    result
}

/// Fills a block of 16 KiB in a memory of 256 and empties it, lap after lap, until the sender wants it longer, and calls
/// `at_resize` in place of the push that asks for that. What was sent before has been taken.
fn until_it_grows<T>(at_resize: impl FnOnce(&mut BlockSender, &mut BlockReceiver) -> T) -> T {
    let memory = SharedMemory::private(BlockSender::footprint(256 << 10));
    let bounds = Bounds { min_bytes: 16 << 10, max_bytes: 256 << 10, ..Bounds::default() };
    let mut sender = BlockSender::resizable(memory.clone(), 16 << 10, bounds);
    let mut receiver = BlockReceiver::new(memory, 16 << 10);
    // A record that fits no block as short as this one.
    for _ in 0..20 {
        assert!(sender.push(Record { kind: 3, ..Record::default() }, 1000, |space| space.fill(9)));
        let mut lens = Vec::new();
        while receiver.pop(|_, payload| lens.push(payload.len())) {
            receiver.return_credits(false);
        }
        assert_eq!(lens, [1000]);
    }
    at_resize(&mut sender, &mut receiver)
}

const TOO_LONG: usize = 9000;

fn push_too_long(sender: &mut BlockSender) -> bool {
    sender.push(Record { kind: 4, ..Record::default() }, TOO_LONG, |space| space.fill(7))
}

#[test]
fn the_push_that_finds_the_answer_sends_its_record() {
    until_it_grows(|sender, receiver| {
        assert!(!push_too_long(sender), "it asks");
        assert!(receiver.pop(|_, _| panic!("a resize shows no record")));
        assert!(push_too_long(sender), "it may be the last look before its process sleeps, with the bell rung before");
        assert!(receiver.pop(|_, payload| assert_eq!(payload.len(), TOO_LONG)));
    });
}

#[test]
fn a_sender_that_dies_while_its_block_grows_leaves_nothing_half_seen() {
    let mut asked = 0;
    let step = if cfg!(miri) { 13 } else { 1 };
    for accesses in (0..40).step_by(step) {
        for turns_before in 0..3 {
            until_it_grows(|sender, receiver| {
                for _ in 0..turns_before {
                    assert!(!push_too_long(sender) || turns_before > 1, "the receiver has not answered");
                    receiver.pop(|_, payload| assert_eq!(payload.len(), TOO_LONG));
                }
                let pushed = killed(accesses, || push_too_long(sender));
                // Whatever it still wanted to do comes to nothing; the receiver ends with an empty channel.
                let mut records = 0;
                for _ in 0..10 {
                    receiver.pop(|_, payload| {
                        assert!(payload.len() == TOO_LONG && payload.iter().all(|byte| *byte == 7), "whole");
                        records += 1;
                    });
                    receiver.return_credits(false);
                }
                assert!(records <= 1 && (pushed || records == 0), "after {accesses}");
                asked += usize::from(receiver.block_bytes() > 16 << 10);
                assert!(!receiver.pop(|_, _| panic!("nothing more was sent")));
            });
        }
    }
    assert!(asked > if cfg!(miri) { 0 } else { 10 }, "some lived long enough to ask");
}

#[test]
fn a_receiver_that_dies_while_a_block_grows_holds_its_sender_back_and_nothing_else() {
    let (mut answered, mut unanswered) = (0, 0);
    for accesses in (0..12).step_by(if cfg!(miri) { 3 } else { 1 }) {
        until_it_grows(|sender, receiver| {
            assert!(!push_too_long(sender));
            killed(accesses, || receiver.pop(|_, _| panic!("a resize shows no record")));
            // The sender goes on: into a block that was granted, or it is told that there is no room, for ever.
            let before = sender.block_bytes();
            let mut pushed = 0;
            for _ in 0..100 {
                pushed += usize::from(push_too_long(sender));
            }
            match sender.block_bytes() == before {
                true => {
                    assert_eq!(pushed, 0, "after {accesses}");
                    unanswered += 1;
                }
                false => {
                    assert!(pushed > 0 && pushed * TOO_LONG < sender.block_bytes(), "after {accesses}");
                    answered += 1;
                }
            }
        });
    }
    assert!(answered > 0 && unanswered > 0, "{answered} answered, {unanswered} not");
}
