//! What is left of a peer on this host that is given up while it shares a copy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::Config;
use base::config::LargeCopy;
use datatype::{RecvBuf, SendBuf};
use engine::{ContextId, Engine, Outcome, SendMode, Source, TagPattern, WaitPolicy};
use fabric::{
    Access, DirectCopy, DirectCopyError, FabricError, LocalMemory, MappedArea, MappedPeers, MemoryRegion, PeerIndex,
    PieceCopy, SharedMemory, Translation, Wakeup,
};
use fabric_soft::shm::{Segment, Shape, ShmPeers, probe_cross_memory};
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
    let segment = Segment::create(Shape { process_count: 3, channel_bytes, arena_bytes: 0 }).expect("memory");
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let policy = WaitPolicy { spin_count: 8, yield_count: 8, dear_yield: Duration::from_millis(3) };
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
