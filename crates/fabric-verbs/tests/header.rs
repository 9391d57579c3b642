//! Our declarations against the headers installed here: a C program prints what the compiler makes of it.

use fabric_verbs::ffi::numbers::{self, access, event, qp_attr, qp_init, send, srq_init, wc, wc_status, wr, xrcd_init};
use fabric_verbs::ffi::rdma_cm::{self, RdmaCmEvent, RdmaCmId, RdmaCmJoinMcAttrEx, RdmaEventChannel, RdmaRoute};
use fabric_verbs::ffi::rdma_cm::{RdmaUdParam, cm_event, join};
use fabric_verbs::ffi::*;
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// A C expression and the value that we believe it to have.
type Belief = (String, i64);

/// Offsets of fields that have the header's own names.
macro_rules! offsets {
    ($beliefs:ident, $ours:ident, $theirs:literal, $($field:ident),+) => {
        $($beliefs.push((
            format!("offsetof({}, {})", $theirs, stringify!($field)),
            i64::try_from(offset_of!($ours, $field)).expect("small"),
        ));)+
    };
}

/// The offset of one field that lies in an unnamed or nested part there.
macro_rules! nested {
    ($beliefs:ident, $theirs:literal, $($ours:tt)+) => {
        $beliefs.push((format!("offsetof({})", $theirs), i64::try_from(offset_of!($($ours)+)).expect("small")))
    };
}

/// Sizes of structures that we declare in full.
macro_rules! sizes {
    ($beliefs:ident, $($ours:ident = $theirs:literal),+) => {
        $($beliefs.push((format!("sizeof({})", $theirs), i64::try_from(size_of::<$ours>()).expect("small")));)+
    };
}

fn beliefs() -> Vec<Belief> {
    let mut beliefs = Vec::new();
    objects(&mut beliefs);
    attributes(&mut beliefs);
    work(&mut beliefs);
    constants(&mut beliefs);
    groups(&mut beliefs);
    beliefs
}

fn objects(all: &mut Vec<Belief>) {
    offsets!(all, IbvDevice, "struct ibv_device", node_type, transport_type, name);
    offsets!(all, IbvPd, "struct ibv_pd", context);
    offsets!(all, IbvMr, "struct ibv_mr", context, pd, addr, length, handle, lkey, rkey);
    offsets!(all, IbvAh, "struct ibv_ah", context);
    offsets!(all, IbvXrcd, "struct ibv_xrcd", context);
    offsets!(all, IbvCompChannel, "struct ibv_comp_channel", context, fd);
    offsets!(all, IbvCq, "struct ibv_cq", context, channel, cq_context, handle, cqe);
    offsets!(all, IbvSrq, "struct ibv_srq", context);
    offsets!(all, IbvQp, "struct ibv_qp", context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num);
    offsets!(all, IbvContext, "struct ibv_context", device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat);
    offsets!(all, IbvContextOps, "struct ibv_context_ops", poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv);
    sizes!(all, IbvContext = "struct ibv_context", IbvContextOps = "struct ibv_context_ops");
    // The structure grows at its front, so that only distances from its end are fixed.
    let tail = |ours: usize| i64::try_from(offset_of!(VerbsContextTail, context) - ours).expect("small");
    for (field, ours) in [
        ("create_qp_ex", offset_of!(VerbsContextTail, create_qp_ex)),
        ("get_srq_num", offset_of!(VerbsContextTail, get_srq_num)),
        ("create_srq_ex", offset_of!(VerbsContextTail, create_srq_ex)),
        ("open_xrcd", offset_of!(VerbsContextTail, open_xrcd)),
        ("close_xrcd", offset_of!(VerbsContextTail, close_xrcd)),
        ("sz", offset_of!(VerbsContextTail, sz)),
    ] {
        let theirs = format!("offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {field})");
        all.push((theirs, tail(ours)));
    }
}

fn attributes(all: &mut Vec<Belief>) {
    offsets!(all, IbvGidEntry, "struct ibv_gid_entry", gid, gid_index, port_num, gid_type, ndev_ifindex);
    offsets!(all, IbvDeviceAttr, "struct ibv_device_attr", node_guid, max_mr_size, vendor_id, max_qp, max_qp_wr);
    offsets!(all, IbvDeviceAttr, "struct ibv_device_attr", device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe);
    offsets!(all, IbvDeviceAttr, "struct ibv_device_attr", max_mr, max_pd, max_qp_rd_atom, max_qp_init_rd_atom);
    offsets!(all, IbvDeviceAttr, "struct ibv_device_attr", atomic_cap, max_mcast_grp, max_mcast_qp_attach, max_ah);
    offsets!(all, IbvDeviceAttr, "struct ibv_device_attr", max_srq, max_srq_wr, max_srq_sge, max_pkeys);
    offsets!(all, IbvDeviceAttr, "struct ibv_device_attr", local_ca_ack_delay, phys_port_cnt);
    offsets!(all, IbvPortAttr, "struct ibv_port_attr", state, max_mtu, active_mtu, gid_tbl_len, max_msg_sz);
    offsets!(all, IbvPortAttr, "struct ibv_port_attr", pkey_tbl_len, lid, sm_lid, lmc, link_layer, flags);
    offsets!(all, IbvGlobalRoute, "struct ibv_global_route", dgid, flow_label, sgid_index, hop_limit, traffic_class);
    offsets!(all, IbvAhAttr, "struct ibv_ah_attr", grh, dlid, sl, src_path_bits, static_rate, is_global, port_num);
    offsets!(all, IbvSrqAttr, "struct ibv_srq_attr", max_wr, max_sge, srq_limit);
    offsets!(all, IbvSrqInitAttr, "struct ibv_srq_init_attr", srq_context, attr);
    offsets!(all, IbvSrqInitAttrEx, "struct ibv_srq_init_attr_ex", srq_context, attr, comp_mask, srq_type, pd);
    offsets!(all, IbvSrqInitAttrEx, "struct ibv_srq_init_attr_ex", xrcd, cq);
    offsets!(all, IbvQpCap, "struct ibv_qp_cap", max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data);
    offsets!(all, IbvQpInitAttr, "struct ibv_qp_init_attr", qp_context, send_cq, recv_cq, srq, cap, qp_type);
    offsets!(all, IbvQpInitAttr, "struct ibv_qp_init_attr", sq_sig_all);
    offsets!(all, IbvQpInitAttrEx, "struct ibv_qp_init_attr_ex", qp_context, send_cq, recv_cq, srq, cap, qp_type);
    offsets!(all, IbvQpInitAttrEx, "struct ibv_qp_init_attr_ex", sq_sig_all, comp_mask, pd, xrcd, create_flags);
    offsets!(all, IbvQpInitAttrEx, "struct ibv_qp_init_attr_ex", max_tso_header, rwq_ind_tbl, source_qpn);
    offsets!(all, IbvQpInitAttrEx, "struct ibv_qp_init_attr_ex", send_ops_flags);
    offsets!(all, IbvQpAttr, "struct ibv_qp_attr", qp_state, cur_qp_state, path_mtu, qkey, rq_psn, sq_psn, cap);
    offsets!(all, IbvQpAttr, "struct ibv_qp_attr", dest_qp_num, qp_access_flags, ah_attr, alt_ah_attr, pkey_index);
    offsets!(all, IbvQpAttr, "struct ibv_qp_attr", max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num);
    offsets!(all, IbvQpAttr, "struct ibv_qp_attr", timeout, retry_cnt, rnr_retry, alt_timeout, rate_limit);
    offsets!(all, IbvXrcdInitAttr, "struct ibv_xrcd_init_attr", comp_mask, fd, oflags);
    offsets!(all, IbvAsyncEvent, "struct ibv_async_event", element, event_type);
    sizes!(all, IbvGidEntry = "struct ibv_gid_entry", IbvDeviceAttr = "struct ibv_device_attr");
    sizes!(all, IbvPortAttr = "struct ibv_port_attr", IbvGlobalRoute = "struct ibv_global_route");
    sizes!(all, IbvAhAttr = "struct ibv_ah_attr", IbvSrqInitAttr = "struct ibv_srq_init_attr");
    sizes!(all, IbvSrqInitAttrEx = "struct ibv_srq_init_attr_ex", IbvQpInitAttr = "struct ibv_qp_init_attr");
    sizes!(all, IbvQpInitAttrEx = "struct ibv_qp_init_attr_ex", IbvQpAttr = "struct ibv_qp_attr");
    sizes!(all, IbvXrcdInitAttr = "struct ibv_xrcd_init_attr", IbvAsyncEvent = "struct ibv_async_event");
}

fn work(all: &mut Vec<Belief>) {
    offsets!(all, IbvWc, "struct ibv_wc", wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp);
    offsets!(all, IbvWc, "struct ibv_wc", wc_flags, pkey_index, slid, sl, dlid_path_bits);
    offsets!(all, IbvSge, "struct ibv_sge", addr, length, lkey);
    offsets!(all, IbvSendWr, "struct ibv_send_wr", wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr);
    offsets!(all, IbvRecvWr, "struct ibv_recv_wr", wr_id, next, sg_list, num_sge);
    nested!(all, "struct ibv_send_wr, wr.rdma.remote_addr", IbvSendWr, wr.rdma.remote_addr);
    nested!(all, "struct ibv_send_wr, wr.rdma.rkey", IbvSendWr, wr.rdma.rkey);
    nested!(all, "struct ibv_send_wr, wr.atomic.remote_addr", IbvSendWr, wr.atomic.remote_addr);
    nested!(all, "struct ibv_send_wr, wr.atomic.compare_add", IbvSendWr, wr.atomic.compare_add);
    nested!(all, "struct ibv_send_wr, wr.atomic.swap", IbvSendWr, wr.atomic.swap);
    nested!(all, "struct ibv_send_wr, wr.atomic.rkey", IbvSendWr, wr.atomic.rkey);
    nested!(all, "struct ibv_send_wr, wr.ud.ah", IbvSendWr, wr.ud.ah);
    nested!(all, "struct ibv_send_wr, wr.ud.remote_qpn", IbvSendWr, wr.ud.remote_qpn);
    nested!(all, "struct ibv_send_wr, wr.ud.remote_qkey", IbvSendWr, wr.ud.remote_qkey);
    nested!(all, "struct ibv_send_wr, qp_type.xrc.remote_srqn", IbvSendWr, remote_srqn);
    sizes!(all, IbvWc = "struct ibv_wc", IbvSge = "struct ibv_sge");
    sizes!(all, IbvSendWr = "struct ibv_send_wr", IbvRecvWr = "struct ibv_recv_wr");
}

fn constants(all: &mut Vec<Belief>) {
    let mut number = |theirs: &str, ours: i64| all.push((theirs.to_owned(), ours));
    let signed = [
        ("IBV_TRANSPORT_IB", numbers::TRANSPORT_IB),
        ("IBV_ACCESS_LOCAL_WRITE", access::LOCAL_WRITE),
        ("IBV_ACCESS_REMOTE_WRITE", access::REMOTE_WRITE),
        ("IBV_ACCESS_REMOTE_READ", access::REMOTE_READ),
        ("IBV_ACCESS_REMOTE_ATOMIC", access::REMOTE_ATOMIC),
        ("IBV_SRQ_LIMIT", numbers::SRQ_LIMIT),
        ("IBV_QP_STATE", qp_attr::STATE),
        ("IBV_QP_ACCESS_FLAGS", qp_attr::ACCESS_FLAGS),
        ("IBV_QP_PKEY_INDEX", qp_attr::PKEY_INDEX),
        ("IBV_QP_PORT", qp_attr::PORT),
        ("IBV_QP_QKEY", qp_attr::QKEY),
        ("IBV_QP_AV", qp_attr::AV),
        ("IBV_QP_PATH_MTU", qp_attr::PATH_MTU),
        ("IBV_QP_TIMEOUT", qp_attr::TIMEOUT),
        ("IBV_QP_RETRY_CNT", qp_attr::RETRY_CNT),
        ("IBV_QP_RNR_RETRY", qp_attr::RNR_RETRY),
        ("IBV_QP_RQ_PSN", qp_attr::RQ_PSN),
        ("IBV_QP_MAX_QP_RD_ATOMIC", qp_attr::MAX_QP_RD_ATOMIC),
        ("IBV_QP_MIN_RNR_TIMER", qp_attr::MIN_RNR_TIMER),
        ("IBV_QP_SQ_PSN", qp_attr::SQ_PSN),
        ("IBV_QP_MAX_DEST_RD_ATOMIC", qp_attr::MAX_DEST_RD_ATOMIC),
        ("IBV_QP_DEST_QPN", qp_attr::DEST_QPN),
    ];
    signed.iter().for_each(|&(theirs, ours)| number(theirs, ours.into()));
    let unsigned = [
        ("IBV_PORT_ACTIVE", numbers::PORT_ACTIVE),
        ("IBV_LINK_LAYER_INFINIBAND", numbers::LINK_LAYER_INFINIBAND.into()),
        ("IBV_LINK_LAYER_ETHERNET", numbers::LINK_LAYER_ETHERNET.into()),
        ("IBV_DEVICE_XRC", numbers::DEVICE_XRC),
        ("IBV_ATOMIC_NONE", numbers::ATOMIC_NONE),
        ("IBV_GID_TYPE_IB", numbers::GID_TYPE_IB),
        ("IBV_GID_TYPE_ROCE_V1", numbers::GID_TYPE_ROCE_V1),
        ("IBV_GID_TYPE_ROCE_V2", numbers::GID_TYPE_ROCE_V2),
        ("IBV_QPT_RC", numbers::QPT_RC),
        ("IBV_QPT_UD", numbers::QPT_UD),
        ("IBV_QPT_XRC_SEND", numbers::QPT_XRC_SEND),
        ("IBV_QPT_XRC_RECV", numbers::QPT_XRC_RECV),
        ("IBV_QPS_RESET", numbers::QPS_RESET),
        ("IBV_QPS_INIT", numbers::QPS_INIT),
        ("IBV_QPS_RTR", numbers::QPS_RTR),
        ("IBV_QPS_RTS", numbers::QPS_RTS),
        ("IBV_QPS_SQD", numbers::QPS_SQD),
        ("IBV_QPS_SQE", numbers::QPS_SQE),
        ("IBV_QPS_ERR", numbers::QPS_ERR),
        ("IBV_WR_RDMA_WRITE", wr::RDMA_WRITE),
        ("IBV_WR_RDMA_WRITE_WITH_IMM", wr::RDMA_WRITE_WITH_IMM),
        ("IBV_WR_SEND", wr::SEND),
        ("IBV_WR_SEND_WITH_IMM", wr::SEND_WITH_IMM),
        ("IBV_WR_RDMA_READ", wr::RDMA_READ),
        ("IBV_WR_ATOMIC_CMP_AND_SWP", wr::ATOMIC_CMP_AND_SWP),
        ("IBV_WR_ATOMIC_FETCH_AND_ADD", wr::ATOMIC_FETCH_AND_ADD),
        ("IBV_SEND_FENCE", send::FENCE),
        ("IBV_SEND_SIGNALED", send::SIGNALED),
        ("IBV_SEND_SOLICITED", send::SOLICITED),
        ("IBV_SEND_INLINE", send::INLINE),
        ("IBV_WC_SUCCESS", wc_status::SUCCESS),
        ("IBV_WC_LOC_LEN_ERR", wc_status::LOC_LEN_ERR),
        ("IBV_WC_LOC_QP_OP_ERR", wc_status::LOC_QP_OP_ERR),
        ("IBV_WC_LOC_PROT_ERR", wc_status::LOC_PROT_ERR),
        ("IBV_WC_WR_FLUSH_ERR", wc_status::WR_FLUSH_ERR),
        ("IBV_WC_BAD_RESP_ERR", wc_status::BAD_RESP_ERR),
        ("IBV_WC_LOC_ACCESS_ERR", wc_status::LOC_ACCESS_ERR),
        ("IBV_WC_REM_INV_REQ_ERR", wc_status::REM_INV_REQ_ERR),
        ("IBV_WC_REM_ACCESS_ERR", wc_status::REM_ACCESS_ERR),
        ("IBV_WC_REM_OP_ERR", wc_status::REM_OP_ERR),
        ("IBV_WC_RETRY_EXC_ERR", wc_status::RETRY_EXC_ERR),
        ("IBV_WC_RNR_RETRY_EXC_ERR", wc_status::RNR_RETRY_EXC_ERR),
        ("IBV_WC_REM_ABORT_ERR", wc_status::REM_ABORT_ERR),
        ("IBV_WC_FATAL_ERR", wc_status::FATAL_ERR),
        ("IBV_WC_RESP_TIMEOUT_ERR", wc_status::RESP_TIMEOUT_ERR),
        ("IBV_WC_GENERAL_ERR", wc_status::GENERAL_ERR),
        ("IBV_WC_SEND", wc::SEND),
        ("IBV_WC_RDMA_WRITE", wc::RDMA_WRITE),
        ("IBV_WC_RDMA_READ", wc::RDMA_READ),
        ("IBV_WC_COMP_SWAP", wc::COMP_SWAP),
        ("IBV_WC_FETCH_ADD", wc::FETCH_ADD),
        ("IBV_WC_RECV", wc::RECV),
        ("IBV_WC_RECV_RDMA_WITH_IMM", wc::RECV_RDMA_WITH_IMM),
        ("IBV_WC_GRH", numbers::WC_GRH),
        ("IBV_WC_WITH_IMM", numbers::WC_WITH_IMM),
        ("IBV_SRQ_INIT_ATTR_TYPE", srq_init::TYPE),
        ("IBV_SRQ_INIT_ATTR_PD", srq_init::PD),
        ("IBV_SRQ_INIT_ATTR_XRCD", srq_init::XRCD),
        ("IBV_SRQ_INIT_ATTR_CQ", srq_init::CQ),
        ("IBV_SRQT_XRC", srq_init::TYPE_XRC),
        ("IBV_QP_INIT_ATTR_PD", qp_init::PD),
        ("IBV_QP_INIT_ATTR_XRCD", qp_init::XRCD),
        ("IBV_XRCD_INIT_ATTR_FD", xrcd_init::FD),
        ("IBV_XRCD_INIT_ATTR_OFLAGS", xrcd_init::OFLAGS),
        ("IBV_EVENT_CQ_ERR", event::CQ_ERR),
        ("IBV_EVENT_QP_FATAL", event::QP_FATAL),
        ("IBV_EVENT_QP_REQ_ERR", event::QP_REQ_ERR),
        ("IBV_EVENT_QP_ACCESS_ERR", event::QP_ACCESS_ERR),
        ("IBV_EVENT_DEVICE_FATAL", event::DEVICE_FATAL),
        ("IBV_EVENT_SRQ_LIMIT_REACHED", event::SRQ_LIMIT_REACHED),
    ];
    unsigned.iter().for_each(|&(theirs, ours)| number(theirs, ours.into()));
}

/// What lies in `rdma/rdma_cma.h`.
fn groups(all: &mut Vec<Belief>) {
    offsets!(all, RdmaEventChannel, "struct rdma_event_channel", fd);
    offsets!(all, RdmaCmId, "struct rdma_cm_id", verbs, channel, context, qp, route, ps, port_num);
    offsets!(all, RdmaUdParam, "struct rdma_ud_param", private_data, private_data_len, ah_attr, qp_num, qkey);
    offsets!(all, RdmaCmEvent, "struct rdma_cm_event", id, listen_id, event, status);
    nested!(all, "struct rdma_cm_event, param.ud", RdmaCmEvent, ud);
    nested!(all, "struct rdma_cm_event, param.ud.ah_attr", RdmaCmEvent, ud.ah_attr);
    nested!(all, "struct rdma_cm_event, param.ud.qp_num", RdmaCmEvent, ud.qp_num);
    nested!(all, "struct rdma_cm_event, param.ud.qkey", RdmaCmEvent, ud.qkey);
    offsets!(all, RdmaCmJoinMcAttrEx, "struct rdma_cm_join_mc_attr_ex", comp_mask, join_flags, addr);
    sizes!(all, RdmaRoute = "struct rdma_route", RdmaUdParam = "struct rdma_ud_param");
    sizes!(all, RdmaCmEvent = "struct rdma_cm_event", RdmaCmJoinMcAttrEx = "struct rdma_cm_join_mc_attr_ex");
    let constants = [
        ("RDMA_PS_UDP", rdma_cm::PS_UDP),
        ("RDMA_CM_EVENT_DEVICE_REMOVAL", cm_event::DEVICE_REMOVAL),
        ("RDMA_CM_EVENT_MULTICAST_JOIN", cm_event::MULTICAST_JOIN),
        ("RDMA_CM_EVENT_MULTICAST_ERROR", cm_event::MULTICAST_ERROR),
        ("RDMA_CM_JOIN_MC_ATTR_ADDRESS", join::ADDRESS),
        ("RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS", join::JOIN_FLAGS),
        ("RDMA_MC_JOIN_FLAG_FULLMEMBER", join::FULL_MEMBER),
        ("RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER", join::SEND_ONLY_FULL_MEMBER),
    ];
    all.extend(constants.iter().map(|&(theirs, ours)| (theirs.to_owned(), ours.into())));
}

/// What the C compiler says of each expression, or why it cannot be asked.
fn asked(expressions: &[&str]) -> Result<Vec<i64>, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut program = String::new();
    for header in ["stdio.h", "stddef.h", "infiniband/verbs.h", "rdma/rdma_cma.h"] {
        writeln!(program, "#include <{header}>").expect("writing to a string");
    }
    let probe = folder.path().join("probe.c");
    let compile = |text: &str| {
        std::fs::write(&probe, text).expect("the temporary folder can be written");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        Command::new(compiler).arg(&probe).arg("-o").arg(folder.path().join("probe")).output()
    };
    let trial = compile(&format!("{program}int main(void) {{ return 0; }}\n"))
        .map_err(|error| format!("no C compiler: {error}"))?;
    if !trial.status.success() {
        let missing = "infiniband/verbs.h or rdma/rdma_cma.h is not installed (packages libibverbs-dev, librdmacm-dev)";
        return Err(missing.to_owned());
    }
    program.push_str("int main(void) {\n");
    for expression in expressions {
        writeln!(program, "printf(\"%lld\\n\", (long long)({expression}));").expect("writing to a string");
    }
    program.push_str("return 0; }\n");
    let compiled = compile(&program).expect("it has just been started");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(folder.path().join("probe")).output().expect("it has just been built");
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(|line| line.parse().expect("a number")).collect())
}

#[test]
fn declarations_agree_with_the_installed_headers() {
    let beliefs = beliefs();
    let expressions: Vec<&str> = beliefs.iter().map(|(expression, _)| expression.as_str()).collect();
    match asked(&expressions) {
        Err(why) => println!("skipped: {why}"),
        Ok(values) => {
            assert_eq!(values.len(), beliefs.len());
            let wrong: Vec<_> = beliefs.iter().zip(&values).filter(|((_, ours), theirs)| ours != *theirs).collect();
            assert!(wrong.is_empty(), "(expression, ours), the headers': {wrong:#?}");
        }
    }
}
