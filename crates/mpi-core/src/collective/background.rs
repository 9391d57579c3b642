//! Collectives in the background: over boards where there are some, by messages elsewhere.

use std::sync::Arc;
use std::task::Poll;

use collectives::Schedule;

use super::arguments::Arguments;
use super::board::{Advance, ONE_FOR_BOARDS, OnBoards, OneStep, Plan};
use super::host::Running;
use super::plan::schedule_of;
use crate::communicator::{Comm, Turn};
use crate::error::Result;
use crate::world::{Operation, World};

/// One start of a collective, which keeps all that it needs.
pub(super) struct Background {
    comm: Arc<Comm>,
    /// At the boards, until it is through with them.
    turn: Option<Turn>,
    /// `None` while steps over boards have them, and in the end.
    arguments: Option<Arguments>,
    /// Of its messages, if it comes to that.
    tag: i32,
    /// Named in errors.
    call: &'static str,
    stage: Stage,
}

enum Stage {
    /// Others use the boards, or nobody knows yet whether there are any.
    Queued,
    OneStep(OneStep),
    Boards(OnBoards),
    Messages(Box<Running>),
    Over,
}

/// Why what a stage needs is there.
const WITH_TURN: &str = "what is queued has a turn";
const WITH_ARGUMENTS: &str = "the arguments are where the stage is";
const WITH_BOARDS: &str = "a turn at boards comes where there are some";

impl Background {
    /// A start with a turn at the boards of `comm`; of an operation that has begun there already if `step` is given.
    pub fn at_boards(
        comm: &Arc<Comm>,
        turn: Turn,
        step: Option<OneStep>,
        arguments: Arguments,
        tag: i32,
        call: &'static str,
    ) -> Background {
        let stage = step.map_or(Stage::Queued, Stage::OneStep);
        Background { comm: Arc::clone(comm), turn: Some(turn), arguments: Some(arguments), tag, call, stage }
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
        let stage = Stage::messages(world, comm, schedule, &arguments, tag)?;
        Ok(Background { comm: Arc::clone(comm), turn: None, arguments: Some(arguments), tag, call, stage })
    }

    /// Its turn has come, and there are boards.
    fn begin(&mut self) {
        let arguments = self.arguments.take().expect(WITH_ARGUMENTS);
        let plan = Plan::of(&self.comm, &arguments).expect(ONE_FOR_BOARDS);
        self.stage = match OneStep::of(&self.comm, plan) {
            Some(step) => {
                self.arguments = Some(arguments);
                Stage::OneStep(step)
            }
            None => Stage::Boards(OnBoards::new(&self.comm, arguments)),
        };
    }

    /// Goes on with messages.
    fn leave_boards(&mut self, world: &World) -> Result<()> {
        self.end_turn();
        let arguments = self.arguments.as_ref().expect(WITH_ARGUMENTS);
        let schedule = schedule_of(&self.comm, arguments)?;
        self.stage = Stage::messages(world, &self.comm, schedule, arguments, self.tag)?;
        Ok(())
    }

    fn end_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.comm.end_turn(&turn);
        }
    }

    fn go_on(&mut self, world: &World) -> Poll<Result<()>> {
        loop {
            match &mut self.stage {
                Stage::Queued => {
                    let turn = self.turn.as_mut().expect(WITH_TURN);
                    let has_boards = match self.comm.poll_turn(turn, world) {
                        Poll::Ready(has_boards) => has_boards,
                        Poll::Pending => break,
                    };
                    // Those who were in an operation when a member was lost may have left it at different steps.
                    if let Some(error) = world.lost_among(&self.comm) {
                        return Poll::Ready(Err(error));
                    }
                    if has_boards {
                        self.begin();
                    } else {
                        self.leave_boards(world)?;
                    }
                }
                Stage::OneStep(step) => {
                    let group = self.comm.queued_boards().expect(WITH_BOARDS);
                    let arguments = self.arguments.as_ref().expect(WITH_ARGUMENTS);
                    let plan = || Plan::of(&self.comm, arguments).expect(ONE_FOR_BOARDS);
                    match step.advance(world, &self.comm, group, arguments, plan) {
                        Advance::Pending => break,
                        Advance::Over(outcome) => return Poll::Ready(outcome),
                        Advance::Otherwise => {
                            let arguments = self.arguments.take().expect(WITH_ARGUMENTS);
                            self.stage = Stage::Boards(OnBoards::new(&self.comm, arguments));
                        }
                    }
                }
                Stage::Boards(steps) => match steps.advance(world, &self.comm) {
                    Poll::Ready(Ok(Some(arguments))) => {
                        self.arguments = Some(*arguments);
                        self.leave_boards(world)?;
                    }
                    Poll::Ready(outcome) => {
                        world.engine.borrow_mut().count_board_collective();
                        return Poll::Ready(outcome.map(|_| ()));
                    }
                    Poll::Pending => break,
                },
                Stage::Messages(running) => {
                    let arguments = self.arguments.as_ref().expect(WITH_ARGUMENTS);
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

impl Stage {
    fn messages(world: &World, comm: &Comm, schedule: Arc<Schedule>, arguments: &Arguments, tag: i32) -> Result<Stage> {
        Ok(Stage::Messages(Box::new(Running::new(world, comm, schedule, arguments, tag)?)))
    }
}

impl Operation for Background {
    fn advance(&mut self, world: &World) -> Poll<Result<()>> {
        let outcome = self.go_on(world);
        if outcome.is_ready() {
            self.stage = Stage::Over;
            // However it ended, those behind it go on.
            self.end_turn();
        }
        outcome
    }

    fn waits_closely(&self) -> bool {
        matches!(self.stage, Stage::OneStep(_))
    }
}
