/* Info objects: set, get, order, copies, MPI_INFO_ENV, hints on communicators. */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Info info, copy, used;
    char value[MPI_MAX_INFO_VAL], key[MPI_MAX_INFO_KEY], small[4];
    int count = -1, flag = -1, length = -1;
    start(&argc, &argv);
    OK(MPI_Info_create(&info));
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 0);
    OK(MPI_Info_set(info, "first", "1"));
    OK(MPI_Info_set(info, "second", "a longer value"));
    OK(MPI_Info_set(info, "third", "3"));
    OK(MPI_Info_set(info, "first", "one"));
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 3);
    OK(MPI_Info_get_nthkey(info, 0, key));
    CHECK(strcmp(key, "first") == 0);
    OK(MPI_Info_get_nthkey(info, 2, key));
    CHECK(strcmp(key, "third") == 0);

    length = sizeof value;
    OK(MPI_Info_get_string(info, "second", &length, value, &flag));
    CHECK(flag && length == 15 && strcmp(value, "a longer value") == 0);
    length = sizeof small; /* too small: truncated, and the need told */
    OK(MPI_Info_get_string(info, "second", &length, small, &flag));
    CHECK(flag && length == 15 && strcmp(small, "a l") == 0);
    length = 0;
    OK(MPI_Info_get_string(info, "second", &length, NULL, &flag));
    CHECK(flag && length == 15);
    OK(MPI_Info_get_string(info, "absent", &length, value, &flag));
    CHECK(!flag);
    OK(MPI_Info_get(info, "first", sizeof value - 1, value, &flag));
    CHECK(flag && strcmp(value, "one") == 0);
    OK(MPI_Info_get_valuelen(info, "first", &length, &flag));
    CHECK(flag && length == 3);

    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_delete(info, "second"));
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 2);
    OK(MPI_Info_get_nkeys(copy, &count));
    CHECK(count == 3);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(class_of(MPI_Info_delete(info, "second")) == MPI_ERR_INFO_NOKEY);
    OK(MPI_Info_free(&info));
    CHECK(info == MPI_INFO_NULL);
    OK(MPI_Info_free(&copy));

    OK(MPI_Info_get_nkeys(MPI_INFO_ENV, &count));
    CHECK(count >= 0);
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_assert_no_any_tag", "false"));
    OK(MPI_Comm_set_info(MPI_COMM_WORLD, info));
    OK(MPI_Comm_get_info(MPI_COMM_WORLD, &used));
    CHECK(used != MPI_INFO_NULL);
    OK(MPI_Info_free(&used));
    OK(MPI_Info_free(&info));
    return finish();
}
