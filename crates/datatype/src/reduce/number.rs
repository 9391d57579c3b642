//! The numbers that are reduced, and what the operations need of them.

use std::cmp::Ordering;
use std::ops::{BitAnd, BitOr, BitXor};

use bytemuck::{Pod, Zeroable};
use half::f16;
use num_complex::Complex;
use rustc_apfloat::{Float, ieee};

/// Numbers that can be added and multiplied.
pub(super) trait Arithmetic: Pod {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// Numbers with a smaller and a greater.
pub(super) trait Ordered: Pod {
    fn less(self, other: Self) -> bool;
}

/// Integers of any width.
pub(super) trait Integer:
    Arithmetic + Ordered + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    /// C's truth: anything but zero.
    fn truth(self) -> bool;
    fn from_truth(truth: bool) -> Self;
}

/// The integers differ in nothing but their name; overflow wraps.
macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Arithmetic for $integer {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }

        impl Ordered for $integer {
            #[inline(always)]
            fn less(self, other: Self) -> bool {
                self < other
            }
        }

        impl Integer for $integer {
            #[inline(always)]
            fn truth(self) -> bool {
                self != 0
            }
            #[inline(always)]
            fn from_truth(truth: bool) -> Self {
                truth.into()
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128);

impl Arithmetic for f32 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self * other
    }
}

impl Ordered for f32 {
    #[inline(always)]
    fn less(self, other: Self) -> bool {
        self < other
    }
}

impl Arithmetic for f64 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self * other
    }
}

impl Ordered for f64 {
    #[inline(always)]
    fn less(self, other: Self) -> bool {
        self < other
    }
}

/// A 2-byte real; each operation rounds once.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Half(u16);

impl Half {
    fn wide(self) -> f32 {
        f16::from_bits(self.0).to_f32()
    }
    fn narrow(wide: f32) -> Half {
        Half(f16::from_f32(wide).to_bits())
    }
}

impl Arithmetic for Half {
    fn plus(self, other: Self) -> Self {
        Half::narrow(self.wide() + other.wide())
    }
    fn minus(self, other: Self) -> Self {
        Half::narrow(self.wide() - other.wide())
    }
    fn times(self, other: Self) -> Self {
        Half::narrow(self.wide() * other.wide())
    }
}

impl Ordered for Half {
    fn less(self, other: Self) -> bool {
        self.wide() < other.wide()
    }
}

/// IEEE quadruple precision, computed in software.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Quad(u128);

impl Quad {
    fn value(self) -> ieee::Quad {
        ieee::Quad::from_bits(self.0)
    }
    fn of(value: ieee::Quad) -> Quad {
        Quad(value.to_bits())
    }
}

impl Arithmetic for Quad {
    fn plus(self, other: Self) -> Self {
        Quad::of((self.value() + other.value()).value)
    }
    fn minus(self, other: Self) -> Self {
        Quad::of((self.value() - other.value()).value)
    }
    fn times(self, other: Self) -> Self {
        Quad::of((self.value() * other.value()).value)
    }
}

impl Ordered for Quad {
    fn less(self, other: Self) -> bool {
        self.value().partial_cmp(&other.value()) == Some(Ordering::Less)
    }
}

impl<T: Arithmetic> Arithmetic for Complex<T> {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Complex { re: self.re.plus(other.re), im: self.im.plus(other.im) }
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        Complex { re: self.re.minus(other.re), im: self.im.minus(other.im) }
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        Complex {
            re: self.re.times(other.re).minus(self.im.times(other.im)),
            im: self.re.times(other.im).plus(self.im.times(other.re)),
        }
    }
}
