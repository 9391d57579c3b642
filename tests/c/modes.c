/* The four send modes, blocking and not: content, and what completion means for each. */
#include "check.h"

enum { go_tag = 1, data_tag = 2, sizes_count = 5 };
static const int sizes[sizes_count] = {0, 8, 3000, 70000, 1500000};

/* Receives `length` bytes from rank 0 after everything else it said before. */
static void take(int length, uint64_t seed, char *buffer)
{
    MPI_Status status;
    memset(buffer, 0, (size_t)length);
    OK(MPI_Recv(buffer, length, MPI_CHAR, 0, data_tag, MPI_COMM_WORLD, &status));
    CHECK(verify(buffer, (size_t)length, seed));
}

/* A synchronous send cannot complete before its receive is posted, however small it is. */
static void synchronous(int peer, int length, char *buffer)
{
    MPI_Request request;
    int flag = 0;
    if (world_rank == 0) {
        fill(buffer, (size_t)length, 5);
        OK(MPI_Issend(buffer, length, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD, &request));
        for (int i = 0; i < 200 && !flag; i++)
            OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag);
        OK(MPI_Send(NULL, 0, MPI_CHAR, peer, go_tag, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(request == MPI_REQUEST_NULL);
        OK(MPI_Ssend(buffer, length, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(NULL, 0, MPI_CHAR, 0, go_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        take(length, 5, buffer);
        take(length, 5, buffer);
    }
}

/* A buffered send completes at once, whatever the receiver does; the buffer is then reusable. */
static void buffered(int peer, int length, char *buffer)
{
    int room = 2 * (length + MPI_BSEND_OVERHEAD), size = -1;
    if (world_rank == 0) {
        char *space = allocate((size_t)room), *detached = NULL;
        MPI_Request request;
        OK(MPI_Buffer_attach(space, room));
        fill(buffer, (size_t)length, 6);
        OK(MPI_Bsend(buffer, length, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD));
        memset(buffer, 1, (size_t)length);
        fill(buffer, (size_t)length, 7);
        OK(MPI_Ibsend(buffer, length, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        memset(buffer, 1, (size_t)length);
        OK(MPI_Send(NULL, 0, MPI_CHAR, peer, go_tag, MPI_COMM_WORLD));
        OK(MPI_Buffer_detach(&detached, &size));
        CHECK(detached == space && size == room);
        free(space);
    } else {
        OK(MPI_Recv(NULL, 0, MPI_CHAR, 0, go_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        take(length, 6, buffer);
        take(length, 7, buffer);
    }
}

/* A ready send may start only when its receive is posted. */
static void ready(int peer, int length, char *buffer)
{
    MPI_Request requests[2];
    if (world_rank == 0) {
        OK(MPI_Recv(NULL, 0, MPI_CHAR, peer, go_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        fill(buffer, (size_t)length, 8);
        OK(MPI_Rsend(buffer, length, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD));
        OK(MPI_Irsend(buffer, length, MPI_CHAR, peer, data_tag, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    } else {
        char *second = allocate((size_t)length);
        OK(MPI_Irecv(buffer, length, MPI_CHAR, 0, data_tag, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Irecv(second, length, MPI_CHAR, 0, data_tag, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Send(NULL, 0, MPI_CHAR, 0, go_tag, MPI_COMM_WORLD));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(verify(buffer, (size_t)length, 8));
        CHECK(verify(second, (size_t)length, 8));
        free(second);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    char *buffer = allocate(1500000);
    for (int peer = 1; peer < world_size; peer++) {
        if (world_rank != 0 && world_rank != peer)
            continue;
        for (int s = 0; s < sizes_count; s++) {
            synchronous(peer, sizes[s], buffer);
            buffered(peer, sizes[s], buffer);
            ready(peer, sizes[s], buffer);
        }
    }
    free(buffer);
    return finish();
}
