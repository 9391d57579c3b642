/* What ranks use: memory, and processor time while they wait. */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Memory of this process in KiB, shared pages divided among those who share them; -1 where the kernel does not tell. */
static double memory_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file) return -1;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %ld kB", &kib) == 1) break;
    fclose(file);
    return (double)kib;
}

static void record_memory(const char *stage) {
    char text[64];
    double mine = memory_kib(), sum;
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    snprintf(text, sizeof text, "\"stage\":\"%s\"", stage);
    record_value("memory", 0, text, "KiB", sum / size);
}

/* After initialisation, and after everybody has sent everybody a message. */
static void memory(void) {
    static char bytes_in[1024], bytes_out[1024];
    record_memory("started");
    for (int step = 0; step < size; step++)
        MPI_Sendrecv(bytes_out, sizeof bytes_out, MPI_BYTE, (rank + step) % size, 1, bytes_in, sizeof bytes_in,
                     MPI_BYTE, (rank - step + size) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    record_memory("all-pairs");
}

static double processor_seconds(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec
           + ((double)use.ru_utime.tv_usec + (double)use.ru_stime.tv_usec) * 1e-6;
}

/* Everybody but rank 0 is blocked in a receive while rank 0 sleeps outside MPI; the processor time they use in that
 * time, as a share of one core each. */
static void idle(void) {
    long milliseconds = parameter("milliseconds", 1000);
    char byte = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now(), used = processor_seconds(), all;
    if (rank == 0) {
        usleep((useconds_t)(milliseconds * 1000));
        for (int to = 1; to < size; to++) MPI_Send(&byte, 1, MPI_BYTE, to, 4, MPI_COMM_WORLD);
        used = 0;
    } else {
        MPI_Recv(&byte, 1, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        used = 100 * (processor_seconds() - used) / ((now() - start) * 1e-9);
    }
    MPI_Reduce(&used, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    record_value("idle", 0, NULL, "%", size > 1 ? all / (size - 1) : 0);
}

/* Initialise and finalize; whoever starts the job takes its time. */
static void startup(void) {
}

const struct test resource_tests[] = {
    {"memory", memory, 0}, {"idle", idle, 0}, {"startup", startup, 0}, {NULL, NULL, 0}};
