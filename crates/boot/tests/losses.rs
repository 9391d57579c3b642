//! What is left of a peer that is lost: on this host, given up while it shares a copy; over a network, by a failure.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::Config;
use base::config::{FastPath, LargeCopy, Rendezvous};
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, Holdings, Outcome, SendMode, Source, TagPattern, WaitPolicy};
use fabric::{
    Access, Context, DirectCopy, DirectCopyError, FabricError, LocalMemory, MappedArea, MappedPeers, MemoryRegion,
    PeerIndex, PieceCopy, SharedMemory, Translation, Wakeup,
};
use fabric_soft::shm::{Segment, Shape, ShmPeers, probe_cross_memory};
use fabric_soft::sim::{Fault, SimClock};
use fabric_soft::{SimNetwork, SimPlan, SoftContext};
use protocol::fastpath::Geometry;

const CONTEXT: ContextId = ContextId(3);
const LEN: usize = 2 << 20;
const TAG: TagPattern = TagPattern::Exact(1);

/// Peers of which a test says who is given up.
struct Watched {
    peers: ShmPeers,
    given_up: Arc<Mutex<Vec<u32>>>,
}

impl MappedPeers for Watched {
    fn name(&self) -> &'static str {
        self.peers.name()
    }

    fn local_peer(&self) -> PeerIndex {
        self.peers.local_peer()
    }

    fn peer_count(&self) -> u32 {
        self.peers.peer_count()
    }

    fn direct_copies(&self) -> Result<(), String> {
        self.peers.direct_copies()
    }

    fn translation(&self) -> Translation {
        self.peers.translation()
    }

    fn register(&mut self, memory: LocalMemory, access: Access) -> Result<MemoryRegion, FabricError> {
        self.peers.register(memory, access)
    }

    fn deregister(&mut self, region: MemoryRegion) {
        self.peers.deregister(region);
    }

    fn copy(&mut self, peer: PeerIndex, copy: &DirectCopy) -> Result<(), DirectCopyError> {
        self.peers.copy(peer, copy)
    }

    fn copy_pieces(&mut self, peer: PeerIndex, copy: &PieceCopy<'_>) -> Result<(), DirectCopyError> {
        self.peers.copy_pieces(peer, copy)
    }

    fn mapped(&self, area: MappedArea) -> Option<SharedMemory> {
        self.peers.mapped(area)
    }

    fn wakeup(&self) -> Arc<dyn Wakeup> {
        self.peers.wakeup()
    }

    fn given_up(&self) -> Option<(PeerIndex, String)> {
        let peer = self.given_up.lock().expect("no test fails while it holds this").pop()?;
        Some((PeerIndex(peer), "it does not go on".to_owned()))
    }

    fn notify(&self, peer: PeerIndex) {
        self.peers.notify(peer);
    }
}

fn payload(from: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at.wrapping_mul(31) ^ (at >> 9) ^ (from * 77)) as u8).collect()
}

fn send(engines: &mut [Engine], from: usize) {
    let buf = SendBuf::from_owned(payload(from).into());
    let send = engines[from].send(SendMode::Standard, 0, CONTEXT, 1, buf).expect("a peer");
    engines[from].detach(send);
}

/// The sender may have taken a chunk, and may go on one day: it reports that to the cell, which must not be another
/// message's by then.
#[test]
fn a_cell_of_a_lost_sender_is_not_used_again() {
    if let Err(why) = probe_cross_memory() {
        return println!("skipped: {why}");
    }
    let config = Config { large_copy: LargeCopy::Both, shared_copy_min_bytes: 0, ..Config::default() };
    let channel_bytes = Geometry::new(&config).reserved_bytes();
    let segment = Segment::create(Shape { process_count: 3, channel_bytes, ..Shape::default() }).expect("memory");
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let policy = WaitPolicy { close_count: 2, spin_count: 8, yield_count: 8, dear_yield: Duration::from_millis(3) };
    let open = |me| {
        let peers = ShmPeers::join(segment.clone(), PeerIndex(me), Ok(())).expect("room");
        let given_up = if me == 0 { Arc::clone(&given_up) } else { Arc::default() };
        Engine::new(Box::new(Watched { peers, given_up }), &config, policy).expect("mapped peers")
    };
    let mut engines: Vec<Engine> = (0..3).map(open).collect();
    // The first long message of a peer is read alone, which tells whether it can be.
    for from in [1, 2] {
        send(&mut engines, from);
        let mut buf = RecvBuf::from_owned(vec![0; LEN].into());
        let receive =
            engines[0].recv(Source::Peer(from as u32), CONTEXT, TAG, buf.slice(0, LEN as u64)).expect("a peer");
        while !engines[0].is_complete(receive) {
            engines.iter_mut().for_each(|engine| _ = engine.progress());
        }
        assert_eq!(engines[0].take(receive).expect("complete").outcome, Outcome::Done);
        assert_eq!(buf.as_contiguous().expect("in one piece"), payload(from));
    }
    assert_eq!(engines[0].holdings().claim_cells, 0);

    // A copy that both share, of which the receiver does a part before the sender is given up.
    send(&mut engines, 1);
    let lost =
        engines[0].recv(Source::Peer(1), CONTEXT, TAG, RecvBuf::from_owned(vec![0; LEN].into())).expect("a peer");
    for turn in 0.. {
        if engines[0].holdings().claim_cells == 1 {
            break;
        }
        assert!(turn < 1000 && !engines[0].is_complete(lost), "the copy is not shared");
        engines[1].progress();
        engines[0].progress();
    }
    given_up.lock().expect("nobody failed").push(1);
    assert!(engines[0].hear_of_losses());
    let outcome = engines[0].take(lost).expect("it is over").outcome;
    assert!(matches!(&outcome, Outcome::Failed(fault) if fault.is_loss), "{outcome:?}");
    assert_eq!(engines[0].holdings().claim_cells, 1, "the cell rests");

    // Another message is shared, by another cell, while the one that was lost goes on.
    send(&mut engines, 2);
    let mut buf = RecvBuf::from_owned(vec![0; LEN].into());
    let receive = engines[0].recv(Source::Peer(2), CONTEXT, TAG, buf.slice(0, LEN as u64)).expect("a peer");
    let mut cells_max = 0;
    while !engines[0].is_complete(receive) {
        engines.iter_mut().rev().for_each(|engine| _ = engine.progress());
        cells_max = cells_max.max(engines[0].holdings().claim_cells);
    }
    assert_eq!(engines[0].take(receive).expect("complete").outcome, Outcome::Done);
    assert_eq!(buf.as_contiguous().expect("in one piece"), payload(2));
    assert_eq!((cells_max, engines[0].holdings().claim_cells), (2, 1), "one rests, and one was used");
}

/// When the connection between the first two processes fails.
const FAILURE: Duration = Duration::from_secs(1);

thread_local! {
    static TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Engines over a network in which the connection between the first two fails.
struct Failing {
    network: SimNetwork,
    engines: Vec<Engine>,
}

impl Failing {
    fn new(count: u32, config: &Config) -> Self {
        let at_ns = FAILURE.as_nanos() as u64;
        let faults = vec![Fault::QueuePairError { node: 0, peer: 1, at_ns }];
        let network = SimNetwork::new(SimPlan { clock: SimClock::Driven, faults, ..SimPlan::new(1) });
        let open = |_| Box::new(SoftContext::new(network.link().expect("room"))) as Box<dyn Context>;
        let engines = boot::engines_over((0..count).map(open).collect(), config, Some(|| TIME.get()));
        Self { engines: engines.expect("a network"), network }
    }

    /// Turns of everybody, longer than anything takes.
    fn go_on(&mut self) {
        for _ in 0..300 {
            self.engines.iter_mut().for_each(|engine| _ = engine.progress());
            self.network.pass(Duration::from_micros(2));
        }
    }

    /// The failure, until everybody is told.
    fn fail(&mut self) {
        self.network.pass(FAILURE);
        for _ in 0..4 {
            TIME.set(TIME.get() + FAILURE);
            self.go_on();
        }
        assert!(self.engines[0].lost(1).is_some() && self.engines[1].lost(0).is_some());
    }

    fn send(&mut self, from: usize, to: u32, len: usize) {
        let buf = SendBuf::from_owned(vec![7; len].into());
        let send = self.engines[from].send(SendMode::Standard, to, CONTEXT, 1, buf).expect("a peer");
        self.engines[from].detach(send);
    }
}

/// Its receiver would have asked for the data, and nobody is there to ask: nothing waits for that.
#[test]
fn nothing_waits_to_be_said_to_a_lost_peer() {
    for rendezvous in [Rendezvous::Rput, Rendezvous::Rget] {
        let config = Config { rendezvous, fastpath: FastPath::Off, ..Config::default() };
        let mut world = Failing::new(2, &config);
        world.send(0, 1, LEN);
        world.go_on();
        assert_eq!(world.engines[1].unexpected_count(), 1);
        world.fail();
        let buf = RecvBuf::from_owned(vec![0; LEN].into());
        let receive = world.engines[1].recv(Source::Peer(0), CONTEXT, TAG, buf).expect("it has come");
        world.go_on();
        let outcome = world.engines[1].take(receive).expect("it is over").outcome;
        assert!(matches!(&outcome, Outcome::Failed(fault) if fault.is_loss), "{outcome:?}");
        for engine in &mut world.engines {
            engine.release_registrations();
            assert_eq!(engine.holdings(), Holdings::default(), "{rendezvous:?}, rank {}", engine.rank());
        }
    }
}

/// Queues are few: those of a lost peer serve others.
#[test]
fn queues_of_a_lost_peer_are_given_to_others() {
    let config = Config { rendezvous: Rendezvous::TupleQueue, tuple_queues_max: 1, ..Config::default() };
    let mut world = Failing::new(3, &config);
    while world.engines[0].stats().tuple_sent < 3 {
        world.send(0, 1, 1000);
        world.go_on();
    }
    assert_eq!(world.engines[1].stats().tuple_queues, 1);
    assert!(world.engines[0].holdings().pending_sends > 0, "nobody receives them");
    world.fail();
    assert_eq!(world.engines[0].holdings(), Holdings::default(), "the device has nothing for a lost peer");
    for _ in 0..200 {
        world.send(2, 1, 1000);
        world.go_on();
    }
    assert_eq!((world.engines[1].stats().tuple_queues, world.engines[1].holdings().lost_remembered), (2, 0));
    assert!(world.engines[2].stats().tuple_sent > 0);
}
