/* Neighbourhood collectives in all forms over grids (dimensions of one and two, with and without ends) and
 * distributed graphs, against an oracle made of plain sends. */
#include "check.h"

/* The compiler takes MPI_UNWEIGHTED for an array without elements. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overread"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

enum { neighbours_max = 16, block_max = 4 };

static MPI_Comm comm;
static int rank;
static int in_count, out_count;
static int in[neighbours_max], out[neighbours_max];
/* The place of each source's edge in its own list of destinations. */
static int in_edge[neighbours_max];

/* Element `i` of what `from` sends along its edge number `edge`. */
static int value(int from, int edge, int i)
{
    return 1000 * from + 10 * edge + i;
}

enum form { blocking, background, persistent };

/* Waits for a request; a persistent one is started twice. */
static void run(enum form form, MPI_Request *request, int *receives)
{
    if (form == blocking)
        return;
    if (form == persistent) {
        OK(MPI_Start(request));
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
        memset(receives, 0xff, sizeof(int) * neighbours_max * block_max);
        OK(MPI_Start(request));
        OK(MPI_Wait(request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(request));
        return;
    }
    OK(MPI_Wait(request, MPI_STATUS_IGNORE));
}

/* Counts per edge that both ends know. */
static int count_of(int from, int edge)
{
    return (from + edge) % block_max;
}

static void expect(const int *receives, const int *starts, const int *counts, int gathered)
{
    for (int i = 0; i < in_count; i++)
        for (int k = 0; k < counts[i]; k++) {
            int got = receives[starts[i] + k];
            int wanted = in[i] == MPI_PROC_NULL ? -1 : value(in[i], gathered ? 0 : in_edge[i], k);
            if (got != wanted)
                fprintf(stderr, "rank %d, source %d (%d): %d for %d\n", rank, i, in[i], got, wanted);
            CHECK(got == wanted);
        }
}

static void all_forms(enum form form)
{
    int sends[neighbours_max * block_max], receives[neighbours_max * block_max];
    int send_counts[neighbours_max], send_starts[neighbours_max], counts[neighbours_max], starts[neighbours_max];
    MPI_Aint send_places[neighbours_max], places[neighbours_max];
    MPI_Datatype types[neighbours_max];
    MPI_Request request = MPI_REQUEST_NULL;

    for (int i = 0; i < neighbours_max; i++) {
        types[i] = MPI_INT;
        counts[i] = 2, starts[i] = 2 * i;
    }

    for (int k = 0; k < block_max; k++)
        sends[k] = value(rank, 0, k);
    memset(receives, 0xff, sizeof receives);
    if (form == blocking)
        OK(MPI_Neighbor_allgather(sends, 2, MPI_INT, receives, 2, MPI_INT, comm));
    else if (form == background)
        OK(MPI_Ineighbor_allgather(sends, 2, MPI_INT, receives, 2, MPI_INT, comm, &request));
    else
        OK(MPI_Neighbor_allgather_init(sends, 2, MPI_INT, receives, 2, MPI_INT, comm, MPI_INFO_NULL, &request));
    run(form, &request, receives);
    expect(receives, starts, counts, 1);

    for (int i = 0; i < in_count; i++)
        counts[i] = in[i] == MPI_PROC_NULL ? 1 : in[i] % block_max, starts[i] = block_max * (in_count - 1 - i);
    memset(receives, 0xff, sizeof receives);
    int own = rank % block_max;
    if (form == blocking)
        OK(MPI_Neighbor_allgatherv(sends, own, MPI_INT, receives, counts, starts, MPI_INT, comm));
    else if (form == background)
        OK(MPI_Ineighbor_allgatherv(sends, own, MPI_INT, receives, counts, starts, MPI_INT, comm, &request));
    else
        OK(MPI_Neighbor_allgatherv_init(sends, own, MPI_INT, receives, counts, starts, MPI_INT, comm, MPI_INFO_NULL,
                                        &request));
    run(form, &request, receives);
    expect(receives, starts, counts, 1);

    for (int i = 0; i < out_count; i++)
        for (int k = 0; k < 2; k++)
            sends[2 * i + k] = value(rank, i, k);
    for (int i = 0; i < in_count; i++)
        counts[i] = 2, starts[i] = 2 * i;
    memset(receives, 0xff, sizeof receives);
    if (form == blocking)
        OK(MPI_Neighbor_alltoall(sends, 2, MPI_INT, receives, 2, MPI_INT, comm));
    else if (form == background)
        OK(MPI_Ineighbor_alltoall(sends, 2, MPI_INT, receives, 2, MPI_INT, comm, &request));
    else
        OK(MPI_Neighbor_alltoall_init(sends, 2, MPI_INT, receives, 2, MPI_INT, comm, MPI_INFO_NULL, &request));
    run(form, &request, receives);
    expect(receives, starts, counts, 0);

    for (int i = 0; i < out_count; i++) {
        send_counts[i] = count_of(rank, i), send_starts[i] = block_max * i;
        send_places[i] = (MPI_Aint)sizeof(int) * send_starts[i];
        for (int k = 0; k < send_counts[i]; k++)
            sends[send_starts[i] + k] = value(rank, i, k);
    }
    for (int i = 0; i < in_count; i++) {
        counts[i] = in[i] == MPI_PROC_NULL ? 1 : count_of(in[i], in_edge[i]);
        starts[i] = block_max * (in_count - 1 - i);
        places[i] = (MPI_Aint)sizeof(int) * starts[i];
    }
    memset(receives, 0xff, sizeof receives);
    if (form == blocking)
        OK(MPI_Neighbor_alltoallv(sends, send_counts, send_starts, MPI_INT, receives, counts, starts, MPI_INT, comm));
    else if (form == background)
        OK(MPI_Ineighbor_alltoallv(sends, send_counts, send_starts, MPI_INT, receives, counts, starts, MPI_INT, comm,
                                   &request));
    else
        OK(MPI_Neighbor_alltoallv_init(sends, send_counts, send_starts, MPI_INT, receives, counts, starts, MPI_INT,
                                       comm, MPI_INFO_NULL, &request));
    run(form, &request, receives);
    expect(receives, starts, counts, 0);

    memset(receives, 0xff, sizeof receives);
    if (form == blocking)
        OK(MPI_Neighbor_alltoallw(sends, send_counts, send_places, types, receives, counts, places, types, comm));
    else if (form == background)
        OK(MPI_Ineighbor_alltoallw(sends, send_counts, send_places, types, receives, counts, places, types, comm,
                                   &request));
    else
        OK(MPI_Neighbor_alltoallw_init(sends, send_counts, send_places, types, receives, counts, places, types, comm,
                                       MPI_INFO_NULL, &request));
    run(form, &request, receives);
    expect(receives, starts, counts, 0);
}

static void every_form(void)
{
    OK(MPI_Comm_rank(comm, &rank));
    for (enum form form = blocking; form <= persistent; form++)
        all_forms(form);
    /* Many at once, completed in reverse. */
    MPI_Request requests[4];
    int one = rank, got[4][neighbours_max];
    for (int i = 0; i < 4; i++)
        OK(MPI_Ineighbor_allgather(&one, 1, MPI_INT, got[i], 1, MPI_INT, comm, &requests[i]));
    for (int i = 3; i >= 0; i--) {
        OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        for (int k = 0; k < in_count; k++)
            CHECK(in[k] == MPI_PROC_NULL || got[i][k] == in[k]);
    }
    CHECK(class_of(MPI_Neighbor_allgather(MPI_IN_PLACE, 1, MPI_INT, got, 1, MPI_INT, comm)) != MPI_SUCCESS);
    OK(MPI_Comm_free(&comm));
}

/* What arrives as from before was sent to after, and the other way round, even if both are the same rank. */
static void grid(int dimensions, const int *extents, const int *periods)
{
    OK(MPI_Cart_create(MPI_COMM_WORLD, dimensions, extents, periods, 0, &comm));
    if (comm == MPI_COMM_NULL)
        return;
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    in_count = out_count = 2 * dimensions;
    for (int i = 0; i < dimensions; i++) {
        OK(MPI_Cart_shift(comm, i, 1, &in[2 * i], &in[2 * i + 1]));
        in_edge[2 * i] = 2 * i + 1, in_edge[2 * i + 1] = 2 * i;
        out[2 * i] = in[2 * i], out[2 * i + 1] = in[2 * i + 1];
    }
    every_form();
}

/* Rank r sends to r + 1, twice to r + 2, and to itself. */
static void graph(void)
{
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    int n = world_size;
    out_count = in_count = 4;
    int ahead[4] = {1, 2, 2, 0};
    for (int i = 0; i < 4; i++)
        out[i] = (rank + ahead[i]) % n, in[i] = ((rank - ahead[i]) % n + n) % n, in_edge[i] = i;
    /* Edges between the same two ranks are matched in order. */
    for (int i = 0; i < 4; i++) {
        int nth = 0, edge;
        for (int k = 0; k < i; k++)
            nth += in[k] == in[i];
        for (edge = 0; edge < 4; edge++)
            if ((in[i] + ahead[edge]) % n == rank && nth-- == 0)
                break;
        in_edge[i] = edge;
    }
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 4, in, MPI_UNWEIGHTED, 4, out, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                      &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    every_form();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    int extents[3], periods[3];
    for (int wrap = 0; wrap < 8; wrap++) {
        periods[0] = wrap & 1, periods[1] = wrap >> 1 & 1, periods[2] = wrap >> 2;
        for (extents[0] = 1; extents[0] <= world_size; extents[0]++) {
            if (wrap < 2)
                grid(1, extents, periods);
            for (extents[1] = 1; extents[0] * extents[1] <= world_size; extents[1]++)
                for (extents[2] = 1; extents[0] * extents[1] * extents[2] <= world_size; extents[2]++)
                    grid(3, extents, periods);
        }
    }
    graph();
    int nothing, code = MPI_Neighbor_alltoall(&nothing, 1, MPI_INT, &nothing, 1, MPI_INT, MPI_COMM_WORLD);
    CHECK(class_of(code) == MPI_ERR_TOPOLOGY);
    return finish();
}
