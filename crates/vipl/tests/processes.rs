//! Two processes: this program starts itself again as the other side. What the other side is to do stands in a variable.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use vipl::*;

const ROLE: &str = "VIPL_TEST_ROLE";
const ADDRESS: &str = "VIPL_TEST_ADDRESS";

/// The other side, killed if the test ends before it.
struct Other(Child);

impl Other {
    /// Starts it with a role; it listens at `at`.
    fn start(role: &str, at: &str) -> Self {
        let program = std::env::current_exe().expect("a test program");
        let child = Command::new(program)
            .args(["--exact", "other_side", "--nocapture"])
            .env(ROLE, role)
            .env(ADDRESS, at)
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("this program starts once more"))
    }

    fn ends_well(mut self) {
        assert!(self.0.wait().expect("it ends").success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test where it is run as one: the life of the other side.
#[test]
fn other_side() {
    let (Ok(role), Ok(at)) = (std::env::var(ROLE), std::env::var(ADDRESS)) else { return };
    let side = Side::new(Settings::default(), Reliability::Delivery);
    let way = if role == "echo-2" { 2 } else { 3 };
    let memory = side.memory(way, 1 << 16);
    match role.as_str() {
        "echo-2" | "echo-3" => {
            for place in 0..8 {
                side.vi.post_receive(Descriptor::of(vec![memory.segment(place * 4096, 4096)], place as u64)).unwrap();
            }
            side.nic.connect_wait(&address(&at), LONG).unwrap().accept(&side.vi).unwrap();
            loop {
                let received = side.received();
                if received.status.has(Status::FLUSHED_ERROR) {
                    break;
                }
                let place = received.context as usize * 4096;
                let answer = vec![memory.segment(place, received.len_bytes as usize)];
                side.vi.post_send(Descriptor::of(answer, 0)).unwrap();
                assert!(!side.sent().status.is_error());
                let again = vec![memory.segment(place, 4096)];
                side.vi.post_receive(Descriptor::of(again, received.context)).unwrap();
            }
        }
        // Shows its memory in the message that opens the conversation, and then does nothing.
        "idle" => {
            side.nic.connect_wait(&address(&at), LONG).unwrap().accept(&side.vi).unwrap();
            let (address, handle) = memory.remote(32);
            memory.write(0, &address.to_le_bytes());
            memory.write(8, &handle.0.to_le_bytes());
            for _ in 0..100 {
                side.vi.post_receive(Descriptor::of(vec![memory.segment(4096, 64)], 0)).unwrap();
            }
            side.vi.post_send(Descriptor::of(vec![memory.segment(0, 12)], 0)).unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        other => panic!("there is no role {other}"),
    }
}

/// A client of the other side, and memory of way 3 with a receive that was posted before there was a connection.
fn client_of(name: &str) -> (Side, Memory) {
    let client = Side::new(Settings::default(), Reliability::Delivery);
    let memory = client.memory(3, 4096);
    client.vi.post_receive(Descriptor::of(vec![memory.segment(0, 4096)], 1)).unwrap();
    let mut here = name.to_owned();
    here.push_str("-client");
    request(&client.vi, &address(&here), &address(name)).expect("the other side waits");
    (client, memory)
}

#[test]
fn messages_go_to_another_process_and_back() {
    for role in ["echo-2", "echo-3"] {
        let at = format!("{role}-{}", std::process::id());
        let other = Other::start(role, &at);
        let (client, theirs) = client_of(&at);
        let mine = client.memory(2, 4096);
        for round in 0..500usize {
            let len = round * 8 % 4096;
            mine.write(0, &pattern(round as u8, len));
            client.vi.post_send(Descriptor::of(vec![mine.segment(0, len)], 2)).unwrap();
            assert_eq!(client.received().len_bytes as usize, len);
            assert_eq!(theirs.read(0, len), pattern(round as u8, len));
            client.vi.post_receive(Descriptor::of(vec![theirs.segment(0, 4096)], 1)).unwrap();
            assert!(!client.sent().status.is_error());
        }
        client.vi.disconnect();
        other.ends_well();
    }
}

/// The other side is killed while a receive waits, while sends are under way, and while RDMA is: an error each time.
#[test]
fn a_process_that_is_killed_is_an_error_and_no_hang() {
    for what in ["receive", "send", "read"] {
        let at = format!("idle-{what}-{}", std::process::id());
        let mut other = Other::start("idle", &at);
        let (client, memory) = client_of(&at);
        assert_eq!(client.received().len_bytes, 12);
        let shown = memory.read(0, 12);
        let remote = (
            u64::from_le_bytes(shown[..8].try_into().unwrap()),
            MemoryHandle(u32::from_le_bytes(shown[8..].try_into().unwrap())),
        );
        let (tell, told) = std::sync::mpsc::channel();
        client.nic.set_error_handler(Some(Box::new(move |event: ErrorEvent| tell.send(event.code).unwrap())));
        client.vi.post_receive(Descriptor::of(vec![memory.segment(0, 64)], 2)).unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            other.0.kill().expect("it still runs");
            other
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        let list = || vec![memory.segment(64, 64)];
        match what {
            "receive" => {}
            "send" => {
                // More than it has receives for, so that the last can only be flushed or refused.
                while client.vi.query().state == State::Connected && Instant::now() < deadline {
                    client.vi.post_send(Descriptor::of(list(), 3)).unwrap();
                    if client.sent().status.is_error() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {
                while client.vi.query().state == State::Connected && Instant::now() < deadline {
                    client.vi.post_send(Descriptor::rdma_read(list(), remote, 4)).unwrap();
                    client.sent();
                }
            }
        }
        assert_eq!(client.received().status.errors(), Status::FLUSHED_ERROR, "{what}");
        assert_eq!(client.vi.query().state, State::Error);
        let code = told.recv_timeout(LONG.unwrap()).unwrap();
        assert!(matches!(code, ErrorCode::ConnectionLost | ErrorCode::PostDescriptor), "{what}: {code:?}");
        drop(killer.join().unwrap());
        client.vi.disconnect();
        assert_eq!(client.vi.query().state, State::Idle);
    }
}
