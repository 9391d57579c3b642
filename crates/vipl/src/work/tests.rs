//! Two VIs of one process, and what a peer may do to a VI by its memory.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::channel::{Arrival, BUSY, DESCRIPTORS_MAX, FOOTPRINT, WANTED};
use crate::counters::Counter;
use crate::descriptor::Descriptor;
use crate::memory::MemoryAttributes;
use crate::nic::{Nic, SegmentMemory, Settings};
use crate::status::{Error, Reliability, State, Status};
use crate::vi::{Vi, ViAttributes, WorkQueue};
use crate::{NetAddress, waiting::WaitPolicy};

fn side(nic: &Nic) -> (Vi, SegmentMemory) {
    let ptag = nic.create_ptag().unwrap();
    let attributes = ViAttributes {
        reliability: Reliability::Delivery,
        transfer_max_bytes: 1 << 16,
        ptag,
        rdma_write: true,
        rdma_read: true,
    };
    let vi = nic.create_vi(&attributes, None, None).unwrap();
    (vi, nic.allocate(4096, MemoryAttributes { ptag, rdma_write: true, rdma_read: true }).unwrap())
}

/// Connects the two.
fn connect(nic: &Nic, server: &Vi, client: &Vi) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let address = |name: &str| {
        let name = format!("{name}{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        NetAddress::new(NetAddress::local_host(), name.as_bytes()).unwrap()
    };
    let (here, there) = (address("work-c"), address("work-s"));
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| nic.connect_wait(&there, None).unwrap().accept(server).unwrap());
        while let Err(Error::NoMatch(_)) = client.connect_request(&here, &there, None) {
            std::thread::sleep(Duration::from_micros(200));
        }
        accepting.join().unwrap();
    });
}

fn nic() -> Nic {
    let waiting = WaitPolicy { spin_count: 1, yield_count: 1 };
    Nic::open(Settings { waiting, ..Settings::default() }).unwrap()
}

fn long() -> Option<Duration> {
    Some(Duration::from_secs(20))
}

/// Whoever asks a completion queue may find that everything of the other work queue is over, where somebody sleeps.
#[test]
fn who_sleeps_at_one_work_queue_is_woken_by_what_a_look_at_the_other_completes() {
    let (nic, other) = (nic(), self::nic());
    let queue = nic.create_queue(4).unwrap();
    let ((plain, memory), (client, _)) = (side(&nic), side(&other));
    let server = nic.create_vi(&plain.query().attributes, Some(&queue), None).unwrap();
    server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], 1)).unwrap();
    connect(&nic, &server, &client);
    // A peer that was killed does not answer the farewell.
    let killed = client.core.queues.lock();
    let ticket = nic.core.bell.announce();
    server.core.queues.lock().link.as_ref().unwrap().line.lose();
    assert_eq!(queue.done(), None);
    assert!(nic.core.bell.rang(ticket), "the receive was flushed, and nobody was told");
    drop(killed);
    nic.core.bell.withdraw();
    assert!(server.done(WorkQueue::Receive).unwrap().status.has(Status::FLUSHED_ERROR));
}

/// The other side asks while there is no place to push to; what comes later is pushed all the same.
#[test]
fn a_wish_for_descriptors_is_kept_until_it_can_be_granted() {
    let nic = nic();
    let ((server, memory), (client, theirs)) = (side(&nic), side(&nic));
    let more = DESCRIPTORS_MAX as u64 + 1;
    (0..more).for_each(|i| server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], i)).unwrap());
    connect(&nic, &server, &client);
    let pushed = || nic.counts().of(Counter::DescriptorsPushed);
    assert_eq!(pushed(), DESCRIPTORS_MAX as u64);
    server.core.queues.lock().link.as_ref().unwrap().inbound.shared().word(WANTED).store(1, Relaxed);
    server.core.look();
    client.post_send(Descriptor::of(vec![theirs.segment(0, 8)], 1)).unwrap();
    server.core.look();
    assert_eq!(pushed(), more);
}

#[test]
fn who_disconnects_waits_for_a_copy_that_the_other_side_has_begun() {
    let nic = nic();
    let ((server, memory), (client, _)) = (side(&nic), side(&nic));
    server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], 1)).unwrap();
    connect(&nic, &server, &client);
    let shared = server.core.queues.lock().link.as_ref().unwrap().inbound.shared();
    shared.word(BUSY).store(1, Relaxed);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| {
            server.disconnect();
            assert!(is_over.load(Relaxed), "the receive came back while it was written to");
        });
        std::thread::sleep(Duration::from_millis(50));
        is_over.store(true, Relaxed);
        shared.word(BUSY).store(0, Release);
        ending.join().unwrap();
    });
}

/// What a peer says of the length is not believed beyond what there is room for.
#[test]
fn a_message_is_never_longer_than_its_receive_whatever_the_peer_says() {
    for operation in [0x0, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000, 0x70000] {
        let nic = nic();
        let ((server, memory), (client, _)) = (side(&nic), side(&nic));
        server.post_receive(Descriptor::of(vec![memory.segment(0, 64)], 1)).unwrap();
        connect(&nic, &server, &client);
        let arrival = Arrival { status: Status::of_bits(1 | operation), len_bytes: u32::MAX, immediate: 0 };
        client.core.queues.lock().link.as_mut().unwrap().outbound.arrive(arrival);
        let received = server.wait(WorkQueue::Receive, long()).unwrap();
        assert!(received.status.has(Status::FLUSHED_ERROR), "{operation:#x}: {received:?}");
        assert_eq!(received.len_bytes, 0);
    }
}

/// A write with immediate data whose right is withdrawn between the look at the directory and the copy.
#[test]
fn a_refused_write_that_took_a_receive_leaves_both_sides_in_step() {
    let nic = nic();
    let (ptag, caller) = (nic.create_ptag().unwrap(), |ptag| {
        let attributes = MemoryAttributes { ptag, rdma_write: true, rdma_read: true };
        nic.register_owned(16, attributes).unwrap()
    });
    let attributes = ViAttributes {
        reliability: Reliability::Unreliable,
        transfer_max_bytes: 1 << 16,
        ptag,
        rdma_write: true,
        rdma_read: false,
    };
    let [server, client] = [(); 2].map(|()| nic.create_vi(&attributes, None, None).unwrap());
    let (shadowed, mine) = (caller(ptag), caller(ptag));
    for i in 0..2 {
        server.post_receive(Descriptor::of(vec![shadowed.segment(8 * i, 8)], i as u64)).unwrap();
    }
    connect(&nic, &server, &client);
    let serving = server.core.queues.lock();
    let remote = (shadowed.address(), shadowed.handle());
    let write = Descriptor::rdma_write(vec![mine.segment(0, 8)], remote, 1).with_immediate(5);
    client.post_send(write).unwrap();
    let none = MemoryAttributes { ptag, rdma_write: false, rdma_read: false };
    nic.set_memory_attributes(shadowed.address(), shadowed.handle(), none).unwrap();
    drop(serving);
    let refused = client.wait(WorkQueue::Send, long()).unwrap();
    assert_eq!(refused.status.errors(), Status::RDMA_PROTECTION_ERROR);
    mine.store(0, 77);
    client.post_send(Descriptor::of(vec![mine.segment(0, 8)], 2)).unwrap();
    let first = server.wait(WorkQueue::Receive, long()).unwrap();
    assert_eq!((first.context, first.status.errors()), (0, Status::PARTIAL_ERROR));
    let second = server.wait(WorkQueue::Receive, long()).unwrap();
    assert_eq!((second.context, second.status.errors(), shadowed.load(1)), (1, Status::default(), 77));
}

#[test]
fn memory_that_the_peer_has_given_back_does_not_stay_mapped() {
    let nic = nic();
    let ((server, kept), (client, theirs)) = (side(&nic), side(&nic));
    connect(&nic, &server, &client);
    let attributes = nic.query_memory(kept.address(), kept.handle()).unwrap();
    for round in 0..10 {
        let memory = nic.allocate(64, attributes).unwrap();
        server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], round)).unwrap();
        client.post_send(Descriptor::of(vec![theirs.segment(0, 8)], round)).unwrap();
        assert!(!server.wait(WorkQueue::Receive, long()).unwrap().status.is_error());
        nic.deregister(memory.address(), memory.handle()).unwrap();
    }
    let mapped = client.core.queues.lock().link.as_ref().unwrap().mapped_count();
    assert!(mapped <= 1, "{mapped} segments");
}

/// What lies here and was reported as delivered there is not flushed.
#[test]
fn messages_that_have_arrived_come_out_of_a_disconnect_as_messages() {
    let nic = nic();
    let ((server, memory), (client, theirs)) = (side(&nic), side(&nic));
    for i in 0..2 {
        server.post_receive(Descriptor::of(vec![memory.segment(0, 8)], i)).unwrap();
    }
    connect(&nic, &server, &client);
    client.post_send(Descriptor::of(vec![theirs.segment(0, 8)], 1)).unwrap();
    server.disconnect();
    let [first, second] = [(); 2].map(|()| server.done(WorkQueue::Receive).unwrap().status.errors());
    assert_eq!((first, second), (Status::default(), Status::FLUSHED_ERROR));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A peer that writes anything anywhere into what it shares with this side: descriptors come back, with or without
    /// an error, or wait; nothing panics, nothing outside of registered memory is touched, and the VI can be used again.
    #[test]
    fn whatever_a_connected_peer_writes_costs_it_the_connection_at_most(
        words in prop::collection::vec((0..FOOTPRINT / 8, prop_oneof![0..300u64, any::<u64>()]), 1..40),
        low in prop::collection::vec((0..40usize, 0..40u64), 0..20),
    ) {
        let waiting = WaitPolicy { spin_count: 1, yield_count: 1 };
        let nic = Nic::open(Settings { waiting, ..Settings::default() }).unwrap();
        let ((server, memory), (client, _)) = (side(&nic), side(&nic));
        for round in 0..4 {
            server.post_receive(Descriptor::of(vec![memory.segment(0, 64)], round)).unwrap();
        }
        connect(&nic, &server, &client);
        let shared = server.core.queues.lock().link.as_ref().map(|link| link.inbound.shared()).unwrap();
        for (at, value) in words.into_iter().chain(low) {
            shared.word(at * 8).store(value, Relaxed);
            server.core.look();
            server.core.serve();
            let remote = (memory.address(), memory.handle());
            let list = || vec![memory.segment(128, 64)];
            let _ = server.post_send(Descriptor::of(list(), 9));
            let _ = server.post_send(Descriptor::rdma_write(list(), remote, 10));
            let _ = server.post_receive(Descriptor::of(list(), 11));
        }
        server.disconnect();
        let deadline = Instant::now() + Duration::from_secs(20);
        while server.check_unused().is_err() && Instant::now() < deadline {
            while server.done(WorkQueue::Send).is_some() || server.done(WorkQueue::Receive).is_some() {}
        }
        prop_assert_eq!(server.check_unused(), Ok(()));
        client.disconnect();
        prop_assert_eq!(client.query().state, State::Idle);
        while client.done(WorkQueue::Receive).is_some() {}
        connect(&nic, &server, &client);
    }
}
