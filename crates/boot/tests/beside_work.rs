//! Long messages that get under way while their receiver is at other work.

use base::Config;
use base::config::LargeCopy;
use boot::local_engines;
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, Outcome, RequestId, SendMode, Source, TagPattern};

const CONTEXT: ContextId = ContextId(3);
const LEN: usize = 1 << 20;

/// Two engines between which a long message has gone already, and how those after it are copied.
struct Pair {
    sender: Engine,
    receiver: Engine,
}

impl Pair {
    fn new(large_copy: LargeCopy) -> Self {
        let config = Config { large_copy, ..Config::default() };
        let [sender, receiver] = <[Engine; 2]>::try_from(local_engines(2, &config).expect("a segment"))
            .unwrap_or_else(|_| panic!("two engines"));
        let mut pair = Self { sender, receiver };
        let (send, mut buf) = (pair.send(0), RecvBuf::from_owned(vec![0; LEN].into()));
        let receive = pair.receive(&mut buf);
        pair.finish(send, receive);
        assert!(holds(&mut buf, 0));
        pair
    }

    fn send(&mut self, number: u8) -> RequestId {
        let buf = SendBuf::from_owned(payload(number));
        self.sender.send(SendMode::Standard, 1, CONTEXT, 7, buf).expect("a peer")
    }

    fn receive(&mut self, buf: &mut RecvBuf) -> RequestId {
        let window = buf.slice(0, LEN as u64);
        self.receiver.recv_beside_work(Source::Peer(0), CONTEXT, TagPattern::Any, window).expect("a peer")
    }

    fn finish(&mut self, send: RequestId, receive: RequestId) {
        while !self.receiver.is_complete(receive) || !self.sender.is_complete(send) {
            self.receiver.progress();
            self.sender.progress();
        }
        assert_eq!(self.receiver.take(receive).expect("complete").outcome, Outcome::Done);
        assert_eq!(self.sender.take(send).expect("complete").outcome, Outcome::Done);
    }
}

fn payload(number: u8) -> Box<[u8]> {
    (0..LEN).map(|at| (at as u8).wrapping_mul(31) ^ number).collect()
}

fn holds(buf: &mut RecvBuf, number: u8) -> bool {
    buf.contiguous_mut().is_some_and(|space| *space == *payload(number))
}

/// What both sides may copy is there when its receiver, who had found it asked for, comes back from its work.
#[test]
fn a_sender_who_waits_copies_all_of_it() {
    let mut pair = Pair::new(LargeCopy::Both);
    let (send, mut buf) = (pair.send(1), RecvBuf::from_owned(vec![0; LEN].into()));
    let receive = pair.receive(&mut buf);
    while pair.sender.progress() {}
    assert!(holds(&mut buf, 1));
    pair.finish(send, receive);
}

/// So is, in the channel, as much as it takes.
#[test]
fn a_sender_who_waits_fills_the_channel() {
    let mut pair = Pair::new(LargeCopy::Staged);
    let (send, mut buf) = (pair.send(1), RecvBuf::from_owned(vec![0; LEN].into()));
    let receive = pair.receive(&mut buf);
    while pair.sender.progress() {}
    pair.receiver.progress();
    let there = buf.contiguous_mut().map(|space| space.iter().zip(&payload(1)).take_while(|(a, b)| a == b).count());
    assert!(there > Some(32 << 10), "{there:?}");
    pair.finish(send, receive);
    assert!(holds(&mut buf, 1));
}

#[test]
fn a_receiver_at_other_work_copies_nothing() {
    for large_copy in [LargeCopy::Read, LargeCopy::Staged] {
        let mut pair = Pair::new(large_copy);
        let (send, mut buf) = (pair.send(1), RecvBuf::from_owned(vec![0; LEN].into()));
        let receive = pair.receive(&mut buf);
        pair.receiver.answer();
        assert!(buf.contiguous_mut().is_some_and(|space| space.iter().all(|byte| *byte == 0)), "{large_copy:?}");
        pair.finish(send, receive);
        assert!(holds(&mut buf, 1));
    }
}

/// Nor does it take messages for which it has no receive yet, and what comes behind them.
#[test]
fn short_messages_stay_in_the_channel() {
    let mut pair = Pair::new(LargeCopy::Both);
    assert!(pair.sender.try_send(1, CONTEXT, 1, &SendBuf::from_owned([1u8; 8].into())));
    let (send, mut buf) = (pair.send(1), RecvBuf::from_owned(vec![0; LEN].into()));
    let window = buf.slice(0, LEN as u64);
    let receive =
        pair.receiver.recv_beside_work(Source::Peer(0), CONTEXT, TagPattern::Exact(7), window).expect("a peer");
    assert_eq!(pair.receiver.unexpected_count(), 0);
    pair.finish(send, receive);
    assert!(holds(&mut buf, 1) && pair.receiver.unexpected_count() == 1);
}

/// One that comes before its receive would be told that nobody waited for it.
#[test]
fn long_messages_without_receives_stay_there_too() {
    let mut pair = Pair::new(LargeCopy::Staged);
    let sends = [1, 2, 3].map(|number| pair.send(number));
    let mut bufs = [(); 3].map(|()| RecvBuf::from_owned(vec![0; LEN].into()));
    let receives = bufs.each_mut().map(|buf| pair.receive(buf));
    assert_eq!(pair.receiver.unexpected_count(), 0);
    for (send, receive) in sends.into_iter().zip(receives) {
        pair.finish(send, receive);
    }
    assert!((1..).zip(&mut bufs).all(|(number, buf)| holds(buf, number)));
    assert_eq!(pair.receiver.stats().unexpected, 0);
}
