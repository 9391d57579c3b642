//! The constants of the standard for Rust: handles and addresses as `usize`, everything else as `i32`.

use std::fmt::Write;

use crate::standard::Standard;

pub fn text(standard: &Standard) -> String {
    let mut text = String::new();
    let mut names: Vec<(u64, String)> = Vec::new();
    for row in standard.rows("handles") {
        let (name, value) = (row[0].as_str().expect("a name"), row[2].as_u64().expect("a value"));
        writeln!(text, "pub const {name}: usize = {value};").expect("strings take everything");
        if value > 1 {
            names.push((value, name.to_owned()));
        }
    }
    for table in ["integers", "strings_sizes"] {
        for row in standard.rows(table) {
            let (name, value) = (row[0].as_str().expect("a name"), row[1].as_i64().expect("a value"));
            writeln!(text, "pub const {name}: i32 = {value};").expect("strings take everything");
        }
    }
    for row in standard.rows("pointers") {
        let (name, value) = (row[0].as_str().expect("a name"), row[2].as_i64().expect("a value"));
        let kind = if value < 0 { "i64" } else { "usize" };
        writeln!(text, "pub const {name}: {kind} = {value};").expect("strings take everything");
    }
    names.sort();
    text.push_str(
        "/// Names of the predefined handles, in order of value.\npub const HANDLE_NAMES: &[(usize, &str)] = &[\n",
    );
    for (value, name) in names {
        writeln!(text, "    ({value}, \"{name}\"),").expect("strings take everything");
    }
    text.push_str("];\n");
    text
}
