//! How often a request is tried whose target is not ready, counted on the wire; time is virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fabric::{
    CompletionQueue, ConnectOptions, Context, FabricError, Operation, Payload, QueuePair, QueuePairAttributes,
    ReceiveRequest, ReceiverNotReadyRetry, SendRequest, WcStatus, WorkCompletion,
};

use crate::SoftContext;
use crate::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Responder, SendOutcome};
use crate::sim::{SimLink, SimNetwork, SimPlan};
use crate::wire::{self, Kind};

/// Polls of both ends after which nothing more is to be expected: time goes on by itself.
const TURNS_MAX: u32 = 100_000;

/// What went over a link.
#[derive(Default)]
struct Counts {
    sends: AtomicU32,
    refusals: AtomicU32,
}

/// A link that counts what it sends.
struct Counting {
    below: SimLink,
    counts: Arc<Counts>,
}

impl Link for Counting {
    fn properties(&self) -> &LinkProperties {
        self.below.properties()
    }

    fn address(&self) -> Vec<u8> {
        self.below.address()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        self.below.resolve(address)
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        match wire::parse(header).map(|packet| packet.kind) {
            Some(Kind::Send) => self.counts.sends.fetch_add(1, Ordering::Relaxed),
            Some(Kind::Refuse) => self.counts.refusals.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        self.below.send(to, header, payload)
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        self.below.progress(responder);
    }

    fn now(&self) -> Duration {
        self.below.now()
    }

    fn recall(&mut self, address: u64, len_bytes: u64) {
        self.below.recall(address, len_bytes);
    }
}

struct End {
    context: SoftContext<Counting>,
    counts: Arc<Counts>,
    completions: CompletionQueue,
    qp: QueuePair,
}

impl End {
    fn new(network: &SimNetwork) -> Self {
        let counts = Arc::new(Counts::default());
        let link = Counting { below: network.link().expect("a link"), counts: Arc::clone(&counts) };
        let mut context = SoftContext::new(link);
        let domain = context.allocate_protection_domain().expect("a domain");
        let completions = context.create_completion_queue(16).expect("a queue");
        let qp = context.create_queue_pair(&QueuePairAttributes::new(domain, completions)).expect("a queue pair");
        Self { context, counts, completions, qp }
    }

    fn connect(&mut self, to: &Self, options: &ConnectOptions) {
        let remote = to.context.endpoint(to.qp).expect("an endpoint");
        fabric::connect(&mut self.context, self.qp, Some(remote), options).expect("connects");
    }

    fn poll(&mut self) -> Option<WorkCompletion> {
        let mut into = [WorkCompletion::default()];
        let count = self.context.poll(self.completions, &mut into).expect("a whole queue");
        (count > 0).then_some(into[0])
    }
}

/// Sends one message to a queue pair that is prepared, and got ready when so many tries were refused. How it ended, after
/// how many tries, and the virtual time that took.
fn tried(
    options: &ConnectOptions,
    prepare: impl Fn(&mut End, &End),
    ready_after: u32,
    get_ready: impl Fn(&mut End, &End),
) -> (WcStatus, u32, Duration) {
    let network = SimNetwork::new(SimPlan::new(1));
    let (mut here, mut there) = (End::new(&network), End::new(&network));
    here.connect(&there, options);
    prepare(&mut there, &here);
    let request = SendRequest::new(1, Operation::Send, Payload::Inline(b""));
    assert_eq!(here.context.post_send(here.qp, &[request]), Ok(1));
    let mut is_ready = false;
    for _ in 0..TURNS_MAX {
        if let Some(done) = here.poll() {
            assert_eq!(is_ready, done.status == WcStatus::Success);
            return (done.status, here.counts.sends.load(Ordering::Relaxed), network.now());
        }
        there.poll();
        if !is_ready && there.counts.refusals.load(Ordering::Relaxed) == ready_after {
            get_ready(&mut there, &here);
            is_ready = true;
        }
    }
    panic!("it does not end");
}

/// Tries that are never made.
const NEVER: u32 = 100;
const TIMER: Duration = Duration::from_micros(640);

fn with_count(count: u8) -> ConnectOptions {
    ConnectOptions {
        receiver_not_ready_retry: ReceiverNotReadyRetry::Count(count),
        receiver_not_ready_timer: TIMER,
        ..ConnectOptions::default()
    }
}

fn receive(there: &mut End, _: &End) {
    assert_eq!(there.context.post_receive(there.qp, &[ReceiveRequest { id: 2, list: &[] }]), Ok(1));
}

#[test]
#[cfg_attr(miri, ignore = "thousands of polls of safe code")]
fn a_receiver_that_is_not_ready_is_tried_as_often_as_was_asked_for() {
    for count in [0, 1, 3, 6] {
        let options = with_count(count);
        let connect = |there: &mut End, here: &End| there.connect(here, &options);
        let (status, tries, time) = tried(&options, connect, NEVER, receive);
        let count = u32::from(count);
        assert_eq!((status, tries), (WcStatus::ReceiverNotReadyRetryExceeded, 1 + count), "{count}");
        assert!(time >= TIMER * count, "{count} times the receiver's timer, in virtual time: {time:?}");
        // Before any of them but the first it may become ready.
        for refusals in 1..=count {
            let (status, tries, _) = tried(&options, connect, refusals, receive);
            assert_eq!((status, tries), (WcStatus::Success, refusals + 1), "{count}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of polls of safe code")]
fn a_peer_that_is_not_connected_is_tried_as_often_as_was_asked_for() {
    // The field has three bits.
    for (count, most) in [(0, 0), (1, 1), (3, 3), (7, 7), (200, 7)] {
        let timeout = Duration::from_millis(4);
        let options = ConnectOptions { retry_count: count, timeout, ..ConnectOptions::default() };
        let connect = |there: &mut End, here: &End| {
            there.connect(here, &options);
            receive(there, here);
        };
        let (status, tries, time) = tried(&options, |_, _| {}, NEVER, connect);
        assert_eq!((status, tries), (WcStatus::TransportRetryExceeded, 1 + most), "{count}");
        assert!(time >= timeout * most, "{count} times the timeout, in virtual time: {time:?}");
        for refusals in 1..=most {
            let (status, tries, _) = tried(&options, |_, _| {}, refusals, connect);
            assert_eq!((status, tries), (WcStatus::Success, refusals + 1), "{count}");
        }
    }
}
