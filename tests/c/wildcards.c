/* Matching with wildcards: posted receives match in posting order, unexpected messages in arrival order. */
#include "check.h"

enum { per_rank = 40 };

/* All ranks send numbered messages to rank 0, which takes them with any source and any tag. */
static void fan_in(void)
{
    if (world_rank != 0) {
        for (int i = 0; i < per_rank; i++) {
            int word[2] = {world_rank, i};
            OK(MPI_Send(word, 2, MPI_INT, 0, 100 + i % 3, MPI_COMM_WORLD));
        }
        return;
    }
    int *next = calloc((size_t)world_size, sizeof *next);
    for (int i = 0; i < per_rank * (world_size - 1); i++) {
        int word[2] = {-1, -1};
        MPI_Status status;
        OK(MPI_Recv(word, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        CHECK(status.MPI_SOURCE == word[0]);
        CHECK(word[0] > 0 && word[0] < world_size);
        CHECK(status.MPI_TAG == 100 + word[1] % 3);
        CHECK(word[1] == next[word[0]]++);
    }
    free(next);
}

/* Receives of four kinds posted in a known order; the sender's messages fall into them by the rules. */
static void posted_order(void)
{
    int sent[6] = {60, 61, 62, 63, 64, 65}, got[6] = {0};
    static const int tags[6] = {1, 2, 1, 2, 3, 1};
    MPI_Request requests[6];
    if (world_rank == 1) {
        OK(MPI_Irecv(&got[0], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[0]));                           /* 60 */
        OK(MPI_Irecv(&got[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[1]));    /* 61 */
        OK(MPI_Irecv(&got[2], 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[2]));                           /* 63 */
        OK(MPI_Irecv(&got[3], 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &requests[3]));              /* 62 */
        OK(MPI_Irecv(&got[4], 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[4]));                 /* 64 */
        OK(MPI_Irecv(&got[5], 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[5]));                           /* 65 */
        OK(MPI_Send(NULL, 0, MPI_INT, 0, 9, MPI_COMM_WORLD));
        OK(MPI_Waitall(6, requests, MPI_STATUSES_IGNORE));
        CHECK(got[0] == 60 && got[1] == 61 && got[2] == 63 && got[3] == 62 && got[4] == 64 && got[5] == 65);
    } else if (world_rank == 0) {
        OK(MPI_Recv(NULL, 0, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < 6; i++)
            OK(MPI_Send(&sent[i], 1, MPI_INT, 1, tags[i], MPI_COMM_WORLD));
    }
}

/* The same when the messages are there first. */
static void arrival_order(void)
{
    int sent[5] = {70, 71, 72, 73, 74}, got = 0;
    static const int tags[5] = {1, 2, 3, 1, 2};
    MPI_Status status;
    if (world_rank == 0) {
        for (int i = 0; i < 5; i++)
            OK(MPI_Send(&sent[i], 1, MPI_INT, 1, tags[i], MPI_COMM_WORLD));
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 9, MPI_COMM_WORLD));
    } else if (world_rank == 1) {
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status));
        CHECK(got == 71 && status.MPI_SOURCE == 0);
        OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        CHECK(got == 70 && status.MPI_TAG == 1);
        OK(MPI_Recv(&got, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &status));
        CHECK(got == 73);
        OK(MPI_Recv(&got, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        CHECK(got == 72 && status.MPI_TAG == 3);
        OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
        CHECK(got == 74 && status.MPI_TAG == 2);
    }
}

/* The largest tag is usable, and no tag above it is promised. */
static void tag_limits(void)
{
    int *upper = NULL, flag = 0, value = 5;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper, &flag));
    CHECK(flag && *upper >= 32767);
    if (world_rank == 0) {
        OK(MPI_Send(&value, 1, MPI_INT, 1, *upper, MPI_COMM_WORLD));
        OK(MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD));
    } else if (world_rank == 1) {
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Recv(&value, 1, MPI_INT, 0, *upper, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (world_size > 1) {
        posted_order();
        arrival_order();
        tag_limits();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    fan_in();
    MPI_Barrier(MPI_COMM_WORLD); /* nobody's verdict may fall into a wildcard receive */
    return finish();
}
