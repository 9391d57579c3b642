//! A process that pushes anything into its channel: what no whole peer sends costs it its connection, nothing is written
//! but where the adapter said, and others go on.

use std::time::Instant;

use base::memory::WriteRange;
use lockfree::Record;
use proptest::prelude::*;

use super::super::segment::Shape;
use super::*;

const SHAPE: Shape = Shape { process_count: 3, channel_bytes: 64 << 10, shuttle_bytes: 0, arena_bytes: 0 };
const HOSTILE: LinkPeer = LinkPeer(0);
const VICTIM: LinkPeer = LinkPeer(1);
const HONEST: LinkPeer = LinkPeer(2);
const HEADER: [u8; HEADER_BYTES] = [3; HEADER_BYTES];
/// Where payloads go, between bytes that nobody may write.
const PLACE: std::ops::Range<usize> = 100..200;
const UNTOUCHED: u8 = 7;

/// What the adapter was told, by peer.
struct Told {
    memory: Box<[u8; 300]>,
    begun: [Vec<u64>; 3],
    finished: [usize; 3],
    lost: [bool; 3],
}

impl Told {
    fn new() -> Self {
        let begun = [const { Vec::new() }; 3];
        Self { memory: Box::new([UNTOUCHED; 300]), begun, finished: [0; 3], lost: [false; 3] }
    }

    fn check_memory(&self) {
        let outside = (0..PLACE.start).chain(PLACE.end..300);
        assert!(outside.into_iter().all(|at| self.memory[at] == UNTOUCHED), "{:?}", self.memory);
    }
}

impl Responder for Told {
    fn begin(&mut self, from: LinkPeer, _: &[u8; HEADER_BYTES], len: u64) -> Placement {
        let from = from.0 as usize;
        assert!(!self.lost[from], "nothing comes of who is lost");
        assert_eq!(self.begun[from].len(), self.finished[from], "one packet after the other");
        self.begun[from].push(len);
        let len = (len as usize).min(PLACE.len());
        // SAFETY: inside the box, which outlives the link's use of it.
        Placement::of(unsafe { WriteRange::new(self.memory.as_mut_ptr().add(PLACE.start), len) })
    }
    fn finish(&mut self, from: LinkPeer) {
        self.finished[from.0 as usize] += 1;
        assert_eq!(self.begun[from.0 as usize].len(), self.finished[from.0 as usize]);
    }
    fn lost(&mut self, peer: LinkPeer) {
        assert!(!std::mem::replace(&mut self.lost[peer.0 as usize], true), "once");
    }
    fn is_armed(&self) -> bool {
        false
    }
}

fn links() -> [ShmLink; 3] {
    let segment = Segment::create(SHAPE).expect("memory");
    [0, 1, 2].map(|place| {
        let mut link = ShmLink::join(segment.clone(), PeerIndex(place), cross_memory::probe()).expect("a place");
        (0..3).filter(|other| *other != place).for_each(|other| link.meet(other));
        link
    })
}

/// What the victim does with records that come one after the other; the last is taken or not.
fn taken(records: &[Parsed<'_>]) -> (bool, Told) {
    let [_hostile, mut victim, _honest] = links();
    let mut told = Told::new();
    let peer = &mut victim.peers[HOSTILE.0 as usize];
    let (last, before) = records.split_last().expect("one at least");
    for record in before {
        assert!(take(HOSTILE, peer, record.clone(), &mut told), "{record:?}");
    }
    let is_taken = take(HOSTILE, peer, last.clone(), &mut told);
    told.check_memory();
    (is_taken, told)
}

fn first(len_bytes: u64) -> Parsed<'static> {
    Parsed::First { header: HEADER, len_bytes }
}

#[test]
fn a_piece_without_a_first_is_none() {
    let (is_taken, told) = taken(&[Parsed::Piece { payload: &[1; 8] }]);
    assert_eq!((is_taken, told.begun[0].len()), (false, 0));
    // Nor behind the last of a packet.
    let (is_taken, told) = taken(&[first(8), Parsed::Piece { payload: &[1; 8] }, Parsed::Piece { payload: &[1; 8] }]);
    assert_eq!((is_taken, told.finished[0]), (false, 1));
}

#[test]
fn a_piece_longer_than_what_is_left_is_none() {
    for (sent, piece, is_right) in [(0, 50, true), (0, 51, false), (20, 30, true), (20, 31, false), (20, 0, false)] {
        let bytes = [1; 64];
        let pieces = [first(50), Parsed::Piece { payload: &bytes[..sent] }, Parsed::Piece { payload: &bytes[..piece] }];
        let records = if sent == 0 { vec![pieces[0].clone(), pieces[2].clone()] } else { pieces.to_vec() };
        let (is_taken, told) = taken(&records);
        assert_eq!((is_taken, told.finished[0]), (is_right, usize::from(is_right)), "{piece} behind {sent} of 50");
    }
}

#[test]
fn nothing_but_its_pieces_comes_behind_a_first() {
    let whole = Parsed::Whole { header: HEADER, payload: &[] };
    let lent = Parsed::Lent { header: HEADER, ranges: Vec::new(), len_bytes: 0 };
    for other in [whole.clone(), lent, first(8), first(0)] {
        let (is_taken, told) = taken(&[first(8), other.clone()]);
        assert_eq!((is_taken, told.begun[0].len(), told.finished[0]), (false, 1, 0), "{other:?}");
    }
    // One of no bytes has none.
    let (is_taken, told) = taken(&[first(0), whole]);
    assert_eq!((is_taken, told.finished[0]), (true, 2));
}

/// A record, mostly one that could be right.
fn record() -> impl Strategy<Value = (u8, u128, Vec<u8>)> {
    let longs = prop_oneof![4 => 0..300u128, 1 => Just(u128::from(u64::MAX)), 1 => any::<u128>()];
    let bytes = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), HEADER_BYTES..=HEADER_BYTES),
        3 => prop::collection::vec(any::<u8>(), 0..400),
        // Lists of pieces of the sender's memory.
        1 => prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], HEADER_BYTES + 16..=HEADER_BYTES + 16),
    ];
    (1..7u8, longs, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_process_pushes_costs_itself_alone(records in prop::collection::vec(record(), 1..30)) {
        let [hostile, mut victim, mut honest] = links();
        let mut told = Told::new();
        let area = fabric::MappedArea::Channel { from: PeerIndex(HOSTILE.0), to: PeerIndex(VICTIM.0) };
        let memory = hostile.segment.area(area).expect("a channel");
        let mut sender = BlockSender::new(memory, SHAPE.channel_bytes);
        announcements(&hostile.segment, VICTIM.0).expect("a place").announce(HOSTILE.0);
        for (kind, long, bytes) in &records {
            let record = Record { kind: *kind, long: *long, ..Record::default() };
            sender.push(record, bytes.len(), |space| space.copy_from_slice(bytes));
            victim.progress(&mut told);
        }
        prop_assert_eq!(honest.send(VICTIM, &HEADER, Outgoing::NONE), SendOutcome::Taken);
        let start = Instant::now();
        while told.finished[HONEST.0 as usize] == 0 {
            prop_assert!(start.elapsed() < crate::quiet::PATIENCE, "the honest process is not heard");
            victim.progress(&mut told);
        }
        prop_assert!(!told.lost[HONEST.0 as usize]);
        told.check_memory();
    }
}
