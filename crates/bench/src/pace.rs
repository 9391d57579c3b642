//! The machine's pace: where a host moves its virtual processors about, a cache line takes several times as long from one
//! to the other as a moment before, and what every library takes follows. Samples are compared with those taken at the
//! same pace.
//!
//! ```text
//!   ns a line      … 100 │ near     100 … 150 │ not told apart     150 … │ apart
//! ```
//! A row of one pace says so by the parameter `pace`, unless the records know one pace only.

use crate::record::{Point, Row};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The parameter's name.
pub const PARAMETER: &str = "pace";
/// A line takes at most so long near, and at least so long apart, one way.
const NEAR_MAX_NS: f64 = 100.0;
const APART_MIN_NS: f64 = 150.0;
/// Fewer samples of a pace are no row of their own, nor is a smaller share of all: one in so many.
const SAMPLES_MIN: usize = 8;
const SHARE_MIN: usize = 10;

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

    /// That at which a line takes so long one way, if it is one of them; 0: not known.
    pub fn of(line_ns: f64) -> Option<Self> {
        match line_ns {
            ns if ns <= 0.0 => None,
            ns if ns <= NEAR_MAX_NS => Some(Self::Near),
            ns if ns >= APART_MIN_NS => Some(Self::Apart),
            _ => None,
        }
    }
}

/// The samples by pace, those of unknown pace left out; all of them, untold, if that would be most of them.
pub fn told_apart(samples: Vec<f64>, paces: &[f64]) -> Vec<(Option<Pace>, Vec<f64>)> {
    if paces.len() != samples.len() {
        return vec![(None, samples)];
    }
    let at = |pace| -> Vec<f64> {
        let those = samples.iter().zip(paces).filter(|(_, ns)| Pace::of(**ns) == Some(pace));
        those.map(|(sample, _)| *sample).collect()
    };
    let enough = |those: &[f64]| those.len() >= SAMPLES_MIN.max(samples.len() / SHARE_MIN);
    let told = Pace::ALL.map(|pace| (Some(pace), at(pace))).into_iter().filter(|(_, those)| enough(those));
    let told: Vec<_> = told.collect();
    let told_count: usize = told.iter().map(|(_, those)| those.len()).sum();
    if 2 * told_count < samples.len() || told.is_empty() { vec![(None, samples)] } else { told }
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
pub struct Paces<'a> {
    /// Both are met.
    pub are_two: bool,
    /// Rows that are known at some pace, without it, and of which library.
    told: BTreeSet<(Row, &'a str)>,
}

impl<'a> Paces<'a> {
    /// Those of some points.
    pub fn of(points: impl Iterator<Item = &'a Point> + Clone) -> Self {
        let is_met = |pace: Pace| {
            points.clone().any(|point| point.row.parameters.get(PARAMETER).is_some_and(|is| is == pace.name()))
        };
        let told = points.clone().filter(|point| point.row.parameters.contains_key(PARAMETER));
        let told = told.map(|point| (without(&point.row), point.library.as_str())).collect();
        Self { are_two: Pace::ALL.into_iter().all(is_met), told }
    }

    /// As what a point's row is shown; `None` if its pace is not known and that of others of its library is.
    pub fn shown(&self, point: &'a Point) -> Option<Cow<'a, Row>> {
        let row = &point.row;
        match row.parameters.contains_key(PARAMETER) {
            true if self.are_two => Some(Cow::Borrowed(row)),
            true => Some(Cow::Owned(without(row))),
            false if self.are_two && self.told.contains(&(row.clone(), point.library.as_str())) => None,
            false => Some(Cow::Borrowed(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{point, row};

    #[test]
    fn samples_are_told_apart_by_the_pace_they_met() {
        let samples: Vec<f64> = (0..30).map(f64::from).collect();
        let paces: Vec<f64> = (0..30).map(|i| [60.0, 0.0, 250.0][i / 10]).collect();
        let told = told_apart(samples.clone(), &paces);
        assert_eq!(told.iter().map(|(pace, _)| *pace).collect::<Vec<_>>(), [Some(Pace::Near), Some(Pace::Apart)]);
        assert_eq!((&told[0].1[..], &told[1].1[..]), (&samples[..10], &samples[20..]));
        // Neither far enough from the other, nor too few, nor unknown: nothing is told, nothing is lost.
        let most_unknown = [vec![60.0; 14], vec![120.0; 16]].concat();
        for paces in [vec![120.0; 30], vec![0.0; 30], vec![], [vec![60.0; 7], vec![0.0; 23]].concat(), most_unknown] {
            assert_eq!(told_apart(samples.clone(), &paces), [(None, samples.clone())]);
        }
    }

    #[test]
    fn one_pace_is_not_worth_telling_and_of_two_the_unknown_is_left_out() {
        let at = |library, pace| point(library, of_row(&row(8), pace), 0, &[1000.0]);
        let (near, apart) = (Some(Pace::Near), Some(Pace::Apart));
        let shown = |paces: &[Option<Pace>], asked: Point| -> Option<Row> {
            let points: Vec<Point> = paces.iter().map(|pace| at("a", *pace)).collect();
            Paces::of(points.iter()).shown(&asked).map(Cow::into_owned)
        };
        assert_eq!(shown(&[near, None], at("a", near)), Some(row(8)));
        assert_eq!(shown(&[near, None], at("a", None)), Some(row(8)));
        assert_eq!(shown(&[near, apart, None], at("a", near)), Some(of_row(&row(8), near)));
        assert_eq!(shown(&[near, apart, None], at("a", None)), None);
        assert_eq!(shown(&[near, apart], at("b", None)), Some(row(8)), "of this library no pace is known");
        assert_eq!(shown(&[near, apart], point("a", row(16), 0, &[1.0])), Some(row(16)), "nor of this row");
    }
}
