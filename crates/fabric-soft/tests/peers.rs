//! What mapped peers must do, case by case. Only [`peers`] knows which device it is.

use base::memory::{ReadRange, WriteRange};
use fabric::{
    Access, DirectCopy, DirectCopyError, FabricError, LocalMemory, MappedArea, MappedPeers, MemoryRegion, PeerIndex,
    RemoteMemory, Rkey,
};
use fabric_soft::shm::{Segment, Shape, ShmPeers, probe_cross_memory};

fn segment(count: u32) -> Segment {
    Segment::create(Shape { process_count: count, channel_bytes: 8 << 10, ..Shape::default() }).expect("memory")
}

/// Peers of one device in this process.
fn peers(count: u32) -> Vec<Box<dyn MappedPeers>> {
    let segment = segment(count);
    (0..count)
        .map(|me| {
            let peers = ShmPeers::join(segment.clone(), PeerIndex(me), probe_cross_memory());
            Box::new(peers.expect("the segment has room")) as Box<dyn MappedPeers>
        })
        .collect()
}

/// An initiator, a target with 64 bytes registered, and what lies there.
struct Pair {
    initiator: Box<dyn MappedPeers>,
    target: Box<dyn MappedPeers>,
    region: MemoryRegion,
    far: Box<[u8; 64]>,
    near: Box<[u8; 64]>,
}

fn pair(access: Access) -> Pair {
    let mut all = peers(2);
    let mut target = all.pop().expect("two");
    let initiator = all.pop().expect("two");
    let mut far = Box::new([7u8; 64]);
    let near = Box::new([1u8; 64]);
    // SAFETY: the box lives in `Pair`, beside the peers that use it.
    let range = unsafe { WriteRange::new(far.as_mut_ptr(), 64) };
    let region = target.register(LocalMemory::Target(range), access).expect("there is room");
    Pair { initiator, target, region, far, near }
}

impl Pair {
    fn read(&mut self, remote: RemoteMemory, len: usize) -> Result<(), DirectCopyError> {
        // SAFETY: `near` is 64 bytes, no case asks for more, and the copy is over when this returns.
        let local = unsafe { WriteRange::new(self.near.as_mut_ptr(), len) };
        self.initiator.copy(PeerIndex(1), &DirectCopy::Read { local, remote })
    }

    fn write(&mut self, remote: RemoteMemory, len: usize) -> Result<(), DirectCopyError> {
        // SAFETY: as in `read`.
        let local = unsafe { ReadRange::new(self.near.as_ptr(), len) };
        self.initiator.copy(PeerIndex(1), &DirectCopy::Write { local, remote })
    }
}

/// Rings that a bell has heard since this was asked last.
fn heard(peers: &dyn MappedPeers) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(peers.bell().expect("a bell"), &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

#[test]
fn bells_ring_for_those_who_said_that_they_sleep() {
    let shape = Shape { process_count: 3, channel_bytes: 8 << 10, ..Shape::default() };
    let segment = Segment::create_with_bells(shape).expect("memory");
    let join = |me| ShmPeers::join(segment.clone(), PeerIndex(me), probe_cross_memory()).expect("a place");
    let all: Vec<_> = (0..3).map(join).collect();
    all[0].notify(PeerIndex(1));
    assert_eq!(heard(&all[1]), 0, "nobody sleeps");
    let wakeup = all[1].wakeup();
    let _ = wakeup.announce();
    all[0].notify(PeerIndex(1));
    all[2].notify(PeerIndex(1));
    assert_eq!([0, 1, 2].map(|me| heard(&all[me])), [0, 2, 0]);
    wakeup.withdraw();
    all[2].notify(PeerIndex(1));
    assert_eq!(heard(&all[1]), 0, "nobody sleeps any more");
    assert!(peers(1)[0].bell().is_none(), "no bells unless they are asked for");
}

/// False, saying so, where this machine's kernel does not let processes copy from each other.
fn allowed(pair: &Pair) -> bool {
    if let Err(why) = pair.initiator.direct_copies() {
        println!("skipped: {why}");
        return false;
    }
    true
}

#[test]
fn copies_move_exactly_what_they_name() {
    let mut reader = pair(Access::REMOTE_READ);
    if !allowed(&reader) {
        return;
    }
    assert_eq!(reader.read(reader.region.remote(8), 16), Ok(()));
    assert_eq!((reader.near[..16].to_vec(), reader.near[16..].to_vec()), (vec![7; 16], vec![1; 48]));
    let mut writer = pair(Access::REMOTE_WRITE);
    assert_eq!(writer.write(writer.region.remote(8), 16), Ok(()));
    let far = &writer.far;
    assert!(far[..8].iter().chain(&far[24..]).all(|byte| *byte == 7) && far[8..24] == [1; 16]);
}

#[test]
fn keys_bounds_and_rights_are_checked_at_the_target() {
    type Wrong = fn(&Pair) -> (RemoteMemory, usize);
    let cases: [(&str, Wrong); 5] = [
        ("one byte past the end", |pair| (pair.region.remote(49), 16)),
        ("before the start", |pair| (pair.region.remote(u64::MAX), 16)),
        ("another key", |pair| (RemoteMemory { rkey: Rkey(pair.region.rkey.0 ^ 1), ..pair.region.remote(0) }, 16)),
        ("an older key", |pair| {
            (RemoteMemory { rkey: Rkey(pair.region.rkey.0 - (1 << 12)), ..pair.region.remote(0) }, 16)
        }),
        ("an address that wraps", |pair| (RemoteMemory { address: u64::MAX - 4, ..pair.region.remote(0) }, 16)),
    ];
    for (name, wrong) in cases {
        let mut pair = pair(Access::REMOTE_READ);
        if !allowed(&pair) {
            return;
        }
        let (remote, len) = wrong(&pair);
        assert_eq!(pair.read(remote, len), Err(DirectCopyError::AccessError), "{name}");
        assert_eq!(*pair.near, [1; 64], "{name}: nothing was written");
        assert_eq!(pair.read(pair.region.remote(0), 16), Ok(()), "{name}: what is right still works");
    }
    let mut pair = pair(Access::REMOTE_READ);
    assert_eq!(pair.write(pair.region.remote(0), 16), Err(DirectCopyError::AccessError), "no right to write");
    assert_eq!(*pair.far, [7; 64]);
}

#[test]
fn a_deregistered_region_is_out_of_reach() {
    let mut pair = pair(Access::REMOTE_READ);
    if !allowed(&pair) {
        return;
    }
    assert_eq!(pair.read(pair.region.remote(0), 64), Ok(()));
    pair.target.deregister(pair.region);
    assert_eq!(pair.read(pair.region.remote(0), 1), Err(DirectCopyError::AccessError));
}

#[test]
fn what_does_not_exist_is_an_error() {
    let mut all = peers(2);
    assert!(matches!(ShmPeers::join(segment(2), PeerIndex(2), Ok(())), Err(FabricError::NoSuchPeer(2))));
    let mut near = [0u8; 8];
    // SAFETY: `near` outlives the copy.
    let local = unsafe { WriteRange::new(near.as_mut_ptr(), 8) };
    let remote = RemoteMemory { address: 0, rkey: Rkey(0) };
    let copy = DirectCopy::Read { local, remote };
    if all[0].direct_copies().is_ok() {
        assert_eq!(all[0].copy(PeerIndex(2), &copy), Err(DirectCopyError::PeerGone));
    }
    let far = MappedArea::Channel { from: PeerIndex(0), to: PeerIndex(2) };
    assert!(all[0].mapped(far).is_none());
    let cell = MappedArea::ClaimCell { owner: PeerIndex(0), cell: MappedArea::CLAIM_CELLS_MAX };
    assert!(all[0].mapped(cell).is_none());
}

#[test]
fn mapped_memory_is_the_peers_own() {
    let all = peers(3);
    use std::sync::atomic::Ordering::Relaxed;
    let channel = |from, to| MappedArea::Channel { from: PeerIndex(from), to: PeerIndex(to) };
    all[0].mapped(channel(0, 2)).expect("a channel").word(64).store(5, Relaxed);
    assert_eq!(all[2].mapped(channel(0, 2)).expect("the same").word(64).load(Relaxed), 5);
    assert_eq!(all[2].mapped(channel(1, 2)).expect("another").word(64).load(Relaxed), 0);
    assert_eq!(all[2].mapped(channel(2, 0)).expect("the way back").word(64).load(Relaxed), 0);
}

#[test]
fn a_sleeper_is_woken_by_a_peer_and_by_itself() {
    let mut all = peers(2);
    let sleeper = all.pop().expect("two");
    let bringer = all.pop().expect("two");
    let wakeup = sleeper.wakeup();
    // Work brought after the announcement: the sleep ends at once, long before its time is over.
    let ticket = wakeup.announce();
    bringer.notify(PeerIndex(1));
    wakeup.sleep(ticket, std::time::Duration::from_secs(3600));
    let ticket = wakeup.announce();
    let other = sleeper.wakeup();
    let thread = std::thread::spawn(move || other.sleep(ticket, std::time::Duration::from_secs(3600)));
    wakeup.wake_local();
    thread.join().expect("woken");
}

#[test]
fn a_peer_that_dies_costs_its_own_messages_only() {
    let segment = segment(2);
    let probe = probe_cross_memory();
    if let Err(why) = &probe {
        println!("skipped: {why}");
        return;
    }
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
    // The segment says that peer 1 is the child, which registered 64 bytes, and which is then killed.
    let mut target = ShmPeers::join(segment.clone(), PeerIndex(1), probe.clone()).expect("joins");
    let mut far = [0u8; 64];
    // SAFETY: `far` outlives both peers.
    let range = unsafe { WriteRange::new(far.as_mut_ptr(), 64) };
    let region = target.register(LocalMemory::Target(range), Access::REMOTE_READ).expect("there is room");
    segment.claim_to_be(PeerIndex(1), child.id());
    child.kill().expect("ours to kill");
    child.wait().expect("ours to reap");
    let mut initiator = ShmPeers::join(segment, PeerIndex(0), probe).expect("joins");
    let mut near = [1u8; 64];
    // SAFETY: `near` outlives the copy.
    let local = unsafe { WriteRange::new(near.as_mut_ptr(), 64) };
    let outcome = initiator.copy(PeerIndex(1), &DirectCopy::Read { local, remote: region.remote(0) });
    assert_eq!(outcome, Err(DirectCopyError::PeerGone));
    assert_eq!(near, [1; 64]);
}
