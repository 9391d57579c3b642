/* Buffered sends: the attached buffer fills up, empties, is flushed and detached; nothing is lost. */
#include "check.h"

enum { message_bytes = 1000, fits = 10 };

int main(int argc, char **argv)
{
    char message[message_bytes], *space, *detached = NULL;
    int size = -1, code, room = fits * (message_bytes + MPI_BSEND_OVERHEAD);
    MPI_Request request;
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    space = allocate((size_t)room);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));

    /* Without a buffer only an empty message can go. */
    fill(message, message_bytes, 1);
    code = MPI_Bsend(message, message_bytes, MPI_CHAR, right, 1, MPI_COMM_WORLD);
    CHECK(class_of(code) == MPI_ERR_BUFFER || code == MPI_SUCCESS);
    int left_over = code == MPI_SUCCESS;

    OK(MPI_Buffer_attach(space, room));
    for (int i = 0; i < fits; i++) {
        fill(message, message_bytes, (uint64_t)(100 + i));
        OK(MPI_Bsend(message, message_bytes, MPI_CHAR, right, 2, MPI_COMM_WORLD));
    }
    memset(message, 0, sizeof message);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < fits; i++) {
        OK(MPI_Recv(message, message_bytes, MPI_CHAR, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(verify(message, message_bytes, (uint64_t)(100 + i)));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* The room of delivered messages is used again, many times over. */
    for (int round = 0; round < 50; round++) {
        fill(message, message_bytes, (uint64_t)round);
        OK(MPI_Ibsend(message, message_bytes, MPI_CHAR, right, 3, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Recv(message, message_bytes, MPI_CHAR, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(verify(message, message_bytes, (uint64_t)round));
        if (round % 10 == 9)
            OK(MPI_Buffer_flush());
    }
    /* Detaching waits until all of it has left. */
    fill(message, message_bytes, 7);
    OK(MPI_Bsend(message, message_bytes, MPI_CHAR, world_rank, 4, MPI_COMM_WORLD));
    memset(message, 0, sizeof message);
    OK(MPI_Recv(message, message_bytes, MPI_CHAR, world_rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(verify(message, message_bytes, 7));
    OK(MPI_Buffer_detach(&detached, &size));
    CHECK(detached == space && size == room);
    /* Programs attach what sufficed elsewhere, which is less than the standard asks for. */
    OK(MPI_Buffer_attach(space, 2000));
    for (int i = 0; i < 15; i++)
        OK(MPI_Bsend(message, 40, MPI_CHAR, right, 5, MPI_COMM_WORLD));
    for (int i = 0; i < 15; i++)
        OK(MPI_Recv(message, 40, MPI_CHAR, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Buffer_detach(&detached, &size));
    CHECK(detached == space && size == 2000);
    if (left_over)
        OK(MPI_Recv(message, message_bytes, MPI_CHAR, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    free(space);
    return finish();
}
