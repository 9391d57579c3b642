//! Worlds inside one process, one thread per rank: for tests of programs, without a launcher.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use collectives::Selection;
use mpi_core::{ProcessManager, ThreadLevel, World};

use crate::Universe;

/// Runs `body` as `ranks` ranks, each a thread of this process, and returns what each made, in order of rank.
///
/// A rank that panics or returns an [`Error`](crate::Error) ends the whole process, as it would end its job; the other
/// ranks would wait for it for ever.
///
/// ```
/// let sums = ferrovia::local::run(3, |universe| {
///     let world = universe.world();
///     world.all_reduce_value(world.rank(), ferrovia::Sum).unwrap()
/// });
/// assert_eq!(sums, [3, 3, 3]);
/// ```
///
/// # Panics
/// If `ranks` is 0 or the system has no memory for the world.
pub fn run<R: Send>(ranks: u32, body: impl Fn(&Universe) -> R + Sync) -> Vec<R> {
    assert!(ranks > 0, "a world has at least one rank");
    let engines = boot::local_engines(ranks, &base::Config::default());
    let engines = engines.unwrap_or_else(|error| panic!("cannot make a world of {ranks}: {error}"));
    let body = &body;
    let rank = |engine| {
        let world = World::new(engine, Box::new(Nobody), ThreadLevel::Multiple, Selection::default());
        let rank = world.peer();
        let universe = Universe::new(world);
        match catch_unwind(AssertUnwindSafe(|| body(&universe))) {
            Ok(result) => result,
            Err(payload) => {
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("panicked");
                Nobody.abort(101, &format!("rank {rank} of {ranks}: {text}"))
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = engines.into_iter().map(|engine| scope.spawn(move || rank(engine))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank that panics ends the process")).collect()
    })
}

/// The process manager of threads: there is nobody to tell.
struct Nobody;

impl ProcessManager for Nobody {
    fn abort(&self, code: i32, message: &str) -> ! {
        // Written past the capture of test output, which would be lost.
        let _ = writeln!(std::io::stderr(), "{message}");
        std::process::exit(code)
    }

    fn finalize(&self) -> Result<(), String> {
        Ok(())
    }

    fn processor_name(&self) -> String {
        mpi_core::environment::processor_name()
    }

    fn node_key(&self) -> u64 {
        0
    }
}
