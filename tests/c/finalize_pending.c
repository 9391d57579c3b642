/* Messages sent before MPI_Finalize arrive, even if their receiver is late and their sender in a hurry. */
#include "check.h"
#include <time.h>

enum { many = 50 };

int main(int argc, char **argv)
{
    int values[many], got;
    start(&argc, &argv);
    if (world_rank == world_size - 1 && world_size > 1) {
        struct timespec pause = {0, 200 * 1000 * 1000};
        nanosleep(&pause, NULL);
        for (int rank = 0; rank + 1 < world_size; rank++)
            for (int i = 0; i < many; i++) {
                OK(MPI_Recv(&values[i], 1, MPI_INT, rank, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(values[i] == rank * 1000 + i);
            }
        if (!failures)
            printf("No Errors\n");
    } else {
        for (int i = 0; i < many; i++) {
            MPI_Request request;
            values[i] = world_rank * 1000 + i;
            OK(MPI_Isend(&values[i], 1, MPI_INT, world_size - 1, i, MPI_COMM_WORLD, &request));
            OK(MPI_Request_free(&request));
        }
        if (world_size == 1) {
            for (int i = 0; i < many; i++)
                OK(MPI_Recv(&got, 1, MPI_INT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            printf("No Errors\n");
        }
    }
    MPI_Finalize();
    return failures != 0;
}
