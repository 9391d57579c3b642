/* A message longer than its receive buffer is an error of the receive, and of nothing else. */
#include "check.h"

enum { room = 100, sizes_count = 4 };
static const int sizes[sizes_count] = {101, 5000, 100000, 2000000};

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    char *large = allocate(2000000), small[room + 64];
    for (int s = 0; s < sizes_count && world_size > 1 && world_rank < 2; s++) {
        MPI_Status status, statuses[2];
        MPI_Request requests[2];
        int code;
        if (world_rank == 0) {
            fill(large, (size_t)sizes[s], 9);
            for (int i = 0; i < 3; i++) {
                OK(MPI_Send(large, sizes[s], MPI_CHAR, 1, 4, MPI_COMM_WORLD));
                OK(MPI_Send(large, room, MPI_CHAR, 1, 4, MPI_COMM_WORLD));
            }
            continue;
        }
        memset(small, 0x5a, sizeof small);
        code = MPI_Recv(small, room, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &status);
        CHECK(class_of(code) == MPI_ERR_TRUNCATE);
        CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 4);
        CHECK(untouched(small + room, 64, 0x5a));
        OK(MPI_Recv(small, room, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &status));
        CHECK(verify(small, room, 9));

        OK(MPI_Irecv(small, room, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &requests[0]));
        code = MPI_Wait(&requests[0], &status);
        CHECK(class_of(code) == MPI_ERR_TRUNCATE);
        CHECK(requests[0] == MPI_REQUEST_NULL);
        OK(MPI_Recv(small, room, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &status));
        CHECK(verify(small, room, 9));

        OK(MPI_Irecv(small, room, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Irecv(large, room, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &requests[1]));
        code = MPI_Waitall(2, requests, statuses);
        CHECK(code == MPI_ERR_IN_STATUS);
        CHECK(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
        CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS || statuses[1].MPI_ERROR == MPI_ERR_PENDING);
        if (statuses[1].MPI_ERROR == MPI_ERR_PENDING)
            OK(MPI_Wait(&requests[1], &status));
        CHECK(verify(large, room, 9));
        CHECK(untouched(small + room, 64, 0x5a));
    }
    free(large);
    return finish();
}
