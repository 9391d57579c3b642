//! The symbols: `MPI_X` weak over `PMPI_X`, so that a tool can put itself in front.
//!
//! A weak symbol equal to another one can vanish between codegen units; a jump of one instruction
//! does not.

use std::fmt::Write;

use crate::fortran;
use crate::removed::REMOVED;
use crate::standard::Standard;

pub fn assembly(standard: &Standard, architecture: &str) -> String {
    let jump = match architecture {
        "x86_64" => |name: &str| format!("jmp P{name}@PLT"),
        "aarch64" | "riscv64" => {
            |name: &str| format!("{} P{name}", if cfg!(target_arch = "riscv64") { "tail" } else { "b" })
        }
        other => panic!("how does one jump on {other}?"),
    };
    let mut text = String::from(".text\n");
    let own = standard.functions.iter().map(|function| (function.name.clone(), function.name.as_str()));
    let removed = REMOVED.iter().filter_map(|removed| Some((removed.name().to_owned(), removed.same_as?)));
    let conversions = fortran::handles(standard).map(|(name, function)| (name, function.name.as_str()));
    for (name, target) in own.chain(removed).chain(conversions) {
        writeln!(
            text,
            ".weak {name}\n.type {name}, %function\n.p2align 3\n{name}:\n    {}\n.size {name}, . - {name}",
            jump(target)
        )
        .expect("strings take everything");
    }
    text
}

pub fn version_script(standard: &Standard) -> String {
    let mut text = String::from("{\n  global:\n    ferrovia_coverage;\n");
    for function in &standard.functions {
        writeln!(text, "    {0};\n    P{0};", function.name).expect("strings take everything");
    }
    let removed = REMOVED.iter().map(|removed| removed.name().to_owned());
    for name in removed.chain(fortran::handles(standard).map(|(name, _)| name)) {
        writeln!(text, "    {name};").expect("strings take everything");
    }
    text.push_str("  local: *;\n};\n");
    text
}
