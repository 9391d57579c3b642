/* Threads that open, use and close sessions of their own at the same time, with infos and errors between. */
#include "check.h"
#include <pthread.h>

enum { thread_count = 4, rounds = 12 };

static void *use(void *argument)
{
    int number = *(int *)argument;
    for (int round = 0; round < rounds; round++) {
        MPI_Session session;
        MPI_Group group;
        MPI_Comm comm;
        MPI_Info info;
        int rank, size, sum = -1, class, theirs = -1;
        char tag[64];
        OK(MPI_Info_create(&info));
        OK(MPI_Info_set(info, "thread_level", "MPI_THREAD_MULTIPLE"));
        OK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session));
        OK(MPI_Info_free(&info));
        OK(MPI_Error_class(MPI_ERR_TAG, &class));
        OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
        snprintf(tag, sizeof tag, "org.example.thread.%d", number);
        OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
        OK(MPI_Group_free(&group));
        OK(MPI_Comm_rank(comm, &rank));
        OK(MPI_Comm_size(comm, &size));
        OK(MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == number * size);
        int mine = 1000 * number + rank;
        OK(MPI_Sendrecv(&mine, 1, MPI_INT, (rank + 1) % size, 3, &theirs, 1, MPI_INT, (rank + size - 1) % size, 3, comm,
                        MPI_STATUS_IGNORE));
        CHECK(theirs == 1000 * number + (rank + size - 1) % size);
        if (round % 3 == 0)
            OK(MPI_Barrier(comm));
        OK(MPI_Comm_disconnect(&comm));
        OK(MPI_Session_finalize(&session));
    }
    return NULL;
}

static void all_threads(void)
{
    pthread_t threads[thread_count];
    int numbers[thread_count];
    for (int i = 0; i < thread_count; i++) {
        numbers[i] = i + 1;
        CHECK(pthread_create(&threads[i], NULL, use, &numbers[i]) == 0);
    }
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    int provided = -1;
    all_threads();
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_MULTIPLE);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    all_threads();
    return finish();
}
