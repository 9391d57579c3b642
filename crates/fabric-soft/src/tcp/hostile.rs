//! A peer that has proved itself and then sends anything: the adapter does not panic, keeps no more than it may, writes
//! where it was told to and nowhere else, and others go on.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use base::log::{Level, Log};
use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, DeviceKind, Endpoint, LocalMemory, MemoryRegion, QpNumber,
    QueuePair, QueuePairAttributes, ReceiveRequest, WcStatus, WorkCompletion,
};
use proptest::prelude::*;

use super::address::Address;
use super::frame::{self, Head, Kind, SHORT_BYTES};
use super::greeting::{CHALLENGE_BYTES, Meeting};
use super::inbox::ROOM_BYTES;
use super::link::MESSAGE_MAX_BYTES;
use super::peer::part_of;
use super::{JobSecret, TcpLink, TcpOptions};
use crate::SoftContext;
use crate::link::{HEADER_BYTES, LinkPeer};
use crate::quiet::{self, End, PATIENCE};
use crate::wire::{self, Packet};

const SECRET: JobSecret = JobSecret::new([9; 32]);
/// What the hostile peer says its queue pair is.
const FAR_QP: u32 = 77;
/// Of each piece of memory.
const PIECE_BYTES: usize = 4096;
const UNTOUCHED: u8 = 7;
/// Lanes that the hostile peer uses.
const LANES: usize = 3;
/// Polls after which everything that has come was looked at, and not only the connection that is busy.
const POLLS: usize = 80;
/// What a system may take to bring what was written to the other socket.
const ON_ITS_WAY: Duration = Duration::from_micros(100);

pub(super) fn link() -> SoftContext<TcpLink> {
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    SoftContext::new(TcpLink::new(TcpOptions::new(SECRET, listen, Log::new(Level::Error, None))).expect("a link"))
}

/// The adapter that is attacked, and an honest peer of it.
struct Victim {
    end: End<SoftContext<TcpLink>>,
    honest: End<SoftContext<TcpLink>>,
    /// The hostile peer's.
    qp: QueuePair,
    completions: CompletionQueue,
    done: Vec<WorkCompletion>,
    /// One piece behind the other: closed, open to the peer, filled by receives from its middle on, and not registered.
    memory: *mut u8,
    open: MemoryRegion,
}

impl Victim {
    fn of(hostile: &Hostile) -> Self {
        let (mut end, honest) = quiet::connect(link(), link());
        let adapter = &mut end.context;
        let domain = adapter.allocate_protection_domain().expect("a domain");
        let words = vec![u64::from_ne_bytes([UNTOUCHED; 8]); 4 * PIECE_BYTES / 8].into_boxed_slice();
        let memory = Box::leak(words).as_mut_ptr().cast::<u8>();
        let mut register = |piece: usize, access| {
            // SAFETY: leaked memory is valid for ever, and is reached through raw pointers only.
            let range = unsafe { WriteRange::new(memory.add(piece * PIECE_BYTES), PIECE_BYTES) };
            adapter.register(domain, LocalMemory::Target(range), access).expect("a region")
        };
        let [_closed, open, inbox] =
            [(0, Access::LOCAL), (1, Access::REMOTE_ALL), (2, Access::LOCAL)].map(|(at, access)| register(at, access));
        let completions = adapter.create_completion_queue(4096).expect("a queue");
        let qp = adapter.create_queue_pair(&QueuePairAttributes::new(domain, completions)).expect("a queue pair");
        let theirs = Endpoint::new(DeviceKind::Tcp, QpNumber(FAR_QP), &hostile.address().to_bytes());
        fabric::connect(adapter, qp, Some(theirs), &ConnectOptions::default()).expect("connects");
        let list = [inbox.part(PIECE_BYTES as u64 / 2, PIECE_BYTES as u32 / 2)];
        for id in 0..8 {
            assert_eq!(adapter.post_receive(qp, &[ReceiveRequest { id, list: &list }]), Ok(1));
        }
        Self { end, honest, qp, completions, done: Vec::new(), memory, open }
    }

    fn link(&mut self) -> &mut TcpLink {
        self.end.context.link()
    }

    /// The hostile peer is the first that was connected to behind the honest one.
    const HOSTILE: LinkPeer = LinkPeer(1);

    fn poll(&mut self) {
        std::thread::sleep(ON_ITS_WAY);
        let mut into = [WorkCompletion::default(); 16];
        for _ in 0..POLLS {
            let count = self.end.context.poll(self.completions, &mut into).expect("a whole queue");
            self.done.extend_from_slice(&into[..count]);
        }
    }

    fn until(&mut self, what: &str, ready: impl Fn(&mut Self) -> bool) {
        let start = Instant::now();
        while !ready(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.done);
            self.poll();
        }
    }

    /// A message of the honest peer comes through.
    fn check_honest(&mut self) {
        self.end.receive();
        self.honest.send();
        let (mut received, mut sent) = (false, false);
        let start = Instant::now();
        while !(received && sent) {
            received |= self.end.poll().contains(&2);
            sent |= self.honest.poll().contains(&1);
            assert!(start.elapsed() < PATIENCE, "the honest peer is not heard");
        }
    }

    fn check_memory(&self) {
        let pieces = [(0, PIECE_BYTES), (2 * PIECE_BYTES, PIECE_BYTES / 2), (3 * PIECE_BYTES, PIECE_BYTES)];
        for at in pieces.into_iter().flat_map(|(start, len)| start..start + len) {
            // SAFETY: inside the allocation, which is never freed.
            assert_eq!(unsafe { self.memory.add(at).read_volatile() }, UNTOUCHED, "byte {at} was the victim's alone");
        }
    }

    /// Nothing grows with what a peer sends.
    fn check_kept(&mut self) {
        let link = self.link();
        assert!(link.peers.len() == 2 && link.connections.len() <= 16 && link.again.is_empty());
        assert!(link.room.len() <= ROOM_BYTES && link.wanted.len() <= 2 * super::peer::LANES_MAX);
        for connection in link.connections.iter().flatten() {
            assert!(connection.kept_bytes() <= 2 * ROOM_BYTES, "{} bytes", connection.kept_bytes());
        }
        link.connections_made();
    }

    /// Frames of a lane that the victim has received, and had acknowledged.
    fn mark(&mut self, lane: usize) -> (u64, u64) {
        let peer = &self.link().peers[Self::HOSTILE.0 as usize];
        peer.lanes.get(lane).map_or((0, 0), |lane| lane.mark())
    }
}

struct Hostile {
    identity: [u8; 16],
    /// It listens and never answers.
    listener: TcpListener,
    lanes: [Option<TcpStream>; LANES],
    epochs: [u64; LANES],
    /// Of its queue pair.
    sequence: u32,
}

impl Hostile {
    /// One that says itself which connection counts, or leaves that to the victim.
    fn new(chooses: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let identity = [if chooses { 0 } else { 0xff }; 16];
        Self { identity, listener, lanes: [const { None }; LANES], epochs: [0; LANES], sequence: 0 }
    }

    fn address(&self) -> Address {
        Address { identity: self.identity, sockets: vec![self.listener.local_addr().expect("its address")] }
    }

    fn chooses(&self) -> bool {
        self.identity == [0; 16]
    }

    /// Exactly `N` bytes that the victim says; `None` if it hangs up.
    fn read<const N: usize>(victim: &mut Victim, stream: &mut TcpStream) -> Option<[u8; N]> {
        let (mut bytes, mut got) = ([0; N], 0);
        let start = Instant::now();
        while got < N {
            assert!(start.elapsed() < PATIENCE, "the victim does not answer");
            match stream.read(&mut bytes[got..]) {
                Ok(0) => return None,
                Ok(count) => got += count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => victim.poll(),
                Err(_) => return None,
            }
        }
        Some(bytes)
    }

    /// Proves itself and says where it stands; `epoch` is added to what would be right.
    fn greet(&mut self, victim: &mut Victim, lane: usize, epoch: u64, received: u64) {
        let own = victim.link().own.clone();
        let mut stream = TcpStream::connect(own.sockets[0]).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        let mut meeting = Meeting {
            dialler: self.identity,
            acceptor: own.identity,
            dialler_nonce: [5; 32],
            acceptor_nonce: [0; 32],
            lane: lane as u8,
        };
        stream.write_all(&meeting.hello()).expect("there is room");
        let Some(challenge) = Self::read::<CHALLENGE_BYTES>(victim, &mut stream) else { return };
        assert!(meeting.believe_challenge(&challenge, &SECRET), "they share the secret");
        stream.write_all(&meeting.proof(&SECRET, &self.address())).expect("there is room");
        let right = if self.chooses() {
            self.epochs[lane] + 1
        } else {
            let Some(head) = Self::read::<SHORT_BYTES>(victim, &mut stream) else { return };
            let Ok(Some((Head { kind: Kind::Resume { epoch, .. }, .. }, _))) = frame::parse(&head) else {
                panic!("it says which connection counts: {head:?}")
            };
            epoch
        };
        self.lanes[lane] = Some(stream);
        let epoch = right.saturating_add(epoch);
        self.epochs[lane] = self.epochs[lane].max(epoch).min(u64::MAX - 1);
        self.say(victim, lane, Kind::Resume { epoch, is_asynchronous: false }, received);
    }

    fn say(&mut self, victim: &mut Victim, lane: usize, kind: Kind<'_>, received: u64) {
        let (bytes, len) = Head { kind, received }.to_bytes();
        self.write(victim, lane, &bytes[..len]);
    }

    /// Writes what the victim lets it; it hangs up when it has heard enough.
    fn write(&mut self, victim: &mut Victim, lane: usize, mut bytes: &[u8]) {
        let Some(stream) = &mut self.lanes[lane] else { return };
        let mut refusals = 0;
        while !bytes.is_empty() && refusals < 3 {
            match stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(why) if why.kind() == ErrorKind::WouldBlock => refusals += 1,
                Err(_) => break,
            }
            victim.poll();
        }
        victim.poll();
    }

    fn act(&mut self, victim: &mut Victim, act: &Act) {
        match act {
            Act::Greet { lane, epoch, received } => {
                let right = victim.mark(*lane).1;
                self.greet(victim, *lane, *epoch, right.wrapping_add(*received));
            }
            Act::Cut(lane) => {
                self.lanes[*lane] = None;
                victim.poll();
            }
            Act::Noise(lane, bytes) => self.write(victim, *lane, bytes),
            Act::Frame { lane, kind, number, received, payload_bytes, part_count, is_checked, part, header } => {
                let mark = victim.mark(*lane);
                let (number, received) = (victim.mark(0).0.wrapping_add(*number), mark.1.wrapping_add(*received));
                let (is_checked, payload_bytes) = (*is_checked, *payload_bytes);
                let header = header.bytes(victim, self.sequence, payload_bytes);
                let (_, len) = part_of(payload_bytes.min(MESSAGE_MAX_BYTES), *part_count, *lane);
                let kind = match kind {
                    0 | 1 => {
                        self.sequence = self.sequence.wrapping_add(1);
                        let part_count = *part_count;
                        Kind::Packet { sequence: number, header: &header, payload_bytes, part_count, is_checked }
                    }
                    2 => Kind::Part { packet: number, payload_bytes: len, is_checked },
                    3 => Kind::Part { packet: number, payload_bytes, is_checked },
                    4 => Kind::Acknowledge,
                    5 => Kind::Ask,
                    6 => Kind::Goodbye,
                    _ => Kind::Resume { epoch: number, is_asynchronous: is_checked },
                };
                let carries = matches!(kind, Kind::Packet { .. } | Kind::Part { .. });
                self.say(victim, *lane, kind, received);
                if carries {
                    let payload = vec![0xee; len.min(300_000) as usize];
                    let sent = payload.len() * (*part as usize) / 4;
                    self.write(victim, *lane, &payload[..sent]);
                    if *part == 4 && is_checked {
                        self.write(victim, *lane, &crc32c::crc32c(&payload).to_le_bytes());
                    }
                }
            }
        }
    }
}

/// The header of a packet: mostly a request to the victim's memory.
#[derive(Clone, Debug)]
struct Header {
    kind: wire::Kind,
    offset: u64,
    noise: Option<u8>,
}

impl Header {
    fn bytes(&self, victim: &Victim, sequence: u32, len_bytes: u64) -> [u8; HEADER_BYTES] {
        if let Some(noise) = self.noise {
            return [noise; HEADER_BYTES];
        }
        let to = victim.end.context.endpoint(victim.qp).expect("an endpoint").qp().0;
        Packet {
            rkey: victim.open.rkey.0,
            address: victim.open.address.wrapping_add(self.offset),
            len_bytes,
            ..Packet::new(self.kind, FAR_QP, to, sequence)
        }
        .to_bytes()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Greet {
        lane: usize,
        epoch: u64,
        received: u64,
    },
    Cut(usize),
    Noise(usize, Vec<u8>),
    /// Numbers are added to what would be right; of the payload so many quarters follow.
    Frame {
        lane: usize,
        kind: u8,
        number: u64,
        received: u64,
        payload_bytes: u64,
        part_count: u16,
        is_checked: bool,
        part: u8,
        header: Header,
    },
}

/// Mostly nothing, else a little or anything.
fn off() -> impl Strategy<Value = u64> {
    prop_oneof![12 => Just(0), 1 => Just(1), 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn header() -> impl Strategy<Value = Header> {
    use wire::Kind::{FetchAdd, Read, ReadResponse, Send, Write, WriteWithImmediate};
    let kinds = prop_oneof![
        4 => Just(Write),
        3 => Just(Send),
        1 => Just(WriteWithImmediate),
        1 => Just(Read),
        1 => Just(FetchAdd),
        1 => Just(ReadResponse),
    ];
    let offsets = prop_oneof![4 => Just(0), 1 => 0..2 * PIECE_BYTES as u64, 1 => any::<u64>()];
    let noise = prop_oneof![8 => Just(None), 1 => any::<u8>().prop_map(Some)];
    (kinds, offsets, noise).prop_map(|(kind, offset, noise)| Header { kind, offset, noise })
}

fn act() -> impl Strategy<Value = Act> {
    let payloads = prop_oneof![
        2 => Just(0), 4 => 1..=PIECE_BYTES as u64, 2 => 60_000..300_000u64, 1 => Just(MESSAGE_MAX_BYTES + 1), 1 => any::<u64>(),
    ];
    let lane = || prop_oneof![3 => Just(0), 2 => 1..LANES];
    let parts = prop_oneof![3 => Just(1u16), 2 => 2..=LANES as u16, 1 => 1..=16u16];
    let quarters = prop_oneof![3 => Just(4u8), 1 => 0..4u8];
    let first = (lane(), prop_oneof![6 => 0..4u8, 2 => 4..6u8, 1 => 6..8u8], off(), off(), payloads);
    let frame = (first, (parts, any::<bool>(), quarters, header())).prop_map(
        |((lane, kind, number, received, payload_bytes), (part_count, is_checked, part, header))| Act::Frame {
            lane,
            kind,
            number,
            received,
            payload_bytes,
            part_count,
            is_checked,
            part,
            header,
        },
    );
    prop_oneof![
        12 => frame,
        3 => (lane(), off(), off()).prop_map(|(lane, epoch, received)| Act::Greet { lane, epoch, received }),
        1 => lane().prop_map(Act::Cut),
        1 => (lane(), prop::collection::vec(any::<u8>(), 1..300)).prop_map(|(lane, bytes)| Act::Noise(lane, bytes)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_proven_peer_sends_costs_itself_alone(
        chooses: bool, acts in prop::collection::vec(act(), 1..24),
    ) {
        let mut hostile = Hostile::new(chooses);
        let mut victim = Victim::of(&hostile);
        for lane in 0..LANES {
            hostile.greet(&mut victim, lane, 0, 0);
        }
        for act in &acts {
            hostile.act(&mut victim, act);
            victim.check_kept();
        }
        victim.check_honest();
        victim.check_memory();
        let mut ids: Vec<u64> = victim.done.iter().map(|one| one.id).collect();
        ids.sort_unstable();
        prop_assert!(ids.is_sorted_by(|one, next| one < next), "each receive ends once: {:?}", victim.done);
    }
}

/// What is right is taken, so that what is wrong is refused for what it is.
#[test]
fn who_keeps_to_the_protocol_is_heard() {
    for chooses in [false, true] {
        let mut hostile = Hostile::new(chooses);
        let mut victim = Victim::of(&hostile);
        (0..LANES).for_each(|lane| hostile.greet(&mut victim, lane, 0, 0));
        let (header, part_count) = (Header { kind: wire::Kind::Write, offset: 0, noise: None }, LANES as u16);
        for is_checked in [false, true] {
            for lane in 0..LANES {
                let (kind, payload_bytes, header) = (if lane == 0 { 0 } else { 2 }, PIECE_BYTES as u64, header.clone());
                let (number, received, part) = (0, 0, 4);
                hostile.act(
                    &mut victim,
                    &Act::Frame { lane, kind, number, received, payload_bytes, part_count, is_checked, part, header },
                );
            }
            let count = 1 + u64::from(is_checked);
            victim.until("the packet", |victim| victim.mark(0).0 == count);
        }
        // SAFETY: inside the allocation, which is never freed.
        let written = |at| unsafe { victim.memory.add(PIECE_BYTES + at).read_volatile() } == 0xee;
        assert!((0..PIECE_BYTES).all(written));
        victim.check_honest();
        victim.check_memory();
    }
}

/// The peer is lost over `wrong`, whoever chooses connections; what was posted for it is flushed, and nothing else.
fn is_lost_over(wrong: impl Fn(&mut Hostile, &mut Victim)) {
    for chooses in [false, true] {
        let mut hostile = Hostile::new(chooses);
        let mut victim = Victim::of(&hostile);
        wrong(&mut hostile, &mut victim);
        victim.until("the loss", |victim| victim.link().why_lost(Victim::HOSTILE).is_some() && victim.done.len() >= 8);
        let why = victim.link().why_lost(Victim::HOSTILE).expect("it is lost").to_owned();
        assert!(why.contains("does not keep to the protocol"), "{why}");
        let flushed = victim.done.iter().filter(|one| one.status == WcStatus::WorkRequestFlushed).count();
        assert_eq!((flushed, victim.done.len()), (8, 8));
        victim.check_honest();
        victim.check_memory();
    }
}

#[test]
fn who_sends_a_packet_out_of_its_turn_is_lost() {
    is_lost_over(|hostile, victim| {
        hostile.greet(victim, 0, 0, 0);
        let kind = Kind::Packet {
            sequence: 1,
            header: &[0; HEADER_BYTES],
            payload_bytes: 0,
            part_count: 1,
            is_checked: false,
        };
        hostile.say(victim, 0, kind, 0);
    });
}

#[test]
fn who_has_received_more_than_was_sent_is_lost() {
    is_lost_over(|hostile, victim| hostile.greet(victim, 0, 0, 1));
    is_lost_over(|hostile, victim| {
        hostile.greet(victim, 0, 0, 0);
        hostile.say(victim, 0, Kind::Acknowledge, 1);
    });
}

/// What comes on one connection may be read before what was written to another one earlier.
#[test]
fn who_leaves_is_heard_to_the_end_of_its_first_lane() {
    for chooses in [false, true] {
        let mut hostile = Hostile::new(chooses);
        let mut victim = Victim::of(&hostile);
        (0..LANES).for_each(|lane| hostile.greet(&mut victim, lane, 0, 0));
        victim.until("all lanes", |victim| victim.link().greeting_count == 0);
        (1..LANES).for_each(|lane| hostile.say(&mut victim, lane, Kind::Goodbye, 0));
        victim.until("the others' end", |victim| {
            let lanes = &victim.link().peers[Victim::HOSTILE.0 as usize].lanes;
            lanes[1..].iter().all(|lane| lane.connection.is_none())
        });
        assert_eq!(victim.link().why_lost(Victim::HOSTILE), None);
        let header = Header { kind: wire::Kind::Write, offset: 0, noise: None };
        let (number, received, payload_bytes, is_checked, part) = (0, 0, 8, false, 4);
        let (lane, kind, part_count) = (0, 0, 1);
        let write = Act::Frame { lane, kind, number, received, payload_bytes, part_count, is_checked, part, header };
        hostile.act(&mut victim, &write);
        victim.until("the packet", |victim| victim.mark(0).0 == 1);
        let received = victim.mark(0).1;
        hostile.say(&mut victim, 0, Kind::Goodbye, received);
        victim.until("the loss", |victim| victim.link().why_lost(Victim::HOSTILE) == Some("it has left"));
        victim.check_honest();
        // One that never had a first lane, or has none any more, is lost at once.
        let mut hostile = Hostile::new(chooses);
        let mut victim = Victim::of(&hostile);
        hostile.greet(&mut victim, 1, 0, 0);
        victim.until("its lane", |victim| victim.link().greeting_count == 0);
        hostile.say(&mut victim, 1, Kind::Goodbye, 0);
        victim.until("the loss", |victim| victim.link().why_lost(Victim::HOSTILE) == Some("it has left"));
        victim.check_honest();
    }
}

/// Epochs are the peer's to say, where it chooses connections.
#[test]
fn connections_of_any_epoch_are_counted() {
    let mut hostile = Hostile::new(true);
    let mut victim = Victim::of(&hostile);
    for lane in 0..LANES {
        hostile.greet(&mut victim, lane, u64::MAX, 0);
    }
    victim.until("all lanes", |victim| {
        let lanes = &victim.link().peers[Victim::HOSTILE.0 as usize].lanes;
        lanes.len() == LANES && lanes.iter().all(|lane| lane.epoch == u64::MAX)
    });
    assert_eq!(victim.link().connections_made(), u64::MAX);
    assert_eq!(victim.link().why_lost(Victim::HOSTILE), None);
    victim.check_honest();
}
