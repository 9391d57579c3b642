//! The ends that are not measured: what each does again and again, in a thread or in a process of its own.
//!
//! ```text
//!   orders:   steps N …          finish: check what came, of so many messages
//!   answers:                     finished: so many sent, so many taken     or why not
//! ```

use super::end::End;
use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::process::Process;
use super::turns::Turn;

/// Empty polls of an end that only helps, before the processor is offered to others.
const POLLS: u32 = 100;

/// What a helper does in each step.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Role {
    /// Nothing but polling.
    Help,
    /// Sends a message back for each that comes.
    Answer,
    /// Sends a message and waits for one.
    Exchange,
    /// Takes so many messages.
    Take(u64),
    /// Streams half a window, as the measured end does, and takes as many.
    Stream {
        /// Half of the window.
        half: u64,
        /// Microseconds of computing in each.
        compute_us: u64,
    },
}

impl Role {
    /// One step.
    ///
    /// # Errors
    /// If the device refuses something, or what must come does not come.
    pub fn step(self, end: &mut End) -> Result<()> {
        match self {
            Self::Help => Ok(()),
            Self::Answer => {
                end.arrive()?;
                end.send()
            }
            Self::Exchange => {
                end.send()?;
                end.arrive()
            }
            Self::Take(count) => (0..count).try_for_each(|_| end.arrive()),
            Self::Stream { half, compute_us } => {
                stream(end, half, || spin(Duration::from_micros(compute_us)))?;
                (0..half).try_for_each(|_| end.arrive())
            }
        }
    }
}

/// Uses the processor for so long.
pub fn spin(time: Duration) {
    let until = Instant::now() + time;
    while !time.is_zero() && Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Posts half a window, computes, and waits until no more than half a window is under way. Paper: miba §2.2.2.
///
/// # Errors
/// If the device refuses something, or what must complete does not.
pub fn stream(end: &mut End, half: u64, compute: impl Fn()) -> Result<()> {
    for _ in 0..half {
        end.send()?;
    }
    compute();
    end.drain(half)
}

/// What a helper is told.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Order {
    /// So many steps.
    Steps(u64),
    /// No more; check what came, of so many messages, and tell.
    Finish(u64),
}

/// How a helper ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Answer {
    /// What it got was right; so many messages it sent itself.
    Finished(u64),
    /// Why it went no further.
    Failed(String),
}

/// Does as many steps as ordered, and helps the others by polling in between, until there will be no more orders.
pub fn serve(end: &mut End, role: Role, orders: &Receiver<Order>) -> Answer {
    match served(end, role, orders) {
        Ok(sent) => Answer::Finished(sent),
        Err(error) => Answer::Failed(format!("{error:#}")),
    }
}

fn served(end: &mut End, role: Role, orders: &Receiver<Order>) -> Result<u64> {
    let mut empty = 0_u32;
    loop {
        match orders.try_recv() {
            Ok(Order::Steps(count)) => (0..count).try_for_each(|_| role.step(end))?,
            Ok(Order::Finish(sent)) => {
                end.drain(0)?;
                if !end.reads() {
                    end.check(sent)?;
                }
                return Ok(end.counts().0);
            }
            Err(TryRecvError::Empty) => {
                empty = if end.progress()? > 0 { 0 } else { empty + 1 };
                if empty > 0 && empty.is_multiple_of(POLLS) {
                    std::thread::yield_now();
                }
            }
            Err(TryRecvError::Disconnected) => bail!("the measured end has gone"),
        }
    }
}

/// A helper and the way to it.
pub enum Helper {
    /// A thread of this process.
    Thread {
        /// Where orders go.
        orders: Sender<Order>,
        /// What comes of it.
        thread: JoinHandle<Result<Answer>>,
    },
    /// A process of its own.
    Process(Process),
}

impl Helper {
    /// A thread that drives `end`; with turns, it polls when it is its turn.
    pub fn thread(mut end: End, role: Role, turn: Option<Turn>) -> Self {
        let (orders, ordered) = channel();
        let thread = std::thread::spawn(move || {
            if let Some(mut turn) = turn {
                turn.wait();
                end.take_turns(turn);
            }
            Ok(serve(&mut end, role, &ordered))
        });
        Self::Thread { orders, thread }
    }

    /// Tells it something.
    ///
    /// # Errors
    /// If it has gone.
    pub fn tell(&mut self, order: Order) -> Result<()> {
        match self {
            Self::Thread { orders, .. } => orders.send(order).map_err(|_| anyhow!("the other end has failed")),
            Self::Process(process) => process.tell(&order),
        }
    }

    /// How it ended, waited for while `poll` is done again and again; it must have been told to finish, or have failed.
    /// Returns the messages that it sent.
    ///
    /// # Errors
    /// Why it went no further.
    pub fn end_while(self, mut poll: impl FnMut() -> Result<()>) -> Result<u64> {
        let mut wait = |thread: &JoinHandle<Result<Answer>>| {
            while !thread.is_finished() {
                // What is wrong with the measured end is known already, or does not matter any more.
                let _ = poll();
                std::thread::yield_now();
            }
        };
        let thread = match self {
            Self::Thread { orders, thread } => {
                drop(orders);
                thread
            }
            Self::Process(process) => std::thread::spawn(|| process.end()),
        };
        wait(&thread);
        let answer = thread.join().map_err(|_| anyhow!("the thread of the other end panicked"))??;
        match answer {
            Answer::Finished(sent) => Ok(sent),
            Answer::Failed(why) => Err(anyhow!(why).context("the other end")),
        }
    }
}
