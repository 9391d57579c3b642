//! Programs of others from Debian's archive, compiled unchanged, that judge themselves.

mod fftw;
mod hpcc;
pub mod mpich;

use super::{Case, Verdict, Workshop};
use crate::command::{Program, exists};
use crate::paths;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A case for each program: fetch, build against the installation given, run.
pub fn cases() -> Vec<Case> {
    vec![
        case("debian/hpcc", &["make"], hpcc::test),
        case("debian/fftw", &["make"], fftw::test),
        case("debian/mpich", &["make", "perl", "xz"], mpich::test),
    ]
}

fn case(name: &str, tools: &'static [&str], test: fn(&Workshop, &Path) -> Result<()>) -> Case {
    Case::that_may_skip(name, move |workshop| {
        let prefix = workshop.installation()?;
        if let Some(lacking) = ["apt-get", "dpkg-deb"].iter().chain(tools).find(|tool| !exists(tool)) {
            return Ok(Verdict::Skipped(format!("needs {lacking}")));
        }
        test(workshop, &prefix).map(|()| Verdict::Passed)
    })
}

/// The source of a package, unpacked anew into a folder of this name in `target`; what fits these patterns of it, or
/// without any the whole.
fn source(workshop: &Workshop, package: &str, folder: &str, patterns: &[&str]) -> Result<PathBuf> {
    let archive = fetched(workshop, package, ".orig.tar.", &["source", "--download-only", "--tar-only"])?;
    let folder = paths::target().join(folder);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    Program::new("tar")
        .arg("-xf")
        .arg(&archive)
        .args(["--strip-components=1", "--wildcards", "-C"])
        .arg(&folder)
        .args(patterns)
        .run_successfully()?;
    Ok(folder)
}

/// What a binary package would install, in a folder of the cache.
fn installed(workshop: &Workshop, package: &str) -> Result<PathBuf> {
    let folder = cache().join(package);
    if folder.is_dir() {
        return Ok(folder);
    }
    let archive = fetched(workshop, package, ".deb", &["download"])?;
    let unpacked = folder.with_extension("new");
    let _ = fs::remove_dir_all(&unpacked);
    Program::new("dpkg-deb").arg("-x").arg(archive).arg(&unpacked).run_successfully()?;
    fs::rename(&unpacked, &folder)?;
    Ok(folder)
}

/// The file of a package with this in its name, which this call of apt-get brings if the cache does not have it.
fn fetched(workshop: &Workshop, package: &str, kind: &str, call: &[&str]) -> Result<PathBuf> {
    let start = format!("{package}_");
    if let Some(file) = find(&cache(), &start, kind) {
        return Ok(file);
    }
    workshop.debian_lists()?;
    println!("Fetching {package} from the Debian archive (only once)");
    apt().args(call).arg(package).run_successfully()?;
    find(&cache(), &start, kind).with_context(|| format!("apt-get fetched no {start}…{kind}"))
}

/// Asks the archive what it has. The lists are our own: nothing of the system is changed.
pub fn update_lists() -> Result<()> {
    let folder = cache();
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("archives/partial"))?;
    fs::write(folder.join("debian.sources"), sources()?)?;
    apt().arg("update").run_successfully().map(|_| ())
}

fn apt() -> Program {
    let folder = cache();
    Program::new("apt-get")
        .args(["-q", "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root", "-o"])
        .arg(format!("Dir::Etc::sourcelist={}", folder.join("debian.sources").display()))
        .arg("-o")
        .arg(format!("Dir::State::Lists={}", folder.join("lists").display()))
        .arg("-o")
        .arg(format!("Dir::Cache={}", folder.display()))
        .folder(&folder)
        .limit(Duration::from_secs(300))
}

fn cache() -> PathBuf {
    paths::cache().join("debian")
}

/// The archive of this system's own Debian release, as a deb822 source.
fn sources() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(|text| text.trim_matches('"').to_owned()))
    };
    let debian = value("ID").as_deref() == Some("debian");
    let suite = value("VERSION_CODENAME").filter(|_| debian).unwrap_or_else(|| "bookworm".to_owned());
    let archive = archive().context("no Debian archive stands in this system's package sources")?;
    Ok(format!(
        "Types: deb deb-src\nURIs: {archive}\nSuites: {suite}\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    ))
}

/// Where this system gets its Debian packages from.
fn archive() -> Option<String> {
    let listed = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let texts = [PathBuf::from("/etc/apt/sources.list")].into_iter().chain(listed).map(fs::read_to_string);
    let is_archive = |word: &&str| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian");
    texts.flatten().find_map(|text| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        lines.flat_map(str::split_whitespace).find(is_archive).map(str::to_owned)
    })
}

fn find(folder: &Path, start: &str, kind: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(start) && name.contains(kind) && !name.ends_with(".asc"))
    })
}
