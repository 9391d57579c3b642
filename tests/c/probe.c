/* Probe and matched probe, blocking and not: they see what a receive would, and no more. */
#include "check.h"

enum { sizes_count = 5 };
static const int sizes[sizes_count] = {0, 1, 700, 60000, 1000000};

static void expect(const MPI_Status *status, int source, int tag, int length)
{
    int count = -1;
    OK(MPI_Get_count(status, MPI_CHAR, &count));
    CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag && count == length);
}

static void probe_from(int source, int tag, int length, char *buffer, int way)
{
    MPI_Status status;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Request request;
    int flag = 0;
    int asked_source = way & 1 ? MPI_ANY_SOURCE : source, asked_tag = way & 2 ? MPI_ANY_TAG : tag;
    memset(buffer, 0, (size_t)length);
    switch (way / 4) {
    case 0:
        OK(MPI_Probe(asked_source, asked_tag, MPI_COMM_WORLD, &status));
        expect(&status, source, tag, length);
        OK(MPI_Probe(asked_source, asked_tag, MPI_COMM_WORLD, &status));
        expect(&status, source, tag, length);
        OK(MPI_Recv(buffer, length, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status));
        break;
    case 1:
        while (!flag)
            OK(MPI_Iprobe(asked_source, asked_tag, MPI_COMM_WORLD, &flag, &status));
        expect(&status, source, tag, length);
        OK(MPI_Recv(buffer, length, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status));
        break;
    case 2:
        OK(MPI_Mprobe(asked_source, asked_tag, MPI_COMM_WORLD, &message, &status));
        expect(&status, source, tag, length);
        CHECK(message != MPI_MESSAGE_NULL && message != MPI_MESSAGE_NO_PROC);
        OK(MPI_Mrecv(buffer, length, MPI_CHAR, &message, &status));
        break;
    default:
        while (!flag)
            OK(MPI_Improbe(asked_source, asked_tag, MPI_COMM_WORLD, &flag, &message, &status));
        expect(&status, source, tag, length);
        /* A matched message is out of reach of probes and receives. */
        OK(MPI_Iprobe(source, tag, MPI_COMM_WORLD, &flag, &status));
        CHECK(!flag);
        OK(MPI_Imrecv(buffer, length, MPI_CHAR, &message, &request));
        OK(MPI_Wait(&request, &status));
        break;
    }
    CHECK(message == MPI_MESSAGE_NULL);
    expect(&status, source, tag, length);
    CHECK(verify(buffer, (size_t)length, (uint64_t)tag));
}

static void nobody(void)
{
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    int flag = 0;
    OK(MPI_Probe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
    expect(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    OK(MPI_Iprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &status));
    CHECK(flag);
    expect(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    OK(MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Mrecv(NULL, 0, MPI_CHAR, &message, &status));
    CHECK(message == MPI_MESSAGE_NULL);
    expect(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    flag = 0;
    OK(MPI_Improbe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &message, &status));
    CHECK(flag && message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Imrecv(NULL, 0, MPI_CHAR, &message, &request));
    OK(MPI_Wait(&request, &status));
    expect(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    OK(MPI_Iprobe(MPI_ANY_SOURCE, 30001, MPI_COMM_WORLD, &flag, &status));
    CHECK(!flag);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    char *buffer = allocate(1000000);
    nobody();
    /* Everybody to the right of rank 0 sends; rank 0 probes them one at a time. */
    for (int peer = 1; peer < world_size; peer++) {
        for (int s = 0; s < sizes_count; s++) {
            for (int way = 0; way < 16; way++) {
                int tag = s * 16 + way;
                if (world_rank == peer) {
                    fill(buffer, (size_t)sizes[s], (uint64_t)tag);
                    OK(MPI_Ssend(buffer, sizes[s], MPI_CHAR, 0, tag, MPI_COMM_WORLD));
                } else if (world_rank == 0) {
                    probe_from(peer, tag, sizes[s], buffer, way);
                }
            }
        }
        if (world_rank == peer)
            OK(MPI_Recv(NULL, 0, MPI_CHAR, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (world_rank == 0)
            OK(MPI_Send(NULL, 0, MPI_CHAR, peer, 99, MPI_COMM_WORLD));
        if (world_rank > peer) /* wait for one's turn, so that wildcards see one sender */
            OK(MPI_Recv(NULL, 0, MPI_CHAR, 0, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (world_rank == 0)
            for (int later = peer + 1; later < world_size; later++)
                OK(MPI_Send(NULL, 0, MPI_CHAR, later, 98, MPI_COMM_WORLD));
    }
    MPI_Barrier(MPI_COMM_WORLD); /* nobody's later message may fall into a wildcard probe */
    /* Matched messages keep their data while others of the same envelope are received. */
    if (world_size > 1 && world_rank < 2) {
        int values[3] = {10, 11, 12}, got[3] = {0, 0, 0};
        if (world_rank == 1) {
            for (int i = 0; i < 3; i++)
                OK(MPI_Send(&values[i], 1, MPI_INT, 0, 5, MPI_COMM_WORLD));
        } else {
            MPI_Message messages[2];
            OK(MPI_Mprobe(1, 5, MPI_COMM_WORLD, &messages[0], MPI_STATUS_IGNORE));
            OK(MPI_Mprobe(1, 5, MPI_COMM_WORLD, &messages[1], MPI_STATUS_IGNORE));
            OK(MPI_Recv(&got[2], 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Mrecv(&got[1], 1, MPI_INT, &messages[1], MPI_STATUS_IGNORE));
            OK(MPI_Mrecv(&got[0], 1, MPI_INT, &messages[0], MPI_STATUS_IGNORE));
            CHECK(memcmp(values, got, sizeof got) == 0);
        }
    }
    free(buffer);
    return finish();
}
