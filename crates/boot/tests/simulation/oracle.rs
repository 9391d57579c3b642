//! What MPI says about which receive gets which message (MPI: §3.5), looked at afterwards and pair by pair.

use crate::program::{Message, Pattern};

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Unknown,
    /// Matched by the receive of this number at its receiver.
    Matched(usize),
    Cancelled,
    /// Matched by that receive, which then failed since the sender was lost.
    Failed(usize),
    /// It never came: sender and receiver lost each other.
    Lost,
}

/// A receive, or a matched probe, in the order in which its rank posted it.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub pattern: Pattern,
    /// The message it got.
    pub matched: Option<usize>,
    /// It was cancelled by the program while others were still under way: it may have been gone before what it
    /// accepts came.
    pub left_early: bool,
}

/// Checks one receiver: `messages` to it are those of `fates` in the order in which each sender sent them.
pub fn check(messages: &[Message], fates: &[Fate], rank: u32, posted: &[Posted]) {
    for (at, receive) in posted.iter().enumerate() {
        if let Some(got) = receive.matched {
            let its = [Fate::Matched(at), Fate::Failed(at)].contains(&fates[got]);
            assert!(its, "message {got} belongs to one receive, not to {at}: {:?}", fates[got]);
            assert!(receive.pattern.accepts(&messages[got]), "{receive:?} got {:?}", messages[got]);
        }
    }
    for (got, fate) in fates.iter().enumerate().filter(|(number, _)| messages[*number].to == rank) {
        let at = match *fate {
            Fate::Matched(at) | Fate::Failed(at) => at,
            Fate::Cancelled | Fate::Lost => continue,
            Fate::Unknown => panic!("message {got} was neither received nor cancelled: {:?}", messages[got]),
        };
        assert_eq!(posted[at].matched, Some(got));
        not_overtaken(messages, fates, got, &posted[at].pattern, at);
        // A receive that nothing matched to the very end, and that was there first, would have had it.
        let passed_over = posted[..at].iter().find(|earlier| {
            earlier.matched.is_none() && !earlier.left_early && earlier.pattern.accepts(&messages[got])
        });
        assert!(passed_over.is_none(), "{passed_over:?} was passed over for {:?} by {:?}", messages[got], posted[at]);
    }
}

/// Whatever the sender sent before message `got` and the receive accepts was matched by something posted before it.
fn not_overtaken(messages: &[Message], fates: &[Fate], got: usize, pattern: &Pattern, at: usize) {
    let message = &messages[got];
    for (number, earlier) in messages.iter().enumerate().take(got) {
        if (earlier.from, earlier.to) == (message.from, message.to) && pattern.accepts(earlier) {
            let in_order = match fates[number] {
                Fate::Cancelled => true,
                Fate::Matched(by) | Fate::Failed(by) => by < at,
                // What was lost was on its way when the connection failed, and nothing comes after that.
                Fate::Unknown | Fate::Lost => false,
            };
            assert!(in_order, "message {got} {message:?} overtook {number} {earlier:?} ({:?})", fates[number]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Source, TagPattern};

    fn message(tag: i32) -> Message {
        Message { from: 0, to: 1, context: 0, tag, len: 0, synchronous: false }
    }

    fn posted(tag: TagPattern, matched: Option<usize>) -> Posted {
        let pattern = Pattern { context: 0, source: Source::Any, tag };
        Posted { pattern, matched, left_early: false }
    }

    fn holds(fates: &[Fate], receives: &[Posted]) -> bool {
        std::panic::catch_unwind(|| check(&[message(1), message(2)], fates, 1, receives)).is_ok()
    }

    #[test]
    fn it_tells_right_from_wrong() {
        use Fate::{Cancelled, Failed, Lost, Matched, Unknown};
        let (any, two) = (TagPattern::Any, TagPattern::Exact(2));
        assert!(holds(&[Matched(0), Matched(1)], &[posted(any, Some(0)), posted(any, Some(1))]));
        assert!(!holds(&[Matched(1), Matched(0)], &[posted(any, Some(1)), posted(any, Some(0))]), "overtaken");
        assert!(holds(&[Matched(1), Matched(0)], &[posted(two, Some(1)), posted(any, Some(0))]));
        assert!(!holds(&[Matched(0), Unknown], &[posted(any, Some(0))]), "lost");
        assert!(holds(&[Matched(0), Cancelled], &[posted(any, Some(0))]));
        assert!(!holds(&[Matched(0), Matched(0)], &[posted(any, Some(0))]), "two in one receive");
        assert!(!holds(&[Matched(0), Matched(2)], &[posted(any, Some(0)), posted(two, None), posted(any, Some(1))]));
        assert!(!holds(&[Matched(0), Cancelled], &[posted(two, Some(0))]), "not what was asked for");
        assert!(holds(&[Matched(0), Lost], &[posted(any, Some(0))]));
        assert!(holds(&[Failed(0), Matched(1)], &[posted(any, Some(0)), posted(any, Some(1))]));
        assert!(!holds(&[Lost, Matched(0)], &[posted(any, Some(1))]), "nothing comes after what was lost");
    }
}
