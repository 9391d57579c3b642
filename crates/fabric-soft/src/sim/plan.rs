//! What a simulated network is like and what goes wrong in it, as plain data.

/// What a message costs on one directed link, by LogGP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkCost {
    /// L: from the last byte's departure to its arrival, in nanoseconds.
    pub latency_ns: u64,
    /// o: a port's work per message, at either end, in nanoseconds.
    pub overhead_ns: u64,
    /// g: between two messages of a port, in nanoseconds.
    pub gap_ns: u64,
    /// G: per byte after the first, in picoseconds.
    pub gap_per_byte_ps: u64,
}

impl LinkCost {
    /// Everything at once.
    pub const FREE: Self = Self { latency_ns: 0, overhead_ns: 0, gap_ns: 0, gap_per_byte_ps: 0 };

    /// The bytes of a message behind its first one, in nanoseconds, rounded down.
    pub const fn bytes_ns(&self, len_bytes: u64) -> u64 {
        len_bytes.saturating_sub(1).saturating_mul(self.gap_per_byte_ps) / 1000
    }
}

impl Default for LinkCost {
    /// An adapter of 200 Gbit/s behind one switch.
    fn default() -> Self {
        Self { latency_ns: 800, overhead_ns: 100, gap_ns: 20, gap_per_byte_ps: 40 }
    }
}

/// What each packet of a message costs beside its payload: the headers of InfiniBand in a subnet, and its checksums.
pub const HEADER_ON_WIRE_BYTES: u64 = 26;

/// Something that happens at a chosen time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An adapter stops: it sends nothing and takes nothing from then on.
    Death {
        /// Its number, in the order in which links were made, from 0.
        node: u32,
        /// When, in nanoseconds.
        at_ns: u64,
    },
    /// Nothing arrives between two adapters, in either direction.
    Cut {
        /// Their numbers.
        between: [u32; 2],
        /// From when on, in nanoseconds.
        at_ns: u64,
        /// Until when; `u64::MAX` for good.
        until_ns: u64,
    },
    /// The queue pairs of one adapter that are connected to another go to the error state. Both live, and datagrams pass.
    QueuePairError {
        /// Whose queue pairs.
        node: u32,
        /// What they are connected to.
        peer: u32,
        /// When, in nanoseconds.
        at_ns: u64,
    },
}

/// What moves time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SimClock {
    /// Polling: time goes on to the next event when every living adapter has been polled and found nothing since
    /// anything happened. An adapter that nobody polls holds time up for a while only.
    #[default]
    Polled,
    /// [`SimNetwork::step`](super::SimNetwork::step) and [`SimNetwork::pass`](super::SimNetwork::pass), called by the
    /// test: cheap with any number of adapters.
    Driven,
}

/// A network and its faults. Equal plans give equal runs.
///
/// Chances are in parts per million.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimPlan {
    /// Where all chance comes from.
    pub seed: u64,
    /// What moves time.
    pub clock: SimClock,
    /// What links cost.
    pub cost: LinkCost,
    /// Directed links that cost something else: (from, to, cost).
    pub costs: Vec<(u32, u32, LinkCost)>,
    /// Longest packet on a wire: a longer message is cut into several, and each but the first brings
    /// [`HEADER_ON_WIRE_BYTES`] of its own; `None`: messages are not cut.
    pub mtu_bytes: Option<u64>,
    /// What registering a piece of memory takes of its process, in nanoseconds.
    pub registering_ns: u64,
    /// And deregistering one.
    pub deregistering_ns: u64,
    /// Memory may be kept registered, as with an adapter that follows the system's own tables. Whoever says so keeps it
    /// mapped, for what copies here is a processor.
    pub checks_keys: bool,
    /// Most that a packet is late, in nanoseconds; packets of a connection stay in order all the same.
    pub jitter_ns: u64,
    /// That a packet vanishes, or an acknowledgement.
    pub loss_ppm: u32,
    /// That a datagram is held back by up to [`SimPlan::reorder_ns`].
    pub reorder_ppm: u32,
    /// How long a datagram is held back at most, in nanoseconds.
    pub reorder_ns: u64,
    /// That a link says it is full though it is not.
    pub full_ppm: u32,
    /// Packets from one adapter to another, taken and not handed over, at most.
    pub packets_max: u32,
    /// How long a packet may stay without acknowledgement before it is sent again, in nanoseconds. More than twice
    /// latency and jitter, or nothing is ever in time.
    pub timeout_ns: u64,
    /// How often it is sent again before the peer is lost; any acknowledgement starts the count anew.
    pub retry_max: u8,
    /// What happens when.
    pub faults: Vec<Fault>,
}

impl SimPlan {
    /// A network without faults.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            clock: SimClock::Polled,
            cost: LinkCost::default(),
            costs: Vec::new(),
            mtu_bytes: None,
            registering_ns: 0,
            deregistering_ns: 0,
            checks_keys: false,
            jitter_ns: 0,
            loss_ppm: 0,
            reorder_ppm: 0,
            reorder_ns: 0,
            full_ppm: 0,
            packets_max: 256,
            timeout_ns: 1_000_000,
            retry_max: 7,
            faults: Vec::new(),
        }
    }

    /// What the link `from` → `to` costs.
    pub fn cost(&self, from: u32, to: u32) -> LinkCost {
        let own = self.costs.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        own.map_or(self.cost, |(_, _, cost)| *cost)
    }

    /// The bytes of a message from `from` to `to` behind its first one, with the headers of its packets, in nanoseconds.
    pub(super) fn bytes_ns(&self, from: u32, to: u32, len_bytes: u64) -> u64 {
        let packets = self.mtu_bytes.map_or(1, |mtu| len_bytes.div_ceil(mtu.max(1)).max(1));
        self.cost(from, to).bytes_ns(len_bytes.saturating_add((packets - 1).saturating_mul(HEADER_ON_WIRE_BYTES)))
    }

    /// When `node` dies.
    pub(super) fn death_ns(&self, node: u32) -> Option<u64> {
        let deaths = self.faults.iter().filter_map(|fault| match fault {
            Fault::Death { node: its, at_ns } if *its == node => Some(*at_ns),
            _ => None,
        });
        deaths.min()
    }

    /// True if nothing arrives between the two at `now_ns`.
    pub(super) fn is_cut(&self, a: u32, b: u32, now_ns: u64) -> bool {
        self.faults.iter().any(|fault| match fault {
            Fault::Cut { between, at_ns, until_ns } => {
                (*between == [a, b] || *between == [b, a]) && (*at_ns..*until_ns).contains(&now_ns)
            }
            Fault::Death { .. } | Fault::QueuePairError { .. } => false,
        })
    }

    /// How long a peer that answers nothing is believed to live.
    pub(super) fn patience_ns(&self) -> u64 {
        self.timeout_ns.saturating_mul(u64::from(self.retry_max) + 1)
    }
}
