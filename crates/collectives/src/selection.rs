//! Choosing an algorithm: tables of plain data, and what the user asks for by name.

use std::fmt;
use std::str::FromStr;

use crate::builder::Builder;
use crate::collective::Collective;
use crate::data::Place;
use crate::error::{BuildError, SelectionError};

/// One way to carry out a collective with parameters `C`.
pub(crate) struct Algorithm<C> {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// Time on `p` ranks: α per message, β per byte, γ per byte reduced, `n` as in the table.
    pub(crate) cost: &'static str,
    /// True if it gives the right result for this call.
    pub(crate) fits: fn(Place, &C) -> bool,
    /// Writes the steps of one rank.
    pub(crate) build: fn(&mut Builder, &C),
}

/// A line of a selection table: the first whose limits hold and whose algorithm fits is taken.
pub(crate) struct Row<C: 'static> {
    algorithm: &'static Algorithm<C>,
    ranks_max: u32,
    bytes_max: u64,
    oversubscribed: Option<bool>,
}

impl<C> Row<C> {
    /// This algorithm, without limits.
    pub(crate) const fn of(algorithm: &'static Algorithm<C>) -> Row<C> {
        Row { algorithm, ranks_max: u32::MAX, bytes_max: u64::MAX, oversubscribed: None }
    }

    /// For at most so many ranks.
    pub(crate) const fn up_to_ranks(self, ranks_max: u32) -> Row<C> {
        Row { ranks_max, ..self }
    }

    /// For at most so many bytes, as the call's [`CollectiveCall::len_bytes`] measures them.
    pub(crate) const fn up_to_bytes(self, bytes_max: u64) -> Row<C> {
        Row { bytes_max, ..self }
    }

    /// Only where ranks outnumber cores, or only where they do not.
    pub(crate) const fn oversubscribed(self, oversubscribed: bool) -> Row<C> {
        Row { oversubscribed: Some(oversubscribed), ..self }
    }

    fn holds(&self, ranks: u32, len_bytes: u64, oversubscribed: bool) -> bool {
        ranks <= self.ranks_max
            && len_bytes <= self.bytes_max
            && self.oversubscribed.is_none_or(|wanted| wanted == oversubscribed)
    }
}

/// What a collective's parameters say about themselves.
pub(crate) trait CollectiveCall: Sized + 'static {
    const COLLECTIVE: Collective;
    /// All algorithms, for listing and for choosing by name.
    const ALGORITHMS: &'static [&'static Algorithm<Self>];
    /// The choice where nothing is asked for. Of the rows without limits, one fits any call.
    const TABLE: &'static [Row<Self>];

    /// Checks ranks and lists, and that all offsets can be computed in 64 bits.
    fn check(&self, place: Place) -> Result<(), BuildError>;

    /// What [`CollectiveCall::len_bytes`] measures, in words.
    const MEASURE: &'static str;

    /// The size that tables go by: equal on all ranks. Zero where ranks cannot know it.
    fn len_bytes(&self, place: Place) -> u64;
}

/// An algorithm as `ferrovia info` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmInfo {
    /// The operation.
    pub collective: Collective,
    /// Its name, as a [`Selection`] takes it.
    pub name: &'static str,
    /// One line on how it works.
    pub summary: &'static str,
    /// Time on `p` ranks: α per message, β per byte moved, γ per byte reduced.
    pub cost: &'static str,
}

/// A line of the table by which algorithms are chosen, as `ferrovia info` shows it. Of the lines of a
/// collective the first holds whose limits a call keeps and whose algorithm fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The operation.
    pub collective: Collective,
    /// For at most so many ranks; none: any number.
    pub ranks_max: Option<u32>,
    /// For at most so many bytes; none: any number.
    pub bytes_max: Option<u64>,
    /// What the bytes measure.
    pub measure: &'static str,
    /// Only where ranks outnumber cores (true), only where they do not (false), or in both cases.
    pub oversubscribed: Option<bool>,
    /// Name of the algorithm.
    pub algorithm: &'static str,
}

/// The table of one collective, for listing.
pub(crate) fn choices<C: CollectiveCall>() -> Vec<Choice> {
    let choice = |row: &Row<C>| Choice {
        collective: C::COLLECTIVE,
        ranks_max: (row.ranks_max < u32::MAX).then_some(row.ranks_max),
        bytes_max: (row.bytes_max < u64::MAX).then_some(row.bytes_max),
        measure: C::MEASURE,
        oversubscribed: row.oversubscribed,
        algorithm: row.algorithm.name,
    };
    C::TABLE.iter().map(choice).collect()
}

/// The algorithms of one collective, for listing.
pub(crate) fn list<C: CollectiveCall>() -> Vec<AlgorithmInfo> {
    let info = |algorithm: &&Algorithm<C>| AlgorithmInfo {
        collective: C::COLLECTIVE,
        name: algorithm.name,
        summary: algorithm.summary,
        cost: algorithm.cost,
    };
    C::ALGORITHMS.iter().map(info).collect()
}

/// How algorithms are chosen; the same on all ranks of a communicator.
///
/// ```
/// use collectives::Selection;
/// let selection: Selection = "allreduce=ring,bcast=binomial".parse()?;
/// assert_eq!(selection.to_string(), "bcast=binomial,allreduce=ring");
/// let error = "bcast=rign".parse::<Selection>().unwrap_err().to_string();
/// assert!(error.contains("binomial"), "{error}");
/// # Ok::<(), collectives::SelectionError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// More ranks than cores on a node of the communicator: prefer few wake-ups to short chains.
    pub oversubscribed: bool,
    /// Results of reductions depend on their inputs and the number of ranks only, to the bit: not on the
    /// number of elements, the root, or how many cores there are. Calls have to say that their operation
    /// does not commute.
    pub reproducible: bool,
    /// Short blocking operations between processes of one host may go through memory that all of them see.
    pub shared: bool,
    /// Blocks of so many bytes and more may be read straight from each other's memory; `None`: where that is faster.
    pub read_min_bytes: Option<u64>,
    /// By collective and name, sorted.
    overrides: Vec<(Collective, &'static str)>,
}

impl Selection {
    /// Asks for an algorithm by name, in place of the table. Where it does not fit a call (a
    /// non-commutative operation, say), the table decides as before.
    ///
    /// # Errors
    /// [`SelectionError::Algorithm`] lists the names there are.
    pub fn prefer(&mut self, collective: Collective, name: &str) -> Result<(), SelectionError> {
        let known = crate::algorithms().filter(|info| info.collective == collective);
        let Some(info) = known.clone().find(|info| info.name == name) else {
            return Err(SelectionError::Algorithm {
                collective,
                name: name.to_owned(),
                known: join(known.map(|info| info.name)),
            });
        };
        self.overrides.retain(|(overridden, _)| *overridden != collective);
        self.overrides.push((collective, info.name));
        self.overrides.sort_unstable();
        Ok(())
    }

    /// Takes over all that `text`, as in `allreduce=ring,bcast=binomial`, asks for.
    ///
    /// # Errors
    /// An item is malformed or names nothing known; earlier items have been taken over.
    pub fn apply(&mut self, text: &str) -> Result<(), SelectionError> {
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let Some((collective, algorithm)) = item.split_once('=') else {
                return Err(SelectionError::Form { item: item.to_owned() });
            };
            let (collective, algorithm) = (collective.trim(), algorithm.trim());
            let Some(collective) = Collective::ALL.into_iter().find(|c| c.name() == collective) else {
                return Err(SelectionError::Collective {
                    name: collective.to_owned(),
                    known: join(Collective::ALL.into_iter().map(Collective::name)),
                });
            };
            self.prefer(collective, algorithm)?;
        }
        Ok(())
    }

    /// What was asked for by name, by collective.
    pub fn overrides(&self) -> &[(Collective, &'static str)] {
        &self.overrides
    }

    pub(crate) fn choose<C: CollectiveCall>(&self, place: Place, call: &C) -> &'static Algorithm<C> {
        if let Some(name) = C::COLLECTIVE.reproducible_algorithm().filter(|_| self.reproducible) {
            let algorithm = C::ALGORITHMS.iter().find(|algorithm| algorithm.name == name);
            return algorithm.expect("the algorithm is one of the collective's");
        }
        let asked_for = self.overrides.iter().find(|(collective, _)| *collective == C::COLLECTIVE);
        if let Some((_, name)) = asked_for {
            let algorithm = C::ALGORITHMS.iter().find(|algorithm| algorithm.name == *name);
            if let Some(algorithm) = algorithm.filter(|algorithm| (algorithm.fits)(place, call)) {
                return algorithm;
            }
        }
        let len_bytes = call.len_bytes(place);
        C::TABLE
            .iter()
            .find(|row| row.holds(place.size, len_bytes, self.oversubscribed) && (row.algorithm.fits)(place, call))
            .map(|row| row.algorithm)
            .expect("for every call, a row without limits fits")
    }
}

impl FromStr for Selection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Selection, SelectionError> {
        let mut selection = Selection::default();
        selection.apply(text)?;
        Ok(selection)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (collective, name)) in self.overrides.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{collective}={name}")?;
        }
        Ok(())
    }
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
