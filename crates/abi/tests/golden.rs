//! What the generator makes of typical functions, to be looked at: `tests/golden/*.rs`.
//!
//! Run with `FERROVIA_GOLDEN=write` to write the samples anew after a change of the generator.

use std::path::PathBuf;

const ENTRIES: &str = include_str!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// The text of one entry point, documentation included.
fn generated(name: &str) -> String {
    let start = ENTRIES.find(&format!("fn P{name}(")).unwrap_or_else(|| panic!("{name} is not generated"));
    let start = ENTRIES[..start].rfind("/// `").unwrap();
    let end = start + ENTRIES[start..].find("\n}\n").unwrap() + 3;
    ENTRIES[start..end].to_owned()
}

fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.rs"));
    let actual = generated(name);
    if std::env::var_os("FERROVIA_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(&path, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(actual, expected, "{name}: the generator makes something else than {}", path.display());
}

#[test]
fn a_message() {
    check("MPI_Send");
}

#[test]
fn a_wait_for_many() {
    check("MPI_Waitsome");
}

#[test]
fn a_collective_with_arrays_and_large_counts() {
    check("MPI_Alltoallw_c");
}

#[test]
fn arguments_that_matter_at_the_root_only() {
    check("MPI_Gatherv");
}

#[test]
fn a_call_whose_large_form_has_more_parameters() {
    check("MPI_Type_get_contents");
}

#[test]
fn a_call_that_only_looks() {
    check("MPI_Get_count");
}

#[test]
fn callbacks() {
    check("MPI_Comm_create_keyval");
}

#[test]
fn no_error_code() {
    check("MPI_Wtime");
}

#[test]
fn what_is_missing() {
    check("MPI_File_open");
}
