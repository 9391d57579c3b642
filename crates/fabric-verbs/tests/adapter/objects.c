/* Protection domains, regions and their keys, channels, address handles, XRC domains. */
#include "adapter.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Keys end in these, so that one is never taken for the other, nor for a key that was changed a little. */
enum { local_key_ending = 0x11, remote_key_ending = 0x22 };

static struct region *regions;
static uint32_t regions_made;

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    ONE_AT_A_TIME;
    struct domain *domain = made(sizeof *domain);
    domain->pd.context = context;
    context_of(context)->objects++;
    return &domain->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    ONE_AT_A_TIME;
    struct domain *domain = (struct domain *)pd;
    if (domain->users)
        MISTAKE("the protection domain has %u users", domain->users);
    context_of(pd->context)->objects--;
    free(domain);
    return 0;
}

/* Whether there is memory, as the kernel finds out by pinning it. */
static int is_mapped(uintptr_t start, size_t length)
{
    unsigned char resident[64];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t end = start + length;
    for (uintptr_t at = start & ~(page - 1); at < end; at += sizeof resident * page) {
        size_t piece = end - at < sizeof resident * page ? end - at : sizeof resident * page;
        if (mincore((void *)at, piece, resident))
            return 0;
    }
    return 1;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *start, size_t length, int access)
{
    ONE_AT_A_TIME;
    const int changes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if (access & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | changes))
        return REFUSE_OBJECT(EOPNOTSUPP, "access flags %#x", (unsigned)access);
    if (access & changes && !(access & IBV_ACCESS_LOCAL_WRITE))
        return REFUSE_OBJECT(EINVAL, "peers may change what its owner may not (%#x)", (unsigned)access);
    if (access & IBV_ACCESS_REMOTE_ATOMIC && !settings.atomics)
        return REFUSE_OBJECT(EINVAL, "the right to atomic operations, which there are not");
    if (!length || (uintptr_t)start + length < (uintptr_t)start)
        return REFUSE_OBJECT(EINVAL, "%zu bytes at %p", length, start);
    if (!is_mapped((uintptr_t)start, length))
        return REFUSE_OBJECT(EFAULT, "no memory of %zu bytes at %p", length, start);
    struct region *region = made(sizeof *region);
    uint32_t number = ++regions_made << 8;
    region->mr = (struct ibv_mr){pd->context, pd, start, length, number, number | local_key_ending,
                                 number | remote_key_ending};
    region->access = access;
    region->next = regions;
    regions = region;
    ((struct domain *)pd)->users++;
    context_of(pd->context)->objects++;
    return &region->mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
    ONE_AT_A_TIME;
    struct region **place = &regions;
    while (*place && &(*place)->mr != mr)
        place = &(*place)->next;
    if (!*place)
        MISTAKE("no such region");
    struct region *region = *place;
    *place = region->next;
    ((struct domain *)mr->pd)->users--;
    context_of(mr->context)->objects--;
    free(region);
    return 0;
}

static void *bytes_of(const struct region *region, struct ibv_pd *pd, uint64_t address, uint64_t length, int access)
{
    uint64_t start = (uintptr_t)region->mr.addr;
    if (region->mr.pd != pd || (region->access & access) != access)
        return NULL;
    if (address < start || length > region->mr.length || address - start > region->mr.length - length)
        return NULL;
    return (void *)(uintptr_t)address;
}

/* The bytes of a list's entry, or nothing if its key does not allow that. */
void *local_bytes(struct ibv_pd *pd, const struct ibv_sge *entry, int access)
{
    for (struct region *region = regions; region; region = region->next)
        if (region->mr.lkey == entry->lkey)
            return bytes_of(region, pd, entry->addr, entry->length, access);
    return NULL;
}

void *remote_bytes(struct ibv_pd *pd, uint64_t address, uint64_t length, uint32_t rkey, int access)
{
    for (struct region *region = regions; region; region = region->next)
        if (region->mr.rkey == rkey)
            return bytes_of(region, pd, address, length, access);
    return NULL;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    ONE_AT_A_TIME;
    struct channel *channel = made(sizeof *channel);
    if (notices_open(&channel->events)) {
        free(channel);
        return NULL;
    }
    channel->channel = (struct ibv_comp_channel){context, channel->events.fd, 0};
    context_of(context)->objects++;
    return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    ONE_AT_A_TIME;
    struct channel *destroyed = (struct channel *)channel;
    if (destroyed->users)
        MISTAKE("the channel has %u completion queues", destroyed->users);
    context_of(channel->context)->objects--;
    notices_close(&destroyed->events);
    free(destroyed);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    ONE_AT_A_TIME;
    int code = check_way(attr, __func__);
    if (code) {
        errno = code;
        return NULL;
    }
    struct way *way = made(sizeof *way);
    way->ah.context = pd->context;
    way->ah.pd = pd;
    way->attr = *attr;
    ((struct domain *)pd)->users++;
    context_of(pd->context)->objects++;
    return &way->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    ONE_AT_A_TIME;
    ((struct domain *)ah->pd)->users--;
    context_of(ah->context)->objects--;
    free(ah);
    return 0;
}

/* Domains that were opened with a file are one, whoever opened them. */
struct xrc_file {
    dev_t device;
    ino_t file;
    unsigned users;
    struct xrc_file *next;
};
static struct xrc_file *files;

struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
    ONE_AT_A_TIME;
    const uint32_t both = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if (attr->comp_mask & ~both)
        return REFUSE_OBJECT(EOPNOTSUPP, "mask %#x", attr->comp_mask);
    if (attr->comp_mask != both)
        return REFUSE_OBJECT(EINVAL, "mask %#x, which must name descriptor and flags", attr->comp_mask);
    if (attr->oflags & ~(O_CREAT | O_EXCL))
        return REFUSE_OBJECT(EINVAL, "flags %#x", (unsigned)attr->oflags);
    struct xrc_file *file = NULL;
    if (attr->fd != -1) {
        struct stat status;
        if (fstat(attr->fd, &status))
            return REFUSE_OBJECT(EBADF, "descriptor %d", attr->fd);
        for (file = files; file && (file->device != status.st_dev || file->file != status.st_ino);)
            file = file->next;
        if (!file && !(attr->oflags & O_CREAT))
            return REFUSE_OBJECT(EAGAIN, "the file has no domain yet, and none is to be made");
        if (file && attr->oflags & O_EXCL)
            return REFUSE_OBJECT(EINVAL, "the file has a domain already");
        if (!file) {
            file = made(sizeof *file);
            *file = (struct xrc_file){status.st_dev, status.st_ino, 0, files};
            files = file;
        }
        file->users++;
    }
    struct xrc_domain *domain = made(sizeof *domain);
    domain->xrcd.context = context;
    domain->file = file;
    context_of(context)->objects++;
    return &domain->xrcd;
}

int close_xrcd(struct ibv_xrcd *xrcd)
{
    ONE_AT_A_TIME;
    struct xrc_domain *domain = (struct xrc_domain *)xrcd;
    if (domain->users)
        MISTAKE("the XRC domain has %u users", domain->users);
    if (domain->file && !--domain->file->users) {
        struct xrc_file **place = &files;
        while (*place != domain->file)
            place = &(*place)->next;
        *place = domain->file->next;
        free(domain->file);
    }
    context_of(xrcd->context)->objects--;
    free(domain);
    return 0;
}

int same_domain(const struct xrc_domain *one, const struct xrc_domain *other)
{
    return one == other || (one->file && one->file == other->file);
}
