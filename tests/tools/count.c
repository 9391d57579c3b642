/* A profiling tool: stands in front of a few calls, counts them, reaches the library by PMPI_, and tells at the end.
 * Built as a shared library, it is preloaded or linked before the library. */
#include <mpi.h>
#include <stdio.h>

static int sends, receives, reductions, waits;
static long long bytes;

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    int size = 0;
    PMPI_Type_size(type, &size);
    sends++;
    bytes += (long long)size * count;
    return PMPI_Send(buffer, count, type, to, tag, comm);
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    receives++;
    return PMPI_Recv(buffer, count, type, from, tag, comm, status);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    reductions++;
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    waits++;
    return PMPI_Wait(request, status);
}

int MPI_Finalize(void)
{
    int rank = -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("rank %d: %d sends of %lld bytes, %d receives, %d reductions, %d waits\n", rank, sends, bytes, receives,
           reductions, waits);
    fflush(stdout);
    return PMPI_Finalize();
}
