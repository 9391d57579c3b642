/* What the parts of the benchmark program share.
 *
 * The program knows how to do each operation and how to time it; which operations, sizes and ranks are run, how often
 * and over which libraries is decided by `ferrovia bench` from the suites beside these files. Results go to a file,
 * one JSON object a line; the first tells about the clocks, each further one is a point with its samples. */
#ifndef BENCH_H
#define BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* The processes of the job and the bytes of the present point. */
extern int rank, size;
extern long bytes;
/* Page-aligned buffers, made by `buffers`. */
extern unsigned char *out, *in;

/* What the command line asked for; `options.c` reads it. */
struct options {
    const char *test, *file;
    long sizes[64];
    int size_count;
    double seconds;      /* time to spend on the samples of a point */
    long samples_max;
    long operations;     /* operations per sample; 0: as many as make the clock negligible */
    int agreed_start;    /* collectives begin at a time agreed upon */
    int no_pace;         /* the machine's pace is not looked at */
    const char *counters; /* performance variables to watch: names, sums and shares */
    double delay;        /* this share of its own duration is added to every sample: injected slowdown */
};
extern struct options options;

/* A parameter by name, or the default. Lists are written 1,2,4. */
long parameter(const char *name, long otherwise);
const char *parameter_text(const char *name, const char *otherwise);
int parameter_list(const char *name, const char *otherwise, long *values, int count_max);

/* Nanoseconds of a clock that does not step. */
double now(void);
/* Uses the processor for about so many nanoseconds without touching memory. */
void compute(double nanoseconds);
/* Ends the job with status 3 unless `ok`: a payload or a result was wrong. */
void need(int ok, const char *what, long index);
/* Makes `out` and `in` so long, filled with zero. */
void buffers(size_t length);

/* So many operations, one after another. */
typedef void operation(long count);

/* Who measures the duration of a sample: rank 0 alone, or everybody, and the longest counts. */
enum who { ROOT, ALL };

/* Samples of one point in the order taken, in nanoseconds per operation; on rank 0 only. `paces`: the machine's at each
 * of them, 0 where it is not known; NULL where it can not be told. */
struct samples {
    double *values;
    long count, per_sample;
    double *paces;
};
/* Collective: all ranks call it with the same operation. Samples last at least `sample_ns`. */
struct samples measure(operation *run, enum who who, double sample_ns);

/* For samples that are no longer those of one pace. */
void forget_paces(struct samples *samples);

/* Writes a point and frees its samples. `each`: what one operation is worth (0.5 for half a round trip); `amount`:
 * bytes or messages that make a rate of the time, 0 for a time. `parameters`: JSON members such as "\"depth\":4". */
void record(const char *test, long of_bytes, const char *parameters, const char *unit, double each, double amount,
            struct samples samples);
/* Writes a point of one value that is not a time. */
void record_value(const char *test, long of_bytes, const char *parameters, const char *unit, double value);
/* Performance variables: opened once; what is asked of them between `begin` and `end` goes into the next record.
 * Collective: `open` and `end`. */
void counters_open(const char *list);
void counters_begin(void);
void counters_end(double operations);
void counters_record(const char *test, long of_bytes, const char *parameters, double each);
void open_results(void);
void close_results(void);
/* The machine's pace between two ranks, in nanoseconds for a cache line one way; 0 if it can not be told. Both look at
 * once: collective, as `pace_open` is. */
void pace_open(void);
int pace_is_told(void);
double pace(void);
/* What it was between two looks; 0 if it changed. */
double same_pace(double before, double after);

/* The element at `index` of what `from` sends to `to`. */
static inline unsigned element(int from, int to, long index) {
    return (unsigned)from * 1000003u + (unsigned)to * 10007u + (unsigned)index * 31u + 1u;
}
/* Fills or checks `length` bytes as sent by `from`, message number `message`. */
void fill(unsigned char *data, long length, int from, int message);
void expect(const unsigned char *data, long length, int from, int message, const char *what);

/* One entry of a part's table. */
struct test {
    const char *name;
    void (*run)(void);
    int threads; /* needs MPI_THREAD_MULTIPLE */
};
extern const struct test point_to_point_tests[], datatype_tests[], thread_tests[], queue_tests[], resource_tests[],
    call_tests[], instruction_tests[];
/* Runs a collective test by name; false if there is none of that name. */
int collective(const char *name);
/* The physical limits, without MPI: a cache line between two processes, and memcpy. */
int floors(void);

#endif
