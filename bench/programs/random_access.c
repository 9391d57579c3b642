/* Random access: every rank makes updates for places of a table that is spread over all of them, a batch at a time.
 * `size` is the number of updates each rank makes in a batch. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (1 << 16)

static uint64_t *table, *made, *sorted, *arriving;
static int *send_counts, *send_places, *receive_counts, *receive_places;
static long batch, arriving_max;
static uint64_t state;

static uint64_t chance(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int owner(uint64_t update) {
    return (int)((update >> 20) % (uint64_t)size);
}

/* Updates sorted by owner, exchanged, and applied by exclusive or. */
static void one_batch(void) {
    memset(send_counts, 0, size * sizeof *send_counts);
    for (long i = 0; i < batch; i++) send_counts[owner(made[i] = chance())]++;
    MPI_Alltoall(send_counts, 1, MPI_INT, receive_counts, 1, MPI_INT, MPI_COMM_WORLD);
    int place = 0, total = 0;
    for (int r = 0; r < size; r++) {
        send_places[r] = place;
        receive_places[r] = total;
        place += send_counts[r];
        total += receive_counts[r];
        send_counts[r] = 0;
    }
    for (long i = 0; i < batch; i++) {
        int to = owner(made[i]);
        sorted[send_places[to] + send_counts[to]++] = made[i];
    }
    if (total > arriving_max) {
        arriving_max = total;
        free(arriving);
        arriving = malloc((size_t)total * sizeof *arriving);
        need(arriving != NULL, "memory for updates", total);
    }
    MPI_Alltoallv(sorted, send_counts, send_places, MPI_UINT64_T, arriving, receive_counts, receive_places,
                  MPI_UINT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < total; i++) {
        if (owner(arriving[i]) != rank) need(0, "an update for somebody else", i);
        table[arriving[i] % WORDS] ^= arriving[i];
    }
}

static void batches(long count) {
    for (long i = 0; i < count; i++) one_batch();
}

static void start(uint64_t seed) {
    state = seed * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1b54a32d192ed03u + 1;
}

/* The exclusive or of the whole table and of all updates are the same; and the same updates again undo everything. */
static void check(void) {
    uint64_t expected = 0, mine = 0, totals[2], sums[2];
    for (int i = 0; i < WORDS; i++) table[i] = 0;
    start(7);
    for (long i = 0; i < 3 * batch; i++) expected ^= chance();
    start(7);
    batches(3);
    for (int i = 0; i < WORDS; i++) mine ^= table[i];
    totals[0] = expected;
    totals[1] = mine;
    MPI_Allreduce(totals, sums, 2, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    need(sums[0] == sums[1], "the sum of a table", 0);
    start(7);
    batches(3);
    for (int i = 0; i < WORDS; i++) need(table[i] == 0, "a table that was undone", i);
}

void random_access(void) {
    int **lists[] = {&send_counts, &send_places, &receive_counts, &receive_places};
    for (int l = 0; l < 4; l++) *lists[l] = calloc(size, sizeof(int));
    table = calloc(WORDS, sizeof *table);
    for (int s = 0; s < options.size_count; s++) {
        batch = options.sizes[s] < 1 ? 1 : options.sizes[s];
        bytes = batch;
        made = calloc(batch, sizeof *made);
        sorted = calloc(batch, sizeof *sorted);
        check();
        start(11);
        struct samples samples = measure(batches, ALL, 0);
        check();
        record("random-access", bytes, NULL, "/s", 1, (double)batch * size, samples);
        free(made);
        free(sorted);
    }
    free(table);
}
