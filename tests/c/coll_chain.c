/* Reductions of ranks that share processors: each adds its operands to one value in turn, in one step or several. With
 * the argument `apart` ranks have processors of their own, and nothing goes this way. */
#include "counter.h"

enum { longest = 200000, lengths = 8 };

/* About what one step takes of numbers of 8 bytes, and several. Short ones go another way, to a root longer ones,
 * too. */
static const int counts[lengths] = {40, 1000, 9000, 20011, 65535, 65536, 65537, longest};

static double *own, *sums;

static double operand(int round, int rank, int i)
{
    return 1.0 / (round * 10007 + rank * 503 + i % 4099 + 1) * (rank % 2 ? 1e9 : 1e-9);
}

static void lay(double *numbers, int round, int count)
{
    for (int i = 0; i < count; i++) numbers[i] = operand(round, world_rank, i);
}

/* The bits of a sum are those of a loop over the ranks. */
static int are_sums(const double *numbers, int round, int count)
{
    for (int i = 0; i < count; i++) {
        double sum = operand(round, 0, i);
        for (int rank = 1; rank < world_size; rank++) sum += operand(round, rank, i);
        if (memcmp(&sum, &numbers[i], sizeof sum) != 0)
            return 0;
    }
    return 1;
}

static void sums_of(int round, int count, int root)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    const int in_place = round % 2, started = round / 2 % 2, reads = root < 0 || root == world_rank;
    const void *from = in_place && reads ? MPI_IN_PLACE : own;
    MPI_Request request;
    memset(sums, 0xff, (count + 1) * sizeof *sums);
    lay(in_place && reads ? sums : own, round, count);
    if (root < 0 && !started)
        OK(MPI_Allreduce(from, sums, count, MPI_DOUBLE, MPI_SUM, world));
    else if (!started)
        OK(MPI_Reduce(from, sums, count, MPI_DOUBLE, MPI_SUM, root, world));
    else {
        OK(root < 0 ? MPI_Iallreduce(from, sums, count, MPI_DOUBLE, MPI_SUM, world, &request)
                    : MPI_Ireduce(from, sums, count, MPI_DOUBLE, MPI_SUM, root, world, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    CHECK(!reads || are_sums(sums, round, count));
    unsigned char behind[sizeof *sums];
    memset(behind, 0xff, sizeof behind);
    CHECK(memcmp(sums + count, behind, sizeof behind) == 0);
}

/* The rank of the greatest value, of equal ones the lowest: elements with gaps. */
static void located(int round, int count)
{
    struct place { double value; int rank; } *mine = (struct place *)own, *found = (struct place *)sums;
    for (int i = 0; i < count; i++) mine[i] = (struct place){(world_rank * (round + 3) + i) % 3, world_rank};
    OK(MPI_Allreduce(mine, found, count, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    for (int i = 0; i < count; i++) {
        struct place best = {-1, -1};
        for (int rank = 0; rank < world_size; rank++) {
            double value = (rank * (round + 3) + i) % 3;
            if (value > best.value) best = (struct place){value, rank};
        }
        if (found[i].value != best.value || found[i].rank != best.rank) {
            CHECK(!"the greatest of all");
            return;
        }
    }
}

/* The next collective finds everyone at the same step. */
static void go_on(int round)
{
    sums_of(4 * round, counts[round % 3], -1);
}

/* One rank means another length: who is to read learns it. */
static void disagree(int round, int who, int first, int second)
{
    const int mine = world_rank == who ? second : first;
    for (int root = -1; root < world_size; root += root < 0 ? 1 : world_size - 1) {
        int error = root < 0 ? MPI_Allreduce(own, sums, mine, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD)
                             : MPI_Reduce(own, sums, mine, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
        CHECK(class_of(error) == MPI_ERR_TRUNCATE || (root >= 0 && root != world_rank && error == MPI_SUCCESS));
        go_on(round);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const int apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    own = calloc(2 * longest, sizeof *own);
    sums = calloc(2 * longest + 1, sizeof *sums);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    struct counter in_chain = start_counting("collectives_in_a_chain");
    /* A communicator's first calls are messages, of either kind. */
    for (int call = 0; call < 9; call++) {
        MPI_Request request;
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    for (int round = 0; round < 4 * lengths; round++) {
        int count = counts[round % lengths];
        unsigned long long before = counted(&in_chain);
        /* Two to a root go another way. */
        for (int root = world_size > 2 ? world_size - 1 : -1; root >= -1; root--) sums_of(round / lengths, count, root);
        unsigned long long calls = world_size > 2 ? world_size + 1 : 1;
        unsigned long long chained = counted(&in_chain) - before;
        CHECK(apart || count < 1000 ? chained == 0 : count > 20000 ? chained == calls : chained <= calls);
        located(round, count);
    }
    for (int first = 0; first < lengths; first++)
        for (int second = 0; second < lengths; second++)
            if (first != second)
                disagree(first + second, (first + 3 * second) % world_size, counts[first], counts[second]);
    stop_counting(&in_chain);
    free(own);
    free(sums);
    return finish();
}
