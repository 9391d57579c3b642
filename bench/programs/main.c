/* The benchmark program: bench TEST --out FILE [--sizes 8,64] [--seconds S] [--samples N] [--operations N]
 * [--agreed-start] [--no-pace] [--delay SHARE] [--counters a,b/c] [name=value]...
 * One source, run unchanged over every MPI library that is compared. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rank, size;
long bytes;
unsigned char *out, *in;
struct options options = {.seconds = 0.1, .samples_max = 2000, .counters = ""};

void halo(void);
void gradient(void);
void sparse(void);
void fourier(void);
void random_access(void);
static const struct test kernel_tests[] = {
    {"halo", halo, 0},         {"cg", gradient, 0}, {"sparse", sparse, 0}, {"fft", fourier, 0},
    {"random-access", random_access, 0}, {NULL, NULL, 0}};

static char **parameters;
static int parameter_count;

const char *parameter_text(const char *name, const char *otherwise) {
    size_t length = strlen(name);
    for (int i = parameter_count - 1; i >= 0; i--)
        if (!strncmp(parameters[i], name, length) && parameters[i][length] == '=') return parameters[i] + length + 1;
    return otherwise;
}

static int numbers(const char *text, long *values, int count_max) {
    int count = 0;
    char *end;
    while (*text && count < count_max) {
        values[count++] = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',')) {
            fprintf(stderr, "bench: not a list of numbers: %s\n", text);
            exit(2);
        }
        text = *end ? end + 1 : end;
    }
    return count;
}

long parameter(const char *name, long otherwise) {
    long value = otherwise;
    const char *text = parameter_text(name, NULL);
    if (text) numbers(text, &value, 1);
    return value;
}

int parameter_list(const char *name, const char *otherwise, long *values, int count_max) {
    return numbers(parameter_text(name, otherwise), values, count_max);
}

static void usage(const char *complaint) {
    fprintf(stderr, "bench: %s\n", complaint);
    exit(2);
}

static void read_options(int argc, char **argv) {
    if (argc < 2) usage("no test named");
    options.test = argv[1];
    parameters = calloc(argc, sizeof *parameters);
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--agreed-start")) options.agreed_start = 1;
        else if (!strcmp(argv[i], "--no-pace")) options.no_pace = 1;
        else if (!strcmp(argv[i], "--out")) options.file = value, i++;
        else if (!strcmp(argv[i], "--sizes")) options.size_count = numbers(value, options.sizes, 64), i++;
        else if (!strcmp(argv[i], "--seconds")) options.seconds = atof(value), i++;
        else if (!strcmp(argv[i], "--samples")) options.samples_max = atol(value), i++;
        else if (!strcmp(argv[i], "--operations")) options.operations = atol(value), i++;
        else if (!strcmp(argv[i], "--counters")) options.counters = value, i++;
        else if (!strcmp(argv[i], "--delay")) options.delay = atof(value), i++;
        else if (strchr(argv[i], '=')) parameters[parameter_count++] = argv[i];
        else usage(argv[i]);
    }
    if (!options.file) usage("no --out FILE");
    if (!options.size_count) options.size_count = 1;
}

static const struct test *find(const char *name) {
    const struct test *tables[] = {point_to_point_tests, datatype_tests, thread_tests,
                                   queue_tests,          resource_tests, call_tests,  instruction_tests, kernel_tests};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct test *test = tables[t]; test->name; test++)
            if (!strcmp(test->name, name)) return test;
    return NULL;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    if (!strcmp(options.test, "floor")) return floors();
    const struct test *test = find(options.test);
    int wanted = test && test->threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    if (provided < wanted) usage("the library gives no MPI_THREAD_MULTIPLE");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    open_results();
    if (!options.no_pace) pace_open();
    counters_open(options.counters);
    if (test) test->run();
    else if (!collective(options.test)) usage("no such test");
    close_results();
    MPI_Finalize();
    return 0;
}
