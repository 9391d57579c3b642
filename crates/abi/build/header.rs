//! `mpi.h` of the MPI-5 standard ABI, whole.

use std::fmt::Write;

use serde_json::Value;

use crate::fortran;
use crate::removed::REMOVED;
use crate::standard::Standard;

const TOP: &str = "\
/* mpi.h: the standard ABI of MPI 5.0, generated from the standard as data.
 * Programs compiled with it run on every MPI library that offers this ABI. */
#ifndef MPI_H_ABI
#define MPI_H_ABI

#include <stdint.h>

#if defined(__cplusplus)
extern \"C\" {
#endif

#if !defined(MPI_ABI_Aint)
#define MPI_ABI_Aint intptr_t
#endif
typedef MPI_ABI_Aint MPI_Aint;
#undef MPI_ABI_Aint

#if !defined(MPI_ABI_Offset)
#define MPI_ABI_Offset int64_t
#endif
typedef MPI_ABI_Offset MPI_Offset;
#undef MPI_ABI_Offset

#if !defined(MPI_ABI_Count)
#define MPI_ABI_Count MPI_Offset
#endif
typedef MPI_ABI_Count MPI_Count;
#undef MPI_ABI_Count
";

const BOTTOM: &str = "
#if defined(__cplusplus)
}
#endif

#endif /* MPI_H_ABI */
";

/// Typedefs that take part in the first lines of the header.
const INTEGER_TYPES: [&str; 4] = ["MPI_Aint", "MPI_Offset", "MPI_Count", "MPI_ABI_Count"];

pub fn text(standard: &Standard) -> String {
    let mut text = format!("{TOP}{}", fortran::INTEGER);
    status(&mut text, standard, "int", "MPI_Status");
    status(&mut text, standard, "MPI_Fint", "MPI_F08_status");
    handles(&mut text, standard);
    integers(&mut text, standard);
    sizes(&mut text, standard);
    callbacks(&mut text, standard);
    pointers(&mut text, standard);
    aliases(&mut text, standard);
    functions(&mut text, standard);
    text.push_str(&fortran::conversions(standard));
    text.push_str(BOTTOM);
    text
}

/// A status, with this type in place of `int`.
fn status(text: &mut String, standard: &Standard, integer: &str, name: &str) {
    text.push_str("\ntypedef struct {\n");
    for field in standard.abi["status_struct"]["fields"].as_array().expect("a list") {
        let length = field[2].as_u64().expect("a length");
        let brackets = if length > 1 { format!("[{length}]") } else { String::new() };
        line(text, &format!("    {} {}{brackets};", string(&field[0]).replace("int", integer), string(&field[1])));
    }
    line(text, &format!("}} {name};"));
}

fn handles(text: &mut String, standard: &Standard) {
    for (name, target) in standard.abi["handle_types"].as_object().expect("an object") {
        line(text, &format!("\ntypedef {}{name};", string(target)));
        for row in standard.rows("handles").iter().filter(|row| string(&row[1]) == name) {
            define(text, string(&row[0]), &format!("(({name})0x{:08x})", row[2].as_u64().expect("a value")));
        }
    }
}

fn integers(text: &mut String, standard: &Standard) {
    let enums = standard.abi["enum_types"].as_object().expect("an object");
    text.push('\n');
    for row in standard.rows("integers") {
        let (name, value) = (string(&row[0]), row[1].as_i64().expect("a value"));
        if enums.values().any(|names| names.as_array().is_some_and(|names| names.contains(&row[0]))) {
            continue;
        }
        let value = if value < 0 { format!("({value})") } else { value.to_string() };
        define(text, name, &value);
    }
    for (name, members) in enums {
        text.push_str("\ntypedef enum {\n");
        let members = members.as_array().expect("a list");
        for (at, member) in members.iter().enumerate() {
            let row = standard.rows("integers").iter().find(|row| row[0] == *member).expect("it has a value");
            let comma = if at + 1 < members.len() { "," } else { "" };
            line(text, &format!("    {} = {}{comma}", string(member), row[1]));
        }
        line(text, &format!("}} {name};"));
    }
}

fn sizes(text: &mut String, standard: &Standard) {
    text.push('\n');
    for row in standard.rows("strings_sizes") {
        define(text, string(&row[0]), &row[1].to_string());
    }
}

fn callbacks(text: &mut String, standard: &Standard) {
    text.push('\n');
    for row in standard.rows("callback_typedefs") {
        line(text, &format!("typedef {} ({})({});", string(&row[1]), string(&row[0]), string(&row[2])));
    }
}

fn pointers(text: &mut String, standard: &Standard) {
    text.push('\n');
    for row in standard.rows("pointers") {
        define(text, string(&row[0]), &format!("(({}){})", string(&row[1]), row[2]));
    }
}

fn aliases(text: &mut String, standard: &Standard) {
    text.push('\n');
    for row in standard.rows("aliases") {
        let (name, target) = (string(&row[0]), string(&row[1]));
        if !INTEGER_TYPES.contains(&name) {
            define(text, name, target);
        }
    }
}

fn functions(text: &mut String, standard: &Standard) {
    text.push('\n');
    for function in &standard.functions {
        line(text, &format!("{};", declared(&function.prototype)));
    }
    text.push('\n');
    for function in &standard.functions {
        line(text, &format!("{};", declared(&function.prototype).replacen(" MPI_", " PMPI_", 1)));
    }
    text.push_str("\n/* Removed from the standard by MPI 3.0; not every library with this ABI has them. */\n");
    for removed in REMOVED {
        line(text, &format!("{};", removed.prototype));
    }
    text.push_str("typedef MPI_Comm_errhandler_function MPI_Handler_function;\n");
}

/// A prototype as the header has it: weights may be `MPI_UNWEIGHTED`, which points to no memory, and compilers warn of
/// that where an array is declared.
fn declared(prototype: &str) -> String {
    let weights = ["weights", "sourceweights", "destweights"];
    weights
        .iter()
        .fold(prototype.to_owned(), |text, name| text.replace(&format!("int {name}[]"), &format!("int *{name}")))
}

fn define(text: &mut String, name: &str, value: &str) {
    line(text, &format!("#define {name:<34} {value}"));
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("strings take everything");
}

fn string(value: &Value) -> &str {
    value.as_str().expect("a string")
}
