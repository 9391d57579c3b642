//! Point-to-point messages.
//!
//! MPI: §3.2 to §3.6, §3.8 to §3.11

#![allow(clippy::too_many_arguments, reason = "the parameters of the calls")]

use std::sync::Arc;

use datatype::{Datatype, LentSendBuf, RecvBuf, RecvBytes, SendBuf, UserMemory, UserMemoryMut};
use mpi_core::point_to_point::{End, Message, Mode};
use mpi_core::request::Finish;
use mpi_core::{Comm, Request, Result, Status};

use crate::face::{Face, MessageInOut, Out, OutHandle, StatusOut};

/// # Safety
/// `buf` holds `count` elements of `datatype`.
#[inline]
pub(crate) unsafe fn send(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: promised by the caller.
    if unsafe { try_send(face, buf, count, datatype, dest, tag, comm) }? {
        return Ok(());
    }
    // SAFETY: the caller's buffer, which stays until the send has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    face.world().send_by_request(comm, dest, tag, buf)
}

/// # Safety
/// `buf` holds `count` elements of `datatype`.
#[inline(always)]
pub(crate) unsafe fn send_at_once(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
) -> Option<()> {
    // SAFETY: promised by the caller.
    unsafe { try_send(face, buf, count, datatype, dest, tag, comm) }.ok()?.then_some(())
}

/// Sends at once if that can be; true if it is gone.
///
/// # Safety
/// `buf` holds `count` elements of `datatype`.
#[inline(always)]
unsafe fn try_send(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
) -> Result<bool> {
    let Some(destination) = comm.destination(dest, tag)? else { return Ok(true) };
    if datatype.is_contiguous() && !buf.is_null() {
        // The common case on its own: here the compiler sees a buffer of two words and moves nothing else.
        // SAFETY: the caller's buffer, of which nothing is kept.
        let bytes = unsafe { LentSendBuf::bytes(buf, (count as u64).saturating_mul(datatype.size())) };
        return Ok(face.world().try_send_to(destination, &bytes));
    }
    // SAFETY: as above.
    let lent = unsafe { LentSendBuf::new(buf, count as u64, datatype) };
    Ok(face.world().try_send_to(destination, &lent))
}

/// # Safety
/// `buf` holds `count` elements of `datatype`.
pub(crate) unsafe fn ssend(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the send has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    face.world().send_in_mode(Mode::Synchronous, comm, dest, tag, buf)
}

/// # Safety
/// `buf` holds `count` elements of `datatype`.
pub(crate) unsafe fn rsend(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the send has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    face.world().send_in_mode(Mode::Ready, comm, dest, tag, buf)
}

/// # Safety
/// `buf` holds `count` elements of `datatype`.
pub(crate) unsafe fn bsend(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the send has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    face.world().send_in_mode(Mode::Buffered, comm, dest, tag, buf)
}

/// # Safety
/// `buf` holds `count` elements of `datatype`.
#[inline(always)]
pub(crate) unsafe fn isend_at_once(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Option<()> {
    // SAFETY: promised by the caller.
    let is_gone = unsafe { try_send(face, buf, count, datatype, dest, tag, comm) }.ok()?;
    is_gone.then(|| request.set_finished_send())
}

/// # Safety
/// `buf` holds `count` elements of `datatype` until the request has completed.
#[inline(always)]
pub(crate) unsafe fn isend(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // What is gone at once needs no request.
    // SAFETY: promised by the caller.
    if unsafe { try_send(face, buf, count, datatype, dest, tag, comm) }? {
        request.set_finished_send();
        return Ok(());
    }
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    request.set(face, face.world().isend(Mode::Standard, comm, dest, tag, buf)?)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` until the request has completed.
pub(crate) unsafe fn issend(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    request.set(face, face.world().isend(Mode::Synchronous, comm, dest, tag, buf)?)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` until the request has completed.
pub(crate) unsafe fn irsend(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    request.set(face, face.world().isend(Mode::Ready, comm, dest, tag, buf)?)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` until the request has completed.
pub(crate) unsafe fn ibsend(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let buf = unsafe { SendBuf::new(buf, count as u64, datatype) };
    request.set(face, face.world().isend(Mode::Buffered, comm, dest, tag, buf)?)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` while the request exists.
pub(crate) unsafe fn send_init(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request is freed.
    let buf = unsafe { UserMemory::new(buf) };
    let made = face.world().send_init(Mode::Standard, comm, dest, tag, buf, count as u64, datatype)?;
    request.set(face, made)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` while the request exists.
pub(crate) unsafe fn ssend_init(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request is freed.
    let buf = unsafe { UserMemory::new(buf) };
    let made = face.world().send_init(Mode::Synchronous, comm, dest, tag, buf, count as u64, datatype)?;
    request.set(face, made)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` while the request exists.
pub(crate) unsafe fn rsend_init(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request is freed.
    let buf = unsafe { UserMemory::new(buf) };
    let made = face.world().send_init(Mode::Ready, comm, dest, tag, buf, count as u64, datatype)?;
    request.set(face, made)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` while the request exists.
pub(crate) unsafe fn bsend_init(
    face: &Face,
    buf: *const u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request is freed.
    let buf = unsafe { UserMemory::new(buf) };
    let made = face.world().send_init(Mode::Buffered, comm, dest, tag, buf, count as u64, datatype)?;
    request.set(face, made)
}

/// # Safety
/// `buf` has room for `count` elements of `datatype`.
#[inline]
pub(crate) unsafe fn recv(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    status: StatusOut,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the receive has completed.
    if let Some(bytes) = unsafe { plain_bytes(buf, count, datatype) } {
        return received(face.world().recv(comm, source, tag, bytes), &status);
    }
    // SAFETY: as above.
    let buf = unsafe { RecvBuf::new(buf, count as u64, datatype) };
    received(face.world().recv(comm, source, tag, buf), &status)
}

/// # Safety
/// `buf` has room for `count` elements of `datatype` until the request has completed.
#[inline(always)]
pub(crate) unsafe fn irecv(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: promised by the caller.
    if let Some(bytes) = unsafe { plain_bytes(buf, count, datatype) } {
        let id = face.world().post_receive(comm, source, tag, bytes)?;
        return request.set_new(face, || face.world().receive_request(id, comm, source));
    }
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let buf = unsafe { RecvBuf::new(buf, count as u64, datatype) };
    request.set(face, face.world().irecv(comm, source, tag, buf)?)
}

/// As [`irecv`], if that needs no more than a request for which there is a place.
///
/// # Safety
/// As [`irecv`].
#[inline(always)]
pub(crate) unsafe fn irecv_at_once(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Option<()> {
    // SAFETY: promised by the caller.
    let bytes = unsafe { plain_bytes(buf, count, datatype) }.filter(|_| face.process().requests.has_place())?;
    // What is wrong is found out once more: nothing was posted.
    let id = face.world().post_receive(comm, source, tag, bytes).ok()?;
    request.set_new(face, || face.world().receive_request(id, comm, source)).ok()
}

/// The buffer of a receive, if it is one of plain bytes: the common case on its own, as in [`try_send`].
///
/// # Safety
/// As [`irecv`].
#[inline(always)]
unsafe fn plain_bytes(buf: *mut u8, count: i64, datatype: &Datatype) -> Option<RecvBytes> {
    let is_plain = datatype.is_contiguous() && !buf.is_null();
    // SAFETY: promised by the caller.
    is_plain.then(|| unsafe { RecvBytes::new(buf, (count as u64).saturating_mul(datatype.size())) })
}

/// # Safety
/// `buf` has room for `count` elements of `datatype` while the request exists.
pub(crate) unsafe fn recv_init(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request is freed.
    let buf = unsafe { UserMemoryMut::new(buf) };
    request.set(face, face.world().recv_init(comm, source, tag, buf, count as u64, datatype)?)
}

pub(crate) fn probe(face: &Face, source: i32, tag: i32, comm: &Arc<Comm>, status: StatusOut) -> Result<()> {
    status.set(&face.world().probe(comm, source, tag)?);
    Ok(())
}

#[inline(always)]
pub(crate) fn iprobe_at_once(
    face: &Face,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    flag: Out<i32>,
    status: StatusOut,
) -> Option<()> {
    tell_probed(face.world().iprobe_at_once(comm, source, tag).ok()??, flag, status);
    Some(())
}

pub(crate) fn iprobe(
    face: &Face,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    flag: Out<i32>,
    status: StatusOut,
) -> Result<()> {
    tell_probed(face.world().iprobe(comm, source, tag)?, flag, status);
    Ok(())
}

#[inline(always)]
fn tell_probed(found: Option<Status>, flag: Out<i32>, status: StatusOut) {
    flag.set_flag(found.is_some());
    if let Some(found) = found {
        status.set(&found);
    }
}

pub(crate) fn mprobe(
    face: &Face,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    message: OutHandle<Message>,
    status: StatusOut,
) -> Result<()> {
    let (found, its_status) = face.world().mprobe(comm, source, tag)?;
    status.set(&its_status);
    message.set(face, found)
}

pub(crate) fn improbe(
    face: &Face,
    source: i32,
    tag: i32,
    comm: &Arc<Comm>,
    flag: Out<i32>,
    message: OutHandle<Message>,
    status: StatusOut,
) -> Result<()> {
    let found = face.world().improbe(comm, source, tag)?;
    flag.set_flag(found.is_some());
    let Some((found, its_status)) = found else {
        message.set_null();
        return Ok(());
    };
    status.set(&its_status);
    message.set(face, found)
}

/// # Safety
/// `buf` has room for `count` elements of `datatype`.
pub(crate) unsafe fn mrecv(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    message: MessageInOut,
    status: StatusOut,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the receive has completed.
    let buf = unsafe { RecvBuf::new(buf, count as u64, datatype) };
    let message = message.take(face)?;
    face.blame(message.comm());
    received(face.world().mrecv(message, buf), &status)
}

/// # Safety
/// `buf` has room for `count` elements of `datatype` until the request has completed.
pub(crate) unsafe fn imrecv(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    message: MessageInOut,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let buf = unsafe { RecvBuf::new(buf, count as u64, datatype) };
    let message = message.take(face)?;
    face.blame(message.comm());
    request.set(face, face.world().imrecv(message, buf)?)
}

/// # Safety
/// The buffers hold and have room for their counts of elements.
#[inline(always)]
pub(crate) unsafe fn sendrecv(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    dest: i32,
    sendtag: i32,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    source: i32,
    recvtag: i32,
    comm: &Arc<Comm>,
    status: StatusOut,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the call is over.
    let outgoing = unsafe { SendBuf::new(sendbuf, sendcount as u64, sendtype) };
    let (to, from) = (End { rank: dest, tag: sendtag }, End { rank: source, tag: recvtag });
    if recvtype.is_contiguous() && !recvbuf.is_null() {
        // As in `try_send`.
        // SAFETY: as above; the two do not overlap.
        let incoming = unsafe { RecvBytes::new(recvbuf, (recvcount as u64).saturating_mul(recvtype.size())) };
        return received(face.world().sendrecv(comm, to, outgoing, from, incoming), &status);
    }
    // SAFETY: as above.
    let incoming = unsafe { RecvBuf::new(recvbuf, recvcount as u64, recvtype) };
    received(face.world().sendrecv(comm, to, outgoing, from, incoming), &status)
}

/// # Safety
/// `buf` holds `count` elements of `datatype`.
pub(crate) unsafe fn sendrecv_replace(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    sendtag: i32,
    source: i32,
    recvtag: i32,
    comm: &Arc<Comm>,
    status: StatusOut,
) -> Result<()> {
    // SAFETY: the caller's buffer; it is copied before anything is received.
    let outgoing = unsafe { SendBuf::new(buf, count as u64, datatype) };
    // SAFETY: the caller's buffer, which stays until the call is over.
    let incoming = unsafe { RecvBuf::new(buf, count as u64, datatype) };
    let (to, from) = (End { rank: dest, tag: sendtag }, End { rank: source, tag: recvtag });
    received(face.world().sendrecv_replace(comm, to, outgoing, from, incoming), &status)
}

/// # Safety
/// The buffers hold and have room for their counts of elements until the request has completed.
pub(crate) unsafe fn isendrecv(
    face: &Face,
    sendbuf: *const u8,
    sendcount: i64,
    sendtype: &Arc<Datatype>,
    dest: i32,
    sendtag: i32,
    recvbuf: *mut u8,
    recvcount: i64,
    recvtype: &Arc<Datatype>,
    source: i32,
    recvtag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let outgoing = unsafe { SendBuf::new(sendbuf, sendcount as u64, sendtype) };
    // SAFETY: as above; the two do not overlap.
    let incoming = unsafe { RecvBuf::new(recvbuf, recvcount as u64, recvtype) };
    let (to, from) = (End { rank: dest, tag: sendtag }, End { rank: source, tag: recvtag });
    request.set(face, face.world().isendrecv(comm, to, outgoing, from, incoming)?)
}

/// # Safety
/// `buf` holds `count` elements of `datatype` until the request has completed.
pub(crate) unsafe fn isendrecv_replace(
    face: &Face,
    buf: *mut u8,
    count: i64,
    datatype: &Arc<Datatype>,
    dest: i32,
    sendtag: i32,
    source: i32,
    recvtag: i32,
    comm: &Arc<Comm>,
    request: OutHandle<Request>,
) -> Result<()> {
    // SAFETY: the caller's buffer; it is copied before anything is received.
    let outgoing = unsafe { SendBuf::new(buf, count as u64, datatype) };
    // SAFETY: the caller's buffer, which stays until the request has completed.
    let incoming = unsafe { RecvBuf::new(buf, count as u64, datatype) };
    let (to, from) = (End { rank: dest, tag: sendtag }, End { rank: source, tag: recvtag });
    request.set(face, face.world().isendrecv_replace(comm, to, outgoing, from, incoming)?)
}

/// The end of a receive: its status, also if it failed.
#[inline]
fn received(finish: Finish, status: &StatusOut) -> Result<()> {
    match finish {
        Ok(finished) => {
            status.set(&finished);
            Ok(())
        }
        Err(failure) => {
            status.set(&failure.status);
            Err(failure.error)
        }
    }
}
