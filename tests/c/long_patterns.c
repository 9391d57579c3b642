/* Long messages of many lengths one way, both ways, there and back and round, at once and one by one, from and to
 * memory that lies anyhow, while some ranks compute: each arrives where it should, and nothing beside it is written. */
#include "check.h"

enum { rounds = 40, window_max = 24, repeats_max = 4, guard = 64, longest = 2500000 };

static const int lengths[] = {1,      100,    2000,   9000,   20000,  40000,   60000,  70000,
                              131072, 200000, 262144, 300000, 700000, 1048576, longest};
enum { length_count = sizeof lengths / sizeof *lengths };

/* The same numbers on all ranks. */
static uint64_t state = 7;

static int draw(int below)
{
    return (int)(next_random(&state) % (uint32_t)below);
}

static void compute(double seconds)
{
    double end = MPI_Wtime() + seconds;
    while (MPI_Wtime() < end)
        ;
}

/* Memory for a message, `shift` bytes into what was allocated. */
struct place {
    unsigned char *memory, *data;
};

static struct place make_place(int len, int shift)
{
    struct place place = {allocate((size_t)len + 2 * guard + 32), NULL};
    memset(place.memory, 0xee, (size_t)len + 2 * guard + 32);
    place.data = place.memory + guard + shift;
    return place;
}

/* The message is there, between bytes that nobody has written. */
static void expect(const unsigned char *data, int len, int key)
{
    CHECK(verify(data, (size_t)len, (uint64_t)key));
    CHECK(untouched(data - guard, guard, 0xee) && untouched(data + len, guard, 0xee));
}

/* One message there and one back after the other, between two ranks. */
static void there_and_back(const int *lens, int count, int peer, int begins, int key)
{
    for (int i = 0; i < count; i++)
        for (int step = 0; step < 2; step++) {
            struct place place = make_place(lens[i], i % 17);
            if (begins == (step == 0)) {
                fill(place.data, (size_t)lens[i], (uint64_t)(key + 2 * i + step));
                OK(MPI_Send(place.data, lens[i], MPI_BYTE, peer, 3, MPI_COMM_WORLD));
            } else {
                OK(MPI_Recv(place.data, lens[i], MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                expect(place.data, lens[i], key + 2 * i + step);
            }
            free(place.memory);
        }
}

/* A window of messages to one rank, if there is one, and from one. Late ones compute before they begin, or before they
 * wait. */
static void at_once(const int *lens, int count, int to, int from, int key, int late)
{
    MPI_Request requests[2 * window_max];
    struct place places[2 * window_max];
    int begun = 0, received = 0;
    if (late == 1 && world_rank % 2 == 0)
        compute(2e-4);
    for (int i = 0; from >= 0 && i < count; i++, begun++) {
        places[begun] = make_place(lens[i], i % 17);
        OK(MPI_Irecv(places[begun].data, lens[i], MPI_BYTE, from, i % 3, MPI_COMM_WORLD, &requests[begun]));
    }
    received = begun;
    for (int i = 0; to >= 0 && i < count; i++, begun++) {
        places[begun] = make_place(lens[i], i % 5);
        fill(places[begun].data, (size_t)lens[i], (uint64_t)(key + 977 * world_rank + i));
        OK(MPI_Isend(places[begun].data, lens[i], MPI_BYTE, to, i % 3, MPI_COMM_WORLD, &requests[begun]));
    }
    if (late == 2 && world_rank % 2 == 1)
        compute(2e-4);
    OK(MPI_Waitall(begun, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < received; i++)
        expect(places[i].data, lens[i], key + 977 * from + i);
    for (int i = 0; i < begun; i++)
        free(places[i].memory);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    for (int round = 0; round < rounds; round++) {
        int count = 1 + draw(window_max), shape = draw(4), repeats = 1 + draw(repeats_max), late = draw(3);
        int one = draw(world_size), other = (one + 1 + draw(world_size - 1)) % world_size;
        int alike = draw(2), kind = draw(length_count), lens[window_max];
        for (int i = 0; i < count; i++) {
            int len = lengths[alike ? kind : draw(length_count)];
            lens[i] = draw(3) ? len : len - draw(len < 64 ? len : 64);
        }
        int peer = world_rank == one ? other : world_rank == other ? one : -1;
        for (int repeat = 0; repeat < repeats; repeat++) {
            int key = 1000 * round + repeat;
            if (shape == 0 && peer >= 0)
                there_and_back(lens, count, peer, world_rank == one, key);
            else if (shape == 1)
                at_once(lens, count, world_rank == one ? other : -1, world_rank == other ? one : -1, key, late);
            else if (shape == 2)
                at_once(lens, count, peer, peer, key, late);
            else if (shape == 3)
                at_once(lens, count, right, left, key, late);
        }
    }
    return finish();
}
