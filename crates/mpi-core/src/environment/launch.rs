//! How this process was started: the contents of `MPI_INFO_ENV`.
//!
//! MPI: §10, §11.2.1

use std::path::PathBuf;

use super::Predefined;
use crate::info::Info;
use crate::world::{ThreadLevel, World};

/// What is known about the start of this process; unknown facts give no key.
///
/// ```
/// use mpi_core::environment::Launch;
/// let launch = Launch { arguments: vec!["./heat".into(), "-n".into(), "9".into()], ..Launch::default() };
/// let info = launch.info();
/// assert_eq!(info.value("command").as_deref(), Some("./heat"));
/// assert_eq!(info.value("argv").as_deref(), Some("-n 9"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The command and its arguments.
    pub arguments: Vec<String>,
    /// Number of processes started with this command.
    pub process_count: Option<u32>,
    /// Number of machines the processes run on.
    pub node_count: Option<u32>,
    /// Where the process was started.
    pub working_directory: Option<PathBuf>,
    /// Name of the machine.
    pub host: Option<String>,
    /// The error handler of the predefined communicators at the beginning.
    pub initial_error_handler: Option<Predefined>,
    /// The thread level that was granted, or can be.
    pub thread_level: Option<ThreadLevel>,
}

impl Launch {
    /// What this process knows about itself; `arguments` where the caller has better ones.
    pub fn of_this_process(arguments: Option<Vec<String>>) -> Self {
        let own_arguments = || std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
        Launch {
            arguments: arguments.unwrap_or_else(own_arguments),
            working_directory: std::env::current_dir().ok(),
            host: Some(super::processor_name()),
            ..Launch::default()
        }
    }

    /// The same with what is known once the process belongs to a world.
    pub fn within(mut self, world: &World) -> Self {
        self.process_count = Some(world.comm_world().size());
        self.thread_level = Some(world.thread_level());
        self.initial_error_handler = Some(world.initial_error_handler());
        self.host = Some(world.process_manager().processor_name());
        self
    }

    /// The facts under the keys of the standard.
    pub fn info(&self) -> Info {
        let (command, arguments) = match self.arguments.split_first() {
            Some((command, arguments)) => (Some(command.clone()), Some(arguments.join(" "))),
            None => (None, None),
        };
        let directory = self.working_directory.as_ref().map(|path| path.to_string_lossy().into_owned());
        let facts = [
            ("command", command),
            ("argv", arguments.filter(|text| !text.is_empty())),
            ("maxprocs", self.process_count.map(|count| count.to_string())),
            ("soft", self.process_count.map(|count| count.to_string())),
            ("host", self.host.clone()),
            ("arch", Some(std::env::consts::ARCH.to_owned())),
            ("wdir", directory),
            ("mpi_initial_errhandler", self.initial_error_handler.map(|which| which.key().to_owned())),
            ("thread_level", self.thread_level.map(|level| level.name().to_owned())),
            ("num_nodes", self.node_count.map(|count| count.to_string())),
            ("mpi_memory_alloc_kinds", Some(super::MEMORY_KINDS.to_owned())),
        ];
        Info::read_only(facts.into_iter().filter_map(|(key, value)| Some((key, value?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_facts_have_keys_and_unknown_ones_have_not() {
        let mut launch = Launch::of_this_process(None);
        launch.process_count = Some(4);
        launch.thread_level = Some(ThreadLevel::Multiple);
        launch.initial_error_handler = Some(Predefined::Abort);
        let info = launch.info();
        assert_eq!(info.value("maxprocs").as_deref(), Some("4"));
        assert_eq!(info.value("thread_level").as_deref(), Some("MPI_THREAD_MULTIPLE"));
        assert_eq!(info.value("mpi_initial_errhandler").as_deref(), Some("mpi_errors_abort"));
        assert!(info.value("command").is_some() && info.value("wdir").is_some() && info.value("host").is_some());
        assert_eq!(info.value("num_nodes"), None);
    }
}
