//! A peer killed (SIGKILL) in the middle of every operation.

use crate::side::{Side, best, opened, reaches_other_processes};
use fabric::{
    ConnectOptions, Endpoint, FabricError, Operation, Payload, QueuePairAttributes, QueuePairState, RemoteMemory, Rkey,
    SendRequest, WcStatus,
};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set for the process that will be killed.
const VICTIM: &str = "FERROVIA_TEST_VICTIM";
/// Operations that must have gone through before it is killed; and it must have written once itself.
const BEFORE: u64 = 50;

fn options() -> ConnectOptions {
    ConnectOptions { timeout: Duration::from_millis(17), retry_count: 3, ..ConnectOptions::default() }
}

/// What one process tells the other about its end, in one line.
fn line(side: &Side) -> String {
    let memory = side.region.remote(0);
    format!("end={} {} {}", side.endpoint(), memory.address, memory.rkey.0)
}

fn parsed(line: &str) -> Option<(Endpoint, RemoteMemory)> {
    let mut words = line.split_once("end=")?.1.split_whitespace();
    let endpoint = words.next()?.parse().ok()?;
    Some((endpoint, RemoteMemory { address: words.next()?.parse().ok()?, rkey: Rkey(words.next()?.parse().ok()?) }))
}

/// A process that serves a connection to `side`'s queue pair until it is killed.
fn victim_for(side: &mut Side) -> (Child, RemoteMemory) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["killed::serves_until_it_is_killed", "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{}", line(side)).unwrap();
    let mut said = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let (remote, memory) = said.by_ref().find_map(|line| parsed(&line.unwrap())).expect("the victim's end");
    fabric::connect(&mut *side.context, side.qp, Some(remote), &options()).unwrap();
    (child, memory)
}

/// Not a test of its own: the process that is killed.
#[test]
fn serves_until_it_is_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let mut side = Side::new(|_| {}).unwrap();
    let mut theirs = String::new();
    std::io::stdin().read_line(&mut theirs).unwrap();
    let (remote, memory) = parsed(&theirs).unwrap();
    fabric::connect(&mut *side.context, side.qp, Some(remote), &options()).unwrap();
    for id in 0..32 {
        side.receive(id, 8000, 64);
    }
    println!("\n{}", line(&side));
    // It works itself as well: writes to the other's memory, so that it dies as an initiator too.
    let there = RemoteMemory { address: memory.address + 12_000, ..memory };
    loop {
        let write = SendRequest::new(1000, Operation::RdmaWrite(there), Payload::Inline(b"from the victim"));
        match side.context.post_send(side.qp, &[write]) {
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
        let done = side.next();
        assert_eq!(done.status, WcStatus::Success, "the other end lives");
        if done.id < 1000 {
            side.receive(done.id, 8000, 64);
        }
    }
}

#[test]
fn a_peer_killed_in_the_middle_of_any_operation_is_noticed() {
    let Some(device) = best() else { return };
    if !reaches_other_processes(&device) {
        println!("skipped: the adapter's queue pairs reach those of their own process only");
        return;
    }
    let mut side = Side::on(opened(device), |_| {});
    let attributes = QueuePairAttributes::new(side.domain, side.completions);
    for name in ["send", "write", "write with immediate", "read", "fetch-add"] {
        if name == "fetch-add" && !side.context.capabilities().atomics {
            println!("skipped: the adapter has no atomic operations");
            continue;
        }
        let (mut child, there) = victim_for(&mut side);
        let mut killed = false;
        let mut id = 0;
        let failure = loop {
            let list = [side.region.part(64, 8)];
            let (operation, payload) = match name {
                "send" => (Operation::Send, Payload::Inline(b"message")),
                "write" => (Operation::RdmaWrite(there), Payload::Inline(b"message")),
                "read" => (Operation::RdmaRead(there), Payload::Memory(&list)),
                "fetch-add" => (Operation::FetchAdd { remote: there, add: 1 }, Payload::Memory(&list)),
                _ => (Operation::RdmaWriteWithImmediate(there, 7), Payload::Inline(b"message")),
            };
            let request = SendRequest::new(id, operation, payload);
            assert_eq!(side.context.post_send(side.qp, &[request, request]), Ok(2), "{name}");
            if id >= BEFORE && side.memory[12_000] != 0 && !killed {
                child.kill().unwrap();
                killed = true;
            }
            let both = [side.next(), side.next()];
            assert!(both.iter().all(|done| done.id == id), "{name}: {both:?}");
            if let Some(failed) = both.iter().find(|done| done.status != WcStatus::Success) {
                break *failed;
            }
            id += 1;
        };
        child.wait().unwrap();
        assert!(killed && id >= BEFORE, "{name}: {failure:?} after {id}");
        let expected = [WcStatus::TransportRetryExceeded, WcStatus::RemoteAccessError, WcStatus::RemoteOperationError];
        assert!(expected.contains(&failure.status), "{name}: {failure:?}");
        assert_eq!(side.context.queue_pair_state(side.qp), Ok(QueuePairState::Error), "{name}");
        assert_eq!(&side.memory[12_000..12_015], b"from the victim", "{name}");
        side.memory[12_000..12_015].fill(0);
        // The context goes on with the next.
        side.context.destroy_queue_pair(side.qp).unwrap();
        assert!(matches!(side.context.destroy_queue_pair(side.qp), Err(FabricError::NoSuch(_))));
        side.qp = side.context.create_queue_pair(&attributes).unwrap();
    }
}
