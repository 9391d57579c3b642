/* Heat spreading over a plate that all ranks share, each with a tile and a rim of its neighbours' cells.
 * mpicc -O2 heat.c -lm -o heat && mpiexec -n 4 ./heat heat.png */
#include "png.h"
#include <math.h>
#include <mpi.h>

enum { side = 480, steps = 1200 };
#define CELL(grid, x, y) (grid)[(y) * (width + 2) + (x)]

int main(int argc, char **argv)
{
    int rank, size, columns = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    while (columns * columns < size || size % columns)
        columns++;
    int rows = size / columns, column = rank % columns, row = rank / columns;
    int left = column * side / columns, top = row * side / rows;
    int width = (column + 1) * side / columns - left, height = (row + 1) * side / rows - top;
    int west = column ? rank - 1 : MPI_PROC_NULL, east = column + 1 < columns ? rank + 1 : MPI_PROC_NULL;
    int north = row ? rank - columns : MPI_PROC_NULL, south = row + 1 < rows ? rank + columns : MPI_PROC_NULL;

    size_t cells = (size_t)(width + 2) * (size_t)(height + 2);
    double *now = calloc(cells, sizeof *now), *next = calloc(cells, sizeof *next), start = MPI_Wtime(), total = 0;
    for (int y = 1; y <= height; y++)
        for (int x = 1; x <= width; x++) { /* a hot ring and a hot spot inside it */
            double far = hypot(left + x - side / 2.0, top + y - side / 2.0) / side;
            CELL(now, x, y) = (far > 0.2 && far < 0.32) || far < 0.1;
        }

    MPI_Datatype rim; /* one column of a tile: not contiguous, sent as it lies */
    MPI_Type_vector(height, 1, width + 2, MPI_DOUBLE, &rim);
    MPI_Type_commit(&rim);
    for (int step = 0; step < steps; step++) {
        MPI_Request requests[8];
        MPI_Irecv(&CELL(now, 0, 1), 1, rim, west, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(&CELL(now, width + 1, 1), 1, rim, east, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Irecv(&CELL(now, 1, 0), width, MPI_DOUBLE, north, 2, MPI_COMM_WORLD, &requests[2]);
        MPI_Irecv(&CELL(now, 1, height + 1), width, MPI_DOUBLE, south, 3, MPI_COMM_WORLD, &requests[3]);
        MPI_Isend(&CELL(now, width, 1), 1, rim, east, 0, MPI_COMM_WORLD, &requests[4]);
        MPI_Isend(&CELL(now, 1, 1), 1, rim, west, 1, MPI_COMM_WORLD, &requests[5]);
        MPI_Isend(&CELL(now, 1, height), width, MPI_DOUBLE, south, 2, MPI_COMM_WORLD, &requests[6]);
        MPI_Isend(&CELL(now, 1, 1), width, MPI_DOUBLE, north, 3, MPI_COMM_WORLD, &requests[7]);
        MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
        for (int y = 1; y <= height; y++)
            for (int x = 1; x <= width; x++)
                CELL(next, x, y) = CELL(now, x, y) + 0.2 * (CELL(now, x - 1, y) + CELL(now, x + 1, y) +
                                   CELL(now, x, y - 1) + CELL(now, x, y + 1) - 4 * CELL(now, x, y));
        double *swap = now;
        now = next, next = swap;
    }

    double *plate = rank == 0 ? malloc(side * side * sizeof *plate) : NULL;
    MPI_Request request;
    MPI_Datatype tile; /* a tile without its rim, and below its place on the plate */
    MPI_Type_create_subarray(2, (int[]){height + 2, width + 2}, (int[]){height, width}, (int[]){1, 1}, MPI_ORDER_C,
                             MPI_DOUBLE, &tile);
    MPI_Type_commit(&tile);
    MPI_Isend(now, 1, tile, 0, 4, MPI_COMM_WORLD, &request);
    for (int from = 0; rank == 0 && from < size; from++) {
        int c = from % columns, r = from / columns, x = c * side / columns, y = r * side / rows;
        MPI_Datatype place;
        int extent[2] = {(r + 1) * side / rows - y, (c + 1) * side / columns - x};
        MPI_Type_create_subarray(2, (int[]){side, side}, extent, (int[]){y, x}, MPI_ORDER_C, MPI_DOUBLE, &place);
        MPI_Type_commit(&place);
        MPI_Recv(plate, 1, place, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_free(&place);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    double mine = 0;
    for (int y = 1; y <= height; y++)
        for (int x = 1; x <= width; x++)
            mine += CELL(now, x, y);
    MPI_Reduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    const char *path = argc > 1 ? argv[1] : "heat.png";
    if (rank == 0 && png_write(path, plate, side, side) == 0)
        printf("%d steps on %d x %d cells, tiles %d x %d, in %.2f s; %.1f units of heat; picture: %s\n", steps,
               side, side, columns, rows, MPI_Wtime() - start, total, path);
    MPI_Finalize();
    return 0;
}
