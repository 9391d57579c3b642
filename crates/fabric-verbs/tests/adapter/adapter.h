/* A libibverbs for tests: one adapter with one port, whose queue pairs reach each other inside one process.
 *
 * It does what the specification says, refuses what a driver would refuse, and says on stderr why. What a driver would
 * not survive, or would wait for without end, ends the process. It is compiled against rdma-core's own header, so
 * that the compiler decides where each field is.
 *
 * Nothing moves by itself: requests are carried out within the calls that post, poll, arm or change states, of any
 * context; or, if it is to be late, by a thread a moment afterwards. FERROVIA_TEST_ADAPTER sets that, and what the
 * adapter lacks (see `settings`). */
#ifndef FERROVIA_TEST_ADAPTER_H
#define FERROVIA_TEST_ADAPTER_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* These stand in front of functions that are defined here. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

enum {
    list_max = 16,
    depth_max = 4096,
    objects_max = 4096,
    outstanding_max = 16,
    partitions = 3,
    number_max = 0xffffff,
    message_max_bytes = 1 << 30,
    header_bytes = 40,
    local_identifier = 0x21,
};

/* What the adapter has: FERROVIA_TEST_ADAPTER="inline=64 list=4 atomics=0 xrc=0 infiniband=1 late=1". */
struct settings {
    unsigned inline_max_bytes, list_max, atomics, xrc, infiniband, late;
};
extern struct settings settings;

/* Things that happened, for whoever reads `fd`. */
struct notice {
    struct notice *next;
    void *object;
    int kind;
};
struct notices {
    int fd;
    struct notice *first;
};

struct context {
    struct verbs_context verbs;
    struct notices events;
    unsigned objects;
};

struct domain {
    struct ibv_pd pd;
    unsigned users;
};

struct region {
    struct ibv_mr mr;
    int access;
    struct region *next;
};

struct channel {
    struct ibv_comp_channel channel;
    struct notices events;
    unsigned users;
};

/* What is polled, and whose it is: the sends of `pair` up to `over` have made room when it has been. */
struct completion {
    struct ibv_wc wc;
    struct pair *pair;
    struct shared *shared;
    uint64_t over;
};

struct queue {
    struct ibv_cq cq;
    struct completion *ring;
    unsigned depth, first, count;
    enum { unarmed, armed_for_solicited, armed_for_any } armed;
    int overrun;
    unsigned users, unacknowledged, unacknowledged_events;
};

struct xrc_domain {
    struct ibv_xrcd xrcd;
    struct xrc_file *file;
    unsigned users;
};

struct receive {
    uint64_t wr_id;
    int count;
    struct ibv_sge list[list_max];
};
struct receives {
    struct receive *ring;
    unsigned depth, list_max, first, count;
};

struct shared {
    struct ibv_srq srq;
    struct receives receives;
    unsigned limit, users, unacknowledged_events;
    /* The rest only if XRC sends address it. */
    uint32_t number;
    struct xrc_domain *domain;
    struct queue *queue;
    struct shared *next;
};

struct way {
    struct ibv_ah ah;
    struct ibv_ah_attr attr;
};

struct send {
    struct ibv_send_wr wr;
    struct ibv_sge list[list_max];
    struct ibv_ah_attr way;
    uint8_t *bytes; /* of an inline request */
    uint64_t length;
};

struct pair {
    struct ibv_qp qp;
    struct ibv_qp_cap cap;
    struct ibv_qp_attr attr;
    int signals_all;
    struct xrc_domain *domain;
    struct send *sends;
    uint64_t posted, done, over;
    struct receives receives;
    uint32_t next_sent, next_expected; /* sequence numbers */
    unsigned tries, asked_to_wait;
    uint64_t unanswered_since_ns, next_try_ns;
    unsigned groups, unacknowledged_events;
    struct pair *next;
};

/* device.c: saying no, the lock that every call takes, the clock. */
int refused(int code, const char *call, const char *format, ...) __attribute__((format(printf, 3, 4)));
void mistaken(const char *call, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
#define REFUSE(code, ...) refused(code, __func__, __VA_ARGS__)
#define REFUSE_OBJECT(code, ...) (errno = refused(code, __func__, __VA_ARGS__), NULL)
#define MISTAKE(...) mistaken(__func__, __VA_ARGS__)
int enter(void);
void leave(int *entered);
#define ONE_AT_A_TIME __attribute__((cleanup(leave), unused)) int entered = enter()
uint64_t now_ns(void);
void *made(size_t bytes);
struct context *context_of(struct ibv_context *context);
const struct ibv_gid_entry *gid_at(unsigned index);
uint16_t partition_at(unsigned index);
int check_way(const struct ibv_ah_attr *attr, const char *call);
int is_group(const union ibv_gid *gid);

/* events.c */
int notices_open(struct notices *notices);
void notices_close(struct notices *notices);
void notices_add(struct notices *notices, int kind, void *object);
int notices_take(struct notices *notices, int *kind, void **object);
void notices_forget(struct notices *notices, void *object);
void tell(struct ibv_context *context, enum ibv_event_type type, void *object);

/* objects.c */
void *local_bytes(struct ibv_pd *pd, const struct ibv_sge *entry, int access);
void *remote_bytes(struct ibv_pd *pd, uint64_t address, uint64_t length, uint32_t rkey, int access);
struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int close_xrcd(struct ibv_xrcd *xrcd);
int same_domain(const struct xrc_domain *one, const struct xrc_domain *other);

/* queues.c */
void complete(struct ibv_cq *cq, const struct completion *completion, int is_solicited);
void purge(struct ibv_cq *cq, const struct pair *pair, const struct shared *shared);
int poll_queue(struct ibv_cq *cq, int count, struct ibv_wc *into);
int arm_queue(struct ibv_cq *cq, int solicited_only);
int receives_make(struct receives *receives, unsigned depth, unsigned list_max);
int receives_post(struct receives *receives, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad, const char *call);
struct receive *receives_next(struct receives *receives);
void receives_drop(struct receives *receives);
struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int srq_number(struct ibv_srq *srq, uint32_t *number);
int post_shared_receives(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct shared *shared_of_number(uint32_t number);
void taken_from(struct shared *shared);

/* pairs.c, states.c */
extern struct pair *pairs;
struct pair *pair_of_number(uint32_t number);
int is_member(const struct pair *pair, const union ibv_gid *group);
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
void clear(struct pair *pair);
void fail(struct pair *pair);

/* posting.c */
int post_sends(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_receives(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* transfer.c */
void carry_on(void);
void start_late(void);
void stop_late(void);

#endif
