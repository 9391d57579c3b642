/* What a program can ask about the ABI itself, and what a Fortran runtime tells it. */
#include "check.h"

static int number(MPI_Info info, const char *key)
{
    char value[64] = "";
    int length = sizeof value, flag = 0;
    OK(MPI_Info_get_string(info, key, &length, value, &flag));
    return flag ? atoi(value) : -1;
}

int main(int argc, char **argv)
{
    int major = -1, minor = -1, is_set = -1, true_value = 1, false_value = 0, yes = 0, no = 1;
    MPI_Info info;
    MPI_Comm parent = MPI_COMM_WORLD;
    OK(MPI_Abi_get_version(&major, &minor));
    CHECK(major == 1 && minor == 0);
    OK(MPI_Abi_get_info(&info));
    CHECK(number(info, "mpi_aint_size") == (int)sizeof(MPI_Aint));
    CHECK(number(info, "mpi_count_size") == (int)sizeof(MPI_Count));
    CHECK(number(info, "mpi_offset_size") == (int)sizeof(MPI_Offset));
    OK(MPI_Info_free(&info));
    OK(MPI_Abi_get_fortran_booleans(sizeof(int), &yes, &no, &is_set));
    CHECK(!is_set);
    OK(MPI_Abi_set_fortran_booleans(sizeof(int), &true_value, &false_value));
    OK(MPI_Abi_get_fortran_booleans(sizeof(int), &yes, &no, &is_set));
    CHECK(is_set && yes == 1 && no == 0);
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Abi_get_fortran_info(&info));
    if (info != MPI_INFO_NULL) {
        int code = MPI_Abi_set_fortran_info(info); /* what it says itself is no news */
        CHECK(code == MPI_SUCCESS || class_of(code) == MPI_ERR_ABI);
        OK(MPI_Info_free(&info));
    }
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_integer_size", "3"));
    CHECK(class_of(MPI_Abi_set_fortran_info(info)) == MPI_ERR_ABI);
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_get_parent(&parent));
    CHECK(parent == MPI_COMM_NULL);
    return finish();
}
