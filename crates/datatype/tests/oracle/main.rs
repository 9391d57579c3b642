//! Random nested datatypes against a naive oracle that lists every entry of the type map.

mod hostile;
mod model;
mod recipe;

use std::sync::Arc;

use datatype::{Datatype, RecvBuf, Scratch, Segment, SendBuf, external32};
use model::Model;
use proptest::prelude::*;
use recipe::{Recipe, recipe, short_recipe};

/// A byte that no gap may lose.
const UNTOUCHED: u8 = 0xa5;

/// Memory that holds `count` elements of a type wherever its displacements point.
struct Arena {
    bytes: Vec<u8>,
    origin: usize,
}

impl Arena {
    fn new(model: &Model, count: u64) -> Arena {
        let places = model.bytes(count);
        let low = places.iter().copied().min().unwrap_or(0).min(0);
        let high = places.iter().copied().max().unwrap_or(0).max(0) + 1;
        Arena { bytes: vec![UNTOUCHED; (high - low) as usize], origin: -low as usize }
    }

    fn numbered(mut self) -> Arena {
        self.bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index * 7 + index / 251) as u8);
        self
    }

    fn at(&mut self, place: i64) -> &mut u8 {
        &mut self.bytes[(self.origin as i64 + place) as usize]
    }

    fn send(&mut self, count: u64, datatype: &Arc<Datatype>) -> SendBuf {
        let start = self.bytes.as_mut_ptr().wrapping_add(self.origin);
        // SAFETY: the arena spans every byte of the type map and outlives the buffer in each test.
        unsafe { SendBuf::new(start, count, datatype) }
    }

    fn recv(&mut self, count: u64, datatype: &Arc<Datatype>) -> RecvBuf {
        let start = self.bytes.as_mut_ptr().wrapping_add(self.origin);
        // SAFETY: as for `send`.
        unsafe { RecvBuf::new(start, count, datatype) }
    }

    fn packed(&mut self, model: &Model, count: u64) -> Vec<u8> {
        model.bytes(count).into_iter().map(|place| *self.at(place)).collect()
    }
}

fn built(recipe: &Recipe) -> (Arc<Datatype>, Model) {
    (recipe.build().expect("small types can be made"), recipe.model())
}

fn pack_all(buffer: &SendBuf) -> Vec<u8> {
    let mut packed = vec![0; buffer.len_bytes() as usize];
    assert_eq!(buffer.pack_at(0, &mut packed), packed.len());
    packed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 2000 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sizes_and_bounds(recipe in recipe()) {
        let (datatype, model) = built(&recipe);
        prop_assert_eq!(datatype.size(), model.size());
        prop_assert_eq!(datatype.lb(), model.lb());
        prop_assert_eq!(datatype.ub(), model.ub());
        prop_assert_eq!(datatype.extent(), model.ub() - model.lb());
        prop_assert_eq!(datatype.true_lb(), model.true_lb());
        prop_assert_eq!(datatype.true_extent(), model.true_ub() - model.true_lb());
        prop_assert_eq!(datatype.uniform_basic(), model.uniform());
        let places = model.bytes(3);
        if datatype.is_contiguous() {
            prop_assert!(places.iter().enumerate().all(|(index, place)| index as i64 == *place));
        } else {
            prop_assert!(places.iter().enumerate().any(|(index, place)| index as i64 != *place));
        }
    }

    #[test]
    fn elements_and_counts(recipe in recipe(), bytes in 0u64..400) {
        let (datatype, model) = built(&recipe);
        prop_assert_eq!(datatype.elements_in(bytes), model.elements_in(bytes));
        let whole = if model.size() == 0 { bytes == 0 } else { bytes % model.size() == 0 };
        prop_assert_eq!(datatype.count_in(bytes), whole.then(|| (bytes / model.size().max(1)) as i64));
    }

    #[test]
    fn packing_from_any_byte(recipe in recipe(), count in 0u64..4, cuts in prop::collection::vec(0.0..1.0, 2)) {
        let (datatype, model) = built(&recipe);
        let mut arena = Arena::new(&model, count).numbered();
        let expected = arena.packed(&model, count);
        let buffer = arena.send(count, &datatype);
        prop_assert_eq!(pack_all(&buffer), &*expected);
        let [from, to] = [0, 1].map(|cut| (cuts[cut] * (expected.len() + 1) as f64) as usize);
        let (from, to) = (from.min(to), from.max(to));
        let mut part = vec![0; to - from];
        prop_assert_eq!(buffer.pack_at(from as u64, &mut part), to - from);
        prop_assert_eq!(&part, &expected[from..to]);
        let slice = buffer.slice(from as u64, (to - from) as u64);
        prop_assert_eq!(pack_all(&slice), &expected[from..to]);
        let mut beyond = vec![0; expected.len() + 5];
        prop_assert_eq!(buffer.pack_at(from as u64, &mut beyond), expected.len() - from);
        prop_assert_eq!(buffer.pack_at(expected.len() as u64 + 1, &mut beyond), 0);
    }

    #[test]
    fn unpacking_in_pieces(recipe in recipe(), count in 0u64..4, piece in prop_oneof![1usize..40, 40usize..700], downwards in any::<bool>()) {
        let unpack = if downwards { RecvBuf::unpack_downwards_at } else { RecvBuf::unpack_at };
        let (datatype, model) = built(&recipe);
        let places = model.bytes(count);
        let data: Vec<u8> = (0..places.len()).map(|index| (index * 3 + 1) as u8).collect();
        let mut expected = Arena::new(&model, count);
        places.iter().zip(&data).for_each(|(place, byte)| *expected.at(*place) = *byte);
        let mut arena = Arena::new(&model, count);
        let mut buffer = arena.recv(count, &datatype);
        for (index, chunk) in data.chunks(piece).enumerate() {
            prop_assert_eq!(unpack(&mut buffer, (index * piece) as u64, chunk), chunk.len());
        }
        prop_assert_eq!(unpack(&mut buffer, data.len() as u64, &[1, 2, 3]), 0);
        drop(buffer);
        if model.overlaps(count) {
            // Which of two entries for one byte counts is not defined; what lies beside them stays.
            places.iter().for_each(|place| (*arena.at(*place), *expected.at(*place)) = (0, 0));
        }
        prop_assert_eq!(arena.bytes, expected.bytes);
    }

    #[test]
    fn segments_cover_the_data_in_order(recipe in recipe(), count in 0u64..4, room in 1usize..9) {
        let (datatype, model) = built(&recipe);
        let mut arena = Arena::new(&model, count);
        let start = arena.bytes.as_ptr().addr() + arena.origin;
        let buffer = arena.send(count, &datatype);
        let expected: Vec<usize> =
            model.bytes(count).into_iter().map(|place| start.wrapping_add_signed(place as isize)).collect();
        let mut seen = Vec::new();
        loop {
            let mut segments = vec![Segment::default(); room];
            let used = buffer.segments_at(seen.len() as u64, &mut segments);
            for segment in &segments[..used] {
                prop_assert!(segment.len_bytes > 0);
                seen.extend(segment.address..segment.address + segment.len_bytes as usize);
            }
            if used == 0 {
                break;
            }
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn scratch_holds_any_layout(recipe in recipe(), count in 0u64..4) {
        let (datatype, model) = built(&recipe);
        let mut arena = Arena::new(&model, count).numbered();
        let source = arena.send(count, &datatype);
        let mut scratch = Scratch::new(count, &datatype).expect("small types need little memory");
        prop_assert_eq!(scratch.recv().copy_from(&source), source.len_bytes());
        if !model.overlaps(count) {
            prop_assert_eq!(pack_all(&scratch.send()), pack_all(&source));
        }
    }

    #[test]
    fn external32_says_its_size_and_comes_back(recipe in recipe(), count in 0u64..4) {
        let (datatype, model) = built(&recipe);
        let size = external32::size(count, &datatype).expect("small types have small sizes");
        prop_assert_eq!(size, count * model.external_size());
        if model.overlaps(count) {
            return Ok(());
        }
        let external: Vec<u8> = (0..size).map(|index| (index % 100) as u8).collect();
        let mut arena = Arena::new(&model, count);
        external32::unpack(&datatype, &external, &mut arena.recv(count, &datatype)).expect("the buffer is long enough");
        let mut again = vec![0; external.len()];
        external32::pack(&datatype, &arena.send(count, &datatype), &mut again).expect("what came in fits");
        prop_assert_eq!(again, external);
    }

    #[test]
    fn a_type_can_be_rebuilt_from_its_contents(recipe in recipe()) {
        let (datatype, model) = built(&recipe);
        let again = recipe::from_contents(&datatype);
        prop_assert_eq!(again.size(), datatype.size());
        prop_assert_eq!((again.lb(), again.extent()), (datatype.lb(), datatype.extent()));
        let mut arena = Arena::new(&model, 2).numbered();
        prop_assert_eq!(pack_all(&arena.send(2, &again)), pack_all(&arena.send(2, &datatype)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 300 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Long enough for every loop to take its longest stride, and cut anywhere.
    #[test]
    fn many_elements_in_random_splits(
        recipe in short_recipe(),
        count in 100u64..600,
        cuts in prop::collection::vec(0.0..1.0, 1..6),
        (streaming, downwards) in any::<(bool, bool)>(),
    ) {
        let pack = if streaming { SendBuf::pack_streaming_at } else { SendBuf::pack_at };
        let unpack = if downwards { RecvBuf::unpack_downwards_at } else { RecvBuf::unpack_at };
        let count = if cfg!(miri) { count / 8 } else { count };
        let (datatype, model) = built(&recipe);
        let mut arena = Arena::new(&model, count).numbered();
        let expected = arena.packed(&model, count);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| (cut * expected.len() as f64) as usize).collect();
        ends.push(expected.len());
        ends.sort_unstable();
        let buffer = arena.send(count, &datatype);
        let mut packed = vec![0; expected.len()];
        let mut begin = 0;
        for end in &ends {
            prop_assert_eq!(pack(&buffer, begin as u64, &mut packed[begin..*end]), end - begin);
            begin = *end;
        }
        prop_assert_eq!(&packed, &expected);
        drop(buffer);
        let mut target = Arena::new(&model, count);
        let mut buffer = target.recv(count, &datatype);
        let mut begin = 0;
        for end in &ends {
            prop_assert_eq!(unpack(&mut buffer, begin as u64, &packed[begin..*end]), end - begin);
            begin = *end;
        }
        drop(buffer);
        let overlaps = model.overlaps(count);
        for place in model.bytes(count) {
            prop_assert!(overlaps || *target.at(place) == *arena.at(place));
            *target.at(place) = if overlaps { *target.at(place) } else { UNTOUCHED };
        }
        prop_assert!(overlaps || target.bytes.iter().all(|byte| *byte == UNTOUCHED), "a gap was written");
    }
}
