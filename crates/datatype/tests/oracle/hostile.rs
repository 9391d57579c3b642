//! The wire form of layouts: what was sent comes back, and nothing that a peer sends does harm.

use datatype::{Layout, Scratch, Segment, external32};
use proptest::prelude::*;

use crate::recipe::recipe;

/// Every segment of `count` elements, listed `room` at a time.
fn segments(layout: &Layout, count: u64, room: usize) -> Vec<Segment> {
    let (mut all, mut done) = (Vec::new(), 0);
    loop {
        let mut some = vec![Segment::default(); room];
        let used = layout.segments_at(1 << 40, count, done, u64::MAX, &mut some);
        done += some[..used].iter().map(|segment| segment.len_bytes).sum::<u64>();
        all.extend_from_slice(&some[..used]);
        if used == 0 {
            return all;
        }
    }
}

/// Words that begin as layouts do, so that the parser gets far, under the right hash.
fn sealed(words: &[u64]) -> Vec<u8> {
    let hash = words.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        mixed ^ (mixed >> 29)
    });
    std::iter::once(&hash).chain(words).flat_map(|word| word.to_ne_bytes()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_layout_comes_back_as_it_went(recipe in recipe(), count in 0u64..4, room in 1usize..9) {
        let datatype = recipe.build().expect("small types can be made");
        let Some(layout) = Layout::of(&datatype) else {
            prop_assert_eq!(datatype.size(), 0);
            return Ok(());
        };
        let again = Layout::parse(&layout.encode()).expect("our own wire form is understood");
        prop_assert_eq!(again.size(), datatype.size());
        prop_assert_eq!(again.encode(), layout.encode());
        let listed: Vec<u64> = segments(&again, count, room)
            .iter()
            .flat_map(|segment| (0..segment.len_bytes).map(|byte| (segment.address as u64).wrapping_add(byte)))
            .collect();
        let expected: Vec<u64> =
            recipe.model().bytes(count).into_iter().map(|place| (1u64 << 40).wrapping_add_signed(place)).collect();
        prop_assert_eq!(listed, expected);
    }

    #[test]
    fn a_damaged_layout_is_refused(recipe in recipe(), at in 0.0..1.0, bit in 0u8..8, cut in 1usize..30) {
        let datatype = recipe.build().expect("small types can be made");
        let Some(layout) = Layout::of(&datatype) else { return Ok(()) };
        let wire = layout.encode();
        let mut damaged = wire.to_vec();
        damaged[(at * wire.len() as f64) as usize] ^= 1 << bit;
        prop_assert!(Layout::parse(&damaged).is_err());
        prop_assert!(Layout::parse(&wire[..wire.len().saturating_sub(cut)]).is_err());
    }

    /// What a type looks like on the wire, changed here and there and sealed again, so that the parser gets deep: it is
    /// refused, or can be listed from any byte without an end being missed.
    #[test]
    fn a_changed_layout_under_the_right_hash_is_refused_or_harmless(
        recipe in recipe(),
        changes in prop::collection::vec((0.0..1.0, 0u8..5, any::<u64>()), 1..6),
        offset in any::<u64>(),
    ) {
        let datatype = recipe.build().expect("small types can be made");
        let Some(layout) = Layout::of(&datatype) else { return Ok(()) };
        let wire = layout.encode();
        let mut words: Vec<u64> = wire[8..].as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        for (at, change, value) in changes {
            let at = (at * words.len() as f64) as usize;
            match change {
                0 => words[at] = value,
                1 => words[at] = value % 7,
                2 => words[at] = words[at].wrapping_add(value % 5).wrapping_sub(2),
                3 => words.insert(at, value % 9),
                _ if words.len() > 1 => drop(words.remove(at)),
                _ => {}
            }
        }
        if let Ok(changed) = Layout::parse(&sealed(&words)) {
            let size = changed.size();
            prop_assert!(size > 0);
            for (count, offset, most) in [(1, 0, 1 << 20), (3, offset % size, 100), (u64::MAX, offset, u64::MAX)] {
                let mut some = [Segment::default(); 16];
                let used = changed.segments_at(offset, count, offset, most, &mut some);
                let listed: u64 = some[..used].iter().map(|segment| segment.len_bytes).sum();
                let left = size.saturating_mul(count).saturating_sub(offset).min(most);
                prop_assert!(listed <= left && (used == some.len() || listed == left), "{listed} of {left}");
            }
        }
    }

    /// Whatever bytes claim to be external32: they fill the elements and nothing beside them, or are too few.
    #[test]
    fn any_bytes_may_be_unpacked_from_external32(recipe in recipe(), count in 0u64..3, bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let datatype = recipe.build().expect("small types can be made");
        if recipe.model().overlaps(count) {
            return Ok(());
        }
        let Ok(needed) = external32::size(count, &datatype) else { return Ok(()) };
        let mut target = Scratch::new(count, &datatype).expect("memory");
        let outcome = external32::unpack(&datatype, &bytes, &mut target.recv());
        prop_assert_eq!(outcome.is_ok(), needed <= bytes.len() as u64 || needed == 0);
        if outcome.is_ok() {
            prop_assert_eq!(outcome, Ok(needed));
        }
    }

    /// Whatever the words are: they are refused, or they describe a layout that can be listed from any byte.
    #[test]
    fn hostile_words_are_refused_or_harmless(
        words in prop::collection::vec(
            prop_oneof![6 => 0u64..7, 2 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(1 << 62), 2 => 8u64..100], 0..40
        ),
        offset in any::<u64>(),
    ) {
        if let Ok(layout) = Layout::parse(&sealed(&words)) {
            prop_assert!(layout.size() > 0);
            let mut some = [Segment::default(); 4];
            for (count, offset) in [(1, 0), (3, offset % layout.size()), (u64::MAX, offset)] {
                let used = layout.segments_at(0, count, offset, 1 << 20, &mut some);
                prop_assert!(some[..used].iter().all(|segment| segment.len_bytes > 0));
            }
            prop_assert_eq!(Layout::parse(&layout.encode()).map(|again| again.size()), Ok(layout.size()));
        }
    }
}

#[test]
fn trees_without_end_are_refused() {
    let mut words = vec![0, 0];
    words.extend((0..5000).flat_map(|_| [2, 1, 0]));
    assert!(Layout::parse(&sealed(&words)).is_err());
}
