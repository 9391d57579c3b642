/* The environment: names, versions, memory, hardware, questions before MPI_Init and after MPI_Finalize. */
#include "check.h"

static void versions(void)
{
    int version = 0, subversion = -1, length = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    OK(MPI_Get_version(&version, &subversion));
    CHECK(version == MPI_VERSION && subversion == MPI_SUBVERSION);
    OK(MPI_Get_library_version(text, &length));
    CHECK(length > 0 && (size_t)length == strlen(text) && length < MPI_MAX_LIBRARY_VERSION_STRING);
}

static void machine(void)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0, count = -1;
    MPI_Info hardware;
    OK(MPI_Get_processor_name(name, &length));
    CHECK(length > 0 && (size_t)length == strlen(name));
    OK(MPI_Get_hw_resource_info(&hardware));
    OK(MPI_Info_get_nkeys(hardware, &count));
    for (int i = 0; i < count; i++) {
        char key[MPI_MAX_INFO_KEY], value[8];
        int flag = 0, room = sizeof value;
        OK(MPI_Info_get_nthkey(hardware, i, key));
        OK(MPI_Info_get_string(hardware, key, &room, value, &flag));
        CHECK(flag && (strcmp(value, "true") == 0 || strcmp(value, "false") == 0));
    }
    OK(MPI_Info_free(&hardware));
}

static void memory(void)
{
    MPI_Info info;
    void *blocks[4];
    MPI_Aint sizes[4] = {1, 4097, 1 << 20, 0};
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_minimum_memory_alignment", "4096"));
    for (int i = 0; i < 4; i++) {
        OK(MPI_Alloc_mem(sizes[i], i % 2 ? MPI_INFO_NULL : info, &blocks[i]));
        CHECK(sizes[i] == 0 || blocks[i] != NULL);
        CHECK(i % 2 || (uintptr_t)blocks[i] % 4096 == 0);
        if (sizes[i])
            memset(blocks[i], 7, (size_t)sizes[i]);
    }
    for (int i = 0; i < 4; i++)
        OK(MPI_Free_mem(blocks[i]));
    OK(MPI_Info_free(&info));
}

int main(int argc, char **argv)
{
    int flag = -1;
    versions();
    OK(MPI_Initialized(&flag));
    CHECK(!flag);
    start(&argc, &argv);
    versions();
    machine();
    memory();
    OK(MPI_Pcontrol(0));
    OK(MPI_Pcontrol(2, "anything", 1.5));
    int code = finish();
    versions();
    OK(MPI_Finalized(&flag));
    CHECK(flag);
    return code || failures;
}
