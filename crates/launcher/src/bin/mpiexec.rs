//! `mpiexec`, also installed as `mpirun`: starts the ranks of an MPI job on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    launcher::main(std::env::args_os())
}
