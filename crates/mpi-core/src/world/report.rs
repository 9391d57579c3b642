//! What took which way, gathered from all processes with the meeting at the end.

use engine::{PeerId, PeerStats, Stats};

use super::World;

/// Peers of one process that are told of: those it sent the most bytes to.
const PEERS_MAX: usize = 16;

/// The record of a process whose user wants none: no words follow.
const NO_REPORT: [u8; 8] = [0; 8];

/// What one process has counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankReport {
    /// Which.
    pub rank: u32,
    /// Its counters, as [`Stats::COUNTERS`] names them.
    pub counters: Vec<u64>,
    /// What went to and came from the peers it sent most to, most bytes first.
    pub peers: Vec<(PeerId, PeerStats)>,
    /// How many more there were, and their counts together.
    pub others: (u64, PeerStats),
}

impl RankReport {
    /// As a record: its length in words, then the words.
    fn to_bytes(&self) -> Vec<u8> {
        let mut words = vec![u64::from(self.rank), self.counters.len() as u64];
        words.extend(&self.counters);
        words.push(self.others.0);
        words.extend(self.others.1.to_words());
        for (peer, stats) in &self.peers {
            words.push(u64::from(*peer));
            words.extend(stats.to_words());
        }
        let all = std::iter::once(words.len() as u64).chain(words.iter().copied());
        all.flat_map(u64::to_ne_bytes).collect()
    }

    /// Back from its words; `None` if they make no sense.
    fn from_words(words: &[u64]) -> Option<Self> {
        let (rank, count) = (u32::try_from(*words.first()?).ok()?, usize::try_from(*words.get(1)?).ok()?);
        let counters = words.get(2..)?.get(..count)?.to_vec();
        let mut entries = words[2 + count..].chunks_exact(1 + PeerStats::WORDS).map(|chunk| {
            let (number, stats) = chunk.split_first()?;
            Some((*number, PeerStats::from_words(stats.try_into().ok()?)))
        });
        let others = entries.next()??;
        let peers = entries.map(|entry| entry.and_then(|(peer, stats)| Some((PeerId::try_from(peer).ok()?, stats))));
        Some(Self { rank, counters, peers: peers.collect::<Option<_>>()?, others })
    }
}

/// The reports in a row of records; what makes no sense is left out.
fn parse(bytes: &[u8]) -> Vec<RankReport> {
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect();
    let mut rest = &words[..];
    let mut reports = Vec::new();
    while let Some((len, after)) = rest.split_first() {
        let Some((record, next)) = usize::try_from(*len).ok().and_then(|len| after.split_at_checked(len)) else {
            break;
        };
        reports.extend(RankReport::from_words(record));
        rest = next;
    }
    reports.sort_by_key(|report| report.rank);
    reports
}

impl World {
    /// Waits until every process has come here; the first shows what all have counted, if the user wants that.
    pub(super) fn meet_and_report(&self) -> crate::Result<()> {
        let wanted = self.process.wants_report() && !self.has_reported.replace(true);
        let record = if wanted { self.own_report().to_bytes() } else { NO_REPORT.to_vec() };
        let mut show = |records: &[u8]| {
            if wanted {
                self.process.report(&parse(records));
            }
        };
        self.gather_records(&self.comm_world, record, &mut show)
    }

    /// Shows what this process has counted, if nobody has shown it yet and the user wants it.
    pub(super) fn report_alone(&self) {
        if self.process.wants_report() && !self.has_reported.replace(true) {
            self.process.report(&[self.own_report()]);
        }
    }

    fn own_report(&self) -> RankReport {
        let engine = self.engine.borrow();
        let stats = engine.stats();
        let counters = Stats::COUNTERS.iter().map(|counter| (counter.value)(&stats)).collect();
        let mut peers: Vec<_> = engine.peer_stats().filter(|(_, stats)| *stats != PeerStats::default()).collect();
        peers.sort_by_key(|(peer, stats)| (std::cmp::Reverse(stats.sent_bytes()), *peer));
        let rest = peers.split_off(peers.len().min(PEERS_MAX));
        let sum = rest.iter().fold(PeerStats::default(), |sum, (_, stats)| sum.plus(*stats));
        RankReport { rank: engine.rank(), counters, peers, others: (rest.len() as u64, sum) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reports_survive_the_way_and_nonsense_is_left_out() {
        let stats = PeerStats { eager_sent: 1, rendezvous_received_bytes: u64::MAX, ..PeerStats::default() };
        let one =
            RankReport { rank: 1, counters: vec![5, 6, 7], peers: vec![(0, stats), (9, stats)], others: (3, stats) };
        let two = RankReport { rank: 0, counters: vec![], peers: vec![], others: Default::default() };
        let mut bytes = one.to_bytes();
        bytes.extend(NO_REPORT);
        bytes.extend(two.to_bytes());
        assert_eq!(parse(&bytes), [two, one.clone()]);
        assert_eq!(parse(&[]), []);
        for len in 0..bytes.len() {
            let parsed = parse(&bytes[..len]);
            assert!(parsed.iter().all(|report| *report == one), "{len}");
        }
        assert_eq!(parse(&[0xff; 64]), []);
        let lies: Vec<u8> = [2u64, 1, u64::MAX].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(parse(&lies), []);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_row_of_reports_or_left_out(words in proptest::collection::vec(prop_oneof![0u64..40, any::<u64>()], 0..200)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let reports = parse(&bytes);
            prop_assert!(reports.is_sorted_by_key(|report| report.rank));
            prop_assert!(reports.iter().map(|report| report.counters.len() + report.peers.len()).sum::<usize>() <= words.len());
        }
    }
}
