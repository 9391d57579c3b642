/* Info objects: limits, truncation, MPI_INFO_ENV, use before MPI_Init. */
#include "check.h"

static void limits(void)
{
    MPI_Info info;
    char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1], got[MPI_MAX_INFO_VAL];
    int length = 0, flag = 0, count = 0;
    OK(MPI_Info_create(&info));
    memset(key, 'k', sizeof key);
    memset(value, 'v', sizeof value);
    key[MPI_MAX_INFO_KEY] = 0;
    value[MPI_MAX_INFO_VAL] = 0;
    CHECK(class_of(MPI_Info_set(info, key, "x")) == MPI_ERR_INFO_KEY);
    CHECK(class_of(MPI_Info_set(info, "x", value)) == MPI_ERR_INFO_VALUE);
    CHECK(class_of(MPI_Info_set(info, "", "x")) == MPI_ERR_INFO_KEY);
    key[MPI_MAX_INFO_KEY - 1] = 0;
    value[MPI_MAX_INFO_VAL - 1] = 0;
    OK(MPI_Info_set(info, key, value));
    length = sizeof got;
    OK(MPI_Info_get_string(info, key, &length, got, &flag));
    CHECK(flag && length == MPI_MAX_INFO_VAL && strcmp(got, value) == 0);
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 1);
    CHECK(MPI_Info_get_nthkey(info, 1, key) != MPI_SUCCESS);
    CHECK(MPI_Info_get_nthkey(info, -1, key) != MPI_SUCCESS);
    OK(MPI_Info_free(&info));
    CHECK(class_of(MPI_Info_get_nkeys(MPI_INFO_NULL, &count)) == MPI_ERR_INFO);
}

static void many_keys(void)
{
    MPI_Info info;
    char key[32], value[32];
    int count = 0, flag = 0;
    OK(MPI_Info_create(&info));
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "key %d", i);
        snprintf(value, sizeof value, "%d", i * i);
        OK(MPI_Info_set(info, key, value));
    }
    for (int i = 0; i < 300; i += 3) {
        snprintf(key, sizeof key, "key %d", i);
        OK(MPI_Info_delete(info, key));
    }
    OK(MPI_Info_get_nkeys(info, &count));
    CHECK(count == 200);
    OK(MPI_Info_get_nthkey(info, 100, key));
    CHECK(strcmp(key, "key 151") == 0);
    OK(MPI_Info_get(info, "key 151", 3, value, &flag)); /* at most three characters and a zero */
    CHECK(flag && strcmp(value, "228") == 0);
    OK(MPI_Info_free(&info));
}

static void about_this_process(const char *command)
{
    char value[MPI_MAX_INFO_VAL];
    int length = sizeof value, flag = 0;
    OK(MPI_Info_get_string(MPI_INFO_ENV, "command", &length, value, &flag));
    CHECK(!flag || strstr(command, value) || strstr(value, command));
    length = sizeof value;
    OK(MPI_Info_get_string(MPI_INFO_ENV, "maxprocs", &length, value, &flag));
    CHECK(!flag || atoi(value) == world_size);
    length = sizeof value;
    OK(MPI_Info_get_string(MPI_INFO_ENV, "thread_level", &length, value, &flag));
    CHECK(!flag || strncmp(value, "MPI_THREAD_", 11) == 0);
}

int main(int argc, char **argv)
{
    MPI_Info early, made;
    char value[8];
    int length = sizeof value, flag = 0, count = 0;
    OK(MPI_Info_create(&early)); /* info objects need no initialisation */
    OK(MPI_Info_set(early, "when", "before"));
    OK(MPI_Info_create_env(argc, argv, &made));
    OK(MPI_Info_get_nkeys(made, &count));
    CHECK(count >= 0);
    OK(MPI_Info_free(&made));
    start(&argc, &argv);
    OK(MPI_Info_get_string(early, "when", &length, value, &flag));
    CHECK(flag && strcmp(value, "before") == 0);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    limits();
    many_keys();
    about_this_process(argv[0]);
    int code = finish();
    MPI_Info_free(&early);
    return code;
}
