/* Persistent requests: started many times, inactive in between, freed in the end. */
#include "check.h"

enum { rounds = 50, kinds = 4, longest = 100000 };

int main(int argc, char **argv)
{
    static const int sizes[kinds] = {8, 900, 30000, longest};
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    char *out[kinds], *in[kinds];
    MPI_Request requests[2 * kinds];
    MPI_Status statuses[2 * kinds];
    int room = 4 * (longest + MPI_BSEND_OVERHEAD), size, flag = 0;
    char *space = allocate((size_t)room);
    OK(MPI_Buffer_attach(space, room));
    for (int k = 0; k < kinds; k++) {
        out[k] = allocate(longest);
        in[k] = allocate(longest);
        OK(MPI_Recv_init(in[k], longest, MPI_CHAR, left, k, MPI_COMM_WORLD, &requests[k]));
    }
    OK(MPI_Send_init(out[0], sizes[0], MPI_CHAR, right, 0, MPI_COMM_WORLD, &requests[kinds + 0]));
    OK(MPI_Ssend_init(out[1], sizes[1], MPI_CHAR, right, 1, MPI_COMM_WORLD, &requests[kinds + 1]));
    OK(MPI_Bsend_init(out[2], sizes[2], MPI_CHAR, right, 2, MPI_COMM_WORLD, &requests[kinds + 2]));
    OK(MPI_Send_init(out[3], sizes[3], MPI_CHAR, right, 3, MPI_COMM_WORLD, &requests[kinds + 3]));

    /* Inactive requests are complete, with an empty status, and stay. */
    OK(MPI_Test(&requests[0], &flag, &statuses[0]));
    CHECK(flag && requests[0] != MPI_REQUEST_NULL && statuses[0].MPI_SOURCE == MPI_ANY_SOURCE);
    CHECK(statuses[0].MPI_TAG == MPI_ANY_TAG);

    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < kinds; k++) {
            fill(out[k], (size_t)sizes[k], (uint64_t)(round * 1000 + world_rank * 10 + k));
            memset(in[k], 0, (size_t)sizes[k]);
        }
        if (round % 2) {
            OK(MPI_Startall(2 * kinds, requests));
            OK(MPI_Waitall(2 * kinds, requests, statuses));
        } else {
            for (int k = 0; k < 2 * kinds; k++)
                OK(MPI_Start(&requests[k]));
            for (int k = 0; k < 2 * kinds; k++)
                OK(MPI_Wait(&requests[k], &statuses[k]));
        }
        for (int k = 0; k < kinds; k++) {
            int count = -1;
            OK(MPI_Get_count(&statuses[k], MPI_CHAR, &count));
            CHECK(count == sizes[k] && statuses[k].MPI_SOURCE == left && statuses[k].MPI_TAG == k);
            CHECK(verify(in[k], (size_t)sizes[k], (uint64_t)(round * 1000 + left * 10 + k)));
            CHECK(requests[k] != MPI_REQUEST_NULL);
        }
    }
    /* A ready send: its receive is started before the sender hears so. */
    {
        int value = world_rank, got = -1;
        MPI_Request pair[2];
        OK(MPI_Rsend_init(&value, 1, MPI_INT, right, 20, MPI_COMM_WORLD, &pair[0]));
        OK(MPI_Recv_init(&got, 1, MPI_INT, left, 20, MPI_COMM_WORLD, &pair[1]));
        OK(MPI_Start(&pair[1]));
        OK(MPI_Sendrecv(NULL, 0, MPI_INT, left, 21, NULL, 0, MPI_INT, right, 21, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Start(&pair[0]));
        OK(MPI_Waitall(2, pair, MPI_STATUSES_IGNORE));
        CHECK(got == left);
        OK(MPI_Request_free(&pair[0]));
        OK(MPI_Request_free(&pair[1]));
        CHECK(pair[0] == MPI_REQUEST_NULL);
        /* With nobody as the other side. */
        OK(MPI_Recv_init(&got, 1, MPI_INT, MPI_PROC_NULL, 20, MPI_COMM_WORLD, &pair[0]));
        OK(MPI_Start(&pair[0]));
        OK(MPI_Wait(&pair[0], &statuses[0]));
        CHECK(statuses[0].MPI_SOURCE == MPI_PROC_NULL);
        OK(MPI_Request_free(&pair[0]));
    }
    for (int k = 0; k < 2 * kinds; k++)
        OK(MPI_Request_free(&requests[k]));
    OK(MPI_Buffer_detach(&space, &size));
    free(space);
    for (int k = 0; k < kinds; k++) {
        free(out[k]);
        free(in[k]);
    }
    return finish();
}
