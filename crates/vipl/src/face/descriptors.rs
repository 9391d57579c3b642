//! Descriptors in the caller's memory become values, once, when they are posted.

use crate::descriptor::{DataSegment, Descriptor, MemoryHandle, SEGMENTS_PER_DESCRIPTOR_MAX, StatusPlace};
use crate::status::Operation;
use crate::vi::WorkQueue;

use super::objects::ViObject;
use super::types::{ALIGNMENT, ControlSegment, IMMEDIATE, MemHandle, OP_MASK, QUEUE_FENCE, RawDescriptor, RawSegment};
use super::{INVALID_PARAMETER, Return};

/// The descriptor at `place`, which must lie in memory that is registered under `handle`.
///
/// # Safety
/// Registered memory is valid, and nobody else uses the descriptor until it is complete.
pub unsafe fn read(
    vi: &ViObject,
    place: *mut RawDescriptor,
    handle: MemHandle,
    which: WorkQueue,
) -> Result<Descriptor, Return> {
    let address = place.expose_provenance();
    let lies_in = |len_bytes| vi.nic.nic.core.region(address as u64, MemoryHandle(handle), len_bytes);
    if place.is_null() || !address.is_multiple_of(ALIGNMENT) {
        return Err(INVALID_PARAMETER);
    }
    // Held from here on, so that the memory is not taken back before the status was written to it.
    let region = lies_in(size_of::<ControlSegment>()).ok_or(INVALID_PARAMETER)?;
    if region.attributes().ptag != vi.vi.core.queues.lock().attributes.ptag {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: aligned, and registered memory is valid by the caller's promise.
    let control = unsafe { (&raw const (*place).control).read() };
    let count = usize::from(control.seg_count);
    lies_in(size_of::<ControlSegment>() + count * size_of::<RawSegment>()).ok_or(INVALID_PARAMETER)?;
    // SAFETY: the field is inside the control segment.
    let status = unsafe { &raw mut (*place).control.status };
    // SAFETY: as above; the descriptor is the library's until it is complete.
    unsafe { status.write_volatile(0) };
    let first = place.wrapping_add(1).cast::<RawSegment>();
    let is_well_formed = control.control & !(OP_MASK | IMMEDIATE | QUEUE_FENCE) == 0 && control.reserved == 0;
    let (operation, address_segments) = match (which, control.control & OP_MASK) {
        (_, 0) => (Some(Operation::Send), 0),
        (WorkQueue::Send, 1) => (Some(Operation::RdmaWrite), 1),
        (WorkQueue::Send, 2) => (Some(Operation::RdmaRead), 1),
        _ => (None, 0),
    };
    // More than there may be are a formal error, which needs no list to be told.
    let count = count.min(SEGMENTS_PER_DESCRIPTOR_MAX + 1 + address_segments);
    // SAFETY: as many segments lie behind the control segment, in registered memory.
    let raw: Vec<RawSegment> = (0..count).map(|index| unsafe { first.add(index).read() }).collect();
    let (remote, local) = raw.split_at(address_segments.min(count));
    let segments = local.iter().map(|segment| DataSegment {
        address: segment.data,
        handle: MemoryHandle(segment.handle),
        len_bytes: segment.length,
    });
    let mut descriptor = Descriptor::of(segments.collect(), address as u64);
    descriptor.remote = remote.first().map(|segment| (segment.data, MemoryHandle(segment.handle)));
    descriptor.immediate = (control.control & IMMEDIATE != 0).then_some(control.immediate_data);
    descriptor.place = StatusPlace::new(address, region);
    match operation.filter(|_| is_well_formed) {
        Some(operation) => descriptor.operation = operation,
        // A send that goes to an address is none.
        None => (descriptor.operation, descriptor.remote) = (Operation::Send, Some((0, MemoryHandle(0)))),
    }
    Ok(descriptor)
}
