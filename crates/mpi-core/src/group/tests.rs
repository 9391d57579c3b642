//! Groups against an oracle of plain vectors.

use proptest::prelude::*;

use super::*;

fn peers(group: &Group) -> Vec<PeerId> {
    group.peers().collect()
}

/// Distinct processes below 40: lists, ranges up and down, strides.
fn any_peers() -> impl Strategy<Value = Vec<PeerId>> {
    let list = Just((0..40).collect::<Vec<PeerId>>()).prop_shuffle();
    let shuffled = (list, 0..=40_usize).prop_map(|(mut list, len)| {
        list.truncate(len);
        list
    });
    let strided = (0..10_u32, 1..4_u32, 0..10_u32, any::<bool>()).prop_map(|(first, stride, count, down)| {
        let mut list: Vec<PeerId> = (0..count).map(|rank| first + rank * stride).collect();
        if down {
            list.reverse();
        }
        list
    });
    prop_oneof![shuffled, strided]
}

proptest! {
    #[test]
    fn ranks_and_peers_are_inverse(list in any_peers(), me in 0..40_u32) {
        let group = Group::new(list.clone(), me);
        prop_assert_eq!(peers(&group), list.clone());
        prop_assert_eq!(group.size() as usize, list.len());
        for peer in 0..45 {
            let expected = list.iter().position(|member| *member == peer).map(|rank| rank as u32);
            prop_assert_eq!(group.rank_of(peer), expected);
        }
        prop_assert_eq!(group.rank(), group.rank_of(me));
        let identity = list.iter().zip(0..).all(|(peer, rank)| *peer == rank);
        prop_assert_eq!(group.is_identity(), identity);
    }

    #[test]
    fn set_operations_keep_the_order_of_the_standard(one in any_peers(), two in any_peers()) {
        let (a, b) = (Group::new(one.clone(), 3), Group::new(two.clone(), 3));
        let mut union = one.clone();
        union.extend(two.iter().filter(|peer| !one.contains(peer)));
        let common: Vec<_> = one.iter().copied().filter(|peer| two.contains(peer)).collect();
        let rest: Vec<_> = one.iter().copied().filter(|peer| !two.contains(peer)).collect();
        for (group, expected) in [(a.union(&b), union), (a.intersection(&b), common), (a.difference(&b), rest)] {
            prop_assert_eq!(peers(&group), expected);
            prop_assert_eq!(group.rank(), group.rank_of(3));
        }
    }

    #[test]
    fn comparison_agrees_with_sorting(one in any_peers(), seed in any::<u64>(), change in any::<bool>()) {
        let mut two = one.clone();
        let turn = if two.is_empty() { 0 } else { (seed % two.len() as u64) as usize };
        two.rotate_left(turn);
        if change && !two.is_empty() {
            two[turn] = 99;
        }
        let sorted = |list: &[PeerId]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        let expected = match (one == two, sorted(&one) == sorted(&two)) {
            (true, _) => Comparison::Identical,
            (false, true) => Comparison::Similar,
            (false, false) => Comparison::Unequal,
        };
        prop_assert_eq!(Group::new(one, 0).compare(&Group::new(two, 0)), expected);
    }

    #[test]
    fn incl_and_excl_pick_by_rank(
        list in any_peers(),
        picks in proptest::collection::vec(-2..42_i32, 0..8),
    ) {
        let group = Group::new(list.clone(), 5);
        let is_rank = |rank: &i32| (0..list.len() as i32).contains(rank);
        let distinct = picks.iter().collect::<HashSet<_>>().len() == picks.len();
        let valid = distinct && picks.iter().all(is_rank);
        let included = group.incl(&picks);
        let excluded = group.excl(&picks);
        if valid {
            let expected: Vec<_> = picks.iter().map(|rank| list[*rank as usize]).collect();
            prop_assert_eq!(peers(&included.unwrap()), expected);
            let kept = (0..list.len() as i32).filter(|rank| !picks.contains(rank));
            let expected: Vec<_> = kept.map(|rank| list[rank as usize]).collect();
            prop_assert_eq!(peers(&excluded.unwrap()), expected);
        } else {
            prop_assert_eq!(included.unwrap_err().class, ErrorClass::Rank);
            prop_assert_eq!(excluded.unwrap_err().class, ErrorClass::Rank);
        }
    }

    #[test]
    fn ranges_are_short_for_their_ranks(
        list in any_peers(),
        ranges in proptest::collection::vec([-1..12_i32, -1..12_i32, -3..4_i32], 0..4),
    ) {
        let group = Group::new(list, 5);
        match spelled_out(&ranges) {
            Some(ranks) => {
                let same = |one: Result<Group>, two: Result<Group>| match (one, two) {
                    (Ok(one), Ok(two)) => peers(&one) == peers(&two),
                    (Err(one), Err(two)) => one.class == two.class,
                    _ => false,
                };
                prop_assert!(same(group.range_incl(&ranges), group.incl(&ranks)));
                prop_assert!(same(group.range_excl(&ranges), group.excl(&ranks)));
            }
            None => {
                prop_assert!(group.range_incl(&ranges).is_err());
                prop_assert!(group.range_excl(&ranges).is_err());
            }
        }
    }

    #[test]
    fn translation_goes_through_the_process(one in any_peers(), two in any_peers()) {
        let (a, b) = (Group::new(one.clone(), 0), Group::new(two.clone(), 0));
        for (rank, peer) in one.iter().enumerate() {
            let expected = two.iter().position(|member| member == peer).map_or(UNDEFINED, |rank| rank as i32);
            prop_assert_eq!(a.translate_rank(rank as i32, &b).unwrap(), expected);
        }
        prop_assert_eq!(a.translate_rank(PROC_NULL, &b).unwrap(), PROC_NULL);
        prop_assert!(a.translate_rank(one.len() as i32, &b).is_err());
        prop_assert!(a.translate_rank(-1, &b).is_err());
    }
}

/// The ranks of ranges, one by one; `None` if one of the ranges makes no sense.
fn spelled_out(ranges: &[[i32; 3]]) -> Option<Vec<i32>> {
    let mut ranks = Vec::new();
    for &[first, last, stride] in ranges {
        let mut rank = first;
        if stride == 0 || (stride > 0 && first > last) || (stride < 0 && first < last) {
            return None;
        }
        while (stride > 0 && rank <= last) || (stride < 0 && rank >= last) {
            ranks.push(rank);
            rank += stride;
        }
    }
    Some(ranks)
}

#[test]
fn extreme_ranges_are_refused_without_walking_them() {
    let group = Group::identity(4, 0);
    for range in [[0, i32::MAX, 1], [0, i32::MIN, -1], [3, i32::MIN, i32::MIN], [i32::MIN, i32::MAX, 1]] {
        assert_eq!(group.range_incl(&[range]).unwrap_err().class, ErrorClass::Rank, "{range:?}");
    }
    assert_eq!(group.range_incl(&[[0, 3, 0]]).unwrap_err().class, ErrorClass::Arg);
    assert_eq!(group.range_incl(&[[1, 1, i32::MAX]]).unwrap().size(), 1);
}

#[test]
fn a_large_regular_group_stays_a_formula() {
    let world = Group::identity(1 << 30, 7);
    let reversed = world.range_incl(&[[(1 << 30) - 1, 0, -1]]).unwrap();
    assert_eq!(reversed.rank(), Some((1 << 30) - 8));
    let few = reversed.range_incl(&[[0, (1 << 30) - 1, 1 << 10]]).unwrap();
    assert_eq!((few.size(), few.peer(1)), (1 << 20, (1 << 30) - 1 - (1 << 10)));
}

#[test]
fn the_empty_group_belongs_to_nobody_until_joined() {
    let (empty, world) = (Group::empty(), Group::identity(3, 1));
    assert_eq!((empty.size(), empty.rank()), (0, None));
    assert_eq!(empty.union(&world).rank(), Some(1));
    assert_eq!(empty.compare(&world.difference(&world)), Comparison::Identical);
    assert_eq!(world.incl(&[]).unwrap().compare(&empty), Comparison::Identical);
}
