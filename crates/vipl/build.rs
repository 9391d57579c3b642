//! Gives the shared library the name by which programs that were linked to it ask for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libvipl.so.1");
}
