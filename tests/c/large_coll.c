/* The large-count forms of all collectives (blocking, non-blocking, persistent) against the small blocking ones. */
#include "check.h"

enum { n = 7, most = 4096, starts = 2 };

static int in[most], expected[most], got[most], *out;
static int rank, size;
static MPI_Comm comm;
static MPI_Request request;

/* Counts and displacements of the vector forms: of what rank `from` sends to rank `to`, small and large. */
static int scounts[64], sdispls[64], rcounts[64], rdispls[64], wsdispls[64], wrdispls[64];
static MPI_Count scounts_c[64], rcounts_c[64];
static MPI_Aint sdispls_c[64], rdispls_c[64], wsdispls_c[64], wrdispls_c[64];
static MPI_Datatype types[64];

static void clear(int *memory)
{
    for (int i = 0; i < most; i++)
        memory[i] = -1 - i % 3;
    out = memory;
}

static void same(const char *call, const char *form)
{
    if (memcmp(expected, got, sizeof got) != 0) {
        fprintf(stderr, "rank %d of %d: %s differs in its %s form\n", rank, size, call, form);
        CHECK(!"the forms give the same result");
    }
    clear(got);
}

/* `small` and the others are calls that write to `out`; the last two give `request`. */
#define COMPARE(small, large, started, made)          \
    do {                                              \
        clear(expected);                              \
        OK(small);                                    \
        clear(got);                                   \
        OK(large);                                    \
        same(#small, "blocking");                     \
        OK(started);                                  \
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));    \
        same(#small, "non-blocking");                 \
        OK(made);                                     \
        for (int start = 0; start < starts; start++) { \
            OK(MPI_Start(&request));                  \
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE)); \
            same(#small, "persistent");               \
        }                                             \
        OK(MPI_Request_free(&request));               \
    } while (0)

static int count_between(int from, int to)
{
    return (from * 3 + to * 5) % 4;
}

/* What this rank exchanges with `partners` others, of which number `i` is rank `ranks[i]`. */
static void lay_out(int partners, const int *sources, const int *destinations)
{
    int at_send = 1, at_receive = 2;
    for (int i = 0; i < partners; i++) {
        scounts_c[i] = scounts[i] = count_between(rank, destinations[i]);
        rcounts_c[i] = rcounts[i] = count_between(sources[i], rank);
        sdispls_c[i] = sdispls[i] = at_send;
        rdispls_c[i] = rdispls[i] = at_receive;
        wsdispls_c[i] = wsdispls[i] = at_send * (int)sizeof(int);
        wrdispls_c[i] = wrdispls[i] = at_receive * (int)sizeof(int);
        types[i] = MPI_INT;
        at_send += scounts[i] + 1;
        at_receive += rcounts[i] + 2;
    }
}

#define SEND in, n, MPI_INT
#define RECV out, n, MPI_INT
#define TAIL comm, MPI_INFO_NULL, &request

static void equal_blocks(int root)
{
    COMPARE(MPI_Gather(SEND, RECV, root, comm), MPI_Gather_c(SEND, RECV, root, comm),
            MPI_Igather_c(SEND, RECV, root, comm, &request), MPI_Gather_init_c(SEND, RECV, root, TAIL));
    COMPARE(MPI_Scatter(SEND, RECV, root, comm), MPI_Scatter_c(SEND, RECV, root, comm),
            MPI_Iscatter_c(SEND, RECV, root, comm, &request), MPI_Scatter_init_c(SEND, RECV, root, TAIL));
    COMPARE(MPI_Allgather(SEND, RECV, comm), MPI_Allgather_c(SEND, RECV, comm),
            MPI_Iallgather_c(SEND, RECV, comm, &request), MPI_Allgather_init_c(SEND, RECV, TAIL));
    COMPARE(MPI_Alltoall(SEND, RECV, comm), MPI_Alltoall_c(SEND, RECV, comm),
            MPI_Ialltoall_c(SEND, RECV, comm, &request), MPI_Alltoall_init_c(SEND, RECV, TAIL));
}

static void broadcast(int root)
{
#define OWN (rank == root ? in : out), n, MPI_INT, root
    COMPARE(MPI_Bcast(OWN, comm), MPI_Bcast_c(OWN, comm), MPI_Ibcast_c(OWN, comm, &request),
            MPI_Bcast_init_c(OWN, TAIL));
#undef OWN
}

static void reductions(int root)
{
    const MPI_Op op = MPI_SUM;
    COMPARE(MPI_Reduce(in, out, n, MPI_INT, op, root, comm), MPI_Reduce_c(in, out, n, MPI_INT, op, root, comm),
            MPI_Ireduce_c(in, out, n, MPI_INT, op, root, comm, &request),
            MPI_Reduce_init_c(in, out, n, MPI_INT, op, root, TAIL));
    COMPARE(MPI_Allreduce(in, out, n, MPI_INT, op, comm), MPI_Allreduce_c(in, out, n, MPI_INT, op, comm),
            MPI_Iallreduce_c(in, out, n, MPI_INT, op, comm, &request),
            MPI_Allreduce_init_c(in, out, n, MPI_INT, op, TAIL));
    COMPARE(MPI_Scan(in, out, n, MPI_INT, op, comm), MPI_Scan_c(in, out, n, MPI_INT, op, comm),
            MPI_Iscan_c(in, out, n, MPI_INT, op, comm, &request), MPI_Scan_init_c(in, out, n, MPI_INT, op, TAIL));
    COMPARE(MPI_Exscan(in, out, n, MPI_INT, op, comm), MPI_Exscan_c(in, out, n, MPI_INT, op, comm),
            MPI_Iexscan_c(in, out, n, MPI_INT, op, comm, &request), MPI_Exscan_init_c(in, out, n, MPI_INT, op, TAIL));
    COMPARE(MPI_Exscan(in, out, n, MPI_INT, op, comm), MPI_Exscan(in, out, n, MPI_INT, op, comm),
            MPI_Iexscan(in, out, n, MPI_INT, op, comm, &request), MPI_Exscan_init(in, out, n, MPI_INT, op, TAIL));
    COMPARE(MPI_Reduce_scatter_block(in, out, n, MPI_INT, op, comm),
            MPI_Reduce_scatter_block_c(in, out, n, MPI_INT, op, comm),
            MPI_Ireduce_scatter_block_c(in, out, n, MPI_INT, op, comm, &request),
            MPI_Reduce_scatter_block_init_c(in, out, n, MPI_INT, op, TAIL));
    for (int i = 0; i < size; i++)
        rcounts_c[i] = rcounts[i] = i % 3;
    COMPARE(MPI_Reduce_scatter(in, out, rcounts, MPI_INT, op, comm),
            MPI_Reduce_scatter_c(in, out, rcounts_c, MPI_INT, op, comm),
            MPI_Ireduce_scatter_c(in, out, rcounts_c, MPI_INT, op, comm, &request),
            MPI_Reduce_scatter_init_c(in, out, rcounts_c, MPI_INT, op, TAIL));
}

/* Everybody sends `mine` elements to the root, or gets as many of it. */
static void one_to_many(int root)
{
    int mine = rank % 3 + 1, at = 0;
    for (int i = 0; i < size; i++) {
        rcounts_c[i] = rcounts[i] = i % 3 + 1;
        rdispls_c[i] = rdispls[i] = at;
        at += rcounts[i] + 1;
    }
#define MINE in, mine, MPI_INT
#define SMALL rcounts, rdispls, MPI_INT
#define LARGE rcounts_c, rdispls_c, MPI_INT
    COMPARE(MPI_Gatherv(MINE, out, SMALL, root, comm), MPI_Gatherv_c(MINE, out, LARGE, root, comm),
            MPI_Igatherv_c(MINE, out, LARGE, root, comm, &request), MPI_Gatherv_init_c(MINE, out, LARGE, root, TAIL));
    COMPARE(MPI_Allgatherv(MINE, out, SMALL, comm), MPI_Allgatherv_c(MINE, out, LARGE, comm),
            MPI_Iallgatherv_c(MINE, out, LARGE, comm, &request), MPI_Allgatherv_init_c(MINE, out, LARGE, TAIL));
    COMPARE(MPI_Scatterv(in, SMALL, out, mine, MPI_INT, root, comm),
            MPI_Scatterv_c(in, LARGE, out, mine, MPI_INT, root, comm),
            MPI_Iscatterv_c(in, LARGE, out, mine, MPI_INT, root, comm, &request),
            MPI_Scatterv_init_c(in, LARGE, out, mine, MPI_INT, root, TAIL));
#undef MINE
#undef SMALL
#undef LARGE
}

#define SMALL in, scounts, sdispls, MPI_INT, out, rcounts, rdispls, MPI_INT
#define LARGE in, scounts_c, sdispls_c, MPI_INT, out, rcounts_c, rdispls_c, MPI_INT
#define PARTS_SMALL in, scounts, wsdispls, types, out, rcounts, wrdispls, types
#define PARTS_LARGE in, scounts_c, wsdispls_c, types, out, rcounts_c, wrdispls_c, types

static void many_to_many(void)
{
    int all[64];
    for (int i = 0; i < size; i++)
        all[i] = i;
    lay_out(size, all, all);
    COMPARE(MPI_Alltoallv(SMALL, comm), MPI_Alltoallv_c(LARGE, comm), MPI_Ialltoallv_c(LARGE, comm, &request),
            MPI_Alltoallv_init_c(LARGE, TAIL));
    COMPARE(MPI_Alltoallw(PARTS_SMALL, comm), MPI_Alltoallw_c(PARTS_LARGE, comm),
            MPI_Ialltoallw_c(PARTS_LARGE, comm, &request), MPI_Alltoallw_init_c(PARTS_LARGE, TAIL));
}

/* The neighbourhood forms, on a ring. Here the small blocking form of `w` has displacements of type MPI_Aint, too. */
static void neighbours(void)
{
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    int sources[] = {left, right}, destinations[] = {right, left}, gathered[] = {left, right};
    MPI_Comm before = comm;
    OK(MPI_Dist_graph_create_adjacent(before, 2, sources, MPI_UNWEIGHTED, 2, destinations, MPI_UNWEIGHTED,
                                      MPI_INFO_NULL, 0, &comm));
    COMPARE(MPI_Neighbor_allgather(SEND, RECV, comm), MPI_Neighbor_allgather_c(SEND, RECV, comm),
            MPI_Ineighbor_allgather_c(SEND, RECV, comm, &request), MPI_Neighbor_allgather_init_c(SEND, RECV, TAIL));
    COMPARE(MPI_Neighbor_alltoall(SEND, RECV, comm), MPI_Neighbor_alltoall_c(SEND, RECV, comm),
            MPI_Ineighbor_alltoall_c(SEND, RECV, comm, &request), MPI_Neighbor_alltoall_init_c(SEND, RECV, TAIL));
    lay_out(2, gathered, destinations);
    COMPARE(MPI_Neighbor_alltoallv(SMALL, comm), MPI_Neighbor_alltoallv_c(LARGE, comm),
            MPI_Ineighbor_alltoallv_c(LARGE, comm, &request), MPI_Neighbor_alltoallv_init_c(LARGE, TAIL));
#define WITH(counts) in, s##counts, wsdispls_c, types, out, r##counts, wrdispls_c, types
    COMPARE(MPI_Neighbor_alltoallw(WITH(counts), comm), MPI_Neighbor_alltoallw_c(WITH(counts_c), comm),
            MPI_Ineighbor_alltoallw_c(WITH(counts_c), comm, &request),
            MPI_Neighbor_alltoallw_init_c(WITH(counts_c), TAIL));
#undef WITH
    for (int i = 0; i < 2; i++)
        rcounts_c[i] = rcounts[i] = n;
    rdispls_c[1] = rdispls[1] = rdispls[0] + n + 3;
    COMPARE(MPI_Neighbor_allgatherv(SEND, out, rcounts, rdispls, MPI_INT, comm),
            MPI_Neighbor_allgatherv_c(SEND, out, rcounts_c, rdispls_c, MPI_INT, comm),
            MPI_Ineighbor_allgatherv_c(SEND, out, rcounts_c, rdispls_c, MPI_INT, comm, &request),
            MPI_Neighbor_allgatherv_init_c(SEND, out, rcounts_c, rdispls_c, MPI_INT, TAIL));
    OK(MPI_Comm_free(&comm));
    comm = before;
}

static void sum_large(void *input, void *inout, MPI_Count *count, MPI_Datatype *type)
{
    CHECK(*type == MPI_INT);
    for (MPI_Count i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)input)[i];
}

/* An operation of the user with a large count, in both kinds of call. */
static void user_operation(void)
{
    MPI_Op op;
    int mine[3] = {rank, 1, 2}, sum[3] = {10, 20, 30};
    OK(MPI_Op_create_c(sum_large, 1, &op));
    OK(MPI_Reduce_local_c(mine, sum, 3, MPI_INT, op));
    CHECK(sum[0] == 10 + rank && sum[1] == 21 && sum[2] == 32);
    OK(MPI_Allreduce(mine, sum, 3, MPI_INT, op, comm));
    CHECK(sum[0] == size * (size - 1) / 2 && sum[1] == size && sum[2] == 2 * size);
    OK(MPI_Allreduce_c(mine, sum, 3, MPI_INT, op, comm));
    CHECK(sum[0] == size * (size - 1) / 2 && sum[1] == size && sum[2] == 2 * size);
    OK(MPI_Op_free(&op));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    rank = world_rank;
    size = world_size;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < most; i++)
        in[i] = rank * 10000 + i;
    for (int root = 0; root < size; root += size > 1 ? size - 1 : 1) {
        equal_blocks(root);
        broadcast(root);
        reductions(root);
        one_to_many(root);
    }
    many_to_many();
    neighbours();
    user_operation();
    OK(MPI_Comm_free(&comm));
    return finish();
}
