//! Peers that are not there, or are and do not answer.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use fabric::{ConnectOptions, Context, Endpoint, Operation, WcStatus};
use fabric_soft::link::LinkPeer;

use crate::process::{sleep_until_done, with_answering};
use crate::side::{MEMORY_BYTES, PATIENCE, Side, join, until};

/// An endpoint like `endpoint`, whose process listens at `sockets` instead.
pub fn elsewhere(endpoint: &Endpoint, sockets: &[SocketAddr]) -> Endpoint {
    let bytes = endpoint.to_bytes();
    let (head, address) = bytes.split_at(8);
    let mut moved = [head, &[address[0], sockets.len() as u8], &address[2..18]].concat();
    for socket in sockets {
        let SocketAddr::V4(four) = socket else { panic!("an IPv4 address") };
        moved.push(4);
        moved.extend_from_slice(&four.port().to_le_bytes());
        moved.extend_from_slice(&four.ip().octets());
    }
    Endpoint::parse(&moved).expect("an endpoint")
}

/// A port at which nobody listens.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

#[test]
fn the_address_that_can_be_reached_is_found() {
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    let theirs = sides[1].adapter.endpoint(sides[1].qp).expect("an endpoint");
    let ours = sides[0].adapter.endpoint(sides[0].qp).expect("an endpoint");
    // One refuses, one belongs to somebody else who never answers, the last is right.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let sockets = [closed_port(), silent.local_addr().expect("its address"), sides[1].socket()];
    let theirs = elsewhere(&theirs, &sockets);
    let [here, there] = &mut sides;
    fabric::connect(&mut here.adapter, here.qp, Some(theirs), &ConnectOptions::default()).expect("connects");
    fabric::connect(&mut there.adapter, there.qp, Some(ours), &ConnectOptions::default()).expect("connects");
    here.fill(0, 100, 7);
    here.post(1, Operation::RdmaWrite(there.region.remote(500)), 0, 100);
    until(&mut sides, "the write", |sides| !sides[0].done.is_empty());
    assert_eq!(sides[0].done[0].status, WcStatus::Success);
    sides[1].check(500, 100, 7, "written");
}

#[test]
fn who_cannot_be_reached_is_lost_and_told_with_what_was_tried() {
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    let theirs = sides[1].adapter.endpoint(sides[1].qp).expect("an endpoint");
    let sockets = [closed_port(), closed_port()];
    let [here, _] = &mut sides;
    let theirs = elsewhere(&theirs, &sockets);
    fabric::connect(&mut here.adapter, here.qp, Some(theirs), &ConnectOptions::default()).expect("connects");
    here.post(1, Operation::Send, 0, 8);
    until(&mut sides, "the end of the send", |sides| !sides[0].done.is_empty());
    assert_eq!(sides[0].done[0].status, WcStatus::TransportRetryExceeded);
    let why = sides[0].adapter.link().why_lost(LinkPeer(0)).expect("it is lost").to_owned();
    for socket in sockets {
        assert!(why.contains(&format!("{socket} (Connection refused")), "{why}");
    }
}

#[test]
fn a_stopped_peer_is_lost_after_the_deadline_and_sleeping_for_it_is_sleeping() {
    let silence = Some(Duration::from_millis(600));
    let (mut side, peer, far) = with_answering(|options| options.silence = silence);
    side.post(1, Operation::RdmaWrite(far), 0, 4096);
    sleep_until_done(&mut side);
    assert_eq!(side.done.remove(0).status, WcStatus::Success);
    peer.stop();
    side.post(2, Operation::RdmaWrite(far), 0, 1 << 20);
    side.post(3, Operation::Send, 0, 8);
    let wakes = sleep_until_done(&mut side);
    side.poll();
    let ended: Vec<_> = side.done.iter().map(|one| (one.id, one.status)).collect();
    assert_eq!(ended, [(2, WcStatus::TransportRetryExceeded), (3, WcStatus::WorkRequestFlushed)]);
    // Looked for eight times in the deadline, and a few times for room in the socket.
    assert!(wakes < 100, "{wakes} wakes: it does not spin");
    let why = side.adapter.link().why_lost(LinkPeer(0)).expect("it is lost");
    assert!(why.contains("owed an answer for 600ms"), "{why}");
}

#[test]
fn a_stopped_peer_that_owes_nothing_is_lost_to_who_waits_for_it() {
    let silence = Some(Duration::from_millis(600));
    let (mut side, peer, far) = with_answering(|options| options.silence = silence);
    side.post(1, Operation::RdmaWrite(far), 0, 8);
    sleep_until_done(&mut side);
    assert_eq!(side.done.remove(0).status, WcStatus::Success);
    side.receive(2, 0, 8);
    peer.stop();
    let wakes = sleep_until_done(&mut side);
    assert_eq!((side.done[0].id, side.done[0].status), (2, WcStatus::WorkRequestFlushed));
    assert!(wakes < 100, "{wakes} wakes: it does not spin");
}

/// One that is there answers, and the time in which nobody asked or listened is not its silence.
#[test]
fn a_peer_that_answers_is_not_lost_to_who_was_away() {
    let silence = Duration::from_millis(200);
    let (mut side, _peer, far) = with_answering(|options| options.silence = Some(silence));
    for round in 0..8 {
        side.post(round, Operation::RdmaWrite(far), 0, 8);
        // Not long enough for the answer, long enough to be asked, and for nothing.
        let looks = [1, 200, 0][round as usize % 3];
        for _ in 0..looks {
            side.poll();
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(silence * 2);
        let start = Instant::now();
        while side.done.is_empty() {
            side.poll();
            assert!(start.elapsed() < PATIENCE, "round {round}");
        }
        assert_eq!(side.done.remove(0).status, WcStatus::Success, "round {round}");
    }
}

/// Patience is for hosts that cannot be reached: a process that is busy for longer costs nothing.
#[test]
fn a_peer_that_is_busy_for_longer_than_the_patience_is_not_lost() {
    let (mut side, peer, far) = with_answering(|options| options.patience = Duration::from_millis(100));
    side.post(1, Operation::RdmaWrite(far), 0, 4096);
    sleep_until_done(&mut side);
    peer.stop();
    // More than the kernel keeps for a process that does not read, so that its window closes.
    for id in 2..10 {
        side.post(id, Operation::RdmaWrite(far), 0, 1 << 20);
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(900) {
        side.poll();
        std::thread::sleep(Duration::from_millis(1));
    }
    // A connection cut in the meantime is greeted when the process goes on.
    side.adapter.link().cut_connections();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        side.poll();
        std::thread::sleep(Duration::from_millis(1));
    }
    peer.signal(rustix::process::Signal::CONT);
    let start = Instant::now();
    while side.done.len() < 9 {
        side.poll();
        assert!(start.elapsed() < PATIENCE, "{:?}", side.done);
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(side.done.iter().all(|one| one.status == WcStatus::Success), "{:?}", side.done);
}

/// A first message to a process that does not poll yet waits for it.
#[test]
fn a_peer_that_greets_late_is_waited_for() {
    let mut sides = [(); 2].map(|()| Side::new(1, |options| options.patience = Duration::from_millis(100)));
    join(&mut sides);
    sides[0].post(1, Operation::RdmaWrite(sides[1].region.remote(0)), 64, 8);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        sides[0].poll();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(sides[0].done.is_empty());
    until(&mut sides, "the write", |sides| !sides[0].done.is_empty());
    assert_eq!(sides[0].done[0].status, WcStatus::Success);
}

/// What it has not read makes its system cut the connection, which who writes next hears of before the word that came first.
#[test]
fn a_peer_that_leaves_with_something_unread_has_left() {
    let mut sides = [(); 2].map(|()| Side::new(1, |_| {}));
    join(&mut sides);
    let write = Operation::RdmaWrite(sides[1].region.remote(0));
    sides[0].post(1, write, 0, 8);
    until(&mut sides, "the first write", |sides| !sides[0].done.is_empty());
    let [mut here, there] = sides;
    here.post(2, write, 0, 8);
    drop(there);
    here.post(3, write, 0, 8);
    let start = Instant::now();
    while here.done.len() < 3 {
        assert!(start.elapsed() < PATIENCE, "the writes do not end");
        here.poll();
    }
    assert_eq!(here.adapter.link().why_lost(LinkPeer(0)), Some("it has left"));
}

/// A process that ends drops nothing: its system closes what was open.
#[test]
fn who_parts_is_not_looked_for() {
    for connections in [1, 3] {
        let mut sides = [(); 2].map(|()| Side::new(1, |options| options.connections = connections));
        join(&mut sides);
        let write = Operation::RdmaWrite(sides[1].region.remote(0));
        sides[0].post(1, write, 0, MEMORY_BYTES / 2);
        until(&mut sides, "the first write", |sides| !sides[0].done.is_empty());
        let [mut here, mut there] = sides;
        here.fill(0, 8, 7);
        there.fill(0, 8, 9);
        here.receive(2, 8, 8);
        there.post(3, Operation::Send, 0, 8);
        there.adapter.part();
        // It was written already when its sender parted, and what is written here then is not answered any more.
        here.post(4, write, 0, 8);
        let start = Instant::now();
        while here.done.len() < 3 {
            assert!(start.elapsed() < PATIENCE, "{:?}", here.done);
            here.poll();
        }
        let ended: Vec<_> = here.done.iter().map(|one| (one.id, one.status)).collect();
        let expected = [(1, WcStatus::Success), (2, WcStatus::Success), (4, WcStatus::TransportRetryExceeded)];
        assert_eq!(ended, expected, "{connections} connections");
        here.check(8, 8, 9, "received");
        assert_eq!(here.adapter.link().why_lost(LinkPeer(0)), Some("it has left"));
        // Neither looks for the other now.
        (0..100).for_each(|_| here.poll());
        assert_eq!(here.adapter.link().connections_made(), connections as u64);
    }
}

/// Whoever has armed a queue polls once more before it sleeps; what that poll finds may have to be looked after soon.
#[test]
fn what_is_found_between_arming_and_sleeping_is_looked_after() {
    let mut sides = [(); 2].map(|()| Side::new(1, |_| {}));
    join(&mut sides);
    let [mut here, mut there] = sides;
    here.post(1, Operation::RdmaWrite(there.region.remote(0)), 0, 8);
    let start = Instant::now();
    while here.done.is_empty() {
        assert!(start.elapsed() < PATIENCE, "the write does not end");
        here.poll();
        there.poll();
    }
    here.done.clear();
    here.receive(2, 0, 8);
    here.adapter.arm(here.completions, fabric::NotifyOn::Any).expect("a whole queue");
    // It goes without a word, and nobody listens there any more.
    there.adapter.link().cut_connections();
    drop(there);
    assert!(here.wakes_within(PATIENCE), "the connection ends");
    here.poll();
    assert!(here.wakes_within(PATIENCE), "another is to be made, which is given up soon");
    here.adapter.acknowledge(here.completions).expect("a whole queue");
    sleep_until_done(&mut here);
    assert_eq!((here.done[0].id, here.done[0].status), (2, WcStatus::WorkRequestFlushed));
}
