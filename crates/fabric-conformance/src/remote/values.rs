//! The values of `fabric` as bytes.

use std::io;

use base::SlabKey;
use fabric::{
    Access, AddressHandle, AsynchronousEvent, Capabilities, CompletionOpcode, CompletionQueue, Destination, DeviceKind,
    Endpoint, FabricError, Limits, Lkey, MemoryRegion, MultiQueueReceive, MulticastGroup, NotifyOn, Operation,
    ProtectionDomain, Qkey, QpNumber, QueuePair, QueuePairAttributes, QueuePairState, ReceiverNotReadyRetry,
    RemoteMemory, Rkey, ScatterGather, SendFlags, SharedReceiveQueue, SharedReceiveQueueAttributes, SrqNumber,
    Transition, Translation, Transport, WcStatus, WorkCompletion, WriteOrder, XrcDomain,
};

use super::wire::{Wire, fields, malformed, variants};

impl Wire for SlabKey {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_bits().put(out);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        u64::take(from).map(Self::from_bits)
    }
}

impl Wire for Endpoint {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_bytes().into_boxed_slice().put(out);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        Self::parse(&<Box<[u8]>>::take(from)?).map_err(|why| malformed(&why.to_string()))
    }
}

fields! { ProtectionDomain { 0 } }
fields! { CompletionQueue { 0 } }
fields! { SharedReceiveQueue { 0 } }
fields! { QueuePair { 0 } }
fields! { XrcDomain { 0 } }
fields! { AddressHandle { 0 } }
fields! { MultiQueueReceive { 0 } }
fields! { Lkey { 0 } }
fields! { Rkey { 0 } }
fields! { QpNumber { 0 } }
fields! { SrqNumber { 0 } }
fields! { Qkey { 0 } }
fields! { MulticastGroup { 0 } }
fields! { Access { remote_read, remote_write, remote_atomic } }
fields! { MemoryRegion { address, len_bytes, lkey, rkey } }
fields! { ScatterGather { address, len_bytes, lkey } }
fields! { RemoteMemory { address, rkey } }
fields! { SendFlags { signalled, fence, solicited, unhurried } }
fields! { WorkCompletion { id, status, opcode, bytes, immediate, qp, source } }
fields! { SharedReceiveQueueAttributes { protection_domain, depth, entries_max, xrc } }
fields! {
    QueuePairAttributes {
        transport, protection_domain, send_completions, receive_completions, shared_receives, send_depth,
        receive_depth, send_entries_max, receive_entries_max, inline_max_bytes, independent_queues
    }
}
fields! {
    Capabilities {
        kind, description, reliable_connections, xrc, datagrams, multicast, atomics, completion_descriptor,
        multi_queue_receives, independent_queues, mapped_memory, translation, asynchronous, single_copy, write_order,
        writes_wake, limits
    }
}
fields! {
    Limits {
        queue_pairs_max, completion_queues_max, shared_receive_queues_max, protection_domains_max, memory_regions_max,
        address_handles_max, send_depth_max, receive_depth_max, completion_depth_max, scatter_gather_max,
        inline_max_bytes, message_max_bytes, datagram_max_bytes, datagram_header_bytes, memory_region_max_bytes,
        reads_in_flight_max, multi_queue_max, queue_pair_full_bytes, peer_full_bytes
    }
}

variants! { NotifyOn { 0 => Any, 1 => Solicited, } }
variants! { Translation { 0 => Checked, 1 => Pinned, 2 => Unchecked, } }
variants! { WriteOrder { 0 => Unknown, 1 => ByWrite, 2 => ByWord, } }
variants! { DeviceKind { 0 => Loopback, 1 => Shm, 2 => Tcp, 3 => Sim, 4 => Verbs, } }
variants! { ReceiverNotReadyRetry { 0 => Count(times), 1 => Forever, } }
variants! {
    Transport { 0 => ReliableConnection, 1 => XrcInitiator, 2 => XrcTarget(domain), 3 => UnreliableDatagram, }
}
variants! {
    QueuePairState {
        0 => Reset,
        1 => Init,
        2 => ReadyToReceive,
        3 => ReadyToSend,
        4 => SendQueueDrained,
        5 => Error,
    }
}
variants! {
    Transition {
        0 => Reset,
        1 => Init { access, qkey },
        2 => ReadyToReceive { remote, receiver_not_ready_timer },
        3 => ReadyToSend { timeout, retry_count, receiver_not_ready_retry },
        4 => Resume,
        5 => Drain,
        6 => Error,
    }
}
variants! {
    Operation {
        0 => Send,
        1 => SendWithImmediate(value),
        2 => RdmaWrite(remote),
        3 => RdmaWriteWithImmediate(remote, value),
        4 => RdmaRead(remote),
        5 => FetchAdd { remote, add },
        6 => CompareSwap { remote, compare, swap },
    }
}
variants! {
    Destination { 0 => Connected, 1 => SharedReceiveQueue(number), 2 => Datagram { address, qp, qkey }, }
}
variants! {
    CompletionOpcode {
        0 => Send,
        1 => RdmaWrite,
        2 => RdmaRead,
        3 => FetchAdd,
        4 => CompareSwap,
        5 => Receive,
        6 => ReceiveRdmaWithImmediate,
    }
}
variants! {
    WcStatus {
        0 => Success,
        1 => LocalLengthError,
        2 => LocalQueuePairOperationError,
        3 => LocalProtectionError,
        4 => WorkRequestFlushed,
        5 => BadResponse,
        6 => LocalAccessError,
        7 => RemoteInvalidRequest,
        8 => RemoteAccessError,
        9 => RemoteOperationError,
        10 => TransportRetryExceeded,
        11 => ReceiverNotReadyRetryExceeded,
        12 => GeneralError,
    }
}
variants! {
    AsynchronousEvent {
        0 => QueuePairError(qp),
        1 => CompletionQueueOverrun(queue),
        2 => ReceiveLimitReached(queue),
        3 => DeviceFatal,
        4 => GroupLost(group),
    }
}
variants! {
    FabricError {
        0 => Exhausted { object, max },
        1 => NoSuch(object),
        2 => NoSuchPeer(peer),
        3 => InUse { object, by },
        4 => BeyondLimit { what, asked, max },
        5 => InvalidState { operation, state },
        6 => InvalidRequest { operation, reason },
        7 => Unsupported { operation, reason },
        8 => CompletionQueueOverrun { depth },
        9 => BadEndpoint(why),
        10 => System { operation, reason },
    }
}
