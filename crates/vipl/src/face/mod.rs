//! The C interface: `include/vipl.h` over the safe one. Every call checks its arguments, and says what is wrong by its
//! return code.
//!
//! Handles are numbers in the form of pointers: one that names nothing any more is noticed. Pointers that the caller gives
//! are checked for null and alignment, and believed otherwise, as in any C interface.

mod connections;
mod descriptors;
mod nics;
mod objects;
mod queues;
mod transfers;
mod types;
mod vis;

use std::ffi::c_void;
use std::time::Duration;

use crate::address::NetAddress;
use crate::link::RemoteAttributes;
use crate::memory::{MemoryAttributes, ProtectionTag};
use crate::status::{Error, Reliability};
use crate::vi::ViAttributes;

use objects::{NicObject, Object, with};
use types::{HOST_ADDRESS_AT, Handle, NetAddressHead, Pvoid, RawMemAttributes, RawViAttributes, Ulong};

/// `VIP_RETURN`.
type Return = u32;
const SUCCESS: Return = 0;
const NOT_DONE: Return = 1;
const INVALID_PARAMETER: Return = 2;
const ERROR_RESOURCE: Return = 3;
const DESCRIPTOR_ERROR: Return = 11;

/// What a call came to, as its code.
fn code(result: Result<(), Return>) -> Return {
    match result {
        Ok(()) => SUCCESS,
        Err(code) => code,
    }
}

fn coded<T>(result: Result<T, Error>) -> Result<T, Return> {
    result.map_err(Error::code)
}

/// Time limits in milliseconds; the largest number of 64 or of 32 bits is none.
fn timeout(milliseconds: Ulong) -> Option<Duration> {
    let is_infinite = milliseconds == Ulong::MAX || milliseconds == Ulong::from(u32::MAX);
    (!is_infinite).then(|| Duration::from_millis(milliseconds))
}

/// A pointer of the caller to something that is written once.
///
/// # Safety
/// It is null, or valid for a write.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Return> {
    if place.is_null() || !place.is_aligned() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: neither null nor misaligned, and the caller promised the rest.
    unsafe { place.write(value) };
    Ok(())
}

/// As [`put`], where the caller may have no interest in the value.
///
/// # Safety
/// As for [`put`].
unsafe fn put_if_wanted<T>(place: *mut T, value: T) -> Result<(), Return> {
    match place.is_null() {
        true => Ok(()),
        // SAFETY: the caller's promise is passed on.
        false => unsafe { put(place, value) },
    }
}

/// Something of the caller, read once.
///
/// # Safety
/// The pointer is null, or valid for a read.
unsafe fn get<T: Copy>(place: *const T) -> Result<T, Return> {
    if place.is_null() || !place.is_aligned() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: neither null nor misaligned, and the caller promised the rest.
    Ok(unsafe { place.read() })
}

/// A place that a result is to be written to is there, so that nothing is made that nobody could name.
fn wanted<T>(place: *mut T) -> Result<(), Return> {
    if place.is_null() || !place.is_aligned() { Err(INVALID_PARAMETER) } else { Ok(()) }
}

/// The address at `place`.
///
/// # Safety
/// The pointer is null, or valid for reads of the head and of as many bytes behind it as the head says.
unsafe fn address(place: *const NetAddressHead) -> Result<NetAddress, Return> {
    if place.is_null() || !place.is_aligned() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: the caller promised that the head is there.
    let (host_len, discriminator_len) = unsafe { ((*place).host_address_len, (*place).discriminator_len) };
    if discriminator_len as usize > crate::nic::LIMITS.discriminator_max_bytes || !matches!(host_len, 4 | 16) {
        return Err(INVALID_PARAMETER);
    }
    let start = place.cast::<u8>().wrapping_add(HOST_ADDRESS_AT);
    // SAFETY: the caller promised as many bytes as the head says.
    let bytes = unsafe { std::slice::from_raw_parts(start, (host_len + discriminator_len).into()) };
    let (host, discriminator) = bytes.split_at(host_len.into());
    let host = match <[u8; 4]>::try_from(host) {
        Ok(host) => std::net::IpAddr::from(host),
        Err(_) => std::net::IpAddr::from(<[u8; 16]>::try_from(host).map_err(|_| INVALID_PARAMETER)?),
    };
    NetAddress::new(host, discriminator).ok_or(INVALID_PARAMETER)
}

/// Writes an address.
///
/// # Safety
/// The pointer is null, or valid for writes of the head, the host and the discriminator.
unsafe fn put_address(place: *mut NetAddressHead, address: &NetAddress) -> Result<(), Return> {
    let bytes = address_bytes(address);
    wanted(place)?;
    // SAFETY: the caller promised room for all of it.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// An address as it lies in memory.
fn address_bytes(address: &NetAddress) -> Vec<u8> {
    let host = match address.host() {
        std::net::IpAddr::V4(host) => host.octets().to_vec(),
        std::net::IpAddr::V6(host) => host.octets().to_vec(),
    };
    let lens = [host.len() as u16, address.discriminator().len() as u16];
    let mut bytes: Vec<u8> = lens.iter().flat_map(|len| len.to_ne_bytes()).collect();
    bytes.extend(host);
    bytes.extend(address.discriminator());
    bytes
}

fn boolean(value: i32) -> bool {
    value != 0
}

fn tag_of(handle: Handle) -> ProtectionTag {
    ProtectionTag(handle as u64)
}

fn handle_of(tag: ProtectionTag) -> Handle {
    tag.0 as usize as Handle
}

fn memory_attributes(raw: &RawMemAttributes) -> MemoryAttributes {
    MemoryAttributes {
        ptag: tag_of(raw.ptag),
        rdma_write: boolean(raw.enable_rdma_write),
        rdma_read: boolean(raw.enable_rdma_read),
    }
}

/// The attributes of a VI, of which the level and the quality of service are checked here.
fn vi_attributes(call: &'static str, raw: &RawViAttributes) -> Result<ViAttributes, Return> {
    let reliability = Reliability::of_bits(raw.reliability_level);
    let reliability = reliability.ok_or(Error::InvalidReliabilityLevel(call).code())?;
    if !raw.qos.is_null() {
        return Err(Error::InvalidQos(call).code());
    }
    Ok(ViAttributes {
        reliability,
        transfer_max_bytes: raw.max_transfer_size,
        ptag: tag_of(raw.ptag),
        rdma_write: boolean(raw.enable_rdma_write),
        rdma_read: boolean(raw.enable_rdma_read),
    })
}

fn raw_vi_attributes(attributes: &RemoteAttributes, ptag: Handle) -> RawViAttributes {
    RawViAttributes {
        reliability_level: attributes.reliability as u16,
        max_transfer_size: attributes.transfer_max_bytes as Ulong,
        qos: std::ptr::null_mut(),
        ptag,
        enable_rdma_write: attributes.rdma_write.into(),
        enable_rdma_read: attributes.rdma_read.into(),
    }
}

/// A pointer of the caller that goes to another thread unlooked at.
#[derive(Clone, Copy)]
struct Context(usize);

impl Context {
    fn of(pointer: *mut c_void) -> Self {
        Self(pointer.expose_provenance())
    }

    fn pointer(self) -> Pvoid {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// The NIC of a handle.
fn nic(handle: Handle) -> Result<std::sync::Arc<NicObject>, Return> {
    with(handle, |object| match object {
        Object::Nic(nic) => Some(nic.clone()),
        _ => None,
    })
}
