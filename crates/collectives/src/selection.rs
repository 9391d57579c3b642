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
    /// Up to this many ranks.
    pub(crate) ranks_max: u32,
    /// Up to this many bytes; what they measure is the call's [`CollectiveCall::len_bytes`].
    pub(crate) bytes_max: u64,
    /// Where ranks outnumber cores, or only where they do not.
    pub(crate) oversubscribed: Option<bool>,
    pub(crate) algorithm: &'static Algorithm<C>,
}

/// No limit, in a [`Row`].
pub(crate) const ANY_RANKS: u32 = u32::MAX;
/// No limit, in a [`Row`].
pub(crate) const ANY_BYTES: u64 = u64::MAX;

/// What a collective's parameters say about themselves.
pub(crate) trait CollectiveCall: Sized + 'static {
    const COLLECTIVE: Collective;
    /// All algorithms, for listing and for choosing by name.
    const ALGORITHMS: &'static [&'static Algorithm<Self>];
    /// The choice where nothing is asked for. The last row holds always and fits always.
    const TABLE: &'static [Row<Self>];

    /// Checks ranks and lists, and that all offsets can be computed in 64 bits.
    fn check(&self, place: Place) -> Result<(), BuildError>;

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
            .find(|row| {
                place.size <= row.ranks_max
                    && len_bytes <= row.bytes_max
                    && row.oversubscribed.is_none_or(|wanted| wanted == self.oversubscribed)
                    && (row.algorithm.fits)(place, call)
            })
            .map(|row| row.algorithm)
            .expect("the last row of every table holds and fits always")
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
