/* Cancelling receives, and freeing requests that are still active. */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Request requests[4], persistent;
    MPI_Status status;
    int values[4] = {-1, -1, -1, -1}, flag = 0, value = 0;
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;

    /* A receive nobody answers is cancelled and completes as such. */
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Cancel(&requests[0]));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag && requests[0] == MPI_REQUEST_NULL);

    /* Cancelling one of several leaves the others in their order. */
    for (int i = 0; i < 4; i++)
        OK(MPI_Irecv(&values[i], 1, MPI_INT, left, 8, MPI_COMM_WORLD, &requests[i]));
    OK(MPI_Cancel(&requests[1]));
    OK(MPI_Wait(&requests[1], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        value = 10 + i;
        OK(MPI_Send(&value, 1, MPI_INT, right, 8, MPI_COMM_WORLD));
    }
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag);
    OK(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
    OK(MPI_Wait(&requests[3], MPI_STATUS_IGNORE));
    CHECK(values[0] == 10 && values[1] == -1 && values[2] == 11 && values[3] == 12);

    /* Once matched, a cancel comes too late: the message arrives. */
    OK(MPI_Irecv(&value, 1, MPI_INT, world_rank, 9, MPI_COMM_WORLD, &requests[0]));
    value = 0;
    values[0] = 77;
    OK(MPI_Send(&values[0], 1, MPI_INT, world_rank, 9, MPI_COMM_WORLD));
    OK(MPI_Cancel(&requests[0]));
    OK(MPI_Wait(&requests[0], &status));
    OK(MPI_Test_cancelled(&status, &flag));
    if (flag) /* permitted only if the message is still to be had */
        OK(MPI_Recv(&value, 1, MPI_INT, world_rank, 9, MPI_COMM_WORLD, &status));
    CHECK(value == 77);

    /* A persistent receive can be cancelled in one round and used in the next. */
    OK(MPI_Recv_init(&value, 1, MPI_INT, left, 10, MPI_COMM_WORLD, &persistent));
    OK(MPI_Start(&persistent));
    OK(MPI_Cancel(&persistent));
    OK(MPI_Wait(&persistent, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag && persistent != MPI_REQUEST_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Start(&persistent));
    OK(MPI_Send(&world_rank, 1, MPI_INT, right, 10, MPI_COMM_WORLD));
    OK(MPI_Wait(&persistent, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag && value == left);
    OK(MPI_Request_free(&persistent));

    /* A send nobody receives: its cancellation succeeds, or it has left already and can be received. */
    for (int large_one = 0; large_one < 2; large_one++) {
        static char bytes[400000], arrived[400000];
        int count = large_one ? (int)sizeof bytes : 8;
        OK(MPI_Issend(bytes, count, MPI_CHAR, right, 20, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(bytes, count, MPI_CHAR, right, 21, MPI_COMM_WORLD, &requests[1]));
        bytes[0] = 5;
        OK(MPI_Issend(bytes, 1, MPI_CHAR, right, 20, MPI_COMM_WORLD, &requests[2]));
        for (int i = 0; i < 2; i++) {
            OK(MPI_Cancel(&requests[i]));
            OK(MPI_Wait(&requests[i], &status));
            OK(MPI_Test_cancelled(&status, &flag));
            CHECK(flag || i == 1); /* a synchronous send cannot complete without its receive */
            int theirs = -1;
            OK(MPI_Sendrecv(&flag, 1, MPI_INT, right, 22, &theirs, 1, MPI_INT, left, 22, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
            if (!theirs)
                OK(MPI_Recv(arrived, count, MPI_CHAR, left, 20 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        /* The one behind it is still there. */
        OK(MPI_Recv(arrived, count, MPI_CHAR, left, 20, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_CHAR, &value));
        CHECK(value == 1 && arrived[0] == 5);
        OK(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
        OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }

    /* A freed active send still arrives. */
    char *large = allocate(300000), *got = allocate(300000);
    fill(large, 300000, (uint64_t)world_rank);
    OK(MPI_Isend(large, 300000, MPI_CHAR, right, 11, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Request_free(&requests[0]));
    CHECK(requests[0] == MPI_REQUEST_NULL);
    OK(MPI_Recv(got, 300000, MPI_CHAR, left, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(verify(got, 300000, (uint64_t)left));
    MPI_Barrier(MPI_COMM_WORLD); /* everybody has received: the buffers may go */
    free(large);
    free(got);
    return finish();
}
