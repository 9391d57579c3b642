//! Operations that run by themselves, and what their scopes do about them.

use ferrovia::local::run;
use ferrovia::{ErrorClass, Progress, Source, Sum, wait_any};

#[test]
fn everybody_exchanges_with_everybody_at_once() {
    for ranks in 1..=4 {
        for len in [0_usize, 1, 1000, 100_000] {
            run(ranks, |universe| {
                let world = universe.world();
                let mine = vec![world.rank(); len];
                let mut theirs = vec![vec![u32::MAX; len]; ranks as usize];
                world
                    .scope(|scope| {
                        for (from, room) in (0..).zip(&mut theirs) {
                            scope.irecv(room, from, 3)?;
                        }
                        for to in 0..ranks {
                            scope.isend(&mine, to, 3)?;
                        }
                        Ok(())
                    })
                    .unwrap();
                for (from, numbers) in (0..).zip(&theirs) {
                    assert_eq!(*numbers, vec![from; len]);
                }
            });
        }
    }
}

#[test]
fn a_buffer_comes_back_from_its_request_and_can_be_lent_again() {
    run(2, |universe| {
        let world = universe.world();
        let other = 1 - world.rank();
        let (numbers, mut room) = ([1_u64, 2, 3], [0_u64; 4]);
        world
            .scope(|scope| {
                let mut room = &mut room[..];
                for round in 0..50 {
                    let receive = scope.irecv(room, other, round)?;
                    scope.issend(&numbers, other, round)?.wait()?;
                    let (back, status) = receive.wait()?;
                    assert_eq!((status.count::<u64>(), &back[..3]), (3, &numbers[..]));
                    back.fill(0);
                    room = back;
                }
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn a_test_does_not_wait() {
    run(2, |universe| {
        let world = universe.world();
        let mut number = [0];
        if world.rank() == 1 {
            world.recv(&mut number, 0, 0).unwrap();
            return world.send(&[5], 0, 1).unwrap();
        }
        world
            .scope(|scope| {
                let request = scope.irecv(&mut number, 1, 1)?;
                let Progress::Pending(mut request) = request.test()? else { panic!("nothing was sent yet") };
                world.send(&[4], 1, 0)?;
                loop {
                    match request.test()? {
                        Progress::Done((numbers, _)) => break assert_eq!(numbers, [5]),
                        Progress::Pending(pending) => request = pending,
                    }
                    std::thread::yield_now();
                }
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn a_synchronous_send_is_pending_until_it_is_received() {
    run(2, |universe| {
        let world = universe.world();
        if world.rank() == 1 {
            // Received only once its sender has looked.
            world.recv(&mut [0], 0, 1).unwrap();
            return assert_eq!(world.receive_vec::<u8>(0, 0).unwrap().0, [9]);
        }
        world
            .scope(|scope| {
                let Progress::Pending(request) = scope.issend(&[9_u8], 1, 0)?.test()? else {
                    panic!("nobody receives yet")
                };
                world.send(&[0], 1, 1)?;
                request.wait()
            })
            .unwrap();
    });
}

#[test]
fn any_request_may_be_first() {
    run(4, |universe| {
        let world = universe.world();
        if world.rank() > 0 {
            // In reverse order of rank, each told by the next.
            let mut turn = [0];
            if world.rank() < 3 {
                world.recv(&mut turn, world.rank() + 1, 1).unwrap();
            }
            world.send(&[world.rank()], 0, 0).unwrap();
            return world.send(&turn, world.rank() - 1, 1).unwrap();
        }
        let mut numbers = [[0]; 3];
        let mut order = Vec::new();
        world
            .scope(|scope| {
                let mut requests = Vec::new();
                for (from, number) in (1..).zip(&mut numbers) {
                    requests.push(scope.irecv(number, from, 0)?);
                }
                while let Some((_, (number, status))) = wait_any(&mut requests)? {
                    assert_eq!(number[0], status.source);
                    order.push(number[0]);
                }
                Ok(())
            })
            .unwrap();
        order.sort_unstable();
        assert_eq!(order, [1, 2, 3]);
        world.recv(&mut [0], 1, 1).unwrap();
    });
}

#[test]
fn a_scope_left_by_an_error_cancels_what_nobody_answered() {
    run(2, |universe| {
        let world = universe.world();
        let mut room = [0; 8];
        let error = world
            .scope(|scope| {
                scope.irecv(&mut room, Source::Any, 77)?;
                scope.isend(&[1], 9, 0)?;
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.class(), ErrorClass::Rank);
        assert!(error.message().starts_with("isend: "), "{error}");
        drop(error);
        // The cancelled receive takes nothing away.
        let other = 1 - world.rank();
        world.send(&[world.rank()], other, 77).unwrap();
        assert_eq!(world.receive_vec::<u32>(other, 77).unwrap().0, [other]);
        assert_eq!(room, [0; 8]);
    });
}

#[test]
fn a_scope_reports_what_nobody_waited_for() {
    run(2, |universe| {
        let world = universe.world();
        let other = 1 - world.rank();
        let mut room = [0_u8; 2];
        let error = world
            .scope(|scope| {
                scope.irecv(&mut room, other, 0)?;
                scope.isend(&[1_u8; 3], other, 0)?;
                Ok("fine so far")
            })
            .unwrap_err();
        assert_eq!(error.class(), ErrorClass::Truncate);
        assert!(error.message().contains("3 bytes"), "{error}");
    });
}

#[test]
fn forgotten_requests_are_completed_all_the_same() {
    run(2, |universe| {
        let world = universe.world();
        let other = 1 - world.rank();
        let mut room = vec![0_u32; 50_000];
        let mine = vec![world.rank() + 1; 50_000];
        world
            .scope(|scope| {
                // A box, so that there is a destructor that does not run.
                std::mem::forget(Box::new(scope.irecv(&mut room, other, 0)?));
                std::mem::forget(Box::new(scope.isend(&mine, other, 0)?));
                Ok(())
            })
            .unwrap();
        assert_eq!(room, vec![other + 1; 50_000]);
    });
}

#[test]
fn a_panic_passes_through_a_scope_that_has_nothing_under_way() {
    run(2, |universe| {
        let world = universe.world();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.scope(|scope| -> ferrovia::Result<()> {
                scope.ibarrier()?.wait()?;
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"on purpose"));
        world.barrier().unwrap();
    });
}

#[test]
fn scopes_nest_and_collectives_run_beside_messages() {
    run(3, |universe| {
        let world = universe.world();
        let rows = world.duplicate().unwrap();
        let (mine, mut sum, mut all) = ([world.rank() + 1], [0], [0; 3]);
        let mut token = [0];
        world
            .scope(|outer| {
                let total = outer.iall_reduce(&mine, &mut sum, Sum)?;
                rows.scope(|inner| {
                    inner.iall_gather(&mine, &mut all)?;
                    let receive = inner.irecv(&mut token, (world.rank() + 1) % 3, 0)?;
                    inner.isend(&mine, (world.rank() + 2) % 3, 0)?;
                    receive.wait()?;
                    Ok(())
                })?;
                assert_eq!(total.wait()?, [6]);
                Ok(())
            })
            .unwrap();
        assert_eq!((all, token), ([1, 2, 3], [(world.rank() + 1) % 3 + 1]));
    });
}

#[test]
fn many_requests_use_few_slots_and_end_in_any_order() {
    run(2, |universe| {
        let world = universe.world();
        let other = 1 - world.rank();
        let numbers: Vec<u32> = (0..300).collect();
        let mut room = vec![0; 300];
        world
            .scope(|scope| {
                let mut receives = Vec::new();
                for (tag, number) in (0..).zip(room.chunks_mut(1)) {
                    receives.push(scope.irecv(number, other, tag)?);
                }
                for (tag, number) in (0..300).rev().zip(numbers.chunks(1).rev()) {
                    scope.isend(number, other, tag)?.wait()?;
                }
                for receive in receives.into_iter().step_by(3) {
                    receive.wait()?;
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(room, numbers);
    });
}
