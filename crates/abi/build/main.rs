//! Generates the C face from the standard as data (`standard/abi.json`, `standard/apis.json`).
//!
//! Into `OUT_DIR` go `mpi.h`, `constants.rs`, `types.rs`, `entries.rs` (the entry points), `aliases.s`
//! (`MPI_X` weak over `PMPI_X`) and `exports.map` (the version script of the shared library).

mod alias;
mod arguments;
mod chapters;
mod constants;
mod ctypes;
mod entries;
mod fortran;
mod header;
mod removed;
mod standard;
mod tables;

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let standard_folder = manifest.join("../../standard");
    let chapters_folder = manifest.join("src/chapters");
    for path in [&standard_folder, &chapters_folder, &manifest.join("build")] {
        println!("cargo:rerun-if-changed={}", path.display());
    }

    let standard = standard::Standard::load(&standard_folder);
    let chapters = chapters::scan(&chapters_folder);
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    write(&out.join("mpi.h"), &header::text(&standard));
    write(&out.join("constants.rs"), &constants::text(&standard));
    write(&out.join("types.rs"), &ctypes::text(&standard));
    write(&out.join("entries.rs"), &entries::text(&standard, &chapters));
    write(&out.join("aliases.s"), &alias::assembly(&standard, &architecture));
    let exports = out.join("exports.map");
    write(&exports, &alias::version_script(&standard));

    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", exports.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
}
