/* Only memory limits communicators: very many made and freed in turn leave nothing behind, and very many live at
 * the same time. */
#include "check.h"

enum { in_turn = 1000000, at_once = 200000 };

/* Memory of this process in use, in KiB. */
static long resident(void)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib;
}

static void exchange(MPI_Comm comm, int value)
{
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size, got = -1;
    OK(MPI_Sendrecv(&value, 1, MPI_INT, right, 1, &got, 1, MPI_INT, left, 1, comm, MPI_STATUS_IGNORE));
    CHECK(got == value);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long before = 0;
    for (int i = 0; i < in_turn; i++) {
        MPI_Comm comm;
        if (MPI_Comm_dup(MPI_COMM_WORLD, &comm) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 2);
        if (i % 50000 == 0)
            exchange(comm, i);
        if (i == 100000)
            before = resident();
        OK(MPI_Comm_free(&comm));
    }
    long grown = resident() - before;
    if (grown > 4096)
        fprintf(stderr, "rank %d: grew by %ld KiB\n", world_rank, grown);
    CHECK(grown <= 4096);

    MPI_Comm *comms = allocate(sizeof(MPI_Comm) * at_once);
    for (int i = 0; i < at_once; i++)
        if (MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < at_once; i += 9973)
        exchange(comms[i], i);
    exchange(comms[at_once - 1], at_once);
    /* Freed from both ends and used again. */
    for (int i = 0; i < at_once; i++)
        OK(MPI_Comm_free(&comms[i % 2 ? at_once - 1 - i / 2 : i / 2]));
    for (int i = 0; i < 1000; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    exchange(comms[999], 5);
    for (int i = 0; i < 1000; i++)
        OK(MPI_Comm_free(&comms[i]));
    free(comms);
    return finish();
}
