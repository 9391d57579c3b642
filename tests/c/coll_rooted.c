/* Long collectives with a root. Of two ranks that run at once, the way over boards or by messages is judged while
 * they are used: both go the same way in every call, also after one in which they meant different lengths. */
#include "counter.h"

enum { longest = 70000, rounds = 40 };

/* Below a step, about one, several, and lengths that are judged together and apart. */
static const int counts[] = {9000, 12288, 16367, 16368, 16384, 20000, 30000, 33000, 65536, 70000};
enum { lengths = sizeof counts / sizeof *counts };

static int *all, *own;

static int value(int round, int rank, int i)
{
    return round * 10007 + rank * 503 + i;
}

static int holds(const int *numbers, int round, int rank, int count, int step)
{
    for (int i = 0; i < count; i++)
        if (numbers[i * step] != value(round, rank, i))
            return 0;
    return 1;
}

static void lay(int *numbers, int round, int rank, int count, int step)
{
    for (int i = 0; i < count; i++) numbers[i * step] = value(round, rank, i);
}

/* Not commutative: the upper half of the left operand, and the lower one of the right. */
static int halves(int left, int right)
{
    return (left & ~0xffff) | (right & 0xffff);
}

static void take_halves(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++) ((int *)inout)[i] = halves(((int *)in)[i], ((int *)inout)[i]);
}

/* The last rank has every second number. */
static void broadcast(int round, int root, int count)
{
    int step = world_rank == world_size - 1 ? 2 : 1;
    MPI_Datatype sparse;
    OK(MPI_Type_vector(count, 1, 2, MPI_INT, &sparse));
    OK(MPI_Type_commit(&sparse));
    memset(all, 0xff, 2 * longest * sizeof(int));
    if (world_rank == root)
        lay(all, round, root, count, step);
    OK(step == 2 ? MPI_Bcast(all, 1, sparse, root, MPI_COMM_WORLD)
                 : MPI_Bcast(all, count, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(holds(all, round, root, count, step));
    CHECK(step == 1 || all[1] == -1);
    OK(MPI_Type_free(&sparse));
}

static void gather(int round, int root, int count)
{
    int in_place = world_rank == root && round % 3 == 0;
    memset(all, 0xff, (size_t)world_size * count * sizeof(int));
    lay(in_place ? all + root * count : own, round, world_rank, count, 1);
    OK(MPI_Gather(in_place ? MPI_IN_PLACE : own, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD));
    for (int rank = 0; rank < world_size && world_rank == root; rank++)
        CHECK(holds(all + rank * count, round, rank, count, 1));
}

static void scatter(int round, int root, int count)
{
    int in_place = world_rank == root && round % 3 == 0;
    memset(own, 0xff, count * sizeof(int));
    for (int rank = 0; rank < world_size && world_rank == root; rank++) lay(all + rank * count, round, rank, count, 1);
    OK(MPI_Scatter(all, count, MPI_INT, in_place ? MPI_IN_PLACE : own, count, MPI_INT, root, MPI_COMM_WORLD));
    CHECK(in_place || holds(own, round, world_rank, count, 1));
}

static void reduce(int round, int root, int count, MPI_Op ordered)
{
    int in_place = world_rank == root && round % 3 == 0, in_order = round % 2;
    memset(all, 0xff, count * sizeof(int));
    lay(in_place ? all : own, round, world_rank, count, 1);
    OK(MPI_Reduce(in_place ? MPI_IN_PLACE : own, all, count, MPI_INT, in_order ? ordered : MPI_SUM, root,
                  MPI_COMM_WORLD));
    for (int i = 0; i < count && world_rank == root; i++) {
        int expected = value(round, 0, i);
        for (int rank = 1; rank < world_size; rank++) {
            int next = value(round, rank, i);
            expected = in_order ? halves(expected, next) : expected + next;
        }
        if (all[i] != expected) {
            CHECK(!"the operands of all");
            return;
        }
    }
}

/* The same bits whichever way the operands went, also where their order shows: zeros of both signs, and what is no
 * number. */
static void same_bits(int round, int root)
{
    enum { count = 16384, ways = 4 };
    static double first[ways][count];
    const double none = strtod("nan", NULL);
    const double zero = world_rank % 2 ? 0.0 : -0.0, other = world_rank % 2 ? none : 1.0;
    double *out = (double *)all;
    for (int at = 0; at < ways; at++) {
        int in_place = at / 2 && world_rank == root;
        double *in = in_place ? out : (double *)own;
        for (int i = 0; i < count; i++) in[i] = i % 3 == 0 ? zero : i % 3 == 1 ? -zero : other;
        OK(MPI_Reduce(in_place ? MPI_IN_PLACE : in, out, count, MPI_DOUBLE, at % 2 ? MPI_MAX : MPI_SUM, root,
                      MPI_COMM_WORLD));
        if (world_rank != root) continue;
        if (round / 2 < world_size && round % 2 == 0) memcpy(first[at], out, sizeof first[at]);
        CHECK(memcmp(first[at], out, sizeof first[at]) == 0);
    }
}

/* Two mean different lengths: who is to read learns it, and the next call works. */
static void disagree(int root, int first, int second)
{
    const int mine = world_rank == 0 ? first : second, is_root = world_rank == root;
    const MPI_Comm world = MPI_COMM_WORLD;
    for (int call = 0; call < 4; call++) {
        int error = call == 0   ? MPI_Bcast(all, mine, MPI_INT, root, world)
                    : call == 1 ? MPI_Scatter(all, mine, MPI_INT, own, mine, MPI_INT, root, world)
                    : call == 2 ? MPI_Gather(own, mine, MPI_INT, all, mine, MPI_INT, root, world)
                                : MPI_Reduce(own, all, mine, MPI_INT, MPI_SUM, root, world);
        int reads = call < 2 ? !is_root : is_root;
        CHECK(class_of(error) == MPI_ERR_TRUNCATE || (!reads && error == MPI_SUCCESS));
        int sum = 0;
        OK(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, world));
        CHECK(sum == 1);
    }
}

int main(int argc, char **argv)
{
    MPI_Op ordered;
    unsigned long long judged = 0, judged_over_boards = 0;
    start(&argc, &argv);
    all = calloc((size_t)world_size * longest * 2, sizeof(int));
    own = calloc(longest, sizeof(int));
    OK(MPI_Op_create(take_halves, 0, &ordered));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    struct counter over_boards = start_counting("collectives_over_boards");
    /* A communicator's first calls are messages. */
    for (int call = 0; call < 9; call++) OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int round = 0; round < rounds; round++) {
        int root = round / 2 % world_size;
        for (int at = 0; at < lengths; at++) {
            int count = counts[(at + round) % lengths];
            unsigned long long before = counted(&over_boards);
            broadcast(round, root, count);
            gather(round, root, count);
            scatter(round, root, count);
            reduce(round, root, count, ordered);
            if (count >= 16384) judged += 4, judged_over_boards += counted(&over_boards) - before;
        }
        same_bits(round, root);
        if (world_size == 2 && round % 4 == 3) {
            disagree(root, counts[round % lengths], counts[(round * 3 + 1) % lengths]);
            disagree(1 - root, round % 8 == 3 ? 100 : 8192, counts[round % lengths]);
        }
    }
    if (world_size == 2) {
        for (int first = 0; first < lengths; first++)
            for (int second = 0; second < lengths; second++)
                if (counts[first] != counts[second]) disagree(first % 2, counts[first], counts[second]);
    }
    /* Both ways have been gone. */
    if (argc > 1 && strcmp(argv[1], "judged") == 0) CHECK(judged_over_boards > 0 && judged_over_boards < judged);
    stop_counting(&over_boards);
    OK(MPI_Op_free(&ordered));
    free(all);
    free(own);
    return finish();
}
