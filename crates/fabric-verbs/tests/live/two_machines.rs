//! The same test on two machines at once, which find each other by `RDMA_VM_RANK`, `RDMA_VM_SIZE` and `RDMA_VM_PEER`.

use crate::side::{BYTES, Side, opened, pattern};
use fabric::{
    ConnectOptions, Context, DatagramAddress, Destination, Endpoint, MulticastGroup, Operation, Payload, Qkey,
    QpNumber, QueuePairAttributes, ReceiveRequest, RemoteMemory, Rkey, SendRequest, SharedReceiveQueueAttributes,
    SrqNumber, Transport, WcStatus,
};
use fabric_verbs::choice::{Wanted, choose_together, table_from_bytes, table_to_bytes};
use fabric_verbs::{Survey, VerbsDevice};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PORT: u16 = 7471;
const QKEY: Qkey = Qkey(0x77);
const GROUP: MulticastGroup = MulticastGroup([0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);

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
fn two_machines_agree_on_a_network_and_talk() {
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("RDMA_VM_SIZE") != "2" {
        println!("skipped: not one of two machines");
        return;
    }
    let rank: u32 = variable("RDMA_VM_RANK").parse().unwrap();
    let mut peer = Peer::meet(rank, &variable("RDMA_VM_PEER"));
    let device = agreed(&mut peer, rank);
    let open = || opened(device());
    datagrams(&mut peer, open());
    datagrams(&mut peer, opened(device().joining_by_rdma_cm()));
    xrc(&mut peer, rank, open());
    let (side, remote) = connected(&mut peer, open(), &ConnectOptions::default());
    connection(&mut peer, rank, side, remote);
    death(&mut peer, rank, open());
}

/// The adapter both chose from each other's tables.
fn agreed(peer: &mut Peer, rank: u32) -> impl Fn() -> VerbsDevice + use<> {
    let survey = Survey::new(&Wanted::default()).unwrap();
    let theirs = table_from_bytes(&peer.exchange(&table_to_bytes(survey.offers()))).unwrap();
    let mut tables = vec![survey.offers().to_vec(), theirs];
    if rank == 1 {
        tables.swap(0, 1);
    }
    let place = choose_together(&tables).expect("both are on one wire")[rank as usize];
    println!("rank {rank}: {:?}", survey.offers()[place]);
    move || survey.device(place).unwrap()
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

fn datagrams(peer: &mut Peer, context: Box<dyn Context>) {
    let mut side = Side::on(context, |attributes| attributes.transport = Transport::UnreliableDatagram);
    let options = ConnectOptions { qkey: QKEY, ..ConnectOptions::default() };
    fabric::connect(&mut *side.context, side.qp, None, &options).unwrap();
    let header = side.context.capabilities().limits.datagram_header_bytes as usize;
    side.receive(1, 0, 1000);
    let to = Endpoint::parse(&peer.exchange(&side.endpoint().to_bytes())).unwrap();
    let address = side.context.create_address_handle(side.domain, DatagramAddress::Endpoint(&to)).unwrap();
    let destination = Destination::Datagram { address, qp: to.qp(), qkey: QKEY };
    side.send(SendRequest { destination, ..SendRequest::new(2, Operation::Send, Payload::Inline(b"one")) });
    let arrived: Vec<_> = (0..2).map(|_| side.next()).collect();
    let got = arrived.iter().find(|completion| completion.id == 1).expect("a datagram");
    assert_eq!((got.source, &side.memory[header..header + 3]), (Some(to.qp()), &b"one"[..]));

    side.receive(3, 2000, 1000);
    side.context.attach_multicast(side.qp, GROUP).unwrap();
    peer.barrier();
    // Only one of them speaks; whether it hears itself as a member is the adapter's business.
    let address = side.context.create_address_handle(side.domain, DatagramAddress::Multicast(GROUP)).unwrap();
    let destination = Destination::Datagram { address, qp: QpNumber(0), qkey: QKEY };
    if std::env::var("RDMA_VM_RANK").unwrap() == "0" {
        side.send(SendRequest { destination, ..SendRequest::new(4, Operation::Send, Payload::Inline(b"all")) });
        while side.next().id != 4 {}
    } else {
        side.completed(3);
        assert_eq!((&side.memory[2000 + header..2003 + header], got.source), (&b"all"[..], Some(to.qp())));
    }
    peer.barrier();
}

/// The first machine sends to two queues of the second, by number.
fn xrc(peer: &mut Peer, rank: u32, context: Box<dyn Context>) {
    let mut side = Side::on(context, |_| {});
    side.context.destroy_queue_pair(side.qp).unwrap();
    let domain = side.context.open_xrc_domain().unwrap();
    let mut attributes = QueuePairAttributes::new(side.domain, side.completions);
    attributes.transport = if rank == 0 { Transport::XrcInitiator } else { Transport::XrcTarget(domain) };
    attributes.receive_depth = 0;
    side.qp = side.context.create_queue_pair(&attributes).unwrap();
    let queues = [(), ()].map(|()| {
        let (protection_domain, xrc) = (side.domain, Some((domain, side.completions)));
        let attributes = SharedReceiveQueueAttributes { protection_domain, depth: 16, entries_max: 1, xrc };
        let queue = side.context.create_shared_receive_queue(&attributes).unwrap();
        (queue, side.context.shared_receive_queue_number(queue).unwrap())
    });
    let numbers = peer.exchange(&queues.map(|(_, number)| number.0.to_le_bytes()).concat());
    let remote = Endpoint::parse(&peer.exchange(&side.endpoint().to_bytes())).unwrap();
    fabric::connect(&mut *side.context, side.qp, Some(remote), &ConnectOptions::default()).unwrap();
    for id in 0..10u64 {
        if rank == 0 {
            let at = 4 * (id as usize % 2);
            let number = SrqNumber(u32::from_le_bytes(numbers[at..at + 4].try_into().unwrap()));
            let bytes = id.to_le_bytes();
            let destination = Destination::SharedReceiveQueue(number);
            side.send(SendRequest { destination, ..SendRequest::new(id, Operation::Send, Payload::Inline(&bytes)) });
            side.completed(id);
        } else {
            let list = [side.region.part(8 * id, 8)];
            let receive = ReceiveRequest { id, list: &list };
            assert_eq!(side.context.post_shared_receive(queues[id as usize % 2].0, &[receive]), Ok(1));
            side.completed(id);
            assert_eq!(side.memory[8 * id as usize..][..8], id.to_le_bytes());
        }
    }
    peer.barrier();
}

fn connection(peer: &mut Peer, rank: u32, mut side: Side, remote: RemoteMemory) {
    let half = BYTES as u32 / 2;
    pattern(&mut side.memory[..BYTES / 2], rank as u8);
    let mut expected = vec![0; BYTES / 2];
    pattern(&mut expected, 1 - rank as u8);
    for round in 0..20 {
        side.receive(100 + round, u64::from(half), half);
        peer.barrier();
        let list = [side.region.part(0, half)];
        side.send(SendRequest::new(round, Operation::SendWithImmediate(round as u32), Payload::Memory(&list)));
        let two = [side.next(), side.next()];
        assert!(two.iter().all(|completion| completion.status == WcStatus::Success), "{two:?}");
        let got = two.iter().find(|completion| completion.id == 100 + round).expect("the other's message");
        assert_eq!((got.bytes, got.immediate), (half.into(), Some(round as u32)));
        assert_eq!(side.memory[BYTES / 2..], expected);
        side.memory[BYTES / 2..].fill(0);
        peer.barrier();
    }
    let back = [side.region.part(half.into(), half)];
    side.send(SendRequest::new(1, Operation::RdmaRead(remote), Payload::Memory(&back)));
    assert_eq!(side.completed(1).bytes, half.into());
    assert_eq!(side.memory[BYTES / 2..], expected);
    peer.barrier();
    let there = RemoteMemory { address: remote.address + u64::from(half), ..remote };
    side.send(SendRequest::new(2, Operation::RdmaWrite(there), Payload::Inline(b"written from afar")));
    side.completed(2);
    peer.barrier();
    assert_eq!(&side.memory[BYTES / 2..BYTES / 2 + 17], b"written from afar");
    // Both count in the memory of the first; nothing is lost.
    side.memory[..8].fill(0);
    peer.barrier();
    let counter = if rank == 0 { side.region.remote(0) } else { remote };
    if rank == 1 && side.context.capabilities().atomics {
        for id in 0..50 {
            let old = [side.region.part(half.into(), 8)];
            side.send(SendRequest::new(id, Operation::FetchAdd { remote: counter, add: 3 }, Payload::Memory(&old)));
            side.completed(id);
            assert_eq!(side.memory[BYTES / 2..BYTES / 2 + 8], (id * 3).to_ne_bytes());
        }
    }
    peer.barrier();
    if rank == 0 && side.context.capabilities().atomics {
        assert_eq!(side.memory[..8], 150u64.to_ne_bytes());
    }
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
