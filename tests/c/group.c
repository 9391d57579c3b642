/* Groups: set operations, ranges, translation, comparison. */
#include "check.h"

static int size_of(MPI_Group group)
{
    int size = -1;
    OK(MPI_Group_size(group, &size));
    return size;
}

static int comparison(MPI_Group one, MPI_Group other)
{
    int result = -1;
    OK(MPI_Group_compare(one, other, &result));
    return result;
}

int main(int argc, char **argv)
{
    MPI_Group world, even, odd, reversed, both, common, rest, empty, again;
    int ranks[64], translated[64], rank = -1;
    start(&argc, &argv);
    int evens = (world_size + 1) / 2, odds = world_size / 2;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    CHECK(size_of(world) == world_size);
    OK(MPI_Group_rank(world, &rank));
    CHECK(rank == world_rank);

    for (int i = 0; i < evens; i++)
        ranks[i] = 2 * i;
    OK(MPI_Group_incl(world, evens, ranks, &even));
    OK(MPI_Group_excl(world, evens, ranks, &odd));
    CHECK(size_of(even) == evens && size_of(odd) == odds);
    OK(MPI_Group_rank(even, &rank));
    CHECK(rank == (world_rank % 2 ? MPI_UNDEFINED : world_rank / 2));

    int backwards[1][3] = {{world_size - 1, 0, -1}}, every_second[1][3] = {{0, world_size - 1, 2}};
    OK(MPI_Group_range_incl(world, 1, backwards, &reversed));
    CHECK(comparison(world, reversed) == (world_size == 1 ? MPI_IDENT : MPI_SIMILAR));
    OK(MPI_Group_range_excl(world, 1, every_second, &again));
    CHECK(comparison(again, odd) == MPI_IDENT);
    OK(MPI_Group_free(&again));

    OK(MPI_Group_union(even, odd, &both));
    CHECK(size_of(both) == world_size && comparison(both, world) == (world_size <= 2 ? MPI_IDENT : MPI_SIMILAR));
    OK(MPI_Group_intersection(reversed, even, &common));
    CHECK(size_of(common) == evens);
    for (int i = 0; i < evens; i++)
        ranks[i] = i;
    OK(MPI_Group_translate_ranks(common, evens, ranks, world, translated));
    for (int i = 0; i < evens; i++)
        CHECK(translated[i] == 2 * (evens - 1 - i)); /* in the order of the first group */
    OK(MPI_Group_difference(world, even, &rest));
    CHECK(comparison(rest, odd) == MPI_IDENT);
    OK(MPI_Group_intersection(even, odd, &empty));
    CHECK(size_of(empty) == 0 && comparison(empty, MPI_GROUP_EMPTY) == MPI_IDENT);
    CHECK(comparison(world, MPI_GROUP_EMPTY) == MPI_UNEQUAL);

    ranks[0] = 0;
    ranks[1] = MPI_PROC_NULL;
    OK(MPI_Group_translate_ranks(world, 2, ranks, odd, translated));
    CHECK(translated[0] == MPI_UNDEFINED && translated[1] == MPI_PROC_NULL);

    MPI_Group all[] = {world, even, odd, reversed, both, common, rest};
    for (int i = 0; i < 7; i++) {
        OK(MPI_Group_free(&all[i]));
        CHECK(all[i] == MPI_GROUP_NULL);
    }
    if (empty != MPI_GROUP_EMPTY)
        OK(MPI_Group_free(&empty));
    return finish();
}
