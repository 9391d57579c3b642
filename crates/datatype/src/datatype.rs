//! A datatype: an immutable type map with its name, its commit flag and the memory of how it was made.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use smallvec::SmallVec;

use crate::basic::Basic;
use crate::contents::{Combiner, Construction, Contents, Envelope};
use crate::error::TypeError;
use crate::layout::{Bytes, Run, Tree};
use crate::shape::{Shape, Signature, elements_in};

/// What a datatype was made of: of most, one.
pub(crate) type Parents = SmallVec<[Parent; 1]>;

/// A datatype that another one was made of.
#[derive(Clone, Debug)]
pub(crate) enum Parent {
    /// A predefined one: its object need not be counted, since any other of the same name does for who asks.
    Named(Basic),
    Derived(Arc<Datatype>),
}

impl Parent {
    #[inline]
    pub fn of(old: &Arc<Datatype>) -> Parent {
        old.as_basic().map_or_else(|| Parent::Derived(Arc::clone(old)), Parent::Named)
    }

    fn datatype(&self) -> Arc<Datatype> {
        match self {
            Parent::Named(basic) => Datatype::predefined(*basic),
            Parent::Derived(datatype) => Arc::clone(datatype),
        }
    }
}

/// A datatype of the standard; immutable but for its name, its commit flag and the face's cookie.
///
/// MPI: §5.1
#[derive(Debug)]
pub struct Datatype {
    size: u64,
    extent: i64,
    contiguous: bool,
    named: Option<Basic>,
    lb: i64,
    shape: Shape,
    construction: Construction,
    parents: Parents,
    committed: AtomicBool,
    large: AtomicBool,
    name: Mutex<Option<String>>,
    /// Counted when first asked for.
    block_count: OnceLock<u64>,
    /// A number of the face's choosing, such as the handle it gave out; 0 at first.
    pub face_handle: AtomicUsize,
}

impl Datatype {
    /// A predefined datatype; each call makes a new object of it, with its own name and cookie.
    pub fn predefined(basic: Basic) -> Arc<Datatype> {
        let datatype = Self::build(Shape::basic(basic), Construction::Named(basic), Parents::new());
        datatype.expect("the extents of predefined types are small").into_committed()
    }

    /// The bytes of data in one element, without gaps.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The distance in bytes from one element to the next; may be negative.
    #[inline]
    pub fn extent(&self) -> i64 {
        self.extent
    }

    /// The lower bound in bytes.
    pub fn lb(&self) -> i64 {
        self.lb
    }

    /// The upper bound in bytes.
    pub fn ub(&self) -> i64 {
        self.lb + self.extent
    }

    /// The displacement of the first byte of data in memory order.
    #[inline]
    pub fn true_lb(&self) -> i64 {
        self.shape.data.as_ref().map_or(0, |data| data.span.true_lb)
    }

    /// The bytes from the first to the last byte of data in memory order.
    pub fn true_extent(&self) -> i64 {
        self.shape.data.as_ref().map_or(0, |data| data.span.true_ub - data.span.true_lb)
    }

    /// Blocks of consecutive bytes that the data of one element is cut into.
    pub fn block_count(&self) -> u64 {
        *self.block_count.get_or_init(|| self.shape.data.as_ref().map_or(0, |data| data.bytes.tree.block_count()))
    }

    /// True if any number of elements occupies consecutive bytes from the buffer's address on, in packed order.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// True for the types the library provides: named ones and those of `MPI_Type_create_f90_…`.
    pub fn is_predefined(&self) -> bool {
        self.combiner().is_predefined()
    }

    /// The predefined type this is, if it is a named one.
    pub fn as_basic(&self) -> Option<Basic> {
        match self.construction {
            Construction::Named(basic) => Some(basic),
            _ => None,
        }
    }

    /// The one predefined type of all leaves, if there is but one.
    pub fn uniform_basic(&self) -> Option<Basic> {
        self.shape.data.as_ref().and_then(|data| data.uniform)
    }

    /// The predefined type that an element is one of: of the types the library provides, and of duplicates of them.
    #[inline]
    pub fn named_basic(&self) -> Option<Basic> {
        self.named
    }

    /// True once the type may be used in communication.
    #[inline]
    pub fn is_committed(&self) -> bool {
        // Relaxed: the flag guards no other memory, the type is complete when made.
        self.committed.load(Ordering::Relaxed)
    }

    /// The call that made the type.
    pub fn combiner(&self) -> Combiner {
        self.construction.combiner()
    }

    /// Allows the type in communication; doing so again changes nothing.
    pub fn commit(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    /// Remembers that a large-count (`_c`) call made this type, which decides how [`Datatype::contents`] sorts arguments.
    pub fn declare_large_count(&self) {
        // Relaxed: set by the thread that makes the type before it hands it out.
        self.large.store(true, Ordering::Relaxed);
    }

    /// How the type was made and how many arguments of each kind [`Datatype::contents`] gives.
    ///
    /// MPI: §5.1.13
    pub fn envelope(&self) -> Envelope {
        let contents = self.contents();
        Envelope {
            combiner: self.combiner(),
            integers: contents.integers.len(),
            addresses: contents.addresses.len(),
            large_counts: contents.large_counts.len(),
            datatypes: contents.datatypes.len(),
        }
    }

    /// The arguments of the call that made the type; all empty for a named type. Named types among them are new objects.
    ///
    /// MPI: §5.1.13
    pub fn contents(&self) -> Contents {
        let arguments = self.construction.arguments(self.large.load(Ordering::Relaxed));
        Contents { datatypes: self.parents.iter().map(Parent::datatype).collect(), ..arguments }
    }

    /// The type's name; a derived type has an empty one until [`Datatype::set_name`].
    pub fn name(&self) -> String {
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*name, &self.construction) {
            (Some(name), _) => name.clone(),
            (None, Construction::Named(basic)) => basic.name().to_owned(),
            (None, _) => String::new(),
        }
    }

    /// The type in a message: by its name, or else by the call that made it.
    pub fn described(&self) -> String {
        match (self.name(), self.combiner().call()) {
            (name, Some(call)) if name.is_empty() => format!("a datatype made by {call}"),
            (name, _) => format!("datatype {name}"),
        }
    }

    /// Gives the type a name.
    pub fn set_name(&self, name: &str) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_owned());
    }

    /// The whole elements in `bytes` packed bytes, or `None` if they do not end with an element.
    ///
    /// MPI: §3.2.5, `MPI_Get_count`
    pub fn count_in(&self, bytes: u64) -> Option<i64> {
        if self.size == 0 {
            return (bytes == 0).then_some(0);
        }
        if !bytes.is_multiple_of(self.size) {
            return None;
        }
        i64::try_from(bytes / self.size).ok()
    }

    /// The elements of predefined types in `bytes` packed bytes (a pair counts as two), or `None` if they end inside one.
    ///
    /// MPI: §5.1.11, `MPI_Get_elements`
    pub fn elements_in(&self, bytes: u64) -> Option<i64> {
        let Some(data) = &self.shape.data else { return (bytes == 0).then_some(0) };
        let elements = match &data.signature {
            Signature::Uniform(basic) => {
                elements_in(&Tree::Leaf(Run { basic: *basic, count: u64::MAX / basic.size() }), bytes)
            }
            Signature::Mixed(runs) => {
                let whole = bytes / self.size;
                let each = if whole > 0 { elements_in(&runs.tree, self.size)? } else { 0 };
                whole.checked_mul(each)?.checked_add(elements_in(&runs.tree, bytes % self.size)?)
            }
        };
        elements.and_then(|elements| i64::try_from(elements).ok())
    }

    /// Completes a type from its shape, where it is to stay.
    #[inline(always)]
    pub(crate) fn build(
        shape: Shape,
        construction: Construction,
        parents: Parents,
    ) -> Result<Arc<Datatype>, TypeError> {
        let (lb, extent) = shape.lb_and_extent()?;
        let size = shape.data.as_ref().map_or(0, |data| data.span.size);
        let contiguous = match &shape.data {
            None => true,
            Some(data) => {
                matches!(data.bytes.tree, Tree::Leaf(_)) && data.bytes.displacement == 0 && extent == size as i64
            }
        };
        let combiner = construction.combiner();
        let uniform = shape.data.as_ref().and_then(|data| data.uniform);
        let can_be_named = combiner.is_predefined() || combiner == Combiner::Dup;
        let named = uniform.filter(|basic| can_be_named && basic.size() == size);
        Ok(Arc::new(Datatype {
            size,
            extent,
            contiguous,
            named,
            lb,
            shape,
            construction,
            parents,
            committed: AtomicBool::new(false),
            large: AtomicBool::new(false),
            name: Mutex::new(None),
            block_count: OnceLock::new(),
            face_handle: AtomicUsize::new(0),
        }))
    }

    /// The same, usable at once.
    pub(crate) fn into_committed(self: Arc<Self>) -> Arc<Datatype> {
        self.commit();
        self
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The displacement of the data, if one element is one run of consecutive bytes.
    pub(crate) fn single_run(&self) -> Option<i64> {
        match &self.shape.data {
            Some(data) => match data.bytes.tree {
                Tree::Leaf(Bytes(_)) => Some(data.bytes.displacement),
                _ => None,
            },
            None => Some(0),
        }
    }
}

impl Drop for Datatype {
    /// Frees a long chain of types made one from the other without recursing once for each.
    fn drop(&mut self) {
        while let Some(parent) = self.parents.pop() {
            if let Parent::Derived(parent) = parent
                && let Some(mut last) = Arc::into_inner(parent)
            {
                self.parents.append(&mut last.parents);
            }
        }
    }
}
