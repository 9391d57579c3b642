/* What need not be in the same order everywhere: starts of persistent collectives; and beside that, a blocking
 * collective and a non-blocking one, whose order programs get wrong and other libraries put up with. */
#include "check.h"

enum { kinds = 6, rounds = 8, n = 50 };

static MPI_Request requests[kinds];
static int input[n], bcast[n], sum[n], prefix[n], *gathered, *exchanged, *outgoing;

static void prepare(int round, int root)
{
    for (int i = 0; i < n; i++) {
        input[i] = world_rank + i + round;
        bcast[i] = world_rank == root ? i * round : -1;
        sum[i] = prefix[i] = -1;
    }
    for (int rank = 0; rank < world_size; rank++) {
        outgoing[rank] = world_rank * 1000 + rank + round;
        gathered[rank] = exchanged[rank] = -1;
    }
}

static void check(int round)
{
    int below = world_rank * (world_rank + 1) / 2, all = world_size * (world_size - 1) / 2;
    for (int i = 0; i < n; i++) {
        CHECK(bcast[i] == i * round);
        CHECK(sum[i] == all + world_size * (i + round));
        CHECK(prefix[i] == below + (world_rank + 1) * (i + round));
    }
    for (int rank = 0; rank < world_size; rank++) {
        CHECK(gathered[rank] == rank + round);
        CHECK(exchanged[rank] == rank * 1000 + world_rank + round);
    }
}

/* Each rank begins with another request; every other rank gives all of them to one call, last ones first. */
static void start_in_own_order(int round)
{
    MPI_Request turned[kinds];
    if ((world_rank + round) % 2 == 0) {
        for (int i = 0; i < kinds; i++)
            OK(MPI_Start(&requests[(i + world_rank) % kinds]));
    } else {
        for (int i = 0; i < kinds; i++)
            turned[i] = requests[kinds - 1 - i];
        OK(MPI_Startall(kinds, turned));
    }
}

static void persistent(void)
{
    int root = world_size - 1;
    gathered = allocate((size_t)world_size * sizeof(int));
    exchanged = allocate((size_t)world_size * sizeof(int));
    outgoing = allocate((size_t)world_size * sizeof(int));
    OK(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Bcast_init(bcast, n, MPI_INT, root, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Allreduce_init(input, sum, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]));
    OK(MPI_Scan_init(input, prefix, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[3]));
    OK(MPI_Allgather_init(input, 1, MPI_INT, gathered, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[4]));
    OK(MPI_Alltoall_init(outgoing, 1, MPI_INT, exchanged, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[5]));
    for (int round = 0; round < rounds; round++) {
        prepare(round, root);
        start_in_own_order(round);
        OK(MPI_Waitall(kinds, requests, MPI_STATUSES_IGNORE));
        check(round);
    }
    for (int i = 0; i < kinds; i++)
        OK(MPI_Request_free(&requests[i]));
    free(gathered);
    free(exchanged);
    free(outgoing);
}

/* One rank after the other begins a reduction before a barrier that the others pass first. */
static void blocking_and_not(void)
{
    for (int early = 0; early < world_size; early++) {
        int bits = world_rank == early ? 11 : 13, all = -1, flag = 0;
        MPI_Request request;
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (world_rank == early) {
            OK(MPI_Iallreduce(&bits, &all, 1, MPI_INT, MPI_BAND, MPI_COMM_WORLD, &request));
            OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            CHECK(flag == (world_size == 1)); /* nobody else has begun */
            OK(MPI_Barrier(MPI_COMM_WORLD));
        } else {
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Iallreduce(&bits, &all, 1, MPI_INT, MPI_BAND, MPI_COMM_WORLD, &request));
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(all == (world_size == 1 ? 11 : 9));
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    persistent();
    /* Before and after the ranks have found memory that all see, which either kind of call is to use by itself. */
    for (int round = 0; round < 6; round++)
        blocking_and_not();
    return finish();
}
