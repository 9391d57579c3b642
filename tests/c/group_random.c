/* Groups: random set operations against arrays, and what must be refused. */
#include "check.h"

enum { universe = 64 };
typedef struct {
    int count, ranks[universe];
} Set;

static MPI_Group base;
static uint64_t random_state = 12345;

static int below(int bound)
{
    return (int)(next_random(&random_state) % (uint32_t)bound);
}

static int place(const Set *set, int rank)
{
    for (int i = 0; i < set->count; i++)
        if (set->ranks[i] == rank)
            return i;
    return MPI_UNDEFINED;
}

static Set random_set(void)
{
    Set set = {0};
    for (int tries = below(2 * world_size + 1); tries > 0; tries--) {
        int rank = below(world_size);
        if (place(&set, rank) == MPI_UNDEFINED)
            set.ranks[set.count++] = rank;
    }
    return set;
}

static void expect(MPI_Group group, const Set *set)
{
    int size = -1, rank = -1, own[universe], base_ranks[universe];
    OK(MPI_Group_size(group, &size));
    CHECK(size == set->count);
    OK(MPI_Group_rank(group, &rank));
    CHECK(rank == place(set, world_rank));
    for (int i = 0; i < size; i++)
        own[i] = i;
    OK(MPI_Group_translate_ranks(group, size, own, base, base_ranks));
    for (int i = 0; i < size && i < set->count; i++)
        CHECK(base_ranks[i] == set->ranks[i]);
}

/* Those of `one` that are (or are not) in `other`. */
static Set kept(const Set *one, const Set *other, int if_there)
{
    Set result = {0};
    for (int i = 0; i < one->count; i++)
        if ((place(other, one->ranks[i]) != MPI_UNDEFINED) == if_there)
            result.ranks[result.count++] = one->ranks[i];
    return result;
}

static void release(MPI_Group *group)
{
    if (*group != MPI_GROUP_EMPTY)
        OK(MPI_Group_free(group));
}

static void one_round(void)
{
    Set one = random_set(), two = random_set(), all = {0}, expected;
    MPI_Group a, b, result;
    int comparison;
    for (int i = 0; i < world_size; i++)
        all.ranks[all.count++] = i;
    OK(MPI_Group_incl(base, one.count, one.ranks, &a));
    OK(MPI_Group_incl(base, two.count, two.ranks, &b));
    expect(a, &one);

    expected = kept(&two, &one, 0);
    memmove(expected.ranks + one.count, expected.ranks, sizeof(int) * (size_t)expected.count);
    memcpy(expected.ranks, one.ranks, sizeof(int) * (size_t)one.count);
    expected.count += one.count;
    OK(MPI_Group_union(a, b, &result));
    expect(result, &expected);
    release(&result);

    expected = kept(&one, &two, 1);
    OK(MPI_Group_intersection(a, b, &result));
    expect(result, &expected);
    release(&result);

    expected = kept(&one, &two, 0);
    OK(MPI_Group_difference(a, b, &result));
    expect(result, &expected);
    release(&result);

    expected = kept(&all, &one, 0);
    OK(MPI_Group_excl(base, one.count, one.ranks, &result));
    expect(result, &expected);
    release(&result);

    int same = one.count == two.count && kept(&one, &two, 1).count == one.count;
    int ordered = same && memcmp(one.ranks, two.ranks, sizeof(int) * (size_t)one.count) == 0;
    OK(MPI_Group_compare(a, b, &comparison));
    CHECK(comparison == (ordered ? MPI_IDENT : same ? MPI_SIMILAR : MPI_UNEQUAL));
    release(&a);
    release(&b);
}

static void refusals(void)
{
    MPI_Group result = MPI_GROUP_NULL;
    int twice[2] = {0, 0}, outside[1] = {world_size}, negative[1] = {-1}, rank, size;
    int no_stride[1][3] = {{0, 0, 0}}, too_far[1][3] = {{0, world_size, 1}};
    int overlap[2][3] = {{0, world_size - 1, 1}, {0, 0, 1}};
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Group_incl(base, 2, twice, &result)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Group_incl(base, 1, outside, &result)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Group_excl(base, 1, negative, &result)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Group_range_incl(base, 1, no_stride, &result)) == MPI_ERR_ARG);
    CHECK(MPI_Group_range_incl(base, 1, too_far, &result) != MPI_SUCCESS);
    CHECK(MPI_Group_range_excl(base, 2, overlap, &result) != MPI_SUCCESS);
    CHECK(class_of(MPI_Group_size(MPI_GROUP_NULL, &size)) == MPI_ERR_GROUP);
    CHECK(class_of(MPI_Group_translate_ranks(base, 1, outside, base, &rank)) == MPI_ERR_RANK);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &base));
    random_state += (uint64_t)world_rank; /* groups are local: every rank draws its own */
    for (int round = 0; round < 200; round++)
        one_round();
    refusals();
    OK(MPI_Group_free(&base));
    return finish();
}
