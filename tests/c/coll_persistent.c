/* Persistent collectives: prepared once, started many times with new data, on a communicator of their own. */
#include "check.h"

enum { n = 300, rounds = 12, kinds = 10 };

static int value(int rank, int i, int round)
{
    return rank * 1009 + i * 3 + round * 77;
}

static int total(int last, int i, int round)
{
    int sum = 0;
    for (int rank = 0; rank <= last; rank++)
        sum += value(rank, i, round);
    return sum;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm comm;
    MPI_Request requests[kinds];
    size_t all = (size_t)n * (size_t)world_size;
    int *mine = allocate(all * sizeof(int)), *out[kinds], root = world_size / 2, k = 0, flag = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < kinds; i++)
        out[i] = allocate(all * sizeof(int));
    OK(MPI_Barrier_init(comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Bcast_init(out[1], n, MPI_INT, root, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Gather_init(mine, n, MPI_INT, out[2], n, MPI_INT, root, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Scatter_init(mine, n, MPI_INT, out[3], n, MPI_INT, root, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Allgather_init(mine, n, MPI_INT, out[4], n, MPI_INT, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Alltoall_init(mine, n, MPI_INT, out[5], n, MPI_INT, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Reduce_init(mine, out[6], n, MPI_INT, MPI_SUM, root, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Allreduce_init(mine, out[7], n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Scan_init(mine, out[8], n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Reduce_scatter_block_init(mine, out[9], n, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[k++]));
    OK(MPI_Test(&requests[3], &flag, MPI_STATUS_IGNORE));
    CHECK(flag && requests[3] != MPI_REQUEST_NULL); /* inactive */

    for (int round = 0; round < rounds; round++) {
        int wrong = 0;
        for (size_t i = 0; i < all; i++)
            mine[i] = value(world_rank, (int)i, round);
        for (int i = 0; i < kinds; i++)
            memset(out[i], 0xff, all * sizeof(int));
        for (int i = 0; world_rank == root && i < n; i++)
            out[1][i] = value(root, i, round);
        if (round % 2)
            OK(MPI_Startall(kinds, requests));
        for (int i = 0; round % 2 == 0 && i < kinds; i++)
            OK(MPI_Start(&requests[i]));
        OK(MPI_Waitall(kinds, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < n; i++) {
            wrong += out[1][i] != value(root, i, round);
            wrong += out[3][i] != value(root, world_rank * n + i, round);
            wrong += world_rank == root && out[6][i] != total(world_size - 1, i, round);
            wrong += out[7][i] != total(world_size - 1, i, round);
            wrong += out[8][i] != total(world_rank, i, round);
            wrong += out[9][i] != total(world_size - 1, world_rank * n + i, round);
            for (int rank = 0; rank < world_size; rank++) {
                wrong += world_rank == root && out[2][rank * n + i] != value(rank, i, round);
                wrong += out[4][rank * n + i] != value(rank, i, round);
                wrong += out[5][rank * n + i] != value(rank, world_rank * n + i, round);
            }
        }
        CHECK(wrong == 0);
    }
    for (int i = 0; i < kinds; i++) {
        OK(MPI_Request_free(&requests[i]));
        CHECK(requests[i] == MPI_REQUEST_NULL);
        free(out[i]);
    }
    OK(MPI_Comm_free(&comm));
    free(mine);
    return finish();
}
