//! An rdma_cm that answers as a test tells it to, for what no test here can ask of a subnet manager.

use crate::ffi::rdma_cm::{
    RdmaCm, RdmaCmEvent, RdmaCmId, RdmaCmJoinMcAttrEx, RdmaEventChannel, RdmaRoute, RdmaUdParam, join,
};
use crate::ffi::{IbvAhAttr, IbvContext, IbvDevice};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{null, null_mut};

/// What becomes of one request to join.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// An event of this type, with this status and way to the group.
    Event(c_uint, c_int, IbvAhAttr),
    /// The call itself fails.
    Fails(c_int),
    /// Nothing.
    Silence,
}

/// What a thread's library is to do, and what it was asked.
#[derive(Default)]
pub(super) struct Script {
    pub(super) steps: VecDeque<Step>,
    /// The adapter that addresses lead to.
    pub(super) adapter: &'static str,
    /// Join flags, in the order in which they were asked for.
    pub(super) flags: Vec<u32>,
    /// Channels, identifiers and events that were not given back.
    pub(super) alive: [i32; 3],
}

thread_local!(static SCRIPT: RefCell<Script> = RefCell::default());

/// Works on this thread's script.
pub(super) fn script<T>(work: impl FnOnce(&mut Script) -> T) -> T {
    SCRIPT.with_borrow_mut(work)
}

pub(super) const PORT: u8 = 2;

pub(super) static LIBRARY: RdmaCm = RdmaCm {
    create_event_channel,
    destroy_event_channel,
    create_id,
    destroy_id,
    bind_addr,
    join_multicast_ex,
    get_cm_event,
    ack_cm_event,
};

/// A channel and, behind what the caller knows of it, what is to be told.
#[repr(C)]
struct Channel {
    shown: RdmaEventChannel,
    descriptor: OwnedFd,
    events: VecDeque<(c_uint, c_int, IbvAhAttr)>,
}

/// An identifier and what its adapter is.
#[repr(C)]
struct Id {
    shown: RdmaCmId,
    adapter: Option<Box<(IbvContext, IbvDevice)>>,
}

fn fails(code: c_int) -> c_int {
    // SAFETY: the place of this thread's error number is always valid.
    unsafe { *libc::__errno_location() = code };
    -1
}

extern "C" fn create_event_channel() -> *mut RdmaEventChannel {
    script(|script| script.alive[0] += 1);
    let descriptor = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE).unwrap();
    let shown = RdmaEventChannel { fd: descriptor.as_raw_fd() };
    Box::into_raw(Box::new(Channel { shown, descriptor, events: VecDeque::new() })).cast()
}

extern "C" fn destroy_event_channel(channel: *mut RdmaEventChannel) {
    script(|script| script.alive[0] -= 1);
    // SAFETY: made by `create_event_channel`, given back once.
    drop(unsafe { Box::from_raw(channel.cast::<Channel>()) });
}

extern "C" fn create_id(
    channel: *mut RdmaEventChannel,
    id: *mut *mut RdmaCmId,
    context: *mut c_void,
    ps: c_uint,
) -> c_int {
    script(|script| script.alive[1] += 1);
    let route = RdmaRoute { words: [0; 39] };
    let shown = RdmaCmId { verbs: null_mut(), channel, context, qp: null_mut(), route, ps, port_num: 0 };
    // SAFETY: the caller gives a place for the result.
    unsafe { *id = Box::into_raw(Box::new(Id { shown, adapter: None })).cast() };
    0
}

extern "C" fn destroy_id(id: *mut RdmaCmId) -> c_int {
    script(|script| {
        script.alive[1] -= 1;
        assert_eq!(script.alive[2], 0, "the library would wait for events to be acknowledged");
    });
    // SAFETY: made by `create_id`, given back once.
    drop(unsafe { Box::from_raw(id.cast::<Id>()) });
    0
}

extern "C" fn bind_addr(id: *mut RdmaCmId, _address: *mut libc::sockaddr) -> c_int {
    // SAFETY: integers, pointers and optional functions: all zeros are valid.
    let mut adapter: Box<(IbvContext, IbvDevice)> = Box::new(unsafe { std::mem::zeroed() });
    let name = script(|script| script.adapter);
    adapter.1.name.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte.cast_signed());
    adapter.0.device = &raw mut adapter.1;
    // SAFETY: made by `create_id` and alive.
    let id = unsafe { &mut *id.cast::<Id>() };
    id.shown.verbs = &raw mut adapter.0;
    id.shown.port_num = PORT;
    id.adapter = Some(adapter);
    0
}

extern "C" fn join_multicast_ex(id: *mut RdmaCmId, asked: *mut RdmaCmJoinMcAttrEx, _context: *mut c_void) -> c_int {
    // SAFETY: the caller's own, filled.
    let asked = unsafe { &*asked };
    assert!(asked.comp_mask == join::ADDRESS | join::JOIN_FLAGS && !asked.addr.is_null());
    let step = script(|script| {
        script.flags.push(asked.join_flags);
        script.steps.pop_front().expect("a step for each request")
    });
    // SAFETY: made by `create_id` and alive, and so is the channel it was made on.
    let channel = unsafe { &mut *(*id).channel.cast::<Channel>() };
    match step {
        Step::Fails(code) => return fails(code),
        Step::Silence => {}
        Step::Event(event, status, route) => {
            channel.events.push_back((event, status, route));
            rustix::io::write(&channel.descriptor, &1u64.to_ne_bytes()).unwrap();
        }
    }
    0
}

extern "C" fn get_cm_event(channel: *mut RdmaEventChannel, event: *mut *mut RdmaCmEvent) -> c_int {
    // SAFETY: made by `create_event_channel` and alive.
    let channel = unsafe { &mut *channel.cast::<Channel>() };
    let Some((kind, status, ah_attr)) = channel.events.pop_front() else { return fails(libc::EAGAIN) };
    rustix::io::read(&channel.descriptor, &mut [0; 8]).unwrap();
    script(|script| script.alive[2] += 1);
    let ud = RdmaUdParam { private_data: null(), private_data_len: 0, ah_attr, qp_num: 0xff_ffff, qkey: 0x0123_4567 };
    let told = RdmaCmEvent { id: null_mut(), listen_id: null_mut(), event: kind, status, ud };
    // SAFETY: the caller gives a place for the result.
    unsafe { *event = Box::into_raw(Box::new(told)) };
    0
}

extern "C" fn ack_cm_event(event: *mut RdmaCmEvent) -> c_int {
    script(|script| script.alive[2] -= 1);
    // SAFETY: made by `get_cm_event`, given back once.
    drop(unsafe { Box::from_raw(event) });
    0
}
