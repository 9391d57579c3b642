//! For tests: a link on which answers ride, where it is always the same moment and whose descriptor tells of nothing, so
//! that what happens does not depend on how fast the test runs; and two ends of a connection over it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use fabric::{
    CompletionQueue, ConnectOptions, Context, FabricError, Operation, Payload, ProtectionDomain, QueuePair,
    QueuePairAttributes, ReceiveRequest, SendRequest, WcStatus, WorkCompletion,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::SoftContext;
use crate::link::{HEADER_BYTES, Link, LinkPeer, LinkProperties, Outgoing, Responder, SendOutcome};
use crate::loopback::{LoopbackHub, LoopbackLink};

/// Longer than anything but a hang takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Quiet {
    below: LoopbackLink,
    properties: LinkProperties,
    never: OwnedFd,
}

impl Link for Quiet {
    fn properties(&self) -> &LinkProperties {
        &self.properties
    }

    fn address(&self) -> Vec<u8> {
        self.below.address()
    }

    fn resolve(&mut self, address: &[u8]) -> Result<LinkPeer, FabricError> {
        self.below.resolve(address)
    }

    fn send(&mut self, to: LinkPeer, header: &[u8; HEADER_BYTES], payload: Outgoing<'_>) -> SendOutcome {
        self.below.send(to, header, payload)
    }

    fn progress(&mut self, responder: &mut dyn Responder) {
        self.below.progress(responder);
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn recall(&mut self, address: u64, len_bytes: u64) {
        self.below.recall(address, len_bytes);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.never.as_fd())
    }
}

/// One end.
pub(crate) struct End<C> {
    pub(crate) context: C,
    completions: CompletionQueue,
    domain: ProtectionDomain,
    qp: QueuePair,
}

/// Two adapters that are not connected yet.
pub(crate) fn adapters() -> [SoftContext<Quiet>; 2] {
    let hub = LoopbackHub::new();
    [(); 2].map(|()| {
        let below = hub.link().expect("a bell");
        let properties = LinkProperties { answers_ride: true, ..below.properties().clone() };
        let never = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
        SoftContext::new(Quiet { below, properties, never })
    })
}

/// Their ends, connected.
pub(crate) fn connect<A: Context, B: Context>(here: A, there: B) -> (End<A>, End<B>) {
    let (mut here, mut there) = (End::new(here), End::new(there));
    let both = (here.qp, there.qp);
    join(&mut here, &mut there, both);
    (here, there)
}

/// A second pair of queue pairs, beside the first and with its completion queues.
pub(crate) fn connect_others(here: &mut End<impl Context>, there: &mut End<impl Context>) -> (QueuePair, QueuePair) {
    let others = (here.new_queue_pair(), there.new_queue_pair());
    join(here, there, others);
    others
}

fn join(here: &mut End<impl Context>, there: &mut End<impl Context>, (near, far): (QueuePair, QueuePair)) {
    let ours = here.context.endpoint(near).expect("an endpoint");
    let theirs = there.context.endpoint(far).expect("an endpoint");
    let options = ConnectOptions::default();
    fabric::connect(&mut here.context, near, Some(theirs), &options).expect("connects");
    fabric::connect(&mut there.context, far, Some(ours), &options).expect("connects");
}

impl<C: Context> End<C> {
    fn new(mut context: C) -> Self {
        let domain = context.allocate_protection_domain().expect("a domain");
        let completions = context.create_completion_queue(256).expect("a queue");
        let qp = context.create_queue_pair(&QueuePairAttributes::new(domain, completions)).expect("a queue pair");
        Self { context, completions, domain, qp }
    }

    fn new_queue_pair(&mut self) -> QueuePair {
        let attributes = QueuePairAttributes::new(self.domain, self.completions);
        self.context.create_queue_pair(&attributes).expect("a queue pair")
    }

    /// Posts a receive, number 2, for the next message.
    pub(crate) fn receive(&mut self) {
        self.receive_at(self.qp);
    }

    /// The same at another queue pair.
    pub(crate) fn receive_at(&mut self, qp: QueuePair) {
        assert_eq!(self.context.post_receive(qp, &[ReceiveRequest { id: 2, list: &[] }]), Ok(1));
    }

    /// Sends a message of no bytes, number 1.
    pub(crate) fn send(&mut self) {
        self.send_with_hurry(true);
    }

    /// The same; somebody waits for its completion, or nobody does.
    pub(crate) fn send_with_hurry(&mut self, hurry: bool) {
        self.post(self.qp, hurry);
    }

    /// As [`End::send`], through another queue pair.
    pub(crate) fn send_at(&mut self, qp: QueuePair) {
        self.post(qp, true);
    }

    fn post(&mut self, qp: QueuePair, hurry: bool) {
        let request = SendRequest::new(1, Operation::Send, Payload::Memory(&[])).with_hurry(hurry);
        assert_eq!(self.context.post_send(qp, &[request]), Ok(1));
    }

    /// The numbers of what is complete.
    pub(crate) fn poll(&mut self) -> Vec<u64> {
        let mut into = [WorkCompletion::default(); 8];
        let count = self.context.poll(self.completions, &mut into).expect("a whole queue");
        assert!(into[..count].iter().all(|done| done.status == WcStatus::Success), "{into:?}");
        into[..count].iter().map(|done| done.id).collect()
    }

    /// Polls until this number is complete. A queue gives what it holds before the adapter looks for more, and an
    /// adapter with a thread may have put something there: the first poll need not be the one.
    pub(crate) fn poll_for(&mut self, id: u64) {
        let start = Instant::now();
        while !self.poll().contains(&id) {
            assert!(start.elapsed() < PATIENCE, "number {id} does not complete");
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Messages there and back until acknowledgements wait for the next to ride with.
pub(crate) fn teach(here: &mut End<impl Context>, there: &mut End<impl Context>, turns: u32) {
    for _ in 0..turns {
        there.receive();
        here.receive();
        here.send();
        there.poll_for(2);
        there.send();
        here.poll_for(2);
    }
}

/// Whether the thread of this name takes SIGTERM, which programs handle.
pub(crate) fn takes_signals(name: &str) -> bool {
    const SIGTERM: u32 = 15;
    loop {
        for task in std::fs::read_dir("/proc/self/task").expect("it is there").flatten() {
            // Threads of other tests may end meanwhile.
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            if read("comm").trim() == name {
                let status = read("status");
                let Some(blocked) = status.lines().find_map(|line| line.strip_prefix("SigBlk:")) else { continue };
                let blocked = u64::from_str_radix(blocked.trim(), 16).expect("a set");
                return blocked & 1 << (SIGTERM - 1) == 0;
            }
        }
        // It names itself when it begins.
        std::thread::sleep(Duration::from_millis(1));
    }
}
