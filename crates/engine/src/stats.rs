//! Counters: what took which way.

/// Counts of one process since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Messages sent eagerly at once.
    pub eager_sent: u64,
    /// Eager messages that waited for room in the channel.
    pub eager_waited: u64,
    /// Messages sent by rendezvous.
    pub rendezvous_sent: u64,
    /// Messages to this process itself.
    pub self_sent: u64,
    /// Messages taken by reading alone.
    pub read_received: u64,
    /// Messages that both sides copied.
    pub shared_received: u64,
    /// Chunks that this process wrote for a receiver.
    pub chunks_written: u64,
    /// Messages taken through the channel piece by piece.
    pub staged_received: u64,
    /// Messages that came before their receive.
    pub unexpected: u64,
    /// Most bytes of unexpected data held at once.
    pub unexpected_peak_bytes: u64,
    /// Times senders were held back because the budget was used up.
    pub held_back: u64,
    /// Records that made no sense and were dropped.
    pub refused_records: u64,
}

impl Stats {
    /// Every counter with its name, in the order a reader wants them.
    pub fn rows(&self) -> [(&'static str, u64); 12] {
        [
            ("eager sends", self.eager_sent),
            ("eager sends that waited", self.eager_waited),
            ("rendezvous sends", self.rendezvous_sent),
            ("sends to self", self.self_sent),
            ("receives read", self.read_received),
            ("receives copied by both", self.shared_received),
            ("chunks copied for receivers", self.chunks_written),
            ("receives staged", self.staged_received),
            ("unexpected messages", self.unexpected),
            ("unexpected bytes, peak", self.unexpected_peak_bytes),
            ("senders held back, times", self.held_back),
            ("refused records", self.refused_records),
        ]
    }
}
