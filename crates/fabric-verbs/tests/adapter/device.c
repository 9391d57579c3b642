/* The adapter and its port: what it has, who opened it, and the way from one port to another. */
#include "adapter.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

struct settings settings = {.inline_max_bytes = 256, .list_max = list_max, .atomics = 1, .xrc = 1};

static struct ibv_device device = {
    .node_type = IBV_NODE_CA,
    .transport_type = IBV_TRANSPORT_IB,
    .name = "inprocess0",
    .dev_name = "inprocess0",
};

static unsigned open_contexts;
static struct ibv_gid_entry gids[4];
static unsigned gid_count;
/* In network order, as they are asked for. The third is an empty place. */
static const uint16_t partition_keys[partitions] = {0xffff, 0x8007, 0};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int enter(void)
{
    pthread_mutex_lock(&mutex);
    return 1;
}

void leave(int *entered)
{
    (void)entered;
    pthread_mutex_unlock(&mutex);
}

static void say(const char *call, const char *format, va_list rest)
{
    fprintf(stderr, "adapter for tests: %s: ", call);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
}

int refused(int code, const char *call, const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    say(call, format, rest);
    va_end(rest);
    return code;
}

void mistaken(const char *call, const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    say(call, format, rest);
    va_end(rest);
    abort();
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void *made(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        MISTAKE("no memory for %zu bytes", bytes);
    return memory;
}

struct context *context_of(struct ibv_context *context)
{
    return (struct context *)((char *)context - offsetof(struct context, verbs.context));
}

static void read_settings(void)
{
    const struct {
        const char *name;
        unsigned *value, max;
    } known[] = {
        {"inline", &settings.inline_max_bytes, 1024}, {"list", &settings.list_max, list_max},
        {"atomics", &settings.atomics, 1},            {"xrc", &settings.xrc, 1},
        {"infiniband", &settings.infiniband, 1},      {"late", &settings.late, 1},
    };
    const char *text = getenv("FERROVIA_TEST_ADAPTER");
    char *words = strdup(text ? text : ""), *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        size_t at, length = strcspn(word, "=");
        for (at = 0; at < sizeof known / sizeof *known; at++)
            if (strlen(known[at].name) == length && !strncmp(word, known[at].name, length) && word[length])
                break;
        char *end = word;
        unsigned long value = at < sizeof known / sizeof *known ? strtoul(word + length + 1, &end, 10) : 0;
        if (end == word || *end || value > known[at].max)
            MISTAKE("FERROVIA_TEST_ADAPTER: \"%s\" is no setting", word);
        *known[at].value = (unsigned)value;
    }
    free(words);
}

static void add_gid(const char *address, enum ibv_gid_type type)
{
    struct ibv_gid_entry *entry = &gids[gid_count];
    inet_pton(AF_INET6, address, entry->gid.raw);
    entry->gid_index = gid_count++;
    entry->port_num = 1;
    entry->gid_type = type;
    entry->ndev_ifindex = settings.infiniband ? 0 : if_nametoindex("lo");
}

__attribute__((constructor)) static void set_up(void)
{
    read_settings();
    if (settings.infiniband) {
        add_gid("fe80::f0:1", IBV_GID_TYPE_IB);
        return;
    }
    add_gid("fe80::f0:1", IBV_GID_TYPE_ROCE_V1);
    add_gid("fe80::f0:1", IBV_GID_TYPE_ROCE_V2);
    add_gid("::ffff:10.240.0.1", IBV_GID_TYPE_ROCE_V1);
    add_gid("::ffff:10.240.0.1", IBV_GID_TYPE_ROCE_V2);
}

const struct ibv_gid_entry *gid_at(unsigned index)
{
    return index < gid_count ? &gids[index] : NULL;
}

uint16_t partition_at(unsigned index)
{
    return index < partitions ? partition_keys[index] : 0;
}

/* A group's address: IPv6, or IPv4 mapped into it. */
int is_group(const union ibv_gid *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return gid->raw[0] == 0xff || (!memcmp(gid->raw, mapped, sizeof mapped) && gid->raw[12] >> 4 == 0xe);
}

/* What the kernel asks of a path before it takes it. */
int check_way(const struct ibv_ah_attr *attr, const char *call)
{
    static const union ibv_gid none;
    if (attr->port_num != 1)
        return refused(EINVAL, call, "a path from port %d", attr->port_num);
    if (attr->sl > 15 || attr->static_rate || attr->src_path_bits)
        return refused(EINVAL, call, "a path with service level %d, rate %d, path bits %d", attr->sl,
                       attr->static_rate, attr->src_path_bits);
    if (!settings.infiniband && !attr->is_global)
        return refused(EINVAL, call, "a path without global route on Ethernet");
    if (settings.infiniband && !attr->dlid)
        return refused(EINVAL, call, "a path to local identifier 0");
    if (attr->is_global && !gid_at(attr->grh.sgid_index))
        return refused(EINVAL, call, "a path from GID %d, which is not there", attr->grh.sgid_index);
    if (attr->is_global && !memcmp(&attr->grh.dgid, &none, sizeof none))
        return refused(EINVAL, call, "a path to GID 0");
    if (attr->is_global && !attr->grh.hop_limit)
        return refused(EINVAL, call, "a global route of no hops");
    return 0;
}

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = made(2 * sizeof *list);
    list[0] = &device;
    if (count)
        *count = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

int ibv_fork_init(void)
{
    return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *which)
{
    ONE_AT_A_TIME;
    if (which != &device)
        return REFUSE_OBJECT(ENODEV, "not a device of the list");
    struct context *context = made(sizeof *context);
    if (notices_open(&context->events)) {
        free(context);
        return NULL;
    }
    struct verbs_context *verbs = &context->verbs;
    verbs->sz = sizeof *verbs;
    if (settings.xrc) {
        verbs->create_qp_ex = create_qp_ex;
        verbs->create_srq_ex = create_srq_ex;
        verbs->get_srq_num = srq_number;
        verbs->open_xrcd = open_xrcd;
        verbs->close_xrcd = close_xrcd;
    }
    verbs->context = (struct ibv_context){
        .device = &device,
        .ops = {.poll_cq = poll_queue,
                .req_notify_cq = arm_queue,
                .post_srq_recv = post_shared_receives,
                .post_send = post_sends,
                .post_recv = post_receives},
        .cmd_fd = -1,
        .async_fd = context->events.fd,
        .num_comp_vectors = 1,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .abi_compat = __VERBS_ABI_IS_EXTENDED,
    };
    if (!open_contexts++)
        start_late();
    return &verbs->context;
}

int ibv_close_device(struct ibv_context *context)
{
    ONE_AT_A_TIME;
    struct context *closed = context_of(context);
    if (closed->objects)
        MISTAKE("%u objects are left", closed->objects);
    notices_close(&closed->events);
    free(closed);
    if (!--open_contexts)
        stop_late();
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    *attr = (struct ibv_device_attr){
        .fw_ver = "none",
        .node_guid = htobe64(0xf00001),
        .sys_image_guid = htobe64(0xf00001),
        .max_mr_size = UINT64_MAX >> 1,
        .page_size_cap = 4096,
        .max_qp = objects_max,
        .max_qp_wr = depth_max,
        .device_cap_flags = settings.xrc ? IBV_DEVICE_XRC : 0,
        .max_sge = (int)settings.list_max,
        .max_sge_rd = (int)settings.list_max,
        .max_cq = objects_max,
        .max_cqe = 4 * depth_max,
        .max_mr = objects_max,
        .max_pd = objects_max,
        .max_qp_rd_atom = outstanding_max,
        .max_res_rd_atom = outstanding_max * objects_max,
        .max_qp_init_rd_atom = outstanding_max,
        .atomic_cap = settings.atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE,
        .max_mcast_grp = objects_max,
        .max_mcast_qp_attach = objects_max,
        .max_total_mcast_qp_attach = objects_max,
        .max_ah = objects_max,
        .max_srq = objects_max,
        .max_srq_wr = depth_max,
        .max_srq_sge = (int)settings.list_max,
        .max_pkeys = partitions,
        .phys_port_cnt = 1,
    };
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *into)
{
    (void)context;
    if (port != 1)
        return REFUSE(EINVAL, "port %d", port);
    struct ibv_port_attr attr = {
        .state = IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = IBV_MTU_4096,
        .gid_tbl_len = (int)gid_count,
        .max_msg_sz = message_max_bytes,
        .pkey_tbl_len = partitions,
        .lid = settings.infiniband ? local_identifier : 0,
        .sm_lid = settings.infiniband ? 1 : 0,
        .phys_state = 5,
        .link_layer = settings.infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
    };
    /* Callers of this symbol may have a structure that ends here. */
    memcpy(into, &attr, offsetof(struct ibv_port_attr, port_cap_flags2));
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
                             size_t entry_bytes)
{
    (void)context;
    if (flags || entry_bytes != sizeof *entries)
        return -REFUSE(EINVAL, "flags %u, entries of %zu bytes", flags, entry_bytes);
    size_t count = max < gid_count ? max : gid_count;
    memcpy(entries, gids, count * sizeof *entries);
    return (ssize_t)count;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *key)
{
    (void)context;
    if (port != 1 || index < 0 || index >= partitions)
        return REFUSE(-1, "port %d, index %d", port, index);
    *key = htobe16(partition_at((unsigned)index));
    return 0;
}
