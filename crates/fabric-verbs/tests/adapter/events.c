/* Events: lists that make a descriptor readable, and what becomes of the objects they name. */
#include "adapter.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

int notices_open(struct notices *notices)
{
    notices->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    return notices->fd < 0 ? errno : 0;
}

void notices_close(struct notices *notices)
{
    while (notices->first)
        notices_forget(notices, notices->first->object);
    close(notices->fd);
}

void notices_add(struct notices *notices, int kind, void *object)
{
    struct notice *notice = made(sizeof *notice), **last = &notices->first;
    while (*last)
        last = &(*last)->next;
    *notice = (struct notice){NULL, object, kind};
    *last = notice;
    if (eventfd_write(notices->fd, 1))
        MISTAKE("the descriptor does not take more: %s", strerror(errno));
}

/* Takes one out of the list, and off the descriptor. */
static void unlink_notice(struct notices *notices, struct notice **place)
{
    struct notice *notice = *place;
    eventfd_t one;
    if (eventfd_read(notices->fd, &one))
        MISTAKE("the descriptor and the list do not agree: %s", strerror(errno));
    *place = notice->next;
    free(notice);
}

void notices_forget(struct notices *notices, void *object)
{
    struct notice **place = &notices->first;
    while (*place) {
        if ((*place)->object == object)
            unlink_notice(notices, place);
        else
            place = &(*place)->next;
    }
}

/* Waits for one, unless the descriptor was made not to. */
int notices_take(struct notices *notices, int *kind, void **object)
{
    for (;;) {
        int entered = enter();
        if (notices->first) {
            *kind = notices->first->kind;
            *object = notices->first->object;
            unlink_notice(notices, &notices->first);
            return 0; /* still inside: the caller counts what it took, and leaves */
        }
        leave(&entered);
        if (fcntl(notices->fd, F_GETFL) & O_NONBLOCK) {
            errno = EAGAIN;
            return -1;
        }
        struct pollfd one = {notices->fd, POLLIN, 0};
        poll(&one, 1, -1);
    }
}

void tell(struct ibv_context *context, enum ibv_event_type type, void *object)
{
    notices_add(&context_of(context)->events, (int)type, object);
}

/* Where an object counts the events that were taken and not acknowledged. */
static unsigned *unacknowledged(const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        return &((struct queue *)event->element.cq)->unacknowledged_events;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return &((struct shared *)event->element.srq)->unacknowledged_events;
    default:
        return &((struct pair *)event->element.qp)->unacknowledged_events;
    }
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    int kind, entered = 1;
    void *object;
    if (notices_take(&context_of(context)->events, &kind, &object))
        return -1;
    event->event_type = (enum ibv_event_type)kind;
    event->element.qp = object;
    ++*unacknowledged(event);
    leave(&entered);
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    ONE_AT_A_TIME;
    unsigned *count = unacknowledged(event);
    if (!*count)
        MISTAKE("acknowledges an event that was not taken");
    --*count;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    int kind, entered = 1;
    void *object;
    if (notices_take(&((struct channel *)channel)->events, &kind, &object))
        return -1;
    *cq = object;
    *cq_context = (*cq)->cq_context;
    ((struct queue *)object)->unacknowledged++;
    leave(&entered);
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
    ONE_AT_A_TIME;
    struct queue *queue = (struct queue *)cq;
    if (count > queue->unacknowledged)
        MISTAKE("acknowledges %u events where %u were taken", count, queue->unacknowledged);
    queue->unacknowledged -= count;
}
