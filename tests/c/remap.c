/* Buffers whose memory is unmapped and mapped again at the same address between messages, now and then around a fork:
 * a library that remembers where memory was must send what lies there now. */
#include "check.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { page = 4096, pages = 10, length = page * pages, rounds_between_forks = 5000 };

/* Fresh zeroed pages, at the same address as before if there was one. */
static char *map_again(char *before)
{
    int fixed = before ? MAP_FIXED : 0;
    char *mapped;
    if (before && world_rank == 0)
        munmap(before, length);
    mapped = mmap(before, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    CHECK(mapped != MAP_FAILED && (!before || mapped == before));
    return mapped;
}

/* A child that writes over its copy and ends. */
static void fork_once(char *buffer)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        memset(buffer, 0x5a, length);
        munmap(buffer, length);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100000;
    char *buffer;
    start(&argc, &argv);
    buffer = map_again(NULL);
    for (int round = 1; round <= rounds; round++) {
        MPI_Status status;
        /* The receiver's pages are new in every third round only, so that registrations are found as well. */
        if (world_rank == 0 || round % 3 == 0)
            buffer = map_again(buffer);
        if (world_rank == 0)
            for (int i = 0; i < pages; i++) memcpy(buffer + i * page, &round, sizeof round);
        if (round % rounds_between_forks == 0)
            fork_once(buffer);
        if (world_rank == 0)
            OK(MPI_Send(buffer, length, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
        else if (world_rank == 1) {
            OK(MPI_Recv(buffer, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status));
            for (int i = 0; i < pages; i++) CHECK(memcmp(buffer + i * page, &round, sizeof round) == 0);
        }
    }
    munmap(buffer, length);
    return finish();
}
