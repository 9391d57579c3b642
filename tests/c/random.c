/* Seeded random traffic: all ranks draw the same plan of messages, post their parts in an order of
 * their own, and check every byte. On failure the seed stands in the output. */
#include "check.h"

enum { plans = 12, messages = 150, longest = 300000 };

struct message {
    int from, to, tag, length, mode;
};

static int draw_length(uint64_t *state)
{
    switch (next_random(state) % 8) {
    case 0: return 0;
    case 1: return (int)(next_random(state) % longest);
    case 2: return (int)(next_random(state) % 20000);
    default: return (int)(next_random(state) % 300);
    }
}

static void run_plan(uint64_t seed)
{
    struct message plan[messages];
    MPI_Request requests[2 * messages];
    char *buffers[2 * messages];
    int order[messages], posted = 0, before = failures;
    uint64_t state = seed, own = seed * 31 + (uint64_t)world_rank;
    for (int i = 0; i < messages; i++) {
        plan[i].from = (int)(next_random(&state) % (uint32_t)world_size);
        plan[i].to = (int)(next_random(&state) % (uint32_t)world_size);
        plan[i].tag = i; /* distinct: any order of posting is right */
        plan[i].length = draw_length(&state);
        plan[i].mode = (int)(next_random(&state) % 3);
        order[i] = i;
    }
    for (int i = messages - 1; i > 0; i--) {
        int j = (int)(next_random(&own) % (uint32_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int k = 0; k < messages; k++) {
        struct message *m = &plan[order[k]];
        uint64_t content = seed * 1000 + (uint64_t)m->tag;
        if (m->to == world_rank) {
            buffers[posted] = allocate((size_t)m->length + 16);
            memset(buffers[posted], 0xee, (size_t)m->length + 16);
            OK(MPI_Irecv(buffers[posted], m->length, MPI_BYTE, next_random(&own) % 2 ? m->from : MPI_ANY_SOURCE,
                         m->tag, MPI_COMM_WORLD, &requests[posted]));
            posted++;
        }
        if (m->from == world_rank) {
            buffers[posted] = allocate((size_t)m->length);
            fill(buffers[posted], (size_t)m->length, content);
            if (m->mode == 0)
                OK(MPI_Issend(buffers[posted], m->length, MPI_BYTE, m->to, m->tag, MPI_COMM_WORLD, &requests[posted]));
            else
                OK(MPI_Isend(buffers[posted], m->length, MPI_BYTE, m->to, m->tag, MPI_COMM_WORLD, &requests[posted]));
            posted++;
        }
    }
    OK(MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE));
    posted = 0;
    for (int k = 0; k < messages; k++) {
        struct message *m = &plan[order[k]];
        uint64_t content = seed * 1000 + (uint64_t)m->tag;
        if (m->to == world_rank) {
            CHECK(verify(buffers[posted], (size_t)m->length, content));
            CHECK(untouched(buffers[posted] + m->length, 16, 0xee));
            free(buffers[posted++]);
        }
        if (m->from == world_rank)
            free(buffers[posted++]);
    }
    if (failures > before)
        fprintf(stderr, "rank %d: failed with seed %llu\n", world_rank, (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (uint64_t seed = 1; seed <= plans; seed++) {
        run_plan(seed);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return finish();
}
