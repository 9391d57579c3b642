/* Makes a known number of calls, knowing nothing of a tool in front of them. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, size, data[10] = {0}, sum[10];
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 5; round++) {
        MPI_Irecv(data, 10, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &request);
        MPI_Send(data, 10, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int round = 0; round < 3; round++)
        MPI_Allreduce(data, sum, 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    /* What the library does inside of these is not the program's. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(data, 10, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0 && size > 1)
        MPI_Recv(data, 10, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(data, 3, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
    return MPI_Finalize();
}
