/* Ping-pong beside messages that nobody has asked for yet, or beside receives that nothing has come for yet. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OTHER_TAG 1000

static void ping_pong(long count) {
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
}

static void check(void) {
    fill(out, bytes, rank, 0);
    memset(in, 0, bytes);
    ping_pong(1);
    if (rank < 2) expect(in, bytes, 1 - rank, 0, "ping-pong");
}

static void at_depth(const char *test, long depth) {
    char text[64];
    snprintf(text, sizeof text, "\"depth\":%ld", depth);
    check();
    struct samples samples = measure(ping_pong, ROOT, 0);
    check();
    record(test, bytes, text, "us", 0.5, 0, samples);
}

/* Messages with other tags lie before the one that is received. */
static void unexpected_at(long depth) {
    int number = 0;
    if (rank < 2)
        for (long i = 0; i < depth; i++) {
            number = (int)i;
            MPI_Send(&number, 1, MPI_INT, 1 - rank, OTHER_TAG + (int)i, MPI_COMM_WORLD);
        }
    at_depth("unexpected", depth);
    if (rank < 2)
        for (long i = depth; i-- > 0;) {
            MPI_Recv(&number, 1, MPI_INT, 1 - rank, OTHER_TAG + (int)i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            need(number == i, "an unexpected message", i);
        }
}

/* Receives with other tags were posted before the one that is matched. */
static void posted_at(long depth) {
    MPI_Request *requests = calloc(depth + 1, sizeof *requests);
    int *numbers = calloc(depth + 1, sizeof *numbers);
    if (rank < 2)
        for (long i = 0; i < depth; i++)
            MPI_Irecv(&numbers[i], 1, MPI_INT, 1 - rank, OTHER_TAG + (int)i, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    at_depth("posted", depth);
    if (rank < 2) {
        for (long i = depth; i-- > 0;) {
            int number = (int)i;
            MPI_Send(&number, 1, MPI_INT, 1 - rank, OTHER_TAG + (int)i, MPI_COMM_WORLD);
        }
        MPI_Waitall((int)depth, requests, MPI_STATUSES_IGNORE);
        for (long i = 0; i < depth; i++) need(numbers[i] == i, "a posted receive", i);
    }
    free(requests);
    free(numbers);
}

static void at_depths(void (*run)(long depth)) {
    long depths[16];
    int count = parameter_list("depth", "0,16,256,4096", depths, 16);
    for (int s = 0; s < options.size_count; s++)
        for (int d = 0; d < count; d++) {
            bytes = options.sizes[s];
            buffers(bytes);
            run(depths[d] < 0 ? 0 : depths[d]);
        }
}

static void unexpected(void) {
    at_depths(unexpected_at);
}

static void posted(void) {
    at_depths(posted_at);
}

const struct test queue_tests[] = {{"unexpected", unexpected, 0}, {"posted", posted, 0}, {NULL, NULL, 0}};
