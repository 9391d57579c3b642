/* Status objects: fields, elements, cancellation, and their accessor functions. */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Status status, statuses[2];
    int value = 5, got = 0, source = -1, tag = -1, error = -1, flag = -1, count = -1;
    start(&argc, &argv);
    status.MPI_ERROR = 1234; /* a call with one status leaves the error field alone */
    OK(MPI_Sendrecv(&value, 1, MPI_INT, world_rank, 8, &got, 1, MPI_INT, world_rank, 8, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == world_rank && status.MPI_TAG == 8 && status.MPI_ERROR == 1234);
    OK(MPI_Status_get_source(&status, &source));
    OK(MPI_Status_get_tag(&status, &tag));
    OK(MPI_Status_get_error(&status, &error));
    CHECK(source == world_rank && tag == 8 && error == 1234);
    OK(MPI_Status_set_source(&status, 3));
    OK(MPI_Status_set_tag(&status, 4));
    OK(MPI_Status_set_error(&status, MPI_ERR_OTHER));
    CHECK(status.MPI_SOURCE == 3 && status.MPI_TAG == 4 && status.MPI_ERROR == MPI_ERR_OTHER);
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 1);
    OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Get_count(&status, MPI_CHAR, &count));
    CHECK(count == 4);
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag == 0);
    OK(MPI_Status_set_cancelled(&status, 1));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag == 1);
    OK(MPI_Status_set_elements_c(&statuses[0], MPI_INT, 77));
    OK(MPI_Status_set_cancelled(&statuses[0], 0));
    OK(MPI_Get_count(&statuses[0], MPI_INT, &count));
    CHECK(count == 77);
    CHECK(sizeof(MPI_Status) == 32);
    return finish();
}
