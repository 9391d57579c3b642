//! What several algorithms share.

pub(crate) mod accumulator;
pub(crate) mod fold;
pub(crate) mod gathered;
pub(crate) mod halving;
pub(crate) mod inputs;
pub(crate) mod layout;
pub(crate) mod packed;
pub(crate) mod tree;

/// The largest power of two up to `size`.
pub(crate) fn power_of_two_below(size: u32) -> u32 {
    1 << size.ilog2()
}

/// `total` cut into `parts` as even as can be: where part `index` begins; `parts` gives the end.
pub(crate) fn even_cut(total: u64, parts: u32, index: u32) -> u64 {
    let (parts, index) = (u64::from(parts), u64::from(index));
    index * (total / parts) + index.min(total % parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_even_and_complete() {
        for (total, parts) in [(0, 3), (2, 5), (10, 4), (12, 4)] {
            assert_eq!(even_cut(total, parts, 0), 0);
            assert_eq!(even_cut(total, parts, parts), total);
            let lengths = (0..parts).map(|i| even_cut(total, parts, i + 1) - even_cut(total, parts, i));
            let (least, most) = (lengths.clone().min(), lengths.max());
            assert!(most <= least.map(|least| least + 1), "{total} in {parts}");
        }
    }

    #[test]
    fn powers_of_two() {
        assert_eq!([1, 2, 3, 4, 7, 8, 9].map(power_of_two_below), [1, 2, 2, 4, 4, 8, 8]);
    }
}
