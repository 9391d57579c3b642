/* Queue pairs: made, destroyed, members of groups. */
#include "adapter.h"

struct pair *pairs;
static uint32_t last_number = 0x100;

struct membership {
    struct membership *next;
    const struct pair *pair;
    union ibv_gid group;
};
static struct membership *memberships;

struct pair *pair_of_number(uint32_t number)
{
    struct pair *pair = pairs;
    while (pair && pair->qp.qp_num != number)
        pair = pair->next;
    return pair;
}

static void count_users(const struct pair *pair, unsigned one)
{
    const struct ibv_qp *qp = &pair->qp;
    if (qp->pd)
        ((struct domain *)qp->pd)->users += one;
    if (qp->send_cq)
        ((struct queue *)qp->send_cq)->users += one;
    if (qp->recv_cq)
        ((struct queue *)qp->recv_cq)->users += one;
    if (qp->srq)
        ((struct shared *)qp->srq)->users += one;
    if (pair->domain)
        pair->domain->users += one;
    context_of(qp->context)->objects += one;
}

static struct ibv_qp *add(struct pair *pair)
{
    pair->qp.qp_num = ++last_number & number_max;
    pair->qp.state = IBV_QPS_RESET;
    pair->next = pairs;
    pairs = pair;
    count_users(pair, 1);
    return &pair->qp;
}

/* Each kind but the target of XRC. */
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    ONE_AT_A_TIME;
    int is_initiator = attr->qp_type == IBV_QPT_XRC_SEND;
    struct ibv_qp_cap *cap = &attr->cap;
    if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UD && (!is_initiator || !settings.xrc))
        return REFUSE_OBJECT(EOPNOTSUPP, "type %d", (int)attr->qp_type);
    if (!attr->send_cq || attr->send_cq->context != pd->context)
        return REFUSE_OBJECT(EINVAL, "no completion queue of this context for sends");
    if (!is_initiator && (!attr->recv_cq || attr->recv_cq->context != pd->context))
        return REFUSE_OBJECT(EINVAL, "no completion queue of this context for receives");
    if (is_initiator && (attr->srq || cap->max_recv_wr))
        return REFUSE_OBJECT(EINVAL, "an XRC initiator receives nothing");
    if (attr->srq && (attr->srq->context != pd->context || ((struct shared *)attr->srq)->number))
        return REFUSE_OBJECT(EINVAL, "a shared queue of another context, or one of XRC");
    if (cap->max_send_wr > depth_max || cap->max_send_sge > settings.list_max)
        return REFUSE_OBJECT(EINVAL, "%u sends of %u entries", cap->max_send_wr, cap->max_send_sge);
    if (cap->max_inline_data > settings.inline_max_bytes)
        return REFUSE_OBJECT(EINVAL, "%u bytes inline, of %u", cap->max_inline_data, settings.inline_max_bytes);
    if (attr->srq || is_initiator)
        cap->max_recv_wr = cap->max_recv_sge = 0;
    struct pair *pair = made(sizeof *pair);
    if (receives_make(&pair->receives, cap->max_recv_wr, cap->max_recv_sge)) {
        free(pair);
        return REFUSE_OBJECT(EINVAL, "%u receives of %u entries", cap->max_recv_wr, cap->max_recv_sge);
    }
    pair->qp.context = pd->context;
    pair->qp.qp_context = attr->qp_context;
    pair->qp.pd = pd;
    pair->qp.send_cq = attr->send_cq;
    pair->qp.recv_cq = is_initiator ? NULL : attr->recv_cq;
    pair->qp.srq = attr->srq;
    pair->qp.qp_type = attr->qp_type;
    pair->cap = *cap;
    pair->signals_all = attr->sq_sig_all;
    pair->sends = cap->max_send_wr ? made(cap->max_send_wr * sizeof *pair->sends) : NULL;
    return add(pair);
}

/* The header's inline function sends pairs of a protection domain to `ibv_create_qp`; this is for targets of XRC, which
 * have neither one nor completion queues. */
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    ONE_AT_A_TIME;
    if (attr->comp_mask != IBV_QP_INIT_ATTR_XRCD)
        return REFUSE_OBJECT(EINVAL, "mask %#x, not the XRC domain alone", attr->comp_mask);
    if (attr->qp_type != IBV_QPT_XRC_RECV)
        return REFUSE_OBJECT(EINVAL, "type %d in an XRC domain", (int)attr->qp_type);
    if (!attr->xrcd || attr->xrcd->context != context)
        return REFUSE_OBJECT(EINVAL, "no XRC domain of this context");
    struct pair *pair = made(sizeof *pair);
    pair->qp.context = context;
    pair->qp.qp_context = attr->qp_context;
    pair->qp.qp_type = IBV_QPT_XRC_RECV;
    pair->domain = (struct xrc_domain *)attr->xrcd;
    return add(pair);
}

/* Forgets all that is posted, and what it has completed. */
void clear(struct pair *pair)
{
    for (; pair->done < pair->posted; pair->done++)
        free(pair->sends[pair->done % pair->cap.max_send_wr].bytes);
    pair->posted = pair->done = pair->over = 0;
    pair->receives.first = pair->receives.count = 0;
    pair->tries = 0;
    pair->unanswered_since_ns = pair->next_try_ns = 0;
    memset(&pair->attr, 0, sizeof pair->attr);
    if (pair->qp.send_cq)
        purge(pair->qp.send_cq, pair, NULL);
    if (pair->qp.recv_cq)
        purge(pair->qp.recv_cq, pair, NULL);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    ONE_AT_A_TIME;
    struct pair *pair = (struct pair *)qp, **place = &pairs;
    while (*place && *place != pair)
        place = &(*place)->next;
    if (!*place)
        MISTAKE("no such queue pair");
    if (pair->groups)
        MISTAKE("the queue pair is a member of %u groups", pair->groups);
    if (pair->unacknowledged_events)
        MISTAKE("waits for ever for events to be acknowledged");
    *place = pair->next;
    clear(pair);
    notices_forget(&context_of(qp->context)->events, qp);
    count_users(pair, -1u);
    free(pair->sends);
    free(pair->receives.ring);
    free(pair);
    carry_on();
    return 0;
}

static struct membership **membership(const struct pair *pair, const union ibv_gid *group)
{
    struct membership **place = &memberships;
    while (*place && ((*place)->pair != pair || memcmp(&(*place)->group, group, sizeof *group)))
        place = &(*place)->next;
    return place;
}

int is_member(const struct pair *pair, const union ibv_gid *group)
{
    return *membership(pair, group) != NULL;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *group, uint16_t lid)
{
    ONE_AT_A_TIME;
    struct pair *pair = (struct pair *)qp;
    if (qp->qp_type != IBV_QPT_UD || !is_group(group))
        return REFUSE(EINVAL, "not a datagram queue pair, or not a group");
    if (settings.infiniband ? lid < 0xc000 : lid)
        return REFUSE(EINVAL, "local identifier %#x of a group", lid);
    struct membership **place = membership(pair, group);
    if (!*place) {
        *place = made(sizeof **place);
        **place = (struct membership){NULL, pair, *group};
        pair->groups++;
    }
    return 0;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *group, uint16_t lid)
{
    ONE_AT_A_TIME;
    (void)lid;
    struct pair *pair = (struct pair *)qp;
    struct membership **place = membership(pair, group), *left = *place;
    if (!left)
        return REFUSE(EINVAL, "not a member of the group");
    *place = left->next;
    pair->groups--;
    free(left);
    return 0;
}
