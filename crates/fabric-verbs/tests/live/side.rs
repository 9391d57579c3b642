//! One end of a connection, for tests on real adapters.

use base::memory::WriteRange;
use fabric::{
    Access, CompletionQueue, ConnectOptions, Context, Device, Endpoint, LocalMemory, MemoryRegion, ProtectionDomain,
    QueuePair, QueuePairAttributes, ReceiveRequest, SendRequest, WcStatus, WorkCompletion,
};
use fabric_verbs::VerbsDevice;
use fabric_verbs::choice::Wanted;
use std::time::Duration;

pub const BYTES: usize = 16 << 10;

/// One end: a context of its own with registered memory and a queue pair.
pub struct Side {
    pub context: Box<dyn Context>,
    pub domain: ProtectionDomain,
    pub completions: CompletionQueue,
    pub qp: QueuePair,
    pub region: MemoryRegion,
    // Registered, so it is dropped after the context.
    pub memory: Box<[u8]>,
}

impl Side {
    pub fn new(change: impl FnOnce(&mut QueuePairAttributes)) -> Option<Self> {
        Some(Self::on(open()?, change))
    }

    pub fn on(mut context: Box<dyn Context>, change: impl FnOnce(&mut QueuePairAttributes)) -> Self {
        let domain = context.allocate_protection_domain().unwrap();
        let completions = context.create_completion_queue(256).unwrap();
        let mut attributes = QueuePairAttributes::new(domain, completions);
        change(&mut attributes);
        let qp = context.create_queue_pair(&attributes).unwrap();
        let mut memory = vec![0; BYTES].into_boxed_slice();
        // SAFETY: the memory lives until the region is deregistered, at the latest with the context.
        let range = unsafe { WriteRange::new(memory.as_mut_ptr(), BYTES) };
        let region = context.register(domain, LocalMemory::Target(range), Access::REMOTE_ALL).unwrap();
        Self { context, domain, completions, qp, region, memory }
    }

    pub fn endpoint(&self) -> Endpoint {
        // Through bytes, as it travels.
        Endpoint::parse(&self.context.endpoint(self.qp).unwrap().to_bytes()).unwrap()
    }

    pub fn receive(&mut self, id: u64, offset: u64, len_bytes: u32) {
        let list = [self.region.part(offset, len_bytes)];
        assert_eq!(self.context.post_receive(self.qp, &[ReceiveRequest { id, list: &list }]), Ok(1));
    }

    pub fn send(&mut self, request: SendRequest<'_>) {
        assert_eq!(self.context.post_send(self.qp, &[request]), Ok(1));
    }

    pub fn next(&mut self) -> WorkCompletion {
        let mut one = [WorkCompletion::default()];
        for _ in 0..200_000 {
            if self.context.poll(self.completions, &mut one).unwrap() == 1 {
                return one[0];
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        panic!("nothing completed");
    }

    pub fn completed(&mut self, id: u64) -> WorkCompletion {
        let completion = self.next();
        assert_eq!((completion.id, completion.status), (id, WcStatus::Success), "{completion:?}");
        completion
    }
}

pub fn open() -> Option<Box<dyn Context>> {
    Some(opened(best()?))
}

/// The best port of this machine, if it has one.
pub fn best() -> Option<VerbsDevice> {
    match VerbsDevice::find(&Wanted::default()) {
        Ok(device) => Some(device),
        Err(why) => {
            println!("skipped: no RDMA device: {why}");
            None
        }
    }
}

/// False for the adapter of `tests/adapter`.
pub fn reaches_other_processes(device: &VerbsDevice) -> bool {
    device.offer().adapter != "inprocess0"
}

pub fn opened(device: VerbsDevice) -> Box<dyn Context> {
    Box::new(device).open().unwrap()
}

pub fn connected(options: &ConnectOptions) -> Option<(Side, Side)> {
    let (mut a, mut b) = (Side::new(|_| {})?, Side::new(|_| {})?);
    connect(&mut a, &mut b, options);
    Some((a, b))
}

pub fn connect(a: &mut Side, b: &mut Side, options: &ConnectOptions) {
    let (at_a, at_b) = (a.endpoint(), b.endpoint());
    fabric::connect(&mut *a.context, a.qp, Some(at_b), options).unwrap();
    fabric::connect(&mut *b.context, b.qp, Some(at_a), options).unwrap();
}

pub fn pattern(memory: &mut [u8], seed: u8) {
    memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at as u8).wrapping_mul(31).wrapping_add(seed));
}
