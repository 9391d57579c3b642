/* Partitioned communication: partitions of any number on either side, sent in any order, by several threads. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { tag = 11, threads_max = 4 };

static int peer_of(int rank)
{
    return rank ^ 1;
}

/* True once the partition is here; lets others work meanwhile. */
static void await_partition(MPI_Request request, int partition)
{
    int flag = 0;
    for (OK(MPI_Parrived(request, partition, &flag)); !flag; OK(MPI_Parrived(request, partition, &flag)))
        usleep(200);
}

/* All of `bytes` in `sent` partitions to one side and `received` on the other, `starts` times. */
static void exchange(int sent, int received, int bytes, int starts, int comm_self)
{
    MPI_Comm comm = comm_self ? MPI_COMM_SELF : MPI_COMM_WORLD;
    int peer = comm_self ? 0 : peer_of(world_rank);
    int sends = comm_self || world_rank % 2 == 0, receives = comm_self || world_rank % 2 == 1;
    unsigned char *out = allocate((size_t)bytes), *in = allocate((size_t)bytes);
    MPI_Request send = MPI_REQUEST_NULL, receive = MPI_REQUEST_NULL;
    if (sends)
        OK(MPI_Psend_init(out, sent, sent ? bytes / sent : 0, MPI_BYTE, peer, tag, comm, MPI_INFO_NULL, &send));
    if (receives)
        OK(MPI_Precv_init(in, received, received ? bytes / received : 0, MPI_BYTE, peer, tag, comm, MPI_INFO_NULL,
                          &receive));
    for (int start = 0; start < starts; start++) {
        uint64_t state = (uint64_t)start + 1, seed = (uint64_t)(start * 100 + sent);
        memset(in, 0xee, (size_t)bytes);
        fill(out, (size_t)bytes, seed);
        if (receives)
            OK(MPI_Start(&receive));
        if (sends) {
            int *order = allocate(sizeof(int) * (size_t)sent);
            OK(MPI_Start(&send));
            for (int i = 0; i < sent; i++)
                order[i] = i;
            for (int i = sent - 1; i > 0; i--) {
                int j = (int)(next_random(&state) % (uint32_t)(i + 1)), swapped = order[i];
                order[i] = order[j];
                order[j] = swapped;
            }
            for (int i = 0; i < sent; i++)
                OK(MPI_Pready(order[i], send));
            free(order);
        }
        if (receives) {
            MPI_Status status;
            int count = -1;
            for (int i = 0; i < received; i++) {
                size_t length = (size_t)(bytes / received), begin = length * (size_t)i;
                unsigned char *expected = allocate((size_t)bytes);
                await_partition(receive, i);
                fill(expected, (size_t)bytes, seed);
                CHECK(memcmp(in + begin, expected + begin, length) == 0);
                free(expected);
            }
            OK(MPI_Wait(&receive, &status));
            OK(MPI_Get_count(&status, MPI_BYTE, &count));
            CHECK(status.MPI_SOURCE == peer && status.MPI_TAG == tag && count == bytes);
            CHECK(receive != MPI_REQUEST_NULL);
            CHECK(verify(in, (size_t)bytes, seed));
        }
        if (sends)
            OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    }
    if (sends)
        OK(MPI_Request_free(&send));
    if (receives)
        OK(MPI_Request_free(&receive));
    free(out);
    free(in);
}

/* A partition arrives although others were never ready, and those have not arrived. */
static void one_at_a_time(void)
{
    enum { partitions = 6, length = 1000 };
    int data[partitions * length], go = 0;
    MPI_Request request;
    if (world_rank % 2 == 0) {
        for (int i = 0; i < partitions * length; i++)
            data[i] = i;
        OK(MPI_Psend_init(data, partitions, length, MPI_INT, peer_of(world_rank), tag, MPI_COMM_WORLD, MPI_INFO_NULL,
                          &request));
        OK(MPI_Start(&request));
        for (int i = partitions - 1; i >= 0; i--) {
            OK(MPI_Pready(i, request));
            OK(MPI_Recv(&go, 1, MPI_INT, peer_of(world_rank), 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    } else {
        OK(MPI_Precv_init(data, partitions / 2, length * 2, MPI_INT, peer_of(world_rank), tag, MPI_COMM_WORLD,
                          MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        for (int i = partitions - 1; i >= 0; i--) {
            int flag = 1;
            if (i % 2 == 0)
                await_partition(request, i / 2);
            for (int early = 0; early < (i + 1) / 2; early++) {
                OK(MPI_Parrived(request, early, &flag));
                CHECK(!flag);
            }
            OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag || i == 0);
            OK(MPI_Send(&go, 1, MPI_INT, peer_of(world_rank), 1, MPI_COMM_WORLD));
        }
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (world_rank % 2 == 1)
        for (int i = 0; i < partitions * length; i++)
            CHECK(data[i] == i);
    OK(MPI_Request_free(&request));
}

/* Pairs with the same tag match in the order of their making, and none matches a plain message. */
static void matching(void)
{
    enum { pairs = 4 };
    int data[pairs], plain = -1;
    MPI_Request requests[pairs], any;
    if (world_rank % 2 == 0) {
        for (int i = 0; i < pairs; i++) {
            data[i] = 100 + i;
            OK(MPI_Psend_init(&data[i], 1, 1, MPI_INT, peer_of(world_rank), tag + i / 2, MPI_COMM_WORLD,
                              MPI_INFO_NULL, &requests[i]));
        }
        /* Started in another order than made. */
        for (int i = pairs - 1; i >= 0; i--) {
            OK(MPI_Start(&requests[i]));
            OK(MPI_Pready(0, requests[i]));
        }
        plain = 7;
        OK(MPI_Send(&plain, 1, MPI_INT, peer_of(world_rank), tag, MPI_COMM_WORLD));
        OK(MPI_Waitall(pairs, requests, MPI_STATUSES_IGNORE));
    } else {
        MPI_Status status;
        OK(MPI_Irecv(&plain, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any));
        /* The two tags the other way round; within a tag, in order. */
        for (int i = 0; i < pairs; i++)
            OK(MPI_Precv_init(&data[i], 1, 1, MPI_INT, peer_of(world_rank), tag + 1 - i / 2, MPI_COMM_WORLD,
                              MPI_INFO_NULL, &requests[i]));
        OK(MPI_Startall(pairs, requests));
        OK(MPI_Waitall(pairs, requests, MPI_STATUSES_IGNORE));
        CHECK(data[0] == 102 && data[1] == 103 && data[2] == 100 && data[3] == 101);
        OK(MPI_Wait(&any, &status));
        CHECK(plain == 7 && status.MPI_TAG == tag);
    }
    for (int i = 0; i < pairs; i++)
        OK(MPI_Request_free(&requests[i]));
}

/* Every second element of the sender becomes every third of the receiver. */
static void derived_types(void)
{
    enum { partitions = 4, blocks = 6 };
    int data[partitions * blocks * 3 + 3], is_sender = world_rank % 2 == 0, stride = is_sender ? 2 : 3;
    MPI_Datatype vector, type;
    MPI_Request request;
    OK(MPI_Type_vector(blocks, 1, stride, MPI_INT, &vector));
    OK(MPI_Type_create_resized(vector, 0, (MPI_Aint)sizeof(int) * blocks * stride, &type));
    OK(MPI_Type_commit(&type));
    for (int i = 0; i < (int)(sizeof data / sizeof data[0]); i++)
        data[i] = is_sender ? i : -1;
    if (is_sender)
        OK(MPI_Psend_init(data, partitions, 1, type, peer_of(world_rank), tag, MPI_COMM_WORLD, MPI_INFO_NULL,
                          &request));
    else
        OK(MPI_Precv_init(data, partitions / 2, 2, type, peer_of(world_rank), tag, MPI_COMM_WORLD, MPI_INFO_NULL,
                          &request));
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free(&vector));
    OK(MPI_Start(&request));
    if (is_sender)
        OK(MPI_Pready_range(0, partitions - 1, request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (!is_sender)
        for (int i = 0; i < partitions * blocks * 3; i++)
            CHECK(data[i] == (i % 3 == 0 ? i / 3 * 2 : -1));
    OK(MPI_Request_free(&request));
}

/* Nothing to move is moved nowhere; nobody answers at once. */
static void nothing(void)
{
    int flag = 0, list[] = {1, 0};
    MPI_Request request;
    MPI_Status status;
    exchange(4, 4, 0, 2, 0);
    OK(MPI_Psend_init(NULL, 2, 0, MPI_INT, MPI_PROC_NULL, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    OK(MPI_Pready_list(2, list, request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    OK(MPI_Precv_init(NULL, 2, 0, MPI_INT, MPI_PROC_NULL, tag, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    OK(MPI_Parrived(request, 1, &flag));
    CHECK(flag);
    OK(MPI_Wait(&request, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    OK(MPI_Request_free(&request));
}

struct part {
    MPI_Request request;
    int first, step, end;
};

static void *contribute(void *argument)
{
    struct part *part = argument;
    for (int i = part->first; i < part->end; i += part->step)
        OK(MPI_Pready(i, part->request));
    return NULL;
}

/* Threads that each make some partitions ready; the receiver's threads wait for theirs. */
static void *await_parts(void *argument)
{
    struct part *part = argument;
    for (int i = part->first; i < part->end; i += part->step)
        await_partition(part->request, i);
    return NULL;
}

static void by_threads(void)
{
    enum { partitions = 64, length = 512, starts = 5 };
    static unsigned char data[partitions * length];
    MPI_Request request;
    int is_sender = world_rank % 2 == 0;
    if (is_sender)
        OK(MPI_Psend_init(data, partitions, length, MPI_BYTE, peer_of(world_rank), tag, MPI_COMM_WORLD, MPI_INFO_NULL,
                          &request));
    else
        OK(MPI_Precv_init(data, partitions / 2, length * 2, MPI_BYTE, peer_of(world_rank), tag, MPI_COMM_WORLD,
                          MPI_INFO_NULL, &request));
    for (int start = 0; start < starts; start++) {
        pthread_t threads[threads_max];
        struct part parts[threads_max];
        if (is_sender)
            fill(data, sizeof data, (uint64_t)start);
        OK(MPI_Start(&request));
        for (int i = 0; i < threads_max; i++) {
            parts[i] = (struct part){request, i, threads_max, is_sender ? partitions : partitions / 2};
            CHECK(pthread_create(&threads[i], NULL, is_sender ? contribute : await_parts, &parts[i]) == 0);
        }
        for (int i = 0; i < threads_max; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(verify(data, sizeof data, (uint64_t)start));
    }
    OK(MPI_Request_free(&request));
}

/* What makes no sense is an error of the right class, and changes nothing. */
static void errors(void)
{
    int data[4] = {1, 2, 3, 4}, got[4] = {0}, flag;
    MPI_Request send, receive, plain, nobody;
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Psend_init(data, -1, 1, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Psend_init(data, 1, -1, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &send)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Psend_init(data, 1, 1, MPI_INT, 1, tag, comm, MPI_INFO_NULL, &send)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Psend_init(data, 1, 1, MPI_INT, 0, -5, comm, MPI_INFO_NULL, &send)) == MPI_ERR_TAG);
    CHECK(class_of(MPI_Precv_init(got, 1, 1, MPI_INT, MPI_ANY_SOURCE, tag, comm, MPI_INFO_NULL, &receive)) ==
          MPI_ERR_RANK);
    CHECK(class_of(MPI_Precv_init(got, 1, 1, MPI_INT, 0, MPI_ANY_TAG, comm, MPI_INFO_NULL, &receive)) == MPI_ERR_TAG);
    OK(MPI_Psend_init(data, 4, 1, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &send));
    OK(MPI_Precv_init(got, 2, 2, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &receive));
    OK(MPI_Recv_init(got, 1, MPI_INT, 0, tag, comm, &plain));
    OK(MPI_Psend_init(data, 3, 1, MPI_INT, MPI_PROC_NULL, tag, comm, MPI_INFO_NULL, &nobody));
    CHECK(class_of(MPI_Pready(0, send)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Pready(0, plain)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Pready(0, MPI_REQUEST_NULL)) == MPI_ERR_REQUEST);
    OK(MPI_Start(&send));
    OK(MPI_Start(&receive));
    OK(MPI_Start(&nobody));
    CHECK(class_of(MPI_Start(&send)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Pready(4, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready(-1, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready(3, nobody)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready_range(2, 1, send)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Pready(0, receive)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Parrived(send, 0, &flag)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Parrived(plain, 0, &flag)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Parrived(receive, 2, &flag)) == MPI_ERR_ARG);
    OK(MPI_Pready(2, send));
    CHECK(class_of(MPI_Pready(2, send)) == MPI_ERR_ARG);
    OK(MPI_Pready_range(0, 1, send));
    OK(MPI_Pready(3, send));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&nobody, MPI_STATUS_IGNORE));
    CHECK(memcmp(data, got, sizeof data) == 0);
    OK(MPI_Parrived(receive, 1, &flag));
    CHECK(flag);
    OK(MPI_Request_free(&send));
    OK(MPI_Request_free(&receive));
    OK(MPI_Request_free(&plain));
    OK(MPI_Request_free(&nobody));

    /* Longer than the receive: the receive says so, the send goes well. */
    OK(MPI_Psend_init(data, 4, 1, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &send));
    memset(got, 0, sizeof got);
    OK(MPI_Precv_init(got, 2, 1, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &receive));
    OK(MPI_Start(&send));
    OK(MPI_Start(&receive));
    OK(MPI_Pready_range(0, 3, send));
    CHECK(class_of(MPI_Wait(&receive, MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE);
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    CHECK(got[0] == 1 && got[1] == 2 && got[2] == 0 && got[3] == 0);
    OK(MPI_Request_free(&send));
    OK(MPI_Request_free(&receive));

    /* Freed before it is matched, and while it is under way. */
    OK(MPI_Precv_init(got, 1, 1, MPI_INT, 0, tag + 1, comm, MPI_INFO_NULL, &receive));
    OK(MPI_Request_free(&receive));
    OK(MPI_Psend_init(data, 4, 1, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &send));
    OK(MPI_Precv_init(got, 4, 1, MPI_INT, 0, tag, comm, MPI_INFO_NULL, &receive));
    OK(MPI_Start(&send));
    OK(MPI_Start(&receive));
    OK(MPI_Pready_range(0, 3, send));
    OK(MPI_Request_free(&send));
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    CHECK(memcmp(data, got, sizeof data) == 0);
    OK(MPI_Request_free(&receive));
    OK(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    static const int counts[][2] = {{1, 1}, {4, 4}, {6, 3}, {3, 6}, {1, 8}, {8, 1}, {6, 4}, {5, 15}};
    /* For MPICH 5.0.2, which sends nothing before all is ready and does not survive MPI_PROC_NULL. */
    int lenient = argc > 1 && strcmp(argv[1], "lenient") == 0, provided;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        exchange(counts[i][0], counts[i][1], 240, 3, 1);
        if (world_size % 2 == 0) {
            exchange(counts[i][0], counts[i][1], 240, 3, 0);
            exchange(counts[i][0], counts[i][1], 1200000, 2, 0);
        }
    }
    if (world_size % 2 == 0) {
        matching();
        derived_types();
        if (!lenient) {
            one_at_a_time();
            nothing();
        }
        if (provided == MPI_THREAD_MULTIPLE)
            by_threads();
    }
    if (!lenient)
        errors();
    return finish();
}
