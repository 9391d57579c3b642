//! The registry of variables: every `FERROVIA_*` setting, its unit, default and help, parsed once into
//! the plain struct [`Config`] that is passed down.

mod choices;
#[macro_use]
mod values;

pub use self::choices::{
    CrossMemory, DatatypeScheme, DatatypeSettings, DeviceChoice, FastPath, InitialErrors, LargeCopy,
    RegistrationScheme, Rendezvous, TcpChoice, VerbsChoice,
};
pub use self::values::{ConfigError, Kind};
use self::values::{adapter, auto, bytes, flag, on_or_off, partition, seconds, show_on};
use crate::log::Level;

/// Every setting of the library, with its default.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Which device carries the messages of a job.
    pub device: DeviceChoice,
    /// Registered buffers for messages over verbs, in bytes, at most.
    pub pool_max_bytes: usize,
    /// Messages that a fresh connection over verbs takes without being asked.
    pub credits_initial: u32,
    /// Design of the fast path between processes of one host.
    pub fastpath: FastPath,
    /// Channels that a process grants to others, at most.
    pub channels_max: u32,
    /// Channels that a process polls whether they are used or not, at least.
    pub channels_polled_min: u32,
    /// How often a sender finds its channel unused before it gives it up; `None`: it never does.
    pub channel_idle_looks: Option<u32>,
    /// Bytes of one fast-path channel (a Veloblock) from one process to another, in the beginning.
    pub channel_bytes: usize,
    /// A Veloblock does not shrink below this, in bytes.
    pub channel_min_bytes: usize,
    /// And does not grow beyond this, in bytes.
    pub channel_max_bytes: usize,
    /// Length of a Veloblock whose records are mostly long, in bytes.
    pub channel_long_bytes: usize,
    /// How much longer than in the beginning the Veloblocks into a process may be, in bytes all together.
    pub channel_memory_bytes: usize,
    /// Longest message sent eagerly, in bytes; longer ones go by rendezvous.
    pub eager_max_bytes: usize,
    /// Unexpected data a process holds before its senders are held back, in bytes.
    pub unexpected_max_bytes: usize,
    /// Who moves large messages on shared memory.
    pub large_copy: LargeCopy,
    /// Shortest message copied straight between processes, in bytes; shorter ones go through the channel.
    pub cross_memory_min_bytes: usize,
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
    /// How often an empty poll is repeated before the waiting thread yields; `None`: by the number of cores.
    pub spin_count: Option<u32>,
    /// How often a waiting thread yields before it sleeps; `None`: by the number of cores.
    pub yield_count: Option<u32>,
    /// Collective algorithms asked for by name, e.g. `allreduce=ring,bcast=binomial`.
    pub collectives: String,
    /// Short collectives on one host may go through memory that all its processes see.
    pub shared_collectives: bool,
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
            pool_max_bytes: 64 << 20,
            credits_initial: 8,
            fastpath: FastPath::Veloblock,
            channels_max: 256,
            channels_polled_min: 4,
            channel_idle_looks: Some(64),
            channel_bytes: 64 << 10,
            channel_min_bytes: 16 << 10,
            channel_max_bytes: 256 << 10,
            channel_long_bytes: 2 << 20,
            channel_memory_bytes: 16 << 20,
            eager_max_bytes: 16 << 10,
            unexpected_max_bytes: 64 << 20,
            large_copy: LargeCopy::Both,
            cross_memory_min_bytes: 32 << 10,
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
            spin_count: None,
            yield_count: None,
            collectives: String::new(),
            shared_collectives: true,
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

/// One row of the registry.
pub struct Variable {
    /// Name in the environment.
    pub name: &'static str,
    /// What may be written, with its unit.
    pub values: &'static str,
    /// One sentence.
    pub help: &'static str,
    set: fn(&mut Config, &str) -> Option<()>,
    show: fn(&Config) -> String,
}

impl Variable {
    /// What kind of value the variable has.
    pub fn kind(&self) -> Kind {
        let words: Vec<&'static str> = self.values.split(" | ").collect();
        let takes = |text: &str| (self.set)(&mut Config::default(), text).is_some();
        if self.values.starts_with("bytes") {
            Kind::Bytes
        } else if words.last().is_some_and(|word| word.starts_with("count")) && takes("1") {
            Kind::Number
        } else if words.len() > 1 && words.iter().all(|word| takes(word)) {
            Kind::Choice(words)
        } else {
            Kind::Text
        }
    }

    /// Sets the variable in `config`.
    ///
    /// # Errors
    /// If the value is not understood.
    pub fn assign(&self, config: &mut Config, value: &str) -> Result<(), ConfigError> {
        (self.set)(config, value.trim()).ok_or(ConfigError::Value {
            name: self.name,
            value: value.to_owned(),
            expected: self.values,
        })
    }

    /// The value that `config` holds for this variable, as the user would write it.
    pub fn value(&self, config: &Config) -> String {
        (self.show)(config)
    }
}

/// All variables, in the order `ferrovia info --config` prints them.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "FERROVIA_DEVICE",
        values: "auto | shm | shm-verbs | tcp | verbs",
        help: "Device that carries messages: auto takes shm where all processes are on one host, and tcp otherwise.",
        set: |config, text| {
            config.device = DeviceChoice::ALL.iter().find(|(_, name)| *name == text)?.0;
            Some(())
        },
        show: |config| config.device.name().into(),
    },
    Variable {
        name: "FERROVIA_POOL_MAX",
        values: "bytes",
        help: "Registered buffers for messages over verbs, at most; past it connections get no more credits.",
        set: |config, text| {
            config.pool_max_bytes = bytes(text)?;
            Some(())
        },
        show: |config| config.pool_max_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_CREDITS",
        values: "count, 1 to 256",
        help: "Messages a fresh connection over verbs takes unasked; a sender that waits for more gets them.",
        set: |config, text| {
            config.credits_initial = text.parse().ok().filter(|count| (1..=256).contains(count))?;
            Some(())
        },
        show: |config| config.credits_initial.to_string(),
    },
    Variable {
        name: "FERROVIA_FASTPATH",
        values: "off | fixed-top | fixed-top-reduced | fixed-bottom | variable-top | veloblock",
        help: "Design of the channels between processes of one host; off sends everything through the shared mailbox.",
        set: |config, text| {
            config.fastpath = FastPath::ALL.iter().find(|(_, name)| *name == text)?.0;
            Some(())
        },
        show: |config| config.fastpath.name().into(),
    },
    Variable {
        name: "FERROVIA_FASTPATH_CHANNELS_MAX",
        values: "count, 0 to 4294967295",
        help: "Channels that a process grants to its host-mates; those beyond send through its shared mailbox.",
        set: |config, text| {
            config.channels_max = text.parse().ok()?;
            Some(())
        },
        show: |config| config.channels_max.to_string(),
    },
    Variable {
        name: "FERROVIA_FASTPATH_POLLED",
        values: "count, 0 to 4294967295",
        help: "Channels polled whether they are used or not; unused ones beyond announce what they bring.",
        set: |config, text| {
            config.channels_polled_min = text.parse().ok()?;
            Some(())
        },
        show: |config| config.channels_polled_min.to_string(),
    },
    Variable {
        name: "FERROVIA_FASTPATH_IDLE",
        values: "never | count, 1 to 4294967295",
        help: "A sender looks after its channels every 65536 turns of progress; one unused for so many looks is given up.",
        set: |config, text| {
            config.channel_idle_looks = match text {
                "never" => None,
                text => Some(text.parse().ok().filter(|looks| *looks > 0)?),
            };
            Some(())
        },
        show: |config| config.channel_idle_looks.map_or("never".into(), |looks| looks.to_string()),
    },
    Variable {
        name: "FERROVIA_CHANNEL_MIN",
        values: "bytes, 8K to 1M",
        help: "A Veloblock with little traffic does not shrink below this.",
        set: |config, text| {
            config.channel_min_bytes = bytes(text).filter(|n| (8 << 10..=1 << 20).contains(n))?;
            Some(())
        },
        show: |config| config.channel_min_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_CHANNEL_MAX",
        values: "bytes, 8K to 1M",
        help: "A Veloblock whose sender often finds no room does not grow beyond this, nor beyond its first size.",
        set: |config, text| {
            config.channel_max_bytes = bytes(text).filter(|n| (8 << 10..=1 << 20).contains(n))?;
            Some(())
        },
        show: |config| config.channel_max_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_CHANNEL_LONG",
        values: "bytes, 8K to 4M",
        help: "Size of a Veloblock whose records are mostly of 2 KiB and more: beyond the caches next to a core, which \
               makes ordinary stores worth a trial. No longer than FERROVIA_CHANNEL: none.",
        set: |config, text| {
            config.channel_long_bytes = bytes(text).filter(|n| (8 << 10..=4 << 20).contains(n))?;
            Some(())
        },
        show: |config| config.channel_long_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_CHANNEL_MEMORY",
        values: "bytes",
        help: "How much longer than FERROVIA_CHANNEL the Veloblocks into a process may be, all together.",
        set: |config, text| {
            config.channel_memory_bytes = bytes(text)?;
            Some(())
        },
        show: |config| config.channel_memory_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_CHANNEL",
        values: "bytes, 8K to 1M, a power of two",
        help: "Size of a fast-path channel (Veloblock) between two processes of one host, in the beginning.",
        set: |config, text| {
            config.channel_bytes = bytes(text).filter(|n| n.is_power_of_two() && (8 << 10..=1 << 20).contains(n))?;
            Some(())
        },
        show: |config| config.channel_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_EAGER_MAX",
        values: "bytes, 0 to three eighths of FERROVIA_CHANNEL",
        help: "Longest message sent eagerly; longer ones go by rendezvous.",
        set: |config, text| {
            config.eager_max_bytes = bytes(text)?;
            Some(())
        },
        show: |config| config.eager_max_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_UNEXPECTED_MAX",
        values: "bytes",
        help: "Unexpected data a process stores before its senders are held back.",
        set: |config, text| {
            config.unexpected_max_bytes = bytes(text)?;
            Some(())
        },
        show: |config| config.unexpected_max_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_LARGE_COPY",
        values: "both | read | staged",
        help: "Who moves a large message between two processes of one host.",
        set: |config, text| {
            config.large_copy = match text {
                "both" => LargeCopy::Both,
                "read" => LargeCopy::Read,
                "staged" => LargeCopy::Staged,
                _ => return None,
            };
            Some(())
        },
        show: |config| {
            match config.large_copy {
                LargeCopy::Both => "both",
                LargeCopy::Read => "read",
                LargeCopy::Staged => "staged",
            }
            .into()
        },
    },
    Variable {
        name: "FERROVIA_CROSS_MEMORY_MIN",
        values: "bytes",
        help: "Shortest message copied straight between processes; shorter ones go through the channel.",
        set: |config, text| {
            config.cross_memory_min_bytes = bytes(text)?;
            Some(())
        },
        show: |config| config.cross_memory_min_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_SHARED_COPY_MIN",
        values: "bytes",
        help: "Shortest message that sender and receiver copy together.",
        set: |config, text| {
            config.shared_copy_min_bytes = bytes(text)?;
            Some(())
        },
        show: |config| config.shared_copy_min_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_CROSS_MEMORY",
        values: "auto | off",
        help: "Whether to copy straight between processes (cross-memory attach) where the kernel allows it.",
        set: |config, text| {
            config.cross_memory = match text {
                "auto" => CrossMemory::Auto,
                "off" => CrossMemory::Off,
                _ => return None,
            };
            Some(())
        },
        show: |config| match config.cross_memory {
            CrossMemory::Auto => "auto".into(),
            CrossMemory::Off => "off".into(),
        },
    },
    Variable {
        name: "FERROVIA_RENDEZVOUS",
        values: "auto | rput | rget | staged | tupleq | tupleq-copy",
        help: "How messages are moved: long ones over verbs are written by the sender (rput), read by the receiver (rget) or \
               cut into pieces (staged); or all of them go by receive queues of their tuples (communicator, source, \
               tag), where a send of any size waits for its receive (tupleq) or short ones that would wait are copied \
               (tupleq-copy; both on devices shm and shm-verbs). By itself a device whose memory is reached in one copy reads, another writes.",
        set: |config, text| {
            config.rendezvous = match text {
                "auto" => Rendezvous::Auto,
                "rput" => Rendezvous::Rput,
                "rget" => Rendezvous::Rget,
                "staged" => Rendezvous::Staged,
                "tupleq" => Rendezvous::TupleQueue,
                "tupleq-copy" => Rendezvous::TupleQueueCopy,
                _ => return None,
            };
            Some(())
        },
        show: |config| {
            match config.rendezvous {
                Rendezvous::Auto => "auto",
                Rendezvous::Rput => "rput",
                Rendezvous::Rget => "rget",
                Rendezvous::Staged => "staged",
                Rendezvous::TupleQueue => "tupleq",
                Rendezvous::TupleQueueCopy => "tupleq-copy",
            }
            .into()
        },
    },
    Variable {
        name: "FERROVIA_TUPLE_QUEUES_MAX",
        values: "count, 1 to 512",
        help: "Receive queues a process keeps for tuples with FERROVIA_RENDEZVOUS=tupleq; past it idle ones are reclaimed.",
        set: |config, text| {
            config.tuple_queues_max = text.parse().ok().filter(|count| (1..=512).contains(count))?;
            Some(())
        },
        show: |config| config.tuple_queues_max.to_string(),
    },
    Variable {
        name: "FERROVIA_TUPLE_RETREAT",
        values: "count; 0: never",
        help: "So many messages of a tuple that meet wildcards, if they are more than half of all that its queue has given out, \
               end the use of the queue.",
        set: |config, text| {
            config.tuple_retreat = text.parse().ok()?;
            Some(())
        },
        show: |config| config.tuple_retreat.to_string(),
    },
    Variable {
        name: "FERROVIA_REGISTRATION_CACHE",
        values: "interval | dme | off",
        help: "How registered memory is kept for later messages: a buffer inside a registered one is found, or only one \
               that begins at the same address, or nothing is kept.",
        set: |config, text| {
            config.registration_cache = match text {
                "interval" => RegistrationScheme::Interval,
                "dme" => RegistrationScheme::Dme,
                "off" => RegistrationScheme::Off,
                _ => return None,
            };
            Some(())
        },
        show: |config| {
            match config.registration_cache {
                RegistrationScheme::Interval => "interval",
                RegistrationScheme::Dme => "dme",
                RegistrationScheme::Off => "off",
            }
            .into()
        },
    },
    Variable {
        name: "FERROVIA_REGISTRATION_CACHE_ENTRIES",
        values: "count",
        help: "Most regions kept registered; unused ones go first whose last use is longest ago.",
        set: |config, text| {
            config.registration_cache_entries_max = text.parse().ok()?;
            Some(())
        },
        show: |config| config.registration_cache_entries_max.to_string(),
    },
    Variable {
        name: "FERROVIA_REGISTRATION_CACHE_MAX",
        values: "bytes",
        help: "Most bytes kept registered.",
        set: |config, text| {
            config.registration_cache_max_bytes = bytes(text)?;
            Some(())
        },
        show: |config| config.registration_cache_max_bytes.to_string(),
    },
    Variable {
        name: "FERROVIA_DATATYPE_SCHEME",
        values: "auto | generic | bc-spup | rwg-up | p-rrs | multi-w | direct",
        help: "How long messages whose data does not lie in one piece get across; auto decides for each message. Over \
               shm-verbs, tcp and verbs only generic and p-rrs differ from bc-spup: the sender packs all of it first.",
        set: |config, text| {
            config.datatypes.scheme = DatatypeScheme::ALL.into_iter().find(|(word, _)| *word == text)?.1;
            Some(())
        },
        show: |config| {
            let shown = DatatypeScheme::ALL.into_iter().find(|(_, scheme)| *scheme == config.datatypes.scheme);
            shown.map_or("auto", |(word, _)| word).into()
        },
    },
    Variable {
        name: "FERROVIA_DATATYPE_SEGMENT_UNPACK",
        values: "on | off",
        help: "Whether packed data (rwg-up) is unpacked while more of it arrives, or when all of it is there.",
        set: |config, text| {
            config.datatypes.segment_unpack = on_or_off(text)?;
            Some(())
        },
        show: |config| show_on(config.datatypes.segment_unpack),
    },
    Variable {
        name: "FERROVIA_DATATYPE_LIST_POST",
        values: "on | off",
        help: "Whether many pieces (rwg-up, p-rrs, multi-w, direct) are handed to the device at once, or one by one.",
        set: |config, text| {
            config.datatypes.list_post = on_or_off(text)?;
            Some(())
        },
        show: |config| show_on(config.datatypes.list_post),
    },
    Variable {
        name: "FERROVIA_VERBS_DEVICE",
        values: "auto | adapter | adapter:port, as ibv_devices lists them",
        help: "Adapter and port to use for RDMA.",
        set: |config, text| {
            (config.verbs.device, config.verbs.port) = adapter(text)?;
            Some(())
        },
        show: |config| match (&config.verbs.device, config.verbs.port) {
            (Some(device), Some(port)) => format!("{device}:{port}"),
            (Some(device), None) => device.clone(),
            (None, _) => "auto".into(),
        },
    },
    Variable {
        name: "FERROVIA_VERBS_GID",
        values: "auto | index, as ibv_devinfo -v lists them",
        help: "Entry of the port's GID table to use for RDMA.",
        set: |config, text| {
            config.verbs.gid_index = auto(text)?;
            Some(())
        },
        show: |config| config.verbs.gid_index.map_or("auto".into(), |n| n.to_string()),
    },
    Variable {
        name: "FERROVIA_VERBS_PARTITION",
        values: "auto | key, such as 0x8001",
        help: "Partition to use for RDMA.",
        set: |config, text| {
            config.verbs.partition = partition(text)?;
            Some(())
        },
        show: |config| config.verbs.partition.map_or("auto".into(), |key| format!("{key:#06x}")),
    },
    Variable {
        name: "FERROVIA_VERBS_MTU",
        values: "auto | 256 | 512 | 1024 | 2048 | 4096",
        help: "Longest packet on the wire for RDMA, in bytes, where the port's own is longer.",
        set: |config, text| {
            config.verbs.mtu_bytes = match text {
                "auto" => None,
                "256" | "512" | "1024" | "2048" | "4096" => text.parse().ok(),
                _ => return None,
            };
            Some(())
        },
        show: |config| config.verbs.mtu_bytes.map_or("auto".into(), |n| n.to_string()),
    },
    Variable {
        name: "FERROVIA_TCP_INTERFACES",
        values: "auto | interfaces, addresses and networks separated by commas, ^ before what is not to be used",
        help: "Where processes listen for peers on other hosts; auto: every address that peers can dial.",
        set: |config, text| {
            config.tcp.interfaces = text.into();
            Some(())
        },
        show: |config| config.tcp.interfaces.clone(),
    },
    switch!(
        "FERROVIA_TCP_CHECK",
        tcp.check_payloads,
        "Whether each payload sent through a socket is followed by its CRC32C; payload is then copied once more."
    ),
    Variable {
        name: "FERROVIA_TCP_CONNECTIONS",
        values: "count, 1 to 16",
        help: "Connections to each peer on another host; messages of 128 KiB and more travel over all of them in parts.",
        set: |config, text| {
            config.tcp.connections = text.parse().ok().filter(|count| (1..=16).contains(count))?;
            Some(())
        },
        show: |config| config.tcp.connections.to_string(),
    },
    Variable {
        name: "FERROVIA_TCP_PATIENCE",
        values: "seconds, 0.1 to 86400",
        help: "How long a peer on another host may be out of reach until it is given up.",
        set: |config, text| {
            config.tcp.patience = seconds(text)?;
            Some(())
        },
        show: |config| config.tcp.patience.as_secs_f64().to_string(),
    },
    Variable {
        name: "FERROVIA_TCP_SILENCE",
        values: "auto | seconds, 0.1 to 86400",
        help: "How long a peer whose host answers may owe an answer until it is given up, because its process is stopped; \
               auto: 30 if it answers by itself, otherwise 3600, since it may be computing.",
        set: |config, text| {
            config.tcp.silence = if text == "auto" { None } else { Some(seconds(text)?) };
            Some(())
        },
        show: |config| config.tcp.silence.map_or("auto".into(), |silence| silence.as_secs_f64().to_string()),
    },
    Variable {
        name: "FERROVIA_TCP_PROGRESS",
        values: "caller | thread",
        help: "Whether what comes through sockets is worked on inside calls of the library only, or by a thread, too.",
        set: |config, text| {
            config.tcp.thread = match text {
                "caller" => false,
                "thread" => true,
                _ => return None,
            };
            Some(())
        },
        show: |config| if config.tcp.thread { "thread" } else { "caller" }.into(),
    },
    Variable {
        name: "FERROVIA_SPIN",
        values: "auto | count",
        help: "Empty polls before a waiting thread yields the processor.",
        set: |config, text| {
            config.spin_count = auto(text)?;
            Some(())
        },
        show: |config| config.spin_count.map_or("auto".into(), |n| n.to_string()),
    },
    Variable {
        name: "FERROVIA_YIELD",
        values: "auto | count",
        help: "Yields before a waiting thread sleeps.",
        set: |config, text| {
            config.yield_count = auto(text)?;
            Some(())
        },
        show: |config| config.yield_count.map_or("auto".into(), |n| n.to_string()),
    },
    Variable {
        name: "FERROVIA_COLLECTIVES",
        values: "collective=algorithm, separated by commas",
        help: "Collective algorithms to use instead of the table's choice.",
        set: |config, text| {
            config.collectives = text.into();
            Some(())
        },
        show: |config| config.collectives.clone(),
    },
    Variable {
        name: "FERROVIA_CONTEXT_IDS_MAX",
        values: "count, 1 to 1073741824",
        help: "Numbers that tell communicators apart, shared out evenly among the processes of a job.",
        set: |config, text| {
            config.context_ids_max = text.parse().ok().filter(|max| (1..=CONTEXT_IDS_MAX).contains(max))?;
            Some(())
        },
        show: |config| config.context_ids_max.to_string(),
    },
    switch!(
        "FERROVIA_SHARED_COLLECTIVES",
        shared_collectives,
        "Whether short blocking collectives on one host, and allreduce of any length, go through memory that all \
               their processes see, without messages."
    ),
    switch!(
        "FERROVIA_REPRODUCIBLE",
        reproducible,
        "Whether reductions on equally many ranks give equal bits for equal inputs, whatever the count, the root \
               and the number of cores; slower for long buffers."
    ),
    Variable {
        name: "FERROVIA_INITIAL_ERRHANDLER",
        values: "mpi_errors_are_fatal | mpi_errors_abort | mpi_errors_return",
        help: "Error handler that MPI_COMM_WORLD and MPI_COMM_SELF begin with, and that errors outside of MPI meet; \
               mpiexec sets it for -initial-errhandler.",
        set: |config, text| {
            config.initial_errors = InitialErrors::from_name(text)?;
            Some(())
        },
        show: |config| config.initial_errors.name().into(),
    },
    Variable {
        name: "FERROVIA_LOG",
        values: "error | warn | info | debug",
        help: "How much is said on standard error.",
        set: |config, text| {
            config.log = match text {
                "error" => Level::Error,
                "warn" => Level::Warn,
                "info" => Level::Info,
                "debug" => Level::Debug,
                _ => return None,
            };
            Some(())
        },
        show: |config| format!("{:?}", config.log).to_lowercase(),
    },
    switch!(
        "FERROVIA_STATS",
        stats,
        "Print one table of message and protocol counters of all ranks, and their busiest pairs, at finalize."
    ),
];

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
        config.bound();
        Ok((config, unknown))
    }

    /// Brings settings that depend on each other within their bounds.
    pub fn bound(&mut self) {
        self.eager_max_bytes = self.eager_max_bytes.min(self.channel_bytes / 8 * 3);
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
        assert_eq!(kind("FERROVIA_SPIN"), Some(Kind::Number));
        assert_eq!(kind("FERROVIA_STATS"), Some(Kind::Choice(vec!["0", "1"])));
        assert_eq!(kind("FERROVIA_LARGE_COPY"), Some(Kind::Choice(vec!["both", "read", "staged"])));
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
        let silence = |text| parse(&[("FERROVIA_TCP_SILENCE", text)]).map(|(config, _)| config.tcp.silence);
        assert_eq!((silence("auto"), silence("0.5")), (Ok(None), Ok(Some(Duration::from_millis(500)))));
        assert!(parse(&[("FERROVIA_TCP_CONNECTIONS", "17")]).is_err());
    }

    #[test]
    fn sizes_take_suffixes_and_stay_in_bounds() {
        let (config, _) = parse(&[("FERROVIA_CHANNEL", "16K"), ("FERROVIA_EAGER_MAX", "1M")]).expect("valid");
        assert_eq!((config.channel_bytes, config.eager_max_bytes), (16 << 10, 6 << 10));
    }
}
