//! A connection that is busy is looked at without being told of; whoever sleeps, and everybody else, must be heard still.

use std::time::Instant;

use base::log::{Level, Log};
use fabric::{
    Access, ConnectOptions, Context, NotifyOn, Operation, Payload, QueuePairAttributes, SendRequest, WcStatus,
    WorkCompletion,
};
use fabric_soft::tcp::{self, JobSecret, Progress, TcpOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::side::{PATIENCE, Side, join, take, until};

/// Messages there and back, more than enough to be busy.
const TURNS: u64 = 1000;

fn busy() -> [Side; 2] {
    let mut sides = [(); 2].map(|()| Side::new(5, |_| {}));
    join(&mut sides);
    ping_pong(&mut sides, TURNS);
    assert_eq!(sides.each_mut().map(watched), [0, 0], "both look at nothing else");
    sides
}

fn watched(side: &mut Side) -> usize {
    side.adapter.link().watched_connections()
}

/// Messages of eight bytes there and back; both sides poll all the time.
fn ping_pong(sides: &mut [Side; 2], turns: u64) {
    for turn in 0..turns {
        for from in [0, 1] {
            sides[1 - from].receive(turn, 64, 8);
            sides[from].post(turn, Operation::Send, 0, 8);
            until(sides, "the message and its acknowledgement", |sides| sides.iter().all(|side| !side.done.is_empty()));
            for side in &mut *sides {
                assert!(side.done.drain(..).all(|one| one.status == WcStatus::Success));
            }
        }
    }
}

/// Sleeps until side 1 has its receive filled; it has armed its queue.
fn sleep_until_filled(sides: &mut [Side; 2]) {
    let [_, side] = sides;
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    while take(side).is_none() {
        let descriptor = side.adapter.descriptor(side.completions).unwrap();
        let woken = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(woken, 1, "nothing woke it");
        side.adapter.acknowledge(side.completions).unwrap();
        side.poll();
        side.adapter.arm(side.completions, NotifyOn::Any).unwrap();
    }
}

#[test]
fn who_sleeps_is_woken_by_it() {
    let mut sides = busy();
    sides[1].receive(7, 64, 8);
    sides[1].adapter.arm(sides[1].completions, NotifyOn::Any).unwrap();
    assert_eq!(watched(&mut sides[1]), 1);
    sides[0].post(7, Operation::Send, 0, 8);
    sleep_until_filled(&mut sides);
    ping_pong(&mut sides, TURNS);
    assert_eq!(sides.each_mut().map(watched), [0, 0], "it is as busy as before");
}

/// What comes between arming and sleeping completes nothing, so whoever armed may sleep without arming again.
#[test]
fn who_has_armed_is_woken_however_much_came_since() {
    let mut sides = busy();
    sides[1].receive(7, 64, 8);
    sides[1].adapter.arm(sides[1].completions, NotifyOn::Any).unwrap();
    let target = sides[1].region.remote(4096);
    for id in 0..TURNS {
        sides[0].post(id, Operation::RdmaWrite(target), 0, 8);
        until(&mut sides, "the write", |sides| take(&mut sides[0]).is_some());
    }
    assert_eq!((sides[1].done.len(), watched(&mut sides[1])), (0, 1));
    sides[0].post(7, Operation::Send, 0, 8);
    sleep_until_filled(&mut sides);
}

/// Connects `third` to a new queue pair of `here`.
fn connect_to(here: &mut Side, third: &mut Side) {
    let attributes = QueuePairAttributes::new(here.domain, here.completions);
    let qp = here.adapter.create_queue_pair(&attributes).unwrap();
    let (ours, theirs) = (here.adapter.endpoint(qp).unwrap(), third.adapter.endpoint(third.qp).unwrap());
    fabric::connect(&mut here.adapter, qp, Some(theirs), &ConnectOptions::default()).unwrap();
    fabric::connect(&mut third.adapter, third.qp, Some(ours), &ConnectOptions::default()).unwrap();
}

/// Where something comes from two peers in turn, the next is found by the next look, not after several at the other one.
#[test]
fn who_talks_to_two_finds_the_next_of_either_at_once() {
    let mut here = Side::new(5, |_| {});
    let mut others = [(); 2].map(|()| Side::new(5, |_| {}));
    others.iter_mut().for_each(|other| connect_to(&mut here, other));
    let target = here.region.remote(4096);
    for turn in 0..40 {
        let other = &mut others[turn % 2];
        other.fill(0, 8, turn as u8 + 1);
        other.post(turn as u64, Operation::RdmaWrite(target), 0, 8);
        let (start, before) = (Instant::now(), here.word(4096));
        // The first of each makes its connection, which takes several looks.
        if turn < 2 {
            while other.done.is_empty() {
                assert!(start.elapsed() < PATIENCE, "the first write does not come");
                other.poll();
                here.poll();
            }
        } else {
            // What was written to a socket of this host is in the other one.
            here.poll();
            assert_ne!(here.word(4096), before, "turn {turn}: it was looked for elsewhere");
            while other.done.is_empty() {
                assert!(start.elapsed() < PATIENCE, "the write is not acknowledged");
                other.poll();
                here.poll();
            }
        }
        other.done.clear();
    }
}

#[test]
fn others_are_heard_beside_it() {
    let (mut sides, mut third) = (busy(), Side::new(5, |_| {}));
    let here = &mut sides[0];
    connect_to(here, &mut third);
    third.fill(0, 64, 9);
    third.post(1, Operation::RdmaWrite(here.region.remote(4096)), 0, 64);
    let start = Instant::now();
    while third.done.is_empty() {
        assert!(start.elapsed() < PATIENCE, "nobody hears the third");
        ping_pong(&mut sides, 1);
        third.poll();
    }
    assert_eq!(third.done[0].status, WcStatus::Success);
    sides[0].check(4096, 64, 9, "written by the third");
}

#[test]
fn its_loss_is_noticed_and_made_good() {
    let mut sides = busy();
    sides[1].adapter.link().cut_connections();
    ping_pong(&mut sides, TURNS);
    assert_eq!(sides.each_mut().map(watched), [0, 0], "the new connection is as busy");
}

/// The thread sleeps while its owner polls: what comes when the owner computes must wake it.
#[test]
fn an_adapter_thread_is_woken_by_it() {
    let mut sides = [(); 2].map(|()| {
        let listen = vec!["127.0.0.1:0".parse().expect("an address")];
        let options = TcpOptions::new(JobSecret::new([6; 32]), listen, Log::new(Level::Warn, None));
        tcp::open(TcpOptions { progress: Progress::Thread, patience: PATIENCE, ..options }).expect("a device")
    });
    let made = sides.each_mut().map(|side| {
        let domain = side.allocate_protection_domain().expect("a domain");
        let completions = side.create_completion_queue(16).expect("a queue");
        let (region, memory) = side.allocate(domain, 64, Access::REMOTE_ALL).expect("memory");
        let qp = side.create_queue_pair(&QueuePairAttributes::new(domain, completions)).expect("a queue pair");
        (qp, completions, region, memory, side.endpoint(qp).expect("an endpoint"))
    });
    for side in [0, 1] {
        let (qp, other) = (made[side].0, made[1 - side].4.clone());
        fabric::connect(sides[side].as_mut(), qp, Some(other), &ConnectOptions::default()).expect("connects");
    }
    let mut write = |from: usize, both_poll: bool| {
        let (qp, completions, region, ..) = &made[from];
        let to = Operation::RdmaWrite(made[1 - from].2.remote(8));
        let list = [region.part(0, 8)];
        let request = SendRequest::new(1, to, Payload::Memory(&list));
        assert_eq!(sides[from].post_send(*qp, &[request]), Ok(1));
        let (start, mut done) = (Instant::now(), [WorkCompletion::default()]);
        while sides[from].poll(*completions, &mut done).expect("the queue is whole") == 0 {
            assert!(start.elapsed() < PATIENCE, "nobody took it");
            if both_poll {
                sides[1 - from].poll(made[1 - from].1, &mut []).expect("the queue is whole");
            }
        }
        assert_eq!(done[0].status, WcStatus::Success);
    };
    (0..TURNS).for_each(|_| [0, 1].into_iter().for_each(|from| write(from, true)));
    (0..TURNS).for_each(|_| write(0, false));
}
