/* The last rank is stopped (SIGSTOP) while the others wait for it. Without arguments it goes on after three seconds:
 * the others have slept meanwhile, and nothing is lost. With "lost" it does not, and FERROVIA_SILENCE is set: whoever
 * needs it gets an error, a message that was asked for as well as a barrier, and what does not need it goes on. With
 * "asks" the first rank does not wait for its message, but asks for it again and again; with "busy" the others keep
 * sending to it while it waits, so often that it never sleeps, and with "asks-busy" while it asks. */
#include "check.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { long_bytes = 1 << 20, barriers = 12, goes_on_after_s = 3, tag_of_noise = 9, tag_of_end = 10, tag_of_abort = 11 };

static char bytes[long_bytes];
static int helper[2];

/* A process that lets its parent go on some time after it was told to. Started before MPI. */
static void start_helper(void)
{
    pid_t parent = getpid();
    char order;
    if (pipe(helper) != 0 || fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(helper[1]);
    if (read(helper[0], &order, 1) == 1) {
        sleep(goes_on_after_s);
        kill(parent, SIGCONT);
    }
    _exit(0);
}

/* Processor time of this thread in milliseconds. */
static long spent_ms(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000L
        + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* Stops itself before it sends what the others wait for. */
static void stop(int may_go_on)
{
    if (may_go_on && write(helper[1], "s", 1) != 1)
        CHECK(!"the helper is there");
    raise(SIGSTOP);
}

static void goes_on(int last)
{
    MPI_Request request;
    if (world_rank == last) {
        stop(1);
        for (int rank = 0; rank < last; rank++) {
            memset(bytes, 7, sizeof bytes);
            OK(MPI_Recv(bytes, long_bytes, MPI_CHAR, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(bytes[0] == rank && bytes[long_bytes - 1] == rank);
            OK(MPI_Send(bytes, long_bytes, MPI_CHAR, rank, 2, MPI_COMM_WORLD));
        }
    } else {
        static char back[long_bytes];
        long before = spent_ms();
        memset(bytes, world_rank, sizeof bytes);
        OK(MPI_Isend(bytes, long_bytes, MPI_CHAR, last, 1, MPI_COMM_WORLD, &request));
        OK(MPI_Recv(back, long_bytes, MPI_CHAR, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(memcmp(bytes, back, sizeof bytes) == 0);
        /* It took three seconds, of which hardly anything was work. */
        CHECK(spent_ms() - before < goes_on_after_s * 1000 / 4);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Asks again and again whether a message has come; the class of what is said in the end. */
static int asked(void *into, int source, int tag)
{
    MPI_Request request;
    int flag = 0, outcome = MPI_Irecv(into, 1, MPI_INT, source, tag, MPI_COMM_WORLD, &request);
    while (outcome == MPI_SUCCESS && !flag)
        outcome = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    return class_of(outcome);
}

/* Messages to the first rank that nobody waits for, until it has seen who is lost. */
static void keep_busy(void)
{
    MPI_Request end;
    int flag = 0, word = 0;
    OK(MPI_Irecv(&word, 1, MPI_INT, 0, tag_of_end, MPI_COMM_WORLD, &end));
    for (double next = MPI_Wtime(); !flag; next += 10e-6) {
        OK(MPI_Send(&word, 1, MPI_INT, 0, tag_of_noise, MPI_COMM_WORLD));
        while (MPI_Wtime() < next)
            ;
        OK(MPI_Test(&end, &flag, MPI_STATUS_IGNORE));
    }
}

static void is_lost_amid_noise(int last, int asks)
{
    int word = 1;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (world_rank == last)
        return stop(0);
    if (world_rank > 0)
        return keep_busy();
    if (asks)
        CHECK(asked(&word, last, 2) == MPI_ERR_PROC_ABORTED);
    else
        CHECK(class_of(MPI_Recv(&word, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE))
              == MPI_ERR_PROC_ABORTED);
    for (int rank = 1; rank < last; rank++)
        OK(MPI_Send(&word, 1, MPI_INT, rank, tag_of_end, MPI_COMM_WORLD));
    printf(failures == 0 ? "Nothing hangs\n" : "%d failures\n", failures);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 7);
}

static void is_lost(int last, int asks)
{
    MPI_Request request;
    int word = 1, got = 0;
    long before = spent_ms();
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (world_rank == last) {
        OK(MPI_Isend(bytes, long_bytes, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &request));
        return stop(0);
    }
    OK(MPI_Isend(&word, 1, MPI_INT, last, 1, MPI_COMM_WORLD, &request));
    if (world_rank == 0) {
        if (asks)
            CHECK(asked(&got, last, 2) == MPI_ERR_PROC_ABORTED);
        else
            CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE))
                  == MPI_ERR_PROC_ABORTED);
        /* What it announced before comes, or there is an error. */
        int outcome = MPI_Recv(bytes, long_bytes, MPI_CHAR, last, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(outcome == MPI_SUCCESS || class_of(outcome) == MPI_ERR_PROC_ABORTED);
    } else {
        /* The first rank never comes; whoever waits for it and not for the lost one has to know all the same. */
        CHECK(class_of(MPI_Barrier(MPI_COMM_WORLD)) == MPI_ERR_PROC_ABORTED);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(class_of(MPI_Ssend(&word, 1, MPI_INT, last, 1, MPI_COMM_WORLD)) == MPI_ERR_PROC_ABORTED);
    CHECK(class_of(MPI_Recv(&got, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) == MPI_ERR_PROC_ABORTED);
    CHECK(asks || spent_ms() - before < 500);
    if (world_rank > 0) {
        OK(MPI_Send(&failures, 1, MPI_INT, 0, 3, MPI_COMM_WORLD));
        return;
    }
    for (int rank = 1; rank < last; rank++) {
        OK(MPI_Recv(&got, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        failures += got;
    }
    printf(failures == 0 ? "Nothing hangs\n" : "%d failures\n", failures);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 7);
}

int main(int argc, char **argv)
{
    int may_go_on = argc < 2;
    start_helper();
    start(&argc, &argv);
    for (int count = 0; count < barriers; count++)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    if (may_go_on) {
        goes_on(world_size - 1);
        return finish();
    }
    if (strstr(argv[1], "busy") != NULL)
        is_lost_amid_noise(world_size - 1, strcmp(argv[1], "asks-busy") == 0);
    else
        is_lost(world_size - 1, strcmp(argv[1], "asks") == 0);
    /* The first rank ends the job. Who waits for that is heard of meanwhile. */
    MPI_Recv(bytes, 1, MPI_CHAR, 0, tag_of_abort, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 1;
}
