//! VIs.

use std::sync::Arc;

use crate::link::RemoteAttributes;

use super::objects::{Object, ViObject, insert, remove, with};
use super::queues::queue;
use super::types::{Boolean, Handle, RawViAttributes};
use super::*;

/// The VI of a handle.
pub fn vi(handle: Handle) -> Result<Arc<ViObject>, Return> {
    with(handle, |object| match object {
        Object::Vi(vi) => Some(Arc::clone(vi)),
        _ => None,
    })
}

/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreateVi(
    nic_handle: Handle,
    attributes: *const RawViAttributes,
    send_queue: Handle,
    receive_queue: Handle,
    vi_handle: *mut Handle,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        wanted(vi_handle)?;
        // SAFETY: the caller's promise.
        let raw = unsafe { get(attributes)? };
        let attributes = vi_attributes("VipCreateVi", &raw)?;
        let of = |handle: Handle| if handle.is_null() { Ok(None) } else { queue(handle).map(Some) };
        let (send, receive) = (of(send_queue)?, of(receive_queue)?);
        let [send, receive] = [&send, &receive].map(|queue| queue.as_ref().map(|queue| &queue.queue));
        let vi = coded(nic.nic.create_vi(&attributes, send, receive))?;
        let number = vi.number();
        let object =
            ViObject { vi, nic: Arc::clone(&nic), nic_handle: nic_handle as usize, peer_request: Default::default() };
        let handle = insert(Object::Vi(Arc::new(object)));
        nic.vi_handles.lock().insert(number, handle as usize);
        // SAFETY: the caller's promise.
        unsafe { put(vi_handle, handle) }
    })())
}

/// Takes a VI back that is idle and whose descriptors were taken back.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyVi(vi_handle: Handle) -> Return {
    code((|| {
        let vi = vi(vi_handle)?;
        // A handler of it may be about to be called. The look at the VI may have to wait for a transfer, and so comes before
        // the table of all objects is taken.
        let calling = vi.vi.core.nic.calling.lock();
        coded(vi.vi.check_unused())?;
        remove(vi_handle, |object| if let Object::Vi(_) = object { Ok(()) } else { Err(INVALID_PARAMETER) })?;
        vi.nic.vi_handles.lock().remove(&vi.vi.number());
        drop(calling);
        Ok(())
    })())
}

/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryVi(
    vi_handle: Handle,
    state: *mut u32,
    attributes: *mut RawViAttributes,
    send_queue_empty: *mut Boolean,
    receive_queue_empty: *mut Boolean,
) -> Return {
    code((|| {
        let report = vi(vi_handle)?.vi.query();
        let found = report.attributes;
        let alike = RemoteAttributes {
            reliability: found.reliability,
            transfer_max_bytes: found.transfer_max_bytes,
            rdma_write: found.rdma_write,
            rdma_read: found.rdma_read,
        };
        // SAFETY: the caller's promise, as for the others.
        unsafe { put_if_wanted(state, report.state as u32)? };
        // SAFETY: as above.
        unsafe { put_if_wanted(attributes, raw_vi_attributes(&alike, handle_of(found.ptag)))? };
        // SAFETY: as above.
        unsafe { put_if_wanted(send_queue_empty, report.send_queue_empty.into())? };
        // SAFETY: as above.
        unsafe { put_if_wanted(receive_queue_empty, report.receive_queue_empty.into()) }
    })())
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSetViAttributes(vi_handle: Handle, attributes: *const RawViAttributes) -> Return {
    code((|| {
        let vi = vi(vi_handle)?;
        // SAFETY: the caller's promise.
        let raw = unsafe { get(attributes)? };
        coded(vi.vi.set_attributes(&vi_attributes("VipSetViAttributes", &raw)?))
    })())
}
