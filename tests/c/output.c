/* Much output from every rank: numbered lines on both streams, whole and complete.
 *
 * With "abort" as argument the last rank ends the job after its lines: nothing printed may be lost. */
#include "check.h"

enum { lines = 3000 };
static const char dots[] = "............................................................";

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int i = 0; i < lines; i++) {
        printf("out %d %d %.*s|\n", world_rank, i, i % 60, dots);
        if (i % 10 == 0)
            fprintf(stderr, "err %d %d|\n", world_rank, i);
    }
    printf("last words of %d without a newline", world_rank);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && strcmp(argv[1], "abort") == 0 && world_rank == world_size - 1)
        MPI_Abort(MPI_COMM_WORLD, 9);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
