//! How jobs end: exit codes, the one line about the first failure, signals, and that nothing is left.

mod common;

use std::process::{Command, Stdio};

use common::{Job, PROBE, finished, mpiexec, wait_until};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn exit_codes() {
    for code in [0, 1, 42, 255] {
        assert_eq!(mpiexec("-n 2").sh(&format!("exit {code}")).run().code, code);
    }
}

#[test]
fn the_first_failure_ends_those_who_sleep_for_ever() {
    let finished = mpiexec("-n 4").sh("test $PMI_RANK = 2 && exit 7; sleep 600").run();
    finished.check_complaint(7, &["rank 2 (pid ", ", sh) exited with code 7"]);
}

#[test]
fn a_killed_rank_is_named() {
    let finished = mpiexec("-n 3").sh("test $PMI_RANK = 1 && kill -SEGV $$; sleep 600").run();
    finished.check_complaint(128 + 11, &["rank 1 (pid ", "was killed by signal 11 (Segmentation fault"]);
    let finished = mpiexec("-n 2").sh("test $PMI_RANK = 1 && kill -KILL $$; sleep 600").run();
    finished.check_complaint(128 + 9, &["rank 1", "was killed by"]);
}

#[test]
fn those_who_ignore_sigterm_are_killed() {
    let finished =
        mpiexec("-n 2 --grace 0.1").sh("trap '' TERM; test $PMI_RANK = 1 && exit 3; while :; do sleep 600; done").run();
    finished.check_complaint(3, &["rank 1"]);
}

#[test]
fn those_who_handle_sigterm_have_their_time() {
    let script = "test $PMI_RANK = 1 && { sleep 0.3; exit 3; }; trap 'echo tidied; exit 0' TERM; sleep 600 & wait";
    let finished = mpiexec("-n 2 --grace 20").sh(script).run();
    finished.check_complaint(3, &["rank 1"]);
    assert_eq!(finished.stdout, "tidied\n");
}

#[test]
fn what_ranks_leave_behind_is_ended() {
    // In the background, in a session of its own, and deaf.
    let finished = mpiexec("-n 2 --grace 0.1")
        .sh("sleep 600 & setsid sh -c 'trap \"\" TERM; sleep 600; sleep 600' & sleep 0.2; echo done")
        .run();
    finished.check_lines(&["done", "done"]);
}

#[test]
fn abort_gives_its_code() {
    for (code, expected) in [("5", 5), ("0", 0), ("256", 255), ("-1", 255)] {
        let finished = mpiexec("-n 3").arg(PROBE).arg("abort").arg(code).run();
        finished.check_complaint(expected, &["rank 1", "called MPI_Abort with code", code]);
    }
}

#[test]
fn a_rank_that_leaves_without_finalize() {
    for how in ["barrier", "sleep"] {
        let finished = mpiexec("-n 3").arg(PROBE).arg("leave").arg(how).run();
        finished.check_complaint(
            1,
            &["rank 0", "exited with", "without calling MPI_Finalize"]
                .map(|words| if how == "sleep" && words == "exited with" { "exited" } else { words }),
        );
    }
    let alone = mpiexec("-n 1").arg(PROBE).arg("leave").arg("sleep").run();
    alone.check_complaint(0, &["without calling MPI_Finalize"]);
}

#[test]
fn a_rank_that_never_begins() {
    let finished = mpiexec("-n 2").arg(PROBE).arg("barrier").arg(":").arg("true").run();
    finished.check_complaint(1, &["rank 2", "exited with code 0 without calling MPI_Init while rank", "waits for it"]);
}

#[test]
fn a_bad_exit_after_finalize_disturbs_nobody() {
    let finished = mpiexec("-n 3").arg(PROBE).arg("exit-after-finalize").arg("6").run();
    finished.check_complaint(6, &["rank 0", "exited with code 6"]);
    assert_eq!(finished.stdout.matches("ended in peace").count(), 2);
}

#[test]
fn timeouts() {
    mpiexec("-n 2 --timeout 0.2 sleep 600").run().check_complaint(124, &["0.2 s"]);
    mpiexec("-n 2 sleep 600").env("MPIEXEC_TIMEOUT", "0.1").run().check_complaint(124, &["still running"]);
}

#[test]
fn programs_that_cannot_be_started() {
    mpiexec("-n 2 ./no-such-program").run().check_complaint(127, &["no-such-program", "does not exist"]);
    mpiexec("-n 2 no-such-program").run().check_complaint(127, &["in PATH"]);
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("program.txt");
    std::fs::write(&text, "not a program").unwrap();
    mpiexec("-n 2").arg(text.to_str().unwrap()).run().check_complaint(126, &["is not executable"]);
    mpiexec("-n 2 -wdir /no/such/place true").run().check_complaint(2, &["/no/such/place"]);
    mpiexec("-n 2 -hosts 192.0.2.1 true").run().check_complaint(2, &["192.0.2.1", "this machine"]);
    // One that the kernel refuses although it looks like a program.
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    mpiexec("-n 3").arg(broken.to_str().unwrap()).run().check_complaint(1, &["rank 0", "broken"]);
}

/// Starts a job whose ranks report in a file, and waits until all have.
fn started(job: &mut Job, report: &std::path::Path, rank_count: usize) -> std::process::Child {
    job.command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = job.command.spawn().unwrap();
    wait_until("all ranks", || common::read(report).matches("up\n").count() == rank_count);
    child
}

fn signal(child: &std::process::Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn signals_reach_the_ranks() {
    for (sent, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report");
        let script = format!(
            "trap 'echo got {name}; exit 0' {name}; echo up >> {}; while :; do sleep 0.05; done",
            report.display()
        );
        let mut job = mpiexec("-n 3").sh(&script);
        let child = started(&mut job, &report, 3);
        signal(&child, sent);
        let finished = finished(child.wait_with_output().unwrap());
        assert_eq!((finished.code, finished.stdout.matches(&format!("got {name}\n")).count()), (0, 3), "{finished:?}");
        job.check_gone();
    }
}

#[test]
fn an_interrupt_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut job = mpiexec("-n 3").sh(&format!("echo up >> {}; exec sleep 600", report.display()));
    let child = started(&mut job, &report, 3);
    signal(&child, Signal::INT);
    let finished = finished(child.wait_with_output().unwrap());
    assert_eq!((finished.code, finished.stderr.as_str()), (130, ""), "{finished:?}");
    job.check_gone();
}

#[test]
fn the_second_interrupt_kills() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let script = format!("trap 'echo deaf >> {0}' INT; echo up >> {0}; while :; do sleep 0.05; done", report.display());
    let mut job = mpiexec("-n 2 --grace 600").sh(&script);
    let child = started(&mut job, &report, 2);
    signal(&child, Signal::INT);
    wait_until("both to have heard", || common::read(&report).matches("deaf").count() == 2);
    signal(&child, Signal::INT);
    assert_eq!(finished(child.wait_with_output().unwrap()).code, 130);
    job.check_gone();
}

#[test]
fn stop_and_continue() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut job = mpiexec("-n 2").sh(&format!("echo up >> {}; while :; do sleep 0.05; done", report.display()));
    let child = started(&mut job, &report, 2);
    let state = |pid: Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next()).unwrap_or('?')
    };
    let me = Pid::from_child(&child);
    signal(&child, Signal::TSTP);
    wait_until("the launcher to stop", || state(me) == 'T');
    signal(&child, Signal::CONT);
    wait_until("the launcher to go on", || state(me) != 'T');
    signal(&child, Signal::TERM);
    assert_eq!(finished(child.wait_with_output().unwrap()).code, 143);
    job.check_gone();
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    // Children of the ranks, one in a session of its own, all deaf.
    let script = format!(
        "trap '' TERM HUP; sleep 600 & setsid sh -c 'sleep 600; sleep 600' & echo up >> {}; sleep 600; sleep 600",
        report.display()
    );
    let mut job = mpiexec("-n 3").sh(&script);
    let mut child = started(&mut job, &report, 3);
    job.wait_for(1 + 3 * 4);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    job.check_gone();
}

#[test]
fn nested_jobs_end_with_the_outer_one() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let inner =
        format!("{} -n 2 sh -c 'echo up >> {}; sleep 600; sleep 600'", env!("CARGO_BIN_EXE_mpiexec"), report.display());
    let mut job = mpiexec("-n 2").sh(&inner);
    let mut child = started(&mut job, &report, 4);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    job.check_gone();
}

#[test]
fn a_job_in_the_background_without_a_terminal() {
    let mut command = Command::new("setsid");
    command.args([env!("CARGO_BIN_EXE_mpiexec"), "-n", "2", "sh", "-c", "echo $PMI_RANK"]);
    Job::of(command).run().check_lines(&["0", "1"]);
}

/// A memory control group of its own, if this machine lets us make one.
fn memory_group(limit_bytes: u64) -> Option<std::path::PathBuf> {
    let own = common::read(std::path::Path::new("/proc/self/cgroup"));
    own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (folder, file) = match controllers {
            "" => (format!("/sys/fs/cgroup{path}"), "memory.max"),
            "memory" => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let folder = std::path::PathBuf::from(folder).join(format!("launcher-test-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        if folder.join(file).exists() && std::fs::write(folder.join(file), limit_bytes.to_string()).is_ok() {
            return Some(folder);
        }
        // It serves nobody and may stay if it cannot be removed.
        let _ = std::fs::remove_dir(&folder);
        None
    })
}

#[test]
fn the_oom_killer_is_named() {
    let Some(group) = memory_group(64 << 20) else {
        eprintln!("skipped: no memory control group can be made here");
        return;
    };
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_mpiexec"), "-n", "2", "sh", "-c"]);
    // A shell that keeps everything it reads.
    command.arg("test $PMI_RANK = 1 && x=$(tr '\\0' x < /dev/zero); sleep 600");
    let finished = Job::of(command).run();
    wait_until("the group to be empty", || std::fs::remove_dir(&group).is_ok());
    finished.check_complaint(137, &["rank 1", "OOM killer"]);
}
