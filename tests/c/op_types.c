/* Every predefined type with every predefined operation: the value where the standard defines it, MPI_ERR_OP where not.
 *
 * The table says how elements are represented; one oracle computes in 128 bits for all of them. */
#include "check.h"
#include <stdbool.h>

enum { count = 19, element_max = 32 };

enum kind { SIGNED, UNSIGNED, FLOATING, LONG_DOUBLE, COMPLEX, LONG_COMPLEX, LOGICAL, BOOLEAN, BYTES, TEXT, PAIR };
/* Which operations the standard defines. */
enum group {
    C_INTEGER,
    FORTRAN_INTEGER,
    MULTI_LANGUAGE,
    FLOAT_GROUP,
    COMPLEX_GROUP,
    LOGICAL_GROUP,
    BYTE_GROUP,
    NOTHING
};

struct row {
    const char *name;
    MPI_Datatype type;
    enum kind kind;
    enum group group;
    /* Bytes of a number; of complex numbers, those of a part. */
    int size;
};

#define ROW(type, kind, group, size) {#type, type, kind, group, size}

static struct row table[] = {
    ROW(MPI_SIGNED_CHAR, SIGNED, C_INTEGER, 1),
    ROW(MPI_UNSIGNED_CHAR, UNSIGNED, C_INTEGER, 1),
    ROW(MPI_SHORT, SIGNED, C_INTEGER, sizeof(short)),
    ROW(MPI_UNSIGNED_SHORT, UNSIGNED, C_INTEGER, sizeof(short)),
    ROW(MPI_INT, SIGNED, C_INTEGER, sizeof(int)),
    ROW(MPI_UNSIGNED, UNSIGNED, C_INTEGER, sizeof(int)),
    ROW(MPI_LONG, SIGNED, C_INTEGER, sizeof(long)),
    ROW(MPI_UNSIGNED_LONG, UNSIGNED, C_INTEGER, sizeof(long)),
    ROW(MPI_LONG_LONG, SIGNED, C_INTEGER, sizeof(long long)),
    ROW(MPI_LONG_LONG_INT, SIGNED, C_INTEGER, sizeof(long long)),
    ROW(MPI_UNSIGNED_LONG_LONG, UNSIGNED, C_INTEGER, sizeof(long long)),
    ROW(MPI_INT8_T, SIGNED, C_INTEGER, 1),
    ROW(MPI_INT16_T, SIGNED, C_INTEGER, 2),
    ROW(MPI_INT32_T, SIGNED, C_INTEGER, 4),
    ROW(MPI_INT64_T, SIGNED, C_INTEGER, 8),
    ROW(MPI_UINT8_T, UNSIGNED, C_INTEGER, 1),
    ROW(MPI_UINT16_T, UNSIGNED, C_INTEGER, 2),
    ROW(MPI_UINT32_T, UNSIGNED, C_INTEGER, 4),
    ROW(MPI_UINT64_T, UNSIGNED, C_INTEGER, 8),
    ROW(MPI_INTEGER, SIGNED, FORTRAN_INTEGER, 4),
    ROW(MPI_INTEGER1, SIGNED, FORTRAN_INTEGER, 1),
    ROW(MPI_INTEGER2, SIGNED, FORTRAN_INTEGER, 2),
    ROW(MPI_INTEGER4, SIGNED, FORTRAN_INTEGER, 4),
    ROW(MPI_INTEGER8, SIGNED, FORTRAN_INTEGER, 8),
    ROW(MPI_INTEGER16, SIGNED, FORTRAN_INTEGER, 16),
    ROW(MPI_AINT, SIGNED, MULTI_LANGUAGE, sizeof(MPI_Aint)),
    ROW(MPI_OFFSET, SIGNED, MULTI_LANGUAGE, sizeof(MPI_Offset)),
    ROW(MPI_COUNT, SIGNED, MULTI_LANGUAGE, sizeof(MPI_Count)),
    ROW(MPI_FLOAT, FLOATING, FLOAT_GROUP, 4),
    ROW(MPI_DOUBLE, FLOATING, FLOAT_GROUP, 8),
    ROW(MPI_LONG_DOUBLE, LONG_DOUBLE, FLOAT_GROUP, sizeof(long double)),
    ROW(MPI_REAL, FLOATING, FLOAT_GROUP, 4),
    ROW(MPI_DOUBLE_PRECISION, FLOATING, FLOAT_GROUP, 8),
    ROW(MPI_REAL2, FLOATING, FLOAT_GROUP, 2),
    ROW(MPI_REAL4, FLOATING, FLOAT_GROUP, 4),
    ROW(MPI_REAL8, FLOATING, FLOAT_GROUP, 8),
    ROW(MPI_REAL16, FLOATING, FLOAT_GROUP, 16),
    ROW(MPI_C_COMPLEX, COMPLEX, COMPLEX_GROUP, 4),
    ROW(MPI_C_FLOAT_COMPLEX, COMPLEX, COMPLEX_GROUP, 4),
    ROW(MPI_C_DOUBLE_COMPLEX, COMPLEX, COMPLEX_GROUP, 8),
    ROW(MPI_C_LONG_DOUBLE_COMPLEX, LONG_COMPLEX, COMPLEX_GROUP, sizeof(long double)),
    ROW(MPI_CXX_FLOAT_COMPLEX, COMPLEX, COMPLEX_GROUP, 4),
    ROW(MPI_CXX_DOUBLE_COMPLEX, COMPLEX, COMPLEX_GROUP, 8),
    ROW(MPI_CXX_LONG_DOUBLE_COMPLEX, LONG_COMPLEX, COMPLEX_GROUP, sizeof(long double)),
    ROW(MPI_COMPLEX, COMPLEX, COMPLEX_GROUP, 4),
    ROW(MPI_DOUBLE_COMPLEX, COMPLEX, COMPLEX_GROUP, 8),
    ROW(MPI_COMPLEX4, COMPLEX, COMPLEX_GROUP, 2),
    ROW(MPI_COMPLEX8, COMPLEX, COMPLEX_GROUP, 4),
    ROW(MPI_COMPLEX16, COMPLEX, COMPLEX_GROUP, 8),
    ROW(MPI_COMPLEX32, COMPLEX, COMPLEX_GROUP, 16),
    ROW(MPI_LOGICAL, LOGICAL, LOGICAL_GROUP, 4),
    ROW(MPI_LOGICAL1, LOGICAL, LOGICAL_GROUP, 1),
    ROW(MPI_LOGICAL2, LOGICAL, LOGICAL_GROUP, 2),
    ROW(MPI_LOGICAL4, LOGICAL, LOGICAL_GROUP, 4),
    ROW(MPI_LOGICAL8, LOGICAL, LOGICAL_GROUP, 8),
    ROW(MPI_LOGICAL16, LOGICAL, LOGICAL_GROUP, 16),
    ROW(MPI_C_BOOL, BOOLEAN, LOGICAL_GROUP, sizeof(bool)),
    ROW(MPI_CXX_BOOL, BOOLEAN, LOGICAL_GROUP, sizeof(bool)),
    ROW(MPI_BYTE, BYTES, BYTE_GROUP, 1),
    ROW(MPI_WCHAR, TEXT, NOTHING, 4),
    ROW(MPI_CHARACTER, TEXT, NOTHING, 1),
    ROW(MPI_PACKED, TEXT, NOTHING, 1),
    ROW(MPI_FLOAT_INT, PAIR, NOTHING, 0),
    ROW(MPI_DOUBLE_INT, PAIR, NOTHING, 0),
    ROW(MPI_LONG_INT, PAIR, NOTHING, 0),
    ROW(MPI_2INT, PAIR, NOTHING, 0),
    ROW(MPI_SHORT_INT, PAIR, NOTHING, 0),
    ROW(MPI_LONG_DOUBLE_INT, PAIR, NOTHING, 0),
    ROW(MPI_2REAL, PAIR, NOTHING, 0),
    ROW(MPI_2DOUBLE_PRECISION, PAIR, NOTHING, 0),
    ROW(MPI_2INTEGER, PAIR, NOTHING, 0),
};

enum operation { SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC, operations };

static const char *operation_name[] = {"SUM", "PROD", "MIN",  "MAX", "BAND",   "BOR",
                                       "BXOR", "LAND", "LOR", "LXOR", "MINLOC", "MAXLOC"};

static MPI_Op operation_of(enum operation operation)
{
    const MPI_Op all[] = {MPI_SUM,  MPI_PROD, MPI_MIN, MPI_MAX,  MPI_BAND,   MPI_BOR,
                          MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_MINLOC, MPI_MAXLOC};
    return all[operation];
}

/* MPI: §6.9.2, and logical operations on addresses, offsets and counts, which the standard leaves out. */
static int is_defined(enum group group, enum operation operation)
{
    int integer = group == C_INTEGER || group == FORTRAN_INTEGER || group == MULTI_LANGUAGE;
    if (operation <= PROD)
        return integer || group == FLOAT_GROUP || group == COMPLEX_GROUP;
    if (operation <= MAX)
        return integer || group == FLOAT_GROUP;
    if (operation <= BXOR)
        return integer || group == BYTE_GROUP;
    return operation <= LXOR && (group == C_INTEGER || group == LOGICAL_GROUP || group == MULTI_LANGUAGE);
}

/* A number of any type; complex ones have two parts. */
struct number {
    __int128 whole;
    __float128 real, imaginary;
};

static void store_float(unsigned char *place, const struct row *row, __float128 value)
{
    _Float16 half = (_Float16)value;
    float single = (float)value;
    double full = (double)value;
    long double extended = (long double)value;
    if (row->kind == LONG_DOUBLE || row->kind == LONG_COMPLEX)
        memcpy(place, &extended, sizeof extended);
    else if (row->size == 2)
        memcpy(place, &half, 2);
    else if (row->size == 4)
        memcpy(place, &single, 4);
    else if (row->size == 8)
        memcpy(place, &full, 8);
    else
        memcpy(place, &value, 16);
}

static __float128 load_float(const unsigned char *place, const struct row *row)
{
    _Float16 half;
    float single;
    double full;
    long double extended;
    __float128 quad;
    if (row->kind == LONG_DOUBLE || row->kind == LONG_COMPLEX)
        return memcpy(&extended, place, sizeof extended), (__float128)extended;
    if (row->size == 2)
        return memcpy(&half, place, 2), (__float128)half;
    if (row->size == 4)
        return memcpy(&single, place, 4), (__float128)single;
    if (row->size == 8)
        return memcpy(&full, place, 8), (__float128)full;
    return memcpy(&quad, place, 16), quad;
}

static int is_complex(const struct row *row)
{
    return row->kind == COMPLEX || row->kind == LONG_COMPLEX;
}

static int is_float(const struct row *row)
{
    return row->kind == FLOATING || row->kind == LONG_DOUBLE || is_complex(row);
}

static int bytes_of(const struct row *row)
{
    return is_complex(row) ? 2 * row->size : row->size;
}

static void store(unsigned char *place, const struct row *row, struct number number)
{
    memset(place, 0, (size_t)bytes_of(row));
    if (is_float(row))
        store_float(place, row, number.real);
    else
        memcpy(place, &number.whole, (size_t)row->size); /* the machine has its low bytes first */
    if (is_complex(row))
        store_float(place + row->size, row, number.imaginary);
}

static struct number load(const unsigned char *place, const struct row *row)
{
    struct number number = {0, 0, 0};
    if (is_float(row))
        number.real = load_float(place, row);
    else
        memcpy(&number.whole, place, (size_t)row->size);
    if (row->kind == SIGNED && row->size < 16) {
        int shift = 128 - 8 * row->size;
        number.whole = (__int128)((unsigned __int128)number.whole << shift) >> shift;
    }
    if (is_complex(row))
        number.imaginary = load_float(place + row->size, row);
    return number;
}

/* What rank `r` contributes to element `i`: small enough for every type to be exact. */
static struct number contribution(const struct row *row, enum operation operation, int r, int i)
{
    struct number number = {0, 0, 0};
    int value = (r * 5 + i * 3) % 7, negative = row->kind == SIGNED || is_float(row);
    if (operation == PROD)
        value = (r + i) % 3 + 1;
    if (operation >= BAND)
        value = (r * 0x35 + i * 0x1d) & 0x7f;
    if (operation >= LAND)
        value = row->kind == LOGICAL || row->kind == BOOLEAN ? (r + i) % 3 != 0 : (r + i) % 3 * 4;
    if (negative && operation < BAND && (r + i) % 2)
        value = -value;
    number.whole = value;
    number.real = (__float128)value;
    number.imaginary = (__float128)((r + 2 * i) % 3 - 1);
    return number;
}

static struct number fold(const struct row *row, enum operation operation, struct number a, struct number b)
{
    struct number result = a;
    int less = is_float(row) ? b.real < a.real : b.whole < a.whole;
    switch (operation) {
    case SUM:
        result.whole = a.whole + b.whole;
        result.real = a.real + b.real;
        result.imaginary = a.imaginary + b.imaginary;
        break;
    case PROD:
        result.whole = a.whole * b.whole;
        result.real = is_complex(row) ? a.real * b.real - a.imaginary * b.imaginary : a.real * b.real;
        result.imaginary = a.real * b.imaginary + a.imaginary * b.real;
        break;
    case MIN: result = less ? b : a; break;
    case MAX: result = less ? a : b; break;
    case BAND: result.whole = a.whole & b.whole; break;
    case BOR: result.whole = a.whole | b.whole; break;
    case BXOR: result.whole = a.whole ^ b.whole; break;
    case LAND: result.whole = a.whole && b.whole; break;
    case LOR: result.whole = a.whole || b.whole; break;
    default: result.whole = !a.whole != !b.whole; break;
    }
    return result;
}

static int equal(const struct row *row, struct number a, struct number b)
{
    if (is_float(row))
        return a.real == b.real && (!is_complex(row) || a.imaginary == b.imaginary);
    return a.whole == b.whole;
}

static void defined(const struct row *row, enum operation operation)
{
    unsigned char mine[count * element_max], all[count * element_max], local[count * element_max];
    size_t bytes = (size_t)bytes_of(row);
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        store(mine + (size_t)i * bytes, row, contribution(row, operation, world_rank, i));
        store(local + (size_t)i * bytes, row, contribution(row, operation, world_rank + 1, i));
    }
    OK(MPI_Allreduce(mine, all, count, row->type, operation_of(operation), MPI_COMM_WORLD));
    OK(MPI_Reduce_local(mine, local, count, row->type, operation_of(operation)));
    for (int i = 0; i < count; i++) {
        struct number expected = contribution(row, operation, 0, i), pair;
        for (int r = 1; r < world_size; r++)
            expected = fold(row, operation, expected, contribution(row, operation, r, i));
        /* One contribution is not folded with anything, but a logical result is 0 or 1 all the same. */
        if (world_size > 1 || operation < LAND)
            wrong += !equal(row, load(all + (size_t)i * bytes, row), expected);
        pair = fold(row, operation, contribution(row, operation, world_rank, i),
                    contribution(row, operation, world_rank + 1, i));
        wrong += !equal(row, load(local + (size_t)i * bytes, row), pair);
    }
    if (wrong)
        fprintf(stderr, "rank %d: %s with %s: %d wrong\n", world_rank, operation_name[operation], row->name, wrong);
    CHECK(wrong == 0);
}

static void undefined(const struct row *row, enum operation operation)
{
    unsigned char in[count * 64] = {0}, out[count * 64] = {0};
    int all = MPI_Allreduce(in, out, 1, row->type, operation_of(operation), MPI_COMM_SELF);
    int local = MPI_Reduce_local(in, out, 1, row->type, operation_of(operation));
    if (class_of(all) != MPI_ERR_OP || class_of(local) != MPI_ERR_OP)
        fprintf(stderr, "%s with %s should be MPI_ERR_OP\n", operation_name[operation], row->name);
    CHECK(class_of(all) == MPI_ERR_OP);
    CHECK(class_of(local) == MPI_ERR_OP);
}

int main(int argc, char **argv)
{
    int tried = 0, refused = 0;
    start(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++) {
        const struct row *row = &table[t];
        int size = -1;
        OK(MPI_Type_size(row->type, &size));
        if (row->kind != PAIR && size != bytes_of(row))
            fprintf(stderr, "%s has %d bytes, expected %d\n", row->name, size, bytes_of(row));
        CHECK(row->kind == PAIR ? size > 0 : size == bytes_of(row));
        for (int operation = 0; operation < operations; operation++) {
            if (row->kind == PAIR && operation >= MINLOC)
                continue; /* coll_ops has them */
            if (is_defined(row->group, operation)) {
                defined(row, operation);
                tried++;
            } else {
                undefined(row, operation);
                refused++;
            }
        }
    }
    CHECK(tried > 300 && refused > 200);
    return finish();
}
