/* The collectives whose counts differ by rank: gatherv, scatterv, allgatherv, alltoallv, alltoallw. */
#include "check.h"

enum { scales_count = 4 };
static const int scales[scales_count] = {0, 1, 50, 9000};

/* How many integers rank `rank` contributes: none for some. */
static int share(int rank, int scale)
{
    return rank % 3 == 1 ? 0 : scale * (rank + 1);
}

static int value(int from, int to, int i)
{
    return from * 100003 + to * 1009 + i;
}

static int *ints(int count)
{
    int *memory = allocate((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++)
        memory[i] = -7;
    return memory;
}

/* Counts and displacements with gaps of three integers, in reverse order of ranks. */
static int layout(int *counts, int *displacements, int scale)
{
    int at = 0;
    for (int rank = world_size - 1; rank >= 0; rank--) {
        counts[rank] = share(rank, scale);
        displacements[rank] = at;
        at += counts[rank] + 3;
    }
    return at;
}

/* Whether the blocks hold `from`'s data for `to` (-1: the block's own rank), and the gaps nothing. */
static int holds(const int *memory, const int *counts, const int *displacements, int to)
{
    for (int rank = 0; rank < world_size; rank++) {
        for (int i = 0; i < counts[rank]; i++)
            if (memory[displacements[rank] + i] != value(rank, to, i))
                return 0;
        for (int gap = 0; gap < 3; gap++)
            if (memory[displacements[rank] + counts[rank] + gap] != -7)
                return 0;
    }
    return 1;
}

static void gathers(int scale, int root)
{
    int counts[world_size], displacements[world_size], length = layout(counts, displacements, scale);
    int mine_count = share(world_rank, scale);
    int *all = ints(length), *mine = ints(mine_count), *back = ints(mine_count + 1);
    for (int i = 0; i < mine_count; i++)
        mine[i] = value(world_rank, 0, i);
    OK(MPI_Gatherv(mine, mine_count, MPI_INT, all, counts, displacements, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(world_rank != root || holds(all, counts, displacements, 0));
    OK(MPI_Scatterv(all, counts, displacements, MPI_INT, back, mine_count, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(memcmp(back, mine, (size_t)mine_count * sizeof(int)) == 0 && back[mine_count] == -7);
    /* In place at the root. */
    OK(MPI_Gatherv(world_rank == root ? MPI_IN_PLACE : mine, mine_count, MPI_INT, all, counts, displacements, MPI_INT,
                   root, MPI_COMM_WORLD));
    CHECK(world_rank != root || holds(all, counts, displacements, 0));
    OK(MPI_Scatterv(all, counts, displacements, MPI_INT, world_rank == root ? MPI_IN_PLACE : back, mine_count, MPI_INT,
                    root, MPI_COMM_WORLD));
    CHECK(memcmp(back, mine, (size_t)mine_count * sizeof(int)) == 0);
    free(all);

    all = ints(length);
    OK(MPI_Allgatherv(mine, mine_count, MPI_INT, all, counts, displacements, MPI_INT, MPI_COMM_WORLD));
    CHECK(holds(all, counts, displacements, 0));
    free(all);
    all = ints(length);
    for (int i = 0; i < mine_count; i++)
        all[displacements[world_rank] + i] = value(world_rank, 0, i);
    OK(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INT, all, counts, displacements, MPI_INT, MPI_COMM_WORLD));
    CHECK(holds(all, counts, displacements, 0));
    free(all);
    free(mine);
    free(back);
}

/* Rank `from` sends rank `to` this many integers; symmetric, so that it also works in place. */
static int pair_share(int from, int to, int scale)
{
    return (from + to) % 3 == 1 ? 0 : scale * (1 + from * to % 4);
}

static void alltoalls(int scale)
{
    int counts[world_size], displacements[world_size], byte_displacements[world_size], length = 0;
    MPI_Datatype types[world_size];
    for (int rank = world_size - 1; rank >= 0; rank--) {
        counts[rank] = pair_share(world_rank, rank, scale);
        displacements[rank] = length;
        byte_displacements[rank] = length * (int)sizeof(int);
        types[rank] = MPI_INT;
        length += counts[rank] + 3;
    }
    int *out = ints(length), *in = ints(length);
    for (int rank = 0; rank < world_size; rank++)
        for (int i = 0; i < counts[rank]; i++)
            out[displacements[rank] + i] = value(world_rank, rank, i);
    OK(MPI_Alltoallv(out, counts, displacements, MPI_INT, in, counts, displacements, MPI_INT, MPI_COMM_WORLD));
    CHECK(holds(in, counts, displacements, world_rank));
    free(in);
    in = ints(length);
    OK(MPI_Alltoallw(out, counts, byte_displacements, types, in, counts, byte_displacements, types, MPI_COMM_WORLD));
    CHECK(holds(in, counts, displacements, world_rank));
    memcpy(in, out, (size_t)length * sizeof(int));
    OK(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, counts, displacements, MPI_INT, MPI_COMM_WORLD));
    CHECK(holds(in, counts, displacements, world_rank));
    memcpy(in, out, (size_t)length * sizeof(int));
    OK(MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, in, counts, byte_displacements, types, MPI_COMM_WORLD));
    CHECK(holds(in, counts, displacements, world_rank));
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int s = 0; s < scales_count; s++) {
        for (int root = 0; root < world_size; root++)
            gathers(scales[s], root);
        alltoalls(scales[s]);
    }
    return finish();
}
