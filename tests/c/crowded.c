/* Other programs want every processor. Who waits then sleeps and is woken at once; who yields would give a time slice
 * away each time, again and again. What is counted are switches: those of a sleeper are its own will. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { rounds = 200, hogs_max = 64 };

static pid_t hogs[hogs_max];

/* One busy process for each processor, gone with this one and in any case after a while. */
static int start_hogs(void)
{
    cpu_set_t allowed;
    int count = 0;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 0;
    for (int processor = 0; processor < CPU_SETSIZE && count < hogs_max; processor++) {
        if (!CPU_ISSET(processor, &allowed))
            continue;
        pid_t hog = fork();
        if (hog == 0) {
            volatile unsigned long work = 0;
            cpu_set_t only;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(30);
            CPU_ZERO(&only);
            CPU_SET(processor, &only);
            sched_setaffinity(0, sizeof only, &only);
            for (;;)
                work++;
        }
        if (hog > 0)
            hogs[count++] = hog;
    }
    return count;
}

int main(int argc, char **argv)
{
    struct rusage before, after;
    int hog_count = 0, got = -1;
    start(&argc, &argv);
    if (world_rank == 0)
        hog_count = start_hogs();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    getrusage(RUSAGE_THREAD, &before);
    for (int round = 0; round < rounds; round++) {
        /* Round the ring: all but one wait at any time. */
        int next = (world_rank + 1) % world_size, previous = (world_rank + world_size - 1) % world_size;
        if (world_rank == 0)
            OK(MPI_Send(&round, 1, MPI_INT, next, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(&got, 1, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(got == round);
        if (world_rank != 0)
            OK(MPI_Send(&round, 1, MPI_INT, next, 1, MPI_COMM_WORLD));
        /* Between its turns a process works, so that the others wait longer than they spin. */
        for (volatile int work = 0; work < 50000; work++)
            ;
    }
    getrusage(RUSAGE_THREAD, &after);
    for (int hog = 0; hog < hog_count; hog++) {
        kill(hogs[hog], SIGKILL);
        waitpid(hogs[hog], NULL, 0);
    }
    long slept = after.ru_nvcsw - before.ru_nvcsw, pushed = after.ru_nivcsw - before.ru_nivcsw;
    if (argc > 1)
        printf("rank %d: %ld sleeps, %ld switches against its will\n", world_rank, slept, pushed);
    OK(MPI_Allreduce(MPI_IN_PLACE, &slept, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Allreduce(MPI_IN_PLACE, &pushed, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Bcast(&hog_count, 1, MPI_INT, 0, MPI_COMM_WORLD));
    /* Without a busy process on each processor nothing can be said. A process that was pushed aside while it worked
     * finds its message and need not sleep, so not every round counts. Who yields in vain is switched again and again;
     * where hardly anybody was switched the system let the ranks run first, and there was nothing to give away. */
    if (hog_count > 0 && hog_count < hogs_max)
        CHECK(slept >= rounds / 4 || pushed < rounds / 4);
    return finish();
}
