/* Derived types on the move: pack and unpack, messages between different layouts, counts and elements. */
#include "check.h"
#include <stddef.h>

enum { space = 1 << 20, kinds = 12 };

struct record {
    char tag;
    double weight;
    int counts[3];
};

/* A collection of layouts with holes, overlaps of blocks in reverse order, and nesting. */
static int layouts(MPI_Datatype *types)
{
    MPI_Datatype inner;
    int n = 0;
    OK(MPI_Type_contiguous(7, MPI_INT, &types[n++]));
    OK(MPI_Type_vector(50, 3, 7, MPI_INT, &types[n++]));
    OK(MPI_Type_vector(2000, 1, 2, MPI_DOUBLE, &types[n++]));
    OK(MPI_Type_create_hvector(10, 5, 33, MPI_CHAR, &types[n++]));
    OK(MPI_Type_indexed(4, (int[]){3, 1, 4, 1}, (int[]){20, 0, 9, 30}, MPI_SHORT, &types[n++]));
    OK(MPI_Type_create_indexed_block(3, 100, (int[]){900, 0, 300}, MPI_INT, &types[n++]));
    OK(MPI_Type_create_subarray(3, (int[]){9, 8, 7}, (int[]){3, 4, 5}, (int[]){1, 2, 2}, MPI_ORDER_C, MPI_INT,
                                &types[n++]));
    OK(MPI_Type_create_struct(3, (int[]){1, 1, 3},
                              (MPI_Aint[]){offsetof(struct record, tag), offsetof(struct record, weight),
                                           offsetof(struct record, counts)},
                              (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_INT}, &inner));
    OK(MPI_Type_create_resized(inner, 0, sizeof(struct record), &types[n++]));
    OK(MPI_Type_vector(20, 2, 3, inner, &types[n++]));
    OK(MPI_Type_create_hindexed(3, (int[]){1, 2, 1}, (MPI_Aint[]){3000, 0, 1500}, inner, &types[n++]));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_create_subarray(2, (int[]){60, 50}, (int[]){31, 17}, (int[]){9, 11}, MPI_ORDER_FORTRAN, MPI_DOUBLE,
                                &types[n++]));
    OK(MPI_Type_dup(types[1], &types[n++]));
    for (int i = 0; i < n; i++)
        OK(MPI_Type_commit(&types[i]));
    return n;
}

/* Packing, then unpacking elsewhere, moves the data and leaves the holes alone. */
static void pack_round_trip(MPI_Datatype type, int count, char *a, char *b, char *c)
{
    int size = 0, bound = 0, position = 0;
    MPI_Aint lb, extent;
    OK(MPI_Type_size(type, &size));
    OK(MPI_Type_get_extent(type, &lb, &extent));
    size_t span = (size_t)extent * (size_t)count + 64;
    CHECK(span < space);
    OK(MPI_Pack_size(count, type, MPI_COMM_WORLD, &bound));
    CHECK(bound >= size * count);
    fill(a, span, 3);
    OK(MPI_Pack(a, count, type, b, bound, &position, MPI_COMM_WORLD));
    CHECK(position >= size * count && position <= bound);
    memset(c, 0x11, span);
    int packed = position;
    position = 0;
    OK(MPI_Unpack(b, packed, &position, c, count, type, MPI_COMM_WORLD));
    CHECK(position == packed);
    /* Every byte is either the original or untouched; as many originals as the size says, at least. */
    size_t moved = 0, foreign = 0;
    for (size_t i = 0; i < span; i++) {
        moved += c[i] == a[i];
        foreign += c[i] != a[i] && c[i] != 0x11;
    }
    CHECK(foreign == 0 && moved >= (size_t)size * (size_t)count);
    /* Packing what was unpacked gives the same stream. */
    char *again = allocate((size_t)bound);
    position = 0;
    OK(MPI_Pack(c, count, type, again, bound, &position, MPI_COMM_WORLD));
    CHECK(position == packed && memcmp(again, b, (size_t)packed) == 0);
    free(again);
}

/* The layout leaves rank 0 and comes to rank 1 as packed bytes, as itself, and back. */
static void send_layout(MPI_Datatype type, int count, char *a, char *b, char *c)
{
    int size = 0, position = 0, got = -1;
    MPI_Aint lb, extent;
    MPI_Status status;
    OK(MPI_Type_size(type, &size));
    OK(MPI_Type_get_extent(type, &lb, &extent));
    size_t span = (size_t)extent * (size_t)count + 64;
    fill(a, span, 3);
    memset(b, 0x11, span);
    if (world_rank == 0) {
        OK(MPI_Send(a, count, type, 1, 5, MPI_COMM_WORLD));
        OK(MPI_Recv(b, count, type, 1, 6, MPI_COMM_WORLD, &status));
    } else {
        OK(MPI_Recv(b, count, type, 0, 5, MPI_COMM_WORLD, &status));
        OK(MPI_Ssend(b, count, type, 0, 6, MPI_COMM_WORLD));
    }
    OK(MPI_Get_count(&status, type, &got));
    CHECK(got == count);
    /* What arrived equals what a local unpack makes of it. */
    memset(c, 0x11, span);
    char *stream = allocate((size_t)size * (size_t)count + 1024);
    OK(MPI_Pack(a, count, type, stream, size * count + 1024, &position, MPI_COMM_WORLD));
    int packed = position;
    position = 0;
    OK(MPI_Unpack(stream, packed, &position, c, count, type, MPI_COMM_WORLD));
    CHECK(memcmp(b, c, span) == 0);

    /* Packed data travels as MPI_PACKED and is received as the type. */
    memset(b, 0x11, span);
    if (world_rank == 0) {
        OK(MPI_Send(stream, packed, MPI_PACKED, 1, 7, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(b, count, type, 0, 7, MPI_COMM_WORLD, &status));
        CHECK(memcmp(b, c, span) == 0);
    }
    free(stream);
}

/* A message of a whole number of basic elements but not of types: count undefined, elements known. */
static void counts_and_elements(void)
{
    MPI_Datatype pair;
    MPI_Status status;
    int ints[6] = {1, 2, 3, 4, 5, 6}, got[6], count = 0, elements = 0;
    MPI_Count big = 0;
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    for (int n = 0; n <= 5; n++) {
        OK(MPI_Sendrecv(ints, n, MPI_INT, world_rank, 1, got, 3, pair, world_rank, 1, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, pair, &count));
        CHECK(count == (n % 2 ? MPI_UNDEFINED : n / 2));
        OK(MPI_Get_elements(&status, pair, &elements));
        CHECK(elements == n);
        OK(MPI_Get_elements_c(&status, pair, &big));
        CHECK(big == n);
    }
    OK(MPI_Status_set_elements(&status, pair, 5));
    OK(MPI_Get_elements(&status, pair, &elements));
    CHECK(elements == 5);
    OK(MPI_Type_free(&pair));
}

int main(int argc, char **argv)
{
    MPI_Datatype types[kinds];
    start(&argc, &argv);
    char *a = allocate(space), *b = allocate(space), *c = allocate(space);
    int n = layouts(types);
    for (int i = 0; i < n; i++)
        for (int count = 0; count <= 25; count = 2 * count + 1) {
            pack_round_trip(types[i], count, a, b, c);
            if (world_rank < 2 && world_size > 1)
                send_layout(types[i], count, a, b, c);
        }
    counts_and_elements();
    /* A type may be freed while a message of it is under way. */
    {
        MPI_Request requests[2];
        memset(b, 0, space);
        fill(a, space, 4);
        int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size, wrong = 0;
        OK(MPI_Irecv(b, 20, types[2], left, 9, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Isend(a, 20, types[2], right, 9, MPI_COMM_WORLD, &requests[1]));
        for (int i = 0; i < n; i++)
            OK(MPI_Type_free(&types[i]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (size_t element = 0; element < 20; element++)
            for (size_t block = 0; block < 2000; block++) {
                size_t at = (element * 3999 + 2 * block) * sizeof(double);
                wrong += memcmp(b + at, a + at, sizeof(double)) != 0;
            }
        CHECK(wrong == 0);
    }
    free(a);
    free(b);
    free(c);
    return finish();
}
