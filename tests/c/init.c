/* Initialisation and its end: thread levels, the questions allowed before and after, and
 * the attribute of MPI_COMM_SELF that is deleted first in MPI_Finalize. */
#include "check.h"

static int deleted;

static int on_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int finalized = -1;
    (void)keyval;
    MPI_Finalized(&finalized);
    CHECK(comm == MPI_COMM_SELF && finalized == 0);
    CHECK(value == &deleted && extra == NULL);
    deleted++;
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int flag = -1, provided = -1, keyval = MPI_KEYVAL_INVALID, version = 0, subversion = 0, length = 0, code;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];

    OK(MPI_Initialized(&flag));
    CHECK(flag == 0);
    OK(MPI_Finalized(&flag));
    CHECK(flag == 0);
    OK(MPI_Get_version(&version, &subversion));
    CHECK(version == MPI_VERSION);
    OK(MPI_Get_library_version(library, &length));

    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided));
    CHECK(provided >= MPI_THREAD_SERIALIZED);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    OK(MPI_Query_thread(&flag));
    CHECK(flag == provided);
    OK(MPI_Is_thread_main(&flag));
    CHECK(flag == 1);
    OK(MPI_Initialized(&flag));
    CHECK(flag == 1);
    OK(MPI_Finalized(&flag));
    CHECK(flag == 0);
    CHECK(argc >= 1 && argv[0] != NULL && argv[argc] == NULL);

    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &deleted));
    code = finish();
    if (deleted != 1) {
        printf("the attribute of MPI_COMM_SELF was deleted %d times in MPI_Finalize\n", deleted);
        code = 1;
    }
    MPI_Initialized(&flag);
    if (flag != 1)
        code = 1;
    MPI_Finalized(&flag);
    if (flag != 1)
        code = 1;
    return code;
}
