/* Derived types: size, extent, bounds, envelopes and contents of every basic constructor. */
#include "check.h"
#include <stddef.h>

struct record {
    char tag;
    double weight;
    int counts[3];
    short last;
};

static void expect(MPI_Datatype type, int size, MPI_Aint lb, MPI_Aint extent, MPI_Aint true_lb, MPI_Aint true_extent)
{
    int got = -1;
    MPI_Aint low = -1, span = -1;
    MPI_Count big = -1;
    OK(MPI_Type_size(type, &got));
    CHECK(got == size);
    OK(MPI_Type_size_c(type, &big));
    CHECK(big == size);
    OK(MPI_Type_get_extent(type, &low, &span));
    CHECK(low == lb && span == extent);
    OK(MPI_Type_get_true_extent(type, &low, &span));
    CHECK(low == true_lb && span == true_extent);
}

static void constructors(void)
{
    MPI_Datatype type, inner;
    expect(MPI_INT, 4, 0, 4, 0, 4);
    expect(MPI_DOUBLE_INT, 12, 0, 16, 0, 12);
    expect(MPI_2INT, 8, 0, 8, 0, 8);
    expect(MPI_BYTE, 1, 0, 1, 0, 1);

    OK(MPI_Type_contiguous(5, MPI_INT, &type));
    expect(type, 20, 0, 20, 0, 20);
    OK(MPI_Type_free(&type));
    CHECK(type == MPI_DATATYPE_NULL);
    OK(MPI_Type_contiguous(0, MPI_INT, &type));
    expect(type, 0, 0, 0, 0, 0);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_vector(3, 2, 4, MPI_INT, &type));
    expect(type, 24, 0, 40, 0, 40);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_vector(3, 2, -4, MPI_INT, &type));
    expect(type, 24, -32, 40, -32, 40);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_create_hvector(2, 3, 100, MPI_SHORT, &type));
    expect(type, 12, 0, 106, 0, 106);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_indexed(3, (int[]){2, 0, 1}, (int[]){4, 100, 1}, MPI_INT, &type));
    expect(type, 12, 4, 20, 4, 20);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_create_hindexed(2, (int[]){1, 2}, (MPI_Aint[]){-8, 12}, MPI_INT, &type));
    expect(type, 12, -8, 28, -8, 28);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_create_indexed_block(3, 2, (int[]){5, 0, 9}, MPI_INT, &type));
    expect(type, 24, 0, 44, 0, 44);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_create_hindexed_block(2, 1, (MPI_Aint[]){16, 40}, MPI_DOUBLE, &type));
    expect(type, 16, 16, 32, 16, 32);
    OK(MPI_Type_create_resized(type, 0, 64, &inner));
    expect(inner, 16, 0, 64, 16, 32);
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_free(&type));
    OK(MPI_Type_create_subarray(2, (int[]){4, 6}, (int[]){2, 3}, (int[]){1, 2}, MPI_ORDER_C, MPI_INT, &type));
    expect(type, 24, 0, 96, 32, 36);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_create_subarray(2, (int[]){4, 6}, (int[]){2, 3}, (int[]){1, 2}, MPI_ORDER_FORTRAN, MPI_INT, &type));
    expect(type, 24, 0, 96, 36, 40);
    OK(MPI_Type_free(&type));
    /* The alignment of a struct rounds its extent up, as the compiler does. */
    OK(MPI_Type_create_struct(4, (int[]){1, 1, 3, 1},
                              (MPI_Aint[]){offsetof(struct record, tag), offsetof(struct record, weight),
                                           offsetof(struct record, counts), offsetof(struct record, last)},
                              (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_SHORT}, &type));
    expect(type, 23, 0, sizeof(struct record), 0, offsetof(struct record, last) + sizeof(short));
    OK(MPI_Type_dup(type, &inner));
    expect(inner, 23, 0, sizeof(struct record), 0, offsetof(struct record, last) + sizeof(short));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_free(&type));
    /* A block cyclic distribution: all ranks' parts together are the whole. */
    int sum = 0;
    for (int rank = 0; rank < 3; rank++) {
        int size = -1;
        OK(MPI_Type_create_darray(3, rank, 1, (int[]){10}, (int[]){MPI_DISTRIBUTE_CYCLIC}, (int[]){2}, (int[]){3},
                                  MPI_ORDER_C, MPI_INT, &type));
        OK(MPI_Type_size(type, &size));
        sum += size;
        OK(MPI_Type_free(&type));
    }
    CHECK(sum == 40);
}

static void envelopes(void)
{
    MPI_Datatype vector, type, types[2];
    int integers = -1, addresses = -1, datatypes = -1, combiner = -1, values[8];
    MPI_Aint places[4];
    OK(MPI_Type_get_envelope(MPI_INT, &integers, &addresses, &datatypes, &combiner));
    CHECK(combiner == MPI_COMBINER_NAMED && integers == 0 && addresses == 0 && datatypes == 0);
    OK(MPI_Type_vector(3, 2, 4, MPI_INT, &vector));
    OK(MPI_Type_get_envelope(vector, &integers, &addresses, &datatypes, &combiner));
    CHECK(combiner == MPI_COMBINER_VECTOR && integers == 3 && addresses == 0 && datatypes == 1);
    OK(MPI_Type_get_contents(vector, 3, 0, 1, values, NULL, types));
    CHECK(values[0] == 3 && values[1] == 2 && values[2] == 4 && types[0] == MPI_INT);

    OK(MPI_Type_create_hindexed(2, (int[]){1, 2}, (MPI_Aint[]){-8, 12}, vector, &type));
    OK(MPI_Type_free(&vector)); /* lives on inside the other */
    OK(MPI_Type_get_envelope(type, &integers, &addresses, &datatypes, &combiner));
    CHECK(combiner == MPI_COMBINER_HINDEXED && integers == 3 && addresses == 2 && datatypes == 1);
    OK(MPI_Type_get_contents(type, 3, 2, 1, values, places, types));
    CHECK(values[0] == 2 && values[1] == 1 && values[2] == 2 && places[0] == -8 && places[1] == 12);
    OK(MPI_Type_get_envelope(types[0], &integers, &addresses, &datatypes, &combiner));
    CHECK(combiner == MPI_COMBINER_VECTOR);
    OK(MPI_Type_free(&types[0])); /* a derived type from contents is ours to free */
    OK(MPI_Type_free(&type));

    OK(MPI_Type_create_struct(2, (int[]){1, 2}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &type));
    OK(MPI_Type_get_envelope(type, &integers, &addresses, &datatypes, &combiner));
    CHECK(combiner == MPI_COMBINER_STRUCT && integers == 3 && addresses == 2 && datatypes == 2);
    OK(MPI_Type_get_contents(type, 3, 2, 2, values, places, types));
    CHECK(types[0] == MPI_INT && types[1] == MPI_DOUBLE && places[1] == 8 && values[2] == 2);
    OK(MPI_Type_free(&type));
}

static void names_and_addresses(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1;
    MPI_Datatype type;
    MPI_Aint one = 0, other = 0;
    struct record record;
    OK(MPI_Type_get_name(MPI_INT, name, &length));
    CHECK(strcmp(name, "MPI_INT") == 0 && length == 7);
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_get_name(type, name, &length));
    CHECK(length == 0);
    OK(MPI_Type_set_name(type, "pair"));
    OK(MPI_Type_get_name(type, name, &length));
    CHECK(strcmp(name, "pair") == 0);
    OK(MPI_Type_free(&type));
    OK(MPI_Get_address(&record, &one));
    OK(MPI_Get_address(&record.weight, &other));
    CHECK(MPI_Aint_diff(other, one) == (MPI_Aint)offsetof(struct record, weight));
    CHECK(MPI_Aint_add(one, MPI_Aint_diff(other, one)) == other);
    OK(MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 4, &type));
    OK(MPI_Type_size(type, &length));
    CHECK(length == 4);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    constructors();
    envelopes();
    names_and_addresses();
    return finish();
}
