/* Collectives of long blocks, whose way over boards or straight from memory to memory is judged while they
 * are used: all ranks go the same way in every call, whatever it is and whatever comes between, and both
 * ways are tried. */
#include "counter.h"

enum { longest = 8192, rounds = 120 };

static int *out, *in;

static int value(int round, int from, int to, int i)
{
    return round * 10007 + from * 503 + to * 31 + i;
}

static void alltoall(MPI_Comm comm, int round, int count, int in_place)
{
    int *send = in_place ? in : out;
    memset(in, 0xff, (size_t)world_size * count * sizeof(int));
    for (int to = 0; to < world_size; to++)
        for (int i = 0; i < count; i++)
            send[to * count + i] = value(round, world_rank, to, i);
    OK(MPI_Alltoall(in_place ? MPI_IN_PLACE : out, count, MPI_INT, in, count, MPI_INT, comm));
    for (int from = 0; from < world_size; from++)
        for (int i = 0; i < count; i++)
            if (in[from * count + i] != value(round, from, world_rank, i)) {
                CHECK(!"each has sent something else to each");
                return;
            }
}

static void allgather(MPI_Comm comm, int round, int count)
{
    memset(in, 0xff, (size_t)world_size * count * sizeof(int));
    for (int i = 0; i < count; i++)
        out[i] = value(round, world_rank, 0, i);
    OK(MPI_Allgather(out, count, MPI_INT, in, count, MPI_INT, comm));
    for (int from = 0; from < world_size; from++)
        for (int i = 0; i < count; i++)
            if (in[from * count + i] != value(round, from, 0, i)) {
                CHECK(!"each has the same for all");
                return;
            }
}

/* The bits of a sum are those of a loop over the ranks, whichever way its operands go. */
static void allreduce(MPI_Comm comm, int round, int count)
{
    double *mine = (double *)out, *sums = (double *)in;
    for (int i = 0; i < count; i++)
        mine[i] = 1.0 / value(round + 1, world_rank, 0, i) * (world_rank % 2 ? 1e9 : 1e-9);
    OK(MPI_Allreduce(mine, sums, count, MPI_DOUBLE, MPI_SUM, comm));
    for (int i = 0; i < count; i++) {
        double sum = 0;
        for (int from = 0; from < world_size; from++)
            sum += 1.0 / value(round + 1, from, 0, i) * (from % 2 ? 1e9 : 1e-9);
        if (memcmp(&sum, &sums[i], sizeof sum) != 0) {
            CHECK(!"a sum of all");
            return;
        }
    }
}

/* Rank 0 takes blocks to be longer than the others do, of the same kind or of another: an error of all,
 * after which they still know alike which way to go. */
static void disagreement(MPI_Comm comm, int count)
{
    int own = world_rank == 0 ? count + 1 : count;
    int class = class_of(MPI_Alltoall(out, own, MPI_INT, in, own, MPI_INT, comm));
    CHECK(class == MPI_ERR_TRUNCATE);
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    start(&argc, &argv);
    struct counter read_straight = start_counting("collectives_read_straight");
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    out = calloc((size_t)world_size * longest * 8 + 64, sizeof(int));
    in = calloc((size_t)world_size * longest * 8 + 64, sizeof(int));
    /* A communicator's first calls are messages. */
    for (int call = 0; call < 9; call++)
        OK(MPI_Barrier(comm));
    for (int round = 0; round < rounds; round++) {
        /* Kinds that are judged apart, and lengths of one kind. */
        int count = longest - round % 7 * 200;
        alltoall(comm, round, count, 0);
        alltoall(comm, round, longest / 2 + round % 3, round % 5 == 4);
        allgather(comm, round, count);
        allreduce(comm, round, longest * 4);
        OK(MPI_Barrier(comm));
        if (round % 8 == 7)
            disagreement(comm, round % 16 == 7 ? longest / 2 : 2 * longest - 1);
    }
    unsigned long long straight = counted(&read_straight);
    CHECK(straight > 0 && straight < 4 * rounds - 8);
    stop_counting(&read_straight);
    free(out);
    free(in);
    OK(MPI_Comm_free(&comm));
    return finish();
}
