//! What the predefined operations do to packed elements.
//!
//! A kernel works on two slices of packed elements without assuming alignment. Memory that is not consecutive is brought
//! into packed form piece by piece. Kernels are compiled twice on x86-64, once for AVX2, and chosen at run time.

mod long_double;
mod number;

use std::sync::OnceLock;

use bytemuck::Pod;
use num_complex::Complex;

use crate::basic::{Basic, Class, Scalar};
use crate::buffer::{RecvBuf, SendBuf};
use crate::op::PredefinedOp;
use long_double::LongDouble;
use number::{Arithmetic, Half, Integer, Ordered, Quad};

/// Packed bytes of scattered memory that are reduced at once; a multiple of the size of every predefined type.
const PIECE_BYTES: usize = 64 * 60 * 2;

/// `inout[i] = input[i] op inout[i]` over packed elements; both slices have one length.
#[derive(Clone, Copy)]
pub(crate) struct Kernel(pub(crate) fn(&[u8], &mut [u8]));

/// The kernel of an operation for a type, if the standard defines one. Each reduction asks for it, so those of an operation
/// are found at its first use.
///
/// `MPI_CHAR` counts as an integer here: the standard leaves it out, programs use it.
///
/// MPI: §6.9.2
#[inline]
pub(crate) fn kernel(op: PredefinedOp, basic: Basic) -> Option<Kernel> {
    const FIRST: usize = PredefinedOp::ALL[0] as usize;
    const ROWS: usize = PredefinedOp::ALL[PredefinedOp::ALL.len() - 1] as usize - FIRST + 1;
    static KERNELS: [OnceLock<[Option<Kernel>; Basic::KINDS]>; ROWS] = [const { OnceLock::new() }; ROWS];
    let of_op = KERNELS[op as usize - FIRST].get_or_init(|| {
        let mut kernels = [None; Basic::KINDS];
        Basic::all().for_each(|basic| kernels[basic as usize] = find_kernel(op, basic));
        kernels
    });
    of_op[basic as usize]
}

fn find_kernel(op: PredefinedOp, basic: Basic) -> Option<Kernel> {
    match op {
        PredefinedOp::Replace => return Some(Kernel(|input, inout| base::copy::copy(inout, input))),
        PredefinedOp::NoOp => return Some(Kernel(|_, _| ())),
        PredefinedOp::Minloc | PredefinedOp::Maxloc => return pair_kernel(op, basic),
        _ => {}
    }
    let complex = basic.class() == Class::Complex;
    let part_bytes = if complex { basic.size() / 2 } else { basic.size() };
    match (basic.scalar(), part_bytes) {
        (Scalar::Signed, 1) => integer::<i8>(op, basic),
        (Scalar::Signed, 2) => integer::<i16>(op, basic),
        (Scalar::Signed, 4) => integer::<i32>(op, basic),
        (Scalar::Signed, 8) => integer::<i64>(op, basic),
        (Scalar::Signed, 16) => integer::<i128>(op, basic),
        (Scalar::Unsigned, 1) => integer::<u8>(op, basic),
        (Scalar::Unsigned, 2) => integer::<u16>(op, basic),
        (Scalar::Unsigned, 4) => integer::<u32>(op, basic),
        (Scalar::Unsigned, 8) => integer::<u64>(op, basic),
        (Scalar::Float, 2) => floating::<Half>(op, complex),
        (Scalar::Float, 4) => floating::<f32>(op, complex),
        (Scalar::Float, 8) => floating::<f64>(op, complex),
        (Scalar::Float, 16) => floating::<Quad>(op, complex),
        (Scalar::LongDouble, _) => floating::<LongDouble>(op, complex),
        (Scalar::Boolean, _) => boolean(op),
        (Scalar::FortranLogical, 1) => fortran_logical::<u8>(op),
        (Scalar::FortranLogical, 2) => fortran_logical::<u16>(op),
        (Scalar::FortranLogical, 4) => fortran_logical::<u32>(op),
        (Scalar::FortranLogical, 8) => fortran_logical::<u64>(op),
        (Scalar::FortranLogical, 16) => fortran_logical::<u128>(op),
        _ => None,
    }
}

/// Applies a kernel to two buffers of equally many bytes, consecutive or not.
pub(crate) fn apply(kernel: Kernel, input: &SendBuf, inout: &mut RecvBuf) {
    in_packed_pieces(input, |offset_bytes, from| apply_packed(kernel, from, inout, offset_bytes));
}

/// Applies a kernel to a buffer, consecutive or not, and as many packed elements.
pub(crate) fn apply_to_packed(Kernel(kernel): Kernel, input: &SendBuf, inout: &mut [u8]) {
    in_packed_pieces(input, |offset_bytes, from| kernel(from, &mut inout[offset_bytes as usize..][..from.len()]));
}

/// Gives all of a buffer, packed, and from which byte on each piece is; what is consecutive in one.
#[inline]
fn in_packed_pieces(input: &SendBuf, mut take: impl FnMut(u64, &[u8])) {
    if let Some(input) = input.as_contiguous() {
        return take(0, input);
    }
    let mut from = [0; PIECE_BYTES];
    let mut done = 0;
    while done < input.len_bytes() {
        let piece = input.pack_at(done, &mut from);
        take(done, &from[..piece]);
        done += piece as u64;
    }
}

/// Applies a kernel to packed elements and those of a buffer, consecutive or not, from its packed byte `offset_bytes` on,
/// as far as both go.
pub(crate) fn apply_packed(Kernel(kernel): Kernel, input: &[u8], inout: &mut RecvBuf, offset_bytes: u64) {
    let left = usize::try_from(inout.len_bytes().saturating_sub(offset_bytes)).unwrap_or(usize::MAX);
    let input = &input[..input.len().min(left)];
    if input.is_empty() {
        return;
    }
    if let Some(to) = inout.contiguous_mut() {
        return kernel(input, &mut to[offset_bytes as usize..][..input.len()]);
    }
    let mut to = [0; PIECE_BYTES];
    for (index, from) in input.chunks(PIECE_BYTES).enumerate() {
        let (at, to) = (offset_bytes + (index * PIECE_BYTES) as u64, &mut to[..from.len()]);
        inout.pack_at(at, to);
        kernel(from, to);
        inout.unpack_at(at, to);
    }
}

fn integer<T: Integer>(op: PredefinedOp, basic: Basic) -> Option<Kernel> {
    let class = if basic == Basic::Char { Class::CInteger } else { basic.class() };
    let bits = matches!(class, Class::CInteger | Class::FortranInteger | Class::MultiLanguage | Class::Byte);
    let numbers = bits && class != Class::Byte;
    // The standard leaves addresses, offsets and counts out; they are C integers, and programs combine them so.
    let logical = matches!(class, Class::CInteger | Class::MultiLanguage);
    Some(match op {
        PredefinedOp::Sum if numbers => elementwise::<T, Sum>(),
        PredefinedOp::Prod if numbers => elementwise::<T, Product>(),
        PredefinedOp::Min if numbers => elementwise::<T, Minimum>(),
        PredefinedOp::Max if numbers => elementwise::<T, Maximum>(),
        PredefinedOp::Band if bits => elementwise::<T, BitAnd>(),
        PredefinedOp::Bor if bits => elementwise::<T, BitOr>(),
        PredefinedOp::Bxor if bits => elementwise::<T, BitXor>(),
        PredefinedOp::Land if logical => elementwise::<T, And>(),
        PredefinedOp::Lor if logical => elementwise::<T, Or>(),
        PredefinedOp::Lxor if logical => elementwise::<T, Xor>(),
        _ => return None,
    })
}

fn floating<T: Arithmetic + Ordered>(op: PredefinedOp, complex: bool) -> Option<Kernel> {
    Some(match op {
        PredefinedOp::Sum if complex => elementwise::<Complex<T>, Sum>(),
        PredefinedOp::Prod if complex => elementwise::<Complex<T>, Product>(),
        PredefinedOp::Sum => elementwise::<T, Sum>(),
        PredefinedOp::Prod => elementwise::<T, Product>(),
        PredefinedOp::Min if !complex => elementwise::<T, Minimum>(),
        PredefinedOp::Max if !complex => elementwise::<T, Maximum>(),
        _ => return None,
    })
}

fn boolean(op: PredefinedOp) -> Option<Kernel> {
    Some(match op {
        PredefinedOp::Land => elementwise::<u8, And>(),
        PredefinedOp::Lor => elementwise::<u8, Or>(),
        PredefinedOp::Lxor => elementwise::<u8, Xor>(),
        _ => return None,
    })
}

fn fortran_logical<T: Integer>(op: PredefinedOp) -> Option<Kernel> {
    Some(match op {
        PredefinedOp::Land => elementwise::<T, FortranAnd>(),
        PredefinedOp::Lor => elementwise::<T, FortranOr>(),
        PredefinedOp::Lxor => elementwise::<T, FortranXor>(),
        _ => return None,
    })
}

fn pair_kernel(op: PredefinedOp, basic: Basic) -> Option<Kernel> {
    Some(match basic {
        Basic::FloatInt => located::<f32, i32>(op),
        Basic::DoubleInt => located::<f64, i32>(op),
        Basic::LongInt => located::<i64, i32>(op),
        Basic::TwoInt | Basic::TwoInteger => located::<i32, i32>(op),
        Basic::ShortInt => located::<i16, i32>(op),
        Basic::LongDoubleInt => located::<LongDouble, i32>(op),
        Basic::TwoReal => located::<f32, f32>(op),
        Basic::TwoDoublePrecision => located::<f64, f64>(op),
        _ => return None,
    })
}

/// What an operation does to one element, given `input` and `inout`, in this order.
trait Apply<T> {
    fn apply(input: T, inout: T) -> T;
}

struct Sum;
struct Product;
struct Minimum;
struct Maximum;
struct BitAnd;
struct BitOr;
struct BitXor;
struct And;
struct Or;
struct Xor;
struct FortranAnd;
struct FortranOr;
struct FortranXor;

impl<T: Arithmetic> Apply<T> for Sum {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        input.plus(inout)
    }
}

impl<T: Arithmetic> Apply<T> for Product {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        input.times(inout)
    }
}

impl<T: Ordered> Apply<T> for Minimum {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        if input.less(inout) { input } else { inout }
    }
}

impl<T: Ordered> Apply<T> for Maximum {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        if inout.less(input) { input } else { inout }
    }
}

impl<T: Integer> Apply<T> for BitAnd {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        input & inout
    }
}

impl<T: Integer> Apply<T> for BitOr {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        input | inout
    }
}

impl<T: Integer> Apply<T> for BitXor {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        input ^ inout
    }
}

impl<T: Integer> Apply<T> for And {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        T::from_truth(input.truth() && inout.truth())
    }
}

impl<T: Integer> Apply<T> for Or {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        T::from_truth(input.truth() || inout.truth())
    }
}

impl<T: Integer> Apply<T> for Xor {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        T::from_truth(input.truth() != inout.truth())
    }
}

// Fortran compilers differ in the value of `.TRUE.` but agree that zero is `.FALSE.`: the result is one of the operands,
// or zero.

impl<T: Integer> Apply<T> for FortranAnd {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        if inout.truth() { input } else { inout }
    }
}

impl<T: Integer> Apply<T> for FortranOr {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        if inout.truth() { inout } else { input }
    }
}

impl<T: Integer> Apply<T> for FortranXor {
    #[inline(always)]
    fn apply(input: T, inout: T) -> T {
        if !inout.truth() {
            input
        } else if input.truth() {
            T::from_truth(false)
        } else {
            inout
        }
    }
}

fn elementwise<T: Pod, A: Apply<T>>() -> Kernel {
    Kernel(run::<T, A>)
}

fn run<T: Pod, A: Apply<T>>(input: &[u8], inout: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor was just found to have AVX2.
        return unsafe { run_avx2::<T, A>(input, inout) };
    }
    run_plain::<T, A>(input, inout);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<T: Pod, A: Apply<T>>(input: &[u8], inout: &mut [u8]) {
    run_plain::<T, A>(input, inout);
}

#[inline(always)]
fn run_plain<T: Pod, A: Apply<T>>(input: &[u8], inout: &mut [u8]) {
    let (from, to) = (input.chunks_exact(size_of::<T>()), inout.chunks_exact_mut(size_of::<T>()));
    for (from, to) in from.zip(to) {
        let value = A::apply(bytemuck::pod_read_unaligned(from), bytemuck::pod_read_unaligned(to));
        to.copy_from_slice(bytemuck::bytes_of::<T>(&value));
    }
}

fn located<V: Pod + Ordered, I: Pod + Ordered>(op: PredefinedOp) -> Kernel {
    if op == PredefinedOp::Minloc { Kernel(locate::<V, I, Least>) } else { Kernel(locate::<V, I, Greatest>) }
}

/// Which of two values wins.
trait Contest<V> {
    fn wins(challenger: V, holder: V) -> bool;
}

struct Least;
struct Greatest;

impl<V: Ordered> Contest<V> for Least {
    fn wins(challenger: V, holder: V) -> bool {
        challenger.less(holder)
    }
}

impl<V: Ordered> Contest<V> for Greatest {
    fn wins(challenger: V, holder: V) -> bool {
        holder.less(challenger)
    }
}

/// Keeps the winning value with its index; of equal values, the one with the smaller index.
fn locate<V: Pod, I: Pod + Ordered, C: Contest<V>>(input: &[u8], inout: &mut [u8]) {
    let each = size_of::<V>() + size_of::<I>();
    for (from, to) in input.chunks_exact(each).zip(inout.chunks_exact_mut(each)) {
        let (value, index) = read_pair::<V, I>(from);
        let (held_value, held_index) = read_pair::<V, I>(to);
        let equal = !C::wins(value, held_value) && !C::wins(held_value, value);
        if C::wins(value, held_value) || (equal && index.less(held_index)) {
            to.copy_from_slice(from);
        }
    }
}

fn read_pair<V: Pod, I: Pod>(bytes: &[u8]) -> (V, I) {
    let (value, index) = bytes.split_at(size_of::<V>());
    (bytemuck::pod_read_unaligned(value), bytemuck::pod_read_unaligned(index))
}
