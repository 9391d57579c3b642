//! Test lists: one entry a line, words with `key=value` options, `#` comments.

use anyhow::{Context, Result, bail};
use std::path::Path;

/// One line of a list: a name, plain words, and options in the order given.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first word.
    pub name: String,
    /// Words without `=`.
    pub words: Vec<String>,
    /// `key=value` pairs.
    pub options: Vec<(String, String)>,
}

impl Entry {
    /// The rank counts among the plain words.
    pub fn ranks(&self) -> Vec<u32> {
        self.words.iter().filter_map(|word| word.parse().ok()).collect()
    }

    /// Whether this plain word stands in the line.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    /// All values of an option.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The last value of an option.
    pub fn last(&self, key: &str) -> Option<&str> {
        self.options.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// Reads a list file.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

pub(super) fn parse(text: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut words = words(line).with_context(|| format!("line {}", number + 1))?.into_iter();
        let Some(name) = words.next() else { continue };
        let (mut plain, mut options) = (Vec::new(), Vec::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => options.push((key.to_owned(), value.to_owned())),
                None => plain.push(word),
            }
        }
        entries.push(Entry { name, words: plain, options });
    }
    Ok(entries)
}

/// Words between blanks, with double quotes for blanks inside; a `#` at the start of a word ends the line.
fn words(line: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quoted, mut inside) = (Vec::new(), String::new(), false, false);
    for character in line.chars() {
        match character {
            '#' if !inside && !quoted => break,
            '"' => (quoted, inside) = (!quoted, true),
            blank if blank.is_whitespace() && !quoted => {
                if inside {
                    words.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            other => {
                word.push(other);
                inside = true;
            }
        }
    }
    if quoted {
        bail!("a quotation mark is not closed");
    }
    if inside {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let entries = parse("# title\nping 1 2 quick\n\nbad 3 says=\"a = b # c\" says=x env=K=V # end\n").unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].name.as_str(), entries[0].ranks(), entries[0].has("quick")), ("ping", vec![1, 2], true));
        assert_eq!(entries[1].all("says").collect::<Vec<_>>(), ["a = b # c", "x"]);
        assert_eq!((entries[1].last("env"), entries[1].last("none")), (Some("K=V"), None));
        assert!(parse("x \"y").is_err());
    }
}
