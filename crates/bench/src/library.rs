//! The MPI libraries that are measured: ours, peers, and any named by a path.

use crate::programs;
use crate::record::LibraryRecord;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// The file name that the standard ABI fixes.
const STANDARD_NAME: &str = "libmpi_abi.so.1";
/// The name of our own library in a run.
pub const OURS: &str = "Ferrovia";

/// A library, its launcher, and the benchmark program that runs on it.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its name in this run.
    pub name: String,
    /// What starts ranks.
    pub launcher: PathBuf,
    /// Words for the launcher, before all others.
    pub launcher_arguments: &'static [&'static str],
    /// The library's file; what stands for it where the program is built for this library alone.
    pub file: PathBuf,
    /// The folder that `LD_LIBRARY_PATH` must name, if the program is built for any standard library.
    pub folder: Option<PathBuf>,
    /// The program; empty until it is compiled.
    pub program: PathBuf,
    /// The compiler wrapper that belongs to it alone, where the library has no standard ABI.
    own_wrapper: Option<PathBuf>,
}

impl Library {
    /// What is written down about it.
    pub fn record(&self) -> LibraryRecord {
        let modified = std::fs::metadata(&self.file).and_then(|metadata| metadata.modified()).ok();
        LibraryRecord {
            name: self.name.clone(),
            path: self.file.display().to_string(),
            modified_s: modified
                .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
                .map_or(0, |since| since.as_secs()),
        }
    }

    /// The launcher, to run so many ranks of a program on this library, for at most so long.
    pub fn command(&self, ranks: u32, limit: Duration) -> Command {
        let mut command = Command::new(&self.launcher);
        command.args(self.launcher_arguments).args(["-n", &ranks.to_string()]).arg(&self.program);
        // Our launcher and Hydra end the job by themselves; whoever waits has a limit of its own, a little later.
        command.env("MPIEXEC_TIMEOUT", limit.as_secs().max(1).to_string());
        if let Some(folder) = &self.folder {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command
    }
}

/// The installation this program belongs to.
///
/// # Errors
/// If it lies in none.
pub fn own_prefix() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let prefix = program.parent().and_then(Path::parent).map(Path::to_owned);
    match prefix {
        Some(prefix) if prefix.join("lib").join(STANDARD_NAME).is_file() => Ok(prefix),
        _ => bail!(
            "{} lies in no installation; give --prefix DIR, as made by `cargo xtask install --prefix DIR`",
            program.display()
        ),
    }
}

/// The libraries that these words name, or all that are found if there are none: ours first, then the peers of
/// `tools/install-peers.sh`.
///
/// A word is `ours`, `mpich`, `intel`, `openmpi`, a library's file, or the folder of an installation, the latter two
/// with `NAME=` before it if its name shall be another.
///
/// # Errors
/// If one cannot be found, or two have the same name.
pub fn chosen(words: &[String], prefix: &Path, peers: &Path) -> Result<Vec<Library>> {
    let found: Vec<Library> = if words.is_empty() {
        let mut found = vec![ours(prefix)?];
        found.extend(["mpich", "intel", "openmpi"].iter().filter_map(|word| peer(word, peers).ok()));
        found
    } else {
        words.iter().map(|word| named(word, prefix, peers)).collect::<Result<_>>()?
    };
    for (index, library) in found.iter().enumerate() {
        if found[..index].iter().any(|other| other.name == library.name) {
            bail!("two libraries are called {}; write --lib NAME={}", library.name, library.file.display());
        }
    }
    Ok(found)
}

/// Compiles the program: once for all libraries with the standard ABI, once for each without.
///
/// # Errors
/// If a compiler complains.
pub fn compile(libraries: &mut [Library], prefix: &Path, folder: &Path) -> Result<()> {
    let mut standard: Option<PathBuf> = None;
    for (index, library) in libraries.iter_mut().enumerate() {
        library.program = match (&library.own_wrapper, &standard) {
            (Some(wrapper), _) => programs::compile(wrapper, folder, &format!("bench-{index}"))?,
            (None, Some(program)) => program.clone(),
            (None, None) => standard.insert(programs::compile(&prefix.join("bin/mpicc"), folder, "bench")?).clone(),
        };
    }
    Ok(())
}

fn named(word: &str, prefix: &Path, peers: &Path) -> Result<Library> {
    match word {
        "ours" => return ours(prefix),
        "mpich" | "intel" | "openmpi" => return peer(word, peers),
        _ => {}
    }
    let (name, path) = match word.split_once('=') {
        Some((name, path)) if !name.is_empty() && !name.contains('/') => (Some(name), Path::new(path)),
        _ => (None, Path::new(word)),
    };
    let mut library = at(path, prefix)?;
    library.name = match name {
        Some(name) => name.to_owned(),
        None => path.file_name().map_or_else(|| word.to_owned(), |name| name.to_string_lossy().into_owned()),
    };
    Ok(library)
}

fn ours(prefix: &Path) -> Result<Library> {
    let mut library = at(prefix, prefix)?;
    library.name = OURS.to_owned();
    Ok(library)
}

fn peer(word: &str, peers: &Path) -> Result<Library> {
    let (name, folder) = match word {
        "mpich" => ("MPICH", "mpich"),
        "intel" => ("Intel MPI", "impi-rt"),
        _ => ("Open MPI", "openmpi"),
    };
    let folder = peers.join(folder);
    let mut library = at(&folder, &folder)
        .with_context(|| format!("{name} is not under {}; tools/install-peers.sh installs it", peers.display()))?;
    library.name = name.to_owned();
    Ok(library)
}

/// A library by its file, or an installation by its folder. `prefix`: whose launcher starts it if it has none.
fn at(path: &Path, prefix: &Path) -> Result<Library> {
    let path = std::path::absolute(path)?;
    let (file, installation) = if path.is_dir() {
        (path.join("lib").join(STANDARD_NAME), path.clone())
    } else if path.is_file() {
        let installation = path.parent().and_then(Path::parent).unwrap_or(&path).to_owned();
        (path.clone(), installation)
    } else {
        bail!("there is no library and no installation at {}", path.display());
    };
    let launcher =
        [installation.join("bin/mpiexec"), prefix.join("bin/mpiexec")].into_iter().find(|file| file.is_file());
    let launcher = launcher.with_context(|| format!("no bin/mpiexec belongs to {}", path.display()))?;
    let wrapper = installation.join("bin/mpicc");
    let (folder, own_wrapper) = match file.is_file() {
        true => (file.parent().map(Path::to_owned), None),
        false if wrapper.is_file() => (None, Some(wrapper.clone())),
        false => bail!(
            "{} has neither lib/{STANDARD_NAME}, the standard ABI, nor a bin/mpicc to build for it",
            installation.display()
        ),
    };
    if file.is_file() && file.file_name().is_none_or(|name| name != STANDARD_NAME) {
        bail!("{} is not called {STANDARD_NAME}, so programs would not load it", file.display());
    }
    Ok(Library {
        name: String::new(),
        launcher_arguments: launcher_arguments(&launcher),
        launcher,
        file: if file.is_file() { file } else { wrapper },
        folder,
        program: PathBuf::new(),
        own_wrapper,
    })
}

/// Open MPI's launcher refuses root and more ranks than cores unless told otherwise.
fn launcher_arguments(launcher: &Path) -> &'static [&'static str] {
    let version = Command::new(launcher).arg("--version").output();
    let open = version.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.contains("Open MPI") || text.contains("PRTE") || text.contains("prte")
    });
    if open { &["--allow-run-as-root", "--oversubscribe"] } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// An installation of empty files.
    fn installation(folder: &Path, files: &[&str]) {
        for file in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn libraries_are_found_by_word_file_and_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (prefix, peers) = (folder.path().join("own"), folder.path().join("peers"));
        installation(&prefix, &["bin/mpiexec", "bin/mpicc", "lib/libmpi_abi.so.1"]);
        installation(&peers.join("openmpi"), &["bin/mpiexec", "bin/mpicc"]);
        installation(&peers.join("bare"), &["lib/libmpi_abi.so.1"]);
        let all = chosen(&[], &prefix, &peers).unwrap();
        let names: Vec<&str> = all.iter().map(|library| library.name.as_str()).collect();
        assert_eq!(names, ["Ferrovia", "Open MPI"]);
        assert!(all[1].folder.is_none() && all[1].own_wrapper.is_some());
        let file = peers.join("bare/lib/libmpi_abi.so.1");
        let words = [format!("old={}", file.display()), "ours".to_owned()];
        let named = chosen(&words, &prefix, &peers).unwrap();
        assert_eq!((named[0].name.as_str(), &named[0].launcher), ("old", &prefix.join("bin/mpiexec")));
        assert_eq!(named[0].folder.as_deref(), file.parent());
    }

    #[test]
    fn what_is_not_there_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let (prefix, peers) = (folder.path().join("own"), folder.path().join("peers"));
        installation(&prefix, &["bin/mpiexec", "bin/mpicc", "lib/libmpi_abi.so.1"]);
        installation(&peers.join("empty"), &["bin/mpiexec"]);
        installation(&peers.join("odd/lib"), &["libmpi.so"]);
        for (words, complaint) in [
            (vec!["mpich".to_owned()], "install-peers.sh"),
            (vec!["/nonexistent".to_owned()], "/nonexistent"),
            (vec![peers.join("empty").display().to_string()], "standard ABI"),
            (vec![peers.join("odd/lib/libmpi.so").display().to_string()], "is not called"),
            (vec!["ours".to_owned(), "ours".to_owned()], "NAME="),
        ] {
            let error = format!("{:#}", chosen(&words, &prefix, &peers).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }
}
