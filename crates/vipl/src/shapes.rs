//! Lists of different shapes: pieces that lie in one piece on both sides. Paper: via2sisci §1.4.3.

/// A piece of a transfer: so many bytes from a place of one list to a place of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which segment of the source, and where in it.
    pub from: (usize, usize),
    /// Which segment of the target, and where in it.
    pub to: (usize, usize),
    /// Bytes, never 0.
    pub len_bytes: usize,
}

/// The pieces of a transfer between lists with segments of these lengths, in order, until either list ends.
pub fn pieces<'a>(
    from: impl Iterator<Item = usize> + 'a,
    to: impl Iterator<Item = usize> + 'a,
) -> impl Iterator<Item = Piece> + 'a {
    let (mut from, mut to) = (Walk::new(from), Walk::new(to));
    std::iter::from_fn(move || {
        let len_bytes = from.left()?.min(to.left()?);
        let piece = Piece { from: from.place, to: to.place, len_bytes };
        from.place.1 += len_bytes;
        to.place.1 += len_bytes;
        Some(piece)
    })
}

/// Where one is in a list.
struct Walk<I> {
    rest: I,
    place: (usize, usize),
    len_bytes: Option<usize>,
}

impl<I: Iterator<Item = usize>> Walk<I> {
    fn new(mut rest: I) -> Self {
        let len_bytes = rest.next();
        Self { rest, place: (0, 0), len_bytes }
    }

    /// Bytes of the segment one is in, which is not at its end; `None` at the end of the list.
    fn left(&mut self) -> Option<usize> {
        while self.len_bytes? == self.place.1 {
            self.len_bytes = self.rest.next();
            self.place = (self.place.0 + 1, 0);
        }
        Some(self.len_bytes? - self.place.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the naive way: byte by byte.
        #[test]
        fn every_byte_goes_to_its_place(
            from in prop::collection::vec(0usize..9, 0..6), to in prop::collection::vec(0usize..9, 0..6),
        ) {
            let bytes = |list: &[usize]| -> Vec<(usize, usize)> {
                list.iter().enumerate().flat_map(|(segment, len)| (0..*len).map(move |at| (segment, at))).collect()
            };
            let expected: Vec<_> = bytes(&from).into_iter().zip(bytes(&to)).collect();
            let mut found = Vec::new();
            for piece in pieces(from.iter().copied(), to.iter().copied()) {
                prop_assert!(piece.len_bytes > 0);
                found.extend((0..piece.len_bytes).map(|at| {
                    ((piece.from.0, piece.from.1 + at), (piece.to.0, piece.to.1 + at))
                }));
            }
            prop_assert_eq!(found, expected);
            // As few as there can be: one for each end of a segment on either side.
            let ends = |list: &[usize]| list.iter().filter(|len| **len > 0).count();
            let count = pieces(from.iter().copied(), to.iter().copied()).count();
            prop_assert!(count <= (ends(&from) + ends(&to)).saturating_sub(1));
        }
    }
}
