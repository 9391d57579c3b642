/* MPI_THREAD_MULTIPLE under stress: requests completed by other threads, probes by several threads, communicators made
 * and freed, error handlers and info objects, all at once. Whoever waits sleeps; a lost wake-up is a hang. */
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

enum { pairs = 4, rounds = 60, probers = 3, messages = 120, chatters = 3, slots = 8 };

static pthread_mutex_t failure_lock = PTHREAD_MUTEX_INITIALIZER;

static void note(int holds, const char *what, int thread, int round)
{
    if (holds)
        return;
    pthread_mutex_lock(&failure_lock);
    fprintf(stderr, "rank %d thread %d round %d: %s\n", world_rank, thread, round, what);
    failures++;
    pthread_mutex_unlock(&failure_lock);
}

static void run(int count, void *(*work)(void *), void *arguments, size_t size)
{
    pthread_t threads[16];
    for (int i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (char *)arguments + (size_t)i * size) == 0);
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* One thread starts requests, another completes them; they hand them over in a ring of slots. */
struct pair {
    int number;
    MPI_Request requests[slots];
    int received[slots], sent[slots];
    sem_t filled, empty;
};

static void *complete(void *argument)
{
    struct pair *pair = argument;
    for (int round = 0; round < rounds; round++) {
        int slot = round % slots, left = (world_rank + world_size - 1) % world_size, flag = 0;
        MPI_Status status;
        sem_wait(&pair->filled);
        switch (round % 3) {
        case 0: OK(MPI_Wait(&pair->requests[slot], &status)); break;
        case 1: OK(MPI_Waitall(1, &pair->requests[slot], &status)); break;
        default:
            while (!flag) {
                OK(MPI_Test(&pair->requests[slot], &flag, &status));
                if (!flag)
                    usleep(100);
            }
        }
        note(pair->received[slot] == left * 1000 + round && status.MPI_SOURCE == left, "another's message",
             pair->number, round);
        sem_post(&pair->empty);
    }
    return NULL;
}

static void *start_and_hand_over(void *argument)
{
    struct pair *pair = argument;
    pthread_t completer;
    MPI_Comm comm;
    sem_init(&pair->filled, 0, 0);
    sem_init(&pair->empty, 0, slots);
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    pthread_create(&completer, NULL, complete, pair);
    for (int round = 0; round < rounds; round++) {
        int slot = round % slots, right = (world_rank + 1) % world_size;
        int left = (world_rank + world_size - 1) % world_size;
        MPI_Request send;
        sem_wait(&pair->empty);
        pair->sent[slot] = world_rank * 1000 + round;
        OK(MPI_Irecv(&pair->received[slot], 1, MPI_INT, left, 100 + pair->number, MPI_COMM_WORLD,
                     &pair->requests[slot]));
        OK(MPI_Isend(&pair->sent[slot], 1, MPI_INT, right, 100 + pair->number, MPI_COMM_WORLD, &send));
        sem_post(&pair->filled);
        OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
        /* Communicators of one's own come and go meanwhile. */
        if (round % 10 == 0) {
            MPI_Comm copy;
            OK(MPI_Comm_dup(comm, &copy));
            OK(MPI_Barrier(copy));
            OK(MPI_Comm_free(&copy));
        }
    }
    pthread_join(completer, NULL);
    OK(MPI_Comm_free(&comm));
    return NULL;
}

/* Several threads take messages of one kind out of matching; each message is received once, by one of them. */
static int taken[messages];

static void *probe_and_receive(void *argument)
{
    int me = *(int *)argument, left = (world_rank + world_size - 1) % world_size;
    for (;;) {
        MPI_Message message;
        MPI_Status status;
        int count = 0, data[messages];
        OK(MPI_Mprobe(left, 200, MPI_COMM_WORLD, &message, &status));
        OK(MPI_Get_count(&status, MPI_INT, &count));
        OK(MPI_Mrecv(data, count, MPI_INT, &message, &status));
        if (count == 0)
            return NULL;
        note(data[0] >= 0 && data[0] < messages && count == data[0] % 7 + 1, "a message with another's length", me,
             data[0]);
        pthread_mutex_lock(&failure_lock);
        taken[data[0]]++;
        pthread_mutex_unlock(&failure_lock);
    }
}

static void *send_all(void *argument)
{
    int data[8] = {0}, right = (world_rank + 1) % world_size;
    (void)argument;
    for (int i = 0; i < messages; i++) {
        data[0] = i;
        OK(MPI_Send(data, i % 7 + 1, MPI_INT, right, 200, MPI_COMM_WORLD));
        if (i % 16 == 0)
            usleep(300);
    }
    for (int i = 0; i < probers; i++)
        OK(MPI_Send(NULL, 0, MPI_INT, right, 200, MPI_COMM_WORLD));
    return NULL;
}

static void probes(void)
{
    int numbers[probers];
    pthread_t sender;
    for (int i = 0; i < probers; i++)
        numbers[i] = i;
    CHECK(pthread_create(&sender, NULL, send_all, NULL) == 0);
    run(probers, probe_and_receive, numbers, sizeof numbers[0]);
    CHECK(pthread_join(sender, NULL) == 0);
    for (int i = 0; i < messages; i++)
        CHECK(taken[i] == 1);
}

/* A callback inside a call, and calls that are legal at any time, do not wait for each other. */
static int handled;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, error_class;
    (void)comm;
    MPI_Error_string(*code, text, &length);
    MPI_Error_class(*code, &error_class);
    pthread_mutex_lock(&failure_lock);
    handled += error_class == MPI_ERR_RANK && length > 0;
    pthread_mutex_unlock(&failure_lock);
}

static void *chat(void *argument)
{
    int me = *(int *)argument;
    MPI_Comm comm;
    MPI_Errhandler handler;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_create_errhandler(on_error, &handler));
    OK(MPI_Comm_set_errhandler(comm, handler));
    for (int round = 0; round < rounds * 5; round++) {
        MPI_Info info;
        char value[50] = "";
        int room = sizeof value, flag = 0;
        if (me % 2 == 0) {
            note(MPI_Send(NULL, 0, MPI_INT, 77, 0, comm) != MPI_SUCCESS, "a rank that does not exist", me, round);
            continue;
        }
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "key", "value"));
        OK(MPI_Info_get_string(info, "key", &room, value, &flag));
        note(flag && strcmp(value, "value") == 0, "another's info", me, round);
        OK(MPI_Info_free(&info));
    }
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Comm_free(&comm));
    return NULL;
}

/* A thread that sleeps in a receive wakes up for what another rank sends late. */
static void *sleeper(void *argument)
{
    int me = *(int *)argument, data = -1;
    for (int round = 0; round < 10; round++) {
        OK(MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, 300 + me, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        note(data == me * 10 + round, "out of order", me, round);
    }
    return NULL;
}

static void *late(void *argument)
{
    int me = *(int *)argument, right = (world_rank + 1) % world_size;
    for (int round = 0; round < 10; round++) {
        int data = me * 10 + round;
        usleep((useconds_t)(1000 + me * 700));
        OK(MPI_Send(&data, 1, MPI_INT, right, 300 + me, MPI_COMM_WORLD));
    }
    return NULL;
}

static void *early_or_late(void *argument)
{
    int *number = argument, me = *number / 2;
    return *number % 2 ? late(&me) : sleeper(&me);
}

int main(int argc, char **argv)
{
    static struct pair work[pairs];
    int provided = -1, numbers[16];
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < 16; i++)
        numbers[i] = i;
    for (int i = 0; i < pairs; i++)
        work[i].number = i;
    run(pairs, start_and_hand_over, work, sizeof work[0]);
    probes();
    run(chatters, chat, numbers, sizeof numbers[0]);
    CHECK(handled == (chatters + 1) / 2 * rounds * 5);
    run(8, early_or_late, numbers, sizeof numbers[0]);
    return finish();
}
