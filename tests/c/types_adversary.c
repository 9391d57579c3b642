/* What must not be done with datatypes: sizes that are negative or too large, types that are null,
    not committed or freed,
 * arguments that make no sense. Each is an error of the right class that names the call,
     and nothing is written. What may
 * be done, up to the limits: parts of elements, external32 of every type, every distribution. */
#include "check.h"

enum { guard = 0x5a5a5a5a };

/* The call fails with one of two classes, and its error names it. */
#define REFUSED(call, name, first, second)                                                                            \
    do {                                                                                                               \
        int code = (call), class = MPI_SUCCESS, length;                                                                \
        char text[MPI_MAX_ERROR_STRING];                                                                               \
        CHECK(code != MPI_SUCCESS);                                                                                    \
        OK(MPI_Error_class(code, &class));                                                                             \
        CHECK(class == (first) || class == (second));                                                                  \
        OK(MPI_Error_string(code, text, &length));                                                                     \
        CHECK(strstr(text, name) != NULL);                                                                             \
    } while (0)

static void constructors(void)
{
    MPI_Datatype type = MPI_DATATYPE_NULL, none = MPI_DATATYPE_NULL;
    int lengths[2] = {1, -1}, places[2] = {0, 5}, good[2] = {1, 1};
    MPI_Aint bytes[2] = {0, 8};
    MPI_Datatype types[2] = {MPI_INT, MPI_DATATYPE_NULL};
    REFUSED(MPI_Type_contiguous(-1, MPI_INT, &type), "MPI_Type_contiguous", MPI_ERR_COUNT, MPI_ERR_ARG);
    REFUSED(MPI_Type_vector(-1, 1, 1, MPI_INT, &type), "MPI_Type_vector", MPI_ERR_COUNT, MPI_ERR_ARG);
    REFUSED(MPI_Type_vector(2, -1, 1, MPI_INT, &type), "MPI_Type_vector", MPI_ERR_ARG, MPI_ERR_COUNT);
    REFUSED(MPI_Type_create_hvector(2, -1, 1, MPI_INT, &type), "MPI_Type_create_hvector", MPI_ERR_ARG, MPI_ERR_COUNT);
    REFUSED(MPI_Type_indexed(2, lengths, places, MPI_INT, &type), "MPI_Type_indexed", MPI_ERR_ARG, MPI_ERR_COUNT);
    REFUSED(MPI_Type_create_hindexed(2, lengths, bytes, MPI_INT, &type), "hindexed", MPI_ERR_ARG, MPI_ERR_COUNT);
    REFUSED(MPI_Type_create_indexed_block(2, -1, places, MPI_INT, &type), "indexed_block", MPI_ERR_ARG, MPI_ERR_COUNT);
    REFUSED(MPI_Type_create_struct(2, good, bytes, types, &type), "MPI_Type_create_struct", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_create_struct(-1, good, bytes, types, &type), "struct", MPI_ERR_COUNT, MPI_ERR_ARG);
    REFUSED(MPI_Type_contiguous(1, none, &type), "MPI_Type_contiguous", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_dup(none, &type), "MPI_Type_dup", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_create_resized(none, 0, 1, &type), "resized", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_commit(&none), "MPI_Type_commit", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_free(&none), "MPI_Type_free", MPI_ERR_TYPE, MPI_ERR_TYPE);
    int sizes[2] = {4, 4}, parts[2] = {2, 5}, starts[2] = {0, 0}, small[2] = {2, 2}, late[2] = {3, 0},
        empty[2] = {0, 1};
    REFUSED(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type), "subarray",
        MPI_ERR_ARG, MPI_ERR_ARG);
    REFUSED(MPI_Type_create_subarray(2, sizes, small, late, MPI_ORDER_C, MPI_INT, &type), "subarray", MPI_ERR_ARG,
        MPI_ERR_ARG);
    REFUSED(MPI_Type_create_subarray(2, sizes, empty, starts, MPI_ORDER_C, MPI_INT, &type), "subarray",
        MPI_ERR_ARG, MPI_ERR_ARG);
    REFUSED(MPI_Type_create_subarray(2, sizes, small, starts, 12345, MPI_INT, &type), "subarray", MPI_ERR_ARG,
        MPI_ERR_ARG);
    REFUSED(MPI_Type_create_subarray(0, sizes, small, starts, MPI_ORDER_C, MPI_INT, &type), "subarray",
        MPI_ERR_DIMS, MPI_ERR_ARG);
    CHECK(type == MPI_DATATYPE_NULL);
}

/* Sizes beyond 64 bits are an error when the type is made, not a wrapped size. */
static void overflow(void)
{
    MPI_Datatype type, wide;
    MPI_Count huge = (MPI_Count)1 << 62;
    REFUSED(MPI_Type_contiguous_c(huge, MPI_DOUBLE, &type), "contiguous", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_vector_c(huge, 1, 4, MPI_DOUBLE, &type), "vector", MPI_ERR_TYPE, MPI_ERR_TYPE);
    /* One that fits 64 bits and not an int tells so. */
    int size;
    MPI_Count count;
    OK(MPI_Type_contiguous_c((MPI_Count)1 << 40, MPI_INT, &wide));
    OK(MPI_Type_size(wide, &size));
    CHECK(size == MPI_UNDEFINED);
    OK(MPI_Type_size_c(wide, &count));
    CHECK(count == (MPI_Count)4 << 40);
    OK(MPI_Type_commit(&wide));
    int position = 0, out = guard, in = guard;
    REFUSED(MPI_Pack(&in, 1, wide, &out, sizeof out, &position, MPI_COMM_SELF), "MPI_Pack", MPI_ERR_ARG,
        MPI_ERR_TRUNCATE);
    CHECK(out == guard && position == 0);
    OK(MPI_Type_free(&wide));
}

static void uses(void)
{
    int values[8], position = 0, count;
    char packed[64];
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    MPI_Datatype raw, gone;
    for (int i = 0; i < 8; i++) values[i] = guard;
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &raw));
    REFUSED(MPI_Send(values, 1, raw, 0, 0, MPI_COMM_SELF), "MPI_Send", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Recv(values, 1, raw, 0, 0, MPI_COMM_SELF, &status), "MPI_Recv", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Isend(values, 1, raw, 0, 0, MPI_COMM_SELF, &request), "MPI_Isend", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Bcast(values, 1, raw, 0, MPI_COMM_SELF), "MPI_Bcast", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Pack(values, 1, raw, packed, 64, &position, MPI_COMM_SELF), "MPI_Pack", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Unpack(packed, 64, &position, values, 1, raw, MPI_COMM_SELF), "MPI_Unpack", MPI_ERR_TYPE, MPI_ERR_TYPE);
    /* Asking about it is allowed. */
    OK(MPI_Type_size(raw, &count));
    CHECK(count == 8);
    gone = raw;
    OK(MPI_Type_free(&raw));
    CHECK(raw == MPI_DATATYPE_NULL);
    REFUSED(MPI_Send(values, 1, gone, 0, 0, MPI_COMM_SELF), "MPI_Send", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_size(gone, &count), "MPI_Type_size", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Type_free(&gone), "MPI_Type_free", MPI_ERR_TYPE, MPI_ERR_TYPE);
    REFUSED(MPI_Send(values, -1, MPI_INT, 0, 0, MPI_COMM_SELF), "MPI_Send", MPI_ERR_COUNT, MPI_ERR_COUNT);
    REFUSED(MPI_Send(values, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF), "MPI_Send", MPI_ERR_TYPE, MPI_ERR_TYPE);
    for (int i = 0; i < 8; i++) CHECK(values[i] == guard);
    CHECK(request == MPI_REQUEST_NULL);
}

/* A message that ends within an element, and one that has more than the receive has room for. */
static void parts(void)
{
    struct { double value; int number; int beside; } in[3];
    MPI_Datatype pair, columns;
    MPI_Request request;
    MPI_Status status;
    int count, elements;
    MPI_Count big;
    int out[8] = {1, 2, 3, 4, 5, 6, 7, 8}, room[8];
    OK(MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_DOUBLE, MPI_INT}, &pair));
    OK(MPI_Type_commit(&pair));
    OK(MPI_Isend(out, 5, MPI_INT, 0, 1, MPI_COMM_SELF, &request));
    OK(MPI_Recv(in, 3, pair, 0, 1, MPI_COMM_SELF, &status));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Get_count(&status, pair, &count));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Get_elements(&status, pair, &elements));
    CHECK(elements == 3);
    OK(MPI_Get_elements_x(&status, pair, &big));
    CHECK(big == 3);
    OK(MPI_Status_set_elements_x(&status, MPI_INT, (MPI_Count)1 << 40));
    OK(MPI_Get_elements_x(&status, MPI_INT, &big));
    CHECK(big == (MPI_Count)1 << 40);
    OK(MPI_Get_elements(&status, MPI_INT, &elements));
    CHECK(elements == MPI_UNDEFINED);
    OK(MPI_Type_free(&pair));
    OK(MPI_Type_vector(2, 1, 3, MPI_INT, &columns));
    OK(MPI_Type_commit(&columns));
    for (int i = 0; i < 8; i++) room[i] = guard;
    OK(MPI_Isend(out, 8, MPI_INT, 0, 2, MPI_COMM_SELF, &request));
    REFUSED(MPI_Recv(room, 1, columns, 0, 2, MPI_COMM_SELF, &status), "MPI_Recv", MPI_ERR_TRUNCATE, MPI_ERR_TRUNCATE);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < 8; i++) CHECK(i == 0 || i == 3 || room[i] == guard);
    OK(MPI_Type_free(&columns));
}

/* Sizes of MPI: §14.6.2, table of external32, and every value back as it was. */
static void external(void)
{
    static const struct { MPI_Datatype type; int bytes; } table[] = {
        {MPI_PACKED, 1}, {MPI_BYTE, 1}, {MPI_CHAR, 1}, {MPI_UNSIGNED_CHAR, 1}, {MPI_SIGNED_CHAR, 1}, {MPI_WCHAR, 2},
        {MPI_SHORT, 2}, {MPI_UNSIGNED_SHORT, 2}, {MPI_INT, 4}, {MPI_LONG, 4}, {MPI_UNSIGNED, 4}, {MPI_UNSIGNED_LONG, 4},
        {MPI_LONG_LONG_INT, 8}, {MPI_UNSIGNED_LONG_LONG, 8}, {MPI_FLOAT, 4}, {MPI_DOUBLE, 8}, {MPI_LONG_DOUBLE, 16},
        {MPI_C_BOOL, 1}, {MPI_INT8_T, 1}, {MPI_INT16_T, 2}, {MPI_INT32_T, 4}, {MPI_INT64_T, 8}, {MPI_UINT8_T, 1},
        {MPI_UINT16_T, 2}, {MPI_UINT32_T, 4}, {MPI_UINT64_T, 8}, {MPI_AINT, 8}, {MPI_COUNT, 8}, {MPI_OFFSET, 8},
        {MPI_C_COMPLEX, 8}, {MPI_C_FLOAT_COMPLEX, 8}, {MPI_C_DOUBLE_COMPLEX, 16}, {MPI_C_LONG_DOUBLE_COMPLEX, 32}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        MPI_Datatype type = table[i].type;
        MPI_Aint size, position = 0;
        int native;
        unsigned char bytes[256], from[128] = {0}, to[128];
        OK(MPI_Pack_external_size("external32", 3, type, &size));
        CHECK(size == 3 * table[i].bytes);
        OK(MPI_Type_size(type, &native));
        /* Small numbers, whatever the type: what fits both forms comes back. */
        for (int element = 0; element < 3; element++) from[element * native] = (unsigned char)(element % 2);
        memset(bytes, 0xee, sizeof bytes);
        memset(to, 0xee, sizeof to);
        OK(MPI_Pack_external("external32", from, 3, type, bytes, size, &position));
        CHECK(position == size && bytes[size] == 0xee);
        position = 0;
        OK(MPI_Unpack_external("external32", bytes, size, &position, to, 3, type));
        CHECK(position == size && to[3 * native] == 0xee);
        if (type != MPI_LONG_DOUBLE && type != MPI_C_LONG_DOUBLE_COMPLEX) CHECK(memcmp(from, to, 3 * native) == 0);
        position = 1;
        REFUSED(MPI_Pack_external("external32", from, 3, type, bytes, size, &position), "external", MPI_ERR_ARG,
            MPI_ERR_TRUNCATE);
    }
    MPI_Aint size;
    REFUSED(MPI_Pack_external_size("native", 1, MPI_INT, &size), "MPI_Pack_external_size", MPI_ERR_ARG,
        MPI_ERR_UNSUPPORTED_DATAREP);
}

static const int distributions[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};

/* The parts of all processes are the array, each number once, for every pair of distributions. */
static void distributed(void)
{
    enum { height = 7, width = 10 };
    for (int first = 0; first < 3; first++)
        for (int second = 0; second < 3; second++)
            for (int argument = 0; argument < 2; argument++) {
                int kinds[2] = {distributions[first], distributions[second]};
                int grid[2] = {first == 2 ? 1 : 2, second == 2 ? 1 : 3}, sizes[2] = {height, width}, arguments[2];
                int seen[height * width] = {0};
                for (int d = 0; d < 2; d++)
                    arguments[d] = argument == 0 || kinds[d] == MPI_DISTRIBUTE_NONE ? MPI_DISTRIBUTE_DFLT_DARG : 4;
                for (int rank = 0; rank < grid[0] * grid[1]; rank++) {
                    MPI_Datatype type;
                    int numbers[height * width], size, position = 0, packed[height * width];
                    MPI_Aint lb, extent;
                    OK(MPI_Type_create_darray(grid[0] * grid[1], rank, 2, sizes, kinds, arguments, grid,
                        MPI_ORDER_C, MPI_INT, &type));
                    OK(MPI_Type_commit(&type));
                    OK(MPI_Type_get_extent(type, &lb, &extent));
                    CHECK(lb == 0 && extent == (MPI_Aint)sizeof numbers);
                    OK(MPI_Type_size(type, &size));
                    for (int i = 0; i < height * width; i++) numbers[i] = i;
                    OK(MPI_Pack(numbers, 1, type, packed, sizeof packed, &position, MPI_COMM_SELF));
                    CHECK(position == size);
                    for (int i = 0; i < size / (int)sizeof(int); i++) {
                        CHECK(packed[i] >= 0 && packed[i] < height * width);
                        seen[packed[i]]++;
                    }
                    OK(MPI_Type_free(&type));
                }
                for (int i = 0; i < height * width; i++) CHECK(seen[i] == 1);
            }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int size = 10, kind = MPI_DISTRIBUTE_BLOCK, few = 2, four = 4, none = MPI_DISTRIBUTE_NONE, nothing = 0;
    REFUSED(MPI_Type_create_darray(4, 0, 1, &size, &kind, &few, &four, MPI_ORDER_C, MPI_INT, &type), "darray",
        MPI_ERR_ARG, MPI_ERR_ARG);
    REFUSED(MPI_Type_create_darray(4, 4, 1, &size, &kind, &four, &four, MPI_ORDER_C, MPI_INT, &type), "darray",
        MPI_ERR_RANK, MPI_ERR_ARG);
    REFUSED(MPI_Type_create_darray(3, 0, 1, &size, &kind, &four, &four, MPI_ORDER_C, MPI_INT, &type), "darray",
        MPI_ERR_ARG, MPI_ERR_ARG);
    REFUSED(MPI_Type_create_darray(4, 0, 1, &size, &none, &four, &four, MPI_ORDER_C, MPI_INT, &type), "darray",
        MPI_ERR_ARG, MPI_ERR_ARG);
    REFUSED(MPI_Type_create_darray(4, 0, 1, &nothing, &kind, &four, &four, MPI_ORDER_C, MPI_INT, &type), "darray",
        MPI_ERR_ARG, MPI_ERR_ARG);
    CHECK(type == MPI_DATATYPE_NULL);
}

static void parametric(void)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int ranges[3];
    REFUSED(MPI_Type_create_f90_real(1000, 100000, &type), "MPI_Type_create_f90_real", MPI_ERR_ARG, MPI_ERR_OTHER);
    REFUSED(MPI_Type_create_f90_complex(MPI_UNDEFINED, MPI_UNDEFINED, &type), "f90_complex", MPI_ERR_ARG,
        MPI_ERR_OTHER);
    REFUSED(MPI_Type_create_f90_integer(100, &type), "MPI_Type_create_f90_integer", MPI_ERR_ARG, MPI_ERR_OTHER);
    OK(MPI_Type_create_f90_real(6, 30, &type));
    int counts[4], combiner;
    OK(MPI_Type_get_envelope(type, &counts[0], &counts[1], &counts[2], &combiner));
    CHECK(combiner == MPI_COMBINER_F90_REAL && counts[0] == 2 && counts[1] == 0 && counts[2] == 0);
    OK(MPI_Type_get_contents(type, 2, 0, 0, ranges, NULL, NULL));
    CHECK(ranges[0] == 6 && ranges[1] == 30);
    REFUSED(MPI_Type_get_contents(type, 1, 0, 0, ranges, NULL, NULL), "MPI_Type_get_contents", MPI_ERR_ARG,
        MPI_ERR_COUNT);
    REFUSED(MPI_Type_get_contents(MPI_INT, 0, 0, 0, ranges, NULL, NULL), "MPI_Type_get_contents", MPI_ERR_TYPE,
        MPI_ERR_TYPE);
    REFUSED(MPI_Type_free(&type), "MPI_Type_free", MPI_ERR_TYPE, MPI_ERR_TYPE);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    constructors();
    overflow();
    uses();
    parts();
    external();
    distributed();
    parametric();
    return finish();
}
