//! Registered memory that a case looks at, in this process or in the other one.

use base::memory::{ReadRange, WriteRange};
use fabric::{
    Access, Context, FabricError, LocalMemory, MemoryRegion, ProtectionDomain, RemoteMemory, ScatterGather,
    SharedMemory,
};

use crate::remote::RemoteBytes;

/// Bytes of this process; never freed, so no mistake of a device can hurt the test itself.
pub(crate) struct LocalBytes {
    bytes: *mut [u8],
    /// Where the device gave the bytes out.
    _keep: Option<SharedMemory>,
}

impl LocalBytes {
    /// `len` zero bytes, aligned to 8, registered.
    pub(crate) fn registered(
        context: &mut dyn Context,
        domain: ProtectionDomain,
        len: usize,
        access: Access,
    ) -> Result<(Self, MemoryRegion), FabricError> {
        let words: &'static mut [u64] = Box::leak(vec![0u64; len.div_ceil(8).max(1)].into_boxed_slice());
        let start = words.as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever, and from now on it is reached through raw pointers only.
        let range = unsafe { WriteRange::new(start, len) };
        let region = context.register(domain, LocalMemory::Target(range), access)?;
        Ok((Self { bytes: std::ptr::slice_from_raw_parts_mut(start, len), _keep: None }, region))
    }

    /// The same, given out by the device.
    pub(crate) fn allocated(
        context: &mut dyn Context,
        domain: ProtectionDomain,
        len: usize,
        access: Access,
    ) -> Result<(Self, MemoryRegion), FabricError> {
        let (region, memory) = context.allocate(domain, len, access)?;
        assert_eq!(memory.len_bytes(), len, "as much as was asked for");
        let bytes = std::ptr::slice_from_raw_parts_mut(memory.start().as_ptr(), len);
        Ok((Self { bytes, _keep: Some(memory) }, region))
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

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
}

/// Registered bytes of a case.
pub(crate) struct Memory {
    bytes: Bytes,
    pub(crate) region: MemoryRegion,
}

/// Where they are.
enum Bytes {
    Here(LocalBytes),
    There(RemoteBytes),
}

impl Memory {
    pub(crate) fn here((bytes, region): (LocalBytes, MemoryRegion)) -> Self {
        Self { bytes: Bytes::Here(bytes), region }
    }

    pub(crate) fn there((bytes, region): (RemoteBytes, MemoryRegion)) -> Self {
        Self { bytes: Bytes::There(bytes), region }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        match &self.bytes {
            Bytes::Here(here) => here.write(offset, bytes),
            Bytes::There(there) => there.write(offset, bytes),
        }
    }

    pub(crate) fn fill(&self, byte: u8) {
        match &self.bytes {
            Bytes::Here(here) => here.fill(byte),
            Bytes::There(there) => there.fill(byte),
        }
    }

    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        match &self.bytes {
            Bytes::Here(here) => here.read(offset, len),
            Bytes::There(there) => there.read(offset, len),
        }
    }

    /// Bytes of this process, for requests that bring their memory along.
    pub(crate) fn range(&self, offset: usize, len: usize) -> ReadRange {
        let Bytes::Here(here) = &self.bytes else { panic!("memory of another process") };
        assert!(offset + len <= here.len());
        // SAFETY: inside the allocation, which is never freed, or kept.
        unsafe { ReadRange::new(here.bytes.cast::<u8>().add(offset), len) }
    }

    pub(crate) fn all(&self) -> Vec<u8> {
        let len = match &self.bytes {
            Bytes::Here(here) => here.len(),
            Bytes::There(there) => there.len(),
        };
        self.read(0, len)
    }

    /// Eight bytes as a number: both processes are of machines of one kind.
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
