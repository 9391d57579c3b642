/* How many instructions a call takes where the other rank has done its part: what a library needs of the processor
 * whatever machine, pace and neighbours there are.
 *
 * A helper process traces rank 0 and has it go one instruction at a time between two marks. What the kernel does is
 * not counted, nor are threads that the library has started. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__) && defined(__x86_64__)
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

/* What the helper tells: it traces, or why it can not; and the instructions between the last two marks. */
static volatile struct helper {
    int traces, error;
    long counted;
} *helper;
static pid_t helper_process;

/* A breakpoint of its own kind: the helper lets the program go on behind it, step by step or not. */
#define MARK() __asm__ volatile("int3" ::: "memory")

static int is_mark(pid_t traced) {
    siginfo_t info;
    return ptrace(PTRACE_GETSIGINFO, traced, 0, &info) == 0 && info.si_code == SI_KERNEL;
}

/* The helper: ends with the process it traces, or when it is killed. */
static void trace(pid_t traced) {
    int status, counts = 0;
    long steps = 0;
    if (ptrace(PTRACE_SEIZE, traced, 0, 0) != 0) {
        helper->error = errno;
        _exit(0);
    }
    helper->traces = 1;
    while (waitpid(traced, &status, __WALL) == traced && WIFSTOPPED(status)) {
        int sent = WSTOPSIG(status), is_event = status >> 16 != 0;
        if (sent == SIGTRAP && !is_event) {
            sent = 0;
            if (is_mark(traced)) {
                if (counts) helper->counted = steps;
                counts = !counts;
                steps = 0;
            } else steps++;
        } else if (is_event) sent = 0;
        ptrace(counts ? PTRACE_SINGLESTEP : PTRACE_CONT, traced, 0, sent);
    }
    _exit(0);
}

/* Why nothing can be counted; NULL if it can. */
static const char *start_helper(void) {
    pid_t traced = getpid();
    int go[2];
    char byte = 0;
    helper = mmap(NULL, sizeof *helper, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (helper == MAP_FAILED || pipe(go) != 0) return strerror(errno);
    helper_process = fork();
    if (helper_process < 0) return strerror(errno);
    if (helper_process == 0) {
        close(go[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (read(go[0], &byte, 1) == 1) trace(traced);
        _exit(0);
    }
    close(go[0]);
    prctl(PR_SET_PTRACER, helper_process);
    if (write(go[1], &byte, 1) != 1) return strerror(errno);
    close(go[1]);
    while (!helper->traces && !helper->error) {
        usleep(1000);
        if (waitpid(helper_process, NULL, WNOHANG) == helper_process && !helper->error) return "the helper was killed";
    }
    return helper->traces ? NULL : strerror(helper->error);
}

static void stop_helper(void) {
    kill(helper_process, SIGKILL);
    waitpid(helper_process, NULL, 0);
}

static long count(void (*call)(void)) {
    MARK();
    call();
    MARK();
    return helper->counted;
}
#else
static const char *start_helper(void) {
    return "this processor's single steps are not known here";
}
static void stop_helper(void) {
}
static long count(void (*call)(void)) {
    call();
    return 0;
}
#endif

enum { WINDOW = 16, ROUNDS = 5, DONE_TAG = 9 };
/* When the other rank does its part, rank 0 has left the barrier; and it looks when that has been done. If it comes
 * otherwise once, that round is not the one in the middle. */
#define BEGIN_US 1000
#define HEAD_START_US 3000
/* So often the other rank looks whether the call is over: it is outside of the library nearly always. */
#define LOOK_US 200
/* Non-blocking collectives before the first that is counted: a library may find a better way for many than for few. */
#define WARM_UP 32

static MPI_Request requests[WINDOW];
static MPI_Datatype vector;

static void nothing(void) {
}

static void send_one(void) {
    MPI_Send(out, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
}

static void receive_one(void) {
    MPI_Recv(in, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void receive_any(void) {
    MPI_Recv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void exchange(void) {
    MPI_Sendrecv(out, bytes, MPI_BYTE, 1 - rank, 1, in, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void start_sends(void) {
    for (int w = 0; w < WINDOW; w++) MPI_Isend(out, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[w]);
}

static void start_receives(void) {
    for (int w = 0; w < WINDOW; w++) MPI_Irecv(in, bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[w]);
}

static void wait_for_all(void) {
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
}

static void send_all(void) {
    start_sends();
    wait_for_all();
}

static void receive_all(void) {
    start_receives();
    wait_for_all();
}

static void test_one(void) {
    int is_complete;
    MPI_Test(&requests[0], &is_complete, MPI_STATUS_IGNORE);
}

static void test_null(void) {
    MPI_Request none = MPI_REQUEST_NULL;
    int is_complete;
    MPI_Test(&none, &is_complete, MPI_STATUS_IGNORE);
}

static void wait_for_none(void) {
    for (int w = 0; w < WINDOW; w++) requests[w] = MPI_REQUEST_NULL;
    wait_for_all();
}

static void probe_in_vain(void) {
    int is_there;
    for (int w = 0; w < WINDOW; w++)
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
}

static void ask_rank(void) {
    int rank;
    for (int w = 0; w < WINDOW; w++) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

static void ask_size(void) {
    int size;
    for (int w = 0; w < WINDOW; w++) MPI_Type_size(MPI_INT, &size);
}

static void ask_extent(void) {
    MPI_Aint lower, extent;
    for (int w = 0; w < WINDOW; w++) MPI_Type_get_extent(vector, &lower, &extent);
}

static void ask_count(void) {
    static MPI_Status status;
    int count;
    for (int w = 0; w < WINDOW; w++) MPI_Get_count(&status, MPI_INT, &count);
}

static void make_vector(void) {
    MPI_Type_vector(4, 2, 3, MPI_INT, &vector);
    MPI_Type_commit(&vector);
}

static void free_vector(void) {
    MPI_Type_free(&vector);
}

static void make_and_free_vectors(void) {
    for (int w = 0; w < WINDOW; w++) {
        make_vector();
        free_vector();
    }
}

static void barrier_alone(void) {
    MPI_Barrier(MPI_COMM_SELF);
}

static void barrier(void) {
    MPI_Barrier(MPI_COMM_WORLD);
}

static void broadcast(void) {
    MPI_Bcast(rank == 1 ? out : in, bytes, MPI_BYTE, 1, MPI_COMM_WORLD);
}

static void reduce(void) {
    MPI_Reduce(out, in, bytes, MPI_UINT8_T, MPI_BOR, 0, MPI_COMM_WORLD);
}

static void allreduce(void) {
    MPI_Allreduce(out, in, bytes, MPI_UINT8_T, MPI_BOR, MPI_COMM_WORLD);
}

static void allgather(void) {
    MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(void) {
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void wait_for_one(void) {
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
}

static void barrier_in_background(void) {
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
    wait_for_one();
}

static void start_broadcast(void) {
    MPI_Ibcast(rank == 1 ? out : in, bytes, MPI_BYTE, 1, MPI_COMM_WORLD, &requests[0]);
}

static void broadcast_in_background(void) {
    start_broadcast();
    wait_for_one();
}

static void broadcast_own(void) {
    MPI_Ibcast(rank == 0 ? out : in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &requests[0]);
    wait_for_one();
}

static void reduce_in_background(void) {
    MPI_Ireduce(out, in, bytes, MPI_UINT8_T, MPI_BOR, 0, MPI_COMM_WORLD, &requests[0]);
    wait_for_one();
}

static void start_allreduce(void) {
    MPI_Iallreduce(out, in, bytes, MPI_UINT8_T, MPI_BOR, MPI_COMM_WORLD, &requests[0]);
}

static void allreduce_in_background(void) {
    start_allreduce();
    wait_for_one();
}

static void gather_in_background(void) {
    MPI_Igather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &requests[0]);
    wait_for_one();
}

static void scatter_in_background(void) {
    MPI_Iscatter(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, 1, MPI_COMM_WORLD, &requests[0]);
    wait_for_one();
}

static void allgather_in_background(void) {
    MPI_Iallgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, &requests[0]);
    wait_for_one();
}

static void start_alltoall(void) {
    MPI_Ialltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD, &requests[0]);
}

static void alltoall_in_background(void) {
    start_alltoall();
    wait_for_one();
}

/* What `in` holds on rank 0 when all is over: the other rank's data, both ranks' behind one another, or combined. */
enum result { NONE, OTHERS, BEHIND, COMBINED };

static const struct call {
    const char *name;
    enum result result;
    /* On rank 0: before the other rank begins, then what is counted, and what is left to do. */
    void (*ahead)(void), (*counted)(void), (*then)(void);
    /* On the other rank: while rank 0 does not look, and when it has done its part. */
    void (*before)(void), (*after)(void);
    int window; /* so many messages at once: what is told is for one of them */
} calls[] = {
    {"send", NONE, nothing, send_one, nothing, nothing, receive_one, 0},
    {"recv", OTHERS, nothing, receive_one, nothing, send_one, nothing, 0},
    {"recv_any", OTHERS, nothing, receive_any, nothing, send_one, nothing, 0},
    {"sendrecv", OTHERS, nothing, exchange, nothing, send_one, receive_one, 0},
    {"isend", NONE, nothing, start_sends, wait_for_all, nothing, receive_all, WINDOW},
    {"isend_waitall", NONE, nothing, send_all, nothing, nothing, receive_all, WINDOW},
    {"irecv", OTHERS, nothing, start_receives, wait_for_all, nothing, send_all, WINDOW},
    {"waitall", OTHERS, start_receives, wait_for_all, nothing, send_all, nothing, WINDOW},
    {"irecv_waitall", OTHERS, nothing, receive_all, nothing, send_all, nothing, WINDOW},
    {"test", OTHERS, start_receives, test_one, wait_for_all, nothing, send_all, 0},
    /* What needs no other process. */
    {"comm_rank", NONE, nothing, ask_rank, nothing, nothing, nothing, WINDOW},
    {"type_size", NONE, nothing, ask_size, nothing, nothing, nothing, WINDOW},
    {"type_get_extent", NONE, make_vector, ask_extent, free_vector, nothing, nothing, WINDOW},
    {"get_count", NONE, nothing, ask_count, nothing, nothing, nothing, WINDOW},
    {"type_vector", NONE, nothing, make_and_free_vectors, nothing, nothing, nothing, WINDOW},
    {"iprobe", NONE, nothing, probe_in_vain, nothing, nothing, nothing, WINDOW},
    {"test_null", NONE, nothing, test_null, nothing, nothing, nothing, 0},
    {"waitall_null", NONE, nothing, wait_for_none, nothing, nothing, nothing, WINDOW},
    {"barrier_alone", NONE, nothing, barrier_alone, nothing, nothing, nothing, 0},
    {"barrier", NONE, nothing, barrier, nothing, barrier, nothing, 0},
    {"bcast", OTHERS, nothing, broadcast, nothing, broadcast, nothing, 0},
    {"reduce", COMBINED, nothing, reduce, nothing, reduce, nothing, 0},
    {"allreduce", COMBINED, nothing, allreduce, nothing, allreduce, nothing, 0},
    {"allgather", BEHIND, nothing, allgather, nothing, allgather, nothing, 0},
    {"alltoall", BEHIND, nothing, alltoall, nothing, alltoall, nothing, 0},
    {"ibarrier_wait", NONE, nothing, barrier_in_background, nothing, barrier_in_background, nothing, 0},
    {"ibcast_wait", OTHERS, nothing, broadcast_in_background, nothing, broadcast_in_background, nothing, 0},
    {"ibcast_wait_root", NONE, nothing, broadcast_own, nothing, nothing, broadcast_own, 0},
    {"ireduce_wait", COMBINED, nothing, reduce_in_background, nothing, reduce_in_background, nothing, 0},
    {"iallreduce_wait", COMBINED, nothing, allreduce_in_background, nothing, allreduce_in_background, nothing, 0},
    {"igather_wait", BEHIND, nothing, gather_in_background, nothing, gather_in_background, nothing, 0},
    {"iscatter_wait", OTHERS, nothing, scatter_in_background, nothing, scatter_in_background, nothing, 0},
    {"iallgather_wait", BEHIND, nothing, allgather_in_background, nothing, allgather_in_background, nothing, 0},
    {"ialltoall_wait", BEHIND, nothing, alltoall_in_background, nothing, alltoall_in_background, nothing, 0},
    /* Rank 0 is the first to begin: what it takes to start, and later to end it. */
    {"ibcast", OTHERS, nothing, start_broadcast, wait_for_one, nothing, broadcast_in_background, 0},
    {"ibcast_ended", OTHERS, start_broadcast, wait_for_one, nothing, broadcast_in_background, nothing, 0},
    {"iallreduce", COMBINED, nothing, start_allreduce, wait_for_one, nothing, allreduce_in_background, 0},
    {"iallreduce_ended", COMBINED, start_allreduce, wait_for_one, nothing, allreduce_in_background, nothing, 0},
    {"ialltoall", BEHIND, nothing, start_alltoall, wait_for_one, nothing, alltoall_in_background, 0},
    {"ialltoall_ended", BEHIND, start_alltoall, wait_for_one, nothing, alltoall_in_background, nothing, 0},
};

/* One round: the number of instructions, on rank 0. */
static long once(const struct call *call) {
    long counted = 0;
    int is_over = 0;
    memset(in, 0, 2 * bytes);
    if (rank == 0) call->ahead();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        usleep(HEAD_START_US);
        counted = count(call->counted);
        MPI_Send(NULL, 0, MPI_BYTE, 1, DONE_TAG, MPI_COMM_WORLD);
        call->then();
    } else {
        usleep(BEGIN_US);
        call->before();
        while (!is_over) {
            usleep(LOOK_US);
            MPI_Iprobe(0, DONE_TAG, MPI_COMM_WORLD, &is_over, MPI_STATUS_IGNORE);
        }
        MPI_Recv(NULL, 0, MPI_BYTE, 0, DONE_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        call->after();
    }
    return counted;
}

static void check(const struct call *call) {
    if (rank != 0) return;
    if (call->result == OTHERS) expect(in, bytes, 1, 0, call->name);
    if (call->result == BEHIND) expect(in + bytes, bytes, 1, 0, call->name);
    if (call->result == COMBINED) {
        fill(in + bytes, bytes, 1, 0);
        for (long i = 0; i < bytes; i++) need(in[i] == (out[i] | in[bytes + i]), call->name, i);
    }
}

static int compare(const void *one, const void *other) {
    long a = *(const long *)one, b = *(const long *)other;
    return (a > b) - (a < b);
}

static long middle(const struct call *call) {
    long counted[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        counted[round] = once(call);
        check(call);
    }
    qsort(counted, ROUNDS, sizeof *counted, compare);
    return counted[ROUNDS / 2];
}

static int is_wanted(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) return 1;
    return !strcmp(list, "all");
}

static void instructions(void) {
    static const struct call none = {"none", NONE, nothing, nothing, nothing, nothing, nothing, 0};
    const char *wanted = parameter_text("call", "all");
    if (size != 2) {
        fprintf(stderr, "bench: instructions are counted on 2 ranks, not on %d\n", size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const char *why_not = rank == 0 ? start_helper() : NULL;
    if (why_not) {
        fprintf(stderr, "bench: no instructions can be counted: %s\n", why_not);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int s = 0; s < options.size_count; s++) {
        bytes = options.sizes[s];
        buffers(2 * bytes);
        fill(out, bytes, rank, 0);
        for (int w = 0; w < WARM_UP; w++) barrier_in_background();
        long marks = middle(&none);
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            char text[64];
            if (!is_wanted(wanted, calls[c].name)) continue;
            double counted = middle(&calls[c]) - marks;
            if (calls[c].window) counted /= calls[c].window;
            snprintf(text, sizeof text, "\"call\":\"%s\"", calls[c].name);
            record_value("instructions", bytes, text, "instructions", counted);
        }
    }
    if (rank == 0) stop_helper();
}

const struct test instruction_tests[] = {{"instructions", instructions, 0}, {NULL, NULL, 0}};
