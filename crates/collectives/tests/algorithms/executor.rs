//! The executor by itself: restarts, errors, and many messages at once.

use std::sync::Arc;

use collectives::{Alltoall, Call, Data, Execution, Host, Place, Progress, Region, Selection, TypeShape, build};

/// Completes messages in order, up to a limit; fails at one.
#[derive(Default)]
struct Script {
    started: usize,
    completed: usize,
    fails_at: Option<usize>,
}

impl Host for Script {
    type Handle = usize;
    type Error = usize;

    fn start_send(&mut self, _peer: u32, _tag_offset: u32, _region: Region) -> Result<usize, usize> {
        self.started += 1;
        Ok(self.started - 1)
    }

    fn start_recv(&mut self, peer: u32, tag_offset: u32, region: Region) -> Result<usize, usize> {
        self.start_send(peer, tag_offset, region)
    }

    fn poll(&mut self, handle: usize) -> Result<bool, usize> {
        if self.fails_at == Some(handle) {
            return Err(handle);
        }
        Ok(handle < self.completed)
    }

    fn copy(&mut self, _from: Region, _to: Region) -> Result<(), usize> {
        Ok(())
    }

    fn reduce(&mut self, _from: Region, _into: Region) -> Result<(), usize> {
        Ok(())
    }
}

fn execution() -> Execution<usize> {
    let block = Data::new(1, TypeShape::basic(4));
    let call = Call::Alltoall(Alltoall { in_place: false, send: block, recv: block });
    let selection: Selection = "alltoall=linear".parse().unwrap();
    Execution::new(Arc::new(build(Place { rank: 0, size: 100 }, &call, &selection).unwrap()))
}

#[test]
fn waits_go_on_as_messages_complete_and_executions_restart() {
    let mut execution = execution();
    for _ in 0..3 {
        let mut script = Script::default();
        for completed in 0..198 {
            script.completed = completed;
            assert_eq!(execution.advance(&mut script), Ok(Progress::Pending));
            assert!(execution.outstanding().len() <= 66);
        }
        script.completed = 198;
        assert_eq!(execution.advance(&mut script), Ok(Progress::Done));
        assert_eq!(execution.advance(&mut script), Ok(Progress::Done));
        assert_eq!(script.started, 198);
        execution.restart();
    }
}

#[test]
fn a_failed_message_is_spent_and_the_rest_is_left_to_clean_up() {
    let mut execution = execution();
    let mut script = Script { completed: 10, fails_at: Some(7), ..Script::default() };
    assert_eq!(execution.advance(&mut script), Err(7));
    assert_eq!(execution.outstanding().first(), Some(&8));
    assert_eq!(execution.outstanding().last(), Some(&(script.started - 1)));
}
