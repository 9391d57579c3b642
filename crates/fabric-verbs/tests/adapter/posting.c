/* Requests: what a driver takes. */
#include "adapter.h"

static int is_atomic(enum ibv_wr_opcode opcode)
{
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int check_opcode(const struct pair *pair, const struct ibv_send_wr *wr, const char *call)
{
    switch (wr->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        return 0;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        if (settings.atomics)
            break;
        return refused(EOPNOTSUPP, call, "there are no atomic operations");
    default:
        return refused(EOPNOTSUPP, call, "operation %d", (int)wr->opcode);
    }
    return pair->qp.qp_type == IBV_QPT_UD ? refused(EINVAL, call, "datagrams only send") : 0;
}

static int check_datagram(const struct pair *pair, const struct ibv_send_wr *wr, uint64_t length, const char *call)
{
    if (!wr->wr.ud.ah || wr->wr.ud.ah->pd != pair->qp.pd)
        return refused(EINVAL, call, "a datagram needs an address handle of its protection domain");
    if (wr->wr.ud.remote_qpn > number_max)
        return refused(EINVAL, call, "queue pair number %#x", wr->wr.ud.remote_qpn);
    if (length > 128u << IBV_MTU_4096)
        return refused(EINVAL, call, "a datagram of %llu bytes", (unsigned long long)length);
    return 0;
}

static int check(const struct pair *pair, const struct ibv_send_wr *wr, uint64_t *length, const char *call)
{
    const unsigned known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    if (pair->posted - pair->over >= pair->cap.max_send_wr)
        return refused(ENOMEM, call, "the queue holds %u sends whose completions were not polled",
                       pair->cap.max_send_wr);
    if (wr->num_sge < 0 || (unsigned)wr->num_sge > pair->cap.max_send_sge)
        return refused(EINVAL, call, "a list of %d entries, of %u", wr->num_sge, pair->cap.max_send_sge);
    if (wr->send_flags & ~known)
        return refused(EINVAL, call, "flags %#x", wr->send_flags);
    if (check_opcode(pair, wr, call))
        return EINVAL;
    for (int at = 0; at < wr->num_sge; at++)
        *length += wr->sg_list[at].length;
    int returns = wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr->opcode);
    if (wr->send_flags & IBV_SEND_INLINE && (returns || *length > pair->cap.max_inline_data))
        return refused(EINVAL, call, "operation %d with %llu bytes inline, of %u", (int)wr->opcode,
                       (unsigned long long)*length, pair->cap.max_inline_data);
    if (is_atomic(wr->opcode) && *length != 8)
        return refused(EINVAL, call, "an atomic operation brings back 8 bytes and not %llu",
                       (unsigned long long)*length);
    if (pair->qp.qp_type == IBV_QPT_XRC_SEND && wr->qp_type.xrc.remote_srqn > number_max)
        return refused(EINVAL, call, "shared queue number %#x", wr->qp_type.xrc.remote_srqn);
    return pair->qp.qp_type == IBV_QPT_UD ? check_datagram(pair, wr, *length, call) : 0;
}

static void take(struct pair *pair, const struct ibv_send_wr *wr, uint64_t length)
{
    struct send *send = &pair->sends[pair->posted++ % pair->cap.max_send_wr];
    *send = (struct send){.wr = *wr, .length = length};
    if (wr->num_sge)
        memcpy(send->list, wr->sg_list, (size_t)wr->num_sge * sizeof *send->list);
    send->wr.sg_list = NULL;
    send->wr.next = NULL;
    if (pair->qp.qp_type == IBV_QPT_UD) {
        send->way = ((struct way *)wr->wr.ud.ah)->attr;
        send->wr.wr.ud.ah = NULL;
    }
    if (wr->send_flags & IBV_SEND_INLINE) {
        /* Taken now: the caller may change it at once. */
        uint8_t *into = send->bytes = made(length + 1);
        for (int at = 0; at < wr->num_sge; at++) {
            memcpy(into, (void *)(uintptr_t)wr->sg_list[at].addr, wr->sg_list[at].length);
            into += wr->sg_list[at].length;
        }
    }
}

int post_sends(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    ONE_AT_A_TIME;
    struct pair *pair = (struct pair *)qp;
    int code = 0;
    *bad = wr;
    if (qp->qp_type == IBV_QPT_XRC_RECV)
        return REFUSE(EINVAL, "an XRC target does not send");
    if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR)
        return REFUSE(EINVAL, "in state %d", (int)qp->state);
    for (; wr && !code; wr = wr->next) {
        uint64_t length = 0;
        *bad = wr;
        code = check(pair, wr, &length, __func__);
        if (!code)
            take(pair, wr, length);
    }
    carry_on();
    return code;
}

int post_receives(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    ONE_AT_A_TIME;
    struct pair *pair = (struct pair *)qp;
    *bad = wr;
    if (qp->srq || qp->qp_type == IBV_QPT_XRC_SEND || qp->qp_type == IBV_QPT_XRC_RECV)
        return REFUSE(EINVAL, "it has no receive queue of its own");
    if (qp->state == IBV_QPS_RESET)
        return REFUSE(EINVAL, "in state %d", (int)qp->state);
    int code = receives_post(&pair->receives, wr, bad, __func__);
    carry_on();
    return code;
}
