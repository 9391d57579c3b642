/* Attributes: the order of callbacks, callbacks that call MPI, deprecated names, wrong keys. */
#include "check.h"

enum { keys_count = 4 };
static int keys[keys_count], seen[64], seen_count, refuses;

static int note_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int size = 0, flag = 0;
    void *current = NULL;
    (void)extra;
    if (refuses == keyval)
        return MPI_ERR_OTHER;
    /* A callback may use the communicator it is called for, its attributes included. */
    MPI_Comm_size(comm, &size);
    CHECK(size == 1 || size == world_size);
    MPI_Comm_get_attr(comm, keys[0], &current, &flag);
    seen[seen_count++ % 64] = (int)(intptr_t)value;
    return MPI_SUCCESS;
}

static int set_another(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)keyval, (void)value;
    return MPI_Comm_set_attr(comm, *(int *)extra, (void *)(intptr_t)77);
}

static void in_reverse_order(void)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < keys_count; i++) {
        OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, note_delete, &keys[i], NULL));
        OK(MPI_Comm_set_attr(comm, keys[i], (void *)(intptr_t)(10 + i)));
    }
    seen_count = 0;
    OK(MPI_Comm_set_attr(comm, keys[1], (void *)(intptr_t)21)); /* replaces 11 */
    CHECK(seen_count == 1 && seen[0] == 11);
    OK(MPI_Comm_delete_attr(comm, keys[2]));
    CHECK(seen_count == 2 && seen[1] == 12);
    OK(MPI_Comm_free(&comm));
    CHECK(seen_count == 5);
    CHECK(seen[2] + seen[3] + seen[4] == 10 + 21 + 13); /* the order is the library's choice here */
}

static void refusal(void)
{
    MPI_Comm comm;
    int flag = 0;
    void *value = NULL;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_attr(comm, keys[0], (void *)(intptr_t)5));
    refuses = keys[0];
    CHECK(MPI_Comm_set_attr(comm, keys[0], (void *)(intptr_t)6) != MPI_SUCCESS);
    CHECK(MPI_Comm_delete_attr(comm, keys[0]) != MPI_SUCCESS);
    refuses = MPI_KEYVAL_INVALID;
    OK(MPI_Comm_get_attr(comm, keys[0], &value, &flag));
    CHECK(flag && value == (void *)(intptr_t)5);
    OK(MPI_Comm_free(&comm));
}

static void set_within_delete(void)
{
    MPI_Comm comm;
    int meddling, flag = 0;
    void *value = NULL;
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, set_another, &meddling, &keys[3]));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_set_attr(comm, meddling, NULL));
    OK(MPI_Comm_delete_attr(comm, meddling));
    OK(MPI_Comm_get_attr(comm, meddling, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_get_attr(comm, keys[3], &value, &flag));
    CHECK(flag && value == (void *)(intptr_t)77);
    refuses = keys[3];
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    CHECK(MPI_Comm_delete_attr(comm, keys[3]) != MPI_SUCCESS);
    refuses = MPI_KEYVAL_INVALID;
    OK(MPI_Comm_delete_attr(comm, keys[3]));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_free_keyval(&meddling));
}

static int old_copies;
static int old_copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval, (void)extra;
    old_copies++;
    *(void **)out = in;
    *flag = old_copies % 2; /* every other copy is declined */
    return MPI_SUCCESS;
}

static void deprecated_names(void)
{
    MPI_Comm first, second;
    int key, flag = 0, *number = NULL, attribute = 3;
    void *value = NULL;
    OK(MPI_Keyval_create(old_copy, MPI_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &first));
    OK(MPI_Attr_put(first, key, &attribute));
    OK(MPI_Attr_get(first, key, &value, &flag));
    CHECK(flag && value == &attribute);
    OK(MPI_Comm_dup(first, &second));
    OK(MPI_Attr_get(second, key, &value, &flag));
    CHECK(flag && old_copies == 1);
    OK(MPI_Comm_free(&second));
    OK(MPI_Comm_dup(first, &second));
    OK(MPI_Attr_get(second, key, &value, &flag));
    CHECK(!flag && old_copies == 2);
    OK(MPI_Comm_free(&second));
    OK(MPI_Attr_delete(first, key));
    OK(MPI_Attr_get(first, key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_free(&first));
    OK(MPI_Keyval_free(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    OK(MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, &number, &flag));
    CHECK(flag && *number >= 32767);
}

static void wrong_keys(void)
{
    int type_key, flag, predefined = MPI_TAG_UB;
    void *value;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    OK(MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &type_key, NULL));
    CHECK(class_of(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_KEYVAL_INVALID, &value, &flag)) == MPI_ERR_KEYVAL);
    CHECK(class_of(MPI_Comm_set_attr(MPI_COMM_WORLD, type_key, NULL)) == MPI_ERR_KEYVAL);
    CHECK(class_of(MPI_Type_set_attr(MPI_INT, keys[0], NULL)) == MPI_ERR_KEYVAL);
    CHECK(MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_TAG_UB, NULL) != MPI_SUCCESS);
    CHECK(MPI_Comm_delete_attr(MPI_COMM_WORLD, MPI_TAG_UB) != MPI_SUCCESS);
    CHECK(MPI_Comm_free_keyval(&predefined) != MPI_SUCCESS);
    OK(MPI_Type_free_keyval(&type_key));
}

/* Runs first in MPI_Finalize: the order there is fixed by the standard, last set first deleted. */
static int at_the_end(MPI_Comm comm, int keyval, void *value, void *extra)
{
    static int expected = 2;
    (void)keyval, (void)extra;
    if (comm != MPI_COMM_SELF || (int)(intptr_t)value != expected--) {
        fprintf(stderr, "MPI_COMM_SELF lost value %d, expected %d\n", (int)(intptr_t)value, expected + 1);
        exit(9);
    }
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    in_reverse_order();
    refusal();
    set_within_delete();
    deprecated_names();
    wrong_keys();
    for (int i = 0; i < 3; i++) {
        int key;
        OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL));
        OK(MPI_Comm_set_attr(MPI_COMM_SELF, key, (void *)(intptr_t)i));
        OK(MPI_Comm_free_keyval(&key));
    }
    return finish();
}
