//! The rows of the registry.

use super::choices::{
    CrossMemory, DatatypeScheme, DeviceChoice, FastPath, InitialErrors, LargeCopy, RegistrationScheme, Rendezvous,
    ShuttleCopy,
};
use super::values::{adapter, auto, bytes, partition, seconds};
use super::{CONTEXT_IDS_MAX, Config, ConfigError, Kind};
use crate::log::Level;

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
        if self.values.trim_start_matches("auto or ").starts_with("bytes") {
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

/// A number of bytes in a range.
macro_rules! size {
    ($name:literal, $($field:ident).+, $values:literal, $range:expr, $help:literal) => {
        Variable {
            name: $name,
            values: $values,
            help: $help,
            set: |config, text| {
                config.$($field).+ = bytes(text).filter(|count| ($range).contains(count))?;
                Some(())
            },
            show: |config| config.$($field).+.to_string(),
        }
    };
}

/// A number in a range.
macro_rules! number {
    ($name:literal, $($field:ident).+, $values:literal, $range:expr, $help:literal) => {
        Variable {
            name: $name,
            values: $values,
            help: $help,
            set: |config, text| {
                config.$($field).+ = text.parse().ok().filter(|count| ($range).contains(count))?;
                Some(())
            },
            show: |config| config.$($field).+.to_string(),
        }
    };
}

/// A number of bytes in a range, or that the library decides.
macro_rules! automatic_size {
    ($name:literal, $($field:ident).+, $values:literal, $range:expr, $help:literal) => {
        Variable {
            name: $name,
            values: $values,
            help: $help,
            set: |config, text| {
                config.$($field).+ = match text {
                    "auto" => None,
                    text => Some(bytes(text).filter(|count| ($range).contains(count))?),
                };
                Some(())
            },
            show: |config| config.$($field).+.map_or("auto".into(), |count| count.to_string()),
        }
    };
}

/// A number, or that the library decides.
macro_rules! automatic {
    ($name:literal, $($field:ident).+, $values:literal, $help:literal) => {
        Variable {
            name: $name,
            values: $values,
            help: $help,
            set: |config, text| {
                config.$($field).+ = auto(text)?;
                Some(())
            },
            show: |config| config.$($field).+.map_or("auto".into(), |count| count.to_string()),
        }
    };
}

/// One of a few words.
macro_rules! choice {
    ($name:literal, $($field:ident).+: $type:ident, $values:literal, $help:literal) => {
        Variable {
            name: $name,
            values: $values,
            help: $help,
            set: |config, text| {
                config.$($field).+ = $type::from_word(text)?;
                Some(())
            },
            show: |config| config.$($field).+.name().into(),
        }
    };
}

/// One of two words, for no and yes.
macro_rules! switch {
    ($name:literal, $($field:ident).+, $values:literal, $no:literal, $yes:literal, $help:literal) => {
        Variable {
            name: $name,
            values: $values,
            help: $help,
            set: |config, text| {
                config.$($field).+ = match text {
                    $no => false,
                    $yes => true,
                    _ => return None,
                };
                Some(())
            },
            show: |config| if config.$($field).+ { $yes } else { $no }.into(),
        }
    };
}

/// All variables, in the order `ferrovia info --config` prints them.
pub const VARIABLES: &[Variable] = &[
    choice!(
        "FERROVIA_DEVICE",
        device: DeviceChoice,
        "auto | shm | shm-verbs | tcp | verbs | shm+tcp | shm+verbs",
        "Device that carries messages: auto takes shm on each host and, if there are several, between them InfiniBand \
         adapters if all processes can use one on one subnet (shm+verbs), or else tcp (shm+tcp). Adapters on Ethernet are \
         taken when asked for: nothing says that the hosts reach each other over them."
    ),
    number!(
        "FERROVIA_HOST_RANKS",
        host_ranks_max,
        "count, 0: no limit",
        0..,
        "Processes of one host beyond so many are treated as being on another one, to try a job of several hosts on one."
    ),
    automatic_size!(
        "FERROVIA_POOL_MAX",
        pool_max_bytes,
        "auto or bytes",
        0..,
        "Registered buffers for messages over verbs, at most; past it connections get no more credits, and what they and sends need at least is taken all the same. By itself 64M, and over tcp, where what is not touched is not there, 256M."
    ),
    Variable {
        name: "FERROVIA_POOL_IDLE",
        values: "never | seconds, 0.1 to 86400",
        help: "Registered buffers for messages over verbs that were not used for so long are given back, and credits that \
               senders did not use are taken back for it.",
        set: |config, text| {
            config.pool_idle = if text == "never" { None } else { Some(seconds(text)?) };
            Some(())
        },
        show: |config| config.pool_idle.map_or("never".into(), |idle| idle.as_secs_f64().to_string()),
    },
    number!(
        "FERROVIA_CREDITS",
        credits_initial,
        "count, 1 to 256",
        1..=256,
        "Messages a fresh connection over verbs takes unasked; a sender that waits for more gets them."
    ),
    choice!(
        "FERROVIA_FASTPATH",
        fastpath: FastPath,
        "auto | off | fixed-top | fixed-top-reduced | fixed-bottom | variable-top | veloblock",
        "Design of the channels for short messages, in mapped memory or written by RDMA; off sends through mailboxes and \
         receive queues; auto takes veloblock where it is faster."
    ),
    number!(
        "FERROVIA_FASTPATH_CHANNELS_MAX",
        channels_max,
        "count, 0 to 4294967295",
        0..,
        "Channels that a process grants to others; those beyond send through its mailbox or receive queue."
    ),
    number!(
        "FERROVIA_FASTPATH_POLLED",
        channels_polled_min,
        "count, 0 to 4294967295",
        0..,
        "Channels polled whether they are used or not; unused ones beyond announce what they bring."
    ),
    number!(
        "FERROVIA_FASTPATH_LOOK",
        channel_look_turns,
        "count, 1 to 4294967295",
        1..,
        "Turns of progress from one look after the channels to the next: which are polled, and, every sixteenth time, \
         which are used."
    ),
    Variable {
        name: "FERROVIA_FASTPATH_IDLE",
        values: "never | count, 1 to 4294967295",
        help: "A sender looks every sixteenth time whether its channels are used; one unused for so many of these looks is given up.",
        set: |config, text| {
            config.channel_idle_looks = match text {
                "never" => None,
                text => Some(text.parse().ok().filter(|looks| *looks > 0)?),
            };
            Some(())
        },
        show: |config| config.channel_idle_looks.map_or("never".into(), |looks| looks.to_string()),
    },
    size!(
        "FERROVIA_CHANNEL_MIN",
        channel_min_bytes,
        "bytes, 8K to 1M",
        8 << 10..=1 << 20,
        "A Veloblock with little traffic does not shrink below this."
    ),
    size!(
        "FERROVIA_CHANNEL_MAX",
        channel_max_bytes,
        "bytes, 8K to 1M",
        8 << 10..=1 << 20,
        "A Veloblock whose sender often finds no room does not grow beyond this, nor beyond its first size."
    ),
    automatic_size!(
        "FERROVIA_CHANNEL_LONG",
        channel_long_bytes,
        "auto or bytes, 8K to 4M",
        8 << 10..=4 << 20,
        "Size of a Veloblock whose records are mostly of 2 KiB and more: beyond the cache next to a core, which makes ordinary stores worth a trial. By itself twice the process's share of that cache, 768K to 2M. No longer than FERROVIA_CHANNEL: none. Where ranks outnumber cores a block's share of FERROVIA_CHANNEL_MEMORY, or what its longest record needs, is enough."
    ),
    size!(
        "FERROVIA_SHUTTLE",
        shuttle_bytes,
        "bytes, 0 to 4M",
        0..=4 << 20,
        "Longest message between two processes of one host that may go aboard a shuttle: memory that both write by turns, whoever has read it last. One of more than 256 KiB that crosses another, or of 48 KiB where several wait to leave, goes in parts of 128 KiB if that is allowed, however long it is. Among more than 16 processes at most a process's part of 64M. 0: there are none."
    ),
    choice!(
        "FERROVIA_SHUTTLE_COPY",
        shuttle_copy: ShuttleCopy,
        "auto | loop | instruction",
        "How messages of 8 KiB and more are copied into shuttles and out of them: by a loop of loads and stores, or by the processor's own instruction for copying. Where it is the instruction, shuttles come back empty for long messages that go one way only, and those go in parts of 128 KiB. By itself whichever was the fastest lately, for each side."
    ),
    automatic_size!(
        "FERROVIA_CHANNEL_MEMORY",
        channel_memory_bytes,
        "auto or bytes",
        0..,
        "How much longer than FERROVIA_CHANNEL the Veloblocks into a process may be, all together, and its shuttles. An eighth of what is left stays for others. By itself half of the process's share of the last cache, all of it where ranks outnumber cores, at most 16 MiB."
    ),
    Variable {
        name: "FERROVIA_CHANNEL",
        values: "auto or bytes, 8K to 1M, a power of two",
        help: "Size of a fast-path channel (Veloblock) between two processes, in the beginning. By itself 64K, and over tcp 256K.",
        set: |config, text| {
            let is_one = |n: &usize| n.is_power_of_two() && (8 << 10..=1 << 20).contains(n);
            config.channel_bytes = match text {
                "auto" => None,
                text => Some(bytes(text).filter(is_one)?),
            };
            Some(())
        },
        show: |config| config.channel_bytes.map_or("auto".into(), |count| count.to_string()),
    },
    automatic_size!(
        "FERROVIA_EAGER_MAX",
        eager_max_bytes,
        "auto or bytes, 0 to three eighths of FERROVIA_CHANNEL",
        0..,
        "Longest message sent eagerly; longer ones go by rendezvous. By itself 16K, and over tcp 64K; where processes are connected, more than that is set for all of them alike."
    ),
    size!(
        "FERROVIA_UNEXPECTED_MAX",
        unexpected_max_bytes,
        "bytes",
        0..,
        "Unexpected data a process stores before its senders are held back."
    ),
    choice!(
        "FERROVIA_LARGE_COPY",
        large_copy: LargeCopy,
        "auto | both | read | staged",
        "Who moves a large message between two processes of one host: sender and receiver together, the receiver alone, or both through the channel. By itself, where ranks outnumber cores, the receiver alone, and up to 128 KiB, or 256 KiB where one record takes them, both through the channel; otherwise whichever was the fastest lately."
    ),
    size!(
        "FERROVIA_CROSS_MEMORY_MIN",
        cross_memory_min_bytes,
        "bytes",
        0..,
        "Shortest message copied straight between processes; shorter ones go through the channel."
    ),
    size!(
        "FERROVIA_STAGED_NEAR_MAX",
        staged_near_max_bytes,
        "bytes",
        0..,
        "Longest message that goes through the channel all the same where that is the fastest way, which messages find out; where ranks outnumber cores, those of up to 128 KiB, or 256 KiB in one record, untried. 0: none. Only for FERROVIA_LARGE_COPY=auto."
    ),
    size!(
        "FERROVIA_AHEAD",
        ahead_bytes,
        "bytes",
        0..,
        "Bytes of a long message that follow its request through the channel before it is answered, where no other send is under way and the receiver was ready for the last one and took it that way. Where that is the way to stay, a receiver gives leave for seven messages without a request: of this length at most in one record (of twice it while a receive waits here, as in exchanges), of 256 KiB in pieces, and of three eighths of the channel. Where ranks outnumber cores it is leave for 63, of 256 KiB in one record. 0: neither."
    ),
    size!(
        "FERROVIA_SHARED_COPY_MIN",
        shared_copy_min_bytes,
        "bytes",
        0..,
        "Shortest message that sender and receiver copy together."
    ),
    choice!(
        "FERROVIA_CROSS_MEMORY",
        cross_memory: CrossMemory,
        "auto | off",
        "Whether to copy straight between processes (cross-memory attach) where the kernel allows it."
    ),
    choice!(
        "FERROVIA_RENDEZVOUS",
        rendezvous: Rendezvous,
        "auto | rput | rget | staged | tupleq | tupleq-copy",
        "How messages are moved: long ones over verbs are written by the sender (rput), read by the receiver (rget) or \
         cut into pieces (staged); or all of them go by receive queues of their tuples (communicator, source, \
         tag), where a send of any size waits for its receive (tupleq) or short ones that would wait are copied \
         (tupleq-copy; between processes that share memory or talk over shm-verbs or tcp). By itself a device whose \
         memory is reached in one copy reads, another writes."
    ),
    number!(
        "FERROVIA_TUPLE_QUEUES_MAX",
        tuple_queues_max,
        "count, 1 to 512",
        1..=512,
        "Receive queues a process keeps for tuples on each device with FERROVIA_RENDEZVOUS=tupleq; past it idle ones are \
         reclaimed."
    ),
    number!(
        "FERROVIA_TUPLE_RETREAT",
        tuple_retreat,
        "count; 0: never",
        0..,
        "So many messages of a tuple that meet wildcards, if they are more than half of all that its queue has given out, \
         end the use of the queue."
    ),
    choice!(
        "FERROVIA_REGISTRATION_CACHE",
        registration_cache: RegistrationScheme,
        "interval | dme | off",
        "How registered memory is kept for later messages: a buffer inside a registered one is found, or only one \
         that begins at the same address, or nothing is kept."
    ),
    number!(
        "FERROVIA_REGISTRATION_CACHE_ENTRIES",
        registration_cache_entries_max,
        "count",
        0..,
        "Most regions kept registered; unused ones go first whose last use is longest ago."
    ),
    size!("FERROVIA_REGISTRATION_CACHE_MAX", registration_cache_max_bytes, "bytes", 0.., "Most bytes kept registered."),
    choice!(
        "FERROVIA_DATATYPE_SCHEME",
        datatypes.scheme: DatatypeScheme,
        "auto | generic | bc-spup | rwg-up | p-rrs | multi-w | direct",
        "How long messages whose data does not lie in one piece get across; auto decides for each message. Over \
         shm-verbs, tcp and verbs, direct is multi-w."
    ),
    switch!(
        "FERROVIA_DATATYPE_SEGMENT_UNPACK",
        datatypes.segment_unpack,
        "on | off",
        "off",
        "on",
        "Whether packed data (rwg-up) is unpacked while more of it arrives, or when all of it is there."
    ),
    switch!(
        "FERROVIA_DATATYPE_LIST_POST",
        datatypes.list_post,
        "on | off",
        "off",
        "on",
        "Whether many pieces (rwg-up, p-rrs, multi-w, direct) are handed to the device at once, or one by one."
    ),
    size!(
        "FERROVIA_DATATYPE_POOL_MAX",
        datatypes.pool_max_bytes,
        "bytes",
        0..,
        "Most bytes of packed data that a process holds at once for rwg-up and p-rrs, and over shm-verbs, tcp and verbs \
         for segments it packs and, as much again, for those it unpacks; a message that finds no room goes through the \
         channel."
    ),
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
    automatic!(
        "FERROVIA_VERBS_GID",
        verbs.gid_index,
        "auto | index, as ibv_devinfo -v lists them",
        "Entry of the port's GID table to use for RDMA."
    ),
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
        "0 | 1",
        "0",
        "1",
        "Whether each payload sent through a socket is followed by its CRC32C; payload is then copied once more."
    ),
    number!(
        "FERROVIA_TCP_CONNECTIONS",
        tcp.connections,
        "count, 1 to 16",
        1..=16,
        "Connections to each peer on another host; messages of 128 KiB and more travel over all of them in parts."
    ),
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
        name: "FERROVIA_SILENCE",
        values: "auto | seconds, 0.1 to 86400",
        help: "How long a process may be stopped, by a signal or a debugger, until it is given up: on the same host, where one \
               that computes is told from one that is stopped; between hosts, how long it may owe an answer over sockets. If \
               it is set, all are asked for one: it must be longer than a process computes without a call of MPI, but with \
               FERROVIA_TCP_PROGRESS=thread. It does not hold over adapters. auto: on the same host for ever (it is told \
               of), between hosts 30 if it answers by itself, otherwise 3600, since it may be computing; nobody is asked \
               who owes nothing.",
        set: |config, text| {
            config.silence = if text == "auto" { None } else { Some(seconds(text)?) };
            Some(())
        },
        show: |config| config.silence.map_or("auto".into(), |silence| silence.as_secs_f64().to_string()),
    },
    switch!(
        "FERROVIA_TCP_PROGRESS",
        tcp.thread,
        "caller | thread",
        "caller",
        "thread",
        "Whether what comes through sockets is worked on inside calls of the library only, or by a thread, too."
    ),
    automatic!(
        "FERROVIA_CORES",
        core_count,
        "auto | count",
        "Processors that the processes of a job share on each host; fewer than they are, and those that wait make room for others and algorithms change. By itself as many as the first process may run on, which a container's quota does not tell."
    ),
    automatic!(
        "FERROVIA_SPIN",
        spin_count,
        "auto | count",
        "Empty polls before a waiting thread yields the processor."
    ),
    automatic!(
        "FERROVIA_YIELD",
        yield_count,
        "auto | count",
        "Yields before a waiting thread sleeps; auto: it sleeps at once where yields cost time slices."
    ),
    number!(
        "FERROVIA_VIPL_PUSH",
        vipl_push_max,
        "count, 1 to 256",
        1..=256,
        "Receive descriptors that a VI of libvipl.so pushes to the other side at once, at most."
    ),
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
    number!(
        "FERROVIA_CONTEXT_IDS_MAX",
        context_ids_max,
        "count, 1 to 1073741824",
        1..=CONTEXT_IDS_MAX,
        "Numbers that tell communicators apart, shared out evenly among the processes of a job."
    ),
    switch!(
        "FERROVIA_SHARED_COLLECTIVES",
        shared_collectives,
        "0 | 1",
        "0",
        "1",
        "Whether short collectives on one host, and long ones where that is faster, go through memory that all their \
         processes see, without messages."
    ),
    automatic_size!(
        "FERROVIA_COLLECTIVE_READ_MIN",
        collective_read_min_bytes,
        "auto or bytes",
        0..,
        "Shortest block of MPI_Allgather, MPI_Allgatherv and MPI_Alltoall, and shortest part of what MPI_Allreduce adds up, \
         that processes of one host read straight from each other's memory (cross-memory attach; two send each other such \
         blocks as messages unless this is set), and, from 64 KiB on, of what one of two sends the other as a message in MPI_Bcast, MPI_Gather, MPI_Scatter and \
         MPI_Reduce; blocking calls only. By itself, where all run at once, 8 to 64 KiB, but none of MPI_Allreduce on two; \
         elsewhere none; from 16 KiB on until it is known whether that takes less time here, for which the other way is tried now \
         and then."
    ),
    switch!(
        "FERROVIA_REPRODUCIBLE",
        reproducible,
        "0 | 1",
        "0",
        "1",
        "Whether reductions on equally many ranks give equal bits for equal inputs, whatever the count, the root \
         and the number of cores; slower for long buffers."
    ),
    choice!(
        "FERROVIA_INITIAL_ERRHANDLER",
        initial_errors: InitialErrors,
        "mpi_errors_are_fatal | mpi_errors_abort | mpi_errors_return",
        "Error handler that MPI_COMM_WORLD and MPI_COMM_SELF begin with, and that errors outside of MPI meet; \
         mpiexec sets it for -initial-errhandler."
    ),
    choice!(
        "FERROVIA_LOG",
        log: Level,
        "error | warn | info | debug",
        "How much is said on standard error."
    ),
    switch!(
        "FERROVIA_STATS",
        stats,
        "0 | 1",
        "0",
        "1",
        "Print one table of message and protocol counters of all ranks, and their busiest pairs, at finalize."
    ),
];
