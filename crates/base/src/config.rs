//! The registry of variables: every `FERROVIA_*` setting, its unit, default and help, parsed once into
//! the plain struct [`Config`] that is passed down.

mod choices;
mod registry;
mod values;

pub use self::choices::{
    CrossMemory, DatatypeScheme, DatatypeSettings, DeviceChoice, FastPath, InitialErrors, LargeCopy,
    RegistrationScheme, Rendezvous, ShuttleCopy, TcpChoice, VerbsChoice,
};
pub use self::registry::{VARIABLES, Variable};
pub use self::values::{ConfigError, Kind};
use crate::log::Level;
use std::time::Duration;

/// What messages between two processes go through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Memory, mapped or written by an adapter.
    Memory,
    /// The system's sockets, where a request and its answer take longer than copying some pages does.
    Sockets,
}

/// Sizes that go by the medium unless they are set, see [`Config::sizes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes of a channel in the beginning.
    pub channel_bytes: usize,
    /// Longest message sent eagerly, in bytes.
    pub eager_max_bytes: usize,
    /// Buffers for messages, in bytes, at most.
    pub pool_max_bytes: usize,
}

/// Every setting of the library, with its default.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Which device carries the messages of a job.
    pub device: DeviceChoice,
    /// Processes that are treated as being on one host, at most; 0: as many as are.
    pub host_ranks_max: u32,
    /// Registered buffers for messages over verbs, in bytes, at most; `None`: see [`Config::sizes`].
    pub pool_max_bytes: Option<usize>,
    /// Registered buffers that were not used for so long are given back; `None`: never.
    pub pool_idle: Option<Duration>,
    /// Messages that a fresh connection over verbs takes without being asked.
    pub credits_initial: u32,
    /// Design of the fast path between processes of one host.
    pub fastpath: FastPath,
    /// Channels that a process grants to others, at most.
    pub channels_max: u32,
    /// Channels that a process polls whether they are used or not, at least.
    pub channels_polled_min: u32,
    /// Turns of progress from one look after channels to the next.
    pub channel_look_turns: u32,
    /// How often a sender finds its channel unused before it gives it up; `None`: it never does.
    pub channel_idle_looks: Option<u32>,
    /// Bytes of one fast-path channel (a Veloblock) from one process to another, in the beginning; `None`: see
    /// [`Config::sizes`].
    pub channel_bytes: Option<usize>,
    /// A Veloblock does not shrink below this, in bytes.
    pub channel_min_bytes: usize,
    /// And does not grow beyond this, in bytes.
    pub channel_max_bytes: usize,
    /// Length of a Veloblock whose records are mostly long, in bytes; `None` for twice `near_cache_bytes`.
    pub channel_long_bytes: Option<usize>,
    /// The process's share of the cache next to its core, in bytes. No setting: who starts the engine finds out.
    pub near_cache_bytes: Option<usize>,
    /// Bytes of each of the two shuttles between two processes of one host; 0 for none.
    pub shuttle_bytes: usize,
    /// How long messages are copied into shuttles and out of them.
    pub shuttle_copy: ShuttleCopy,
    /// How much longer than in the beginning the Veloblocks into a process may be, in bytes all together; `None` for half of
    /// the process's share of the last cache.
    pub channel_memory_bytes: Option<usize>,
    /// Longest message sent eagerly, in bytes; longer ones go by rendezvous. `None`: see [`Config::sizes`].
    pub eager_max_bytes: Option<usize>,
    /// Unexpected data a process holds before its senders are held back, in bytes.
    pub unexpected_max_bytes: usize,
    /// Who moves large messages on shared memory.
    pub large_copy: LargeCopy,
    /// Shortest message copied straight between processes, in bytes; shorter ones go through the channel.
    pub cross_memory_min_bytes: usize,
    /// Longest message that goes through the channel all the same while the processes share a cache, in bytes.
    pub staged_near_max_bytes: usize,
    /// Most bytes of a long message that follow its request before there is an answer.
    pub ahead_bytes: usize,
    /// Shortest message that both sides copy, in bytes.
    pub shared_copy_min_bytes: usize,
    /// Whether cross-memory attach may be used.
    pub cross_memory: CrossMemory,
    /// Messages whose data does not lie in one piece.
    pub datatypes: DatatypeSettings,
    /// How messages are moved.
    pub rendezvous: Rendezvous,
    /// Most receive queues for tuples.
    pub tuple_queues_max: usize,
    /// Messages of a tuple matched by wildcards until it has no queue any more; 0: never.
    pub tuple_retreat: u32,
    /// How registered memory is kept.
    pub registration_cache: RegistrationScheme,
    /// Most regions kept registered.
    pub registration_cache_entries_max: usize,
    /// Most bytes kept registered.
    pub registration_cache_max_bytes: usize,
    /// Which adapter to use for RDMA.
    pub verbs: VerbsChoice,
    /// How to use sockets.
    pub tcp: TcpChoice,
    /// How long a process that is there may owe an answer, or on this host be stopped, until it is given up; `None`: on this
    /// host for ever, elsewhere by whether it answers by itself.
    pub silence: Option<Duration>,
    /// How often an empty poll is repeated before the waiting thread yields; `None`: by the number of cores.
    pub spin_count: Option<u32>,
    /// Processors that the processes of a job share on each host, if not those they may run on.
    pub core_count: Option<u32>,
    /// How often a waiting thread yields before it sleeps; `None`: by the number of cores.
    pub yield_count: Option<u32>,
    /// Receive descriptors that a VI of the VI Provider Library pushes to the other side at once, at most.
    pub vipl_push_max: usize,
    /// Collective algorithms asked for by name, e.g. `allreduce=ring,bcast=binomial`.
    pub collectives: String,
    /// Short collectives on one host may go through memory that all its processes see.
    pub shared_collectives: bool,
    /// Shortest block that members of a collective read straight from each other's memory; `None`: by itself.
    pub collective_read_min_bytes: Option<usize>,
    /// Reductions give equal bits for equal inputs, however they are called.
    pub reproducible: bool,
    /// Numbers that tell the communicators of a job apart; each process deals out an equal part of them.
    pub context_ids_max: u32,
    /// What happens on errors in `MPI_COMM_WORLD` and `MPI_COMM_SELF`, and before there is any, at the beginning.
    pub initial_errors: InitialErrors,
    /// How much is said on standard error.
    pub log: Level,
    /// Print message and protocol counters of every rank at finalize.
    pub stats: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Auto,
            host_ranks_max: 0,
            pool_max_bytes: None,
            pool_idle: Some(Duration::from_secs(1)),
            credits_initial: 8,
            fastpath: FastPath::Auto,
            channels_max: 256,
            channels_polled_min: 4,
            channel_look_turns: 4096,
            channel_idle_looks: Some(64),
            channel_bytes: None,
            channel_min_bytes: 16 << 10,
            channel_max_bytes: 256 << 10,
            channel_long_bytes: None,
            near_cache_bytes: None,
            shuttle_bytes: 4 << 20,
            shuttle_copy: ShuttleCopy::Auto,
            channel_memory_bytes: None,
            eager_max_bytes: None,
            unexpected_max_bytes: 64 << 20,
            large_copy: LargeCopy::Auto,
            cross_memory_min_bytes: 32 << 10,
            staged_near_max_bytes: 64 << 20,
            ahead_bytes: 32 << 10,
            shared_copy_min_bytes: 64 << 10,
            cross_memory: CrossMemory::Auto,
            datatypes: DatatypeSettings::default(),
            rendezvous: Rendezvous::Auto,
            tuple_queues_max: 256,
            tuple_retreat: 64,
            registration_cache: RegistrationScheme::Interval,
            registration_cache_entries_max: 512,
            registration_cache_max_bytes: 1 << 30,
            verbs: VerbsChoice::default(),
            tcp: TcpChoice::default(),
            silence: None,
            spin_count: None,
            core_count: None,
            yield_count: None,
            vipl_push_max: 32,
            collectives: String::new(),
            shared_collectives: true,
            collective_read_min_bytes: None,
            reproducible: false,
            context_ids_max: CONTEXT_IDS_MAX,
            initial_errors: InitialErrors::Fatal,
            log: Level::Warn,
            stats: false,
        }
    }
}

/// As many context ids as a match key has room for.
const CONTEXT_IDS_MAX: u32 = 1 << 30;

/// Names with our prefix that are not settings: the launcher talks to the library with them.
const NOT_SETTINGS: &[&str] = &["FERROVIA_JOB", "FERROVIA_CC", "FERROVIA_CXX"];

impl Config {
    /// Reads the settings from `variables` (all of the environment; others are passed over).
    /// The second value lists names with our prefix that nobody knows, each with the nearest known name.
    ///
    /// # Errors
    /// The first setting whose value is not understood.
    pub fn parse(variables: impl IntoIterator<Item = (String, String)>) -> Result<(Self, Vec<String>), ConfigError> {
        let mut config = Self::default();
        let mut unknown = Vec::new();
        for (name, value) in variables {
            if !name.starts_with("FERROVIA_") || NOT_SETTINGS.contains(&name.as_str()) {
                continue;
            }
            match VARIABLES.iter().find(|variable| variable.name == name) {
                Some(variable) => variable.assign(&mut config, &value)?,
                None => unknown.push(format!("{name} is not a setting; did you mean {}?", nearest(&name))),
            }
        }
        Ok((config, unknown))
    }

    /// Sizes for messages through this medium, as set or as is good for it; an eager message is no longer than three
    /// eighths of a channel. What nobody touches of a buffer costs nothing where it is not pinned.
    pub fn sizes(&self, medium: Medium) -> Sizes {
        let (channel_bytes, eager_max_bytes, pool_max_bytes) = match medium {
            Medium::Memory => (64 << 10, 16 << 10, 64 << 20),
            Medium::Sockets => (256 << 10, 64 << 10, 256 << 20),
        };
        let channel_bytes = self.channel_bytes.unwrap_or(channel_bytes);
        let eager_max_bytes = self.eager_max_bytes.unwrap_or(eager_max_bytes).min(channel_bytes / 8 * 3);
        let pool_max_bytes = self.pool_max_bytes.unwrap_or(pool_max_bytes);
        Sizes { channel_bytes, eager_max_bytes, pool_max_bytes }
    }
}

fn nearest(name: &str) -> &'static str {
    let likeness = |known: &str| {
        let shared = known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let letters = known.bytes().filter(|b| name.as_bytes().contains(b)).count();
        (shared, letters)
    };
    VARIABLES.iter().map(|variable| variable.name).max_by_key(|known| likeness(known)).expect("there are variables")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<(Config, Vec<String>), ConfigError> {
        Config::parse(pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))
    }

    #[test]
    fn every_default_parses_back_to_itself() {
        for variable in VARIABLES {
            let shown = variable.value(&Config::default());
            let (config, unknown) = parse(&[(variable.name, &shown)]).expect(variable.name);
            assert_eq!(config, Config::default(), "{}", variable.name);
            assert!(unknown.is_empty());
        }
    }

    #[test]
    fn kinds_are_told_from_what_may_be_written() {
        let kind = |name: &str| VARIABLES.iter().find(|variable| variable.name == name).map(Variable::kind);
        assert_eq!(kind("FERROVIA_EAGER_MAX"), Some(Kind::Bytes));
        assert_eq!(kind("FERROVIA_UNEXPECTED_MAX"), Some(Kind::Bytes));
        assert_eq!(kind("FERROVIA_SPIN"), Some(Kind::Number));
        assert_eq!(kind("FERROVIA_STATS"), Some(Kind::Choice(vec!["0", "1"])));
        assert_eq!(kind("FERROVIA_LARGE_COPY"), Some(Kind::Choice(vec!["auto", "both", "read", "staged"])));
        assert_eq!(kind("FERROVIA_COLLECTIVES"), Some(Kind::Text));
    }

    #[test]
    fn a_bad_value_names_the_variable_and_what_it_takes() {
        let error = parse(&[("FERROVIA_CHANNEL", "12")]).unwrap_err().to_string();
        assert!(error.contains("FERROVIA_CHANNEL") && error.contains("power of two"), "{error}");
    }

    #[test]
    fn an_unknown_name_is_pointed_out_with_the_nearest() {
        let (_, unknown) = parse(&[("FERROVIA_EAGER", "1"), ("PATH", "/")]).expect("only a warning");
        assert_eq!(unknown, ["FERROVIA_EAGER is not a setting; did you mean FERROVIA_EAGER_MAX?"]);
    }

    #[test]
    fn an_adapter_is_named_with_or_without_its_port() {
        let verbs = |pairs: &[(&str, &str)]| parse(pairs).map(|(config, _)| config.verbs);
        let both = verbs(&[("FERROVIA_VERBS_DEVICE", "mlx5_0:2"), ("FERROVIA_VERBS_PARTITION", "0x8001")]).unwrap();
        assert_eq!((both.device.as_deref(), both.port, both.partition), (Some("mlx5_0"), Some(2), Some(0x8001)));
        let one = verbs(&[("FERROVIA_VERBS_DEVICE", "rxe0"), ("FERROVIA_VERBS_GID", "3")]).unwrap();
        assert_eq!((one.device.as_deref(), one.port, one.gid_index), (Some("rxe0"), None, Some(3)));
        for bad in ["", ":1", "rxe0:", "rxe0:0", "rxe0:300"] {
            assert!(verbs(&[("FERROVIA_VERBS_DEVICE", bad)]).is_err(), "{bad:?}");
        }
        for bad in ["0", "0x8000", "0x10000", "key"] {
            assert!(verbs(&[("FERROVIA_VERBS_PARTITION", bad)]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_patience_is_in_seconds() {
        let patience = |text| parse(&[("FERROVIA_TCP_PATIENCE", text)]).map(|(config, _)| config.tcp.patience);
        assert_eq!(patience("2.5"), Ok(Duration::from_millis(2500)));
        for bad in ["0", "-1", "1e9", "NaN", "soon", ""] {
            assert!(patience(bad).is_err(), "{bad:?}");
        }
        let silence = |text| parse(&[("FERROVIA_SILENCE", text)]).map(|(config, _)| config.silence);
        let idle = |text| parse(&[("FERROVIA_POOL_IDLE", text)]).map(|(config, _)| config.pool_idle);
        assert_eq!((idle("never"), idle("2")), (Ok(None), Ok(Some(Duration::from_secs(2)))));
        assert!(idle("0").is_err());
        assert_eq!((silence("auto"), silence("0.5")), (Ok(None), Ok(Some(Duration::from_millis(500)))));
        assert!(parse(&[("FERROVIA_TCP_CONNECTIONS", "17")]).is_err());
    }

    #[test]
    fn sizes_take_suffixes_and_stay_in_bounds() {
        let check = |variables: &[(&str, &str)], medium, channel_bytes, eager_max_bytes| {
            let (config, _) = parse(variables).expect("valid");
            let Sizes { pool_max_bytes, .. } = Config::default().sizes(medium);
            let sizes = Sizes { channel_bytes, eager_max_bytes, pool_max_bytes };
            assert_eq!(config.sizes(medium), sizes, "{variables:?} {medium:?}");
        };
        let both = [("FERROVIA_CHANNEL", "16K"), ("FERROVIA_EAGER_MAX", "1M")];
        check(&both, Medium::Memory, 16 << 10, 6 << 10);
        check(&both, Medium::Sockets, 16 << 10, 6 << 10);
        check(&both[..1], Medium::Sockets, 16 << 10, 6 << 10);
        check(&[("FERROVIA_EAGER_MAX", "1000"), ("FERROVIA_CHANNEL", "auto")], Medium::Sockets, 256 << 10, 1000);
        check(&[("FERROVIA_EAGER_MAX", "auto")], Medium::Memory, 64 << 10, 16 << 10);
        check(&[], Medium::Sockets, 256 << 10, 64 << 10);
        assert!(parse(&[("FERROVIA_CHANNEL", "20000")]).is_err(), "a power of two");
    }
}
