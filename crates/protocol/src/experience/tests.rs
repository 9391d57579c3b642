//! The choice of ways against messages whose times are known.

use std::cell::Cell;

use super::*;
use CopyWay::{Read, Shared, Staged};

const LEN: u64 = 64 << 10;

fn all() -> CopyWays {
    CopyWays::only(Read).and(Shared, true).and(Staged, true)
}

/// How often each way is taken by `count` messages that take what `cost` says, in ns.
fn run(experience: &mut Experience, count: usize, is_near: bool, cost: impl Fn(CopyWay, usize) -> u64) -> [usize; 3] {
    run_of(Kind::of(LEN, None, all()), LEN, experience, count, is_near, cost)
}

fn run_of(
    kind: Kind,
    len_bytes: u64,
    experience: &mut Experience,
    count: usize,
    is_near: bool,
    cost: impl Fn(CopyWay, usize) -> u64,
) -> [usize; 3] {
    let mut taken = [0; 3];
    for message in 0..count {
        let way = experience.choose(kind, len_bytes, is_near);
        taken[way as usize] += 1;
        experience.end(kind, len_bytes, way, Some(0), Some(cost(way, message)));
    }
    taken
}

/// The same of messages of another length, that take so many ns per KiB.
fn run_at(len_bytes: u64, experience: &mut Experience, count: usize, per_kib: impl Fn(CopyWay) -> u64) -> [usize; 3] {
    let kind = Kind::of(len_bytes, None, all());
    run_of(kind, len_bytes, experience, count, true, |way, _| per_kib(way) * len_bytes / 1024)
}

#[test]
fn of_many_under_way_together_all_go_the_same_way() {
    let mut experience = Experience::default();
    let kind = Kind::of(LEN, None, all());
    let mut taken = [0; 3];
    for _ in 0..1000 {
        let ways: Vec<CopyWay> = (0..64).map(|_| experience.choose(kind, LEN, true)).collect();
        let warm = taken.iter().sum::<usize>() > 64;
        assert!(!warm || ways.iter().all(|way| *way == ways[0]), "{ways:?}");
        for (message, way) in ways.into_iter().enumerate() {
            taken[way as usize] += 1;
            // What both copy is all there at the end.
            let ns = match (way, message) {
                (Shared, 0) => 64 * 4000,
                (Shared, _) => 100,
                _ => 5000,
            };
            experience.end(kind, LEN, way, (message == 0).then_some(0), Some(ns));
        }
    }
    assert!(taken[1] > 900 * 64, "{taken:?}");
    assert_eq!(experience.under_way, 0);
}

/// As in a step of a program that sends all its faces and then waits for all: whatever goes another way than the others
/// costs more than it saves.
#[test]
fn of_several_lengths_under_way_together_all_go_the_way_that_is_fastest_for_all() {
    const LENS: [u64; 4] = [4 * LEN, 2 * LEN, 4 * LEN, LEN / 2];
    for fastest in [Read, Shared, Staged] {
        let mut experience = Experience::default();
        let mut taken = [0; 3];
        for step in 0..2000 {
            let kinds = LENS.map(|len| Kind::of(len, None, all()));
            let ways: Vec<CopyWay> =
                kinds.iter().zip(LENS).map(|(kind, len)| experience.choose(*kind, len, true)).collect();
            let is_mixed = ways.iter().any(|way| *way != ways[0]);
            let per_kib = |way| if is_mixed { 160 } else { if way == fastest { 80 } else { 120 } };
            for (message, (kind, len)) in kinds.into_iter().zip(LENS).enumerate() {
                taken[ways[message] as usize] += usize::from(step >= 200);
                let ns = match (ways[0], message) {
                    // What both copy is all there at the end.
                    (Shared, 0) => LENS.iter().sum::<u64>() / 1024 * per_kib(Shared),
                    (Shared, _) => 100,
                    (way, _) => len / 1024 * per_kib(way),
                };
                experience.end(kind, len, ways[message], (message == 0).then_some(0), Some(ns));
            }
        }
        let count: usize = taken.iter().sum();
        assert!(taken[fastest as usize] > count / 10 * 9, "{fastest:?}: {taken:?}");
    }
}

/// There and back, the sender's help costs nothing; where both send, each holds up the other.
#[test]
fn what_is_known_of_messages_one_way_is_not_believed_of_those_that_cross() {
    let mut experience = Experience::default();
    let alone = |way, _| if way == Shared { 4000 } else { 6000 };
    run(&mut experience, 3000, true, alone);
    let crossing = Kind::of(LEN, None, all()).crossing(Side::Leads);
    for count in [60, 200] {
        let taken =
            run_of(crossing, LEN, &mut experience, count, true, |way, _| if way == Read { 6000 } else { 11_000 });
        assert!(taken[0] > count / 2, "{taken:?}");
        let taken = run(&mut experience, 60, true, alone);
        assert!(taken[1] > 50, "{taken:?}");
    }
}

/// The sender copies what it helps with while nobody waits; where somebody does, the channel is faster.
#[test]
fn what_is_known_of_messages_beside_work_is_not_believed_of_those_that_are_waited_for() {
    let mut experience = Experience::default();
    let waited_for = |way, _| if way == Staged { 4000 } else { 12_000 };
    let beside_work = Kind::of(LEN, None, all()).beside_work();
    run(&mut experience, 3000, true, waited_for);
    for _ in 0..10 {
        let taken =
            run_of(beside_work, LEN, &mut experience, 200, true, |way, _| if way == Shared { 500 } else { 4000 });
        assert!(taken[Shared as usize] > 150, "{taken:?}");
        let taken = run(&mut experience, 200, true, waited_for);
        assert!(taken[Staged as usize] > 180, "{taken:?}");
    }
}

#[test]
fn what_never_comes_alone_goes_the_usual_way() {
    let mut experience = Experience::default();
    let (first, second) = (Kind::of(LEN, None, all()), Kind::of(8 * LEN, None, all()));
    let mut taken = [0; 3];
    for _ in 0..10_000 {
        let ways = [experience.choose(first, LEN, true), experience.choose(second, 8 * LEN, true)];
        taken[ways[1] as usize] += 1;
        experience.end(first, LEN, ways[0], Some(0), Some(5000));
        experience.end(second, 8 * LEN, ways[1], None, Some(5000));
    }
    assert!(taken[1] > 6000, "{taken:?}");
}

/// So it is while the channel is the fastest, but for the runs that try another way, and never while it is only tried.
#[test]
fn who_keeps_to_the_channel_is_not_trying_it() {
    let kind = Kind::of(LEN, None, all());
    for (staged_ns, keeps) in [(2000, true), (9000, false)] {
        let mut experience = Experience::default();
        run(&mut experience, 2000, true, |way, _| if way == Staged { staged_ns } else { 5000 });
        let mut staged = [0; 2];
        for _ in 0..20_000 {
            let way = experience.choose(kind, LEN, true);
            let kept = experience.keeps_to_channel(kind);
            assert_eq!(kept, keeps && way == Staged, "{way:?} where the channel takes {staged_ns} ns");
            staged[usize::from(way == Staged)] += 1;
            experience.end(kind, LEN, way, Some(0), Some(if way == Staged { staged_ns } else { 5000 }));
        }
        assert!(staged.iter().all(|count| *count > 0), "both happened: {staged:?}");
        assert!((staged[1] > 10_000) == keeps, "{staged:?}");
    }
}

#[test]
fn a_first_message_that_was_delayed_is_soon_forgiven() {
    let mut experience = Experience::default();
    let delayed = |way, message| match way {
        Shared if message < 64 => 50_000_000,
        Shared => 4000,
        _ => 6000,
    };
    run(&mut experience, 64, false, delayed);
    let taken = run(&mut experience, 3000, false, |way, message| delayed(way, message + 64));
    assert!(taken[1] > 2000, "{taken:?}");
}

#[test]
fn where_there_is_always_one_under_way_others_are_tried_all_the_same() {
    let mut experience = Experience::default();
    let kind = Kind::of(LEN, None, all());
    let mut last = experience.choose(kind, LEN, true);
    let mut taken = [0; 3];
    for _ in 0..100_000 {
        let way = experience.choose(kind, LEN, true);
        taken[way as usize] += 1;
        experience.end(kind, LEN, last, None, Some(if last == Shared { 4000 } else { 6000 }));
        last = way;
    }
    assert!(taken[1] > 85_000 && taken[0] > 500 && taken[2] > 500, "{taken:?}");
}

#[test]
fn the_fastest_way_is_taken_and_the_others_are_tried_now_and_then() {
    for fastest in [Read, Shared, Staged] {
        let mut experience = Experience::default();
        let taken = run(&mut experience, 2000, true, |way, _| if way == fastest { 5000 } else { 11_000 });
        assert!(taken[fastest as usize] > 1900, "{fastest:?}: {taken:?}");
        assert!(taken.iter().all(|count| *count >= 8), "all are tried: {taken:?}");
    }
}

#[test]
fn ways_about_as_fast_are_tried_more_often() {
    let tried =
        |slower| run(&mut Experience::default(), 5000, false, |way, _| if way == Read { 5000 } else { slower })[1];
    assert!(tried(5500) > 2 * tried(20_000), "{} {}", tried(5500), tried(20_000));
}

#[test]
fn what_changes_is_found_out() {
    let mut experience = Experience::default();
    run(&mut experience, 1000, true, |way, _| if way == Staged { 4000 } else { 6000 });
    let apart = |way, _| if way == Staged { 8000 } else { 6000 };
    let taken = run(&mut experience, 200, true, apart);
    assert!(taken[2] < 40, "what has become slower is left soon: {taken:?}");
    run(&mut experience, 5000, false, apart);
    let taken = run(&mut experience, 800, false, |way, _| if way == Staged { 4000 } else { 6000 });
    assert!(taken[2] > 250, "what has become faster is found at the next trial: {taken:?}");
    run(&mut experience, 5000, false, apart);
    let taken = run(&mut experience, 100, true, |way, _| if way == Staged { 4000 } else { 6000 });
    assert!(taken[2] > 90, "at once if the sender says that it might: {taken:?}");
}

/// As where a program begins to write what it sends right before: all ways take longer, and some much longer.
#[test]
fn ways_that_have_become_much_slower_are_left_after_one_run() {
    let mut experience = Experience::default();
    run(&mut experience, 3000, true, |way, _| if way == Staged { 3000 } else { 3500 + way as u64 * 500 });
    let taken = run(&mut experience, 100, true, |way, _| if way == Staged { 5200 } else { 25_000 });
    assert!(taken[0] + taken[1] <= 4 * RUN as usize, "each but once or twice: {taken:?}");
}

#[test]
fn a_message_that_something_delayed_changes_nothing() {
    let mut experience = Experience::default();
    let taken = run(&mut experience, 3000, false, |way, message| match way {
        Read if message % 20 == 0 => 10_000_000,
        Read => 5000,
        _ => 7000,
    });
    assert!(taken[0] > 2700, "{taken:?}");
}

#[test]
fn the_channel_is_warmed_before_it_is_judged() {
    let mut experience = Experience::default();
    let warm = (CHANNEL_WARM_BYTES / LEN) as usize;
    assert_eq!(run(&mut experience, warm, true, |_, _| 1_000_000), [0, 0, warm]);
    let taken = run(&mut experience, 1000, true, |way, _| if way == Staged { 4000 } else { 6000 });
    assert!(taken[2] > 900, "{taken:?}");
}

#[test]
fn a_channel_that_has_become_cold_is_warmed_before_it_is_judged_again() {
    let mut experience = Experience::default();
    run(&mut experience, 1000, true, |way, _| if way == Staged { 8000 } else { 6000 });
    // It is faster now, but not at once.
    let staged = Cell::new((0, 0));
    let taken = run(&mut experience, 4000, true, |way, message| {
        let (last, count) = staged.get();
        let count = if message - last > 100 { 0 } else { count };
        staged.set(if way == Staged { (message, count + 1) } else { (last, count) });
        match way {
            Staged if count < 16 => 20_000,
            Staged => 4000,
            _ => 6000,
        }
    });
    assert!(taken[2] > 2000, "{taken:?}");
}

#[test]
fn what_a_change_of_ways_costs_is_not_held_against_the_new_one() {
    let mut experience = Experience::default();
    let last = Cell::new(Staged);
    let taken = run(&mut experience, 1000, false, |way, _| match (way, last.replace(way)) {
        (Shared, Shared) => 4000,
        (Shared, _) => 20_000,
        _ => 6000,
    });
    assert!(taken[1] > 800, "{taken:?}");
}

#[test]
fn a_channel_that_others_keep_cold_is_judged_all_the_same() {
    let mut experience = Experience::default();
    let (short, long) = (Kind::of(LEN, None, all()), Kind::of(8 << 20, None, CopyWays::only(Shared).and(Read, true)));
    let mut taken = [0; 3];
    for _ in 0..1000 {
        let way = experience.choose(short, LEN, true);
        taken[way as usize] += 1;
        experience.end(short, LEN, way, Some(0), Some(if way == Staged { 60_000 } else { 6000 }));
        let way = experience.choose(long, 8 << 20, true);
        experience.end(long, 8 << 20, way, Some(0), Some(800_000));
    }
    assert!(taken[2] < 100, "{taken:?}");
}

#[test]
fn trials_of_a_channel_that_is_slow_cost_little() {
    let mut experience = Experience::default();
    let cost = |way, _| if way == Staged { 13_000 } else { 5500 };
    run(&mut experience, 2000, true, cost);
    let total = Cell::new(0);
    run(&mut experience, 20_000, true, |way, message| {
        total.set(total.get() + cost(way, message));
        cost(way, message)
    });
    assert!(total.get() < 20_000 * 5500 / 100 * 103, "{}", total.get());
}

/// What each of two processes chooses among for messages that cross.
fn both_kinds() -> [Kind; 2] {
    [Side::Leads, Side::Follows].map(|side| Kind::of(LEN, None, all()).crossing(side))
}

/// Both sides send windows to each other; `cost` of a message by its way and by whether the other side stages, too.
/// How often each way is taken by the one side, in the last quarter of the windows.
fn both_ways(sides: &mut [Experience; 2], windows: usize, cost: impl Fn(CopyWay, bool) -> u64) -> [usize; 3] {
    let kinds = both_kinds();
    let mut taken = [0; 3];
    for window in 0..windows {
        let ways = [0, 1].map(|side| (0..64).map(|_| sides[side].choose(kinds[side], LEN, true)).collect::<Vec<_>>());
        for message in 0..64 {
            for side in 0..2 {
                let (own, others) = (ways[side][message], ways[1 - side][message]);
                sides[side].end(kinds[side], LEN, own, (message == 0).then_some(0), Some(cost(own, others == Staged)));
                sides[1 - side].other_takes(LEN, own == Staged);
            }
            taken[ways[0][message] as usize] += usize::from(window >= windows / 4 * 3);
        }
    }
    taken
}

#[test]
fn what_pays_only_if_both_sides_do_it_is_found() {
    let mut sides = [Experience::default(), Experience::default()];
    // They are out of step: one has used the other ways by itself before.
    run_of(both_kinds()[0], LEN, &mut sides[0], 3000, true, |way, _| if way == Read { 6000 } else { 9000 });
    let taken = both_ways(&mut sides, 2000, |way, too| match way {
        Staged if too => 4000,
        Staged => 9000,
        Read => 6000,
        Shared => 20_000,
    });
    assert!(taken[2] > 28_000, "{taken:?}");
}

#[test]
fn what_pays_only_if_no_side_uses_the_channel_is_found() {
    let mut sides = [Experience::default(), Experience::default()];
    run_of(both_kinds()[0], LEN, &mut sides[0], 3000, true, |way, _| if way == Staged { 6000 } else { 9000 });
    let taken = both_ways(&mut sides, 2000, |way, too| match way {
        Staged => 6000,
        Read if too => 9000,
        Read => 4000,
        Shared => unreachable!("it helps nobody where both sides send"),
    });
    assert!(taken[0] > 28_000, "{taken:?}");
}

#[test]
fn the_sender_of_a_message_that_crosses_others_helps_only_where_there_is_no_channel() {
    let kinds = |ways| [Side::Leads, Side::Follows].map(|side| Kind::of(LEN, None, ways).crossing(side));
    let per_kib = |way| if way == Shared { 30 } else { 60 };
    for (ways, helps) in [(all(), false), (CopyWays::only(Read).and(Shared, true), true)] {
        for kind in kinds(ways) {
            let taken = run_of(kind, LEN, &mut Experience::default(), 1000, true, |way, _| per_kib(way) * LEN / 1024);
            assert_eq!(taken[Shared as usize] > 0, helps, "{taken:?}");
        }
    }
}

/// Each of both sides sends the other a message and waits for its own, so often. What a message takes, and what the same way
/// takes of the other side's time, is said by `costs`, of both ways. How many go each way, and how often one alone uses the
/// channel.
fn crossing(
    sides: &mut [Experience; 2],
    count: usize,
    costs: impl Fn([CopyWay; 2], usize) -> [(u64, u64); 2],
) -> ([usize; 3], usize) {
    let kinds = both_kinds();
    let (mut taken, mut mixed) = ([0; 3], 0);
    for message in 0..count {
        let ways = [0, 1].map(|side| sides[side].choose(kinds[side], LEN, true));
        let [here, there] = costs(ways, message);
        let turn = (here.0 + there.1).max(there.0 + here.1);
        for (side, took) in [here.0, there.0].into_iter().enumerate() {
            sides[side].end(kinds[side], LEN, ways[side], Some(turn - took), Some(took));
            sides[1 - side].other_takes(LEN, ways[side] == Staged);
        }
        ways.iter().for_each(|way| taken[*way as usize] += 1);
        mixed += usize::from(stages(ways[0]) != stages(ways[1]));
    }
    (taken, mixed)
}

/// What one side takes through the channel the other side copies, too, which is what that one's next message waits for.
#[test]
fn crossing_messages_go_the_way_that_is_fastest_for_both_sides() {
    // What a message takes here, and of the other's time.
    let costs = |way, staged| match way {
        Read => (6600, 0),
        Shared => (9000, 4000),
        Staged => (staged, staged),
    };
    for (staged, fastest) in [(2000, Staged), (4500, Read)] {
        let mut sides = [Experience::default(), Experience::default()];
        // One side has found before that the channel is the fastest, for what it waits itself.
        run_of(both_kinds()[0], LEN, &mut sides[0], 3000, true, |way, _| costs(way, staged).0);
        crossing(&mut sides, 2000, |ways, _| ways.map(|way| costs(way, staged)));
        let (taken, _) = crossing(&mut sides, 18_000, |ways, _| ways.map(|way| costs(way, staged)));
        assert!(taken[fastest as usize] > 36_000 / 5 * 4, "{fastest:?}: {taken:?}");
    }
}

/// Both by the channel is the fastest, but one side alone finds nothing in it, nor in leaving it.
#[test]
fn sides_whose_messages_cross_are_soon_back_at_the_fastest_way_after_a_delay() {
    for (begin, count) in (100..500).step_by(7).flat_map(|begin| [4, 8, 16].map(|count| (begin, count))) {
        let mut sides = [Experience::default(), Experience::default()];
        let (taken, mixed) = crossing(&mut sides, 1000, |ways, message| {
            let took = match ways.map(stages) {
                [true, true] => 4800,
                [false, false] => 5600,
                _ => 6600,
            };
            let delayed = (begin..begin + count).contains(&message);
            [(took * if delayed { 3 } else { 1 }, 0), (took, 0)]
        });
        let delay = format!("{count} delayed from {begin} on");
        assert!(taken[Staged as usize] > 1600, "{delay}: {taken:?}");
        assert!(mixed < 40, "{delay}: one side alone uses the channel {mixed} times");
    }
}

#[test]
fn who_follows_does_what_the_other_side_does_and_chooses_itself_where_that_takes_nothing() {
    let mut experience = Experience::default();
    let kind = both_kinds()[1];
    let cost = |way| if way == Read { 5000 } else { 8000 };
    let step = |experience: &mut Experience, other: Option<bool>| {
        let way = experience.choose(kind, LEN, true);
        experience.end(kind, LEN, way, Some(0), Some(cost(way)));
        if let Some(stages) = other {
            experience.other_takes(LEN, stages);
        }
        way
    };
    (0..100).for_each(|_| _ = step(&mut experience, Some(false)));
    for stages in [true, false, true] {
        step(&mut experience, Some(stages));
        let ways: Vec<CopyWay> = (0..200).map(|_| step(&mut experience, Some(stages))).collect();
        assert!(ways.iter().all(|way| (*way == Staged) == stages), "{stages}: {ways:?}");
        assert!(experience.keeps_to_channel(kind) == stages, "{stages}");
    }
    let reads = (0..200).filter(|_| step(&mut experience, None) == Read).count();
    assert!(reads > 150, "the other side does not send any more: {reads}");
}

#[test]
fn what_a_program_computes_between_crossing_messages_hides_no_way() {
    let kind = both_kinds()[0];
    let mut experience = Experience::default();
    let mut taken = [0; 3];
    for message in 0..3000 {
        let way = experience.choose(kind, LEN, true);
        taken[way as usize] += 1;
        let computes = 1_000_000 + message % 7 * 500_000;
        experience.end(kind, LEN, way, Some(computes), Some(if way == Staged { 4000 } else { 6000 }));
    }
    assert!(taken[2] > 2700, "{taken:?}");
}

#[test]
fn a_channel_that_took_long_the_first_time_is_tried_once_more() {
    let mut experience = Experience::default();
    let first = Cell::new(0);
    let taken = run(&mut experience, 1000, true, |way, _| {
        first.set(first.get() + u64::from(way == Staged));
        let warms = CHANNEL_WARM_BYTES / LEN;
        match way {
            Staged if first.get() <= warms + u64::from(RUN) => 30_000,
            Staged => 4000,
            _ => 6000,
        }
    });
    assert!(taken[2] > 800, "{taken:?}");
}

#[test]
fn what_took_twice_as_long_at_like_lengths_need_not_show_at_once_what_it_takes() {
    let per_kib = |way| match way {
        Staged => 60,
        Shared => 90,
        Read => 130,
    };
    let mut experience = Experience::default();
    let tried = |taken: [usize; 3]| [Read, Shared].map(|way| taken[way as usize] > 0);
    assert_eq!(tried(run_at(4 * LEN, &mut experience, 500, per_kib)), [true, true]);
    for len in [LEN, 2 * LEN, 8 * LEN, 16 * LEN] {
        assert_eq!(tried(run_at(len, &mut experience, 60, per_kib)), [false, true], "{len}");
    }
    let mut fresh = Experience::default();
    run_at(LEN, &mut fresh, 500, per_kib);
    assert_eq!(tried(run_at(8 * LEN, &mut fresh, 60, per_kib)), [true, true], "so long a message is another matter");
    let reads_best = |way| if way == Read { 30 } else { 60 };
    let taken = run_at(2 * LEN, &mut experience, 3000, reads_best);
    assert!(taken[Read as usize] > 2000, "it is found out where it is the fastest: {taken:?}");
}

#[test]
fn what_took_twice_as_long_once_is_expected_of_no_other_length() {
    let per_kib = |way| match way {
        Staged => 60,
        Shared => 130,
        Read => 140,
    };
    let mut experience = Experience::default();
    // Through the cold channel, a run of each way, and the beginning of the second of one.
    let warming = (CHANNEL_WARM_BYTES / LEN) as usize;
    assert_eq!(run_at(LEN, &mut experience, warming + 3 * RUN as usize + 1, per_kib), [4, 5, 4 + warming]);
    let other = run_at(2 * LEN, &mut experience, 60, per_kib);
    assert!(other[Read as usize] > 0 && other[Shared as usize] > 0, "{other:?}");
}

#[test]
fn following_the_other_side_costs_little_where_it_does_not_pay() {
    let mut sides = [Experience::default(), Experience::default()];
    let taken = both_ways(&mut sides, 2000, |way, _| if way == Read { 6000 } else { 12_000 });
    assert!(taken[0] > 30_000, "{taken:?}");
}

#[test]
fn what_is_the_only_way_is_taken_and_kinds_do_not_mix() {
    let mut experience = Experience::default();
    for way in [Read, Shared, Staged] {
        let kind = Kind::of(LEN, None, CopyWays::only(way));
        assert_eq!(experience.choose(kind, LEN, true), way);
        assert_eq!(kind.only_way(), Some(way));
    }
    assert_eq!(Kind::of(LEN, None, all()).only_way(), None);
    let kinds: Vec<Kind> = [None, Some(8), Some(16), Some(100), Some(600), Some(9000)]
        .into_iter()
        .flat_map(|block| [1, 20_000, 40_000, 1 << 23, u64::MAX].map(|len| Kind::of(len, block, all())))
        .collect();
    for (at, kind) in kinds.iter().enumerate() {
        assert_eq!(kinds.iter().position(|other| other == kind), Some(at - at % 5 + [0, 1, 2, 3, 3][at % 5]));
    }
}
