/* Clocks, memory, handle conversion and the other small services. */
#include "check.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    double before = MPI_Wtime(), tick = MPI_Wtick(), last = before;
    CHECK(tick > 0 && tick < 1);
    for (int i = 0; i < 1000; i++) {
        double now = MPI_Wtime();
        CHECK(now >= last);
        last = now;
    }
    char *memory = NULL;
    OK(MPI_Alloc_mem(100000, MPI_INFO_NULL, &memory));
    CHECK(memory != NULL);
    memset(memory, 1, 100000);
    OK(MPI_Free_mem(memory));

    int major = 0, minor = 0;
    OK(MPI_Abi_get_version(&major, &minor));
    CHECK(major == MPI_ABI_VERSION && minor == MPI_ABI_SUBVERSION);
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    CHECK(MPI_Type_fromint(MPI_Type_toint(MPI_INT)) == MPI_INT);
    CHECK(MPI_Op_fromint(MPI_Op_toint(MPI_SUM)) == MPI_SUM);
    MPI_Comm copy;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(copy)) == copy);
    OK(MPI_Comm_free(&copy));
    MPI_Pcontrol(1);
    return finish();
}
