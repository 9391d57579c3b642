/* Waits in a receive nobody answers, until somebody ends it; rank 0 says when all are there. */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) {
        puts("all there");
        fflush(stdout);
    }
    MPI_Recv(NULL, 0, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}
