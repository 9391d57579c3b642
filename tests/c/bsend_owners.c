/* Buffers of the process and of communicators: whose is used, what is pending, what remains of them. */
#include "check.h"

/* A medium message does not fit into what MPI_BSEND_OVERHEAD leaves, however little of it the library needs. */
enum { small = 64, medium = small + MPI_BSEND_OVERHEAD, large = 1 << 20 };

static char out[large], in[large];

/* A message too long to leave before its receive keeps its buffer occupied until then. */
static void pending(MPI_Comm comm, int right, int left)
{
    int room = large + MPI_BSEND_OVERHEAD, size, flag = -1;
    char *space = allocate((size_t)room), *back = NULL;
    MPI_Request flush, receive;
    OK(MPI_Comm_attach_buffer(comm, space, room));
    fill(out, large, 3);
    OK(MPI_Bsend(out, large, MPI_CHAR, right, 1, comm));
    memset(out, 0, large);
    CHECK(class_of(MPI_Bsend(out, medium, MPI_CHAR, right, 2, comm)) == MPI_ERR_BUFFER);
    CHECK(class_of(MPI_Ibsend(out, medium, MPI_CHAR, right, 2, comm, &receive)) == MPI_ERR_BUFFER);
    OK(MPI_Bsend(out, small, MPI_CHAR, MPI_PROC_NULL, 2, comm));
    OK(MPI_Comm_iflush_buffer(comm, &flush));
    OK(MPI_Test(&flush, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    OK(MPI_Barrier(MPI_COMM_WORLD)); /* nobody has received before everybody has looked */
    OK(MPI_Irecv(in, large, MPI_CHAR, left, 1, comm, &receive));
    OK(MPI_Wait(&flush, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    CHECK(verify(in, large, 3));
    OK(MPI_Bsend(out, small, MPI_CHAR, right, 2, comm)); /* there is room again */
    OK(MPI_Recv(in, small, MPI_CHAR, left, 2, comm, MPI_STATUS_IGNORE));
    OK(MPI_Comm_flush_buffer(comm));
    OK(MPI_Comm_detach_buffer(comm, &back, &size));
    CHECK(back == space && size == room);
    free(space);
}

/* A persistent buffered send counts at each start. */
static void persistent(MPI_Comm comm, int right, int left)
{
    int room = small + MPI_BSEND_OVERHEAD, size;
    char *space = allocate((size_t)room), *back = NULL;
    MPI_Request request;
    OK(MPI_Bsend_init(out, small, MPI_CHAR, right, 4, comm, &request));
    CHECK(class_of(MPI_Start(&request)) == MPI_ERR_BUFFER);
    OK(MPI_Buffer_attach(space, room));
    for (int round = 0; round < 5; round++) {
        fill(out, small, (uint64_t)round);
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Recv(in, small, MPI_CHAR, left, 4, comm, MPI_STATUS_IGNORE));
        CHECK(verify(in, small, (uint64_t)round));
        OK(MPI_Buffer_flush());
    }
    OK(MPI_Request_free(&request));
    OK(MPI_Buffer_detach(&back, &size));
    CHECK(back == space && size == room);
    free(space);
}

static void automatic(MPI_Comm comm, int right, int left)
{
    MPI_Count size = -1;
    void *back = NULL;
    char *pieces[8];
    CHECK(class_of(MPI_Bsend(out, small, MPI_CHAR, right, 5, comm)) == MPI_ERR_BUFFER);
    OK(MPI_Buffer_attach_c(MPI_BUFFER_AUTOMATIC, 0));
    CHECK(class_of(MPI_Buffer_attach(out, large)) == MPI_ERR_BUFFER);
    for (int i = 0; i < 8; i++) {
        pieces[i] = allocate(large);
        fill(pieces[i], large, (uint64_t)i);
        OK(MPI_Bsend(pieces[i], large, MPI_CHAR, right, 5, comm));
        free(pieces[i]);
    }
    for (int i = 0; i < 8; i++) {
        OK(MPI_Recv(in, large, MPI_CHAR, left, 5, comm, MPI_STATUS_IGNORE));
        CHECK(verify(in, large, (uint64_t)i));
    }
    OK(MPI_Buffer_detach_c(&back, &size));
    CHECK(back == MPI_BUFFER_AUTOMATIC && size == 0);
    CHECK(class_of(MPI_Buffer_detach_c(&back, &size)) == MPI_ERR_BUFFER);
}

/* Only what the communicator's own buffer has no say in goes through that of the process. */
static void owners(MPI_Comm one, MPI_Comm other)
{
    int room = small + MPI_BSEND_OVERHEAD, size;
    char *spaces[2] = {allocate((size_t)room), allocate((size_t)room)}, *back = NULL;
    OK(MPI_Comm_attach_buffer(one, spaces[0], room));
    CHECK(class_of(MPI_Bsend(out, small, MPI_CHAR, MPI_PROC_NULL, 6, other)) == MPI_SUCCESS);
    CHECK(class_of(MPI_Bsend(out, small, MPI_CHAR, world_rank, 6, other)) == MPI_ERR_BUFFER);
    OK(MPI_Buffer_attach(spaces[1], room));
    OK(MPI_Bsend(out, small, MPI_CHAR, world_rank, 6, other));
    OK(MPI_Bsend(out, small, MPI_CHAR, world_rank, 6, one));
    /* A communicator's buffer that is too small is not helped out by another. */
    CHECK(class_of(MPI_Bsend(out, medium, MPI_CHAR, world_rank, 6, one)) == MPI_ERR_BUFFER);
    OK(MPI_Recv(in, small, MPI_CHAR, world_rank, 6, other, MPI_STATUS_IGNORE));
    OK(MPI_Recv(in, small, MPI_CHAR, world_rank, 6, one, MPI_STATUS_IGNORE));
    OK(MPI_Buffer_detach(&back, &size));
    CHECK(back == spaces[1]);
    OK(MPI_Comm_detach_buffer(one, &back, &size));
    CHECK(back == spaces[0]);
    free(spaces[0]);
    free(spaces[1]);
}

/* A message that is under way outlives the communicator it was sent on. */
static void freed(int right, int left)
{
    MPI_Comm comm;
    MPI_Request request;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_attach_buffer(comm, MPI_BUFFER_AUTOMATIC, 0));
    fill(out, large, 9);
    OK(MPI_Irecv(in, large, MPI_CHAR, left, 7, comm, &request));
    OK(MPI_Bsend(out, large, MPI_CHAR, right, 7, comm));
    memset(out, 0, large);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(verify(in, large, 9));
}

int main(int argc, char **argv)
{
    MPI_Comm one, other;
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &one));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    pending(one, right, left);
    persistent(one, right, left);
    automatic(other, right, left);
    owners(one, other);
    freed(right, left);
    OK(MPI_Comm_free(&other));
    OK(MPI_Comm_free(&one));
    return finish();
}
