//! Both ends of a case: contexts with what every case needs, memory to look at, and patience.

use std::time::{Duration, Instant};

use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, FabricError, LocalMemory, MemoryRegion, Operation, Payload,
    ProtectionDomain, QueuePair, QueuePairAttributes, QueuePairState, ReceiveRequest, RemoteMemory, ScatterGather,
    SendRequest, SharedMemory, Transition, WcStatus, WorkCompletion,
};

use crate::Fixture;

/// Longer than anything but a hang takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Registered bytes of a case.
pub(crate) struct Memory {
    bytes: *mut [u8],
    pub(crate) region: MemoryRegion,
    /// Where the device gave the bytes out.
    _keep: Option<SharedMemory>,
}

impl Memory {
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the allocation, which is never freed, or kept; peers may write too, hence volatile.
            unsafe { self.bytes.cast::<u8>().add(offset + index).write_volatile(*byte) };
        }
    }

    pub(crate) fn fill(&self, byte: u8) {
        self.write(0, &vec![byte; self.bytes.len()]);
    }

    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.bytes.len());
        // SAFETY: as in `write`.
        (offset..offset + len).map(|at| unsafe { self.bytes.cast::<u8>().add(at).read_volatile() }).collect()
    }

    pub(crate) fn all(&self) -> Vec<u8> {
        self.read(0, self.bytes.len())
    }

    pub(crate) fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.read(offset, 8).try_into().expect("eight bytes"))
    }

    pub(crate) fn part(&self, offset: u64, len: u32) -> ScatterGather {
        self.region.part(offset, len)
    }

    pub(crate) fn remote(&self, offset: u64) -> RemoteMemory {
        self.region.remote(offset)
    }
}

/// One end.
pub(crate) struct Side {
    pub(crate) context: Box<dyn Context>,
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
    /// Polled and not looked at yet.
    pub(crate) done: Vec<WorkCompletion>,
    allocates: bool,
}

impl Side {
    fn new(mut context: Box<dyn Context>, allocates: bool) -> Self {
        let domain = context.allocate_protection_domain().expect("a first protection domain");
        let completions = context.create_completion_queue(512).expect("a first completion queue");
        Self { context, domain, completions, done: Vec::new(), allocates }
    }

    /// `len` registered zero bytes, aligned to 8; never freed, so no mistake of a device can hurt the test itself.
    pub(crate) fn memory(&mut self, len: usize, access: Access) -> Memory {
        if self.allocates {
            return self.allocated(len, access);
        }
        let words: &'static mut [u64] = Box::leak(vec![0u64; len.div_ceil(8).max(1)].into_boxed_slice());
        let start = words.as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever, and from now on it is reached through raw pointers only.
        let range = unsafe { WriteRange::new(start, len) };
        let region = self.context.register(self.domain, LocalMemory::Target(range), access).expect("a region");
        Memory { bytes: std::ptr::slice_from_raw_parts_mut(start, len), region, _keep: None }
    }

    /// As [`Side::memory`], given out by the device.
    fn allocated(&mut self, len: usize, access: Access) -> Memory {
        let (region, memory) = self.context.allocate(self.domain, len, access).expect("device memory");
        let bytes = std::ptr::slice_from_raw_parts_mut(memory.start().as_ptr(), len);
        Memory { bytes, region, _keep: Some(memory) }
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
        let [here, there] = fixture.open()?;
        let allocates = fixture.allocates_memory();
        let [here, there] = [here, there].map(|context| Side::new(context, allocates));
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
        let done = self.here(1)[0];
        self.check_end(&done, id, status, &format!("here: {what}"));
        done
    }

    /// The next completion there is `id` with `status`.
    pub(crate) fn expect_there(&mut self, id: u64, status: WcStatus, what: &str) -> WorkCompletion {
        let done = self.there(1)[0];
        self.check_end(&done, id, status, &format!("there: {what}"));
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
