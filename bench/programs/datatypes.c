/* Ping-pong of data that does not lie in one piece, beside the same bytes packed by hand. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A matrix of 128 rows of 4096 integers, of which columns are sent. Paper: datatypes. */
#define ROWS 128
#define COLUMNS 4096

static MPI_Datatype type;
/* Offsets and lengths of the pieces in bytes, in the order of the type map. */
static long *offsets, *lengths;
static long piece_count, span;
static unsigned char *packed_out, *packed_in;

static void add_piece(long offset, long length) {
    offsets = realloc(offsets, (piece_count + 1) * sizeof *offsets);
    lengths = realloc(lengths, (piece_count + 1) * sizeof *lengths);
    offsets[piece_count] = offset;
    lengths[piece_count++] = length;
    if (offset + length > span) span = offset + length;
}

static void contiguous(void) {
    MPI_Type_contiguous(bytes, MPI_BYTE, &type);
    add_piece(0, bytes);
}

/* As many columns of the matrix as hold the bytes asked for, one at least. */
static void columns(void) {
    long count = bytes / (ROWS * 4);
    count = count < 1 ? 1 : count > COLUMNS ? COLUMNS : count;
    MPI_Type_vector(ROWS, count, COLUMNS, MPI_INT, &type);
    for (long row = 0; row < ROWS; row++) add_piece(row * COLUMNS * 4, count * 4);
}

/* Blocks of 1, 2, 4 … integers with gaps of one block between them. Paper: datatypes. */
static void doubling(void) {
    int counts[32], used = 0;
    MPI_Aint places[32];
    MPI_Datatype types[32];
    long place = 0, taken = 0;
    for (int block = 1; used < 32 && (used == 0 || taken + block * 4 <= bytes); block *= 2, used++) {
        counts[used] = block;
        places[used] = place;
        types[used] = MPI_INT;
        add_piece(place, block * 4);
        place += 2 * block * 4;
        taken += block * 4;
    }
    MPI_Type_create_struct(used, counts, places, types, &type);
}

/* Blocks of 8 bytes, each at a place chosen by chance in its own stretch of 64 bytes. */
static void scattered(void) {
    int count = bytes < 8 ? 1 : (int)(bytes / 8);
    int *places = malloc(count * sizeof *places);
    unsigned state = 12345;
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        places[i] = i * 8 + (int)(state >> 29);
        add_piece(places[i] * 8L, 8);
    }
    MPI_Type_create_indexed_block(count, 1, places, MPI_DOUBLE, &type);
    free(places);
}

/* A face of a cube of doubles: the face whose points lie farthest apart. */
static void face(void) {
    int edge = 1;
    while ((long)(edge + 1) * (edge + 1) * 8 <= bytes) edge++;
    int sizes[3] = {edge, edge, edge}, part[3] = {edge, edge, 1}, start[3] = {0, 0, edge - 1};
    MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    for (long i = 0; i < (long)edge * edge; i++) add_piece((i * edge + edge - 1) * 8, 8);
}

/* The face of the cube between: rows of doubles, one from each plane. */
static void rows(void) {
    int edge = 1;
    while ((long)(edge + 1) * (edge + 1) * 8 <= bytes) edge++;
    int sizes[3] = {edge, edge, edge}, part[3] = {edge, 1, edge}, start[3] = {0, edge - 1, 0};
    MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    for (long i = 0; i < edge; i++) add_piece((i * edge + edge - 1) * edge * 8, edge * 8L);
}

/* The face of the cube that is one plane of memory, the last. */
static void plane(void) {
    int edge = 1;
    while ((long)(edge + 1) * (edge + 1) * 8 <= bytes) edge++;
    int sizes[3] = {edge, edge, edge}, part[3] = {1, edge, edge}, start[3] = {edge - 1, 0, 0};
    MPI_Type_create_subarray(3, sizes, part, start, MPI_ORDER_C, MPI_DOUBLE, &type);
    add_piece((long)(edge - 1) * edge * edge * 8, (long)edge * edge * 8);
}

static void ping_pong(long count) {
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Send(out, 1, type, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, 1, type, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(in, 1, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, 1, type, 0, 1, MPI_COMM_WORLD);
        }
    }
}

static void copy_pieces(unsigned char *packed, unsigned char *loose, int unpack) {
    for (long p = 0, at = 0; p < piece_count; at += lengths[p++])
        if (unpack) memcpy(loose + offsets[p], packed + at, lengths[p]);
        else memcpy(packed + at, loose + offsets[p], lengths[p]);
}

static void send_by_hand(int peer) {
    copy_pieces(packed_out, out, 0);
    MPI_Send(packed_out, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
}

static void receive_by_hand(int peer) {
    MPI_Recv(packed_in, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    copy_pieces(packed_in, in, 1);
}

static void ping_pong_by_hand(long count) {
    for (long i = 0; i < count; i++) {
        if (rank == 0) {
            send_by_hand(1);
            receive_by_hand(1);
        } else if (rank == 1) {
            receive_by_hand(0);
            send_by_hand(0);
        }
    }
}

/* What lies in the pieces has arrived, what lies between them has not been touched. */
static void check(operation *run) {
    fill(out, span, rank, 0);
    memset(in, 0x5a, span);
    run(1);
    if (rank > 1) return;
    unsigned char *wanted = malloc(span), *theirs = malloc(span);
    memset(wanted, 0x5a, span);
    fill(theirs, span, 1 - rank, 0);
    for (long p = 0; p < piece_count; p++) memcpy(wanted + offsets[p], theirs + offsets[p], lengths[p]);
    for (long i = 0; i < span; i++) need(in[i] == wanted[i], "a derived datatype", i);
    free(wanted);
    free(theirs);
}

static const struct {
    const char *name;
    void (*make)(void);
} patterns[] = {
    {"contiguous", contiguous}, {"columns", columns}, {"doubling", doubling}, {"scattered", scattered},
    {"face", face},             {"rows", rows},       {"plane", plane}};

static int window;

/* Messages without waiting for each, then a reply. */
static void stream(long count) {
    static MPI_Request requests[256];
    unsigned char done = 0;
    if (rank > 1) return;
    for (long i = 0; i < count; i++) {
        for (int w = 0; w < window; w++)
            if (rank == 0) MPI_Isend(out, 1, type, 1, 2, MPI_COMM_WORLD, &requests[w]);
            else MPI_Irecv(in, 1, type, 0, 2, MPI_COMM_WORLD, &requests[w]);
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        if (rank == 0) MPI_Recv(&done, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&done, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
}

/* The same packed by hand: each message in memory of its own, as the program must keep it until it has left. */
static void stream_by_hand(long count) {
    static MPI_Request requests[256];
    unsigned char done = 0, *packed = rank == 0 ? packed_out : packed_in;
    if (rank > 1) return;
    for (long i = 0; i < count; i++) {
        for (int w = 0; w < window; w++) {
            if (rank == 0) {
                copy_pieces(packed + w * bytes, out, 0);
                MPI_Isend(packed + w * bytes, bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, &requests[w]);
            } else MPI_Irecv(packed + w * bytes, bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[w]);
        }
        for (int w = 0; w < window; w++) {
            MPI_Wait(&requests[w], MPI_STATUS_IGNORE);
            if (rank == 1) copy_pieces(packed + w * bytes, in, 1);
        }
        if (rank == 0) MPI_Recv(&done, 1, MPI_BYTE, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else MPI_Send(&done, 1, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
}

/* Everybody sends an element to everybody. */
static void exchange(long count) {
    for (long i = 0; i < count; i++) MPI_Alltoall(out, 1, type, in, 1, type, MPI_COMM_WORLD);
}

static void exchange_by_hand(long count) {
    for (long i = 0; i < count; i++) {
        for (int peer = 0; peer < size; peer++) copy_pieces(packed_out + peer * bytes, out + peer * span, 0);
        MPI_Alltoall(packed_out, bytes, MPI_BYTE, packed_in, bytes, MPI_BYTE, MPI_COMM_WORLD);
        for (int peer = 0; peer < size; peer++) copy_pieces(packed_in + peer * bytes, in + peer * span, 1);
    }
}

static void pack(long count) {
    for (long i = 0; i < count; i++) {
        int position = 0;
        MPI_Pack(out, 1, type, packed_out, bytes, &position, MPI_COMM_SELF);
    }
}

static void unpack(long count) {
    for (long i = 0; i < count; i++) {
        int position = 0;
        MPI_Unpack(packed_out, bytes, &position, in, 1, type, MPI_COMM_SELF);
    }
}

static void pack_by_hand(long count) {
    for (long i = 0; i < count; i++) {
        copy_pieces(packed_out, out, 0);
        __asm__ volatile("" ::"r"(packed_out) : "memory");
    }
}

static void unpack_by_hand(long count) {
    for (long i = 0; i < count; i++) {
        copy_pieces(packed_out, in, 1);
        __asm__ volatile("" ::"r"(in) : "memory");
    }
}

static void copy_bytes(long count) {
    for (long i = 0; i < count; i++) {
        memcpy(packed_in, packed_out, bytes);
        __asm__ volatile("" ::"r"(packed_in) : "memory");
    }
}

/* What was packed and unpacked is what was there, and nothing else. */
static void check_pack(void) {
    fill(out, span, 0, 0);
    memset(in, 0x5a, span);
    pack(1);
    unpack(1);
    for (long p = 0, at = 0; p < piece_count; at += lengths[p++])
        for (long i = 0; i < lengths[p]; i++) {
            need(packed_out[at + i] == out[offsets[p] + i], "MPI_Pack", at + i);
            need(in[offsets[p] + i] == out[offsets[p] + i], "MPI_Unpack", at + i);
        }
}

/* Each element of an exchange has arrived where it belongs. */
static void check_exchange(operation *run) {
    for (int peer = 0; peer < size; peer++) fill(out + peer * span, span, rank, peer);
    memset(in, 0x5a, size * span);
    run(1);
    unsigned char *theirs = malloc(span);
    for (int peer = 0; peer < size; peer++) {
        fill(theirs, span, peer, rank);
        for (long p = 0; p < piece_count; p++)
            need(!memcmp(in + peer * span + offsets[p], theirs + offsets[p], lengths[p]), "an exchange of structs", p);
    }
    free(theirs);
}

struct way {
    const char *name;
    operation *run;
};

/* Measures the ways one after the other; `amount` bytes an operation make a rate of the time. */
static void each_way(const char *test, const char *pattern, const struct way *ways, enum who who, double each,
                     double amount) {
    for (; ways->name; ways++) {
        char text[128];
        struct samples samples = measure(ways->run, who, 0);
        int length = snprintf(text, sizeof text, "\"pattern\":\"%s\",\"way\":\"%s\"", pattern, ways->name);
        if (amount > 0 && window > 0) snprintf(text + length, sizeof text - length, ",\"window\":%d", window);
        record(test, bytes, text, amount > 0 ? "MB/s" : "us", each, amount, samples);
    }
}

static void latencies(const char *pattern) {
    static const struct way ways[] = {{"datatype", ping_pong}, {"by-hand", ping_pong_by_hand}, {NULL, NULL}};
    for (const struct way *way = ways; way->name; way++) check(way->run);
    each_way("datatype", pattern, ways, ROOT, 0.5, 0);
    check(ping_pong);
}

static void bandwidths(const char *pattern) {
    static const struct way ways[] = {{"datatype", stream}, {"by-hand", stream_by_hand}, {NULL, NULL}};
    window = (int)parameter("window", 32);
    if (window < 1 || window > 256) window = 32;
    check(ping_pong);
    each_way("datatype-bandwidth", pattern, ways, ALL, 1, (double)window * bytes);
    check(ping_pong);
}

static void exchanges(const char *pattern) {
    static const struct way ways[] = {{"datatype", exchange}, {"by-hand", exchange_by_hand}, {NULL, NULL}};
    /* Elements lie one behind the other. */
    MPI_Datatype sized;
    MPI_Type_create_resized(type, 0, span, &sized);
    MPI_Type_free(&type);
    type = sized;
    MPI_Type_commit(&type);
    for (const struct way *way = ways; way->name; way++) check_exchange(way->run);
    each_way("datatype-alltoall", pattern, ways, ALL, 1, 0);
    check_exchange(exchange);
}

static void packs(const char *pattern) {
    static const struct way ways[] = {
        {"pack", pack}, {"pack-by-hand", pack_by_hand}, {"unpack", unpack}, {"unpack-by-hand", unpack_by_hand},
        {"memcpy", copy_bytes}, {NULL, NULL}};
    check_pack();
    each_way("datatype-pack", pattern, ways, ROOT, 1, 0);
    check_pack();
}

/* Every pattern asked for in every size: `run` is called with the type made and the memory laid out for `blocks`
 * elements and `messages` packed ones. */
static void each_pattern(void (*run)(const char *pattern), int blocks, int messages) {
    const char *wanted = parameter_text("pattern", "contiguous,columns,doubling,scattered,face");
    for (int s = 0; s < options.size_count; s++)
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            if (!strstr(wanted, patterns[p].name)) continue;
            bytes = options.sizes[s];
            piece_count = span = 0;
            patterns[p].make();
            MPI_Type_commit(&type);
            int packed;
            MPI_Type_size(type, &packed);
            bytes = packed;
            buffers(span * blocks);
            packed_out = realloc(packed_out, bytes * messages);
            packed_in = realloc(packed_in, bytes * messages);
            memset(packed_out, 1, bytes * messages);
            memset(packed_in, 1, bytes * messages);
            run(patterns[p].name);
            MPI_Type_free(&type);
        }
}

static void datatype(void) {
    each_pattern(latencies, 1, 1);
}

static void datatype_bandwidth(void) {
    each_pattern(bandwidths, 1, 256);
}

static void datatype_alltoall(void) {
    each_pattern(exchanges, size, size);
}

static void datatype_pack(void) {
    each_pattern(packs, 1, 1);
}

const struct test datatype_tests[] = {
    {"datatype", datatype, 0},
    {"datatype-bandwidth", datatype_bandwidth, 0},
    {"datatype-alltoall", datatype_alltoall, 0},
    {"datatype-pack", datatype_pack, 0},
    {NULL, NULL, 0}};
