/* Corners of several chapters that programs seldom visit. */
#include "check.h"

/* What is neither a message nor a generalized request is not cancelled: the call says so, and the operation goes on. */
static void nothing_to_cancel(void)
{
    MPI_Request request, persistent;
    int one = 1, sum = 0, data[4] = {0}, peer = world_rank ^ 1;
    OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == world_size);
    OK(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &persistent));
    OK(MPI_Start(&persistent));
    CHECK(class_of(MPI_Cancel(&persistent)) == MPI_ERR_REQUEST);
    OK(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&persistent));
    if (peer < world_size) {
        if (world_rank % 2 == 0)
            OK(MPI_Psend_init(data, 2, 2, MPI_INT, peer, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        else
            OK(MPI_Precv_init(data, 1, 4, MPI_INT, peer, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST);
        if (world_rank % 2 == 0)
            OK(MPI_Pready_range(0, 1, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(&request));
    }
    request = MPI_REQUEST_NULL;
    CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST);
}

/* A persistent send is cancelled in one round and received in the next. */
static void persistent_sends(void)
{
    int value = 7, got = 0, flag = -1;
    MPI_Request request;
    MPI_Status status;
    OK(MPI_Ssend_init(&value, 1, MPI_INT, world_rank, 6, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag && request != MPI_REQUEST_NULL);
    OK(MPI_Start(&request));
    OK(MPI_Recv(&got, 1, MPI_INT, world_rank, 6, MPI_COMM_WORLD, &status));
    OK(MPI_Wait(&request, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag && got == 7);
    OK(MPI_Request_free(&request));
}

/* Operations that only one-sided calls may use. */
static void wrong_ops(void)
{
    int one = 1, got = 0;
    MPI_Request request;
    CHECK(class_of(MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_NO_OP, MPI_COMM_SELF)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_REPLACE, MPI_COMM_SELF)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Iallreduce(&one, &got, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_SELF, &request)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Allreduce(&one, &got, 1, MPI_INT, MPI_MAXLOC, MPI_COMM_SELF)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Allreduce(&one, &got, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_SELF)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Reduce_local(&one, &got, 1, MPI_INT, MPI_NO_OP)) == MPI_ERR_OP);
}

enum { plain, background, again };

static void complete(int form, MPI_Request *request)
{
    if (form == plain)
        return;
    if (form == again)
        OK(MPI_Start(request));
    OK(MPI_Wait(request, MPI_STATUS_IGNORE));
    if (form == again)
        OK(MPI_Request_free(request));
}

/* The five exchanges in three forms on a graph of the first kind, whose ranks have 0, 1 and more neighbours, some of
 * them twice, and counts that are zero for some edges. */
static void graphs(void)
{
    int index[8], edges[32], at = 0, nodes = world_size < 8 ? world_size : 8, count, rank, neighbours[16];
    /* A star round rank 0 with doubled edges to even ranks; the last rank has nobody if there are more than two. */
    int last = nodes > 2 ? nodes - 1 : nodes;
    for (int leaf = 1; leaf < last; leaf++)
        for (int twice = 0; twice < 1 + (leaf % 2 == 0); twice++)
            edges[at++] = leaf;
    index[0] = at;
    for (int leaf = 1; leaf < nodes; leaf++) {
        if (leaf < last)
            for (int twice = 0; twice < 1 + (leaf % 2 == 0); twice++)
                edges[at++] = 0;
        index[leaf] = at;
    }
    MPI_Comm graph;
    OK(MPI_Graph_create(MPI_COMM_WORLD, nodes, index, edges, 0, &graph));
    if (graph == MPI_COMM_NULL)
        return;
    OK(MPI_Comm_rank(graph, &rank));
    OK(MPI_Graph_neighbors_count(graph, rank, &count));
    OK(MPI_Graph_neighbors(graph, rank, 16, neighbours));
    for (int form = plain; form <= again; form++) {
        MPI_Request request;
        int mine[32], got[32], counts[16], zero[16], starts[16], wrong = 0;
        MPI_Aint bytes[16];
        MPI_Datatype types[16];
        for (int i = 0; i < 16; i++) {
            counts[i] = i < count && (rank == 0 ? neighbours[i] : rank) % 2;
            zero[i] = 0, starts[i] = 2 * i, bytes[i] = (MPI_Aint)sizeof(int) * 2 * i, types[i] = MPI_INT;
        }
        for (int i = 0; i < 32; i++)
            mine[i] = 100 * rank + 7, got[i] = -1;
#define RUN(name, ...)                                                                   \
    do {                                                                                 \
        if (form == plain)                                                               \
            OK(MPI_Neighbor_##name(__VA_ARGS__, graph));                                 \
        else if (form == background)                                                     \
            OK(MPI_Ineighbor_##name(__VA_ARGS__, graph, &request));                      \
        else                                                                             \
            OK(MPI_Neighbor_##name##_init(__VA_ARGS__, graph, MPI_INFO_NULL, &request)); \
        complete(form, &request);                                                        \
    } while (0)
        RUN(allgather, mine, 1, MPI_INT, got, 1, MPI_INT);
        for (int i = 0; i < 32; i++)
            wrong += got[i] != (i < count ? 100 * neighbours[i] + 7 : -1);
        CHECK(wrong == 0);
        memset(got, 0xff, sizeof got);
        RUN(alltoall, mine, 2, MPI_INT, got, 2, MPI_INT);
        for (int i = 0; i < 32; i++)
            wrong += got[i] != (i < 2 * count ? 100 * neighbours[i / 2] + 7 : -1);
        CHECK(wrong == 0);
        memset(got, 0xff, sizeof got);
        RUN(alltoallv, mine, counts, starts, MPI_INT, got, counts, starts, MPI_INT);
        for (int i = 0; i < 16; i++)
            wrong += got[2 * i] != (counts[i] ? 100 * neighbours[i] + 7 : -1) || got[2 * i + 1] != -1;
        CHECK(wrong == 0);
        memset(got, 0xff, sizeof got);
        RUN(alltoallw, mine, counts, bytes, types, got, counts, bytes, types);
        for (int i = 0; i < 16; i++)
            wrong += got[2 * i] != (counts[i] ? 100 * neighbours[i] + 7 : -1) || got[2 * i + 1] != -1;
        CHECK(wrong == 0);
        memset(got, 0xff, sizeof got);
        for (int i = 0; i < 16; i++)
            counts[i] = i < count ? 1 : 0;
        RUN(allgatherv, mine, 1, MPI_INT, got, counts, starts, MPI_INT);
        for (int i = 0; i < count; i++)
            wrong += got[2 * i] != 100 * neighbours[i] + 7 || got[2 * i + 1] != -1;
        CHECK(wrong == 0);
        memset(got, 0xff, sizeof got);
        RUN(alltoallv, NULL, zero, starts, MPI_INT, got, zero, starts, MPI_INT);
        RUN(alltoall, NULL, 0, MPI_INT, got, 0, MPI_INT);
        for (int i = 0; i < 32; i++)
            wrong += got[i] != -1;
        CHECK(wrong == 0);
    }
    OK(MPI_Comm_free(&graph));
}

/* Communicators without a topology have no neighbours. */
static void no_topology(void)
{
    int one = 1, got[4];
    MPI_Request request;
    CHECK(class_of(MPI_Neighbor_allgather(&one, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD)) == MPI_ERR_TOPOLOGY);
    CHECK(class_of(MPI_Ineighbor_alltoall(&one, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD, &request)) ==
          MPI_ERR_TOPOLOGY);
    CHECK(class_of(MPI_Neighbor_alltoall_init(&one, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL,
                                              &request)) == MPI_ERR_TOPOLOGY);
}

/* Handles as Fortran and as the ABI's numbers know them; they come back the same. */
static void numbers(void)
{
    MPI_Info info;
    MPI_Group group;
    MPI_Errhandler handler;
    MPI_Session session;
    MPI_Message message;
    OK(MPI_Info_create(&info));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &group));
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Send(NULL, 0, MPI_INT, world_rank, 9, MPI_COMM_WORLD));
    OK(MPI_Mprobe(world_rank, 9, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
    CHECK(MPI_Info_fromint(MPI_Info_toint(info)) == info);
    CHECK(MPI_Group_fromint(MPI_Group_toint(group)) == group);
    CHECK(MPI_Errhandler_fromint(MPI_Errhandler_toint(handler)) == handler);
    CHECK(MPI_Session_fromint(MPI_Session_toint(session)) == session);
    CHECK(MPI_Message_fromint(MPI_Message_toint(message)) == message);
    CHECK(MPI_Info_fromint(MPI_Info_toint(MPI_INFO_ENV)) == MPI_INFO_ENV);
    CHECK(MPI_Group_fromint(MPI_Group_toint(MPI_GROUP_EMPTY)) == MPI_GROUP_EMPTY);
    CHECK(MPI_Message_fromint(MPI_Message_toint(MPI_MESSAGE_NO_PROC)) == MPI_MESSAGE_NO_PROC);
    CHECK(MPI_Session_fromint(MPI_Session_toint(MPI_SESSION_NULL)) == MPI_SESSION_NULL);
    OK(MPI_Mrecv(NULL, 0, MPI_INT, &message, MPI_STATUS_IGNORE));
    OK(MPI_Session_finalize(&session));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Group_free(&group));
    OK(MPI_Info_free(&info));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    nothing_to_cancel();
    persistent_sends();
    wrong_ops();
    graphs();
    no_topology();
    numbers();
    return finish();
}
