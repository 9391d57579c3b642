//! Messages between ranks that are threads of this process.

use ferrovia::local::run;
use ferrovia::{Bool, Complex, Element, ErrorClass, Source, Tag};

/// Sends `values` to the next rank and compares what comes from the previous one.
fn round_trip<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
    for ranks in 1..=4 {
        run(ranks, |universe| {
            let world = universe.world();
            let (left, right) = ((world.rank() + ranks - 1) % ranks, (world.rank() + 1) % ranks);
            let mut room = vec![values[0]; values.len()];
            let status = world.sendrecv(values, right, 1, &mut room, left, 1).unwrap();
            assert_eq!((status.source, status.tag, status.count::<T>()), (left, 1, values.len()));
            assert_eq!(room, values);
        });
    }
}

#[test]
fn every_kind_of_element_travels() {
    round_trip(&[i8::MIN, 0, i8::MAX]);
    round_trip(&[u16::MAX, 1]);
    round_trip(&[i64::MIN, 5]);
    round_trip(&[usize::MAX]);
    round_trip(&[f32::MIN_POSITIVE, -0.0]);
    round_trip(&[Complex::new(1.0_f64, -2.0)]);
    round_trip(&[Bool::from(true), Bool::from(false)]);
    round_trip(&[[[1_i32, 2, 3], [4, 5, 6]]; 5]);
    round_trip(&vec![7.5_f64; 200_000]);
}

#[test]
fn whatever_bytes_come_are_good_elements() {
    run(1, |universe| {
        let own = universe.own();
        own.send(&[0_u8, 1, 7], 0, 0).unwrap();
        let (truths, _) = own.receive_vec::<Bool>(0, 0).unwrap();
        assert_eq!(truths.into_iter().map(bool::from).collect::<Vec<_>>(), [false, true, true]);
    });
}

#[test]
fn all_lengths_arrive_in_both_modes() {
    for len in [0_usize, 1, 7, 1000, 8 << 10, 70_000, 1 << 20] {
        run(2, |universe| {
            let world = universe.world();
            let expected: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            if world.rank() == 0 {
                world.send(&expected, 1, 1).unwrap();
                world.ssend(&expected, 1, 2).unwrap();
            } else {
                for tag in [1, 2] {
                    let mut room = vec![0; len];
                    assert_eq!(world.recv(&mut room, 0, tag).unwrap().len_bytes, len);
                    assert!(room == expected, "{len} bytes with tag {tag}");
                }
            }
        });
    }
}

#[test]
fn a_synchronous_send_ends_with_its_receive() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let receives = AtomicBool::new(false);
    run(2, |universe| {
        let world = universe.world();
        if world.rank() == 0 {
            world.ssend(&[1], 1, 0).unwrap();
            assert!(receives.load(Ordering::SeqCst));
        } else {
            // The message is here; its sender has to wait all the same.
            world.probe(0, 0).unwrap();
            (0..100).for_each(|_| std::thread::yield_now());
            receives.store(true, Ordering::SeqCst);
            world.recv(&mut [0], 0, 0).unwrap();
        }
    });
}

#[test]
fn wildcards_take_whatever_comes_and_tags_choose() {
    run(4, |universe| {
        let world = universe.world();
        if world.rank() > 0 {
            world.send(&[world.rank()], 0, 10 + world.rank()).unwrap();
            return;
        }
        let mut number = [0];
        world.recv(&mut number, Source::Any, 12).unwrap();
        assert_eq!(number, [2]);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let status = world.recv(&mut number, Source::Any, Tag::Any).unwrap();
            assert_eq!((status.source, status.tag), (number[0], 10 + number[0]));
            seen.push(number[0]);
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 3]);
    });
}

#[test]
fn messages_of_one_sender_stay_in_order() {
    run(3, |universe| {
        let world = universe.world();
        if world.rank() > 0 {
            for number in 0..500_u32 {
                world.send(&[number], 0, 0).unwrap();
            }
            return;
        }
        let mut next = [0; 3];
        for _ in 0..1000 {
            let mut number = [0_u32];
            let from = world.recv(&mut number, Source::Any, 0).unwrap().source as usize;
            assert_eq!(number[0], next[from]);
            next[from] += 1;
        }
    });
}

#[test]
fn a_vector_is_as_long_as_its_message() {
    run(2, |universe| {
        let world = universe.world();
        for len in [0_usize, 3, 100_000] {
            if world.rank() == 0 {
                world.send(&vec![1.25_f64; len], 1, 4).unwrap();
            } else {
                let (numbers, status) = world.receive_vec::<f64>(Source::Any, 4).unwrap();
                assert_eq!(numbers, vec![1.25; len]);
                assert_eq!((status.source, status.tag), (0, 4));
            }
        }
        if world.rank() == 0 {
            world.send(&[1_u8; 5], 1, 4).unwrap();
        } else {
            let error = world.receive_vec::<u32>(0, 4).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Type);
            assert!(error.message().contains("5 bytes"), "{error}");
            assert_eq!(world.iprobe(Source::Any, Tag::Any).unwrap(), None);
        }
    });
}

#[test]
fn a_probe_sees_without_taking() {
    run(2, |universe| {
        let world = universe.world();
        if world.rank() == 0 {
            world.send(&[1_u16, 2, 3], 1, 9).unwrap();
        } else {
            for _ in 0..2 {
                let status = world.probe(Source::Any, Tag::Any).unwrap();
                assert_eq!((status.source, status.tag, status.count::<u16>()), (0, 9, 3));
            }
            assert!(world.iprobe(0, 9).unwrap().is_some());
            assert_eq!(world.iprobe(0, 8).unwrap(), None);
            assert_eq!(world.receive_vec::<u16>(0, 9).unwrap().0, [1, 2, 3]);
            assert_eq!(world.iprobe(0, 9).unwrap(), None);
        }
    });
}

#[test]
fn a_message_that_is_too_long_names_both_ends() {
    run(2, |universe| {
        let world = universe.world();
        if world.rank() == 0 {
            world.send(&[0_u64; 4], 1, 6).unwrap();
        } else {
            let error = world.recv(&mut [0_u64; 3], 0, 6).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Truncate);
            for part in ["recv: ", "rank 0", "rank 1", "32 bytes", "24", "tag 6"] {
                assert!(error.message().contains(part), "{part:?} in {error}");
            }
        }
        world.barrier().unwrap();
    });
}

#[test]
fn bad_arguments_are_named() {
    run(2, |universe| {
        let world = universe.world();
        let check = |result: ferrovia::Result<()>, class, text: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.class(), class, "{error}");
            assert!(error.message().contains(text), "{text:?} in {error}");
        };
        check(world.send(&[1], 2, 0), ErrorClass::Rank, "no rank 2: its size is 2");
        check(world.send(&[1], u32::MAX, 0), ErrorClass::Rank, "4294967295");
        check(world.ssend(&[1], 0, Tag::MAX + 1), ErrorClass::Tag, &(Tag::MAX + 1).to_string());
        check(world.recv(&mut [1], 7, 0).map(drop), ErrorClass::Rank, "recv: ");
        check(world.recv(&mut [1], 0, u32::MAX).map(drop), ErrorClass::Tag, "4294967295");
        check(world.probe(5, 0).map(drop), ErrorClass::Rank, "probe: ");
        check(world.sendrecv(&[1], 0, 0, &mut [1], 9, 0).map(drop), ErrorClass::Rank, "no rank 9");
    });
}

#[test]
fn communicators_keep_their_messages_apart() {
    run(3, |universe| {
        let world = universe.world();
        let copy = world.duplicate().unwrap();
        assert_eq!((copy.rank(), copy.size()), (world.rank(), world.size()));
        if world.rank() == 0 {
            world.send(&[1], 1, 0).unwrap();
            copy.send(&[2], 1, 0).unwrap();
        } else if world.rank() == 1 {
            let mut number = [0];
            copy.recv(&mut number, 0, 0).unwrap();
            assert_eq!(number, [2]);
            world.recv(&mut number, 0, 0).unwrap();
            assert_eq!(number, [1]);
        }
    });
}

#[test]
fn parts_of_a_communicator_have_ranks_of_their_own() {
    for ranks in 1..=4 {
        run(ranks, |universe| {
            let world = universe.world();
            let rank = world.rank();
            // Odd ranks, in reverse; even ones take no part.
            let colour = (rank % 2 == 1).then_some(5);
            let odd = world.split(colour, -(rank as i32)).unwrap();
            assert_eq!(odd.is_some(), colour.is_some());
            if let Some(odd) = odd {
                assert_eq!((odd.size(), odd.rank()), (ranks / 2, ranks / 2 - 1 - rank / 2));
                assert_eq!(odd.all_gather_value(rank).unwrap().last(), Some(&1));
            }
            let last_and_first = [ranks - 1, 0];
            let named = if ranks == 1 { &last_and_first[..1] } else { &last_and_first[..] };
            let ends = world.subset(named).unwrap();
            assert_eq!(ends.as_ref().map(|ends| named[ends.rank() as usize]), named.contains(&rank).then_some(rank));
            assert_eq!(world.split_by_node(0).unwrap().size(), ranks);
            assert_eq!((universe.own().rank(), universe.own().size()), (0, 1));
            assert_eq!(world.subset(&[ranks]).unwrap_err().class(), ErrorClass::Rank);
            assert_eq!(world.split(Some(u32::MAX), 0).unwrap_err().class(), ErrorClass::Arg);
        });
    }
}

#[test]
fn names_appear_in_errors() {
    run(1, |universe| {
        let copy = universe.world().duplicate().unwrap();
        copy.set_name("rows");
        assert_eq!(copy.name(), "rows");
        assert_eq!(format!("{copy:?}"), "rank 0 of 1 in rows");
        assert!(copy.send(&[0], 1, 0).unwrap_err().to_string().starts_with("MPI_ERR_RANK: send: rows has no rank 1"));
    });
}
