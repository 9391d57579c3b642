//! Calls take no more instructions than they did: what no clock of a busy machine would tell.

use super::{Case, Verdict, Workshop};
use crate::install::installed;
use anyhow::{Result, bail};
use serde_json::Value;
use std::time::Duration;

/// Most instructions of a call of 8 bytes whose other rank has done its part, or has none, as `ferrovia bench mpi instructions` counts
/// them: about a tenth more than they took when this was written, since compilers and C libraries differ. Who makes a
/// call shorter lowers its limit; who has to make one longer says why where it is raised.
const MOST: [(&str, f64); 40] = [
    ("send", 455.0),
    ("recv", 945.0),
    ("recv_any", 950.0),
    ("sendrecv", 1455.0),
    ("isend", 465.0),
    ("isend_waitall", 505.0),
    ("irecv", 355.0),
    ("waitall", 600.0),
    ("irecv_waitall", 960.0),
    ("test", 415.0),
    ("comm_rank", 32.0),
    ("type_size", 36.0),
    ("type_get_extent", 37.0),
    ("get_count", 53.0),
    ("type_vector", 1430.0),
    ("iprobe", 250.0),
    ("test_null", 26.0),
    ("waitall_null", 10.5),
    ("barrier_alone", 26.0),
    ("barrier", 705.0),
    ("bcast", 910.0),
    ("reduce", 1640.0),
    ("allreduce", 1970.0),
    ("allgather", 2120.0),
    ("alltoall", 2260.0),
    ("ibarrier_wait", 1180.0),
    ("ibcast_wait", 1540.0),
    ("ibcast_wait_root", 1675.0),
    ("ireduce_wait", 2385.0),
    ("iallreduce_wait", 2490.0),
    ("igather_wait", 2415.0),
    ("iscatter_wait", 2090.0),
    ("iallgather_wait", 2705.0),
    ("ialltoall_wait", 3005.0),
    ("ibcast", 1020.0),
    ("ibcast_ended", 1540.0),
    ("ialltoall", 2030.0),
    ("ialltoall_ended", 2010.0),
    ("iallreduce", 1630.0),
    ("iallreduce_ended", 1915.0),
];

/// The one test of this kind.
pub fn cases() -> Vec<Case> {
    vec![Case::that_may_skip("ferrovia/bench-instructions", count)]
}

fn count(workshop: &Workshop) -> Result<Verdict> {
    workshop.installation()?;
    let run = installed("ferrovia").args(["bench", "mpi", "instructions", "--lib", "ours", "--json"]);
    let finished = run.args(["--repetitions", "1", "--no-floor", "--no-pace"]).limit(Duration::from_secs(120)).run()?;
    if let Some((_, why)) = finished.said().split_once("no instructions can be counted: ") {
        return Ok(Verdict::Skipped(format!("no instructions can be counted: {}", why.lines().next().unwrap_or("?"))));
    }
    let records = finished.json_lines()?;
    let mut longer = Vec::new();
    for (call, most) in MOST {
        let is_meant = |record: &&Value| record["kind"] == "point" && record["parameters"]["call"] == call;
        let counted = records.iter().find(is_meant).and_then(|point| point["median"].as_f64());
        match counted {
            Some(counted) if counted > 0.0 && counted <= most => {}
            Some(counted) => longer.push(format!("{call} takes {counted} instructions, and should take 1 to {most}")),
            None => return Err(finished.complain(format!("no instructions of {call} were counted"))),
        }
    }
    if !longer.is_empty() {
        bail!("{}", longer.join("\n"));
    }
    Ok(Verdict::Passed)
}
