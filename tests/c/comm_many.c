/* Thousands of communicators, one after another and many at a time; freed with messages in flight. */
#include "check.h"

enum { in_turn = 1500, at_once = 100 };

int main(int argc, char **argv)
{
    MPI_Comm comms[at_once];
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    for (int i = 0; i < in_turn; i++) {
        MPI_Comm comm;
        int got = -1;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        if (i % 100 == 0) {
            OK(MPI_Sendrecv(&i, 1, MPI_INT, right, 1, &got, 1, MPI_INT, left, 1, comm, MPI_STATUS_IGNORE));
            CHECK(got == i);
        }
        OK(MPI_Comm_free(&comm));
    }
    for (int i = 0; i < at_once; i++)
        OK(MPI_Comm_dup(i ? comms[i - 1] : MPI_COMM_WORLD, &comms[i]));
    /* A message each, received in reverse order of sending: nothing crosses over. */
    MPI_Request requests[at_once];
    int values[at_once];
    for (int i = 0; i < at_once; i++) {
        values[i] = world_rank * 1000 + i;
        OK(MPI_Isend(&values[i], 1, MPI_INT, right, 1, comms[i], &requests[i]));
    }
    for (int i = at_once - 1; i >= 0; i--) {
        int got = -1;
        OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], MPI_STATUS_IGNORE));
        CHECK(got == left * 1000 + i);
    }
    OK(MPI_Waitall(at_once, requests, MPI_STATUSES_IGNORE));
    /* Freed while receives are pending on it: they complete all the same. */
    int got[at_once];
    for (int i = 0; i < at_once; i++) {
        MPI_Request send;
        OK(MPI_Irecv(&got[i], 1, MPI_INT, left, 2, comms[i], &requests[i]));
        OK(MPI_Isend(&values[i], 1, MPI_INT, right, 2, comms[i], &send));
        OK(MPI_Request_free(&send));
        OK(MPI_Comm_free(&comms[i]));
        CHECK(comms[i] == MPI_COMM_NULL);
    }
    OK(MPI_Waitall(at_once, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < at_once; i++)
        CHECK(got[i] == left * 1000 + i);
    MPI_Barrier(MPI_COMM_WORLD);
    return finish();
}
