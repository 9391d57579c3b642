/* Long messages between different layouts of the same numbers, gaps included: whatever scheme the settings ask for, the
 * same bytes arrive, and nothing beside them is written. Neighbours in a ring exchange, and all to all as well. */
#include "check.h"

enum { layout_count = 5, numbers = 1 << 17, space = 3 * numbers };

/* The same numbers in the same order, laid out in five ways. */
static void make(MPI_Datatype *types)
{
    MPI_Datatype row;
    OK(MPI_Type_contiguous(numbers, MPI_INT, &types[0]));
    OK(MPI_Type_vector(64, numbers / 64, numbers / 64 * 2, MPI_INT, &types[1]));
    OK(MPI_Type_vector(numbers / 2, 2, 5, MPI_INT, &types[2]));
    /* Blocks that double, and the rest. */
    int lengths[18], places[18], place = 0, sum = 0;
    for (int block = 0; block < 17; block++) {
        lengths[block] = 1 << block;
        places[block] = place;
        place += lengths[block] + 7;
        sum += lengths[block];
    }
    lengths[17] = numbers - sum;
    places[17] = place;
    OK(MPI_Type_indexed(18, lengths, places, MPI_INT, &types[3]));
    OK(MPI_Type_vector(16, numbers / 512, numbers / 512 + 3, MPI_INT, &row));
    OK(MPI_Type_create_hvector(32, 1, (MPI_Aint)(space / 40) * (MPI_Aint)sizeof(int), row, &types[4]));
    OK(MPI_Type_free(&row));
    for (int i = 0; i < layout_count; i++)
        OK(MPI_Type_commit(&types[i]));
}

/* What memory of -1 looks like once `values` have been unpacked into it. */
static void expect(int *memory, MPI_Datatype type, const int *values)
{
    int position = 0;
    for (int i = 0; i < space; i++)
        memory[i] = -1;
    OK(MPI_Unpack(values, numbers * (int)sizeof(int), &position, memory, 1, type, MPI_COMM_WORLD));
}

static int *values_of(int rank, int round)
{
    int *values = malloc(numbers * sizeof(int));
    for (int i = 0; i < numbers; i++)
        values[i] = i * 3 + rank * 1000003 + round;
    return values;
}

static void ring(MPI_Datatype from, MPI_Datatype to, int round, int *out, int *in, int *wanted)
{
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    int *mine = values_of(world_rank, round), *theirs = values_of(left, round), count;
    MPI_Status status;
    expect(out, from, mine);
    expect(wanted, to, theirs);
    for (int i = 0; i < space; i++)
        in[i] = -1;
    OK(MPI_Sendrecv(out, 1, from, right, round, in, 1, to, left, round, MPI_COMM_WORLD, &status));
    OK(MPI_Get_elements(&status, to, &count));
    CHECK(count == numbers);
    CHECK(memcmp(in, wanted, space * sizeof(int)) == 0);
    free(mine);
    free(theirs);
}

/* Every rank sends each other one block of columns of a matrix and keeps what it gets as rows. */
static void transpose(void)
{
    enum { rows = 256 };
    int width = 512, all = width * world_size;
    int *matrix = malloc((size_t)rows * all * sizeof(int)), *turned = malloc((size_t)rows * all * sizeof(int));
    MPI_Datatype columns, sized;
    for (int i = 0; i < rows * all; i++)
        matrix[i] = world_rank * 10000000 + i;
    OK(MPI_Type_vector(rows, width, all, MPI_INT, &columns));
    OK(MPI_Type_create_resized(columns, 0, width * (int)sizeof(int), &sized));
    OK(MPI_Type_commit(&sized));
    OK(MPI_Alltoall(matrix, 1, sized, turned, rows * width, MPI_INT, MPI_COMM_WORLD));
    for (int peer = 0; peer < world_size; peer++)
        for (int row = 0; row < rows; row += 17)
            for (int at = 0; at < width; at += 13) {
                int number = row * all + world_rank * width + at;
                CHECK(turned[(peer * rows + row) * width + at] == peer * 10000000 + number);
            }
    OK(MPI_Type_free(&columns));
    OK(MPI_Type_free(&sized));
    free(matrix);
    free(turned);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int *out = malloc(space * sizeof(int)), *in = malloc(space * sizeof(int)), *wanted = malloc(space * sizeof(int));
    MPI_Datatype types[layout_count];
    make(types);
    int round = 0;
    for (int from = 0; from < layout_count; from++)
        for (int to = 0; to < layout_count; to++)
            ring(types[from], types[to], round++, out, in, wanted);
    /* A type may be freed while its message is under way, and made again at the same place. */
    for (int again = 0; again < 3; again++) {
        int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
        int *mine = values_of(world_rank, again), *theirs = values_of(left, again);
        MPI_Datatype send, receive;
        MPI_Request requests[2];
        OK(MPI_Type_dup(types[1], &send));
        OK(MPI_Type_dup(types[4], &receive));
        expect(out, send, mine);
        expect(wanted, receive, theirs);
        for (int i = 0; i < space; i++)
            in[i] = -1;
        OK(MPI_Irecv(in, 1, receive, left, 5, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(out, 1, send, right, 5, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Type_free(&send));
        OK(MPI_Type_free(&receive));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(memcmp(in, wanted, space * sizeof(int)) == 0);
        free(mine);
        free(theirs);
    }
    transpose();
    for (int i = 0; i < layout_count; i++)
        OK(MPI_Type_free(&types[i]));
    free(out);
    free(in);
    free(wanted);
    return finish();
}
