/* Asking about several requests without freeing them: any, all, some; null, inactive and finished ones among them. */
#include "check.h"

enum { n = 4 };

static MPI_Request requests[n];
static int data[n], indices[n], count, flag, index_of;
static MPI_Status statuses[n];

static void post(void)
{
    for (int i = 0; i < n; i++) {
        data[i] = -1;
        OK(MPI_Irecv(&data[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]));
    }
}

static void serve(int i)
{
    OK(MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_SELF));
}

static void any(void)
{
    post();
    OK(MPI_Request_get_status_any(n, requests, &index_of, &flag, &statuses[0]));
    CHECK(!flag && index_of == MPI_UNDEFINED);
    serve(2);
    for (int again = 0; again < 2; again++) {
        flag = 0;
        while (!flag)
            OK(MPI_Request_get_status_any(n, requests, &index_of, &flag, &statuses[0]));
        CHECK(index_of == 2 && statuses[0].MPI_TAG == 2 && requests[2] != MPI_REQUEST_NULL);
    }
    OK(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
    CHECK(requests[2] == MPI_REQUEST_NULL && data[2] == 2);
    OK(MPI_Request_get_status_any(n, requests, &index_of, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
}

static void some(void)
{
    OK(MPI_Request_get_status_some(n, requests, &count, indices, statuses));
    CHECK(count == 0);
    serve(3);
    serve(0);
    for (count = 0; count != 2;)
        OK(MPI_Request_get_status_some(n, requests, &count, indices, statuses));
    CHECK((indices[0] == 0 && indices[1] == 3) || (indices[0] == 3 && indices[1] == 0));
    for (int i = 0; i < 2; i++)
        CHECK(statuses[i].MPI_TAG == indices[i] && requests[indices[i]] != MPI_REQUEST_NULL);
    OK(MPI_Request_get_status_some(n, requests, &count, indices, MPI_STATUSES_IGNORE));
    CHECK(count == 2);
}

static void all(void)
{
    OK(MPI_Request_get_status_all(n, requests, &flag, statuses));
    CHECK(!flag);
    serve(1);
    for (flag = 0; !flag;)
        OK(MPI_Request_get_status_all(n, requests, &flag, statuses));
    for (int i = 0; i < n; i++) {
        int length = -1;
        OK(MPI_Get_count(&statuses[i], MPI_INT, &length));
        if (i == 2) /* null: an empty status */
            CHECK(statuses[i].MPI_SOURCE == MPI_ANY_SOURCE && statuses[i].MPI_TAG == MPI_ANY_TAG && length == 0);
        else
            CHECK(statuses[i].MPI_SOURCE == 0 && statuses[i].MPI_TAG == i && length == 1);
    }
    OK(MPI_Request_get_status_all(n, requests, &flag, MPI_STATUSES_IGNORE));
    CHECK(flag);
    OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < n; i++)
        CHECK(data[i] == i);
}

/* Nothing active among them: that is as good as finished. */
static void nothing_active(void)
{
    MPI_Request inactive[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    OK(MPI_Send_init(data, 1, MPI_INT, 0, 9, MPI_COMM_SELF, &inactive[1]));
    OK(MPI_Request_get_status_any(2, inactive, &index_of, &flag, &statuses[0]));
    CHECK(flag && index_of == MPI_UNDEFINED && statuses[0].MPI_SOURCE == MPI_ANY_SOURCE);
    OK(MPI_Request_get_status_some(2, inactive, &count, indices, statuses));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Request_get_status_all(2, inactive, &flag, statuses));
    CHECK(flag && statuses[1].MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Request_get_status_any(0, NULL, &index_of, &flag, MPI_STATUS_IGNORE));
    CHECK(flag && index_of == MPI_UNDEFINED);
    OK(MPI_Request_get_status_some(0, NULL, &count, NULL, MPI_STATUSES_IGNORE));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Request_get_status_all(0, NULL, &flag, MPI_STATUSES_IGNORE));
    CHECK(flag);
    OK(MPI_Request_free(&inactive[1]));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    any();
    some();
    all();
    nothing_active();
    return finish();
}
