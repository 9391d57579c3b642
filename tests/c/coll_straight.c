/* Collectives whose blocks members read straight from each other's memory: run with
 * FERROVIA_COLLECTIVE_READ_MIN=1, so that short ones are, too. With the argument `refused` the system lets
 * the last rank read no memory of others any more, half way through. */
#include "check.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { longest = 70000, rounds = 12 };
static const int counts[] = {0, 1, 3, 500, 20000, longest};

static int *out, *in;

static int value(int from, int to, int i)
{
    return from * 100003 + to * 1009 + i;
}

static void blank(int *memory, int count)
{
    for (int i = 0; i < count; i++)
        memory[i] = -7;
}

/* Whether `block` holds what `from` has for `to`. */
static int holds(const int *block, int count, int stride, int from, int to)
{
    for (int i = 0; i < count; i++)
        if (block[i * stride] != value(from, to, i))
            return 0;
    return 1;
}

/* `apart`: a rank that takes its blocks into every other integer; -1: none. */
static void alltoall(MPI_Comm comm, int count, int in_place, int apart)
{
    int stride = world_rank == apart ? 2 : 1;
    MPI_Datatype type = MPI_INT;
    if (stride > 1) {
        OK(MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type));
        OK(MPI_Type_commit(&type));
    }
    blank(in, 2 * count * world_size);
    for (int to = 0; to < world_size; to++)
        for (int i = 0; i < count; i++)
            (in_place ? in : out)[to * count + i] = value(world_rank, to, i);
    OK(MPI_Alltoall(in_place ? MPI_IN_PLACE : out, count, MPI_INT, in, count, type, comm));
    for (int from = 0; from < world_size; from++)
        CHECK(holds(in + from * count * stride, count, stride, from, world_rank));
    for (int i = 0; !in_place && i < count * world_size; i++)
        if (out[i] != value(world_rank, i / count, i % count)) {
            CHECK(!"what was sent is as it was");
            break;
        }
    if (stride > 1)
        OK(MPI_Type_free(&type));
}

static void allgather(MPI_Comm comm, int count, int in_place)
{
    blank(in, count * world_size);
    int *own = in_place ? in + world_rank * count : out;
    for (int i = 0; i < count; i++)
        own[i] = value(world_rank, 0, i);
    OK(MPI_Allgather(in_place ? MPI_IN_PLACE : out, count, MPI_INT, in, count, MPI_INT, comm));
    for (int from = 0; from < world_size; from++)
        CHECK(holds(in + from * count, count, 1, from, 0));
}

/* Rank 1 has nothing, the others more the higher they are; there are gaps. */
static void allgatherv(MPI_Comm comm, int count)
{
    int theirs[64], places[64], at = 1;
    for (int rank = 0; rank < world_size; rank++) {
        theirs[rank] = rank == 1 ? 0 : count / (world_size - rank);
        places[rank] = at;
        at += theirs[rank] + 1;
    }
    blank(in, at);
    for (int i = 0; i < theirs[world_rank]; i++)
        out[i] = value(world_rank, 0, i);
    OK(MPI_Allgatherv(out, theirs[world_rank], MPI_INT, in, theirs, places, MPI_INT, comm));
    for (int from = 0; from < world_size; from++)
        CHECK(holds(in + places[from], theirs[from], 1, from, 0) && in[places[from] - 1] == -7);
}

/* The bits of a sum are those of a loop over the ranks. */
static void allreduce(MPI_Comm comm, int count, int in_place)
{
    double *mine = (double *)out, *sum = (double *)in;
    for (int i = 0; i < count; i++)
        (in_place ? sum : mine)[i] = 1.0 / (1 + i % 977 + world_rank) * (world_rank % 2 ? 1e9 : 1e-9);
    OK(MPI_Allreduce(in_place ? MPI_IN_PLACE : mine, sum, count, MPI_DOUBLE, MPI_SUM, comm));
    for (int i = 0; i < count; i++) {
        double expected = 0;
        for (int rank = 0; rank < world_size; rank++)
            expected += 1.0 / (1 + i % 977 + rank) * (rank % 2 ? 1e9 : 1e-9);
        if (memcmp(&expected, &sum[i], sizeof expected) != 0) {
            CHECK(!"a sum is what a loop over the ranks gives");
            break;
        }
    }
}

/* Maps x -> first * x + second, one after the other: the order matters. */
static void compose(void *in_buffer, void *inout_buffer, int *len, MPI_Datatype *type)
{
    uint32_t (*left)[2] = in_buffer, (*right)[2] = inout_buffer;
    (void)type;
    for (int i = 0; i < *len; i++) {
        uint32_t first = left[i][0] * right[i][0], second = left[i][0] * right[i][1] + left[i][1];
        right[i][0] = first;
        right[i][1] = second;
    }
}

static void ordered(MPI_Comm comm, int count)
{
    uint32_t (*mine)[2] = (void *)out, (*all)[2] = (void *)in;
    MPI_Datatype pair;
    MPI_Op op;
    OK(MPI_Type_contiguous(2, MPI_UINT32_T, &pair));
    OK(MPI_Type_commit(&pair));
    OK(MPI_Op_create(compose, 0, &op));
    for (int i = 0; i < count; i++) {
        mine[i][0] = (uint32_t)(2 * world_rank + 3 + i);
        mine[i][1] = (uint32_t)(world_rank * 77 + i);
    }
    OK(MPI_Allreduce(mine, all, count, pair, op, comm));
    for (int i = 0; i < count; i++) {
        uint32_t first = (uint32_t)(2 * (world_size - 1) + 3 + i), second = (uint32_t)((world_size - 1) * 77 + i);
        for (int rank = world_size - 2; rank >= 0; rank--) {
            second = (uint32_t)(2 * rank + 3 + i) * second + (uint32_t)(rank * 77 + i);
            first = (uint32_t)(2 * rank + 3 + i) * first;
        }
        if (all[i][0] != first || all[i][1] != second) {
            CHECK(!"operands meet in the order of ranks");
            break;
        }
    }
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&pair));
}

static void all_of_them(MPI_Comm comm)
{
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        alltoall(comm, counts[n], 0, -1);
        alltoall(comm, counts[n], 1, -1);
        alltoall(comm, counts[n], 0, world_size - 1);
        allgather(comm, counts[n], 0);
        allgather(comm, counts[n], 1);
        allgatherv(comm, counts[n]);
        allreduce(comm, counts[n], 0);
        allreduce(comm, counts[n], 1);
        ordered(comm, counts[n]);
    }
}

static void refuse_reading(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    size_t most = 2 * (size_t)longest * (size_t)(world_size < 4 ? 4 : world_size) * sizeof(int);
    MPI_Comm one, other;
    out = malloc(most);
    in = malloc(most);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &one));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    for (int round = 0; round < rounds; round++)
        allreduce(one, 1, 0);
    all_of_them(one);
    if (argc > 1 && strcmp(argv[1], "refused") == 0) {
        /* Where operands are no more when that is found out, all are told; then there is no more reading. */
        if (world_rank == world_size - 1)
            refuse_reading();
        OK(MPI_Comm_set_errhandler(one, MPI_ERRORS_RETURN));
        int code = MPI_Allreduce(MPI_IN_PLACE, in, longest, MPI_INT, MPI_SUM, one), length = 0;
        char text[MPI_MAX_ERROR_STRING] = "";
        CHECK(class_of(code) == MPI_ERR_OTHER);
        OK(MPI_Error_string(code, text, &length));
        CHECK(strstr(text, "cross-memory attach") && strstr(text, "MPI_Allreduce"));
        all_of_them(one);
        /* A group that has not read anything yet finds out in time. */
        for (int round = 0; round < rounds; round++)
            allreduce(other, 1, 0);
        allreduce(other, longest, 1);
        all_of_them(other);
    }
    OK(MPI_Comm_free(&one));
    OK(MPI_Comm_free(&other));
    free(out);
    free(in);
    return finish();
}
