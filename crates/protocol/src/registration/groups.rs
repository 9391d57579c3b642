//! Which blocks of a message are registered together. Paper: datatypes §5.4.1 (Optimistic Group Registration)
//!
//! ```text
//!   apart     blocks × one registration
//!   together  one registration + the pages of the gaps
//! ```
//! A gap is worth including as long as its pages cost less than one more registration. That is *optimistic*: nobody has
//! promised that there is memory in a gap. So the longest gaps are tried first, and where the device refuses a group,
//! those that are certain to hold memory, and blocks alone after that.

use fabric::Translation;

/// Time to register one page more where pages are pinned, in nanoseconds.
const PAGE_NS: usize = 120;
/// Time that a registration costs there by itself, in nanoseconds.
const REGISTER_NS: usize = 2000;
const PAGE_BYTES: usize = 4096;
/// Longest gap that is worth its pages there, in bytes.
const PINNED_GAP_MAX_BYTES: usize = REGISTER_NS / PAGE_NS * PAGE_BYTES;

/// Longest gaps inside a group to try one after the other, in bytes, for a device of this translation.
pub fn group_gaps(translation: Translation) -> &'static [usize] {
    match translation {
        // An entry in a table, however much memory it is about, and the system looks at each access.
        Translation::Checked => &[usize::MAX, PAGE_BYTES - 1, 0],
        Translation::Pinned => &[PINNED_GAP_MAX_BYTES, PAGE_BYTES - 1, 0],
        // Nobody would notice that a gap holds no memory.
        Translation::Unchecked => &[PAGE_BYTES - 1, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_hoped_for_with_each_try_and_blocks_alone_come_last() {
        for translation in [Translation::Checked, Translation::Pinned, Translation::Unchecked] {
            let gaps = group_gaps(translation);
            assert!(gaps.windows(2).all(|pair| pair[0] > pair[1]) && gaps.last() == Some(&0));
        }
        let longest = group_gaps(Translation::Pinned)[0];
        assert!(longest / PAGE_BYTES * PAGE_NS <= REGISTER_NS, "its pages cost no more than a registration");
        assert!((longest / PAGE_BYTES + 1) * PAGE_NS > REGISTER_NS);
        assert!(group_gaps(Translation::Unchecked)[0] < PAGE_BYTES);
    }
}
