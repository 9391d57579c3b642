//! One end of a connection over sockets, with memory to send from and into.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base::log::{Level, Log};
use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, LocalMemory, MemoryRegion, NotifyOn, Operation, Payload,
    ProtectionDomain, QueuePair, QueuePairAttributes, ReceiveRequest, SendRequest, WorkCompletion,
};
use fabric_soft::SoftContext;
use fabric_soft::tcp::{JobSecret, TcpLink, TcpOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longer than anything but a hang takes.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of each side's memory.
pub const MEMORY_BYTES: usize = 1 << 20;

pub struct Side {
    pub adapter: SoftContext<TcpLink>,
    pub domain: ProtectionDomain,
    pub completions: CompletionQueue,
    pub qp: QueuePair,
    pub region: MemoryRegion,
    memory: *mut u8,
    memory_bytes: usize,
    pub done: Vec<WorkCompletion>,
    into: Box<[WorkCompletion; 64]>,
}

impl Side {
    /// A side of the job `secret`, with a megabyte of memory and options changed by `change`.
    pub fn new(secret: u8, change: impl FnOnce(&mut TcpOptions)) -> Self {
        let listen = vec!["127.0.0.1:0".parse().expect("an address")];
        let mut options = TcpOptions::new(JobSecret::new([secret; 32]), listen, Log::new(Level::Error, None));
        options.patience = PATIENCE;
        change(&mut options);
        Self::with(options, MEMORY_BYTES)
    }

    /// A side with so much memory.
    pub fn with(options: TcpOptions, memory_bytes: usize) -> Self {
        let mut adapter = SoftContext::new(TcpLink::new(options).expect("a link"));
        let domain = adapter.allocate_protection_domain().expect("a domain");
        let completions = adapter.create_completion_queue(4096).expect("a queue");
        let mut attributes = QueuePairAttributes::new(domain, completions);
        attributes.send_depth = 256;
        attributes.receive_depth = 256;
        let qp = adapter.create_queue_pair(&attributes).expect("a queue pair");
        let words: &'static mut [u64] = Box::leak(vec![0u64; memory_bytes / 8].into_boxed_slice());
        let memory = words.as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever, and is reached through raw pointers only from now on.
        let range = unsafe { WriteRange::new(memory, memory_bytes) };
        let region = adapter.register(domain, LocalMemory::Target(range), Access::REMOTE_ALL).expect("a region");
        Self {
            adapter,
            domain,
            completions,
            qp,
            region,
            memory,
            memory_bytes,
            done: Vec::new(),
            into: Box::new([WorkCompletion::default(); 64]),
        }
    }

    pub fn socket(&mut self) -> SocketAddr {
        self.adapter.link().listening()[0]
    }

    pub fn poll(&mut self) {
        let count = self.adapter.poll(self.completions, &mut self.into[..]).expect("the queue is whole");
        self.done.extend_from_slice(&self.into[..count]);
    }

    /// Sleeps on the completion descriptor for so long, unless something is complete; true if that woke.
    pub fn sleep(&mut self, patience: Duration) -> bool {
        self.adapter.arm(self.completions, NotifyOn::Any).expect("a whole queue");
        self.poll();
        if !self.done.is_empty() {
            return false;
        }
        let woke = self.wakes_within(patience);
        self.adapter.acknowledge(self.completions).expect("a whole queue");
        woke
    }

    /// Whether the completion descriptor becomes readable in so long.
    pub fn wakes_within(&mut self, patience: Duration) -> bool {
        let descriptor = self.adapter.descriptor(self.completions).expect("a descriptor");
        let mut wanted = [PollFd::new(&descriptor, PollFlags::IN)];
        let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        poll(&mut wanted, Some(&patience)).expect("polls") > 0
    }

    pub fn fill(&self, offset: usize, len: usize, seed: u8) {
        assert!(offset + len <= self.memory_bytes);
        for at in 0..len {
            // SAFETY: inside the allocation, which is never freed.
            unsafe { self.memory.add(offset + at).write_volatile(byte_at(at, seed)) };
        }
    }

    pub fn check(&self, offset: usize, len: usize, seed: u8, what: &str) {
        assert!(offset + len <= self.memory_bytes);
        for at in 0..len {
            // SAFETY: inside the allocation, which is never freed.
            let byte = unsafe { self.memory.add(offset + at).read_volatile() };
            assert_eq!(byte, byte_at(at, seed), "{what}: byte {at} of {len}");
        }
    }

    pub fn word(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= self.memory_bytes && offset.is_multiple_of(8));
        // SAFETY: inside the allocation, aligned.
        unsafe { self.memory.add(offset).cast::<u64>().read_volatile() }
    }

    pub fn set_word(&mut self, offset: usize, value: u64) {
        assert!(offset + 8 <= self.memory_bytes && offset.is_multiple_of(8));
        // SAFETY: inside the allocation, aligned.
        unsafe { self.memory.add(offset).cast::<u64>().write_volatile(value) }
    }

    pub fn post(&mut self, id: u64, operation: Operation, offset: usize, len: usize) {
        let list = [self.region.part(offset as u64, len as u32)];
        let request = SendRequest::new(id, operation, Payload::Memory(&list));
        assert_eq!(self.adapter.post_send(self.qp, &[request]), Ok(1));
    }

    pub fn receive(&mut self, id: u64, offset: usize, len: usize) {
        let list = [self.region.part(offset as u64, len as u32)];
        assert_eq!(self.adapter.post_receive(self.qp, &[ReceiveRequest { id, list: &list }]), Ok(1));
    }
}

pub fn byte_at(at: usize, seed: u8) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7] ^ seed
}

pub fn join(sides: &mut [Side; 2]) {
    let [here, there] = sides;
    let ours = here.adapter.endpoint(here.qp).expect("an endpoint");
    let theirs = there.adapter.endpoint(there.qp).expect("an endpoint");
    let options = ConnectOptions::default();
    fabric::connect(&mut here.adapter, here.qp, Some(theirs), &options).expect("connects");
    fabric::connect(&mut there.adapter, there.qp, Some(ours), &options).expect("connects");
}

pub fn until(sides: &mut [Side; 2], what: &str, mut ready: impl FnMut(&mut [Side; 2]) -> bool) {
    let start = Instant::now();
    while !ready(sides) {
        assert!(start.elapsed() < PATIENCE, "{what} does not come: {:?} {:?}", sides[0].done, sides[1].done);
        sides.iter_mut().for_each(Side::poll);
        std::thread::sleep(Duration::from_micros(20));
    }
}

pub fn take(side: &mut Side) -> Option<WorkCompletion> {
    (!side.done.is_empty()).then(|| side.done.remove(0))
}
