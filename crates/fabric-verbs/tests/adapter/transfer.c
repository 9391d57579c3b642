/* Carrying requests out: from one queue pair into the memory of another, and how they end. */
#include "adapter.h"
#include <pthread.h>
#include <unistd.h>

/* Beside the statuses of completions: nobody has answered, no receive was there. */
enum { no_answer = -1, not_ready = -2 };

/* How long a receiver asks to be left alone, in units of 10 us, by code. */
static const unsigned not_ready_times[32] = {65536, 1,   2,   3,   4,   6,    8,    12,   16,   24,   32,
                                             48,    64,  96,  128, 192, 256,  384,  512,  768,  1024, 1536,
                                             2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

/* So that a test can tell whether XRC was used, or something that stands in for it. */
static unsigned long requests_of_xrc;

__attribute__((destructor)) static void tell_requests(void)
{
    if (requests_of_xrc)
        fprintf(stderr, "adapter for tests: %lu requests of XRC were carried out\n", requests_of_xrc);
}

static int is_answering(const struct pair *pair)
{
    return pair->qp.state == IBV_QPS_RTR || pair->qp.state == IBV_QPS_RTS || pair->qp.state == IBV_QPS_SQD;
}

static int has_immediate(const struct send *send)
{
    return send->wr.opcode == IBV_WR_SEND_WITH_IMM || send->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Whether a path leads to the port, arriving at GID `index` of it; any GID if there is none. */
static int leads_here(const struct ibv_ah_attr *way, const struct ibv_ah_attr *back)
{
    if (settings.infiniband && way->dlid != local_identifier)
        return 0;
    if (!way->is_global)
        return 1;
    uint32_t type = gid_at(way->grh.sgid_index)->gid_type;
    for (unsigned at = 0; gid_at(at); at++) {
        const struct ibv_gid_entry *entry = gid_at(at);
        int is_it = entry->gid_type == type && !memcmp(&entry->gid, &way->grh.dgid, sizeof entry->gid);
        if (is_it && (!back || !back->is_global || back->grh.sgid_index == at))
            return 1;
    }
    return 0;
}

static int share_partition(const struct pair *one, const struct pair *other)
{
    uint16_t first = partition_at(one->attr.pkey_index), second = partition_at(other->attr.pkey_index);
    return (first & 0x7fff) == (second & 0x7fff) && (first | second) & 0x8000;
}

/* Who answers what `from` sends, or why nobody does. */
static struct pair *peer_of(const struct pair *from, const char **why)
{
    struct pair *to = pair_of_number(from->attr.dest_qp_num);
    enum ibv_qp_type expected = from->qp.qp_type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : IBV_QPT_RC;
    *why = NULL;
    if (!to)
        *why = "there is no such queue pair";
    else if (to->qp.qp_type != expected)
        *why = "the queue pair is of another type";
    else if (!is_answering(to))
        *why = "it is not ready to receive";
    else if (to->attr.dest_qp_num != from->qp.qp_num)
        *why = "it is connected to another";
    else if (!leads_here(&from->attr.ah_attr, &to->attr.ah_attr) ||
             !leads_here(&to->attr.ah_attr, &from->attr.ah_attr))
        *why = "the paths of both do not meet";
    else if (!share_partition(from, to))
        *why = "it is in another partition";
    else if (from->attr.path_mtu != to->attr.path_mtu)
        *why = "both have different path MTUs";
    else if (to->next_expected != from->next_sent)
        *why = "it expects another sequence number";
    return *why ? NULL : to;
}

/* Copies between one piece of memory and a list; the keys of what is touched are looked at before anything is. */
static int copy(struct ibv_pd *pd, const struct ibv_sge *list, int count, uint8_t *bytes, uint64_t length, int writes)
{
    for (int pass = 0; pass < 2; pass++) {
        uint64_t at = 0;
        for (int entry = 0; entry < count && at < length; entry++) {
            struct ibv_sge piece = list[entry];
            if (piece.length > length - at)
                piece.length = (uint32_t)(length - at);
            if (!piece.length)
                continue;
            uint8_t *place = local_bytes(pd, &piece, writes ? IBV_ACCESS_LOCAL_WRITE : 0);
            if (!place)
                return IBV_WC_LOC_PROT_ERR;
            if (pass)
                memcpy(writes ? place : bytes + at, writes ? bytes + at : place, piece.length);
            at += piece.length;
        }
    }
    return IBV_WC_SUCCESS;
}

static uint64_t room(const struct receive *receive)
{
    uint64_t length = 0;
    for (int entry = 0; entry < receive->count; entry++)
        length += receive->list[entry].length;
    return length;
}

/* A receive that was met: fills it with `length` bytes and completes it, in error if that cannot be. */
static int fill(struct pair *to, struct shared *shared, const struct send *send, uint8_t *bytes, uint64_t length,
                struct ibv_wc wc)
{
    struct receives *receives = shared ? &shared->receives : &to->receives;
    struct receive *receive = receives_next(receives);
    int is_xrc = to->qp.qp_type == IBV_QPT_XRC_RECV, is_solicited = send->wr.send_flags & IBV_SEND_SOLICITED;
    wc.wr_id = receive->wr_id;
    wc.qp_num = to->qp.qp_num;
    if (bytes && length > room(receive))
        wc.status = IBV_WC_LOC_LEN_ERR;
    else if (bytes)
        wc.status = copy(shared ? shared->srq.pd : to->qp.pd, receive->list, receive->count, bytes, length, 1);
    if (has_immediate(send)) {
        wc.wc_flags |= IBV_WC_WITH_IMM;
        wc.imm_data = send->wr.imm_data;
    }
    /* What a queue of XRC has received outlives the queue pair that it came by. */
    struct completion completion = {wc, is_xrc ? NULL : to, is_xrc ? shared : NULL, 0};
    complete(is_xrc ? &shared->queue->cq : to->qp.recv_cq, &completion, is_solicited);
    receives_drop(receives);
    if (shared)
        taken_from(shared);
    return (int)wc.status;
}

/* The receiving queue pair cannot go on after what it was sent. */
static int fail_both(struct pair *to, enum ibv_event_type event, enum ibv_wc_status status)
{
    tell(to->qp.context, event, &to->qp);
    fail(to);
    return (int)status;
}

static uint64_t operate(const struct send *send, uint64_t before)
{
    if (send->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        return before + send->wr.wr.atomic.compare_add;
    return before == send->wr.wr.atomic.compare_add ? send->wr.wr.atomic.swap : before;
}

/* Reads, writes and atomic operations on the memory of `to`, whose keys are of `pd`; `bytes` are what is brought or
 * comes back. */
static int reach(struct pair *from, struct pair *to, const struct send *send, struct ibv_pd *pd, uint8_t *bytes)
{
    const struct ibv_send_wr *wr = &send->wr;
    int is_atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    int is_read = wr->opcode == IBV_WR_RDMA_READ;
    uint64_t address = is_atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
    uint32_t key = is_atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
    int right = is_atomic ? IBV_ACCESS_REMOTE_ATOMIC : is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if ((is_atomic || is_read) && from->attr.max_rd_atomic > to->attr.max_dest_rd_atomic) {
        refused(0, __func__, "%d reads under way, of which the peer answers %d", from->attr.max_rd_atomic,
                to->attr.max_dest_rd_atomic);
        return fail_both(to, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
    }
    if (is_atomic && address % 8)
        return fail_both(to, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
    uint8_t *place = remote_bytes(pd, address, send->length, key, right);
    if (send->length && (!place || !(to->attr.qp_access_flags & (unsigned)right)))
        return fail_both(to, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    if (is_atomic) {
        uint64_t before, after;
        memcpy(&before, place, sizeof before);
        after = operate(send, before);
        memcpy(place, &after, sizeof after);
        memcpy(bytes, &before, sizeof before);
    } else if (send->length) {
        memcpy(is_read ? bytes : place, is_read ? place : bytes, send->length);
    }
    return IBV_WC_SUCCESS;
}

/* The request at its receiver. */
static int arrive(struct pair *from, struct pair *to, const struct send *send, uint8_t *bytes)
{
    struct ibv_pd *pd = to->qp.pd;
    struct shared *shared = (struct shared *)to->qp.srq;
    if (to->qp.qp_type == IBV_QPT_XRC_RECV) {
        /* Each request of XRC names a queue, whether it takes a receive or not: that has the protection domain. */
        shared = shared_of_number(send->wr.qp_type.xrc.remote_srqn);
        if (!shared || !same_domain(shared->domain, to->domain)) {
            refused(0, __func__, "operation %d names shared queue %u, which is not in the XRC domain",
                    (int)send->wr.opcode, send->wr.qp_type.xrc.remote_srqn);
            return fail_both(to, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
        }
        pd = shared->srq.pd;
    }
    int is_send = send->wr.opcode == IBV_WR_SEND || send->wr.opcode == IBV_WR_SEND_WITH_IMM;
    struct receives *receives = shared ? &shared->receives : &to->receives;
    if ((is_send || has_immediate(send)) && !receives_next(receives))
        return not_ready;
    int status = is_send ? IBV_WC_SUCCESS : reach(from, to, send, pd, bytes);
    if (status != IBV_WC_SUCCESS || (!is_send && !has_immediate(send)))
        return status;
    struct ibv_wc wc = {.opcode = is_send ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
                        .byte_len = (uint32_t)send->length};
    status = fill(to, shared, send, is_send ? bytes : NULL, send->length, wc);
    if (status == IBV_WC_SUCCESS)
        return status;
    fail(to);
    return status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
}

/* Carries out the request of a connection once. */
static int attempt(struct pair *from, const struct send *send, const char **why)
{
    int returns = send->wr.opcode == IBV_WR_RDMA_READ || send->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                  send->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (send->length > message_max_bytes)
        return IBV_WC_LOC_LEN_ERR;
    if (returns && !from->attr.max_rd_atomic) {
        refused(0, __func__, "operation %d where no reads may be under way", (int)send->wr.opcode);
        return IBV_WC_LOC_QP_OP_ERR;
    }
    int is_inline = send->bytes != NULL, status = IBV_WC_SUCCESS;
    uint8_t *bytes = is_inline ? send->bytes : made(send->length + 1);
    if (!is_inline)
        status = copy(from->qp.pd, send->list, send->wr.num_sge, bytes, send->length, 0);
    /* What comes back is looked at before it is asked for, too. */
    if (returns && status == IBV_WC_SUCCESS)
        status = copy(from->qp.pd, send->list, send->wr.num_sge, bytes, send->length, 1);
    if (status == IBV_WC_SUCCESS) {
        struct pair *to = peer_of(from, why);
        status = to ? arrive(from, to, send, bytes) : no_answer;
        if (status == not_ready)
            from->asked_to_wait = to->attr.min_rnr_timer;
        if (status == IBV_WC_SUCCESS) {
            from->next_sent = (from->next_sent + 1) & number_max;
            to->next_expected = (to->next_expected + 1) & number_max;
            requests_of_xrc += to->qp.qp_type == IBV_QPT_XRC_RECV;
            if (returns)
                status = copy(from->qp.pd, send->list, send->wr.num_sge, bytes, send->length, 1);
        }
    }
    if (!is_inline)
        free(bytes);
    return status;
}

/* The header in front of a datagram: a global route header, or of RoCE v2 over IPv4 that of IP behind 20 bytes. */
static void write_header(uint8_t *header, const struct ibv_ah_attr *way)
{
    if (!way->is_global)
        return;
    const struct ibv_gid_entry *from = gid_at(way->grh.sgid_index);
    memcpy(header + 8, &from->gid, 16);
    memcpy(header + 24, &way->grh.dgid, 16);
    if (from->gid_type == IBV_GID_TYPE_ROCE_V2 && from->gid.raw[10] == 0xff) {
        memset(header, 0, header_bytes);
        header[20] = 0x45;
        memcpy(header + 32, from->gid.raw + 12, 4);
        memcpy(header + 36, way->grh.dgid.raw + 12, 4);
    }
}

/* A datagram arrives or is lost, which is all the same to its sender. */
static int send_datagram(struct pair *from, const struct send *send)
{
    uint8_t *bytes = made(header_bytes + send->length);
    int status = IBV_WC_SUCCESS;
    if (send->bytes)
        memcpy(bytes + header_bytes, send->bytes, send->length);
    else
        status = copy(from->qp.pd, send->list, send->wr.num_sge, bytes + header_bytes, send->length, 0);
    write_header(bytes, &send->way);
    uint32_t number = send->wr.wr.ud.remote_qpn, qkey = send->wr.wr.ud.remote_qkey;
    int to_group = number == number_max && is_group(&send->way.grh.dgid);
    for (struct pair *to = pairs; to && status == IBV_WC_SUCCESS; to = to->next) {
        if (to_group ? !is_member(to, &send->way.grh.dgid) : to->qp.qp_num != number)
            continue;
        struct shared *shared = (struct shared *)to->qp.srq;
        struct receive *receive = receives_next(shared ? &shared->receives : &to->receives);
        if (to->qp.qp_type != IBV_QPT_UD || !is_answering(to) || !share_partition(from, to) ||
            (!to_group && !leads_here(&send->way, NULL)))
            continue;
        /* A key with the highest bit stands for the sender's own. */
        if (to->attr.qkey != (qkey >> 31 ? from->attr.qkey : qkey))
            continue;
        if (!receive || room(receive) < header_bytes + send->length)
            continue;
        struct ibv_wc wc = {.opcode = IBV_WC_RECV, .byte_len = (uint32_t)(header_bytes + send->length),
                            .src_qp = from->qp.qp_num, .wc_flags = send->way.is_global ? IBV_WC_GRH : 0};
        if (fill(to, shared, send, bytes, header_bytes + send->length, wc) != IBV_WC_SUCCESS)
            fail(to);
    }
    free(bytes);
    return status;
}

static enum ibv_wc_opcode opcode_of(const struct send *send)
{
    switch (send->wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    default:
        return IBV_WC_SEND;
    }
}

/* The oldest request is over. */
static void finish(struct pair *pair, enum ibv_wc_status status)
{
    struct send *send = &pair->sends[pair->done++ % pair->cap.max_send_wr];
    struct completion completion = {
        {.wr_id = send->wr.wr_id, .status = status, .opcode = opcode_of(send), .byte_len = (uint32_t)send->length,
         .qp_num = pair->qp.qp_num},
        pair, NULL, pair->done};
    if (status != IBV_WC_SUCCESS) {
        /* Only number, status and queue pair mean something then. */
        completion.wc.opcode = (enum ibv_wc_opcode)0x5a;
        completion.wc.byte_len = 0x5a5a5a5a;
        completion.wc.wc_flags = IBV_WC_WITH_IMM | IBV_WC_GRH;
    }
    free(send->bytes);
    send->bytes = NULL;
    pair->tries = 0;
    pair->unanswered_since_ns = pair->next_try_ns = 0;
    if (status != IBV_WC_SUCCESS || pair->signals_all || send->wr.send_flags & IBV_SEND_SIGNALED)
        complete(pair->qp.send_cq, &completion, 0);
}

static void flush(struct pair *pair)
{
    while (pair->done < pair->posted)
        finish(pair, IBV_WC_WR_FLUSH_ERR);
    while (pair->qp.state == IBV_QPS_ERR && receives_next(&pair->receives)) {
        struct completion flushed = {{.wr_id = receives_next(&pair->receives)->wr_id, .status = IBV_WC_WR_FLUSH_ERR,
                                      .opcode = (enum ibv_wc_opcode)0x5a, .qp_num = pair->qp.qp_num},
                                     pair, NULL, 0};
        receives_drop(&pair->receives);
        complete(pair->qp.recv_cq, &flushed, 0);
    }
}

void fail(struct pair *pair)
{
    if (pair->qp.state != IBV_QPS_ERR && pair->qp.srq)
        tell(pair->qp.context, IBV_EVENT_QP_LAST_WQE_REACHED, &pair->qp);
    pair->qp.state = IBV_QPS_ERR;
    flush(pair);
}

/* What becomes of a request that met no receive; 0 while it waits. */
static int again(struct pair *pair)
{
    uint64_t now = now_ns();
    if (pair->attr.rnr_retry == 7 || now < pair->next_try_ns)
        return 0;
    if (pair->tries++ == pair->attr.rnr_retry)
        return IBV_WC_RNR_RETRY_EXC_ERR;
    pair->next_try_ns = now + 10000ull * not_ready_times[pair->asked_to_wait];
    return 0;
}

/* And of one that nobody answers. */
static int unanswered(struct pair *pair, const char *why)
{
    uint64_t now = now_ns();
    if (!pair->unanswered_since_ns)
        pair->unanswered_since_ns = now;
    uint64_t patience = (pair->attr.retry_cnt + 1ull) * (4096ull << pair->attr.timeout);
    if (!pair->attr.timeout || now - pair->unanswered_since_ns < patience)
        return 0;
    return refused(IBV_WC_RETRY_EXC_ERR, __func__, "queue pair %u hears nothing of %u: %s", pair->qp.qp_num,
                   pair->attr.dest_qp_num, why);
}

/* Carries out the oldest request of a queue pair, and says whether that ended it. */
static int step(struct pair *pair)
{
    struct send *send = &pair->sends[pair->done % pair->cap.max_send_wr];
    if (pair->qp.qp_type == IBV_QPT_UD) {
        int status = send_datagram(pair, send);
        finish(pair, (enum ibv_wc_status)status);
        if (status != IBV_WC_SUCCESS) {
            /* Only its sends stop. */
            pair->qp.state = IBV_QPS_SQE;
            flush(pair);
        }
        return 1;
    }
    const char *why = NULL;
    int status = attempt(pair, send, &why);
    if (status != no_answer)
        pair->unanswered_since_ns = 0;
    if (pair->qp.state != IBV_QPS_RTS)
        return 0; /* it was its own peer, and failed as that */
    if (status == no_answer || status == not_ready) {
        status = status == no_answer ? unanswered(pair, why) : again(pair);
        if (!status)
            return 0;
    }
    finish(pair, (enum ibv_wc_status)status);
    if (status != IBV_WC_SUCCESS)
        fail(pair);
    return 1;
}

static void carry_all_on(void)
{
    int moved;
    do {
        moved = 0;
        for (struct pair *pair = pairs; pair; pair = pair->next) {
            if (pair->qp.state == IBV_QPS_ERR || pair->qp.state == IBV_QPS_SQE)
                flush(pair);
            while (pair->qp.state == IBV_QPS_RTS && pair->done < pair->posted && step(pair))
                moved = 1;
        }
    } while (moved);
}

void carry_on(void)
{
    if (!settings.late)
        carry_all_on();
}

/* Threads that are to end do so by themselves: whoever ends them has the lock that they want. */
static unsigned generation;

static void *be_late(void *own)
{
    for (int is_wanted = 1; is_wanted;) {
        usleep(50);
        ONE_AT_A_TIME;
        is_wanted = generation == (unsigned)(uintptr_t)own;
        if (is_wanted)
            carry_all_on();
    }
    return NULL;
}

void start_late(void)
{
    pthread_t thread;
    if (!settings.late)
        return;
    if (pthread_create(&thread, NULL, be_late, (void *)(uintptr_t)++generation))
        MISTAKE("no thread");
    pthread_detach(thread);
}

void stop_late(void)
{
    generation++;
}
