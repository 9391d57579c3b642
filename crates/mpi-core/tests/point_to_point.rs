//! Messages between ranks: modes, wildcards, probes, requests, errors.

mod common;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use mpi_core::constants::{ANY_SOURCE, ANY_TAG, PROC_NULL};
use mpi_core::point_to_point::{Budget, BufferOwner, End, Mode};
use mpi_core::request::{AnyFinished, GeneralizedCallbacks};
use mpi_core::{ErrorClass, Status};

#[test]
fn messages_of_all_sizes_go_there_and_back_in_every_mode() {
    run(2, |world| {
        let comm = world.comm_world();
        let (me, other) = (comm.rank() as i32, 1 - comm.rank() as i32);
        world.attach_buffer(&BufferOwner::Process, Budget::Memory { address: 1, len_bytes: 8 << 20 }).unwrap();
        for (round, len) in [0, 1, 2, 100, 5_000, 300_000].into_iter().enumerate() {
            for mode in [Mode::Standard, Mode::Synchronous, Mode::Buffered] {
                let tag = round as i32;
                let mut sent: Vec<i32> = (0..len).map(|n| n * 3 + tag).collect();
                let mut got = vec![0; sent.len()];
                let status = if me == 0 {
                    world.send_in_mode(mode, comm, other, tag, to_send(&mut sent)).unwrap();
                    world.recv(comm, other, tag, to_fill(&mut got)).unwrap()
                } else {
                    let status = world.recv(comm, ANY_SOURCE, ANY_TAG, to_fill(&mut got)).unwrap();
                    world.send_in_mode(mode, comm, other, tag, to_send(&mut sent)).unwrap();
                    status
                };
                assert_eq!(got, sent);
                let len_bytes = 4 * sent.len() as u64;
                assert_eq!(status, Status::of_message(other, tag, len_bytes));
            }
        }
        assert!(world.detach_buffer(&BufferOwner::Process).is_some());
        assert!(world.detach_buffer(&BufferOwner::Process).is_none());
    });
}

#[test]
fn a_communicator_can_have_a_buffer_of_its_own() {
    run(2, |world| {
        let comm = world.comm_dup(world.comm_world()).unwrap();
        let (me, other) = (comm.rank() as i32, 1 - comm.rank() as i32);
        let mut value = [me; 4];
        let own = BufferOwner::Comm(std::sync::Arc::clone(&comm));
        world.attach_buffer(&own, Budget::Memory { address: 8, len_bytes: 600 }).unwrap();
        assert!(world.attach_buffer(&own, Budget::Automatic).is_err());
        world.send_in_mode(Mode::Buffered, &comm, other, 0, to_send(&mut value)).unwrap();
        let error = world.send_in_mode(Mode::Buffered, world.comm_world(), other, 0, to_send(&mut value));
        assert_eq!(error.unwrap_err().class, ErrorClass::Buffer, "the process has no buffer");
        world.recv(&comm, other, 0, to_fill(&mut value)).unwrap();
        assert_eq!(value, [other; 4]);
        let request = world.iflush_buffer(&own);
        wait(world, request).unwrap();
        assert_eq!(world.detach_buffer(&own), Some(Budget::Memory { address: 8, len_bytes: 600 }));
        world.comm_free(&comm).unwrap();
    });
}

#[test]
fn a_message_to_oneself_and_to_nobody() {
    run(1, |world| {
        let comm = world.comm_self();
        let (mut sent, mut got) = ([5, 6], [0, 0]);
        let request = world.irecv(comm, 0, 1, to_fill(&mut got)).unwrap();
        world.send(comm, 0, 1, to_send(&mut sent)).unwrap();
        assert_eq!(wait(world, request).unwrap().len_bytes, 8);
        assert_eq!(got, sent);
        world.send(comm, PROC_NULL, 1, to_send(&mut sent)).unwrap();
        assert_eq!(world.recv(comm, PROC_NULL, 1, to_fill(&mut got)).unwrap(), Status::PROC_NULL);
        assert_eq!(world.probe(comm, PROC_NULL, 1).unwrap(), Status::PROC_NULL);
        let (message, status) = world.mprobe(comm, PROC_NULL, 1).unwrap();
        assert!(message.is_no_proc());
        assert_eq!(status, Status::PROC_NULL);
        assert_eq!(world.mrecv(message, to_fill(&mut got)).unwrap(), Status::PROC_NULL);
    });
}

#[test]
fn bad_arguments_are_named() {
    run(1, |world| {
        let comm = world.comm_world();
        let error = world.send(comm, 7, 0, to_send(&mut [])).unwrap_err();
        assert_eq!(error.class, ErrorClass::Rank);
        assert!(error.message.contains("MPI_COMM_WORLD has no rank 7"), "{error}");
        let error = world.recv(comm, 0, -9, to_fill(&mut [])).unwrap_err().error;
        assert_eq!(error.class, ErrorClass::Tag);
        let error = world.send_in_mode(Mode::Buffered, comm, 0, 0, to_send(&mut [1])).unwrap_err();
        assert_eq!(error.class, ErrorClass::Buffer);
        assert!(error.message.contains("no buffer is attached"), "{error}");
    });
}

#[test]
fn a_truncated_message_names_both_ends() {
    run(2, |world| {
        let comm = world.comm_world();
        if comm.rank() == 0 {
            world.send(comm, 1, 9, to_send(&mut [1; 10])).unwrap();
            world.send(comm, 1, 9, to_send(&mut [1; 10])).unwrap();
        } else {
            let failure = world.recv(comm, 0, 9, to_fill(&mut [0; 2])).unwrap_err();
            assert_eq!((failure.status.source(), failure.status.tag()), (0, 9));
            let error = failure.error;
            assert_eq!(error.class, ErrorClass::Truncate);
            let parts = ["rank 0 sent 40 bytes", "tag 9", "rank 1", "room for 8", "MPI_COMM_WORLD", "MPI_Recv"];
            for part in parts {
                assert!(error.message.contains(part), "'{part}' in: {error}");
            }
            let mut got = [0; 2];
            let request = world.irecv(comm, 0, 9, to_fill(&mut got)).unwrap();
            let failure = wait(world, request).unwrap_err();
            assert!(failure.error.message.contains("MPI_Irecv"), "{}", failure.error);
            assert!(Arc::ptr_eq(failure.comm.as_ref().unwrap(), comm));
        }
    });
}

#[test]
fn a_synchronous_send_completes_only_when_it_is_received() {
    run(2, |world| {
        let comm = world.comm_world();
        if comm.rank() == 0 {
            let mut value = [4];
            let set = one(world.isend(Mode::Synchronous, comm, 1, 0, to_send(&mut value)).unwrap());
            assert!(world.test(&set).is_none(), "nobody has received it yet");
            world.send(comm, 1, 1, to_send(&mut [])).unwrap();
            world.wait(&set).unwrap();
            assert!(set.borrow()[0].is_none());
        } else {
            world.recv(comm, 0, 1, to_fill(&mut [])).unwrap();
            world.recv(comm, 0, 0, to_fill(&mut [0])).unwrap();
        }
    });
}

#[test]
fn probes_find_and_take_messages() {
    run(2, |world| {
        let comm = world.comm_world();
        if comm.rank() == 0 {
            world.send(comm, 1, 3, to_send(&mut [1, 2, 3])).unwrap();
            world.send(comm, 1, 4, to_send(&mut [4])).unwrap();
        } else {
            let status = world.probe(comm, ANY_SOURCE, 4).unwrap();
            assert_eq!((status.source(), status.tag(), status.len_bytes), (0, 4, 4));
            let (message, status) = world.mprobe(comm, 0, ANY_TAG).unwrap();
            assert_eq!((status.tag(), status.len_bytes), (3, 12));
            assert!(world.iprobe(comm, 0, 3).unwrap().is_none(), "it was taken out of the matching");
            let mut got = [0; 3];
            let request = world.imrecv(message, to_fill(&mut got)).unwrap();
            wait(world, request).unwrap();
            assert_eq!(got, [1, 2, 3]);
            let (message, _) = world.improbe(comm, 0, 4).unwrap().expect("it was probed before");
            assert_eq!(world.mrecv(message, to_fill(&mut got)).unwrap().len_bytes, 4);
        }
    });
}

#[test]
fn waiting_calls_treat_null_and_inactive_requests_as_the_standard_says() {
    run(2, |world| {
        let comm = world.comm_world();
        let (me, other) = (comm.rank() as i32, 1 - comm.rank() as i32);
        let (mut got, mut again, mut mine) = ([0; 3], [0], [me + 100]);
        let persistent = world.recv_init(comm, other, 50, room(&mut again), 1, &int()).unwrap();
        let set = RefCell::new(vec![None, Some(persistent)]);
        assert!(matches!(world.wait_any(&set), AnyFinished::NoneActive));
        assert!(matches!(world.test_any(&set), Some(AnyFinished::NoneActive)));
        assert_eq!(world.wait_some(&set, |_, _| panic!("nothing is active")), None);
        assert_eq!(world.test_some(&set, |_, _| panic!("nothing is active")), None);
        assert_eq!(world.wait(&set).unwrap(), Status::EMPTY);
        let mut reported = Vec::new();
        assert_eq!(world.test_all(&set, |index, finish| reported.push((index, finish.unwrap()))), Some(true));
        assert_eq!(reported, [(0, Status::EMPTY), (1, Status::EMPTY)]);

        let [a, b, c] = &mut got;
        for (tag, slot) in [(0, a), (1, b), (2, c)] {
            let request = world.irecv(comm, other, tag, to_fill(std::slice::from_mut(slot))).unwrap();
            set.borrow_mut().push(Some(request));
        }
        assert_eq!(world.test_all(&set, |_, _| panic!("nothing has been sent")), None);
        // Both sides wait for the other's messages one at a time, tag 2 first.
        for tag in [2, 0, 1] {
            world.send(comm, other, tag, to_send(&mut mine)).unwrap();
            let AnyFinished::One(index, finish) = world.wait_any(&set) else { panic!("some are active") };
            assert_eq!((index as i32, finish.unwrap().tag()), (tag + 2, tag));
            world.collective(comm, &mpi_core::collective::Arguments::Barrier).unwrap();
        }
        assert_eq!(got, [other + 100; 3]);
        assert!(set.borrow()[2..].iter().all(Option::is_none));
        assert!(set.borrow()[1].is_some(), "a persistent request stays");
    });
}

#[test]
fn persistent_requests_start_again_and_only_when_inactive() {
    run(2, |world| {
        let comm = world.comm_world();
        let (me, other) = (comm.rank() as i32, 1 - comm.rank() as i32);
        let (mut out, mut got) = ([0], [0]);
        let (out_memory, got_memory) = (memory(&mut out), room(&mut got));
        let set = RefCell::new(vec![
            Some(world.send_init(Mode::Standard, comm, other, 5, out_memory, 1, &int()).unwrap()),
            Some(world.recv_init(comm, other, 5, got_memory, 1, &int()).unwrap()),
        ]);
        for round in 0..20 {
            out[0] = me * 1000 + round;
            world.start_all(&set).unwrap();
            let mut tags = Vec::new();
            assert!(world.wait_all(&set, |_, finish| tags.push(finish.unwrap().tag())));
            assert_eq!((got[0], tags[1]), (other * 1000 + round, 5));
        }
        let recv = one(set.borrow_mut().pop().flatten().unwrap());
        world.start_all(&recv).unwrap();
        assert_eq!(world.start_all(&recv).unwrap_err().class, ErrorClass::Request);
        world.cancel(&recv).unwrap();
        assert!(world.wait(&recv).unwrap().is_cancelled());
        let plain = one(world.isend(Mode::Standard, comm, PROC_NULL, 0, to_send(&mut [])).unwrap());
        assert_eq!(world.start_all(&plain).unwrap_err().class, ErrorClass::Request);
        world.free_request(recv.borrow_mut().pop().flatten().unwrap()).unwrap();
    });
}

#[test]
fn a_ring_of_exchanges_replaces_in_place() {
    run(3, |world| {
        let comm = world.comm_world();
        let (me, size) = (comm.rank() as i32, comm.size() as i32);
        let mut value = [me; 40_000];
        for _ in 0..size {
            let to = End { rank: (me + 1) % size, tag: 1 };
            let from = End { rank: (me + size - 1) % size, tag: 1 };
            let (outgoing, incoming) = (to_send(&mut value), to_fill(&mut value));
            let status = world.sendrecv_replace(comm, to, outgoing, from, incoming).unwrap();
            assert_eq!(status.source(), from.rank);
        }
        assert!(value.iter().all(|v| *v == me));
        let to = End { rank: (me + 1) % size, tag: 2 };
        let from = End { rank: ANY_SOURCE, tag: 2 };
        let mut got = [0];
        let request = world.isendrecv(comm, to, to_send(&mut [me]), from, to_fill(&mut got)).unwrap();
        let status = wait(world, request).unwrap();
        assert_eq!(status.source(), (me + size - 1) % size);
        assert_eq!(got[0], status.source());
    });
}

#[test]
fn a_released_receive_still_receives_and_a_pending_one_has_no_status() {
    run(2, |world| {
        let comm = world.comm_world();
        if comm.rank() == 0 {
            world.recv(comm, 1, 1, to_fill(&mut [])).unwrap();
            world.send(comm, 1, 0, to_send(&mut [11])).unwrap();
            world.send(comm, 1, 2, to_send(&mut [12])).unwrap();
        } else {
            let (mut first, mut second) = ([0], [0]);
            let set = one(world.irecv(comm, 0, 0, to_fill(&mut first)).unwrap());
            assert_eq!(world.request_status(&set).unwrap(), None);
            world.free_request(set.borrow_mut().pop().flatten().unwrap()).unwrap();
            let set = one(world.irecv(comm, 0, 2, to_fill(&mut second)).unwrap());
            world.send(comm, 0, 1, to_send(&mut [])).unwrap();
            let status = loop {
                if let Some(status) = world.request_status(&set).unwrap() {
                    break status;
                }
                std::thread::yield_now();
            };
            assert_eq!((status.source(), status.tag()), (0, 2));
            assert_eq!(world.wait(&set).unwrap(), status);
            assert_eq!((first, second), ([11], [12]));
        }
    });
}

#[derive(Clone, Default)]
struct Counted(Arc<Counts>);

#[derive(Default)]
struct Counts {
    queries: AtomicU32,
    frees: AtomicU32,
    cancels: AtomicU32,
}

impl GeneralizedCallbacks for Counted {
    fn query(&self) -> mpi_core::Result<Status> {
        self.0.queries.fetch_add(1, Ordering::Relaxed);
        Ok(Status::of_message(3, 4, 5))
    }

    fn free(&self) -> mpi_core::Result<()> {
        self.0.frees.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn cancel(&self, is_complete: bool) -> mpi_core::Result<()> {
        assert!(!is_complete);
        self.0.cancels.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_generalized_request_completes_when_told() {
    run(1, |world| {
        let counted = Counted::default();
        let set = one(world.start_generalized(Box::new(counted.clone())));
        let handle = Arc::clone(set.borrow()[0].as_ref().unwrap().generalized().unwrap());
        assert!(world.test(&set).is_none());
        world.cancel(&set).unwrap();
        world.complete_generalized(&handle).unwrap();
        assert_eq!(world.request_status(&set).unwrap().unwrap().source(), 3);
        assert_eq!(world.wait(&set).unwrap().len_bytes, 5);
        let counts = [&counted.0.queries, &counted.0.frees, &counted.0.cancels].map(|c| c.load(Ordering::Relaxed));
        assert_eq!(counts, [2, 1, 1]);
    });
}
