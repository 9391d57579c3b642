//! Long messages that leave before they are asked for: their first part, or the whole of them.

use base::Config;
use base::config::{LargeCopy, ShuttleCopy};
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, Outcome, RequestId, SendMode, Source, Stats, TagPattern};

const CONTEXT: ContextId = ContextId(3);

fn payload(number: u64, len: usize) -> Box<[u8]> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ number) as u8).collect()
}

/// Longer than those that may come without a request.
const LEN: usize = 320 << 10;

/// Messages of [`LEN`] to a receive that `waits` for them or comes later, the first of them, which says that the receiver
/// is ready, included; what both sides counted.
fn send_ahead(config: &Config, count: u64, waits: bool) -> (Stats, Stats) {
    send_one_by_one(local_engines(2, config).expect("a segment"), &[LEN], count, waits)
}

/// Messages of these lengths in turns, each over before the next, as `send_ahead` sends them.
fn send_one_by_one(mut engines: Vec<Engine>, lens: &[usize], count: u64, waits: bool) -> (Stats, Stats) {
    send_each(&mut engines, lens, count, waits);
    (engines[0].stats(), engines[1].stats())
}

/// As `send_one_by_one`, from the first of two engines to the second.
fn send_each(engines: &mut [Engine], lens: &[usize], count: u64, waits: bool) {
    let [sender, receiver] = engines else { panic!("two") };
    for (number, &len) in (0..count).zip(lens.iter().cycle()) {
        let data = payload(number, len);
        let mut buf = RecvBuf::from_owned(vec![0; len].into());
        let mut receive = waits.then(|| {
            receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(7), buf.slice(0, len as u64)).expect("a peer")
        });
        let send = sender.send(SendMode::Standard, 1, CONTEXT, 7, SendBuf::from_owned(data.clone())).expect("a peer");
        for _ in 0..10 {
            sender.progress();
            receiver.progress();
        }
        let receive = *receive.get_or_insert_with(|| {
            receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(7), buf.slice(0, len as u64)).expect("a peer")
        });
        while !receiver.is_complete(receive) || !sender.is_complete(send) {
            sender.progress();
            receiver.progress();
        }
        assert_eq!(receiver.take(receive).expect("complete").outcome, Outcome::Done);
        assert_eq!(sender.take(send).expect("complete").outcome, Outcome::Done);
        assert!(buf.contiguous_mut().is_some_and(|space| *space == *data), "message {number}");
    }
}

#[test]
fn the_first_part_of_a_message_goes_ahead_where_the_last_one_was_waited_for() {
    let config = Config { large_copy: LargeCopy::Staged, ..Config::default() };
    let (sender, receiver) = send_ahead(&config, 20, true);
    // The first tells that the receiver is ready; now and then the channel is about to change its length.
    assert!((16..20).contains(&sender.ahead_sent), "{}", sender.ahead_sent);
    // Whole pieces, of which one takes three eighths of a block as it is in the beginning.
    assert!(receiver.ahead_taken_bytes > 15 * (23 << 10), "{}", receiver.ahead_taken_bytes);
    assert_eq!((receiver.ahead_dropped_bytes, receiver.refused_records), (0, 0));
    let (sender, receiver) = send_ahead(&config, 20, false);
    assert_eq!((sender.ahead_sent, receiver.ahead_taken_bytes, receiver.ahead_dropped_bytes), (0, 0, 0));
    let none = Config { ahead_bytes: 0, ..config.clone() };
    assert_eq!(send_ahead(&none, 5, true).0.ahead_sent, 0);
    // As much as there is room for in the block.
    let shuttle_copy = ShuttleCopy::Loop;
    let (channel_bytes, ahead_bytes) = (Some(8 << 10), 1 << 20);
    let (channel_max_bytes, channel_long_bytes) = (8 << 10, channel_bytes);
    let narrow = Config { channel_bytes, channel_max_bytes, channel_long_bytes, ahead_bytes, shuttle_copy, ..config };
    let (sender, receiver) = send_ahead(&narrow, 20, true);
    assert!(sender.ahead_sent > 10 && receiver.ahead_taken_bytes < 10 * LEN as u64, "{sender:?}");
    assert_eq!(receiver.ahead_dropped_bytes, 0);
}

/// A receiver that waits for long messages and wants them through the channel lets seven come without a request after the
/// first, and twice as many each time, of each kind of length; where processes outnumber processors it need not wait. A block
/// that is too short for one whole is asked.
#[test]
fn long_messages_come_whole_where_their_receiver_gives_leave() {
    let channel_bytes = Some(256 << 10);
    let config = Config { large_copy: LargeCopy::Staged, channel_bytes, ..Config::default() };
    let send_mixed = |config: &Config, is_crowded: bool, lens: &[usize], waits: bool| {
        let mut engines = local_engines(2, config).expect("a segment");
        engines.iter_mut().for_each(|engine| engine.set_crowded(is_crowded));
        let (sender, receiver) = send_one_by_one(engines, lens, 80, waits);
        assert_eq!(receiver.refused_records, 0);
        (sender.whole_sent, receiver.unexpected)
    };
    let send = |config: &Config, is_crowded, len, waits| send_mixed(config, is_crowded, &[len], waits);
    // The 1st asks, the 9th, the 25th and the 57th, and those that meet a block about to change its length.
    let most = 72..=76;
    let (whole, unexpected) = send(&config, false, 30_000, true);
    assert!(most.contains(&whole) && unexpected == 0, "{whole}, {unexpected}");
    assert_eq!(send(&config, false, 30_000, false), (0, 80), "its receive was never there");
    let (whole, unexpected) = send(&config, false, 90_000, true);
    assert!(most.contains(&whole) && unexpected == 0, "in pieces: {whole}, {unexpected}");
    assert_eq!(send(&config, false, 300_000, true), (0, 0), "longer than any that comes whole");
    let (whole, unexpected) = send_mixed(&config, false, &[90_000, 30_000, 90_000, 200_000], true);
    assert!((70..=75).contains(&whole) && unexpected == 0, "each kind of length has its own: {whole}, {unexpected}");
    let (whole, _) = send_mixed(&config, false, &[200_000, 300_000], true);
    assert!((33..=37).contains(&whole), "those that are too long take nothing from others: {whole}");
    let (whole, unexpected) = send(&config, true, 90_000, false);
    assert!((74..=78).contains(&whole) && unexpected + whole == 80, "these wait in the channel: {whole}, {unexpected}");
    assert_eq!(send(&Config { ahead_bytes: 0, ..config.clone() }, true, 30_000, true), (0, 0), "switched off");
    let (channel_max_bytes, channel_long_bytes) = (64 << 10, Some(64 << 10));
    let narrow = Config { channel_bytes: Some(64 << 10), channel_max_bytes, channel_long_bytes, ..config };
    assert_eq!(send(&narrow, true, 30_000, true), (0, 0), "a record takes three eighths of a block");
    assert_eq!(send(&narrow, false, 40_000, true), (0, 0), "and so do all pieces together");
}

#[test]
fn leave_is_short_again_after_a_message_that_was_too_early() {
    for len in [30_000, 90_000] {
        let config = Config { large_copy: LargeCopy::Staged, channel_bytes: Some(256 << 10), ..Config::default() };
        let mut engines = local_engines(2, &config).expect("a segment");
        let mut phase = |count, waits| {
            let before = engines[0].stats().whole_sent;
            send_each(&mut engines, &[len], count, waits);
            engines[0].stats().whole_sent - before
        };
        assert!((52..=56).contains(&phase(60, true)), "four ask");
        let early = phase(100, false);
        assert!((1..=60).contains(&early), "no more than there was leave for: {early}");
        // The 1st asks, the 9th and the 25th, as in the beginning.
        assert!((33..=37).contains(&phase(40, true)));
    }
}

/// Where both sides send at once nobody copies one piece while the next is written, so there are none.
#[test]
fn messages_of_an_exchange_go_in_one_record() {
    const LEN: usize = 60_000;
    let config = Config { large_copy: LargeCopy::Staged, channel_bytes: Some(256 << 10), ..Config::default() };
    let (one_way, _) = send_one_by_one(local_engines(2, &config).expect("a segment"), &[LEN], 80, true);
    assert!(one_way.whole_sent > 60 && one_way.whole_in_pieces == one_way.whole_sent, "{one_way:?}");
    let mut engines = local_engines(2, &config).expect("a segment");
    for number in 0..80 {
        let mut bufs = [(); 2].map(|()| RecvBuf::from_owned(vec![0; LEN].into()));
        let receives: Vec<_> = (engines.iter_mut().zip(&mut bufs).zip([1, 0]))
            .map(|((engine, buf), from)| {
                let buf = buf.slice(0, LEN as u64);
                engine.recv(Source::Peer(from), CONTEXT, TagPattern::Exact(7), buf).expect("a peer")
            })
            .collect();
        let sends: Vec<_> = (engines.iter_mut().zip([1, 0]))
            .map(|(engine, to)| {
                let data = SendBuf::from_owned(payload(number + u64::from(to), LEN));
                engine.send(SendMode::Standard, to, CONTEXT, 7, data).expect("a peer")
            })
            .collect();
        let requests: Vec<_> = receives.into_iter().zip(sends).collect();
        while engines
            .iter()
            .zip(&requests)
            .any(|(engine, (receive, send))| !engine.is_complete(*receive) || !engine.is_complete(*send))
        {
            engines.iter_mut().for_each(|engine| _ = engine.progress());
        }
        for (engine, (receive, send)) in engines.iter_mut().zip(requests) {
            assert_eq!(engine.take(receive).expect("complete").outcome, Outcome::Done);
            assert_eq!(engine.take(send).expect("complete").outcome, Outcome::Done);
        }
        for (me, buf) in (0..).zip(&mut bufs) {
            assert!(buf.contiguous_mut().is_some_and(|space| *space == *payload(number + me, LEN)), "{number} {me}");
        }
    }
    let stats = engines[0].stats();
    assert!(stats.whole_sent > 50 && stats.whole_in_pieces == 0, "{stats:?}");
}

/// Where processes share processors a long message stays in its channel for a while, for its receive may be posted soon.
#[test]
fn long_messages_wait_in_the_channel_for_their_receive() {
    const LEN: usize = 10_000;
    let config = Config::default();
    let pair = |is_crowded: bool| {
        let mut engines = local_engines(2, &config).expect("a segment");
        engines.iter_mut().for_each(|engine| engine.set_crowded(is_crowded));
        let (receiver, sender) = (engines.pop().expect("two"), engines.pop().expect("two"));
        (sender, receiver)
    };
    let send = |sender: &mut Engine, number: u64, len: usize| {
        let data = SendBuf::from_owned(payload(number, len));
        let request = sender.send(SendMode::Standard, 1, CONTEXT, 7, data).expect("a peer");
        assert_eq!(sender.take(request).expect("it is short").outcome, Outcome::Done);
    };
    let receive = |receiver: &mut Engine, number: u64, len: usize, turns: u32| {
        let mut buf = RecvBuf::from_owned(vec![0; len].into());
        let posted = buf.slice(0, len as u64);
        let request = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(7), posted).expect("a peer");
        (0..turns).for_each(|_| _ = receiver.progress());
        assert_eq!(receiver.take(request).expect("it is there").outcome, Outcome::Done);
        assert!(buf.contiguous_mut().is_some_and(|space| *space == *payload(number, len)));
    };
    let probe = |receiver: &mut Engine| receiver.probe(Source::Peer(0), CONTEXT, TagPattern::Exact(7));

    let (mut sender, mut receiver) = pair(true);
    send(&mut sender, 0, 10);
    assert!(receiver.progress(), "the channel is used for the first time");
    receive(&mut receiver, 0, 10, 0);
    send(&mut sender, 0, LEN);
    (0..8).for_each(|_| assert!(!receiver.progress(), "nothing moves"));
    receive(&mut receiver, 0, LEN, 1);
    let stats = receiver.stats();
    assert_eq!((stats.met_in_channel, stats.unexpected), (1, 1));

    // Whoever asks for it, and who is about to sleep, takes it out; so does who has waited long enough, with all behind it.
    send(&mut sender, 1, LEN);
    assert!(!receiver.progress() && probe(&mut receiver).is_none() && receiver.progress());
    assert_eq!(probe(&mut receiver).map(|found| found.len_bytes), Some(LEN as u64));
    receive(&mut receiver, 1, LEN, 0);
    send(&mut sender, 2, LEN);
    assert!(!receiver.progress());
    receiver.hurry();
    assert!(receiver.progress());
    receive(&mut receiver, 2, LEN, 0);
    send(&mut sender, 3, LEN);
    send(&mut sender, 4, 10);
    let turns = (1..).find(|_| receiver.progress());
    assert!(turns.is_some_and(|turns| turns < 100), "{turns:?}");
    assert_eq!(receiver.unexpected_count(), 2);
    receive(&mut receiver, 3, LEN, 0);
    receive(&mut receiver, 4, 10, 0);

    // One has waited in vain; others are taken out at once until one meets its receive.
    send(&mut sender, 5, LEN);
    assert!(receiver.progress());
    receive(&mut receiver, 5, LEN, 0);
    let mut buf = RecvBuf::from_owned(vec![0; LEN].into());
    let posted = buf.slice(0, LEN as u64);
    let request = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Exact(7), posted).expect("a peer");
    send(&mut sender, 6, LEN);
    assert!(receiver.progress() && receiver.take(request).is_some());
    send(&mut sender, 7, LEN);
    assert!(!receiver.progress());
    receive(&mut receiver, 7, LEN, 1);
    assert_eq!(receiver.stats().met_in_channel, 2);

    let (mut sender, mut receiver) = pair(true);
    send(&mut sender, 0, 1000);
    assert!(receiver.progress(), "short ones are not worth it");
    let (mut sender, mut receiver) = pair(false);
    send(&mut sender, 0, LEN);
    assert!(receiver.progress(), "nor is it where nobody else needs the processor");
}

/// Messages that come whole before their receive keep their place, and are truncated and held back as short ones are.
#[test]
fn long_messages_that_come_whole_are_received_as_short_ones_are() {
    let (channel_bytes, unexpected_max_bytes) = (Some(256 << 10), 200_000);
    let config = Config { large_copy: LargeCopy::Staged, channel_bytes, unexpected_max_bytes, ..Config::default() };
    let mut engines = local_engines(2, &config).expect("a segment");
    engines.iter_mut().for_each(|engine| engine.set_crowded(true));
    let (mut receiver, mut sender) = (engines.pop().expect("two"), engines.pop().expect("two"));
    for round in 0..40 {
        let lens = [30_000, 5, 31_000, 29_000, 0, 100_000, 32_000, 30_001, 20_000];
        let sends: Vec<RequestId> = (0..)
            .zip(lens)
            .map(|(number, len)| {
                let data = SendBuf::from_owned(payload(round * 16 + number, len));
                sender.send(SendMode::Standard, 1, CONTEXT, 7, data).expect("a peer")
            })
            .collect();
        for _ in 0..10 {
            sender.progress();
            receiver.progress();
        }
        for (number, len) in (0..).zip(lens) {
            let room = if number % 3 == 2 { len / 2 } else { len };
            let mut buf = RecvBuf::from_owned(vec![0; room].into());
            let window = buf.slice(0, room as u64);
            let receive = receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Any, window).expect("a peer");
            while !receiver.is_complete(receive) {
                sender.progress();
                receiver.progress();
            }
            let outcome = receiver.take(receive).expect("complete").outcome;
            if room == len {
                assert_eq!(outcome, Outcome::Done);
                let sent = payload(round * 16 + number, len);
                assert!(buf.contiguous_mut().is_some_and(|space| *space == *sent), "{round}: message {number}");
            } else {
                assert!(matches!(outcome, Outcome::Truncated { .. }), "{round}: message {number}: {outcome:?}");
            }
        }
        for send in sends {
            while !sender.is_complete(send) {
                sender.progress();
                receiver.progress();
            }
            assert_eq!(sender.take(send).expect("complete").outcome, Outcome::Done);
        }
    }
    assert!(sender.stats().whole_sent > 40, "{:?}", sender.stats());
    assert!(receiver.stats().unexpected_peak_bytes <= unexpected_max_bytes as u64 + 32_000, "{:?}", receiver.stats());
    assert_eq!(receiver.stats().refused_records + sender.stats().refused_records, 0);
}

#[test]
fn what_went_ahead_of_a_receive_comes_again() {
    let config = Config { large_copy: LargeCopy::Staged, ..Config::default() };
    let mut engines = local_engines(2, &config).expect("a segment");
    let (mut receiver, mut sender) = (engines.pop().expect("two"), engines.pop().expect("two"));
    let len = 40_000;
    let mut dropped = 0;
    for number in 0..30 {
        // Every other one finds no receive, some are truncated.
        let (waits, room) = (number % 2 == 0, if number % 5 == 4 { 100 } else { len });
        let data = payload(number, len);
        let mut buf = RecvBuf::from_owned(vec![0; room].into());
        let post = |receiver: &mut Engine, buf: &mut RecvBuf| {
            receiver.recv(Source::Peer(0), CONTEXT, TagPattern::Any, buf.slice(0, room as u64)).expect("a peer")
        };
        let posted = waits.then(|| post(&mut receiver, &mut buf));
        let send = sender.send(SendMode::Standard, 1, CONTEXT, 7, SendBuf::from_owned(data.clone())).expect("a peer");
        if !waits {
            for _ in 0..10 {
                sender.progress();
                receiver.progress();
            }
        }
        let receive = posted.unwrap_or_else(|| post(&mut receiver, &mut buf));
        while !receiver.is_complete(receive) || !sender.is_complete(send) {
            sender.progress();
            receiver.progress();
        }
        let outcome = receiver.take(receive).expect("complete").outcome;
        assert_eq!(sender.take(send).expect("complete").outcome, Outcome::Done);
        if room == len {
            assert_eq!(outcome, Outcome::Done);
            assert!(buf.contiguous_mut().is_some_and(|space| *space == *data), "message {number}");
        } else {
            assert!(matches!(outcome, Outcome::Truncated { .. }), "message {number}: {outcome:?}");
        }
        dropped = receiver.stats().ahead_dropped_bytes;
    }
    assert!(dropped > 0);
    assert_eq!(receiver.stats().refused_records + sender.stats().refused_records, 0);
}
