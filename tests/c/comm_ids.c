/* Run with few numbers for communicators (FERROVIA_CONTEXT_IDS_MAX): all processes are told together when none is
 * left, and numbers that were given back serve again, once all have given them back. */
#include "check.h"

enum { most = 4000 };

static void exchange(MPI_Comm comm)
{
    int rank, size, got = -1;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT, (rank + size - 1) % size, 1, comm,
                    MPI_STATUS_IGNORE));
    CHECK(got == (rank + size - 1) % size);
}

/* Between two groups: everybody's number reaches the other group. */
static void exchange_between(MPI_Comm inter, int own, int other)
{
    int sum = -1;
    OK(MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_MAX, inter));
    CHECK(sum == other);
}

int main(int argc, char **argv)
{
    static MPI_Comm comms[most];
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    int count = 0, code = MPI_SUCCESS, least = 0;
    while (count < most && (code = MPI_Comm_dup(MPI_COMM_WORLD, &comms[count])) == MPI_SUCCESS)
        count++;
    CHECK(count > 2 && count < most && class_of(code) == MPI_ERR_NO_MEM);
    OK(MPI_Allreduce(&count, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    CHECK(least == count);
    for (int i = 0; i < count; i += 2)
        exchange(comms[i]);
    for (int i = 0; i < count; i += 2)
        OK(MPI_Comm_free(&comms[i]));
    for (int i = 0; i < count; i += 2)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    for (int i = 0; i < count; i++)
        exchange(comms[i]);
    for (int i = 0; i < count; i++)
        OK(MPI_Comm_free(&comms[i]));

    /* Freed later here than there: what one still holds is not used again by another. */
    MPI_Comm late[8];
    for (int round = 0; round < 300; round++) {
        MPI_Comm comm;
        int slot = round % 4, keeps = (round + world_rank) % 3 == 0;
        if (round >= 4 && late[slot] != MPI_COMM_NULL)
            OK(MPI_Comm_free(&late[slot]));
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        exchange(comm);
        late[slot] = keeps ? comm : MPI_COMM_NULL;
        if (!keeps)
            OK(MPI_Comm_free(&comm));
    }
    for (int slot = 0; slot < 4; slot++)
        if (late[slot] != MPI_COMM_NULL)
            OK(MPI_Comm_free(&late[slot]));

    /* The same with two groups, in all ways of making communicators. */
    for (int round = 0; world_size > 1 && round < 100; round++) {
        int low = 1 + round % (world_size - 1), in_low = world_rank < low;
        MPI_Comm local, inter, copy, merged, part;
        OK(MPI_Comm_split(MPI_COMM_WORLD, in_low, 0, &local));
        exchange(local);
        OK(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, in_low ? low : 0, round, &inter));
        exchange_between(inter, in_low, !in_low);
        OK(MPI_Comm_dup(inter, &copy));
        if (world_rank % 2 == round % 2)
            OK(MPI_Comm_free(&local));
        OK(MPI_Intercomm_merge(copy, in_low, &merged));
        exchange(merged);
        OK(MPI_Comm_split(copy, 0, -world_rank, &part));
        exchange_between(part, in_low + 10, !in_low + 10);
        OK(MPI_Comm_free(&part));
        OK(MPI_Comm_free(&copy));
        exchange_between(inter, in_low + 20, !in_low + 20);
        OK(MPI_Comm_free(&inter));
        OK(MPI_Comm_free(&merged));
        if (local != MPI_COMM_NULL)
            OK(MPI_Comm_free(&local));
    }
    return finish();
}
