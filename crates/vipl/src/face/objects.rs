//! What handles name. The table of the process is the one static here: handles come from callers without any other.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use base::{Slab, SlabKey};
use parking_lot::Mutex;

use crate::connect::{PeerRequest, Request};
use crate::names::NameService;
use crate::nic::Nic;
use crate::queue::CompletionQueue;
use crate::vi::Vi;

use super::types::Handle;
use super::{INVALID_PARAMETER, Return};

/// A NIC with what the C interface adds to it.
pub struct NicObject {
    pub nic: Nic,
    pub names: NameService,
    /// By the number of a VI, its handle.
    pub vi_handles: Mutex<HashMap<u64, usize>>,
    /// Its own address and the list of it, which callers are given pointers to.
    pub discovery: Mutex<Option<Box<[u64]>>>,
}

/// A VI.
pub struct ViObject {
    pub vi: Vi,
    pub nic: Arc<NicObject>,
    pub nic_handle: usize,
    pub peer_request: Mutex<Option<Arc<PeerRequest>>>,
}

/// A completion queue.
pub struct QueueObject {
    pub queue: CompletionQueue,
    pub nic: Arc<NicObject>,
    pub nic_handle: usize,
}

/// A client that was not decided upon.
pub struct RequestObject {
    pub request: Mutex<Request>,
}

/// Whatever a handle names.
#[derive(Clone)]
pub enum Object {
    Nic(Arc<NicObject>),
    Vi(Arc<ViObject>),
    Queue(Arc<QueueObject>),
    Request(Arc<RequestObject>),
}

static OBJECTS: RwLock<Slab<Object>> = RwLock::new(Slab::new());

fn key(handle: Handle) -> Option<SlabKey> {
    (handle as u64).checked_sub(1).map(SlabKey::from_bits)
}

/// Gives an object a handle, which is not null.
pub fn insert(object: Object) -> Handle {
    let key = OBJECTS.write().unwrap_or_else(PoisonError::into_inner).insert(object);
    (key.to_bits() + 1) as usize as Handle
}

/// What `of` finds in the object of a handle.
pub fn with<T>(handle: Handle, of: impl FnOnce(&Object) -> Option<T>) -> Result<T, Return> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    key(handle).and_then(|key| objects.get(key)).and_then(of).ok_or(INVALID_PARAMETER)
}

/// Takes the object of a handle away if it may go; dropped after the table is free again.
pub fn remove(handle: Handle, may_go: impl FnOnce(&Object) -> Result<(), Return>) -> Result<Object, Return> {
    let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
    let key = key(handle).ok_or(INVALID_PARAMETER)?;
    may_go(objects.get(key).ok_or(INVALID_PARAMETER)?)?;
    objects.remove(key).ok_or(INVALID_PARAMETER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Settings;

    #[test]
    fn a_handle_names_nothing_once_its_object_is_gone() {
        let nic = || {
            Object::Nic(Arc::new(NicObject {
                nic: Nic::open(Settings::default()).unwrap(),
                names: NameService::default(),
                vi_handles: Mutex::default(),
                discovery: Mutex::default(),
            }))
        };
        let first = insert(nic());
        assert!(!first.is_null() && with(first, |_| Some(())).is_ok());
        assert_eq!(with(first, |object| if let Object::Vi(_) = object { Some(()) } else { None }), Err(2));
        assert_eq!(remove(first, |_| Err(3)).err(), Some(3));
        assert!(remove(first, |_| Ok(())).is_ok());
        let second = insert(nic());
        assert_ne!(first, second);
        for wrong in [first, std::ptr::null_mut(), usize::MAX as Handle] {
            assert_eq!(with(wrong, |_| Some(())), Err(2));
            assert!(remove(wrong, |_| Ok(())).is_err());
        }
        assert!(remove(second, |_| Ok(())).is_ok());
    }
}
