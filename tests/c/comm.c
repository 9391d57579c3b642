/* Communicators: dup, idup, split, split_type, create, create_group, compare, names, isolation. */
#include "check.h"

/* A ring message and a sum prove that a communicator works and is its own world. */
static void works(MPI_Comm comm)
{
    int rank = -1, size = -1, got = -1, sum = -1;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 4, &got, 1, MPI_INT, (rank + size - 1) % size, 4, comm,
                    MPI_STATUS_IGNORE));
    CHECK(got == (rank + size - 1) % size);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size * (size - 1) / 2);
}

static int comparison(MPI_Comm one, MPI_Comm other)
{
    int result = -1;
    OK(MPI_Comm_compare(one, other, &result));
    return result;
}

static void duplicates(void)
{
    MPI_Comm copy, later, with_info;
    MPI_Request request;
    int inter = -1;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    CHECK(comparison(MPI_COMM_WORLD, copy) == MPI_CONGRUENT);
    CHECK(comparison(MPI_COMM_WORLD, MPI_COMM_WORLD) == MPI_IDENT);
    CHECK(comparison(MPI_COMM_WORLD, MPI_COMM_SELF) == (world_size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));
    works(copy);
    OK(MPI_Comm_test_inter(copy, &inter));
    CHECK(inter == 0);

    /* The same source and tag on two communicators do not mix. */
    int a = world_rank + 1, b = -world_rank - 1, got = 0;
    MPI_Request requests[2];
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    OK(MPI_Isend(&a, 1, MPI_INT, right, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(&b, 1, MPI_INT, right, 1, copy, &requests[1]));
    OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, copy, MPI_STATUS_IGNORE));
    CHECK(got == -left - 1);
    OK(MPI_Recv(&got, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == left + 1);
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));

    OK(MPI_Comm_idup(copy, &later, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    works(later);
    OK(MPI_Comm_dup_with_info(copy, MPI_INFO_NULL, &with_info));
    works(with_info);
    OK(MPI_Comm_free(&with_info));
    OK(MPI_Comm_free(&copy));
    CHECK(copy == MPI_COMM_NULL);
    works(later);
    OK(MPI_Comm_free(&later));
}

static void splits(void)
{
    MPI_Comm half, reversed, few, node, deeper;
    int rank = -1, size = -1;
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half));
    OK(MPI_Comm_rank(half, &rank));
    OK(MPI_Comm_size(half, &size));
    CHECK(rank == world_rank / 2 && size == (world_size + 1 - world_rank % 2) / 2);
    works(half);
    OK(MPI_Comm_split(half, 0, -rank, &deeper));
    OK(MPI_Comm_rank(deeper, &rank));
    CHECK(rank == size - 1 - world_rank / 2);
    works(deeper);
    OK(MPI_Comm_free(&deeper));
    OK(MPI_Comm_free(&half));

    OK(MPI_Comm_split(MPI_COMM_WORLD, 5, world_size - world_rank, &reversed));
    OK(MPI_Comm_rank(reversed, &rank));
    CHECK(rank == world_size - 1 - world_rank);
    CHECK(comparison(MPI_COMM_WORLD, reversed) == (world_size == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
    works(reversed);
    OK(MPI_Comm_free(&reversed));

    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank == 0 ? 3 : MPI_UNDEFINED, 0, &few));
    CHECK((few == MPI_COMM_NULL) == (world_rank != 0));
    if (few != MPI_COMM_NULL) {
        works(few);
        OK(MPI_Comm_free(&few));
    }
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Comm_size(node, &size));
    CHECK(size >= 1 && size <= world_size);
    works(node);
    OK(MPI_Comm_free(&node));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, MPI_INFO_NULL, &node));
    CHECK(node == MPI_COMM_NULL);
}

/* By group: collectively over the parent, and by the members alone. */
static void by_group(void)
{
    MPI_Group world, some;
    MPI_Comm comm;
    int members = (world_size + 1) / 2, ranks[world_size], rank = -1;
    for (int i = 0; i < members; i++)
        ranks[i] = 2 * (members - 1 - i); /* even ranks, highest first */
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, members, ranks, &some));
    OK(MPI_Comm_create(MPI_COMM_WORLD, some, &comm));
    CHECK((comm == MPI_COMM_NULL) == (world_rank % 2 == 1));
    if (comm != MPI_COMM_NULL) {
        OK(MPI_Comm_rank(comm, &rank));
        CHECK(rank == members - 1 - world_rank / 2);
        works(comm);
        OK(MPI_Comm_free(&comm));
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, some, 9, &comm));
        works(comm);
        OK(MPI_Comm_free(&comm));
    }
    OK(MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &comm));
    CHECK(comm == MPI_COMM_NULL);
    /* Two disjoint groups at once, each building its own. */
    MPI_Group mine;
    int range[1][3] = {{world_rank % 2, world_size - 1, 2}};
    OK(MPI_Group_range_incl(world, 1, range, &mine));
    OK(MPI_Comm_create(MPI_COMM_WORLD, mine, &comm));
    works(comm);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_create_group(MPI_COMM_WORLD, mine, 10 + world_rank % 2, &comm));
    works(comm);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&mine));
    OK(MPI_Group_free(&some));
    OK(MPI_Group_free(&world));
}

static void names(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1;
    MPI_Comm copy;
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0 && length == 14);
    OK(MPI_Comm_get_name(MPI_COMM_SELF, name, &length));
    CHECK(strcmp(name, "MPI_COMM_SELF") == 0);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    OK(MPI_Comm_get_name(copy, name, &length));
    CHECK(length == 0 && name[0] == 0);
    OK(MPI_Comm_set_name(copy, "left half"));
    OK(MPI_Comm_get_name(copy, name, &length));
    CHECK(strcmp(name, "left half") == 0 && length == 9);
    OK(MPI_Comm_free(&copy));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    duplicates();
    splits();
    by_group();
    names();
    works(MPI_COMM_WORLD);
    return finish();
}
