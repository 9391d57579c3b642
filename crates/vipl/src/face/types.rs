//! The structures of `include/vipl.h`.

use std::ffi::{c_char, c_int, c_ulong, c_void};

use crate::counters::Counter;

pub type Ulong = c_ulong;
pub type Boolean = c_int;
pub type Char = c_char;
pub type Pvoid = *mut c_void;
/// Handles of objects: numbers in the form of pointers.
pub type Handle = Pvoid;
pub type MemHandle = u32;

#[repr(C)]
pub struct NetAddressHead {
    pub host_address_len: u16,
    pub discriminator_len: u16,
}

/// Where the bytes of the host begin.
pub const HOST_ADDRESS_AT: usize = 4;

#[repr(C)]
pub struct NicAttributes {
    pub name: [Char; 64],
    pub hardware_version: Ulong,
    pub provider_version: Ulong,
    pub nic_address_len: u16,
    pub local_nic_address: *const u8,
    pub thread_safe: Boolean,
    pub max_discriminator_len: u16,
    pub max_register_bytes: Ulong,
    pub max_register_regions: Ulong,
    pub max_register_block_bytes: Ulong,
    pub max_vi: Ulong,
    pub max_descriptors_per_queue: Ulong,
    pub max_segments_per_desc: Ulong,
    pub max_cq: Ulong,
    pub max_cq_entries: Ulong,
    pub max_transfer_size: Ulong,
    pub native_mtu: Ulong,
    pub max_ptags: Ulong,
    pub reliability_level_support: u16,
    pub rdma_read_support: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ControlSegment {
    pub next: u64,
    pub next_handle: MemHandle,
    pub seg_count: u16,
    pub control: u16,
    pub reserved: u32,
    pub immediate_data: u32,
    pub length: u32,
    pub status: u32,
}

/// An address segment has no length there.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawSegment {
    pub data: u64,
    pub handle: MemHandle,
    pub length: u32,
}

/// As many segments behind it as it says.
#[repr(C)]
pub struct RawDescriptor {
    pub control: ControlSegment,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawViAttributes {
    pub reliability_level: u16,
    pub max_transfer_size: Ulong,
    pub qos: Pvoid,
    pub ptag: Handle,
    pub enable_rdma_write: Boolean,
    pub enable_rdma_read: Boolean,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawMemAttributes {
    pub ptag: Handle,
    pub enable_rdma_write: Boolean,
    pub enable_rdma_read: Boolean,
}

#[repr(C)]
pub struct ErrorDescriptor {
    pub nic_handle: Handle,
    pub vi_handle: Handle,
    pub cq_handle: Handle,
    pub descriptor_ptr: *mut RawDescriptor,
    pub op_code: Ulong,
    pub resource_code: u32,
    pub error_code: u32,
}

#[repr(C)]
pub struct AutodiscoveryList {
    pub number_of_hops: Ulong,
    pub addresses: *mut *mut NetAddressHead,
    pub address_count: Ulong,
}

pub type RawCounters = [u64; Counter::ALL.len()];

pub type NotifyHandler = Option<unsafe extern "C" fn(Pvoid, Handle, Handle, *mut RawDescriptor)>;
pub type QueueNotifyHandler = Option<unsafe extern "C" fn(Pvoid, Handle, Handle, Boolean)>;
pub type ErrorHandler = Option<unsafe extern "C" fn(Pvoid, *mut ErrorDescriptor)>;

pub const ALIGNMENT: usize = 64;
pub const OP_MASK: u16 = 3;
pub const IMMEDIATE: u16 = 4;
pub const QUEUE_FENCE: u16 = 8;
pub const AUTODISCOVERY: Ulong = 1;
pub const COUNTERS: Ulong = 0x10000;
pub const RESOURCE_VI: u32 = 1;

const _: () = assert!(size_of::<ControlSegment>() == 32 && size_of::<RawSegment>() == 16);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<NicAttributes>() == 200 && size_of::<RawViAttributes>() == 40);
