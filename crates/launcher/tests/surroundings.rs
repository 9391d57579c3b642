//! What ranks are given: variables, directory, programs, limits, processors, and the PMI wire.

mod common;

use std::process::Command;

use common::{Job, PROBE, mpiexec};

#[test]
fn ranks_exchange_through_us() {
    for rank_count in [1, 2, 5] {
        let finished = mpiexec(&format!("-n {rank_count}")).arg(PROBE).arg("exchange").arg("50").run();
        let expected: Vec<String> =
            (0..rank_count).map(|rank| format!("rank {rank} of {rank_count} appnum 0 local {rank_count}")).collect();
        finished.check_lines(&expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn several_programs_are_one_world() {
    let finished = mpiexec("-n 1").arg(PROBE).args("exchange 1 : -np 2").arg(PROBE).args("exchange 1").run();
    finished.check_lines(&[
        "rank 0 of 3 appnum 0 local 3",
        "rank 1 of 3 appnum 1 local 3",
        "rank 2 of 3 appnum 1 local 3",
    ]);
}

#[test]
fn two_programs_one_after_the_other() {
    let script = format!("{PROBE} exchange 2 && {PROBE} exchange 3");
    let finished = mpiexec("-n 2").sh(&script).run();
    let one = |rank| format!("rank {rank} of 2 appnum 0 local 2");
    finished.check_lines(&[&one(0), &one(0), &one(1), &one(1)]);
}

#[test]
fn a_program_without_a_launcher() {
    let mut command = Command::new(PROBE);
    for name in ["PMI_FD", "PMI_RANK", "PMI_SIZE"] {
        command.env_remove(name);
    }
    let alone = Job::of(command).run();
    assert_eq!(alone.stdout, "a world of one\n");
    for variables in [
        ["PMI_RANK=0", "PMI_SIZE=2", "A=B"],
        ["PMI_FD=77", "PMI_RANK=0", "PMI_SIZE=2"],
        ["PMI_FD=1", "PMI_RANK=0", "PMI_SIZE=2"],
    ] {
        let mut command = Command::new("env");
        command.args(variables).arg(PROBE);
        let finished = Job::of(command).run();
        assert_eq!(
            (finished.code, finished.stdout.as_str(), finished.stderr.lines().count()),
            (99, "", 1),
            "{finished:?}"
        );
        assert!(finished.stderr.contains("PMI_"), "{finished:?}");
    }
}

#[test]
fn variables() {
    let show = "echo $PMI_RANK $A $B $C $D";
    let finished = mpiexec("-n 1 -genv A 1 -env B 2 -x C=3 -x D").sh(show).env("D", "4").run();
    finished.check_lines(&["0 1 2 3 4"]);
    let finished = mpiexec("-n 1 -genv A all -env B first").sh(show).args(": -n 1").sh(show).env("C", "kept").run();
    finished.check_lines(&["0 all first kept", "1 all kept"]);
    let finished = mpiexec("-n 1 -genvlist A,B").sh(show).env("A", "1").env("C", "3").run();
    finished.check_lines(&["0 1"]);
    let finished = mpiexec("-n 1 -genvnone -env A 1 /bin/sh -c").arg("echo $A $C").env("C", "3").run();
    finished.check_lines(&["1"]);
    let local = mpiexec("-n 2")
        .sh("echo $PMI_SIZE $MPI_LOCALRANKID/$MPI_LOCALNRANKS $PMI_SPAWNED ${PMI_PORT-none}")
        .env("PMI_PORT", "a:1")
        .run();
    local.check_lines(&["2 0/2 0 none", "2 1/2 0 none"]);
    let job = mpiexec("-n 2").sh("echo $FERROVIA_JOB").run();
    let names: Vec<&str> = job.stdout.lines().collect();
    assert!(names.len() == 2 && names[0] == names[1] && !names[0].is_empty());
}

#[test]
fn arguments_and_directory() {
    let finished = mpiexec("-n 2 -wdir / sh -c")
        .arg("pwd; printf '[%s]' \"$@\"; echo")
        .arg("sh")
        .arg("two words")
        .arg("")
        .arg("-n")
        .arg("*")
        .run();
    finished.check_lines(&["/", "/", "[two words][][-n][*]", "[two words][][-n][*]"]);
}

#[test]
fn the_library_is_offered_last() {
    let finished = mpiexec("-n 1 --lib /our/lib").sh("echo $LD_LIBRARY_PATH").env("LD_LIBRARY_PATH", "/theirs").run();
    finished.check_lines(&["/theirs:/our/lib"]);
    let finished = mpiexec("-n 1 --lib none").sh("echo $LD_LIBRARY_PATH").env("LD_LIBRARY_PATH", "/theirs").run();
    finished.check_lines(&["/theirs"]);
    // A copy with a lib directory beside it, as installed.
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join("bin")).unwrap();
    std::fs::create_dir(folder.join("lib")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_mpiexec"), folder.join("bin/mpiexec")).unwrap();
    std::fs::write(folder.join("lib/libmpi_abi.so.1"), "").unwrap();
    let mut command = Command::new(folder.join("bin/mpiexec"));
    command.args(["-n", "1", "sh", "-c", "echo $LD_LIBRARY_PATH"]).env_remove("LD_LIBRARY_PATH");
    Job::of(command).run().check_lines(&[folder.join("lib").to_str().unwrap()]);
}

#[test]
fn few_open_files() {
    let limited = |limit: &str, ranks: &str| {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("ulimit {limit} && exec \"$@\""),
            "sh",
            env!("CARGO_BIN_EXE_mpiexec"),
            "-n",
            ranks,
        ]);
        Job::of(command)
    };
    let finished = limited("-n 64", "12").arg(PROBE).args("exchange 2").run();
    assert_eq!((finished.code, finished.stdout.lines().count()), (0, 12), "{finished:?}");
    limited("-n 64", "40").args("true").run().check_complaint(2, &["40 ranks need 140 open files, the limit is 64"]);
    // Between soft and hard limit, the ranks keep the soft one.
    let finished = limited("-Sn 32", "10").sh("ulimit -Sn").run();
    finished.check_lines(&["32"; 10]);
}

#[test]
fn bound_to_cores() {
    let show = "grep Cpus_allowed_list /proc/self/status";
    let free = mpiexec("-n 2 --bind-to none").sh(show).run();
    assert_eq!(free.code, 0);
    let lines: Vec<&str> = free.stdout.lines().collect();
    assert_eq!(lines[0], lines[1]);
    let bound = mpiexec("-n 3 --bind-to hwthread").sh(show).run();
    assert!(bound.code == 0 && bound.stdout.lines().all(|line| !line.contains(['-', ','])), "{bound:?}");
    mpiexec("-n 1 --bind-to moon true").run().check_complaint(2, &["moon"]);
}

#[test]
fn garbage_on_the_wire() {
    for kind in ["binary", "endless", "words"] {
        let finished = mpiexec("-n 2").arg(PROBE).arg("garbage").arg(kind).run();
        finished.check_complaint(1, &["broke the launcher's protocol", "rank "]);
    }
    // What we merely do not know is answered.
    mpiexec("-n 2").arg(PROBE).args("garbage unknown").run().check_lines(&[]);
}

#[test]
fn many_ranks() {
    let finished = mpiexec("-n 40").arg(PROBE).args("exchange 1").run();
    assert_eq!((finished.code, finished.stdout.lines().count()), (0, 40), "{finished:?}");
}

#[test]
fn help_and_version() {
    let help = mpiexec("--help").run();
    assert!(help.code == 0 && help.stdout.contains("Examples:") && help.stdout.contains("--tag-output"));
    assert!(mpiexec("-version").run().stdout.starts_with("mpiexec "));
    let usage = mpiexec("").run();
    assert!(usage.code == 2 && usage.stderr.contains("--help"));
}
