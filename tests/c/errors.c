/* Programs that must fail, and say why: the first argument names the mistake.
 *
 * Every way prints "before" from each rank first; a launcher must deliver that line whatever follows. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static int is(const char *argument, const char *name)
{
    return strcmp(argument, name) == 0;
}

/* Mistakes in arguments: the default handler ends the job. */
static void bad_argument(const char *what)
{
    int value = 0;
    MPI_Datatype type;
    if (is(what, "rank"))
        MPI_Send(&value, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
    if (is(what, "tag"))
        MPI_Send(&value, 1, MPI_INT, 0, -7, MPI_COMM_WORLD);
    if (is(what, "count"))
        MPI_Send(&value, -3, MPI_INT, 0, 0, MPI_COMM_WORLD);
    if (is(what, "root"))
        MPI_Bcast(&value, 1, MPI_INT, 77, MPI_COMM_WORLD);
    if (is(what, "null-type"))
        MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD);
    if (is(what, "null-comm"))
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL);
    if (is(what, "uncommitted")) {
        MPI_Type_contiguous(2, MPI_INT, &type);
        MPI_Send(&value, 1, type, 0, 0, MPI_COMM_WORLD);
    }
    if (is(what, "after-finalize")) {
        MPI_Finalize();
        MPI_Comm_rank(MPI_COMM_WORLD, &value);
    }
    if (is(what, "twice"))
        MPI_Init(NULL, NULL);
}

/* A message of 160 bytes into room for 40. */
static void truncated(void)
{
    int values[40] = {0};
    if (world_rank == 1)
        MPI_Send(values, 40, MPI_INT, 0, 5, MPI_COMM_WORLD);
    if (world_rank == 0)
        MPI_Recv(values, 10, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One rank ends in its own way while the others wait for it. */
static void one_dies(const char *how)
{
    if (world_rank == world_size - 1) {
        if (is(how, "abort"))
            MPI_Abort(MPI_COMM_WORLD, 7);
        if (is(how, "exit"))
            _exit(5);
        if (is(how, "signal")) {
            signal(SIGSEGV, SIG_DFL);
            raise(SIGSEGV);
        }
        if (is(how, "killed"))
            raise(SIGKILL);
        if (is(how, "growing")) {
            /* A hundred times what the channel takes at first: it grows while these go, and most of them wait. */
            static char data[2000];
            static MPI_Request sends[400];
            for (int i = 0; i < 400; i++)
                MPI_Isend(data, sizeof data, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &sends[i]);
            raise(SIGKILL);
        }
        if (is(how, "return"))
            exit(0); /* without MPI_Finalize: no success either */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Where only the root's data may stand in place, another's is refused before anything happens. */
static void in_place_beside_root(void)
{
    MPI_Comm comm;
    int data[2] = {0, 0}, counts[2] = {1, 1}, places[2] = {0, 1};
    MPI_Request request;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    if (world_rank == 1) {
#define REFUSED(call) CHECK(class_of(call) == MPI_ERR_BUFFER)
        REFUSED(MPI_Gather(MPI_IN_PLACE, 1, MPI_INT, data, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Gatherv(MPI_IN_PLACE, 1, MPI_INT, data, counts, places, MPI_INT, 0, comm));
        REFUSED(MPI_Scatter(data, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Scatterv(data, counts, places, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Reduce(MPI_IN_PLACE, data, 1, MPI_INT, MPI_SUM, 0, comm));
        REFUSED(MPI_Ireduce(MPI_IN_PLACE, data, 1, MPI_INT, MPI_SUM, 0, comm, &request));
        REFUSED(MPI_Reduce_init(MPI_IN_PLACE, data, 1, MPI_INT, MPI_SUM, 0, comm, MPI_INFO_NULL, &request));
    }
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (is(what, "before-init"))
        MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    start(&argc, &argv);
    printf("before %d\n", world_rank);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    bad_argument(what);
    if (is(what, "truncate"))
        truncated();
    if (is(what, "in-place")) {
        in_place_beside_root();
        return finish();
    }
    one_dies(what);
    return finish();
}
