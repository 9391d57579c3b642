/* More layouts than anybody keeps: rank 0 exchanges messages with every other rank, each of which lies there in another
 * way, all under way at the same time, again and again. Layouts that were shown are replaced while messages still name
 * them, and layouts that were learnt are forgotten; the same bytes arrive, and nothing beside them is written.
 *
 *   types_cache [KINDS]   layouts of each rank */
#include "check.h"

enum { kinds_max = 70, rounds = 3, blocks = 64, block = 128, numbers = blocks * block, narrowest = block + 1 };

/* Numbers that the widest kind spans. */
enum { space = blocks * (narrowest + kinds_max) };

static int kinds = kinds_max;

static int number(int peer, int kind, int round, int at)
{
    return ((peer * kinds + kind) * rounds + round) * 7 + at;
}

/* Every round has types of its own: the same layouts, but at other addresses. */
static void make(MPI_Datatype *types)
{
    for (int kind = 0; kind < kinds; kind++) {
        OK(MPI_Type_vector(blocks, block, narrowest + kind, MPI_INT, &types[kind]));
        OK(MPI_Type_commit(&types[kind]));
    }
}

static void lay_out(int *memory, int peer, int kind, int round)
{
    for (int i = 0; i < space; i++)
        memory[i] = -1;
    for (int at = 0; at < numbers; at++)
        memory[at / block * (narrowest + kind) + at % block] = number(peer, kind, round, at);
}

/* A peer of rank 0: sends each kind, then receives each kind. */
static void exchange(int round, MPI_Datatype *types, int *out, int *in, int *wanted)
{
    MPI_Request requests[kinds_max];
    for (int kind = 0; kind < kinds; kind++) {
        lay_out(out + (size_t)kind * space, world_rank, kind, round);
        OK(MPI_Isend(out + (size_t)kind * space, 1, types[kind], 0, kind, MPI_COMM_WORLD, &requests[kind]));
    }
    /* Only now does rank 0 receive: every layout has been shown by then. */
    OK(MPI_Send(NULL, 0, MPI_INT, 0, kinds, MPI_COMM_WORLD));
    OK(MPI_Waitall(kinds, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < kinds * space; i++)
        in[i] = -1;
    for (int kind = 0; kind < kinds; kind++)
        OK(MPI_Irecv(in + (size_t)kind * space, 1, types[kind], 0, kind, MPI_COMM_WORLD, &requests[kind]));
    OK(MPI_Send(NULL, 0, MPI_INT, 0, kinds, MPI_COMM_WORLD));
    OK(MPI_Waitall(kinds, requests, MPI_STATUSES_IGNORE));
    for (int kind = 0; kind < kinds; kind++) {
        lay_out(wanted, world_rank, kind, round);
        CHECK(memcmp(in + (size_t)kind * space, wanted, space * sizeof(int)) == 0);
    }
}

/* Rank 0, whose side of each message is in one piece: kind by kind, so that the peers' layouts come in turns. */
static void serve(int round, int *plain)
{
    for (int peer = 1; peer < world_size; peer++)
        OK(MPI_Recv(NULL, 0, MPI_INT, peer, kinds, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int kind = 0; kind < kinds; kind++)
        for (int peer = 1; peer < world_size; peer++) {
            OK(MPI_Recv(plain, numbers, MPI_INT, peer, kind, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int at = 0; at < numbers; at++)
                CHECK(plain[at] == number(peer, kind, round, at));
        }
    for (int peer = 1; peer < world_size; peer++)
        OK(MPI_Recv(NULL, 0, MPI_INT, peer, kinds, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int kind = 0; kind < kinds; kind++)
        for (int peer = 1; peer < world_size; peer++) {
            for (int at = 0; at < numbers; at++)
                plain[at] = number(peer, kind, round, at);
            OK(MPI_Send(plain, numbers, MPI_INT, peer, kind, MPI_COMM_WORLD));
        }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (argc > 1 && atoi(argv[1]) < kinds)
        kinds = atoi(argv[1]);
    size_t all = (size_t)kinds * space * sizeof(int);
    int *out = malloc(all), *in = malloc(all);
    int *wanted = malloc(space * sizeof(int)), *plain = malloc(numbers * sizeof(int));
    for (int round = 0; round < rounds; round++) {
        MPI_Datatype types[kinds_max];
        make(types);
        if (world_rank == 0)
            serve(round, plain);
        else
            exchange(round, types, out, in, wanted);
        for (int kind = 0; kind < kinds; kind++)
            OK(MPI_Type_free(&types[kind]));
    }
    free(out);
    free(in);
    free(wanted);
    free(plain);
    return finish();
}
