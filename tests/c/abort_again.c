/* MPI_Abort where a program calls it that catches signals: while it is ending already, and in the middle of a call. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void abort_7(int signal)
{
    (void)signal;
    MPI_Abort(MPI_COMM_WORLD, 7);
}

static void at_the_end(void)
{
    raise(SIGTERM);
    fprintf(stderr, "a second MPI_Abort came back\n");
}

/* Makes calls until the handler of a timer ends it. */
static void be_interrupted(int after_us)
{
    struct itimerval timer = {{0, 0}, {0, after_us}};
    int level, in, out = 1;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (;;) {
        MPI_Datatype type;
        MPI_Sendrecv(&out, 1, MPI_INT, 0, 1, &in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        MPI_Type_contiguous(2, MPI_INT, &type);
        MPI_Type_free(&type);
    }
}

/* Worlds of one, each interrupted somewhere: all of them end, and as they were told to. */
static int interrupted(int worlds)
{
    int wrong = 0;
    signal(SIGALRM, abort_7);
    for (int world = 0; world < worlds; world++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            be_interrupted(1000 + world * 37);
        waitpid(child, &status, 0);
        wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
    }
    printf("%d of %d worlds ended otherwise\n", wrong, worlds);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "interrupted") == 0)
        return interrupted(60);
    MPI_Init(&argc, &argv);
    printf("written before\n");
    signal(SIGTERM, abort_7);
    atexit(at_the_end);
    MPI_Abort(MPI_COMM_WORLD, 5);
}
