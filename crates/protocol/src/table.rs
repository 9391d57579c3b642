//! Which protocol runs at which size, as a table for people. It is not a second source: every row is what
//! [`Thresholds::plan`] and [`Thresholds::plan_rdma`] answer.

use crate::rendezvous::{CopyPlan, RdmaPlan, Reach, Thresholds};

/// What lies between the two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Between {
    /// Memory that both map; the private memory of the other is within this reach.
    Mapped(Reach),
    /// Connections of a device for which the receiver's reads suit better than the sender's writes, or not.
    Verbs {
        /// Reads suit better.
        prefers_reads: bool,
    },
}

/// One row: messages of these sizes go this way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Shortest message, in bytes.
    pub from_bytes: u64,
    /// Longest message, in bytes; none where there is no end.
    pub to_bytes: Option<u64>,
    /// Whether sender's and receiver's memory both lie in one piece; none where it makes no difference.
    pub in_one_piece: Option<bool>,
    /// How they go.
    pub way: Way,
}

/// A protocol, as the table tells it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// At once, whole, into the channel.
    Eager,
    /// After its receive was met, through the channel piece by piece.
    Staged,
    /// The same, where the channel is a connection of a device.
    Posted,
    /// After its receive was met, copied by the receiver.
    Read,
    /// After its receive was met, copied by both sides.
    Shared,
    /// After its receive was met, read by the receiver with RDMA.
    Get,
    /// After its receive was met, written by the sender with RDMA.
    Put,
}

impl Way {
    /// What happens, in a few words.
    pub fn description(self) -> &'static str {
        match self {
            Way::Eager => "eager: at once through the channel",
            Way::Staged | Way::Posted => "rendezvous, staged: through the channel piece by piece",
            Way::Read => "rendezvous, read: the receiver copies it from the sender's memory",
            Way::Shared => "rendezvous, shared: sender and receiver copy it together",
            Way::Get => "rendezvous, RGET: the receiver reads it by RDMA",
            Way::Put => "rendezvous, RPUT: the sender writes it by RDMA with immediate data",
        }
    }

    /// The settings that move the ends of this row or take it away.
    pub fn settings(self) -> &'static [&'static str] {
        match self {
            Way::Eager => &["FERROVIA_EAGER_MAX", "FERROVIA_CHANNEL"],
            Way::Staged => &["FERROVIA_EAGER_MAX", "FERROVIA_CROSS_MEMORY_MIN", "FERROVIA_LARGE_COPY"],
            Way::Read => &["FERROVIA_CROSS_MEMORY_MIN", "FERROVIA_LARGE_COPY", "FERROVIA_CROSS_MEMORY"],
            Way::Shared => &["FERROVIA_SHARED_COPY_MIN", "FERROVIA_LARGE_COPY"],
            Way::Posted => &["FERROVIA_EAGER_MAX", "FERROVIA_CROSS_MEMORY_MIN", "FERROVIA_RENDEZVOUS"],
            Way::Get | Way::Put => &["FERROVIA_CROSS_MEMORY_MIN", "FERROVIA_RENDEZVOUS"],
        }
    }
}

/// The longest eager message.
fn eager_max_bytes(thresholds: &Thresholds, between: Between) -> u64 {
    match between {
        Between::Mapped(_) => thresholds.eager_max_bytes as u64,
        Between::Verbs { .. } => thresholds.posted_eager_max_bytes as u64,
    }
}

/// How messages between processes go whose channels have these thresholds.
pub fn rows(thresholds: &Thresholds, between: Between) -> Vec<Row> {
    let eager_max_bytes = eager_max_bytes(thresholds, between);
    let eager = Row { from_bytes: 0, to_bytes: Some(eager_max_bytes), in_one_piece: None, way: Way::Eager };
    let (whole, pieces) = (stretches(thresholds, between, true), stretches(thresholds, between, false));
    let row = |in_one_piece: Option<bool>| {
        move |(from_bytes, to_bytes, way): &Stretch| Row {
            from_bytes: *from_bytes,
            to_bytes: *to_bytes,
            in_one_piece,
            way: *way,
        }
    };
    let (both, only_whole): (Vec<_>, Vec<_>) = whole.iter().partition(|stretch| pieces.contains(stretch));
    let only_pieces = pieces.iter().filter(|stretch| !whole.contains(stretch));
    let mut rows = vec![eager];
    rows.extend(both.into_iter().map(row(None)));
    rows.extend(only_whole.into_iter().map(row(Some(true))));
    rows.extend(only_pieces.map(row(Some(false))));
    rows
}

/// First size, last size if there is one, way.
type Stretch = (u64, Option<u64>, Way);

/// The ways past the eager limit, in order of size.
fn stretches(thresholds: &Thresholds, between: Between, in_one_piece: bool) -> Vec<Stretch> {
    let past_eager = eager_max_bytes(thresholds, between).saturating_add(1);
    let mut starts = vec![past_eager, thresholds.cross_memory_min_bytes, thresholds.shared_min_bytes];
    starts.retain(|start| *start >= past_eager);
    starts.sort_unstable();
    starts.dedup();
    let mut stretches: Vec<Stretch> = Vec::new();
    for start in starts {
        let way = planned(thresholds, between, start, in_one_piece);
        match stretches.last_mut() {
            Some(last) if last.2 == way => continue,
            Some(last) => last.1 = Some(start - 1),
            None => {}
        }
        stretches.push((start, None, way));
    }
    stretches
}

/// What the plans say of one message.
fn planned(thresholds: &Thresholds, between: Between, len_bytes: u64, in_one_piece: bool) -> Way {
    match between {
        Between::Mapped(reach) => match thresholds.plan(len_bytes, in_one_piece, reach) {
            CopyPlan::Read => Way::Read,
            CopyPlan::Shared { .. } => Way::Shared,
            CopyPlan::Staged => Way::Staged,
        },
        Between::Verbs { .. } if !in_one_piece => Way::Posted,
        Between::Verbs { prefers_reads } => match thresholds.plan_rdma(len_bytes, prefers_reads) {
            RdmaPlan::Get => Way::Get,
            RdmaPlan::Put => Way::Put,
            RdmaPlan::Staged => Way::Posted,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::config::{LargeCopy, Rendezvous};
    use proptest::prelude::*;

    proptest! {
        /// At every size near a threshold exactly one row holds, and it says what the plan says.
        #[test]
        fn every_size_has_the_row_of_its_plan(
            eager in 0u64..40,
            cross in 0u64..40,
            shared in 0u64..40,
            copy in prop::sample::select(vec![LargeCopy::Auto, LargeCopy::Both, LargeCopy::Read, LargeCopy::Staged]),
            between in prop::sample::select(vec![
                Between::Mapped(Reach::Works),
                Between::Mapped(Reach::Refused),
                Between::Verbs { prefers_reads: true },
                Between::Verbs { prefers_reads: false },
            ]),
            rendezvous in prop::sample::select(vec![Rendezvous::Auto, Rendezvous::Rget, Rendezvous::Staged]),
        ) {
            let thresholds = Thresholds {
                eager_max_bytes: eager as usize,
                posted_eager_max_bytes: eager as usize,
                cross_memory_min_bytes: cross,
                staged_near_max_bytes: 0,
                ahead_bytes: 0,
                shared_min_bytes: shared,
                read_step_bytes: 1,
                large_copy: copy,
                is_crowded: false,
                rendezvous,
            };
            let rows = rows(&thresholds, between);
            for len in 0..60 {
                for in_one_piece in [false, true] {
                    let holds = |row: &&Row| {
                        row.from_bytes <= len
                            && row.to_bytes.is_none_or(|to| len <= to)
                            && row.in_one_piece.is_none_or(|one| one == in_one_piece)
                    };
                    let planned = planned(&thresholds, between, len, in_one_piece);
                    let expected = if len <= eager { Way::Eager } else { planned };
                    let found: Vec<Way> = rows.iter().filter(holds).map(|row| row.way).collect();
                    prop_assert_eq!(found, vec![expected], "{} bytes, in one piece {}", len, in_one_piece);
                }
            }
        }
    }
}
