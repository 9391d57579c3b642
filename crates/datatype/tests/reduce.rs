//! Reductions against plain arithmetic, and against the standard's table of what is defined for what.

use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use datatype::{Basic, Class, Datatype, Op, OpError, PredefinedOp, RecvBuf, Scratch, SendBuf, TypeError, UserFunction};
use proptest::prelude::*;

/// Reduces two arrays that start at odd addresses.
fn reduce<T: Pod>(op: PredefinedOp, basic: Basic, input: &[T], inout: &[T]) -> Vec<T> {
    let datatype = Datatype::predefined(basic);
    let shifted = |values: &[T]| [&[0u8], bytemuck::cast_slice(values)].concat();
    let (from, mut to) = (shifted(input), shifted(inout));
    let count = size_of_val(input) as u64 / datatype.size();
    // SAFETY: the vector holds `count` elements behind its first byte and outlives the buffer.
    let source = unsafe { SendBuf::new(from[1..].as_ptr(), count, &datatype) };
    // SAFETY: as for `source`.
    let mut target = unsafe { RecvBuf::new(to[1..].as_mut_ptr(), count, &datatype) };
    Op::predefined(op).reduce(&datatype, &source, &mut target).expect("the operation is defined for the type");
    drop(target);
    let mut packed = RecvBuf::from_owned(bytemuck::cast_slice(inout).into());
    let kernel = Op::predefined(op).packed(&datatype).expect("the operation is defined for the type");
    kernel.reduce(&from[1..], &mut packed);
    assert_eq!(packed.into_owned().as_deref(), Some(&to[1..]), "where it stands packed");
    to[1..].chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

fn check<T: Pod + PartialEq + std::fmt::Debug>(op: PredefinedOp, basic: Basic, input: T, inout: T, expected: T) {
    // More elements than a vector register holds, and an odd number of them.
    let result = reduce(op, basic, &[input; 37], &[inout; 37]);
    assert_eq!(result, [expected; 37], "{} of {}", op.name(), basic.name());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers_agree_with_plain_arithmetic(pairs in prop::collection::vec((any::<i32>(), any::<i32>()), 0..50)) {
        let (a, b): (Vec<i32>, Vec<i32>) = pairs.iter().copied().unzip();
        let by_hand = |op: fn(i32, i32) -> i32| pairs.iter().map(|(a, b)| op(*a, *b)).collect::<Vec<i32>>();
        let truth = |truth: bool| i32::from(truth);
        prop_assert_eq!(reduce(PredefinedOp::Sum, Basic::Int, &a, &b), by_hand(i32::wrapping_add));
        prop_assert_eq!(reduce(PredefinedOp::Prod, Basic::Int, &a, &b), by_hand(i32::wrapping_mul));
        prop_assert_eq!(reduce(PredefinedOp::Min, Basic::Integer, &a, &b), by_hand(i32::min));
        prop_assert_eq!(reduce(PredefinedOp::Max, Basic::Int32, &a, &b), by_hand(i32::max));
        prop_assert_eq!(reduce(PredefinedOp::Band, Basic::Int, &a, &b), by_hand(|a, b| a & b));
        prop_assert_eq!(reduce(PredefinedOp::Bor, Basic::Int, &a, &b), by_hand(|a, b| a | b));
        prop_assert_eq!(reduce(PredefinedOp::Bxor, Basic::Int, &a, &b), by_hand(|a, b| a ^ b));
        prop_assert_eq!(reduce(PredefinedOp::Replace, Basic::Int, &a, &b), a.clone());
        prop_assert_eq!(reduce(PredefinedOp::NoOp, Basic::Int, &a, &b), b.clone());
        let logical = |op: fn(bool, bool) -> bool| {
            pairs.iter().map(|(a, b)| truth(op(*a != 0, *b != 0))).collect::<Vec<i32>>()
        };
        prop_assert_eq!(reduce(PredefinedOp::Land, Basic::Int, &a, &b), logical(|a, b| a && b));
        prop_assert_eq!(reduce(PredefinedOp::Lor, Basic::Int, &a, &b), logical(|a, b| a || b));
        prop_assert_eq!(reduce(PredefinedOp::Lxor, Basic::Int, &a, &b), logical(|a, b| a != b));
    }

    #[test]
    fn doubles_agree_with_plain_arithmetic(pairs in prop::collection::vec((-1e9..1e9, -1e9..1e9), 0..50)) {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let by_hand = |op: fn(f64, f64) -> f64| pairs.iter().map(|(a, b)| op(*a, *b)).collect::<Vec<f64>>();
        prop_assert_eq!(reduce(PredefinedOp::Sum, Basic::Double, &a, &b), by_hand(|a, b| a + b));
        prop_assert_eq!(reduce(PredefinedOp::Prod, Basic::Double, &a, &b), by_hand(|a, b| a * b));
        prop_assert_eq!(reduce(PredefinedOp::Min, Basic::Double, &a, &b), by_hand(f64::min));
        prop_assert_eq!(reduce(PredefinedOp::Max, Basic::Double, &a, &b), by_hand(f64::max));
    }
}

#[test]
fn every_width_is_read_as_its_type() {
    check(PredefinedOp::Sum, Basic::Int8, 100i8, 100, -56);
    check(PredefinedOp::Max, Basic::Uint8, 200u8, 100, 200);
    check(PredefinedOp::Max, Basic::SignedChar, -56i8, 100, 100);
    check(PredefinedOp::Min, Basic::UnsignedShort, 40_000u16, 1, 1);
    check(PredefinedOp::Max, Basic::UnsignedLong, u64::MAX, 1, u64::MAX);
    check(PredefinedOp::Prod, Basic::Integer16, i128::MAX, 2, -2);
    check(PredefinedOp::Sum, Basic::Count, 1i64 << 40, 1, (1 << 40) + 1);
    check(PredefinedOp::Sum, Basic::Real, 0.5f32, 0.25, 0.75);
    check(PredefinedOp::Band, Basic::Byte, 0b1100u8, 0b1010, 0b1000);
    check(PredefinedOp::Lxor, Basic::CBool, 1u8, 1, 0);
    check(PredefinedOp::Sum, Basic::Char, 2i8, 3, 5);
}

#[test]
fn complex_numbers_multiply_as_such() {
    check(PredefinedOp::Prod, Basic::CDoubleComplex, [1.0f64, 2.0], [3.0, -1.0], [5.0, 5.0]);
    check(PredefinedOp::Sum, Basic::Complex, [1.0f32, 2.0], [3.0, -1.0], [4.0, 1.0]);
    let half = |value: f32| half::f16::from_f32(value).to_bits();
    let (a, b) = ([half(1.0), half(2.0)], [half(3.0), half(-1.0)]);
    check(PredefinedOp::Prod, Basic::Complex4, a, b, [half(5.0), half(5.0)]);
}

#[test]
fn half_and_quadruple_precision() {
    let half = |value: f32| half::f16::from_f32(value).to_bits();
    check(PredefinedOp::Sum, Basic::Real2, half(1.5), half(0.25), half(1.75));
    check(PredefinedOp::Max, Basic::Real2, half(-1.5), half(-0.25), half(-0.25));
    // Sign and exponent stand in the upper 16 bits: 1.0 is 0x3fff, 1.5 has half a bit more.
    let quad = |upper: u128| upper << 96;
    check(PredefinedOp::Sum, Basic::Real16, quad(0x3fff_0000), quad(0x3fff_0000), quad(0x4000_0000));
    check(PredefinedOp::Prod, Basic::Real16, quad(0x3fff_8000), quad(0x4000_0000), quad(0x4000_8000));
    check(PredefinedOp::Min, Basic::Real16, quad(0xbfff_0000), quad(0x3fff_0000), quad(0xbfff_0000));
}

#[cfg(target_arch = "x86_64")]
#[test]
#[cfg_attr(miri, ignore = "the x87 unit is used by assembly, which miri does not read")]
fn long_double_keeps_its_64_bits_of_significand() {
    let one = (0x3fff_u128 << 64) | (1 << 63);
    let tiny = (0x3fc0_u128 << 64) | (1 << 63);
    let (two, minus_one) = ((0x4000_u128 << 64) | (1 << 63), one | (1 << 79));
    check(PredefinedOp::Sum, Basic::LongDouble, one, tiny, one | 1);
    check(PredefinedOp::Prod, Basic::LongDouble, two, two, (0x4001_u128 << 64) | (1 << 63));
    check(PredefinedOp::Max, Basic::LongDouble, minus_one, tiny, tiny);
    check(PredefinedOp::Min, Basic::LongDouble, minus_one, tiny, minus_one);
    let i = [0, one];
    check(PredefinedOp::Prod, Basic::CLongDoubleComplex, i, i, [minus_one, 0]);
}

#[test]
fn a_fortran_logical_stays_what_the_compiler_calls_true() {
    for truth in [1i32, -1] {
        check(PredefinedOp::Land, Basic::Logical, truth, truth, truth);
        check(PredefinedOp::Land, Basic::Logical, truth, 0, 0);
        check(PredefinedOp::Lor, Basic::Logical4, 0, truth, truth);
        check(PredefinedOp::Lxor, Basic::Logical, truth, 0, truth);
        check(PredefinedOp::Lxor, Basic::Logical, truth, truth, 0);
    }
}

#[test]
fn pairs_keep_the_winner_and_the_smaller_index() {
    #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C)]
    struct DoubleInt {
        value: f64,
        index: i32,
        gap: i32,
    }
    let pair = |value, index, gap| DoubleInt { value, index, gap };
    let double_int = Datatype::predefined(Basic::DoubleInt);
    let check = |op, input: DoubleInt, inout: DoubleInt, expected: DoubleInt| {
        let (input, mut inout) = ([input; 3000], [inout; 3000]);
        // SAFETY: both arrays hold 3000 pairs and outlive the buffers.
        let source = unsafe { SendBuf::new(input.as_ptr().cast(), 3000, &double_int) };
        // SAFETY: as above.
        let mut target = unsafe { RecvBuf::new(inout.as_mut_ptr().cast(), 3000, &double_int) };
        Op::predefined(op).reduce(&double_int, &source, &mut target).expect("defined for pairs");
        drop(target);
        assert_eq!(inout, [expected; 3000]);
    };
    check(PredefinedOp::Minloc, pair(1.0, 7, 1), pair(2.0, 3, 2), pair(1.0, 7, 2));
    check(PredefinedOp::Minloc, pair(2.0, 7, 1), pair(2.0, 3, 2), pair(2.0, 3, 2));
    check(PredefinedOp::Minloc, pair(2.0, 1, 1), pair(2.0, 3, 2), pair(2.0, 1, 2));
    check(PredefinedOp::Maxloc, pair(1.0, 7, 1), pair(2.0, 3, 2), pair(2.0, 3, 2));
    check(PredefinedOp::Maxloc, pair(3.0, 7, 1), pair(2.0, 3, 2), pair(3.0, 7, 2));
    assert_eq!(reduce(PredefinedOp::Maxloc, Basic::TwoInt, &[[5, 1], [1, 0]], &[[4, 0], [1, 2]]), [[5, 1], [1, 0]]);
}

#[test]
fn operations_are_defined_where_the_standard_says() {
    use PredefinedOp::*;
    for basic in Basic::all() {
        let class = if basic == Basic::Char { Class::CInteger } else { basic.class() };
        let numbers = matches!(class, Class::CInteger | Class::FortranInteger | Class::Floating | Class::MultiLanguage);
        let bits = matches!(class, Class::CInteger | Class::FortranInteger | Class::Byte | Class::MultiLanguage);
        for op in PredefinedOp::ALL {
            let expected = match op {
                Min | Max => numbers,
                Sum | Prod => numbers || class == Class::Complex,
                Land | Lor | Lxor => matches!(class, Class::CInteger | Class::Logical | Class::MultiLanguage),
                Band | Bor | Bxor => bits,
                Minloc | Maxloc => class == Class::Pair,
                Replace | NoOp => true,
            };
            assert_eq!(op.supports(basic), expected, "{} of {}", op.name(), basic.name());
            let collective = expected && !matches!(op, Replace | NoOp);
            assert_eq!(Op::predefined(op).supports(&Datatype::predefined(basic)), collective);
        }
    }
}

#[test]
fn collective_calls_take_predefined_types_only() -> Result<(), TypeError> {
    let int = Datatype::predefined(Basic::Int);
    let two = Datatype::contiguous(2, &int)?;
    let sum = Op::predefined(PredefinedOp::Sum);
    assert!(sum.supports(&int) && sum.supports(&*Datatype::dup(&int)?));
    assert!(!sum.supports(&two) && !sum.supports(&*Datatype::dup(&two)?));
    assert_eq!((int.named_basic(), two.named_basic()), (Some(Basic::Int), None));
    let (input, mut inout) = ([3, 4].map(i32::to_ne_bytes).concat(), [10, 20].map(i32::to_ne_bytes).concat());
    sum.predefined_for(&int).expect("supported").reduce_packed(&input, &mut inout);
    assert_eq!(inout, [13, 24].map(i32::to_ne_bytes).concat());
    Ok(())
}

#[test]
fn a_derived_type_of_one_leaf_type_is_reduced_in_place() -> Result<(), TypeError> {
    let column = Datatype::vector(3, 1, 2, &Datatype::predefined(Basic::Int))?;
    let mut inout = [1, 10, 2, 20, 3, 30];
    // SAFETY: the column lies inside the array, which outlives the buffer.
    let mut target = unsafe { RecvBuf::new(inout.as_mut_ptr().cast(), 1, &column) };
    let source = SendBuf::from_owned(bytemuck::cast_slice(&[100, 200, 300]).into());
    let reduced = Op::predefined(PredefinedOp::Sum).reduce(&column, &source, &mut target);
    assert_eq!(reduced, Ok(()));
    drop(target);
    assert_eq!(inout, [101, 10, 202, 20, 303, 30]);
    Ok(())
}

#[test]
fn packed_elements_are_reduced_into_scattered_ones_as_far_as_both_go() -> Result<(), TypeError> {
    let pair = Datatype::predefined(Basic::DoubleInt);
    // Longer than what is brought into packed form at a time.
    #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C)]
    struct Padded(f64, i32, i32);
    let mut values = vec![Padded(2.0, 7, 99); 1500];
    let count = values.len() as u64;
    let element = |i: u64| [&((i % 4) as f64).to_ne_bytes()[..], &5i32.to_ne_bytes()].concat();
    let packed: Vec<u8> = (0..count).flat_map(element).collect();
    // SAFETY: the vector holds so many pairs, laid out as C does, and outlives the buffer.
    let mut target = unsafe { RecvBuf::new(values.as_mut_ptr().cast(), count, &pair) };
    let maxloc = Op::predefined(PredefinedOp::Maxloc).packed(&pair).expect("defined for pairs");
    let short = packed.len() - 12 * 100;
    maxloc.reduce(&packed[..short], &mut target);
    maxloc.reduce(&[], &mut target);
    maxloc.reduce(&[packed[..short].to_vec(), vec![0; 12 * 200]].concat(), &mut target);
    drop(target);
    for (i, value) in values.iter().enumerate() {
        let expected = match i % 4 {
            3 if i < 1400 => Padded(3.0, 5, 99),
            2 if i < 1400 => Padded(2.0, 5, 99),
            _ => Padded(2.0, 7, 99),
        };
        assert_eq!(*value, expected, "element {i}");
    }
    assert!(Op::predefined(PredefinedOp::Sum).packed(&pair).is_none(), "not defined");
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() {
    let double = Datatype::predefined(Basic::Double);
    let bytes = |len| vec![0; len].into_boxed_slice();
    let sum = |op, from, to| {
        Op::predefined(op).reduce(&double, &SendBuf::from_owned(bytes(from)), &mut RecvBuf::from_owned(bytes(to)))
    };
    let undefined = OpError::Undefined { op: "MPI_BAND", datatype: "datatype MPI_DOUBLE".into() };
    assert_eq!(sum(PredefinedOp::Band, 8, 8), Err(undefined));
    assert_eq!(sum(PredefinedOp::Sum, 8, 16), Err(OpError::Mismatch { input_bytes: 8, inout_bytes: 16 }));
    assert_eq!(sum(PredefinedOp::Sum, 12, 12), Err(OpError::Mismatch { input_bytes: 12, inout_bytes: 12 }));
    assert_eq!(sum(PredefinedOp::Sum, 16, 16), Ok(()));
}

/// Remembers where it was called.
#[derive(Default)]
struct Recorder(Mutex<Vec<(usize, usize, u64)>>);

impl UserFunction for Recorder {
    fn apply(&self, input: *const u8, inout: *mut u8, count: u64, _datatype: &Arc<Datatype>) {
        self.0.lock().expect("nothing panics while it is held").push((input.addr(), inout.addr(), count));
    }
}

#[test]
fn a_user_function_sees_elements_from_displacement_zero() -> Result<(), TypeError> {
    let int = Datatype::predefined(Basic::Int);
    let displaced = Datatype::hindexed(&[1], &[8], &int)?;
    let resized = Datatype::resized(-4, 20, &displaced)?;
    for datatype in [int, displaced, resized] {
        let input = [0u8; 128];
        // SAFETY: four elements of each type fit the array, which outlives the buffer.
        let source = unsafe { SendBuf::new(input.as_ptr(), 4, &datatype) };
        let mut scratch = Scratch::new(4, &datatype)?;
        let mut target = scratch.recv();
        let recorder = Arc::new(Recorder::default());
        let op = Op::user(false, recorder.clone());
        assert!(!op.commutes() && op.supports(&datatype));
        assert_eq!(op.reduce(&datatype, &source, &mut target), Ok(()));
        let calls = recorder.0.lock().expect("nothing panics while it is held").clone();
        let [(from, to, count)] = calls[..] else { panic!("called {} times", calls.len()) };
        assert_eq!((from, count), (input.as_ptr().addr(), 4));
        assert_eq!(to % 64, 0, "temporary memory is aligned at displacement 0");
    }
    Ok(())
}
