//! Connections.

use std::sync::Arc;

use parking_lot::Mutex;

use super::objects::{Object, RequestObject, insert, remove};
use super::types::{Handle, NetAddressHead, RawViAttributes, Ulong};
use super::vis::vi;
use super::*;

/// # Safety
/// The addresses are null or whole, the one of the client with room for the longest there is; the other pointers are null or
/// valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectWait(
    nic_handle: Handle,
    local: *const NetAddressHead,
    limit: Ulong,
    remote: *mut NetAddressHead,
    attributes: *mut RawViAttributes,
    connection: *mut Handle,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        wanted(connection)?;
        // SAFETY: the caller's promise.
        let local = unsafe { address(local)? };
        let request = coded(nic.nic.connect_wait(&local, timeout(limit)))?;
        if !remote.is_null() {
            // SAFETY: the caller's promise.
            unsafe { put_address(remote, request.remote())? };
        }
        let theirs = raw_vi_attributes(&request.attributes(), std::ptr::null_mut());
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(attributes, theirs)? };
        let object = RequestObject { request: Mutex::new(request) };
        // SAFETY: the caller's promise.
        unsafe { put(connection, insert(Object::Request(Arc::new(object)))) }
    })())
}

/// Connects a client to a VI. If the VI is not like the client's, the client can still be accepted with another.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectAccept(connection: Handle, vi_handle: Handle) -> Return {
    code((|| {
        let request = with(connection, |object| match object {
            Object::Request(request) => Some(Arc::clone(request)),
            _ => None,
        })?;
        let vi = vi(vi_handle)?;
        let mut request = request.request.lock();
        let accepted = request.accept(&vi.vi);
        if request.is_over() {
            // Two threads may have accepted it; then it is gone by now.
            let _ = remove(connection, |_| Ok(()));
        }
        coded(accepted)
    })())
}

/// Sends a client away.
#[unsafe(no_mangle)]
pub extern "C" fn VipConnectReject(connection: Handle) -> Return {
    let removed = remove(connection, |object| match object {
        Object::Request(_) => Ok(()),
        _ => Err(INVALID_PARAMETER),
    });
    code(removed.map(drop))
}

/// # Safety
/// The addresses are null or whole, the other pointer null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectRequest(
    vi_handle: Handle,
    local: *const NetAddressHead,
    remote: *const NetAddressHead,
    limit: Ulong,
    attributes: *mut RawViAttributes,
) -> Return {
    code((|| {
        let vi = vi(vi_handle)?;
        // SAFETY: the caller's promise, for both.
        let local = unsafe { address(local)? };
        // SAFETY: as above.
        let remote = unsafe { address(remote)? };
        let theirs = coded(vi.vi.connect_request(&local, &remote, timeout(limit)))?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(attributes, raw_vi_attributes(&theirs, std::ptr::null_mut())) }
    })())
}

/// Ends a connection, or what became of it.
#[unsafe(no_mangle)]
pub extern "C" fn VipDisconnect(vi_handle: Handle) -> Return {
    code(vi(vi_handle).map(|vi| {
        // What became of a request of peers is over with it.
        vi.peer_request.lock().take();
        vi.vi.disconnect();
    }))
}

/// # Safety
/// The addresses are null or whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerRequest(
    vi_handle: Handle,
    local: *const NetAddressHead,
    remote: *const NetAddressHead,
    limit: Ulong,
) -> Return {
    code((|| {
        let vi = vi(vi_handle)?;
        // SAFETY: the caller's promise, for both.
        let local = unsafe { address(local)? };
        // SAFETY: as above.
        let remote = unsafe { address(remote)? };
        let request = coded(vi.vi.connect_peer(&local, &remote, timeout(limit)))?;
        *vi.peer_request.lock() = Some(Arc::new(request));
        Ok(())
    })())
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerDone(vi_handle: Handle, attributes: *mut RawViAttributes) -> Return {
    code((|| {
        let vi = vi(vi_handle)?;
        let request = vi.peer_request.lock().clone();
        let request = request.ok_or(INVALID_PARAMETER)?;
        let theirs = coded(request.done().ok_or(NOT_DONE)?)?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(attributes, raw_vi_attributes(&theirs, std::ptr::null_mut())) }
    })())
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipConnectPeerWait(vi_handle: Handle, attributes: *mut RawViAttributes) -> Return {
    code((|| {
        let vi = vi(vi_handle)?;
        let request = vi.peer_request.lock().clone();
        let theirs = coded(request.ok_or(INVALID_PARAMETER)?.wait())?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(attributes, raw_vi_attributes(&theirs, std::ptr::null_mut())) }
    })())
}
