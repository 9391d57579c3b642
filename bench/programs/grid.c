/* The grid that halo exchange and conjugate gradient share. */
#include "grid.h"

/* Splits the ranks into three factors as equal as they come: each prime factor, largest first, goes to the axis that
 * has least. */
static void factors(int count, int *axes) {
    axes[0] = axes[1] = axes[2] = 1;
    for (int factor = count; factor > 1;) {
        int prime = 0;
        for (int p = 2, rest = factor; rest > 1; p++)
            while (rest % p == 0) prime = p, rest /= p;
        int least = axes[0] <= axes[1] && axes[0] <= axes[2] ? 0 : axes[1] <= axes[2] ? 1 : 2;
        axes[least] *= prime;
        factor /= prime;
    }
}

static int rank_at(const struct grid *grid, const int *place) {
    return (place[2] * grid->ranks[1] + place[1]) * grid->ranks[0] + place[0];
}

static int neighbour(const struct grid *grid, int axis, int step, int periodic) {
    int place[3] = {grid->place[0], grid->place[1], grid->place[2]};
    int count = grid->ranks[axis];
    place[axis] += step;
    if (!periodic && (place[axis] < 0 || place[axis] >= count)) return MPI_PROC_NULL;
    place[axis] = (place[axis] + count) % count;
    return rank_at(grid, place);
}

/* A layer of the part across `axis` at `position`, without the ghosts round it. */
static MPI_Datatype layer(const struct grid *grid, int axis, int position) {
    int side = grid->edge + 2;
    int sizes[3] = {side, side, side}, part[3] = {grid->edge, grid->edge, grid->edge}, start[3] = {1, 1, 1};
    MPI_Datatype type;
    /* Arrays in C order: the last dimension is x. */
    part[2 - axis] = 1;
    start[2 - axis] = position;
    MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

void make_grid(struct grid *grid, int edge, int periodic) {
    factors(size, grid->ranks);
    grid->edge = edge;
    grid->place[0] = rank % grid->ranks[0];
    grid->place[1] = rank / grid->ranks[0] % grid->ranks[1];
    grid->place[2] = rank / grid->ranks[0] / grid->ranks[1];
    for (int axis = 0; axis < 3; axis++)
        for (int above = 0; above < 2; above++) {
            grid->neighbours[axis][above] = neighbour(grid, axis, above ? 1 : -1, periodic);
            grid->inner[axis][above] = layer(grid, axis, above ? edge : 1);
            grid->ghosts[axis][above] = layer(grid, axis, above ? edge + 1 : 0);
        }
}

void free_grid(struct grid *grid) {
    for (int axis = 0; axis < 3; axis++)
        for (int above = 0; above < 2; above++) {
            MPI_Type_free(&grid->inner[axis][above]);
            MPI_Type_free(&grid->ghosts[axis][above]);
        }
}

void exchange_ghosts(const struct grid *grid, double *points) {
    MPI_Request requests[12];
    int used = 0;
    for (int axis = 0; axis < 3; axis++)
        for (int above = 0; above < 2; above++)
            MPI_Irecv(points, 1, grid->ghosts[axis][above], grid->neighbours[axis][above], 2 * axis + !above,
                      MPI_COMM_WORLD, &requests[used++]);
    for (int axis = 0; axis < 3; axis++)
        for (int above = 0; above < 2; above++)
            MPI_Isend(points, 1, grid->inner[axis][above], grid->neighbours[axis][above], 2 * axis + above,
                      MPI_COMM_WORLD, &requests[used++]);
    MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
}
