//! The command `ferrovia`: what it says is well formed and true of the installation it belongs to.

use super::{Case, Verdict, Workshop};
use crate::command::Program;
use crate::install::installed;
use crate::paths;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Each thing it can be asked.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("ferrovia/info", info).quick(true),
        Case::new("ferrovia/coverage", coverage),
        Case::new("ferrovia/config", config),
        Case::new("ferrovia/fabric", fabric),
        Case::new("ferrovia/reader-leaves", reader_leaves),
        Case::new("ferrovia/doctor", |workshop| {
            workshop.installation()?;
            installed("ferrovia").arg("doctor").run_successfully().map(drop)
        }),
        Case::new("ferrovia/bench-mpi", |workshop| bench_runs(workshop, "mpi", "64")).quick(true),
        Case::new("ferrovia/bench-app", |workshop| bench_runs(workshop, "app", "16")),
        Case::new("ferrovia/bench-wrong-data", bench_finds_wrong_data),
        Case::new("ferrovia/bench-roots", bench_takes_each_rank_as_root),
        Case::new("ferrovia/bench-fabric", bench_fabric),
        Case::new("ferrovia/bench-files", bench_files),
        Case::new("ferrovia/bench-delay", bench_finds_delay),
        Case::that_may_skip("ferrovia/bench-page", bench_page),
    ]
}

fn json(workshop: &Workshop, what: &[&str]) -> Result<Value> {
    workshop.installation()?;
    let finished = installed("ferrovia").arg("info").args(what).arg("--json").run_successfully()?;
    serde_json::from_str(&finished.stdout).with_context(|| finished.report())
}

fn info(workshop: &Workshop) -> Result<()> {
    let library = workshop.installation()?.canonicalize()?.join("lib/libmpi_abi.so.1");
    let info = json(workshop, &[])?;
    if info["library"].as_str() != library.to_str() {
        bail!("it should belong to {}, it says {}", library.display(), info["library"]);
    }
    Ok(())
}

/// Whoever reads only the beginning hears nothing of the rest.
fn reader_leaves(workshop: &Workshop) -> Result<()> {
    let ferrovia = workshop.installation()?.join("bin/ferrovia");
    for question in ["info --coverage", "info --config", "bench list"] {
        // The pause makes sure that the pipe is closed while there is more to say.
        let line = format!("{} {question} | {{ head -c 1 >/dev/null; exec <&-; sleep 0.2; }}", ferrovia.display());
        let finished = Program::new("sh").arg("-c").arg(line).run_successfully()?;
        if !finished.stderr.is_empty() {
            bail!("{question}: {}", finished.report());
        }
    }
    Ok(())
}

/// Every prototype of the header is either implemented or missing, and what programs start with is there.
fn coverage(workshop: &Workshop) -> Result<()> {
    let coverage = json(workshop, &["--coverage"])?;
    let names = |key: &str| -> Vec<String> {
        coverage[key].as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let (implemented, missing) = (names("implemented"), names("missing"));
    for wanted in ["MPI_Init", "MPI_Send", "MPI_Allreduce_c", "MPI_Comm_split", "MPI_Type_create_struct"] {
        if !implemented.iter().any(|name| name == wanted) {
            bail!("{wanted} should be implemented");
        }
    }
    let header = std::fs::read_to_string(workshop.installation()?.join("include/mpi.h"))?;
    match implemented.iter().chain(&missing).find(|name| !header.contains(&format!(" {name}("))) {
        Some(name) => bail!("{name} is not in mpi.h"),
        None => Ok(()),
    }
}

/// A setting shows as set; a misspelt one is pointed out.
fn config(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let finished = installed("ferrovia")
        .args(["info", "--config"])
        .env("FERROVIA_LOG", "debug")
        .env("FERROVIA_LOGG", "debug")
        .run_successfully()?;
    if !finished.stdout.contains("FERROVIA_LOG=debug") || !finished.stderr.contains("FERROVIA_LOGG") {
        return Err(finished.complain("expected the setting and a warning"));
    }
    Ok(())
}

/// Each device is there with its limits, or says why not; a wish that cannot be met is a reason.
fn fabric(workshop: &Workshop) -> Result<()> {
    let devices = json(workshop, &["--fabric"])?;
    let devices = devices.as_array().context("a list of devices")?;
    if !["shm", "tcp", "sim", "verbs"].iter().all(|name| devices.iter().any(|device| device["name"] == **name)) {
        bail!("a kind of device is missing: {devices:?}");
    }
    for device in devices {
        let explained = match device["available"].as_bool() {
            Some(true) => device["limits"]["message_max_bytes"].as_u64().is_some_and(|bytes| bytes > 0),
            _ => device["rejected"].as_str().is_some_and(|why| !why.is_empty()),
        };
        if !explained {
            bail!("neither limits nor a reason: {device}");
        }
    }
    let wish = installed("ferrovia")
        .args(["info", "--fabric"])
        .env("FERROVIA_VERBS_DEVICE", "no_such_adapter:1")
        .run_successfully()?;
    if !wish.stdout.contains("verbs  not used: ") {
        return Err(wish.complain("an adapter that is not there cannot be used"));
    }
    Ok(())
}

/// `ferrovia bench`, over the installed library alone, as short as it can be.
fn bench(words: &[&str]) -> Program {
    installed("ferrovia")
        .arg("bench")
        .args(words)
        .args(["--lib", "ours", "--repetitions", "1", "--seconds", "0.001", "--samples", "10", "--no-floor"])
        .args(["--set", "milliseconds=20", "--set", "depth=0,16", "--set", "threads=2"])
        .limit(Duration::from_secs(120))
}

/// Every test of a suite runs, verifies what it moves, and leaves a point.
fn bench_runs(workshop: &Workshop, level: &str, sizes: &str) -> Result<()> {
    workshop.installation()?;
    let listed = installed("ferrovia").args(["bench", "list", "--json"]).run_successfully()?;
    let suites: Value = serde_json::from_str(&listed.stdout).with_context(|| listed.report())?;
    // Not every system lets instructions be counted: they are a test of their own.
    let named = |test: &Value| test["name"].as_str().filter(|name| *name != "instructions").map(str::to_owned);
    let tests: Vec<String> = suites[level]["test"].as_array().into_iter().flatten().filter_map(named).collect();
    let finished = bench(&[level, "-n", "2", "--sizes", sizes, "--json"]).args(&tests).run_successfully()?;
    let records = finished.json_lines()?;
    for test in tests {
        let of_test = |record: &&Value| record["kind"] == "point" && record["test"] == *test;
        let Some(point) = records.iter().find(of_test) else {
            return Err(finished.complain(format!("{test} left no point")));
        };
        if !point["median"].as_f64().is_some_and(|median| median >= 0.0) {
            bail!("{point} has no median");
        }
    }
    Ok(())
}

/// A library that damages a byte of what is received is found out; no figure comes of it.
fn bench_finds_wrong_data(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let library = interposer(
        "damage",
        "int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {\n\
            int code = PMPI_Recv(data, count, type, from, tag, comm, status);\n\
            if (type == MPI_BYTE && count > 60) ((char *)data)[60] ^= 1;\n\
            return code;\n\
        }\n",
    )?;
    let finished = bench(&["mpi", "latency", "--sizes", "64", "--json"]).env("LD_PRELOAD", &library).run()?;
    if finished.success() || !finished.said().contains("wrong data") || finished.stdout.contains("\"kind\":\"point\"") {
        return Err(finished.complain("the damage was not found"));
    }
    Ok(())
}

/// In what is timed each rank is the root as often as any other, however long one operation takes.
fn bench_takes_each_rank_as_root(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let library = interposer(
        "roots",
        "static long calls[2];\n\
        int MPI_Scatter(const void *from, int count, MPI_Datatype type, void *to, int its_count, MPI_Datatype its_type,\n\
                        int root, MPI_Comm comm) {\n\
            calls[root]++;\n\
            return PMPI_Scatter(from, count, type, to, its_count, its_type, root, comm);\n\
        }\n\
        int MPI_Finalize(void) {\n\
            if (calls[0] < 10 || calls[0] != calls[1]) PMPI_Abort(MPI_COMM_WORLD, 7);\n\
            return PMPI_Finalize();\n\
        }\n",
    )?;
    let words = ["mpi", "scatter", "-n", "2", "--sizes", "8,65536", "--json"];
    bench(&words).env("LD_PRELOAD", &library).run_successfully().map(drop)
}

/// A library of that name that stands between programs and ours.
fn interposer(name: &str, text: &str) -> Result<PathBuf> {
    let folder = paths::target().join("programs");
    std::fs::create_dir_all(&folder)?;
    let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&source, format!("#include <mpi.h>\n{text}"))?;
    installed("mpicc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).run_successfully()?;
    Ok(library)
}

/// The verbs of the software devices beside each other, the ends in processes of their own, and a paper's figures beside
/// ours.
fn bench_fabric(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let short = ["--repetitions", "1", "--seconds", "0.001"];
    let fabric = || installed("ferrovia").args(["bench", "fabric", "--json"]).args(short);
    let finished =
        fabric().args(["all", "--device", "shm,tcp", "--sizes", "64", "--set", "slaves=3"]).run_successfully()?;
    let suites = installed("ferrovia").args(["bench", "list", "--json"]).run_successfully()?;
    let suites: Value = serde_json::from_str(&suites.stdout).with_context(|| suites.report())?;
    for test in suites["fabric"]["test"].as_array().into_iter().flatten() {
        let named = format!("\"test\":\"fabric/{}\"", test["name"].as_str().unwrap_or_default());
        for device in ["shm", "tcp"] {
            let usable = test["devices"].as_array().is_none_or(|devices| devices.iter().any(|one| one == device));
            let library = format!("\"library\":\"{device}\"");
            let found = finished.stdout.lines().any(|line| line.contains(&named) && line.contains(&library));
            if found != usable {
                return Err(finished.complain(format!("{named} on {device}: expected a point: {usable}")));
            }
        }
    }
    let finished = fabric().args(["latency", "--device", "present", "--sizes", "64"]).run_successfully()?;
    for device in ["shm", "tcp", "sim"] {
        if !finished.stdout.contains(&format!("\"library\":\"{device}\"")) {
            return Err(finished.complain(format!("no point of {device}")));
        }
    }
    let orphan = installed("ferrovia").args(["bench", "fabric-end"]).run()?;
    if orphan.success() || !orphan.said().contains("has gone") {
        return Err(orphan.complain("an end that is told nothing ends and says so"));
    }
    let paper = installed("ferrovia").args(["bench", "paper", "miba", "--device", "shm,sim", "--json"]).args(short);
    let finished = paper.run_successfully()?;
    let rows = finished.json_lines()?;
    let both = ["shm", "sim"].iter().all(|device| rows.iter().any(|row| row["on"] == **device));
    if !both || rows.iter().any(|row| row["here"].as_f64().is_none()) {
        return Err(finished.complain("every row of the paper should have a figure here"));
    }
    let paper = installed("ferrovia").args(["bench", "paper", "via2sisci", "--json"]).args(short);
    let finished = paper.run_successfully()?;
    let rows = finished.json_lines()?;
    if !rows.iter().any(|row| row["on"] == "vipl") || rows.iter().any(|row| row["here"].as_f64().is_none()) {
        return Err(finished.complain("every row of the paper should have a figure here"));
    }
    Ok(())
}

/// Records kept in a file can be compared and drawn; what cannot be told ends with 2.
fn bench_files(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    bench(&["mpi", "latency", "--sizes", "8", "--output", &file("run.jsonl")]).run_successfully()?;
    let compare = |a: &str, b: &str| installed("ferrovia").args(["bench", "compare", a, b]).run();
    for (finished, says) in [
        (compare(&file("run.jsonl"), &file("run.jsonl"))?, "too few processes"),
        (compare(&file("run.jsonl"), &file("none.jsonl"))?, "cannot read"),
        (compare(&file("run.jsonl"), &format!("{}:MPICH", file("run.jsonl")))?, "has no library"),
    ] {
        if finished.code() != Some(2) || !finished.said().contains(says) {
            return Err(finished.complain(format!("expected status 2 and {says:?}")));
        }
    }
    for (name, holds) in [("page.html", "</html>"), ("document.md", "## latency")] {
        installed("ferrovia").args(["bench", "report", &file("run.jsonl"), "-o", &file(name)]).run_successfully()?;
        if !std::fs::read_to_string(file(name))?.contains(holds) {
            bail!("{name} does not hold {holds:?}");
        }
    }
    Ok(())
}

/// A library that is slower is told from itself, by the commands that a script would use. The delay is ten times each
/// sample's own time, so that no machine is too noisy.
fn bench_finds_delay(workshop: &Workshop) -> Result<()> {
    workshop.installation()?;
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    for (name, delay) in [("a.jsonl", "0"), ("b.jsonl", "1000")] {
        let words = ["mpi", "latency", "--sizes", "8", "--inject-delay", delay, "--output", &file(name)];
        let run = installed("ferrovia").arg("bench").args(words).args(["--lib", "ours", "--repetitions", "10"]);
        // Eleven times as long is more than any two paces of a machine differ by, and the runs may meet one each.
        run.args(["--seconds", "0.01", "--samples", "100", "--no-floor", "--no-pace"]).run_successfully()?;
    }
    let compare =
        |a: &str, b: &str| installed("ferrovia").args(["bench", "compare", "--json", &file(a), &file(b)]).run();
    for (a, b, code, verdict) in [("a.jsonl", "b.jsonl", 1, "slower"), ("b.jsonl", "a.jsonl", 0, "faster")] {
        let finished = compare(a, b)?;
        if finished.code() != Some(code) || !finished.stdout.contains(&format!("\"verdict\":\"{verdict}\"")) {
            return Err(finished.complain(format!("expected status {code} and {verdict}")));
        }
    }
    Ok(())
}

/// The page of a report in a real browser: [`page_check.js`](page_check.js) says what is looked at.
fn bench_page(workshop: &Workshop) -> Result<Verdict> {
    workshop.installation()?;
    let found = |name: &&str| {
        Program::new("sh").arg("-c").arg(format!("command -v {name}")).run().is_ok_and(|end| end.success())
    };
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(found) else {
        return Ok(Verdict::Skipped("there is no Chromium".to_owned()));
    };
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name).display().to_string();
    let short = ["--repetitions", "2", "--seconds", "0.001", "--samples", "10", "--output", &file("run.jsonl")];
    let variant = ["--lib", "ours", "--variant", "small:FERROVIA_CHANNEL=16K", "--sizes", "8,1024,8192"];
    let bench = |words: &[&str]| installed("ferrovia").arg("bench").args(words).args(short);
    // So many figures whatever the machine's pace.
    bench(&["mpi", "latency", "bandwidth", "--no-pace"]).args(variant).run_successfully()?;
    bench(&["fabric", "latency", "--device", "shm,tcp,sim", "--sizes", "8,1024"]).run_successfully()?;
    installed("ferrovia").args(["bench", "report", &file("run.jsonl"), "-o", &file("page.html")]).run_successfully()?;
    let page = serde_json::to_string(&std::fs::read_to_string(file("page.html"))?)?.replace("</", "<\\/");
    for (dark, scheme) in [(false, "1"), (true, "0")] {
        let script = include_str!("page_check.js");
        let call = format!("lookAt({page}, {{ floors: 3, ratios: 20, dark: {dark} }})");
        let text = format!("<!doctype html><meta charset=\"utf-8\"><body><script>{script}\n{call};</script></body>");
        std::fs::write(file("look.html"), text)?;
        let words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--dump-dom"];
        let quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
        let program = Program::new(browser).args(words).args(quiet).arg("--virtual-time-budget=20000");
        let program = program.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
        let program =
            program.arg(format!("--user-data-dir={}", file(scheme))).arg(format!("file://{}", file("look.html")));
        let finished = program.limit(Duration::from_secs(120)).run_successfully()?;
        let verdict =
            finished.stdout.rsplit_once("<pre id=\"verdict\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        match verdict {
            Some(("[]", _)) => {}
            Some((complaints, _)) => bail!("prefers dark: {dark}: {complaints}"),
            None => bail!("the browser came to no verdict: {}", finished.stderr),
        }
    }
    Ok(Verdict::Passed)
}
