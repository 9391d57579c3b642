/* Started with errors that return as the choice at launch: before MPI_Init, in the predefined communicators and what is
 * made of them, and after the end. */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Errhandler handler;
    MPI_Comm comm;
    char value[64] = "";
    int rank = -1, flag = 0, length = sizeof value, byte = 0;
    CHECK(class_of(MPI_Comm_rank(MPI_COMM_WORLD, &rank)) != MPI_SUCCESS && rank == -1);
    start(&argc, &argv);
    OK(MPI_Info_get_string(MPI_INFO_ENV, "mpi_initial_errhandler", &length, value, &flag));
    CHECK(flag && strcmp(value, "mpi_errors_return") == 0);
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler));
    CHECK(handler == MPI_ERRORS_RETURN);
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Comm_get_errhandler(MPI_COMM_SELF, &handler));
    CHECK(handler == MPI_ERRORS_RETURN);
    OK(MPI_Errhandler_free(&handler));
    CHECK(class_of(MPI_Send(&byte, 1, MPI_BYTE, world_size, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK);
    CHECK(class_of(MPI_Send(&byte, 1, MPI_BYTE, 0, 0, MPI_COMM_NULL)) == MPI_ERR_COMM);
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    CHECK(class_of(MPI_Bcast(&byte, 1, MPI_BYTE, -9, comm)) == MPI_ERR_ROOT);
    OK(MPI_Comm_free(&comm));
    /* What was chosen at launch stays what it was, whatever is set later. */
    MPI_Info environment;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ABORT));
    OK(MPI_Info_create_env(argc, argv, &environment));
    length = sizeof value;
    OK(MPI_Info_get_string(environment, "mpi_initial_errhandler", &length, value, &flag));
    CHECK(flag && strcmp(value, "mpi_errors_return") == 0);
    OK(MPI_Info_free(&environment));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    rank = finish();
    CHECK(MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS);
    return rank || failures ? 1 : 0;
}
