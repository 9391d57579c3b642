//! Messages that go aboard shuttles: whoever answers writes where it has read last.

use base::Config;
use base::config::{LargeCopy, ShuttleCopy};
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{ABOARD_MIN_BYTES, ContextId, Engine, Outcome, RequestId, SendMode, Source, TagPattern};

const CONTEXT: ContextId = ContextId(3);
/// Turns of progress of both after which nothing comes any more.
const TURNS_MAX: usize = 1 << 20;

fn payload(number: usize, len: usize) -> Box<[u8]> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ number) as u8).collect()
}

fn post(engines: &mut [Engine], to: usize, len: usize) -> (RecvBuf, RequestId) {
    let mut buf = RecvBuf::from_owned(vec![0; len].into());
    let from = Source::Peer(1 - to as u32);
    let receive = engines[to].recv(from, CONTEXT, TagPattern::Exact(7), buf.slice(0, len as u64)).expect("a peer");
    (buf, receive)
}

fn send(engines: &mut [Engine], to: usize, data: Box<[u8]>) -> RequestId {
    let data = SendBuf::from_owned(data);
    engines[1 - to].send(SendMode::Standard, to as u32, CONTEXT, 7, data).expect("a peer")
}

/// Two processes that have channels to each other.
fn pair(config: &Config) -> Vec<Engine> {
    let mut engines = local_engines(2, config).expect("a segment");
    (0..2).for_each(|to| pass(&mut engines, to, 0, 100));
    engines
}

fn turn(engines: &mut [Engine]) {
    for engine in engines {
        engine.progress();
    }
}

/// Both go on until this message is over, and right.
fn finish(engines: &mut [Engine], to: usize, sent: RequestId, receive: (RecvBuf, RequestId), data: &[u8]) {
    finish_receive(engines, to, receive, data);
    go_on_until(engines, |engines| engines[1 - to].is_complete(sent));
    assert_eq!(engines[1 - to].take(sent).expect("complete").outcome, Outcome::Done);
}

fn go_on_until(engines: &mut [Engine], is_over: impl Fn(&[Engine]) -> bool) {
    for _ in 0..TURNS_MAX {
        if is_over(engines) {
            break;
        }
        turn(engines);
    }
    assert!(is_over(engines), "it comes to an end");
}

fn finish_receive(engines: &mut [Engine], to: usize, (mut buf, receive): (RecvBuf, RequestId), data: &[u8]) {
    go_on_until(engines, |engines| engines[to].is_complete(receive));
    assert_eq!(engines[to].take(receive).expect("complete").outcome, Outcome::Done);
    assert!(buf.contiguous_mut().is_some_and(|space| *space == *data));
}

/// One message of `len` bytes to a receive that waits.
fn pass(engines: &mut [Engine], to: usize, number: usize, len: usize) {
    let data = payload(number, len);
    let receive = post(engines, to, len);
    let sent = send(engines, to, data.clone());
    finish(engines, to, sent, receive, &data);
}

fn aboard(engines: &[Engine]) -> [u64; 2] {
    [0, 1].map(|rank| engines[rank].stats().aboard_sent)
}

#[test]
fn messages_there_and_back_go_aboard_and_those_one_way_do_not() {
    let shuttle_copy = ShuttleCopy::Loop;
    let config = Config { large_copy: LargeCopy::Staged, shuttle_copy, ..Config::default() };
    // Eager, whole in one record, in pieces, and longer than what comes without a request.
    let short = Config { shuttle_bytes: 16_000, ..config.clone() };
    let lens = [ABOARD_MIN_BYTES, 4 << 10, 16_000, 30_000, 90_000, 256 << 10, 1 << 20].map(|len| (&config, len));
    // And as long as a shuttle.
    for (config, len) in lens.into_iter().chain([(&short, 16_000)]) {
        let mut engines = pair(config);
        (0..80).for_each(|number| pass(&mut engines, number % 2, number, len));
        assert_eq!(aboard(&engines), [40, 40], "{len} bytes");
        let mut engines = pair(config);
        (0..40).for_each(|number| pass(&mut engines, 1, number, len));
        assert_eq!(aboard(&engines), [1, 0], "{len} bytes one way");
    }
    let none = Config { shuttle_bytes: 0, ..config.clone() };
    let full = Config { channel_memory_bytes: Some(0), ..config.clone() };
    for (config, len) in [(config, ABOARD_MIN_BYTES - 1), (none, 16_000), (full, 16_000), (short, 16_001)] {
        let mut engines = pair(&config);
        (0..20).for_each(|number| pass(&mut engines, number % 2, number, len));
        assert_eq!(aboard(&engines), [0, 0], "{len} bytes");
    }
}

/// Both send, and then both receive: each writes into what has come from the other.
#[test]
fn messages_that_cross_go_aboard() {
    let mut engines = pair(&Config::default());
    for number in 0..50 {
        let data = [0, 1].map(|to| payload(number + to, 10_000));
        let receives = [0, 1].map(|to| post(&mut engines, to, 10_000));
        let sent = [0, 1].map(|to| send(&mut engines, to, data[to].clone()));
        for (to, receive) in receives.into_iter().enumerate() {
            finish(&mut engines, to, sent[to], receive, &data[to]);
        }
    }
    assert_eq!(aboard(&engines), [50, 50]);
}

/// Messages of these lengths from 0 to 1 and from 1 to 0 at once.
fn cross(engines: &mut [Engine], number: usize, lens: [usize; 2]) {
    let data = [1, 0].map(|to| payload(number + to, lens[1 - to]));
    let receives = [1, 0].map(|to| post(engines, to, lens[1 - to]));
    let sent = [0, 1].map(|from| send(engines, 1 - from, data[from].clone()));
    for (from, receive) in receives.into_iter().enumerate() {
        finish(engines, 1 - from, sent[from], receive, &data[from]);
    }
}

/// Of several lengths the long ones do: a short one would leave the lines behind it on the wrong side. So it goes in the block
/// until there are only such.
#[test]
fn of_several_lengths_that_cross_the_short_ones_do_not_go_aboard() {
    let mut engines = pair(&Config { large_copy: LargeCopy::Staged, ..Config::default() });
    let mut aboard_of = |lens: &[usize], rounds: usize| {
        let before = aboard(&engines)[0];
        (0..rounds * lens.len()).for_each(|number| cross(&mut engines, number, [lens[number % lens.len()]; 2]));
        aboard(&engines)[0] - before
    };
    aboard_of(&[160 << 10, 256 << 10], 40);
    let long = aboard_of(&[160 << 10, 256 << 10], 40);
    assert!(long >= 74, "as far as both are here: {long}");
    let mixed = aboard_of(&[256 << 10, 160 << 10, 256 << 10, 20 << 10], 40);
    assert!((112..=130).contains(&mixed), "but for the short ones: {mixed}");
    aboard_of(&[20 << 10], 80);
    assert!(aboard_of(&[20 << 10], 40) >= 39, "there are only short ones now");
    aboard_of(&[256 << 10], 80);
    assert!(aboard_of(&[256 << 10], 40) >= 39, "there are only long ones now");
}

/// Who answers a long message with a short one does not take the long one's memory for that. It goes back as it is where that
/// pays.
#[test]
fn a_short_answer_does_not_go_where_a_long_message_came() {
    for (shuttle_copy, longs) in [(ShuttleCopy::Loop, 0..=20), (ShuttleCopy::Instruction, 190..=199)] {
        let mut engines = pair(&Config { large_copy: LargeCopy::Staged, shuttle_copy, ..Config::default() });
        for number in 0..200 {
            pass(&mut engines, 1, number, 200_000);
            pass(&mut engines, 0, number, 1000);
        }
        let [long, short] = aboard(&engines);
        assert!(longs.contains(&long) && short <= 20, "{shuttle_copy:?}: {long} and {short}");
    }
}

/// Long ones do so part by part: what each has read last takes the next part, and no more memory is in use than that.
#[test]
fn long_messages_that_cross_go_aboard_by_turns_in_little_memory() {
    const LEN: usize = 2 << 20;
    let config = Config { large_copy: LargeCopy::Staged, ..Config::default() };
    let mut engines = pair(&Config { channel_memory_bytes: Some(1500 << 10), ..config.clone() });
    (0..20).for_each(|number| cross(&mut engines, number, [LEN; 2]));
    let [first, second] = aboard(&engines);
    assert!(first >= 19 && second >= 19, "all but those that find out: {first} and {second}");
    // There and back none does: they ride to their end, for which there is no memory.
    (0..2).for_each(|number| pass(&mut engines, number % 2, number, LEN));
    let before = aboard(&engines);
    (0..6).for_each(|number| pass(&mut engines, number % 2, number, LEN));
    assert_eq!(aboard(&engines), before);
    assert_eq!(engines.iter().map(|engine| engine.stats().refused_records).sum::<u64>(), 0);
}

/// Whoever sends less has both shuttles at its end: the rest of the longer one waits for none of them.
#[test]
fn of_two_messages_that_cross_the_longer_one_comes_to_its_end() {
    let mut engines = pair(&Config { large_copy: LargeCopy::Staged, ..Config::default() });
    let lens = [300_000, 70_000, 3 << 20, 1 << 20, 290_000, 5_000_000];
    for number in 0..60 {
        cross(&mut engines, number, [lens[number % lens.len()], lens[number / lens.len() % lens.len()]]);
    }
    assert_eq!(engines.iter().map(|engine| engine.stats().refused_records).sum::<u64>(), 0);
}

/// The other has begun a message, too, and then looks at nothing: what waits for its shuttle does not wait for ever, and not at
/// all once somebody is about to sleep.
#[test]
fn a_message_that_crosses_leaves_though_the_other_side_does_nothing() {
    const LEN: usize = 512 << 10;
    for sleeps in [false, true] {
        let config = Config { large_copy: LargeCopy::Staged, channel_bytes: Some(1 << 20), ..Config::default() };
        let mut engines = pair(&config);
        (0..3).for_each(|number| cross(&mut engines, number, [LEN; 2]));
        let data = [1, 0].map(|to| payload(to, LEN));
        let receives = [1, 0].map(|to| post(&mut engines, to, LEN));
        let sent = [0, 1].map(|from| send(&mut engines, 1 - from, data[from].clone()));
        // Each has been answered, and nothing of 1 follows.
        turn(&mut engines);
        turn(&mut engines[..1]);
        let mut turns = 0;
        while !engines[0].is_complete(sent[0]) {
            if sleeps {
                engines[0].hurry();
            }
            engines[0].progress();
            turns += 1;
            assert!(turns < if sleeps { 20 } else { 5000 }, "after {turns} turns it still waits");
        }
        assert!(sleeps || turns > 100, "it waited for a while: {turns} turns");
        for (from, receive) in receives.into_iter().enumerate() {
            finish_receive(&mut engines, 1 - from, receive, &data[from]);
        }
        (0..2).for_each(|from| assert_eq!(engines[from].take(sent[from]).expect("complete").outcome, Outcome::Done));
    }
}

/// What went ahead of the answer lies in two shuttles, and its receiver, who had no receive yet, wants all of it once more.
#[test]
fn a_message_that_crosses_begins_anew_if_what_went_ahead_came_too_early() {
    const LEN: usize = 512 << 10;
    let config = Config {
        large_copy: LargeCopy::Staged,
        ahead_bytes: 192 << 10,
        channel_bytes: Some(1 << 20),
        ..Config::default()
    };
    let mut engines = pair(&config);
    (0..3).for_each(|number| cross(&mut engines, number, [LEN; 2]));
    // 0 has both shuttles.
    pass(&mut engines, 0, 4, 1000);
    let before = engines[1].stats().ahead_dropped_bytes;
    let data = payload(5, LEN);
    let sent = send(&mut engines, 1, data.clone());
    (0..10).for_each(|_| turn(&mut engines));
    assert_eq!(engines[1].stats().ahead_dropped_bytes - before, 192 << 10);
    let receive = post(&mut engines, 1, LEN);
    finish(&mut engines, 1, sent, receive, &data);
    (6..9).for_each(|number| cross(&mut engines, number, [LEN; 2]));
    assert_eq!(engines.iter().map(|engine| engine.stats().refused_records).sum::<u64>(), 0);
}

/// After short messages that crossed each process has the other's shuttle, which takes no long one until its owner has made
/// it longer.
#[test]
fn long_messages_go_aboard_whatever_crossed_before() {
    let mut engines = pair(&Config { large_copy: LargeCopy::Staged, ..Config::default() });
    let data = [0, 1].map(|to| payload(to, 1000));
    let receives = [0, 1].map(|to| post(&mut engines, to, 1000));
    let sent = [0, 1].map(|to| send(&mut engines, to, data[to].clone()));
    for (to, receive) in receives.into_iter().enumerate() {
        finish(&mut engines, to, sent[to], receive, &data[to]);
    }
    assert_eq!(aboard(&engines), [1, 1]);
    (0..40).for_each(|number| pass(&mut engines, number % 2, number, 1 << 20));
    let [first, second] = aboard(&engines);
    assert!(first >= 20 && second >= 20, "all but the first: {first} and {second}");
    assert_eq!(engines.iter().map(|engine| engine.stats().refused_records).sum::<u64>(), 0);
}

fn empty(engines: &[Engine]) -> [u64; 2] {
    [0, 1].map(|rank| engines[rank].stats().empty_sent)
}

fn by_instruction() -> Config {
    Config { large_copy: LargeCopy::Staged, shuttle_copy: ShuttleCopy::Instruction, ..Config::default() }
}

/// Each shuttle with which a part has come, once two messages have come in a row, and the reader's own.
#[test]
fn for_long_messages_one_way_shuttles_come_back_empty() {
    // Those that may come without a request go at once, as long as a shuttle is there.
    for (len, parts) in [(64 << 10, 1), (90_000, 1), (256 << 10, 1), (1 << 20, 8), (3 << 20, 24)] {
        let mut engines = pair(&by_instruction());
        (0..20).for_each(|number| pass(&mut engines, 1, number, len));
        let [aboard, none] = aboard(&engines);
        assert!((18..=19).contains(&aboard) && none == 0, "{len} bytes: all but the second: {aboard}");
        let [none, empty] = empty(&engines);
        // Those of the last parts, and none more; now and then one asks, and goes in parts.
        let rides = 17 * parts..=18 * parts + 6;
        assert!(none == 0 && rides.contains(&empty), "{len} bytes: {empty} of {rides:?}");
    }
    let mut engines = pair(&by_instruction());
    (0..20).for_each(|number| pass(&mut engines, 1, number, 32 << 10));
    assert_eq!((aboard(&engines), empty(&engines)), ([1, 0], [0, 0]), "those that are not so long go in the block");
}

#[test]
fn shuttles_come_back_empty_for_nobody_who_is_answered_nor_where_loops_are_faster() {
    let by_loop = Config { shuttle_copy: ShuttleCopy::Loop, ..by_instruction() };
    for len in [64 << 10, 256 << 10, 1 << 20] {
        let mut engines = pair(&by_instruction());
        (0..80).for_each(|number| pass(&mut engines, number % 2, number, len));
        assert_eq!((aboard(&engines), empty(&engines)), ([40, 40], [0, 0]), "{len} bytes");
        let mut engines = pair(&by_loop);
        (0..20).for_each(|number| pass(&mut engines, 1, number, len));
        assert_eq!((aboard(&engines), empty(&engines)), ([1, 0], [0, 0]), "{len} bytes");
        let mut engines = pair(&by_instruction());
        engines.iter_mut().for_each(|engine| engine.set_crowded(true));
        (0..20).for_each(|number| pass(&mut engines, 1, number, len));
        assert_eq!(empty(&engines), [0, 0], "{len} bytes: others wait for the processor");
    }
}

/// Who answers after a while begins with what it has, and is answered aboard.
#[test]
fn after_messages_one_way_those_there_and_back_go_aboard_again() {
    let mut engines = pair(&by_instruction());
    const LEN: usize = 200_000;
    (0..20).for_each(|number| pass(&mut engines, 1, number, LEN));
    let before = aboard(&engines);
    (0..40).for_each(|number| pass(&mut engines, number % 2, number, LEN));
    let after = aboard(&engines);
    assert!([0, 1].iter().all(|rank| after[*rank] - before[*rank] >= 18), "{before:?}, {after:?}");
    // And the other way.
    (0..20).for_each(|number| pass(&mut engines, 0, number, LEN));
    assert!(aboard(&engines)[1] - after[1] >= 17, "{after:?}, {:?}", aboard(&engines));
}

/// Windows of messages, one way and both: all arrive, part by part, whatever waits for whom.
#[test]
fn of_many_long_messages_at_once_each_arrives() {
    for len in [64 << 10, 130_000, 256 << 10, 700_000] {
        for senders in [&[0][..], &[0, 1]] {
            let mut engines = pair(&by_instruction());
            for window in 0..4 {
                let flights: Vec<_> = (0..8)
                    .flat_map(|at| senders.iter().map(move |from| (1 - from, window * 8 + at)))
                    .map(|(to, number)| (to, post(&mut engines, to, len), payload(number, len)))
                    .collect();
                let sent: Vec<_> = flights.iter().map(|(to, _, data)| send(&mut engines, *to, data.clone())).collect();
                for ((to, receive, data), sent) in flights.into_iter().zip(sent) {
                    finish(&mut engines, to, sent, receive, &data);
                }
            }
            let aboard: u64 = aboard(&engines).into_iter().sum();
            let count = 32 * senders.len() as u64;
            assert!(aboard > count / 2, "{len} bytes from {senders:?}: {aboard} of {count}");
            assert_eq!(engines.iter().map(|engine| engine.stats().refused_records).sum::<u64>(), 0);
        }
    }
}

/// The first part of a message is aboard, and its receiver looks at nothing for so long that the channel is given up.
#[test]
fn a_channel_that_is_given_up_under_a_message_takes_nothing_of_it_along() {
    let config = Config {
        large_copy: LargeCopy::Staged,
        // Longer messages than may come without a request.
        shuttle_bytes: 1 << 20,
        channel_look_turns: 1,
        channel_idle_looks: Some(1),
        ..Config::default()
    };
    const LEN: usize = 320 << 10;
    for waits in [true, false] {
        let mut engines = pair(&config);
        // Its receiver is ready for the next.
        (0..2).for_each(|number| pass(&mut engines, 1 - number % 2, number, LEN));
        let before = engines[0].stats();
        let data = payload(9, LEN);
        let early = waits.then(|| post(&mut engines, 1, LEN));
        let sent = send(&mut engines, 1, data.clone());
        (0..1000).for_each(|_| turn(&mut engines[..1]));
        let after = engines[0].stats();
        assert_eq!((after.ahead_sent - before.ahead_sent, after.channels_closed - before.channels_closed), (1, 1));
        // What came before the receive is dropped.
        if !waits {
            (0..1000).for_each(|_| turn(&mut engines[1..]));
        }
        let receive = early.unwrap_or_else(|| post(&mut engines, 1, LEN));
        finish(&mut engines, 1, sent, receive, &data);
        assert_eq!(engines[0].stats().aboard_sent, before.aboard_sent, "not all of it went aboard");
        // A short message has the channel made again.
        [100, LEN].into_iter().for_each(|len| pass(&mut engines, 1, 10, len));
        assert_eq!(engines[0].stats().aboard_sent, before.aboard_sent + 1);
    }
}
