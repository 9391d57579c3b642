//! From the command line to a plan: which program, with which environment, for which rank.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::CpuSet;

use crate::options::{RANK_COUNT_MAX, Request, Section, name_and_value};
use crate::{LaunchError, binding, hosts};

/// The variable that marks every process of a job; nested jobs carry all marks, separated by dots.
pub(crate) const JOB_VARIABLE: &str = "FERROVIA_JOB";
/// The setting of the library that `--initial-errhandler` stands for.
const INITIAL_ERRORS_VARIABLE: &str = "FERROVIA_INITIAL_ERRHANDLER";

/// Variables of other launchers that would mislead a rank of ours.
const FOREIGN_PREFIXES: [&str; 5] = ["PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL", "HYDI_CONTROL_FD"];

/// One program of the job.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// What is executed.
    pub path: PathBuf,
    /// Its arguments, its name as the user wrote it first.
    pub args: Vec<OsString>,
    /// Where it starts, if not here.
    pub dir: Option<PathBuf>,
    /// Its whole environment, apart from what differs by rank.
    pub env: Vec<(OsString, OsString)>,
    /// Number of its ranks.
    pub rank_count: u32,
}

/// Everything known before the first rank starts.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub programs: Vec<Program>,
    /// Unique name of the job; one word.
    pub name: String,
    pub rank_count: u32,
    /// Which rank reads our standard input.
    pub stdin_rank: Option<u32>,
    pub tag_output: bool,
    pub verbose: bool,
    pub timeout: Option<Duration>,
    pub grace: Duration,
    /// Processor sets dealt to ranks in turn; empty if ranks are not bound.
    pub places: Vec<CpuSet>,
}

impl Plan {
    /// Checks the request against this machine.
    pub fn new(request: &Request) -> Result<Self, LaunchError> {
        for section in &request.sections {
            section.hosts.iter().try_for_each(|list| hosts::check_list(list))?;
            section.hostfile.iter().try_for_each(|path| hosts::check_file(path))?;
        }
        let rank_count: u64 = request.sections.iter().map(|section| u64::from(section.np)).sum();
        let rank_count = u32::try_from(rank_count).ok().filter(|count| *count <= RANK_COUNT_MAX).ok_or_else(|| {
            LaunchError::Usage(format!("{rank_count} ranks are more than the {RANK_COUNT_MAX} possible"))
        })?;
        let name = job_name();
        let first = &request.sections[0];
        let programs = request.sections.iter().map(|section| program(request, section, &name));
        Ok(Self {
            programs: programs.collect::<Result<_, _>>()?,
            rank_count,
            stdin_rank: stdin_rank(&first.stdin, rank_count)?,
            tag_output: request.any(|section| section.tag_output),
            verbose: request.any(|section| section.verbose),
            timeout: timeout(request)?,
            grace: seconds(first.grace, "--grace")?,
            places: binding::places(&first.bind_to)?,
            name,
        })
    }

    /// For each rank, the index of its program.
    pub fn appnums(&self) -> Vec<u32> {
        (0..)
            .zip(&self.programs)
            .flat_map(|(index, program)| std::iter::repeat_n(index, program.rank_count as usize))
            .collect()
    }
}

impl Program {
    /// As the user wrote it.
    pub fn shown(&self) -> String {
        self.args[0].to_string_lossy().into_owned()
    }
}

fn program(request: &Request, section: &Section, job: &str) -> Result<Program, LaunchError> {
    let env = environment(request, section, job)?;
    if let Some(dir) = &section.wdir
        && !dir.is_dir()
    {
        return Err(LaunchError::Usage(format!("the working directory {} does not exist", dir.display())));
    }
    let search = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let path = find(&section.program[0], section.wdir.as_deref(), search)?;
    Ok(Program { path, args: section.program.clone(), dir: section.wdir.clone(), env, rank_count: section.np })
}

fn environment(request: &Request, section: &Section, job: &str) -> Result<Vec<(OsString, OsString)>, LaunchError> {
    let none = section.envnone || (request.any(|section| section.genvnone) && !section.envall);
    let listed =
        section.envlist.as_ref().or_else(|| request.sections.iter().find_map(|section| section.genvlist.as_ref()));
    let listed = listed.map(|list| list.to_string_lossy().into_owned());
    let wanted = |name: &OsStr| match &listed {
        _ if none => false,
        Some(list) => {
            name == "PATH" || name == "LD_LIBRARY_PATH" || list.split(',').any(|listed| name == listed.trim())
        }
        None => true,
    };
    let misleading =
        |name: &OsStr| FOREIGN_PREFIXES.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()));
    let mut env: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| wanted(name) && !misleading(name)).collect();
    for settings in request.sections.iter().map(|section| &section.genv).chain([&section.env]) {
        for pair in settings.chunks_exact(2) {
            set(&mut env, &pair[0], &pair[1])?;
        }
    }
    for setting in &section.x {
        let (name, value) = name_and_value(setting);
        if let Some(value) = value.or_else(|| std::env::var_os(&name)) {
            set(&mut env, &name, &value)?;
        }
    }
    if let Some(handler) = &section.initial_errhandler {
        set(&mut env, OsStr::new(INITIAL_ERRORS_VARIABLE), OsStr::new(handler))?;
    }
    if let Some(lib) = library_folder(section) {
        append_path(&mut env, "LD_LIBRARY_PATH", &lib)?;
    }
    let mark = match std::env::var(JOB_VARIABLE) {
        Ok(outer) if outer.len() < 1024 => format!("{outer}.{job}"),
        _ => job.to_owned(),
    };
    set(&mut env, OsStr::new(JOB_VARIABLE), OsStr::new(&mark))?;
    Ok(env)
}

fn set(env: &mut Vec<(OsString, OsString)>, name: &OsStr, value: &OsStr) -> Result<(), LaunchError> {
    if name.is_empty() || name.as_bytes().iter().any(|byte| matches!(byte, b'=' | 0)) {
        return Err(LaunchError::Usage(format!("{name:?} cannot be the name of a variable")));
    }
    match env.iter_mut().find(|(other, _)| other == name) {
        Some((_, old)) => value.clone_into(old),
        None => env.push((name.to_owned(), value.to_owned())),
    }
    Ok(())
}

fn append_path(env: &mut Vec<(OsString, OsString)>, name: &str, folder: &Path) -> Result<(), LaunchError> {
    let mut value = env.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone()).unwrap_or_default();
    if !value.is_empty() {
        value.push(":");
    }
    value.push(folder);
    set(env, OsStr::new(name), &value)
}

/// Where programs without a run path shall find the library: the one we were installed with.
fn library_folder(section: &Section) -> Option<PathBuf> {
    match &section.lib {
        Some(folder) if folder.as_os_str() == "none" => None,
        Some(folder) => Some(folder.clone()),
        None => {
            let own = std::env::current_exe().ok()?;
            let folder = own.parent()?.parent()?.join("lib");
            folder.join("libmpi_abi.so.1").exists().then_some(folder)
        }
    }
}

/// Finds what `execvp` would, and says what is wrong before anything is started.
fn find(program: &OsStr, dir: Option<&Path>, search: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let shown = program.to_string_lossy();
    if program.is_empty() {
        return Err(LaunchError::Usage("the program's name is empty".to_owned()));
    }
    if program.as_bytes().contains(&b'/') {
        let path = dir.map_or_else(|| PathBuf::from(program), |dir| dir.join(program));
        let path = std::path::absolute(&path).unwrap_or(path);
        return check(&path, &shown).map(|()| path);
    }
    let mut refusal = None;
    let search = search.unwrap_or(OsStr::new("/bin:/usr/bin"));
    for folder in std::env::split_paths(search) {
        let folder = dir.map_or_else(|| folder.clone(), |dir| dir.join(&folder));
        let path = folder.join(program);
        match check(&path, &shown) {
            Ok(()) => return Ok(std::path::absolute(&path).unwrap_or(path)),
            Err(error @ LaunchError::NotExecutable(_)) => refusal = refusal.or(Some(error)),
            Err(_) => {}
        }
    }
    let here = dir.unwrap_or(Path::new(".")).join(program);
    Err(refusal.unwrap_or_else(|| {
        let hint = if here.is_file() { format!("; did you mean ./{shown}?") } else { String::new() };
        LaunchError::NotFound(format!("cannot find the program {shown} in PATH{hint}"))
    }))
}

fn check(path: &Path, shown: &str) -> Result<(), LaunchError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(LaunchError::NotExecutable(format!(
                "cannot execute {shown}: no permission to look into its directory"
            )));
        }
        Err(_) => {
            return Err(LaunchError::NotFound(format!(
                "cannot find the program {shown}: {} does not exist",
                path.display()
            )));
        }
    };
    if metadata.is_dir() {
        return Err(LaunchError::NotExecutable(format!("cannot execute {shown}: it is a directory")));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        let hint = match path.extension().and_then(OsStr::to_str) {
            Some("py") => format!("start it as: mpiexec … python3 {shown}"),
            Some("c" | "cc" | "cpp" | "f90" | "rs") => "it is source code, compile it first".to_owned(),
            _ => format!("chmod +x {shown}?"),
        };
        return Err(LaunchError::NotExecutable(format!("cannot execute {shown}: it is not executable ({hint})")));
    }
    Ok(())
}

fn stdin_rank(text: &str, rank_count: u32) -> Result<Option<u32>, LaunchError> {
    match text {
        "none" => Ok(None),
        _ => match text.parse::<u32>() {
            Ok(rank) if rank < rank_count => Ok(Some(rank)),
            _ => Err(LaunchError::Usage(format!("--stdin {text} is neither none nor a rank below {rank_count}"))),
        },
    }
}

fn timeout(request: &Request) -> Result<Option<Duration>, LaunchError> {
    if let Some(value) = request.sections.iter().find_map(|section| section.timeout) {
        return seconds(value, "--timeout").map(Some);
    }
    let Ok(text) = std::env::var("MPIEXEC_TIMEOUT") else { return Ok(None) };
    let value =
        text.parse().map_err(|_| LaunchError::Usage(format!("MPIEXEC_TIMEOUT={text} is not a number of seconds")))?;
    seconds(value, "MPIEXEC_TIMEOUT").map(Some)
}

fn seconds(value: f64, name: &str) -> Result<Duration, LaunchError> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| *duration <= Duration::from_secs(10 * 365 * 86_400))
        .ok_or_else(|| LaunchError::Usage(format!("{name} {value} is not a number of seconds")))
}

/// Unique among the jobs of this machine, now and soon.
fn job_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(std::process::id());
    format!("{:x}-{random:016x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_or_explained() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tool.py");
        std::fs::write(&path, "").unwrap();
        let search = Some(OsStr::new("/bin:/usr/bin"));
        let check = |program: &OsStr, dir: Option<&Path>, expected: &str| {
            let error = find(program, dir, search).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        assert!(find(OsStr::new("sh"), None, search).unwrap().ends_with("sh"));
        check(OsStr::new("no-such-program"), None, "in PATH");
        check(OsStr::new("tool.py"), Some(folder.path()), "did you mean ./tool.py?");
        check(OsStr::new("./tool.py"), Some(folder.path()), "python3 ./tool.py");
        check(OsStr::new("./other"), Some(folder.path()), "does not exist");
        check(folder.path().as_os_str(), None, "directory");
    }

    #[test]
    fn limits_of_numbers() {
        assert_eq!(stdin_rank("2", 3).unwrap(), Some(2));
        assert_eq!(stdin_rank("none", 3).unwrap(), None);
        assert!(stdin_rank("3", 3).is_err());
        assert!(seconds(-1.0, "x").is_err());
        assert!(seconds(f64::NAN, "x").is_err());
        assert_eq!(seconds(0.5, "x").unwrap(), Duration::from_millis(500));
        assert_ne!(job_name(), job_name());
    }
}
