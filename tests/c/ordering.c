/* Messages between two ranks never overtake one another, whatever protocol carries them. */
#include "check.h"

enum { messages = 600, longest = 200000 };

/* Length of message `i`: small, medium and large ones interleaved. */
static int length_of(int i)
{
    switch (i % 7) {
    case 0: return 4;
    case 1: return 5000;
    case 3: return i % 21 == 3 ? longest : 300;
    case 5: return 20000;
    default: return 4 + i;
    }
}

/* The number in front of each message says which it is. */
static void stamp(char *buffer, int i)
{
    memcpy(buffer, &i, sizeof i);
    fill(buffer + 4, (size_t)length_of(i) - 4, (uint64_t)i);
}

static void take(char *buffer, int i, int source, int tag)
{
    MPI_Status status;
    int count = -1, number = -1;
    OK(MPI_Recv(buffer, longest, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    memcpy(&number, buffer, sizeof number);
    CHECK(number == i && count == length_of(i));
    CHECK(verify(buffer + 4, (size_t)count - 4, (uint64_t)number));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    char *buffer = allocate(longest);
    /* Every odd rank sends to its lower neighbour; receives are exact, any tag, any source by turns. */
    if (world_rank % 2 == 1) {
        for (int i = 0; i < messages; i++) {
            stamp(buffer, i);
            OK(MPI_Send(buffer, length_of(i), MPI_BYTE, world_rank - 1, 3, MPI_COMM_WORLD));
        }
    } else if (world_rank + 1 < world_size) {
        for (int i = 0; i < messages; i++)
            take(buffer, i, i % 3 == 1 ? MPI_ANY_SOURCE : world_rank + 1, i % 2 ? MPI_ANY_TAG : 3);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* nobody's verdict may fall into a wildcard receive */
    /* The same with all of them in flight at once, on both sides. */
    if (world_size > 1 && world_rank < 2) {
        MPI_Request requests[messages];
        char *memory = allocate((size_t)messages * 1024);
        for (int i = 0; i < messages; i++) {
            char *mine = memory + (size_t)i * 1024;
            memset(mine, world_rank == 0 ? i % 251 : 255, 1024);
            if (world_rank == 0)
                OK(MPI_Isend(mine, i % 1024, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &requests[i]));
            else
                OK(MPI_Irecv(mine, 1024, MPI_BYTE, 0, i % 2 ? 5 : MPI_ANY_TAG, MPI_COMM_WORLD, &requests[i]));
        }
        MPI_Status *statuses = allocate(messages * sizeof(MPI_Status));
        OK(MPI_Waitall(messages, requests, statuses));
        for (int i = 0; world_rank == 1 && i < messages; i++) {
            int count = -1;
            OK(MPI_Get_count(&statuses[i], MPI_BYTE, &count));
            CHECK(count == i % 1024);
            CHECK(untouched(memory + (size_t)i * 1024, (size_t)count, (unsigned char)(i % 251)));
            CHECK(untouched(memory + (size_t)i * 1024 + count, 1024 - (size_t)count, 255));
        }
        free(statuses);
        free(memory);
    }
    free(buffer);
    return finish();
}
