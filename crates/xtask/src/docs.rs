//! `cargo xtask docs`: the pages that are written from what there is.
//!
//! `docs/CONFIG.md` comes from the registry of settings, `docs/CONFORMANCE.md` from the library's own list of
//! what it implements, the lists of tests, and how those ended when they were run last.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::install::installed;
use crate::test::record::{Record, State};
use crate::test::{self, Case, list};
use crate::{install, paths};

/// Chapters of MPI 5.0, and the procedures in them by the beginnings of their names (`MPI_` left out). The longest
/// beginning decides.
const CHAPTERS: &[(&str, &[&str])] = &[
    (
        "3 Point-to-point communication",
        &[
            "Send",
            "Recv",
            "Isend",
            "Irecv",
            "Bsend",
            "Ssend",
            "Rsend",
            "Ibsend",
            "Issend",
            "Irsend",
            "Sendrecv",
            "Isendrecv",
            "Buffer_",
            "Comm_attach_buffer",
            "Comm_detach_buffer",
            "Comm_flush_buffer",
            "Comm_iflush_buffer",
            "Session_attach_buffer",
            "Session_detach_buffer",
            "Session_flush_buffer",
            "Session_iflush_buffer",
            "Probe",
            "Iprobe",
            "Mprobe",
            "Improbe",
            "Mrecv",
            "Imrecv",
            "Wait",
            "Test",
            "Request_",
            "Cancel",
            "Start",
            "Get_count",
        ],
    ),
    ("4 Partitioned communication", &["Psend", "Precv", "Pready", "Parrived"]),
    ("5 Datatypes", &["Type_", "Get_address", "Get_elements", "Aint_", "Pack", "Unpack"]),
    (
        "6 Collective communication",
        &[
            "Barrier",
            "Bcast",
            "Gather",
            "Scatter",
            "Allgather",
            "Alltoall",
            "Reduce",
            "Allreduce",
            "Scan",
            "Exscan",
            "Ibarrier",
            "Ibcast",
            "Igather",
            "Iscatter",
            "Iallgather",
            "Ialltoall",
            "Ireduce",
            "Iallreduce",
            "Iscan",
            "Iexscan",
            "Op_",
        ],
    ),
    (
        "7 Groups, contexts, communicators, caching",
        &[
            "Group_",
            "Comm_",
            "Intercomm_",
            "Keyval_",
            "Attr_",
            "Type_create_keyval",
            "Type_free_keyval",
            "Type_set_attr",
            "Type_get_attr",
            "Type_delete_attr",
            "Type_set_name",
            "Type_get_name",
            "Win_create_keyval",
            "Win_free_keyval",
            "Win_set_attr",
            "Win_get_attr",
            "Win_delete_attr",
            "Win_set_name",
            "Win_get_name",
        ],
    ),
    (
        "8 Process topologies",
        &["Cart", "Dims_create", "Graph_", "Graphdims", "Topo_", "Dist_graph", "Neighbor_", "Ineighbor_"],
    ),
    (
        "9 Environment",
        &[
            "Get_version",
            "Get_library_version",
            "Get_processor_name",
            "Get_hw_resource_info",
            "Alloc_mem",
            "Free_mem",
            "Errhandler_",
            "Comm_create_errhandler",
            "Comm_set_errhandler",
            "Comm_get_errhandler",
            "Comm_call_errhandler",
            "Win_create_errhandler",
            "Win_set_errhandler",
            "Win_get_errhandler",
            "Win_call_errhandler",
            "File_create_errhandler",
            "File_set_errhandler",
            "File_get_errhandler",
            "File_call_errhandler",
            "Session_create_errhandler",
            "Session_set_errhandler",
            "Session_get_errhandler",
            "Session_call_errhandler",
            "Error_",
            "Add_error",
            "Remove_error",
            "Wtime",
            "Wtick",
        ],
    ),
    ("10 Info", &["Info_"]),
    (
        "11 Processes",
        &[
            "Init",
            "Finalize",
            "Abort",
            "Query_thread",
            "Is_thread_main",
            "Session_",
            "Group_from_session_pset",
            "Comm_spawn",
            "Comm_get_parent",
            "Comm_accept",
            "Comm_connect",
            "Comm_disconnect",
            "Comm_join",
            "Open_port",
            "Close_port",
            "Publish_name",
            "Unpublish_name",
            "Lookup_name",
        ],
    ),
    (
        "12 One-sided communication",
        &[
            "Win_",
            "Put",
            "Get",
            "Accumulate",
            "Get_accumulate",
            "Rput",
            "Rget",
            "Raccumulate",
            "Fetch_and_op",
            "Compare_and_swap",
        ],
    ),
    ("13 External interfaces", &["Grequest_", "Status_"]),
    ("14 Files", &["File_", "Register_datarep"]),
    ("15 Tool support", &["T_", "Pcontrol"]),
    ("19 Language bindings", &["Type_create_f90", "Type_match_size", "Status_f2c", "Status_c2f", "Status_f082"]),
    ("20 Application binary interface", &["Abi_"]),
];

/// Suffixes of the procedures that turn handles into integers and back; they belong to the ABI.
const CONVERSIONS: [&str; 2] = ["_toint", "_fromint"];

/// What stands above the part that depends on what was run.
const RESULTS: &str = "## Results\n";

/// Writes the pages.
pub fn run() -> Result<()> {
    install::run(&paths::prefix())?;
    for (path, page) in [(config_path(), config_page()?), (conformance_path(), conformance_page()?)] {
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", paths::shown(&path));
    }
    Ok(())
}

/// The pages say what is so; only the counted results may be those of an earlier run.
pub fn case() -> Case {
    Case::new("docs", |workshop| {
        workshop.installation()?;
        let lasting = |page: &str| page.split(RESULTS).next().unwrap_or_default().to_owned();
        for (path, page) in [(config_path(), config_page()?), (conformance_path(), conformance_page()?)] {
            let written = fs::read_to_string(&path).unwrap_or_default();
            if lasting(&written) != lasting(&page) {
                bail!("{} is stale; `cargo xtask docs` writes it anew", paths::shown(&path));
            }
        }
        Ok(())
    })
}

fn config_path() -> PathBuf {
    paths::root().join("docs/CONFIG.md")
}

fn conformance_path() -> PathBuf {
    paths::root().join("docs/CONFORMANCE.md")
}

fn config_page() -> Result<String> {
    Ok(installed("ferrovia").args(["info", "--config", "--markdown"]).run_successfully()?.stdout)
}

fn conformance_page() -> Result<String> {
    let coverage = installed("ferrovia").args(["info", "--coverage", "--json"]).run_successfully()?;
    let coverage: Value = serde_json::from_str(&coverage.stdout).with_context(|| coverage.report())?;
    let names = |key: &str| coverage[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut page = String::from(
        "# Conformance\n\n\
         What of MPI 5.0 is here and how that is known. This page is written by `cargo xtask docs` from the \
         library's own list, the lists of tests, and how the tests ended when they were run last.\n\n\
         ## Procedures\n\n\
         A procedure that is missing returns `MPI_ERR_UNSUPPORTED_OPERATION` and names itself. Large-count forms \
         are counted on their own and not listed.\n\n",
    );
    procedures(&mut page, names("implemented"), names("missing"))?;
    tests(&mut page)?;
    adapters(&mut page)?;
    results(&mut page)?;
    Ok(page)
}

fn procedures<'a>(
    page: &mut String,
    implemented: impl Iterator<Item = &'a str>,
    missing: impl Iterator<Item = &'a str>,
) -> Result<()> {
    #[derive(Default)]
    struct Row<'a> {
        implemented: usize,
        missing: Vec<&'a str>,
    }
    let mut rows: BTreeMap<usize, Row> = BTreeMap::new();
    for name in implemented {
        rows.entry(chapter(name)?).or_default().implemented += 1;
    }
    for name in missing {
        rows.entry(chapter(name)?).or_default().missing.push(name);
    }
    page.push_str("| chapter | implemented | of | missing |\n|---|---|---|---|\n");
    let (mut here, mut total) = (0, 0);
    for (index, row) in rows {
        let all = row.implemented + row.missing.len();
        (here, total) = (here + row.implemented, total + all);
        let is_small = |name: &&&str| !name.strip_suffix("_c").is_some_and(|small| row.missing.contains(&small));
        let listed: Vec<String> = row.missing.iter().filter(is_small).map(|name| format!("`{name}`")).collect();
        writeln!(page, "| {} | {} | {all} | {} |", CHAPTERS[index].0, row.implemented, listed.join(", "))?;
    }
    writeln!(page, "| all | {here} | {total} | |\n")?;
    Ok(())
}

/// The place of the chapter of a procedure in [`CHAPTERS`].
fn chapter(name: &str) -> Result<usize> {
    let short = name.strip_prefix("MPI_").unwrap_or(name);
    if CONVERSIONS.iter().any(|suffix| short.ends_with(suffix)) {
        return chapter("MPI_Abi_");
    }
    let beginnings = CHAPTERS.iter().enumerate().flat_map(|(at, (_, names))| names.iter().map(move |name| (at, name)));
    let fitting = beginnings.filter(|(_, beginning)| short.starts_with(**beginning));
    match fitting.max_by_key(|(_, beginning)| beginning.len()) {
        Some((at, _)) => Ok(at),
        None => bail!("{name} is in no chapter that xtask's docs knows"),
    }
}

fn tests(page: &mut String) -> Result<()> {
    page.push_str("## Tests\n\nNumbers in brackets are numbers of ranks.\n\n");
    page.push_str("Self-checking C programs (`tests/c`):\n\n");
    let mut programs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in list::read(&paths::root().join("tests/c/list.txt"))? {
        let ranks = ranks(&entry);
        let shown = programs.entry(entry.name).or_default();
        // Some lines are for adapters alone.
        shown.extend((!ranks.is_empty()).then_some(ranks));
    }
    let shown: Vec<String> = programs.iter().map(|(name, ranks)| format!("`{name}` ({})", ranks.join("; "))).collect();
    writeln!(page, "{}.\n", shown.join(", "))?;
    writeln!(
        page,
        "Those that say `ways` in `tests/c/list.txt` are also run over each of {} ways that messages go, of several \
         devices, protocols, designs of channels and schemes of datatypes (`tests/c/ways.txt`).\n",
        test::way_count()?
    )?;
    let (out, within): (Vec<_>, Vec<_>) = test::python_list()?.into_iter().partition(|entry| entry.name == "-");
    let (whole, alone): (Vec<_>, Vec<_>) = within.into_iter().partition(|entry| entry.name == "all");
    let counts: Vec<String> = whole.iter().map(ranks).collect();
    writeln!(page, "mpi4py's own test suite, the whole in one start ({}), but for:\n", counts.join(", "))?;
    for entry in &out {
        let (pattern, why) = entry.words.split_first().context("a line out of scope says what it leaves out")?;
        let why = why.iter().skip_while(|word| word.parse::<u32>().is_ok()).map(String::as_str).collect::<Vec<_>>();
        let only_on = if entry.ranks().is_empty() { String::new() } else { format!(" ({})", ranks(entry)) };
        writeln!(page, "- `{pattern}`{only_on}: {}", why.join(" "))?;
    }
    let alone: Vec<String> = alone.iter().map(|entry| format!("`{}` ({})", entry.name, ranks(entry))).collect();
    writeln!(page, "\nand modules and tests of it on their own: {}.\n", alone.join(", "))?;
    let (out, folders): (Vec<_>, Vec<_>) = test::mpich_list()?.into_iter().partition(|entry| entry.name == "-");
    let folders: Vec<String> = folders.iter().map(|entry| format!("`{}`", entry.name)).collect();
    writeln!(
        page,
        "MPICH's own tests in C, as its lists have them, of the folders {}; but for:\n",
        folders.join(", ")
    )?;
    for entry in &out {
        let (program, why) = entry.words.split_first().context("a line out of scope says what it leaves out")?;
        writeln!(page, "- `{program}`: {}", why.join(" "))?;
    }
    page.push('\n');
    Ok(())
}

/// What is known of adapters, and from what.
fn adapters(page: &mut String) -> Result<()> {
    page.push_str(
        "## Adapters\n\n\
         What `fabric` promises is checked on Soft-RoCE, Linux's RDMA in software, in virtual machines: in one process, \
         between two processes, and between two machines on one wire, where the second context of each case is the other \
         machine's (`fabric_conformance::remote`). It does some of it otherwise; these cases are left out there and \
         checked on the other devices only:\n\n",
    );
    left_out(page, "soft_roce.txt")?;
    page.push_str("\nand between two machines:\n\n");
    left_out(page, "soft_roce_two_machines.txt")?;
    page.push_str(
        "\nCases of what a device does not have are skipped on it wherever they run: on Soft-RoCE receives in several \
         queues, independent queues, and completion queues of exactly the depth that was asked for; over sockets \
         datagrams to groups. All others run between machines as in one process. Those of one context alone (states, \
         handles, what depends on what, what datagrams can not do, a queue pair that talks to its own device) run on the \
         first machine only. The software adapter keeps the rules between two processes, over shared memory and over sockets.\n\n\
         Some failures carry another status on Soft-RoCE than the specification's (`SOFT_ROCE_WORDS` in \
         `crates/fabric-verbs/tests/fixture/mod.rs`).\n\n\
         XRC of an adapter's own has run on no hardware. Soft-RoCE has none, and what is checked there are the \
         connections that stand in for it; the adapter's own is checked on one that is a library for tests \
         (`crates/fabric-verbs/tests/adapter`), written by us from the specification and compiled against rdma-core's \
         header: it shows that we ask for what the specification lets us ask for, and nothing of what a device does \
         with it. No case is left out there, on Ethernet, on InfiniBand, or with fewer abilities, and no status is \
         another than the specification's. Its queue pairs reach those of one process only. Groups that datagrams \
         are sent to are joined on InfiniBand at the subnet manager, through rdma_cm and an interface of IP over \
         InfiniBand. That has met no subnet manager yet: it is checked on Soft-RoCE, where the kernel answers instead. \
         `ferrovia info --fabric` says which of this an adapter has.\n\n",
    );
    Ok(())
}

/// The cases that a file of the adapters' tests names, and why.
fn left_out(page: &mut String, file: &str) -> Result<()> {
    let path = paths::root().join("crates/fabric-verbs/tests").join(file);
    let text = fs::read_to_string(&path).with_context(|| paths::shown(&path))?;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, why) = line.split_once(' ').with_context(|| format!("a line of {file} is a name and why"))?;
        writeln!(page, "- `{name}`: {}", why.trim())?;
    }
    Ok(())
}

/// The rank counts of an entry, as they are listed.
fn ranks(entry: &list::Entry) -> String {
    entry.ranks().iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// How the tests ended when they were run last, by kind.
fn results(page: &mut String) -> Result<()> {
    #[derive(Default)]
    struct Row {
        passed: usize,
        failed: Vec<String>,
        skipped: usize,
        not_run: usize,
    }
    let record = Record::read();
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for name in test::names()? {
        let row = rows.entry(name.split('/').next().unwrap_or_default().to_owned()).or_default();
        match record.state(&name) {
            Some(State::Passed) => row.passed += 1,
            Some(State::Skipped) => row.skipped += 1,
            Some(State::Failed) => row.failed.push(name),
            None => row.not_run += 1,
        }
    }
    page.push_str(RESULTS);
    page.push_str("\nOf `cargo xtask test`, when this page was written:\n\n");
    page.push_str("| kind | passed | failed | skipped | not run |\n|---|---|---|---|---|\n");
    for (kind, row) in &rows {
        writeln!(page, "| {kind} | {} | {} | {} | {} |", row.passed, row.failed.len(), row.skipped, row.not_run)?;
    }
    let failed: Vec<String> = rows.into_values().flat_map(|row| row.failed).map(|name| format!("`{name}`")).collect();
    if !failed.is_empty() {
        writeln!(page, "\nFailed: {}.", failed.join(", "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_procedure_of_the_standard_is_in_a_chapter() {
        let text = fs::read_to_string(paths::root().join("standard/abi.json")).unwrap();
        let abi: Value = serde_json::from_str(&text).unwrap();
        for prototype in abi["prototypes"].as_array().unwrap() {
            let name = prototype.as_str().unwrap().split('(').next().unwrap().rsplit(' ').next().unwrap();
            chapter(name).unwrap();
        }
        let of = |name: &str| CHAPTERS[chapter(name).unwrap()].0.split(' ').next().unwrap().to_owned();
        for (name, number) in [
            ("MPI_Get", "12"),
            ("MPI_Get_count_c", "3"),
            ("MPI_Get_address", "5"),
            ("MPI_Reduce_scatter_block_init_c", "6"),
            ("MPI_Comm_attach_buffer", "3"),
            ("MPI_Comm_split", "7"),
            ("MPI_Comm_spawn_multiple", "11"),
            ("MPI_T_pvar_read", "15"),
            ("MPI_Testsome", "3"),
            ("MPI_Comm_toint", "20"),
        ] {
            assert_eq!(of(name), number, "{name}");
        }
    }
}
