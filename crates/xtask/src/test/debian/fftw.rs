//! FFTW with its transforms over MPI, judged by its own test program: whether they are linear, and what becomes of
//! impulses and shifts. The library takes communicators from Fortran, and makes some of its own.

use super::source;
use crate::command::Program;
use crate::test::Workshop;
use crate::test::mpi::Job;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Transforms as its test program writes them: complex and real ones, in place and not, forward and back, of one to three
/// dimensions, with input and output transposed.
const TRANSFORMS: [&str; 9] = [
    "ic64x64",
    "ob30x42",
    "ofc1000",
    "ifcd[7x8x10",
    "ofrd]16x12x20",
    "ibr[110x25",
    "ik]8o01x36h",
    "obc4x9x25",
    "ic128x130",
];

/// Builds it and runs its test program on one to four ranks.
pub fn test(workshop: &Workshop, prefix: &Path) -> Result<()> {
    let folder = source(workshop, "fftw3", "fftw", &[])?;
    let build = |program: &str| Program::new(program).folder(&folder).limit(Duration::from_secs(600));
    build("./configure")
        .args(["--enable-mpi", "--disable-fortran", "--disable-doc", "--disable-dependency-tracking"])
        .arg(format!("MPICC={}", prefix.join("bin/mpicc").display()))
        .run_successfully()?;
    build("make").arg("-j2").run_successfully()?;
    for ranks in 1..=4 {
        let job = Job::of(ranks).with(|command| {
            let command =
                command.arg(folder.join("mpi/mpi-bench")).args(["-v1", "-oestimate"]).limit(Duration::from_secs(120));
            TRANSFORMS.iter().fold(command, |command, transform| command.args(["--verify", transform]))
        });
        let finished = job.run()?;
        let verified = finished.stdout.lines().filter(|line| line.split_whitespace().count() == 4).count();
        if !finished.success() || verified != TRANSFORMS.len() {
            return Err(finished.complain(format!("{verified} of {} transforms are right", TRANSFORMS.len())));
        }
    }
    Ok(())
}
