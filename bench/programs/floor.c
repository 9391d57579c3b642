/* The physical limits, without MPI. */
#include "bench.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_SAMPLES 400
#define LINE_TRIPS 500

struct lines {
    _Alignas(64) atomic_long ping;
    _Alignas(64) atomic_long pong;
};

static FILE *file;

static void write_numbers(const char *name, const double *values, long count) {
    fprintf(file, "\"%s\":[", name);
    for (long i = 0; i < count; i++) fprintf(file, "%s%.6g", i ? "," : "", values[i]);
    fprintf(file, "]");
}

/* `paces`: of the machine, one for each value, or NULL. */
static void write_point(const char *test, long of_bytes, const char *unit, double amount, long per_sample,
                        const double *values, const double *paces, long count) {
    fprintf(file, "{\"test\":\"%s\",\"bytes\":%ld,\"parameters\":{},\"unit\":\"%s\",\"amount\":%.17g,", test, of_bytes,
            unit, amount);
    fprintf(file, "\"per_sample\":%ld,", per_sample);
    write_numbers("samples", values, count);
    fprintf(file, ",");
    write_numbers("paces", paces, paces ? count : 0);
    fprintf(file, "}\n");
}

static void wait_for(atomic_long *place, long value) {
    while (atomic_load_explicit(place, memory_order_acquire) != value) {}
}

/* One cache line there and back between two processes; half of it is one way. */
static void line(void) {
    static double values[LINE_SAMPLES];
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) < 2) return;
    struct lines *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return;
    pid_t child = fork();
    if (child < 0) return;
    if (!child) prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (long sample = 0; sample < LINE_SAMPLES; sample++) {
        double start = now();
        for (long i = sample * LINE_TRIPS + 1; i <= (sample + 1) * LINE_TRIPS; i++) {
            if (child) {
                atomic_store_explicit(&shared->ping, i, memory_order_release);
                wait_for(&shared->pong, i);
            } else {
                wait_for(&shared->ping, i);
                atomic_store_explicit(&shared->pong, i, memory_order_release);
            }
        }
        values[sample] = (now() - start) / LINE_TRIPS / 2;
    }
    if (!child) _exit(0);
    waitpid(child, NULL, 0);
    munmap(shared, 4096);
    write_point("line", 64, "us", 0, LINE_TRIPS, values, values, LINE_SAMPLES);
}

/* Copying from one buffer to another, both in whatever cache they fit. */
static void copies(void) {
    enum { SAMPLES = 50 };
    static double values[SAMPLES];
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        if (bytes <= 0) continue;
        unsigned char *from = aligned_alloc(4096, (bytes + 8191) & ~4095L);
        unsigned char *to = aligned_alloc(4096, (bytes + 8191) & ~4095L);
        if (!from || !to) exit(2);
        fill(from, bytes, 0, 0);
        memset(to, 0, bytes);
        long copies = (4 << 20) / bytes + 1;
        for (int sample = 0; sample < SAMPLES; sample++) {
            double start = now();
            for (long i = 0; i < copies; i++) {
                memcpy(to, from, bytes);
                __asm__ volatile("" ::: "memory");
            }
            values[sample] = (now() - start) / (double)copies;
        }
        if (memcmp(to, from, bytes) != 0) exit(3);
        write_point("memcpy", bytes, "MB/s", (double)bytes, copies, values, NULL, SAMPLES);
        free(from);
        free(to);
    }
}

int floors(void) {
    file = fopen(options.file, "w");
    if (!file) {
        perror(options.file);
        return 2;
    }
    fprintf(file, "{\"clock_ns\":0,\"offset_max_ns\":0,\"offset_error_max_ns\":0,\"library\":\"none\"}\n");
    line();
    copies();
    return fclose(file) == 0 ? 0 : 2;
}
