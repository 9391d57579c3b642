//! Memory that other processes may map: a memfd of fixed length, sealed so that nobody can take pages away from under a
//! mapping.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use fabric::{FabricError, SharedMemory};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Makes and maps `len_bytes` zeroed bytes; who is handed the descriptor can map them, too.
///
/// # Errors
/// When the system has no memory or no descriptor for it.
pub fn create(len_bytes: usize) -> Result<(OwnedFd, SharedMemory), FabricError> {
    if cfg!(miri) {
        return alone(len_bytes);
    }
    let fd = rustix::fs::memfd_create("ferrovia", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|error| system("creating the shared segment (memfd_create)", error))?;
    rustix::fs::ftruncate(&fd, len_bytes as u64)
        .map_err(|error| system("sizing the shared segment (ftruncate)", error))?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(|error| system("sealing the shared segment", error))?;
    let memory = map(fd.as_fd(), len_bytes)?;
    Ok((fd, memory))
}

/// The same for miri, which maps nothing: memory of the allocator, and a descriptor that stands for nothing.
fn alone(len_bytes: usize) -> Result<(OwnedFd, SharedMemory), FabricError> {
    let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
        .map_err(|error| system("making a descriptor (eventfd)", error))?;
    Ok((fd, SharedMemory::private(len_bytes)))
}

/// Maps memory that another process made.
///
/// # Errors
/// When it is not sealed against shrinking, or is not `len_bytes` long.
pub fn attach(fd: &OwnedFd, len_bytes: usize) -> Result<SharedMemory, FabricError> {
    let refuse = |reason: String| FabricError::System { operation: "joining the shared segment", reason };
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|error| refuse(error.to_string()))?;
    let len = rustix::fs::fstat(fd).map_err(|error| refuse(error.to_string()))?.st_size;
    if !seals.contains(SealFlags::SHRINK) || usize::try_from(len) != Ok(len_bytes) {
        return Err(refuse(format!("expected {len_bytes} sealed bytes, found {len}")));
    }
    map(fd.as_fd(), len_bytes)
}

struct Mapping {
    start: NonNull<c_void>,
    len_bytes: usize,
}

// SAFETY: the mapping is an address range; unmapping it is allowed from any thread.
unsafe impl Send for Mapping {}
// SAFETY: nothing is reached through a shared reference.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and every handle into it is gone: they all hold this value.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.len_bytes) };
    }
}

fn map(fd: BorrowedFd<'_>, len_bytes: usize) -> Result<SharedMemory, FabricError> {
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            len_bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
            fd,
            0,
        )
    }
    .map_err(|error| system("mapping the shared segment (mmap)", error))?;
    let start = NonNull::new(start).expect("a mapping is not at address 0");
    let keep = Arc::new(Mapping { start, len_bytes });
    // SAFETY: the range is mapped until `keep` is dropped, page aligned, and reached only through this handle.
    Ok(unsafe { SharedMemory::new(start.cast(), len_bytes, keep) })
}

pub(super) fn system(operation: &'static str, error: rustix::io::Errno) -> FabricError {
    FabricError::System { operation, reason: error.to_string() }
}
