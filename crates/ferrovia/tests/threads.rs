//! Several threads of each rank communicate at once.

use ferrovia::{Op, SharedCommunicator, Sum, Universe};

const THREADS: u32 = 3;

#[test]
fn threads_exchange_messages_side_by_side() {
    ferrovia::local::run(2, |universe| {
        let world = universe.world();
        let other = 1 - world.rank();
        let shared = world.share().unwrap();
        std::thread::scope(|threads| {
            for thread in 0..THREADS {
                let shared = &shared;
                threads.spawn(move || {
                    let world = shared.local();
                    for round in 0..200 {
                        let len = if round % 50 == 0 { 30_000 } else { 3 };
                        let mine = vec![1000 * thread + round; len];
                        let mut room = vec![0; len];
                        let status = world.sendrecv(&mine, other, thread, &mut room, other, thread).unwrap();
                        assert_eq!(status.tag, thread);
                        assert_eq!(room, mine);
                    }
                });
            }
        });
    });
}

#[test]
fn each_thread_has_collectives_on_a_communicator_of_its_own() {
    ferrovia::local::run(3, |universe| {
        let world = universe.world();
        let handles: Vec<_> = (0..THREADS).map(|_| world.duplicate().unwrap().share().unwrap()).collect();
        std::thread::scope(|threads| {
            for (thread, handle) in (0..).zip(&handles) {
                threads.spawn(move || {
                    let own = handle.local();
                    let plus = Op::elementwise(true, |a: u32, b: u32| a + b);
                    for round in 0..50 {
                        let expected = 3 * (thread + round) + 3;
                        let mine = thread + round + own.rank();
                        assert_eq!(own.all_reduce_value(mine, Sum).unwrap(), expected);
                        assert_eq!(own.all_reduce_value(mine, &plus).unwrap(), expected);
                        let (each, mut all) = ([mine], [0; 3]);
                        own.scope(|scope| scope.iall_gather(&each, &mut all).map(drop)).unwrap();
                        assert_eq!(all.iter().sum::<u32>(), expected);
                    }
                });
            }
        });
    });
}

#[test]
fn a_thread_waits_while_others_go_on() {
    ferrovia::local::run(1, |universe| {
        let shared = universe.world().share().unwrap();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| shared.local().receive_vec::<u8>(0, 1).unwrap().0);
            let world = shared.local();
            world.send(&[1_u8], 0, 0).unwrap();
            assert_eq!(world.receive_vec::<u8>(0, 0).unwrap().0, [1]);
            world.send(&[2_u8], 0, 1).unwrap();
            assert_eq!(waiting.join().unwrap(), [2]);
        });
    });
}

#[test]
fn what_may_cross_threads_is_chosen() {
    fn crosses<T: Send + Sync>() {}
    fn moves<T: Send>() {}
    crosses::<SharedCommunicator<'static>>();
    crosses::<Op<f64>>();
    moves::<Universe>();
    // That a communicator neither moves nor crosses, its documentation tests.
}
