/* With FERROVIA_REPRODUCIBLE=1 a reduction depends on the contributions and the number of ranks only: an element has
 * the same bits however many others there are, whoever is the root, in place or not, in whichever call. */
#include "check.h"

enum { longest = 150000, samples = 97 };

/* Magnitudes that make every order of summation round differently. */
static double contribution(int rank, int element)
{
    uint64_t state = (uint64_t)(rank * 7919 + element % samples) + 1;
    double value = (double)next_random(&state) / 3.0;
    for (uint32_t shift = next_random(&state) % 40; shift > 0; shift--)
        value *= next_random(&state) % 2 ? 0.25 : -3.0;
    return value;
}

/* The bits every call must give for each sample, from a reduction of a single element. */
static double expected[samples];

static void check_all(const char *call, const double *result, int first, int count)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += memcmp(&result[i], &expected[(first + i) % samples], sizeof(double)) != 0;
    if (wrong)
        fprintf(stderr, "rank %d: %s of %d elements: %d differ\n", world_rank, call, count, wrong);
    CHECK(wrong == 0);
}

static void lengths(double *mine, double *result)
{
    static const int counts[] = {1, 2, 16, 97, 1000, 5000, 40000, longest};
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        int count = counts[n], root = (int)n % world_size;
        MPI_Request request;
        OK(MPI_Allreduce(mine, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
        check_all("MPI_Allreduce", result, 0, count);
        memcpy(result, mine, sizeof(double) * (size_t)count);
        OK(MPI_Allreduce(MPI_IN_PLACE, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
        check_all("MPI_Allreduce in place", result, 0, count);
        OK(MPI_Iallreduce(mine, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        check_all("MPI_Iallreduce", result, 0, count);
        OK(MPI_Reduce(mine, result, count, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD));
        if (world_rank == root)
            check_all("MPI_Reduce", result, 0, count);
    }
}

static void scattered(double *mine, double *result)
{
    static const int blocks[] = {1, 64, 9700};
    int counts[64], begin = 0;
    for (size_t n = 0; n < sizeof blocks / sizeof blocks[0]; n++) {
        int block = blocks[n];
        OK(MPI_Reduce_scatter_block(mine, result, block, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
        check_all("MPI_Reduce_scatter_block", result, world_rank * block, block);
    }
    for (int rank = 0; rank < world_size; rank++) {
        counts[rank] = 1000 * (rank % 3);
        begin += rank < world_rank ? counts[rank] : 0;
    }
    OK(MPI_Reduce_scatter(mine, result, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    check_all("MPI_Reduce_scatter", result, begin, counts[world_rank]);
}

/* A prefix has the same bits whatever the length. */
static void prefixes(double *mine, double *result)
{
    double few[samples], exclusive[samples];
    OK(MPI_Scan(mine, few, samples, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Scan(mine, result, longest, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < longest; i += 13)
        CHECK(memcmp(&result[i], &few[i % samples], sizeof(double)) == 0);
    OK(MPI_Exscan(mine, exclusive, samples, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Exscan(mine, result, longest, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; world_rank > 0 && i < longest; i += 13)
        CHECK(memcmp(&result[i], &exclusive[i % samples], sizeof(double)) == 0);
}

int main(int argc, char **argv)
{
    double *mine, *result;
    start(&argc, &argv);
    mine = allocate(sizeof(double) * longest);
    result = allocate(sizeof(double) * longest);
    for (int i = 0; i < longest; i++)
        mine[i] = contribution(world_rank, i);
    for (int i = 0; i < samples; i++)
        OK(MPI_Allreduce(&mine[i], &expected[i], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    lengths(mine, result);
    scattered(mine, result);
    prefixes(mine, result);
    free(mine);
    free(result);
    return finish();
}
