/* Threads that all communicate: each thread of rank 0 with its namesake of rank 1, on a communicator of its own. */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS_MAX 64
/* Waking the threads must not count. */
#define SAMPLE_NS 2e6

static MPI_Comm comms[THREADS_MAX];
static pthread_barrier_t begin, end;
static int thread_count, leaving;
static long turns;
static unsigned char *outs[THREADS_MAX], *ins[THREADS_MAX];

static void ping_pong(int me, long count) {
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Send(outs[me], bytes, MPI_BYTE, 1, me, comms[me]);
            MPI_Recv(ins[me], bytes, MPI_BYTE, 1, me, comms[me], MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(ins[me], bytes, MPI_BYTE, 0, me, comms[me], MPI_STATUS_IGNORE);
            MPI_Send(outs[me], bytes, MPI_BYTE, 0, me, comms[me]);
        }
    }
}

static void *work(void *argument) {
    int me = (int)(intptr_t)argument;
    for (;;) {
        pthread_barrier_wait(&begin);
        if (leaving) return NULL;
        ping_pong(me, turns);
        pthread_barrier_wait(&end);
    }
}

static void all_threads(long count) {
    turns = count;
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
}

static void check(void) {
    for (int t = 0; t < thread_count; t++) fill(outs[t], bytes, rank, t);
    all_threads(1);
    for (int t = 0; t < thread_count && rank < 2; t++) expect(ins[t], bytes, 1 - rank, t, "a thread's message");
}

static void with_threads(void) {
    pthread_t threads[THREADS_MAX];
    char text[64];
    leaving = 0;
    pthread_barrier_init(&begin, NULL, thread_count + 1);
    pthread_barrier_init(&end, NULL, thread_count + 1);
    for (int t = 0; t < thread_count; t++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
        outs[t] = calloc(1, bytes + 1);
        ins[t] = calloc(1, bytes + 1);
    }
    for (int t = 0; t < thread_count; t++)
        if (pthread_create(&threads[t], NULL, work, (void *)(intptr_t)t) != 0) need(0, "starting threads", t);
    check();
    struct samples samples = measure(all_threads, ROOT, SAMPLE_NS);
    check();
    /* It is not the threads' own. */
    forget_paces(&samples);
    struct samples again = {NULL, samples.count, samples.per_sample};
    if (rank == 0) {
        again.values = malloc(samples.count * sizeof(double));
        for (long i = 0; i < samples.count; i++) again.values[i] = samples.values[i];
    }
    snprintf(text, sizeof text, "\"threads\":%d", thread_count);
    record("threads", bytes, text, "us", 0.5, 0, samples);
    record("threads-rate", bytes, text, "/s", 1, 2.0 * thread_count, again);
    leaving = 1;
    pthread_barrier_wait(&begin);
    for (int t = 0; t < thread_count; t++) {
        pthread_join(threads[t], NULL);
        MPI_Comm_free(&comms[t]);
        free(outs[t]);
        free(ins[t]);
    }
    pthread_barrier_destroy(&begin);
    pthread_barrier_destroy(&end);
}

static void threads(void) {
    long list[16];
    int count = parameter_list("threads", "1,2,4", list, 16);
    for (int s = 0; s < options.size_count; s++)
        for (int t = 0; t < count; t++) {
            bytes = options.sizes[s];
            thread_count = list[t] < 1 ? 1 : list[t] > THREADS_MAX ? THREADS_MAX : (int)list[t];
            with_threads();
        }
}

const struct test thread_tests[] = {{"threads", threads, 1}, {NULL, NULL, 0}};
