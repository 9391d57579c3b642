//! Signals, deaths and the judgement over them.

use std::time::Instant;

use pmi::Phase;
use rustix::process::{Signal, WaitOptions, kill_process, kill_process_group};

use super::{ABANDONED_GRACE, Abandoned, Ending, SIGNALS, Supervisor};
use crate::death::End;
use crate::stdin::Next;
use crate::tree;

impl Supervisor<'_> {
    pub(super) fn take_signals(&mut self) {
        /// Size of the kernel's record, whose first four bytes are the signal's number.
        const RECORD_BYTES: usize = 128;
        let mut records = [0; RECORD_BYTES * 16];
        while let Ok(count) = rustix::io::read(&self.signals, &mut records) {
            for record in records[..count].chunks_exact(RECORD_BYTES) {
                let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                if let Some(signal) = SIGNALS.into_iter().find(|signal| signal.as_raw() == number) {
                    self.take_signal(signal);
                }
            }
        }
    }

    pub(super) fn take_signal(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => self.reap(),
            Signal::TTIN | Signal::TTOU => {}
            Signal::TSTP => {
                self.signal_ranks(signal);
                // Stop as the shell expects; SIGCONT brings us back to this line.
                let _ = kill_process(rustix::process::getpid(), Signal::STOP);
            }
            Signal::CONT => {
                self.signal_ranks(signal);
                if self.input.is_some() {
                    self.watch_input(Next::Terminal);
                }
            }
            _ => {
                let ends = matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT);
                self.interrupt_count += u32::from(ends);
                self.passed_on.push(signal);
                self.passed_on.truncate(64);
                if ends && self.interrupt_count > 1 {
                    self.hurry = true;
                    self.fail(End::Killed { signal: signal.as_raw(), dumped: false }.code(), None);
                    self.kill_all();
                } else {
                    self.signal_ranks(signal);
                }
            }
        }
    }

    pub(super) fn signal_ranks(&self, signal: Signal) {
        for rank in self.ranks.iter().filter(|rank| rank.ended.is_none()) {
            // A rank that ended since has no group any more.
            let _ = kill_process_group(rank.pid, signal);
        }
    }

    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let rank = self.ranks.iter().position(|rank| rank.pid == pid && rank.ended.is_none());
            if let Some(rank) = rank.and_then(|rank| u32::try_from(rank).ok()) {
                self.rank_ended(rank, End::of(status));
            }
        }
    }

    pub(super) fn rank_ended(&mut self, rank: u32, end: End) {
        // Its last words come before ours about it, and its goodbye before the judgement.
        self.read_pmi(rank);
        self.read_stream(rank, 0, false);
        self.read_stream(rank, 1, false);
        self.ranks[rank as usize].ended = Some(end);
        self.ranks[rank as usize].pmi = None;
        if self.plan.stdin_rank == Some(rank) {
            self.watch_input(Next::Over);
        }
        if let Some(ending) = &self.ending {
            let ours = |signal: i32| {
                signal == Signal::TERM.as_raw()
                    || signal == Signal::PIPE.as_raw()
                    || (ending.killed && signal == Signal::KILL.as_raw())
            };
            if matches!(end, End::Killed { signal, .. } if !ours(signal)) {
                self.also_failed += 1;
            }
        } else {
            self.judge(rank, end);
        }
        if self.ranks.iter().all(|rank| rank.ended.is_some()) && self.also_failed > 0 && self.interrupt_count == 0 {
            let count = std::mem::take(&mut self.also_failed);
            let others = if count == 1 { "one more rank was".to_owned() } else { format!("{count} more ranks were") };
            self.say(&format!("{others} killed by a signal at the same time"));
        }
    }

    pub(super) fn judge(&mut self, rank: u32, end: End) {
        let phase = self.server.phase(rank).unwrap_or(Phase::Fresh);
        match end {
            End::Exit(0) if phase == Phase::Initialised => {
                let at = Instant::now() + ABANDONED_GRACE;
                if self.abandoned.is_none() && self.ranks.iter().any(|rank| rank.ended.is_none()) {
                    self.abandoned = Some(Abandoned { at, by: rank });
                } else if self.ranks.iter().all(|rank| rank.ended.is_some()) {
                    let by = self.abandoned.take().map_or(rank, |abandoned| abandoned.by);
                    let text = format!("{} exited without calling MPI_Finalize", self.name(by));
                    self.say(&text);
                }
                self.check_barrier();
            }
            End::Exit(0) => self.check_barrier(),
            // It has said goodbye, so nobody waits for it: the others may end in peace.
            End::Exit(code) if phase == Phase::Finalised => {
                if self.verdict.is_none() {
                    self.verdict = Some(code);
                    let text = format!("{} {} after MPI_Finalize", self.name(rank), end.describe(false));
                    self.say(&text);
                }
                self.check_barrier();
            }
            _ => {
                let expected = match end {
                    End::Killed { signal, .. } => self.passed_on.iter().any(|passed| passed.as_raw() == signal),
                    End::Exit(_) => self.interrupt_count > 0,
                };
                let hint = if matches!(end, End::Exit(_)) && phase == Phase::Initialised {
                    " without calling MPI_Finalize"
                } else {
                    ""
                };
                let text = format!("{} {}{hint}", self.name(rank), end.describe(self.oom.struck()));
                self.fail(end.code(), (!expected).then_some(text.as_str()));
            }
        }
    }

    /// A barrier that a rank can never enter any more will never open.
    pub(super) fn check_barrier(&mut self) {
        if self.ending.is_some() {
            return;
        }
        let Some(waiting) =
            self.server.waiting().find(|rank| self.ranks.get(*rank as usize).is_some_and(|rank| rank.ended.is_none()))
        else {
            return;
        };
        let ended = (0..).zip(&self.ranks).find_map(|(number, rank)| rank.ended.map(|end| (number, end)));
        if let Some((rank, end)) = ended {
            let when = match self.server.phase(rank) {
                Some(Phase::Fresh) | None => "without calling MPI_Init",
                Some(Phase::Initialised) => "without calling MPI_Finalize",
                Some(Phase::Finalised) => "after MPI_Finalize",
            };
            let text = format!("{} {} {when} while rank {waiting} waits for it", self.name(rank), end.describe(false));
            self.fail(end.code().max(1), Some(&text));
        }
    }

    /// Notes the first failure, says why, and begins to end the job.
    pub(super) fn fail(&mut self, code: u8, why: Option<&str>) {
        if self.ending.is_some() {
            return;
        }
        self.verdict.get_or_insert(code);
        if let Some(why) = why {
            self.say(why);
        }
        self.ending = Some(Ending { kill_at: Instant::now() + self.plan.grace, sweep_count: 0, killed: false });
        self.signal_ranks(Signal::TERM);
        // What is stopped must wake to end.
        self.signal_ranks(Signal::CONT);
    }

    pub(super) fn kill_all(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.killed = true;
        }
        self.signal_ranks(Signal::KILL);
        for pid in tree::descendants(Some(self.guard.pid())) {
            // It may have ended since.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
