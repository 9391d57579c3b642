/* Graphs known as a whole, and graphs of which each process knows its own edges. */
#include "check.h"

/* The compiler takes MPI_UNWEIGHTED for an array without elements. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overread"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif

/* The ring 0 - 1 - … - (n - 1) - 0 as a graph; on two nodes its edges are double, on one they are loops. */
static void ring(int nodes)
{
    int *index = allocate(sizeof(int) * (size_t)nodes), *edges = allocate(sizeof(int) * 2 * (size_t)nodes);
    for (int i = 0; i < nodes; i++) {
        index[i] = 2 * (i + 1);
        edges[2 * i] = (i + nodes - 1) % nodes;
        edges[2 * i + 1] = (i + 1) % nodes;
    }
    MPI_Comm graph;
    int mapped = -1, status, count, edge_count, rank, got[2] = {-1, -1};
    OK(MPI_Graph_create(MPI_COMM_WORLD, nodes, index, edges, 1, &graph));
    OK(MPI_Graph_map(MPI_COMM_WORLD, nodes, index, edges, &mapped));
    CHECK((mapped == MPI_UNDEFINED) == (world_rank >= nodes));
    CHECK((graph == MPI_COMM_NULL) == (world_rank >= nodes));
    if (graph != MPI_COMM_NULL) {
        MPI_Comm copy;
        OK(MPI_Comm_dup(graph, &copy));
        OK(MPI_Comm_free(&graph));
        OK(MPI_Topo_test(copy, &status));
        CHECK(status == MPI_GRAPH);
        OK(MPI_Graphdims_get(copy, &count, &edge_count));
        CHECK(count == nodes && edge_count == 2 * nodes);
        int *all_index = allocate(sizeof(int) * (size_t)nodes), *all_edges = allocate(sizeof(int) * 2 * (size_t)nodes);
        OK(MPI_Graph_get(copy, nodes, 2 * nodes, all_index, all_edges));
        CHECK(memcmp(index, all_index, sizeof(int) * (size_t)nodes) == 0);
        CHECK(memcmp(edges, all_edges, sizeof(int) * 2 * (size_t)nodes) == 0);
        for (int i = 0; i < nodes; i++) {
            OK(MPI_Graph_neighbors_count(copy, i, &count));
            CHECK(count == 2);
            OK(MPI_Graph_neighbors(copy, i, 2, got));
            CHECK(got[0] == edges[2 * i] && got[1] == edges[2 * i + 1]);
        }
        CHECK(class_of(MPI_Graph_neighbors_count(copy, nodes, &count)) == MPI_ERR_RANK);
        int sends[2], receives[2] = {-1, -1};
        OK(MPI_Comm_rank(copy, &rank));
        sends[0] = 10 * rank, sends[1] = 10 * rank + 1;
        OK(MPI_Neighbor_alltoall(sends, 1, MPI_INT, receives, 1, MPI_INT, copy));
        /* On two nodes or fewer both edges join the same ranks and are matched in order. */
        int before = (rank + nodes - 1) % nodes, after = (rank + 1) % nodes;
        CHECK(receives[0] == (nodes > 2 ? 10 * before + 1 : 10 * before));
        CHECK(receives[1] == (nodes > 2 ? 10 * after : 10 * after + 1));
        OK(MPI_Comm_free(&copy));
        free(all_index), free(all_edges);
    }
    free(index), free(edges);
}

static void wrong_graphs(void)
{
    MPI_Comm graph = MPI_COMM_NULL;
    int falling[2] = {1, 0}, outside[1] = {1}, edges[2] = {7000, 0};
    int *many = calloc((size_t)world_size + 1, sizeof(int));
    if (world_size > 1)
        CHECK(class_of(MPI_Graph_create(MPI_COMM_WORLD, 2, falling, edges, 0, &graph)) != MPI_SUCCESS);
    CHECK(class_of(MPI_Graph_create(MPI_COMM_WORLD, 1, outside, edges, 0, &graph)) != MPI_SUCCESS);
    CHECK(class_of(MPI_Graph_create(MPI_COMM_WORLD, world_size + 1, many, edges, 0, &graph)) != MPI_SUCCESS);
    graph = MPI_COMM_WORLD;
    OK(MPI_Graph_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &graph));
    CHECK(graph == MPI_COMM_NULL);
    free(many);
}

/* Each process has edges to the `degree` ranks after it, told by whoever `teller` says. */
static void distributed(int degree, int weighted, int teller)
{
    MPI_Comm graph;
    int size = world_size, in_count = -1, out_count = -1, is_weighted = -1, status;
    int edge_count = 0, node_count = 0;
    int *sources = allocate(sizeof(int) * (size_t)size), *degrees = allocate(sizeof(int) * (size_t)size);
    size_t edge_bytes = sizeof(int) * (size_t)(size * degree);
    int *ends = allocate(edge_bytes), *weights = allocate(edge_bytes);
    for (int source = 0; source < size; source++) {
        if (world_rank != (teller < 0 ? 0 : (source + teller) % size))
            continue;
        sources[node_count] = source;
        degrees[node_count++] = degree;
        for (int i = 0; i < degree; i++) {
            ends[edge_count] = (source + i + 1) % size;
            weights[edge_count++] = 100 * source + i;
        }
    }
    if (teller == -2) { /* everybody tells its own edges, at both ends */
        int *in = allocate(sizeof(int) * (size_t)degree), *in_weights = allocate(sizeof(int) * (size_t)degree);
        for (int i = 0; i < degree; i++) {
            in[i] = ((world_rank - i - 1) % size + size) % size;
            in_weights[i] = 100 * in[i] + i;
            ends[i] = (world_rank + i + 1) % size;
            weights[i] = 100 * world_rank + i;
        }
        OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, degree, in, weighted ? in_weights : MPI_UNWEIGHTED, degree,
                                          ends, weighted ? weights : MPI_UNWEIGHTED, MPI_INFO_NULL, 1, &graph));
        free(in), free(in_weights);
    } else {
        int *given = !weighted ? MPI_UNWEIGHTED : edge_count ? weights : MPI_WEIGHTS_EMPTY;
        OK(MPI_Dist_graph_create(MPI_COMM_WORLD, node_count, sources, degrees, ends, given, MPI_INFO_NULL, 0, &graph));
    }
    OK(MPI_Topo_test(graph, &status));
    CHECK(status == MPI_DIST_GRAPH);
    OK(MPI_Dist_graph_neighbors_count(graph, &in_count, &out_count, &is_weighted));
    CHECK(in_count == degree && out_count == degree && !!is_weighted == !!weighted);
    int *in = allocate(sizeof(int) * (size_t)degree), *in_weights = allocate(sizeof(int) * (size_t)degree);
    int *out = allocate(sizeof(int) * (size_t)degree), *out_weights = allocate(sizeof(int) * (size_t)degree);
    OK(MPI_Dist_graph_neighbors(graph, degree, in, weighted ? in_weights : MPI_UNWEIGHTED, degree, out,
                                weighted ? out_weights : MPI_UNWEIGHTED));
    /* Order is the library's; every edge occurs once. */
    for (int i = 0; i < degree; i++) {
        int found_in = 0, found_out = 0;
        for (int j = 0; j < degree; j++) {
            int from = ((world_rank - i - 1) % size + size) % size, to = (world_rank + i + 1) % size;
            found_in += in[j] == from && (!weighted || in_weights[j] == 100 * from + i);
            found_out += out[j] == to && (!weighted || out_weights[j] == 100 * world_rank + i);
        }
        if (weighted)
            CHECK(found_in == 1 && found_out == 1);
        else
            CHECK(found_in >= 1 && found_out >= 1);
    }
    /* What is sent along each edge arrives along it. */
    int *sends = allocate(sizeof(int) * (size_t)degree), *receives = allocate(sizeof(int) * (size_t)degree);
    for (int i = 0; i < degree; i++)
        sends[i] = weighted ? out_weights[i] : world_rank, receives[i] = -1;
    OK(MPI_Neighbor_alltoall(sends, 1, MPI_INT, receives, 1, MPI_INT, graph));
    for (int i = 0; i < degree; i++)
        CHECK(receives[i] == (weighted ? in_weights[i] : in[i]));
    /* The first few only. */
    if (degree > 1) {
        int one[2] = {-5, -5};
        OK(MPI_Dist_graph_neighbors(graph, 1, one, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED));
        CHECK(one[0] == in[0] && one[1] == -5);
    }
    MPI_Comm copy;
    OK(MPI_Comm_dup(graph, &copy));
    OK(MPI_Dist_graph_neighbors_count(copy, &in_count, &out_count, &is_weighted));
    CHECK(in_count == degree);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&graph));
    free(sources), free(degrees), free(ends), free(weights);
    free(in), free(in_weights), free(out), free(out_weights), free(sends), free(receives);
}

static void wrong_distributed(void)
{
    MPI_Comm graph = MPI_COMM_NULL;
    int far = world_size, one = 1, zero = 0, minus = -1, count;
    CHECK(class_of(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &far, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED,
                                                  MPI_INFO_NULL, 0, &graph)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &zero, &one, &minus, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                         &graph)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &zero, &one, &zero, &minus, MPI_INFO_NULL, 0, &graph)) ==
          MPI_ERR_ARG);
    CHECK(class_of(MPI_Dist_graph_neighbors_count(MPI_COMM_WORLD, &count, &count, &count)) == MPI_ERR_TOPOLOGY);
    /* A graph without edges. */
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL, MPI_WEIGHTS_EMPTY,
                                      MPI_INFO_NULL, 0, &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &one, &zero, &count));
    CHECK(one == 0 && zero == 0 && count);
    OK(MPI_Neighbor_alltoall(NULL, 1, MPI_INT, NULL, 1, MPI_INT, graph));
    OK(MPI_Comm_free(&graph));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    for (int nodes = 1; nodes <= world_size; nodes++)
        ring(nodes);
    wrong_graphs();
    for (int degree = 0; degree < 4; degree++)
        for (int weighted = 0; weighted < 2; weighted++)
            for (int teller = -2; teller < 2; teller++)
                if (degree > 0)
                    distributed(degree, weighted, teller);
    wrong_distributed();
    return finish();
}
