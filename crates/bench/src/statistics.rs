//! What can be said from samples: steady state, quantiles, intervals, significance.
//!
//! Samples within a process depend on each other (same pages, same cores, same neighbours), so between libraries and
//! runs only the medians of processes are compared. No distribution is assumed anywhere.

use std::collections::BTreeMap;

/// Samples that are looked at together when the end of the warm-up is sought.
const BATCH: usize = 5;
/// Confidence that an interval should reach.
pub const CONFIDENCE: f64 = 0.95;
/// Sizes up to which the rank-sum distribution is counted out rather than approximated.
const EXACT_MAX: usize = 25;

/// Where the warm-up ends: the number of leading samples to leave out, and whether a steady state was reached at all.
///
/// The truncation that minimises the standard error of the rest (MSER-5, by White), over medians of five samples, so
/// that a single outlier does not move it. If the best place lies beyond half of the samples, the run never became
/// steady; then half is left out and said so.
pub fn warm_up(samples: &[f64]) -> (usize, bool) {
    let batches: Vec<f64> = samples.chunks_exact(BATCH).map(median).collect();
    let count = batches.len();
    if count < 4 {
        return (0, true);
    }
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    // From the end, so that each truncation costs one step; at least two batches remain.
    for (start, value) in batches.iter().enumerate().rev() {
        sum += value;
        squares += value * value;
        let rest = (count - start) as f64;
        if rest < 2.0 {
            continue;
        }
        let spread = (squares - sum * sum / rest).max(0.0) / (rest * rest);
        // The longer rest wins a tie.
        if start <= count * 3 / 4 && spread <= best.0 {
            best = (spread, start);
        }
    }
    match best.1 > count / 2 {
        true => (count / 2 * BATCH, false),
        false => (best.1 * BATCH, true),
    }
}

/// The median; of an even number, the mean of the two in the middle.
///
/// # Panics
/// If there are no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The value that a share `quantile` of the sorted values does not exceed.
///
/// # Panics
/// If there are no values.
pub fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// How many of the sorted values lie more than three interquartile ranges outside the quartiles.
pub fn outlier_count(sorted: &[f64]) -> usize {
    let (low, high) = (quantile(sorted, 0.25), quantile(sorted, 0.75));
    let reach = 3.0 * (high - low);
    sorted.iter().filter(|value| **value < low - reach || **value > high + reach).count()
}

/// An interval for the median and the confidence it has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability that the median lies within, between 0 and 1.
    pub confidence: f64,
}

/// The narrowest symmetric interval of order statistics that covers the median with at least 95 %, exact for any
/// continuous distribution. With fewer than six values none does: then the whole range, with the confidence it has.
///
/// # Panics
/// If there are no values.
pub fn median_interval(values: &[f64]) -> Interval {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let mut inside = (0, 1.0 - 2.0 * binomial_tail(count, 0));
    for depth in 1..count.div_ceil(2) {
        let confidence = 1.0 - 2.0 * binomial_tail(count, depth);
        if confidence < CONFIDENCE {
            break;
        }
        inside = (depth, confidence);
    }
    let (depth, confidence) = inside;
    Interval { low: sorted[depth], high: sorted[count - 1 - depth], confidence: confidence.max(0.0) }
}

/// The probability of at most `successes` heads in `count` throws of a fair coin.
fn binomial_tail(count: usize, successes: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut sum = term;
    for k in 0..successes {
        term *= (count - k) as f64 / (k + 1) as f64;
        sum += term;
    }
    sum
}

/// The two-sided probability of a rank sum as far from the middle as this one, if both lists came from one source
/// (Wilcoxon, Mann and Whitney). Exact up to 25 values a side, ties by mid-ranks and then a normal approximation.
pub fn rank_sum_probability(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let mut all: Vec<(f64, bool)> =
        a.iter().map(|value| (*value, true)).chain(b.iter().map(|value| (*value, false))).collect();
    all.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (mut rank_sum, mut ties, mut start) = (0.0, 0.0, 0);
    while start < all.len() {
        let end = start + all[start..].iter().take_while(|other| other.0 == all[start].0).count();
        let (group, middle) = ((end - start) as f64, (start + end + 1) as f64 / 2.0);
        rank_sum += middle * all[start..end].iter().filter(|(_, of_a)| *of_a).count() as f64;
        ties += group * group * group - group;
        start = end;
    }
    let (n, m) = (a.len(), b.len());
    let statistic = rank_sum - (n * (n + 1)) as f64 / 2.0;
    if ties == 0.0 && n.max(m) <= EXACT_MAX {
        return exact_probability(n, m, statistic);
    }
    let (n, m, total) = (n as f64, m as f64, all.len() as f64);
    let variance = n * m / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((statistic - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * normal_tail(distance)).min(1.0)
}

/// Both tails from this value of the statistic on, exactly.
fn exact_probability(n: usize, m: usize, statistic: f64) -> f64 {
    let tails = rank_sum_tails(n, m);
    let far = statistic.min((n * m) as f64 - statistic).round() as usize;
    (2.0 * tails[far]).min(1.0)
}

/// The probability of at most `u` pairs in which the second list's value is smaller, for each `u`: counts the ways to
/// choose `n` of `n + m` ranks.
fn rank_sum_tails(n: usize, m: usize) -> Vec<f64> {
    // ways[i][u]: i values of the first list placed so far, u such pairs.
    let most = n * m;
    let mut ways = vec![vec![0.0; most + 1]; n + 1];
    ways[0][0] = 1.0;
    for place in 0..n + m {
        for i in (1..=n.min(place + 1)).rev() {
            let smaller = place + 1 - i;
            if smaller > m {
                continue;
            }
            for u in (smaller..=most).rev() {
                let more = ways[i - 1][u - smaller];
                ways[i][u] += more;
            }
        }
    }
    let total: f64 = ways[n].iter().sum();
    let mut sum = 0.0;
    let mut tail = |ways: &f64| {
        sum += ways;
        sum / total
    };
    ways[n].iter().map(&mut tail).collect()
}

/// Where the factor lies by which `b` is larger than `a`, with 95 %: the ratios that the rank-sum test does not refuse
/// (Hodges and Lehmann, by Moses). From nothing to infinity if there are so few values that it refuses none.
///
/// # Panics
/// If one has no values.
pub fn ratio_interval(a: &[f64], b: &[f64]) -> (f64, f64) {
    let mut ratios: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b / a)).collect();
    ratios.sort_by(f64::total_cmp);
    let (n, m) = (a.len(), b.len());
    let tail = (1.0 - CONFIDENCE) / 2.0;
    // So many ratios at either end are refused.
    let refused = if n.max(m) <= EXACT_MAX {
        rank_sum_tails(n, m).iter().take_while(|probability| **probability <= tail).count()
    } else {
        let pairs = (n * m) as f64;
        let distance = 1.96 * (pairs * (n + m + 1) as f64 / 12.0).sqrt();
        (pairs / 2.0 - distance).max(0.0).floor() as usize
    };
    match refused {
        0 => (0.0, f64::INFINITY),
        refused => (ratios[refused - 1], ratios[ratios.len() - refused]),
    }
}

/// The probability that a standard normal value exceeds `z >= 0` (Abramowitz and Stegun 26.2.17, error below 1e-7).
fn normal_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let polynomial =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

/// By how much `b` is larger than `a`: the median of all ratios (Hodges and Lehmann, on logarithms).
///
/// # Panics
/// If one has no values.
pub fn typical_ratio(a: &[f64], b: &[f64]) -> f64 {
    let ratios: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b / a)).collect();
    median(&ratios)
}

/// Probabilities adjusted for there being many of them, in the same order (Holm): a value below 0.05 flags, and among
/// all that are flagged a false one occurs in at most 5 of 100 cases.
pub fn adjusted(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut largest: f64 = 0.0;
    for (position, index) in order.into_iter().enumerate() {
        largest = largest.max(probabilities[index] * (probabilities.len() - position) as f64);
        adjusted[index] = largest.min(1.0);
    }
    adjusted
}

/// The smallest probability that `n` values against `m` can show.
pub fn smallest_probability(n: usize, m: usize) -> f64 {
    // Two of all ways to choose n of n + m.
    let ways = (1..=n).map(|k| (m + k) as f64 / k as f64).product::<f64>();
    (2.0 / ways).min(1.0)
}

/// A histogram of values in steps of about a thousandth: the highest value of each occupied bucket and its count.
pub fn histogram(values: &[f64]) -> Vec<(f64, u64)> {
    let mut histogram = hdrhistogram::Histogram::<u64>::new(3).expect("three digits are possible");
    for value in values {
        // Hundredths, so that short times keep their digits.
        let hundredths = (value * 100.0).round().clamp(0.0, 1e17) as u64;
        histogram.record(hundredths).expect("the histogram grows with its values");
    }
    histogram.iter_recorded().map(|step| (step.value_iterated_to() as f64 / 100.0, step.count_at_value())).collect()
}

/// Histograms of several processes as one.
pub fn merged<'a>(histograms: impl IntoIterator<Item = &'a Vec<(f64, u64)>>) -> Vec<(f64, u64)> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for (value, count) in histograms.into_iter().flatten() {
        *counts.entry((value * 100.0).round() as u64).or_default() += count;
    }
    counts.into_iter().map(|(value, count)| (value as f64 / 100.0, count)).collect()
}

/// A quantile of a histogram.
pub fn histogram_quantile(histogram: &[(f64, u64)], quantile: f64) -> f64 {
    let total: u64 = histogram.iter().map(|(_, count)| count).sum();
    let rank = ((quantile * total as f64).ceil() as u64).max(1);
    let mut seen = 0;
    for (value, count) in histogram {
        seen += count;
        if seen >= rank {
            return *value;
        }
    }
    histogram.last().map_or(0.0, |(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn warm_up_ends_where_the_level_is_reached() {
        let mut random = StdRng::seed_from_u64(7);
        for warm in [0_usize, 40, 100] {
            let samples: Vec<f64> = (0..500_usize)
                .map(|i| 100.0 + random.random::<f64>() + if i < warm { (warm - i) as f64 * 3.0 } else { 0.0 })
                .collect();
            let (found, steady) = warm_up(&samples);
            assert!(steady && (warm.saturating_sub(10)..=warm + 60).contains(&found), "{warm}: {found}");
        }
        let falling: Vec<f64> = (0..500).map(|i| 1000.0 - f64::from(i)).collect();
        assert_eq!(warm_up(&falling), (250, false));
        assert_eq!(warm_up(&[1.0, 2.0]), (0, true));
    }

    #[test]
    fn one_outlier_does_not_move_the_warm_up() {
        let mut samples = vec![10.0; 500];
        for (i, sample) in samples.iter_mut().enumerate() {
            *sample += (i % 7) as f64 * 0.01;
        }
        samples[400] = 1e6;
        assert!(warm_up(&samples).1);
        assert!(warm_up(&samples).0 <= 250);
        assert_eq!(
            outlier_count(&{
                let mut sorted = samples.clone();
                sorted.sort_by(f64::total_cmp);
                sorted
            }),
            1
        );
    }

    #[test]
    fn intervals_of_the_median_cover_it() {
        assert_eq!(median_interval(&[3.0]).confidence, 0.0);
        let five = median_interval(&[5.0, 1.0, 2.0, 4.0, 3.0]);
        assert_eq!((five.low, five.high, five.confidence), (1.0, 5.0, 0.9375));
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        let interval = median_interval(&ten);
        assert_eq!((interval.low, interval.high), (2.0, 9.0));
        assert!(interval.confidence > 0.97 && interval.confidence < 0.99);
        // A naive oracle: draw and count how often the true median, 0.5, lies within.
        let mut random = StdRng::seed_from_u64(11);
        let covered = (0..2000)
            .filter(|_| {
                let values: Vec<f64> = (0..9).map(|_| random.random()).collect();
                let interval = median_interval(&values);
                interval.low <= 0.5 && 0.5 <= interval.high
            })
            .count();
        assert!((1880..=1970).contains(&covered), "{covered} of 2000");
    }

    /// All ways to split the ranks, counted.
    fn naive_probability(a: &[f64], b: &[f64]) -> f64 {
        let all: Vec<f64> = a.iter().chain(b).copied().collect();
        let pairs = |chosen: &dyn Fn(usize) -> bool| {
            let mut smaller = 0.0_f64;
            for i in (0..all.len()).filter(|i| chosen(*i)) {
                for j in (0..all.len()).filter(|j| !chosen(*j)) {
                    smaller += if all[j] < all[i] { 1.0 } else { 0.0 };
                }
            }
            (smaller - (a.len() * b.len()) as f64 / 2.0).abs()
        };
        let ours = pairs(&|i| i < a.len());
        let (mut far, mut total) = (0.0, 0.0);
        for mask in 0_u32..1 << all.len() {
            if mask.count_ones() as usize == a.len() {
                total += 1.0;
                if pairs(&|i| mask >> i & 1 == 1) >= ours {
                    far += 1.0;
                }
            }
        }
        far / total
    }

    #[test]
    fn rank_sums_agree_with_counting_all_ways() {
        let mut random = StdRng::seed_from_u64(3);
        for (n, m) in [(1, 1), (3, 4), (5, 5), (6, 3)] {
            for _ in 0..5 {
                let a: Vec<f64> = (0..n).map(|_| random.random()).collect();
                let b: Vec<f64> = (0..m).map(|_| random.random::<f64>() + 0.3).collect();
                let (ours, naive) = (rank_sum_probability(&a, &b), naive_probability(&a, &b));
                assert!((ours - naive).abs() < 1e-12, "{a:?} {b:?}: {ours} {naive}");
            }
        }
    }

    #[test]
    fn the_extreme_is_what_so_few_can_show() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert!((rank_sum_probability(&a, &b) - 2.0 / 70.0).abs() < 1e-12);
        assert!((smallest_probability(4, 4) - 2.0 / 70.0).abs() < 1e-12);
        assert_eq!(rank_sum_probability(&[1.0; 5], &[1.0; 5]), 1.0);
        assert!(rank_sum_probability(&[1.0; 10], &[2.0; 10]) < 1e-4);
    }

    #[test]
    fn intervals_of_ratios_cover_them_and_fit_the_test() {
        let mut random = StdRng::seed_from_u64(13);
        for (n, m) in [(6, 6), (8, 12), (30, 30)] {
            let mut covered = 0;
            for _ in 0..500 {
                let a: Vec<f64> = (0..n).map(|_| 1.0 + 0.2 * random.random::<f64>()).collect();
                let b: Vec<f64> = (0..m).map(|_| 1.3 * (1.0 + 0.2 * random.random::<f64>())).collect();
                let (low, high) = ratio_interval(&a, &b);
                assert!(low <= typical_ratio(&a, &b) && typical_ratio(&a, &b) <= high);
                covered += u32::from(low <= 1.3 && 1.3 <= high);
                // A ratio within is one that the test does not refuse.
                let moved: Vec<f64> = b.iter().map(|b| b / f64::midpoint(low, high)).collect();
                assert!(rank_sum_probability(&a, &moved) > 0.05);
            }
            assert!((465..=495).contains(&covered), "{n} and {m}: {covered} of 500");
        }
        assert_eq!(ratio_interval(&[1.0; 3], &[2.0; 3]), (0.0, f64::INFINITY), "three can show nothing");
    }

    #[test]
    fn adjusting_keeps_order_and_never_shrinks() {
        assert_eq!(adjusted(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(adjusted(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(adjusted(&[]).is_empty());
    }

    #[test]
    fn histograms_keep_quantiles_to_a_thousandth() {
        let mut random = StdRng::seed_from_u64(5);
        let mut values: Vec<f64> = (0..5000).map(|_| 100.0 / random.random::<f64>().max(1e-4)).collect();
        let (left, right) = values.split_at(1700);
        let both = merged([&histogram(left), &histogram(right)]);
        values.sort_by(f64::total_cmp);
        for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
            let (exact, held) = (quantile(&values, share), histogram_quantile(&both, share));
            assert!((held / exact - 1.0).abs() < 2e-3, "{share}: {exact} {held}");
        }
    }

    #[test]
    fn ratios() {
        assert_eq!(typical_ratio(&[1.0, 1.0], &[2.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }
}
