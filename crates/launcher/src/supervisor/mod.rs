//! The life of a job: one thread, one epoll, until nothing of the job is left.
//!
//! ```text
//!   starting ──▶ running ──▶ all ranks have ended ──▶ nothing descends from us ──▶ output is out ──▶ end
//!                   │ a rank fails, aborts; timeout; second Ctrl-C      ▲
//!                   └──▶ ending: SIGTERM ── grace ──▶ SIGKILL ──────────┘
//! ```

mod endings;
mod streams;
mod wire;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use pmi::{Job, Server};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

use crate::death::{End, OomCounter};
use crate::guard::Guard;
use crate::job::Plan;
use crate::output::Merger;
use crate::sink::Sink;
use crate::spawn::{self, Before, RankInput, Started};
use crate::stdin::{Input, Next};
use crate::{LaunchError, sys, tree};

/// Signals that are ours to handle; those not named below are passed on to the ranks.
const SIGNALS: [Signal; 11] = [
    Signal::CHILD,
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
    Signal::TTIN,
    Signal::TTOU,
];
/// How long ranks may go on after one of them left without MPI_Finalize.
const ABANDONED_GRACE: Duration = Duration::from_secs(1);
/// How long an unfinished line on a terminal is held back.
const PROMPT_DELAY: Duration = Duration::from_millis(50);
/// How often a terminal is tried again that we may not read because we are in the background.
const INPUT_PAUSE: Duration = Duration::from_secs(1);
/// How often descendants that were killed are looked for again, and how many times.
const SWEEP_PAUSE: Duration = Duration::from_millis(5);
const SWEEP_COUNT_MAX: u32 = 400;
/// Exit code after --timeout, as of timeout(1).
const TIMEOUT_CODE: u8 = 124;

/// Our own stream among the ranks' in the merged standard error.
const OWN_STREAM: u32 = u32::MAX;

/// Runs the job to its end and returns our exit code.
pub(crate) fn run(plan: &Plan) -> Result<u8, LaunchError> {
    let open_files = spawn::raise_open_files(plan.rank_count)?;
    let (signals, signal_mask) =
        sys::signals_as_descriptor(&SIGNALS).map_err(|error| LaunchError::system("cannot watch signals", error))?;
    // Without it, what ranks leave behind is found by the guard only.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let guard = Guard::start(&plan.name)?;
    let mut supervisor = Supervisor::new(plan, signals, guard)?;
    supervisor.start_ranks(&Before { open_files, signal_mask });
    supervisor.watch();
    Ok(supervisor.verdict.unwrap_or(0))
}

struct Supervisor<'a> {
    plan: &'a Plan,
    epoll: OwnedFd,
    signals: OwnedFd,
    guard: Guard,
    server: Server,
    ranks: Vec<Rank>,
    /// One for standard output, one for standard error; a single one if both lead to the same place.
    outputs: Vec<Output>,
    input: Option<Input>,
    oom: OomCounter,
    /// Exit code of the first failure.
    verdict: Option<u8>,
    ending: Option<Ending>,
    also_failed: u32,
    timeout_at: Option<Instant>,
    abandoned: Option<Abandoned>,
    prompt_at: Option<Instant>,
    input_at: Option<Instant>,
    interrupt_count: u32,
    passed_on: Vec<Signal>,
    nothing_left: bool,
    hurry: bool,
    scratch: Vec<u8>,
}

struct Rank {
    pid: Pid,
    program: String,
    streams: [Option<OwnedFd>; 2],
    pmi: Option<OwnedFd>,
    replies: Vec<u8>,
    ended: Option<End>,
}

struct Output {
    merger: Merger,
    sink: Sink,
    paused: bool,
}

struct Ending {
    kill_at: Instant,
    sweep_count: u32,
    killed: bool,
}

struct Abandoned {
    at: Instant,
    by: u32,
}

/// Who an event of the epoll is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Signals,
    Terminal,
    InputPipe,
    Sink(u32),
    Stream { rank: u32, which: u32 },
    Pmi(u32),
}

impl Source {
    fn data(self) -> EventData {
        let (kind, value) = match self {
            Self::Signals => (0, 0),
            Self::Terminal => (1, 0),
            Self::InputPipe => (2, 0),
            Self::Sink(index) => (3, index),
            Self::Stream { rank, which } => (4 + u64::from(which), rank),
            Self::Pmi(rank) => (6, rank),
        };
        EventData::new_u64(kind << 32 | u64::from(value))
    }

    fn of(data: EventData) -> Option<Self> {
        let bits = data.u64();
        let value = u32::try_from(bits & u64::from(u32::MAX)).ok()?;
        Some(match bits >> 32 {
            0 => Self::Signals,
            1 => Self::Terminal,
            2 => Self::InputPipe,
            3 => Self::Sink(value),
            4 => Self::Stream { rank: value, which: 0 },
            5 => Self::Stream { rank: value, which: 1 },
            6 => Self::Pmi(value),
            _ => return None,
        })
    }
}

impl<'a> Supervisor<'a> {
    fn new(plan: &'a Plan, signals: OwnedFd, guard: Guard) -> Result<Self, LaunchError> {
        let failed = |doing: &'static str| move |errno: Errno| LaunchError::system(doing, errno);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("cannot watch descriptors"))?;
        epoll::add(&epoll, &signals, Source::Signals.data(), EventFlags::IN).map_err(failed("cannot watch signals"))?;
        let output = |sink| Output { merger: Merger::default(), sink, paused: false };
        let (stdout, stderr) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        let mut outputs = vec![output(Sink::new(stdout).map_err(failed("cannot use the standard output"))?)];
        if !same_file(stdout, stderr) {
            outputs.push(output(Sink::new(stderr).map_err(failed("cannot use the standard error"))?));
        }
        let mut supervisor = Self {
            plan,
            epoll,
            signals,
            guard,
            server: Server::new(Job::on_one_node(&plan.name, &plan.appnums())),
            ranks: Vec::new(),
            outputs,
            input: None,
            oom: OomCounter::start(),
            verdict: None,
            ending: None,
            also_failed: 0,
            timeout_at: plan.timeout.map(|timeout| Instant::now() + timeout),
            abandoned: None,
            prompt_at: None,
            input_at: None,
            interrupt_count: 0,
            passed_on: Vec::new(),
            nothing_left: false,
            hurry: false,
            scratch: Vec::with_capacity(1 << 16),
        };
        supervisor.output_of(1).merger.add(OWN_STREAM, b"");
        Ok(supervisor)
    }

    // Starting

    fn start_ranks(&mut self, before: &Before) {
        let plan = self.plan;
        let appnums = plan.appnums();
        for (rank, appnum) in (0..).zip(appnums) {
            let program = &plan.programs[appnum as usize];
            let started = self
                .input_for(rank)
                .and_then(|input| spawn::start(plan, program, rank, appnum, input, before))
                .and_then(|started| self.adopt(rank, program.shown(), started));
            if let Err(error) = started {
                self.fail(1, Some(&error.to_string()));
                return;
            }
            if plan.verbose {
                let pid = self.ranks[rank as usize].pid;
                let words: Vec<_> = program.args.iter().map(|word| word.to_string_lossy()).collect();
                self.say(&format!("rank {rank}: pid {pid}: {}", words.join(" ")));
            }
        }
    }

    fn input_for(&mut self, rank: u32) -> Result<RankInput, LaunchError> {
        if self.plan.stdin_rank != Some(rank) {
            return Ok(RankInput::Empty);
        }
        if !rustix::termios::isatty(rustix::stdio::stdin()) {
            return Ok(RankInput::Ours);
        }
        let failed = |errno: Errno| LaunchError::system("cannot pass on the standard input", errno);
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(failed)?;
        self.input = Some(Input::new(ours));
        self.watch_input(Next::Terminal);
        Ok(RankInput::Pipe(theirs))
    }

    fn adopt(&mut self, rank: u32, program: String, started: Started) -> Result<(), LaunchError> {
        let failed = |errno: Errno| LaunchError::system(format!("cannot watch rank {rank}"), errno);
        let Started { pid, stdout, stderr, pmi } = started;
        let alone = self.plan.rank_count == 1 && !self.plan.tag_output;
        let tag = if self.plan.tag_output { format!("[{rank}] ") } else { String::new() };
        for which in 0..2 {
            let id = self.stream_id(rank, which);
            let merger = &mut self.output_of(which).merger;
            if alone {
                merger.add_alone(id);
            } else {
                merger.add(id, tag.as_bytes());
            }
        }
        let rank_entry = Rank {
            pid,
            program,
            streams: [Some(stdout), Some(stderr)],
            pmi: Some(pmi),
            replies: Vec::new(),
            ended: None,
        };
        self.ranks.push(rank_entry);
        let entry = &self.ranks[rank as usize];
        for (which, stream) in (0..).zip(&entry.streams) {
            if let Some(stream) = stream {
                epoll::add(&self.epoll, stream, Source::Stream { rank, which }.data(), EventFlags::IN)
                    .map_err(failed)?;
            }
        }
        if let Some(pmi) = &entry.pmi {
            epoll::add(&self.epoll, pmi, Source::Pmi(rank).data(), EventFlags::IN).map_err(failed)?;
        }
        Ok(())
    }

    // The loop

    fn watch(&mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        loop {
            if self.ranks.iter().all(|rank| rank.ended.is_some()) && self.is_over() {
                return;
            }
            let wait = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
            // A moment more, so that the deadline is past when we wake.
            let wait = wait.and_then(|wait| Timespec::try_from(wait + Duration::from_micros(100)).ok());
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    // The loop cannot go on; the guard ends what is left once we are gone.
                    self.fail(1, Some(&format!("cannot wait for the ranks: {errno}")));
                    return;
                }
            }
            for event in &events {
                let (flags, data) = (event.flags, event.data);
                match Source::of(data) {
                    Some(Source::Signals) => self.take_signals(),
                    Some(Source::Terminal) => self.read_terminal(),
                    Some(Source::InputPipe) => {
                        let next = self.input.as_mut().map_or(Next::Over, Input::write);
                        self.watch_input(next);
                    }
                    Some(Source::Sink(index)) => self.flush(index as usize),
                    Some(Source::Stream { rank, which }) => self.read_stream(rank, which, false),
                    Some(Source::Pmi(rank)) => {
                        if flags.contains(EventFlags::OUT) {
                            self.send_replies(rank);
                        }
                        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                            self.read_pmi(rank);
                        }
                    }
                    None => {}
                }
            }
            self.take_deadlines();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let ending = self
            .ending
            .as_ref()
            .map(|ending| if ending.killed { Instant::now() + SWEEP_PAUSE } else { ending.kill_at });
        let running = if self.ending.is_none() {
            [self.timeout_at, self.abandoned.as_ref().map(|abandoned| abandoned.at)]
        } else {
            [None; 2]
        };
        [ending, self.prompt_at, self.input_at].into_iter().chain(running).flatten().min()
    }

    fn take_deadlines(&mut self) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.input_at) {
            self.watch_input(Next::Terminal);
        }
        if due(self.prompt_at) {
            self.prompt_at = None;
            for index in 0..self.outputs.len() {
                let output = &mut self.outputs[index];
                if output.sink.is_terminal {
                    output.merger.flush(output.sink.queue());
                    self.flush(index);
                }
            }
        }
        if self.ending.is_none() && due(self.timeout_at) {
            let seconds = self.plan.timeout.unwrap_or_default().as_secs_f64();
            self.fail(
                TIMEOUT_CODE,
                Some(&format!("the job was still running after {seconds} s (--timeout); it is ended")),
            );
        }
        if self.ending.is_none()
            && let Some(abandoned) = self.abandoned.take_if(|abandoned| abandoned.at <= now)
        {
            let text = format!(
                "{} exited without calling MPI_Finalize while others went on; they are ended",
                self.name(abandoned.by)
            );
            self.fail(1, Some(&text));
        }
        if self.ending.as_ref().is_some_and(|ending| !ending.killed && ending.kill_at <= now) {
            self.kill_all();
        }
    }

    /// Called once all ranks have ended: true if nothing of the job is left and all output is out.
    fn is_over(&mut self) -> bool {
        if !self.nothing_left {
            let left = tree::descendants(Some(self.guard.pid()));
            let given_up = self.ending.as_ref().is_some_and(|ending| ending.sweep_count > SWEEP_COUNT_MAX);
            if left.is_empty() || given_up {
                self.nothing_left = true;
            } else {
                let grace = self.plan.grace;
                let ending = self.ending.get_or_insert_with(|| Ending {
                    kill_at: Instant::now() + grace,
                    sweep_count: 0,
                    killed: false,
                });
                ending.sweep_count += u32::from(ending.killed);
                let signal = if ending.killed { Signal::KILL } else { Signal::TERM };
                for pid in left {
                    // It may have ended since.
                    let _ = kill_process(pid, signal);
                }
                return false;
            }
        }
        for rank in 0..u32::try_from(self.ranks.len()).unwrap_or(u32::MAX) {
            for which in 0..2 {
                self.read_stream(rank, which, true);
            }
        }
        self.outputs.iter().all(|output| output.sink.is_empty())
            && self.ranks.iter().all(|rank| rank.streams.iter().all(Option::is_none))
    }

    // Names

    fn name(&self, rank: u32) -> String {
        match self.ranks.get(rank as usize) {
            Some(entry) => format!("rank {rank} (pid {}, {})", entry.pid, entry.program),
            None => format!("rank {rank}"),
        }
    }

    fn output_index(&self, which: u32) -> usize {
        (which as usize).min(self.outputs.len() - 1)
    }

    fn output_of(&mut self, which: u32) -> &mut Output {
        let index = self.output_index(which);
        &mut self.outputs[index]
    }

    /// A rank that is alone speaks through one stream wherever its two lead to one place.
    fn stream_id(&self, rank: u32, which: u32) -> u32 {
        if self.plan.rank_count == 1 && self.outputs.len() == 1 { 0 } else { rank * 2 + which }
    }
}

fn same_file(one: impl AsFd, other: impl AsFd) -> bool {
    match (rustix::fs::fstat(one), rustix::fs::fstat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_survive_the_kernel() {
        let all = [
            Source::Signals,
            Source::Terminal,
            Source::InputPipe,
            Source::Sink(1),
            Source::Stream { rank: 65_535, which: 0 },
            Source::Stream { rank: 3, which: 1 },
            Source::Pmi(u32::MAX),
        ];
        for source in all {
            assert_eq!(Source::of(source.data()), Some(source));
        }
        assert_eq!(Source::of(EventData::new_u64(u64::MAX)), None);
    }
}
