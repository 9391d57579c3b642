//! `mpi.h`: it compiles everywhere without a word, and its values are those of the standard, ours as
//! well as another library's.

mod support;

use std::fmt::Write;
use std::path::PathBuf;

use support::Bench;

#[test]
fn compiles_in_c_and_in_cpp_without_a_warning() {
    let bench = Bench::new("header-languages");
    let text = "#include <mpi.h>\nint main(void) { return MPI_SUCCESS; }\n";
    bench.source("plain.c", text);
    bench.source("plain.cc", text);
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wstrict-prototypes", "-Werror", "-I.", "-fsyntax-only"];
    for standard in ["-std=gnu89", "-std=c99", "-std=c11", "-std=c17"] {
        bench.compile("cc", &[&strict[..], &[standard, "plain.c"]].concat());
    }
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I.", "-fsyntax-only"];
    for standard in ["-std=c++11", "-std=c++20"] {
        bench.compile("c++", &[&strict[..], &[standard, "plain.cc"]].concat());
    }
}

/// A C program whose compilation proves every value, offset and prototype of the tables.
fn proof() -> String {
    let abi = support::abi();
    let rows = |table: &str| abi[table].as_array().unwrap().clone();
    let mut text = String::from(
        "#define _Static_assert_(what) _Static_assert(what, #what)\n#include <stddef.h>\n\
         _Static_assert_(sizeof(MPI_Status) == 32);\n_Static_assert_(offsetof(MPI_Status, MPI_TAG) == 4);\n\
         _Static_assert_(offsetof(MPI_Status, MPI_ERROR) == 8);\n_Static_assert_(sizeof(MPI_Aint) == sizeof(void *));\n\
         _Static_assert_(sizeof(MPI_Offset) == 8);\n_Static_assert_(sizeof(MPI_Count) == 8);\n",
    );
    for table in ["integers", "strings_sizes"] {
        for row in rows(table) {
            writeln!(text, "_Static_assert_({} == {});", row[0].as_str().unwrap(), row[1]).unwrap();
        }
    }
    // Addresses are no constant expressions in the sense of C, but they can initialise.
    text.push_str("struct value { const char *name; long long is, shall_be; } values[] = {\n");
    for (table, value) in [("handles", 2), ("pointers", 2)] {
        for row in rows(table) {
            let name = row[0].as_str().unwrap();
            writeln!(text, "    {{\"{name}\", (long long){name}, {}}},", row[value]).unwrap();
        }
    }
    text.push_str("};\n");
    for (index, prototype) in rows("prototypes").iter().enumerate() {
        // The standard has `MPI_Count` here, the ABI's list has not.
        let prototype = prototype.as_str().unwrap().replace("partitions, int count", "partitions, MPI_Count count");
        // Declaring a function twice is an error unless both declarations agree.
        writeln!(text, "{prototype};\n{};", prototype.replacen(" MPI_", " PMPI_", 1)).unwrap();
        let name = prototype.split('(').next().unwrap().split(' ').next_back().unwrap();
        writeln!(text, "void *address_{index}(void) {{ return (void *){name}; }}").unwrap();
    }
    text.push_str(
        "#include <stdio.h>\nint main(void) {\n    int wrong = 0;\n\
         \x20   for (size_t i = 0; i < sizeof values / sizeof *values; i++)\n\
         \x20       if (values[i].is != values[i].shall_be) { puts(values[i].name); wrong = 1; }\n\
         \x20   return wrong;\n}\n",
    );
    text
}

fn check_values(bench: &Bench, name: &str, include: &str, folder: &str, library: &str) {
    let file = format!("{name}.c");
    bench.source(&file, &format!("#include <{include}>\n{}", proof()));
    bench.compile("cc", &["-std=c11", "-I", folder, &file, library, "-Wl,--allow-shlib-undefined", "-o", name]);
    let output = bench.run(&bench.path(name), &[], None);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn values_and_prototypes_are_those_of_the_standard_and_every_symbol_is_there() {
    let bench = Bench::new("header-values");
    check_values(&bench, "ours", "mpi.h", ".", "libmpi_abi.so.1");
}

#[test]
fn mpich_agrees() {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let folder = home.join(".cache/ferrovia-peers/mpich/include");
    if !folder.join("mpi_abi.h").exists() {
        println!("skipped: MPICH is not installed in {}", folder.display());
        return;
    }
    let bench = Bench::new("header-mpich");
    check_values(&bench, "mpich", "mpi_abi.h", folder.to_str().unwrap(), "libmpi_abi.so.1");
}
