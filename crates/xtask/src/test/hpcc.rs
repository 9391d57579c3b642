//! The HPC Challenge benchmark from Debian's archive, compiled unchanged, judged by its own verification.

use super::mpi::Job;
use super::{Case, Verdict};
use crate::command::{Program, exists};
use crate::paths;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The build description HPL asks for; `@MPICC@` and `@BLAS@` are filled in.
const MAKE: &str = include_str!("../../../../tests/hpcc/Make.ferrovia");
const INPUT: &str = include_str!("../../../../tests/hpcc/hpccinf.txt");
const SOURCE_PACKAGE: &str = "hpcc";
const BLAS_PACKAGE: &str = "libopenblas-serial-dev";

/// One case: fetch, build, run on four ranks, read the verdicts.
pub fn cases() -> Vec<Case> {
    vec![Case::that_may_skip("debian/hpcc", |workshop| {
        let prefix = workshop.installation()?;
        if !exists("apt-get") || !exists("dpkg-deb") || !exists("make") {
            return Ok(Verdict::Skipped("needs apt-get, dpkg-deb and make".to_owned()));
        }
        let source = fetch()?;
        let program = build(&source, &prefix)?;
        run(&program).map(|()| Verdict::Passed)
    })]
}

/// Source archive and BLAS, fetched once with apt lists of our own: nothing of the system is changed.
fn fetch() -> Result<Source> {
    let folder = paths::cache().join("debian");
    let archive = find(&folder, "hpcc_", ".orig.tar.gz");
    let blas = folder.join("blas");
    if let (Some(archive), true) = (archive, blas.is_dir()) {
        return Ok(Source { archive, blas });
    }
    println!("Fetching {SOURCE_PACKAGE} and {BLAS_PACKAGE} from the Debian archive (only once)");
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::create_dir_all(folder.join("archives/partial"))?;
    fs::write(folder.join("debian.sources"), sources()?)?;
    let apt = || {
        Program::new("apt-get")
            .args(["-q", "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root", "-o"])
            .arg(format!("Dir::Etc::sourcelist={}", folder.join("debian.sources").display()))
            .arg("-o")
            .arg(format!("Dir::State::Lists={}", folder.join("lists").display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", folder.display()))
            .folder(&folder)
            .limit(Duration::from_secs(300))
    };
    apt().arg("update").run_successfully()?;
    apt().args(["source", "--download-only", "--tar-only", SOURCE_PACKAGE]).run_successfully()?;
    apt().args(["download", BLAS_PACKAGE]).run_successfully()?;
    let package = find(&folder, BLAS_PACKAGE, ".deb").context("apt-get fetched no BLAS package")?;
    let unpacked = folder.join("blas.new");
    let _ = fs::remove_dir_all(&unpacked);
    Program::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked).run_successfully()?;
    fs::rename(&unpacked, &blas)?;
    let archive = find(&folder, "hpcc_", ".orig.tar.gz").context("apt-get fetched no source archive")?;
    Ok(Source { archive, blas })
}

struct Source {
    archive: PathBuf,
    blas: PathBuf,
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

fn build(source: &Source, prefix: &Path) -> Result<PathBuf> {
    let folder = paths::target().join("hpcc");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    Program::new("tar")
        .arg("-xzf")
        .arg(&source.archive)
        .args(["--strip-components=1", "-C"])
        .arg(&folder)
        .run_successfully()?;
    let blas = Program::new("find").arg(&source.blas).args(["-name", "libopenblas.a"]).run_successfully()?;
    let Some(blas) = blas.stdout.lines().next() else { bail!("the package {BLAS_PACKAGE} has no libopenblas.a") };
    let make = MAKE.replace("@MPICC@", &prefix.join("bin/mpicc").to_string_lossy()).replace("@BLAS@", blas);
    fs::write(folder.join("hpl/Make.ferrovia"), make)?;
    Program::new("make").args(["-j2", "arch=ferrovia"]).folder(&folder).run_successfully()?;
    Ok(folder.join("hpcc"))
}

fn run(program: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("hpccinf.txt"), INPUT)?;
    let finished =
        Job::of(4).with(|command| command.arg(program).folder(folder.path()).limit(Duration::from_secs(180))).run()?;
    let report = fs::read_to_string(folder.path().join("hpccoutf.txt")).unwrap_or_default();
    let tail = || report.lines().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
    if !finished.success() {
        return Err(finished.complain(format!("hpcc did not end well; the end of its report:\n{}", tail())));
    }
    let said = |text: &str| report.lines().any(|line| line.trim() == text);
    for verdict in [
        "Success=1",
        "MPIRandomAccess_LCG_Errors=0",
        "MPIRandomAccess_Errors=0",
        "PTRANS_residual=0",
        "5 tests completed and passed residual checks.",
        "0 tests completed and failed residual checks.",
        "1 tests completed and passed residual checks,",
    ] {
        if !said(verdict) {
            bail!("hpcc's report lacks {verdict:?}; its end:\n{}", tail());
        }
    }
    if report.contains("FAILED")
        || report.lines().any(|line| line.contains("Node(s) with error") && !line.ends_with(" 0"))
    {
        bail!("hpcc found errors; the end of its report:\n{}", tail());
    }
    Ok(())
}

fn find(folder: &Path, start: &str, end: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(start) && name.ends_with(end))
    })
}
