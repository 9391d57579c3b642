//! Strangers: told of once, and beside a process that is short of descriptors. A log and limits are a process's, so each test
//! has one of its own.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use base::log::{Level, Log};
use fabric::{Context, Operation, WcStatus};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::side::{PATIENCE, Side, join, take, until};

/// How many come, of those that say nothing more than there are descriptors for.
const STRANGERS: usize = 40;

/// Runs a test in a process of its own, whose output is returned when it has ended well; `None` there.
fn alone(test: &str, body: impl FnOnce()) -> Option<Output> {
    const ALONE: &str = "FABRIC_SOFT_ALONE";
    if std::env::var_os(ALONE).is_some() {
        body();
        return None;
    }
    let ended = Command::new(std::env::current_exe().expect("this program"))
        .args([&format!("strangers::{test}"), "--exact", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("a process");
    let said = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(ended.status.success(), "{}: {}", ended.status, said.concat());
    Some(ended)
}

#[test]
fn strangers_are_told_of_once_and_counted() {
    let ended = alone("strangers_are_told_of_once_and_counted", || {
        let mut side = Side::new(1, |options| options.log = Log::new(Level::Warn, None));
        let socket = side.socket();
        for count in 1..=STRANGERS as u64 {
            let mut stranger = TcpStream::connect(socket).expect("it listens");
            stranger.write_all(&[7; 100]).expect("there is room");
            stranger.shutdown(Shutdown::Write).expect("it is open");
            let start = Instant::now();
            while side.adapter.link().refused_connections() < count {
                assert!(start.elapsed() < PATIENCE, "stranger {count} is not refused");
                side.poll();
                std::thread::sleep(Duration::from_micros(50));
            }
            stranger.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            // It may be hung up on with or without having been heard.
            let _ = stranger.read_to_end(&mut Vec::new());
        }
    });
    let Some(ended) = ended else { return };
    let logged = String::from_utf8_lossy(&ended.stderr);
    let told: Vec<&str> = logged.lines().filter(|line| line.starts_with("ferrovia")).collect();
    let why = "a connection was refused: it does not greet as a process that means this one";
    assert!(told.len() == 1 && told[0].contains(why), "{logged}");
}

/// This process may open `more` descriptors from now on.
fn leave_descriptors(more: u64) {
    // The lowest that is free: all below are taken.
    let next = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("a descriptor").as_raw_fd();
    let limit = Rlimit { current: Some(next as u64 + more), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("less is always possible");
}

fn silent_strangers(side: &mut Side) -> Vec<TcpStream> {
    let socket = side.socket();
    (0..STRANGERS).map(|_| TcpStream::connect(socket).expect("the system takes it")).collect()
}

fn write(sides: &mut [Side; 2], seed: u8) {
    sides[0].fill(0, 100, seed);
    let to = Operation::RdmaWrite(sides[1].region.remote(500));
    sides[0].post(1, to, 0, 100);
    until(sides, "the write", |sides| !sides[0].done.is_empty());
    assert_eq!(take(&mut sides[0]).expect("seen").status, WcStatus::Success);
    sides[1].check(500, 100, seed, "written");
}

#[test]
fn strangers_give_way_where_descriptors_are_short() {
    let _ = alone("strangers_give_way_where_descriptors_are_short", || {
        let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
        join(&mut sides);
        write(&mut sides, 1);
        // Of both sides, for either may be the one that dials.
        let strangers = sides.each_mut().map(silent_strangers);
        // One at each end of a connection that is made anew, and one more for whoever comes.
        leave_descriptors(3);
        for seed in 2..12 {
            sides[usize::from(seed % 2)].adapter.link().cut_connections();
            write(&mut sides, seed);
        }
        drop(strangers);
    });
}

/// How often a process is woken that sleeps on its completions for so long.
fn wakes_in(side: &mut Side, time: Duration) -> u32 {
    let start = Instant::now();
    let mut wakes = 0;
    while let Some(left) = time.checked_sub(start.elapsed()) {
        wakes += u32::from(side.sleep(left));
    }
    wakes
}

#[test]
fn who_cannot_be_let_in_wakes_nobody_and_is_let_in_later() {
    let _ = alone("who_cannot_be_let_in_wakes_nobody_and_is_let_in_later", || {
        let mut sides = [Side::new(1, |_| {}), Side::new(1, |_| {})];
        join(&mut sides);
        // The descriptors a sleeper needs are made.
        sides[1].adapter.descriptor(sides[1].completions).expect("a descriptor");
        sides[0].fill(0, 100, 7);
        let limit = getrlimit(Resource::Nofile);
        // For the end that dials, which is the one that has something to send.
        leave_descriptors(1);
        let to = Operation::RdmaWrite(sides[1].region.remote(500));
        sides[0].post(1, to, 0, 100);
        sides[0].poll();
        let wakes = wakes_in(&mut sides[1], Duration::from_millis(500));
        assert!(wakes < 50, "{wakes} wakes for somebody who cannot be let in");
        assert!(sides[0].done.is_empty(), "there is no descriptor for it");
        setrlimit(Resource::Nofile, limit).expect("no more than it was");
        until(&mut sides, "the write", |sides| !sides[0].done.is_empty());
        assert_eq!(take(&mut sides[0]).expect("seen").status, WcStatus::Success);
        sides[1].check(500, 100, 7, "written");
    });
}
