/* Cartesian topologies: making, asking, cutting, shifting; factors for grids. */
#include "check.h"

static void dims(void)
{
    static const int cases[][5] = {
        /* nodes, dims given, dims expected */
        {6, 0, 0, 3, 2}, {7, 0, 0, 7, 1}, {1, 0, 0, 1, 1}, {36, 0, 0, 6, 6}, {12, 6, 0, 6, 2}, {2310, 0, 0, 55, 42},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int factors[2] = {cases[i][1], cases[i][2]};
        OK(MPI_Dims_create(cases[i][0], 2, factors));
        CHECK(factors[0] == cases[i][3] && factors[1] == cases[i][4]);
    }
    int three[3] = {0, 3, 0};
    OK(MPI_Dims_create(6, 3, three));
    CHECK(three[0] == 2 && three[1] == 3 && three[2] == 1);
    int four[3] = {0, 0, 0};
    OK(MPI_Dims_create(2310, 3, four));
    CHECK(four[0] == 15 && four[1] == 14 && four[2] == 11);
    int wrong[3] = {0, 3, 0};
    CHECK(class_of(MPI_Dims_create(7, 3, wrong)) == MPI_ERR_DIMS);
    CHECK(wrong[0] == 0 && wrong[1] == 3);
}

/* A grid of any size that fits, with processes left over. */
static void grid(int rows, int columns, int down, int round)
{
    MPI_Comm cart;
    int extents[2] = {rows, columns}, periods[2] = {down, round}, status = -1;
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, extents, periods, 1, &cart));
    int mapped = -1;
    OK(MPI_Cart_map(MPI_COMM_WORLD, 2, extents, periods, &mapped));
    if (cart == MPI_COMM_NULL) {
        CHECK(world_rank >= rows * columns);
        CHECK(mapped == MPI_UNDEFINED);
        return;
    }
    OK(MPI_Topo_test(cart, &status));
    CHECK(status == MPI_CART);
    int rank, size, count = -1, got[2], wraps[2], at[2], there[2];
    OK(MPI_Comm_rank(cart, &rank));
    OK(MPI_Comm_size(cart, &size));
    CHECK(size == rows * columns);
    OK(MPI_Cartdim_get(cart, &count));
    CHECK(count == 2);
    OK(MPI_Cart_get(cart, 2, got, wraps, at));
    CHECK(got[0] == rows && got[1] == columns && !!wraps[0] == !!down && !!wraps[1] == !!round);
    CHECK(at[0] == rank / columns && at[1] == rank % columns);
    /* As much as there is room for. */
    int one[2] = {-9, -9};
    OK(MPI_Cart_get(cart, 1, one, wraps, there));
    CHECK(one[0] == rows && one[1] == -9);
    one[0] = -9;
    OK(MPI_Cart_coords(cart, rank, 1, one));
    CHECK(one[0] == at[0] && one[1] == -9);
    OK(MPI_Cart_get(cart, 2, got, wraps, there));
    for (int other = 0; other < size; other++) {
        int back = -1;
        OK(MPI_Cart_coords(cart, other, 2, there));
        CHECK(there[0] == other / columns && there[1] == other % columns);
        OK(MPI_Cart_rank(cart, there, &back));
        CHECK(back == other);
    }
    CHECK(class_of(MPI_Cart_coords(cart, size, 2, there)) == MPI_ERR_RANK);
    for (int direction = 0; direction < 2; direction++)
        for (int by = -5; by <= 5; by++) {
            int from = -7, to = -7, extent = extents[direction], wrap = periods[direction];
            OK(MPI_Cart_shift(cart, direction, by, &from, &to));
            int after = at[direction] + by, before = at[direction] - by, stride = direction ? 1 : columns;
            int in_after = after >= 0 && after < extent, in_before = before >= 0 && before < extent;
            after = ((after % extent) + extent) % extent;
            before = ((before % extent) + extent) % extent;
            CHECK(to == (in_after || wrap ? rank + (after - at[direction]) * stride : MPI_PROC_NULL));
            CHECK(from == (in_before || wrap ? rank + (before - at[direction]) * stride : MPI_PROC_NULL));
        }
    int from, to;
    CHECK(class_of(MPI_Cart_shift(cart, 2, 1, &from, &to)) != MPI_SUCCESS);
    /* Beyond the edge: legal only where the grid wraps. */
    int beyond[2] = {rows, 0}, found = -1;
    int code = MPI_Cart_rank(cart, beyond, &found);
    CHECK(down ? code == MPI_SUCCESS && found == 0 : class_of(code) == MPI_ERR_ARG);

    /* Rows, columns, points and the whole. */
    for (int keep = 0; keep < 4; keep++) {
        MPI_Comm part;
        int remain[2] = {keep & 1, keep >> 1}, part_rank, part_size, part_dims = -1;
        OK(MPI_Cart_sub(cart, remain, &part));
        OK(MPI_Comm_rank(part, &part_rank));
        OK(MPI_Comm_size(part, &part_size));
        OK(MPI_Cartdim_get(part, &part_dims));
        CHECK(part_dims == remain[0] + remain[1]);
        CHECK(part_size == (remain[0] ? rows : 1) * (remain[1] ? columns : 1));
        CHECK(part_rank == (remain[0] ? at[0] * (remain[1] ? columns : 1) : 0) + (remain[1] ? at[1] : 0));
        if (part_dims == 1) {
            OK(MPI_Cart_get(part, 1, got, wraps, there));
            CHECK(got[0] == extents[!remain[0]] && !!wraps[0] == !!periods[!remain[0]]);
        }
        OK(MPI_Comm_free(&part));
    }
    /* A duplicate has the topology, a split has not. */
    MPI_Comm copy, split;
    MPI_Request request;
    OK(MPI_Comm_dup(cart, &copy));
    OK(MPI_Cart_get(copy, 2, got, wraps, there));
    CHECK(got[0] == rows && there[1] == at[1]);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_idup(cart, &copy, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Topo_test(copy, &status));
    CHECK(status == MPI_CART);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_split(cart, 0, 0, &split));
    OK(MPI_Topo_test(split, &status));
    CHECK(status == MPI_UNDEFINED);
    OK(MPI_Comm_free(&split));
    OK(MPI_Comm_free(&cart));
}

static void corners(void)
{
    MPI_Comm cart = MPI_COMM_NULL;
    int status, too_many = world_size + 1, wraps = 1, zero = 0, count = -1;
    OK(MPI_Topo_test(MPI_COMM_WORLD, &status));
    CHECK(status == MPI_UNDEFINED);
    CHECK(class_of(MPI_Cart_create(MPI_COMM_WORLD, 1, &too_many, &wraps, 0, &cart)) == MPI_ERR_DIMS);
    CHECK(class_of(MPI_Cart_create(MPI_COMM_WORLD, 1, &zero, &wraps, 0, &cart)) == MPI_ERR_DIMS);
    CHECK(class_of(MPI_Cartdim_get(MPI_COMM_WORLD, &count)) == MPI_ERR_TOPOLOGY);
    CHECK(class_of(MPI_Graphdims_get(MPI_COMM_WORLD, &count, &count)) == MPI_ERR_TOPOLOGY);
    /* No dimensions: a grid of one process. */
    OK(MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &cart));
    CHECK((cart != MPI_COMM_NULL) == (world_rank == 0));
    if (cart != MPI_COMM_NULL) {
        int rank = -1;
        OK(MPI_Cartdim_get(cart, &count));
        CHECK(count == 0);
        OK(MPI_Cart_get(cart, 0, NULL, NULL, NULL));
        OK(MPI_Cart_rank(cart, NULL, &rank));
        CHECK(rank == 0);
        OK(MPI_Cart_coords(cart, 0, 0, NULL));
        OK(MPI_Comm_free(&cart));
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    dims();
    for (int rows = 1; rows <= world_size; rows++)
        for (int columns = 1; rows * columns <= world_size; columns++)
            for (int wrap = 0; wrap < 4; wrap++)
                grid(rows, columns, wrap & 1, wrap >> 1);
    corners();
    return finish();
}
