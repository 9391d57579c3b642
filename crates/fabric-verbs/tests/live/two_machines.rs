//! Two machines at once, which find each other by `RDMA_VM_RANK`, `RDMA_VM_SIZE` and `RDMA_VM_PEER`: they agree on a
//! network, keep the rules of `fabric` between them, and the end of one is noticed by the other.

use crate::fixture::{SOFT_ROCE_EXCEPTIONS_OF_TWO, Verbs};
use crate::side::Side;
use fabric::{
    ConnectOptions, Context, Device, Endpoint, Operation, Payload, RemoteMemory, Rkey, SendRequest, WcStatus,
};
use fabric_conformance::remote::{Remote, serve};
use fabric_verbs::choice::{Wanted, choose_together, table_from_bytes, table_to_bytes};
use fabric_verbs::{Survey, VerbsDevice};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PORT: u16 = 7471;
/// The adapter is to join groups as on InfiniBand.
const BY_RDMA_CM: &str = "rdma_cm";
/// Longer than anything but a hang takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The other machine, over plain TCP: what a process manager does.
struct Peer(TcpStream);

impl Peer {
    fn meet(rank: u32, address: &str) -> Self {
        if rank == 0 {
            let listener = std::net::TcpListener::bind(("0.0.0.0", PORT)).unwrap();
            return Self(listener.accept().unwrap().0);
        }
        for _ in 0..600 {
            if let Ok(stream) = TcpStream::connect((address, PORT)) {
                return Self(stream);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the other machine does not listen");
    }

    /// Sends `mine` and returns what the other sent.
    fn exchange(&mut self, mine: &[u8]) -> Vec<u8> {
        self.0.write_all(&u32::try_from(mine.len()).unwrap().to_le_bytes()).unwrap();
        self.0.write_all(mine).unwrap();
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut theirs = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut theirs).unwrap();
        theirs
    }

    /// Both have come this far.
    fn barrier(&mut self) {
        assert_eq!(self.exchange(b"here"), b"here");
    }
}

#[test]
fn two_machines_agree_on_a_network_and_keep_the_rules() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("RDMA_VM_SIZE") != "2" {
        println!("skipped: not one of two machines");
        return;
    }
    let (rank, address): (u32, _) = (variable("RDMA_VM_RANK").parse().unwrap(), variable("RDMA_VM_PEER"));
    let mut peer = Peer::meet(rank, &address);
    let (adapter, device) = agreed(&mut peer, rank);
    let open = |how: &str| -> Result<Box<dyn Context>, String> {
        let device = device()?;
        let device = if how == BY_RDMA_CM { device.joining_by_rdma_cm() } else { device };
        Box::new(device).open().map_err(|error| error.to_string())
    };
    // The first asks, the second serves, over a stream of their own.
    let Peer(stream) = Peer::meet(rank, &address);
    stream.set_nodelay(true).unwrap();
    match rank {
        0 => {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let remote = Remote::new(stream);
            for (how, cases) in [("", ""), (BY_RDMA_CM, "multicast")] {
                let both = || Ok((open(how)?, remote.open(how)?.into()));
                Verbs::new(&adapter, &both, &SOFT_ROCE_EXCEPTIONS_OF_TWO).run(cases);
            }
        }
        _ => serve(stream, open).unwrap(),
    }
    death(&mut peer, rank, open("").unwrap());
}

/// The adapter both chose from each other's tables, by name and as a device.
fn agreed(peer: &mut Peer, rank: u32) -> (String, impl Fn() -> Result<VerbsDevice, String> + use<>) {
    let survey = Survey::new(&Wanted::default()).unwrap();
    let theirs = table_from_bytes(&peer.exchange(&table_to_bytes(survey.offers()))).unwrap();
    let mut tables = vec![survey.offers().to_vec(), theirs];
    if rank == 1 {
        tables.swap(0, 1);
    }
    let place = choose_together(&tables).expect("both are on one wire")[rank as usize];
    println!("rank {rank}: {:?}", survey.offers()[place]);
    let adapter = survey.offers()[place].adapter.to_string();
    (adapter, move || survey.device(place).map_err(|error| error.to_string()))
}

/// A connection to the other machine, and all of its memory.
fn connected(peer: &mut Peer, context: Box<dyn Context>, options: &ConnectOptions) -> (Side, RemoteMemory) {
    let mut side = Side::on(context, |_| {});
    let remote = Endpoint::parse(&peer.exchange(&side.endpoint().to_bytes())).unwrap();
    fabric::connect(&mut *side.context, side.qp, Some(remote), options).unwrap();
    let mine = side.region.remote(0);
    let theirs = peer.exchange(&[mine.address.to_le_bytes(), u64::from(mine.rkey.0).to_le_bytes()].concat());
    let word = |at: usize| u64::from_le_bytes(theirs[at..at + 8].try_into().unwrap());
    (side, RemoteMemory { address: word(0), rkey: Rkey(word(8) as u32) })
}

/// The second process ends without a word while the first sends to it.
fn death(peer: &mut Peer, rank: u32, context: Box<dyn Context>) {
    let hasty = ConnectOptions { timeout: Duration::from_millis(17), retry_count: 3, ..ConnectOptions::default() };
    let (mut side, remote) = connected(peer, context, &hasty);
    peer.barrier();
    if rank == 1 {
        // No destructor runs; the kernel cleans up.
        std::process::exit(0);
    }
    let mut written = 0;
    let failure = loop {
        side.send(SendRequest::new(written, Operation::RdmaWrite(remote), Payload::Inline(b"still there?")));
        match side.next() {
            done if done.status == WcStatus::Success => written += 1,
            failed => break failed,
        }
    };
    println!("the peer took {written} writes, then {failure:?}");
    assert!(matches!(failure.status, WcStatus::TransportRetryExceeded | WcStatus::RemoteAccessError), "{failure:?}");
}
