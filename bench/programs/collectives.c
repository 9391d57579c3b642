/* All collectives over the world, blocking and non-blocking. `bytes` is what one process contributes, or what goes from
 * each process to each other; the root changes with every operation. Elements are 4-byte integers, added up where
 * something is reduced. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, REDUCE,
    ALLREDUCE, REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, SCAN, EXSCAN
};
static const char *const names[] = {
    "barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv",
    "alltoallw", "reduce", "allreduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan"};

static enum kind kind;
static int nonblocking;
static int elements;
static int *counts, *places, *byte_places;
static MPI_Datatype *types;
static double work_ns;

static void blocking(int root) {
    const MPI_Comm world = MPI_COMM_WORLD;
    const MPI_Datatype type = MPI_UNSIGNED;
    const int n = elements;
    switch (kind) {
    case BARRIER: MPI_Barrier(world); break;
    case BCAST: MPI_Bcast(rank == root ? out : in, n, type, root, world); break;
    case GATHER: MPI_Gather(out, n, type, in, n, type, root, world); break;
    case GATHERV: MPI_Gatherv(out, n, type, in, counts, places, type, root, world); break;
    case SCATTER: MPI_Scatter(out, n, type, in, n, type, root, world); break;
    case SCATTERV: MPI_Scatterv(out, counts, places, type, in, n, type, root, world); break;
    case ALLGATHER: MPI_Allgather(out, n, type, in, n, type, world); break;
    case ALLGATHERV: MPI_Allgatherv(out, n, type, in, counts, places, type, world); break;
    case ALLTOALL: MPI_Alltoall(out, n, type, in, n, type, world); break;
    case ALLTOALLV: MPI_Alltoallv(out, counts, places, type, in, counts, places, type, world); break;
    case ALLTOALLW: MPI_Alltoallw(out, counts, byte_places, types, in, counts, byte_places, types, world); break;
    case REDUCE: MPI_Reduce(out, in, n, type, MPI_SUM, root, world); break;
    case ALLREDUCE: MPI_Allreduce(out, in, n, type, MPI_SUM, world); break;
    case REDUCE_SCATTER_BLOCK: MPI_Reduce_scatter_block(out, in, n, type, MPI_SUM, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter(out, in, counts, type, MPI_SUM, world); break;
    case SCAN: MPI_Scan(out, in, n, type, MPI_SUM, world); break;
    case EXSCAN: MPI_Exscan(out, in, n, type, MPI_SUM, world); break;
    }
}

static void start(int root, MPI_Request *request) {
    const MPI_Comm world = MPI_COMM_WORLD;
    const MPI_Datatype type = MPI_UNSIGNED;
    const int n = elements;
    switch (kind) {
    case BARRIER: MPI_Ibarrier(world, request); break;
    case BCAST: MPI_Ibcast(rank == root ? out : in, n, type, root, world, request); break;
    case GATHER: MPI_Igather(out, n, type, in, n, type, root, world, request); break;
    case GATHERV: MPI_Igatherv(out, n, type, in, counts, places, type, root, world, request); break;
    case SCATTER: MPI_Iscatter(out, n, type, in, n, type, root, world, request); break;
    case SCATTERV: MPI_Iscatterv(out, counts, places, type, in, n, type, root, world, request); break;
    case ALLGATHER: MPI_Iallgather(out, n, type, in, n, type, world, request); break;
    case ALLGATHERV: MPI_Iallgatherv(out, n, type, in, counts, places, type, world, request); break;
    case ALLTOALL: MPI_Ialltoall(out, n, type, in, n, type, world, request); break;
    case ALLTOALLV: MPI_Ialltoallv(out, counts, places, type, in, counts, places, type, world, request); break;
    case ALLTOALLW:
        MPI_Ialltoallw(out, counts, byte_places, types, in, counts, byte_places, types, world, request);
        break;
    case REDUCE: MPI_Ireduce(out, in, n, type, MPI_SUM, root, world, request); break;
    case ALLREDUCE: MPI_Iallreduce(out, in, n, type, MPI_SUM, world, request); break;
    case REDUCE_SCATTER_BLOCK: MPI_Ireduce_scatter_block(out, in, n, type, MPI_SUM, world, request); break;
    case REDUCE_SCATTER: MPI_Ireduce_scatter(out, in, counts, type, MPI_SUM, world, request); break;
    case SCAN: MPI_Iscan(out, in, n, type, MPI_SUM, world, request); break;
    case EXSCAN: MPI_Iexscan(out, in, n, type, MPI_SUM, world, request); break;
    }
}

static void one(int root) {
    MPI_Request request;
    if (!nonblocking) {
        blocking(root);
        return;
    }
    start(root, &request);
    if (work_ns > 0) compute(work_ns);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int has_root(void) {
    return kind == BCAST || kind == GATHER || kind == GATHERV || kind == SCATTER || kind == SCATTERV || kind == REDUCE;
}

/* Operations of a round, in which each rank is the root once: what a root leaves to be done while it goes on is in the
 * same sample. */
static int in_round(void) {
    return has_root() ? size : 1;
}

static void repeated(long rounds) {
    for (long i = 0; i < rounds; i++)
        for (int root = 0; root < in_round(); root++) one(root);
}

static int sends_to_each(void) {
    return kind == SCATTER || kind == SCATTERV || kind == ALLTOALL || kind == ALLTOALLV || kind == ALLTOALLW
           || kind == REDUCE_SCATTER_BLOCK || kind == REDUCE_SCATTER;
}

/* What `from` has for `to`; kinds without an addressee have the same for everybody. */
static unsigned sent(int from, int to, long i) {
    return element(from, sends_to_each() ? to : 0, i);
}

static unsigned added(int from, int to, int me, long i) {
    unsigned sum = 0;
    for (int r = from; r < to; r++) sum += sent(r, me, i);
    return sum;
}

/* Element `i` of block `block` that this rank must have received; false if it receives nothing there. */
static int expected(int root, int block, long i, unsigned *value) {
    switch (kind) {
    case BARRIER: return 0;
    case BCAST: *value = sent(root, 0, i); return rank != root && block == 0;
    case GATHER: case GATHERV: *value = sent(block, 0, i); return rank == root;
    case SCATTER: case SCATTERV: *value = sent(root, rank, i); return block == 0;
    case ALLGATHER: case ALLGATHERV: *value = sent(block, 0, i); return 1;
    case ALLTOALL: case ALLTOALLV: case ALLTOALLW: *value = sent(block, rank, i); return 1;
    case REDUCE: *value = added(0, size, 0, i); return rank == root && block == 0;
    case ALLREDUCE: *value = added(0, size, 0, i); return block == 0;
    case REDUCE_SCATTER_BLOCK: case REDUCE_SCATTER: *value = added(0, size, rank, i); return block == 0;
    case SCAN: *value = added(0, rank + 1, 0, i); return block == 0;
    case EXSCAN: *value = added(0, rank, 0, i); return rank > 0 && block == 0;
    }
    return 0;
}

static void check(void) {
    unsigned *mine = (unsigned *)out, *theirs = (unsigned *)in, value;
    int roots[2] = {0, size - 1};
    for (int to = 0; to < size; to++)
        for (long i = 0; i < elements; i++) mine[(long)to * elements + i] = sent(rank, to, i);
    for (int r = 0; r < 2; r++) {
        memset(in, 0, (size_t)size * bytes);
        one(roots[r]);
        for (int block = 0; block < size; block++)
            for (long i = 0; i < elements; i++)
                if (expected(roots[r], block, i, &value)) need(theirs[(long)block * elements + i] == value,
                                                               names[kind], i);
    }
}

static void prepare(void) {
    buffers((size_t)size * bytes);
    counts = realloc(counts, size * sizeof *counts);
    places = realloc(places, size * sizeof *places);
    byte_places = realloc(byte_places, size * sizeof *byte_places);
    types = realloc(types, size * sizeof *types);
    for (int r = 0; r < size; r++) {
        counts[r] = elements;
        places[r] = r * elements;
        byte_places[r] = r * elements * (int)sizeof(unsigned);
        types[r] = MPI_UNSIGNED;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct samples samples) {
    double value = 0;
    if (rank == 0) {
        double *sorted = malloc(samples.count * sizeof *sorted);
        memcpy(sorted, samples.values, samples.count * sizeof *sorted);
        qsort(sorted, samples.count, sizeof *sorted, ascending);
        value = sorted[samples.count / 2];
        free(sorted);
    }
    MPI_Bcast(&value, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return value;
}

/* Which share of the collective hides behind as much computing as the collective lasts alone. */
static void measure_overlap(const char *test, double alone) {
    char name[64];
    snprintf(name, sizeof name, "%s-overlap", test);
    double computing[9];
    for (int i = 0; i < 9; i++) {
        double start = now();
        compute(alone);
        computing[i] = now() - start;
    }
    qsort(computing, 9, sizeof *computing, ascending);
    work_ns = alone;
    struct samples samples = measure(repeated, ALL, 0);
    work_ns = 0;
    for (long i = 0; rank == 0 && i < samples.count; i++) {
        double share = 100 * (1 - (samples.values[i] / in_round() - computing[4]) / alone);
        samples.values[i] = share < 0 ? 0 : share > 100 ? 100 : share;
    }
    /* What it lasts alone was measured before, at whatever pace. */
    forget_paces(&samples);
    record(name, bytes, NULL, "%", 1, 0, samples);
}

int collective(const char *name) {
    int found = 0;
    nonblocking = name[0] == 'i';
    for (kind = BARRIER; kind <= EXSCAN; kind++) {
        if (!strcmp(name + nonblocking, names[kind])) found = 1;
        if (found) break;
    }
    if (!found) return 0;
    if (kind == BARRIER) {
        options.size_count = 1;
        options.sizes[0] = 0;
    }
    for (int s = 0; s < options.size_count; s++) {
        elements = (int)(options.sizes[s] / sizeof(unsigned));
        bytes = elements * (long)sizeof(unsigned);
        prepare();
        check();
        struct samples samples = measure(repeated, ALL, 0);
        double alone = median(samples) / in_round();
        check();
        samples.per_sample *= in_round();
        record(name, bytes, NULL, "us", 1.0 / in_round(), 0, samples);
        if (nonblocking) measure_overlap(name, alone);
    }
    return 1;
}
