/* Prints what a launcher gives a process: rank, arguments, directory, a variable, the length of stdin. */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    char directory[4096] = "", line[8192], buffer[4096];
    int *appnum = NULL, flag = 0, used;
    size_t input = 0, got;
    start(&argc, &argv);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &flag);
    const char *variable = getenv("SURROUNDINGS_VALUE");
    if (argc > 1 && strcmp(argv[1], "read") == 0)
        while ((got = fread(buffer, 1, sizeof buffer, stdin)) > 0)
            input += got;
    if (!getcwd(directory, sizeof directory))
        directory[0] = 0;
    used = snprintf(line, sizeof line, "rank=%d size=%d appnum=%d value=%s directory=%s stdin=%zu args=", world_rank,
                    world_size, flag ? *appnum : -1, variable ? variable : "(none)", directory, input);
    for (int i = 1; i < argc && used < (int)sizeof line; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, "[%s]", argv[i]);
    puts(line);
    fflush(stdout);
    return finish();
}
