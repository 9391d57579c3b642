/* Every predefined operation on the types it is defined for, through Allreduce and Reduce_local. */
#include "check.h"
#include <complex.h>
#include <stdbool.h>

enum { count = 37 };

/* For one C type and one operation: rank r contributes INPUT(r, i); FOLD combines left and right. */
#define REDUCTION(ctype, mpitype, op, INPUT, FOLD)                                                    \
    do {                                                                                              \
        ctype mine[count], out[count], local[count];                                                  \
        int wrong = 0;                                                                                \
        for (int i = 0; i < count; i++) {                                                             \
            int r = world_rank;                                                                       \
            mine[i] = (ctype)(INPUT);                                                                 \
            local[i] = mine[i];                                                                       \
        }                                                                                             \
        OK(MPI_Allreduce(mine, out, count, mpitype, op, MPI_COMM_WORLD));                             \
        for (int i = 0; i < count; i++) {                                                             \
            int r = 0;                                                                                \
            ctype left = (ctype)(INPUT);                                                              \
            for (r = 1; r < world_size; r++) {                                                        \
                ctype right = (ctype)(INPUT);                                                         \
                left = (ctype)(FOLD);                                                                 \
            }                                                                                         \
            wrong += !(out[i] == left);                                                               \
        }                                                                                             \
        if (wrong)                                                                                    \
            fprintf(stderr, "rank %d: %s with %s: %d wrong\n", world_rank, #op, #mpitype, wrong);     \
        CHECK(wrong == 0);                                                                            \
        OK(MPI_Reduce_local(mine, local, count, mpitype, op));                                        \
        for (int i = 0; i < count; i++) {                                                             \
            ctype left = mine[i], right = mine[i];                                                    \
            left = (ctype)(FOLD);                                                                     \
            wrong += !(local[i] == left);                                                             \
        }                                                                                             \
        if (wrong)                                                                                    \
            fprintf(stderr, "rank %d: %s with %s, local: %d wrong\n", world_rank, #op, #mpitype, wrong); \
        CHECK(wrong == 0);                                                                            \
    } while (0)

#define SMALL ((r * 5 + i * 3) % 11)
#define TINY ((r + i) % 3 + 1)
#define BITS ((r * 0x35 + i * 0x1d) & 0x7f)
#define TRUTH ((r + i) % 3 != 0)

#define ORDERED(ctype, mpitype)                                               \
    REDUCTION(ctype, mpitype, MPI_MAX, SMALL, left > right ? left : right);   \
    REDUCTION(ctype, mpitype, MPI_MIN, SMALL, left < right ? left : right);   \
    REDUCTION(ctype, mpitype, MPI_SUM, SMALL, left + right);                  \
    REDUCTION(ctype, mpitype, MPI_PROD, TINY, left *right)

#define BITWISE(ctype, mpitype)                                     \
    REDUCTION(ctype, mpitype, MPI_BAND, BITS, left &right);         \
    REDUCTION(ctype, mpitype, MPI_BOR, BITS, left | right);         \
    REDUCTION(ctype, mpitype, MPI_BXOR, BITS, left ^ right)

#define LOGICAL(ctype, mpitype)                                         \
    REDUCTION(ctype, mpitype, MPI_LAND, TRUTH, left &&right);           \
    REDUCTION(ctype, mpitype, MPI_LOR, TRUTH, left || right);           \
    REDUCTION(ctype, mpitype, MPI_LXOR, TRUTH, (!left) != (!right))

#define INTEGER(ctype, mpitype) \
    ORDERED(ctype, mpitype);    \
    BITWISE(ctype, mpitype);    \
    LOGICAL(ctype, mpitype)

static void integers(void)
{
    INTEGER(signed char, MPI_SIGNED_CHAR);
    INTEGER(unsigned char, MPI_UNSIGNED_CHAR);
    INTEGER(short, MPI_SHORT);
    INTEGER(unsigned short, MPI_UNSIGNED_SHORT);
    INTEGER(int, MPI_INT);
    INTEGER(unsigned, MPI_UNSIGNED);
    INTEGER(long, MPI_LONG);
    INTEGER(unsigned long, MPI_UNSIGNED_LONG);
    INTEGER(long long, MPI_LONG_LONG);
    INTEGER(unsigned long long, MPI_UNSIGNED_LONG_LONG);
}

static void sized_integers(void)
{
    INTEGER(int8_t, MPI_INT8_T);
    INTEGER(int16_t, MPI_INT16_T);
    INTEGER(int32_t, MPI_INT32_T);
    INTEGER(int64_t, MPI_INT64_T);
    INTEGER(uint8_t, MPI_UINT8_T);
    INTEGER(uint16_t, MPI_UINT16_T);
    INTEGER(uint32_t, MPI_UINT32_T);
    INTEGER(uint64_t, MPI_UINT64_T);
    ORDERED(MPI_Aint, MPI_AINT);
    ORDERED(MPI_Offset, MPI_OFFSET);
    ORDERED(MPI_Count, MPI_COUNT);
    BITWISE(unsigned char, MPI_BYTE);
}

static void others(void)
{
    ORDERED(float, MPI_FLOAT);
    ORDERED(double, MPI_DOUBLE);
    ORDERED(long double, MPI_LONG_DOUBLE);
    LOGICAL(bool, MPI_C_BOOL);
    REDUCTION(float complex, MPI_C_FLOAT_COMPLEX, MPI_SUM, SMALL + I * (r + 1), left + right);
    REDUCTION(float complex, MPI_C_FLOAT_COMPLEX, MPI_PROD, TINY + I * (r % 2), left *right);
    REDUCTION(double complex, MPI_C_DOUBLE_COMPLEX, MPI_SUM, SMALL + I * (r + 1), left + right);
    REDUCTION(double complex, MPI_C_DOUBLE_COMPLEX, MPI_PROD, TINY + I * (r % 2), left *right);
}

/* MINLOC and MAXLOC: of equal values the lower index wins. */
#define LOCATION(ctype, mpitype)                                                                               \
    do {                                                                                                       \
        struct pair {                                                                                          \
            ctype value;                                                                                       \
            int index;                                                                                         \
        } mine[count], low[count], high[count];                                                                \
        int wrong = 0;                                                                                         \
        memset(mine, 0, sizeof mine);                                                                          \
        for (int i = 0; i < count; i++) {                                                                      \
            mine[i].value = (ctype)((world_rank + i) % 3);                                                     \
            mine[i].index = world_rank * 10 + i;                                                               \
        }                                                                                                      \
        OK(MPI_Allreduce(mine, low, count, mpitype, MPI_MINLOC, MPI_COMM_WORLD));                              \
        OK(MPI_Allreduce(mine, high, count, mpitype, MPI_MAXLOC, MPI_COMM_WORLD));                             \
        for (int i = 0; i < count; i++) {                                                                      \
            int least = 0, most = 0;                                                                           \
            for (int r = 1; r < world_size; r++) {                                                             \
                if ((r + i) % 3 < (least + i) % 3)                                                             \
                    least = r;                                                                                 \
                if ((r + i) % 3 > (most + i) % 3)                                                              \
                    most = r;                                                                                  \
            }                                                                                                  \
            wrong += low[i].value != (ctype)((least + i) % 3) || low[i].index != least * 10 + i;               \
            wrong += high[i].value != (ctype)((most + i) % 3) || high[i].index != most * 10 + i;               \
        }                                                                                                      \
        if (wrong)                                                                                             \
            fprintf(stderr, "rank %d: locations with %s: %d wrong\n", world_rank, #mpitype, wrong);            \
        CHECK(wrong == 0);                                                                                     \
    } while (0)

int main(int argc, char **argv)
{
    start(&argc, &argv);
    integers();
    sized_integers();
    others();
    LOCATION(float, MPI_FLOAT_INT);
    LOCATION(double, MPI_DOUBLE_INT);
    LOCATION(long, MPI_LONG_INT);
    LOCATION(int, MPI_2INT);
    LOCATION(short, MPI_SHORT_INT);
    LOCATION(long double, MPI_LONG_DOUBLE_INT);
    /* What the operations say of themselves. */
    int commutes = -1;
    OK(MPI_Op_commutative(MPI_SUM, &commutes));
    CHECK(commutes == 1);
    OK(MPI_Op_commutative(MPI_REPLACE, &commutes));
    CHECK(commutes == 0);
    /* An operation on a type it is not defined for is an error of the call. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    double x = 1, y = 0;
    int class = class_of(MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD));
    CHECK(class == MPI_ERR_OP || class == MPI_ERR_TYPE);
    return finish();
}
