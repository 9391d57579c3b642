//! Long messages that come whole, without a request, in pieces.

use std::thread;

use base::Config;
use base::config::{LargeCopy, Medium};
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, Outcome, RequestId, SendMode, Source, TagPattern, WaitPolicy};
use fabric::{MappedArea, MappedPeers, PeerIndex};
use fabric_soft::shm::{Segment, Shape, ShmPeers};
use lockfree::{Announcements, BlockSender};
use protocol::fastpath::Geometry;
use protocol::wire;

const CONTEXT: ContextId = ContextId(3);
const TAG: i32 = 7;

fn payload(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ number) as u8).collect()
}

fn receive(engine: &mut Engine, buf: &mut RecvBuf) -> RequestId {
    let all = buf.slice(0, buf.len_bytes());
    engine.recv(Source::Any, CONTEXT, TagPattern::Any, all).expect("a source")
}

/// A receiver that waits, and once now and then looks first, in a thread of its own: what arrives while its pieces come is as
/// whole as what has arrived.
#[test]
fn messages_are_whole_whenever_their_receive_is_posted() {
    const ROUNDS: u64 = 600;
    let config = Config { large_copy: LargeCopy::Staged, channel_bytes: Some(256 << 10), ..Config::default() };
    let mut engines = local_engines(2, &config).expect("a segment");
    let (mut receiver, mut sender) = (engines.pop().expect("two"), engines.pop().expect("two"));
    let len_of = |number: u64| 40_000 + (number / 50 * 7919 % 56_000) as usize;
    let sends = thread::spawn(move || {
        for number in 0..ROUNDS {
            let data = SendBuf::from_owned(payload(number, len_of(number)).into());
            let send = sender.send(SendMode::Standard, 1, CONTEXT, TAG, data).expect("a peer");
            while !sender.is_complete(send) {
                sender.progress();
                thread::yield_now();
            }
            sender.take(send);
        }
        while sender.pending_sends() > 0 {
            sender.progress();
            thread::yield_now();
        }
        sender.stats()
    });
    for number in 0..ROUNDS {
        let len = len_of(number);
        let room = if number % 31 == 30 { len / 2 } else { len };
        let mut buf = RecvBuf::from_owned(vec![0; room].into());
        let request = if number % 5 == 4 {
            let message = loop {
                match receiver.matched_probe(Source::Any, CONTEXT, TagPattern::Any) {
                    Some((message, envelope)) => {
                        assert_eq!(envelope.len_bytes, len as u64);
                        break message;
                    }
                    None => {
                        receiver.progress();
                        thread::yield_now();
                    }
                }
            };
            let all = buf.slice(0, room as u64);
            receiver.matched_recv(message, all).expect("it was there")
        } else {
            receive(&mut receiver, &mut buf)
        };
        while !receiver.is_complete(request) {
            receiver.progress();
            thread::yield_now();
        }
        let done = receiver.take(request).expect("complete");
        let (sent_bytes, capacity_bytes) = (len as u64, room as u64);
        let is_whole = room == len;
        let outcome = if is_whole { Outcome::Done } else { Outcome::Truncated { sent_bytes, capacity_bytes } };
        assert_eq!((done.outcome, done.envelope.len_bytes), (outcome, sent_bytes), "message {number}");
        let sent = payload(number, len);
        // What a receive with too little room holds is not said where its sender was asked first.
        assert!(!is_whole || buf.contiguous_mut().is_some_and(|space| *space == sent), "message {number}");
    }
    let sender = sends.join().expect("all are sent");
    assert!(sender.whole_sent > ROUNDS / 4, "{sender:?}");
    assert_eq!(receiver.stats().refused_records + sender.refused_records, 0);
}

/// Messages of both ways, each side's before it takes the other's; the first asks, and leave holds for those that are like it
/// and no longer than any may come whole.
#[test]
fn messages_come_whole_both_ways_and_longer_ones_ask() {
    // All goes through the block, which needs credits.
    let shuttle_bytes = 0;
    let config =
        Config { large_copy: LargeCopy::Staged, channel_bytes: Some(1 << 20), shuttle_bytes, ..Config::default() };
    let mut engines = local_engines(2, &config).expect("a segment");
    let lens = |round: u64| if round % 5 == 4 { (256 << 10) + 1000 } else { 256 << 10 };
    for round in 0..100 {
        let len = lens(round);
        let mut bufs = [0, 1].map(|_| RecvBuf::from_owned(vec![0; len].into()));
        let mut requests = Vec::new();
        for (me, buf) in bufs.iter_mut().enumerate() {
            requests.push((me, receive(&mut engines[me], buf)));
        }
        for (me, engine) in engines.iter_mut().enumerate() {
            let data = SendBuf::from_owned(payload(round + me as u64, len).into());
            let send = engine.send(SendMode::Standard, 1 - me as u32, CONTEXT, TAG, data).expect("a peer");
            requests.push((me, send));
        }
        for turn in 0.. {
            engines.iter_mut().for_each(|engine| _ = engine.progress());
            if requests.iter().all(|(me, request)| engines[*me].is_complete(*request)) {
                break;
            }
            assert!(turn < 10_000, "round {round}: {len} bytes never come");
        }
        for (me, request) in requests {
            assert_eq!(engines[me].take(request).expect("complete").outcome, Outcome::Done, "round {round}");
        }
        for (me, buf) in bufs.iter_mut().enumerate() {
            let sent = payload(round + 1 - me as u64, len);
            assert!(buf.contiguous_mut().is_some_and(|space| *space == sent), "round {round}");
        }
    }
    for stats in engines.iter().map(Engine::stats) {
        assert!((40..80).contains(&stats.whole_sent), "all but those that are too long, and those that ask: {stats:?}");
        assert!(stats.credits_carried > 0, "the first piece takes them along: {stats:?}");
        assert_eq!((stats.refused_records, stats.unexpected), (0, 0));
    }
}

/// An engine, and the channel by which process 0, which is none, says what it likes.
fn with_a_stranger() -> (Engine, BlockSender) {
    let config = Config::default();
    let channel_bytes = Geometry::new(&config).reserved_bytes();
    let shape = Shape { process_count: 2, channel_bytes, ..Shape::default() };
    let segment = Segment::create(shape).expect("memory");
    let stranger = ShmPeers::join(segment.clone(), PeerIndex(0), Ok(())).expect("a place");
    let peers = ShmPeers::join(segment, PeerIndex(1), Ok(())).expect("a place");
    let mut engine = Engine::new(Box::new(peers), &config, WaitPolicy::for_host(2, 1)).expect("one");
    assert!(engine.try_send(0, CONTEXT, TAG, &SendBuf::from_owned([1; 4].into())), "it is talked to");
    let area = MappedArea::Channel { from: PeerIndex(0), to: PeerIndex(1) };
    let channel =
        BlockSender::new(stranger.mapped(area).expect("a channel"), config.sizes(Medium::Memory).channel_bytes);
    let announcements = stranger.mapped(MappedArea::Announcements { owner: PeerIndex(1) }).expect("its words");
    Announcements::new(announcements, 3).announce(0);
    (engine, channel)
}

fn key(tag: i32) -> u64 {
    u64::from(CONTEXT.0) << 32 | tag as u64
}

/// Pieces of 100 bytes of one message, and a short message behind it.
struct Sent {
    engine: Engine,
    channel: BlockSender,
    data: Vec<u8>,
}

impl Sent {
    fn new(number: u64) -> Self {
        let (engine, channel) = with_a_stranger();
        Self { engine, channel, data: payload(number, 250) }
    }

    fn piece(&mut self, index: usize) {
        let at = index * 100;
        let piece = &self.data[at..(at + 100).min(self.data.len())];
        let record = match index {
            0 => wire::first(key(TAG), self.data.len() as u64),
            _ => wire::more(at as u64),
        };
        assert!(self.channel.push(record, piece.len(), |space| space.copy_from_slice(piece)));
        self.engine.progress();
    }

    fn short(&mut self) {
        assert!(self.channel.push(wire::eager(key(TAG), None), 3, |space| space.copy_from_slice(b"end")));
        self.engine.progress();
    }

    /// The outcome of a receive that is over.
    fn outcome(&mut self, receive: RequestId) -> Outcome {
        self.engine.take(receive).expect("it is over").outcome
    }
}

#[test]
fn a_receive_takes_over_a_message_of_which_a_part_has_come() {
    // Before piece `posted` the receive is posted; the whole, or the first 120 bytes, fit.
    for (posted, room) in [0, 1, 2, 3].into_iter().flat_map(|posted| [(posted, 250), (posted, 120)]) {
        for probes in [false, true] {
            let mut sent = Sent::new(posted as u64);
            let mut buf = RecvBuf::from_owned(vec![0; room].into());
            let (mut request, mut message) = (None, None);
            for index in 0..=3 {
                if index == posted && !(probes && index > 0) {
                    request = Some(receive(&mut sent.engine, &mut buf));
                } else if index == posted {
                    let all = buf.slice(0, room as u64);
                    let message = std::mem::take(&mut message).expect("probed before");
                    request = Some(sent.engine.matched_recv(message, all).expect("it is there"));
                }
                if index < 3 {
                    sent.piece(index);
                    let is_over = request.is_some_and(|request| sent.engine.is_complete(request));
                    assert_eq!(is_over, index == 2 && request.is_some());
                }
                if index == 0 && posted > 0 {
                    let envelope = match probes {
                        true => {
                            let found = sent.engine.matched_probe(Source::Peer(0), CONTEXT, TagPattern::Exact(TAG));
                            let (found, envelope) = found.expect("its first piece is there");
                            message = Some(found);
                            envelope
                        }
                        false => sent.engine.probe(Source::Any, CONTEXT, TagPattern::Any).expect("as above"),
                    };
                    assert_eq!((envelope.peer, envelope.tag, envelope.len_bytes), (0, TAG, 250));
                    assert_eq!(sent.engine.unexpected_bytes(), 250);
                }
            }
            let request = request.expect("posted");
            let expected = match room {
                250 => Outcome::Done,
                _ => Outcome::Truncated { sent_bytes: 250, capacity_bytes: room as u64 },
            };
            assert_eq!(sent.outcome(request), expected, "{posted} {room} {probes}");
            assert!(buf.contiguous_mut().is_some_and(|space| *space == sent.data[..room]), "{posted} {room} {probes}");
            assert_eq!(sent.engine.unexpected_bytes(), 0);
            // What comes behind it is another message.
            let mut buf = RecvBuf::from_owned(vec![0; 3].into());
            let request = receive(&mut sent.engine, &mut buf);
            sent.short();
            assert_eq!(sent.outcome(request), Outcome::Done);
            assert!(buf.contiguous_mut().is_some_and(|space| *space == *b"end"));
            assert_eq!(sent.engine.stats().refused_records, 0);
        }
    }
}

#[test]
fn a_receive_whose_message_has_begun_to_come_cannot_be_cancelled() {
    let mut sent = Sent::new(1);
    let mut buf = RecvBuf::from_owned(vec![0; 250].into());
    let request = receive(&mut sent.engine, &mut buf);
    sent.piece(0);
    sent.engine.cancel(request);
    assert!(!sent.engine.is_complete(request));
    sent.piece(1);
    sent.piece(2);
    assert_eq!(sent.outcome(request), Outcome::Done);
}

#[test]
fn pieces_that_nobody_sends_are_refused_and_written_nowhere() {
    let refused = |records: &[(lockfree::Record, usize)]| {
        let (mut engine, mut channel) = with_a_stranger();
        let mut buf = RecvBuf::from_owned(vec![0xee; 1000].into());
        let mut window = buf.slice(400, 250);
        let request = receive(&mut engine, &mut window);
        for (record, len) in records {
            assert!(channel.push(*record, *len, |space| space.fill(1)));
            engine.progress();
        }
        let is_over = engine.is_complete(request);
        let space = buf.contiguous_mut().expect("one piece");
        assert!(space[..400].iter().chain(&space[650..]).all(|byte| *byte == 0xee), "{records:?}");
        (engine.stats().refused_records, is_over)
    };
    let first = |len_bytes| wire::first(key(TAG), len_bytes);
    assert_eq!(refused(&[(wire::more(0), 10)]), (1, false), "without a first one");
    assert_eq!(refused(&[(first(u64::MAX), 10)]), (1, false), "longer than anybody may send");
    assert_eq!(refused(&[(first((256 << 10) + 1), 10)]), (1, false));
    assert_eq!(refused(&[(first(5), 10)]), (1, false), "longer than the message");
    assert_eq!(refused(&[(first(250), 100), (wire::more(90), 10)]), (1, false), "twice the same");
    assert_eq!(refused(&[(first(250), 100), (wire::more(u64::MAX), 10)]), (1, false));
    assert_eq!(refused(&[(first(250), 100), (wire::more(100), 151)]), (1, false), "beyond the end");
    assert_eq!(refused(&[(first(250), 250), (wire::more(250), 0)]), (1, true), "after the end");
    assert_eq!(refused(&[(first(250), 100), (first(10), 10), (wire::more(100), 150)]), (1, false), "of two at once");
    // Longer than the receive: what there is no room for goes nowhere.
    assert_eq!(refused(&[(first(2000), 1000), (wire::more(1000), 1000)]), (0, true));
}
