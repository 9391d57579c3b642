//! Operations on elements of eight bytes.

/// An associative operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Product of 2x2 matrices over the integers modulo 65521: not commutative.
    Matrix,
    /// Sum of 64-bit integers, wrapping.
    Sum,
    /// Sum of doubles: commutative, but not quite associative.
    FloatSum,
}

const MODULUS: u64 = 65521;

impl Operation {
    pub fn commutative(self) -> bool {
        self != Operation::Matrix
    }

    /// `left op right` for packed elements.
    pub fn apply(self, left: &[u8], right: &[u8]) -> Vec<u8> {
        assert_eq!(left.len(), right.len());
        let elements = left.chunks_exact(8).zip(right.chunks_exact(8));
        elements.flat_map(|(a, b)| self.element(a.try_into().unwrap(), b.try_into().unwrap())).collect()
    }

    /// All inputs combined in the order given.
    pub fn fold<'a>(self, inputs: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let mut inputs = inputs.into_iter();
        let first = inputs.next()?.to_vec();
        Some(inputs.fold(first, |value, input| self.apply(&value, input)))
    }

    /// Packed input made of arbitrary bytes.
    pub fn input(self, mut bytes: Vec<u8>) -> Vec<u8> {
        for element in bytes.chunks_exact_mut(8) {
            match self {
                Operation::Matrix | Operation::Sum => {}
                Operation::FloatSum => {
                    let number = i64::from_le_bytes(element.try_into().unwrap()) as f64 * 1e-9;
                    element.copy_from_slice(&number.to_le_bytes());
                }
            }
        }
        bytes
    }

    fn element(self, a: [u8; 8], b: [u8; 8]) -> [u8; 8] {
        match self {
            Operation::Matrix => {
                let [a, b] = [a, b].map(|m| [0, 2, 4, 6].map(|i| u64::from(u16::from_le_bytes([m[i], m[i + 1]]))));
                let product = [
                    a[0] * b[0] + a[1] * b[2],
                    a[0] * b[1] + a[1] * b[3],
                    a[2] * b[0] + a[3] * b[2],
                    a[2] * b[1] + a[3] * b[3],
                ];
                let mut bytes = [0; 8];
                for (two, entry) in bytes.chunks_exact_mut(2).zip(product) {
                    two.copy_from_slice(&((entry % MODULUS) as u16).to_le_bytes());
                }
                bytes
            }
            Operation::Sum => u64::from_le_bytes(a).wrapping_add(u64::from_le_bytes(b)).to_le_bytes(),
            Operation::FloatSum => (f64::from_le_bytes(a) + f64::from_le_bytes(b)).to_le_bytes(),
        }
    }
}
