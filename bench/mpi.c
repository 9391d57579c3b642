/* The benchmark program: one source, run unchanged over every MPI library that is compared.
 *
 *   mpi latency | bandwidth | bidirectional | rate      2 ranks
 *   mpi barrier | bcast | allreduce | alltoall          any number of ranks
 *   mpi idle                                            ranks blocked in a receive for 5 s
 *   mpi empty                                           initialise and finalize
 *   mpi floor                                           no MPI: cache-line transfer and memcpy between 2 processes
 *
 * Output: lines "test bytes value unit": microseconds, MB/s (10^6 bytes), messages/s, or processor seconds.
 * Each value is the median of BATCHES batches; a batch lasts about BATCH_SECONDS. Payloads are checked outside the
 * timed region. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 7
#define BATCH_SECONDS 0.04
#define WINDOW 64
#define LONGEST (4 << 20)

static int rank, size;
static char *out, *in;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

static void need(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "bench: wrong data in %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

typedef void operation(int bytes, long count);

/* Seconds per operation: batches of a length found by doubling, all ranks doing the same number. */
static double measure(operation *run, int bytes, int in_turn) {
    long count = 1;
    double seconds, values[BATCHES];
    run(bytes, 1);
    for (;;) {
        MPI_Barrier(MPI_COMM_WORLD);
        seconds = now();
        run(bytes, count);
        seconds = now() - seconds;
        MPI_Bcast(&seconds, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (seconds > BATCH_SECONDS / 2 || count > 10000000) break;
        count *= seconds < BATCH_SECONDS / 20 ? 8 : 2;
    }
    for (int batch = 0; batch < BATCHES; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        seconds = now();
        run(bytes, count);
        values[batch] = (now() - seconds) / count;
    }
    seconds = median(values, BATCHES);
    if (in_turn) return seconds;
    double slowest;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return slowest;
}

static void ping_pong(int bytes, long count) {
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

static void one_way(int bytes, long count) {
    MPI_Request requests[WINDOW];
    char done;
    for (long i = 0; i < count; i++) {
        for (int w = 0; w < WINDOW; w++)
            if (rank == 0) MPI_Isend(out, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[w]);
            else if (rank == 1) MPI_Irecv(in, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[w]);
        if (rank < 2) MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (rank == 0) MPI_Recv(&done, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (rank == 1) MPI_Send(&done, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
}

static void two_way(int bytes, long count) {
    MPI_Request requests[2 * WINDOW];
    for (long i = 0; i < count && rank < 2; i++) {
        for (int w = 0; w < WINDOW; w++) MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, &requests[w]);
        for (int w = 0; w < WINDOW; w++)
            MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, 2, MPI_COMM_WORLD, &requests[WINDOW + w]);
        MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
    }
}

static void barrier(int bytes, long count) {
    (void)bytes;
    for (long i = 0; i < count; i++) MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(int bytes, long count) {
    for (long i = 0; i < count; i++) MPI_Bcast(out, bytes, MPI_BYTE, i % size, MPI_COMM_WORLD);
}

static void allreduce(int bytes, long count) {
    for (long i = 0; i < count; i++) MPI_Allreduce(out, in, bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void alltoall(int bytes, long count) {
    for (long i = 0; i < count; i++) MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void check_ping_pong(int bytes) {
    for (int i = 0; i < bytes; i++) out[i] = (char)(i * 31 + rank);
    memset(in, 0, bytes);
    ping_pong(bytes, 1);
    for (int i = 0; i < bytes && rank < 2; i++) need(in[i] == (char)(i * 31 + 1 - rank), "ping-pong");
}

static void check_allreduce(int bytes) {
    double *values = (double *)out, *sums = (double *)in;
    for (int i = 0; i < bytes / 8; i++) values[i] = rank + i;
    allreduce(bytes, 1);
    for (int i = 0; i < bytes / 8; i++) need(sums[i] == size * (size - 1) / 2.0 + (double)size * i, "allreduce");
}

static void check_alltoall(int bytes) {
    for (int to = 0; to < size; to++) memset(out + (size_t)to * bytes, rank * 16 + to, bytes);
    alltoall(bytes, 1);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < bytes; i++)
            need(in[(size_t)from * bytes + i] == (char)(from * 16 + rank), "alltoall");
}

static void report(const char *test, int bytes, double value, const char *unit) {
    if (rank == 0) {
        printf("%s %d %.6g %s\n", test, bytes, value, unit);
        fflush(stdout);
    }
}

static double processor_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* Everybody but rank 0 is blocked in a receive while rank 0 sleeps outside MPI; then rank 0 blocks as well. */
static void idle(void) {
    char byte = 0;
    double used = processor_seconds(), all;
    if (rank == 0) {
        sleep(5);
        for (int to = 1; to < size; to++) MPI_Send(&byte, 1, MPI_BYTE, to, 4, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&byte, 1, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    used = processor_seconds() - used;
    MPI_Reduce(&used, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    report("idle", 0, all, "s");
}

struct lines {
    _Alignas(64) atomic_long ping;
    _Alignas(64) atomic_long pong;
};

/* The physical limit: one cache line there and back between two processes, and memcpy. */
static void floors(void) {
    struct lines *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const long count = 200000;
    double values[BATCHES];
    pid_t child = fork();
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now();
        for (long i = batch * count + 1; i <= (batch + 1) * count; i++) {
            if (child) {
                atomic_store_explicit(&shared->ping, i, memory_order_release);
                while (atomic_load_explicit(&shared->pong, memory_order_acquire) != i) {}
            } else {
                while (atomic_load_explicit(&shared->ping, memory_order_acquire) != i) {}
                atomic_store_explicit(&shared->pong, i, memory_order_release);
            }
        }
        values[batch] = (now() - start) / count / 2;
    }
    if (!child) _exit(0);
    waitpid(child, NULL, 0);
    report("line", 64, median(values, BATCHES) * 1e6, "us");
    for (int bytes = 1 << 10; bytes <= LONGEST; bytes *= 4) {
        long copies = (256 << 20) / bytes;
        for (int batch = 0; batch < BATCHES; batch++) {
            double start = now();
            for (long i = 0; i < copies; i++) {
                memcpy(in, out, bytes);
                __asm__ volatile("" ::: "memory");
            }
            values[batch] = (now() - start) / copies;
        }
        report("memcpy", bytes, bytes / median(values, BATCHES) * 1e-6, "MB/s");
    }
}

static void sweep(const char *test) {
    static const int point_to_point[] = {0, 8, 64, 512, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10,
                                         1 << 20, 4 << 20, -1};
    static const int collective[] = {8, 8 << 10, 1 << 20, -1};
    const int *bytes = collective;
    if (!strcmp(test, "latency") || !strcmp(test, "bandwidth") || !strcmp(test, "bidirectional"))
        bytes = point_to_point;
    if (!strcmp(test, "barrier")) report(test, 0, measure(barrier, 0, 0) * 1e6, "us");
    else if (!strcmp(test, "rate")) report(test, 8, WINDOW / measure(one_way, 8, 1), "/s");
    else
        for (; *bytes >= 0; bytes++) {
            if (!strcmp(test, "latency")) {
                check_ping_pong(*bytes);
                report(test, *bytes, measure(ping_pong, *bytes, 1) / 2 * 1e6, "us");
            } else if (!strcmp(test, "bandwidth") && *bytes) {
                report(test, *bytes, *bytes * (double)WINDOW / measure(one_way, *bytes, 1) * 1e-6, "MB/s");
            } else if (!strcmp(test, "bidirectional") && *bytes) {
                report(test, *bytes, *bytes * 2.0 * WINDOW / measure(two_way, *bytes, 1) * 1e-6, "MB/s");
            } else if (!strcmp(test, "bcast")) {
                report(test, *bytes, measure(bcast, *bytes, 0) * 1e6, "us");
            } else if (!strcmp(test, "allreduce")) {
                check_allreduce(*bytes);
                report(test, *bytes, measure(allreduce, *bytes, 0) * 1e6, "us");
            } else if (!strcmp(test, "alltoall")) {
                check_alltoall(*bytes);
                report(test, *bytes, measure(alltoall, *bytes, 0) * 1e6, "us");
            }
        }
}

int main(int argc, char **argv) {
    size_t bytes = (size_t)LONGEST * 2;
    in = aligned_alloc(4096, bytes);
    out = aligned_alloc(4096, bytes);
    memset(in, 0, bytes);
    memset(out, 0, bytes);
    if (argc == 2 && !strcmp(argv[1], "floor")) {
        floors();
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "idle")) idle();
        else if (strcmp(argv[i], "empty")) sweep(argv[i]);
    }
    MPI_Finalize();
    return 0;
}
