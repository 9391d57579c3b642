/* Communicators made from groups by several threads at once, under names that a short digest cannot tell apart: each
 * thread gets the one of its name. */
#include "check.h"
#include <pthread.h>

enum { threads = 2, pairs = 4, rounds = 10 };

/* The two of a pair have the same 64-bit FNV-1a digest, folded to 29 bits. */
static const char *const names[pairs][threads] = {
    {"app://part-1879", "app://part-9266"},
    {"app://part-127", "app://part-31950"},
    {"app://part-120", "app://part-31953"},
    {"app://part-2409", "app://part-45400"},
};
static pthread_barrier_t together;
static MPI_Group group;

static void make(int own, int pair)
{
    MPI_Comm comm;
    char mine[64], theirs[64];
    int rank, size;
    strcpy(mine, names[pair][own]);
    OK(MPI_Comm_create_from_group(group, mine, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    CHECK(rank == world_rank && size == world_size);
    for (int other = 0; other < size; other++) {
        OK(MPI_Sendrecv(mine, sizeof mine, MPI_CHAR, other, 0, theirs, sizeof theirs, MPI_CHAR, other, 0, comm,
                        MPI_STATUS_IGNORE));
        CHECK(strcmp(mine, theirs) == 0);
    }
    OK(MPI_Comm_free(&comm));
}

static void *run(void *argument)
{
    int own = *(int *)argument;
    for (int round = 0; round < rounds; round++) {
        for (int pair = 0; pair < pairs; pair++) {
            pthread_barrier_wait(&together);
            /* The threads of some ranks are late. */
            for (int spin = 0; (world_rank + round + own) % 2 && spin < 20000; spin++)
                __asm__ volatile("");
            make(own, pair);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, numbers[threads];
    pthread_t handles[threads];
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
    CHECK(pthread_barrier_init(&together, NULL, threads) == 0);
    for (int i = 0; i < threads; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&handles[i], NULL, run, &numbers[i]) == 0);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    OK(MPI_Group_free(&group));
    return finish();
}
