//! The rank's side of the wire.
//!
//! ```text
//! rank                                   launcher
//!   │ init ──────────────────────────────▶ │
//!   │ ◀──────────────── response_to_init   │  our own launcher adds everything asked for below
//!   │ get_maxes, get_appnum,               │
//!   │ get_my_kvsname, get_universe_size ─▶ │
//!   │ put, put, …, barrier_in ───────────▶ │  one write where the launcher takes several lines
//!   │ ◀──── put_result …, barrier_out      │
//!   │ get, get, … ───────────────────────▶ │
//!   │ finalize ──────────────────────────▶ │
//! ```

use std::io::{Cursor, Write};
use std::net::TcpStream;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use crate::PmiError;
use crate::environment::{Launcher, adopt_inherited};
use crate::error::shortened;
use crate::mapping::ProcessMapping;
use crate::message::{Message, is_word};
use crate::wire::{Timeouts, Wire};

/// Questions under way at once, where the launcher takes several lines: their answers fit in any
/// socket's buffer.
const IN_FLIGHT_MAX: usize = 32;
const MAPPING_KEY: &str = "PMI_process_mapping";
/// What Hydra says of a single process, where there is nothing to tell.
const NO_MAPPING: &str = "(vector,0)";

/// What the launcher says about the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// This process.
    pub rank: u32,
    /// Number of processes.
    pub size: u32,
    /// Which of the command line's programs this is, from 0; negative if unknown.
    pub appnum: i32,
    /// Name of the job's key space, unique to the job.
    pub job: String,
    /// Processes there could be at most (MPI_UNIVERSE_SIZE), if the launcher says so.
    pub universe_size: Option<u32>,
    /// Started by MPI_Comm_spawn.
    pub spawned: bool,
    /// Which rank lives on which node, if the launcher says so.
    pub mapping: Option<ProcessMapping>,
    /// Longest key and value.
    pub limits: Limits,
}

impl World {
    /// The node of each rank; `None` if the launcher does not say.
    pub fn nodes(&self) -> Option<Vec<u32>> {
        if self.size == 1 {
            return Some(vec![0]);
        }
        self.mapping.as_ref().map(|mapping| mapping.nodes(self.size))
    }

    /// Ranks on this node in ascending order, this one included; `None` if the launcher does not say.
    pub fn node_local_ranks(&self) -> Option<Vec<u32>> {
        if self.size == 1 {
            return Some(vec![0]);
        }
        self.mapping.as_ref().map(|mapping| mapping.node_local_ranks(self.rank, self.size))
    }
}

/// Longest key and value the launcher takes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest key.
    pub key_bytes_max: usize,
    /// Longest value.
    pub value_bytes_max: usize,
}

/// A connection to the launcher, past its handshake.
#[derive(Debug)]
pub struct Client {
    wire: Wire,
    timeouts: Timeouts,
    world: World,
    several_lines: bool,
    queued: String,
    unanswered_puts: Vec<String>,
}

impl Client {
    /// Finds and greets the launcher that the environment names; `None` if it names none.
    ///
    /// # Errors
    /// Launcher variables without a launcher that answers, or one whose wire is not spoken here.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, PmiError> {
        Self::from_env_with(env, adopt_inherited, Timeouts::default())
    }

    /// As [`Client::from_env`], with the caller's way of turning an inherited descriptor number into
    /// an owned descriptor, and its patience.
    ///
    /// # Errors
    /// As [`Client::from_env`].
    pub fn from_env_with(
        env: impl Fn(&str) -> Option<String>,
        adopt: impl FnOnce(RawFd) -> std::io::Result<OwnedFd>,
        timeouts: Timeouts,
    ) -> Result<Option<Self>, PmiError> {
        let spawned = env("PMI_SPAWNED").is_some_and(|value| value.trim() != "0" && !value.trim().is_empty());
        let mut client = match Launcher::from_env(&env)? {
            Launcher::None => return Ok(None),
            Launcher::Inherited { fd, rank, size } => {
                let absent =
                    |problem| PmiError::NoServer { variable: "PMI_FD".to_owned(), value: fd.to_string(), problem };
                let socket = adopt(fd).map_err(|error| {
                    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                        Some(rustix::io::Errno::BADF) => absent("that descriptor is not open".to_owned()),
                        _ => absent(format!("that descriptor cannot be used ({error})")),
                    }
                })?;
                match rustix::net::sockopt::socket_type(&socket) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::BADF) => return Err(absent("that descriptor is not open".to_owned())),
                    Err(_) => return Err(absent("that descriptor is not a socket".to_owned())),
                }
                Self::over(socket, rank, size, timeouts)?
            }
            Launcher::Port { address, id } => Self::at_port(&address, id, timeouts)?,
        };
        client.world.spawned = spawned;
        Ok(Some(client))
    }

    /// Greets the launcher on a connected socket.
    ///
    /// # Errors
    /// The launcher does not answer, or not as PMI-1 asks for.
    pub fn over(socket: OwnedFd, rank: u32, size: u32, timeouts: Timeouts) -> Result<Self, PmiError> {
        // A program started by this process must not answer in its name; failure changes nothing else.
        let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
        Self::greet(Wire::new(socket), rank, size, timeouts)
    }

    /// Facts about the job.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Publishes a value. It may be sent as late as the next [`Client::barrier`] or [`Client::get`],
    /// and others see it after the barrier that follows.
    ///
    /// # Errors
    /// A key or value that is empty, too long, or holds blanks or anything but printable ASCII; the
    /// launcher's refusal, possibly of an earlier `put`.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), PmiError> {
        let limits = self.world.limits;
        check_word("key", key, limits.key_bytes_max)?;
        check_word("value", value, limits.value_bytes_max)?;
        self.queued.push_str(&format!("cmd=put kvsname={} key={key} value={value}\n", self.world.job));
        self.unanswered_puts.push(key.to_owned());
        if !self.several_lines || self.unanswered_puts.len() >= IN_FLIGHT_MAX {
            self.settle()?;
        }
        Ok(())
    }

    /// Waits until every rank is here; afterwards all see what any had published before. Puts that
    /// are still queued travel in the same write.
    ///
    /// # Errors
    /// The launcher went away, or refused.
    pub fn barrier(&mut self) -> Result<(), PmiError> {
        if !self.several_lines {
            self.settle()?;
        }
        self.queued.push_str("cmd=barrier_in\n");
        self.settle()?;
        let line = self.wire.line(self.timeouts.barrier, BARRIER)?;
        accepted(&line, "barrier_out", BARRIER).map(|_| ())
    }

    /// The value that some rank published under the key before the last barrier.
    ///
    /// # Errors
    /// [`PmiError::KeyMissing`] if none did; trouble with the launcher.
    pub fn get(&mut self, key: &str) -> Result<String, PmiError> {
        let mut values = self.get_all(std::slice::from_ref(&key))?;
        Ok(values.pop().expect("one key has one value"))
    }

    /// The values of several keys, in their order; many travel at once where the launcher allows it.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn get_all<K: AsRef<str>>(&mut self, keys: &[K]) -> Result<Vec<String>, PmiError> {
        let at_once = if self.several_lines { IN_FLIGHT_MAX } else { 1 };
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(at_once) {
            for key in keys {
                check_word("key", key.as_ref(), self.world.limits.key_bytes_max)?;
            }
            if !self.several_lines {
                self.settle()?;
            }
            for key in keys {
                self.queued.push_str(&format!("cmd=get kvsname={} key={}\n", self.world.job, key.as_ref()));
            }
            self.settle()?;
            // All answers are read before any is judged, so that the wire stays in step.
            let mut lines = Vec::with_capacity(keys.len());
            for _ in keys {
                lines.push(self.wire.line(Some(self.timeouts.reply), GET)?);
            }
            for (key, line) in keys.iter().zip(&lines) {
                values.push(value_of(line, key.as_ref())?);
            }
        }
        Ok(values)
    }

    /// Asks the launcher to end the whole job with an exit code. There is no answer.
    ///
    /// # Errors
    /// The launcher cannot be told; it may be gone already.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), PmiError> {
        // Hydra refuses a whole line with an equals sign that stands alone.
        let plain = |character: char| match character {
            '=' => ':',
            character if character.is_control() => ' ',
            character => character,
        };
        self.flush("aborting")?;
        // No memory from the heap: this may be the handler of a signal that came in the middle of `malloc`.
        let mut line = Cursor::new([0; 2048]);
        let mut written = write!(line, "cmd=abort exitcode={code} message=");
        for character in message.chars().take(400).map(plain) {
            written = written.and_then(|()| write!(line, "{character}"));
        }
        written.and_then(|()| writeln!(line)).expect("400 characters take 1600 bytes at most");
        let len_bytes = line.position() as usize;
        self.wire.send(&line.get_ref()[..len_bytes], self.timeouts.reply, "aborting")
    }

    /// Says goodbye; the process may now end without alarming anyone.
    ///
    /// # Errors
    /// The launcher went away, or refused.
    pub fn finalize(mut self) -> Result<(), PmiError> {
        self.settle()?;
        self.ask("cmd=finalize\n", "finalize_ack", "saying goodbye").map(|_| ())
    }

    fn at_port(address: &str, id: u32, timeouts: Timeouts) -> Result<Self, PmiError> {
        let doing = "connecting to PMI_PORT";
        let stream = TcpStream::connect(address).map_err(|error| PmiError::NoServer {
            variable: "PMI_PORT".to_owned(),
            value: address.to_owned(),
            problem: format!("nobody answers there ({error})"),
        })?;
        // Questions are small and each waits for its answer; losing this costs time only.
        let _ = stream.set_nodelay(true);
        let mut wire = Wire::new(stream.into());
        wire.send(format!("cmd=initack pmiid={id}\n").as_bytes(), timeouts.reply, doing)?;
        accepted(&wire.line(Some(timeouts.reply), doing)?, "initack", doing)?;
        let (mut rank, mut size) = (None, None);
        for _ in 0..crate::FIELD_COUNT_MAX {
            let line = wire.line(Some(timeouts.reply), doing)?;
            let message = Message::parse(&line)?;
            if message.command() != "set" {
                return Err(unexpected(&line, "set", doing));
            }
            if message.field("rank").is_some() {
                rank = Some(message.number("rank")?);
            } else if message.field("size").is_some() {
                size = Some(message.number("size")?);
            } else if message.field("debug").is_some() {
                break;
            }
        }
        match (rank, size) {
            (Some(rank), Some(size)) if rank < size => Self::greet(wire, rank, size, timeouts),
            _ => Err(unexpected("no rank below a size", "rank, size and debug", doing)),
        }
    }

    fn greet(wire: Wire, rank: u32, size: u32, timeouts: Timeouts) -> Result<Self, PmiError> {
        let limits = Limits { key_bytes_max: 64, value_bytes_max: 256 };
        let world = World {
            rank,
            size,
            appnum: -1,
            job: String::new(),
            universe_size: None,
            spawned: false,
            mapping: None,
            limits,
        };
        let mut client =
            Self { wire, timeouts, world, several_lines: false, queued: String::new(), unanswered_puts: Vec::new() };
        let line = client.ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", INIT)?;
        let answer = Message::parse(&line)?;
        if answer.field("pmi_version").is_some_and(|version| version != "1") {
            return Err(unexpected(&line, "pmi_version=1", INIT));
        }
        client.several_lines = answer.field("ferrovia").is_some();
        if client.several_lines {
            client.adopt_facts(&answer)?;
        } else {
            client.ask_facts()?;
        }
        Ok(client)
    }

    /// Our own launcher says everything in its first answer.
    fn adopt_facts(&mut self, answer: &Message<'_>) -> Result<(), PmiError> {
        self.world.limits = limits_of(answer)?;
        self.world.appnum = answer.number("appnum")?;
        self.world.job = job_name(answer)?;
        self.world.universe_size = Some(answer.number("universe_size")?);
        self.world.mapping = answer.field("mapping").map(ProcessMapping::parse).transpose()?;
        Ok(())
    }

    fn ask_facts(&mut self) -> Result<(), PmiError> {
        let line = self.ask("cmd=get_maxes\n", "maxes", "asking for limits")?;
        self.world.limits = limits_of(&Message::parse(&line)?)?;
        let line = self.ask("cmd=get_my_kvsname\n", "my_kvsname", "asking for the job's name")?;
        self.world.job = job_name(&Message::parse(&line)?)?;
        let line = self.ask("cmd=get_appnum\n", "appnum", "asking for the program's number")?;
        self.world.appnum = Message::parse(&line)?.number("appnum").unwrap_or(-1);
        let line = self.ask("cmd=get_universe_size\n", "universe_size", "asking for the universe's size")?;
        self.world.universe_size = Message::parse(&line)?.number::<u32>("size").ok().filter(|size| *size > 0);
        self.world.mapping = match self.get(MAPPING_KEY) {
            Ok(text) if text == NO_MAPPING => None,
            Ok(text) => Some(ProcessMapping::parse(&text)?),
            Err(PmiError::KeyMissing { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    fn ask(&mut self, question: &str, answer: &str, doing: &str) -> Result<String, PmiError> {
        self.wire.send(question.as_bytes(), self.timeouts.reply, doing)?;
        let line = self.wire.line(Some(self.timeouts.reply), doing)?;
        accepted(&line, answer, doing)?;
        Ok(line)
    }

    /// Sends what is queued and reads the answers to its puts.
    fn settle(&mut self) -> Result<(), PmiError> {
        self.flush("publishing")?;
        for key in std::mem::take(&mut self.unanswered_puts) {
            let doing = format!("publishing {key}");
            accepted(&self.wire.line(Some(self.timeouts.reply), &doing)?, "put_result", &doing)?;
        }
        Ok(())
    }

    fn flush(&mut self, doing: &str) -> Result<(), PmiError> {
        let sent = self.wire.send(self.queued.as_bytes(), self.timeouts.reply, doing);
        self.queued.clear();
        sent
    }
}

const INIT: &str = "greeting it";
const GET: &str = "asking for a key";
const BARRIER: &str = "waiting in a barrier";

/// Checks that the line is the expected answer and says yes.
fn accepted(line: &str, expected: &str, doing: &str) -> Result<(), PmiError> {
    let message = Message::parse(line)?;
    if message.command() != expected {
        return Err(unexpected(line, expected, doing));
    }
    match message.field("rc") {
        None | Some("0") => Ok(()),
        Some(code) => Err(PmiError::Refused { doing: doing.to_owned(), reason: reason_of(&message, code) }),
    }
}

fn value_of(line: &str, key: &str) -> Result<String, PmiError> {
    let message = Message::parse(line)?;
    if message.command() != "get_result" {
        return Err(unexpected(line, "get_result", GET));
    }
    let refused = message.field("rc").filter(|code| *code != "0");
    let absent = message.field("found").filter(|found| !matches!(*found, "true" | "TRUE" | "1"));
    if let Some(code) = refused.or(absent) {
        return Err(PmiError::KeyMissing { key: key.to_owned(), reason: reason_of(&message, code) });
    }
    // Some launchers put `msg=success` before the value; it runs to the end of the line.
    let inside = message.field("msg").and_then(|text| text.split_once("value=")).map(|(_, value)| value);
    match message.field("value").or(inside) {
        Some(value) => Ok(value.to_owned()),
        None => Err(unexpected(line, "a value", GET)),
    }
}

fn reason_of(message: &Message<'_>, code: &str) -> String {
    match message.field("msg").or(message.field("errmsg")) {
        Some(text) => format!("{}, code {code}", shortened(text)),
        None => format!("code {code}"),
    }
}

fn limits_of(message: &Message<'_>) -> Result<Limits, PmiError> {
    /// What a launcher may claim at most; keeps our own lines below the wire's limit.
    const CLAIM_MAX: usize = 2048;
    let limit = |name| message.number::<usize>(name).map(|limit| limit.min(CLAIM_MAX));
    // The launcher's number counts the C string's final zero.
    Ok(Limits {
        key_bytes_max: limit("keylen_max")?.saturating_sub(1),
        value_bytes_max: limit("vallen_max")?.saturating_sub(1),
    })
}

fn job_name(message: &Message<'_>) -> Result<String, PmiError> {
    match message.field("kvsname") {
        Some(name) if is_word(name) && name.len() <= 512 => Ok(name.to_owned()),
        other => Err(unexpected(other.unwrap_or("(nothing)"), "a job name", INIT)),
    }
}

fn unexpected(received: &str, expected: &str, doing: &str) -> PmiError {
    PmiError::Unexpected { doing: doing.to_owned(), received: shortened(received), expected: expected.to_owned() }
}

fn check_word(what: &'static str, text: &str, bytes_max: usize) -> Result<(), PmiError> {
    let problem = if !is_word(text) {
        "it must be printable ASCII without blanks".to_owned()
    } else if text.len() > bytes_max {
        format!("it is {} bytes long, the launcher takes at most {bytes_max}", text.len())
    } else {
        return Ok(());
    };
    Err(PmiError::Unprintable { what, text: shortened(text), problem })
}

impl Timeouts {
    /// Waits that long for any answer, barriers excepted.
    pub fn with_reply(reply: Duration) -> Self {
        Self { reply, ..Self::default() }
    }
}
