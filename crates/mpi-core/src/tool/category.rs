//! Categories: variables and events by topic, under one root.
//!
//! MPI: §15.3.9

use base::config::VARIABLES;
use engine::EventKind;

use super::Tool;
use crate::error::{ErrorClass, Result};

/// One topic.
pub struct Category {
    /// What it is called.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Parts of names by which settings and counters are told to belong here.
    parts: &'static [&'static str],
}

/// The root, then the topics; what belongs to no other belongs to the last.
pub const CATEGORIES: [Category; 5] = [
    Category { name: "ferrovia", help: "Everything there is.", parts: &[] },
    Category {
        name: "messages",
        help: "How messages travel from process to process.",
        parts: &[
            "channel",
            "eager",
            "unexpected",
            "copy",
            "copied",
            "cross_memory",
            "send",
            "receive",
            "record",
            "message",
            "rendezvous",
            "registration",
            "registered",
            "tuple",
            "datatype",
            "layout",
            "credit",
            "pool",
        ],
    },
    Category {
        name: "collectives",
        help: "Collective operations.",
        parts: &["collective", "operations", "reproducible"],
    },
    Category { name: "waiting", help: "What a thread does while it waits.", parts: &["spin", "yield", "asleep"] },
    Category { name: "general", help: "What belongs to no other category.", parts: &[] },
];

/// What belongs to a category, by index.
#[derive(Default, Debug)]
pub struct Members {
    /// Control variables.
    pub controls: Vec<i32>,
    /// Performance variables.
    pub performance: Vec<i32>,
    /// Kinds of events.
    pub events: Vec<i32>,
    /// Categories below.
    pub categories: Vec<i32>,
}

impl Tool {
    /// A category by index.
    ///
    /// # Errors
    /// `ToolInvalidIndex`.
    ///
    /// MPI: §15.3.9 `MPI_T_category_get_info`
    pub fn category(&self, index: i32) -> Result<(&'static Category, Members)> {
        self.check_initialized()?;
        let Some((at, category)) = usize::try_from(index).ok().and_then(|at| Some((at, CATEGORIES.get(at)?))) else {
            return ErrorClass::ToolInvalidIndex.fail(format!("there is no category {index}"));
        };
        let mut members = Members::default();
        if at == 0 {
            members.categories = (1..CATEGORIES.len() as i32).collect();
        } else {
            let belong = |names: &mut dyn Iterator<Item = String>| -> Vec<i32> {
                let places = names.enumerate().filter(|(_, name)| topic(name) == at);
                places.map(|(index, _)| index as i32).collect()
            };
            members.controls = belong(&mut VARIABLES.iter().map(|variable| variable.name.to_lowercase()));
            members.performance = belong(&mut self.performance_variables()?.iter().map(|one| one.name.clone()));
            let kinds = 0..EventKind::ALL.len() as i32;
            // All events so far are about messages.
            members.events = if category.name == "messages" { kinds.collect() } else { Vec::new() };
        }
        Ok((category, members))
    }

    /// The index of a category.
    ///
    /// # Errors
    /// `ToolInvalidName`.
    ///
    /// MPI: §15.3.9 `MPI_T_category_get_index`
    pub fn category_index(&self, name: &str) -> Result<i32> {
        self.check_initialized()?;
        match CATEGORIES.iter().position(|category| category.name == name) {
            Some(index) => Ok(index as i32),
            None => ErrorClass::ToolInvalidName.fail(format!("there is no category {name}")),
        }
    }
}

/// The category a name belongs to.
fn topic(name: &str) -> usize {
    let speaks_of = |category: &Category| category.parts.iter().any(|part| name.contains(part));
    CATEGORIES.iter().position(speaks_of).unwrap_or(CATEGORIES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_belongs_to_exactly_one_topic() {
        let tool = Tool::new(|_| ());
        tool.initialize(base::Config::default()).unwrap();
        let members: Vec<Members> = (0..CATEGORIES.len() as i32).map(|at| tool.category(at).unwrap().1).collect();
        let check = |count: usize, of: fn(&Members) -> &Vec<i32>| {
            let mut all: Vec<i32> = members.iter().flat_map(|members| of(members).clone()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..count as i32).collect::<Vec<_>>());
        };
        check(VARIABLES.len(), |members| &members.controls);
        check(tool.performance_variables().unwrap().len(), |members| &members.performance);
        check(EventKind::ALL.len(), |members| &members.events);
        assert_eq!(members[0].categories, [1, 2, 3, 4]);
        assert_eq!(topic("ferrovia_eager_max"), 1);
        assert_eq!(topic("ferrovia_stats"), 4);
    }
}
