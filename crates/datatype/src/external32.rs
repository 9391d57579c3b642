//! The standard's portable representation: big-endian, IEEE, with widths of its own.
//!
//! A packed message already holds its elements in type-map order, so converting walks the signature alongside the packed
//! bytes. `MPI_LONG` and `MPI_UNSIGNED_LONG` have 4 bytes outside and `MPI_WCHAR` 2: a value that does not fit is an
//! error, not a wrong number.
//!
//! MPI: §14.5.2, §5.3

use rustc_apfloat::ieee::{Quad, X87DoubleExtended};
use rustc_apfloat::{Float, FloatConvert};

use crate::basic::{Basic, Class, Scalar};
use crate::buffer::{RecvBuf, SendBuf};
use crate::datatype::Datatype;
use crate::error::TypeError;
use crate::layout::{Leaf, Run, Tree};

/// Elements converted at a time.
const BATCH_COUNT: u64 = 256;

/// The widest atom.
const ATOM_BYTES_MAX: usize = 16;

/// Refuses any data representation but `"external32"`.
///
/// # Errors
/// [`TypeError::UnknownRepresentation`]
pub fn check_representation(name: &str) -> Result<(), TypeError> {
    if name == "external32" { Ok(()) } else { Err(TypeError::UnknownRepresentation { name: name.to_owned() }) }
}

/// The bytes that `count` elements take in the portable representation.
///
/// # Errors
/// [`TypeError::Overflow`]
///
/// MPI: §5.3, `MPI_Pack_external_size`
pub fn size(count: u64, datatype: &Datatype) -> Result<u64, TypeError> {
    let each = datatype.shape().data.as_ref().map_or(0, |data| external_bytes(&data.runs().tree));
    let size = each.checked_mul(count).filter(|size| i64::try_from(*size).is_ok());
    size.ok_or(TypeError::Overflow { what: "external32 size" })
}

/// Converts the elements of `datatype` in `source` into `target` and returns the bytes written.
///
/// # Errors
/// [`TypeError::BufferTooShort`] before anything is written, [`TypeError::Unrepresentable`].
///
/// MPI: §5.3, `MPI_Pack_external`
pub fn pack(datatype: &Datatype, source: &SendBuf, target: &mut [u8]) -> Result<u64, TypeError> {
    let count = whole_elements(datatype, source.len_bytes())?;
    let needed_bytes = check_room(count, datatype, target.len())?;
    let (mut native_at, mut external_at) = (0, 0);
    let mut batch = vec![0; (BATCH_COUNT as usize) * 2 * ATOM_BYTES_MAX];
    for_each_run(datatype, count, &mut |run: Run| {
        let native = &mut batch[..run.packed_bytes() as usize];
        source.pack_at(native_at, native);
        native_at += run.packed_bytes();
        let mut rest = &*native;
        for atom in atoms(run) {
            let (from, tail) = rest.split_at(atom.native_bytes);
            outward(atom, from, &mut target[external_at..][..atom.external_bytes])?;
            (rest, external_at) = (tail, external_at + atom.external_bytes);
        }
        Ok(())
    })?;
    Ok(needed_bytes)
}

/// Converts `source` into the elements of `datatype` in `target` and returns the bytes read.
///
/// # Errors
/// [`TypeError::BufferTooShort`] before anything is written.
///
/// MPI: §5.3, `MPI_Unpack_external`
pub fn unpack(datatype: &Datatype, source: &[u8], target: &mut RecvBuf) -> Result<u64, TypeError> {
    let count = whole_elements(datatype, target.len_bytes())?;
    let needed_bytes = check_room(count, datatype, source.len())?;
    let (mut native_at, mut external_at) = (0, 0);
    let mut batch = vec![0; (BATCH_COUNT as usize) * 2 * ATOM_BYTES_MAX];
    for_each_run(datatype, count, &mut |run: Run| {
        let native = &mut batch[..run.packed_bytes() as usize];
        let mut rest = &mut *native;
        for atom in atoms(run) {
            let (to, tail) = rest.split_at_mut(atom.native_bytes);
            inward(atom, &source[external_at..][..atom.external_bytes], to);
            (rest, external_at) = (tail, external_at + atom.external_bytes);
        }
        target.unpack_at(native_at, native);
        native_at += run.packed_bytes();
        Ok(())
    })?;
    Ok(needed_bytes)
}

/// A number that is converted as a whole.
#[derive(Clone, Copy)]
struct Atom {
    basic: Basic,
    native_bytes: usize,
    external_bytes: usize,
}

fn whole_elements(datatype: &Datatype, bytes: u64) -> Result<u64, TypeError> {
    let short = || TypeError::BufferTooShort { needed_bytes: datatype.size(), available_bytes: bytes };
    datatype.count_in(bytes).map(|count| count as u64).ok_or_else(short)
}

fn check_room(count: u64, datatype: &Datatype, available: usize) -> Result<u64, TypeError> {
    let needed_bytes = size(count, datatype)?;
    let available_bytes = available as u64;
    if needed_bytes > available_bytes {
        return Err(TypeError::BufferTooShort { needed_bytes, available_bytes });
    }
    Ok(needed_bytes)
}

/// Calls `each` for all runs of `count` elements in packed order, in batches.
fn for_each_run(
    datatype: &Datatype,
    count: u64,
    each: &mut impl FnMut(Run) -> Result<(), TypeError>,
) -> Result<(), TypeError> {
    let Some(data) = &datatype.shape().data else { return Ok(()) };
    let runs = data.runs();
    match runs.tree {
        Tree::Leaf(run) => batches(Run { count: run.count * count, ..run }, each),
        tree => (0..count).try_for_each(|_| visit(&tree, each)),
    }
}

fn visit(tree: &Tree<Run>, each: &mut impl FnMut(Run) -> Result<(), TypeError>) -> Result<(), TypeError> {
    match tree {
        Tree::Leaf(run) => batches(*run, each),
        Tree::Comb(comb) => batches(Run { count: comb.leaf.count * comb.count, ..comb.leaf }, each),
        Tree::Strided(node) => (0..node.count).try_for_each(|_| visit(&node.child, each)),
        Tree::Blocks(node) => {
            batches(Run { count: node.leaf.count * node.displacements.len() as u64, ..node.leaf }, each)
        }
        Tree::Pieces(node) => node.pieces.iter().try_for_each(|piece| batches(piece.leaf, each)),
        Tree::Parts(node) => node.parts.iter().try_for_each(|part| visit(&part.tree, each)),
    }
}

fn batches(run: Run, each: &mut impl FnMut(Run) -> Result<(), TypeError>) -> Result<(), TypeError> {
    let mut left = run.count;
    while left > 0 {
        let count = left.min(BATCH_COUNT);
        each(Run { count, ..run })?;
        left -= count;
    }
    Ok(())
}

fn external_bytes(tree: &Tree<Run>) -> u64 {
    let of_run = |run: &Run| run.count * atoms_of(run.basic).map(|atom| atom.external_bytes as u64).sum::<u64>();
    match tree {
        Tree::Leaf(run) => of_run(run),
        Tree::Comb(comb) => comb.count * of_run(&comb.leaf),
        Tree::Strided(node) => node.count * external_bytes(&node.child),
        Tree::Blocks(node) => of_run(&node.leaf) * node.displacements.len() as u64,
        Tree::Pieces(node) => node.pieces.iter().map(|piece| of_run(&piece.leaf)).sum(),
        Tree::Parts(node) => node.parts.iter().map(|part| external_bytes(&part.tree)).sum(),
    }
}

fn atoms(run: Run) -> impl Iterator<Item = Atom> {
    (0..run.count).flat_map(move |_| atoms_of(run.basic))
}

/// The one or two atoms of a predefined type.
fn atoms_of(basic: Basic) -> impl Iterator<Item = Atom> {
    let atom = |basic: Basic| {
        let parts = if basic.class() == Class::Complex { 2 } else { 1 };
        let native_bytes = basic.size() as usize / parts;
        let external_bytes = match basic {
            Basic::Long | Basic::UnsignedLong => 4,
            Basic::Wchar => 2,
            _ => native_bytes,
        };
        Atom { basic, native_bytes, external_bytes }
    };
    let (first, second) = match basic.pair_parts() {
        Some((value, index)) => (value, Some(index)),
        None => (basic, (basic.class() == Class::Complex).then_some(basic)),
    };
    std::iter::once(atom(first)).chain(second.map(atom))
}

fn outward(atom: Atom, native: &[u8], external: &mut [u8]) -> Result<(), TypeError> {
    let mut bytes = [0; ATOM_BYTES_MAX];
    let bytes = &mut bytes[..native.len()];
    bytes.copy_from_slice(native);
    if is_extended(atom.basic) {
        let wide: Quad = X87DoubleExtended::from_bits(low_80(&*bytes)).convert(&mut false).value;
        bytes.copy_from_slice(&wide.to_bits().to_ne_bytes());
    }
    if cfg!(target_endian = "little") {
        bytes.reverse();
    }
    let (dropped, kept) = bytes.split_at(bytes.len() - external.len());
    // What is dropped must be the sign of what is kept.
    let negative = atom.basic.scalar() == Scalar::Signed && kept.first().is_some_and(|byte| byte & 0x80 != 0);
    let sign = if negative { 0xff } else { 0 };
    if dropped.iter().any(|byte| *byte != sign) {
        let external_bytes = external.len() as u64;
        return Err(TypeError::Unrepresentable { basic: atom.basic, external_bytes });
    }
    external.copy_from_slice(kept);
    Ok(())
}

fn inward(atom: Atom, external: &[u8], native: &mut [u8]) {
    let negative = atom.basic.scalar() == Scalar::Signed && external.first().is_some_and(|byte| byte & 0x80 != 0);
    let (sign, kept) = native.split_at_mut(native.len() - external.len());
    sign.fill(if negative { 0xff } else { 0 });
    kept.copy_from_slice(external);
    if cfg!(target_endian = "little") {
        native.reverse();
    }
    if is_extended(atom.basic) {
        let mut bits = [0; ATOM_BYTES_MAX];
        bits.copy_from_slice(native);
        let narrow: X87DoubleExtended = Quad::from_bits(u128::from_ne_bytes(bits)).convert(&mut false).value;
        native.copy_from_slice(&narrow.to_bits().to_ne_bytes());
    }
}

/// True for `long double` where it is in the x87 format.
fn is_extended(basic: Basic) -> bool {
    cfg!(target_arch = "x86_64") && basic.scalar() == Scalar::LongDouble
}

/// The number in the first ten of sixteen bytes.
fn low_80(bytes: &[u8]) -> u128 {
    let mut number = [0; ATOM_BYTES_MAX];
    number[..10].copy_from_slice(&bytes[..10]);
    u128::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn packed<T: bytemuck::NoUninit>(values: &[T], datatype: &Arc<Datatype>) -> Result<Vec<u8>, TypeError> {
        let count = values.len() as u64;
        let mut external = vec![0; size(count, datatype)? as usize];
        let owned = SendBuf::from_owned(bytemuck::cast_slice(values).into());
        assert_eq!(pack(datatype, &owned, &mut external)?, external.len() as u64);
        Ok(external)
    }

    fn round_trip<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(values: &[T], basic: Basic, expected: &[u8]) {
        let datatype = Datatype::predefined(basic);
        let external = packed(values, &datatype).expect("the values fit");
        assert_eq!(external, expected, "{}", basic.name());
        let mut target = RecvBuf::from_owned(vec![0; size_of_val(values)].into());
        unpack(&datatype, &external, &mut target).expect("it is as long as needed");
        let bytes = target.into_owned().expect("the buffer owns its bytes");
        let read = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
        assert_eq!(read.collect::<Vec<_>>(), values);
    }

    #[test]
    fn numbers_are_big_endian_and_have_the_standards_widths() {
        round_trip(&[1i32, -2], Basic::Int, &[0, 0, 0, 1, 255, 255, 255, 254]);
        round_trip(&[1i64, -2], Basic::Long, &[0, 0, 0, 1, 255, 255, 255, 254]);
        round_trip(&[0xffff_ffffu64], Basic::UnsignedLong, &[255; 4]);
        round_trip(&[-1i64], Basic::LongLong, &[255; 8]);
        round_trip(&[0x263au32], Basic::Wchar, &[0x26, 0x3a]);
        round_trip(&[1.0f64], Basic::Double, &[0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
        round_trip(&[[1.0f32, -1.0]], Basic::CFloatComplex, &[0x3f, 0x80, 0, 0, 0xbf, 0x80, 0, 0]);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_long_double_travels_in_quadruple_precision() {
        let one_and_a_half = (0x3fff_u128 << 64) | (0b11 << 62);
        let expected: [u8; 16] = (0x3fff_8000_u128 << 96).to_be_bytes();
        round_trip(&[one_and_a_half], Basic::LongDouble, &expected);
    }

    #[test]
    fn a_value_too_wide_is_an_error() {
        let long = Datatype::predefined(Basic::Long);
        let error = TypeError::Unrepresentable { basic: Basic::Long, external_bytes: 4 };
        assert_eq!(packed(&[1i64 << 31], &long), Err(error));
        assert!(packed(&[-(1i64 << 31)], &long).is_ok());
    }

    #[test]
    fn gaps_are_left_out() {
        let (double, int) = (Datatype::predefined(Basic::Double), Datatype::predefined(Basic::Int));
        let mixed = Datatype::create_struct(&[1, 1], &[0, 8], &[double, int]).expect("a small struct");
        assert_eq!(size(3, &mixed), Ok(36));
        let column = Datatype::vector(3, 1, 2, &mixed).expect("a small vector");
        assert_eq!(size(2, &column), Ok(72));
    }

    #[test]
    fn a_short_buffer_is_refused() {
        let int = Datatype::predefined(Basic::Int);
        let owned = SendBuf::from_owned(vec![0; 8].into());
        let error = TypeError::BufferTooShort { needed_bytes: 8, available_bytes: 7 };
        assert_eq!(pack(&int, &owned, &mut [0; 7]), Err(error));
        assert!(check_representation("native").is_err());
    }
}
