/* What MPI 3.0 removed and old programs still call. */
#include "check.h"

static int calls;

static void on_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    calls++;
}

int main(int argc, char **argv)
{
    struct { char letter; double number; int values[3]; } one = {'f', 2.5, {1, 2, 3}}, other = {0};
    int lengths[3] = {1, 1, 3};
    MPI_Aint places[3], base, extent = -1, lower = -1, upper = -1;
    MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, type, resized;
    MPI_Errhandler handler, found;
    start(&argc, &argv);
    OK(MPI_Address(&one, &base));
    OK(MPI_Address(&one.letter, &places[0]));
    OK(MPI_Address(&one.number, &places[1]));
    OK(MPI_Address(one.values, &places[2]));
    for (int i = 0; i < 3; i++)
        places[i] -= base;
    OK(MPI_Type_struct(3, lengths, places, types, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Sendrecv(&one, 1, type, world_rank, 1, &other, 1, type, world_rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(other.letter == 'f' && other.number == 2.5 && other.values[2] == 3);
    OK(MPI_Type_extent(type, &extent));
    CHECK(extent == sizeof one);
    OK(MPI_Type_create_resized(type, -8, 100, &resized));
    OK(MPI_Type_lb(resized, &lower));
    OK(MPI_Type_ub(resized, &upper));
    CHECK(lower == -8 && upper == 92);
    OK(MPI_Type_free(&resized));
    OK(MPI_Type_free(&type));
    OK(MPI_Type_hvector(3, 2, 20, MPI_INT, &type));
    OK(MPI_Type_extent(type, &extent));
    CHECK(extent == 48);
    OK(MPI_Type_free(&type));
    places[0] = 4, places[1] = 40;
    OK(MPI_Type_hindexed(2, lengths, places, MPI_INT, &type));
    OK(MPI_Type_lb(type, &lower));
    OK(MPI_Type_ub(type, &upper));
    CHECK(lower == 4 && upper == 44);
    OK(MPI_Type_free(&type));
    OK(MPI_Errhandler_create(on_error, &handler));
    OK(MPI_Errhandler_set(MPI_COMM_WORLD, handler));
    OK(MPI_Errhandler_get(MPI_COMM_WORLD, &found));
    CHECK(found == handler);
    CHECK(class_of(MPI_Send(NULL, 0, MPI_INT, world_size, 0, MPI_COMM_WORLD)) == MPI_ERR_RANK && calls == 1);
    OK(MPI_Errhandler_set(MPI_COMM_SELF, handler));
    CHECK(class_of(MPI_Type_extent(MPI_DATATYPE_NULL, &extent)) == MPI_ERR_TYPE && calls == 2);
    CHECK(class_of(MPI_Type_ub(MPI_INT, NULL)) == MPI_ERR_ARG && calls == 3);
    OK(MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Errhandler_free(&found));
    OK(MPI_Errhandler_free(&handler));
    return finish();
}
