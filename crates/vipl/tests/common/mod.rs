//! Pairs of connected VIs, and memory for them.
#![allow(dead_code, reason = "not every test uses everything")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::memory::WriteRange;
use vipl::*;

/// Longer than any machine keeps a runnable thread waiting.
pub const LONG: Option<Duration> = Some(Duration::from_secs(20));
/// Long enough for what must not happen to happen.
pub const SHORT: Option<Duration> = Some(Duration::from_millis(50));

pub fn address(name: &str) -> NetAddress {
    NetAddress::new(NetAddress::local_host(), name.as_bytes()).expect("it is short")
}

/// An address that nobody else on this host uses.
pub fn fresh_address() -> NetAddress {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    address(&format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// One side: a NIC with a tag and a VI.
pub struct Side {
    pub nic: Nic,
    pub ptag: ProtectionTag,
    pub vi: Vi,
}

pub fn attributes(ptag: ProtectionTag, reliability: Reliability) -> ViAttributes {
    let rdma_read = reliability.is_reliable();
    ViAttributes { reliability, transfer_max_bytes: 1 << 24, ptag, rdma_write: true, rdma_read }
}

impl Side {
    pub fn new(settings: Settings, reliability: Reliability) -> Self {
        let nic = Nic::open(settings).unwrap();
        let ptag = nic.create_ptag().unwrap();
        let vi = nic.create_vi(&attributes(ptag, reliability), None, None).unwrap();
        Self { nic, ptag, vi }
    }

    pub fn memory_attributes(&self) -> MemoryAttributes {
        MemoryAttributes { ptag: self.ptag, rdma_write: true, rdma_read: true }
    }

    /// Memory of a way: 2 is registered, 3 is allocated.
    pub fn memory(&self, way: u32, len_bytes: usize) -> Memory {
        match way {
            2 => Memory::Caller(Caller::new(&self.nic, len_bytes, self.memory_attributes())),
            _ => Memory::Segment(self.nic.allocate(len_bytes, self.memory_attributes()).unwrap()),
        }
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.nic.counts().of(counter)
    }

    pub fn received(&self) -> Completion {
        self.vi.wait(WorkQueue::Receive, LONG).expect("a receive is complete")
    }

    pub fn sent(&self) -> Completion {
        self.vi.wait(WorkQueue::Send, LONG).expect("a send is complete")
    }
}

/// Memory of the caller, registered.
pub struct Caller {
    bytes: Box<[std::cell::UnsafeCell<u8>]>,
    handle: MemoryHandle,
    nic: Nic,
}

impl Caller {
    pub fn new(nic: &Nic, len_bytes: usize, attributes: MemoryAttributes) -> Self {
        let bytes: Box<[_]> = (0..len_bytes).map(|_| std::cell::UnsafeCell::new(0)).collect();
        let start = bytes.as_ptr().cast_mut().cast::<u8>();
        // SAFETY: the cells may be written behind a shared reference, live until they are deregistered on dropping, and are
        // looked at by the tests only while no transfer uses them.
        let range = unsafe { WriteRange::new(start, len_bytes) };
        let handle = nic.register(range, attributes).unwrap();
        Self { bytes, handle, nic: nic.clone() }
    }

    fn start(&self) -> *mut u8 {
        self.bytes.as_ptr().cast_mut().cast()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let address = self.start() as u64;
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while self.nic.deregister(address, self.handle).is_err() {
            assert!(std::time::Instant::now() < deadline || std::thread::panicking(), "a descriptor still uses it");
            if std::thread::panicking() {
                std::process::abort(); // somebody may still write here
            }
            std::thread::yield_now();
        }
    }
}

/// Registered memory of either way.
pub enum Memory {
    Caller(Caller),
    Segment(SegmentMemory),
}

impl Memory {
    pub fn address(&self) -> u64 {
        match self {
            Self::Caller(caller) => caller.start() as u64,
            Self::Segment(memory) => memory.address(),
        }
    }

    pub fn handle(&self) -> MemoryHandle {
        match self {
            Self::Caller(caller) => caller.handle,
            Self::Segment(memory) => memory.handle(),
        }
    }

    pub fn segment(&self, offset: usize, len_bytes: usize) -> DataSegment {
        let len_bytes = len_bytes as u32;
        DataSegment { address: self.address() + offset as u64, handle: self.handle(), len_bytes }
    }

    pub fn remote(&self, offset: usize) -> (u64, MemoryHandle) {
        (self.address() + offset as u64, self.handle())
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        match self {
            Self::Caller(caller) => {
                assert!(offset + bytes.len() <= caller.bytes.len());
                // SAFETY: inside by the check above, and no transfer uses it now.
                unsafe { std::ptr::copy(bytes.as_ptr(), caller.start().add(offset), bytes.len()) };
            }
            Self::Segment(memory) => memory.write(offset, bytes).unwrap(),
        }
    }

    pub fn read(&self, offset: usize, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        match self {
            Self::Caller(caller) => {
                assert!(offset + len_bytes <= caller.bytes.len());
                // SAFETY: as in `write`.
                unsafe { std::ptr::copy(caller.start().add(offset), bytes.as_mut_ptr(), len_bytes) };
            }
            Self::Segment(memory) => memory.read(offset, &mut bytes).unwrap(),
        }
        bytes
    }
}

/// Connects a client to a server that waits at a fresh address.
pub fn connect(server: &Side, client: &Side) {
    let (here, there) = (fresh_address(), fresh_address());
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| server.nic.connect_wait(&there, LONG)?.accept(&server.vi));
        request(&client.vi, &here, &there).expect("the server accepts");
        accepting.join().unwrap().expect("the client is there");
    });
}

/// Asks until somebody waits there.
pub fn request(vi: &Vi, here: &NetAddress, there: &NetAddress) -> Result<RemoteAttributes, Error> {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match vi.connect_request(here, there, LONG) {
            Err(Error::NoMatch(_)) if std::time::Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

pub fn pair_with(settings: Settings, reliability: Reliability) -> (Side, Side) {
    let (server, client) = (Side::new(settings, reliability), Side::new(settings, reliability));
    connect(&server, &client);
    (server, client)
}

pub fn pair() -> (Side, Side) {
    pair_with(Settings::default(), Reliability::Delivery)
}

/// Bytes that differ from each other and from other seeds'.
pub fn pattern(seed: u8, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes).map(|at| seed.wrapping_mul(31).wrapping_add((at % 251) as u8)).collect()
}
