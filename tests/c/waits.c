/* Every wait and test: any, some, all; null and inactive requests; request status without completion. */
#include "check.h"

enum { count = 12 };

static MPI_Request requests[count];
static MPI_Status statuses[count];
static int values[count];

/* Posts receives 0..count from oneself; every third slot stays null. */
static void post(void)
{
    for (int i = 0; i < count; i++) {
        values[i] = -1;
        requests[i] = MPI_REQUEST_NULL;
        if (i % 3 != 2)
            OK(MPI_Irecv(&values[i], 1, MPI_INT, world_rank, i, MPI_COMM_WORLD, &requests[i]));
    }
}

static void serve(int i)
{
    int value = 100 + i;
    OK(MPI_Send(&value, 1, MPI_INT, world_rank, i, MPI_COMM_WORLD));
}

static int is_empty(const MPI_Status *status)
{
    int elements = -1, cancelled = -1;
    MPI_Get_count(status, MPI_BYTE, &elements);
    MPI_Test_cancelled(status, &cancelled);
    return status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && elements == 0 && !cancelled;
}

static void any(void)
{
    int index = -7, flag = -1;
    MPI_Status status;
    post();
    OK(MPI_Testany(count, requests, &index, &flag, &status));
    CHECK(!flag && index == MPI_UNDEFINED);
    for (int n = 0; n < count; n++) {
        int i = (n * 5) % count;
        if (i % 3 == 2)
            continue;
        serve(i);
        if (n % 2) {
            OK(MPI_Waitany(count, requests, &index, &status));
        } else {
            for (flag = 0; !flag;)
                OK(MPI_Testany(count, requests, &index, &flag, &status));
        }
        CHECK(index == i && values[i] == 100 + i && status.MPI_TAG == i && requests[i] == MPI_REQUEST_NULL);
    }
    OK(MPI_Waitany(count, requests, &index, &status));
    CHECK(index == MPI_UNDEFINED && is_empty(&status));
    OK(MPI_Testany(count, requests, &index, &flag, &status));
    CHECK(flag && index == MPI_UNDEFINED && is_empty(&status));
    OK(MPI_Waitany(0, NULL, &index, &status));
    CHECK(index == MPI_UNDEFINED);
}

static void some(void)
{
    int indices[count], done = -7, left = count - count / 3, next = 0;
    post();
    OK(MPI_Testsome(count, requests, &done, indices, statuses));
    CHECK(done == 0);
    while (left > 0) {
        for (int served = 0; next < count && served < 2; next++)
            if (next % 3 != 2) {
                serve(next);
                served++;
            }
        if (left % 4)
            OK(MPI_Waitsome(count, requests, &done, indices, statuses));
        else
            do
                OK(MPI_Testsome(count, requests, &done, indices, statuses));
            while (done == 0);
        CHECK(done >= 1 && done <= left);
        for (int k = 0; k < done; k++) {
            int i = indices[k];
            CHECK(i >= 0 && i < count && statuses[k].MPI_TAG == i && values[i] == 100 + i);
            CHECK(requests[i] == MPI_REQUEST_NULL);
        }
        left -= done;
    }
    OK(MPI_Waitsome(count, requests, &done, indices, statuses));
    CHECK(done == MPI_UNDEFINED);
    OK(MPI_Testsome(count, requests, &done, indices, MPI_STATUSES_IGNORE));
    CHECK(done == MPI_UNDEFINED);
}

static void all(void)
{
    int flag = -1;
    post();
    for (int i = 0; i < count - 2; i++)
        if (i % 3 != 2)
            serve(i);
    OK(MPI_Testall(count, requests, &flag, statuses));
    CHECK(!flag);
    for (int i = 0; i < count; i++)
        CHECK((requests[i] == MPI_REQUEST_NULL) == (i % 3 == 2));
    serve(count - 2);
    for (flag = 0; !flag;)
        OK(MPI_Testall(count, requests, &flag, statuses));
    for (int i = 0; i < count; i++) {
        CHECK(requests[i] == MPI_REQUEST_NULL);
        CHECK(i % 3 == 2 ? is_empty(&statuses[i]) : statuses[i].MPI_TAG == i && values[i] == 100 + i);
    }
    OK(MPI_Waitall(count, requests, statuses));
    OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    OK(MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE));
    CHECK(flag);
}

static void one(void)
{
    int flag = -1, value = -1, number = -1;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    OK(MPI_Wait(&request, &status));
    CHECK(is_empty(&status));
    OK(MPI_Test(&request, &flag, &status));
    CHECK(flag && is_empty(&status));
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(flag && is_empty(&status));

    OK(MPI_Irecv(&value, 1, MPI_INT, world_rank, 3, MPI_COMM_WORLD, &request));
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(!flag);
    OK(MPI_Test(&request, &flag, &status));
    CHECK(!flag && request != MPI_REQUEST_NULL);
    serve(3);
    for (flag = 0; !flag;)
        OK(MPI_Request_get_status(request, &flag, &status));
    OK(MPI_Get_count(&status, MPI_INT, &number));
    CHECK(number == 1 && status.MPI_TAG == 3 && request != MPI_REQUEST_NULL && value == 103);
    OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
    CHECK(flag);
    OK(MPI_Wait(&request, &status));
    CHECK(request == MPI_REQUEST_NULL && status.MPI_TAG == 3);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    one();
    any();
    some();
    all();
    return finish();
}
