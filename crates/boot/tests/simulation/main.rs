//! Engines of one process under random programs, in an order that a seed draws: who progresses, who sends, receives,
//! probes or cancels next. What comes out is held against a naive oracle of MPI's matching, and nothing may be left.
//!
//! A failure names its seed; `SIMULATION_SEEDS=FIRST..LAST cargo test -p boot --test simulation` runs those.

mod memory;
mod oracle;
mod program;
mod world;

use std::ops::Range;
use std::time::Duration;

use base::Config;
use base::config::{
    DatatypeScheme, DatatypeSettings, DeviceChoice, FastPath, LargeCopy, RegistrationScheme, Rendezvous, ShuttleCopy,
};
use engine::Engine;
use fabric::Context;
use fabric_soft::sim::Fault;
use fabric_soft::{SimNetwork, SimPlan, SoftContext};

use program::{Kind, Program, Random};
use world::{Simulation, Totals};

/// Seeds of an ordinary run, over mapped memory and over simulated networks.
const MAPPED_SEEDS: Range<u64> = 0..320;
const LATE_SEEDS: Range<u64> = 0..40;
const MIXED_SEEDS: Range<u64> = 0..48;
const FULL_SEEDS: Range<u64> = 0..40;
const LOSSY_SEEDS: Range<u64> = 0..30;
const FAILING_SEEDS: Range<u64> = 0..60;
/// Of runs with tuple queues, on each kind of network.
const TUPLE_SEEDS: Range<u64> = 0..32;
/// More where half of the connections that should fail are none.
const MIXED_FAILING_SEEDS: Range<u64> = 0..90;

/// The seeds that the environment asks for, or these.
fn seeds(ordinary: &Range<u64>) -> Range<u64> {
    let asked = std::env::var("SIMULATION_SEEDS").ok();
    let range = asked.as_deref().and_then(|text| {
        let (first, last) = text.split_once("..")?;
        Some(first.parse().ok()?..last.parse().ok()?)
    });
    assert!(asked.is_none() || range.is_some(), "SIMULATION_SEEDS takes FIRST..LAST");
    range.unwrap_or(ordinary.clone())
}

/// Thresholds, budgets and queues of one run: small ones, so that they are met.
fn config(random: &mut Random) -> Config {
    Config {
        channel_bytes: Some(*random.one_of(&[8 << 10, 8 << 10, 64 << 10])),
        eager_max_bytes: Some(*random.one_of(&[0, 64, 1000, 16 << 10])),
        unexpected_max_bytes: *random.one_of(&[0, 500, 4000, 64 << 20]),
        large_copy: *random.one_of(&[LargeCopy::Both, LargeCopy::Read, LargeCopy::Staged]),
        cross_memory_min_bytes: *random.one_of(&[0, 500, 32 << 10]),
        shared_copy_min_bytes: *random.one_of(&[0, 2000, 64 << 10]),
        registration_cache: *random.one_of(&[
            RegistrationScheme::Interval,
            RegistrationScheme::Dme,
            RegistrationScheme::Off,
        ]),
        registration_cache_entries_max: *random.one_of(&[0, 2, 512]),
        credits_initial: *random.one_of(&[1, 2, 8]),
        pool_max_bytes: Some(*random.one_of(&[0, 1 << 20, 64 << 20])),
        pool_idle: *random.one_of(&[None, Some(Duration::ZERO)]),
        fastpath: random.one_of(FastPath::ALL).1,
        channels_max: *random.one_of(&[0, 1, 3, 256, 256]),
        channels_polled_min: *random.one_of(&[0, 4]),
        channel_look_turns: *random.one_of(&[1, 5, 4096]),
        channel_idle_looks: *random.one_of(&[Some(1), Some(3), None]),
        channel_min_bytes: *random.one_of(&[8 << 10, 16 << 10]),
        channel_memory_bytes: *random.one_of(&[None, Some(20 << 10)]),
        datatypes: DatatypeSettings {
            scheme: random.one_of(DatatypeScheme::ALL).1,
            segment_unpack: !random.chance(4),
            list_post: !random.chance(4),
            pool_max_bytes: *random.one_of(&[0, 256 << 10, 20 << 20]),
        },
        ..Config::default()
    }
}

/// Mostly a few ranks, now and then many.
fn size(seed: u64, random: &mut Random) -> u32 {
    match seed % 100 {
        27 | 99 => 256,
        49 => 64,
        38 => 20 + random.below(60) as u32,
        number if number % 10 == 5 => 16,
        _ => 2 + random.below(5) as u32,
    }
}

fn mapped(seed: u64) -> Totals {
    let mut random = Random::new(seed);
    let mut config = config(&mut random);
    config.shuttle_bytes = [256 << 10, 20 << 10, 256 << 10, 0][(seed % 4) as usize];
    config.shuttle_copy = [ShuttleCopy::Auto, ShuttleCopy::Instruction][(seed / 4 % 2) as usize];
    let size = size(seed, &mut random);
    let kind = if seed % 5 == 3 { Kind::Awaited } else { Kind::Varied };
    let program = Program::draw(&mut random, size, kind);
    let mut engines = boot::local_engines(size, &config).expect("a segment");
    share_processors(&mut engines, seed);
    Simulation::new(engines, program, random, format!("seed {seed}, {size} ranks, {config:?}")).run()
}

/// A network that is late, overtakes datagrams and takes few packets at once.
fn late(seed: u64, random: &mut Random, _size: u32) -> SimPlan {
    SimPlan {
        jitter_ns: *random.one_of(&[0, 0, 5_000, 100_000]),
        reorder_ppm: *random.one_of(&[0, 200_000]),
        reorder_ns: 50_000,
        packets_max: *random.one_of(&[2, 16, 256]),
        ..SimPlan::new(seed)
    }
}

/// A network that has no room for one packet of ten, whoever asks.
fn full(seed: u64, _random: &mut Random, _size: u32) -> SimPlan {
    SimPlan { full_ppm: 100_000, ..SimPlan::new(seed) }
}

/// A network that loses packets.
fn lossy(seed: u64, random: &mut Random, _size: u32) -> SimPlan {
    SimPlan { loss_ppm: *random.one_of(&[20_000, 100_000]), ..SimPlan::new(seed) }
}

fn simulated(seed: u64, plan: fn(u64, &mut Random, u32) -> SimPlan) -> Totals {
    simulated_with(seed, plan, |_| {})
}

/// Ranks of one host share memory, and a network lies between hosts.
fn mixed(seed: u64) -> Totals {
    simulated_with(seed, late, on_hosts(seed))
}

/// Of two to four processes each.
fn on_hosts(seed: u64) -> impl Fn(&mut Config) {
    move |config| (config.device, config.host_ranks_max) = (DeviceChoice::ShmAndTcp, 2 + (seed % 3) as u32)
}

/// As [`mixed`], with queues for tuples on both.
fn mixed_by_tuples(seed: u64, plan: fn(u64, &mut Random, u32) -> SimPlan) -> Totals {
    by_tuples_with(seed, plan, on_hosts(seed))
}

fn simulated_with(seed: u64, plan: fn(u64, &mut Random, u32) -> SimPlan, set: impl Fn(&mut Config)) -> Totals {
    let mut random = Random::new(seed ^ 0x5151);
    let mut config = config(&mut random);
    set(&mut config);
    let size = size(seed, &mut random);
    let is_by_tuples = matches!(config.rendezvous, Rendezvous::TupleQueue | Rendezvous::TupleQueueCopy);
    let kind = if is_by_tuples { Kind::Repeated } else { Kind::Varied };
    let program = Program::draw(&mut random, size, kind);
    let plan = plan(seed, &mut random, size);
    let title = format!("seed {seed}, {size} ranks, {config:?}, {plan:?}");
    let failing: Vec<(u32, u32)> = plan.faults.iter().filter_map(failing_pair).collect();
    let network = SimNetwork::new(plan);
    let open = |_| Box::new(SoftContext::new(network.link().expect("room"))) as Box<dyn Context>;
    let mut engines = boot::engines_over((0..size).map(open).collect(), &config, Some(world::time)).expect("a network");
    share_processors(&mut engines, seed);
    Simulation::new(engines, program, random, title).with_failing(failing).run()
}

/// In every other run there are more processes than processors.
fn share_processors(engines: &mut [Engine], seed: u64) {
    engines.iter_mut().for_each(|engine| engine.set_crowded(seed.is_multiple_of(2)));
}

/// Messages go by the queues of their tuples on such a network: few queues or many, given up soon or never.
fn by_tuples(seed: u64, plan: fn(u64, &mut Random, u32) -> SimPlan) -> Totals {
    by_tuples_with(seed, plan, |_| {})
}

fn by_tuples_with(seed: u64, plan: fn(u64, &mut Random, u32) -> SimPlan, set: impl Fn(&mut Config)) -> Totals {
    let mut drawn = Random::new(seed ^ 0x7171);
    let (rendezvous, queues_max, retreat) = (
        *drawn.one_of(&[Rendezvous::TupleQueue, Rendezvous::TupleQueueCopy]),
        *drawn.one_of(&[1, 4, 1024]),
        *drawn.one_of(&[0, 2, 12]),
    );
    simulated_with(seed, plan, |config| {
        (config.rendezvous, config.tuple_queues_max, config.tuple_retreat) = (rendezvous, queues_max, retreat);
        set(config);
    })
}

/// A network that is late, and in which queue pairs of a few connections go to the error state, at one side or at both;
/// between others nothing arrives for a while.
fn failing(seed: u64, random: &mut Random, size: u32) -> SimPlan {
    let mut faults = Vec::new();
    for _ in 0..1 + random.below(3) {
        let (node, peer) = (random.below(size.into()) as u32, random.below(size.into()) as u32);
        let end_ns = *random.one_of(&[3_000, 30_000, 300_000]);
        let at_ns = random.below(end_ns);
        faults.push(Fault::QueuePairError { node, peer, at_ns });
        if random.chance(3) {
            faults.push(Fault::QueuePairError { node: peer, peer: node, at_ns: at_ns + random.below(5_000) });
        }
        // Shorter than the retries: nobody is lost by it.
        let between = [random.below(size.into()) as u32, random.below(size.into()) as u32];
        let at_ns = random.below(300_000);
        faults.push(Fault::Cut { between, at_ns, until_ns: at_ns + random.below(3_000_000) });
    }
    SimPlan { faults, ..late(seed, random, size) }
}

/// The two whose connection a fault may end; a process talks to itself without one.
fn failing_pair(fault: &Fault) -> Option<(u32, u32)> {
    match fault {
        Fault::QueuePairError { node, peer, .. } => Some((*node, *peer)),
        Fault::Cut { .. } | Fault::Death { .. } => None,
    }
}

fn all(name: &str, ordinary: &Range<u64>, run: fn(u64) -> Totals) {
    let (mut totals, seeds) = (Totals::default(), seeds(ordinary));
    for seed in seeds.clone() {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(of_this) => totals.add(&of_this),
            Err(_) => panic!("seed {seed} fails; SIMULATION_SEEDS={seed}..{} with test {name} runs it", seed + 1),
        }
    }
    println!("{} seeds: {totals:?}", seeds.end - seeds.start);
    if seeds == *ordinary {
        // What never took place was not tested.
        for (what, count) in totals.rows() {
            assert!(count > 10, "{what} took place {count} times: {totals:?}");
        }
    }
}

#[test]
fn over_mapped_memory() {
    all("over_mapped_memory", &MAPPED_SEEDS, mapped);
}

#[test]
fn over_a_late_network() {
    all("over_a_late_network", &LATE_SEEDS, |seed| simulated(seed, late));
}

#[test]
fn over_mapped_memory_and_a_late_network() {
    all("over_mapped_memory_and_a_late_network", &MIXED_SEEDS, mixed);
}

#[test]
fn over_a_full_network() {
    all("over_a_full_network", &FULL_SEEDS, |seed| simulated(seed, full));
}

#[test]
fn over_a_lossy_network() {
    all("over_a_lossy_network", &LOSSY_SEEDS, |seed| simulated(seed, lossy));
}

#[test]
fn over_connections_that_fail() {
    all("over_connections_that_fail", &FAILING_SEEDS, |seed| simulated(seed, failing));
}

#[test]
fn by_tuple_queues_over_a_late_network() {
    all("by_tuple_queues_over_a_late_network", &TUPLE_SEEDS, |seed| by_tuples(seed, late));
}

#[test]
fn by_tuple_queues_over_mapped_memory_and_a_late_network() {
    all("by_tuple_queues_over_mapped_memory_and_a_late_network", &TUPLE_SEEDS, |seed| mixed_by_tuples(seed, late));
}

#[test]
fn by_tuple_queues_over_mapped_memory_and_connections_that_fail() {
    all("by_tuple_queues_over_mapped_memory_and_connections_that_fail", &MIXED_FAILING_SEEDS, |seed| {
        mixed_by_tuples(seed, failing)
    });
}

#[test]
fn by_tuple_queues_over_a_full_network() {
    all("by_tuple_queues_over_a_full_network", &TUPLE_SEEDS, |seed| by_tuples(seed, full));
}

#[test]
fn by_tuple_queues_over_connections_that_fail() {
    all("by_tuple_queues_over_connections_that_fail", &TUPLE_SEEDS, |seed| by_tuples(seed, failing));
}
