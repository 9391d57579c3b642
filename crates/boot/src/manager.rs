//! The process manager behind a world.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use mpi_core::ProcessManager;

use crate::BootError;

/// Whoever started this process, or nobody.
pub(crate) struct Manager {
    wire: Option<RefCell<BufReader<UnixStream>>>,
    rank: u32,
    size: u32,
    space: String,
}

impl Manager {
    pub(crate) fn from_environment() -> Result<Self, BootError> {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
        let Some(fd) = number("PMI_FD") else {
            return Ok(Self { wire: None, rank: 0, size: 1, space: String::new() });
        };
        let (rank, size) = (number("PMI_RANK").unwrap_or(0), number("PMI_SIZE").unwrap_or(1));
        let stream = base::descriptor::inherited_stream(fd)
            .map_err(|e| BootError::ProcessManager(format!("PMI_FD={fd}: {e}")))?;
        let mut manager = Self {
            wire: Some(RefCell::new(BufReader::new(stream))),
            rank: rank as u32,
            size: size as u32,
            space: String::new(),
        };
        manager.ask("cmd=init pmi_version=1 pmi_subversion=1")?;
        let answer = manager.ask("cmd=get_my_kvsname")?;
        manager.space = value(&answer, "kvsname").unwrap_or_default();
        Ok(manager)
    }
    fn ask(&self, line: &str) -> Result<String, BootError> {
        let fail = |e: std::io::Error| BootError::ProcessManager(format!("the launcher does not answer: {e}"));
        let mut wire = self.wire.as_ref().expect("asked only with a launcher").borrow_mut();
        wire.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(fail)?;
        let mut answer = String::new();
        wire.read_line(&mut answer).map_err(fail)?;
        Ok(answer)
    }
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }
    pub(crate) fn size(&self) -> u32 {
        self.size
    }
    pub(crate) fn first_rank_elsewhere(&self) -> Option<u32> {
        None
    }
    pub(crate) fn put(&self, key: &str, text: &str) -> Result<(), BootError> {
        self.ask(&format!("cmd=put kvsname={} key={key} value={text}", self.space)).map(drop)
    }
    pub(crate) fn barrier(&self) -> Result<(), BootError> {
        self.ask("cmd=barrier_in").map(drop)
    }
    pub(crate) fn get(&self, key: &str) -> Result<String, BootError> {
        let answer = self.ask(&format!("cmd=get kvsname={} key={key}", self.space))?;
        value(&answer, "value").ok_or_else(|| BootError::ProcessManager(format!("no {key}: {answer}")))
    }
}
fn value(answer: &str, key: &str) -> Option<String> {
    answer.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
}
impl ProcessManager for Manager {
    fn abort(&self, code: i32, message: &str) -> ! {
        eprintln!("{message}");
        if let Some(wire) = &self.wire {
            let _ = wire.borrow_mut().get_mut().write_all(format!("cmd=abort exitcode={code}\n").as_bytes());
        }
        std::process::exit(code)
    }
    fn finalize(&self) -> Result<(), String> {
        if self.wire.is_some() {
            self.ask("cmd=finalize").map_err(|e| e.to_string())?;
        }
        Ok(())
    }
    fn processor_name(&self) -> String {
        "localhost".into()
    }
    fn node_key(&self) -> u64 {
        0
    }
}
