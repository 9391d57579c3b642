//! What a process can ask about the library and the machine, and what happens on errors.
//!
//! MPI: §9

mod clock;
mod error_handler;
mod hardware;
mod launch;
mod lifecycle;

pub use clock::{wtick, wtime};
pub use error_handler::{ErrorHandler, HandlerFunction, ObjectKind, Predefined, Subject, Verdict};
pub use hardware::Hardware;
pub use launch::Launch;
pub use lifecycle::Lifecycle;

/// `MPI_VERSION` and `MPI_SUBVERSION`.
pub const MPI_VERSION: (i32, i32) = (5, 0);
/// `MPI_ABI_VERSION` and `MPI_ABI_SUBVERSION`.
pub const ABI_VERSION: (i32, i32) = (1, 0);
/// `MPI_MAX_PROCESSOR_NAME` less the terminating zero.
pub const PROCESSOR_NAME_MAX_BYTES: usize = 255;

/// The kinds of memory that can be communicated from and to: `mpi_memory_alloc_kinds`.
///
/// MPI: §11.4.3
pub const MEMORY_KINDS: &str = "mpi,system";

/// What `MPI_Get_library_version` says.
pub fn library_version() -> String {
    let (version, subversion) = MPI_VERSION;
    let (abi_version, abi_subversion) = ABI_VERSION;
    format!(
        "Ferrovia {}, MPI {version}.{subversion}, standard ABI {abi_version}.{abi_subversion}, {}-{}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
    )
}

/// The name of this machine as the kernel knows it; no name service is asked.
///
/// MPI: §9.1.2 `MPI_Get_processor_name`
pub fn processor_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    match &name[..name.floor_char_boundary(PROCESSOR_NAME_MAX_BYTES)] {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_agree_with_the_standard() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../standard/abi.json");
        let abi: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(abi["mpi_version"], serde_json::json!([MPI_VERSION.0, MPI_VERSION.1]));
        assert_eq!(abi["abi_version"], serde_json::json!([ABI_VERSION.0, ABI_VERSION.1]));
        assert!(library_version().starts_with("Ferrovia 0."));
    }

    #[test]
    fn the_machine_has_a_name() {
        let name = processor_name();
        assert!(!name.is_empty() && name.len() <= PROCESSOR_NAME_MAX_BYTES);
    }
}
