/* Mistakes in collectives that one process can see by itself, or that must not keep the others from going on. */
#include "check.h"

enum { most = 64, longer = 100, shorter = 50 };

static int data[2 * most];

#define REFUSED(call) CHECK(class_of(call) == MPI_ERR_BUFFER)

/* What is sent stands where it is received, and nobody said MPI_IN_PLACE: refused by all before anything is sent. */
static void aliased(MPI_Comm comm)
{
    int ones[most], places[most], byte_places[most], size = 0, rank = 0;
    MPI_Datatype types[most];
    MPI_Request request = MPI_REQUEST_NULL;
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Comm_rank(comm, &rank));
    for (int peer = 0; peer < size; peer++) {
        ones[peer] = 1;
        places[peer] = peer;
        byte_places[peer] = peer * (int)sizeof(int);
        types[peer] = MPI_INT;
    }
    REFUSED(MPI_Allreduce(data, data, 1, MPI_INT, MPI_SUM, comm));
    REFUSED(MPI_Scan(data, data, 1, MPI_INT, MPI_SUM, comm));
    REFUSED(MPI_Exscan(data, data, 1, MPI_INT, MPI_SUM, comm));
    REFUSED(MPI_Reduce_scatter(data, data, ones, MPI_INT, MPI_SUM, comm));
    REFUSED(MPI_Reduce_scatter_block(data, data, 1, MPI_INT, MPI_SUM, comm));
    REFUSED(MPI_Allgather(data + rank, 1, MPI_INT, data, 1, MPI_INT, comm));
    REFUSED(MPI_Allgatherv(data + rank, 1, MPI_INT, data, ones, places, MPI_INT, comm));
    REFUSED(MPI_Alltoall(data, 1, MPI_INT, data, 1, MPI_INT, comm));
    REFUSED(MPI_Alltoallv(data, ones, places, MPI_INT, data, ones, places, MPI_INT, comm));
    REFUSED(MPI_Alltoallw(data, ones, byte_places, types, data, ones, byte_places, types, comm));
    REFUSED(MPI_Reduce_local(data, data, 1, MPI_INT, MPI_SUM));
    REFUSED(MPI_Iallreduce(data, data, 1, MPI_INT, MPI_SUM, comm, &request));
    REFUSED(MPI_Allreduce_init(data, data, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
    /* Of nothing there is no such mistake, and what lies elsewhere in one array is none. */
    OK(MPI_Allreduce(data, data, 0, MPI_INT, MPI_SUM, comm));
    OK(MPI_Reduce_local(data, data, 0, MPI_INT, MPI_SUM));
    OK(MPI_Reduce_local(data, data + 1, 1, MPI_INT, MPI_SUM));
    OK(MPI_Allgather(data + size, 1, MPI_INT, data, 1, MPI_INT, comm));
    OK(MPI_Alltoall(data, 1, MPI_INT, data + size, 1, MPI_INT, comm));
}

/* The same at a root, which is alone here. */
static void aliased_at_root(MPI_Comm self)
{
    int one = 1, place = 0;
    REFUSED(MPI_Gather(data, 1, MPI_INT, data, 1, MPI_INT, 0, self));
    REFUSED(MPI_Gatherv(data, 1, MPI_INT, data, &one, &place, MPI_INT, 0, self));
    REFUSED(MPI_Scatter(data, 1, MPI_INT, data, 1, MPI_INT, 0, self));
    REFUSED(MPI_Scatterv(data, &one, &place, MPI_INT, data, 1, MPI_INT, 0, self));
    REFUSED(MPI_Reduce(data, data, 1, MPI_INT, MPI_SUM, 0, self));
}

/* A call that was refused has not taken place: the root's next one is what the others meet. */
static void refused_at_root_only(MPI_Comm comm)
{
    int rank = 0, size = 0, one = 1, sum = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    if (rank == 0)
        REFUSED(MPI_Reduce(&one, &one, 1, MPI_INT, MPI_SUM, 0, comm));
    OK(MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, comm));
    CHECK(rank != 0 || sum == size);
    if (rank == 0)
        REFUSED(MPI_Ireduce(&one, &one, 1, MPI_INT, MPI_SUM, 0, comm, &request));
    sum = 0;
    OK(MPI_Ireduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(rank != 0 || sum == size);
}

/* One has room for less than the root sends: it learns of it, and those that it passes data on to get what there is. */
static void short_of_room(int expecting_less)
{
    MPI_Comm comm;
    int buffer[longer];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int at = 0; at < longer; at++)
        buffer[at] = world_rank == 0 ? at : -1;
    int is_short = world_rank == expecting_less;
    int error = MPI_Bcast(buffer, is_short ? shorter : longer, MPI_INT, 0, comm);
    CHECK(is_short ? class_of(error) == MPI_ERR_TRUNCATE : error == MPI_SUCCESS || class_of(error) == MPI_ERR_TRUNCATE);
    if (is_short)
        for (int at = shorter; at < longer; at++)
            CHECK(buffer[at] == -1);
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
}

/* What several processes do together can not be left alone by one of them. */
static void freed_while_it_goes(MPI_Comm comm)
{
    MPI_Request request, copy;
    MPI_Comm duplicate;
    int sum = 0;
    OK(MPI_Iallreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm, &request));
    copy = request;
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST && request == copy);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == world_size * (world_size - 1) / 2);
    OK(MPI_Comm_idup(comm, &duplicate, &request));
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_free(&duplicate));
    OK(MPI_Barrier_init(comm, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
}

int main(int argc, char **argv)
{
    MPI_Comm comm, self;
    start(&argc, &argv);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &self));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    /* With boards as well, which there are after some calls. */
    for (int round = 0; round < 12; round++) {
        aliased(comm);
        aliased_at_root(self);
        refused_at_root_only(comm);
        freed_while_it_goes(comm);
    }
    for (int rank = 1; rank < world_size; rank++)
        short_of_room(rank);
    OK(MPI_Comm_free(&self));
    OK(MPI_Comm_free(&comm));
    return finish();
}
