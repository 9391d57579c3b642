/* Generalized requests: completed by the program itself, waited for like any other. */
#include "check.h"

static int queries, frees, cancels;

static int on_query(void *extra, MPI_Status *status)
{
    queries++;
    status->MPI_SOURCE = 6;
    status->MPI_TAG = 7;
    MPI_Status_set_cancelled(status, 0);
    return MPI_Status_set_elements(status, MPI_INT, *(int *)extra);
}

static int on_free(void *extra)
{
    (void)extra;
    frees++;
    return MPI_SUCCESS;
}

static int on_cancel(void *extra, int complete)
{
    (void)extra;
    cancels += complete ? 100 : 1;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    MPI_Request requests[2];
    MPI_Status status;
    int elements = 11, flag = -1, count = -1, value = 1, got = 0, index = -1;
    start(&argc, &argv);
    OK(MPI_Grequest_start(on_query, on_free, on_cancel, &elements, &requests[0]));
    OK(MPI_Test(&requests[0], &flag, &status));
    CHECK(!flag);
    OK(MPI_Cancel(&requests[0]));
    CHECK(cancels == 1);
    OK(MPI_Irecv(&got, 1, MPI_INT, world_rank, 1, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Send(&value, 1, MPI_INT, world_rank, 1, MPI_COMM_WORLD));
    OK(MPI_Waitany(2, requests, &index, &status));
    CHECK(index == 1 && got == 1);
    OK(MPI_Grequest_complete(requests[0]));
    OK(MPI_Waitany(2, requests, &index, &status));
    CHECK(index == 0 && status.MPI_SOURCE == 6 && status.MPI_TAG == 7 && requests[0] == MPI_REQUEST_NULL);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 11 && queries >= 1 && frees == 1);
    return finish();
}
