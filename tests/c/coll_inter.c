/* Every collective between two groups, blocking, in the background and persistent, for all divisions of the
 * world, with roots in either group, against values known beforehand. */
#include "check.h"

enum form { blocking, background, persistent, forms };
enum { room = 4096 };

static MPI_Comm inter;
static enum form form;
static int rank, size, remote;
static int in_low;
/* World ranks: of the first of this group, and of the other. */
static int own_start, other_start;
static MPI_Request request;

/* Element `i` of what world rank `from` has for rank `to` of the other group. */
static int value(int from, int to, int i)
{
    return 10000 * from + 100 * to + i;
}

/* Completes what was started; a persistent operation runs again, into a wiped buffer. */
static void complete(int *receives)
{
    if (form == blocking)
        return;
    if (form == persistent) {
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        if (receives)
            memset(receives, 0xff, sizeof(int) * room);
        OK(MPI_Start(&request));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (form == persistent)
        OK(MPI_Request_free(&request));
}

/* MPI_X, MPI_Ix or MPI_X_init, as the form says. */
#define DO(call, icall, init, ...)                                           \
    do {                                                                     \
        if (form == blocking)                                                \
            OK(call(__VA_ARGS__, inter));                                    \
        else if (form == background)                                         \
            OK(icall(__VA_ARGS__, inter, &request));                         \
        else                                                                 \
            OK(init(__VA_ARGS__, inter, MPI_INFO_NULL, &request));           \
    } while (0)

static void barrier(void)
{
    if (form == blocking)
        OK(MPI_Barrier(inter));
    else if (form == background)
        OK(MPI_Ibarrier(inter, &request));
    else
        OK(MPI_Barrier_init(inter, MPI_INFO_NULL, &request));
    complete(NULL);
}

/* The root argument of this process if world rank `root` is the root. */
static int root_argument(int root)
{
    if (root == world_rank)
        return MPI_ROOT;
    int same = root >= own_start && root < own_start + size;
    return same ? MPI_PROC_NULL : root - other_start;
}

static void rooted(int root, int count)
{
    static int sends[room], receives[room];
    int counts[64], starts[64];
    int argument = root_argument(root), at_root = argument == MPI_ROOT, beside = argument == MPI_PROC_NULL;
    /* What is not significant is nonsense. */
    MPI_Datatype type = beside ? MPI_DATATYPE_NULL : MPI_INT;
    MPI_Datatype send_type = at_root || beside ? MPI_DATATYPE_NULL : MPI_INT;
    MPI_Datatype recv_type = at_root ? MPI_INT : MPI_DATATYPE_NULL;
    MPI_Op op = beside ? MPI_OP_NULL : MPI_SUM;
    int send_count = at_root || beside ? -5 : count, recv_count = at_root ? count : -5;

    memset(receives, 0xff, sizeof receives);
    for (int i = 0; i < count; i++)
        receives[i] = at_root ? value(root, 0, i) : -1;
    int *buffer = beside ? NULL : receives;
    DO(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, buffer, beside ? -5 : count, type, argument);
    complete(NULL);
    for (int i = 0; i < count; i++)
        CHECK(receives[i] == (beside ? -1 : value(root, 0, i)));

    memset(receives, 0xff, sizeof receives);
    for (int i = 0; i < count; i++)
        sends[i] = value(world_rank, 0, i);
    DO(MPI_Gather, MPI_Igather, MPI_Gather_init, sends, send_count, send_type, receives, recv_count, recv_type,
       argument);
    complete(receives);
    for (int from = 0; from < remote; from++)
        for (int i = 0; i < count; i++)
            CHECK(receives[from * count + i] == (at_root ? value(other_start + from, 0, i) : -1));

    memset(receives, 0xff, sizeof receives);
    int there = at_root ? remote : size;
    for (int i = 0; i < there; i++)
        counts[i] = (count + i) % 5, starts[i] = 6 * (there - 1 - i);
    int own_count = at_root || beside ? -5 : counts[rank];
    for (int i = 0; i < 6; i++)
        sends[i] = value(world_rank, 1, i);
    int *no_counts = at_root ? counts : NULL, *no_starts = at_root ? starts : NULL;
    DO(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init, sends, own_count, send_type, receives, no_counts, no_starts,
       recv_type, argument);
    complete(receives);
    for (int from = 0; at_root && from < remote; from++)
        for (int i = 0; i < 6; i++)
            CHECK(receives[starts[from] + i] == (i < counts[from] ? value(other_start + from, 1, i) : -1));

    memset(receives, 0xff, sizeof receives);
    for (int to = 0; to < remote; to++)
        for (int i = 0; i < count; i++)
            sends[to * count + i] = value(world_rank, to, i);
    /* Here the root sends and the others receive. */
    DO(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, sends, recv_count, recv_type, receives, send_count, send_type,
       argument);
    complete(receives);
    for (int i = 0; i < count; i++)
        CHECK(receives[i] == (at_root || beside ? -1 : value(root, rank, i)));

    memset(receives, 0xff, sizeof receives);
    for (int to = 0; at_root && to < remote; to++)
        for (int i = 0; i < counts[to]; i++)
            sends[starts[to] + i] = value(world_rank, to, i);
    DO(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init, sends, no_counts, no_starts, recv_type, receives, own_count,
       send_type, argument);
    complete(receives);
    for (int i = 0; i < 6; i++)
        CHECK(receives[i] == (i < own_count ? value(root, rank, i) : -1));

    memset(receives, 0xff, sizeof receives);
    for (int i = 0; i < count; i++)
        sends[i] = world_rank + i;
    DO(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, at_root ? NULL : sends, at_root ? receives : NULL, beside ? -5 : count,
       type, op, argument);
    complete(receives);
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int from = 0; from < remote; from++)
            sum += other_start + from + i;
        CHECK(receives[i] == (at_root ? sum : -1));
    }
}

static void everybody(int count)
{
    static int sends[room], receives[room];
    int counts[64], starts[64], send_counts[64], send_starts[64];
    MPI_Datatype types[64];

    /* Each group may send as much as it likes. */
    int own = count + in_low, theirs = count + !in_low;
    memset(receives, 0xff, sizeof receives);
    for (int i = 0; i < own; i++)
        sends[i] = value(world_rank, 0, i);
    DO(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, sends, own, MPI_INT, receives, theirs, MPI_INT);
    complete(receives);
    for (int from = 0; from < remote; from++)
        for (int i = 0; i < theirs; i++)
            CHECK(receives[from * theirs + i] == value(other_start + from, 0, i));

    memset(receives, 0xff, sizeof receives);
    for (int from = 0; from < remote; from++)
        counts[from] = 0, starts[from] = 5 * (remote - 1 - from);
    DO(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, sends, 0, MPI_INT, receives, counts, starts, MPI_INT);
    complete(receives);
    CHECK(untouched(receives, sizeof receives, 0xff));
    for (int from = 0; from < remote; from++)
        counts[from] = (other_start + from + count) % 4;
    for (int i = 0; i < 4; i++)
        sends[i] = value(world_rank, 0, i);
    DO(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, sends, (world_rank + count) % 4, MPI_INT, receives, counts,
       starts, MPI_INT);
    complete(receives);
    for (int from = 0; from < remote; from++)
        for (int i = 0; i < 5; i++)
            CHECK(receives[starts[from] + i] == (i < counts[from] ? value(other_start + from, 0, i) : -1));

    memset(receives, 0xff, sizeof receives);
    for (int to = 0; to < remote; to++)
        for (int i = 0; i < count; i++)
            sends[to * count + i] = value(world_rank, to, i);
    DO(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, sends, count, MPI_INT, receives, count, MPI_INT);
    complete(receives);
    for (int from = 0; from < remote; from++)
        for (int i = 0; i < count; i++)
            CHECK(receives[from * count + i] == value(other_start + from, rank, i));

    for (int w = 0; w < 2; w++) {
        int unit = w ? (int)sizeof(int) : 1;
        memset(receives, 0xff, sizeof receives);
        for (int i = 0; i < remote; i++) {
            types[i] = MPI_INT;
            send_counts[i] = (world_rank + other_start + i + count) % 4, send_starts[i] = 4 * i;
            counts[i] = send_counts[i], starts[i] = 4 * (remote - 1 - i);
            for (int k = 0; k < send_counts[i]; k++)
                sends[send_starts[i] + k] = value(world_rank, i, k);
        }
        for (int i = 0; i < remote; i++)
            send_starts[i] *= unit, starts[i] *= unit;
        if (w)
            DO(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init, sends, send_counts, send_starts, types, receives,
               counts, starts, types);
        else
            DO(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, sends, send_counts, send_starts, MPI_INT, receives,
               counts, starts, MPI_INT);
        complete(receives);
        for (int from = 0; from < remote; from++)
            for (int i = 0; i < 4; i++) {
                int wanted = i < counts[from] ? value(other_start + from, rank, i) : -1;
                CHECK(receives[starts[from] / unit + i] == wanted);
            }
    }
}

/* x then y: keep the first digit of one and the last of the other; associative, not commutative. */
static void first_and_last(void *in, void *inout, int *length, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *length; i++) {
        int left = ((int *)in)[i], right = ((int *)inout)[i];
        ((int *)inout)[i] = left / 1000 * 1000 + right % 1000;
    }
}

static void reductions(int count, MPI_Op ordered)
{
    static int sends[room], receives[room];
    int first = other_start, last = other_start + remote - 1, counts[64];

    memset(receives, 0xff, sizeof receives);
    for (int i = 0; i < count; i++)
        sends[i] = 1000 * (world_rank + 1) + world_rank + i;
    DO(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, sends, receives, count, MPI_INT, ordered);
    complete(receives);
    for (int i = 0; i < count; i++)
        CHECK(receives[i] == 1000 * (first + 1) + last + i);

    /* Blocks of one size in each group, of the same sum. */
    int block = count * remote, total = count * remote * size;
    memset(receives, 0xff, sizeof receives);
    for (int i = 0; i < total + count + 1; i++)
        sends[i] = 1000 * (world_rank + 1) + world_rank + i % 7;
    DO(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, sends, receives, block,
       MPI_INT, ordered);
    complete(receives);
    for (int i = 0; i < block; i++)
        CHECK(receives[i] == 1000 * (first + 1) + last + (rank * block + i) % 7);
    CHECK(receives[block] == -1);

    /* All for the last of the group but one element. */
    memset(receives, 0xff, sizeof receives);
    for (int i = 0; i < size; i++)
        counts[i] = 0;
    counts[size - 1] = count, counts[0] += 1;
    int before = rank == 0 ? 0 : 1;
    DO(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init, sends, receives, counts, MPI_INT, MPI_SUM);
    complete(receives);
    for (int i = 0; i < counts[rank]; i++) {
        int sum = 0;
        for (int from = first; from <= last; from++)
            sum += 1000 * (from + 1) + from + (before + i) % 7;
        CHECK(receives[i] == sum);
    }
    CHECK(receives[counts[rank]] == -1);
}

static void mistakes(void)
{
    int here[64] = {0}, got[64];
    int bad = remote;
    OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Bcast(here, 1, MPI_INT, bad, inter)) == MPI_ERR_ROOT);
    CHECK(class_of(MPI_Scan(here, got, 1, MPI_INT, MPI_SUM, inter)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Exscan(here, got, 1, MPI_INT, MPI_SUM, inter)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Allreduce(MPI_IN_PLACE, got, 1, MPI_INT, MPI_SUM, inter)) != MPI_SUCCESS);
    CHECK(class_of(MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, got, 1, MPI_INT, inter)) != MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI_Op ordered;
    OK(MPI_Op_create(first_and_last, 0, &ordered));
    for (int low = 1; low < world_size; low++) {
        MPI_Comm local;
        in_low = world_rank < low;
        own_start = in_low ? 0 : low, other_start = in_low ? low : 0;
        OK(MPI_Comm_split(MPI_COMM_WORLD, in_low, world_rank, &local));
        OK(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, other_start, 1, &inter));
        OK(MPI_Comm_free(&local));
        OK(MPI_Comm_rank(inter, &rank));
        OK(MPI_Comm_size(inter, &size));
        OK(MPI_Comm_remote_size(inter, &remote));
        for (form = blocking; form < forms; form++) {
            barrier();
            for (int count = 0; count < 9; count += 1 + 2 * count) {
                for (int root = 0; root < world_size; root++)
                    rooted(root, count);
                everybody(count);
                reductions(count, ordered);
            }
        }
        /* Several at once, completed in reverse. */
        MPI_Request requests[5];
        int sums[5], ones[5];
        for (int i = 0; i < 5; i++) {
            ones[i] = i;
            OK(MPI_Iallreduce(&ones[i], &sums[i], 1, MPI_INT, MPI_SUM, inter, &requests[i]));
        }
        for (int i = 4; i >= 0; i--) {
            OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
            CHECK(sums[i] == i * remote);
        }
        /* Long ones take the ways of long messages. */
        size_t length = 3 << 20;
        unsigned char *bytes = allocate(length);
        int root = root_argument(world_size - 1);
        memset(bytes, 0, length);
        if (root == MPI_ROOT)
            fill(bytes, length, 9);
        OK(MPI_Bcast(bytes, (int)length, MPI_BYTE, root, inter));
        CHECK(root == MPI_PROC_NULL ? untouched(bytes, length, 0) : verify(bytes, length, 9));
        free(bytes);
        mistakes();
        OK(MPI_Comm_free(&inter));
    }
    OK(MPI_Op_free(&ordered));
    return finish();
}
