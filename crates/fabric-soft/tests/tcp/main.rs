//! The link between hosts under what may happen to it: strangers, a wrong secret, connections cut at any byte, processes
//! that stop or die, addresses that lead nowhere.

mod absence;
mod aside;
mod cuts;
mod damage;
mod deaths;
mod lines;
mod network;
mod process;
mod side;
mod speed;
mod strangers;
mod veth;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fabric::{Context, Operation, Payload, SendRequest, WcStatus, WorkCompletion};
use fabric_soft::tcp::TcpOptions;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use process::with_answering;
use side::{MEMORY_BYTES, PATIENCE, Side, join, take, until};

/// One message from 0 to 1.
fn message(sides: &mut [Side; 2], seed: u8) {
    sides[0].fill(0, 1000, seed);
    sides[1].receive(2, 0, 1000);
    sides[0].post(1, Operation::Send, 0, 1000);
    until(sides, "a message", |sides| sides.iter().all(|side| !side.done.is_empty()));
    for side in sides.iter_mut() {
        let done = take(side).expect("seen");
        assert_eq!(done.status, WcStatus::Success);
    }
    sides[1].check(0, 1000, seed, "the message");
}

#[test]
fn whatever_strangers_send_is_refused_and_the_job_goes_on() {
    let mut rng = StdRng::seed_from_u64(5);
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    join(&mut sides);
    message(&mut sides, 1);
    let socket = sides[1].socket();
    let mut begun = b"FRVTCP\x00\x02".to_vec();
    begun.resize(40, 7);
    for round in 0..40u64 {
        let mut stranger = TcpStream::connect(socket).expect("it listens");
        let len = rng.random_range(1..3000);
        let mut noise: Vec<u8> = (0..len).map(|_| rng.random()).collect();
        if round % 2 == 0 {
            let whole = begun.len().min(len);
            noise[..whole].copy_from_slice(&begun[..whole]);
        }
        // It may be hung up on while it speaks.
        let _ = stranger.write_all(&noise);
        drop(stranger.shutdown(std::net::Shutdown::Write));
        until(&mut sides, "a refusal", |sides| sides[1].adapter.link().refused_connections() == round + 1);
        stranger.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // Whatever it is answered, the end comes.
        let _ = stranger.read_to_end(&mut Vec::new());
        message(&mut sides, round as u8);
    }
    // One that says nothing is no burden either.
    let silent = TcpStream::connect(socket).expect("it listens");
    message(&mut sides, 99);
    drop(silent);
    assert_eq!(sides[0].adapter.link().connections_made(), 1, "the connection was left alone");
}

#[test]
fn who_does_not_know_the_secret_is_no_peer() {
    let impatient = |options: &mut TcpOptions| options.patience = Duration::from_millis(300);
    let mut sides = [Side::new(1, impatient), Side::new(2, impatient)];
    join(&mut sides);
    sides[1].fill(0, 8, 3);
    sides[1].receive(2, 0, 8);
    sides[0].post(1, Operation::RdmaWrite(sides[1].region.remote(0)), 64, 8);
    until(&mut sides, "the end of the write", |sides| !sides[0].done.is_empty());
    assert_ne!(sides[0].done[0].status, WcStatus::Success);
    sides[1].check(0, 8, 3, "nothing was written");
    assert!(sides[0].adapter.link().refused_connections() + sides[1].adapter.link().refused_connections() > 0);
    assert_eq!(sides[0].adapter.link().connections_made(), 0);
}

#[test]
fn who_leaves_is_lost() {
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    join(&mut sides);
    message(&mut sides, 1);
    sides[0].receive(5, 0, 8);
    let [mut here, there] = sides;
    drop(there);
    let start = Instant::now();
    while here.done.is_empty() {
        assert!(start.elapsed() < PATIENCE, "nobody tells of the loss");
        here.poll();
        std::thread::sleep(Duration::from_micros(50));
    }
    assert_eq!((here.done[0].id, here.done[0].status), (5, WcStatus::WorkRequestFlushed));
}

/// What one connection carries in order is put together from several, and short messages keep to the first.
#[test]
fn a_long_payload_travels_over_all_connections() {
    let several = |options: &mut TcpOptions| options.connections = 4;
    let mut sides = [Side::new(1, several), Side::new(1, |_| {})];
    join(&mut sides);
    message(&mut sides, 1);
    assert_eq!(sides[0].adapter.link().connections_made(), 1);
    let len = MEMORY_BYTES / 2 - 5;
    sides[0].fill(0, len, 9);
    let far = sides[1].region.remote(MEMORY_BYTES as u64 / 2);
    sides[0].post(1, Operation::RdmaWrite(far), 0, len);
    sides[0].post(2, Operation::RdmaRead(far), 1, len);
    until(&mut sides, "both", |sides| sides[0].done.len() == 2);
    assert!(sides[0].done.iter().all(|one| one.status == WcStatus::Success), "{:?}", sides[0].done);
    sides[1].check(MEMORY_BYTES / 2, len, 9, "written");
    sides[0].check(1, len, 9, "read");
    assert_eq!(sides.each_mut().map(|side| side.adapter.link().connections_made()), [4, 4]);
}

/// Acknowledgements ride with the messages that go back: a system call per message, not two. Without riding this would
/// be two exactly; a test that is interrupted for long learns anew what is worth while, hence the margin.
#[test]
fn messages_there_and_back_cost_a_write_each() {
    there_and_back(0);
}

/// Who has several completion queues polls more than once between two messages.
#[test]
fn messages_there_and_back_cost_a_write_each_whoever_polls_in_between() {
    there_and_back(3);
}

fn there_and_back(polls_between: u32) {
    const TURNS: u64 = 1000;
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    join(&mut sides);
    message(&mut sides, 1);
    let before = sides.each_mut().map(|side| side.adapter.link().writes());
    for turn in 0..2 * TURNS {
        let (from, to) = (turn as usize % 2, 1 - turn as usize % 2);
        sides[to].receive(2, 0, 64);
        sides[from].post(1, Operation::Send, 64, 8);
        let start = Instant::now();
        while !sides[to].done.iter().any(|one| one.id == 2) {
            sides[to].poll();
            assert!(start.elapsed() < PATIENCE, "message {turn}");
        }
        (0..polls_between).for_each(|_| sides[to].poll());
        assert!(sides.iter().flat_map(|side| &side.done).all(|one| one.status == WcStatus::Success));
        sides[to].done.clear();
    }
    let writes: u64 = (0..2).map(|at| sides[at].adapter.link().writes() - before[at]).sum();
    println!("{writes} writes for {} messages", 2 * TURNS);
    assert!(writes < 3 * TURNS, "{writes} writes for {} messages", 2 * TURNS);
}

/// Requests posted together leave together.
#[test]
fn a_list_of_sends_is_one_write() {
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    join(&mut sides);
    message(&mut sides, 1);
    for id in 100..116 {
        sides[1].receive(id, 0, 64);
    }
    let before = sides[0].adapter.link().writes();
    let list = [sides[0].region.part(0, 8)];
    let requests: Vec<SendRequest<'_>> =
        (0..16).map(|id| SendRequest::new(id, Operation::Send, Payload::Memory(&list))).collect();
    let qp = sides[0].qp;
    assert_eq!(sides[0].adapter.post_send(qp, &requests), Ok(16));
    assert_eq!(sides[0].adapter.link().writes() - before, 1);
    until(&mut sides, "all of them", |sides| sides.iter().all(|side| side.done.len() == 16));
}

/// Who posts and then computes keeps nobody waiting: each request goes when it is posted, also behind others that are
/// unanswered, and after a long time of posting and polling in turns.
#[test]
fn what_is_posted_goes_at_once_whatever_its_owner_does_then() {
    const WINDOW: u64 = 16;
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    join(&mut sides);
    message(&mut sides, 1);
    for turn in 0..20 {
        for id in 0..WINDOW {
            sides[1].receive(id, 64 * id as usize, 64);
        }
        for id in 0..WINDOW {
            sides[0].post(id, Operation::Send, 2048 + 8 * id as usize, 8);
        }
        // The sender does not poll until all of it is there.
        let start = Instant::now();
        while sides[1].done.len() < WINDOW as usize {
            sides[1].poll();
            assert!(start.elapsed() < PATIENCE, "window {turn}: {} of {WINDOW} are there", sides[1].done.len());
        }
        sides[1].done.clear();
        until(&mut sides, "the sender's completions", |sides| sides[0].done.len() == WINDOW as usize);
        sides[0].done.clear();
    }
}

/// A network that fails while nobody speaks costs nobody its peer, however often.
#[test]
fn cuts_in_silence_are_forgiven() {
    let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
    join(&mut sides);
    message(&mut sides, 1);
    for _ in 0..80 {
        let before = sides.each_mut().map(|side| side.adapter.link().connections_made());
        sides[0].adapter.link().cut_connections();
        until(&mut sides, "a new connection", |sides| {
            (0..2).all(|at| sides[at].adapter.link().connections_made() > before[at])
        });
    }
    message(&mut sides, 2);
}

#[test]
fn a_killed_peer_is_lost_and_what_was_posted_to_it_ends() {
    let (mut side, peer, far) = with_answering(|_| {});
    let next = |side: &mut Side| {
        let start = Instant::now();
        loop {
            if let Some(done) = take(side) {
                return done;
            }
            assert!(start.elapsed() < PATIENCE, "nothing ends");
            side.poll();
            std::thread::sleep(Duration::from_micros(50));
        }
    };
    side.post(1, Operation::RdmaWrite(far), 0, 4096);
    assert_eq!(next(&mut side).status, WcStatus::Success);
    side.post(2, Operation::RdmaWrite(far), 0, MEMORY_BYTES);
    drop(peer);
    side.post(3, Operation::RdmaRead(far), 0, MEMORY_BYTES);
    side.post(4, Operation::Send, 0, 64);
    let ended: Vec<WorkCompletion> = (0..3).map(|_| next(&mut side)).collect();
    assert_eq!(ended.iter().map(|one| one.id).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(ended[1..].iter().all(|one| one.status != WcStatus::Success), "{ended:?}");
}
