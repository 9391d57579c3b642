//! Another process as the peer of this one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fabric::{ConnectOptions, Context, Endpoint, RemoteMemory, Rkey};
use fabric_soft::tcp::TcpOptions;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::deaths;
use crate::side::{PATIENCE, Side};

/// In the environment of the other process: this one's endpoint, and the address and key of its memory.
const OTHER: &str = "FABRIC_SOFT_TCP_OTHER";
/// And what it does, over how many connections.
const ROLE: &str = "FABRIC_SOFT_TCP_ROLE";

/// What the other process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Its adapter answers.
    Answers,
    /// It takes messages.
    Takes,
    /// It does operations of this kind, one after the other.
    Does(usize),
}

/// The other process: nothing when the tests are run as usual.
#[test]
fn a_process() {
    let Ok(other) = std::env::var(OTHER) else { return };
    let role = std::env::var(ROLE).expect("set by the test");
    let (role, connections) = role.split_once(' ').expect("two words");
    let mut side = Side::new(1, |options| options.connections = connections.parse().expect("a number"));
    let endpoint = side.adapter.endpoint(side.qp).expect("an endpoint");
    let (other, far) = parse(&other);
    fabric::connect(&mut side.adapter, side.qp, Some(other), &ConnectOptions::default()).expect("connects");
    // On a line of its own, behind what the test harness has begun.
    println!("\npeer {}", tell(&endpoint, &side));
    match role {
        "answers" => {
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                side.poll();
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        "takes" => deaths::take_all(&mut side),
        kind => deaths::do_all(&mut side, far, kind.parse().expect("a kind of operation")),
    }
}

fn tell(endpoint: &Endpoint, side: &Side) -> String {
    format!("{endpoint} {} {}", side.region.address, side.region.rkey.0)
}

fn parse(told: &str) -> (Endpoint, RemoteMemory) {
    let [endpoint, address, key] = told.split(' ').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let rkey = Rkey(key.parse().expect("a key"));
    (endpoint.parse().expect("an endpoint"), RemoteMemory { address: address.parse().expect("an address"), rkey })
}

/// A process killed when it is dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it is ours");
    }

    /// Stops it; it does nothing any more when this returns.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let id = WaitId::Pid(Pid::from_child(&self.0));
        waitid(id, WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("it is ours");
    }
}

/// The adapter and another process that is its peer, with the address and key of the peer's memory.
pub fn with_process(role: Role, change: impl FnOnce(&mut TcpOptions)) -> (Side, Process, RemoteMemory) {
    let mut connections = 1;
    let mut side = Side::new(1, |options| {
        change(options);
        connections = options.connections;
    });
    let own = side.adapter.endpoint(side.qp).expect("an endpoint");
    let role = match role {
        Role::Answers => "answers".to_owned(),
        Role::Takes => "takes".to_owned(),
        Role::Does(kind) => kind.to_string(),
    };
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["process::a_process", "--exact", "--nocapture"])
        .env(OTHER, tell(&own, &side))
        .env(ROLE, format!("{role} {connections}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let told = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("peer ").map(str::to_owned));
    let (endpoint, far) = parse(&told.expect("the peer speaks"));
    fabric::connect(&mut side.adapter, side.qp, Some(endpoint), &ConnectOptions::default()).expect("connects");
    (side, Process(child), far)
}

/// The same, with one that answers until it is stopped.
pub fn with_answering(change: impl FnOnce(&mut TcpOptions)) -> (Side, Process, RemoteMemory) {
    with_process(Role::Answers, change)
}

/// Sleeps on the completion descriptor until something is complete; returns how often that woke.
pub fn sleep_until_done(side: &mut Side) -> u32 {
    let mut wakes = 0;
    while side.done.is_empty() {
        let woke = side.sleep(PATIENCE);
        assert!(woke || !side.done.is_empty(), "nothing ends");
        wakes += u32::from(woke);
    }
    wakes
}
