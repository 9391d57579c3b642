/* Combined send and receive round a ring, replaced in place, non-blocking, and with nobody. */
#include "check.h"

static const int sizes[] = {0, 1, 9, 1000, 40000, 65536, 2000000};
enum { sizes_count = 7, longest = 2000000 };

static void ring(int length, char *out, char *in)
{
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size, count = -1;
    size_t n = (size_t)length;
    MPI_Status status;
    MPI_Request request;

    fill(out, n, (uint64_t)world_rank);
    memset(in, 0, n);
    OK(MPI_Sendrecv(out, length, MPI_CHAR, right, 1, in, longest, MPI_CHAR, left, 1, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, MPI_CHAR, &count));
    CHECK(count == length && status.MPI_SOURCE == left);
    CHECK(verify(in, n, (uint64_t)left));

    OK(MPI_Sendrecv_replace(out, length, MPI_CHAR, left, 2, right, 2, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == right && verify(out, n, (uint64_t)right));

    fill(out, n, (uint64_t)world_rank);
    memset(in, 0, n);
    OK(MPI_Isendrecv(out, length, MPI_CHAR, right, 3, in, length, MPI_CHAR, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                     &request));
    OK(MPI_Wait(&request, &status));
    CHECK(verify(in, n, (uint64_t)left));

    OK(MPI_Isendrecv_replace(out, length, MPI_CHAR, left, 4, right, 4, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    CHECK(verify(out, n, (uint64_t)right));
}

static void nobody(void)
{
    int value = 41, count = -1;
    MPI_Status status;
    MPI_Request requests[2];
    OK(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
    OK(MPI_Ssend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
    OK(MPI_Rsend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
    OK(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && count == 0 && value == 41);
    OK(MPI_Isend(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Sendrecv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, &count, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD,
                    &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && value == 41);
    OK(MPI_Sendrecv_replace(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    CHECK(value == 41);
}

/* A line instead of a ring: the ends talk to nobody. */
static void line(void)
{
    int left = world_rank ? world_rank - 1 : MPI_PROC_NULL;
    int right = world_rank + 1 < world_size ? world_rank + 1 : MPI_PROC_NULL;
    int out = world_rank, in = -5;
    OK(MPI_Sendrecv(&out, 1, MPI_INT, right, 6, &in, 1, MPI_INT, left, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(in == (world_rank ? world_rank - 1 : -5));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    char *out = allocate(longest), *in = allocate(longest);
    for (int s = 0; s < sizes_count; s++)
        ring(sizes[s], out, in);
    nobody();
    line();
    free(out);
    free(in);
    return finish();
}
