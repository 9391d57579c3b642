//! The machine's pace: where a host moves its virtual processors about, a cache line takes several times as long from one
//! to the other as a moment before, and what every library takes follows. Samples are compared with those taken at the
//! same pace.
//!
//! ```text
//!   ns a line      … 100 │ near     100 … 150 │ not told apart     150 … │ apart
//! ```
//! A row of one pace says so by the parameter `pace`, unless the records know one pace only.

use crate::record::Row;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The parameter's name.
pub const PARAMETER: &str = "pace";
/// A line takes at most so long near, and at least so long apart, one way.
const NEAR_MAX_NS: f64 = 100.0;
const APART_MIN_NS: f64 = 150.0;
/// Fewer samples of a pace are no row of their own.
const SAMPLES_MIN: usize = 8;

/// How far apart two processors are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pace {
    /// They share a cache.
    Near,
    /// They do not.
    Apart,
}

impl Pace {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Near, Self::Apart];

    fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Apart => "apart",
        }
    }

    fn of(line_ns: f64) -> Option<Self> {
        match line_ns {
            ns if ns <= 0.0 => None,
            ns if ns <= NEAR_MAX_NS => Some(Self::Near),
            ns if ns >= APART_MIN_NS => Some(Self::Apart),
            _ => None,
        }
    }
}

/// The samples by pace, those of unknown pace left out; all of them, untold, if no pace has enough.
pub fn told_apart(samples: Vec<f64>, paces: &[f64]) -> Vec<(Option<Pace>, Vec<f64>)> {
    if paces.len() != samples.len() {
        return vec![(None, samples)];
    }
    let at = |pace| -> Vec<f64> {
        let those = samples.iter().zip(paces).filter(|(_, ns)| Pace::of(**ns) == Some(pace));
        those.map(|(sample, _)| *sample).collect()
    };
    let told = Pace::ALL.map(|pace| (Some(pace), at(pace))).into_iter().filter(|(_, those)| those.len() >= SAMPLES_MIN);
    let told: Vec<_> = told.collect();
    if told.is_empty() { vec![(None, samples)] } else { told }
}

/// The row of what was met at a pace.
pub fn of_row(row: &Row, met: Option<Pace>) -> Row {
    let mut row = row.clone();
    if let Some(pace) = met {
        row.parameters.insert(PARAMETER.to_owned(), pace.name().to_owned());
    }
    row
}

/// The row whatever its pace.
fn without(row: &Row) -> Row {
    let mut row = row.clone();
    row.parameters.remove(PARAMETER);
    row
}

/// The row whatever its pace, and that.
pub fn split_row(row: &Row) -> (Row, Option<Pace>) {
    let told = row.parameters.get(PARAMETER);
    (without(row), Pace::ALL.into_iter().find(|pace| told.is_some_and(|told| told == pace.name())))
}

/// What records tell of paces.
pub struct Paces {
    are_two: bool,
    /// Rows that are known at some pace, without it.
    told: BTreeSet<Row>,
}

impl Paces {
    /// Those of some rows.
    pub fn of<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Self {
        let is_met =
            |pace: Pace| rows.clone().any(|row| row.parameters.get(PARAMETER).is_some_and(|is| is == pace.name()));
        let told = rows.clone().filter(|row| row.parameters.contains_key(PARAMETER)).map(without).collect();
        Self { are_two: Pace::ALL.into_iter().all(is_met), told }
    }

    /// As what a point's row is shown; `None` if its pace is not known and that of others is.
    pub fn shown<'a>(&self, row: &'a Row) -> Option<Cow<'a, Row>> {
        match row.parameters.contains_key(PARAMETER) {
            true if self.are_two => Some(Cow::Borrowed(row)),
            true => Some(Cow::Owned(without(row))),
            false if self.are_two && self.told.contains(row) => None,
            false => Some(Cow::Borrowed(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::row;

    #[test]
    fn samples_are_told_apart_by_the_pace_they_met() {
        let samples: Vec<f64> = (0..30).map(f64::from).collect();
        let paces: Vec<f64> = (0..30).map(|i| [60.0, 0.0, 250.0][i / 10]).collect();
        let told = told_apart(samples.clone(), &paces);
        assert_eq!(told.iter().map(|(pace, _)| *pace).collect::<Vec<_>>(), [Some(Pace::Near), Some(Pace::Apart)]);
        assert_eq!((&told[0].1[..], &told[1].1[..]), (&samples[..10], &samples[20..]));
        // Neither far enough from the other, nor too few, nor unknown: nothing is told, nothing is lost.
        for paces in [vec![120.0; 30], vec![0.0; 30], vec![], [vec![60.0; 7], vec![0.0; 23]].concat()] {
            assert_eq!(told_apart(samples.clone(), &paces), [(None, samples.clone())]);
        }
    }

    #[test]
    fn one_pace_is_not_worth_telling_and_of_two_the_unknown_is_left_out() {
        let at = |pace| of_row(&row(8), pace);
        let rows = |paces: &[Option<Pace>]| -> Vec<Row> { paces.iter().map(|pace| at(*pace)).collect() };
        let shown = |paces: &[Option<Pace>], pace| Paces::of(rows(paces).iter()).shown(&at(pace)).map(Cow::into_owned);
        let (near, apart) = (Some(Pace::Near), Some(Pace::Apart));
        assert_eq!(shown(&[near, None], near), Some(row(8)));
        assert_eq!(shown(&[near, None], None), Some(row(8)));
        assert_eq!(shown(&[near, apart, None], near), Some(at(near)));
        assert_eq!(shown(&[near, apart, None], None), None);
        let other = Paces::of(rows(&[near, apart]).iter()).shown(&row(16)).map(Cow::into_owned);
        assert_eq!(other, Some(row(16)), "of this row no pace is known");
    }
}
