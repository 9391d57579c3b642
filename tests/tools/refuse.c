/* refuse CALLS PROGRAM ARGUMENTS...: runs a program for which the named system calls fail with EPERM,
 * as they do in containers with a strict seccomp profile. Proves first that they do fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { calls_max = 8 };

static const struct {
    const char *name;
    long number;
} known[] = {
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"ptrace", SYS_ptrace},
    {"memfd_create", SYS_memfd_create},
    {"pidfd_open", SYS_pidfd_open},
    {"sched_setaffinity", SYS_sched_setaffinity},
};

static long number_of(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].number;
    fprintf(stderr, "refuse: unknown system call %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    long calls[calls_max];
    int count = 0, length = 0;
    struct sock_filter filter[2 * calls_max + 2];
    if (argc < 3) {
        fprintf(stderr, "usage: refuse CALL,CALL... PROGRAM ARGUMENTS...\n");
        return 2;
    }
    for (char *name = strtok(argv[1], ","); name && count < calls_max; name = strtok(NULL, ","))
        calls[count++] = number_of(name);

    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

    struct sock_fprog program = {(unsigned short)length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("refuse: cannot install the filter");
        return 2;
    }
    for (int i = 0; i < count; i++)
        if (syscall(calls[i], 0, 0, 0, 0, 0, 0) != -1 || errno != EPERM) {
            fprintf(stderr, "refuse: a system call was not refused\n");
            return 2;
        }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
