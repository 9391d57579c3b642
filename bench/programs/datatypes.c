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
    {"contiguous", contiguous}, {"columns", columns}, {"doubling", doubling}, {"scattered", scattered}, {"face", face}};

static void both_ways(const char *pattern, long asked) {
    static const struct {
        const char *name;
        operation *run;
    } ways[] = {{"datatype", ping_pong}, {"by-hand", ping_pong_by_hand}};
    for (int way = 0; way < 2; way++) {
        char text[96];
        check(ways[way].run);
        struct samples samples = measure(ways[way].run, ROOT, 0);
        check(ways[way].run);
        snprintf(text, sizeof text, "\"pattern\":\"%s\",\"way\":\"%s\"", pattern, ways[way].name);
        record("datatype", asked, text, "us", 0.5, 0, samples);
    }
}

static void datatype(void) {
    const char *wanted = parameter_text("pattern", "contiguous,columns,doubling,scattered,face");
    for (int s = 0; s < options.size_count; s++)
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
            const char *found = strstr(wanted, patterns[p].name);
            if (!found) continue;
            bytes = options.sizes[s];
            piece_count = span = 0;
            patterns[p].make();
            MPI_Type_commit(&type);
            int packed;
            MPI_Type_size(type, &packed);
            bytes = packed;
            buffers(span);
            packed_out = realloc(packed_out, bytes);
            packed_in = realloc(packed_in, bytes);
            both_ways(patterns[p].name, bytes);
            MPI_Type_free(&type);
        }
}

const struct test datatype_tests[] = {{"datatype", datatype, 0}, {NULL, NULL, 0}};
