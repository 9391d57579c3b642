/* Non-blocking collectives: every one, many in flight at once, completed in any order, beside messages. */
#include "check.h"

enum { n = 500, in_flight = 40 };

static int value(int rank, int i, int salt)
{
    return rank * 10007 + i * 13 + salt;
}

static long long total(int i, int salt, int last)
{
    long long sum = 0;
    for (int rank = 0; rank <= last; rank++)
        sum += value(rank, i, salt);
    return sum;
}

/* One of each, all at once. */
static void one_of_each(void)
{
    enum { kinds = 17 };
    MPI_Request requests[kinds];
    size_t all = (size_t)n * (size_t)world_size;
    int *mine = allocate(all * sizeof(int)), *out[kinds], root = world_size - 1, wrong = 0, k = 0;
    int counts[world_size], displacements[world_size], byte_displacements[world_size];
    MPI_Datatype types[world_size];
    for (size_t i = 0; i < all; i++)
        mine[i] = value(world_rank, (int)i, 1);
    for (int rank = 0; rank < world_size; rank++) {
        counts[rank] = n;
        displacements[rank] = rank * n;
        byte_displacements[rank] = rank * n * (int)sizeof(int);
        types[rank] = MPI_INT;
    }
    for (int i = 0; i < kinds; i++) {
        out[i] = allocate(all * sizeof(int));
        memset(out[i], 0xff, all * sizeof(int));
    }
    if (world_rank == root)
        memcpy(out[1], mine, n * sizeof(int));
    OK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Ibcast(out[1], n, MPI_INT, root, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Igather(mine, n, MPI_INT, out[2], n, MPI_INT, root, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Igatherv(mine, n, MPI_INT, out[3], counts, displacements, MPI_INT, root, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Iscatter(mine, n, MPI_INT, out[4], n, MPI_INT, root, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Iscatterv(mine, counts, displacements, MPI_INT, out[5], n, MPI_INT, root, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Iallgather(mine, n, MPI_INT, out[6], n, MPI_INT, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Iallgatherv(mine, n, MPI_INT, out[7], counts, displacements, MPI_INT, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Ialltoall(mine, n, MPI_INT, out[8], n, MPI_INT, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Ialltoallv(mine, counts, displacements, MPI_INT, out[9], counts, displacements, MPI_INT, MPI_COMM_WORLD,
                      &requests[k++]));
    OK(MPI_Ialltoallw(mine, counts, byte_displacements, types, out[10], counts, byte_displacements, types,
                      MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Ireduce(mine, out[11], n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Iallreduce(mine, out[12], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Iscan(mine, out[13], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Iexscan(mine, out[14], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Ireduce_scatter(mine, out[15], counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[k++]));
    OK(MPI_Ireduce_scatter_block(mine, out[16], n, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[k++]));
    /* Messages pass meanwhile, and a blocking collective overtakes. */
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    int got = -1, sum = 0, one = 1;
    OK(MPI_Sendrecv(&world_rank, 1, MPI_INT, right, 1, &got, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == left);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == world_size);
    OK(MPI_Waitall(kinds, requests, MPI_STATUSES_IGNORE));

    for (int i = 0; i < n; i++) {
        wrong += out[1][i] != value(root, i, 1);
        wrong += out[4][i] != value(root, world_rank * n + i, 1) || out[5][i] != out[4][i];
        wrong += out[12][i] != total(i, 1, world_size - 1);
        wrong += out[13][i] != total(i, 1, world_rank);
        wrong += world_rank > 0 && out[14][i] != total(i, 1, world_rank - 1);
        wrong += out[15][i] != total(world_rank * n + i, 1, world_size - 1) || out[16][i] != out[15][i];
        wrong += world_rank == root && out[11][i] != total(i, 1, world_size - 1);
        for (int rank = 0; rank < world_size; rank++) {
            int at = rank * n + i;
            wrong += out[6][at] != value(rank, i, 1) || out[7][at] != out[6][at];
            wrong += out[8][at] != value(rank, world_rank * n + i, 1);
            wrong += out[9][at] != out[8][at] || out[10][at] != out[8][at];
            wrong += world_rank == root && (out[2][at] != value(rank, i, 1) || out[3][at] != out[2][at]);
        }
    }
    CHECK(wrong == 0);
    for (int i = 0; i < kinds; i++)
        free(out[i]);
    free(mine);
}

/* Many of one kind on two communicators, waited for in reverse order. */
static void many_at_once(void)
{
    MPI_Comm other;
    MPI_Request requests[2 * in_flight];
    int data[2 * in_flight], sums[in_flight];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    for (int i = 0; i < in_flight; i++) {
        int root = i % world_size;
        data[i] = value(world_rank, i, 2);
        data[in_flight + i] = world_rank == root ? value(root, i, 3) : -1;
        OK(MPI_Iallreduce(&data[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Ibcast(&data[in_flight + i], 1, MPI_INT, root, other, &requests[in_flight + i]));
    }
    for (int i = 2 * in_flight - 1; i >= 0; i--)
        OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    for (int i = 0; i < in_flight; i++) {
        CHECK(sums[i] == total(i, 2, world_size - 1));
        CHECK(data[in_flight + i] == value(i % world_size, i, 3));
    }
    OK(MPI_Comm_free(&other));
}

/* A communicator may be freed while its collective is in flight. */
static void freed_in_flight(void)
{
    MPI_Comm other;
    MPI_Request request;
    int one = 1, sum = 0, flag = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, other, &request));
    OK(MPI_Comm_free(&other));
    while (!flag)
        OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    CHECK(sum == world_size);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    one_of_each();
    many_at_once();
    freed_in_flight();
    return finish();
}
