/* The large-count variants: the same calls with MPI_Count, on small data. */
#include "check.h"

int main(int argc, char **argv)
{
    enum { n = 1000 };
    int out[n], in[n], wrong = 0;
    MPI_Count count = -1;
    MPI_Status status;
    MPI_Request requests[2];
    MPI_Datatype type;
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    for (int i = 0; i < n; i++)
        out[i] = world_rank * n + i;
    OK(MPI_Irecv_c(in, n, MPI_INT, left, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend_c(out, n, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    OK(MPI_Get_count_c(&status, MPI_INT, &count));
    CHECK(count == n);
    for (int i = 0; i < n; i++)
        wrong += in[i] != left * n + i;
    OK(MPI_Sendrecv_c(out, n, MPI_INT, right, 2, in, n, MPI_INT, left, 2, MPI_COMM_WORLD, &status));
    OK(MPI_Bcast_c(in, n, MPI_INT, 0, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        wrong += in[i] != (world_size - 1) % world_size * n + i;
    for (int i = 0; i < n; i++)
        out[i] = i;
    OK(MPI_Allreduce_c(out, in, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++)
        wrong += in[i] != i * world_size;
    OK(MPI_Reduce_c(out, in, n, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD));

    MPI_Count counts[world_size];
    MPI_Aint displacements[world_size];
    int mine[2] = {world_rank, -world_rank}, *all = allocate((size_t)world_size * 2 * sizeof(int));
    for (int rank = 0; rank < world_size; rank++) {
        counts[rank] = 2;
        displacements[rank] = 2 * rank;
    }
    OK(MPI_Allgatherv_c(mine, 2, MPI_INT, all, counts, displacements, MPI_INT, MPI_COMM_WORLD));
    for (int rank = 0; rank < world_size; rank++)
        wrong += all[2 * rank] != rank || all[2 * rank + 1] != -rank;
    CHECK(wrong == 0);
    free(all);

    /* Types larger than an int can say. */
    int small = 0;
    MPI_Count lb = -1, extent = -1, size = -1, integers, addresses, larges, datatypes;
    int combiner = -1;
    OK(MPI_Type_contiguous_c((MPI_Count)3000000000, MPI_DOUBLE, &type));
    OK(MPI_Type_size_c(type, &size));
    CHECK(size == (MPI_Count)24000000000);
    OK(MPI_Type_size(type, &small));
    CHECK(small == MPI_UNDEFINED);
    OK(MPI_Type_get_extent_c(type, &lb, &extent));
    CHECK(lb == 0 && extent == (MPI_Count)24000000000);
    OK(MPI_Type_get_envelope_c(type, &integers, &addresses, &larges, &datatypes, &combiner));
    CHECK(combiner == MPI_COMBINER_CONTIGUOUS && integers == 0 && addresses == 0 && larges == 1 && datatypes == 1);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_create_hvector_c(2, 1, (MPI_Count)5000000000, MPI_INT, &type));
    OK(MPI_Type_get_true_extent_c(type, &lb, &extent));
    CHECK(lb == 0 && extent == (MPI_Count)5000000004);
    OK(MPI_Type_free(&type));
    return finish();
}
