//! The library's numbers for how requests end, in our words.

use crate::ffi::numbers::{wc, wc_status};
use fabric::{CompletionOpcode, WcStatus};
use std::ffi::c_uint;

/// How a request ended.
pub(crate) fn status(number: c_uint) -> WcStatus {
    match number {
        wc_status::SUCCESS => WcStatus::Success,
        wc_status::LOC_LEN_ERR => WcStatus::LocalLengthError,
        wc_status::LOC_QP_OP_ERR => WcStatus::LocalQueuePairOperationError,
        wc_status::LOC_PROT_ERR => WcStatus::LocalProtectionError,
        wc_status::WR_FLUSH_ERR => WcStatus::WorkRequestFlushed,
        wc_status::BAD_RESP_ERR => WcStatus::BadResponse,
        wc_status::LOC_ACCESS_ERR => WcStatus::LocalAccessError,
        wc_status::REM_INV_REQ_ERR => WcStatus::RemoteInvalidRequest,
        wc_status::REM_ACCESS_ERR => WcStatus::RemoteAccessError,
        wc_status::REM_OP_ERR | wc_status::REM_ABORT_ERR => WcStatus::RemoteOperationError,
        wc_status::RETRY_EXC_ERR | wc_status::RESP_TIMEOUT_ERR => WcStatus::TransportRetryExceeded,
        wc_status::RNR_RETRY_EXC_ERR => WcStatus::ReceiverNotReadyRetryExceeded,
        _ => WcStatus::GeneralError,
    }
}

/// What a receive was filled by.
pub(crate) fn receive_opcode(number: c_uint) -> CompletionOpcode {
    match number {
        wc::RECV_RDMA_WITH_IMM => CompletionOpcode::ReceiveRdmaWithImmediate,
        _ => CompletionOpcode::Receive,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_header_has_a_word_and_only_zero_is_a_success() {
        assert_eq!(status(0), WcStatus::Success);
        assert!((1..64).all(|number| status(number) != WcStatus::Success));
        assert_eq!(status(5), WcStatus::WorkRequestFlushed);
        assert_eq!(status(10), WcStatus::RemoteAccessError);
        assert_eq!(status(u32::MAX), WcStatus::GeneralError);
    }
}
