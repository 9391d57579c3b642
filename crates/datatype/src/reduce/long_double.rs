//! C's `long double`: on x86-64 the x87 format, computed by the x87 unit; elsewhere IEEE quadruple precision.

#[cfg(target_arch = "x86_64")]
pub(super) use x87::Extended as LongDouble;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use super::number::Quad as LongDouble;

#[cfg(target_arch = "x86_64")]
mod x87 {
    use std::arch::asm;

    use bytemuck::{Pod, Zeroable};

    use crate::reduce::number::{Arithmetic, Ordered};

    /// An 80-bit number in the 16 bytes that C gives it; the last six mean nothing.
    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(transparent)]
    pub(in crate::reduce) struct Extended(u128);

    impl Extended {
        fn exponent(self) -> u64 {
            (self.0 >> 64) as u64 & 0x7fff
        }

        fn significand(self) -> u64 {
            self.0 as u64
        }

        fn is_nan(self) -> bool {
            self.exponent() == 0x7fff && self.significand() << 1 != 0
        }

        /// A number in the same order as the value, both zeros alike.
        fn rank(self) -> i128 {
            let magnitude = (i128::from(self.exponent()) << 64) | i128::from(self.significand());
            if (self.0 >> 79) & 1 == 1 { -magnitude } else { magnitude }
        }
    }

    impl Arithmetic for Extended {
        fn plus(mut self, other: Self) -> Self {
            let (result, operand) = (&raw mut self, &raw const other);
            // SAFETY: reads 10 bytes of each local and writes 10 bytes of one; leaves the x87 stack as empty as found.
            unsafe {
                asm!(
                    "fld tbyte ptr [{result}]",
                    "fld tbyte ptr [{operand}]",
                    "faddp st(1), st",
                    "fstp tbyte ptr [{result}]",
                    result = in(reg) result,
                    operand = in(reg) operand,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack),
                );
            }
            self
        }

        fn minus(self, other: Self) -> Self {
            self.plus(Extended(other.0 ^ (1 << 79)))
        }

        fn times(mut self, other: Self) -> Self {
            let (result, operand) = (&raw mut self, &raw const other);
            // SAFETY: as in `plus`.
            unsafe {
                asm!(
                    "fld tbyte ptr [{result}]",
                    "fld tbyte ptr [{operand}]",
                    "fmulp st(1), st",
                    "fstp tbyte ptr [{result}]",
                    result = in(reg) result,
                    operand = in(reg) operand,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack),
                );
            }
            self
        }
    }

    impl Ordered for Extended {
        fn less(self, other: Self) -> bool {
            !self.is_nan() && !other.is_nan() && self.rank() < other.rank()
        }
    }
}
