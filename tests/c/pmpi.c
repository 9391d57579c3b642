/* Profiling: a program that defines MPI_Send and MPI_Allreduce itself and reaches the library by PMPI_. */
#include "check.h"

static int sends, reductions;

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buffer, count, type, to, tag, comm);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    reductions++;
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int main(int argc, char **argv)
{
    int one = 1, sum = 0, got = 0;
    MPI_Request request;
    start(&argc, &argv);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == world_size && reductions == 1);
    OK(MPI_Irecv(&got, 1, MPI_INT, world_rank, 3, MPI_COMM_WORLD, &request));
    OK(MPI_Send(&one, 1, MPI_INT, world_rank, 3, MPI_COMM_WORLD));
    OK(PMPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(got == 1 && sends == 1);
    /* The library's own calls go past the profiled names. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(sends == 1 && reductions == 1);
    return finish();
}
