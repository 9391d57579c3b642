/* Completion queues, receives, shared receive queues. */
#include "adapter.h"

static struct shared *numbered; /* those that XRC sends address */
static uint32_t last_number;

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int depth, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    ONE_AT_A_TIME;
    if (depth < 1 || depth > 4 * depth_max)
        return REFUSE_OBJECT(EINVAL, "%d entries", depth);
    if (vector)
        return REFUSE_OBJECT(EINVAL, "completion vector %d", vector);
    if (channel && channel->context != context)
        return REFUSE_OBJECT(EINVAL, "a channel of another context");
    struct queue *queue = made(sizeof *queue);
    queue->depth = (unsigned)depth;
    queue->ring = made((size_t)depth * sizeof *queue->ring);
    queue->cq.context = context;
    queue->cq.channel = channel;
    queue->cq.cq_context = cq_context;
    queue->cq.cqe = depth;
    if (channel)
        ((struct channel *)channel)->users++;
    context_of(context)->objects++;
    return &queue->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    ONE_AT_A_TIME;
    struct queue *queue = (struct queue *)cq;
    if (queue->users)
        MISTAKE("the completion queue has %u users", queue->users);
    if (queue->unacknowledged || queue->unacknowledged_events)
        MISTAKE("waits for ever for events to be acknowledged");
    if (cq->channel) {
        notices_forget(&((struct channel *)cq->channel)->events, cq);
        ((struct channel *)cq->channel)->users--;
    }
    notices_forget(&context_of(cq->context)->events, cq);
    context_of(cq->context)->objects--;
    free(queue->ring);
    free(queue);
    return 0;
}

/* Adds a completion; one for which there is no room is lost, and the queue of no use any more. */
void complete(struct ibv_cq *cq, const struct completion *completion, int is_solicited)
{
    struct queue *queue = (struct queue *)cq;
    if (queue->count == queue->depth || queue->overrun) {
        if (!queue->overrun)
            tell(cq->context, IBV_EVENT_CQ_ERR, cq);
        queue->overrun = 1;
        return;
    }
    queue->ring[(queue->first + queue->count++) % queue->depth] = *completion;
    int is_wanted = is_solicited || completion->wc.status != IBV_WC_SUCCESS;
    if (queue->armed == armed_for_any || (queue->armed == armed_for_solicited && is_wanted)) {
        queue->armed = unarmed;
        if (cq->channel)
            notices_add(&((struct channel *)cq->channel)->events, 0, cq);
    }
}

/* Drops what a pair or a shared queue that goes has completed. */
void purge(struct ibv_cq *cq, const struct pair *pair, const struct shared *shared)
{
    struct queue *queue = (struct queue *)cq;
    unsigned kept = 0;
    for (unsigned at = 0; at < queue->count; at++) {
        struct completion *completion = &queue->ring[(queue->first + at) % queue->depth];
        if ((pair && completion->pair == pair) || (shared && completion->shared == shared))
            continue;
        queue->ring[(queue->first + kept++) % queue->depth] = *completion;
    }
    queue->count = kept;
}

int poll_queue(struct ibv_cq *cq, int count, struct ibv_wc *into)
{
    ONE_AT_A_TIME;
    carry_on();
    struct queue *queue = (struct queue *)cq;
    int taken = 0;
    while (taken < count && queue->count) {
        struct completion *completion = &queue->ring[queue->first];
        into[taken++] = completion->wc;
        if (completion->pair && completion->over > completion->pair->over)
            completion->pair->over = completion->over;
        queue->first = (queue->first + 1) % queue->depth;
        queue->count--;
    }
    return taken;
}

int arm_queue(struct ibv_cq *cq, int solicited_only)
{
    ONE_AT_A_TIME;
    struct queue *queue = (struct queue *)cq;
    if (!cq->channel)
        return REFUSE(EINVAL, "the completion queue has no channel");
    if (queue->armed != armed_for_any)
        queue->armed = solicited_only ? armed_for_solicited : armed_for_any;
    carry_on();
    return 0;
}

int receives_make(struct receives *receives, unsigned depth, unsigned longest)
{
    if (depth > depth_max || longest > settings.list_max)
        return EINVAL;
    receives->depth = depth;
    receives->list_max = longest;
    receives->ring = depth ? made(depth * sizeof *receives->ring) : NULL;
    return 0;
}

int receives_post(struct receives *receives, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad, const char *call)
{
    for (; wr; wr = wr->next) {
        *bad = wr;
        if (receives->count == receives->depth)
            return refused(ENOMEM, call, "the queue holds %u receives", receives->depth);
        if (wr->num_sge < 0 || (unsigned)wr->num_sge > receives->list_max)
            return refused(EINVAL, call, "a list of %d entries, of %u", wr->num_sge, receives->list_max);
        struct receive *receive = &receives->ring[(receives->first + receives->count++) % receives->depth];
        receive->wr_id = wr->wr_id;
        receive->count = wr->num_sge;
        if (wr->num_sge)
            memcpy(receive->list, wr->sg_list, (size_t)wr->num_sge * sizeof *receive->list);
    }
    return 0;
}

struct receive *receives_next(struct receives *receives)
{
    return receives->count ? &receives->ring[receives->first] : NULL;
}

void receives_drop(struct receives *receives)
{
    receives->first = (receives->first + 1) % receives->depth;
    receives->count--;
}

static struct shared *make_shared(struct ibv_pd *pd, void *srq_context, const struct ibv_srq_attr *attr,
                                  const char *call)
{
    struct shared *shared = made(sizeof *shared);
    if (!attr->max_wr || receives_make(&shared->receives, attr->max_wr, attr->max_sge)) {
        free(shared);
        errno = refused(EINVAL, call, "%u receives of %u entries", attr->max_wr, attr->max_sge);
        return NULL;
    }
    shared->srq.context = pd->context;
    shared->srq.srq_context = srq_context;
    shared->srq.pd = pd;
    ((struct domain *)pd)->users++;
    context_of(pd->context)->objects++;
    return shared;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    ONE_AT_A_TIME;
    struct shared *shared = make_shared(pd, attr->srq_context, &attr->attr, __func__);
    return shared ? &shared->srq : NULL;
}

/* The header's inline function sends basic queues to `ibv_create_srq`; so what comes here is of another kind. */
struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
    ONE_AT_A_TIME;
    const uint32_t all =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    if (attr->comp_mask != all)
        return REFUSE_OBJECT(EINVAL, "mask %#x, not type, domains and completion queue", attr->comp_mask);
    if (attr->srq_type != IBV_SRQT_XRC)
        return REFUSE_OBJECT(EOPNOTSUPP, "type %d", (int)attr->srq_type);
    if (!attr->pd || attr->pd->context != context || !attr->xrcd || attr->xrcd->context != context || !attr->cq ||
        attr->cq->context != context)
        return REFUSE_OBJECT(EINVAL, "a domain or queue of another context");
    struct shared *shared = make_shared(attr->pd, attr->srq_context, &attr->attr, __func__);
    if (!shared)
        return NULL;
    shared->number = ++last_number;
    shared->domain = (struct xrc_domain *)attr->xrcd;
    shared->queue = (struct queue *)attr->cq;
    shared->domain->users++;
    shared->queue->users++;
    shared->next = numbered;
    numbered = shared;
    return &shared->srq;
}

int srq_number(struct ibv_srq *srq, uint32_t *number)
{
    const struct shared *shared = (struct shared *)srq;
    if (!shared->number)
        return REFUSE(EINVAL, "the queue is in no XRC domain");
    *number = shared->number;
    return 0;
}

struct shared *shared_of_number(uint32_t number)
{
    struct shared *shared = numbered;
    while (shared && shared->number != number)
        shared = shared->next;
    return shared;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    ONE_AT_A_TIME;
    struct shared *shared = (struct shared *)srq;
    if (mask != IBV_SRQ_LIMIT)
        return REFUSE(EINVAL, "mask %#x; only the limit can be changed", (unsigned)mask);
    if (attr->srq_limit > shared->receives.depth)
        return REFUSE(EINVAL, "a limit of %u in a queue of %u", attr->srq_limit, shared->receives.depth);
    shared->limit = attr->srq_limit;
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    ONE_AT_A_TIME;
    struct shared *shared = (struct shared *)srq;
    if (shared->users)
        MISTAKE("%u queue pairs take from the queue", shared->users);
    if (shared->unacknowledged_events)
        MISTAKE("waits for ever for events to be acknowledged");
    if (shared->number) {
        struct shared **place = &numbered;
        while (*place != shared)
            place = &(*place)->next;
        *place = shared->next;
        purge(&shared->queue->cq, NULL, shared);
        shared->domain->users--;
        shared->queue->users--;
    }
    notices_forget(&context_of(srq->context)->events, srq);
    ((struct domain *)srq->pd)->users--;
    context_of(srq->context)->objects--;
    free(shared->receives.ring);
    free(shared);
    return 0;
}

int post_shared_receives(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    ONE_AT_A_TIME;
    int code = receives_post(&((struct shared *)srq)->receives, wr, bad, __func__);
    carry_on();
    return code;
}

/* A receive was taken: one event when fewer than the limit are left. */
void taken_from(struct shared *shared)
{
    if (shared->receives.count < shared->limit) {
        shared->limit = 0;
        tell(shared->srq.context, IBV_EVENT_SRQ_LIMIT_REACHED, &shared->srq);
    }
}
