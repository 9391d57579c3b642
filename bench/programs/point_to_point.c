/* Two ranks, or pairs of them: latency, bandwidth, message rate, overlap and host overhead. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_MAX 1024

static MPI_Request requests[2 * WINDOW_MAX];
static int window, pairs;

static void need_ranks(int wanted) {
    if (size >= wanted) return;
    fprintf(stderr, "bench: %s needs %d ranks\n", options.test, wanted);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Of how much memory messages are parts in turn, so that no cache holds what is sent, nor where it goes; 0: always the
 * same part. And where the present one lies. */
static long span, place;

static void ping_pong(long count) {
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Send(out + place, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in + place, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(in + place, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out + place, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        if (span) place = (place + bytes + 4096) % span;
    }
}

static void check_ping_pong(void) {
    long here = place;
    fill(out + here, bytes, rank, 0);
    memset(in + here, 0, bytes);
    ping_pong(1);
    if (rank < 2) expect(in + here, bytes, 1 - rank, 0, "ping-pong");
}

static void latency(void) {
    char text[32];
    need_ranks(2);
    span = parameter("span", 0);
    snprintf(text, sizeof text, "\"span\":%ld", span);
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        buffers(span + bytes);
        place = 0;
        check_ping_pong();
        struct samples samples = measure(ping_pong, ROOT, 0);
        check_ping_pong();
        record("latency", bytes, span ? text : NULL, "us", 0.5, 0, samples);
    }
}

/* Each rank exchanges a message with each other one, one after the other, as transposes do. */
static void exchange(long count) {
    for (long i = 0; i < count; i++)
        for (int step = 1; step < size; step++) {
            int to = (rank + step) % size, from = (rank - step + size) % size;
            MPI_Sendrecv(out + to * bytes, bytes, MPI_BYTE, to, 5, in + from * bytes, bytes, MPI_BYTE, from, 5,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
}

static void check_exchange(void) {
    for (int to = 0; to < size; to++) fill(out + to * bytes, bytes, rank, to);
    memset(in, 0, size * bytes);
    exchange(1);
    for (int from = 0; from < size; from++)
        if (from != rank) expect(in + from * bytes, bytes, from, rank, "an exchange");
}

static void exchanges(void) {
    need_ranks(2);
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        buffers(size * bytes);
        check_exchange();
        struct samples samples = measure(exchange, ALL, 0);
        check_exchange();
        record("exchange", bytes, NULL, "us", 1.0 / (size - 1), 0, samples);
    }
}

/* Messages of several lengths one after the other, as faces of a block are: an operation goes through all. */
enum { LENGTHS = 4 };

static long length(int index) {
    static const int parts[LENGTHS] = {1, 2, 1, 8};
    return bytes / parts[index];
}

static void ping_pong_mixed(long count) {
    if (rank > 1) return;
    for (long i = 0; i < count; i++)
        for (int l = 0; l < LENGTHS; l++) {
            if (rank == 0) MPI_Send(out, length(l), MPI_BYTE, 1, l, MPI_COMM_WORLD);
            MPI_Recv(in, length(l), MPI_BYTE, 1 - rank, l, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(out, length(l), MPI_BYTE, 0, l, MPI_COMM_WORLD);
        }
}

static void exchange_mixed(long count) {
    if (rank > 1) return;
    for (long i = 0; i < count; i++)
        for (int l = 0; l < LENGTHS; l++)
            MPI_Sendrecv(out, length(l), MPI_BYTE, 1 - rank, l, in, length(l), MPI_BYTE, 1 - rank, l, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
}

/* All of them under way at once, each to a place of its own. */
static void at_once_mixed(long count) {
    if (rank > 1) return;
    for (long i = 0; i < count; i++) {
        for (int l = 0; l < LENGTHS; l++)
            MPI_Irecv(in + l * bytes, length(l), MPI_BYTE, 1 - rank, l, MPI_COMM_WORLD, &requests[l]);
        for (int l = 0; l < LENGTHS; l++)
            MPI_Isend(out + l * bytes, length(l), MPI_BYTE, 1 - rank, l, MPI_COMM_WORLD, &requests[LENGTHS + l]);
        MPI_Waitall(2 * LENGTHS, requests, MPI_STATUSES_IGNORE);
    }
}

static void check_mixed(operation *run) {
    for (int l = 0; l < LENGTHS; l++) fill(out + l * bytes, bytes, rank, 0);
    memset(in, 0, LENGTHS * bytes);
    run(1);
    if (rank > 1) return;
    expect(in, bytes, 1 - rank, 0, "messages of several lengths");
    for (int l = 1; l < LENGTHS && run == at_once_mixed; l++)
        expect(in + l * bytes, length(l), 1 - rank, 0, "messages of several lengths at once");
}

static void mixed(void) {
    static const struct {
        const char *name, *parameters;
        operation *run;
        double each;
    } ways[] = {{"ping-pong", "\"way\":\"ping-pong\"", ping_pong_mixed, 0.5},
                {"exchange", "\"way\":\"exchange\"", exchange_mixed, 1},
                {"at-once", "\"way\":\"at-once\"", at_once_mixed, 1}};
    const char *wanted = parameter_text("way", "ping-pong,exchange,at-once");
    need_ranks(2);
    for (int s = 0; s < options.size_count; s++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            if (!strstr(wanted, ways[w].name)) continue;
            bytes = options.sizes[s];
            buffers(LENGTHS * bytes);
            check_mixed(ways[w].run);
            struct samples samples = measure(ways[w].run, ALL, 0);
            check_mixed(ways[w].run);
            record("mixed", bytes, ways[w].parameters, "us", ways[w].each, 0, samples);
        }
}

/* Windows from each rank of the first half to its partner in the second, each window acknowledged. */
static void windows(long count) {
    char done = 0;
    int partner = rank < pairs ? rank + pairs : rank - pairs;
    if (rank >= 2 * pairs) return;
    for (long i = 0; i < count; i++) {
        for (int w = 0; w < window; w++)
            if (rank < pairs) MPI_Isend(out, bytes, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[w]);
            else MPI_Irecv(in, bytes, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[w]);
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        if (rank < pairs) MPI_Recv(&done, 1, MPI_BYTE, partner, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&done, 1, MPI_BYTE, partner, 3, MPI_COMM_WORLD);
    }
}

static void windows_both_ways(long count) {
    int partner = rank < pairs ? rank + pairs : rank - pairs;
    if (rank >= 2 * pairs) return;
    for (long i = 0; i < count; i++) {
        for (int w = 0; w < window; w++) MPI_Irecv(in, bytes, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[w]);
        for (int w = 0; w < window; w++)
            MPI_Isend(out, bytes, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[window + w]);
        MPI_Waitall(2 * window, requests, MPI_STATUSES_IGNORE);
    }
}

/* Several messages under way at once, each with contents of its own and a place of its own. */
static void check_window(void) {
    enum { MESSAGES = 4 };
    MPI_Request under_way[2 * MESSAGES];
    int partner = rank < pairs ? rank + pairs : rank - pairs, used = 0;
    if (rank >= 2 * pairs) return;
    memset(in, 0, MESSAGES * bytes);
    for (int m = 0; m < MESSAGES; m++) {
        fill(out + m * bytes, bytes, rank, m);
        MPI_Irecv(in + m * bytes, bytes, MPI_BYTE, partner, 4, MPI_COMM_WORLD, &under_way[used++]);
    }
    for (int m = 0; m < MESSAGES; m++)
        MPI_Isend(out + m * bytes, bytes, MPI_BYTE, partner, 4, MPI_COMM_WORLD, &under_way[used++]);
    MPI_Waitall(used, under_way, MPI_STATUSES_IGNORE);
    for (int m = 0; m < MESSAGES; m++) expect(in + m * bytes, bytes, partner, m, "a window");
}

/* The last message of the windows just timed must lie where it was sent to. */
static void check_last(int receives) {
    if (receives && rank < 2 * pairs) expect(in, bytes, rank < pairs ? rank + pairs : rank - pairs, 0, "a window");
}

static void windowed(const char *test, int both_ways, int by_message) {
    long list[16];
    int list_count = parameter_list("window", "64", list, 16);
    need_ranks(2);
    for (int s = 0; s < options.size_count; s++)
        for (int w = 0; w < list_count; w++) {
            char text[64];
            bytes = options.sizes[s];
            window = list[w] < 1 ? 1 : list[w] > WINDOW_MAX ? WINDOW_MAX : (int)list[w];
            buffers(4 * bytes);
            check_window();
            fill(out, bytes, rank, 0);
            struct samples samples = measure(both_ways ? windows_both_ways : windows, ALL, 0);
            check_last(both_ways || rank >= pairs);
            double messages = (double)window * pairs * (both_ways ? 2 : 1);
            snprintf(text, sizeof text, "\"window\":%d", window);
            record(test, bytes, text, by_message ? "/s" : "MB/s", 1, by_message ? messages : messages * bytes, samples);
        }
}

static void bandwidth(void) {
    pairs = 1;
    windowed("bandwidth", 0, 0);
}

static void bidirectional(void) {
    pairs = 1;
    windowed("bidirectional", 1, 0);
}

static void rate(void) {
    pairs = size / 2;
    windowed("rate", 0, 1);
}

enum { OVERLAP_TRIES = 200 };
/* So much earlier the first of the two ranks posts its part: longer than posting takes, and than both ranks need to
 * leave a barrier. */
#define HEAD_START_NS 10000.0

/* A side of the overlap test: whose time counts, and whether the other rank posts its part before or after it. */
struct side {
    int measured, other_first;
};

/* One message from rank 0 to rank 1, beside which the measured rank computes. The other one does nothing else: it
 * waits. Returns what it took, without the barrier and the head start. */
static double message(struct side side, double head_start, double work) {
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank > 1) return 0;
    if ((rank == side.measured) == side.other_first) compute(head_start);
    double start = now();
    if (rank == 0) MPI_Isend(out, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
    else MPI_Irecv(in, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request);
    if (rank == side.measured) compute(work);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return now() - start;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of OVERLAP_TRIES values. */
static double median_of(const double *values) {
    double sorted[OVERLAP_TRIES];
    memcpy(sorted, values, sizeof sorted);
    qsort(sorted, OVERLAP_TRIES, sizeof *sorted, ascending);
    return sorted[OVERLAP_TRIES / 2];
}

/* What a message takes with nothing beside it and both ranks posting at once: on this rank, and on the slower one. */
static double without_work(struct side side, double *longest) {
    double totals[OVERLAP_TRIES], mine;
    for (int warm = 0; warm < 2; warm++)
        for (int i = 0; i < OVERLAP_TRIES; i++) totals[i] = message(side, 0, 0);
    mine = median_of(totals);
    MPI_Allreduce(&mine, longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return mine;
}

/* Writes what the measured rank found as rank 0's. */
static void record_side(struct side side, const char *test, const char *unit, double *values) {
    char text[64];
    if (side.measured == 1 && rank == 1) MPI_Send(values, OVERLAP_TRIES, MPI_DOUBLE, 0, 6, MPI_COMM_WORLD);
    if (rank != 0) return;
    struct samples samples = {calloc(OVERLAP_TRIES, sizeof(double)), OVERLAP_TRIES, 1};
    if (side.measured == 1)
        MPI_Recv(samples.values, OVERLAP_TRIES, MPI_DOUBLE, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else memcpy(samples.values, values, OVERLAP_TRIES * sizeof(double));
    snprintf(text, sizeof text, "\"side\":\"%s\",\"other\":\"%s\"", side.measured ? "receive" : "send",
             side.other_first ? "first" : "later");
    record(test, bytes, text, unit, 1, 0, samples);
}

/* With work longer than the message takes: by how much the whole lasts longer than the work alone, which is timed in
 * between, and which share of the message's time that leaves; and a twentieth of that time, what all of a message may
 * cost a processor that is to keep 95 % of it. */
static void overlap_of(struct side side) {
    double totals[OVERLAP_TRIES], alone[OVERLAP_TRIES], shares[OVERLAP_TRIES], longest;
    double pure = without_work(side, &longest);
    double work = 2 * (longest + HEAD_START_NS);
    /* The barriers between the messages are counted with them. */
    counters_begin();
    for (int i = 0; i < OVERLAP_TRIES; i++) {
        totals[i] = message(side, HEAD_START_NS, work);
        double start = now();
        if (rank == side.measured) compute(work);
        alone[i] = now() - start;
    }
    counters_end(OVERLAP_TRIES);
    double work_alone = median_of(alone);
    for (int i = 0; i < OVERLAP_TRIES; i++) {
        totals[i] = totals[i] > work_alone ? totals[i] - work_alone : 0;
        double share = 100 * (1 - totals[i] / pure);
        shares[i] = share < 0 ? 0 : share;
    }
    if (rank == 1) expect(in, bytes, 0, 0, "a message beside work");
    record_side(side, "overlap", "%", shares);
    record_side(side, "overlap-overhead", "us", totals);
    for (int i = 0; i < OVERLAP_TRIES; i++) totals[i] = pure / 20;
    record_side(side, "overlap-twentieth", "us", totals);
}

/* The share of a message's time that is left for computing, and what the message costs its processor, for either side
 * by itself, as the Sandia micro-benchmarks have it (Paper: tupleq §8.3). */
static void overlap(void) {
    const char *sides = parameter_text("side", "send,receive"), *others = parameter_text("other", "later,first");
    need_ranks(2);
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        buffers(bytes);
        fill(out, bytes, 0, 0);
        for (int measured = 0; measured < 2; measured++)
            for (int first = 0; first < 2; first++)
                if (strstr(sides, measured ? "receive" : "send") && strstr(others, first ? "first" : "later"))
                    overlap_of((struct side){measured, first});
    }
}

const struct test point_to_point_tests[] = {
    {"latency", latency, 0},
    {"exchange", exchanges, 0},
    {"mixed", mixed, 0},
    {"bandwidth", bandwidth, 0},
    {"bidirectional", bidirectional, 0},
    {"rate", rate, 0},
    {"overlap", overlap, 0},
    {NULL, NULL, 0},
};
