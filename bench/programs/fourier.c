/* A two-dimensional Fourier transform whose rows are spread over the ranks: transform the rows, transpose by Alltoall,
 * transform the columns. `size` is the number of rows and columns, a power of 2 and a multiple of the ranks. */
#include "bench.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double complex number;

static long side, rows;
static number *matrix, *packed, *received, *roots;

/* In place, length `side`: bit reversal and butterflies. */
static void transform(number *row) {
    for (long i = 1, j = 0; i < side; i++) {
        long bit = side >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            number kept = row[i];
            row[i] = row[j];
            row[j] = kept;
        }
    }
    for (long half = 1; half < side; half *= 2)
        for (long start = 0; start < side; start += 2 * half)
            for (long k = 0; k < half; k++) {
                number odd = row[start + k + half] * roots[k * (side / (2 * half))];
                row[start + k + half] = row[start + k] - odd;
                row[start + k] += odd;
            }
}

/* Block (rank, to) of the matrix goes to rank `to`, whose rows are these columns. */
static void transpose(void) {
    int length = (int)(rows * rows * (long)sizeof(number));
    for (long to = 0; to < size; to++)
        for (long r = 0; r < rows; r++)
            memcpy(packed + (to * rows + r) * rows, matrix + r * side + to * rows, rows * sizeof(number));
    MPI_Alltoall(packed, length, MPI_BYTE, received, length, MPI_BYTE, MPI_COMM_WORLD);
    for (long from = 0; from < size; from++)
        for (long r = 0; r < rows; r++)
            for (long c = 0; c < rows; c++) matrix[c * side + from * rows + r] = received[(from * rows + r) * rows + c];
}

static void transforms(long count) {
    for (long i = 0; i < count; i++) {
        for (long r = 0; r < rows; r++) transform(matrix + r * side);
        transpose();
        for (long r = 0; r < rows; r++) transform(matrix + r * side);
        /* Scaled, so that any number of them stays within bounds. */
        for (long at = 0; at < rows * side; at++) matrix[at] /= (double)side;
    }
}

static void transposes(long count) {
    for (long i = 0; i < count; i++) transpose();
}

/* A plane wave becomes a single point, and nothing else; the transform leaves rows and columns exchanged. */
static void check(void) {
    const double turn = 2 * acos(-1.0) / (double)side;
    const long kx = 3 % side, ky = side - 1;
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < side; c++) {
            long turns = (kx * c + ky * (rank * rows + r)) % side;
            matrix[r * side + c] = cexp(I * turn * (double)turns);
        }
    transforms(1);
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < side; c++) {
            double wanted = rank * rows + r == kx && c == ky ? (double)side : 0;
            need(cabs(matrix[r * side + c] - wanted) < 1e-6 * (double)side, "a Fourier transform", r * side + c);
        }
}

void fourier(void) {
    for (int s = 0; s < options.size_count; s++) {
        side = options.sizes[s];
        if (side < 2 || (side & (side - 1)) || side % size) {
            fprintf(stderr, "bench: fft needs a power of 2 that is a multiple of %d ranks, not %ld\n", size, side);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        rows = side / size;
        bytes = side;
        number **arrays[] = {&matrix, &packed, &received};
        for (int a = 0; a < 3; a++) *arrays[a] = calloc(rows * side, sizeof(number));
        roots = calloc(side, sizeof(number));
        for (long k = 0; k < side / 2; k++) roots[k] = cexp(-I * 2 * acos(-1.0) * (double)k / (double)side);
        check();
        struct samples whole = measure(transforms, ALL, 0), moved = measure(transposes, ALL, 0);
        check();
        record("fft", bytes, "\"part\":\"transform\"", "us", 1, 0, whole);
        record("fft", bytes, "\"part\":\"transpose\"", "us", 1, 0, moved);
        for (int a = 0; a < 3; a++) free(*arrays[a]);
        free(roots);
    }
}
