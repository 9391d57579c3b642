/* Messages to oneself, in every mode and around MPI_COMM_SELF. */
#include "check.h"

static void exchange(MPI_Comm comm, int rank, int length, char *out, char *in)
{
    MPI_Request requests[2];
    MPI_Status status;
    int flag = 0, count = -1;
    fill(out, (size_t)length, (uint64_t)length);

    OK(MPI_Irecv(in, length, MPI_CHAR, rank, 1, comm, &requests[0]));
    OK(MPI_Send(out, length, MPI_CHAR, rank, 1, comm));
    OK(MPI_Wait(&requests[0], &status));
    CHECK(status.MPI_SOURCE == rank && status.MPI_TAG == 1 && verify(in, (size_t)length, (uint64_t)length));

    memset(in, 0, (size_t)length);
    OK(MPI_Isend(out, length, MPI_CHAR, rank, 2, comm, &requests[0]));
    OK(MPI_Probe(rank, 2, comm, &status));
    OK(MPI_Get_count(&status, MPI_CHAR, &count));
    CHECK(count == length);
    OK(MPI_Recv(in, length, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    CHECK(status.MPI_TAG == 2 && verify(in, (size_t)length, (uint64_t)length));

    memset(in, 0, (size_t)length);
    OK(MPI_Issend(out, length, MPI_CHAR, rank, 3, comm, &requests[0]));
    OK(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    OK(MPI_Irecv(in, length, MPI_CHAR, rank, 3, comm, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(verify(in, (size_t)length, (uint64_t)length));

    memset(in, 0, (size_t)length);
    OK(MPI_Sendrecv(out, length, MPI_CHAR, rank, 4, in, length, MPI_CHAR, rank, 4, comm, &status));
    CHECK(verify(in, (size_t)length, (uint64_t)length));
    OK(MPI_Sendrecv_replace(in, length, MPI_CHAR, rank, 5, rank, 5, comm, &status));
    CHECK(verify(in, (size_t)length, (uint64_t)length));
}

int main(int argc, char **argv)
{
    static const int sizes[] = {0, 1, 64, 5000, 70000, 3000000};
    start(&argc, &argv);
    char *out = allocate(3000000), *in = allocate(3000000);
    int self_rank = -1, self_size = -1;
    OK(MPI_Comm_rank(MPI_COMM_SELF, &self_rank));
    OK(MPI_Comm_size(MPI_COMM_SELF, &self_size));
    CHECK(self_rank == 0 && self_size == 1);
    for (int s = 0; s < 6; s++) {
        exchange(MPI_COMM_WORLD, world_rank, sizes[s], out, in);
        exchange(MPI_COMM_SELF, 0, sizes[s], out, in);
    }
    free(out);
    free(in);
    return finish();
}
