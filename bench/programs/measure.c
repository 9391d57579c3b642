/* Taking samples and writing them down. */
#include "bench.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Round trips from which a clock's offset is estimated: the shortest counts. */
#define CLOCK_TRIPS 40
/* A sample lasts at least so long: reading the clock is not to be seen, nor that ranks do so one after the other. */
#define SAMPLE_NS 20e3
/* What seems to last as long as a sample is tried for so long. */
#define TRIED_NS 200e3
#define SAMPLES_MIN 8
/* And where ranks outnumber processors a few slices of the scheduler's: what waiting for one of these costs would not
 * be seen in the median of shorter samples, and the slowest rank of such a one has waited for those who ran before. */
#define CROWDED_SAMPLE_NS 10e6
/* From one look at the machine's pace to the next. */
#define STRETCH_NS 5e6

static FILE *results;
static double clock_cost, compute_per_ns;
static int processor_count;
static double clock_offset, clock_error;

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void spin(long turns) {
    for (long i = 0; i < turns; i++) __asm__ volatile("" ::: "memory");
}

void compute(double nanoseconds) {
    spin((long)(nanoseconds * compute_per_ns));
}

/* What reading the clock costs, and how fast `spin` turns: the best of a few tries. */
static void calibrate(void) {
    clock_cost = INFINITY;
    double fastest = INFINITY;
    for (int try = 0; try < 20; try++) {
        double start = now();
        for (int i = 0; i < 1000; i++) now();
        double reading = (now() - start) / 1000;
        if (reading < clock_cost) clock_cost = reading;
        start = now();
        spin(20000);
        double turn = (now() - start) / 20000;
        if (turn < fastest) fastest = turn;
    }
    compute_per_ns = 1 / fastest;
}

/* Counts the processors that any of the ranks, which share a host, may run on: some libraries bind each to its own. */
static void count_processors(void) {
    cpu_set_t mine, all;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_ZERO(&mine);
    MPI_Allreduce(&mine, &all, sizeof mine / sizeof(unsigned long), MPI_UNSIGNED_LONG, MPI_BOR, MPI_COMM_WORLD);
    processor_count = CPU_COUNT(&all);
    if (processor_count == 0) processor_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* How far this rank's clock is from that of rank 0, and at most how wrong that is: half the shortest round trip. */
static void synchronise(void) {
    for (int peer = 1; peer < size; peer++) {
        if (rank != 0 && rank != peer) continue;
        double best = INFINITY;
        for (int trip = 0; trip < CLOCK_TRIPS; trip++) {
            double there = now(), theirs = there;
            if (rank == 0) {
                MPI_Recv(&theirs, 1, MPI_DOUBLE, peer, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                theirs = now();
                MPI_Send(&theirs, 1, MPI_DOUBLE, peer, 7, MPI_COMM_WORLD);
            } else {
                MPI_Send(&there, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD);
                MPI_Recv(&theirs, 1, MPI_DOUBLE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                double back = now();
                if (back - there < best) {
                    best = back - there;
                    clock_offset = (there + back) / 2 - theirs;
                    clock_error = best / 2;
                }
            }
        }
    }
}

void open_results(void) {
    calibrate();
    count_processors();
    synchronise();
    double mine[2] = {fabs(clock_offset), clock_error}, worst[2];
    MPI_Reduce(mine, worst, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank != 0) return;
    results = fopen(options.file, "w");
    if (!results) {
        perror(options.file);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    fprintf(results, "{\"clock_ns\":%.1f,\"offset_max_ns\":%.0f,", clock_cost, worst[0]);
    fprintf(results, "\"offset_error_max_ns\":%.0f,\"library\":\"", worst[1]);
    for (char *c = version; *c && *c != '\n'; c++)
        if (*c >= ' ' && *c != '"' && *c != '\\') fputc(*c, results);
    fprintf(results, "\"}\n");
}

void close_results(void) {
    if (results && fclose(results) != 0) {
        perror(options.file);
        exit(2);
    }
}

/* The time of one sample: `count` operations, and the injected delay. Rank 0 alone is delayed: the others wait for it,
 * and a delay in proportion to what they waited would grow from sample to sample. */
static double timed(operation *run, long count, double start) {
    run(count);
    double end = now();
    if (options.delay > 0 && rank == 0) {
        double until = end + (end - start) * options.delay;
        while (end < until) end = now();
    }
    return end - start;
}

/* From now to the next agreed start of an operation that takes so long. */
static double lead_ns(double each) {
    return 50000 + 2 * each;
}

/* An agreed moment in the future, in this rank's own clock, waited for. */
static double agreed(double lead) {
    double moment = now() + lead;
    MPI_Bcast(&moment, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    moment += clock_offset;
    while (now() < moment) {}
    return moment;
}

/* The count that makes a sample last `sample_ns`, found by doubling, and the duration of one operation. What seems to
 * last so long is tried again for a while: it may have been cold, or have waited for a rank that was still counting. */
static long operations(operation *run, double sample_ns, double *each) {
    enum { AGAIN, MORE, ENOUGH } verdict;
    double shortest = INFINITY, spent = 0;
    for (long count = options.operations ? options.operations : 1;;) {
        double start = now();
        run(count);
        double took = now() - start;
        spent += took;
        if (took < shortest) shortest = took;
        verdict = shortest < sample_ns && !options.operations && count < 1L << 24 ? MORE : ENOUGH;
        if (verdict == ENOUGH && spent < TRIED_NS) verdict = AGAIN;
        double told[2] = {shortest / count, verdict};
        MPI_Bcast(told, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        *each = told[0];
        if (told[1] == ENOUGH) return count;
        if (told[1] == AGAIN) continue;
        count *= 2;
        shortest = INFINITY;
        spent = 0;
    }
}

struct samples measure(operation *run, enum who who, double sample_ns) {
    struct samples samples = {0};
    double each;
    run(1);
    if (sample_ns < SAMPLE_NS) sample_ns = SAMPLE_NS;
    if (size > processor_count && sample_ns < CROWDED_SAMPLE_NS) sample_ns = CROWDED_SAMPLE_NS;
    double told = sample_ns;
    MPI_Bcast(&told, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int together = options.agreed_start && who == ALL;
    samples.per_sample = operations(run, told, &each);
    if (together) samples.per_sample = 1;
    double count = options.seconds * 1e9 / (each * samples.per_sample);
    if (count > (double)options.samples_max) count = (double)options.samples_max;
    samples.count = count < SAMPLES_MIN ? SAMPLES_MIN : (long)count;
    double *mine = calloc(samples.count, sizeof *mine);
    if (pace_is_told() && rank == 0) samples.paces = calloc(samples.count, sizeof *samples.paces);
    /* The same on both ranks, which have been told the same `each`. */
    double takes = each * samples.per_sample * (1 + options.delay) + (together ? lead_ns(each) : 0);
    double in_stretch = STRETCH_NS / takes;
    long stretch = in_stretch < 1 ? 1 : in_stretch > samples.count ? samples.count : (long)in_stretch;
    MPI_Barrier(MPI_COMM_WORLD);
    counters_begin();
    double before = pace();
    for (long i = 0; i < samples.count; i++) {
        double start = together ? agreed(lead_ns(each)) : now();
        mine[i] = timed(run, samples.per_sample, start) / samples.per_sample;
        if ((i + 1) % stretch && i + 1 < samples.count) continue;
        double after = pace(), met = same_pace(before, after);
        for (long j = i - i % stretch; samples.paces && j <= i; j++) samples.paces[j] = met;
        before = after;
    }
    counters_end((double)samples.count * (double)samples.per_sample);
    samples.values = mine;
    if (who == ALL) {
        samples.values = rank == 0 ? calloc(samples.count, sizeof *mine) : NULL;
        MPI_Reduce(mine, samples.values, samples.count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        free(mine);
    } else if (rank != 0) {
        free(mine);
        samples.values = NULL;
    }
    return samples;
}

void forget_paces(struct samples *samples) {
    free(samples->paces);
    samples->paces = NULL;
}

void record(const char *test, long of_bytes, const char *parameters, const char *unit, double each, double amount,
            struct samples samples) {
    if (rank == 0) {
        fprintf(results, "{\"test\":\"%s\",\"bytes\":%ld,\"parameters\":{%s},\"unit\":\"%s\",\"amount\":%.17g,", test,
                of_bytes, parameters ? parameters : "", unit, amount);
        fprintf(results, "\"per_sample\":%ld,\"samples\":[", samples.per_sample);
        for (long i = 0; i < samples.count; i++)
            fprintf(results, "%s%.6g", i ? "," : "", samples.values[i] * each);
        fprintf(results, "],\"paces\":[");
        for (long i = 0; samples.paces && i < samples.count; i++)
            fprintf(results, "%s%.1f", i ? "," : "", samples.paces[i]);
        fprintf(results, "]}\n");
        fflush(results);
        counters_record(test, of_bytes, parameters, each);
    }
    free(samples.values);
    free(samples.paces);
}

void record_value(const char *test, long of_bytes, const char *parameters, const char *unit, double value) {
    if (rank != 0) return;
    fprintf(results, "{\"test\":\"%s\",\"bytes\":%ld,\"parameters\":{%s},\"unit\":\"%s\",\"amount\":0,", test, of_bytes,
            parameters ? parameters : "", unit);
    fprintf(results, "\"per_sample\":1,\"samples\":[%.9g]}\n", value);
    fflush(results);
}

void need(int ok, const char *what, long index) {
    if (ok) return;
    fprintf(stderr, "bench: rank %d: wrong data in %s at %ld (%ld bytes)\n", rank, what, index, bytes);
    MPI_Abort(MPI_COMM_WORLD, 3);
    exit(3);
}

/* As long memory from malloc begins in its first page: a library whose own memory begins with a page may copy slowly
 * between the two. */
#define PLACE_IN_PAGE 16

void buffers(size_t length) {
    static unsigned char *pages[2];
    length = (length + 8191) & ~(size_t)4095;
    for (int i = 0; i < 2; i++) {
        free(pages[i]);
        pages[i] = aligned_alloc(4096, length + 4096);
    }
    if (!pages[0] || !pages[1]) {
        fprintf(stderr, "bench: no memory for two buffers of %zu bytes\n", length);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    out = pages[0] + PLACE_IN_PAGE;
    in = pages[1] + PLACE_IN_PAGE;
    memset(out, 0, length);
    memset(in, 0, length);
}

void fill(unsigned char *data, long length, int from, int message) {
    for (long i = 0; i < length; i++) data[i] = (unsigned char)(i * 31 + i / 251 + from * 7 + message * 13 + 1);
}

void expect(const unsigned char *data, long length, int from, int message, const char *what) {
    for (long i = 0; i < length; i++)
        need(data[i] == (unsigned char)(i * 31 + i / 251 + from * 7 + message * 13 + 1), what, i);
}
