/* Generalized requests: which callback is called when, how often, and what becomes of their errors. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

struct record { int queries, frees, cancels, cancelled_complete, query_error, free_error, ask_cancelled; };

static int on_query(void *extra, MPI_Status *status)
{
    struct record *record = extra;
    CHECK(record->frees == 0);
    record->queries++;
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, record->ask_cancelled);
    status->MPI_SOURCE = 1;
    status->MPI_TAG = 2;
    return record->query_error;
}

static int on_free(void *extra)
{
    struct record *record = extra;
    record->frees++;
    return record->free_error;
}

static int on_cancel(void *extra, int complete)
{
    struct record *record = extra;
    record->cancels++;
    record->cancelled_complete = complete;
    record->ask_cancelled = !complete;
    return MPI_SUCCESS;
}

static MPI_Request begin(struct record *record)
{
    MPI_Request request = MPI_REQUEST_NULL;
    memset(record, 0, sizeof *record);
    OK(MPI_Grequest_start(on_query, on_free, on_cancel, record, &request));
    return request;
}

static void *complete_later(void *request)
{
    usleep(20000);
    OK(MPI_Grequest_complete(*(MPI_Request *)request));
    return NULL;
}

static void order(void)
{
    struct record record;
    MPI_Status status;
    int flag = -1, count = -1;
    MPI_Request request = begin(&record);
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(!flag && record.queries == 0);
    OK(MPI_Grequest_complete(request));
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(flag && record.queries == 1 && record.frees == 0 && status.MPI_TAG == 2);
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 3 && record.queries == 2 && record.frees == 1 && request == MPI_REQUEST_NULL);

    /* Freed before it is complete: whoever completes it still has a handle, and the free callback waits for that. */
    request = begin(&record);
    MPI_Request kept = request;
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL && record.frees == 0);
    OK(MPI_Grequest_complete(kept));
    CHECK(record.frees == 1 && record.queries == 0);
    CHECK(class_of(MPI_Grequest_complete(kept)) == MPI_ERR_REQUEST);

    /* Cancelled before and after its completion. */
    request = begin(&record);
    OK(MPI_Cancel(&request));
    CHECK(record.cancels == 1 && !record.cancelled_complete);
    OK(MPI_Grequest_complete(request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag);
    request = begin(&record);
    OK(MPI_Grequest_complete(request));
    OK(MPI_Cancel(&request));
    CHECK(record.cancels == 1 && record.cancelled_complete);
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag);
}

static void errors(void)
{
    struct record records[3];
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int code, value = 5, got = 0;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Add_error_class(&code));
    requests[0] = begin(&records[0]);
    records[0].query_error = code;
    OK(MPI_Grequest_complete(requests[0]));
    CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == code);
    CHECK(records[0].frees == 1 && requests[0] == MPI_REQUEST_NULL);
    /* One of several: its error stands in its status, the others are not touched by it. */
    requests[0] = begin(&records[0]);
    requests[1] = begin(&records[1]);
    records[1].free_error = code;
    OK(MPI_Irecv(&got, 1, MPI_INT, world_rank, 1, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Grequest_complete(requests[0]));
    OK(MPI_Grequest_complete(requests[1]));
    OK(MPI_Send(&value, 1, MPI_INT, world_rank, 1, MPI_COMM_WORLD));
    CHECK(MPI_Waitall(3, requests, statuses) == MPI_ERR_IN_STATUS);
    CHECK(statuses[0].MPI_ERROR == MPI_SUCCESS && statuses[1].MPI_ERROR == code);
    CHECK(statuses[2].MPI_ERROR == MPI_SUCCESS);
    CHECK(got == 5 && records[0].frees == 1 && records[1].frees == 1);
    CHECK(class_of(MPI_Grequest_complete(MPI_REQUEST_NULL)) == MPI_ERR_REQUEST);
    OK(MPI_Irecv(&got, 1, MPI_INT, world_rank, 1, MPI_COMM_WORLD, &requests[2]));
    CHECK(class_of(MPI_Grequest_complete(requests[2])) == MPI_ERR_REQUEST);
    OK(MPI_Cancel(&requests[2]));
    OK(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
    CHECK(class_of(MPI_Cancel(&requests[2])) == MPI_ERR_REQUEST);
    OK(MPI_Remove_error_class(code));
}

/* Another thread completes what this one sleeps for. */
static void threads(void)
{
    for (int round = 0; round < 10; round++) {
        struct record records[2];
        MPI_Request requests[2] = {begin(&records[0]), begin(&records[1])};
        MPI_Status statuses[2];
        pthread_t others[2];
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&others[i], NULL, complete_later, &requests[i]) == 0);
        MPI_Request copies[2] = {requests[0], requests[1]};
        if (round % 2) {
            OK(MPI_Waitall(2, copies, statuses));
        } else {
            for (int i = 0; i < 2; i++) {
                int index = -1;
                OK(MPI_Waitany(2, copies, &index, &statuses[0]));
                CHECK(index >= 0 && copies[index] == MPI_REQUEST_NULL);
            }
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(others[i], NULL);
            CHECK(records[i].queries == 1 && records[i].frees == 1);
        }
    }
}

int main(int argc, char **argv)
{
    int provided = -1;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    order();
    errors();
    threads();
    return finish();
}
