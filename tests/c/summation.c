/* Where all ranks share a host and run by turns, or are three at most, a blocking call sums floating-point numbers as
 * a loop over the ranks does, from the first to the last, to the bit; so does a short one that does not block. Long
 * ones do once their communicator has boards, which short ones before them see to here. (Of four and more ranks with
 * cores of their own MPI_Iallreduce and long blocks of MPI_Reduce_scatter_block go ways of other orders.) */
#include "check.h"

enum { longest = 40000 };

/* Magnitudes that make every order of summation round differently. */
static double contribution(int rank, int element)
{
    uint64_t state = (uint64_t)(rank * 7919 + element) + 1;
    double value = (double)next_random(&state) / 3.0;
    for (uint32_t shift = next_random(&state) % 40; shift > 0; shift--)
        value *= next_random(&state) % 2 ? 0.25 : -3.0;
    return value;
}

static int wrong(const double *result, int first, int count)
{
    int differing = 0;
    for (int i = 0; i < count; i++) {
        double sum = contribution(0, first + i);
        for (int rank = 1; rank < world_size; rank++)
            sum += contribution(rank, first + i);
        differing += memcmp(&result[i], &sum, sizeof sum) != 0;
    }
    if (differing)
        fprintf(stderr, "rank %d: %d of %d elements differ\n", world_rank, differing, count);
    return differing;
}

static void sums(const double *mine, double *result, int count)
{
    MPI_Request request;
    size_t bytes = sizeof *mine * (size_t)count;
    OK(MPI_Allreduce(mine, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(!wrong(result, 0, count));
    memcpy(result, mine, bytes);
    OK(MPI_Allreduce(MPI_IN_PLACE, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(!wrong(result, 0, count));
    if (count <= 1000) {
        OK(MPI_Iallreduce(mine, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(!wrong(result, 0, count));
    }
    for (int root = 0; root < world_size; root++) {
        memcpy(result, mine, bytes);
        OK(MPI_Reduce(world_rank == root ? MPI_IN_PLACE : mine, result, count, MPI_DOUBLE, MPI_SUM, root,
                      MPI_COMM_WORLD));
        CHECK(world_rank != root || !wrong(result, 0, count));
    }
    count /= world_size;
    OK(MPI_Reduce_scatter_block(mine, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(!wrong(result, world_rank * count, count));
}

int main(int argc, char **argv)
{
    static const int counts[] = {1, 2, 16, 97, 1000, 5000, longest};
    double *mine, *result;
    start(&argc, &argv);
    mine = allocate(sizeof *mine * longest);
    result = allocate(sizeof *result * longest);
    for (int i = 0; i < longest; i++)
        mine[i] = contribution(world_rank, i);
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
        sums(mine, result, counts[n]);
    free(mine);
    free(result);
    return finish();
}
