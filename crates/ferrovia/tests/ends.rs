//! How jobs end, well and badly. Each case runs in a process of its own: this program, started again.

use std::process::{Command, Output};

use ferrovia::local::run;
use ferrovia::{ErrorClass, Op, Result, Sum, Universe};

/// Names the case the new process is to run.
const CASE: &str = "ENDS_CASE";

fn start(case: &str) -> Output {
    let program = std::env::current_exe().expect("a running program has a path");
    let arguments = ["--exact", "the_other_process", "--nocapture", "--test-threads=1"];
    Command::new(program).args(arguments).env(CASE, case).output().expect("this program can be started")
}

/// The case ends with a failure and a line that holds `text`.
fn check_abort(case: &str, text: &str) {
    let output = start(case);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{case} should fail: {said}");
    assert!(said.lines().any(|line| line.contains(text)), "{case} should say {text:?}: {said}");
}

#[test]
fn the_other_process() {
    let Ok(case) = std::env::var(CASE) else { return };
    match case.as_str() {
        "well" => assert_eq!(begin().world().all_reduce_value(4, Sum).unwrap(), 4),
        "handled" => {
            let universe = begin();
            let error = universe.world().send(&[0], 1, 0).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Rank);
            drop(error);
        }
        "escaping" => {
            fn program() -> Result<()> {
                let universe = ferrovia::initialize()?;
                universe.world().send(&[0], 1, 0)?;
                Ok(())
            }
            let _ = program();
        }
        "twice" => {
            let _universe = begin();
            let error = ferrovia::initialize().err().expect("a process joins once");
            assert!(error.message().contains("once"), "{error}");
        }
        "one thread" => {
            let universe = begin();
            let error = universe.world().share().err().expect("one thread was asked for");
            assert!(error.message().contains("Threading::Multiple"), "{error}");
        }
        "panicking" => {
            let _universe = begin();
            panic!("on purpose");
        }
        "abort" => begin().abort(3, "enough of this"),
        "one rank panics" => {
            run(3, |universe| {
                assert_ne!(universe.world().rank(), 1, "rank 1 is not wanted");
                universe.world().barrier().unwrap();
            });
        }
        "panic in a scope" => {
            let universe = begin();
            let world = universe.world();
            let mut room = [0];
            let _ = world.scope(|scope| -> Result<()> {
                scope.irecv(&mut room, 0, 0)?;
                panic!("on purpose");
            });
        }
        "panic in a reduction" => {
            let sour = Op::from_fn(true, |_: &[i32], _: &mut [i32]| panic!("on purpose"));
            run(2, |universe| drop(universe.world().all_reduce_value(1, &sour)));
        }
        "different lengths" => {
            run(2, |universe| {
                let world = universe.world();
                drop(world.broadcast(&mut vec![0_u64; 2 - world.rank() as usize], 0));
            });
        }
        "different lengths in a scope" => {
            run(2, |universe| {
                let world = universe.world();
                let mut data = vec![0_u64; 2 - world.rank() as usize];
                drop(world.scope(|scope| scope.ibroadcast(&mut data, 0).map(drop)));
            });
        }
        "a thread panics" => {
            run(2, |universe| {
                let shared = universe.world().share().unwrap();
                std::thread::scope(|threads| {
                    threads.spawn(|| {
                        let _world = shared.local();
                        panic!("on purpose");
                    });
                    // What the other thread would have sent.
                    universe.world().receive_vec::<u8>(0, 0).unwrap();
                });
            });
        }
        other => panic!("there is no case {other:?}"),
    }
}

fn begin() -> Universe {
    ferrovia::initialize().expect("a process started by hand is a world of one")
}

#[test]
fn what_ends_well() {
    for case in ["well", "handled", "twice", "one thread"] {
        let output = start(case);
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_panic_ends_the_job() {
    check_abort("panicking", "rank 0 of 1: panicked");
    check_abort("one rank panics", "rank 1 of 3: ");
    check_abort("a thread panics", "a thread panicked");
}

#[test]
fn an_error_that_leaves_the_program_ends_the_job() {
    check_abort("escaping", "rank 0 of 1: the program ends with an error");
    check_abort("escaping", "MPI_ERR_RANK: send: MPI_COMM_WORLD has no rank 1");
}

#[test]
fn an_abort_shows_its_message_and_code() {
    check_abort("abort", "enough of this");
    assert_eq!(start("abort").status.code(), Some(3));
}

#[test]
fn memory_under_way_is_never_given_up() {
    check_abort("panic in a scope", "with operations under way");
    check_abort("panic in a reduction", "a panic inside a call of the library");
    check_abort("different lengths", "rank 1 of 2: broadcast: MPI_ERR_TRUNCATE");
    check_abort("different lengths in a scope", "rank 1 of 2: ibroadcast: MPI_ERR_TRUNCATE");
}
