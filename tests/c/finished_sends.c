/* Requests of sends that were over when their call returned: whatever a program may do with a request, it may do with
 * these, and however many there are, each counts for itself. */
#include "check.h"

enum { count = 40 };

static void send_all(MPI_Request *requests, int tag)
{
    /* They stay what they are: a send may look at them until it is over. */
    static int numbers[count];
    for (int i = 0; i < count; i++) {
        numbers[i] = i;
        OK(MPI_Isend(&numbers[i], 1, MPI_INT, 1, tag, MPI_COMM_WORLD, &requests[i]));
    }
}

static void sender(void)
{
    MPI_Request requests[count], one;
    MPI_Status statuses[count], status;
    int flag = 0, index = -1, indices[count], done = 0, cancelled = 1, number = 7;

    /* All at once: empty statuses, null handles. */
    send_all(requests, 1);
    OK(MPI_Waitall(count, requests, statuses));
    for (int i = 0; i < count; i++) {
        int bytes = -1;
        OK(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes));
        CHECK(requests[i] == MPI_REQUEST_NULL && bytes == 0);
        CHECK(statuses[i].MPI_SOURCE == MPI_ANY_SOURCE && statuses[i].MPI_TAG == MPI_ANY_TAG);
    }
    /* One by one, each exactly once. */
    send_all(requests, 2);
    for (int i = 0; i < count; i++) {
        OK(MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE));
        CHECK(index >= 0 && index < count && requests[index] == MPI_REQUEST_NULL);
    }
    OK(MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE));
    CHECK(index == MPI_UNDEFINED);
    send_all(requests, 3);
    while (done < count) {
        int outcount = 0;
        OK(MPI_Waitsome(count, requests, &outcount, indices, statuses));
        CHECK(outcount > 0);
        done += outcount;
    }
    CHECK(done == count);
    /* Asked about, cancelled in vain, copied into an integer and back, freed. */
    OK(MPI_Isend(&number, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, &one));
    while (!flag) OK(MPI_Request_get_status(one, &flag, &status));
    CHECK(one != MPI_REQUEST_NULL);
    CHECK(MPI_Request_fromint(MPI_Request_toint(one)) == one);
    OK(MPI_Cancel(&one));
    OK(MPI_Wait(&one, &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    if (cancelled) OK(MPI_Send(&number, 1, MPI_INT, 1, 4, MPI_COMM_WORLD));
    OK(MPI_Send(&number, 1, MPI_INT, 1, 5, MPI_COMM_WORLD));
    OK(MPI_Isend(&number, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, &one));
    OK(MPI_Request_free(&one));
    CHECK(one == MPI_REQUEST_NULL);
    /* Those after a free are as good as the ones before. */
    send_all(requests, 7);
    OK(MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE));
    if (!flag) OK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    /* To nobody. */
    OK(MPI_Isend(&number, 1, MPI_INT, MPI_PROC_NULL, 8, MPI_COMM_WORLD, &one));
    OK(MPI_Wait(&one, &status));
    CHECK(one == MPI_REQUEST_NULL);
}

static void receiver(void)
{
    int number = -1;
    for (int tag = 1; tag <= 3; tag++)
        for (int i = 0; i < count; i++) {
            OK(MPI_Recv(&number, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(number == i);
        }
    for (int tag = 4; tag <= 6; tag++) {
        OK(MPI_Recv(&number, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(number == 7);
    }
    for (int i = 0; i < count; i++) {
        OK(MPI_Recv(&number, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(number == i);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (world_rank == 0) sender();
    if (world_rank == 1) receiver();
    return finish();
}
