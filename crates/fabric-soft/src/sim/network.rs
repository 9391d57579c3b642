//! The network as a state machine: nodes, channels between them, and what happens next. No lock, no adapter.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::plan::{Fault, SimClock, SimPlan};
use crate::link::{HEADER_BYTES, SendOutcome};
use crate::wire::{self, Kind};

/// Time goes on by so much when nothing is under way, for what adapters wait for by themselves.
const IDLE_STEP_NS: u64 = 100_000;
/// Polls in a row that find nothing before time goes on although another adapter was not polled.
const FRUITLESS_MAX: u32 = 256;

/// A packet as it was sent.
pub(super) struct Parcel {
    pub(super) header: [u8; HEADER_BYTES],
    pub(super) payload: Vec<u8>,
    class: Class,
}

/// How a packet travels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Datagram,
    /// Numbered, through both ports.
    Message,
    /// Numbered, made by hardware: no port.
    Answer,
}

/// What an adapter finds when it is polled.
pub(super) enum Ready {
    Packet { from: u32, parcel: Arc<Parcel> },
    Lost(u32),
    Broken(u32),
}

/// One adapter's end.
struct Node {
    is_alive: bool,
    send_free_ns: u64,
    receive_free_ns: u64,
    ready: VecDeque<Ready>,
    /// The round in which it was last polled in vain, and how often.
    idle_round: u64,
    fruitless: u32,
    given_up: BTreeSet<u32>,
}

/// One direction between two nodes: the sender's half and the receiver's.
#[derive(Default)]
pub(super) struct Channel {
    /// Sent, not acknowledged, with the moment the last byte left.
    unacknowledged: VecDeque<(Arc<Parcel>, u64)>,
    first_sequence: u64,
    retries: u8,
    /// Of the time-out that counts; older ones are void.
    timer: u64,
    /// Taken and not handed over.
    carried: u32,
    last_arrival_ns: u64,
    expected: u64,
    nak_sent: bool,
    last_delivery_ns: u64,
}

enum Event {
    Arrive {
        from: u32,
        to: u32,
        sequence: u64,
        parcel: Arc<Parcel>,
    },
    Deliver {
        from: u32,
        to: u32,
        parcel: Arc<Parcel>,
    },
    /// Everything of `from` → `to` before `sequence` has arrived; `is_nak`: and what followed has not.
    Acknowledge {
        from: u32,
        to: u32,
        sequence: u64,
        is_nak: bool,
    },
    TimeOut {
        from: u32,
        to: u32,
        timer: u64,
    },
    Death {
        node: u32,
    },
    /// Queue pairs of `node` to `peer` fail.
    Broken {
        node: u32,
        peer: u32,
    },
    /// `node` notices that `peer` answers nothing.
    Lost {
        node: u32,
        peer: u32,
    },
}

/// Counts of what took place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SimCounts {
    /// Packets and acknowledgements that vanished.
    pub lost: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Times a link said that it was full.
    pub full: u64,
    /// Datagrams that arrived after one sent later between the same two adapters.
    pub overtaken: u64,
}

pub(super) struct Network {
    pub(super) plan: SimPlan,
    pub(super) now_ns: u64,
    pub(super) counts: SimCounts,
    random: StdRng,
    nodes: Vec<Node>,
    alive: u32,
    channels: BTreeMap<(u32, u32), Channel>,
    /// By time, then in the order in which they were scheduled.
    events: BinaryHeap<Reverse<(u64, u64)>>,
    scheduled: BTreeMap<u64, Event>,
    next_event: u64,
    /// Counts what happened, so that it is known who was polled since.
    round: u64,
    idle: u32,
    /// Nodes with something ready that [`Network::step`] has not told of.
    woken: BTreeSet<u32>,
}

impl Network {
    pub(super) fn new(plan: SimPlan) -> Self {
        Self {
            random: StdRng::seed_from_u64(plan.seed),
            plan,
            now_ns: 0,
            counts: SimCounts::default(),
            nodes: Vec::new(),
            alive: 0,
            channels: BTreeMap::new(),
            events: BinaryHeap::new(),
            scheduled: BTreeMap::new(),
            next_event: 0,
            round: 1,
            idle: 0,
            woken: BTreeSet::new(),
        }
    }

    pub(super) fn add_node(&mut self) -> u32 {
        let node = self.nodes.len() as u32;
        self.nodes.push(Node {
            is_alive: true,
            send_free_ns: 0,
            receive_free_ns: 0,
            ready: VecDeque::new(),
            idle_round: 0,
            fruitless: 0,
            given_up: BTreeSet::new(),
        });
        self.alive += 1;
        if let Some(at_ns) = self.plan.death_ns(node) {
            self.schedule(at_ns.max(self.now_ns), Event::Death { node });
        }
        for fault in self.plan.faults.clone() {
            if let Fault::QueuePairError { node: its, peer, at_ns } = fault
                && its == node
            {
                self.schedule(at_ns.max(self.now_ns), Event::Broken { node, peer });
            }
        }
        self.something_happened();
        node
    }

    pub(super) fn node_count(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub(super) fn is_alive(&self, node: u32) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.is_alive)
    }

    /// Takes a packet, unless there is no room or nobody to take it to.
    pub(super) fn send(
        &mut self,
        from: u32,
        to: u32,
        header: &[u8; HEADER_BYTES],
        payload: impl FnOnce() -> Vec<u8>,
    ) -> SendOutcome {
        if !self.is_alive(from) || to >= self.node_count() || self.has_given_up(from, to) {
            return SendOutcome::Gone;
        }
        let refuses = self.chance(self.plan.full_ppm);
        let packets_max = self.plan.packets_max;
        self.channels.entry((to, from)).or_default();
        let channel = self.channels.entry((from, to)).or_default();
        if refuses || channel.carried >= packets_max {
            self.counts.full += 1;
            return SendOutcome::Full;
        }
        channel.carried += 1;
        let payload = payload();
        let parcel = Arc::new(Parcel { header: *header, class: class(header, &payload), payload });
        let sequence = channel.first_sequence + channel.unacknowledged.len() as u64;
        let is_first = channel.unacknowledged.is_empty();
        let left_ns = self.transmit(from, to, sequence, &parcel);
        if parcel.class != Class::Datagram {
            self.channel(from, to).unacknowledged.push_back((parcel, left_ns));
            if is_first {
                self.set_timer(from, to);
            }
        }
        self.something_happened();
        SendOutcome::Taken
    }

    /// What a poll of `node` finds; moves time if everybody waits for it.
    pub(super) fn poll(&mut self, node: u32) -> VecDeque<Ready> {
        if !self.is_alive(node) {
            return VecDeque::new();
        }
        self.run_due();
        if self.nodes[node as usize].ready.is_empty() && self.plan.clock == SimClock::Polled && self.all_wait(node) {
            let idle_ns = self.now_ns.saturating_add(IDLE_STEP_NS);
            self.now_ns = self.next_event_ns().map_or(idle_ns, |next| next.min(idle_ns));
            self.something_happened();
            self.run_due();
        }
        if !self.is_alive(node) {
            return VecDeque::new();
        }
        let ready = std::mem::take(&mut self.nodes[node as usize].ready);
        if !ready.is_empty() {
            self.something_happened();
        }
        for item in &ready {
            if let Ready::Packet { from, .. } = item {
                self.handed_over(*from, node);
            }
        }
        ready
    }

    /// Moves to the next event; the nodes that have something to find since. `None`: nothing will ever happen.
    pub(super) fn step(&mut self) -> Option<Vec<u32>> {
        self.run_due();
        if self.woken.is_empty() {
            self.now_ns = self.next_event_ns()?;
            self.run_due();
        }
        Some(std::mem::take(&mut self.woken).into_iter().collect())
    }

    /// Lets time pass, and what happens in it happen.
    pub(super) fn pass(&mut self, ns: u64) {
        let end_ns = self.now_ns.saturating_add(ns);
        while let Some(next) = self.next_event_ns().filter(|next| *next <= end_ns) {
            self.now_ns = next;
            self.run_due();
        }
        self.now_ns = end_ns;
        self.something_happened();
    }

    /// A node stops for good.
    pub(super) fn die(&mut self, node: u32) {
        let dying = &mut self.nodes[node as usize];
        if !std::mem::take(&mut dying.is_alive) {
            return;
        }
        dying.ready.clear();
        self.alive -= 1;
        self.woken.remove(&node);
        self.something_happened();
        // Whoever exchanged packets with it finds that it answers nothing any more.
        let peers: Vec<u32> = self.channels.range((node, 0)..=(node, u32::MAX)).map(|((_, peer), _)| *peer).collect();
        let noticed_ns = self.now_ns.saturating_add(self.plan.patience_ns());
        for peer in peers {
            self.schedule(noticed_ns, Event::Lost { node: peer, peer: node });
        }
    }

    fn channel(&mut self, from: u32, to: u32) -> &mut Channel {
        self.channels.entry((from, to)).or_default()
    }

    fn has_given_up(&self, node: u32, peer: u32) -> bool {
        self.nodes[node as usize].given_up.contains(&peer)
    }

    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.random.random_range(0..1_000_000) < ppm
    }

    fn up_to(&mut self, ns: u64) -> u64 {
        if ns == 0 { 0 } else { self.random.random_range(0..=ns) }
    }

    fn something_happened(&mut self) {
        self.round += 1;
        self.idle = 0;
    }

    /// A poll of `node` found nothing: true if that holds for everybody since anything happened.
    fn all_wait(&mut self, node: u32) -> bool {
        let round = self.round;
        let its = &mut self.nodes[node as usize];
        if its.idle_round != round {
            its.idle_round = round;
            its.fruitless = 0;
            self.idle += 1;
        }
        its.fruitless += 1;
        self.idle >= self.alive || its.fruitless >= FRUITLESS_MAX
    }

    /// One passage of a packet; the moment at which its last byte has left.
    fn transmit(&mut self, from: u32, to: u32, sequence: u64, parcel: &Arc<Parcel>) -> u64 {
        let cost = self.plan.cost(from, to);
        let bytes_ns = self.plan.bytes_ns(from, to, parcel.payload.len() as u64);
        let left_ns = if parcel.class == Class::Answer {
            self.now_ns
        } else {
            let port = &mut self.nodes[from as usize].send_free_ns;
            let start_ns = self.now_ns.max(*port);
            *port = start_ns + cost.overhead_ns.max(cost.gap_ns + bytes_ns);
            start_ns + cost.overhead_ns + bytes_ns
        };
        let mut arrival_ns = left_ns + cost.latency_ns + self.up_to(self.plan.jitter_ns);
        let is_datagram = parcel.class == Class::Datagram;
        if is_datagram && self.chance(self.plan.reorder_ppm) {
            arrival_ns += self.up_to(self.plan.reorder_ns);
        }
        let channel = self.channel(from, to);
        let last_ns = channel.last_arrival_ns;
        channel.last_arrival_ns = arrival_ns.max(last_ns);
        if !is_datagram {
            arrival_ns = arrival_ns.max(last_ns);
        }
        if self.chance(self.plan.loss_ppm) {
            self.counts.lost += 1;
            if is_datagram {
                self.handed_over(from, to);
            }
        } else {
            self.counts.overtaken += u64::from(arrival_ns < last_ns);
            self.schedule(arrival_ns, Event::Arrive { from, to, sequence, parcel: Arc::clone(parcel) });
        }
        left_ns
    }

    fn handed_over(&mut self, from: u32, to: u32) {
        let channel = self.channel(from, to);
        channel.carried = channel.carried.saturating_sub(1);
    }

    fn schedule(&mut self, at_ns: u64, event: Event) {
        self.events.push(Reverse((at_ns, self.next_event)));
        self.scheduled.insert(self.next_event, event);
        self.next_event += 1;
    }

    /// When the next event that still means something happens.
    fn next_event_ns(&mut self) -> Option<u64> {
        while let Some(Reverse((at_ns, number))) = self.events.peek().copied() {
            match self.scheduled.get(&number) {
                Some(Event::TimeOut { from, to, timer }) if self.channels[&(*from, *to)].timer != *timer => {
                    self.scheduled.remove(&number);
                    self.events.pop();
                }
                _ => return Some(at_ns),
            }
        }
        None
    }

    fn run_due(&mut self) {
        while self.next_event_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            let Some(Reverse((_, number))) = self.events.pop() else { return };
            if let Some(event) = self.scheduled.remove(&number) {
                self.run(event);
            }
        }
    }

    fn run(&mut self, event: Event) {
        match event {
            Event::Arrive { from, to, sequence, parcel } => self.arrive(from, to, sequence, parcel),
            Event::Deliver { from, to, parcel } => {
                if self.is_alive(to) && !self.has_given_up(to, from) {
                    self.make_ready(to, Ready::Packet { from, parcel });
                }
            }
            Event::Acknowledge { from, to, sequence, is_nak } => self.acknowledged(from, to, sequence, is_nak),
            Event::TimeOut { from, to, .. } => {
                if self.is_alive(from) {
                    self.go_back(from, to);
                }
            }
            Event::Death { node } => self.die(node),
            Event::Broken { node, peer } => {
                if self.is_alive(node) {
                    self.make_ready(node, Ready::Broken(peer));
                }
            }
            Event::Lost { node, peer } => self.give_up(node, peer),
        }
    }

    fn make_ready(&mut self, node: u32, item: Ready) {
        self.nodes[node as usize].ready.push_back(item);
        self.woken.insert(node);
        self.something_happened();
    }

    fn arrive(&mut self, from: u32, to: u32, sequence: u64, parcel: Arc<Parcel>) {
        let is_datagram = parcel.class == Class::Datagram;
        if !self.is_alive(to) || self.plan.is_cut(from, to, self.now_ns) || self.has_given_up(to, from) {
            if is_datagram {
                self.handed_over(from, to);
            }
            return;
        }
        if !is_datagram {
            let channel = self.channel(from, to);
            if sequence > channel.expected {
                // The first that is missing is asked for once.
                if !std::mem::replace(&mut channel.nak_sent, true) {
                    let expected = channel.expected;
                    self.acknowledge(from, to, expected, true);
                }
                return;
            }
            let is_new = sequence == channel.expected;
            if is_new {
                channel.expected += 1;
                channel.nak_sent = false;
            }
            let expected = channel.expected;
            self.acknowledge(from, to, expected, false);
            if !is_new {
                return;
            }
        }
        let mut delivery_ns = self.now_ns;
        if parcel.class != Class::Answer {
            let cost = self.plan.cost(from, to);
            let port = &mut self.nodes[to as usize].receive_free_ns;
            let start_ns = self.now_ns.max(*port);
            *port = start_ns + cost.overhead_ns.max(cost.gap_ns);
            delivery_ns = start_ns + cost.overhead_ns;
        }
        if !is_datagram {
            let last_ns = &mut self.channel(from, to).last_delivery_ns;
            delivery_ns = delivery_ns.max(*last_ns);
            *last_ns = delivery_ns;
        }
        self.schedule(delivery_ns, Event::Deliver { from, to, parcel });
    }

    /// The transport's own acknowledgement of channel `from` → `to` sets out from `to`.
    fn acknowledge(&mut self, from: u32, to: u32, sequence: u64, is_nak: bool) {
        if self.chance(self.plan.loss_ppm) {
            self.counts.lost += 1;
            return;
        }
        let at_ns = self.now_ns + self.plan.cost(to, from).latency_ns + self.up_to(self.plan.jitter_ns);
        self.schedule(at_ns, Event::Acknowledge { from, to, sequence, is_nak });
    }

    fn acknowledged(&mut self, from: u32, to: u32, sequence: u64, is_nak: bool) {
        if !self.is_alive(from) || self.plan.is_cut(from, to, self.now_ns) {
            return;
        }
        let channel = self.channel(from, to);
        let mut is_progress = false;
        while channel.first_sequence < sequence && channel.unacknowledged.pop_front().is_some() {
            channel.first_sequence += 1;
            is_progress = true;
        }
        let is_current = channel.first_sequence == sequence;
        if is_progress {
            channel.retries = 0;
            self.set_timer(from, to);
        }
        if is_nak && is_current {
            self.go_back(from, to);
        }
    }

    /// The first packet without acknowledgement, if any, has until then.
    fn set_timer(&mut self, from: u32, to: u32) {
        let (now_ns, timeout_ns) = (self.now_ns, self.plan.timeout_ns.max(1));
        let channel = self.channel(from, to);
        channel.timer += 1;
        let timer = channel.timer;
        if let Some((_, left_ns)) = channel.unacknowledged.front() {
            let at_ns = now_ns.max(*left_ns).saturating_add(timeout_ns);
            self.schedule(at_ns, Event::TimeOut { from, to, timer });
        }
    }

    /// Everything from the first packet without acknowledgement on is sent again, or the peer is lost.
    fn go_back(&mut self, from: u32, to: u32) {
        let retry_max = self.plan.retry_max;
        let channel = self.channel(from, to);
        if channel.unacknowledged.is_empty() {
            return;
        }
        if channel.retries >= retry_max {
            return self.give_up(from, to);
        }
        channel.retries += 1;
        let first = channel.first_sequence;
        let mut again = std::mem::take(&mut channel.unacknowledged);
        self.counts.resent += again.len() as u64;
        for (index, (parcel, left_ns)) in again.iter_mut().enumerate() {
            *left_ns = self.transmit(from, to, first + index as u64, parcel);
        }
        self.channel(from, to).unacknowledged = again;
        self.set_timer(from, to);
    }

    /// `node` carries nothing to or from `peer` any more, and tells its adapter.
    fn give_up(&mut self, node: u32, peer: u32) {
        if !self.is_alive(node) || !self.nodes[node as usize].given_up.insert(peer) {
            return;
        }
        let channel = self.channel(node, peer);
        channel.unacknowledged.clear();
        channel.timer += 1;
        self.make_ready(node, Ready::Lost(peer));
        // The peer hears nothing any more, and after its own retries believes it.
        let noticed_ns = self.now_ns.saturating_add(self.plan.patience_ns());
        self.schedule(noticed_ns, Event::Lost { node: peer, peer: node });
    }
}

fn class(header: &[u8; HEADER_BYTES], payload: &[u8]) -> Class {
    match wire::parse(header).map(|packet| packet.kind) {
        Some(Kind::Datagram) => Class::Datagram,
        Some(kind) if !kind.is_request() && payload.is_empty() => Class::Answer,
        _ => Class::Message,
    }
}
