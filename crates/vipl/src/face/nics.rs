//! NICs, protection tags, memory, errors, names.

use std::ffi::{CStr, c_void};
use std::io::Write;
use std::sync::Arc;

use base::Config;
use base::memory::WriteRange;

use crate::address::NetAddress;
use crate::counters::Counter;
use crate::descriptor::MemoryHandle;
use crate::names::NameService;
use crate::nic::{ErrorEvent, LIMITS, Nic, Settings};
use crate::waiting::WaitPolicy;

use super::objects::{NicObject, Object, insert, remove};
use super::types::*;
use super::*;

/// This host, as callers are given it.
static LOCAL_HOST: [u8; 4] = [127, 0, 0, 1];
const NAME: &str = "Ferrovia, shared memory";
/// The longest name of a host.
const NAME_MAX: usize = 255;

/// What the environment says; what is not understood there is said on standard error, and the defaults hold.
fn settings() -> Settings {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let config = match Config::parse(variables) {
        Ok((config, _)) => config,
        Err(error) => {
            // Where that cannot be said it is not worth the end of the program.
            let _ = writeln!(std::io::stderr(), "libvipl: {error}; the defaults are used");
            Config::default()
        }
    };
    let usual = WaitPolicy::for_host();
    Settings {
        push_max: config.vipl_push_max,
        waiting: WaitPolicy {
            spin_count: config.spin_count.unwrap_or(usual.spin_count),
            yield_count: config.yield_count.unwrap_or(usual.yield_count),
        },
    }
}

/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipOpenNic(device_name: *const Char, nic_handle: *mut Handle) -> Return {
    code((|| {
        wanted(nic_handle)?;
        if device_name.is_null() {
            return Err(INVALID_PARAMETER);
        }
        let nic = coded(Nic::open(settings()))?;
        let object = NicObject {
            nic,
            names: NameService::default(),
            vi_handles: Default::default(),
            discovery: Default::default(),
        };
        // SAFETY: the caller's promise.
        unsafe { put(nic_handle, insert(Object::Nic(Arc::new(object)))) }
    })())
}

/// Closes a NIC that nothing is left of.
#[unsafe(no_mangle)]
pub extern "C" fn VipCloseNic(nic_handle: Handle) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        // The error handler may be about to be called; afterwards it is not.
        let calling = nic.nic.core.calling.lock();
        if !nic.nic.is_unused() {
            return Err(ERROR_RESOURCE);
        }
        remove(nic_handle, |object| if let Object::Nic(_) = object { Ok(()) } else { Err(INVALID_PARAMETER) })?;
        nic.nic.set_error_handler(None);
        drop(calling);
        Ok(())
    })())
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryNic(nic_handle: Handle, attributes: *mut NicAttributes) -> Return {
    code((|| {
        nic(nic_handle)?;
        let mut name = [0; 64];
        std::iter::zip(&mut name, NAME.bytes()).for_each(|(place, byte)| *place = byte as Char);
        let all = NicAttributes {
            name,
            hardware_version: 0,
            provider_version: 1,
            nic_address_len: LOCAL_HOST.len() as u16,
            local_nic_address: LOCAL_HOST.as_ptr(),
            thread_safe: 1,
            max_discriminator_len: LIMITS.discriminator_max_bytes as u16,
            max_register_bytes: LIMITS.register_max_bytes,
            max_register_regions: LIMITS.regions_max as Ulong,
            max_register_block_bytes: LIMITS.region_max_bytes,
            max_vi: LIMITS.vis_max as Ulong,
            max_descriptors_per_queue: LIMITS.descriptors_max as Ulong,
            max_segments_per_desc: LIMITS.segments_max as Ulong,
            max_cq: LIMITS.queues_max as Ulong,
            max_cq_entries: LIMITS.queue_entries_max as Ulong,
            max_transfer_size: LIMITS.transfer_max_bytes,
            native_mtu: LIMITS.transfer_max_bytes,
            max_ptags: LIMITS.ptags_max as Ulong,
            reliability_level_support: 7,
            rdma_read_support: 6,
        };
        // SAFETY: the caller's promise.
        unsafe { put(attributes, all) }
    })())
}

/// # Safety
/// The handler may be called with the context, on another thread, until another one takes its place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipErrorCallback(nic_handle: Handle, context: Pvoid, handler: ErrorHandler) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        let (context, own) = (Context::of(context), nic_handle as usize);
        let Some(handler) = handler else {
            nic.nic.set_error_handler(None);
            return Ok(());
        };
        let object = Arc::downgrade(&nic);
        let call = move |event: ErrorEvent| {
            let vi = object.upgrade().and_then(|nic| nic.vi_handles.lock().get(&event.vi).copied());
            let mut description = ErrorDescriptor {
                nic_handle: own as Handle,
                vi_handle: vi.unwrap_or(0) as Handle,
                cq_handle: std::ptr::null_mut(),
                descriptor_ptr: std::ptr::null_mut(),
                op_code: 0,
                resource_code: RESOURCE_VI,
                error_code: event.code as u32,
            };
            // SAFETY: the caller promised that it may be called so; the description lives through the call.
            unsafe { handler(context.pointer(), &mut description) };
        };
        nic.nic.set_error_handler(Some(Box::new(call)));
        Ok(())
    })())
}

/// # Safety
/// The pointer is null, or valid for what the kind of information is written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQuerySystemManagementInfo(
    nic_handle: Handle,
    info_type: Ulong,
    info: *mut c_void,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        match info_type {
            AUTODISCOVERY => {
                // This NIC alone is to be found: a list of one, which stays until the NIC is closed.
                let local = NetAddress::new(NetAddress::local_host(), &[]).ok_or(INVALID_PARAMETER)?;
                wanted(info.cast::<AutodiscoveryList>())?;
                let mut kept = nic.discovery.lock();
                let words = kept.get_or_insert_with(|| vec![0; 2].into());
                let address = words[1..].as_mut_ptr();
                words[0] = address as u64;
                // SAFETY: the word behind the pointer has room for 8 bytes, and an address of 4 bytes takes as many.
                unsafe { put_address(address.cast(), &local)? };
                let list =
                    AutodiscoveryList { number_of_hops: 0, addresses: words.as_mut_ptr().cast(), address_count: 1 };
                // SAFETY: the caller's promise.
                unsafe { put(info.cast(), list) }
            }
            COUNTERS => {
                let counts = nic.nic.counts();
                let all: RawCounters = Counter::ALL.map(|counter| counts.of(counter));
                // SAFETY: the caller's promise.
                unsafe { put(info.cast(), all) }
            }
            _ => Err(INVALID_PARAMETER),
        }
    })())
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreatePtag(nic_handle: Handle, ptag: *mut Handle) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        wanted(ptag)?;
        // SAFETY: the caller's promise.
        unsafe { put(ptag, handle_of(coded(nic.nic.create_ptag())?)) }
    })())
}

/// Takes a protection tag back.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyPtag(nic_handle: Handle, ptag: Handle) -> Return {
    code(nic(nic_handle).and_then(|nic| coded(nic.nic.destroy_ptag(tag_of(ptag)))))
}

/// # Safety
/// The memory stays valid until it is deregistered; transfers that it is named in have it to themselves. The pointers are
/// null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRegisterMem(
    nic_handle: Handle,
    start: *mut c_void,
    length: Ulong,
    attributes: *const RawMemAttributes,
    memory_handle: *mut MemHandle,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        wanted(memory_handle)?;
        // SAFETY: the caller's promise.
        let attributes = unsafe { get(attributes)? };
        let len_bytes = usize::try_from(length).map_err(|_| INVALID_PARAMETER)?;
        if start.is_null() || (start as usize).checked_add(len_bytes).is_none() {
            return Err(INVALID_PARAMETER);
        }
        start.expose_provenance();
        // SAFETY: the caller's promise.
        let memory = unsafe { WriteRange::new(start.cast(), len_bytes) };
        let handle = coded(nic.nic.register(memory, memory_attributes(&attributes)))?;
        // SAFETY: the caller's promise.
        unsafe { put(memory_handle, handle.0) }
    })())
}

/// Takes a registration back.
#[unsafe(no_mangle)]
pub extern "C" fn VipDeregisterMem(nic_handle: Handle, start: *mut c_void, memory_handle: MemHandle) -> Return {
    code(nic(nic_handle).and_then(|nic| coded(nic.nic.deregister(start as u64, MemoryHandle(memory_handle)))))
}

/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipAllocateMem(
    nic_handle: Handle,
    start: *mut *mut c_void,
    length: Ulong,
    attributes: *const RawMemAttributes,
    memory_handle: *mut MemHandle,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        wanted(memory_handle)?;
        wanted(start)?;
        // SAFETY: the caller's promise.
        let attributes = unsafe { get(attributes)? };
        let len_bytes = usize::try_from(length).map_err(|_| INVALID_PARAMETER)?;
        let memory = coded(nic.nic.allocate(len_bytes, memory_attributes(&attributes)))?;
        let place = std::ptr::with_exposed_provenance_mut(memory.address() as usize);
        // SAFETY: the caller's promise; the memory stays mapped while it is registered.
        unsafe { put(start, place)? };
        // SAFETY: the caller's promise.
        unsafe { put(memory_handle, memory.handle().0) }
    })())
}

/// Takes an allocation back.
#[unsafe(no_mangle)]
pub extern "C" fn VipFreeMem(nic_handle: Handle, start: *mut c_void, memory_handle: MemHandle) -> Return {
    VipDeregisterMem(nic_handle, start, memory_handle)
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryMem(
    nic_handle: Handle,
    start: *mut c_void,
    memory_handle: MemHandle,
    attributes: *mut RawMemAttributes,
) -> Return {
    code((|| {
        let found = coded(nic(nic_handle)?.nic.query_memory(start as u64, MemoryHandle(memory_handle)))?;
        let raw = RawMemAttributes {
            ptag: handle_of(found.ptag),
            enable_rdma_write: found.rdma_write.into(),
            enable_rdma_read: found.rdma_read.into(),
        };
        // SAFETY: the caller's promise.
        unsafe { put(attributes, raw) }
    })())
}

/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSetMemAttributes(
    nic_handle: Handle,
    start: *mut c_void,
    memory_handle: MemHandle,
    attributes: *const RawMemAttributes,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        // SAFETY: the caller's promise.
        let attributes = memory_attributes(&unsafe { get(attributes)? });
        coded(nic.nic.set_memory_attributes(start as u64, MemoryHandle(memory_handle), attributes))
    })())
}

/// Starts the name service, which needs no information.
#[unsafe(no_mangle)]
pub extern "C" fn VipNSInit(nic_handle: Handle, _information: *mut c_void) -> Return {
    code(nic(nic_handle).map(|nic| nic.names.start()))
}

/// Ends the name service.
#[unsafe(no_mangle)]
pub extern "C" fn VipNSShutdown(nic_handle: Handle) -> Return {
    code(nic(nic_handle).map(|nic| nic.names.end()))
}

/// # Safety
/// The name is null or ends with a zero; the address is null, or valid for a head and the bytes of a host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipNSGetHostByName(
    nic_handle: Handle,
    name: *const Char,
    address: *mut NetAddressHead,
    index: Ulong,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        if name.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| INVALID_PARAMETER)?;
        let index = usize::try_from(index).map_err(|_| INVALID_PARAMETER)?;
        let found = coded(nic.names.host_by_name(name, index))?;
        // SAFETY: the caller's promise.
        unsafe { put_address(address, &found) }
    })())
}

/// # Safety
/// The address is null or whole, the length null or valid, the name null or valid for as many bytes as the length says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipNSGetHostByAddr(
    nic_handle: Handle,
    place: *const NetAddressHead,
    name: *mut Char,
    name_len: *mut Ulong,
) -> Return {
    code((|| {
        let nic = nic(nic_handle)?;
        // SAFETY: the caller's promise, for both.
        let address = unsafe { address(place)? };
        // SAFETY: as above.
        let room = unsafe { get(name_len)? };
        let found = coded(nic.names.host_by_address(&address))?;
        let needed = found.len().min(NAME_MAX) + 1;
        // SAFETY: the caller's promise.
        unsafe { put(name_len, needed as Ulong)? };
        if name.is_null() || (room as usize) < needed {
            return Err(ERROR_RESOURCE);
        }
        let mut bytes = found.into_bytes();
        bytes.truncate(NAME_MAX);
        bytes.push(0);
        // SAFETY: the caller promised so many bytes.
        unsafe { name.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    })())
}
