//! The command line, as users of Hydra and Open MPI expect it.
//!
//! Programs are separated by `:`; long options may have one dash; everything after the program's name
//! belongs to the program.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Arg, CommandFactory, FromArgMatches, Parser};

use crate::LaunchError;

/// Most ranks of one job.
pub(crate) const RANK_COUNT_MAX: u32 = 1 << 16;

const EXAMPLES: &str = "\
Examples:
  mpiexec -n 4 ./program input.txt           four ranks of one program
  mpiexec -n 1 ./master : -n 7 ./worker      two programs, one world
  mpiexec -n 4 -x OMP_NUM_THREADS=2 ./a.out  with a variable
  mpiexec -n 4 --tag-output ./a.out          lines marked with their rank
  mpiexec -n 2 python3 script.py             mpi4py

Long options may be written with one dash. Exit code: that of the first rank that failed, 128 + n for
signal n, the code given to MPI_Abort, 124 after --timeout, 127 and 126 for a program that is not found
or not executable. Each rank needs three open files of mpiexec's (ulimit -n).";

/// One program of the command line: the part between two colons.
#[derive(Debug, Clone, Default, Parser)]
#[command(
    name = "mpiexec",
    bin_name = "mpiexec",
    version,
    about = "Starts the ranks of an MPI job on this machine",
    after_help = EXAMPLES,
    override_usage = "mpiexec [-n COUNT] [OPTIONS] PROGRAM [ARGS]... [: [-n COUNT] [OPTIONS] PROGRAM [ARGS]...]..."
)]
pub(crate) struct Section {
    /// Number of ranks of this program
    #[arg(short = 'n', long = "np", short_alias = 'c', alias = "n", value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(RANK_COUNT_MAX)))]
    pub np: u32,

    /// Sets a variable for this program's ranks
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    pub env: Vec<OsString>,
    /// Sets a variable for all ranks
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"], allow_hyphen_values = true)]
    pub genv: Vec<OsString>,
    /// Sets a variable for this program's ranks, or passes it on (all are passed on by default)
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub x: Vec<OsString>,
    /// Passes on only these variables (and PATH, LD_LIBRARY_PATH) to this program
    #[arg(long, value_name = "NAME,...")]
    pub envlist: Option<OsString>,
    /// Passes on only these variables (and PATH, LD_LIBRARY_PATH) to all programs
    #[arg(long, value_name = "NAME,...")]
    pub genvlist: Option<OsString>,
    /// Passes on no variables to this program
    #[arg(long)]
    pub envnone: bool,
    /// Passes on no variables to any program
    #[arg(long)]
    pub genvnone: bool,
    /// Passes on all variables to this program (default)
    #[arg(long)]
    pub envall: bool,
    /// Passes on all variables to all programs (default)
    #[arg(long)]
    pub genvall: bool,

    /// Directory the ranks start in
    #[arg(long, aliases = ["wd", "dir", "workdir"], value_name = "DIR")]
    pub wdir: Option<PathBuf>,
    /// Adds DIR to the end of the ranks' LD_LIBRARY_PATH, for programs built elsewhere; `none` adds
    /// nothing (default: our own lib directory, if libmpi_abi.so.1 is there)
    #[arg(long, value_name = "DIR")]
    pub lib: Option<PathBuf>,

    /// Error handler the ranks begin with
    #[arg(long, value_name = "HANDLER",
          value_parser = ["mpi_errors_are_fatal", "mpi_errors_abort", "mpi_errors_return"])]
    pub initial_errhandler: Option<String>,

    /// Begins every line of output with [rank]
    #[arg(short = 'l', long = "tag-output", alias = "prepend-rank")]
    pub tag_output: bool,
    /// Who reads our standard input: a rank's number or `none`
    #[arg(long, short_alias = 's', short = 's', value_name = "RANK", default_value = "0")]
    pub stdin: String,
    /// Ends the job after so many seconds (also: MPIEXEC_TIMEOUT)
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<f64>,
    /// Seconds between asking ranks to end (SIGTERM) and killing them, once the job has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub grace: f64,
    /// Ties ranks to processors: none, core or hwthread
    #[arg(long, value_name = "WHAT", default_value = "none")]
    pub bind_to: String,

    /// Hosts to use; only this one is possible
    #[arg(short = 'H', long, alias = "host", value_name = "HOST,...")]
    pub hosts: Vec<String>,
    /// File with hosts to use; only this one is possible
    #[arg(short = 'f', long, aliases = ["machinefile", "machine-file"], value_name = "FILE")]
    pub hostfile: Vec<PathBuf>,

    /// Accepted; more ranks than processors need no permission
    #[arg(long, alias = "use-hwthread-cpus")]
    pub oversubscribe: bool,
    /// Accepted; no permission is needed
    #[arg(long)]
    pub allow_run_as_root: bool,
    /// Accepted; all ranks are on this machine
    #[arg(long, aliases = ["perhost", "npernode", "N", "map-by", "rank-by"], value_name = "ANY")]
    pub ppn: Option<OsString>,
    /// Accepted and ignored
    #[arg(long, aliases = ["launcher", "bootstrap", "rmk", "iface", "pmi-port"], value_name = "ANY", hide = true)]
    pub ignored: Vec<OsString>,
    /// Accepted and ignored
    #[arg(long, aliases = ["gmca", "prtemca"], num_args = 2, hide = true)]
    pub mca: Vec<OsString>,
    /// Accepted and ignored
    #[arg(short = 'q', long, hide = true)]
    pub quiet: bool,

    /// Says what is started
    #[arg(short, long)]
    pub verbose: bool,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// The whole command line: at least one section.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub sections: Vec<Section>,
}

/// What `parse` may end with instead of a request.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// A complaint, or the help or version text.
    Clap(clap::Error),
    /// Our own complaint.
    Launch(LaunchError),
}

impl Request {
    /// True if any section says so.
    pub fn any(&self, asks: impl Fn(&Section) -> bool) -> bool {
        self.sections.iter().any(asks)
    }
}

/// Reads the command line, program name first.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Request, ParseError> {
    let args: Vec<OsString> = args.into_iter().skip(1).collect();
    let mut command = Section::command();
    command.build();
    let mut sections = Vec::new();
    for words in args.split(|word| word == ":") {
        let words = std::iter::once(OsString::from("mpiexec")).chain(normalized(&command, words));
        let matches = command.try_get_matches_from_mut(words).map_err(ParseError::Clap)?;
        let section = Section::from_arg_matches(&matches).map_err(ParseError::Clap)?;
        if section.program.is_empty() {
            let text = if args.is_empty() {
                "no program to start; see mpiexec --help"
            } else {
                "the program's name is missing"
            };
            return Err(ParseError::Launch(LaunchError::Usage(text.to_owned())));
        }
        sections.push(section);
    }
    Ok(Request { sections })
}

/// Gives long options their second dash, and puts `--` before the program's name.
fn normalized(command: &clap::Command, words: &[OsString]) -> Vec<OsString> {
    let mut done = Vec::with_capacity(words.len() + 1);
    let mut rest = words.iter();
    while let Some(word) = rest.as_slice().first() {
        let Some(text) = word.to_str().filter(|text| text.len() > 1 && text.starts_with('-') && *text != "--") else {
            break;
        };
        rest.next();
        let bare = text.trim_start_matches('-');
        let (name, has_value) = bare.split_once('=').map_or((bare, false), |(name, _)| (name, true));
        let one_dash = !text.starts_with("--");
        let argument = match long(command, name) {
            Some(argument) if !(one_dash && name.chars().count() == 1) => {
                done.push(OsString::from(format!("--{bare}")));
                Some(argument)
            }
            _ => {
                done.push(word.clone());
                let short = bare.chars().next().filter(|_| one_dash).and_then(|letter| short(command, letter));
                // `-n4` carries its value with it.
                short.filter(|_| bare.chars().count() == 1)
            }
        };
        let value_count = argument.map_or(0, value_count);
        if !has_value {
            done.extend(rest.by_ref().take(value_count).cloned());
        }
    }
    if rest.as_slice().first().is_some_and(|word| word != "--") {
        done.push(OsString::from("--"));
    }
    done.extend(rest.cloned());
    done
}

fn long<'a>(command: &'a clap::Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| {
        argument.get_long() == Some(name) || argument.get_all_aliases().is_some_and(|names| names.contains(&name))
    })
}

fn short(command: &clap::Command, letter: char) -> Option<&Arg> {
    command.get_arguments().find(|argument| {
        argument.get_short() == Some(letter)
            || argument.get_all_short_aliases().is_some_and(|letters| letters.contains(&letter))
    })
}

fn value_count(argument: &Arg) -> usize {
    if !argument.get_action().takes_values() {
        return 0;
    }
    argument.get_num_args().map_or(1, |range| range.min_values())
}

/// `NAME=VALUE` taken apart; the value is absent without `=`.
pub(crate) fn name_and_value(text: &OsStr) -> (OsString, Option<OsString>) {
    use std::os::unix::ffi::OsStrExt;
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => (OsStr::from_bytes(&bytes[..at]).to_owned(), Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned())),
        None => (text.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        let words = line.split_whitespace().map(|word| OsString::from(word.replace('_', " ")));
        match parse(words) {
            Ok(request) => request,
            Err(error) => panic!("{line}: {error:?}"),
        }
    }

    fn words(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_definition_is_sound() {
        Section::command().debug_assert();
    }

    #[test]
    fn counts_in_every_spelling() {
        for option in ["-n 3", "-np 3", "--np 3", "--np=3", "-np=3", "-n3", "--n 3", "-c 3"] {
            let request = request(&format!("mpiexec {option} ./a -n 5"));
            assert_eq!(request.sections[0].np, 3, "{option}");
            assert_eq!(request.sections[0].program, words(&["./a", "-n", "5"]), "{option}");
        }
        assert_eq!(request("mpiexec ./a").sections[0].np, 1);
    }

    #[test]
    fn one_dash_or_two() {
        let line =
            "mpiexec -l -genv A -1 -env B two_words -x C=D -x E -wdir /tmp --timeout 2.5 -hosts localhost prog --np 9";
        let section = &request(line).sections[0];
        assert!(section.tag_output);
        assert_eq!(section.genv, words(&["A", "-1"]));
        assert_eq!(section.env, words(&["B", "two words"]));
        assert_eq!(section.x, words(&["C=D", "E"]));
        assert_eq!(section.wdir, Some("/tmp".into()));
        assert_eq!(section.timeout, Some(2.5));
        assert_eq!(section.hosts, ["localhost"]);
        assert_eq!(section.program, words(&["prog", "--np", "9"]));
        assert!(request("mpiexec -prepend-rank -n 2 p").any(|section| section.tag_output));
        assert!(
            request("mpiexec --mca btl tcp,self --oversubscribe --allow-run-as-root -bind-to core p").sections[0]
                .bind_to
                == "core"
        );
    }

    #[test]
    fn sections_and_program_arguments() {
        let request = request("mpiexec -n 2 a -x -- : -np 3 -- -odd");
        assert_eq!(request.sections.len(), 2);
        assert_eq!(request.sections[0].program, words(&["a", "-x", "--"]));
        assert_eq!((request.sections[1].np, &request.sections[1].program), (3, &words(&["-odd"])));
    }

    #[test]
    fn complaints() {
        for line in [
            "mpiexec",
            "mpiexec -n 2",
            "mpiexec a :",
            "mpiexec -n 0 a",
            "mpiexec -n x a",
            "mpiexec --nonsense a",
            "mpiexec -n 70000 a",
        ] {
            assert!(parse(line.split_whitespace().map(OsString::from)).is_err(), "{line}");
        }
    }
}
