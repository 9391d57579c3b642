/* Short collectives between two processes, first by schedules and then over boards, beside those that are not short. */
#include "check.h"

enum { longest = 2000 };

static void add(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++) ((int *)inout)[i] += ((int *)in)[i];
}

/* Not commutative: the left operand counts twice. */
static void twice_left(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *len; i++) ((int *)inout)[i] += 2 * ((int *)in)[i];
}

static void reduce_all(MPI_Comm comm, int rank, int count, MPI_Op op, int left, int right)
{
    int in[longest] = {0}, out[longest];
    for (int i = 0; i < count; i++) in[i] = 10 * i + rank, out[i] = -1;
    OK(MPI_Allreduce(in, out, count, MPI_INT, op, comm));
    for (int i = 0; i < count; i++) CHECK(out[i] == left * (10 * i) + right * (10 * i + 1));
    OK(MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_INT, op, comm));
    for (int i = 0; i < count; i++) CHECK(in[i] == left * (10 * i) + right * (10 * i + 1));
}

/* Rank 0 has the numbers side by side, rank 1 every third one. */
static void broadcast(MPI_Comm comm, int rank, int root, int count)
{
    int numbers[3 * longest];
    MPI_Datatype sparse;
    OK(MPI_Type_vector(count, 1, 3, MPI_INT, &sparse));
    OK(MPI_Type_commit(&sparse));
    int step = rank == 0 ? 1 : 3;
    for (int i = 0; i < 3 * longest; i++) numbers[i] = -1;
    for (int i = 0; i < count && rank == root; i++) numbers[step * i] = 100 * root + i;
    if (rank == 0) OK(MPI_Bcast(numbers, count, MPI_INT, root, comm));
    else OK(MPI_Bcast(numbers, 1, sparse, root, comm));
    for (int i = 0; i < count; i++) CHECK(numbers[step * i] == 100 * root + i);
    CHECK(numbers[step * count] == -1);
    OK(MPI_Type_free(&sparse));
}

/* Both have the same bits, also where the operands' order shows: zeros of both signs, and numbers that are none. */
static void agree(MPI_Comm comm, int rank)
{
    const double none = strtod("nan", NULL);
    const double mine[2][6] = {{-0.0, 0.0, none, 1.0, none, -0.0}, {0.0, -0.0, 1.0, none, -none, none}};
    const MPI_Op ops[] = {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD};
    for (size_t at = 0; at < sizeof ops / sizeof *ops; at++) {
        double out[6], in_place[6], other[6];
        OK(MPI_Allreduce(mine[rank], out, 6, MPI_DOUBLE, ops[at], comm));
        memcpy(in_place, mine[rank], sizeof in_place);
        OK(MPI_Allreduce(MPI_IN_PLACE, in_place, 6, MPI_DOUBLE, ops[at], comm));
        OK(MPI_Sendrecv(out, 6, MPI_DOUBLE, 1 - rank, 1, other, 6, MPI_DOUBLE, 1 - rank, 1, comm, MPI_STATUS_IGNORE));
        CHECK(memcmp(out, other, sizeof out) == 0);
        CHECK(memcmp(out, in_place, sizeof out) == 0);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm pair;
    MPI_Op commutative, ordered;
    int rank;
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank / 2, world_rank, &pair));
    OK(MPI_Comm_rank(pair, &rank));
    OK(MPI_Op_create(add, 1, &commutative));
    OK(MPI_Op_create(twice_left, 0, &ordered));
    const int counts[] = {0, 1, 2, 1000, 1023, 1024, 1025, longest};
    for (size_t at = 0; at < sizeof counts / sizeof *counts; at++) {
        reduce_all(pair, rank, counts[at], MPI_SUM, 1, 1);
        reduce_all(pair, rank, counts[at], commutative, 1, 1);
        reduce_all(pair, rank, counts[at], ordered, 2, 1);
        broadcast(pair, rank, 0, counts[at] < longest ? counts[at] : longest - 1);
        broadcast(pair, rank, 1, counts[at] < longest ? counts[at] : longest - 1);
    }
    agree(pair, rank);
    /* In a row and among others: each is an operation of its own. */
    MPI_Request request;
    for (int i = 0; i < 500; i++) {
        int mine = i + rank, sum = -1, late = -1, told = i;
        OK(MPI_Iallreduce(&mine, &late, 1, MPI_INT, MPI_SUM, pair, &request));
        OK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_MAX, pair));
        OK(MPI_Barrier(pair));
        OK(MPI_Bcast(&told, 1, MPI_INT, i % 2, pair));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(sum == i + 1 && late == 2 * i + 1 && told == i);
    }
    OK(MPI_Op_free(&commutative));
    OK(MPI_Op_free(&ordered));
    OK(MPI_Comm_free(&pair));
    return finish();
}
