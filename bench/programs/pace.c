/* The machine's pace: how long a cache line takes from one of two ranks to the other, without MPI. Where a host moves
 * its virtual processors about, it changes within seconds, and so does what every library takes; so each stretch of
 * samples is told with the pace that was met before and after it. */
#include "bench.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096
/* Round trips of a look, and how long the other rank is waited for. */
#define TRIPS 200
#define PATIENCE_NS 10e6
/* Two looks that differ more than this saw it change. */
#define SAME 1.5

/* Where the two meet; NULL where the pace can not be told. */
static struct {
    /* Counts up, by both ranks in turns. */
    _Alignas(128) atomic_long line;
    /* The last look that one of them gave up: the other need not wait for it. */
    _Alignas(128) atomic_long given_up;
} *meeting;
static long looks_taken;

static void *shared_page(const char *path, int flags) {
    int file = open(path, flags, 0600);
    if (file < 0) return NULL;
    void *page = MAP_FAILED;
    if (!(flags & O_CREAT) || ftruncate(file, PAGE_BYTES) == 0)
        page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return page == MAP_FAILED ? NULL : page;
}

void pace_open(void) {
    char path[4096];
    cpu_set_t mine_alone, cores;
    if (size != 2) return;
    snprintf(path, sizeof path, "%s.pace", options.file);
    /* Where the two may run: on one processor they would measure its scheduler. */
    if (sched_getaffinity(0, sizeof mine_alone, &mine_alone) != 0) CPU_ZERO(&mine_alone);
    MPI_Allreduce(&mine_alone, &cores, sizeof cores, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    if (CPU_COUNT(&cores) < 2) return;
    void *page = rank == 0 ? shared_page(path, O_RDWR | O_CREAT | O_TRUNC) : NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) page = shared_page(path, O_RDWR);
    int mine = page != NULL, both;
    MPI_Allreduce(&mine, &both, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0) unlink(path);
    if (!both) return;
    meeting = page;
    /* On another host, or where they take turns on one processor, they do not meet. */
    int meet = pace() > 0 || rank == 1;
    MPI_Bcast(&meet, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!meet) meeting = NULL;
}

int pace_is_told(void) {
    return meeting != NULL;
}

/* False if it took too long: the other rank is held up. */
static int wait_for(long value, double until) {
    for (long looks = 1; atomic_load_explicit(&meeting->line, memory_order_acquire) != value; looks++) {
        if (looks % 1024) continue;
        if (atomic_load(&meeting->given_up) == looks_taken) return 0;
        if (now() > until) {
            atomic_store(&meeting->given_up, looks_taken);
            return 0;
        }
    }
    return 1;
}

double pace(void) {
    if (!meeting) return 0;
    long value = looks_taken++ * (2 * TRIPS + 1);
    if (atomic_load(&meeting->given_up) == looks_taken) return 0;
    double start = 0, until = now() + PATIENCE_NS;
    for (int trip = 0; trip <= TRIPS; trip++) {
        if (rank == 0) {
            atomic_store_explicit(&meeting->line, value + 2 * trip + 1, memory_order_release);
            if (trip == TRIPS) break;
            if (!wait_for(value + 2 * trip + 2, until)) return 0;
            /* The first trip is the other's way here. */
            if (trip == 0) start = now();
        } else {
            if (!wait_for(value + 2 * trip + 1, until)) return 0;
            if (trip < TRIPS) atomic_store_explicit(&meeting->line, value + 2 * trip + 2, memory_order_release);
        }
    }
    return (now() - start) / (TRIPS - 1) / 2;
}

double same_pace(double before, double after) {
    if (before <= 0 || after <= 0 || before > after * SAME || after > before * SAME) return 0;
    return (before + after) / 2;
}
