//! What the library asks of whoever started the processes.

use super::RankReport;
use crate::environment::Hardware;

/// The process manager behind one world, as `boot` found it.
pub trait ProcessManager: Send {
    /// Ends all processes of the job with exit status `code`, after showing `message` if it is not empty.
    fn abort(&self, code: i32, message: &str) -> !;

    /// This process will communicate no more; the manager may expect its end.
    ///
    /// # Errors
    /// A sentence when the manager could not be told.
    fn finalize(&self) -> Result<(), String>;

    /// Whether the user wants to be shown what took which way.
    fn wants_report(&self) -> bool {
        false
    }

    /// Shows what took which way: that of all processes, or of this one alone.
    fn report(&self, _ranks: &[RankReport]) {}

    /// Number of the command in a start of several programs (`MPI_APPNUM`).
    fn appnum(&self) -> Option<i32> {
        None
    }

    /// Number of processes the user thinks could run at once (`MPI_UNIVERSE_SIZE`).
    fn universe_size(&self) -> Option<i32> {
        None
    }

    /// Name of the machine this process runs on.
    fn processor_name(&self) -> String;

    /// The hardware this process runs on; nothing is known by default.
    fn hardware(&self) -> Hardware {
        Hardware::default()
    }

    /// A number equal for exactly those processes that can share memory with this one.
    fn node_key(&self) -> u64;
}
