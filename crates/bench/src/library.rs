//! The MPI libraries that are measured: ours, peers, and any named by a path.

use crate::job;
use crate::programs;
use crate::record::LibraryRecord;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// The file name that the standard ABI fixes.
const STANDARD_NAME: &str = "libmpi_abi.so.1";
/// Most time for a library to say what it is.
const IDENTIFY_LIMIT: Duration = Duration::from_secs(20);
/// The name of our own library in a run.
pub const OURS: &str = "Ferrovia";

/// The peers of `tools/install-peers.sh`: word, name and folder.
pub const PEERS: [(&str, &str, &str); 3] =
    [("mpich", "MPICH", "mpich"), ("intel", "Intel MPI", "impi-rt"), ("openmpi", "Open MPI", "openmpi")];

/// What tells each library to use sockets between processes of one host, too; each reads its own.
const OVER_SOCKETS: [(&str, &str); 7] = [
    ("FERROVIA_DEVICE", "tcp"),
    // MPICH, and what carries its messages.
    ("MPIR_CVAR_NOLOCAL", "1"),
    ("UCX_TLS", "tcp,self"),
    // Intel MPI, and what carries its messages.
    ("I_MPI_FABRICS", "ofi"),
    ("FI_PROVIDER", "tcp"),
    // Open MPI.
    ("OMPI_MCA_pml", "ob1"),
    ("OMPI_MCA_btl", "tcp,self"),
];

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
    /// Variables of the environment that set it, beside those of the caller.
    pub settings: BTreeMap<String, String>,
    /// What it calls itself; empty until it is asked.
    pub version: String,
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
            version: self.version.clone(),
            settings: self.settings.clone(),
        }
    }

    /// The same library under other settings.
    fn varied(&self, variant: &Variant) -> Self {
        Self { name: variant.name.clone(), settings: variant.settings.clone(), ..self.clone() }
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
        command.envs(&self.settings);
        command
    }

    /// As [`Library::command`], where messages go through the system's sockets; what the library is set to by its settings
    /// stays so.
    pub fn command_over_sockets(&self, ranks: u32, limit: Duration) -> Command {
        let mut command = self.command(ranks, limit);
        command.envs(OVER_SOCKETS.iter().copied().filter(|(name, _)| !self.settings.contains_key(*name)));
        command
    }
}

/// Our library under settings of its own, beside itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name in this run.
    pub name: String,
    /// Variables of the environment.
    pub settings: BTreeMap<String, String>,
}

impl std::str::FromStr for Variant {
    type Err = String;

    /// `NAME:SETTING=VALUE,…`; a comma that no setting follows belongs to the value before it.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write NAME:SETTING=VALUE[,SETTING=VALUE]…";
        let (name, list) = text.split_once(':').filter(|(name, _)| !name.is_empty()).ok_or(form)?;
        let mut settings: Vec<(String, String)> = Vec::new();
        for piece in list.split(',') {
            match (piece.split_once('=').filter(|(name, _)| is_variable(name)), settings.last_mut()) {
                (Some((name, value)), _) => settings.push((name.to_owned(), value.to_owned())),
                (None, Some((_, value))) => *value = format!("{value},{piece}"),
                (None, None) => return Err(form.to_owned()),
            }
        }
        Self::new(name, settings.into_iter().collect())
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

impl Variant {
    /// A variant whose settings are understood.
    ///
    /// # Errors
    /// If a setting of ours does not exist or has a value that it cannot have.
    pub fn new(name: &str, settings: BTreeMap<String, String>) -> Result<Self, String> {
        let (_, unknown) = base::Config::parse(settings.clone()).map_err(|error| error.to_string())?;
        match unknown.first() {
            Some(complaint) => Err(complaint.to_string()),
            None => Ok(Self { name: name.to_owned(), settings }),
        }
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
/// with `NAME=` before it if its name shall be another. Variants of ours stand behind it and, where no words are given,
/// in place of the peers.
///
/// # Errors
/// If one cannot be found, or two have the same name.
pub fn chosen(words: &[String], variants: &[Variant], prefix: &Path, peers: &Path) -> Result<Vec<Library>> {
    let mut found: Vec<Library> = if words.is_empty() {
        let mut found = vec![ours(prefix)?];
        if variants.is_empty() {
            found.extend(PEERS.iter().filter_map(|(word, ..)| peer(word, peers).ok()));
        }
        found
    } else {
        words.iter().map(|word| named(word, prefix, peers)).collect::<Result<_>>()?
    };
    if !variants.is_empty() {
        let ours = ours(prefix)?;
        let behind = found.iter().position(|library| library.name == OURS).map_or(found.len(), |place| place + 1);
        found.splice(behind..behind, variants.iter().map(|variant| ours.varied(variant)));
    }
    for (index, library) in found.iter().enumerate() {
        if found[..index].iter().any(|other| other.name == library.name) {
            bail!("two libraries are called {}; write --lib NAME={}", library.name, library.file.display());
        }
    }
    Ok(found)
}

/// Whether the peer of this word is installed.
pub fn is_there(word: &str, peers: &Path) -> bool {
    peer(word, peers).is_ok()
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

/// Asks each library what it calls itself. One that does not answer says why when it is measured.
pub fn identify(libraries: &mut [Library], folder: &Path) {
    let results = folder.join("version");
    for library in libraries {
        let mut command = library.command(1, IDENTIFY_LIMIT);
        command.args(["startup", "--out"]).arg(&results);
        let ended = job::run(&mut command, IDENTIFY_LIMIT);
        if ended.is_ok_and(|ended| ended.success)
            && let Ok((opening, _)) = job::read_results(&results, 1)
        {
            library.version = opening.library.split_whitespace().collect::<Vec<_>>().join(" ");
        }
    }
}

fn named(word: &str, prefix: &Path, peers: &Path) -> Result<Library> {
    match word {
        "ours" => return ours(prefix),
        word if PEERS.iter().any(|(known, ..)| *known == word) => return peer(word, peers),
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
    let (_, name, folder) = PEERS.iter().find(|(known, ..)| *known == word).context("there is no peer of this name")?;
    let folder = peers.join(folder);
    let mut library = at(&folder, &folder)
        .with_context(|| format!("{name} is not under {}; tools/install-peers.sh installs it", peers.display()))?;
    library.name = (*name).to_owned();
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
        settings: BTreeMap::new(),
        version: String::new(),
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
        let all = chosen(&[], &[], &prefix, &peers).unwrap();
        let names: Vec<&str> = all.iter().map(|library| library.name.as_str()).collect();
        assert_eq!(names, ["Ferrovia", "Open MPI"]);
        assert!(all[1].folder.is_none() && all[1].own_wrapper.is_some());
        let file = peers.join("bare/lib/libmpi_abi.so.1");
        let words = [format!("old={}", file.display()), "ours".to_owned()];
        let named = chosen(&words, &[], &prefix, &peers).unwrap();
        assert_eq!((named[0].name.as_str(), &named[0].launcher), ("old", &prefix.join("bin/mpiexec")));
        assert_eq!(named[0].folder.as_deref(), file.parent());
        let variant: Variant = "small:FERROVIA_CHANNEL=8K".parse().unwrap();
        let varied = chosen(&[], std::slice::from_ref(&variant), &prefix, &peers).unwrap();
        assert_eq!((varied[1].name.as_str(), &varied[1].settings), ("small", &variant.settings));
        assert_eq!((varied.len(), &varied[1].file), (2, &varied[0].file));
        let words = ["openmpi".to_owned(), "ours".to_owned()];
        let varied = chosen(&words, &[variant], &prefix, &peers).unwrap();
        assert_eq!(varied.iter().map(|library| library.name.as_str()).collect::<Vec<_>>()[1..], ["Ferrovia", "small"]);
    }

    #[test]
    fn over_sockets_what_a_variant_sets_stays() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("own");
        installation(&prefix, &["bin/mpiexec", "bin/mpicc", "lib/libmpi_abi.so.1"]);
        let variants = ["a:FERROVIA_DEVICE=shm", "b:FERROVIA_SPIN=7"].map(|text| text.parse::<Variant>().unwrap());
        let libraries = chosen(&["ours".to_owned()], &variants, &prefix, folder.path()).unwrap();
        let devices = libraries.iter().map(|library| {
            let command = library.command_over_sockets(2, Duration::from_secs(1));
            let devices = command.get_envs().filter(|(name, _)| *name == "FERROVIA_DEVICE");
            devices.filter_map(|(_, value)| Some(value?.to_str()?.to_owned())).collect::<Vec<_>>()
        });
        assert_eq!(devices.collect::<Vec<_>>(), [["tcp"], ["shm"], ["tcp"]]);
        let ours = OVER_SOCKETS.iter().filter(|(name, _)| name.starts_with("FERROVIA_"));
        let (_, unknown) = base::Config::parse(ours.map(|(name, value)| ((*name).into(), (*value).into()))).unwrap();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn variants_are_understood_or_refused() {
        let variant: Variant =
            "a b:FERROVIA_COLLECTIVES=bcast=binomial,allreduce=ring,FERROVIA_SPIN=7".parse().unwrap();
        let expected = [("FERROVIA_COLLECTIVES", "bcast=binomial,allreduce=ring"), ("FERROVIA_SPIN", "7")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!((variant.name.as_str(), variant.settings), ("a b", BTreeMap::from(expected)));
        for (text, complaint) in [
            ("FERROVIA_SPIN=7", "NAME:"),
            ("a:x", "NAME:"),
            ("a:FERROVIA_SPIN=x", "FERROVIA_SPIN"),
            ("a:FERROVIA_SPINN=7", "FERROVIA_SPINN"),
        ] {
            let error = text.parse::<Variant>().unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
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
            let error = format!("{:#}", chosen(&words, &[], &prefix, &peers).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }
}
