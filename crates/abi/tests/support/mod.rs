//! Compiling and running C programs against the library that Cargo has built for these tests.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own for one test, with `mpi.h` and `libmpi_abi.so.1` in it.
pub struct Bench {
    folder: PathBuf,
}

impl Bench {
    pub fn new(name: &str) -> Bench {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("mpi.h"), mpi_abi::MPI_H).unwrap();
        let link = folder.join("libmpi_abi.so.1");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(library(), &link).unwrap();
        Bench { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a source file.
    pub fn source(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs a compiler in the folder; its complaints are the failure.
    pub fn compile(&self, compiler: &str, arguments: &[&str]) {
        let output = Command::new(compiler).args(arguments).current_dir(&self.folder).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{compiler} {arguments:?}:\n{said}");
    }

    /// Compiles a C program against our header and library.
    pub fn program(&self, name: &str, source: &str) -> PathBuf {
        let file = format!("{name}.c");
        self.source(&file, source);
        let flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I.", "-o", name];
        self.compile("cc", &[&flags[..], &[&file, "libmpi_abi.so.1"]].concat());
        self.path(name)
    }

    /// Runs a program as a world of one, with our library in front of any other.
    pub fn run(&self, program: &Path, arguments: &[&str], preload: Option<&Path>) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).env("LD_LIBRARY_PATH", &self.folder);
        for launched in ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID"] {
            command.env_remove(launched);
        }
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload);
        }
        command.output().unwrap()
    }
}

/// The shared library, which Cargo puts beside the test programs.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = test.parent().unwrap();
    let candidates = [beside.join("libmpi_abi.so"), beside.with_file_name("libmpi_abi.so")];
    candidates.into_iter().find(|path| path.exists()).expect("Cargo builds the shared library with its tests")
}

/// `standard/abi.json`.
pub fn abi() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../standard/abi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}
