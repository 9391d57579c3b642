/* Attributes: predefined ones, copy and delete functions on communicators and datatypes. */
#include "check.h"

static int copies, deletes;

static int copy_doubled(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval;
    CHECK(extra == &copies);
    copies++;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int count_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value;
    CHECK(extra == &copies);
    deletes++;
    return MPI_SUCCESS;
}

static int refuse_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    return MPI_ERR_OTHER;
}

static int refuse_copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra, (void)in, (void)out, (void)flag;
    return MPI_ERR_OTHER;
}

static int type_refuse_copy(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)type, (void)keyval, (void)extra, (void)in, (void)out, (void)flag;
    return MPI_ERR_OTHER;
}

static int type_copies;
static int type_copy(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)type, (void)keyval, (void)extra;
    type_copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static void predefined(void)
{
    int *value = NULL, flag = 0;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag));
    CHECK(flag && *value >= 32767);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag));
    CHECK(!flag || *value == 0 || *value == 1);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag));
    CHECK(flag);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &value, &flag));
    CHECK(!flag || *value == MPI_PROC_NULL || (*value >= 0 && *value < world_size));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag));
    CHECK(!flag || *value >= 0);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag));
    CHECK(!flag || *value >= world_size);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &value, &flag));
    CHECK(flag && *value >= MPI_ERR_LASTCODE);
}

static void on_communicators(void)
{
    MPI_Comm copy, second;
    int counted, null_copy, dup, refusing, flag = -1;
    char *value = NULL, text[4];
    OK(MPI_Comm_create_keyval(copy_doubled, count_delete, &counted, &copies));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &null_copy, NULL));
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &dup, NULL));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
    OK(MPI_Comm_get_attr(copy, counted, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_set_attr(copy, counted, text));
    OK(MPI_Comm_set_attr(copy, null_copy, text));
    OK(MPI_Comm_set_attr(copy, dup, text));
    OK(MPI_Comm_get_attr(copy, counted, &value, &flag));
    CHECK(flag && value == text);

    OK(MPI_Comm_dup(copy, &second));
    CHECK(copies == 1 && deletes == 0);
    OK(MPI_Comm_get_attr(second, counted, &value, &flag));
    CHECK(flag && value == text + 1);
    OK(MPI_Comm_get_attr(second, null_copy, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_get_attr(second, dup, &value, &flag));
    CHECK(flag && value == text);
    OK(MPI_Comm_set_attr(second, counted, text + 3)); /* replacing deletes the old value */
    CHECK(deletes == 1);
    OK(MPI_Comm_delete_attr(second, counted));
    CHECK(deletes == 2);
    OK(MPI_Comm_get_attr(second, counted, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_free(&second));
    CHECK(deletes == 2);
    int kept = counted;
    OK(MPI_Comm_free_keyval(&counted)); /* lives on until its last attribute goes */
    CHECK(counted == MPI_KEYVAL_INVALID);
    OK(MPI_Comm_get_attr(copy, kept, &value, &flag));
    CHECK(flag && value == text);
    OK(MPI_Comm_free(&copy));
    CHECK(deletes == 3);
    OK(MPI_Comm_free_keyval(&null_copy));
    OK(MPI_Comm_free_keyval(&dup));

    /* A delete function that refuses makes the call fail. */
    OK(MPI_Comm_dup(MPI_COMM_SELF, &copy));
    OK(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, refuse_delete, &refusing, NULL));
    OK(MPI_Comm_set_attr(copy, refusing, text));
    CHECK(MPI_Comm_delete_attr(copy, refusing) != MPI_SUCCESS);

    /* A copy function that refuses makes the call fail, and there is no copy. */
    OK(MPI_Comm_dup(MPI_COMM_SELF, &copy));
    OK(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
    OK(MPI_Comm_create_keyval(refuse_copy, MPI_COMM_NULL_DELETE_FN, &refusing, NULL));
    OK(MPI_Comm_set_attr(copy, refusing, text));
    second = MPI_COMM_WORLD;
    CHECK(MPI_Comm_dup(copy, &second) != MPI_SUCCESS && second == MPI_COMM_NULL);
    second = MPI_COMM_WORLD;
    MPI_Request request;
    CHECK(MPI_Comm_idup(copy, &second, &request) != MPI_SUCCESS && second == MPI_COMM_NULL);
    OK(MPI_Comm_delete_attr(copy, refusing));
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free_keyval(&refusing));
}

static void on_datatypes(void)
{
    MPI_Datatype type, copy;
    int keyval, flag = 0, value = 5, *got = NULL;
    OK(MPI_Type_create_keyval(type_copy, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL));
    OK(MPI_Type_contiguous(3, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, keyval, &value));
    OK(MPI_Type_dup(type, &copy));
    CHECK(type_copies == 1);
    OK(MPI_Type_get_attr(copy, keyval, &got, &flag));
    CHECK(flag && got == &value);
    OK(MPI_Type_delete_attr(copy, keyval));
    OK(MPI_Type_get_attr(copy, keyval, &got, &flag));
    CHECK(!flag);
    OK(MPI_Type_free(&copy));
    OK(MPI_Type_free_keyval(&keyval));
    OK(MPI_Type_create_keyval(type_refuse_copy, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL));
    OK(MPI_Type_set_attr(type, keyval, &value));
    copy = MPI_INT;
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CHECK(MPI_Type_dup(type, &copy) != MPI_SUCCESS && copy == MPI_DATATYPE_NULL);
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free_keyval(&keyval));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    predefined();
    on_communicators();
    on_datatypes();
    return finish();
}
