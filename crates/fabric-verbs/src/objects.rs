//! The library's objects, each owned by one value that gives it back.
//!
//! An object holds what it was made from, so that nothing is given back while something that needs it lives: a queue
//! pair keeps its completion queues, everything keeps the open adapter. The library itself may be called from any
//! thread; these values are moved between threads and shared for that reason.

use crate::ffi::numbers::{SRQ_LIMIT, qp_attr, srq_init, xrcd_init};
use crate::ffi::*;
use fabric::FabricError;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Declares that a value made of library pointers may move to, and be used from, other threads.
macro_rules! library_object {
    ($name:ident) => {
        // SAFETY: the library locks what its objects share between threads, and frees an object only in its destroy
        // function, which only `Drop` calls.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    };
}
pub(crate) use library_object;

/// What the system said about a call of the library, as our error.
pub(crate) fn system(operation: &'static str, code: c_int) -> FabricError {
    FabricError::System { operation, reason: std::io::Error::from_raw_os_error(code).to_string() }
}

fn last_error(operation: &'static str) -> FabricError {
    FabricError::System { operation, reason: std::io::Error::last_os_error().to_string() }
}

/// Turns the library's "0 or an error number" into a result.
fn check(operation: &'static str, code: c_int) -> Result<(), FabricError> {
    if code == 0 { Ok(()) } else { Err(system(operation, code.abs())) }
}

fn made<T>(operation: &'static str, pointer: *mut T) -> Result<NonNull<T>, FabricError> {
    NonNull::new(pointer).ok_or_else(|| last_error(operation))
}

/// The name of an adapter.
///
/// # Safety
/// The library made `device` and has not freed it.
pub(crate) unsafe fn name_of(device: NonNull<IbvDevice>) -> String {
    // SAFETY: the caller promises a device, whose name the library has written before it gave it away.
    let name = unsafe { &(*device.as_ptr()).name };
    let bytes: Vec<u8> = name.iter().map(|byte| byte.to_ne_bytes()[0]).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An open adapter.
pub(crate) struct Adapter {
    pub(crate) verbs: &'static Verbs,
    raw: NonNull<IbvContext>,
}

library_object!(Adapter);

impl Adapter {
    /// Takes over a context that `ibv_open_device` gave.
    ///
    /// # Safety
    /// `raw` is such a context, nobody else closes it, and `verbs` is the library that made it.
    pub(crate) unsafe fn from_raw(verbs: &'static Verbs, raw: NonNull<IbvContext>) -> Self {
        Self { verbs, raw }
    }

    fn context(&self) -> &IbvContext {
        // SAFETY: the context lives until our Drop, and the fields that we declare are written before it is returned
        // by the library and never again.
        unsafe { self.raw.as_ref() }
    }

    pub(crate) fn attributes(&self) -> Result<IbvDeviceAttr, FabricError> {
        let mut attributes = std::mem::MaybeUninit::<IbvDeviceAttr>::zeroed();
        // SAFETY: the context is open and the place is large enough for the structure.
        let code = unsafe { (self.verbs.query_device)(self.raw.as_ptr(), attributes.as_mut_ptr()) };
        check("ibv_query_device", code)?;
        // SAFETY: integers and arrays of them; all zeros were valid before the library filled them.
        Ok(unsafe { attributes.assume_init() })
    }

    pub(crate) fn port(&self, number: u8) -> Result<IbvPortAttr, FabricError> {
        let mut attributes = IbvPortAttr::default();
        // SAFETY: the context is open; the function fills at most the structure, whose newer fields stay zero.
        let code = unsafe { (self.verbs.query_port)(self.raw.as_ptr(), number, &raw mut attributes) };
        check("ibv_query_port", code)?;
        Ok(attributes)
    }

    /// All valid entries of the GID tables of all ports.
    pub(crate) fn gids(&self, max: usize) -> Result<Vec<IbvGidEntry>, FabricError> {
        let mut entries = vec![IbvGidEntry::default(); max];
        // SAFETY: the vector has room for `max` entries of the size given.
        let count = unsafe {
            (self.verbs.query_gid_table)(self.raw.as_ptr(), entries.as_mut_ptr(), max, 0, size_of::<IbvGidEntry>())
        };
        if count < 0 {
            return Err(system("ibv_query_gid_table", c_int::try_from(-count).unwrap_or(libc::EINVAL)));
        }
        entries.truncate(usize::try_from(count).expect("not negative"));
        Ok(entries)
    }

    /// The partition keys of a port, in the order of its table.
    pub(crate) fn partitions(&self, port: u8, count: u16) -> Vec<u16> {
        let key = |index: u16| {
            let mut key = 0u16;
            // SAFETY: the context is open and `key` is a place for the result.
            let code = unsafe { (self.verbs.query_pkey)(self.raw.as_ptr(), port, c_int::from(index), &raw mut key) };
            if code == 0 { u16::from_be(key) } else { 0 }
        };
        (0..count).map(key).collect()
    }

    /// The extended functions, if the library has them.
    fn tail(&self, field_offset: usize) -> Option<&VerbsContextTail> {
        if self.context().abi_compat as usize != usize::MAX {
            return None;
        }
        let before = offset_of!(VerbsContextTail, context);
        // SAFETY: the mark just read says that the context lies inside a `struct verbs_context`, whose last field it is.
        let tail = unsafe { self.raw.as_ptr().byte_sub(before) }.cast::<VerbsContextTail>();
        // SAFETY: as above; `sz` has always stood directly in front of the context.
        let size = unsafe { (*tail).sz };
        if size < size_of::<VerbsContextTail>() - field_offset {
            return None;
        }
        // SAFETY: the structure reaches back at least to the field that is asked for, and the declared fields behind
        // it are older.
        Some(unsafe { &*tail })
    }

    /// What happened to objects since the last call: the library's event and the object or port it names.
    pub(crate) fn next_event(&self) -> Option<(c_uint, u64)> {
        let mut event = IbvAsyncEvent { element: 0, event_type: 0 };
        // SAFETY: the context is open; its descriptor was made non-blocking, so this returns at once.
        let code = unsafe { (self.verbs.get_async_event)(self.raw.as_ptr(), &raw mut event) };
        if code != 0 {
            return None;
        }
        // SAFETY: the event was just taken and is acknowledged once.
        unsafe { (self.verbs.ack_async_event)(&raw mut event) };
        Some((event.event_type, event.element))
    }

    /// Lets [`Adapter::next_event`] return at once.
    pub(crate) fn do_not_block(&self) -> Result<(), FabricError> {
        // SAFETY: the descriptor is open as long as the context.
        let descriptor = unsafe { BorrowedFd::borrow_raw(self.context().async_fd) };
        do_not_block(descriptor)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: everything made from it holds it, so nothing is left.
        unsafe { (self.verbs.close_device)(self.raw.as_ptr()) };
    }
}

pub(crate) fn do_not_block(descriptor: BorrowedFd<'_>) -> Result<(), FabricError> {
    let refused =
        |error: rustix::io::Errno| FabricError::System { operation: "fcntl(O_NONBLOCK)", reason: error.to_string() };
    let flags = rustix::fs::fcntl_getfl(descriptor).map_err(refused)?;
    rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK).map_err(refused)
}

/// A protection domain.
pub(crate) struct Domain {
    pub(crate) adapter: Arc<Adapter>,
    raw: NonNull<IbvPd>,
}

library_object!(Domain);

impl Domain {
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Self, FabricError> {
        // SAFETY: the adapter is open.
        let raw = unsafe { (adapter.verbs.alloc_pd)(adapter.raw.as_ptr()) };
        Ok(Self { raw: made("ibv_alloc_pd", raw)?, adapter: Arc::clone(adapter) })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything made from it holds it, so nothing is left.
        unsafe { (self.adapter.verbs.dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// A memory region.
pub(crate) struct Region {
    domain: Arc<Domain>,
    raw: NonNull<IbvMr>,
}

library_object!(Region);

impl Region {
    /// Registers `len_bytes` bytes at `address`; who may touch them, and until when, was promised when the caller made
    /// its range.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        address: usize,
        len_bytes: usize,
        access: c_int,
    ) -> Result<Self, FabricError> {
        // SAFETY: the domain is open; the library pins pages or refuses, and reads nothing itself.
        let raw =
            unsafe { (domain.adapter.verbs.reg_mr)(domain.raw.as_ptr(), address as *mut c_void, len_bytes, access) };
        Ok(Self { raw: made("ibv_reg_mr", raw)?, domain: Arc::clone(domain) })
    }

    /// Takes the keys back; only then may the memory go.
    pub(crate) fn deregister(self) -> Result<(), FabricError> {
        let region = std::mem::ManuallyDrop::new(self);
        // SAFETY: registered once, deregistered once: `Drop` does not run.
        let code = unsafe { (region.domain.adapter.verbs.dereg_mr)(region.raw.as_ptr()) };
        check("ibv_dereg_mr", code)?;
        // SAFETY: the value is not used any more; without this its hold on the domain would stay.
        drop(unsafe { std::ptr::read(&raw const region.domain) });
        Ok(())
    }

    /// Local and remote key.
    pub(crate) fn keys(&self) -> (u32, u32) {
        // SAFETY: the region is registered until our Drop, and its fields do not change.
        let region = unsafe { self.raw.as_ref() };
        (region.lkey, region.rkey)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once.
        unsafe { (self.domain.adapter.verbs.dereg_mr)(self.raw.as_ptr()) };
    }
}

/// A completion queue with a descriptor of its own.
pub(crate) struct Completions {
    adapter: Arc<Adapter>,
    channel: NonNull<IbvCompChannel>,
    raw: NonNull<IbvCq>,
}

library_object!(Completions);

impl Completions {
    pub(crate) fn new(adapter: &Arc<Adapter>, depth: u32) -> Result<Self, FabricError> {
        let verbs = adapter.verbs;
        // SAFETY: the adapter is open.
        let channel = made("ibv_create_comp_channel", unsafe { (verbs.create_comp_channel)(adapter.raw.as_ptr()) })?;
        let depth = c_int::try_from(depth).unwrap_or(c_int::MAX);
        // SAFETY: adapter and channel are open; vector 0 always exists.
        let raw = unsafe { (verbs.create_cq)(adapter.raw.as_ptr(), depth, null_mut(), channel.as_ptr(), 0) };
        let raw = made("ibv_create_cq", raw).inspect_err(|_| {
            // SAFETY: just made, and nothing uses it.
            unsafe { (verbs.destroy_comp_channel)(channel.as_ptr()) };
        })?;
        let completions = Self { adapter: Arc::clone(adapter), channel, raw };
        do_not_block(completions.as_fd())?;
        Ok(completions)
    }

    /// Fills `into` from its start; returns how many.
    pub(crate) fn poll(&self, into: &mut [IbvWc]) -> Result<usize, FabricError> {
        let poll = self.adapter.context().ops.poll_cq.expect("every provider polls");
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue exists and the slice has room for that many.
        let count = unsafe { poll(self.raw.as_ptr(), room, into.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| FabricError::System {
            operation: "ibv_poll_cq",
            reason: format!("the provider failed with {count}"),
        })
    }

    pub(crate) fn arm(&self, solicited_only: bool) -> Result<(), FabricError> {
        let arm = self.adapter.context().ops.req_notify_cq.expect("every provider notifies");
        // SAFETY: the queue exists.
        check("ibv_req_notify_cq", unsafe { arm(self.raw.as_ptr(), solicited_only.into()) })
    }

    /// Takes all notifications off the descriptor.
    pub(crate) fn acknowledge(&self) {
        let mut count = 0;
        loop {
            let (mut queue, mut context) = (null_mut(), null_mut());
            // SAFETY: the channel exists and does not block.
            let code =
                unsafe { (self.adapter.verbs.get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut context) };
            if code != 0 {
                break;
            }
            count += 1;
        }
        if count > 0 {
            // SAFETY: so many events of this queue, the only one of the channel, were just taken.
            unsafe { (self.adapter.verbs.ack_cq_events)(self.raw.as_ptr(), count) };
        }
    }

    /// The address by which events name it.
    pub(crate) fn id(&self) -> u64 {
        self.raw.as_ptr() as u64
    }
}

impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists until our Drop, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // All notifications must be acknowledged first, or destroying waits for ever.
        self.acknowledge();
        // SAFETY: whatever completes here holds it, so nothing is left.
        unsafe { (self.adapter.verbs.destroy_cq)(self.raw.as_ptr()) };
        // SAFETY: its only queue is gone.
        unsafe { (self.adapter.verbs.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// A domain of extended reliable connections.
pub(crate) struct ExtendedDomain {
    adapter: Arc<Adapter>,
    raw: NonNull<IbvXrcd>,
}

library_object!(ExtendedDomain);

impl ExtendedDomain {
    /// # Errors
    /// Where library, kernel or adapter have none.
    pub(crate) fn new(adapter: &Arc<Adapter>) -> Result<Self, FabricError> {
        let absent = FabricError::Unsupported { operation: "ibv_open_xrcd", reason: "the library is too old" };
        let tail = adapter.tail(offset_of!(VerbsContextTail, open_xrcd)).ok_or(absent.clone())?;
        let open = tail.open_xrcd.ok_or(absent)?;
        let mut attributes =
            IbvXrcdInitAttr { comp_mask: xrcd_init::FD | xrcd_init::OFLAGS, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: the adapter is open; descriptor -1 asks for a domain of this process alone.
        let raw = unsafe { open(adapter.raw.as_ptr(), &raw mut attributes) };
        Ok(Self { raw: made("ibv_open_xrcd", raw)?, adapter: Arc::clone(adapter) })
    }
}

impl Drop for ExtendedDomain {
    fn drop(&mut self) {
        let close = self.adapter.tail(offset_of!(VerbsContextTail, close_xrcd)).and_then(|tail| tail.close_xrcd);
        if let Some(close) = close {
            // SAFETY: what lives in the domain holds it, so nothing is left.
            unsafe { close(self.raw.as_ptr()) };
        }
    }
}

/// A shared receive queue.
pub(crate) struct SharedQueue {
    domain: Arc<Domain>,
    raw: NonNull<IbvSrq>,
    /// Its number and what it completes to, if XRC sends address it.
    extended: Option<(u32, Arc<ExtendedDomain>, Arc<Completions>)>,
}

library_object!(SharedQueue);

impl SharedQueue {
    pub(crate) fn new(domain: &Arc<Domain>, depth: u32, entries: u32) -> Result<Self, FabricError> {
        let attr = IbvSrqAttr { max_wr: depth, max_sge: entries, srq_limit: 0 };
        let mut attributes = IbvSrqInitAttr { srq_context: null_mut(), attr };
        // SAFETY: the domain is open and the attributes are filled.
        let raw = unsafe { (domain.adapter.verbs.create_srq)(domain.raw.as_ptr(), &raw mut attributes) };
        Ok(Self { raw: made("ibv_create_srq", raw)?, domain: Arc::clone(domain), extended: None })
    }

    /// A queue that XRC sends address by number.
    pub(crate) fn extended(
        domain: &Arc<Domain>,
        xrc: &Arc<ExtendedDomain>,
        completions: &Arc<Completions>,
        depth: u32,
        entries: u32,
    ) -> Result<Self, FabricError> {
        let adapter = &domain.adapter;
        let absent = FabricError::Unsupported { operation: "ibv_create_srq_ex", reason: "the provider has none" };
        let tail = adapter.tail(offset_of!(VerbsContextTail, get_srq_num)).ok_or(absent.clone())?;
        let create = tail.create_srq_ex.ok_or(absent.clone())?;
        let number_of = tail.get_srq_num.ok_or(absent)?;
        let mut attributes = IbvSrqInitAttrEx {
            srq_context: null_mut(),
            attr: IbvSrqAttr { max_wr: depth, max_sge: entries, srq_limit: 0 },
            comp_mask: srq_init::TYPE | srq_init::PD | srq_init::XRCD | srq_init::CQ,
            srq_type: srq_init::TYPE_XRC,
            pd: domain.raw.as_ptr(),
            xrcd: xrc.raw.as_ptr(),
            cq: completions.raw.as_ptr(),
            max_num_tags: 0,
            max_ops: 0,
        };
        // SAFETY: adapter, domains and queue are open and of the same adapter; the mask names the fields filled.
        let raw = unsafe { create(adapter.raw.as_ptr(), &raw mut attributes) };
        let raw = made("ibv_create_srq_ex", raw)?;
        let mut queue = Self { raw, domain: Arc::clone(domain), extended: None };
        let mut number = 0;
        // SAFETY: the queue was just made.
        check("ibv_get_srq_num", unsafe { number_of(raw.as_ptr(), &raw mut number) })?;
        queue.extended = Some((number, Arc::clone(xrc), Arc::clone(completions)));
        Ok(queue)
    }

    /// The adapter's own number, if XRC sends address it.
    pub(crate) fn number(&self) -> Option<u32> {
        self.extended.as_ref().map(|(number, ..)| *number)
    }

    /// One event when fewer than `limit` receives are left.
    pub(crate) fn set_limit(&self, limit: u32) -> Result<(), FabricError> {
        let mut attributes = IbvSrqAttr { srq_limit: limit, ..IbvSrqAttr::default() };
        // SAFETY: the queue exists; the mask names the field filled.
        check("ibv_modify_srq", unsafe {
            (self.domain.adapter.verbs.modify_srq)(self.raw.as_ptr(), &raw mut attributes, SRQ_LIMIT)
        })
    }

    /// Posts a chain of receives; if the provider refuses one, its place in the chain and the error number.
    ///
    /// # Safety
    /// `chain` is linked through `next` in order, and its scatter lists are valid.
    pub(crate) unsafe fn post(&self, chain: &mut [IbvRecvWr]) -> Result<(), (usize, c_int)> {
        let post = self.domain.adapter.context().ops.post_srq_recv.expect("a provider of shared queues posts to them");
        let mut bad = null_mut();
        // SAFETY: the queue exists, the chain is the caller's promise.
        let code = unsafe { post(self.raw.as_ptr(), chain.as_mut_ptr(), &raw mut bad) };
        refused_at(chain, bad, code)
    }

    pub(crate) fn id(&self) -> u64 {
        self.raw.as_ptr() as u64
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs that take from it hold it, so none is left.
        unsafe { (self.domain.adapter.verbs.destroy_srq)(self.raw.as_ptr()) };
    }
}

/// What a queue pair is made from.
pub(crate) struct PairParts {
    pub(crate) domain: Arc<Domain>,
    pub(crate) send: Arc<Completions>,
    pub(crate) receive: Arc<Completions>,
    /// Where its receives come from. An XRC target keeps its peers' way to its memory here; see
    /// `VerbsContext::memory_queue`.
    pub(crate) shared: Option<Arc<SharedQueue>>,
    /// Makes it an XRC target.
    pub(crate) extended: Option<Arc<ExtendedDomain>>,
}

/// A queue pair.
pub(crate) struct Pair {
    parts: PairParts,
    raw: NonNull<IbvQp>,
    /// Groups that it is attached to.
    attached: Vec<(IbvGid, u16)>,
}

library_object!(Pair);

impl Pair {
    pub(crate) fn new(parts: PairParts, qp_type: c_uint, cap: IbvQpCap) -> Result<Self, FabricError> {
        let raw = match &parts.extended {
            None => {
                let mut attributes = IbvQpInitAttr {
                    qp_context: null_mut(),
                    send_cq: parts.send.raw.as_ptr(),
                    recv_cq: parts.receive.raw.as_ptr(),
                    srq: parts.shared.as_ref().map_or(null_mut(), |shared| shared.raw.as_ptr()),
                    cap,
                    qp_type,
                    sq_sig_all: 0,
                };
                let create = parts.domain.adapter.verbs.create_qp;
                // SAFETY: all parts are open and of the same adapter.
                unsafe { create(parts.domain.raw.as_ptr(), &raw mut attributes) }
            }
            Some(extended) => Self::extended_target(&parts, extended, qp_type)?,
        };
        Ok(Self { raw: made("ibv_create_qp", raw)?, parts, attached: Vec::new() })
    }

    fn extended_target(
        parts: &PairParts,
        extended: &Arc<ExtendedDomain>,
        qp_type: c_uint,
    ) -> Result<*mut IbvQp, FabricError> {
        let adapter = &parts.domain.adapter;
        let create = adapter
            .tail(offset_of!(VerbsContextTail, create_qp_ex))
            .and_then(|tail| tail.create_qp_ex)
            .ok_or(FabricError::Unsupported { operation: "ibv_create_qp_ex", reason: "the provider has none" })?;
        // SAFETY: a structure of integers and pointers; all zeros is the header's own way to leave fields out.
        let mut attributes: IbvQpInitAttrEx = unsafe { std::mem::zeroed() };
        attributes.qp_type = qp_type;
        attributes.comp_mask = crate::ffi::numbers::qp_init::XRCD;
        attributes.xrcd = extended.raw.as_ptr();
        // SAFETY: adapter and domain are open; the mask names the fields filled.
        Ok(unsafe { create(adapter.raw.as_ptr(), &raw mut attributes) })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the pair exists until our Drop, and its number does not change.
        unsafe { self.raw.as_ref() }.qp_num
    }

    pub(crate) fn shared(&self) -> Option<&Arc<SharedQueue>> {
        self.parts.shared.as_ref()
    }

    pub(crate) fn modify(&self, attributes: &IbvQpAttr, mask: c_int) -> Result<(), FabricError> {
        let mut attributes = *attributes;
        // SAFETY: the pair exists; the mask names fields that are filled.
        check("ibv_modify_qp", unsafe {
            (self.parts.domain.adapter.verbs.modify_qp)(self.raw.as_ptr(), &raw mut attributes, mask)
        })
    }

    /// Its state, as the adapter has it.
    pub(crate) fn state(&self) -> Result<c_uint, FabricError> {
        let mut attributes = IbvQpAttr::default();
        let mut init = std::mem::MaybeUninit::<IbvQpInitAttr>::zeroed();
        // SAFETY: the pair exists and both structures have room.
        let code = unsafe {
            (self.parts.domain.adapter.verbs.query_qp)(
                self.raw.as_ptr(),
                &raw mut attributes,
                qp_attr::STATE,
                init.as_mut_ptr(),
            )
        };
        check("ibv_query_qp", code)?;
        Ok(attributes.qp_state)
    }

    /// Posts a chain of sends; if the provider refuses one, its place in the chain and the error number.
    ///
    /// # Safety
    /// `chain` is linked through `next` in order; its gather lists, inline bytes and address handles are valid.
    pub(crate) unsafe fn post_send(&self, chain: &mut [IbvSendWr]) -> Result<(), (usize, c_int)> {
        let post = self.parts.domain.adapter.context().ops.post_send.expect("every provider posts");
        let mut bad = null_mut();
        // SAFETY: the pair exists, the chain is the caller's promise.
        let code = unsafe { post(self.raw.as_ptr(), chain.as_mut_ptr(), &raw mut bad) };
        refused_at(chain, bad, code)
    }

    /// Posts a chain of receives; if the provider refuses one, its place in the chain and the error number.
    ///
    /// # Safety
    /// As for [`SharedQueue::post`].
    pub(crate) unsafe fn post_receive(&self, chain: &mut [IbvRecvWr]) -> Result<(), (usize, c_int)> {
        let post = self.parts.domain.adapter.context().ops.post_recv.expect("every provider posts");
        let mut bad = null_mut();
        // SAFETY: the pair exists, the chain is the caller's promise.
        let code = unsafe { post(self.raw.as_ptr(), chain.as_mut_ptr(), &raw mut bad) };
        refused_at(chain, bad, code)
    }

    /// Takes what arrives for the group at the end of `route`.
    pub(crate) fn attach(&mut self, route: &IbvAhAttr) -> Result<(), FabricError> {
        let (group, lid) = (route.grh.dgid.0, route.dlid);
        // SAFETY: the pair exists and the group is 16 bytes.
        check("ibv_attach_mcast", unsafe {
            (self.parts.domain.adapter.verbs.attach_mcast)(self.raw.as_ptr(), &raw const group, lid)
        })?;
        self.attached.push((group, lid));
        Ok(())
    }

    /// Takes it no longer, unless it was attached to the same by another name.
    pub(crate) fn detach(&mut self, route: &IbvAhAttr) -> Result<(), FabricError> {
        let (group, lid) = (route.grh.dgid.0, route.dlid);
        let place = self.attached.iter().position(|attached| *attached == (group, lid));
        self.attached.swap_remove(place.ok_or(FabricError::NoSuch("membership of the multicast group"))?);
        if self.attached.contains(&(group, lid)) {
            return Ok(());
        }
        self.detach_from(&group, lid)
    }

    fn detach_from(&self, group: &IbvGid, lid: u16) -> Result<(), FabricError> {
        // SAFETY: the pair exists and the group is 16 bytes.
        check("ibv_detach_mcast", unsafe {
            (self.parts.domain.adapter.verbs.detach_mcast)(self.raw.as_ptr(), group, lid)
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.raw.as_ptr() as u64
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The kernel destroys none that is attached.
        for (group, lid) in &self.attached {
            let _ = self.detach_from(group, *lid);
        }
        // SAFETY: made once, destroyed once; what it was made from is dropped after this.
        unsafe { (self.parts.domain.adapter.verbs.destroy_qp)(self.raw.as_ptr()) };
    }
}

/// The way to a datagram's receiver.
pub(crate) struct Route {
    domain: Arc<Domain>,
    raw: NonNull<IbvAh>,
}

library_object!(Route);

impl Route {
    pub(crate) fn new(domain: &Arc<Domain>, attributes: &IbvAhAttr) -> Result<Self, FabricError> {
        let mut attributes = *attributes;
        // SAFETY: the domain is open and the attributes are filled.
        let raw = unsafe { (domain.adapter.verbs.create_ah)(domain.raw.as_ptr(), &raw mut attributes) };
        Ok(Self { raw: made("ibv_create_ah", raw)?, domain: Arc::clone(domain) })
    }

    /// For a work request that is posted while this lives.
    pub(crate) fn raw(&self) -> *mut IbvAh {
        self.raw.as_ptr()
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; a datagram still posted with it fails.
        unsafe { (self.domain.adapter.verbs.destroy_ah)(self.raw.as_ptr()) };
    }
}

/// Where in `chain` the provider stopped.
fn refused_at<T>(chain: &[T], bad: *const T, code: c_int) -> Result<(), (usize, c_int)> {
    if code == 0 {
        return Ok(());
    }
    let start = chain.as_ptr() as usize;
    let index = (bad as usize).wrapping_sub(start) / size_of::<T>();
    // A provider that does not say where it stopped is taken to have stopped at once.
    Err((if index < chain.len() { index } else { 0 }, code.abs()))
}
