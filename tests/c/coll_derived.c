/* Collectives on derived types: strided columns, different types on both sides, resized blocks. */
#include "check.h"

enum { rows = 40, columns = 7 };

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Datatype column, resized;
    int matrix[rows][columns], line[rows], wrong = 0;
    OK(MPI_Type_vector(rows, 1, columns, MPI_INT, &column));
    OK(MPI_Type_create_resized(column, 0, sizeof(int), &resized));
    OK(MPI_Type_commit(&column));
    OK(MPI_Type_commit(&resized));

    /* A column broadcast, received as a plain vector by odd ranks. */
    for (int root = 0; root < world_size; root++) {
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < columns; c++)
                matrix[r][c] = world_rank == root ? r * 100 + c + root : -1;
            line[r] = -1;
        }
        if (world_rank % 2 && world_rank != root) {
            OK(MPI_Bcast(line, rows, MPI_INT, root, MPI_COMM_WORLD));
            for (int r = 0; r < rows; r++)
                wrong += line[r] != r * 100 + 3 + root;
        } else {
            OK(MPI_Bcast(&matrix[0][3], 1, column, root, MPI_COMM_WORLD));
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < columns; c++)
                    wrong += matrix[r][c] != (c == 3 || world_rank == root ? r * 100 + c + root : -1);
        }
    }
    CHECK(wrong == 0);

    /* Rows become columns: every rank's line is a column of the gathered matrix (up to `columns` ranks). */
    if (world_size <= columns) {
        for (int r = 0; r < rows; r++) {
            line[r] = world_rank * 1000 + r;
            for (int c = 0; c < columns; c++)
                matrix[r][c] = -1;
        }
        OK(MPI_Allgather(line, rows, MPI_INT, matrix, 1, resized, MPI_COMM_WORLD));
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++)
                wrong += matrix[r][c] != (c < world_size ? c * 1000 + r : -1);
        CHECK(wrong == 0);
        OK(MPI_Gather(line, rows, MPI_INT, matrix, 1, resized, 0, MPI_COMM_WORLD));
        memset(line, 0, sizeof line);
        OK(MPI_Scatter(matrix, 1, resized, line, rows, MPI_INT, 0, MPI_COMM_WORLD));
        for (int r = 0; r < rows; r++)
            wrong += line[r] != world_rank * 1000 + r;
        CHECK(wrong == 0);
        int back[rows][columns];
        memset(back, 0, sizeof back);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++)
                matrix[r][c] = world_rank * 10000 + r * 100 + c;
        OK(MPI_Alltoall(matrix, 1, resized, back, 1, resized, MPI_COMM_WORLD));
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < world_size; c++)
                wrong += back[r][c] != c * 10000 + r * 100 + world_rank;
        CHECK(wrong == 0);
    }
    /* A contiguous derived type of a basic one, in a pairwise exchange of blocks by type (alltoallw). */
    {
        int out[world_size][4], in[world_size][4], counts[world_size], displacements[world_size];
        MPI_Datatype four, types[world_size], plain[world_size];
        OK(MPI_Type_contiguous(4, MPI_INT, &four));
        OK(MPI_Type_commit(&four));
        int fours[world_size];
        for (int rank = 0; rank < world_size; rank++) {
            counts[rank] = 1;
            fours[rank] = 4;
            displacements[rank] = rank * 4 * (int)sizeof(int);
            types[rank] = four;
            plain[rank] = MPI_INT;
            for (int i = 0; i < 4; i++) {
                out[rank][i] = world_rank * 100 + rank * 10 + i;
                in[rank][i] = -1;
            }
        }
        OK(MPI_Alltoallw(out, counts, displacements, types, in, fours, displacements, plain, MPI_COMM_WORLD));
        for (int rank = 0; rank < world_size; rank++)
            for (int i = 0; i < 4; i++)
                wrong += in[rank][i] != rank * 100 + world_rank * 10 + i;
        CHECK(wrong == 0);
        OK(MPI_Type_free(&four));
    }
    OK(MPI_Type_free(&column));
    OK(MPI_Type_free(&resized));
    return finish();
}
