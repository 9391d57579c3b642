/* A tool with threads of its own, in a program that knows of none: it asks for them before MPI_Init, and reads
 * counters while the program communicates. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { threads = 3, messages = 5000 };

static volatile int over;

/* Reads a counter of its own session until the program is through: what it counts never goes down. */
static void *watch(void *wrong)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    unsigned long long last, now;
    int index, count;
    const char *name = world_size == 1 ? "sends_to_self" : "eager_sends";
    *(int *)wrong = MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS;
    while (!over) {
        *(int *)wrong += MPI_T_pvar_session_create(&session) != MPI_SUCCESS;
        *(int *)wrong += MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) != MPI_SUCCESS;
        *(int *)wrong += MPI_T_pvar_start(session, handle) != MPI_SUCCESS;
        last = 0;
        for (int i = 0; i < 50; i++) {
            now = 0;
            *(int *)wrong += MPI_T_pvar_read(session, handle, &now) != MPI_SUCCESS;
            *(int *)wrong += now < last;
            last = now;
        }
        *(int *)wrong += MPI_T_pvar_session_free(&session) != MPI_SUCCESS;
        usleep(300);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t tool[threads];
    int wrong[threads] = {0}, provided = -1, level = -1;
    OK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    start(&argc, &argv);
    OK(MPI_Query_thread(&level));
    CHECK(level == MPI_THREAD_SINGLE);
    for (int t = 0; t < threads; t++)
        CHECK(pthread_create(&tool[t], NULL, watch, &wrong[t]) == 0);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    for (int i = 0; i < messages; i++) {
        int got = -1;
        OK(MPI_Sendrecv(&i, 1, MPI_INT, right, 1, &got, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(got == i);
    }
    over = 1;
    for (int t = 0; t < threads; t++) {
        pthread_join(tool[t], NULL);
        CHECK(wrong[t] == 0);
    }
    int failed = finish();
    OK(MPI_T_finalize());
    return failed;
}
