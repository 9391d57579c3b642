//! What is not believed of a peer that has proved itself, one guard after the other, and payloads that are damaged.

use std::io::Write;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;

use super::super::frame::SHORT_BYTES;
use super::super::link::MESSAGE_MAX_BYTES;
use super::super::outbox::What;
use super::tests::live;
use super::*;
use crate::link::{HEADER_BYTES, Outgoing};

const HEADER: [u8; HEADER_BYTES] = [3; HEADER_BYTES];

/// Memory for payloads, which is as long as the longest that comes whole, and what the adapter was told.
struct Adapter {
    words: Box<[u64; 2048]>,
    begun: Vec<u64>,
    finished: u32,
}

impl Adapter {
    fn new() -> Self {
        Self { words: Box::new([0; 2048]), begun: Vec::new(), finished: 0 }
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).take(len).collect()
    }
}

impl Responder for Adapter {
    fn begin(&mut self, _: LinkPeer, _: &[u8; HEADER_BYTES], len: u64) -> Placement {
        self.begun.push(len);
        let len = (len as usize).min(size_of_val(&*self.words));
        // SAFETY: no longer than the box, which outlives every packet of a test.
        Placement::of(unsafe { WriteRange::new(self.words.as_mut_ptr().cast(), len) })
    }
    fn finish(&mut self, _: LinkPeer) {
        self.finished += 1;
    }
    fn lost(&mut self, _: LinkPeer) {}
    fn is_armed(&self) -> bool {
        false
    }
}

/// What comes on a lane of a peer, over one connection after the other.
struct Heard {
    peer: Peer,
    adapter: Adapter,
    at: At,
    far: UnixStream,
    connection: Connection,
}

impl Heard {
    fn on_lane(lane: u8) -> Self {
        let (far, mut connection, mut peer) = live();
        let at = At { peer: 0, lane };
        peer.lane(usize::from(lane));
        connection.stage = Stage::Live(at);
        Self { peer, adapter: Adapter::new(), at, far, connection }
    }

    /// What was begun on the connection is to come again on another one.
    fn reconnect(&mut self) {
        let (far, mut connection, _) = live();
        connection.stage = Stage::Live(self.at);
        (self.far, self.connection) = (far, connection);
        self.peer.expect_again(usize::from(self.at.lane));
    }

    /// A packet of two parts has begun: of 12 KiB the second part is the last third.
    fn with_packet_of_two_parts(mut self, missing: u32) -> Self {
        let placement = self.adapter.begin(LinkPeer(0), &HEADER, 12 << 10);
        self.adapter.begun.clear();
        self.peer.incoming = Some(Incoming { placement, payload_bytes: 12 << 10, part_count: 2, missing });
        self
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<(), Ending> {
        self.far.write_all(bytes).expect("there is room");
        let mut room = Vec::new();
        self.connection.fill(Some(&mut self.peer), &mut room)?;
        let delivered = self.connection.deliver(self.at, &mut self.peer, &mut self.adapter);
        self.connection.leave(&mut room);
        delivered.map(drop)
    }

    fn hear_head(&mut self, kind: Kind<'_>, received: u64) -> Result<(), Ending> {
        let (bytes, len) = Head { kind, received }.to_bytes();
        self.hear(&bytes[..len])
    }

    /// The connection ends over this, and the adapter is told nothing.
    fn refuses(mut self, kind: Kind<'_>, received: u64) {
        assert_eq!(self.hear_head(kind, received), Err(Ending::PeerWrong), "{kind:?}, received {received}");
        assert_eq!((&self.adapter.begun[..], self.adapter.finished), (&[][..], 0), "{kind:?}");
    }

    fn takes(mut self, kind: Kind<'_>, received: u64) -> Self {
        assert_eq!(self.hear_head(kind, received), Ok(()), "{kind:?}, received {received}");
        self
    }
}

const fn packet(sequence: u64, payload_bytes: u64, part_count: u16) -> Kind<'static> {
    Kind::Packet { sequence, header: &HEADER, payload_bytes, part_count, is_checked: false }
}

const fn part(packet: u64, payload_bytes: u64) -> Kind<'static> {
    Kind::Part { packet, payload_bytes, is_checked: false }
}

#[test]
fn a_packet_out_of_its_turn_is_wrong() {
    let after_five = || {
        let mut heard = Heard::on_lane(0);
        heard.peer.lanes[0].received = 5;
        heard
    };
    for payload_bytes in [0, 100] {
        for sequence in [4, 6, u64::MAX] {
            after_five().refuses(packet(sequence, payload_bytes, 1), 0);
        }
        let next = after_five().takes(packet(5, payload_bytes, 1), 0);
        assert_eq!(next.adapter.begun, [payload_bytes]);
    }
    Heard::on_lane(1).refuses(packet(0, 0, 1), 0);
}

#[test]
fn a_packet_longer_than_any_message_is_wrong() {
    for payload_bytes in [MESSAGE_MAX_BYTES + 1, u64::MAX] {
        Heard::on_lane(0).refuses(packet(0, payload_bytes, 1), 0);
        Heard::on_lane(0).refuses(packet(0, payload_bytes, 16), 0);
    }
    let longest = Heard::on_lane(0).takes(packet(0, MESSAGE_MAX_BYTES, 1), 0);
    assert_eq!(longest.adapter.begun, [MESSAGE_MAX_BYTES]);
}

#[test]
fn a_part_that_is_longer_or_shorter_than_it_must_be_is_wrong() {
    for payload_bytes in [0, 4095, 4097, u64::MAX] {
        Heard::on_lane(1).with_packet_of_two_parts(0b11).refuses(part(0, payload_bytes), 0);
    }
    Heard::on_lane(1).with_packet_of_two_parts(0b11).takes(part(0, 4096), 0);
}

#[test]
fn a_part_that_nobody_waits_for_is_wrong() {
    Heard::on_lane(0).with_packet_of_two_parts(0b11).refuses(part(0, 8192), 0);
    Heard::on_lane(1).with_packet_of_two_parts(0b01).refuses(part(0, 4096), 0);
    Heard::on_lane(2).with_packet_of_two_parts(0b11).refuses(part(0, 0), 0);
    let mut after_one = Heard::on_lane(1).with_packet_of_two_parts(0b11);
    after_one.peer.lanes[0].received = 1;
    after_one.refuses(part(0, 4096), 0);
    // The other lane may be behind.
    let early = Heard::on_lane(1).takes(part(0, 4096), 0);
    assert!(early.peer.lanes[1].arriving.is_none(), "it is left where it is");
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_wrong() {
    for lane in [0, 1] {
        let after_one_of_two = || {
            let mut heard = Heard::on_lane(lane);
            let outbox = &mut heard.peer.lanes[usize::from(lane)].outbox;
            outbox.push(What::Part { packet: 0 }, Outgoing::NONE, false);
            outbox.wrote(SHORT_BYTES);
            outbox.push(What::Part { packet: 1 }, Outgoing::NONE, false);
            heard
        };
        for received in [2, 3, u64::MAX] {
            after_one_of_two().refuses(Kind::Acknowledge, received);
            after_one_of_two().refuses(Kind::Ask, received);
        }
        let heard = after_one_of_two().takes(Kind::Acknowledge, 1);
        assert_eq!(heard.peer.lanes[usize::from(lane)].outbox.acknowledged_count(), 1);
    }
}

#[test]
fn another_packet_than_the_one_begun_before_is_wrong() {
    let begun_before = || {
        let mut heard = Heard::on_lane(0).takes(packet(0, 12 << 10, 2), 0);
        heard.reconnect();
        heard.adapter.begun.clear();
        heard
    };
    begun_before().refuses(packet(0, (12 << 10) + 1, 2), 0);
    begun_before().refuses(packet(0, 12 << 10, 1), 0);
    begun_before().refuses(packet(0, 12 << 10, 3), 0);
    begun_before().refuses(packet(0, 0, 1), 0);
    let same = begun_before().takes(packet(0, 12 << 10, 2), 0);
    assert!(same.adapter.begun.is_empty(), "it is filled anew, not begun");
}

#[test]
fn a_connection_is_agreed_on_once_and_before_anything_else() {
    let resume = Kind::Resume { epoch: 1, is_asynchronous: false };
    Heard::on_lane(0).refuses(resume, 0);
    for kind in [packet(0, 0, 1), part(0, 0), Kind::Acknowledge, Kind::Ask, Kind::Goodbye] {
        let mut proven = Heard::on_lane(0);
        proven.connection.stage = Stage::Proven(proven.at);
        proven.refuses(kind, 0);
    }
}

/// The head of a packet, its payload and the check of that.
fn checked(payload: &[u8]) -> (usize, Vec<u8>) {
    let payload_bytes = payload.len() as u64;
    let kind = Kind::Packet { sequence: 0, header: &HEADER, payload_bytes, part_count: 1, is_checked: true };
    let (head, len) = Head { kind, received: 0 }.to_bytes();
    (len, [&head[..len], payload, &crc32c::crc32c(payload).to_le_bytes()].concat())
}

proptest! {
    /// Whichever bit it is, of the payload or of its check, and however it comes.
    #[test]
    fn a_damaged_payload_ends_the_connection_and_comes_again(
        len in 1usize..3000, bit: prop::sample::Index, step in 1usize..3000,
    ) {
        let payload: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        let (head_bytes, whole) = checked(&payload);
        let mut damaged = whole.clone();
        let bit = bit.index(8 * (len + CHECK_BYTES));
        damaged[head_bytes + bit / 8] ^= 1 << (bit % 8);
        let mut heard = Heard::on_lane(0);
        let ended = damaged.chunks(step.max(len / 50)).find_map(|piece| heard.hear(piece).err());
        prop_assert_eq!((ended, heard.adapter.finished, heard.peer.lanes[0].received), (Some(Ending::Broken), 0, 0));
        heard.reconnect();
        for piece in whole.chunks(step.max(len / 50)) {
            prop_assert_eq!(heard.hear(piece), Ok(()));
        }
        prop_assert_eq!((&heard.adapter.begun[..], heard.adapter.finished), (&[len as u64][..], 1));
        prop_assert_eq!(heard.adapter.bytes(len), payload);
    }
}

/// The check of one part is as good as that of the whole.
#[test]
fn a_damaged_part_ends_its_connection() {
    let mut heard = Heard::on_lane(1).with_packet_of_two_parts(0b10);
    let payload = [5; 4096];
    let (head, len) =
        Head { kind: Kind::Part { packet: 0, payload_bytes: 4096, is_checked: true }, received: 0 }.to_bytes();
    let mut damaged = [&head[..len], &payload, &crc32c::crc32c(&payload).to_le_bytes()].concat();
    damaged[len + 4095] ^= 0x80;
    assert_eq!(heard.hear(&damaged), Err(Ending::Broken));
    heard.reconnect();
    damaged[len + 4095] ^= 0x80;
    assert_eq!((heard.hear(&damaged), heard.adapter.finished), (Ok(()), 1));
    assert_eq!(heard.adapter.bytes(12 << 10), [vec![0; 8192], payload.to_vec()].concat());
}
