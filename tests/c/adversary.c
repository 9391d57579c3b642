/* What careful programs avoid and the standard allows all the same: handles freed while they are in use, callbacks that
 * fail or undo themselves, empty groups and arrays, requests that are nothing. Errors leave everything usable. */
#include "check.h"

#define FAILS(call, error_class) \
    check_fact(class_of(call) == (error_class), #call " is " #error_class, __FILE__, __LINE__)

enum { n = 20000 };

static MPI_Comm errors_return(MPI_Comm comm)
{
    MPI_Comm copy;
    OK(MPI_Comm_dup(comm, &copy));
    OK(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    return copy;
}

static void product(void *input, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] *= ((int *)input)[i];
}

/* Communicator, datatype, operation and group are freed while messages and collectives still need them. */
static void freed_in_flight(void)
{
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size, wrong = 0;
    int *out = allocate(n * 2 * sizeof(int)), *in = allocate(n * 2 * sizeof(int)), two[3] = {2, 1, 1}, all[3];
    MPI_Request requests[4];
    MPI_Comm comm, copy;
    MPI_Datatype every_other;
    MPI_Op op;
    MPI_Group group;
    for (int i = 0; i < 2 * n; i++) {
        out[i] = world_rank + i;
        in[i] = -1;
    }
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_group(comm, &group));
    OK(MPI_Type_vector(n, 1, 2, MPI_INT, &every_other));
    OK(MPI_Type_commit(&every_other));
    OK(MPI_Op_create(product, 1, &op));
    OK(MPI_Irecv(in, 1, every_other, left, 1, comm, &requests[0]));
    OK(MPI_Iallreduce(two, all, 3, MPI_INT, op, comm, &requests[1]));
    OK(MPI_Comm_idup(comm, &copy, &requests[2]));
    OK(MPI_Isend(out, 1, every_other, right, 1, comm, &requests[3]));
    OK(MPI_Group_free(&group));
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&every_other));
    OK(MPI_Comm_free(&comm));
    CHECK(comm == MPI_COMM_NULL && op == MPI_OP_NULL && every_other == MPI_DATATYPE_NULL && group == MPI_GROUP_NULL);
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 2 * n; i += 2)
        wrong += in[i] != left + i || in[i + 1] != -1;
    CHECK(wrong == 0 && all[0] == 1 << world_size && all[2] == 1);
    OK(MPI_Barrier(copy));
    OK(MPI_Comm_free(&copy));
    free(out);
    free(in);
}

/* Requests that nobody waits for: the messages arrive, and a cancelled or freed receive takes nothing away. */
static void freed_requests(void)
{
    static int in[n], out[n];
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size, done = 0;
    MPI_Request request;
    MPI_Status status;
    for (int i = 0; i < n; i++)
        out[i] = world_rank * 3 + i;
    OK(MPI_Irecv(in, n, MPI_INT, left, 2, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    OK(MPI_Isend(out, n, MPI_INT, right, 2, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    /* Behind them on the same way: when this has come, and has been answered, both are over. */
    OK(MPI_Sendrecv(NULL, 0, MPI_INT, right, 3, NULL, 0, MPI_INT, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    while (!done) {
        volatile int *last = in;
        done = last[n - 1] == left * 3 + n - 1;
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &(int){0}, MPI_STATUS_IGNORE));
    }
    CHECK(in[0] == left * 3);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Irecv(in, 1, MPI_INT, left, 4, MPI_COMM_WORLD, &request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &done));
    CHECK(done);
}

static int calls;

static int refuse_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value;
    return ++calls <= *(int *)extra ? MPI_ERR_INTERN : MPI_SUCCESS;
}

static int refuse_copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra, (void)in, (void)out;
    *flag = 1;
    return MPI_ERR_OTHER;
}

/* Attributes whose callbacks refuse: the communicator stays until they agree; a copy is not made. */
static void failing_attributes(void)
{
    int key, copying, flag, refusals = 1, value = 5, *got = NULL;
    MPI_Comm comm = errors_return(MPI_COMM_WORLD), copy = MPI_COMM_SELF;
    calls = 0;
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuse_delete, &key, &refusals));
    OK(MPI_Comm_set_attr(comm, key, &value));
    CHECK(MPI_Comm_free(&comm) != MPI_SUCCESS && comm != MPI_COMM_NULL);
    OK(MPI_Comm_get_attr(comm, key, &got, &flag));
    CHECK(flag && got == &value);
    OK(MPI_Comm_create_keyval(refuse_copy, MPI_COMM_NULL_DELETE_FN, &copying, NULL));
    OK(MPI_Comm_set_attr(comm, copying, &value));
    CHECK(MPI_Comm_dup(comm, &copy) != MPI_SUCCESS);
    OK(MPI_Comm_delete_attr(comm, copying));
    OK(MPI_Comm_free_keyval(&copying));
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free_keyval(&key)); /* lives on with its value */
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Comm_free(&comm));
    CHECK(calls == 2 && comm == MPI_COMM_NULL);
}

static MPI_Errhandler own;
static int handled;

static void undo_itself(MPI_Comm *comm, int *code, ...)
{
    handled += class_of(*code) == MPI_ERR_RANK;
    OK(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN));
    if (own != MPI_ERRHANDLER_NULL)
        OK(MPI_Errhandler_free(&own));
}

/* An error handler that takes its own place away while it runs, and one that is freed before it is called. */
static void self_freeing_handler(void)
{
    MPI_Comm comm;
    int byte = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_create_errhandler(undo_itself, &own));
    OK(MPI_Comm_set_errhandler(comm, own));
    FAILS(MPI_Send(&byte, 1, MPI_BYTE, world_size + 3, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(&byte, 1, MPI_BYTE, world_size + 3, 0, comm), MPI_ERR_RANK);
    CHECK(handled == 1 && own == MPI_ERRHANDLER_NULL);
    OK(MPI_Comm_create_errhandler(undo_itself, &own));
    OK(MPI_Comm_set_errhandler(comm, own));
    OK(MPI_Errhandler_free(&own));
    OK(MPI_Comm_call_errhandler(comm, MPI_ERR_RANK));
    CHECK(handled == 2);
    OK(MPI_Comm_free(&comm));
}

static void empty_things(void)
{
    MPI_Group world, empty, other;
    MPI_Comm comm = errors_return(MPI_COMM_WORLD), none = MPI_COMM_SELF;
    MPI_Request null = MPI_REQUEST_NULL;
    MPI_Status status;
    int index = 0, flag = 0, count = 0, sizes[1], size = -1;
    OK(MPI_Comm_group(comm, &world));
    OK(MPI_Group_incl(world, 0, NULL, &empty));
    OK(MPI_Group_compare(empty, MPI_GROUP_EMPTY, &flag));
    CHECK(flag == MPI_IDENT);
    OK(MPI_Group_difference(world, world, &other));
    OK(MPI_Group_size(other, &size));
    CHECK(size == 0);
    OK(MPI_Comm_create(comm, empty, &none));
    CHECK(none == MPI_COMM_NULL);
    none = MPI_COMM_SELF;
    OK(MPI_Comm_create_group(comm, MPI_GROUP_EMPTY, 0, &none));
    CHECK(none == MPI_COMM_NULL);
    OK(MPI_Comm_split(comm, MPI_UNDEFINED, 0, &none));
    CHECK(none == MPI_COMM_NULL);
    FAILS(MPI_Comm_split(comm, -1, 0, &none), MPI_ERR_ARG);
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&empty));
    OK(MPI_Group_free(&other));
    OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    OK(MPI_Testall(0, NULL, &flag, MPI_STATUSES_IGNORE));
    CHECK(flag);
    OK(MPI_Waitany(0, NULL, &index, &status));
    CHECK(index == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE);
    OK(MPI_Testany(0, NULL, &index, &flag, MPI_STATUS_IGNORE));
    CHECK(flag && index == MPI_UNDEFINED);
    OK(MPI_Testany(1, &null, &index, &flag, &status));
    CHECK(flag && index == MPI_UNDEFINED && status.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Waitsome(1, &null, &count, &index, MPI_STATUSES_IGNORE));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Testsome(0, NULL, &count, NULL, MPI_STATUSES_IGNORE));
    CHECK(count == MPI_UNDEFINED);
    FAILS(MPI_Startall(1, &null), MPI_ERR_REQUEST);
    /* Nothing is read and nothing written. */
    OK(MPI_Bcast(NULL, 0, MPI_INT, 0, comm));
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, comm));
    OK(MPI_Allgather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, comm));
    OK(MPI_Cart_create(comm, 0, NULL, NULL, 0, &none));
    CHECK((none == MPI_COMM_NULL) == (world_rank > 0));
    if (none != MPI_COMM_NULL) {
        OK(MPI_Cartdim_get(none, &size));
        CHECK(size == 0);
        OK(MPI_Cart_get(none, 0, sizes, sizes, sizes));
        OK(MPI_Cart_rank(none, NULL, &size));
        CHECK(size == 0);
        OK(MPI_Comm_free(&none));
    }
    OK(MPI_Comm_free(&comm));
}

/* Errors of several requests: the call says so, each status tells its own, and the rest is done. */
static void errors_in_statuses(void)
{
    MPI_Comm comm = errors_return(MPI_COMM_SELF);
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int in[3] = {-1, -1, -1}, out[2] = {8, 9}, code;
    OK(MPI_Irecv(&in[0], 1, MPI_INT, 0, 0, comm, &requests[0]));
    OK(MPI_Irecv(&in[1], 1, MPI_INT, 0, 1, comm, &requests[1]));
    requests[2] = MPI_REQUEST_NULL;
    OK(MPI_Send(out, 2, MPI_INT, 0, 0, comm));
    OK(MPI_Send(out, 1, MPI_INT, 0, 1, comm));
    code = MPI_Waitall(3, requests, statuses);
    CHECK(code == MPI_ERR_IN_STATUS);
    CHECK(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE && statuses[1].MPI_ERROR == MPI_SUCCESS &&
          statuses[2].MPI_ERROR == MPI_SUCCESS);
    CHECK(in[1] == 8 && requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    FAILS(MPI_Type_free(&(MPI_Datatype){MPI_INT}), MPI_ERR_TYPE);
    OK(MPI_Comm_free(&comm));
}

/* Weights that differ on each edge, no edge at all, and an edge to oneself, twice. */
static void odd_graphs(void)
{
    MPI_Comm graph;
    int size = world_size, sources[2] = {world_rank, world_rank}, weights[2] = {7, world_rank + 1}, in = -1, out = -1;
    int weighted = -1, from[2], from_weights[2], to[2], to_weights[2], mine = world_rank, got[2] = {-1, -1};
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, weights, 2, sources, weights, MPI_INFO_NULL, 0,
                                      &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
    CHECK(in == 2 && out == 2 && weighted);
    OK(MPI_Dist_graph_neighbors(graph, 2, from, from_weights, 2, to, to_weights));
    CHECK(from[0] == world_rank && from_weights[1] == world_rank + 1 && to_weights[0] == 7);
    OK(MPI_Neighbor_alltoall((int[]){mine, mine + 100}, 1, MPI_INT, got, 1, MPI_INT, graph));
    CHECK(got[0] == mine && got[1] == mine + 100);
    OK(MPI_Comm_free(&graph));
    OK(MPI_Dist_graph_create(MPI_COMM_WORLD, 0, NULL, NULL, NULL, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
    CHECK(in == 0 && out == 0 && weighted);
    OK(MPI_Neighbor_allgather(&mine, 1, MPI_INT, NULL, 1, MPI_INT, graph));
    OK(MPI_Comm_free(&graph));
    /* Rank 0 knows all edges: a star, each ray with a weight of its own. */
    int *rays = allocate((size_t)size * sizeof(int)), *costs = allocate((size_t)size * sizeof(int));
    for (int i = 0; i < size; i++) {
        rays[i] = i;
        costs[i] = 10 + i;
    }
    OK(MPI_Dist_graph_create(MPI_COMM_WORLD, world_rank == 0, (int[]){0}, &size, rays, costs, MPI_INFO_NULL, 0,
                             &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
    CHECK(in == 1 && out == (world_rank == 0 ? size : 0) && weighted);
    OK(MPI_Dist_graph_neighbors(graph, 1, from, from_weights, 0, NULL, NULL));
    CHECK(from[0] == 0 && from_weights[0] == 10 + world_rank);
    OK(MPI_Comm_free(&graph));
    free(rays);
    free(costs);
}

/* The order of a merge: by the flags where they differ, one order for all where they do not. */
static void merges(void)
{
    MPI_Comm half, inter, merged;
    int side = world_rank % 2, leader = 1 - side;
    if (world_size < 2)
        return;
    OK(MPI_Comm_split(MPI_COMM_WORLD, side, 0, &half));
    OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, leader, 5, &inter));
    for (int flags = 0; flags < 4; flags++) {
        int high = side ? flags / 2 : flags % 2, rank, ours, first_of_other;
        OK(MPI_Intercomm_merge(inter, high, &merged));
        OK(MPI_Comm_rank(merged, &rank));
        OK(MPI_Comm_size(half, &ours));
        first_of_other = side ? 0 : 1;
        OK(MPI_Allreduce(&(int){side ? world_size : rank}, &first_of_other, 1, MPI_INT, MPI_MIN, merged));
        if (flags == 1) /* the even ones are high */
            CHECK(first_of_other == world_size / 2);
        if (flags == 2)
            CHECK(first_of_other == 0);
        CHECK(flags == 1 || flags == 2 || first_of_other == 0 || first_of_other == world_size / 2);
        OK(MPI_Comm_free(&merged));
    }
    OK(MPI_Comm_free(&inter));
    OK(MPI_Comm_free(&half));
}

/* Programs name no datatype where nothing is sent; of one element it is a mistake as ever. */
static void nothing_of_no_type(void)
{
    MPI_Comm comm = errors_return(MPI_COMM_WORLD);
    const int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    MPI_Request requests[2];
    MPI_Status status;
    int byte = 0, count = 1;
    OK(MPI_Sendrecv(NULL, 0, MPI_DATATYPE_NULL, right, 1, NULL, 0, MPI_DATATYPE_NULL, left, 1, comm, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == 0 && status.MPI_SOURCE == left);
    OK(MPI_Irecv(NULL, 0, MPI_DATATYPE_NULL, left, 2, comm, &requests[0]));
    OK(MPI_Isend(NULL, 0, MPI_DATATYPE_NULL, right, 2, comm, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Bcast(NULL, 0, MPI_DATATYPE_NULL, 0, comm));
    FAILS(MPI_Isend(&byte, 1, MPI_DATATYPE_NULL, right, 3, comm, &requests[0]), MPI_ERR_TYPE);
    FAILS(MPI_Bcast(&byte, 1, MPI_DATATYPE_NULL, 0, comm), MPI_ERR_TYPE);
    OK(MPI_Comm_free(&comm));
}

/* Nobody as partner, and the limits of names, keys and values. */
static void nobody_and_limits(void)
{
    MPI_Message message;
    MPI_Status status;
    MPI_Info info;
    MPI_Comm comm = errors_return(MPI_COMM_WORLD);
    char key[MPI_MAX_INFO_KEY + 2], *value = allocate(MPI_MAX_INFO_VAL + 2), name[MPI_MAX_OBJECT_NAME + 40], text[8];
    int flag = 0, length, byte = 0;
    OK(MPI_Mprobe(MPI_PROC_NULL, 0, comm, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Mrecv(&byte, 1, MPI_BYTE, &message, &status));
    CHECK(message == MPI_MESSAGE_NULL && status.MPI_SOURCE == MPI_PROC_NULL);
    OK(MPI_Iprobe(MPI_PROC_NULL, 0, comm, &flag, MPI_STATUS_IGNORE));
    CHECK(flag);
    FAILS(MPI_Send(&byte, 1, MPI_BYTE, MPI_ANY_SOURCE, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(&byte, 1, MPI_BYTE, 0, MPI_ANY_TAG, comm), MPI_ERR_TAG);
    FAILS(MPI_Bsend(&byte, 1, MPI_BYTE, 0, 0, comm), MPI_ERR_BUFFER);
    memset(key, 'k', sizeof key);
    memset(value, 'v', MPI_MAX_INFO_VAL + 2);
    key[MPI_MAX_INFO_KEY - 1] = value[MPI_MAX_INFO_VAL - 1] = 0;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, key, value));
    length = sizeof text;
    OK(MPI_Info_get_string(info, key, &length, text, &flag));
    CHECK(flag && length == MPI_MAX_INFO_VAL && strcmp(text, "vvvvvvv") == 0);
    key[MPI_MAX_INFO_KEY - 1] = 'k';
    key[MPI_MAX_INFO_KEY] = 0;
    FAILS(MPI_Info_set(info, key, "short"), MPI_ERR_INFO_KEY);
    FAILS(MPI_Info_set(info, "", "short"), MPI_ERR_INFO_KEY);
    value[MPI_MAX_INFO_VAL - 1] = 'v';
    value[MPI_MAX_INFO_VAL] = 0;
    FAILS(MPI_Info_set(info, "short", value), MPI_ERR_INFO_VALUE);
    FAILS(MPI_Info_delete(info, "short"), MPI_ERR_INFO_NOKEY);
    OK(MPI_Info_free(&info));
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    OK(MPI_Comm_set_name(comm, name));
    OK(MPI_Comm_get_name(comm, name, &length));
    CHECK(length < MPI_MAX_OBJECT_NAME && (int)strlen(name) == length);
    free(value);
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)); /* asked where a call names no communicator */
    freed_in_flight();
    freed_requests();
    failing_attributes();
    self_freeing_handler();
    empty_things();
    errors_in_statuses();
    odd_graphs();
    merges();
    nothing_of_no_type();
    nobody_and_limits();
    return finish();
}
