/* Datatypes through the large-count calls against the same made by the small ones: bounds, packed bytes, contents. Then
 * the calls that only exist for few: x forms, external32, value-index and Fortran's parametric types. */
#include "check.h"

enum { room = 4000 };

static char memory[room], small_packed[room], large_packed[room];

static void compare(const char *name, MPI_Datatype small, MPI_Datatype large)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    MPI_Count lb_c, extent_c, true_lb_c, true_extent_c, size_c, size_x, position_c = 0, room_c;
    int size, position = 0, same;
    OK(MPI_Type_commit(&small));
    OK(MPI_Type_commit(&large));
    OK(MPI_Type_size(small, &size));
    OK(MPI_Type_get_extent(small, &lb, &extent));
    OK(MPI_Type_get_true_extent(small, &true_lb, &true_extent));
    OK(MPI_Type_size_c(large, &size_c));
    OK(MPI_Type_size_x(large, &size_x));
    OK(MPI_Type_get_extent_c(large, &lb_c, &extent_c));
    OK(MPI_Type_get_true_extent_c(large, &true_lb_c, &true_extent_c));
    same = size == size_c && size == size_x && lb == lb_c && extent == extent_c && true_lb == true_lb_c &&
           true_extent == true_extent_c;
    OK(MPI_Type_get_extent_x(large, &lb_c, &extent_c));
    OK(MPI_Type_get_true_extent_x(large, &true_lb_c, &true_extent_c));
    same = same && lb == lb_c && extent == extent_c && true_lb == true_lb_c && true_extent == true_extent_c;
    memset(small_packed, 0, room);
    memset(large_packed, 0, room);
    OK(MPI_Pack_size_c(2, large, MPI_COMM_WORLD, &room_c));
    CHECK(room_c >= 2 * size);
    OK(MPI_Pack(memory + 500, 2, small, small_packed, room, &position, MPI_COMM_WORLD));
    OK(MPI_Pack_c(memory + 500, 2, large, large_packed, room, &position_c, MPI_COMM_WORLD));
    same = same && position == position_c && memcmp(small_packed, large_packed, room) == 0;
    if (!same)
        fprintf(stderr, "%s differs\n", name);
    CHECK(same);
    OK(MPI_Type_free(&small));
    OK(MPI_Type_free(&large));
}

static void constructors(void)
{
    int lengths[] = {2, 0, 3}, places[] = {0, 4, 7}, sizes[] = {4, 5}, subsizes[] = {2, 3}, starts[] = {1, 2};
    int distributions[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK}, processes[] = {2, 1};
    int arguments[] = {1, MPI_DISTRIBUTE_DFLT_DARG};
    MPI_Count lengths_c[] = {2, 0, 3}, places_c[] = {0, 4, 7}, bytes_c[] = {0, 17, 40}, sizes_c[] = {4, 5};
    MPI_Count subsizes_c[] = {2, 3}, starts_c[] = {1, 2};
    MPI_Aint bytes[] = {0, 17, 40};
    MPI_Datatype types[] = {MPI_INT, MPI_CHAR, MPI_SHORT}, small, large;
#define SMALL(name, ...) OK(MPI_Type_##name(__VA_ARGS__, &small))
#define LARGE(name, ...)                              \
    OK(MPI_Type_##name##_c(__VA_ARGS__, &large));     \
    compare(#name, small, large)
    SMALL(contiguous, 3, MPI_INT);
    LARGE(contiguous, 3, MPI_INT);
    SMALL(vector, 3, 2, 4, MPI_SHORT);
    LARGE(vector, 3, 2, 4, MPI_SHORT);
    SMALL(create_hvector, 3, 2, 13, MPI_SHORT);
    LARGE(create_hvector, 3, 2, 13, MPI_SHORT);
    SMALL(indexed, 3, lengths, places, MPI_INT);
    LARGE(indexed, 3, lengths_c, places_c, MPI_INT);
    SMALL(create_hindexed, 3, lengths, bytes, MPI_SHORT);
    LARGE(create_hindexed, 3, lengths_c, bytes_c, MPI_SHORT);
    SMALL(create_indexed_block, 3, 2, places, MPI_INT);
    LARGE(create_indexed_block, 3, 2, places_c, MPI_INT);
    SMALL(create_hindexed_block, 3, 2, bytes, MPI_SHORT);
    LARGE(create_hindexed_block, 3, 2, bytes_c, MPI_SHORT);
    SMALL(create_struct, 3, lengths, bytes, types);
    LARGE(create_struct, 3, lengths_c, bytes_c, types);
    SMALL(create_resized, MPI_INT, -4, 12);
    LARGE(create_resized, MPI_INT, -4, 12);
    SMALL(create_subarray, 2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT);
    LARGE(create_subarray, 2, sizes_c, subsizes_c, starts_c, MPI_ORDER_C, MPI_INT);
    SMALL(create_darray, 2, 1, 2, sizes, distributions, arguments, processes, MPI_ORDER_FORTRAN, MPI_INT);
    LARGE(create_darray, 2, 1, 2, sizes_c, distributions, arguments, processes, MPI_ORDER_FORTRAN, MPI_INT);
}

/* What a type was made of comes back from either call if the numbers were small. */
static void contents(void)
{
    MPI_Count lengths_c[] = {2, 3}, bytes_c[] = {8, 40}, integers_n, addresses_n, counts_n, types_n, counts[5];
    MPI_Datatype types[] = {MPI_INT, MPI_CHAR}, type, got[2];
    MPI_Aint addresses[1];
    int combiner, integers[1];
    OK(MPI_Type_create_struct_c(2, lengths_c, bytes_c, types, &type));
    OK(MPI_Type_get_envelope_c(type, &integers_n, &addresses_n, &counts_n, &types_n, &combiner));
    CHECK(combiner == MPI_COMBINER_STRUCT && integers_n == 0 && addresses_n == 0 && counts_n == 5 && types_n == 2);
    OK(MPI_Type_get_contents_c(type, 0, 0, 5, 2, integers, addresses, counts, got));
    CHECK(counts[0] == 2 && counts[1] == 2 && counts[2] == 3 && counts[3] == 8 && counts[4] == 40);
    CHECK(got[0] == MPI_INT && got[1] == MPI_CHAR);
    OK(MPI_Type_free(&type));
}

/* external32 is big-endian and has sizes of its own; what is packed with one call is unpacked with the other. */
static void external(void)
{
    int values[] = {1, -2, 0x01020304}, back[3] = {0, 0, 0};
    unsigned char bytes[64];
    MPI_Aint size = -1, position = 0;
    MPI_Count size_c = -1, position_c = 0;
    OK(MPI_Pack_external_size("external32", 3, MPI_INT, &size));
    OK(MPI_Pack_external_size_c("external32", 3, MPI_INT, &size_c));
    CHECK(size == 12 && size_c == 12);
    OK(MPI_Pack_external("external32", values, 3, MPI_INT, bytes, sizeof bytes, &position));
    CHECK(position == 12 && bytes[3] == 1 && bytes[4] == 0xff && bytes[7] == 0xfe && bytes[8] == 1 && bytes[11] == 4);
    OK(MPI_Unpack_external_c("external32", bytes, 12, &position_c, back, 3, MPI_INT));
    CHECK(position_c == 12 && memcmp(values, back, sizeof back) == 0);
    position = position_c = 0;
    memset(back, 0, sizeof back);
    OK(MPI_Pack_external_c("external32", values, 3, MPI_INT, bytes, sizeof bytes, &position_c));
    OK(MPI_Unpack_external("external32", bytes, 12, &position, back, 3, MPI_INT));
    CHECK(position == 12 && position_c == 12 && memcmp(values, back, sizeof back) == 0);
    position_c = 0;
    OK(MPI_Unpack_c(values, sizeof values, &position_c, back, 2, MPI_INT, MPI_COMM_SELF));
    CHECK(position_c == 8 && back[1] == -2);
}

static void rare_types(void)
{
    MPI_Datatype type, again, parts[2];
    int integers[2], integers_n, addresses_n, types_n, combiner, size = 0;
    MPI_Aint none[1];
    MPI_Status status;
    MPI_Count elements = 0;
    OK(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &type));
    CHECK(type == MPI_DOUBLE_INT);
    OK(MPI_Type_get_value_index(MPI_INT, MPI_INT, &type));
    CHECK(type == MPI_2INT);
    OK(MPI_Type_get_value_index(MPI_UNSIGNED_LONG_LONG, MPI_LONG, &type));
    if (type != MPI_DATATYPE_NULL) {
        struct { unsigned long long value; long index; } mine = {world_rank % 2, world_rank}, least;
        OK(MPI_Type_get_value_index(MPI_UNSIGNED_LONG_LONG, MPI_LONG, &again));
        CHECK(type == again);
        OK(MPI_Type_get_envelope(type, &integers_n, &addresses_n, &types_n, &combiner));
        CHECK(combiner == MPI_COMBINER_VALUE_INDEX && types_n == 2);
        OK(MPI_Type_get_contents(type, 0, 0, 2, integers, none, parts));
        CHECK(parts[0] == MPI_UNSIGNED_LONG_LONG && parts[1] == MPI_LONG);
        OK(MPI_Allreduce(&mine, &least, 1, type, MPI_MINLOC, MPI_COMM_WORLD));
        CHECK(least.value == 0 && least.index == 0);
    }
    OK(MPI_Type_create_f90_real(15, 300, &type));
    OK(MPI_Type_size(type, &size));
    CHECK(size == 8);
    OK(MPI_Type_get_envelope(type, &integers_n, &addresses_n, &types_n, &combiner));
    CHECK(combiner == MPI_COMBINER_F90_REAL && integers_n == 2 && types_n == 0);
    OK(MPI_Type_get_contents(type, 2, 0, 0, integers, none, parts));
    CHECK(integers[0] == 15 && integers[1] == 300);
    OK(MPI_Type_create_f90_real(15, 300, &again));
    CHECK(type == again);
    CHECK(class_of(MPI_Type_free(&again)) == MPI_ERR_TYPE);
    OK(MPI_Type_create_f90_complex(6, MPI_UNDEFINED, &type));
    OK(MPI_Type_size(type, &size));
    CHECK(size == 8);
    OK(MPI_Type_create_f90_integer(9, &type));
    OK(MPI_Type_size(type, &size));
    CHECK(size == 4);
    OK(MPI_Status_set_elements_x(&status, MPI_INT, 77));
    OK(MPI_Get_elements_x(&status, MPI_INT, &elements));
    CHECK(elements == 77);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    fill(memory, room, 5);
    constructors();
    contents();
    external();
    rare_types();
    return finish();
}
