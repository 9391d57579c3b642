//! Who descends from us.

use std::fs;

use rustix::process::Pid;

/// Living children of a process, adopted ones included; ended ones are left out.
fn children(of: Pid) -> Vec<Pid> {
    let of = of.as_raw_pid();
    // A file with the children of each thread, where the kernel offers it.
    let listed = fs::read_dir(format!("/proc/{of}/task")).ok().and_then(|threads| {
        let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
        lists.collect::<Result<String, _>>().ok()
    });
    let found: Vec<Pid> = match listed {
        Some(list) => list.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect(),
        None => all_processes().into_iter().filter(|pid| stat(*pid).is_some_and(|(_, parent)| parent == of)).collect(),
    };
    found.into_iter().filter(|pid| stat(*pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))).collect()
}

/// Living descendants of this process, parents before children, without the branch of `except`.
pub(crate) fn descendants(except: Option<Pid>) -> Vec<Pid> {
    const COUNT_MAX: usize = 1 << 20;
    let mut found = children(rustix::process::getpid());
    found.retain(|pid| Some(*pid) != except);
    let mut next = 0;
    while next < found.len() && found.len() < COUNT_MAX {
        let more = children(found[next]);
        found.extend(more);
        next += 1;
    }
    found
}

/// Every process that can be seen.
pub(crate) fn all_processes() -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// State and parent of a process.
fn stat(pid: Pid) -> Option<(char, i32)> {
    let text = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    parse_stat(&String::from_utf8_lossy(&text))
}

/// The name in the middle may contain anything, so the fields are counted from its closing parenthesis.
fn parse_stat(text: &str) -> Option<(char, i32)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses() {
        assert_eq!(parse_stat("12 (a) b) R 7 12 12 0 -1"), Some(('R', 7)));
        assert_eq!(parse_stat("12 (sh) Z 1"), Some(('Z', 1)));
        assert_eq!(parse_stat("garbage"), None);
        assert_eq!(parse_stat("1 (x) S x"), None);
    }

    #[test]
    fn a_child_is_a_descendant() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let found = descendants(None);
        let without = descendants(Some(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&pid));
        assert!(!without.contains(&pid));
    }
}
