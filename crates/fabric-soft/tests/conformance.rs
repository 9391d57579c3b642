//! What any device must do, case by case. Only [`contexts`] knows which device it is.

use base::memory::{ReadRange, WriteRange};
use fabric::{
    Access, Context, Device, FabricError, LocalMemory, MappedArea, MemoryRegion, Operation, PeerIndex, QpNumber,
    QueuePairState, RemoteMemory, Rkey, WcStatus, WorkCompletion, WorkRequest,
};
use fabric_soft::shm::{Segment, Shape, ShmDevice, probe_cross_memory};

const READABLE: Access = Access { remote_read: true, remote_write: false };
const WRITABLE: Access = Access { remote_read: false, remote_write: true };

/// Peers of one device in this process.
fn contexts(count: u32) -> Vec<Box<dyn Context>> {
    let segment = Segment::create(Shape { process_count: count, channel_bytes: 8 << 10 }).expect("memory");
    (0..count)
        .map(|me| {
            let device = ShmDevice::new(segment.clone(), PeerIndex(me), probe_cross_memory());
            Box::new(device).open().expect("the device opens")
        })
        .collect()
}

/// An initiator, a target with 64 bytes registered, and what lies there.
struct Pair {
    initiator: Box<dyn Context>,
    target: Box<dyn Context>,
    qp: QpNumber,
    region: MemoryRegion,
    far: Box<[u8; 64]>,
    near: Box<[u8; 64]>,
}

fn pair(access: Access) -> Pair {
    let mut all = contexts(2);
    let mut target = all.pop().expect("two");
    let mut initiator = all.pop().expect("two");
    let mut far = Box::new([7u8; 64]);
    let near = Box::new([1u8; 64]);
    // SAFETY: the box lives in `Pair`, beside the contexts that use it.
    let range = unsafe { WriteRange::new(far.as_mut_ptr(), 64) };
    let region = target.register(LocalMemory::Target(range), access).expect("there is room");
    let qp = initiator.create_queue_pair(PeerIndex(1)).expect("a peer");
    Pair { initiator, target, qp, region, far, near }
}

impl Pair {
    fn read(&mut self, remote: RemoteMemory, len: usize) -> WorkCompletion {
        // SAFETY: `near` is 64 bytes, no case asks for more, and the request is over when this returns.
        let local = unsafe { WriteRange::new(self.near.as_mut_ptr(), len) };
        self.post(Operation::RdmaRead { local, remote })
    }

    fn write(&mut self, remote: RemoteMemory, len: usize) -> WorkCompletion {
        // SAFETY: as in `read`.
        let local = unsafe { ReadRange::new(self.near.as_ptr(), len) };
        self.post(Operation::RdmaWrite { local, remote })
    }

    fn post(&mut self, operation: Operation) -> WorkCompletion {
        let posted = self.initiator.post_send(self.qp, &[WorkRequest { id: 42, operation }]);
        assert_eq!(posted, Ok(1));
        let mut completions = Vec::new();
        while self.initiator.poll(&mut completions) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(completions.len(), 1, "one request, one completion");
        assert_eq!((completions[0].id, completions[0].qp), (42, self.qp));
        completions[0]
    }

    fn at(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { address: self.region.address + offset, rkey: self.region.rkey }
    }

    fn state(&self) -> QueuePairState {
        self.initiator.queue_pair_state(self.qp).expect("it exists")
    }
}

/// False, saying so, where this machine's kernel does not let processes copy from each other.
fn rdma_allowed(pair: &Pair) -> bool {
    if let Err(why) = pair.initiator.capabilities().rdma {
        println!("skipped: {why}");
        return false;
    }
    true
}

#[test]
fn reads_and_writes_move_exactly_what_they_name() {
    let mut reader = pair(READABLE);
    if !rdma_allowed(&reader) {
        return;
    }
    let done = reader.read(reader.at(8), 16);
    assert_eq!((done.status, done.bytes), (WcStatus::Success, 16));
    assert_eq!((reader.near[..16].to_vec(), reader.near[16..].to_vec()), (vec![7; 16], vec![1; 48]));
    let mut writer = pair(WRITABLE);
    assert_eq!(writer.write(writer.at(8), 16).status, WcStatus::Success);
    let far = &writer.far;
    assert!(far[..8].iter().chain(&far[24..]).all(|byte| *byte == 7) && far[8..24] == [1; 16]);
    assert_eq!(writer.state(), QueuePairState::ReadyToSend);
}

#[test]
fn keys_bounds_and_rights_are_checked_at_the_target() {
    type Wrong = fn(&Pair) -> (RemoteMemory, usize);
    let cases: [(&str, Wrong); 5] = [
        ("one byte past the end", |pair| (pair.at(49), 16)),
        ("before the start", |pair| (RemoteMemory { address: pair.region.address - 1, ..pair.at(0) }, 16)),
        ("another key", |pair| (RemoteMemory { rkey: Rkey(pair.region.rkey.0 ^ 1), ..pair.at(0) }, 16)),
        ("an older key", |pair| (RemoteMemory { rkey: Rkey(pair.region.rkey.0 - (1 << 12)), ..pair.at(0) }, 16)),
        ("an address that wraps", |pair| (RemoteMemory { address: u64::MAX - 4, ..pair.at(0) }, 16)),
    ];
    for (name, wrong) in cases {
        let mut pair = pair(READABLE);
        if !rdma_allowed(&pair) {
            return;
        }
        let (remote, len) = wrong(&pair);
        assert_eq!(pair.read(remote, len).status, WcStatus::RemoteAccessError, "{name}");
        assert_eq!(*pair.near, [1; 64], "{name}: nothing was written");
    }
    let mut pair = pair(READABLE);
    assert_eq!(pair.write(pair.at(0), 16).status, WcStatus::RemoteAccessError, "no right to write");
    assert_eq!(*pair.far, [7; 64]);
}

#[test]
fn a_failed_queue_pair_flushes_and_others_go_on() {
    let mut pair = pair(READABLE);
    if !rdma_allowed(&pair) {
        return;
    }
    assert_eq!(pair.read(pair.at(60), 16).status, WcStatus::RemoteAccessError);
    assert_eq!(pair.state(), QueuePairState::Error);
    assert_eq!(pair.read(pair.at(0), 16).status, WcStatus::WorkRequestFlushed);
    pair.qp = pair.initiator.create_queue_pair(PeerIndex(1)).expect("a peer");
    assert_eq!(pair.read(pair.at(0), 16).status, WcStatus::Success);
}

#[test]
fn a_deregistered_region_is_out_of_reach() {
    let mut pair = pair(READABLE);
    if !rdma_allowed(&pair) {
        return;
    }
    assert_eq!(pair.read(pair.at(0), 64).status, WcStatus::Success);
    pair.target.deregister(pair.region);
    assert_eq!(pair.read(pair.at(0), 1).status, WcStatus::RemoteAccessError);
}

#[test]
fn completions_come_in_the_order_of_their_posting() {
    let mut pair = pair(READABLE);
    if !rdma_allowed(&pair) {
        return;
    }
    let requests: Vec<_> = (0..32u64)
        .map(|id| {
            // SAFETY: each request has two bytes of `near` of its own; all are over before it is dropped.
            let local = unsafe { WriteRange::new(pair.near.as_mut_ptr().add(id as usize * 2), 2) };
            WorkRequest { id, operation: Operation::RdmaRead { local, remote: pair.at(id) } }
        })
        .collect();
    let mut posted = 0;
    let mut completions = Vec::new();
    while completions.len() < requests.len() {
        posted += pair.initiator.post_send(pair.qp, &requests[posted..]).expect("the queue pair exists");
        pair.initiator.poll(&mut completions);
    }
    assert!(completions.iter().map(|completion| completion.id).eq(0..32));
}

#[test]
fn what_does_not_exist_is_an_error() {
    let mut all = contexts(2);
    let context = &mut all[0];
    assert_eq!(context.create_queue_pair(PeerIndex(2)), Err(FabricError::NoSuchPeer(2)));
    assert_eq!(context.post_send(QpNumber(9), &[]).map(|_| ()), Ok(()), "nothing posted, nothing wrong");
    assert_eq!(context.queue_pair_state(QpNumber(9)), Err(FabricError::NoSuchQueuePair(9)));
    let far = MappedArea::Channel { from: PeerIndex(0), to: PeerIndex(2) };
    assert!(context.mapped(far).is_none());
    let cell = MappedArea::ClaimCell { owner: PeerIndex(0), cell: MappedArea::CLAIM_CELLS_MAX };
    assert!(context.mapped(cell).is_none());
}

#[test]
fn mapped_memory_is_the_peers_own() {
    let all = contexts(3);
    if !all[0].capabilities().mapped_peers {
        println!("skipped: this device does not map its peers");
        return;
    }
    use std::sync::atomic::Ordering::Relaxed;
    let channel = |from, to| MappedArea::Channel { from: PeerIndex(from), to: PeerIndex(to) };
    all[0].mapped(channel(0, 2)).expect("a channel").word(64).store(5, Relaxed);
    assert_eq!(all[2].mapped(channel(0, 2)).expect("the same").word(64).load(Relaxed), 5);
    assert_eq!(all[2].mapped(channel(1, 2)).expect("another").word(64).load(Relaxed), 0);
    assert_eq!(all[2].mapped(channel(2, 0)).expect("the way back").word(64).load(Relaxed), 0);
}

#[test]
fn a_sleeper_is_woken_by_a_peer_and_by_itself() {
    let mut all = contexts(2);
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
    let segment = Segment::create(Shape { process_count: 2, channel_bytes: 8 << 10 }).expect("memory");
    let probe = probe_cross_memory();
    if let Err(why) = &probe {
        println!("skipped: {why}");
        return;
    }
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
    // The segment says that peer 1 is the child, which registered 64 bytes, and which is then killed.
    let mut target = Box::new(ShmDevice::new(segment.clone(), PeerIndex(1), probe.clone())).open().expect("opens");
    let mut far = [0u8; 64];
    // SAFETY: `far` outlives both contexts.
    let range = unsafe { WriteRange::new(far.as_mut_ptr(), 64) };
    let region = target.register(LocalMemory::Target(range), READABLE).expect("there is room");
    segment.claim_to_be(PeerIndex(1), child.id());
    child.kill().expect("ours to kill");
    child.wait().expect("ours to reap");
    let mut initiator = Box::new(ShmDevice::new(segment, PeerIndex(0), probe)).open().expect("opens");
    let qp = initiator.create_queue_pair(PeerIndex(1)).expect("a peer");
    let mut near = [1u8; 64];
    // SAFETY: `near` outlives the request.
    let local = unsafe { WriteRange::new(near.as_mut_ptr(), 64) };
    let remote = RemoteMemory { address: region.address, rkey: region.rkey };
    initiator
        .post_send(qp, &[WorkRequest { id: 1, operation: Operation::RdmaRead { local, remote } }])
        .expect("posted");
    let mut completions = Vec::new();
    initiator.poll(&mut completions);
    assert_eq!(completions[0].status, WcStatus::TransportRetryExceeded);
    assert_eq!(near, [1; 64]);
}
