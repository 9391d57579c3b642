//! What ranks write arrives complete, with whole lines; what we are given to read goes to one rank.

mod common;

use common::mpiexec;

const FLOOD: &str = "i=0; while [ $i -lt 4000 ]; do echo \"$PMI_RANK:$i:abcdefghijklmnopqrstuvwxyz\"; \
                     [ $((i % 10)) -eq 0 ] && echo \"E$PMI_RANK:$i\" >&2; i=$((i+1)); done; \
                     printf 'end of %d' $PMI_RANK";

#[test]
fn lines_of_eight_ranks_stay_whole() {
    let finished = mpiexec("-n 8").sh(FLOOD).run();
    assert_eq!(finished.code, 0);
    for rank in 0..8 {
        let mine: Vec<&str> = finished.stdout.lines().filter(|line| line.starts_with(&format!("{rank}:"))).collect();
        let expected: Vec<String> = (0..4000).map(|i| format!("{rank}:{i}:abcdefghijklmnopqrstuvwxyz")).collect();
        assert_eq!(mine, expected);
        assert_eq!(finished.stdout.lines().filter(|line| *line == format!("end of {rank}")).count(), 1);
        assert_eq!(finished.stderr.lines().filter(|line| line.starts_with(&format!("E{rank}:"))).count(), 400);
    }
    assert_eq!(finished.stdout.lines().count(), 8 * 4001);
    assert_eq!(finished.stderr.lines().count(), 8 * 400);
}

#[test]
fn lines_stay_whole_where_both_streams_lead_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("both");
    let file = std::fs::File::create(&path).unwrap();
    let mut job = mpiexec("-n 4").sh(FLOOD);
    job.command.stdout(file.try_clone().unwrap()).stderr(file);
    assert!(job.command.status().unwrap().success());
    let text = common::read(&path);
    assert_eq!(text.lines().count(), 4 * (4001 + 400));
    for line in text.lines() {
        let whole =
            line.ends_with(":abcdefghijklmnopqrstuvwxyz") || line.starts_with('E') || line.starts_with("end of ");
        assert!(whole && line.matches(':').count() <= 2, "{line:?}");
    }
}

#[test]
fn tags_name_the_rank() {
    for option in ["--tag-output", "-l", "-prepend-rank"] {
        let finished = mpiexec(&format!("-n 2 {option}")).sh("echo one; printf two").run();
        finished.check_lines(&["[0] one", "[0] two", "[1] one", "[1] two"]);
    }
}

#[test]
fn no_byte_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes");
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    for ranks in ["-n 1", "-n 2 -env A B"] {
        // Of two ranks only the first speaks.
        let job = mpiexec(ranks).sh(&format!("test $PMI_RANK = 1 || cat {}", path.display()));
        let mut job = job;
        let output = job.command.output().unwrap();
        assert!(output.status.success());
        assert!(output.stdout == bytes, "{ranks}: {} bytes came", output.stdout.len());
    }
}

#[test]
fn a_slow_reader_loses_nothing() {
    let mut job = mpiexec("-n 4").sh("head -c 3000000 /dev/zero | tr '\\0' 'x'; echo");
    job.command.stdout(std::process::Stdio::piped());
    let mut child = job.command.spawn().unwrap();
    let mut reader = std::process::Command::new("sh")
        .args(["-c", "sleep 0.3; wc -c"])
        .stdin(child.stdout.take().unwrap())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    let counted = std::io::read_to_string(reader.stdout.take().unwrap()).unwrap();
    reader.wait().unwrap();
    let count: usize = counted.trim().parse().unwrap();
    // Lines longer than the limit may be passed on in parts, with newlines between those of different ranks.
    assert!((4 * 3_000_001..4 * 3_000_001 + 100).contains(&count), "{count}");
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    let mut job = mpiexec("-n 2").sh("while :; do echo y; done");
    job.command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = job.command.spawn().unwrap();
    drop(child.stdout.take());
    let finished = common::finished(child.wait_with_output().unwrap());
    assert_eq!((finished.code, finished.stderr.as_str()), (141, ""));
    job.check_gone();
}

#[test]
fn input_goes_to_rank_0() {
    let input = vec![b'i'; 1_000_000];
    let finished = mpiexec("-n 3").sh("echo $PMI_RANK $(wc -c)").run_with_input(&input);
    finished.check_lines(&["0 1000000", "1 0", "2 0"]);
    let finished = mpiexec("-n 3 --stdin 2").sh("echo $PMI_RANK $(wc -c)").run_with_input(b"abc");
    finished.check_lines(&["0 0", "1 0", "2 3"]);
    let finished = mpiexec("-n 1 --stdin none").sh("wc -c").run_with_input(b"abc");
    finished.check_lines(&["0"]);
    // A rank that does not read must not keep the job from ending.
    mpiexec("-n 2 true").run_with_input(&input).check_lines(&[]);
}

#[test]
fn closed_standard_streams() {
    let script = format!("exec {} -n 2 cat <&- 2>&-", env!("CARGO_BIN_EXE_mpiexec"));
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]);
    assert_eq!(common::Job::of(command).run().code, 0);
}
