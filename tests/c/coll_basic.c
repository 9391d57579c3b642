/* Barrier, broadcast, and gathering of every kind: all roots, many sizes, in place. */
#include "check.h"

static const int counts[] = {0, 1, 2, 3, 7, 16, 100, 1000, 3001, 20000, 70001};
enum { counts_count = sizeof counts / sizeof counts[0] };

/* The i-th integer rank `rank` contributes in round `salt`. */
static int value(int rank, int i, int salt)
{
    return rank * 1000003 + i * 17 + salt * 7919;
}

static int *ints(size_t count)
{
    int *memory = allocate(count * sizeof(int));
    for (size_t i = 0; i < count; i++)
        memory[i] = -99;
    return memory;
}

static int *contribution(int count, int salt)
{
    int *memory = ints((size_t)count);
    for (int i = 0; i < count; i++)
        memory[i] = value(world_rank, i, salt);
    return memory;
}

/* Whether `memory` holds `count` integers of every rank, rank after rank. */
static int all_there(const int *memory, int count, int salt)
{
    for (int rank = 0; rank < world_size; rank++)
        for (int i = 0; i < count; i++)
            if (memory[(size_t)rank * (size_t)count + (size_t)i] != value(rank, i, salt))
                return 0;
    return 1;
}

static void barrier(void)
{
    /* Nobody leaves a barrier before everybody has entered: a message sent before it has come. */
    for (int round = 0; round < 20; round++) {
        int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size, got = -1;
        MPI_Request request;
        OK(MPI_Irecv(&got, 1, MPI_INT, left, round, MPI_COMM_WORLD, &request));
        OK(MPI_Ssend(&round, 1, MPI_INT, right == world_rank ? MPI_PROC_NULL : right, round, MPI_COMM_WORLD));
        if (right == world_rank) {
            OK(MPI_Cancel(&request));
            got = round;
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        CHECK(got == round);
    }
}

static void bcast(int count, int root, int salt)
{
    int *data = world_rank == root ? contribution(count, salt) : ints((size_t)count), wrong = 0;
    OK(MPI_Bcast(data, count, MPI_INT, root, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++)
        wrong += data[i] != value(root, i, salt);
    CHECK(wrong == 0);
    free(data);
}

static void gather_and_scatter(int count, int root, int salt)
{
    size_t total = (size_t)count * (size_t)world_size;
    int *mine = contribution(count, salt), *all = ints(total), *back = ints((size_t)count);
    OK(MPI_Gather(mine, count, MPI_INT, world_rank == root ? all : NULL, count, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(world_rank != root || all_there(all, count, salt));
    OK(MPI_Scatter(world_rank == root ? all : NULL, count, MPI_INT, back, count, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(memcmp(back, mine, (size_t)count * sizeof(int)) == 0);
    /* In place at the root. */
    if (world_rank == root) {
        size_t own = (size_t)root * (size_t)count;
        for (size_t i = 0; i < total; i++)
            all[i] = -1;
        memcpy(all + own, mine, (size_t)count * sizeof(int));
        OK(MPI_Gather(MPI_IN_PLACE, 0, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD));
        CHECK(all_there(all, count, salt));
        OK(MPI_Scatter(all, count, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, root, MPI_COMM_WORLD));
        CHECK(all_there(all, count, salt));
    } else {
        OK(MPI_Gather(mine, count, MPI_INT, NULL, 0, MPI_INT, root, MPI_COMM_WORLD));
        memset(back, 0, (size_t)count * sizeof(int));
        OK(MPI_Scatter(NULL, 0, MPI_INT, back, count, MPI_INT, root, MPI_COMM_WORLD));
        CHECK(memcmp(back, mine, (size_t)count * sizeof(int)) == 0);
    }
    free(mine);
    free(all);
    free(back);
}

static void allgather(int count, int salt)
{
    size_t total = (size_t)count * (size_t)world_size;
    int *mine = contribution(count, salt), *all = ints(total);
    OK(MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD));
    CHECK(all_there(all, count, salt));
    for (size_t i = 0; i < total; i++)
        all[i] = -1;
    memcpy(all + (size_t)world_rank * (size_t)count, mine, (size_t)count * sizeof(int));
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, MPI_INT, MPI_COMM_WORLD));
    CHECK(all_there(all, count, salt));
    free(mine);
    free(all);
}

static void alltoall(int count, int salt)
{
    size_t total = (size_t)count * (size_t)world_size;
    int *out = ints(total), *in = ints(total), wrong = 0;
    for (int rank = 0; rank < world_size; rank++)
        for (int i = 0; i < count; i++)
            out[(size_t)rank * (size_t)count + (size_t)i] = value(world_rank, i, salt) ^ rank;
    OK(MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD));
    for (int rank = 0; rank < world_size; rank++)
        for (int i = 0; i < count; i++)
            wrong += in[(size_t)rank * (size_t)count + (size_t)i] != (value(rank, i, salt) ^ world_rank);
    CHECK(wrong == 0);
    OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD));
    CHECK(memcmp(out, in, total * sizeof(int)) == 0);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    barrier();
    for (int c = 0; c < counts_count; c++) {
        for (int root = 0; root < world_size; root++) {
            bcast(counts[c], root, c);
            gather_and_scatter(counts[c], root, c);
        }
        allgather(counts[c], c);
        alltoall(counts[c], c);
    }
    bcast(2000000, world_size - 1, 3);
    return finish();
}
