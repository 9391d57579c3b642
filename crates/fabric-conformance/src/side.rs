//! Both ends of a case: contexts with what every case needs, memory to look at, and patience.

use std::time::{Duration, Instant};

use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, FabricError, Operation, Payload, ProtectionDomain, QueuePair,
    QueuePairAttributes, QueuePairState, ReceiveRequest, ScatterGather, SendRequest, Transition, WcStatus,
    WorkCompletion,
};

use crate::memory::{LocalBytes, Memory};
use crate::remote::{Remote, is_readable};
use crate::{Fixture, Other};

/// Longer than anything but a hang takes, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One end.
pub(crate) struct Side {
    pub(crate) context: Box<dyn Context>,
    /// Where the context is, if not here.
    remote: Option<Remote>,
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
    /// Polled and not looked at yet.
    pub(crate) done: Vec<WorkCompletion>,
    allocates: bool,
}

impl Side {
    fn new(mut context: Box<dyn Context>, remote: Option<Remote>, allocates: bool) -> Self {
        let domain = context.allocate_protection_domain().expect("a first protection domain");
        let completions = context.create_completion_queue(512).expect("a first completion queue");
        Self { context, remote, domain, completions, done: Vec::new(), allocates }
    }

    /// `len` registered zero bytes, aligned to 8.
    pub(crate) fn memory(&mut self, len: usize, access: Access) -> Memory {
        if self.allocates {
            return self.device_memory(len, access).expect("device memory");
        }
        let (context, domain) = (self.context.as_mut(), self.domain);
        let made = match &self.remote {
            None => LocalBytes::registered(context, domain, len, access).map(Memory::here),
            Some(remote) => remote.registered(domain, len, access).map(Memory::there),
        };
        made.expect("a region")
    }

    /// The same, given out by the device.
    pub(crate) fn device_memory(&mut self, len: usize, access: Access) -> Result<Memory, FabricError> {
        let (context, domain) = (self.context.as_mut(), self.domain);
        match &self.remote {
            None => LocalBytes::allocated(context, domain, len, access).map(Memory::here),
            Some(remote) => remote.allocated(domain, len, access).map(Memory::there),
        }
    }

    /// True if the descriptor of the completion queue is readable now.
    pub(crate) fn is_readable(&self) -> bool {
        let readable = match &self.remote {
            None => self.context.descriptor(self.completions).map(is_readable),
            Some(remote) => remote.is_readable(self.completions),
        };
        readable.expect("a descriptor")
    }

    pub(crate) fn attributes(&self) -> QueuePairAttributes {
        QueuePairAttributes::new(self.domain, self.completions)
    }

    pub(crate) fn send(&mut self, qp: QueuePair, id: u64, operation: Operation, list: &[ScatterGather]) {
        let request = SendRequest::new(id, operation, Payload::Memory(list));
        self.post(qp, &request);
    }

    pub(crate) fn post(&mut self, qp: QueuePair, request: &SendRequest<'_>) {
        assert_eq!(self.context.post_send(qp, std::slice::from_ref(request)), Ok(1), "posting {request:?}");
    }

    pub(crate) fn receive(&mut self, qp: QueuePair, id: u64, list: &[ScatterGather]) {
        assert_eq!(self.context.post_receive(qp, &[ReceiveRequest { id, list }]), Ok(1), "posting receive {id}");
    }

    pub(crate) fn state(&self, qp: QueuePair) -> QueuePairState {
        self.context.queue_pair_state(qp).expect("it exists")
    }

    pub(crate) fn poll(&mut self) {
        let mut into = [WorkCompletion::default(); 16];
        let count = self.context.poll(self.completions, &mut into).expect("the completion queue is whole");
        self.done.extend_from_slice(&into[..count]);
    }
}

/// Both ends.
pub(crate) struct Pair {
    pub(crate) here: Side,
    pub(crate) there: Side,
    other_words: &'static [(WcStatus, WcStatus)],
}

/// Queue pairs of both ends.
#[derive(Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) here: QueuePair,
    pub(crate) there: QueuePair,
}

impl Pair {
    pub(crate) fn open(fixture: &mut dyn Fixture) -> Result<Self, String> {
        let (here, there) = fixture.open()?;
        let allocates = fixture.allocates_memory();
        let here = Side::new(here, None, allocates);
        let there = match there {
            Other::Here(context) => Side::new(context, None, allocates),
            Other::Remote(context) => {
                let remote = context.remote().clone();
                Side::new(Box::new(context), Some(remote), allocates)
            }
        };
        Ok(Self { here, there, other_words: fixture.other_words() })
    }

    /// A reliable connection with the usual options.
    pub(crate) fn connect(&mut self) -> Connection {
        self.connect_with(&ConnectOptions::default(), |_| {})
    }

    pub(crate) fn connect_with(
        &mut self,
        options: &ConnectOptions,
        change: impl Fn(&mut QueuePairAttributes),
    ) -> Connection {
        let (mut ours, mut theirs) = (self.here.attributes(), self.there.attributes());
        change(&mut ours);
        change(&mut theirs);
        self.connect_as(options, &ours, &theirs)
    }

    pub(crate) fn connect_as(
        &mut self,
        options: &ConnectOptions,
        ours: &QueuePairAttributes,
        theirs: &QueuePairAttributes,
    ) -> Connection {
        let here = self.here.context.create_queue_pair(ours).expect("a queue pair");
        let there = self.there.context.create_queue_pair(theirs).expect("a queue pair");
        let connection = Connection { here, there };
        self.join(connection, options);
        connection
    }

    /// Takes two fresh queue pairs to ready.
    pub(crate) fn join(&mut self, connection: Connection, options: &ConnectOptions) {
        let ours = self.here.context.endpoint(connection.here).expect("an endpoint");
        let theirs = self.there.context.endpoint(connection.there).expect("an endpoint");
        fabric::connect(self.there.context.as_mut(), connection.there, Some(ours), options).expect("there connects");
        fabric::connect(self.here.context.as_mut(), connection.here, Some(theirs), options).expect("here connects");
    }

    pub(crate) fn pump(&mut self) {
        self.here.poll();
        self.there.poll();
    }

    /// Polls both until `ready`.
    pub(crate) fn until(&mut self, what: &str, mut ready: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        loop {
            self.pump();
            if ready(self) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{what} does not come; here {:?}, there {:?}",
                self.here.done,
                self.there.done
            );
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// The next `count` completions here.
    pub(crate) fn here(&mut self, count: usize) -> Vec<WorkCompletion> {
        self.until("a completion here", |pair| pair.here.done.len() >= count);
        self.here.done.drain(..count).collect()
    }

    /// The next `count` completions there.
    pub(crate) fn there(&mut self, count: usize) -> Vec<WorkCompletion> {
        self.until("a completion there", |pair| pair.there.done.len() >= count);
        self.there.done.drain(..count).collect()
    }

    /// The next completion here is `id` with `status`.
    pub(crate) fn expect_here(&mut self, id: u64, status: WcStatus, what: &str) -> WorkCompletion {
        let what = format!("here: {what}");
        self.until(&what, |pair| !pair.here.done.is_empty());
        let done = self.here.done.remove(0);
        self.check_end(&done, id, status, &what);
        done
    }

    /// The next completion there is `id` with `status`.
    pub(crate) fn expect_there(&mut self, id: u64, status: WcStatus, what: &str) -> WorkCompletion {
        let what = format!("there: {what}");
        self.until(&what, |pair| !pair.there.done.is_empty());
        let done = self.there.done.remove(0);
        self.check_end(&done, id, status, &what);
        done
    }

    fn check_end(&self, done: &WorkCompletion, id: u64, status: WcStatus, what: &str) {
        let means_it = self.other_words.contains(&(status, done.status));
        assert_eq!((done.id, if means_it { status } else { done.status }), (id, status), "{what}");
    }

    /// A message goes through: the connection lives, and everything before it is over.
    pub(crate) fn check_alive(&mut self, connection: Connection) {
        let target = self.there.memory(8, Access::LOCAL);
        self.there.receive(connection.there, 991, &[target.part(0, 8)]);
        self.here.post(connection.here, &SendRequest::new(990, Operation::Send, Payload::Inline(b"still up")));
        self.expect_here(990, WcStatus::Success, "a message that must go through");
        self.expect_there(991, WcStatus::Success, "a message that must go through");
        assert_eq!(target.all(), b"still up");
    }

    /// Nothing is left over.
    pub(crate) fn check_quiet(&mut self) {
        self.pump();
        assert!(self.here.done.is_empty() && self.there.done.is_empty(), "{:?} {:?}", self.here.done, self.there.done);
    }
}

/// Moves a queue pair to the error state.
pub(crate) fn break_down(side: &mut Side, qp: QueuePair) -> Result<(), FabricError> {
    side.context.modify(qp, &Transition::Error)
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(31)).to_le_bytes()[7])
        .collect()
}
