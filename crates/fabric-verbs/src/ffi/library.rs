//! The functions of `libibverbs`, found by name when first asked for.

use super::structures::*;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Name under which every installation of rdma-core has it.
pub const LIBRARY: &str = "libibverbs.so.1";

/// Why a library of rdma-core cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library is not installed, or does not load.
    #[error("{library} cannot be loaded: {reason}")]
    Library { library: &'static str, reason: String },
    /// The library lacks a function.
    #[error("{library} has no function {function}; it is older than rdma-core 32")]
    Function { library: &'static str, function: &'static str },
}

/// A library that was loaded and stays: what it leaves behind in the process would outlive it.
#[derive(Clone, Copy)]
pub(super) struct Loaded {
    name: &'static str,
    library: &'static libloading::Library,
}

/// Every function of `libibverbs` that we call; their contracts are the manual pages of the same names.
pub struct Verbs {
    pub get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut IbvDevice,
    pub free_device_list: unsafe extern "C" fn(*mut *mut IbvDevice),
    pub open_device: unsafe extern "C" fn(*mut IbvDevice) -> *mut IbvContext,
    pub close_device: unsafe extern "C" fn(*mut IbvContext) -> c_int,
    pub query_device: unsafe extern "C" fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int,
    pub query_port: unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int,
    pub query_gid_table: unsafe extern "C" fn(*mut IbvContext, *mut IbvGidEntry, usize, u32, usize) -> isize,
    pub query_pkey: unsafe extern "C" fn(*mut IbvContext, u8, c_int, *mut u16) -> c_int,
    pub alloc_pd: unsafe extern "C" fn(*mut IbvContext) -> *mut IbvPd,
    pub dealloc_pd: unsafe extern "C" fn(*mut IbvPd) -> c_int,
    pub reg_mr: unsafe extern "C" fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr,
    pub dereg_mr: unsafe extern "C" fn(*mut IbvMr) -> c_int,
    pub create_comp_channel: unsafe extern "C" fn(*mut IbvContext) -> *mut IbvCompChannel,
    pub destroy_comp_channel: unsafe extern "C" fn(*mut IbvCompChannel) -> c_int,
    pub create_cq: unsafe extern "C" fn(*mut IbvContext, c_int, *mut c_void, *mut IbvCompChannel, c_int) -> *mut IbvCq,
    pub destroy_cq: unsafe extern "C" fn(*mut IbvCq) -> c_int,
    pub get_cq_event: unsafe extern "C" fn(*mut IbvCompChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int,
    pub ack_cq_events: unsafe extern "C" fn(*mut IbvCq, c_uint),
    pub create_srq: unsafe extern "C" fn(*mut IbvPd, *mut IbvSrqInitAttr) -> *mut IbvSrq,
    pub modify_srq: unsafe extern "C" fn(*mut IbvSrq, *mut IbvSrqAttr, c_int) -> c_int,
    pub destroy_srq: unsafe extern "C" fn(*mut IbvSrq) -> c_int,
    pub create_qp: unsafe extern "C" fn(*mut IbvPd, *mut IbvQpInitAttr) -> *mut IbvQp,
    pub modify_qp: unsafe extern "C" fn(*mut IbvQp, *mut IbvQpAttr, c_int) -> c_int,
    pub query_qp: unsafe extern "C" fn(*mut IbvQp, *mut IbvQpAttr, c_int, *mut IbvQpInitAttr) -> c_int,
    pub destroy_qp: unsafe extern "C" fn(*mut IbvQp) -> c_int,
    pub create_ah: unsafe extern "C" fn(*mut IbvPd, *mut IbvAhAttr) -> *mut IbvAh,
    pub destroy_ah: unsafe extern "C" fn(*mut IbvAh) -> c_int,
    pub attach_mcast: unsafe extern "C" fn(*mut IbvQp, *const IbvGid, u16) -> c_int,
    pub detach_mcast: unsafe extern "C" fn(*mut IbvQp, *const IbvGid, u16) -> c_int,
    pub get_async_event: unsafe extern "C" fn(*mut IbvContext, *mut IbvAsyncEvent) -> c_int,
    pub ack_async_event: unsafe extern "C" fn(*mut IbvAsyncEvent),
    pub fork_init: unsafe extern "C" fn() -> c_int,
}

impl Verbs {
    /// The library of this process, loaded at the first call and never unloaded: its providers leave threads and
    /// handlers behind.
    ///
    /// # Errors
    /// Where it is not installed, or too old.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Self::from_library(LIBRARY)).as_ref().map_err(Clone::clone)
    }

    fn from_library(name: &'static str) -> Result<Self, LoadError> {
        let library = open(name)?;
        // SAFETY: of every call in this list: the field's type is the prototype of that name in
        // `infiniband/verbs.h`, whose versioned symbols keep it for all libraries of this soname.
        unsafe {
            Ok(Self {
                get_device_list: find(library, "ibv_get_device_list")?,
                free_device_list: find(library, "ibv_free_device_list")?,
                open_device: find(library, "ibv_open_device")?,
                close_device: find(library, "ibv_close_device")?,
                query_device: find(library, "ibv_query_device")?,
                query_port: find(library, "ibv_query_port")?,
                query_gid_table: find(library, "_ibv_query_gid_table")?,
                query_pkey: find(library, "ibv_query_pkey")?,
                alloc_pd: find(library, "ibv_alloc_pd")?,
                dealloc_pd: find(library, "ibv_dealloc_pd")?,
                reg_mr: find(library, "ibv_reg_mr")?,
                dereg_mr: find(library, "ibv_dereg_mr")?,
                create_comp_channel: find(library, "ibv_create_comp_channel")?,
                destroy_comp_channel: find(library, "ibv_destroy_comp_channel")?,
                create_cq: find(library, "ibv_create_cq")?,
                destroy_cq: find(library, "ibv_destroy_cq")?,
                get_cq_event: find(library, "ibv_get_cq_event")?,
                ack_cq_events: find(library, "ibv_ack_cq_events")?,
                create_srq: find(library, "ibv_create_srq")?,
                modify_srq: find(library, "ibv_modify_srq")?,
                destroy_srq: find(library, "ibv_destroy_srq")?,
                create_qp: find(library, "ibv_create_qp")?,
                modify_qp: find(library, "ibv_modify_qp")?,
                query_qp: find(library, "ibv_query_qp")?,
                destroy_qp: find(library, "ibv_destroy_qp")?,
                create_ah: find(library, "ibv_create_ah")?,
                destroy_ah: find(library, "ibv_destroy_ah")?,
                attach_mcast: find(library, "ibv_attach_mcast")?,
                detach_mcast: find(library, "ibv_detach_mcast")?,
                get_async_event: find(library, "ibv_get_async_event")?,
                ack_async_event: find(library, "ibv_ack_async_event")?,
                fork_init: find(library, "ibv_fork_init")?,
            })
        }
    }
}

/// Loads a library of rdma-core for the rest of the process.
pub(super) fn open(name: &'static str) -> Result<Loaded, LoadError> {
    // SAFETY: the initialisers of rdma-core's libraries and of what they depend on have no preconditions; a name without
    // a slash is found by the system's own rules, so it is the library the system's owner installed.
    let library = unsafe { libloading::Library::new(name) }
        .map_err(|error| LoadError::Library { library: name, reason: error.to_string() })?;
    Ok(Loaded { name, library: Box::leak(Box::new(library)) })
}

/// The newest version of a function.
///
/// # Safety
/// `Function` is the function's own type.
pub(super) unsafe fn find<Function: Copy>(from: Loaded, function: &'static str) -> Result<Function, LoadError> {
    // SAFETY: the caller promises the type.
    let symbol = unsafe { from.library.get::<Function>(function.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| LoadError::Function { library: from.name, function })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_and_a_missing_function_are_told_apart() {
        let error = Verbs::from_library("libno-such-verbs.so.7").map(drop).unwrap_err();
        assert!(matches!(&error, LoadError::Library { library: "libno-such-verbs.so.7", .. }), "{error}");
        let error = Verbs::from_library("libc.so.6").map(drop).unwrap_err();
        assert_eq!(error, LoadError::Function { library: "libc.so.6", function: "ibv_get_device_list" });
    }
}
