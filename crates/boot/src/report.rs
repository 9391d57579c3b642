//! What took which way in a job, as tables for people.

use std::fmt::Write;

use engine::{CounterKind, PeerStats, Stats};
use mpi_core::RankReport;

/// Jobs of up to so many processes are shown with a column for each.
const COLUMNS_MAX: usize = 8;
/// Pairs of processes that are shown: those with the most bytes.
const PAIRS_MAX: usize = 16;

/// The counters of `ranks`, which are all of a job's `size` processes or one of them; `way`: the device between two.
pub(crate) fn text(ranks: &[RankReport], size: u32, device: &str, way: impl Fn(u32, u32) -> &'static str) -> String {
    let mut text = String::new();
    let whose = match ranks {
        [one] if size > 1 => format!("rank {} of {size}", one.rank),
        _ => format!("{size} rank{}", if size == 1 { "" } else { "s" }),
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "ferrovia: messages and protocols of {whose} over {device}");
    counters(&mut text, ranks);
    pairs(&mut text, ranks, way);
    text
}

/// A row per counter that is not zero everywhere.
fn counters(text: &mut String, ranks: &[RankReport]) {
    let columns = if (2..=COLUMNS_MAX).contains(&ranks.len()) { ranks } else { &[] };
    let _ = write!(text, "  {:<30}{:>14}", "", "total");
    if ranks.len() > 1 {
        let _ = write!(text, "{:>14}{:>14}{:>14}", "min", "average", "max");
    }
    columns.iter().for_each(|report| {
        let _ = write!(text, "{:>12}", format!("[{}]", report.rank));
    });
    text.push('\n');
    for (at, counter) in Stats::COUNTERS.iter().enumerate() {
        let values: Vec<u64> = ranks.iter().map(|report| report.counters.get(at).copied().unwrap_or(0)).collect();
        let sum: u128 = values.iter().copied().map(u128::from).sum();
        let (Some(min), Some(max)) = (values.iter().min(), values.iter().max()) else { continue };
        if *max == 0 {
            continue;
        }
        // Peaks at different moments add up to nothing.
        let total = if counter.kind == CounterKind::Peak && ranks.len() > 1 { "-".into() } else { sum.to_string() };
        let _ = write!(text, "  {:<30}{total:>14}", counter.name);
        if ranks.len() > 1 {
            let _ = write!(text, "{min:>14}{:>14.1}{max:>14}", sum as f64 / values.len() as f64);
        }
        values.iter().take(columns.len()).for_each(|value| {
            let _ = write!(text, "{value:>12}");
        });
        text.push('\n');
    }
}

/// A row per pair that exchanged messages, those with the most bytes first, and one for all others.
fn pairs(text: &mut String, ranks: &[RankReport], way: impl Fn(u32, u32) -> &'static str) {
    let mut pairs: Vec<_> =
        ranks.iter().flat_map(|report| report.peers.iter().map(|(peer, stats)| (report.rank, *peer, stats))).collect();
    if pairs.is_empty() {
        return;
    }
    pairs.sort_by_key(|(from, to, stats)| (std::cmp::Reverse(stats.sent_bytes()), *from, *to));
    let rest = pairs.split_off(pairs.len().min(PAIRS_MAX));
    let untold = ranks.iter().map(|report| report.others);
    let (count, others) = rest
        .iter()
        .map(|(_, _, stats)| (1, **stats))
        .chain(untold)
        .fold((0, PeerStats::default()), |(count, sum), (more, stats)| (count + more, sum.plus(stats)));
    let has_tuples = pairs.iter().any(|(_, _, stats)| stats.tuple_sent + stats.tuple_fallbacks > 0);
    text.push_str("    from     to       way         eager           bytes   fast %      waited");
    text.push_str("    rendezvous           bytes    taken back    cached      held");
    text.push_str(if has_tuples { "    tuples      hits fallbacks\n" } else { "\n" });
    let mut row = |whose: String, stats: &PeerStats| {
        let _ = write!(
            text,
            "{whose:<25}{:>14}{:>16}{:>9}{:>12}{:>14}{:>16}{:>14}{:>10}{:>10}",
            stats.eager_sent,
            stats.eager_sent_bytes,
            share(stats.fast_sent(), stats.eager_sent),
            stats.eager_waited,
            stats.rendezvous_sent,
            stats.rendezvous_sent_bytes,
            stats.rendezvous_received,
            stats.registrations_found,
            stats.held_bytes
        );
        if has_tuples {
            let _ = write!(text, "{:>10}{:>10}{:>10}", stats.tuple_sent, stats.tuple_hits, stats.tuple_fallbacks);
        }
        text.push('\n');
    };
    for (from, to, stats) in pairs {
        row(format!("{from:>8} {to:>6} {:>9}", way(from, to)), stats);
    }
    if count > 0 {
        row(format!("{:>15}", format!("{count} others")), &others);
    }
}

/// A share of 100, or a dash of nothing.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}", 100.0 * part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rank: u32, eager: u64, peers: u32) -> RankReport {
        let value = |name: &str| if name == "eager sends" || name.ends_with("peak") { eager } else { 0 };
        let counters = Stats::COUNTERS.iter().map(|counter| value(counter.name)).collect();
        let stats = PeerStats { eager_sent: eager, eager_sent_bytes: 8 * eager, ..PeerStats::default() };
        RankReport { rank, counters, peers: (0..peers).map(|peer| (peer, stats)).collect(), others: (1, stats) }
    }

    fn row<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
        let row = text.lines().find(|line| line.trim_start().starts_with(name))?;
        Some(row.trim_start()[name.len()..].split_whitespace().collect())
    }

    #[test]
    fn a_small_job_has_a_column_for_each_and_a_large_one_has_not() {
        let way = |one, other| if one == other { "shm" } else { "tcp" };
        let small = text(&[report(0, 10, 1), report(1, 20, 1), report(2, 60, 0)], 3, "shm+tcp", way);
        assert!(small.starts_with("ferrovia: messages and protocols of 3 ranks over shm+tcp\n"), "{small}");
        assert_eq!(row(&small, "1      0").unwrap()[..2], ["tcp", "20"]);
        assert_eq!(row(&small, "0      0").unwrap()[..2], ["shm", "10"]);
        assert_eq!(row(&small, "eager sends").unwrap(), ["90", "10", "30.0", "60", "10", "20", "60"]);
        assert_eq!(row(&small, "unexpected bytes, peak").unwrap()[..2], ["-", "10"]);
        assert_eq!(row(&small, "rendezvous sends"), None, "nothing but zeros is left out");
        let large: Vec<RankReport> = (0..100).map(|rank| report(rank, 5, 3)).collect();
        let large = text(&large, 100, "tcp", |_, _| "tcp");
        assert_eq!(row(&large, "eager sends").unwrap(), ["500", "5", "5.0", "5"]);
        assert!(large.lines().count() < 40, "{large}");
        let others = row(&large, "384 others").unwrap();
        // 284 pairs that were told of, and one of each rank that was not.
        assert_eq!(others[..4], ["1920", "15360", "100.0", "0"], "{large}");
    }

    #[test]
    fn one_process_alone_says_whose_counters_they_are() {
        let of_eight = text(&[report(3, 10, 0)], 8, "shm", |_, _| "shm");
        assert!(of_eight.starts_with("ferrovia: messages and protocols of rank 3 of 8 over shm\n"), "{of_eight}");
        let alone = text(&[report(0, 10, 0)], 1, "shm", |_, _| "shm");
        assert_eq!(row(&alone, "eager sends").unwrap(), ["10"], "{alone}");
    }
}
