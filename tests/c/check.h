/* Shared by the self-checking programs: count what went wrong, say where, agree on the verdict.
 *
 * A program includes this file, calls CHECK for facts and OK for MPI calls that must succeed, and
 * returns finish(). Rank 0 prints `No Errors` only if every rank found none. The verdict travels
 * by plain point-to-point messages, so a program that tests sends needs no collectives. */
#ifndef FERROVIA_TESTS_CHECK_H
#define FERROVIA_TESTS_CHECK_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { failures_max = 20, verdict_tag = 29999 };

static int failures;
static int world_rank;
static int world_size;

/* Records one failed fact; a program that fails everywhere is stopped early. */
static inline void check_fact(int holds, const char *fact, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: rank %d of %d: does not hold: %s\n", file, line, world_rank, world_size, fact);
    if (++failures >= failures_max) {
        fprintf(stderr, "rank %d: %d failures, giving up\n", world_rank, failures);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

/* Records an MPI call that did not return MPI_SUCCESS, with the library's own words. */
static inline void check_call(int code, const char *call, const char *file, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "(no text)";
    int length = 0;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s:%d: rank %d of %d: %s returned %d: %s\n", file, line, world_rank, world_size, call, code, text);
    if (++failures >= failures_max)
        MPI_Abort(MPI_COMM_WORLD, 3);
}

#define CHECK(fact) check_fact((fact), #fact, __FILE__, __LINE__)
#define OK(call) check_call((call), #call, __FILE__, __LINE__)

/* The MPI error class of a code. */
static inline int class_of(int code)
{
    int error_class = -1;
    MPI_Error_class(code, &error_class);
    return error_class;
}

/* Initialises MPI and learns rank and size. */
static inline void start(int *argc, char ***argv)
{
    OK(MPI_Init(argc, argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
}

/* Collects the verdict on rank 0, finalises, and gives the exit status. */
static inline int finish(void)
{
    if (world_rank == 0) {
        for (int rank = 1; rank < world_size; rank++) {
            int theirs = 0;
            OK(MPI_Recv(&theirs, 1, MPI_INT, rank, verdict_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            failures += theirs;
        }
        if (failures == 0)
            printf("No Errors\n");
        else
            printf("%d errors\n", failures);
        fflush(stdout);
    } else {
        OK(MPI_Send(&failures, 1, MPI_INT, 0, verdict_tag, MPI_COMM_WORLD));
    }
    OK(MPI_Finalize());
    return failures ? 1 : 0;
}

/* Byte `i` of the test pattern `seed`: neither constant nor periodic in any power of two. */
static inline unsigned char pattern(uint64_t seed, uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
    return (unsigned char)((x ^ (x >> 29)) >> 24);
}

static inline void fill(void *buffer, size_t length, uint64_t seed)
{
    unsigned char *bytes = (unsigned char *)buffer;
    for (size_t i = 0; i < length; i++)
        bytes[i] = pattern(seed, i);
}

/* Whether all of `buffer` carries the pattern; tells the first byte that does not. */
static inline int verify(const void *buffer, size_t length, uint64_t seed)
{
    const unsigned char *bytes = (const unsigned char *)buffer;
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != pattern(seed, i)) {
            fprintf(stderr, "rank %d: byte %zu of %zu is %02x, expected %02x\n", world_rank, i, length, bytes[i],
                    pattern(seed, i));
            return 0;
        }
    }
    return 1;
}

/* Whether all of `buffer` still holds one byte value. */
static inline int untouched(const void *buffer, size_t length, unsigned char value)
{
    const unsigned char *bytes = (const unsigned char *)buffer;
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}

/* A small generator with the same sequence everywhere, for seeded random tests. */
static inline uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Memory or the end of the program. */
static inline void *allocate(size_t length)
{
    void *memory = malloc(length ? length : 1);
    if (!memory) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", world_rank, length);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    return memory;
}

#endif
