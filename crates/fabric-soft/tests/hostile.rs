//! A peer that sends anything: whatever comes, the adapter lets it write only where it may, keeps its other queue
//! pairs, and never panics.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::memory::WriteRange;
use fabric::{
    Access, ConnectOptions, Context, DeviceKind, Endpoint, FabricError, LocalMemory, MemoryRegion, Operation, Payload,
    QpNumber, QueuePair, QueuePairAttributes, ReceiveRequest, SendRequest, SharedReceiveQueueAttributes, Transport,
    WorkCompletion, WriteOrder,
};
use fabric_soft::SoftContext;
use fabric_soft::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Responder, SendOutcome};
use proptest::prelude::*;

/// What the link hands to the adapter, and what it saw.
#[derive(Default)]
struct Wire {
    incoming: VecDeque<([u8; HEADER_BYTES], u64, Ending)>,
    /// Every place a payload was told to go.
    placed: Vec<(u64, u64)>,
    room: u64,
    is_unfinished: bool,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Finished,
    /// The peer goes before its payload has come.
    Lost,
    /// The next packet comes without this one having been finished.
    Dropped,
    /// The payload comes with the next progress.
    Later,
}

struct HostileLink {
    wire: Arc<Mutex<Wire>>,
    properties: LinkProperties,
}

impl Link for HostileLink {
    fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    fn address(&self) -> Vec<u8> {
        b"here".to_vec()
    }

    fn resolve(&mut self, _address: &[u8]) -> Result<LinkPeer, FabricError> {
        Ok(LinkPeer(0))
    }

    fn send(&mut self, _to: LinkPeer, _header: &[u8; HEADER_BYTES], _payload: Outgoing<'_>) -> SendOutcome {
        let mut wire = self.wire.lock().expect("one thread");
        if wire.room == 0 {
            return SendOutcome::Full;
        }
        wire.room -= 1;
        SendOutcome::Taken
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        if std::mem::take(&mut self.wire.lock().expect("one thread").is_unfinished) {
            responder.finish(LinkPeer(0));
        }
        loop {
            let Some((header, len, ending)) = self.wire.lock().expect("one thread").incoming.pop_front() else {
                return;
            };
            let placement = responder.begin(LinkPeer(0), &header, len);
            let mut left = len;
            for range in &placement.ranges {
                let here = left.min(range.len_bytes() as u64);
                self.wire.lock().expect("one thread").placed.push((range.address() as u64, here));
                left -= here;
            }
            match ending {
                Ending::Finished => responder.finish(LinkPeer(0)),
                Ending::Lost => responder.lost(LinkPeer(0)),
                Ending::Dropped => {}
                Ending::Later => self.wire.lock().expect("one thread").is_unfinished = true,
            }
        }
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn recall(&mut self, _address: u64, _len_bytes: u64) {}
}

/// The hostile peer's own queue pair, as it told us.
const FAR_QP: u32 = 77;
const BYTES: usize = 256;

struct Victim {
    adapter: SoftContext<HostileLink>,
    wire: Arc<Mutex<Wire>>,
    completions: fabric::CompletionQueue,
    qps: Vec<QueuePair>,
    /// What the peer may write, and what only receives may be written through, and what nobody may.
    open: MemoryRegion,
    inbox: MemoryRegion,
    closed: MemoryRegion,
    shared: u32,
}

fn victim() -> Victim {
    let wire = Arc::new(Mutex::new(Wire::default()));
    let properties = LinkProperties {
        kind: DeviceKind::Tcp,
        description: "hostile".into(),
        message_max_bytes: 1 << 20,
        datagram_max_bytes: 1024,
        asynchronous: Ok(()),
        single_copy: Ok(()),
        multicast: true,
        mapped_memory: false,
        answers_ride: false,
        write_order: WriteOrder::ByWord,
        writes_wake: false,
        peer_bytes: 0,
    };
    let mut adapter = SoftContext::new(HostileLink { wire: Arc::clone(&wire), properties });
    let domain = adapter.allocate_protection_domain().unwrap();
    let completions = adapter.create_completion_queue(4096).unwrap();
    let region = |adapter: &mut SoftContext<HostileLink>, access| {
        let words: &'static mut [u64] = Box::leak(vec![0u64; BYTES / 8].into_boxed_slice());
        // SAFETY: leaked memory is valid for ever; nobody reads it in this test.
        let range = unsafe { WriteRange::new(words.as_mut_ptr().cast(), BYTES) };
        adapter.register(domain, LocalMemory::Target(range), access).unwrap()
    };
    let open = region(&mut adapter, Access::REMOTE_ALL);
    let inbox = region(&mut adapter, Access::LOCAL);
    let closed = region(&mut adapter, Access::LOCAL);
    let xrc = adapter.open_xrc_domain().unwrap();
    let attributes = SharedReceiveQueueAttributes {
        protection_domain: domain,
        depth: 8,
        entries_max: 2,
        xrc: Some((xrc, completions)),
    };
    let shared = adapter.create_shared_receive_queue(&attributes).unwrap();
    let number = adapter.shared_receive_queue_number(shared).unwrap().0;
    let list = [inbox.part(16, 64)];
    adapter.post_shared_receive(shared, &[ReceiveRequest { id: 5, list: &list }]).unwrap();
    let mut qps = Vec::new();
    for transport in [Transport::ReliableConnection, Transport::UnreliableDatagram, Transport::XrcTarget(xrc)] {
        let mut attributes = QueuePairAttributes::new(domain, completions);
        attributes.transport = transport;
        let qp = adapter.create_queue_pair(&attributes).unwrap();
        let remote = transport.is_connected().then(|| Endpoint::new(DeviceKind::Tcp, QpNumber(FAR_QP), b"there"));
        fabric::connect(&mut adapter, qp, remote, &ConnectOptions::default()).unwrap();
        if transport.receives() {
            for id in 0..4 {
                let list = [inbox.part(id * 8, 32), inbox.part(128, 64)];
                adapter.post_receive(qp, &[ReceiveRequest { id, list: &list }]).unwrap();
            }
        }
        qps.push(qp);
    }
    // Work of ours that answers may claim to answer.
    for (id, operation) in
        [Operation::RdmaRead(open.remote(0)), Operation::FetchAdd { remote: open.remote(0), add: 1 }, Operation::Send]
            .into_iter()
            .enumerate()
    {
        let list = [inbox.part(200, 8)];
        adapter.post_send(qps[0], &[SendRequest::new(id as u64, operation, Payload::Memory(&list))]).unwrap();
    }
    Victim { adapter, wire, completions, qps, open, inbox, closed, shared: number }
}

/// One packet, mostly well formed, with fields that are right, nearly right, or anything.
#[derive(Clone, Debug)]
struct Guess {
    kind: u8,
    flags: u8,
    refusal: u8,
    destination: (u8, u32),
    source: (bool, u32),
    sequence: u32,
    selector: (bool, u32),
    rkey: (u8, u32),
    address: (u8, u64),
    len: (u8, u64),
    payload_differs: bool,
    operands: (u64, u64),
    acknowledged: u32,
    ending: u8,
}

fn guess() -> impl Strategy<Value = Guess> {
    let field = || (0u8..6, any::<u32>());
    let wide = || (0u8..6, any::<u64>());
    let kinds = prop::sample::select(vec![0u8, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 18, 19, 20, 21, 255]);
    (
        (kinds, 0u8..8, 0u8..8, field(), (prop::bool::weighted(0.9), any::<u32>()), 0u32..4),
        ((prop::bool::weighted(0.8), any::<u32>()), field(), wide(), wide(), prop::bool::weighted(0.05)),
        (any::<(u64, u64)>(), 0u8..24, 0u32..4),
    )
        .prop_map(|(first, second, third)| Guess {
            kind: first.0,
            flags: first.1,
            refusal: first.2,
            destination: first.3,
            source: first.4,
            sequence: first.5,
            selector: second.0,
            rkey: second.1,
            address: second.2,
            len: second.3,
            payload_differs: second.4,
            operands: third.0,
            ending: third.1,
            acknowledged: third.2,
        })
}

impl Victim {
    /// The packet that a guess stands for.
    fn packet(&self, guess: &Guess) -> ([u8; HEADER_BYTES], u64, Ending) {
        let number = |index: usize| self.adapter.endpoint(self.qps[index]).unwrap().qp().0;
        let destination = match guess.destination {
            (0 | 1, _) => number(0),
            (2, _) => number(1),
            (3, _) => number(2),
            (4, _) => 0x00ff_ffff,
            (_, any) => any,
        };
        let rkey = match guess.rkey {
            (0..=2, _) => self.open.rkey.0,
            (3, _) => self.closed.rkey.0,
            (4, _) => self.inbox.rkey.0,
            (_, any) => any,
        };
        let address = match guess.address {
            (0, _) => self.open.address,
            (1, at) => self.open.address + at % BYTES as u64,
            (2, at) => self.open.address.wrapping_sub(at % 64),
            (3, _) => self.closed.address,
            (4, at) => self.open.address + ((at % BYTES as u64) & !7),
            (_, any) => any,
        };
        let len = match guess.len {
            (0, _) => 0,
            (1, len) => len % 16,
            (2, len) => len % 300,
            (3, _) => BYTES as u64,
            (4, _) => 8,
            (_, any) => any,
        };
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&[guess.kind, guess.flags, guess.refusal, 2]);
        let source = if guess.source.0 { FAR_QP } else { guess.source.1 };
        let selector =
            if guess.selector.0 { self.shared * u32::from(guess.destination.0 == 3) } else { guess.selector.1 };
        let halves = [destination, source, guess.sequence, selector, rkey, guess.acknowledged];
        for (at, half) in (8..).step_by(4).zip(halves) {
            header[at..at + 4].copy_from_slice(&half.to_le_bytes());
        }
        for (at, word) in [(32, address), (40, len), (48, guess.operands.0), (56, guess.operands.1)] {
            header[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let payload = if guess.kind == 4 { 0 } else { len };
        let ending = match guess.ending {
            0 => Ending::Lost,
            1 => Ending::Dropped,
            _ => Ending::Finished,
        };
        (header, if guess.payload_differs { payload ^ 5 } else { payload }, ending)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_packets_reach_only_what_they_may(guesses in prop::collection::vec(guess(), 1..40), room in 0u64..60) {
        let mut victim = victim();
        victim.wire.lock().expect("one thread").room = room;
        let mut into = [WorkCompletion::default(); 64];
        for chunk in guesses.chunks(5) {
            for guess in chunk {
                let packet = victim.packet(guess);
                victim.wire.lock().expect("one thread").incoming.push_back(packet);
            }
            victim.adapter.poll(victim.completions, &mut into).expect("the completion queue holds them all");
        }
        let inside = |region: &MemoryRegion, start: u64, len: u64| {
            start >= region.address && start + len <= region.address + region.len_bytes
        };
        for (start, len) in victim.wire.lock().expect("one thread").placed.iter().copied() {
            prop_assert!(!inside(&victim.closed, start, len) || len == 0, "what nobody opened");
        }
        // Each receive completes at most once, whatever was claimed to have come.
        for qp in victim.qps.clone() {
            victim.adapter.modify(qp, &fabric::Transition::Error).expect("from anywhere");
        }
        // An adapter that survived takes new connections and works with itself.
        let domain = victim.adapter.allocate_protection_domain().unwrap();
        let mut attributes = QueuePairAttributes::new(domain, victim.completions);
        attributes.send_completions = victim.adapter.create_completion_queue(8).unwrap();
        let qp = victim.adapter.create_queue_pair(&attributes).unwrap();
        let own = victim.adapter.endpoint(qp).unwrap();
        fabric::connect(&mut victim.adapter, qp, Some(own), &ConnectOptions::default()).unwrap();
        victim.adapter.post_receive(qp, &[ReceiveRequest { id: 9, list: &[] }]).unwrap();
        victim.adapter.post_send(qp, &[SendRequest::new(8, Operation::Send, Payload::Inline(b""))]).unwrap();
        let mut done = 0;
        for _ in 0..10 {
            done += victim.adapter.poll(attributes.send_completions, &mut into).unwrap();
        }
        prop_assert_eq!((done, into[0].status), (1, fabric::WcStatus::Success));
    }
}

/// A receive of a shared queue belongs to the queue: it ends with a completion although its queue pair is gone.
#[test]
fn a_shared_receive_outlives_the_queue_pair_that_was_filling_it() {
    let mut victim = victim();
    let target = victim.qps[2];
    let guess = Guess {
        kind: 1,
        flags: 0,
        refusal: 0,
        destination: (3, 0),
        source: (true, 0),
        sequence: 0,
        selector: (true, 0),
        rkey: (0, 0),
        address: (0, 0),
        len: (4, 0),
        payload_differs: false,
        operands: (0, 0),
        acknowledged: 0,
        ending: 9,
    };
    let (header, len, _) = victim.packet(&guess);
    victim.wire.lock().expect("one thread").incoming.push_back((header, len, Ending::Later));
    let mut into = [WorkCompletion::default(); 4];
    assert_eq!(victim.adapter.poll(victim.completions, &mut into), Ok(0), "its payload is still to come");
    victim.adapter.destroy_queue_pair(target).expect("it exists");
    assert_eq!(victim.adapter.poll(victim.completions, &mut into), Ok(1));
    assert_eq!((into[0].id, into[0].status), (5, fabric::WcStatus::WorkRequestFlushed));
}
