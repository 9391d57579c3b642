//! The shared library as a C program sees it, in a world of one: checks, handles, error handlers, tools.

mod support;

use std::process::Command;

use support::Bench;

/// Wraps statements into a program.
fn program(statements: &str) -> String {
    format!(
        "#include <mpi.h>\n#include <stdio.h>\n#include <string.h>\n\
         void say(int code) {{ char text[MPI_MAX_ERROR_STRING]; int len, class; MPI_Error_class(code, &class);\n\
         \x20   MPI_Error_string(code, text, &len); printf(\"%d %s\\n\", class, text); }}\n\
         void alike(int code, void *at) {{ char text[MPI_MAX_ERROR_STRING], where[32]; int len;\n\
         \x20   MPI_Error_string(code, text, &len); sprintf(where, \"%p\", at); puts(strstr(text, where) ? \"both start there\" : text); }}\n\
         void on_error(MPI_Comm *comm, int *code, ...) {{ int class, size; MPI_Error_class(*code, &class);\n\
         \x20   MPI_Comm_size(*comm, &size); printf(\"class %d, size %d\\n\", class, size); }}\n\
         void twice_plus(void *in, void *inout, int *len, MPI_Datatype *type) {{ int size; MPI_Type_size(*type, &size);\n\
         \x20   printf(\"size %d\\n\", size); for (int i = 0; i < *len; i++) ((int *)inout)[i] += 2 * ((int *)in)[i]; }}\n\
         int main(int argc, char **argv) {{\n    MPI_Init(&argc, &argv);\n\
         \x20   MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);\n\
         \x20   MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);\n{statements}\n    MPI_Finalize();\n    return 0;\n}}\n"
    )
}

/// Runs the statements; they print exactly `expected`.
fn check(name: &str, statements: &str, expected: &str) {
    check_program(name, &program(statements), expected);
}

/// The same of a whole program.
fn check_program(name: &str, program: &str, expected: &str) {
    let bench = Bench::new(name);
    let program = bench.program("program", program);
    let output = bench.run(&program, &[], None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}: {said}");
    assert!(output.status.success(), "{name}: {said}");
}

#[test]
fn a_bad_argument_is_named_with_its_call_and_value() {
    check(
        "arguments",
        r#"
        int x = 0, *nowhere = NULL;
        say(MPI_Send(&x, 1, MPI_INT, 7, 0, MPI_COMM_WORLD));
        say(MPI_Send(&x, -3, MPI_INT, 0, 0, MPI_COMM_WORLD));
        say(MPI_Send(&x, 1, MPI_INT, 0, -5, MPI_COMM_WORLD));
        say(MPI_Send(&x, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD));
        say(MPI_Send(nowhere, 1, MPI_INT, 0, 0, MPI_COMM_WORLD));
        say(MPI_Send(&x, 1, MPI_INT, 0, 0, MPI_COMM_NULL));
        say(MPI_Send(&x, 1, (MPI_Datatype)MPI_COMM_WORLD, 0, 0, MPI_COMM_WORLD));
        say(MPI_Bcast(&x, 1, MPI_INT, 1, MPI_COMM_WORLD));
        say(MPI_Comm_rank(MPI_COMM_WORLD, nowhere));
        say(MPI_Recv_c(&x, -1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        "#,
        "6 MPI_ERR_RANK: MPI_Send: parameter 4 (dest) = 7 is not a rank of MPI_COMM_WORLD (size 1)\n\
         2 MPI_ERR_COUNT: MPI_Send: parameter 2 (count) = -3 is negative\n\
         4 MPI_ERR_TAG: MPI_Send: parameter 5 (tag) = -5 is not among 0 to 536870911 (MPI_TAG_UB)\n\
         6 MPI_ERR_RANK: MPI_Send: parameter 4 (dest) = MPI_ANY_SOURCE is not a rank of MPI_COMM_WORLD (size 1)\n\
         1 MPI_ERR_BUFFER: MPI_Send: parameter 1 (buf) is a null pointer, but 1 elements of a datatype without absolute addresses are to be there\n\
         5 MPI_ERR_COMM: MPI_Send: parameter 6 (comm) = MPI_COMM_NULL is not a communicator\n\
         3 MPI_ERR_TYPE: MPI_Send: parameter 3 (datatype) = MPI_COMM_WORLD is not a datatype\n\
         8 MPI_ERR_ROOT: MPI_Bcast: parameter 4 (root) = 1 is not a rank of MPI_COMM_WORLD (size 1)\n\
         13 MPI_ERR_ARG: MPI_Comm_rank: parameter 2 (rank) is a null pointer\n\
         2 MPI_ERR_COUNT: MPI_Recv_c: parameter 2 (count) = -1 is negative\n",
    );
}

#[test]
fn stale_and_foreign_handles_are_noticed() {
    check(
        "handles",
        r#"
        int rank; MPI_Comm copy, stale; MPI_Datatype type, pair; char text[MPI_MAX_ERROR_STRING]; int len;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        stale = copy;
        MPI_Comm_free(&copy);
        MPI_Error_string(MPI_Comm_rank(stale, &rank), text, &len);
        puts(strstr(text, "is a communicator that was freed") && copy == MPI_COMM_NULL ? "freed" : text);
        MPI_Type_contiguous(2, MPI_INT, &type);
        MPI_Error_string(MPI_Comm_rank((MPI_Comm)type, &rank), text, &len);
        puts(strstr(text, "is the handle of a datatype, not of a communicator") ? "foreign" : text);
        MPI_Error_string(MPI_Send(&rank, 1, type, MPI_PROC_NULL, 0, MPI_COMM_WORLD), text, &len);
        puts(strstr(text, "was not committed") ? "uncommitted" : text);
        printf("%d\n", MPI_Type_fromint(MPI_Type_toint(type)) == type);
        MPI_Type_contiguous(3, type, &pair);
        MPI_Type_free(&type);
        int ints[1]; MPI_Aint none[1]; MPI_Datatype old[1]; MPI_Type_get_contents(pair, 1, 0, 1, ints, none, old);
        int size; MPI_Type_size(old[0], &size); printf("%d %d\n", ints[0], size);
        MPI_Type_free(&old[0]); MPI_Type_free(&pair);
        MPI_Type_contiguous(1, MPI_DOUBLE, &type);
        MPI_Type_get_contents(type, 1, 0, 1, ints, none, old);
        printf("%d\n", old[0] == MPI_DOUBLE);
        type = MPI_INT;
        say(MPI_Type_free(&type));
        "#,
        "freed\nforeign\nuncommitted\n1\n3 8\n1\n3 MPI_ERR_TYPE: MPI_Type_free: MPI_INT is predefined and cannot be freed\n",
    );
}

#[test]
fn what_is_over_at_once_ends_as_the_whole_of_a_call_does() {
    let statements = r#"
        int x[4] = {1, 2, 3, 4}, y[4] = {0}, flag = 7, at = 0, count, *nowhere = NULL;
        MPI_Request none = MPI_REQUEST_NULL; MPI_Status status; MPI_Comm copy, stale; MPI_Datatype vector;
        say(MPI_Allreduce(x, y, 4, MPI_INT, MPI_BOR, MPI_COMM_SELF)); printf("%d %d\n", y[0], y[3]);
        say(MPI_Allreduce(MPI_IN_PLACE, y, 4, MPI_INT, MPI_BOR, MPI_COMM_SELF)); printf("%d %d\n", y[0], y[3]);
        alike(MPI_Allreduce(x, x, 4, MPI_INT, MPI_SUM, MPI_COMM_SELF), x);
        say(MPI_Allreduce(x, y, 4, MPI_DOUBLE, MPI_BOR, MPI_COMM_SELF));
        say(MPI_Allreduce(x, y, 4, MPI_INT, MPI_REPLACE, MPI_COMM_SELF));
        say(MPI_Allreduce(x, y, -1, MPI_INT, MPI_SUM, MPI_COMM_SELF));
        say(MPI_Allreduce(x, nowhere, 4, MPI_INT, MPI_SUM, MPI_COMM_SELF));
        say(MPI_Allreduce(nowhere, nowhere, 0, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_SELF));
        say(MPI_Allreduce(x, y, 4, MPI_INT, MPI_OP_NULL, MPI_COMM_SELF));
        say(MPI_Reduce_local(x, y, 4, MPI_INT, MPI_SUM)); printf("%d %d\n", y[0], y[3]);
        alike(MPI_Reduce_local(x, x, 4, MPI_INT, MPI_SUM), x);
        say(MPI_Reduce_local(x, x, 0, MPI_INT, MPI_SUM));
        say(MPI_Reduce_local(x, y, 2, MPI_DOUBLE, MPI_BAND));
        say(MPI_Reduce_local(nowhere, y, 4, MPI_INT, MPI_SUM));
        say(MPI_Reduce_local(MPI_IN_PLACE, y, 4, MPI_INT, MPI_SUM));
        say(MPI_Send(nowhere, 0, MPI_DATATYPE_NULL, MPI_PROC_NULL, 0, MPI_COMM_SELF));
        say(MPI_Send(MPI_IN_PLACE, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF));
        say(MPI_Send(x, 1, MPI_DATATYPE_NULL, MPI_PROC_NULL, 0, MPI_COMM_SELF));
        say(MPI_Test(&none, &flag, &status)); printf("%d %d\n", flag, status.MPI_SOURCE == MPI_ANY_SOURCE);
        say(MPI_Test(&none, nowhere, &status));
        say(MPI_Iprobe(MPI_PROC_NULL, 3, MPI_COMM_SELF, &flag, &status));
        printf("%d %d\n", flag, status.MPI_SOURCE == MPI_PROC_NULL);
        say(MPI_Iprobe(MPI_ANY_SOURCE, -7, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
        say(MPI_Iprobe(2, 3, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
        MPI_Send(x, 3, MPI_INT, 0, 3, MPI_COMM_SELF);
        say(MPI_Iprobe(0, 4, MPI_COMM_SELF, &flag, &status)); printf("%d\n", flag);
        say(MPI_Iprobe(0, 3, MPI_COMM_SELF, &flag, &status)); MPI_Get_count(&status, MPI_INT, &count);
        printf("%d %d\n", flag, count);
        MPI_Recv(y, 3, MPI_INT, 0, 3, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        MPI_Type_vector(2, 1, 2, MPI_INT, &vector); MPI_Type_commit(&vector);
        say(MPI_Pack(x, 1, vector, y, 16, &at, MPI_COMM_SELF)); printf("%d %d %d\n", at, y[0], y[1]);
        say(MPI_Pack(x, 3, MPI_INT, y, 16, &at, MPI_COMM_SELF)); printf("%d\n", at);
        say(MPI_Unpack(y, 4, &at, x, 1, MPI_INT, MPI_COMM_SELF)); printf("%d\n", at);
        at = 4; say(MPI_Unpack(y, 8, &at, x, 1, MPI_INT, MPI_COMM_SELF)); printf("%d %d\n", at, x[0]);
        say(MPI_Allreduce(x, y, 1, vector, MPI_SUM, MPI_COMM_SELF));
        MPI_Type_free(&vector);
        MPI_Comm_dup(MPI_COMM_SELF, &copy); stale = copy;
        say(MPI_Barrier(copy)); MPI_Comm_free(&copy); say(MPI_Barrier(MPI_COMM_NULL));
        flag = MPI_Barrier(stale); MPI_Error_class(flag, &count); printf("%d\n", count == MPI_ERR_COMM);
        "#;
    let expected = "0 MPI_SUCCESS: no error\n\
         1 4\n\
         0 MPI_SUCCESS: no error\n\
         1 4\n\
         both start there\n\
         10 MPI_ERR_OP: MPI_Allreduce: MPI_BOR is not defined for datatype MPI_DOUBLE (reduction on MPI_COMM_SELF)\n\
         10 MPI_ERR_OP: MPI_Allreduce: MPI_REPLACE is not defined for datatype MPI_INT (reduction on MPI_COMM_SELF)\n\
         2 MPI_ERR_COUNT: MPI_Allreduce: parameter 3 (count) = -1 is negative\n\
         1 MPI_ERR_BUFFER: MPI_Allreduce: parameter 2 (recvbuf) is a null pointer, but 4 elements of a datatype without absolute addresses are to be there\n\
         10 MPI_ERR_OP: MPI_Allreduce: MPI_SUM is not defined for datatype MPI_BYTE (reduction on MPI_COMM_SELF)\n\
         10 MPI_ERR_OP: MPI_Allreduce: parameter 5 (op) = MPI_OP_NULL is not a reduction operation\n\
         0 MPI_SUCCESS: no error\n\
         2 8\n\
         both start there\n\
         0 MPI_SUCCESS: no error\n\
         10 MPI_ERR_OP: MPI_Reduce_local: MPI_BAND is not defined for datatype MPI_DOUBLE\n\
         1 MPI_ERR_BUFFER: MPI_Reduce_local: parameter 1 (inbuf) is a null pointer, but 4 elements of a datatype without absolute addresses are to be there\n\
         1 MPI_ERR_BUFFER: MPI_Reduce_local: parameter 1 (inbuf) = MPI_IN_PLACE is not legal here\n\
         0 MPI_SUCCESS: no error\n\
         1 MPI_ERR_BUFFER: MPI_Send: parameter 1 (buf) = MPI_IN_PLACE is not legal here\n\
         3 MPI_ERR_TYPE: MPI_Send: parameter 3 (datatype) = MPI_DATATYPE_NULL is not a datatype\n\
         0 MPI_SUCCESS: no error\n\
         1 1\n\
         13 MPI_ERR_ARG: MPI_Test: parameter 2 (flag) is a null pointer\n\
         0 MPI_SUCCESS: no error\n\
         1 1\n\
         4 MPI_ERR_TAG: MPI_Iprobe: parameter 2 (tag) = -7 is not among 0 to 536870911 (MPI_TAG_UB) or MPI_ANY_TAG\n\
         6 MPI_ERR_RANK: MPI_Iprobe: parameter 1 (source) = 2 is not a rank of MPI_COMM_SELF (size 1)\n\
         0 MPI_SUCCESS: no error\n\
         0\n\
         0 MPI_SUCCESS: no error\n\
         1 3\n\
         0 MPI_SUCCESS: no error\n\
         8 1 3\n\
         15 MPI_ERR_TRUNCATE: MPI_Pack: 12 bytes from position 8 on are more than outsize = 16 has\n\
         8\n\
         15 MPI_ERR_TRUNCATE: MPI_Unpack: 4 bytes from position 8 on are more than insize = 4 has\n\
         8\n\
         0 MPI_SUCCESS: no error\n\
         8 3\n\
         10 MPI_ERR_OP: MPI_Allreduce: MPI_SUM is not defined for a datatype made by MPI_Type_vector (reduction on MPI_COMM_SELF)\n\
         0 MPI_SUCCESS: no error\n\
         5 MPI_ERR_COMM: MPI_Barrier: parameter 1 (comm) = MPI_COMM_NULL is not a communicator\n\
         1\n";
    // Where threads may call, no call has a first attempt.
    let begin = "int provided; MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided)";
    for (name, begin) in [("at-once", "MPI_Init(&argc, &argv)"), ("not-at-once", begin)] {
        check_program(name, &program(statements).replace("MPI_Init(&argc, &argv)", begin), expected);
    }
}

#[test]
fn what_is_not_implemented_says_so() {
    let missing = mpi_abi::COVERAGE.iter().find(|(name, there)| *name == "MPI_Win_fence" && !there);
    if missing.is_none() {
        return;
    }
    check(
        "missing",
        r#"
        char text[MPI_MAX_ERROR_STRING]; int len, class, code = MPI_Win_fence(0, MPI_WIN_NULL);
        MPI_Error_class(code, &class); MPI_Error_string(code, text, &len);
        printf("%d %d %d\n", class == MPI_ERR_UNSUPPORTED_OPERATION, strstr(text, "MPI_Win_fence") != NULL, len > 40);
        "#,
        "1 1 1\n",
    );
}

#[test]
fn fortran_literals_are_kept_and_tools_get_numbers() {
    check(
        "fortran",
        r#"
        int yes = -1, no = 0, is_set = 7, got[2] = {5, 5}, code, class, provided;
        MPI_Abi_get_fortran_booleans(4, &got[0], &got[1], &is_set); printf("%d %d\n", is_set, got[0]);
        MPI_Abi_set_fortran_booleans(4, &yes, &no);
        MPI_Abi_get_fortran_booleans(4, &got[0], &got[1], &is_set); printf("%d %d %d\n", is_set, got[0], got[1]);
        say(MPI_Abi_set_fortran_booleans(4, &no, &yes));
        code = MPI_T_init_thread(MPI_THREAD_SINGLE, &provided); MPI_Error_class(code, &class);
        printf("%d\n", code == MPI_SUCCESS || class == MPI_ERR_UNSUPPORTED_OPERATION);
        "#,
        "0 5\n1 -1 0\n62 MPI_ERR_ABI: MPI_Abi_set_fortran_booleans: the Fortran literals have been set before, to other values\n1\n",
    );
}

#[test]
fn the_default_handler_ends_the_process_with_the_message() {
    let bench = Bench::new("fatal");
    let source = "#include <mpi.h>\n#include <stdio.h>\nint main(int argc, char **argv) { int x = 0; MPI_Init(&argc, &argv);\n\
                  puts(\"before\"); MPI_Send(&x, 1, MPI_INT, 9, 0, MPI_COMM_WORLD); puts(\"after\"); return 0; }\n";
    let output = bench.run(&bench.program("program", source), &[], None);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in ["MPI_Send", "(dest) = 9", "MPI_COMM_WORLD", "MPI_ERR_RANK", "MPI_ERRORS_ARE_FATAL"] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    assert!(!String::from_utf8_lossy(&output.stdout).contains("after"));
}

#[test]
fn calls_before_the_beginning_and_after_the_end_are_fatal_and_some_are_legal() {
    let bench = Bench::new("early");
    let source = "#include <mpi.h>\n#include <stdio.h>\nint main(int argc, char **argv) { int flag, rank; MPI_Info info;\n\
                  MPI_Initialized(&flag); MPI_Info_create(&info); MPI_Info_set(info, \"a\", \"b\"); MPI_Info_free(&info);\n\
                  printf(\"%d\\n\", flag); if (argc > 1) { MPI_Init(&argc, &argv); MPI_Finalize(); MPI_Finalized(&flag); printf(\"%d\\n\", flag); }\n\
                  fflush(stdout); MPI_Comm_rank(MPI_COMM_WORLD, &rank); puts(\"not reached\"); return 0; }\n";
    let program = bench.program("program", source);
    for (arguments, out, why) in [(&[][..], "0\n", "before MPI_Init"), (&["x"][..], "0\n1\n", "after MPI_Finalize")] {
        let output = bench.run(&program, arguments, None);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), out);
        assert!(!output.status.success() && said.contains("MPI_Comm_rank") && said.contains(why), "{said}");
    }
}

#[test]
fn a_users_error_handler_and_reduction_may_call_mpi() {
    check(
        "callbacks",
        r#"
        MPI_Op op; MPI_Errhandler handler, same; int in[2] = {3, 4}, inout[2] = {10, 20};
        MPI_Comm_create_errhandler(on_error, &handler);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
        MPI_Comm_get_errhandler(MPI_COMM_WORLD, &same);
        printf("%d\n", same == handler);
        MPI_Errhandler_free(&same); MPI_Errhandler_free(&handler);
        MPI_Send(in, 1, MPI_INT, 5, 0, MPI_COMM_WORLD);
        MPI_Op_create(twice_plus, 1, &op);
        MPI_Reduce_local(in, inout, 2, MPI_INT, op);
        printf("%d %d\n", inout[0], inout[1]);
        MPI_Allreduce(MPI_IN_PLACE, inout, 2, MPI_INT, op, MPI_COMM_SELF);
        MPI_Op_free(&op);
        "#,
        "1\nclass 6, size 1\nsize 4\n16 28\n",
    );
}

#[test]
fn a_tool_in_front_intercepts() {
    let bench = Bench::new("tool");
    bench.source(
        "tool.c",
        "#include <mpi.h>\n#include <stdio.h>\n\
         int MPI_Send(const void *b, int n, MPI_Datatype t, int d, int g, MPI_Comm c) { printf(\"tool: tag %d\\n\", g); fflush(stdout); return PMPI_Send(b, n, t, d, g, c); }\n",
    );
    bench.compile("cc", &["-shared", "-fPIC", "-I.", "tool.c", "-o", "libtool.so"]);
    let program = bench.program(
        "program",
        &program("int x = 0; MPI_Send(&x, 1, MPI_INT, MPI_PROC_NULL, 42, MPI_COMM_WORLD); puts(\"done\");"),
    );
    let output = bench.run(&program, &[], Some(&bench.path("libtool.so")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "tool: tag 42\ndone\n");
    let output = bench.run(&program, &[], None);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}

#[test]
fn only_the_standards_symbols_are_exported() {
    let bench = Bench::new("symbols");
    let output = match Command::new("nm").args(["-D", "--defined-only"]).arg(bench.path("libmpi_abi.so.1")).output() {
        Ok(output) if output.status.success() => output,
        _ => return println!("skipped: there is no nm"),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let symbols: Vec<(&str, &str)> = text.lines().map(|line| line[17..].split_once(' ').unwrap()).collect();
    for (name, _) in mpi_abi::COVERAGE {
        assert!(symbols.contains(&("W", name)), "{name} is weak");
        assert!(symbols.contains(&("T", format!("P{name}").as_str())), "P{name} is strong");
    }
    let others: Vec<_> =
        symbols.iter().filter(|(_, name)| !name.starts_with("MPI_") && !name.starts_with("PMPI_")).collect();
    assert_eq!(others, [&("T", "ferrovia_coverage")]);
}
