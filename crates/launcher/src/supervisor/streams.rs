//! Standard input and output between us and the ranks.

use std::io::Write as _;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::{INPUT_PAUSE, OWN_STREAM, PROMPT_DELAY, Source, Supervisor};
use crate::sink::Flush;
use crate::stdin::Next;

impl Supervisor<'_> {
    pub(super) fn read_terminal(&mut self) {
        let next = self.input.as_mut().map_or(Next::Over, |input| input.read(rustix::stdio::stdin()));
        self.watch_input(next);
    }

    pub(super) fn watch_input(&mut self, next: Next) {
        self.input_at = None;
        let Some(input) = &self.input else { return };
        // Neither needs to be registered already, so that a refusal means nothing.
        let _ = epoll::delete(&self.epoll, rustix::stdio::stdin());
        let _ = epoll::delete(&self.epoll, input.pipe());
        let watched = match next {
            Next::Terminal => epoll::add(&self.epoll, rustix::stdio::stdin(), Source::Terminal.data(), EventFlags::IN),
            Next::Pipe => epoll::add(&self.epoll, input.pipe(), Source::InputPipe.data(), EventFlags::OUT),
            Next::Nothing => {
                self.input_at = Some(Instant::now() + INPUT_PAUSE);
                Ok(())
            }
            Next::Over => Err(Errno::PIPE),
        };
        if watched.is_err() {
            self.input = None;
        }
    }

    /// Reads what a stream has to offer. At the end of the job, when nobody is left to write, a stream
    /// that has nothing more is closed.
    pub(super) fn read_stream(&mut self, rank: u32, which: u32, at_the_end: bool) {
        let index = self.output_index(which);
        let id = self.stream_id(rank, which);
        loop {
            let Some(stream) = self.ranks.get(rank as usize).and_then(|rank| rank.streams[which as usize].as_ref())
            else {
                return;
            };
            let output = &mut self.outputs[index];
            if at_the_end && output.sink.is_full() {
                return;
            }
            self.scratch.clear();
            let over = match rustix::io::read(stream, spare_capacity(&mut self.scratch)) {
                Ok(0) => true,
                Ok(_) => {
                    output.merger.feed(id, &self.scratch, output.sink.queue());
                    self.flush(index);
                    false
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) if !at_the_end => return,
                Err(_) => true,
            };
            if over {
                // Closing takes it out of the epoll.
                self.ranks[rank as usize].streams[which as usize] = None;
                let shared = self.outputs.len() == 1 && self.ranks[rank as usize].streams.iter().any(Option::is_some);
                let output = &mut self.outputs[index];
                if !(shared && self.plan.rank_count == 1) {
                    output.merger.finish(id, output.sink.queue());
                }
                self.flush(index);
                return;
            }
            let output = &self.outputs[index];
            if output.sink.is_terminal && output.merger.has_unfinished() {
                self.prompt_at.get_or_insert_with(|| Instant::now() + PROMPT_DELAY);
            }
            if self.scratch.len() < self.scratch.capacity() && !at_the_end && self.ranks[rank as usize].ended.is_none()
            {
                return;
            }
            if output.paused && !at_the_end {
                return;
            }
        }
    }

    pub(super) fn flush(&mut self, index: usize) {
        let flushed = self.outputs[index].sink.flush();
        let output = &mut self.outputs[index];
        match flushed {
            Flush::Blocked if self.hurry => output.sink.discard(),
            Flush::Blocked if !output.sink.watched => {
                let data = Source::Sink(u32::from(index != 0)).data();
                output.sink.watched = epoll::add(&self.epoll, &output.sink, data, EventFlags::OUT).is_ok();
            }
            Flush::Done if output.sink.watched => {
                output.sink.watched = false;
                // It is registered, as noted.
                let _ = epoll::delete(&self.epoll, &output.sink);
            }
            Flush::Failed(errno) if index == 0 => {
                let gone = errno == Errno::PIPE;
                let why = format!("cannot write to the standard output: {errno}");
                self.fail(if gone { 141 } else { 1 }, (!gone).then_some(why.as_str()));
            }
            _ => {}
        }
        self.hold_back(index);
    }

    /// Reads no more from the ranks while our reader is slow, and again when it has caught up.
    pub(super) fn hold_back(&mut self, index: usize) {
        let output = &mut self.outputs[index];
        let pause = output.sink.is_full();
        if pause == output.paused {
            return;
        }
        output.paused = pause;
        for which in (0..2).filter(|which| self.output_index(*which) == index) {
            for (rank, entry) in (0..).zip(&self.ranks) {
                let Some(stream) = &entry.streams[which as usize] else { continue };
                // Whether it was registered is what `paused` says.
                let _ = match pause {
                    true => epoll::delete(&self.epoll, stream),
                    false => epoll::add(&self.epoll, stream, Source::Stream { rank, which }.data(), EventFlags::IN),
                };
            }
        }
    }

    /// Writes a line of our own to the standard error.
    pub(super) fn say(&mut self, text: &str) {
        let index = self.output_index(1);
        let mut line = Vec::new();
        // Writing to memory does not fail.
        let _ = writeln!(line, "mpiexec: {text}");
        let output = &mut self.outputs[index];
        output.merger.feed(OWN_STREAM, &line, output.sink.queue());
        self.flush(index);
    }
}
