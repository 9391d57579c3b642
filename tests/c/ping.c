/* Ping-pong with content: every pair of ranks, 0 B to 16 MiB, through all protocols. */
#include "check.h"

static const size_t sizes[] = {
    0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 55, 56, 57, 63, 64, 65, 100, 127, 128, 129, 255, 256, 500, 1000,
    1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 16384, 16385, 32767, 65535, 65536,
    65537, 100000, 131072, 262143, 262145,
    1 << 20, (1 << 20) + 1, 3000000, 1 << 22, (1 << 24) - 3, 1 << 24,
};
enum { sizes_count = sizeof sizes / sizeof sizes[0], guard_bytes = 64 };

/* One round trip of `length` bytes between `low` and `high`; the echo is changed on the way. */
static void round_trip(int low, int high, size_t length, unsigned char *buffer)
{
    int peer = world_rank == low ? high : low, count = -1;
    uint64_t there = length * 7 + 1, back = length * 11 + 2;
    MPI_Status status;
    if (world_rank == low) {
        fill(buffer, length, there);
        OK(MPI_Send(buffer, (int)length, MPI_BYTE, peer, 17, MPI_COMM_WORLD));
    }
    memset(buffer, 0xa5, length + guard_bytes);
    OK(MPI_Recv(buffer, (int)length, MPI_BYTE, peer, 17, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK((size_t)count == length);
    CHECK(status.MPI_SOURCE == peer && status.MPI_TAG == 17);
    CHECK(verify(buffer, length, world_rank == low ? back : there));
    CHECK(untouched(buffer + length, guard_bytes, 0xa5));
    if (world_rank == high) {
        fill(buffer, length, back);
        OK(MPI_Send(buffer, (int)length, MPI_BYTE, peer, 17, MPI_COMM_WORLD));
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    unsigned char *buffer = allocate((1u << 24) + guard_bytes);
    for (int low = 0; low < world_size; low++)
        for (int high = low + 1; high < world_size; high++)
            for (int s = 0; s < sizes_count; s++)
                if (world_rank == low || world_rank == high)
                    if (low == 0 || sizes[s] <= 65537)
                        round_trip(low, high, sizes[s], buffer);
    free(buffer);
    return finish();
}
