/* Halo exchange in 3-D: six faces of a periodic cube, by derived datatypes, alone and with a stencil behind it. `size`
 * is the number of points along an edge of each rank's part. */
#include "grid.h"

#include <stdio.h>
#include <stdlib.h>

static struct grid grid;
static double *points, *next;

/* What stands at a place of the whole cube; whole numbers, so that sums are exact. */
static double value(long x, long y, long z) {
    long sides[3] = {grid.ranks[0] * (long)grid.edge, grid.ranks[1] * (long)grid.edge, grid.ranks[2] * (long)grid.edge};
    x = (x + sides[0]) % sides[0];
    y = (y + sides[1]) % sides[1];
    z = (z + sides[2]) % sides[2];
    return (double)((x * 131 + y) * 137 + z);
}

static double value_here(int x, int y, int z) {
    return value(grid.place[0] * (long)grid.edge + x - 1, grid.place[1] * (long)grid.edge + y - 1,
                 grid.place[2] * (long)grid.edge + z - 1);
}

static void exchange(long count) {
    for (long i = 0; i < count; i++) exchange_ghosts(&grid, points);
}

static void stencil(void) {
    long side = grid.edge + 2, layer = side * side;
    for (int z = 1; z <= grid.edge; z++)
        for (int y = 1; y <= grid.edge; y++)
            for (int x = 1; x <= grid.edge; x++) {
                const double *p = points + at(&grid, x, y, z);
                next[at(&grid, x, y, z)] = p[-1] + p[1] + p[-side] + p[side] + p[-layer] + p[layer] - 6 * p[0];
            }
}

static void step(long count) {
    for (long i = 0; i < count; i++) {
        exchange_ghosts(&grid, points);
        stencil();
    }
}

static void start_values(void) {
    for (long i = 0; i < point_count(&grid); i++) points[i] = next[i] = -1;
    for (int z = 1; z <= grid.edge; z++)
        for (int y = 1; y <= grid.edge; y++)
            for (int x = 1; x <= grid.edge; x++) points[at(&grid, x, y, z)] = value_here(x, y, z);
}

/* Every stencil that a step computed, from the values alone. */
static void check(void) {
    step(1);
    for (int z = 1; z <= grid.edge; z++)
        for (int y = 1; y <= grid.edge; y++)
            for (int x = 1; x <= grid.edge; x++) {
                double wanted = value_here(x - 1, y, z) + value_here(x + 1, y, z) + value_here(x, y - 1, z)
                                + value_here(x, y + 1, z) + value_here(x, y, z - 1) + value_here(x, y, z + 1)
                                - 6 * value_here(x, y, z);
                need(next[at(&grid, x, y, z)] == wanted, "a stencil", at(&grid, x, y, z));
            }
}

void halo(void) {
    for (int s = 0; s < options.size_count; s++) {
        make_grid(&grid, options.sizes[s] < 1 ? 1 : (int)options.sizes[s], 1);
        points = calloc(point_count(&grid), sizeof *points);
        next = calloc(point_count(&grid), sizeof *next);
        bytes = grid.edge;
        start_values();
        check();
        struct samples exchanges = measure(exchange, ALL, 0), steps = measure(step, ALL, 0);
        check();
        record("halo", bytes, "\"part\":\"exchange\"", "us", 1, 0, exchanges);
        record("halo", bytes, "\"part\":\"step\"", "us", 1, 0, steps);
        free(points);
        free(next);
        free_grid(&grid);
    }
}
