//! How many strangers there may be, and for how long they may stay silent.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fabric::{CompletionQueue, Context};

use super::limit_among;
use crate::SoftContext;
use crate::link::Link;
use crate::quiet::PATIENCE;
use crate::tcp::TcpLink;
use crate::tcp::hostile::link;

const LONGEST: Duration = Duration::from_secs(30);

struct Host {
    adapter: SoftContext<TcpLink>,
    completions: CompletionQueue,
}

impl Host {
    fn new() -> Self {
        let mut adapter = link();
        let completions = adapter.create_completion_queue(1).expect("a queue");
        Self { adapter, completions }
    }

    /// A stranger, who is silent and has been let in.
    fn let_in(&mut self) -> TcpStream {
        let (socket, generations) = (self.adapter.link().listening()[0], self.used());
        let stranger = TcpStream::connect(socket).expect("it listens");
        stranger.set_nonblocking(true).expect("a socket");
        let start = Instant::now();
        while self.used() == generations {
            assert!(start.elapsed() < PATIENCE, "nobody lets it in");
            self.adapter.poll(self.completions, &mut []).expect("a whole queue");
            std::thread::sleep(Duration::from_micros(20));
        }
        stranger
    }

    /// Places for connections that were taken, and given up again.
    fn used(&mut self) -> u64 {
        let link = self.adapter.link();
        let taken = link.connections.iter().flatten().count() as u64;
        taken + link.generations.iter().copied().map(u64::from).sum::<u64>()
    }
}

/// True if the connection is there still.
fn is_open(stranger: &mut TcpStream) -> bool {
    matches!(stranger.read(&mut [0]), Err(why) if why.kind() == ErrorKind::WouldBlock)
}

#[test]
fn for_one_stranger_too_many_the_oldest_is_hung_up_on() {
    let mut host = Host::new();
    let most = host.adapter.link().strangers_max;
    let mut strangers: Vec<TcpStream> = (0..most).map(|_| host.let_in()).collect();
    assert_eq!((host.adapter.link().greeting_count, host.adapter.link().refused_connections()), (most, 0));
    for count in 1..=3 {
        strangers.push(host.let_in());
        let link = host.adapter.link();
        assert_eq!((link.greeting_count, link.refused_connections()), (most, count as u64));
        let start = Instant::now();
        while is_open(&mut strangers[count - 1]) {
            assert!(start.elapsed() < PATIENCE, "the oldest is kept");
            std::thread::sleep(Duration::from_micros(20));
        }
        assert!(strangers[count..].iter_mut().all(is_open), "the others are left alone");
    }
}

#[test]
fn strangers_are_few_where_descriptors_are() {
    let limits = [0, 24, 64, 256, 1024, 1 << 20, u64::MAX].map(limit_among);
    assert_eq!(limits, [4, 4, 4, 16, 64, 64, 64]);
}

/// Of the link's own time, which is told what it is.
#[test]
fn a_stranger_that_stays_silent_is_hung_up_on() {
    let mut host = Host::new();
    let before = host.adapter.link().now();
    let _stranger = host.let_in();
    let link = host.adapter.link();
    let after = link.now();
    link.look_after(before + LONGEST - Duration::from_nanos(1));
    assert_eq!((link.greeting_count, link.refused_connections()), (1, 0), "it has its time");
    link.look_after(after + LONGEST);
    assert_eq!((link.greeting_count, link.refused_connections()), (0, 1));
}
