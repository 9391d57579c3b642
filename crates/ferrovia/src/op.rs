//! What reductions combine elements with.

use std::marker::PhantomData;
use std::sync::Arc;

use datatype::{Datatype, PredefinedOp, UserFunction};
use num_complex::Complex;

use crate::element::{Bool, Element};

/// Elements that can be added and multiplied; arrays of them place by place.
pub trait Number: Element {}

/// Elements that have an order; arrays of them place by place.
pub trait Ordered: Element {}

/// Integers, taken bit by bit; arrays of them place by place.
pub trait Bits: Element {}

/// Elements that are true or false, numbers being true unless 0; arrays of them place by place.
pub trait Logical: Element {}

/// An operation that combines elements of type `T`.
///
/// [`Sum`], [`Product`], [`Min`], [`Max`], [`LogicalAnd`], [`LogicalOr`], [`LogicalXor`], [`BitAnd`], [`BitOr`],
/// [`BitXor`], and those of yours: [`Op`].
///
/// ```compile_fail,E0277
/// # fn demo(world: ferrovia::Communicator<'_>) -> ferrovia::Result<()> {
/// use ferrovia::{Bool, Sum};
/// world.all_reduce_value(Bool::from(true), Sum)?; // truth values have no sum
/// # Ok(())
/// # }
/// ```
///
/// MPI: §6.9
pub trait Operation<T: Element> {
    #[doc(hidden)]
    fn reducer(&self) -> Reducer;
}

/// An operation as the floor below knows it.
#[doc(hidden)]
pub struct Reducer {
    pub(crate) op: datatype::Op,
    /// It combines whole elements, not their leaves.
    pub(crate) takes_whole: bool,
}

/// `a + b`
#[derive(Clone, Copy, Debug)]
pub struct Sum;
/// `a * b`
#[derive(Clone, Copy, Debug)]
pub struct Product;
/// The smaller one.
#[derive(Clone, Copy, Debug)]
pub struct Min;
/// The greater one.
#[derive(Clone, Copy, Debug)]
pub struct Max;
/// `a && b`
#[derive(Clone, Copy, Debug)]
pub struct LogicalAnd;
/// `a || b`
#[derive(Clone, Copy, Debug)]
pub struct LogicalOr;
/// Whether one of them is true, not both.
#[derive(Clone, Copy, Debug)]
pub struct LogicalXor;
/// `a & b`
#[derive(Clone, Copy, Debug)]
pub struct BitAnd;
/// `a | b`
#[derive(Clone, Copy, Debug)]
pub struct BitOr;
/// `a ^ b`
#[derive(Clone, Copy, Debug)]
pub struct BitXor;

impl<T: Number> Operation<T> for Sum {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Sum)
    }
}
impl<T: Number> Operation<T> for Product {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Prod)
    }
}
impl<T: Ordered> Operation<T> for Min {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Min)
    }
}
impl<T: Ordered> Operation<T> for Max {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Max)
    }
}
impl<T: Logical> Operation<T> for LogicalAnd {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Land)
    }
}
impl<T: Logical> Operation<T> for LogicalOr {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Lor)
    }
}
impl<T: Logical> Operation<T> for LogicalXor {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Lxor)
    }
}
impl<T: Bits> Operation<T> for BitAnd {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Band)
    }
}
impl<T: Bits> Operation<T> for BitOr {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Bor)
    }
}
impl<T: Bits> Operation<T> for BitXor {
    fn reducer(&self) -> Reducer {
        Reducer::predefined(PredefinedOp::Bxor)
    }
}

/// What an operation on elements of type `T` does to two slices of them.
type Combines<T> = fn(&[T], &mut [T]);

/// An operation given by a closure.
///
/// It must be associative. A closure that panics ends the job: the other ranks wait for its result.
///
/// ```
/// use ferrovia::Op;
/// // The longest of a rank's vectors, by whole elements.
/// let longer = Op::elementwise(true, |a: [f64; 2], b: [f64; 2]| if a[0].hypot(a[1]) > b[0].hypot(b[1]) { a } else { b });
/// let longest = ferrovia::local::run(3, |universe| {
///     let world = universe.world();
///     let mine = [f64::from(world.rank()), 1.0];
///     world.all_reduce_value(mine, &longer).unwrap()
/// });
/// assert_eq!(longest, [[2.0, 1.0]; 3]);
/// ```
///
/// MPI: §6.9.5
#[derive(Clone)]
pub struct Op<T> {
    op: datatype::Op,
    _elements: PhantomData<Combines<T>>,
}

impl<T: Element> Op<T> {
    /// The operation `b[i] = a[i] op b[i]` for all elements of two slices of one length; `commutes` says whether
    /// `a op b` and `b op a` are the same. The elements of `a` come from lower ranks.
    pub fn from_fn(commutes: bool, function: impl Fn(&[T], &mut [T]) + Send + Sync + 'static) -> Op<T> {
        let function = Arc::new(Closure { function, _elements: PhantomData });
        Op { op: datatype::Op::user(commutes, function), _elements: PhantomData }
    }

    /// The operation `function(a, b)`, element by element.
    pub fn elementwise(commutes: bool, function: impl Fn(T, T) -> T + Send + Sync + 'static) -> Op<T> {
        Op::from_fn(commutes, move |a, b| {
            for (a, b) in a.iter().zip(b) {
                *b = function(*a, *b);
            }
        })
    }
}

impl<T: Element> Operation<T> for Op<T> {
    fn reducer(&self) -> Reducer {
        Reducer { op: self.op.clone(), takes_whole: true }
    }
}

impl<T: Element, O: Operation<T>> Operation<T> for &O {
    fn reducer(&self) -> Reducer {
        (*self).reducer()
    }
}

impl Reducer {
    fn predefined(op: PredefinedOp) -> Reducer {
        Reducer { op: datatype::Op::predefined(op), takes_whole: false }
    }
}

struct Closure<F, T> {
    function: F,
    _elements: PhantomData<Combines<T>>,
}

impl<T: Element, F: Fn(&[T], &mut [T]) + Send + Sync> UserFunction for Closure<F, T> {
    fn apply(&self, input: *const u8, inout: *mut u8, count: u64, _: &Arc<Datatype>) {
        let (input, inout, count) = (input.cast::<T>(), inout.cast::<T>(), count as usize);
        assert!(input.is_aligned() && inout.is_aligned(), "reductions run on memory aligned for their elements");
        // SAFETY: the caller has `count` elements of the type of whole `T` at `input`, aligned as checked, and does not
        // change them while this runs.
        let input = unsafe { std::slice::from_raw_parts(input, count) };
        // SAFETY: as for `input`; the two do not overlap, and nobody else uses these.
        let inout = unsafe { std::slice::from_raw_parts_mut(inout, count) };
        (self.function)(input, inout);
    }
}

impl Number for i8 {}
impl Number for i16 {}
impl Number for i32 {}
impl Number for i64 {}
impl Number for isize {}
impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for usize {}
impl Number for f32 {}
impl Number for f64 {}
impl Number for Complex<f32> {}
impl Number for Complex<f64> {}
impl<T: Number, const N: usize> Number for [T; N] {}

impl Ordered for i8 {}
impl Ordered for i16 {}
impl Ordered for i32 {}
impl Ordered for i64 {}
impl Ordered for isize {}
impl Ordered for u8 {}
impl Ordered for u16 {}
impl Ordered for u32 {}
impl Ordered for u64 {}
impl Ordered for usize {}
impl Ordered for f32 {}
impl Ordered for f64 {}
impl<T: Ordered, const N: usize> Ordered for [T; N] {}

impl Bits for i8 {}
impl Bits for i16 {}
impl Bits for i32 {}
impl Bits for i64 {}
impl Bits for isize {}
impl Bits for u8 {}
impl Bits for u16 {}
impl Bits for u32 {}
impl Bits for u64 {}
impl Bits for usize {}
impl<T: Bits, const N: usize> Bits for [T; N] {}

impl Logical for Bool {}
impl Logical for i8 {}
impl Logical for i16 {}
impl Logical for i32 {}
impl Logical for i64 {}
impl Logical for isize {}
impl Logical for u8 {}
impl Logical for u16 {}
impl Logical for u32 {}
impl Logical for u64 {}
impl Logical for usize {}
impl<T: Logical, const N: usize> Logical for [T; N] {}
