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

static void check_ping_pong(void) {
    fill(out, bytes, rank, 0);
    memset(in, 0, bytes);
    ping_pong(1);
    if (rank < 2) expect(in, bytes, 1 - rank, 0, "ping-pong");
}

static void latency(void) {
    need_ranks(2);
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        buffers(bytes);
        check_ping_pong();
        struct samples samples = measure(ping_pong, ROOT, 0);
        check_ping_pong();
        record("latency", bytes, NULL, "us", 0.5, 0, samples);
    }
}

/* Both sides send at once and wait for what the other sends. */
static void exchange(long count) {
    for (long i = 0; i < count && rank < 2; i++)
        MPI_Sendrecv(out, bytes, MPI_BYTE, 1 - rank, 1, in, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
}

static void bidirectional_latency(void) {
    need_ranks(2);
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        buffers(bytes);
        fill(out, bytes, rank, 0);
        exchange(1);
        if (rank < 2) expect(in, bytes, 1 - rank, 0, "exchange");
        record("bidirectional-latency", bytes, NULL, "us", 1, 0, measure(exchange, ROOT, 0));
        if (rank < 2) expect(in, bytes, 1 - rank, 0, "exchange");
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

/* What a sample of the overlap test took inside, on this rank. */
static double work_ns, post_ns, total_ns;

/* One message from rank 0 to rank 1 while both compute. The barrier before it is not timed. */
static void worked(void) {
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    if (rank == 0) MPI_Isend(out, bytes, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
    else MPI_Irecv(in, bytes, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request);
    post_ns = now() - start;
    compute(work_ns);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    total_ns = now() - start;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, long count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

enum { OVERLAP_TRIES = 200 };

/* Median total of a message with the present amount of work, on this rank; all totals are kept in `totals`. */
static double median_total(double *totals) {
    double sorted[OVERLAP_TRIES];
    for (int i = 0; i < OVERLAP_TRIES; i++) {
        if (rank < 2) worked();
        else MPI_Barrier(MPI_COMM_WORLD);
        totals[i] = total_ns;
    }
    memcpy(sorted, totals, sizeof sorted);
    return median_of(sorted, OVERLAP_TRIES);
}

/* Writes what rank `of` measured as rank 0's. */
static void record_from(int of, const char *test, const char *side, const char *unit, double *values) {
    char text[64];
    if (of == 1 && rank == 1) MPI_Send(values, OVERLAP_TRIES, MPI_DOUBLE, 0, 6, MPI_COMM_WORLD);
    if (rank != 0) return;
    struct samples samples = {calloc(OVERLAP_TRIES, sizeof(double)), OVERLAP_TRIES, 1};
    if (of == 1) MPI_Recv(samples.values, OVERLAP_TRIES, MPI_DOUBLE, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else memcpy(samples.values, values, OVERLAP_TRIES * sizeof(double));
    snprintf(text, sizeof text, "\"side\":\"%s\"", side);
    record(test, bytes, text, unit, 1, 0, samples);
}

/* The share of a message's time that is left for computing, and what the message costs its processor: with work twice
 * as long as the message takes, whatever the whole lasts longer than the work. */
static void overlap(void) {
    static const char *const sides[] = {"send", "receive"};
    need_ranks(2);
    for (int s = 0; s < options.size_count; s++) {
        double totals[OVERLAP_TRIES], shares[OVERLAP_TRIES], overheads[OVERLAP_TRIES];
        bytes = options.sizes[s];
        buffers(bytes);
        fill(out, bytes, 0, 0);
        work_ns = 0;
        median_total(totals);
        double pure = median_total(totals), longest;
        MPI_Allreduce(&pure, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        work_ns = 2 * longest;
        double alone[OVERLAP_TRIES];
        for (int i = 0; i < OVERLAP_TRIES; i++) {
            double start = now();
            compute(work_ns);
            alone[i] = now() - start;
        }
        double work = median_of(alone, OVERLAP_TRIES);
        /* The barriers between the messages are counted with them. */
        counters_begin();
        median_total(totals);
        counters_end(OVERLAP_TRIES);
        for (int i = 0; i < OVERLAP_TRIES; i++) {
            overheads[i] = totals[i] > work ? totals[i] - work : 0;
            double share = 100 * (1 - overheads[i] / pure);
            shares[i] = share < 0 ? 0 : share;
        }
        if (rank == 1) expect(in, bytes, 0, 0, "a message beside work");
        for (int of = 0; of < 2; of++) {
            record_from(of, "overlap", sides[of], "%", shares);
            record_from(of, "overlap-overhead", sides[of], "us", overheads);
        }
    }
}

const struct test point_to_point_tests[] = {
    {"latency", latency, 0},
    {"bidirectional-latency", bidirectional_latency, 0},
    {"bandwidth", bandwidth, 0},
    {"bidirectional", bidirectional, 0},
    {"rate", rate, 0},
    {"overlap", overlap, 0},
    {NULL, NULL, 0},
};
