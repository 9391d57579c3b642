//! `cargo xtask install`: a release build laid out under a prefix that may be moved afterwards.

use crate::command::Program;
use crate::paths;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const WRAPPER: &str = include_str!("install/wrapper.sh");
const PKG_CONFIG: &str = include_str!("install/ferrovia.pc");
const VIPL_PKG_CONFIG: &str = include_str!("install/vipl.pc");
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is installed, as cargo's words. Whoever builds more in release mode builds these as well, so that all libraries have
/// the same features and go into the same kinds of results: none is compiled twice. Not the programs that only tests start.
pub const TARGETS: [&str; 7] = [
    "--package=abi",
    "--package=vipl",
    "--package=launcher",
    "--package=cli",
    "--lib",
    "--bin=mpiexec",
    "--bin=ferrovia",
];

/// Builds and installs under `prefix`, telling what it does.
pub fn run(prefix: &Path) -> Result<()> {
    let prefix = std::path::absolute(prefix)?;
    println!("Building libmpi_abi.so.1, libvipl.so.1, mpiexec and ferrovia (release)");
    let built = build()?;
    println!("Installing under {}", prefix.display());
    lay_out(&built, &prefix)?;
    println!("\nTo use it:  export PATH={}:$PATH", prefix.join("bin").display());
    println!("            mpicc program.c -o program && mpiexec -n 4 ./program");
    Ok(())
}

/// What cargo built.
struct Built {
    library: PathBuf,
    vipl: PathBuf,
    mpiexec: PathBuf,
    ferrovia: PathBuf,
    header: PathBuf,
}

/// One release build of the four faces; cargo itself says where the results are.
fn build() -> Result<Built> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--message-format=json-render-diagnostics"])
        .args(TARGETS)
        .current_dir(paths::root())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the release build failed; the compiler's messages are above");
    }
    let messages: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Ok(Built {
        library: artifact(&messages, "abi", |file| file.ends_with(".so"))?,
        vipl: artifact(&messages, "vipl", |file| file.ends_with(".so"))?,
        mpiexec: artifact(&messages, "launcher", |file| file.ends_with("/mpiexec"))?,
        ferrovia: artifact(&messages, "cli", |file| file.ends_with("/ferrovia"))?,
        header: build_output(&messages, "abi")?.join("mpi.h"),
    })
}

/// The first file of a package's results that `wanted` accepts.
fn artifact(messages: &[Value], package: &str, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    messages
        .iter()
        .filter(|message| message["reason"] == "compiler-artifact" && is_of(message, package))
        .filter_map(|message| message["filenames"].as_array())
        .flatten()
        .filter_map(Value::as_str)
        .find(|file| wanted(file))
        .map(PathBuf::from)
        .with_context(|| format!("cargo reported no result of package {package} to install"))
}

/// The folder the package's build script wrote to.
fn build_output(messages: &[Value], package: &str) -> Result<PathBuf> {
    messages
        .iter()
        .filter(|message| message["reason"] == "build-script-executed" && is_of(message, package))
        .find_map(|message| message["out_dir"].as_str())
        .map(PathBuf::from)
        .with_context(|| format!("cargo reported no build script output of package {package}"))
}

/// Whether a message concerns a package of this workspace (`path+file:///…/crates/abi#0.1.0`).
fn is_of(message: &Value, package: &str) -> bool {
    message["package_id"].as_str().is_some_and(|id| id.contains(&format!("/crates/{package}#")))
}

fn lay_out(built: &Built, prefix: &Path) -> Result<()> {
    let (bin, lib) = (prefix.join("bin"), prefix.join("lib"));
    put_file(&built.library, &lib.join("libmpi_abi.so.1"), 0o755)?;
    put_link("libmpi_abi.so.1", &lib.join("libmpi_abi.so"))?;
    // By the name under which makefiles without a wrapper ask for an MPI.
    put_link("libmpi_abi.so.1", &lib.join("libmpi.so"))?;
    put_file(&built.header, &prefix.join("include/mpi.h"), 0o644)?;
    put_text(&PKG_CONFIG.replace("@VERSION@", VERSION), &lib.join("pkgconfig/ferrovia.pc"), 0o644)?;
    put_file(&built.vipl, &lib.join("libvipl.so.1"), 0o755)?;
    put_link("libvipl.so.1", &lib.join("libvipl.so"))?;
    put_file(&paths::root().join("crates/vipl/include/vipl.h"), &prefix.join("include/vipl.h"), 0o644)?;
    put_text(&VIPL_PKG_CONFIG.replace("@VERSION@", VERSION), &lib.join("pkgconfig/vipl.pc"), 0o644)?;
    put_file(&built.mpiexec, &bin.join("mpiexec"), 0o755)?;
    put_link("mpiexec", &bin.join("mpirun"))?;
    put_file(&built.ferrovia, &bin.join("ferrovia"), 0o755)?;
    put_text(&wrapper("mpicc", "C", &["FERROVIA_CC", "MPICH_CC", "OMPI_CC"], "cc"), &bin.join("mpicc"), 0o755)?;
    put_text(&wrapper("mpicxx", "C++", &["FERROVIA_CXX", "MPICH_CXX", "OMPI_CXX"], "c++"), &bin.join("mpicxx"), 0o755)?;
    put_link("mpicxx", &bin.join("mpic++"))?;
    for document in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "docs"] {
        put_tree(&paths::root().join(document), &prefix.join("share/doc/ferrovia").join(document))?;
    }
    for (made, what) in [
        ("bin/mpiexec, bin/mpirun", "start programs"),
        ("bin/mpicc, bin/mpicxx, bin/mpic++", "compile and link C and C++"),
        ("bin/ferrovia", "tells what is installed and why things are as they are"),
        ("lib/libmpi_abi.so.1", "the library: MPI-5 standard ABI (-lmpi_abi or -lmpi)"),
        ("include/mpi.h, lib/pkgconfig/ferrovia.pc", "for compilers and build systems"),
        ("lib/libvipl.so.1, include/vipl.h, vipl.pc", "the VI Provider Library 1.0"),
    ] {
        println!("  {made:<42} {what}");
    }
    Ok(())
}

fn wrapper(name: &str, language: &str, variables: &[&str], default: &str) -> String {
    let compiler =
        variables.iter().rev().fold(default.to_owned(), |otherwise, name| format!("${{{name}:-{otherwise}}}"));
    WRAPPER
        .replace("@NAME@", name)
        .replace("@LANGUAGE@", language)
        .replace("@VARIABLES@", &variables.join(", "))
        .replace("@DEFAULT@", default)
        .replace("@COMPILER@", &compiler)
        .replace("@VERSION@", VERSION)
}

/// Writes beside the place and renames, so that a program using the old file keeps it.
fn put(place: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = place.parent().context("a place without folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let name = place.file_name().context("a place without name")?.to_string_lossy();
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    write(&beside)
        .and_then(|()| Ok(fs::rename(&beside, place)?))
        .inspect_err(|_| drop(fs::remove_file(&beside)))
        .with_context(|| format!("cannot install {}", place.display()))
}

fn put_file(from: &Path, place: &Path, mode: u32) -> Result<()> {
    put(place, |beside| {
        fs::copy(from, beside).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(fs::set_permissions(beside, fs::Permissions::from_mode(mode))?)
    })
}

fn put_text(text: &str, place: &Path, mode: u32) -> Result<()> {
    put(place, |beside| {
        fs::write(beside, text)?;
        Ok(fs::set_permissions(beside, fs::Permissions::from_mode(mode))?)
    })
}

fn put_link(to: &str, place: &Path) -> Result<()> {
    put(place, |beside| Ok(symlink(to, beside)?))
}

/// A file, or a folder with everything in it; what is not there is left out.
fn put_tree(from: &Path, place: &Path) -> Result<()> {
    if from.is_dir() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            put_tree(&entry.path(), &place.join(entry.file_name()))?;
        }
    } else if from.is_file() {
        put_file(from, place, 0o644)?;
    }
    Ok(())
}

/// The installed compiler wrapper or launcher.
pub fn installed(program: &str) -> Program {
    Program::new(paths::prefix().join("bin").join(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An installation of scripts only, under a name with a space, reached through a link.
    fn scripts() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("a b/bin");
        put_text(&wrapper("mpicc", "C", &["FERROVIA_CC", "MPICH_CC"], "cc"), &bin.join("mpicc"), 0o755).unwrap();
        put_link("a b/bin/mpicc", &folder.path().join("linked")).unwrap();
        let linked = folder.path().join("linked");
        (folder, linked)
    }

    fn said(program: Program) -> String {
        program.env_remove("FERROVIA_CC").env_remove("MPICH_CC").run_successfully().unwrap().stdout
    }

    #[test]
    fn wrapper_finds_its_prefix_through_links_and_spaces() {
        let (folder, mpicc) = scripts();
        let include = folder.path().canonicalize().unwrap().join("a b/include");
        assert_eq!(said(Program::new(&mpicc).arg("-showme:compile")), format!("'-I{}'\n", include.display()));
    }

    #[test]
    fn wrapper_links_only_when_linking() {
        let (_folder, mpicc) = scripts();
        let linking = said(Program::new(&mpicc).args(["-show", "a.c", "-o", "an out"]));
        assert!(linking.contains("a.c -o 'an out'") && linking.contains("-lmpi_abi") && linking.contains("-rpath"));
        for flag in ["-c", "-E", "-S"] {
            let compiling = said(Program::new(&mpicc).args(["-show", flag, "a.c"]));
            assert!(!compiling.contains("-lmpi_abi"), "{compiling}");
        }
    }

    #[test]
    fn wrapper_takes_another_compiler() {
        let (_folder, mpicc) = scripts();
        let shown = said(Program::new(&mpicc).args(["-show", "-cc=ccache gcc-12", "x.c", "-c"]));
        assert!(shown.starts_with("ccache gcc-12 x.c -c "), "{shown}");
        let shown = Program::new(&mpicc).args(["-show", "x.c"]).env("FERROVIA_CC", "clang").run_successfully().unwrap();
        assert!(shown.stdout.starts_with("clang x.c "), "{}", shown.stdout);
    }
}
