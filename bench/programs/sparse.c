/* Sparse exchange: every rank has a message for a few others, who do not know that it comes. Synchronous sends, probing
 * and a non-blocking barrier tell when all has arrived (Hoefler, Siebert and Lumsdaine, 2010). */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TARGETS_MAX 64

static int target_count;
static long round_number;
static int checking;

/* The `k`-th target of a rank in a round; by chance, but everybody can tell. */
static int target(int of, long round, int k) {
    uint64_t x = (uint64_t)of * 0x9e3779b97f4a7c15u + (uint64_t)round * 0xd1b54a32d192ed03u + (uint64_t)k;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    return (int)(x % (uint64_t)size);
}

static void receive(MPI_Status *status, int tag, int *received) {
    int length;
    MPI_Get_count(status, MPI_BYTE, &length);
    need(length == bytes, "the length of a sparse message", length);
    MPI_Recv(in, length, MPI_BYTE, status->MPI_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (checking) expect(in, bytes, status->MPI_SOURCE, (int)round_number, "a sparse message");
    received[status->MPI_SOURCE]++;
}

static void one_round(int *received) {
    MPI_Request sends[TARGETS_MAX], barrier = MPI_REQUEST_NULL;
    /* A message of the next round must not be taken for one of this. */
    int tag = (int)(round_number % 2), arrived, sent = 0, done = 0;
    for (int k = 0; k < target_count; k++)
        MPI_Issend(out, bytes, MPI_BYTE, target(rank, round_number, k), tag, MPI_COMM_WORLD, &sends[k]);
    while (!done) {
        MPI_Status status;
        MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &arrived, &status);
        if (arrived) receive(&status, tag, received);
        else if (sent) MPI_Test(&barrier, &done, MPI_STATUS_IGNORE);
        else {
            MPI_Testall(target_count, sends, &sent, MPI_STATUSES_IGNORE);
            if (sent) MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
        }
    }
}

static int *counts;

static void rounds(long count) {
    for (long i = 0; i < count; i++) {
        one_round(counts);
        round_number++;
    }
}

/* Exactly the messages that were meant for this rank have come, with the contents of this round. */
static void check(void) {
    checking = 1;
    for (int i = 0; i < 3; i++) {
        memset(counts, 0, size * sizeof *counts);
        fill(out, bytes, rank, (int)round_number);
        one_round(counts);
        for (int from = 0; from < size; from++) {
            int wanted = 0;
            for (int k = 0; k < target_count; k++) wanted += target(from, round_number, k) == rank;
            need(counts[from] == wanted, "the messages of a sparse exchange", from);
        }
        round_number++;
    }
    checking = 0;
}

void sparse(void) {
    char text[64];
    target_count = (int)parameter("targets", 3);
    target_count = target_count < 1 ? 1 : target_count > TARGETS_MAX ? TARGETS_MAX : target_count;
    counts = calloc(size, sizeof *counts);
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        buffers(bytes);
        check();
        struct samples samples = measure(rounds, ALL, 0);
        check();
        snprintf(text, sizeof text, "\"targets\":%d", target_count);
        record("sparse", bytes, text, "us", 1, 0, samples);
    }
    free(counts);
}
