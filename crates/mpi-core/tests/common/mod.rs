//! Worlds of a few ranks in one process, one thread each, and buffers over plain vectors.
#![allow(dead_code, reason = "each test file uses a part")]

use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;

use collectives::Selection;
use datatype::{Basic, Datatype, RecvBuf, SendBuf, UserMemory, UserMemoryMut};
use mpi_core::collective::Buffer;
use mpi_core::request::Finish;
use mpi_core::{ProcessManager, Request, ThreadLevel, World};

/// A process manager for threads: there is nobody to tell.
struct Nobody;

impl ProcessManager for Nobody {
    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("aborted with {code}: {message}")
    }

    fn finalize(&self) -> Result<(), String> {
        Ok(())
    }

    fn processor_name(&self) -> String {
        "test".to_owned()
    }

    fn node_key(&self) -> u64 {
        7
    }
}

/// Runs `body` on `count` ranks and finalizes them.
pub fn run(count: u32, body: impl Fn(&World) + Sync) {
    run_at(count, ThreadLevel::Single, body);
}

/// As [`run`], with a thread level.
pub fn run_at(count: u32, level: ThreadLevel, body: impl Fn(&World) + Sync) {
    run_with(count, level, &Selection::default(), body);
}

/// As [`run`], where collectives may go over boards, as they do in programs.
pub fn run_with_boards(count: u32, level: ThreadLevel, body: impl Fn(&World) + Sync) {
    let mut selection = Selection::default();
    selection.shared = true;
    run_with(count, level, &selection, body);
}

fn run_with(count: u32, level: ThreadLevel, selection: &Selection, body: impl Fn(&World) + Sync) {
    let engines = boot::local_engines(count, &base::Config::default()).expect("there is memory for a test");
    std::thread::scope(|scope| {
        for engine in engines {
            let body = &body;
            scope.spawn(move || {
                let world = World::new(engine, Box::new(Nobody), level, selection.clone());
                let all = || {
                    body(&world);
                    world.finalize().expect("the world ends well");
                };
                // The other ranks would wait for this one for ever.
                if let Err(why) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all)) {
                    die(world.peer(), &*why);
                }
            });
        }
    });
}

/// Ends the test program at once, saying which rank failed and why, past the capture of output.
pub fn die(rank: u32, why: &(dyn std::any::Any + Send)) -> ! {
    let text = why.downcast_ref::<String>().map(String::as_str).or_else(|| why.downcast_ref::<&str>().copied());
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "rank {rank} {test}: {}", text.unwrap_or("panicked"));
    std::process::exit(101)
}

/// The type of 32-bit integers.
pub fn int() -> Arc<Datatype> {
    Datatype::predefined(Basic::Int)
}

/// A vector's memory, to read.
pub fn memory<T>(values: &mut [T]) -> UserMemory {
    // SAFETY: tests keep their vectors, and their hands off them, until their operations have completed.
    unsafe { UserMemory::new(values.as_mut_ptr().cast()) }
}

/// A vector's memory, to write.
pub fn room<T>(values: &mut [T]) -> UserMemoryMut {
    // SAFETY: as in `memory`.
    unsafe { UserMemoryMut::new(values.as_mut_ptr().cast()) }
}

/// The elements of a vector to send.
pub fn to_send(values: &mut [i32]) -> SendBuf {
    memory(values).send(0, values.len() as u64, &int())
}

/// Room for the elements of a vector.
pub fn to_fill(values: &mut [i32]) -> RecvBuf {
    room(values).recv(0, values.len() as u64, &int())
}

/// Memory as an argument of a collective, in blocks of `count` integers.
pub fn blocks_of<M>(memory: M, count: usize) -> Buffer<M> {
    Buffer { memory, count: count as u64, datatype: int() }
}

/// A list with one request.
pub fn one(request: Request) -> RefCell<Vec<Option<Request>>> {
    RefCell::new(vec![Some(request)])
}

/// Waits for one request.
pub fn wait(world: &World, request: Request) -> Finish {
    world.wait(&one(request))
}
