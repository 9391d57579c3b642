//! `librdmacm.so.1`, as much of it as joining a multicast group takes.

use super::library::{LoadError, find, open};
use super::structures::{IbvAhAttr, IbvContext};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Name under which every installation of rdma-core has it.
pub const RDMA_CM_LIBRARY: &str = "librdmacm.so.1";

/// The device file behind the library, made by the kernel's module `rdma_ucm`.
pub const RDMA_CM_DEVICE: &str = "/dev/infiniband/rdma_cm";

/// `rdma_port_space`: datagrams, one to one and to groups.
pub const PS_UDP: c_uint = 0x0111;

/// `rdma_cm_event_type`.
pub mod cm_event {
    use super::c_uint;

    pub const DEVICE_REMOVAL: c_uint = 11;
    pub const MULTICAST_JOIN: c_uint = 12;
    pub const MULTICAST_ERROR: c_uint = 13;
}

/// `rdma_cm_join_mc_attr_mask` and `rdma_cm_mc_join_flags`.
pub mod join {
    pub const ADDRESS: u32 = 1;
    pub const JOIN_FLAGS: u32 = 1 << 1;
    pub const FULL_MEMBER: u32 = 0;
    pub const SEND_ONLY_FULL_MEMBER: u32 = 1;
}

/// `struct rdma_event_channel`.
#[repr(C)]
pub struct RdmaEventChannel {
    pub fd: c_int,
}

/// `struct rdma_route`; only the library looks inside.
#[repr(C)]
pub struct RdmaRoute {
    pub words: [u64; 39],
}

/// `struct rdma_cm_id`.
#[repr(C)]
pub struct RdmaCmId {
    pub verbs: *mut IbvContext,
    pub channel: *mut RdmaEventChannel,
    pub context: *mut c_void,
    pub qp: *mut c_void,
    pub route: RdmaRoute,
    pub ps: c_uint,
    pub port_num: u8,
}

/// `struct rdma_ud_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RdmaUdParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: IbvAhAttr,
    pub qp_num: u32,
    pub qkey: u32,
}

/// `struct rdma_cm_event` of an identifier for datagrams.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RdmaCmEvent {
    pub id: *mut RdmaCmId,
    pub listen_id: *mut RdmaCmId,
    pub event: c_uint,
    pub status: c_int,
    pub ud: RdmaUdParam,
}

/// `struct rdma_cm_join_mc_attr_ex`.
#[repr(C)]
pub struct RdmaCmJoinMcAttrEx {
    pub comp_mask: u32,
    pub join_flags: u32,
    pub addr: *mut libc::sockaddr,
}

/// Every function of `librdmacm` that we call; their contracts are the manual pages of the same names.
pub struct RdmaCm {
    pub create_event_channel: unsafe extern "C" fn() -> *mut RdmaEventChannel,
    pub destroy_event_channel: unsafe extern "C" fn(*mut RdmaEventChannel),
    pub create_id: unsafe extern "C" fn(*mut RdmaEventChannel, *mut *mut RdmaCmId, *mut c_void, c_uint) -> c_int,
    pub destroy_id: unsafe extern "C" fn(*mut RdmaCmId) -> c_int,
    pub bind_addr: unsafe extern "C" fn(*mut RdmaCmId, *mut libc::sockaddr) -> c_int,
    pub join_multicast_ex: unsafe extern "C" fn(*mut RdmaCmId, *mut RdmaCmJoinMcAttrEx, *mut c_void) -> c_int,
    pub get_cm_event: unsafe extern "C" fn(*mut RdmaEventChannel, *mut *mut RdmaCmEvent) -> c_int,
    pub ack_cm_event: unsafe extern "C" fn(*mut RdmaCmEvent) -> c_int,
}

impl RdmaCm {
    /// The library of this process, loaded at the first call and never unloaded: it keeps adapters open.
    ///
    /// # Errors
    /// Where it is not installed, or too old.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LOADED: OnceLock<Result<RdmaCm, LoadError>> = OnceLock::new();
        LOADED.get_or_init(|| Self::from_library(RDMA_CM_LIBRARY)).as_ref().map_err(Clone::clone)
    }

    fn from_library(name: &'static str) -> Result<Self, LoadError> {
        let library = open(name)?;
        // SAFETY: of every call in this list: the field's type is the prototype of that name in `rdma/rdma_cma.h`, whose
        // versioned symbols keep it for all libraries of this soname.
        unsafe {
            Ok(Self {
                create_event_channel: find(library, "rdma_create_event_channel")?,
                destroy_event_channel: find(library, "rdma_destroy_event_channel")?,
                create_id: find(library, "rdma_create_id")?,
                destroy_id: find(library, "rdma_destroy_id")?,
                bind_addr: find(library, "rdma_bind_addr")?,
                join_multicast_ex: find(library, "rdma_join_multicast_ex")?,
                get_cm_event: find(library, "rdma_get_cm_event")?,
                ack_cm_event: find(library, "rdma_ack_cm_event")?,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_and_a_missing_function_are_told_apart() {
        let error = RdmaCm::from_library("libno-such-rdmacm.so.7").map(drop).unwrap_err();
        assert!(error.to_string().starts_with("libno-such-rdmacm.so.7 cannot be loaded: "), "{error}");
        let error = RdmaCm::from_library("libc.so.6").map(drop).unwrap_err();
        assert!(error.to_string().starts_with("libc.so.6 has no function rdma_create_event_channel"), "{error}");
    }
}
