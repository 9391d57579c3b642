//! The header's enumerations, as the integers that cross the border.
//!
//! They are constants and no Rust enums, because what a library newer than this file returns must not be undefined
//! behaviour here.

use std::ffi::{c_int, c_uint};

/// `ibv_transport_type`: InfiniBand and RoCE.
pub const TRANSPORT_IB: c_int = 0;

/// `ibv_port_state`: traffic may flow.
pub const PORT_ACTIVE: c_uint = 4;

/// `link_layer` of a port: an InfiniBand fabric with local identifiers.
pub const LINK_LAYER_INFINIBAND: u8 = 1;
/// `link_layer` of a port: Ethernet, that is RoCE.
pub const LINK_LAYER_ETHERNET: u8 = 2;

/// `ibv_device_cap_flags`: extended reliable connections.
pub const DEVICE_XRC: c_uint = 1 << 20;
/// `ibv_atomic_cap`: no atomic operations.
pub const ATOMIC_NONE: c_uint = 0;

/// `ibv_gid_entry::gid_type`: an InfiniBand GID.
pub const GID_TYPE_IB: u32 = 0;
/// `ibv_gid_entry::gid_type`: RoCE over Ethernet frames.
pub const GID_TYPE_ROCE_V1: u32 = 1;
/// `ibv_gid_entry::gid_type`: RoCE over UDP.
pub const GID_TYPE_ROCE_V2: u32 = 2;

/// `ibv_qp_type`: reliable connection.
pub const QPT_RC: c_uint = 2;
/// `ibv_qp_type`: unreliable datagram.
pub const QPT_UD: c_uint = 4;
/// `ibv_qp_type`: initiator of an extended reliable connection.
pub const QPT_XRC_SEND: c_uint = 9;
/// `ibv_qp_type`: target of an extended reliable connection.
pub const QPT_XRC_RECV: c_uint = 10;

/// `ibv_qp_state`: new, or cleared.
pub const QPS_RESET: c_uint = 0;
/// `ibv_qp_state`: receives may be posted.
pub const QPS_INIT: c_uint = 1;
/// `ibv_qp_state`: ready to receive.
pub const QPS_RTR: c_uint = 2;
/// `ibv_qp_state`: ready to send.
pub const QPS_RTS: c_uint = 3;
/// `ibv_qp_state`: the send queue drains.
pub const QPS_SQD: c_uint = 4;
/// `ibv_qp_state`: the send queue failed.
pub const QPS_SQE: c_uint = 5;
/// `ibv_qp_state`: failed; everything is flushed.
pub const QPS_ERR: c_uint = 6;

/// `ibv_qp_attr_mask`.
pub mod qp_attr {
    use super::c_int;

    pub const STATE: c_int = 1;
    pub const ACCESS_FLAGS: c_int = 1 << 3;
    pub const PKEY_INDEX: c_int = 1 << 4;
    pub const PORT: c_int = 1 << 5;
    pub const QKEY: c_int = 1 << 6;
    pub const AV: c_int = 1 << 7;
    pub const PATH_MTU: c_int = 1 << 8;
    pub const TIMEOUT: c_int = 1 << 9;
    pub const RETRY_CNT: c_int = 1 << 10;
    pub const RNR_RETRY: c_int = 1 << 11;
    pub const RQ_PSN: c_int = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: c_int = 1 << 13;
    pub const MIN_RNR_TIMER: c_int = 1 << 15;
    pub const SQ_PSN: c_int = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
    pub const DEST_QPN: c_int = 1 << 20;
}

/// `ibv_wr_opcode`.
pub mod wr {
    use super::c_uint;

    pub const RDMA_WRITE: c_uint = 0;
    pub const RDMA_WRITE_WITH_IMM: c_uint = 1;
    pub const SEND: c_uint = 2;
    pub const SEND_WITH_IMM: c_uint = 3;
    pub const RDMA_READ: c_uint = 4;
    pub const ATOMIC_CMP_AND_SWP: c_uint = 5;
    pub const ATOMIC_FETCH_AND_ADD: c_uint = 6;
}

/// `ibv_send_flags`.
pub mod send {
    use super::c_uint;

    pub const FENCE: c_uint = 1;
    pub const SIGNALED: c_uint = 1 << 1;
    pub const SOLICITED: c_uint = 1 << 2;
    pub const INLINE: c_uint = 1 << 3;
}

/// `ibv_wc_status`.
pub mod wc_status {
    use super::c_uint;

    pub const SUCCESS: c_uint = 0;
    pub const LOC_LEN_ERR: c_uint = 1;
    pub const LOC_QP_OP_ERR: c_uint = 2;
    pub const LOC_PROT_ERR: c_uint = 4;
    pub const WR_FLUSH_ERR: c_uint = 5;
    pub const BAD_RESP_ERR: c_uint = 7;
    pub const LOC_ACCESS_ERR: c_uint = 8;
    pub const REM_INV_REQ_ERR: c_uint = 9;
    pub const REM_ACCESS_ERR: c_uint = 10;
    pub const REM_OP_ERR: c_uint = 11;
    pub const RETRY_EXC_ERR: c_uint = 12;
    pub const RNR_RETRY_EXC_ERR: c_uint = 13;
    pub const REM_ABORT_ERR: c_uint = 16;
    pub const FATAL_ERR: c_uint = 19;
    pub const RESP_TIMEOUT_ERR: c_uint = 20;
    pub const GENERAL_ERR: c_uint = 21;
}

/// `ibv_wc_opcode`.
pub mod wc {
    use super::c_uint;

    pub const SEND: c_uint = 0;
    pub const RDMA_WRITE: c_uint = 1;
    pub const RDMA_READ: c_uint = 2;
    pub const COMP_SWAP: c_uint = 3;
    pub const FETCH_ADD: c_uint = 4;
    pub const RECV: c_uint = 1 << 7;
    pub const RECV_RDMA_WITH_IMM: c_uint = (1 << 7) + 1;
}

/// `ibv_wc_flags`: the completion of a datagram has a global route header in front of its payload.
pub const WC_GRH: c_uint = 1;
/// `ibv_wc_flags`: `imm_data` holds immediate data.
pub const WC_WITH_IMM: c_uint = 2;

/// `ibv_access_flags`.
pub mod access {
    use super::c_int;

    pub const LOCAL_WRITE: c_int = 1;
    pub const REMOTE_WRITE: c_int = 1 << 1;
    pub const REMOTE_READ: c_int = 1 << 2;
    pub const REMOTE_ATOMIC: c_int = 1 << 3;
}

/// `ibv_srq_attr_mask`: arm the limit event.
pub const SRQ_LIMIT: c_int = 1 << 1;

/// `ibv_srq_init_attr_mask` and `ibv_srq_type` for extended reliable connections.
pub mod srq_init {
    use super::c_uint;

    pub const TYPE: u32 = 1;
    pub const PD: u32 = 1 << 1;
    pub const XRCD: u32 = 1 << 2;
    pub const CQ: u32 = 1 << 3;
    pub const TYPE_XRC: c_uint = 1;
}

/// `ibv_qp_init_attr_mask`.
pub mod qp_init {
    pub const PD: u32 = 1;
    pub const XRCD: u32 = 1 << 1;
}

/// `ibv_xrcd_init_attr_mask`.
pub mod xrcd_init {
    pub const FD: u32 = 1;
    pub const OFLAGS: u32 = 1 << 1;
}

/// `ibv_event_type`.
pub mod event {
    use super::c_uint;

    pub const CQ_ERR: c_uint = 0;
    pub const QP_FATAL: c_uint = 1;
    pub const QP_REQ_ERR: c_uint = 2;
    pub const QP_ACCESS_ERR: c_uint = 3;
    pub const DEVICE_FATAL: c_uint = 8;
    pub const SRQ_LIMIT_REACHED: c_uint = 15;
}
