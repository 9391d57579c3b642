/* Intercommunicators: made, asked, sent over, copied, divided, merged. */
#include "check.h"

static int in_low; /* this process is in the first of the two groups */
static int low_size, high_size;

/* The world in two groups, led by their last and first ranks. */
static MPI_Comm split_world(int low_count)
{
    MPI_Comm local, inter;
    low_size = low_count, high_size = world_size - low_count;
    in_low = world_rank < low_count;
    OK(MPI_Comm_split(MPI_COMM_WORLD, in_low, world_rank, &local));
    int leader = in_low ? low_size - 1 : 0, remote = in_low ? low_size : low_size - 1;
    int rank;
    OK(MPI_Comm_rank(local, &rank));
    /* Who is not the leader need not know of the others. */
    OK(MPI_Intercomm_create(local, leader, rank == leader ? MPI_COMM_WORLD : MPI_COMM_NULL,
                            rank == leader ? remote : -77, 5, &inter));
    OK(MPI_Comm_free(&local));
    return inter;
}

static void facts(MPI_Comm inter)
{
    int is_inter = 0, rank, size, remote, other, compared;
    OK(MPI_Comm_test_inter(inter, &is_inter));
    CHECK(is_inter);
    OK(MPI_Comm_test_inter(MPI_COMM_WORLD, &is_inter));
    CHECK(!is_inter);
    OK(MPI_Comm_rank(inter, &rank));
    OK(MPI_Comm_size(inter, &size));
    OK(MPI_Comm_remote_size(inter, &remote));
    CHECK(rank == (in_low ? world_rank : world_rank - low_size));
    CHECK(size == (in_low ? low_size : high_size) && remote == (in_low ? high_size : low_size));
    MPI_Group own, theirs, world, all;
    OK(MPI_Comm_group(inter, &own));
    OK(MPI_Comm_remote_group(inter, &theirs));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_size(theirs, &other));
    CHECK(other == remote);
    for (int i = 0; i < remote; i++) {
        int there = -1;
        OK(MPI_Group_translate_ranks(theirs, 1, &i, world, &there));
        CHECK(there == (in_low ? low_size + i : i));
    }
    OK(MPI_Group_union(in_low ? own : theirs, in_low ? theirs : own, &all));
    OK(MPI_Group_compare(all, world, &compared));
    CHECK(compared == MPI_IDENT);
    OK(MPI_Group_rank(theirs, &rank));
    CHECK(rank == MPI_UNDEFINED);
    OK(MPI_Group_free(&own));
    OK(MPI_Group_free(&theirs));
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&all));
    OK(MPI_Comm_compare(inter, inter, &compared));
    CHECK(compared == MPI_IDENT);
    OK(MPI_Comm_compare(inter, MPI_COMM_WORLD, &compared));
    CHECK(compared == MPI_UNEQUAL);
}

/* Everybody with everybody of the other group, in every way there is. */
static void messages(MPI_Comm inter)
{
    int remote, rank;
    MPI_Status status;
    OK(MPI_Comm_remote_size(inter, &remote));
    OK(MPI_Comm_rank(inter, &rank));
    MPI_Request *requests = allocate(sizeof(MPI_Request) * 2 * (size_t)remote);
    int *sends = allocate(sizeof(int) * (size_t)remote), *receives = allocate(sizeof(int) * (size_t)remote);
    for (int i = 0; i < remote; i++) {
        sends[i] = 100 * rank + i;
        OK(MPI_Irecv(&receives[i], 1, MPI_INT, i, 3, inter, &requests[2 * i]));
        OK(MPI_Isend(&sends[i], 1, MPI_INT, i, 3, inter, &requests[2 * i + 1]));
    }
    OK(MPI_Waitall(2 * remote, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < remote; i++)
        CHECK(receives[i] == 100 * i + rank);
    /* Wildcards give ranks of the other group. */
    for (int i = 0; i < remote; i++)
        OK(MPI_Isend(&sends[i], 1, MPI_INT, i, 4, inter, &requests[i]));
    int seen = 0;
    for (int i = 0; i < remote; i++) {
        int got = -1;
        OK(MPI_Probe(MPI_ANY_SOURCE, 4, inter, &status));
        OK(MPI_Recv(&got, 1, MPI_INT, status.MPI_SOURCE, MPI_ANY_TAG, inter, &status));
        CHECK(got == 100 * status.MPI_SOURCE + rank && status.MPI_TAG == 4);
        seen += status.MPI_SOURCE;
    }
    CHECK(seen == remote * (remote - 1) / 2);
    OK(MPI_Waitall(remote, requests, MPI_STATUSES_IGNORE));
    /* With nobody. */
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, MPI_PROC_NULL, 0, &seen, 1, MPI_INT, MPI_PROC_NULL, 0, inter, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Send(&rank, 1, MPI_INT, remote, 0, inter)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Recv(&rank, 1, MPI_INT, remote, 0, inter, &status)) == MPI_ERR_RANK);
    free(requests), free(sends), free(receives);
}

static int copied, deleted;

static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *place, int *flag)
{
    (void)comm, (void)keyval, (void)extra;
    copied++;
    *(void **)place = value;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete (MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)extra, (void)value;
    deleted++;
    return MPI_SUCCESS;
}

static void copies(MPI_Comm inter)
{
    MPI_Comm copy_comm;
    MPI_Request request;
    int keyval, found, compared, *value, mark = 7;
    copied = deleted = 0;
    OK(MPI_Comm_create_keyval(copy, delete, &keyval, NULL));
    OK(MPI_Comm_set_attr(inter, keyval, &mark));
    OK(MPI_Comm_dup(inter, &copy_comm));
    OK(MPI_Comm_get_attr(copy_comm, keyval, &value, &found));
    CHECK(found && value == &mark && copied == 1);
    OK(MPI_Comm_compare(inter, copy_comm, &compared));
    CHECK(compared == MPI_CONGRUENT);
    facts(copy_comm);
    messages(copy_comm);
    OK(MPI_Comm_free(&copy_comm));
    CHECK(deleted == 1);
    OK(MPI_Comm_idup(inter, &copy_comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    facts(copy_comm);
    messages(copy_comm);
    OK(MPI_Comm_disconnect(&copy_comm));
    OK(MPI_Comm_delete_attr(inter, keyval));
    OK(MPI_Comm_free_keyval(&keyval));
}

static void merges(MPI_Comm inter)
{
    for (int high = 0; high < 4; high++) {
        MPI_Comm merged;
        int mine = in_low ? high & 1 : high >> 1, rank, size, is_inter, sum = 0;
        OK(MPI_Intercomm_merge(inter, mine, &merged));
        OK(MPI_Comm_rank(merged, &rank));
        OK(MPI_Comm_size(merged, &size));
        OK(MPI_Comm_test_inter(merged, &is_inter));
        CHECK(size == world_size && !is_inter);
        if (high == 2)
            CHECK(rank == world_rank);
        if (high == 1)
            CHECK(rank == (in_low ? high_size + world_rank : world_rank - low_size));
        OK(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, merged));
        CHECK(sum == world_size * (world_size - 1) / 2);
        OK(MPI_Comm_free(&merged));
    }
    MPI_Comm none = MPI_COMM_NULL;
    CHECK(class_of(MPI_Intercomm_merge(MPI_COMM_WORLD, 0, &none)) == MPI_ERR_COMM);
    CHECK(class_of(MPI_Comm_remote_size(MPI_COMM_WORLD, &(int){0})) == MPI_ERR_COMM);
}

/* Even and odd ranks of each group apart; where a side is missing there is nothing. */
static void divisions(MPI_Comm inter)
{
    MPI_Comm part;
    int rank, size, remote, got = -1, part_rank, part_size;
    OK(MPI_Comm_rank(inter, &rank));
    OK(MPI_Comm_size(inter, &size));
    OK(MPI_Comm_remote_size(inter, &remote));
    OK(MPI_Comm_split(inter, rank % 2, -rank, &part));
    int there = rank % 2 ? remote / 2 : (remote + 1) / 2, here = rank % 2 ? size / 2 : (size + 1) / 2;
    CHECK((part == MPI_COMM_NULL) == (there == 0));
    if (part != MPI_COMM_NULL) {
        OK(MPI_Comm_rank(part, &part_rank));
        OK(MPI_Comm_remote_size(part, &part_size));
        CHECK(part_size == there && part_rank == here - 1 - rank / 2);
        if (part_rank < there) {
            OK(MPI_Sendrecv(&rank, 1, MPI_INT, part_rank, 1, &got, 1, MPI_INT, part_rank, 1, part, MPI_STATUS_IGNORE));
            CHECK(got % 2 == rank % 2);
        }
        OK(MPI_Comm_free(&part));
    }
    OK(MPI_Comm_split(inter, in_low ? 0 : MPI_UNDEFINED, 0, &part));
    CHECK(part == MPI_COMM_NULL);

    /* The last rank of each group alone, by a group; then nobody of the second. */
    MPI_Group own, last, none = MPI_GROUP_EMPTY;
    int end = size - 1;
    OK(MPI_Comm_group(inter, &own));
    OK(MPI_Group_incl(own, 1, &end, &last));
    OK(MPI_Comm_create(inter, last, &part));
    CHECK((part != MPI_COMM_NULL) == (rank == end));
    if (part != MPI_COMM_NULL) {
        OK(MPI_Comm_size(part, &part_size));
        CHECK(part_size == 1);
        OK(MPI_Sendrecv(&rank, 1, MPI_INT, 0, 1, &got, 1, MPI_INT, 0, 1, part, MPI_STATUS_IGNORE));
        CHECK(got == remote - 1);
        OK(MPI_Comm_free(&part));
    }
    OK(MPI_Comm_create(inter, in_low ? own : none, &part));
    CHECK(part == MPI_COMM_NULL);
    OK(MPI_Group_free(&own));
    OK(MPI_Group_free(&last));
}

static void from_groups(int low_count)
{
    MPI_Group world, low, high;
    MPI_Comm inter;
    int range[1][3] = {{0, low_count - 1, 1}}, first = 0;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_range_incl(world, 1, range, &low));
    OK(MPI_Group_range_excl(world, 1, range, &high));
    in_low = world_rank < low_count, low_size = low_count, high_size = world_size - low_count;
    MPI_Info info;
    char value[16] = "";
    int length = sizeof value, found = 0;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "flavour", "plain"));
    OK(MPI_Intercomm_create_from_groups(in_low ? low : high, first, in_low ? high : low, first, "org.example.inter",
                                        info, MPI_ERRORS_RETURN, &inter));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_get_info(inter, &info));
    OK(MPI_Info_get_string(info, "flavour", &length, value, &found));
    CHECK(found && strcmp(value, "plain") == 0);
    OK(MPI_Info_free(&info));
    facts(inter);
    messages(inter);
    OK(MPI_Comm_free(&inter));
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&low));
    OK(MPI_Group_free(&high));
}

static void mistakes(void)
{
    MPI_Comm none = MPI_COMM_NULL;
    CHECK(class_of(MPI_Intercomm_create(MPI_COMM_WORLD, world_size, MPI_COMM_WORLD, 0, 1, &none)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, world_size, 1, &none)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 0, -1, &none)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_NULL, 0, 1, &none)) == MPI_ERR_COMM);
    /* A group and itself overlap. */
    CHECK(class_of(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, world_rank, 1, &none)) == MPI_ERR_COMM);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    for (int low_count = 1; low_count < world_size; low_count++) {
        MPI_Comm inter = split_world(low_count);
        facts(inter);
        messages(inter);
        copies(inter);
        merges(inter);
        divisions(inter);
        OK(MPI_Comm_free(&inter));
        from_groups(low_count);
    }
    /* Many, alive at the same time and overlapping. */
    MPI_Comm many[50];
    if (world_size > 1) {
        for (int i = 0; i < 50; i++)
            many[i] = split_world(1 + i % (world_size - 1));
        for (int i = 0; i < 50; i++) {
            low_size = 1 + i % (world_size - 1), high_size = world_size - low_size, in_low = world_rank < low_size;
            if (i % 7 == 0)
                messages(many[i]);
            OK(MPI_Comm_free(&many[i]));
        }
    }
    mistakes();
    return finish();
}
