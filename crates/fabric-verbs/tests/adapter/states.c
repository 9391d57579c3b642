/* States of queue pairs: which step needs and allows which attributes, and what these may be. */
#include "adapter.h"

enum {
    type_rc = 1,
    type_ud = 2,
    type_initiator = 4,
    type_target = 8,
    connected = type_rc | type_initiator | type_target,
    path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
    answering = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    asking = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
};

/* The steps of the specification, without alternate paths; to RESET and ERR leads any state. */
static const struct step {
    enum ibv_qp_state from, to;
    int types, needed, allowed;
} steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, connected, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, type_ud, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, connected, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_INIT, type_ud, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, type_rc | type_target, path | answering, IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR, type_initiator, path, IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR, type_ud, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, type_rc, IBV_QP_SQ_PSN | asking, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS, type_initiator, IBV_QP_SQ_PSN | asking, IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_RTR, IBV_QPS_RTS, type_target, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT,
     IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTR, IBV_QPS_RTS, type_ud, IBV_QP_SQ_PSN, IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, connected, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, type_ud, 0, IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_SQD, connected | type_ud, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, connected, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_RTS, type_ud, 0, IBV_QP_QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, type_ud, 0, IBV_QP_QKEY},
};

static int type_of(const struct pair *pair)
{
    switch (pair->qp.qp_type) {
    case IBV_QPT_RC:
        return type_rc;
    case IBV_QPT_UD:
        return type_ud;
    default:
        return pair->qp.qp_type == IBV_QPT_XRC_SEND ? type_initiator : type_target;
    }
}

static int check_mask(const struct pair *pair, enum ibv_qp_state to, int mask, const char *call)
{
    enum ibv_qp_state from = pair->qp.state;
    int needed = 0, allowed = 0, is_step = to == IBV_QPS_RESET || to == IBV_QPS_ERR;
    for (size_t at = 0; at < sizeof steps / sizeof *steps && !is_step; at++)
        if (steps[at].from == from && steps[at].to == to && steps[at].types & type_of(pair)) {
            needed = steps[at].needed;
            allowed = steps[at].allowed;
            is_step = 1;
        }
    if (!is_step)
        return refused(EINVAL, call, "no step leads from state %d to %d", (int)from, (int)to);
    if ((mask & needed) != needed)
        return refused(EINVAL, call, "from state %d to %d mask %#x lacks %#x (type %d)", (int)from, (int)to,
                       (unsigned)mask, (unsigned)(needed & ~mask), (int)pair->qp.qp_type);
    mask &= ~(needed | allowed | IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (mask)
        return refused(EINVAL, call, "from state %d to %d the mask must not have %#x (type %d)", (int)from, (int)to,
                       (unsigned)mask, (int)pair->qp.qp_type);
    return 0;
}

/* An attribute that the mask names, and the most it may be. */
static int within(int mask, int bit, const char *name, uint32_t value, uint32_t max)
{
    if (!(mask & bit) || value <= max)
        return 0;
    return refused(EINVAL, "ibv_modify_qp", "%s %u, of %u", name, value, max);
}

static int check_values(const struct ibv_qp_attr *attr, int mask, const char *call)
{
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (settings.atomics)
        rights |= IBV_ACCESS_REMOTE_ATOMIC;
    if (mask & IBV_QP_ACCESS_FLAGS && attr->qp_access_flags & ~(unsigned)rights)
        return refused(EINVAL, call, "access flags %#x", attr->qp_access_flags);
    if (mask & IBV_QP_PORT && attr->port_num != 1)
        return refused(EINVAL, call, "port %d", attr->port_num);
    if (mask & IBV_QP_PKEY_INDEX && !partition_at(attr->pkey_index))
        return refused(EINVAL, call, "no partition at %d", attr->pkey_index);
    if (mask & IBV_QP_PATH_MTU && attr->path_mtu < IBV_MTU_256)
        return refused(EINVAL, call, "path MTU %d", (int)attr->path_mtu);
    if (mask & IBV_QP_AV && check_way(&attr->ah_attr, call))
        return EINVAL;
    if (within(mask, IBV_QP_PATH_MTU, "path MTU", attr->path_mtu, IBV_MTU_4096) ||
        within(mask, IBV_QP_DEST_QPN, "queue pair number", attr->dest_qp_num, number_max) ||
        within(mask, IBV_QP_RQ_PSN, "sequence number", attr->rq_psn, number_max) ||
        within(mask, IBV_QP_SQ_PSN, "sequence number", attr->sq_psn, number_max) ||
        within(mask, IBV_QP_MAX_DEST_RD_ATOMIC, "reads answered", attr->max_dest_rd_atomic, outstanding_max) ||
        within(mask, IBV_QP_MAX_QP_RD_ATOMIC, "reads under way", attr->max_rd_atomic, outstanding_max) ||
        within(mask, IBV_QP_MIN_RNR_TIMER, "timer", attr->min_rnr_timer, 31) ||
        within(mask, IBV_QP_TIMEOUT, "timeout", attr->timeout, 31) ||
        within(mask, IBV_QP_RETRY_CNT, "retries", attr->retry_cnt, 7) ||
        within(mask, IBV_QP_RNR_RETRY, "retries", attr->rnr_retry, 7))
        return EINVAL;
    return 0;
}

static void take(struct pair *pair, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *ours = &pair->attr;
#define TAKE(bit, field) \
    if (mask & (bit)) \
    ours->field = attr->field
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index);
    TAKE(IBV_QP_PORT, port_num);
    TAKE(IBV_QP_QKEY, qkey);
    TAKE(IBV_QP_AV, ah_attr);
    TAKE(IBV_QP_PATH_MTU, path_mtu);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num);
    TAKE(IBV_QP_RQ_PSN, rq_psn);
    TAKE(IBV_QP_SQ_PSN, sq_psn);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    TAKE(IBV_QP_TIMEOUT, timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry);
#undef TAKE
    if (mask & IBV_QP_RQ_PSN)
        pair->next_expected = attr->rq_psn;
    if (mask & IBV_QP_SQ_PSN)
        pair->next_sent = attr->sq_psn;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    ONE_AT_A_TIME;
    struct pair *pair = (struct pair *)qp;
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
    if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state)
        return REFUSE(EINVAL, "it is in state %d and not %d", (int)qp->state, (int)attr->cur_qp_state);
    int code = check_mask(pair, to, mask, __func__);
    if (!code)
        code = check_values(attr, mask, __func__);
    if (code)
        return code;
    take(pair, attr, mask);
    if (to == IBV_QPS_RESET)
        clear(pair);
    if (to == IBV_QPS_ERR)
        fail(pair);
    qp->state = to;
    carry_on();
    return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    ONE_AT_A_TIME;
    (void)mask;
    const struct pair *pair = (struct pair *)qp;
    *attr = pair->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->cap = pair->cap;
    *init = (struct ibv_qp_init_attr){qp->qp_context, qp->send_cq, qp->recv_cq, qp->srq, pair->cap, qp->qp_type,
                                      pair->signals_all};
    return 0;
}
