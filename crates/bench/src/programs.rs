//! The benchmark program: its source is part of this one, and is compiled for each kind of library at the start.

use crate::job;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Most time for a compilation.
const COMPILE_LIMIT: Duration = Duration::from_secs(120);

const SOURCES: [(&str, &str); 21] = [
    ("bench.h", include_str!("../../../bench/programs/bench.h")),
    ("grid.h", include_str!("../../../bench/programs/grid.h")),
    ("main.c", include_str!("../../../bench/programs/main.c")),
    ("measure.c", include_str!("../../../bench/programs/measure.c")),
    ("pace.c", include_str!("../../../bench/programs/pace.c")),
    ("counters.c", include_str!("../../../bench/programs/counters.c")),
    ("point_to_point.c", include_str!("../../../bench/programs/point_to_point.c")),
    ("collectives.c", include_str!("../../../bench/programs/collectives.c")),
    ("datatypes.c", include_str!("../../../bench/programs/datatypes.c")),
    ("threads.c", include_str!("../../../bench/programs/threads.c")),
    ("queues.c", include_str!("../../../bench/programs/queues.c")),
    ("calls.c", include_str!("../../../bench/programs/calls.c")),
    ("instructions.c", include_str!("../../../bench/programs/instructions.c")),
    ("resources.c", include_str!("../../../bench/programs/resources.c")),
    ("floor.c", include_str!("../../../bench/programs/floor.c")),
    ("grid.c", include_str!("../../../bench/programs/grid.c")),
    ("halo.c", include_str!("../../../bench/programs/halo.c")),
    ("gradient.c", include_str!("../../../bench/programs/gradient.c")),
    ("sparse.c", include_str!("../../../bench/programs/sparse.c")),
    ("fourier.c", include_str!("../../../bench/programs/fourier.c")),
    ("random_access.c", include_str!("../../../bench/programs/random_access.c")),
];

/// Whether some test of the program reads a parameter of this name.
pub fn take(name: &str) -> bool {
    let read =
        [format!("parameter(\"{name}\""), format!("parameter_text(\"{name}\""), format!("parameter_list(\"{name}\"")];
    SOURCES.iter().any(|(_, text)| read.iter().any(|call| text.contains(call)))
}

/// Compiles the program with an MPI compiler wrapper into `folder`, under a name of its own.
///
/// # Errors
/// If the compiler cannot be started or complains; the error shows its words.
pub fn compile(wrapper: &Path, folder: &Path, name: &str) -> Result<PathBuf> {
    let sources = folder.join("source");
    std::fs::create_dir_all(&sources).with_context(|| format!("cannot create {}", sources.display()))?;
    let program = folder.join(name);
    let mut command = Command::new(wrapper);
    command.args(["-std=gnu11", "-O2", "-w", "-pthread", "-o"]).arg(&program);
    for (name, text) in SOURCES {
        std::fs::write(sources.join(name), text).with_context(|| format!("cannot write {name}"))?;
        if name.ends_with(".c") {
            command.arg(sources.join(name));
        }
    }
    command.arg("-lm");
    let ended = job::run(&mut command, COMPILE_LIMIT)
        .with_context(|| format!("cannot compile the benchmark program with {}", wrapper.display()))?;
    if !ended.success {
        bail!("{} cannot compile the benchmark program:\n{}", wrapper.display(), ended.output);
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    #[test]
    fn parameters_are_those_that_the_sources_read() {
        for name in ["window", "depth", "side", "pattern", "milliseconds", "threads", "targets"] {
            assert!(super::take(name), "{name}");
        }
        assert!(!super::take("nonsense") && !super::take(""));
    }
}
