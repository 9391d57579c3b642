/* MPI_THREAD_MULTIPLE: threads of every rank talk at once, wait at once, and run collectives at once. */
#include "check.h"
#include <pthread.h>

enum { threads = 4, rounds = 200 };

static MPI_Comm comms[threads];
static pthread_mutex_t failure_lock = PTHREAD_MUTEX_INITIALIZER;

static void note(int holds, const char *what, int thread, int round)
{
    if (holds)
        return;
    pthread_mutex_lock(&failure_lock);
    fprintf(stderr, "rank %d thread %d round %d: %s\n", world_rank, thread, round, what);
    failures++;
    pthread_mutex_unlock(&failure_lock);
}

/* Messages on the shared communicator, kept apart by tag; a collective on the thread's own. */
static void *talk(void *argument)
{
    int me = *(int *)argument;
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    char *out = malloc(100000), *in = malloc(100000);
    for (int round = 0; round < rounds; round++) {
        size_t length = round % 20 == 0 ? 100000 : (size_t)(round * 7 + me);
        MPI_Status status;
        MPI_Request request;
        int sum = -1, flag = 0;
        fill(out, length, (uint64_t)(world_rank * 100 + me));
        switch (round % 3) {
        case 0:
            MPI_Sendrecv(out, (int)length, MPI_CHAR, right, me, in, 100000, MPI_CHAR, left, me, MPI_COMM_WORLD,
                         &status);
            break;
        case 1:
            MPI_Irecv(in, 100000, MPI_CHAR, left, me, MPI_COMM_WORLD, &request);
            MPI_Send(out, (int)length, MPI_CHAR, right, me, MPI_COMM_WORLD);
            while (!flag)
                MPI_Test(&request, &flag, &status);
            break;
        default:
            MPI_Irecv(in, 100000, MPI_CHAR, left, me, MPI_COMM_WORLD, &request);
            MPI_Ssend(out, (int)length, MPI_CHAR, right, me, MPI_COMM_WORLD);
            MPI_Wait(&request, &status);
            break;
        }
        note(status.MPI_TAG == me && status.MPI_SOURCE == left, "a message of another thread", me, round);
        note(verify(in, length, (uint64_t)(left * 100 + me)), "wrong content", me, round);
        if (round % 10 == 0) {
            MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comms[me]);
            note(sum == me * world_size, "wrong sum", me, round);
        }
    }
    free(out);
    free(in);
    return NULL;
}

/* One thread blocks in a receive that only another thread of the same rank can satisfy. */
static void *blocked(void *argument)
{
    int got = 0;
    MPI_Recv(&got, 1, MPI_INT, world_rank, 500, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    note(got == 42, "wrong value", 0, 0);
    *(int *)argument = got;
    return NULL;
}

int main(int argc, char **argv)
{
    int provided = -1, numbers[threads], value = 42, got = 0, flag = 0;
    pthread_t handles[threads], waiter;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_Is_thread_main(&flag));
    CHECK(flag);
    for (int i = 0; i < threads; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    for (int i = 0; i < threads; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&handles[i], NULL, talk, &numbers[i]) == 0);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);

    CHECK(pthread_create(&waiter, NULL, blocked, &got) == 0);
    for (int i = 0; i < 50; i++)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Send(&value, 1, MPI_INT, world_rank, 500, MPI_COMM_WORLD));
    pthread_join(waiter, NULL);
    CHECK(got == 42);
    for (int i = 0; i < threads; i++)
        OK(MPI_Comm_free(&comms[i]));
    return finish();
}
