/* Threads that make, use and free intercommunicators and topologies at the same time, each on its own. */
#include "check.h"

#include <pthread.h>

enum { threads_count = 4, rounds = 40 };

static MPI_Comm own[threads_count];
static int wrong[threads_count];

/* Counts in the thread's own place; CHECK is for one thread. */
#define TRUE(fact) (wrong[thread] += !(fact))

static void *work(void *argument)
{
    int thread = (int)(intptr_t)argument;
    for (int round = 0; round < rounds; round++) {
        /* The division differs from thread to thread, the leaders meet on one communicator. */
        int low = 1 + (thread + round) % (world_size - 1), in_low = world_rank < low, sum = -1, rank = -1, size = -1;
        MPI_Comm local, inter, copy, merged, cart;
        MPI_Request request;
        TRUE(MPI_Comm_split(own[thread], in_low, 0, &local) == MPI_SUCCESS);
        TRUE(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, in_low ? low : 0, thread, &inter) == MPI_SUCCESS);
        int one = 1 + thread;
        TRUE(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter) == MPI_SUCCESS);
        TRUE(sum == one * (in_low ? world_size - low : low));
        TRUE(MPI_Comm_idup(inter, &copy, &request) == MPI_SUCCESS);
        TRUE(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        TRUE(MPI_Intercomm_merge(copy, !in_low, &merged) == MPI_SUCCESS);
        MPI_Comm_rank(merged, &rank);
        TRUE(rank == world_rank);
        int wraps = 1, before = -1, after = -1, got[2] = {-1, -1};
        MPI_Comm_size(merged, &size);
        TRUE(MPI_Cart_create(merged, 1, &size, &wraps, 0, &cart) == MPI_SUCCESS);
        TRUE(MPI_Cart_shift(cart, 0, 1, &before, &after) == MPI_SUCCESS);
        TRUE(MPI_Neighbor_allgather(&world_rank, 1, MPI_INT, got, 1, MPI_INT, cart) == MPI_SUCCESS);
        TRUE(got[0] == before && got[1] == after);
        MPI_Comm_free(&cart);
        MPI_Comm_free(&merged);
        MPI_Comm_free(&copy);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&local);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided = 0;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    pthread_t threads[threads_count];
    for (int i = 0; i < threads_count; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &own[i]));
    for (int i = 0; i < threads_count; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < threads_count; i++) {
        pthread_join(threads[i], NULL);
        CHECK(wrong[i] == 0);
        OK(MPI_Comm_free(&own[i]));
    }
    return finish();
}
