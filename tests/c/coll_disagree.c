/* Members of a collective that do not agree about sizes, or agree about such as no memory holds: all who read learn it,
 * and the next collective works. */
#include "check.h"

enum { longest = 300000 };

static int in[longest], out[longest];
static int all_run;

/* The next collective finds everyone at the same step. */
static void go_on(void)
{
    int sum = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == world_size * (world_size - 1) / 2);
}

/* The first calls of a communicator are messages, of which a receive alone would take less than it has room for: rank 0
 * means another count than all others, and who hears of it learns it. */
static void first_calls(int mine, int others)
{
    const int count = world_rank == 0 ? mine : others;
    for (int call = 0; call < 7; call++) {
        MPI_Comm comm;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        int error = MPI_SUCCESS, learnt, all = 0;
        if (call == 0) error = MPI_Bcast(out, count, MPI_INT, 0, comm);
        if (call == 1) error = MPI_Gather(in, count, MPI_INT, out, count, MPI_INT, 0, comm);
        if (call == 2) error = MPI_Scatter(in, count, MPI_INT, out, count, MPI_INT, 0, comm);
        if (call == 3) error = MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm);
        if (call == 4) error = MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, comm);
        if (call == 5) error = MPI_Reduce(in, out, count, MPI_INT, MPI_SUM, 0, comm);
        if (call == 6) error = MPI_Scan(in, out, count, MPI_INT, MPI_SUM, comm);
        learnt = class_of(error) == MPI_ERR_TRUNCATE;
        CHECK(learnt || error == MPI_SUCCESS);
        /* One whom rank 0 sends to, or rank 0. */
        OK(MPI_Allreduce(&learnt, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
        CHECK(all);
        OK(MPI_Barrier(comm));
        OK(MPI_Comm_free(&comm));
    }
}

/* Rank 1 means another count than all others in everything that has a root or reduces. Whoever is to read too much or
 * too little learns it; who sends need not. */
static void one_means_another(int count, int other)
{
    const int mine = world_rank == 1 ? other : count, is_other = world_rank == 1;
    const MPI_Comm world = MPI_COMM_WORLD;
    for (int root = 0; root < 2; root++) {
        int error = MPI_Gather(in, mine, MPI_INT, out, mine, MPI_INT, root, world);
        CHECK(world_rank == root ? class_of(error) == MPI_ERR_TRUNCATE : !error || class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
        error = MPI_Reduce(in, out, mine, MPI_INT, MPI_SUM, root, world);
        CHECK(world_rank == root ? class_of(error) == MPI_ERR_TRUNCATE : !error || class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
        error = MPI_Scatter(in, mine, MPI_INT, out, mine, MPI_INT, root, world);
        int learns = world_rank != root && (is_other || root == 1);
        CHECK(learns ? class_of(error) == MPI_ERR_TRUNCATE : !error || class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
    }
    CHECK(class_of(MPI_Allreduce(in, out, mine, MPI_INT, MPI_SUM, world)) == MPI_ERR_TRUNCATE);
    go_on();
    CHECK(class_of(MPI_Reduce_scatter_block(in, out, mine, MPI_INT, MPI_SUM, world)) == MPI_ERR_TRUNCATE);
    go_on();
    int counts[3] = {count, mine, count}, places[3] = {0, longest / 3, longest / 3 * 2};
    int error = MPI_Allgatherv(in, counts[world_rank], MPI_INT, out, counts, places, MPI_INT, world);
    int learns = !is_other;
    CHECK(learns ? class_of(error) == MPI_ERR_TRUNCATE : !error || class_of(error) == MPI_ERR_TRUNCATE);
    go_on();
    /* Elsewhere they are messages, which leave out an empty operand. */
    for (int exclusive = 0; all_run && count <= 100 && other <= 100 && exclusive < 2; exclusive++) {
        error = exclusive ? MPI_Exscan(in, out, mine, MPI_INT, MPI_SUM, world)
                          : MPI_Scan(in, out, mine, MPI_INT, MPI_SUM, world);
        CHECK(world_rank > 0 ? class_of(error) == MPI_ERR_TRUNCATE : !error || class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int i = 0; i < 20; i++) go_on();
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    first_calls(3, 7);
    first_calls(7, 3);
    /* Less, more, and more than any memory for it: rank 0 sends so much where all expect one number. */
    const int counts[] = {0, 2, longest / world_size};
    for (size_t at = 0; at < sizeof counts / sizeof *counts; at++) {
        int count = world_rank == 0 ? counts[at] : 1;
        CHECK(class_of(MPI_Allgather(in, count, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD)) == MPI_ERR_TRUNCATE);
        go_on();
        CHECK(class_of(MPI_Alltoall(in, count, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD)) == MPI_ERR_TRUNCATE);
        go_on();
    }
    /* The root's length is not what the others expect, in one step and, where broadcasts go by pieces, in more. */
    const int broadcasts[][2] = {
        {100, 5000}, {5000, 100}, {0, 100}, {100, 0}, {100, 70000}, {70000, 100}, {70000, 140000}, {longest, 9000},
    };
    const size_t cases = argc > 1 ? sizeof broadcasts / sizeof *broadcasts : world_size == 2 ? 8 : 4;
    for (size_t at = 0; at < cases; at++) {
        int error = MPI_Bcast(out, broadcasts[at][world_rank != 0], MPI_INT, 0, MPI_COMM_WORLD);
        CHECK(class_of(error) == MPI_ERR_TRUNCATE || (world_rank == 0 && error == MPI_SUCCESS));
        go_on();
    }
    /* Counts that all agree about, and that no memory holds. */
    const MPI_Count much = (MPI_Count)1 << 61;
    CHECK(class_of(MPI_Bcast_c(out, much, MPI_INT, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    CHECK(class_of(MPI_Allreduce_c(in, out, much, MPI_INT, MPI_SUM, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    CHECK(class_of(MPI_Allgather_c(in, much, MPI_INT, out, much, MPI_INT, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    CHECK(class_of(MPI_Gather_c(in, much, MPI_INT, out, much, MPI_INT, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    CHECK(class_of(MPI_Scatter_c(in, much, MPI_INT, out, much, MPI_INT, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    CHECK(class_of(MPI_Reduce_c(in, out, much, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    CHECK(class_of(MPI_Reduce_scatter_block_c(in, out, much, MPI_INT, MPI_SUM, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    CHECK(class_of(MPI_Scan_c(in, out, much, MPI_INT, MPI_SUM, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    go_on();
    /* Blocks of several lengths on both sides of one step, where they go by pieces. */
    const int lengths[][2] = {{100, 70000}, {70000, 100}, {40000, 100000}, {100000, 99999}};
    const int longer = argc > 1 && strcmp(argv[1], "blocks") == 0;
    for (size_t at = 0; longer && at < sizeof lengths / sizeof *lengths; at++) {
        int count = lengths[at][world_rank != 0];
        int error = MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
        CHECK(class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
        error = MPI_Alltoall(in, count, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
        CHECK(class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
    }
    /* One expects more or less than it brings itself, which is what the others bring and expect. */
    for (int expected = 65000; longer && expected <= 99000; expected += 34000) {
        int count = world_rank == 2 ? expected : 75000;
        int error = MPI_Allgather(in, 75000, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
        CHECK(class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
        error = MPI_Alltoall(in, 75000, MPI_INT, out, count, MPI_INT, MPI_COMM_WORLD);
        CHECK(class_of(error) == MPI_ERR_TRUNCATE);
        go_on();
    }
    /* One of them brings more than one of the others has room for: that one learns it. */
    for (int excess = 1; longer && excess <= 90001; excess += 45000) {
        int counts[3] = {0}, places[3] = {0}, room[3] = {5, 5, 5}, into[3] = {0, 10, 20};
        for (int peer = 0; peer < 3; peer++) counts[peer] = world_rank == 1 && peer == 2 ? 5 + excess : 5;
        int error = MPI_Alltoallv(in, counts, places, MPI_INT, out, room, into, MPI_INT, MPI_COMM_WORLD);
        CHECK(world_rank == 2 ? class_of(error) == MPI_ERR_TRUNCATE : error == MPI_SUCCESS);
        go_on();
    }
    all_run = argc > 1 && strcmp(argv[1], "pieces") == 0;
    if (world_size == 3) {
        one_means_another(1, 2);
        one_means_another(100, 30);
        one_means_another(1, 0);
        one_means_another(0, 1);
        /* The first of several steps of one is as long as the only one of the others. */
        one_means_another(916, 1368);
        one_means_another(1368, 916);
        /* Some would leave it to messages. */
        one_means_another(100, 20000);
        one_means_another(20000, 100);
    }
    for (int at = 0; longer && at < 2; at++) {
        one_means_another(at ? 100 : 32768, at ? 32768 : 100);
        one_means_another(at ? 99000 : 66000, at ? 66000 : 99000);
        one_means_another(at ? 100 : 70000, at ? 70000 : 100);
        /* As above: of a gather, and of a scatter. */
        one_means_another(at ? 65536 : 32772, at ? 32772 : 65536);
        one_means_another(at ? 32768 : 16386, at ? 16386 : 32768);
    }
    return finish();
}
