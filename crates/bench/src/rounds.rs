//! Rounds: every job once in each, in an order of its own, until what is measured is certain enough.
//!
//! ```text
//!   round 1     round 2     …   round k     every job takes part
//!   round k+1   …                           those of which a median is uncertain still, and what is compared with them
//! ```
//!
//! How many processes a row needs differs by a factor of ten with the machine and the row: where the machine is quiet
//! six tell what forty do not tell elsewhere. So a row is repeated until the interval of its median is narrow.

use crate::measure::positive;
use crate::pace::{self, Pace};
use crate::record::Row;
use crate::statistics;
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Most jobs of one run.
pub const JOBS_MAX: usize = 100_000;
/// Fewest processes of which the range covers the median with 95 %.
const ROUNDS_MIN: u32 = 6;
/// Most rounds, unless a number is given.
const ROUNDS_MAX: u32 = 40;
/// The exit code of a run that was interrupted, as shells have it.
const INTERRUPTED_CODE: u8 = 130;
/// A pace of the machine that fewer processes met than one in so many is not waited for.
const SHARE_MIN: usize = 4;
/// Seconds after which no further job begins, unless told otherwise.
const BUDGET_S: f64 = 600.0;

/// Where there is no terminal: from one line of progress to the next.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Set by the first ctrl-C: the run ends, and what was measured is shown.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the run was asked to end.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// How a program ends that was.
pub fn interrupted_code() -> ExitCode {
    ExitCode::from(INTERRUPTED_CODE)
}

/// From now on the first ctrl-C ends the run in order, and the second at once.
fn listen() {
    let handler = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED_CODE.into());
        }
    };
    // Where there is a handler already, it is this one.
    let _ = ctrlc::set_handler(handler);
}

/// How often everything is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct Effort {
    /// Processes of each test and library, exactly so many; by itself, as many as --precision takes
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Without -r: repeat what the processes do not agree upon yet, until each median is certain to so many per cent
    /// (95 % interval, to either side), at least 6 and at most 40 times
    #[arg(long, default_value_t = 3.0, value_name = "PERCENT", value_parser = positive)]
    pub precision: f64,
    /// Begin no further job after so long, once every job has had one turn (default: 600 without -r)
    #[arg(long, value_name = "S", value_parser = positive)]
    pub budget: Option<f64>,
}

impl Effort {
    /// The words that give another subcommand the same effort.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["--precision".to_owned(), self.precision.to_string()];
        words.extend(self.repetitions.iter().flat_map(|count| ["--repetitions".to_owned(), count.to_string()]));
        words.extend(self.budget.iter().flat_map(|seconds| ["--budget".to_owned(), seconds.to_string()]));
        words
    }

    /// The same for one of so many parts that are left, after so much time.
    pub fn share(&self, spent: Duration, parts: usize) -> Self {
        // Every part begins, however little is left.
        let left = |seconds: f64| ((seconds - spent.as_secs_f64()) / parts as f64).max(0.001);
        Self { budget: self.budget_s().map(left), ..self.clone() }
    }

    fn budget_s(&self) -> Option<f64> {
        self.budget.or(self.repetitions.is_none().then_some(BUDGET_S))
    }

    fn rounds_max(&self) -> u32 {
        self.repetitions.unwrap_or(ROUNDS_MAX)
    }

    fn is_spent(&self, began: Instant) -> bool {
        self.budget_s().is_some_and(|most| began.elapsed().as_secs_f64() > most)
    }

    /// Whether the medians of processes of one row tell enough. Shares are certain to so many points.
    fn is_enough(&self, row: &Row, medians: &[f64]) -> bool {
        let interval = statistics::median_interval(medians);
        let middle = statistics::median(medians);
        let reach = (interval.high - middle).max(middle - interval.low);
        let whole = if row.unit == "%" { 100.0 } else { middle };
        interval.confidence >= statistics::CONFIDENCE && reach * 100.0 <= self.precision * whole
    }
}

/// One thing that is run again and again.
pub trait Job {
    /// Jobs that are compared with each other, and so are repeated as often as the least certain of them; `None`: with
    /// all the others, as long as there are any.
    fn together(&self) -> Option<(usize, u32)>;
    /// What the progress bar calls it.
    fn shown(&self) -> String;
}

/// What a job found: the median of each row; `None` if it failed and need not be tried again.
pub type Found = Option<Vec<(Row, f64)>>;

/// Runs the jobs, in orders drawn from `seed`; `one` is told the round, from 0.
///
/// # Errors
/// If there are too many jobs, or what `one` fails with.
pub fn run<J: Job>(
    effort: &Effort,
    jobs: &[J],
    seed: u64,
    mut one: impl FnMut(&J, u32) -> Result<Found>,
) -> Result<()> {
    let rounds_max = effort.rounds_max();
    if jobs.len() * rounds_max as usize > JOBS_MAX {
        bail!("{} jobs, {rounds_max} times, are more than {JOBS_MAX}", jobs.len());
    }
    let mut random = StdRng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let mut so_far = SoFar { effort, medians: BTreeMap::new(), failed: BTreeSet::new() };
    listen();
    let began = Instant::now();
    let mut progress = Progress::new(ProgressBar::new(0), TOLD_EVERY);
    for round in 0..rounds_max {
        order.shuffle(&mut random);
        let wanted: Vec<usize> = order.iter().copied().filter(|job| so_far.wants(jobs, *job, round)).collect();
        if wanted.iter().all(|job| jobs[*job].together().is_none()) && round > 0 {
            break;
        }
        progress.begin_round(wanted.len(), so_far.standing(round, wanted.len()));
        for job in wanted {
            if round > 0 && effort.is_spent(began) {
                progress.end();
                so_far.tell_what_is_uncertain(jobs, round);
                return Ok(());
            }
            progress.begin(jobs[job].shown());
            match one(&jobs[job], round)? {
                Some(found) => so_far.add(job, found),
                None => drop(so_far.failed.insert(job)),
            }
            if is_interrupted() {
                progress.end();
                eprintln!("Interrupted. What was measured until then:");
                return Ok(());
            }
            progress.bar.inc(1);
        }
    }
    progress.end();
    so_far.tell_what_is_uncertain(jobs, rounds_max);
    Ok(())
}

/// How far the jobs are: a bar in a terminal, elsewhere a line now and then.
struct Progress {
    bar: ProgressBar,
    every: Duration,
    told: Instant,
}

impl Progress {
    fn new(bar: ProgressBar, every: Duration) -> Self {
        let template = "{bar:30} {pos}/{len}  {elapsed}  {prefix}  {msg}";
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        Self { bar: bar.with_style(style), every, told: Instant::now() }
    }

    fn begin_round(&mut self, jobs: usize, standing: String) {
        self.bar.set_length(self.bar.position() + jobs as u64);
        self.bar.set_prefix(standing);
    }

    fn begin(&mut self, shown: String) {
        if let Some(line) = self.line(&shown) {
            eprintln!("{line}");
        }
        self.bar.set_message(shown);
    }

    /// What is to be told where no bar is seen, if it is time.
    fn line(&mut self, shown: &str) -> Option<String> {
        if !self.bar.is_hidden() || self.told.elapsed() < self.every {
            return None;
        }
        self.told = Instant::now();
        let (bar, seconds) = (&self.bar, self.bar.elapsed().as_secs());
        let (done, all) = (bar.position(), bar.length().unwrap_or_default());
        Some(format!("{done} of {all} jobs after {seconds} s, {}: {shown}", bar.prefix()))
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// What processes found at a pace of the machine.
type AtPace<'a> = (Option<Pace>, &'a Vec<f64>);

struct SoFar<'a> {
    effort: &'a Effort,
    /// By job and row, what each process found.
    medians: BTreeMap<(usize, Row), Vec<f64>>,
    failed: BTreeSet<usize>,
}

impl SoFar<'_> {
    fn add(&mut self, job: usize, found: Vec<(Row, f64)>) {
        for (row, median) in found {
            self.medians.entry((job, row)).or_default().push(median);
        }
    }

    /// So many processes that a difference between two libraries can be shown in each of so many rows.
    fn rounds_min(&self) -> u32 {
        let rows: BTreeSet<Row> = self.medians.keys().map(|(_, row)| pace::split_row(row).0).collect();
        let shows = |count: &u32| {
            let probability = statistics::smallest_probability(*count as usize, *count as usize);
            probability * (rows.len() as f64) < 1.0 - statistics::CONFIDENCE
        };
        (ROUNDS_MIN..ROUNDS_MAX).find(shows).unwrap_or(ROUNDS_MAX)
    }

    fn is_certain(&self, job: usize) -> bool {
        // By row and pace; what is counted is not measured: it is as it is.
        let mut of_job: BTreeMap<Row, Vec<AtPace<'_>>> = BTreeMap::new();
        for ((of, row), medians) in &self.medians {
            if *of == job && row.unit != "count" {
                let (base, pace) = pace::split_row(row);
                of_job.entry(base).or_default().push((pace, medians));
            }
        }
        of_job.iter().all(|(row, paces)| {
            let all: usize = paces.iter().map(|(_, medians)| medians.len()).sum();
            let is_told = paces.iter().any(|(pace, _)| pace.is_some());
            // A pace that is met rarely need not be waited for, nor one that is not known beside others.
            let counts =
                |(pace, medians): &&AtPace<'_>| SHARE_MIN * medians.len() >= all && (pace.is_some() || !is_told);
            paces.iter().filter(counts).all(|(_, medians)| self.effort.is_enough(row, medians))
        })
    }

    fn wants<J: Job>(&self, jobs: &[J], job: usize, round: u32) -> bool {
        if self.failed.contains(&job) {
            return false;
        }
        if self.effort.repetitions.is_some() || round < self.rounds_min() {
            return true;
        }
        let together = jobs[job].together();
        let is_of_it = |other: &usize| together.is_none() || jobs[*other].together() == together;
        (0..jobs.len())
            .filter(is_of_it)
            .any(|other| jobs[other].together().is_some() && !self.failed.contains(&other) && !self.is_certain(other))
    }

    fn standing(&self, round: u32, wanted: usize) -> String {
        match self.effort.repetitions {
            Some(count) => format!("round {} of {count}", round + 1),
            None if round < ROUNDS_MIN => format!("round {}", round + 1),
            None => format!("round {}, {wanted} not certain to {} % yet", round + 1, self.effort.precision),
        }
    }

    /// Says on standard error what was given up before it was certain.
    fn tell_what_is_uncertain<J: Job>(&self, jobs: &[J], rounds: u32) {
        if self.effort.repetitions.is_some() {
            return;
        }
        let uncertain =
            |job: &usize| jobs[*job].together().is_some() && !self.failed.contains(job) && !self.is_certain(*job);
        let count = (0..jobs.len()).filter(uncertain).count();
        if count > 0 {
            eprintln!(
                "After {rounds} rounds {count} of {} jobs have medians that are not certain to {} %; ± shows how far \
                 each is. A longer --budget or a quieter machine helps.",
                jobs.len(),
                self.effort.precision
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::row;
    use rand::RngExt;

    #[test]
    fn without_a_terminal_a_line_tells_now_and_then_how_far_it_is() {
        let mut progress = Progress::new(ProgressBar::hidden(), Duration::ZERO);
        progress.begin_round(3, "round 1".to_owned());
        progress.bar.inc(1);
        assert_eq!(progress.line("latency").as_deref(), Some("1 of 3 jobs after 0 s, round 1: latency"));
        progress.every = Duration::MAX;
        assert_eq!(progress.line("latency"), None);
    }

    struct Thing(Option<usize>, &'static str);

    impl Job for Thing {
        fn together(&self) -> Option<(usize, u32)> {
            self.0.map(|test| (test, 2))
        }

        fn shown(&self) -> String {
            self.1.to_owned()
        }
    }

    fn effort(repetitions: Option<u32>) -> Effort {
        Effort { repetitions, precision: 3.0, budget: None }
    }

    const THINGS: [Thing; 5] = [
        Thing(Some(0), "quiet"),
        Thing(Some(1), "noisy"),
        Thing(Some(1), "quiet beside noisy"),
        Thing(None, "floor"),
        Thing(Some(2), "broken"),
    ];

    /// How often each of `THINGS` was run, and the order of the first two rounds.
    fn counted(effort: &Effort, seed: u64) -> (BTreeMap<&'static str, u32>, Vec<&'static str>) {
        let (mut counts, mut order) = (BTreeMap::new(), Vec::new());
        let mut random = StdRng::seed_from_u64(7);
        run(effort, &THINGS, seed, |thing, round| {
            *counts.entry(thing.1).or_default() += 1;
            if round < 2 {
                order.push(thing.1);
            }
            let spread = if thing.1 == "noisy" { 0.5 } else { 0.001 };
            let found = (row(8), 1.0 + spread * random.random::<f64>());
            Ok((thing.1 != "broken").then(|| vec![found]))
        })
        .unwrap();
        (counts, order)
    }

    #[test]
    fn what_is_uncertain_is_repeated_with_what_it_is_compared_with() {
        let (counts, _) = counted(&effort(None), 1);
        assert_eq!((counts["quiet"], counts["broken"]), (ROUNDS_MIN, 1));
        assert_eq!([counts["noisy"], counts["quiet beside noisy"], counts["floor"]], [ROUNDS_MAX; 3]);
        let wide = Effort { precision: 60.0, ..effort(None) };
        assert!(counted(&wide, 1).0.into_values().all(|count| count == ROUNDS_MIN || count == 1));
    }

    #[test]
    fn a_number_of_repetitions_is_kept_to() {
        let (counts, _) = counted(&effort(Some(3)), 1);
        assert_eq!(
            counts,
            BTreeMap::from([("quiet", 3), ("noisy", 3), ("quiet beside noisy", 3), ("floor", 3), ("broken", 1)])
        );
    }

    #[test]
    fn each_round_has_an_order_of_its_own_drawn_from_the_seed() {
        let order = |seed| counted(&effort(Some(2)), seed).1;
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
        let both = order(5);
        let (first, second) = both.split_at(5);
        let sorted = |round: &[&'static str]| round.iter().copied().collect::<BTreeSet<_>>();
        assert!(sorted(first).is_superset(&sorted(second)) && first != second);
    }

    #[test]
    fn a_spent_budget_ends_it_after_every_job_had_a_turn() {
        let spent = Effort { budget: Some(1e-9), ..effort(None) };
        assert!(counted(&spent, 1).0.into_values().all(|count| count == 1));
    }

    #[test]
    fn what_is_left_of_a_budget_is_shared() {
        let whole = Effort { budget: Some(100.0), ..effort(None) };
        assert_eq!(whole.share(Duration::from_secs(40), 2).budget, Some(30.0));
        assert_eq!(whole.share(Duration::from_secs(400), 2).budget, Some(0.001));
        assert_eq!(effort(None).share(Duration::ZERO, 3).budget, Some(200.0));
        assert_eq!(effort(Some(5)).share(Duration::ZERO, 3).budget, None, "as often as asked, however long it takes");
    }

    #[test]
    fn many_rows_need_more_processes() {
        let effort = effort(None);
        let mut so_far = SoFar { effort: &effort, medians: BTreeMap::new(), failed: BTreeSet::new() };
        so_far.add(0, vec![(row(8), 1.0)]);
        assert_eq!(so_far.rounds_min(), ROUNDS_MIN);
        so_far.add(0, (0..300).map(|bytes| (row(bytes), 1.0)).collect());
        assert_eq!(so_far.rounds_min(), 8, "C(16, 8) / 2 = 6435 > 300 / 0.05");
    }

    #[test]
    fn shares_are_certain_to_points_and_counts_at_once() {
        let effort = effort(None);
        let share = Row { unit: "%".into(), ..row(8) };
        let near_nothing = [0.0, 0.1, 0.2, 0.5, 1.0, 2.0];
        assert!(effort.is_enough(&share, &near_nothing) && !effort.is_enough(&row(8), &near_nothing));
        assert!(!effort.is_enough(&share, &near_nothing[..5]), "five are too few for 95 %");
        let mut so_far = SoFar { effort: &effort, medians: BTreeMap::new(), failed: BTreeSet::new() };
        so_far.add(0, vec![(Row { unit: "count".into(), ..row(8) }, 1.0)]);
        assert!(so_far.is_certain(0));
    }

    #[test]
    fn a_pace_that_is_rarely_met_is_not_waited_for() {
        let effort = effort(None);
        let certain = |met: &[(Option<Pace>, usize)]| {
            let mut so_far = SoFar { effort: &effort, medians: BTreeMap::new(), failed: BTreeSet::new() };
            for (pace, count) in met {
                let took = if *pace == Some(Pace::Near) { 1.0 } else { 5.0 };
                (0..*count).for_each(|_| so_far.add(0, vec![(pace::of_row(&row(8), *pace), took)]));
            }
            assert_eq!(so_far.rounds_min(), ROUNDS_MIN, "it is one row");
            so_far.is_certain(0)
        };
        let (near, apart) = (Some(Pace::Near), Some(Pace::Apart));
        assert!(certain(&[(near, 6)]) && certain(&[(near, 6), (apart, 6)]));
        assert!(certain(&[(near, 10), (apart, 1)]) && certain(&[(near, 6), (None, 5)]));
        assert!(!certain(&[(near, 6), (apart, 5)]) && !certain(&[(near, 5)]) && !certain(&[(None, 5)]));
    }

    #[test]
    fn too_many_jobs_are_refused() {
        let jobs: Vec<Thing> = (0..JOBS_MAX / 2).map(|test| Thing(Some(test), "x")).collect();
        assert!(run(&effort(Some(3)), &jobs, 1, |_, _| Ok(None)).is_err());
    }
}
