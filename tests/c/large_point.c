/* The large-count forms of point-to-point calls: every mode, blocking, non-blocking and persistent, matched,
 * partitioned and buffered by owner. Messages go round a ring, tag by tag. */
#include "check.h"

enum { n = 600, room = 1 << 18 };

static int out[n], in[n], next, before, tag;
static MPI_Comm comm;
static MPI_Status status;

static void prepare(void)
{
    tag++;
    for (int i = 0; i < n; i++) {
        out[i] = world_rank * 1000 + tag * 7 + i;
        in[i] = -1;
    }
}

static void arrived(const int *data)
{
    MPI_Count count = -1;
    int wrong = 0;
    for (int i = 0; i < n; i++)
        wrong += data[i] != before * 1000 + tag * 7 + i;
    CHECK(wrong == 0);
    OK(MPI_Get_count_c(&status, MPI_INT, &count));
    CHECK(count == n && status.MPI_SOURCE == before && status.MPI_TAG == tag);
}

#define TO out, n, MPI_INT, next, tag, comm
#define FROM in, n, MPI_INT, before, tag, comm

/* A call that sends, while a receive is posted. */
#define SENDS(call)                         \
    do {                                    \
        MPI_Request receive;                \
        prepare();                          \
        OK(MPI_Irecv_c(FROM, &receive));    \
        OK(MPI_Barrier(comm));              \
        OK(call);                           \
        OK(MPI_Wait(&receive, &status));    \
        arrived(in);                        \
    } while (0)

/* A call that gives a request, started first if it has to be. */
#define SENDS_LATER(call, is_persistent)                  \
    do {                                                  \
        MPI_Request receive, send;                        \
        prepare();                                        \
        OK(MPI_Irecv_c(FROM, &receive));                  \
        OK(MPI_Barrier(comm));                            \
        OK(call);                                         \
        if (is_persistent)                                \
            OK(MPI_Start(&send));                         \
        OK(MPI_Wait(&send, MPI_STATUS_IGNORE));           \
        if (is_persistent)                                \
            OK(MPI_Request_free(&send));                  \
        OK(MPI_Wait(&receive, &status));                  \
        arrived(in);                                      \
    } while (0)

static void modes(void)
{
    SENDS(MPI_Send_c(TO));
    SENDS(MPI_Ssend_c(TO));
    SENDS(MPI_Rsend_c(TO));
    SENDS(MPI_Bsend_c(TO));
    SENDS_LATER(MPI_Isend_c(TO, &send), 0);
    SENDS_LATER(MPI_Issend_c(TO, &send), 0);
    SENDS_LATER(MPI_Irsend_c(TO, &send), 0);
    SENDS_LATER(MPI_Ibsend_c(TO, &send), 0);
    SENDS_LATER(MPI_Send_init_c(TO, &send), 1);
    SENDS_LATER(MPI_Ssend_init_c(TO, &send), 1);
    SENDS_LATER(MPI_Rsend_init_c(TO, &send), 1);
    SENDS_LATER(MPI_Bsend_init_c(TO, &send), 1);
}

static void receives(void)
{
    MPI_Request send, receive;
    MPI_Message message;
    int flag = 0;
    prepare();
    OK(MPI_Isend(TO, &send));
    OK(MPI_Recv_c(FROM, &status));
    arrived(in);
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    prepare();
    OK(MPI_Recv_init_c(FROM, &receive));
    OK(MPI_Start(&receive));
    OK(MPI_Send(TO));
    OK(MPI_Wait(&receive, &status));
    arrived(in);
    OK(MPI_Request_free(&receive));
    prepare();
    OK(MPI_Isend(TO, &send));
    OK(MPI_Mprobe(before, tag, comm, &message, MPI_STATUS_IGNORE));
    OK(MPI_Mrecv_c(in, n, MPI_INT, &message, &status));
    arrived(in);
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    prepare();
    OK(MPI_Isend(TO, &send));
    while (!flag)
        OK(MPI_Improbe(before, tag, comm, &flag, &message, MPI_STATUS_IGNORE));
    OK(MPI_Imrecv_c(in, n, MPI_INT, &message, &receive));
    OK(MPI_Wait(&receive, &status));
    arrived(in);
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
}

static void both_ways(void)
{
    MPI_Request request;
    prepare();
    OK(MPI_Sendrecv_replace_c(out, n, MPI_INT, next, tag, before, tag, comm, &status));
    arrived(out);
    prepare();
    OK(MPI_Isendrecv_c(out, n, MPI_INT, next, tag, in, n, MPI_INT, before, tag, comm, &request));
    OK(MPI_Wait(&request, &status));
    arrived(in);
    prepare();
    OK(MPI_Isendrecv_replace_c(out, n, MPI_INT, next, tag, before, tag, comm, &request));
    OK(MPI_Wait(&request, &status));
    arrived(out);
}

static void partitions(void)
{
    enum { parts = 6 };
    MPI_Request send, receive;
    prepare();
    OK(MPI_Psend_init(out, parts, n / parts, MPI_INT, next, tag, comm, MPI_INFO_NULL, &send));
    OK(MPI_Precv_init(in, parts / 2, 2 * n / parts, MPI_INT, before, tag, comm, MPI_INFO_NULL, &receive));
    OK(MPI_Start(&receive));
    OK(MPI_Start(&send));
    OK(MPI_Pready_range(0, parts - 1, send));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&receive, &status));
    arrived(in);
    OK(MPI_Request_free(&send));
    OK(MPI_Request_free(&receive));
}

static void owners(void)
{
    static char own[room];
    void *given = NULL;
    MPI_Count length = 0;
    MPI_Request flush;
    MPI_Session session;
    OK(MPI_Comm_attach_buffer_c(comm, own, room));
    SENDS(MPI_Bsend_c(TO));
    OK(MPI_Comm_detach_buffer_c(comm, &given, &length));
    CHECK(given == own && length == room);
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_attach_buffer_c(session, own, room));
    OK(MPI_Session_detach_buffer_c(session, &given, &length));
    CHECK(given == own && length == room);
    OK(MPI_Session_finalize(&session));
    OK(MPI_Buffer_attach_c(own, room));
    SENDS(MPI_Bsend_c(TO));
    OK(MPI_Buffer_iflush(&flush));
    OK(MPI_Wait(&flush, MPI_STATUS_IGNORE));
    OK(MPI_Buffer_detach_c(&given, &length));
    CHECK(given == own && length == room);
}

int main(int argc, char **argv)
{
    static char memory[room];
    void *given;
    int length;
    start(&argc, &argv);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    next = (world_rank + 1) % world_size;
    before = (world_rank + world_size - 1) % world_size;
    OK(MPI_Buffer_attach(memory, room));
    modes();
    receives();
    both_ways();
    partitions();
    OK(MPI_Buffer_detach(&given, &length));
    CHECK(given == memory && length == room);
    owners();
    OK(MPI_Comm_free(&comm));
    return finish();
}
