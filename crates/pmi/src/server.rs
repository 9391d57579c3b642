//! The launcher's side of the wire, for the ranks of one job on one machine: bytes in, events out.

use std::collections::HashMap;

use crate::mapping::ProcessMapping;
use crate::message::{Message, is_word};
use crate::{LineBuffer, PmiError};

/// Longest key in bytes.
const KEY_BYTES_MAX: usize = 256;
/// Longest value in bytes; what MPICH's own launcher offers.
const VALUE_BYTES_MAX: usize = 1024;
/// All keys and values together.
const STORE_BYTES_MAX: usize = 256 << 20;
/// Lines of one spawn request.
const SPAWN_LINE_COUNT_MAX: usize = 1 << 16;

/// What the server must know about the job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Unique name, one word.
    pub name: String,
    /// For each rank, which of the command line's programs it runs.
    pub appnums: Vec<u32>,
    /// Processes there could be at most.
    pub universe_size: u32,
    /// Which rank lives where.
    pub mapping: ProcessMapping,
}

impl Job {
    /// A job whose ranks all live on this machine; `appnums` has one entry a rank.
    pub fn on_one_node(name: &str, appnums: &[u32]) -> Self {
        let rank_count = u32::try_from(appnums.len()).unwrap_or(u32::MAX);
        Self {
            name: name.to_owned(),
            appnums: appnums.to_vec(),
            universe_size: rank_count,
            mapping: ProcessMapping::one_node(rank_count),
        }
    }
}

/// What the owner of the sockets must do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Send the line, newline included, to the rank.
    Reply {
        /// The addressee.
        rank: u32,
        /// The line.
        line: String,
    },
    /// The rank wants the whole job ended.
    Abort {
        /// Who asked.
        rank: u32,
        /// Exit code of the job.
        code: i32,
        /// The rank's words; may be empty.
        message: String,
    },
}

/// How far a rank has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has not greeted us.
    Fresh,
    /// Between its greeting and its goodbye.
    Initialised,
    /// It said goodbye; it may greet again (a shell that runs two programs in a row).
    Finalised,
}

/// A rank broke the protocol; it cannot be talked to any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The rank's bytes are no messages.
    #[error("rank {rank} broke the launcher's protocol: {source}")]
    Garbled {
        /// The rank.
        rank: u32,
        /// What is wrong.
        source: PmiError,
    },
    /// No such rank.
    #[error("there is no rank {rank} in this job")]
    NoRank {
        /// The number.
        rank: u32,
    },
}

/// The state of one job.
#[derive(Debug)]
pub struct Server {
    job: Job,
    ranks: Vec<RankState>,
    waiting_count: usize,
    store: HashMap<String, String>,
    store_bytes: usize,
    services: HashMap<String, String>,
}

#[derive(Debug)]
struct RankState {
    received: LineBuffer,
    phase: Phase,
    in_barrier: bool,
    spawn_lines: Option<usize>,
}

impl Server {
    /// A server for the job; nobody has greeted it yet.
    pub fn new(job: Job) -> Self {
        let fresh =
            || RankState { received: LineBuffer::new(), phase: Phase::Fresh, in_barrier: false, spawn_lines: None };
        let ranks = job.appnums.iter().map(|_| fresh()).collect();
        let mapping = job.mapping.to_string();
        let store = HashMap::from([("PMI_process_mapping".to_owned(), mapping)]);
        Self { job, ranks, waiting_count: 0, store, store_bytes: 0, services: HashMap::new() }
    }

    /// Takes bytes that a rank has sent and appends what must be done about them.
    ///
    /// # Errors
    /// The rank does not speak the protocol; ignore it from now on.
    pub fn receive(&mut self, rank: u32, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), ServerError> {
        let state = self.ranks.get_mut(rank as usize).ok_or(ServerError::NoRank { rank })?;
        state.received.push(bytes);
        loop {
            let state = &mut self.ranks[rank as usize];
            let line = state.received.next_line().map_err(|source| ServerError::Garbled { rank, source })?;
            let Some(line) = line else { return Ok(()) };
            self.line(rank, &line, events).map_err(|source| ServerError::Garbled { rank, source })?;
        }
    }

    /// How far the rank has come; `None` for a number that is no rank.
    pub fn phase(&self, rank: u32) -> Option<Phase> {
        self.ranks.get(rank as usize).map(|state| state.phase)
    }

    /// Ranks that wait in an unfinished barrier.
    pub fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.ranks).filter(|(_, state)| state.in_barrier).map(|(rank, _)| rank)
    }

    fn line(&mut self, rank: u32, line: &str, events: &mut Vec<Event>) -> Result<(), PmiError> {
        if let Some(count) = self.ranks[rank as usize].spawn_lines {
            return self.spawn_line(rank, line, count, events);
        }
        let message = Message::parse(line)?;
        let mut reply = |text: String| events.push(Event::Reply { rank, line: text });
        match message.command() {
            "init" => reply(self.init(rank, &message)),
            "get_maxes" => reply(format!("cmd=maxes rc=0 {}\n", maxes())),
            "get_appnum" => reply(format!("cmd=appnum rc=0 appnum={}\n", self.job.appnums[rank as usize])),
            "get_my_kvsname" => reply(format!("cmd=my_kvsname rc=0 kvsname={}\n", self.job.name)),
            "get_universe_size" => reply(format!("cmd=universe_size rc=0 size={}\n", self.job.universe_size)),
            "put" => reply(self.put(&message)),
            "get" => reply(self.get(&message)),
            "barrier_in" => self.barrier_in(rank, &message, events),
            "publish_name" | "unpublish_name" | "lookup_name" => reply(self.service(&message)),
            "finalize" => {
                self.ranks[rank as usize].phase = Phase::Finalised;
                reply("cmd=finalize_ack rc=0\n".to_owned());
            }
            "abort" => events.push(Event::Abort {
                rank,
                code: message.number("exitcode").unwrap_or(1),
                message: message.field("message").unwrap_or_default().to_owned(),
            }),
            "spawn" => self.ranks[rank as usize].spawn_lines = Some(0),
            other => {
                let name: String = other.chars().filter(char::is_ascii_graphic).take(60).collect();
                reply(format!("cmd={name}_result rc=-1 msg={name}_is_not_supported\n"));
            }
        }
        Ok(())
    }

    fn init(&mut self, rank: u32, message: &Message<'_>) -> String {
        let state = &mut self.ranks[rank as usize];
        let refused =
            |reason: &str| format!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1 msg={reason}\n");
        if message.field("pmi_version") != Some("1") {
            return refused("only_PMI_version_1_is_served");
        }
        if state.phase == Phase::Initialised {
            return refused(
                "this_rank_has_called_MPI_Init_already;_a_rank_cannot_start_another_MPI_program_under_its_own_name",
            );
        }
        state.phase = Phase::Initialised;
        // Everything a client of ours wants to know travels in the first answer; others ignore it.
        format!(
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0 ferrovia=1 kvsname={} appnum={} \
             universe_size={} {} mapping={}\n",
            self.job.name,
            self.job.appnums[rank as usize],
            self.job.universe_size,
            maxes(),
            self.job.mapping,
        )
    }

    fn put(&mut self, message: &Message<'_>) -> String {
        match self.store_value(message) {
            Ok(()) => "cmd=put_result rc=0 msg=success\n".to_owned(),
            Err(reason) => format!("cmd=put_result rc=-1 msg={reason}\n"),
        }
    }

    fn store_value(&mut self, message: &Message<'_>) -> Result<(), &'static str> {
        self.check_name(message)?;
        let key = message.field("key").filter(|key| is_word(key)).ok_or("no_key")?;
        let value = message.field("value").ok_or("no_value")?;
        if key.len() >= KEY_BYTES_MAX {
            return Err("key_too_long");
        }
        if value.len() >= VALUE_BYTES_MAX {
            return Err("value_too_long");
        }
        let old_bytes = self.store.get(key).map_or(0, |old| key.len() + old.len());
        let bytes = self.store_bytes.saturating_sub(old_bytes) + key.len() + value.len();
        if bytes > STORE_BYTES_MAX {
            return Err("too_many_keys");
        }
        self.store_bytes = bytes;
        self.store.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn get(&self, message: &Message<'_>) -> String {
        let found = self.check_name(message).and_then(|()| {
            let key = message.field("key").ok_or("no_key")?;
            self.store.get(key).ok_or("key_not_found")
        });
        match found {
            Ok(value) => format!("cmd=get_result rc=0 value={value}\n"),
            Err(reason) => format!("cmd=get_result rc=-1 value=unknown msg={reason}\n"),
        }
    }

    fn check_name(&self, message: &Message<'_>) -> Result<(), &'static str> {
        match message.field("kvsname") {
            Some(name) if name != self.job.name => Err("no_such_kvs"),
            _ => Ok(()),
        }
    }

    fn barrier_in(&mut self, rank: u32, message: &Message<'_>, events: &mut Vec<Event>) {
        let refused = |reason: &str| Event::Reply { rank, line: format!("cmd=barrier_out rc=-1 msg={reason}\n") };
        if message.field("group").is_some_and(|group| !matches!(group, "WORLD" | "NODE")) {
            return events.push(refused("barriers_of_groups_are_not_supported"));
        }
        let state = &mut self.ranks[rank as usize];
        if state.in_barrier {
            return events.push(refused("already_in_a_barrier"));
        }
        state.in_barrier = true;
        self.waiting_count += 1;
        if self.waiting_count == self.ranks.len() {
            self.waiting_count = 0;
            for (rank, state) in (0..).zip(&mut self.ranks) {
                state.in_barrier = false;
                events.push(Event::Reply { rank, line: "cmd=barrier_out rc=0\n".to_owned() });
            }
        }
    }

    fn service(&mut self, message: &Message<'_>) -> String {
        const SERVICE_COUNT_MAX: usize = 4096;
        let service = message.field("service").unwrap_or_default();
        let (answer, found) = match message.command() {
            "publish_name" if self.services.len() < SERVICE_COUNT_MAX && !self.services.contains_key(service) => {
                let port = message.field("port").unwrap_or_default();
                self.services.insert(service.to_owned(), port.to_owned());
                ("publish_result", Some(String::new()))
            }
            "publish_name" => ("publish_result", None),
            "lookup_name" => ("lookup_result", self.services.get(service).map(|port| format!(" port={port}"))),
            _ => ("unpublish_result", self.services.remove(service).map(|_| String::new())),
        };
        match found {
            Some(rest) => format!("cmd={answer} rc=0 info=ok{rest}\n"),
            None => format!("cmd={answer} rc=-1 info=failed msg=service_not_found_or_taken\n"),
        }
    }

    /// A spawn request runs over many lines; it is read to its end and refused.
    fn spawn_line(&mut self, rank: u32, line: &str, count: usize, events: &mut Vec<Event>) -> Result<(), PmiError> {
        let state = &mut self.ranks[rank as usize];
        if count == SPAWN_LINE_COUNT_MAX {
            return Err(PmiError::Garbled { problem: "a spawn request without end", line: String::new() });
        }
        state.spawn_lines = Some(count + 1);
        // Requests for several programs are blocks of their own; only the last is answered.
        if line.trim() == "endcmd" {
            state.spawn_lines = None;
            let line = "cmd=spawn_result rc=-1 msg=starting_further_processes_is_not_supported\n".to_owned();
            events.push(Event::Reply { rank, line });
        }
        Ok(())
    }
}

fn maxes() -> String {
    format!("kvsname_max=256 keylen_max={KEY_BYTES_MAX} vallen_max={VALUE_BYTES_MAX}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn server(rank_count: usize) -> Server {
        Server::new(Job::on_one_node("job", &vec![0; rank_count]))
    }

    fn answers(server: &mut Server, rank: u32, text: &str) -> Vec<(u32, String)> {
        let mut events = Vec::new();
        server.receive(rank, text.as_bytes(), &mut events).unwrap();
        events
            .into_iter()
            .map(|event| match event {
                Event::Reply { rank, line } => (rank, line),
                Event::Abort { rank, code, message } => (rank, format!("abort {code} {message}")),
            })
            .collect()
    }

    #[test]
    fn the_life_of_a_rank() {
        let mut server = server(1);
        assert_eq!(server.phase(0), Some(Phase::Fresh));
        let greeting = answers(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1\n");
        assert!(greeting[0].1.starts_with("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0 "));
        assert_eq!(server.phase(0), Some(Phase::Initialised));
        let twice = answers(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1\n");
        assert!(twice[0].1.contains("rc=-1"));
        assert_eq!(answers(&mut server, 0, "cmd=finalize\n")[0].1, "cmd=finalize_ack rc=0\n");
        assert_eq!(server.phase(0), Some(Phase::Finalised));
        assert!(answers(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1\n")[0].1.contains("rc=0"));
        assert!(answers(&mut server, 0, "cmd=init pmi_version=2 pmi_subversion=0\n")[0].1.contains("rc=-1"));
    }

    #[test]
    fn a_barrier_waits_for_all() {
        let mut server = server(3);
        assert!(answers(&mut server, 2, "cmd=barrier_in\n").is_empty());
        assert!(answers(&mut server, 0, "cmd=put kvsname=job key=a value=1\ncmd=barrier_in\n").len() == 1);
        assert_eq!(server.waiting().collect::<Vec<_>>(), [0, 2]);
        let out = answers(&mut server, 1, "cmd=barrier_in\n");
        assert_eq!(out.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(server.waiting().count(), 0);
        assert_eq!(answers(&mut server, 1, "cmd=get kvsname=job key=a\n")[0].1, "cmd=get_result rc=0 value=1\n");
        assert!(answers(&mut server, 1, "cmd=get kvsname=job key=b\n")[0].1.contains("key_not_found"));
        assert!(answers(&mut server, 1, "cmd=get kvsname=other key=a\n")[0].1.contains("no_such_kvs"));
    }

    #[test]
    fn refusals_are_answers() {
        let mut server = server(1);
        let check = |server: &mut Server, text: &str, expected: &str| {
            let all = answers(server, 0, text);
            assert!(all.len() == 1 && all[0].1.contains(expected), "{text:?} gave {all:?}");
        };
        check(&mut server, "cmd=put key=a\n", "no_value");
        check(&mut server, &format!("cmd=put key={} value=b\n", "k".repeat(300)), "key_too_long");
        check(&mut server, &format!("cmd=put key=k value={}\n", "v".repeat(1024)), "value_too_long");
        check(&mut server, "cmd=create_kvs\n", "cmd=create_kvs_result rc=-1");
        check(&mut server, "mcmd=spawn\nnprocs=2\nexecname=./a b c\nargcnt=0\nendcmd\n", "spawn_result rc=-1");
        check(&mut server, "cmd=get_universe_size\n", "size=1");
        check(&mut server, "cmd=lookup_name service=s\n", "rc=-1");
        check(&mut server, "cmd=publish_name service=s port=p\n", "rc=0");
        check(&mut server, "cmd=lookup_name service=s\n", "port=p");
        check(&mut server, "cmd=abort exitcode=9 message=so be it\n", "abort 9 so be it");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600), rank in 0u32..3) {
            let mut events = Vec::new();
            let _ = server(2).receive(rank, &bytes, &mut events);
        }

        #[test]
        fn near_garbage_never_panics(lines in prop::collection::vec(
            "m?cmd=(init|put|get|barrier_in|finalize|abort|spawn|endcmd|x)\
             ( (key|value|kvsname|exitcode|group)=[a-z0-9=-]{0,9}){0,4}",
            0..30,
        )) {
            let mut server = server(2);
            let mut events = Vec::new();
            for line in lines {
                let _ = server.receive(0, format!("{line}\n").as_bytes(), &mut events);
            }
            for event in events {
                if let Event::Reply { line, .. } = event {
                    prop_assert!(line.ends_with('\n') && Message::parse(line.trim_end()).is_ok(), "{:?}", line);
                }
            }
        }
    }
}
