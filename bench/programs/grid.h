/* A cube of points spread over a 3-D grid of ranks, each with a layer of ghost points round its own. */
#ifndef GRID_H
#define GRID_H

#include "bench.h"

struct grid {
    int ranks[3], place[3];      /* ranks along each axis, and where this one stands */
    int neighbours[3][2];        /* below and above; MPI_PROC_NULL at an open edge */
    int edge;                    /* points along each axis of this rank's own part */
    MPI_Datatype inner[3][2], ghosts[3][2]; /* the outermost own layers, and the ghost layers beside them */
};

/* Index of a point of a rank's part; 0 and edge + 1 are ghosts. */
static inline long at(const struct grid *grid, int x, int y, int z) {
    long side = grid->edge + 2;
    return (z * side + y) * side + x;
}
static inline long point_count(const struct grid *grid) {
    long side = grid->edge + 2;
    return side * side * side;
}

void make_grid(struct grid *grid, int edge, int periodic);
void free_grid(struct grid *grid);
/* Fills the ghost layers from the neighbours; edges and corners of the cube are left out. */
void exchange_ghosts(const struct grid *grid, double *points);

#endif
