/* Sessions without MPI_Init, several times over, then the world model, then a session again. */
#include "check.h"

/* Group and communicator of a process set; the group is freed at once. */
static MPI_Comm communicator(MPI_Session session, const char *set, const char *tag)
{
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    OK(MPI_Group_from_session_pset(session, set, &group));
    OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_free(&group));
    return comm;
}

static void sets(MPI_Session session)
{
    int count = -1, found[2] = {0, 0}, length, flag, same;
    char name[MPI_MAX_PSET_NAME_LEN], small[5], value[32];
    MPI_Info info;
    MPI_Group group, again;
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &count));
    CHECK(count >= 2);
    for (int n = 0; n < count; n++) {
        int size = -1, needed;
        length = 0;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, NULL));
        CHECK(length > 1 && length <= MPI_MAX_PSET_NAME_LEN);
        needed = length, length = sizeof name;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name));
        CHECK(length == needed && (int)strlen(name) + 1 == length);
        length = sizeof small;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, small));
        CHECK(length == needed && strncmp(small, name, sizeof small - 1) == 0 && small[sizeof small - 1] == 0);
        found[0] |= strcmp(name, "mpi://WORLD") == 0;
        found[1] |= strcmp(name, "mpi://SELF") == 0;
        OK(MPI_Session_get_pset_info(session, name, &info));
        length = sizeof value;
        OK(MPI_Info_get_string(info, "mpi_size", &length, value, &flag));
        OK(MPI_Info_free(&info));
        OK(MPI_Group_from_session_pset(session, name, &group));
        OK(MPI_Group_size(group, &size));
        CHECK(flag && atoi(value) == size);
        OK(MPI_Group_from_session_pset(session, name, &again));
        OK(MPI_Group_compare(group, again, &same));
        CHECK(same == MPI_IDENT);
        OK(MPI_Group_free(&again));
        OK(MPI_Group_free(&group));
    }
    CHECK(found[0] && found[1]);
    length = sizeof name;
    CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, count, &length, name) != MPI_SUCCESS);
    CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, -1, &length, name) != MPI_SUCCESS);
    CHECK(class_of(MPI_Session_get_pset_info(session, "app://no such set", &info)) == MPI_ERR_ARG);
}

/* A ring, a reduction, and a communicator made from this one. */
static void communicate(MPI_Comm comm)
{
    int rank, size, from = -1, sum = -1, wanted = 0;
    MPI_Comm half;
    MPI_Request request;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 7, &from, 1, MPI_INT, (rank + size - 1) % size, 7, comm,
                    MPI_STATUS_IGNORE));
    CHECK(from == (rank + size - 1) % size);
    OK(MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Comm_split(comm, rank % 2, -rank, &half));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half));
    for (int i = rank % 2; i < size; i += 2)
        wanted += i;
    CHECK(sum == wanted);
    OK(MPI_Comm_free(&half));
}

static void one_session(int round)
{
    MPI_Session session = MPI_SESSION_NULL;
    MPI_Info hints, info;
    MPI_Comm world, self, some;
    MPI_Group group, part;
    MPI_Errhandler handler;
    char value[64];
    int flag, length = sizeof value, rank, size, provided = -1;
    OK(MPI_Info_create(&hints));
    OK(MPI_Info_set(hints, "thread_level", "MPI_THREAD_SERIALIZED"));
    OK(MPI_Session_init(round % 2 ? hints : MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Info_free(&hints));
    CHECK(session != MPI_SESSION_NULL);
    OK(MPI_Session_get_info(session, &info));
    OK(MPI_Info_get_string(info, "thread_level", &length, value, &flag));
    CHECK(flag && strncmp(value, "MPI_THREAD_", 11) == 0);
    OK(MPI_Info_free(&info));
    OK(MPI_Session_get_errhandler(session, &handler));
    CHECK(handler == MPI_ERRORS_RETURN);
    OK(MPI_Errhandler_free(&handler));
    sets(session);
    world = communicator(session, "mpi://WORLD", "org.example.sessions");
    self = communicator(session, "mpi://SELF", "org.example.sessions");
    OK(MPI_Comm_rank(world, &rank));
    OK(MPI_Comm_size(world, &size));
    OK(MPI_Query_thread(&provided));
    communicate(world);
    communicate(self);
    /* Every second process, in reverse order. */
    OK(MPI_Comm_group(world, &group));
    OK(MPI_Group_range_incl(group, 1, (int[1][3]){{(size - 1) / 2 * 2, 0, -2}}, &part));
    if (rank % 2 == 0) {
        int mine = -1;
        OK(MPI_Comm_create_from_group(part, "org.example.part", MPI_INFO_NULL, MPI_ERRORS_RETURN, &some));
        OK(MPI_Comm_rank(some, &mine));
        CHECK(mine == ((size - 1) / 2 * 2 - rank) / 2);
        communicate(some);
        OK(MPI_Comm_disconnect(&some));
    }
    OK(MPI_Group_free(&part));
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_free(&self));
    if (round % 2)
        OK(MPI_Comm_free(&world));
    else
        OK(MPI_Comm_disconnect(&world));
    OK(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL);
}

/* A session's buffer serves the communicators made from it, unless they have one of their own. */
static void buffers(MPI_Session session)
{
    enum { bytes = 1000, room = 2 * (bytes + MPI_BSEND_OVERHEAD) };
    static char message[bytes], received[bytes];
    char *space = malloc(room), *own = malloc(room), *back = NULL;
    int size = -1, rank, count;
    MPI_Comm comm = communicator(session, "mpi://WORLD", "org.example.buffers");
    MPI_Request request;
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &count));
    OK(MPI_Session_attach_buffer(session, space, room));
    CHECK(class_of(MPI_Session_attach_buffer(session, own, room)) == MPI_ERR_BUFFER);
    OK(MPI_Comm_attach_buffer(comm, own, room));
    for (int round = 0; round < 3; round++) {
        memset(message, round + 1, bytes);
        OK(MPI_Bsend(message, bytes, MPI_CHAR, (rank + 1) % count, 3, comm));
        memset(message, 0, bytes);
        OK(MPI_Recv(received, bytes, MPI_CHAR, (rank + count - 1) % count, 3, comm, MPI_STATUS_IGNORE));
        CHECK(received[0] == round + 1 && received[bytes - 1] == round + 1);
        if (round == 0) {
            OK(MPI_Comm_detach_buffer(comm, &back, &size));
            CHECK(back == own && size == room);
        }
        OK(MPI_Session_flush_buffer(session));
    }
    CHECK(class_of(MPI_Bsend(message, bytes + room, MPI_CHAR, MPI_PROC_NULL, 3, comm)) == MPI_SUCCESS);
    OK(MPI_Session_iflush_buffer(session, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Session_detach_buffer(session, &back, &size));
    CHECK(back == space && size == room);
    CHECK(MPI_Session_detach_buffer(session, &back, &size) != MPI_SUCCESS);
    CHECK(class_of(MPI_Bsend(message, bytes, MPI_CHAR, rank, 3, comm)) == MPI_ERR_BUFFER);
    OK(MPI_Session_attach_buffer(session, MPI_BUFFER_AUTOMATIC, 0));
    OK(MPI_Bsend(message, bytes, MPI_CHAR, rank, 4, comm));
    OK(MPI_Recv(received, bytes, MPI_CHAR, rank, 4, comm, MPI_STATUS_IGNORE));
    OK(MPI_Session_detach_buffer(session, &back, &size));
    CHECK(back == MPI_BUFFER_AUTOMATIC);
    /* What is still attached at the end is detached with the session. */
    OK(MPI_Session_attach_buffer(session, space, room));
    OK(MPI_Bsend(message, bytes, MPI_CHAR, rank, 5, comm));
    OK(MPI_Recv(received, bytes, MPI_CHAR, rank, 5, comm, MPI_STATUS_IGNORE));
    OK(MPI_Comm_disconnect(&comm));
    OK(MPI_Session_finalize(&session));
    free(space);
    free(own);
}

int main(int argc, char **argv)
{
    MPI_Session session, other;
    MPI_Group group;
    int flag = -1, verdict;
    for (int round = 0; round < 3; round++)
        one_session(round);
    OK(MPI_Initialized(&flag));
    CHECK(!flag);
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &other));
    CHECK(session != other);
    buffers(session);
    CHECK(class_of(MPI_Group_from_session_pset(other, "app://no such set", &group)) == MPI_ERR_ARG);
    /* The world model begins and ends while a session is open. */
    start(&argc, &argv);
    communicate(MPI_COMM_WORLD);
    MPI_Comm comm = communicator(other, "mpi://WORLD", "org.example.beside");
    verdict = finish();
    OK(MPI_Finalized(&flag));
    CHECK(flag);
    communicate(comm);
    OK(MPI_Comm_disconnect(&comm));
    OK(MPI_Session_finalize(&other));
    one_session(0);
    return verdict || failures;
}
