/* Conjugate gradient: the 7-point Laplacian of a cube with fixed borders; each iteration is a halo exchange and two
 * reductions. `size` is the number of points along an edge of each rank's part; a sample is one iteration. */
#include "grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ITERATIONS_MAX 2000

static struct grid grid;
static double *solution, *right, *residual, *direction, *product;
static double rho;

/* product = A direction. Ghosts at the border of the cube stay 0. */
static void apply(double *to, double *from) {
    long side = grid.edge + 2, layer = side * side;
    exchange_ghosts(&grid, from);
    for (int z = 1; z <= grid.edge; z++)
        for (int y = 1; y <= grid.edge; y++)
            for (int x = 1; x <= grid.edge; x++) {
                const double *p = from + at(&grid, x, y, z);
                to[at(&grid, x, y, z)] = 6 * p[0] - p[-1] - p[1] - p[-side] - p[side] - p[-layer] - p[layer];
            }
}

static double dot(const double *a, const double *b) {
    double mine = 0, all;
    for (int z = 1; z <= grid.edge; z++)
        for (int y = 1; y <= grid.edge; y++)
            for (int x = 1; x <= grid.edge; x++) mine += a[at(&grid, x, y, z)] * b[at(&grid, x, y, z)];
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void begin(void) {
    size_t length = (size_t)point_count(&grid) * sizeof *right;
    memset(solution, 0, length);
    memcpy(residual, right, length);
    memcpy(direction, right, length);
    rho = dot(residual, residual);
}

static void iterate(void) {
    apply(product, direction);
    double alpha = rho / dot(direction, product);
    for (long i = 0; i < point_count(&grid); i++) {
        solution[i] += alpha * direction[i];
        residual[i] -= alpha * product[i];
    }
    double before = rho;
    rho = dot(residual, residual);
    for (long i = 0; i < point_count(&grid); i++) direction[i] = residual[i] + rho / before * direction[i];
}

/* Starts again before the residual becomes too small to divide by; all ranks see the same residual. */
static void iterations(long count) {
    for (long i = 0; i < count; i++) {
        if (rho < 1e-20) begin();
        iterate();
    }
}

static double known(int x, int y, int z) {
    long gx = grid.place[0] * (long)grid.edge + x, gy = grid.place[1] * (long)grid.edge + y;
    long gz = grid.place[2] * (long)grid.edge + z;
    return sin((double)gx) + 0.5 * cos((double)(gy * gz));
}

static void start_values(void) {
    for (int z = 1; z <= grid.edge; z++)
        for (int y = 1; y <= grid.edge; y++)
            for (int x = 1; x <= grid.edge; x++) solution[at(&grid, x, y, z)] = known(x, y, z);
    apply(right, solution);
}

/* Solved to the end, the solution is the one from which the right side was made. */
static void check(void) {
    begin();
    double first = rho;
    for (int i = 0; i < ITERATIONS_MAX && rho > 1e-22 * first; i++) iterate();
    for (int z = 1; z <= grid.edge; z++)
        for (int y = 1; y <= grid.edge; y++)
            for (int x = 1; x <= grid.edge; x++)
                need(fabs(solution[at(&grid, x, y, z)] - known(x, y, z)) < 1e-7, "a solution", at(&grid, x, y, z));
    begin();
}

void gradient(void) {
    double **vectors[] = {&solution, &right, &residual, &direction, &product};
    for (int s = 0; s < options.size_count; s++) {
        make_grid(&grid, options.sizes[s] < 1 ? 1 : (int)options.sizes[s], 0);
        for (int v = 0; v < 5; v++) *vectors[v] = calloc(point_count(&grid), sizeof(double));
        bytes = grid.edge;
        start_values();
        check();
        struct samples samples = measure(iterations, ALL, 0);
        check();
        record("cg", bytes, NULL, "us", 1, 0, samples);
        for (int v = 0; v < 5; v++) free(*vectors[v]);
        free_grid(&grid);
    }
}
