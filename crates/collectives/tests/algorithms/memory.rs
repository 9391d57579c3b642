//! Naive buffers and datatypes: a type is the list of the addresses of its bytes.

use collectives::TypeShape;

/// A datatype: where each packed byte of an element lies relative to the element's origin.
#[derive(Clone, Debug)]
pub struct SimType {
    map: Vec<i64>,
    extent: i64,
    contiguous: bool,
}

impl SimType {
    pub fn contiguous(size: usize) -> SimType {
        SimType { map: (0..size as i64).collect(), extent: size as i64, contiguous: true }
    }

    /// Every other byte from before the origin on, with room between elements.
    pub fn strided(size: usize) -> SimType {
        SimType { map: (0..size as i64).map(|k| 2 * k - 4).collect(), extent: 2 * size as i64 + 5, contiguous: false }
    }

    /// Bytes in reverse, elements downwards in memory.
    pub fn downward(size: usize) -> SimType {
        SimType { map: (0..size as i64).rev().collect(), extent: -(size as i64), contiguous: false }
    }

    /// All kinds for elements of `size` bytes.
    pub fn kinds(size: usize) -> [SimType; 3] {
        [SimType::contiguous(size), SimType::strided(size), SimType::downward(size)]
    }

    pub fn size(&self) -> usize {
        self.map.len()
    }

    pub fn extent(&self) -> i64 {
        self.extent
    }

    pub fn shape(&self) -> TypeShape {
        TypeShape { size_bytes: self.size() as u64, extent_bytes: self.extent, contiguous: self.contiguous }
    }

    fn addresses(&self, offset: i64, count: u64) -> impl Iterator<Item = i64> + '_ {
        (0..count as i64).flat_map(move |i| self.map.iter().map(move |k| offset + i * self.extent + k))
    }

    /// The addresses from the least to one past the greatest, if any.
    pub fn span(&self, offset: i64, count: u64) -> Option<(i64, i64)> {
        if count == 0 || self.map.is_empty() {
            return None;
        }
        let (least, most) = (self.map.iter().min().unwrap(), self.map.iter().max().unwrap());
        let last = offset + (count as i64 - 1) * self.extent;
        Some((offset.min(last) + least, offset.max(last) + most + 1))
    }
}

/// Memory around a buffer's address; what nobody wrote keeps a telling value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    bytes: Vec<u8>,
    origin: i64,
}

const UNTOUCHED: u8 = 0xA5;
const MARGIN: i64 = 64;

impl Memory {
    /// Room for `elements` elements of `ty`, from a lowest element that may be negative.
    pub fn new(ty: &SimType, lowest: i64, elements: u64) -> Memory {
        let span = ty.span(lowest * ty.extent, elements).unwrap_or((0, 0));
        Memory::spanning(span.0, span.1)
    }

    /// Room for the addresses from `low` up to `high`, and for a margin.
    pub fn spanning(low: i64, high: i64) -> Memory {
        let origin = MARGIN - low.min(0);
        Memory { bytes: vec![UNTOUCHED; (origin + high.max(0) + MARGIN) as usize], origin }
    }

    pub fn write(&mut self, ty: &SimType, offset: i64, packed: &[u8]) {
        if ty.size() == 0 {
            return;
        }
        assert_eq!(packed.len() % ty.size(), 0, "whole elements");
        let count = (packed.len() / ty.size()) as u64;
        for (address, &byte) in ty.addresses(offset, count).zip(packed) {
            self.bytes[(self.origin + address) as usize] = byte;
        }
    }

    pub fn read(&self, ty: &SimType, offset: i64, count: u64) -> Vec<u8> {
        ty.addresses(offset, count).map(|address| self.bytes[(self.origin + address) as usize]).collect()
    }

    /// The same with all bytes changed: undefined contents.
    pub fn scrambled(mut self, salt: u8) -> Memory {
        self.bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(31) ^ salt);
        self
    }
}

/// A small repeatable source of chance.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
