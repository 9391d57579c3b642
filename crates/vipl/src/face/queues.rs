//! Completion queues.

use std::sync::Arc;

use crate::queue::Entry;
use crate::vi::WorkQueue;

use super::objects::{Object, QueueObject, insert, remove, with};
use super::types::{Boolean, Handle, Pvoid, QueueNotifyHandler, Ulong};
use super::*;

/// The completion queue of a handle.
pub fn queue(handle: Handle) -> Result<Arc<QueueObject>, Return> {
    with(handle, |object| match object {
        Object::Queue(queue) => Some(Arc::clone(queue)),
        _ => None,
    })
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreateCQ(nic_handle: Handle, entries: Ulong, cq_handle: *mut Handle) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        wanted(cq_handle)?;
        let entries = usize::try_from(entries).map_err(|_| ERROR_RESOURCE)?;
        let queue = coded(nic.nic.create_queue(entries))?;
        let object = QueueObject { queue, nic, nic_handle: nic_handle as usize };
        // SAFETY: the caller's promise.
        unsafe { put(cq_handle, insert(Object::Queue(Arc::new(object)))) }
    })())
}

/// Takes a completion queue back that no VI uses.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyCQ(cq_handle: Handle) -> Return {
    code((|| {
        let queue = queue(cq_handle)?;
        // A handler of it may be about to be called.
        let calling = queue.nic.nic.core.calling.lock();
        coded(queue.queue.check_unused())?;
        remove(cq_handle, |object| if let Object::Queue(_) = object { Ok(()) } else { Err(INVALID_PARAMETER) })?;
        drop(calling);
        Ok(())
    })())
}

/// Gives a completion queue another number of places.
#[unsafe(no_mangle)]
pub extern "C" fn VipResizeCQ(cq_handle: Handle, entries: Ulong) -> Return {
    code((|| {
        let queue = queue(cq_handle)?;
        coded(queue.queue.resize(usize::try_from(entries).map_err(|_| ERROR_RESOURCE)?))
    })())
}

/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQDone(cq_handle: Handle, vi_handle: *mut Handle, is_receive: *mut Boolean) -> Return {
    code((|| {
        let queue = queue(cq_handle)?;
        wanted(vi_handle)?;
        wanted(is_receive)?;
        let entry = queue.queue.done().ok_or(NOT_DONE)?;
        // SAFETY: the caller's promise.
        unsafe { tell(&queue, entry, vi_handle, is_receive) }
    })())
}

/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQWait(
    cq_handle: Handle,
    limit: Ulong,
    vi_handle: *mut Handle,
    is_receive: *mut Boolean,
) -> Return {
    code((|| {
        let queue = queue(cq_handle)?;
        wanted(vi_handle)?;
        wanted(is_receive)?;
        let entry = coded(queue.queue.wait(timeout(limit)))?;
        // SAFETY: the caller's promise.
        unsafe { tell(&queue, entry, vi_handle, is_receive) }
    })())
}

/// # Safety
/// The handler may be called once with the context, on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCQNotify(cq_handle: Handle, context: Pvoid, handler: QueueNotifyHandler) -> Return {
    code((|| {
        let queue = queue(cq_handle)?;
        let handler = handler.ok_or(INVALID_PARAMETER)?;
        let (context, own, nic) = (Context::of(context), queue.nic_handle, Arc::downgrade(&queue.nic));
        let call = move |(vi, which): Entry| {
            let vi = nic.upgrade().and_then(|nic| nic.vi_handles.lock().get(&vi).copied()).unwrap_or(0);
            let is_receive = Boolean::from(which == WorkQueue::Receive);
            // SAFETY: whoever gave the handler promised that it may be called so.
            unsafe { handler(context.pointer(), own as Handle, vi as Handle, is_receive) };
        };
        coded(queue.queue.notify(Box::new(call)))
    })())
}

unsafe fn tell(
    queue: &QueueObject,
    (vi, which): Entry,
    vi_handle: *mut Handle,
    is_receive: *mut Boolean,
) -> Result<(), Return> {
    let handle = queue.nic.vi_handles.lock().get(&vi).copied().unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { put(vi_handle, handle as Handle)? };
    // SAFETY: as above.
    unsafe { put(is_receive, (which == WorkQueue::Receive).into()) }
}
