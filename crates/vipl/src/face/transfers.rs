//! Posting, looking, waiting, being called.

use std::sync::Arc;

use crate::descriptor::Completion;
use crate::vi::WorkQueue;

use super::objects::ViObject;
use super::types::{Handle, MemHandle, NotifyHandler, Pvoid, RawDescriptor, Ulong};
use super::vis::vi;
use super::*;

/// # Safety
/// The descriptor lies in registered memory and is the library's until it is complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipPostSend(vi_handle: Handle, place: *mut RawDescriptor, handle: MemHandle) -> Return {
    // SAFETY: the caller's promise.
    code(unsafe { post(vi_handle, place, handle, WorkQueue::Send) })
}

/// # Safety
/// As for [`VipPostSend`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipPostRecv(vi_handle: Handle, place: *mut RawDescriptor, handle: MemHandle) -> Return {
    // SAFETY: the caller's promise.
    code(unsafe { post(vi_handle, place, handle, WorkQueue::Receive) })
}

unsafe fn post(
    vi_handle: Handle,
    place: *mut RawDescriptor,
    handle: MemHandle,
    which: WorkQueue,
) -> Result<(), Return> {
    let vi = vi(vi_handle)?;
    // SAFETY: the caller's promise.
    let descriptor = unsafe { descriptors::read(&vi, place, handle, which)? };
    coded(match which {
        WorkQueue::Send => vi.vi.post_send(descriptor),
        WorkQueue::Receive => vi.vi.post_receive(descriptor),
    })
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendDone(vi_handle: Handle, place: *mut *mut RawDescriptor) -> Return {
    // SAFETY: the caller's promise.
    code(unsafe { done(vi_handle, place, WorkQueue::Send) })
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvDone(vi_handle: Handle, place: *mut *mut RawDescriptor) -> Return {
    // SAFETY: the caller's promise.
    code(unsafe { done(vi_handle, place, WorkQueue::Receive) })
}

unsafe fn done(vi_handle: Handle, place: *mut *mut RawDescriptor, which: WorkQueue) -> Result<(), Return> {
    let vi = vi(vi_handle)?;
    wanted(place)?;
    let completion = vi.vi.done(which).ok_or(NOT_DONE)?;
    // SAFETY: the caller's promise.
    unsafe { put(place, pointer(&completion))? };
    outcome(&completion)
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendWait(vi_handle: Handle, limit: Ulong, place: *mut *mut RawDescriptor) -> Return {
    // SAFETY: the caller's promise.
    code(unsafe { wait(vi_handle, limit, place, WorkQueue::Send) })
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvWait(vi_handle: Handle, limit: Ulong, place: *mut *mut RawDescriptor) -> Return {
    // SAFETY: the caller's promise.
    code(unsafe { wait(vi_handle, limit, place, WorkQueue::Receive) })
}

unsafe fn wait(
    vi_handle: Handle,
    limit: Ulong,
    place: *mut *mut RawDescriptor,
    which: WorkQueue,
) -> Result<(), Return> {
    let vi = vi(vi_handle)?;
    wanted(place)?;
    let completion = coded(vi.vi.wait(which, timeout(limit)))?;
    // SAFETY: the caller's promise.
    unsafe { put(place, pointer(&completion))? };
    outcome(&completion)
}

/// # Safety
/// The handler may be called once with the context, on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSendNotify(vi_handle: Handle, context: Pvoid, handler: NotifyHandler) -> Return {
    code(notify(vi_handle, context, handler, WorkQueue::Send))
}

/// # Safety
/// As for [`VipSendNotify`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRecvNotify(vi_handle: Handle, context: Pvoid, handler: NotifyHandler) -> Return {
    code(notify(vi_handle, context, handler, WorkQueue::Receive))
}

fn notify(vi_handle: Handle, context: Pvoid, handler: NotifyHandler, which: WorkQueue) -> Result<(), Return> {
    let vi: Arc<ViObject> = vi(vi_handle)?;
    let handler = handler.ok_or(INVALID_PARAMETER)?;
    let (context, own, nic) = (Context::of(context), vi_handle as usize, vi.nic_handle);
    let call = move |completion: Completion| {
        // SAFETY: whoever gave the handler promised that it may be called so.
        unsafe { handler(context.pointer(), nic as Handle, own as Handle, pointer(&completion)) };
    };
    coded(vi.vi.notify(which, Box::new(call)))
}

/// The descriptor that was posted.
fn pointer(completion: &Completion) -> *mut RawDescriptor {
    std::ptr::with_exposed_provenance_mut(completion.context as usize)
}

fn outcome(completion: &Completion) -> Result<(), Return> {
    if completion.status.is_error() { Err(DESCRIPTOR_ERROR) } else { Ok(()) }
}
