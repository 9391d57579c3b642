/* More of what the standard allows and few programs do: persistent requests waited for without a start and freed while
 * active, cancelled and probed messages, generalized requests that fail, and errors inside of what goes on. */
#include "check.h"

#define FAILS(call, error_class) \
    check_fact(class_of(call) == (error_class), #call " is " #error_class, __FILE__, __LINE__)

enum { n = 30000 };

static MPI_Comm comm;
static int right, left;

static void inactive_requests(void)
{
    MPI_Request requests[2], freed;
    MPI_Status statuses[2];
    int in = -1, out = world_rank, index = 5, flag = 0, count = 7, indices[2];
    OK(MPI_Recv_init(&in, 1, MPI_INT, left, 1, comm, &requests[0]));
    OK(MPI_Send_init(&out, 1, MPI_INT, right, 1, comm, &requests[1]));
    OK(MPI_Waitall(2, requests, statuses));
    CHECK(statuses[0].MPI_SOURCE == MPI_ANY_SOURCE && statuses[1].MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE));
    CHECK(index == MPI_UNDEFINED);
    OK(MPI_Waitsome(2, requests, &count, indices, MPI_STATUSES_IGNORE));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Start(&requests[0]));
    FAILS(MPI_Start(&requests[0]), MPI_ERR_REQUEST);
    OK(MPI_Start(&requests[1]));
    /* The send's handle goes while it is on its way. */
    freed = requests[1];
    OK(MPI_Request_free(&requests[1]));
    CHECK(freed != requests[1] && requests[1] == MPI_REQUEST_NULL);
    OK(MPI_Wait(&requests[0], &statuses[0]));
    CHECK(in == left && requests[0] != MPI_REQUEST_NULL && statuses[0].MPI_TAG == 1);
    OK(MPI_Request_get_status(requests[0], &flag, &statuses[0]));
    CHECK(flag && statuses[0].MPI_TAG == MPI_ANY_TAG);
    FAILS(MPI_Start(&requests[1]), MPI_ERR_REQUEST);
    OK(MPI_Request_free(&requests[0]));
}

/* A message that was matched is nobody else's; what is left is found by whoever looks next, in order. */
static void matched(void)
{
    static int out[2][n], in[2][n];
    MPI_Request requests[2];
    MPI_Message first, second;
    MPI_Status status;
    int flag = 1, length = -1;
    for (int i = 0; i < n; i++) {
        out[0][i] = world_rank + i;
        out[1][i] = world_rank - i;
    }
    OK(MPI_Isend(out[0], n, MPI_INT, right, 2, comm, &requests[0]));
    OK(MPI_Isend(out[1], n - 1, MPI_INT, right, 2, comm, &requests[1]));
    OK(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &first, &status));
    OK(MPI_Get_count(&status, MPI_INT, &length));
    CHECK(length == n && status.MPI_SOURCE == left);
    OK(MPI_Mprobe(left, 2, comm, &second, &status));
    OK(MPI_Get_count(&status, MPI_INT, &length));
    CHECK(length == n - 1);
    OK(MPI_Iprobe(left, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    /* The later one first; the earlier one into too little room, which is an error of this call alone. */
    OK(MPI_Mrecv(in[1], n, MPI_INT, &second, &status));
    FAILS(MPI_Mrecv(in[0], 10, MPI_INT, &first, &status), MPI_ERR_TRUNCATE);
    CHECK(first == MPI_MESSAGE_NULL && in[1][n - 2] == left - (n - 2));
    FAILS(MPI_Mrecv(in[0], 10, MPI_INT, &first, &status), MPI_ERR_REQUEST);
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
}

/* One of several messages does not fit: the others arrive, before and behind it. */
static void truncated_among_others(void)
{
    MPI_Request requests[3];
    MPI_Status statuses[3];
    static int in[3][n], out[3][n];
    int code, few = 4;
    for (int i = 0; i < n; i++)
        out[0][i] = out[1][i] = out[2][i] = i - world_rank;
    for (int i = 0; i < 3; i++)
        OK(MPI_Irecv(in[i], i == 1 ? few : n, MPI_INT, left, 10 + i, comm, &requests[i]));
    for (int i = 0; i < 3; i++)
        OK(MPI_Sendrecv(out[i], n, MPI_INT, right, 10 + i, NULL, 0, MPI_INT, MPI_PROC_NULL, 0, comm,
                        MPI_STATUS_IGNORE));
    code = MPI_Waitall(3, requests, statuses);
    CHECK(code == MPI_ERR_IN_STATUS && class_of(statuses[1].MPI_ERROR) == MPI_ERR_TRUNCATE);
    CHECK(statuses[0].MPI_ERROR == MPI_SUCCESS && in[0][n - 1] == n - 1 - left && in[2][n - 1] == n - 1 - left);
}

static int query(void *state, MPI_Status *status)
{
    OK(MPI_Status_set_elements(status, MPI_INT, 3));
    OK(MPI_Status_set_cancelled(status, 0));
    status->MPI_SOURCE = 6;
    status->MPI_TAG = 7;
    return *(int *)state;
}

static int free_state(void *state)
{
    *(int *)state = -5;
    return MPI_SUCCESS;
}

static int cancel_nothing(void *state, int complete)
{
    (void)state, (void)complete;
    return MPI_SUCCESS;
}

/* A generalized request whose query fails, beside a message that arrives: each has its own status. */
static void failing_generalized(void)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int state = MPI_ERR_OTHER, in = -1, code, length = 0;
    OK(MPI_Grequest_start(query, free_state, cancel_nothing, &state, &requests[0]));
    OK(MPI_Irecv(&in, 1, MPI_INT, left, 20, comm, &requests[1]));
    OK(MPI_Send(&world_rank, 1, MPI_INT, right, 20, comm));
    OK(MPI_Grequest_complete(requests[0]));
    code = MPI_Waitall(2, requests, statuses);
    CHECK(code == MPI_ERR_IN_STATUS && class_of(statuses[0].MPI_ERROR) == MPI_ERR_OTHER);
    CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS && in == left && state == -5);
    state = MPI_SUCCESS;
    OK(MPI_Grequest_start(query, free_state, cancel_nothing, &state, &requests[0]));
    OK(MPI_Grequest_complete(requests[0]));
    OK(MPI_Wait(&requests[0], &statuses[0]));
    OK(MPI_Get_count(&statuses[0], MPI_INT, &length));
    CHECK(length == 3 && statuses[0].MPI_SOURCE == 6 && state == -5);
}

/* Attached memory that is too small, attached twice, or in nobody's hands; a short message still fits afterwards. */
static void buffers(void)
{
    static char memory[MPI_BSEND_OVERHEAD + 64], other[MPI_BSEND_OVERHEAD + 64];
    static char out[MPI_BSEND_OVERHEAD + 65];
    void *given;
    int length;
    OK(MPI_Comm_attach_buffer(comm, memory, sizeof memory));
    FAILS(MPI_Comm_attach_buffer(comm, other, sizeof other), MPI_ERR_BUFFER);
    FAILS(MPI_Bsend(out, sizeof out, MPI_CHAR, right, 30, comm), MPI_ERR_BUFFER);
    OK(MPI_Bsend(out, 64, MPI_CHAR, right, 31, comm));
    OK(MPI_Recv(out, 64, MPI_CHAR, left, 31, comm, MPI_STATUS_IGNORE));
    OK(MPI_Comm_flush_buffer(comm));
    OK(MPI_Bsend(out, 64, MPI_CHAR, right, 32, comm));
    OK(MPI_Comm_detach_buffer(comm, &given, &length)); /* waits until the message has left it */
    CHECK(given == memory && length == (int)sizeof memory);
    memset(memory, 'x', sizeof memory);
    OK(MPI_Recv(out, 64, MPI_CHAR, left, 32, comm, MPI_STATUS_IGNORE));
    CHECK(out[0] == 0 && out[63] == 0);
}

/* Arguments that are wrong in collectives are found before anybody is waited for. */
static void wrong_collectives(void)
{
    int data[4] = {1, 2, 3, 4}, sum[4];
    MPI_Datatype pair;
    MPI_Request request = MPI_REQUEST_NULL;
    FAILS(MPI_Bcast(data, -1, MPI_INT, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Reduce(data, sum, 1, MPI_INT, MPI_SUM, world_size, comm), MPI_ERR_ROOT);
    FAILS(MPI_Allreduce(data, sum, 1, MPI_DOUBLE_INT, MPI_SUM, comm), MPI_ERR_OP);
    FAILS(MPI_Allreduce(data, sum, 1, MPI_INT, MPI_MAXLOC, comm), MPI_ERR_OP);
    FAILS(MPI_Allreduce(data, sum, 1, MPI_FLOAT, MPI_BAND, comm), MPI_ERR_OP);
    FAILS(MPI_Iallreduce(data, sum, 1, MPI_INT, MPI_OP_NULL, comm, &request), MPI_ERR_OP);
    FAILS(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Neighbor_allgather(data, 1, MPI_INT, sum, 1, MPI_INT, comm), MPI_ERR_TOPOLOGY);
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    FAILS(MPI_Bcast(data, 1, pair, 0, comm), MPI_ERR_TYPE); /* not committed */
    OK(MPI_Type_commit(&pair));
    FAILS(MPI_Allreduce(data, sum, 1, pair, MPI_SUM, comm), MPI_ERR_OP);
    OK(MPI_Type_free(&pair));
    OK(MPI_Allreduce(data, sum, 4, MPI_INT, MPI_SUM, comm));
    CHECK(sum[3] == 4 * world_size && request == MPI_REQUEST_NULL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    right = (world_rank + 1) % world_size;
    left = (world_rank + world_size - 1) % world_size;
    inactive_requests();
    matched();
    truncated_among_others();
    failing_generalized();
    buffers();
    wrong_collectives();
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
    return finish();
}
