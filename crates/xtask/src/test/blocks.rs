//! Commands that are run one after another by one script, so that each one's output and status can be told apart.

use std::fmt::Write as _;

/// Around what a command says that others run beside.
const BEGIN: &str = "begin of command";
const END: &str = "end of command, status";

/// The commands, for `sh`: each between a line with its number and one with its exit status.
pub fn script(commands: impl IntoIterator<Item = String>) -> String {
    let mut script = String::new();
    for (index, command) in commands.into_iter().enumerate() {
        let _ = writeln!(script, "echo '{BEGIN} {index}'\n{command} 2>&1\nprintf '\\n{END} %d\\n' $?");
    }
    script
}

/// How a command ended and what it said.
#[derive(PartialEq, Eq, Debug)]
pub struct Block<'a> {
    /// Its exit status.
    pub code: Option<i32>,
    /// Both of its streams.
    pub output: &'a str,
}

/// What command `index` of a script has said there, or why that is not to be known.
pub fn block(said: &str, index: usize) -> Result<Block<'_>, &'static str> {
    let (_, from) = said.split_once(&format!("{BEGIN} {index}\n")).ok_or("was not begun")?;
    let own = from.split_once(BEGIN).map_or(from, |(own, _)| own);
    let (output, end) = own.split_once(END).ok_or("did not end")?;
    Ok(Block { code: end.split_whitespace().next().and_then(|status| status.parse().ok()), output })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Program;

    #[test]
    fn commands_are_told_apart() {
        let commands = ["echo one; (exit 3)", "printf two >&2", "kill $$", "echo never"];
        let script = script(commands.map(|command| format!("{{ {command}; }}")));
        let said = Program::new("sh").args(["-c", &script]).run().unwrap().stdout;
        assert_eq!(block(&said, 0), Ok(Block { code: Some(3), output: "one\n\n" }));
        assert_eq!(block(&said, 1), Ok(Block { code: Some(0), output: "two\n" }));
        assert_eq!(block(&said, 2), Err("did not end"));
        assert_eq!(block(&said, 3), Err("was not begun"));
    }
}
