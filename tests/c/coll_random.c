/* A seeded random sequence of collectives over several communicators, blocking and not, checked against loops. */
#include "check.h"

enum { seeds = 4, steps = 60, comms_count = 4, outstanding = 6, kinds = 9 };

enum kind { bcast, gather, scatter, allgather, alltoall, reduce, allreduce, scan, exscan };

/* One collective in flight: what was asked, and its buffers. */
struct call {
    enum kind kind;
    MPI_Comm comm;
    int rank, size, root, count, salt;
    int *in, *out;
    MPI_Request request;
};

static int value(int rank, int i, int salt)
{
    return (rank * 131 + i * 29 + salt * 17) % 10007;
}

static int sum_of(int ranks, int i, int salt)
{
    int sum = 0;
    for (int rank = 0; rank < ranks; rank++)
        sum += value(rank, i, salt);
    return sum;
}

static int draw_count(uint64_t *state)
{
    switch (next_random(state) % 6) {
    case 0: return 0;
    case 1: return (int)(next_random(state) % 30000);
    case 2: return (int)(next_random(state) % 3000);
    default: return (int)(next_random(state) % 40);
    }
}

static void start_call(struct call *c, int nonblocking)
{
    size_t whole = (size_t)c->count * (size_t)c->size + 1;
    c->in = allocate(whole * sizeof(int));
    c->out = allocate(whole * sizeof(int));
    for (size_t i = 0; i < whole; i++) {
        c->in[i] = value(c->rank, (int)i, c->salt);
        c->out[i] = -1;
    }
    c->request = MPI_REQUEST_NULL;
    int n = c->count, root = c->root;
    MPI_Comm comm = c->comm;
/* The same arguments for the blocking call and its non-blocking twin. */
#define CALL(blocking, twin, ...)                                                \
    do {                                                                         \
        if (nonblocking)                                                         \
            OK(twin(__VA_ARGS__, &c->request));                                  \
        else                                                                     \
            OK(blocking(__VA_ARGS__));                                           \
    } while (0)
    switch (c->kind) {
    case bcast: CALL(MPI_Bcast, MPI_Ibcast, c->rank == root ? c->in : c->out, n, MPI_INT, root, comm); break;
    case gather: CALL(MPI_Gather, MPI_Igather, c->in, n, MPI_INT, c->out, n, MPI_INT, root, comm); break;
    case scatter: CALL(MPI_Scatter, MPI_Iscatter, c->in, n, MPI_INT, c->out, n, MPI_INT, root, comm); break;
    case allgather: CALL(MPI_Allgather, MPI_Iallgather, c->in, n, MPI_INT, c->out, n, MPI_INT, comm); break;
    case alltoall: CALL(MPI_Alltoall, MPI_Ialltoall, c->in, n, MPI_INT, c->out, n, MPI_INT, comm); break;
    case reduce: CALL(MPI_Reduce, MPI_Ireduce, c->in, c->out, n, MPI_INT, MPI_SUM, root, comm); break;
    case allreduce: CALL(MPI_Allreduce, MPI_Iallreduce, c->in, c->out, n, MPI_INT, MPI_SUM, comm); break;
    case scan: CALL(MPI_Scan, MPI_Iscan, c->in, c->out, n, MPI_INT, MPI_SUM, comm); break;
    case exscan: CALL(MPI_Exscan, MPI_Iexscan, c->in, c->out, n, MPI_INT, MPI_SUM, comm); break;
    }
}

/* The integer that must stand at `i` of the output, or -1 where nothing is written. */
static int expected(const struct call *c, int i)
{
    int block = c->count ? i / c->count : 0, within = c->count ? i % c->count : 0;
    int first = block == 0 && c->count > 0, at_root = c->rank == c->root;
    switch (c->kind) {
    case bcast: return first && !at_root ? value(c->root, i, c->salt) : -1;
    case gather: return at_root && block < c->size ? value(block, within, c->salt) : -1;
    case scatter: return first ? value(c->root, c->rank * c->count + i, c->salt) : -1;
    case allgather: return block < c->size ? value(block, within, c->salt) : -1;
    case alltoall: return block < c->size ? value(block, c->rank * c->count + within, c->salt) : -1;
    case reduce: return first && at_root ? sum_of(c->size, i, c->salt) : -1;
    case allreduce: return first ? sum_of(c->size, i, c->salt) : -1;
    case scan: return first ? sum_of(c->rank + 1, i, c->salt) : -1;
    case exscan: return first && c->rank > 0 ? sum_of(c->rank, i, c->salt) : -1;
    }
    return -2;
}

static void finish_call(struct call *c, uint64_t seed)
{
    int whole = c->count * c->size, wrong = 0;
    OK(MPI_Wait(&c->request, MPI_STATUS_IGNORE));
    for (int i = 0; i < whole; i++)
        wrong += c->out[i] != expected(c, i);
    wrong += c->out[whole] != -1;
    if (wrong)
        fprintf(stderr, "rank %d: seed %llu: kind %d, root %d of %d, count %d: %d wrong\n", world_rank,
                (unsigned long long)seed, (int)c->kind, c->root, c->size, c->count, wrong);
    CHECK(wrong == 0);
    free(c->in);
    free(c->out);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm comms[comms_count];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comms[1]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comms[2]));
    OK(MPI_Comm_split(MPI_COMM_WORLD, world_rank / 3, world_rank, &comms[3]));
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        uint64_t state = seed;
        struct call calls[outstanding];
        int pending = 0;
        for (int step = 0; step < steps; step++) {
            struct call *c = &calls[pending++];
            c->comm = comms[next_random(&state) % comms_count];
            c->kind = (enum kind)(next_random(&state) % kinds);
            c->count = draw_count(&state);
            c->salt = step;
            int root = (int)(next_random(&state) % 1000), nonblocking = next_random(&state) % 2;
            OK(MPI_Comm_rank(c->comm, &c->rank));
            OK(MPI_Comm_size(c->comm, &c->size));
            c->root = root % c->size;
            start_call(c, nonblocking);
            if (pending == outstanding || step + 1 == steps)
                while (pending > 0)
                    finish_call(&calls[--pending], seed);
        }
    }
    for (int i = 0; i < comms_count; i++)
        OK(MPI_Comm_free(&comms[i]));
    return finish();
}
