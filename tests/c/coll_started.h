/* Turns blocking collectives into non-blocking ones that are waited for at once: what holds for the former is to hold
 * for the latter. For programs that include others. */
#include <mpi.h>

static MPI_Request started;

/* How the call ended that was started with `error`. */
static int ended(int error)
{
    return error != MPI_SUCCESS ? error : MPI_Wait(&started, MPI_STATUS_IGNORE);
}

#define MPI_Barrier(...) ended(MPI_Ibarrier(__VA_ARGS__, &started))
#define MPI_Bcast(...) ended(MPI_Ibcast(__VA_ARGS__, &started))
#define MPI_Bcast_c(...) ended(MPI_Ibcast_c(__VA_ARGS__, &started))
#define MPI_Gather(...) ended(MPI_Igather(__VA_ARGS__, &started))
#define MPI_Gather_c(...) ended(MPI_Igather_c(__VA_ARGS__, &started))
#define MPI_Scatter(...) ended(MPI_Iscatter(__VA_ARGS__, &started))
#define MPI_Scatter_c(...) ended(MPI_Iscatter_c(__VA_ARGS__, &started))
#define MPI_Allgather(...) ended(MPI_Iallgather(__VA_ARGS__, &started))
#define MPI_Allgather_c(...) ended(MPI_Iallgather_c(__VA_ARGS__, &started))
#define MPI_Allgatherv(...) ended(MPI_Iallgatherv(__VA_ARGS__, &started))
#define MPI_Alltoall(...) ended(MPI_Ialltoall(__VA_ARGS__, &started))
#define MPI_Alltoallv(...) ended(MPI_Ialltoallv(__VA_ARGS__, &started))
#define MPI_Alltoallw(...) ended(MPI_Ialltoallw(__VA_ARGS__, &started))
#define MPI_Reduce(...) ended(MPI_Ireduce(__VA_ARGS__, &started))
#define MPI_Reduce_c(...) ended(MPI_Ireduce_c(__VA_ARGS__, &started))
#define MPI_Allreduce(...) ended(MPI_Iallreduce(__VA_ARGS__, &started))
#define MPI_Allreduce_c(...) ended(MPI_Iallreduce_c(__VA_ARGS__, &started))
#define MPI_Reduce_scatter_block(...) ended(MPI_Ireduce_scatter_block(__VA_ARGS__, &started))
#define MPI_Reduce_scatter_block_c(...) ended(MPI_Ireduce_scatter_block_c(__VA_ARGS__, &started))
#define MPI_Scan(...) ended(MPI_Iscan(__VA_ARGS__, &started))
#define MPI_Scan_c(...) ended(MPI_Iscan_c(__VA_ARGS__, &started))
#define MPI_Exscan(...) ended(MPI_Iexscan(__VA_ARGS__, &started))
