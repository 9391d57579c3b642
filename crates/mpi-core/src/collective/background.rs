//! Collectives in the background: over boards where there are some, by messages elsewhere.

use std::sync::Arc;
use std::task::Poll;

use collectives::Schedule;

use super::arguments::Arguments;
use super::board::OnBoards;
use super::host::Running;
use super::plan::schedule_of;
use crate::communicator::{Comm, Turn};
use crate::error::Result;
use crate::world::{Operation, World};

/// One start of a collective, which keeps all that it needs.
pub(super) struct Background {
    comm: Arc<Comm>,
    /// Of its messages, if it comes to that.
    tag: i32,
    /// Named in errors.
    call: &'static str,
    stage: Stage,
}

enum Stage {
    /// Others use the boards, or nobody knows yet whether there are any.
    Queued(Turn, Box<Arguments>),
    Boards(OnBoards),
    Messages(Box<(Running, Arguments)>),
    Over,
}

impl Background {
    /// A start with a turn at the boards of `comm`.
    pub fn queued(comm: &Arc<Comm>, turn: Turn, arguments: Arguments, tag: i32, call: &'static str) -> Background {
        Background { comm: Arc::clone(comm), tag, call, stage: Stage::Queued(turn, Box::new(arguments)) }
    }

    /// A start of `schedule`.
    pub fn scheduled(
        world: &World,
        comm: &Arc<Comm>,
        schedule: Arc<Schedule>,
        arguments: Arguments,
        tag: i32,
        call: &'static str,
    ) -> Result<Background> {
        let stage = Stage::messages(world, comm, schedule, arguments, tag)?;
        Ok(Background { comm: Arc::clone(comm), tag, call, stage })
    }

    /// Goes on with messages. The turn is over.
    fn leave_boards(&mut self, world: &World, arguments: Arguments) -> Result<()> {
        self.stage = Stage::Over;
        let schedule = schedule_of(&self.comm, &arguments)?;
        self.stage = Stage::messages(world, &self.comm, schedule, arguments, self.tag)?;
        Ok(())
    }
}

impl Stage {
    fn messages(world: &World, comm: &Comm, schedule: Arc<Schedule>, arguments: Arguments, tag: i32) -> Result<Stage> {
        let running = Running::new(world, comm, schedule, &arguments, tag)?;
        Ok(Stage::Messages(Box::new((running, arguments))))
    }
}

impl Operation for Background {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        loop {
            match &mut self.stage {
                Stage::Queued(turn, _) => {
                    let has_boards = match turn.poll(world) {
                        Poll::Ready(has_boards) => has_boards,
                        Poll::Pending => break,
                    };
                    // Those who were in an operation when a member was lost may have left it at different steps.
                    if let Some(error) = world.lost_among(&self.comm) {
                        return Poll::Ready(Err(error));
                    }
                    let Stage::Queued(turn, arguments) = std::mem::replace(&mut self.stage, Stage::Over) else {
                        unreachable!("it was looked at just now");
                    };
                    if has_boards {
                        self.stage = Stage::Boards(OnBoards::new(turn, arguments));
                    } else {
                        drop(turn);
                        self.leave_boards(world, *arguments)?;
                    }
                }
                Stage::Boards(steps) => match steps.advance(world, &self.comm) {
                    Poll::Ready(Ok(Some(arguments))) => self.leave_boards(world, *arguments)?,
                    Poll::Ready(outcome) => {
                        self.stage = Stage::Over;
                        world.engine.borrow_mut().count_board_collective();
                        return Poll::Ready(outcome.map(|_| ()));
                    }
                    Poll::Pending => break,
                },
                Stage::Messages(messages) => {
                    let (running, arguments) = &mut **messages;
                    return running.advance(world, &self.comm, arguments, self.call);
                }
                Stage::Over => return Poll::Ready(Ok(())),
            }
        }
        match world.lost_among(&self.comm) {
            None => Poll::Pending,
            Some(error) => Poll::Ready(Err(error)),
        }
    }
}
