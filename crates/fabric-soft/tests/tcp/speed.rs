//! What the link costs beside bare sockets, in the same run: printed, and asserted by nobody.
//! `FABRIC_SOFT_SPEED=1 cargo test --release -p fabric-soft --test tcp -- --nocapture --test-threads=1 speed`

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use base::log::{Level, Log};
use fabric::{ConnectOptions, Context, Endpoint, MemoryRegion, Operation, WcStatus};
use fabric_soft::tcp::{JobSecret, TcpOptions};

use crate::network::Network;
use crate::side::Side;

/// In the environment: the speed is to be measured.
const SPEED: &str = "FABRIC_SOFT_SPEED";
const LARGE: usize = 1 << 20;
/// Turns of each measurement; the median counts.
const TURNS: usize = 9;
/// Large writes under way at once.
const WINDOW: usize = 4;
/// Looks in vain until the processor is offered to others, on both sides of the comparison.
const LOOKS: u32 = 200;

struct Here {
    index: usize,
    side: Side,
    socket: TcpStream,
    far: MemoryRegion,
    looks: u32,
    memory: Vec<u8>,
}

impl Here {
    fn pause(&mut self) {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            std::thread::yield_now();
        }
    }

    /// Waits for the receive `id`; sends that are complete are taken beside it.
    fn wait(&mut self, id: u64) {
        loop {
            if let Some(at) = self.side.done.iter().position(|one| one.id == id) {
                assert!(self.side.done.iter().all(|one| one.status == WcStatus::Success));
                self.side.done.swap_remove(at);
                return;
            }
            self.side.poll();
            self.pause();
        }
    }

    /// Messages there and back; each side sends, then the other.
    fn ping_pong(&mut self, bytes: usize, count: usize) {
        self.side.receive(1, LARGE, bytes);
        for turn in 0..2 * count {
            if turn % 2 == self.index {
                self.side.post(2, Operation::Send, 0, bytes);
                self.wait(2);
            } else {
                self.wait(1);
                if turn + 2 < 2 * count {
                    self.side.receive(1, LARGE, bytes);
                }
            }
        }
    }

    /// Eight bytes there and back by RDMA writes, each noticed by who looks at its memory.
    fn write_ping_pong(&mut self, count: usize) {
        let to = Operation::RdmaWrite(self.far.remote(LARGE as u64));
        let before = self.side.word(LARGE).max(self.side.word(0));
        for turn in 0..2 * count {
            let stamp = before + turn as u64 + 1;
            if turn % 2 == self.index {
                self.side.set_word(0, stamp);
                self.side.post(3, to, 0, 8);
            } else {
                while self.side.word(LARGE) != stamp {
                    self.side.poll();
                    self.pause();
                }
                assert!(self.side.done.drain(..).all(|one| one.status == WcStatus::Success));
            }
        }
    }

    /// The last acknowledgement goes when polls find nothing, and the first may find something still. Nobody waits for
    /// that, so it is not measured.
    fn let_go(&mut self) {
        (0..1000).for_each(|_| self.side.poll());
    }

    /// Large writes from the first side to the second, so many under way at once.
    fn stream(&mut self, count: usize) {
        if self.index == 1 {
            return self.wait(1);
        }
        let to = Operation::RdmaWrite(self.far.remote(LARGE as u64));
        for written in 0..count {
            if written >= WINDOW {
                self.wait(3);
            }
            self.side.post(3, to, 0, LARGE);
        }
        (0..count.min(WINDOW)).for_each(|_| self.wait(3));
        self.side.post(2, Operation::Send, 0, 8);
        self.wait(2);
    }

    fn raw_write(&mut self, mut len: usize) {
        while len > 0 {
            match self.socket.write(&self.memory[..len.min(LARGE)]) {
                Ok(count) => len -= count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => self.pause(),
                Err(why) => panic!("{why}"),
            }
        }
    }

    fn raw_read(&mut self, mut len: usize) {
        while len > 0 {
            match self.socket.read(&mut self.memory[..len.min(LARGE)]) {
                Ok(0) => panic!("the end"),
                Ok(count) => len -= count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => self.pause(),
                Err(why) => panic!("{why}"),
            }
        }
    }

    fn raw_ping_pong(&mut self, bytes: usize, count: usize) {
        for turn in 0..2 * count {
            if turn % 2 == self.index { self.raw_write(bytes) } else { self.raw_read(bytes) }
        }
    }

    fn raw_stream(&mut self, count: usize) {
        if self.index == 0 {
            self.raw_write(count * LARGE);
            self.raw_read(1);
        } else {
            (0..count).for_each(|_| self.raw_read(LARGE));
            self.raw_write(1);
        }
    }
}

type Card = (Endpoint, MemoryRegion, Option<SocketAddr>);

/// One host: opens both kinds of connection.
fn open(network: &Network, index: usize, tell: &Sender<Card>, told: &Receiver<Card>) -> Here {
    network.enter(index);
    let listen = network.listen(index);
    let listener = TcpListener::bind(listen[0]).expect("it listens");
    let options = TcpOptions::new(JobSecret::new([3; 32]), listen, Log::new(Level::Error, None));
    let mut side = Side::with(options, 2 * LARGE);
    let endpoint = side.adapter.endpoint(side.qp).expect("an endpoint");
    tell.send((endpoint, side.region, listener.local_addr().ok())).expect("the other is there");
    let (remote, far, raw) = told.recv().expect("the other is there");
    fabric::connect(&mut side.adapter, side.qp, Some(remote), &ConnectOptions::default()).expect("connects");
    let socket = match index {
        0 => TcpStream::connect(raw.expect("an address")).expect("connects"),
        _ => listener.accept().expect("somebody comes").0,
    };
    socket.set_nodelay(true).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    Here { index, side, socket, far, looks: 0, memory: vec![1; LARGE] }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(name: &str, network: &Network) {
    let (to_second, from_first) = channel();
    let (to_first, from_second) = channel();
    let (barrier, figures) = (Barrier::new(2), Mutex::new(Vec::new()));
    type Work = fn(&mut Here, usize);
    let works: [(&str, Work, Work, usize); 4] = [
        ("8 B written, one way, us", Here::write_ping_pong, |here, count| here.raw_ping_pong(8, count), 1000),
        (
            "8 B sent, one way, us",
            |here, count| here.ping_pong(8, count),
            |here, count| here.raw_ping_pong(8, count),
            1000,
        ),
        (
            "1 MiB sent, one way, us",
            |here, count| here.ping_pong(LARGE, count),
            |here, count| here.raw_ping_pong(LARGE, count),
            30,
        ),
        ("1 MiB written in a row, us each", Here::stream, Here::raw_stream, 100),
    ];
    let run = |index: usize, tell: Sender<Card>, told: Receiver<Card>| {
        let mut here = open(network, index, &tell, &told);
        for (what, ours, raw, count) in works {
            let (mut our_times, mut raw_times) = (Vec::new(), Vec::new());
            for turn in 0..=TURNS {
                for (work, times) in [(ours, &mut our_times), (raw, &mut raw_times)] {
                    if what.contains("in a row") && index == 1 && std::ptr::fn_addr_eq(work, ours) {
                        here.side.receive(1, LARGE, 8);
                    }
                    barrier.wait();
                    let start = Instant::now();
                    work(&mut here, count);
                    let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
                    here.let_go();
                    if turn > 0 {
                        times.push(if what.contains("one way") { each / 2.0 } else { each });
                    }
                }
            }
            if index == 0 {
                figures.lock().expect("whole").push((what, median(our_times), median(raw_times)));
            }
        }
    };
    std::thread::scope(|scope| {
        let run = &run;
        scope.spawn(move || run(0, to_second, from_second));
        scope.spawn(move || run(1, to_first, from_first));
    });
    for (what, ours, raw) in figures.into_inner().expect("whole") {
        println!("{name}: {what}: {ours:.2}, bare sockets {raw:.2}, ratio {:.3}", ours / raw);
    }
}

fn is_wanted() -> bool {
    let wanted = std::env::var_os(SPEED).is_some();
    if !wanted {
        println!("skipped: a measurement, to be run alone with {SPEED}=1");
    }
    wanted
}

#[test]
fn speed_over_the_loopback() {
    if is_wanted() {
        compare("loopback", &Network::loopback());
    }
}

#[test]
fn speed_between_namespaces() {
    match Network::joined_by_veth() {
        Ok(network) if is_wanted() => compare("veth", &network),
        Ok(_) => {}
        Err(why) => println!("skipped: no namespaces here: {why}"),
    }
}
