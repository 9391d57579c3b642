/* Absolute addresses: MPI_BOTTOM with types built from MPI_Get_address, in messages, collectives and packing. */
#include "check.h"

int main(int argc, char **argv)
{
    int numbers[5] = {0}, wrong = 0, position = 0;
    double weights[3] = {0};
    char letter = 0, packed[256];
    MPI_Aint places[3];
    MPI_Datatype type;
    start(&argc, &argv);
    int right = (world_rank + 1) % world_size, left = (world_rank + world_size - 1) % world_size;
    OK(MPI_Get_address(numbers, &places[0]));
    OK(MPI_Get_address(weights, &places[1]));
    OK(MPI_Get_address(&letter, &places[2]));
    OK(MPI_Type_create_struct(3, (int[]){5, 3, 1}, places, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE, MPI_CHAR}, &type));
    OK(MPI_Type_commit(&type));

    for (int i = 0; i < 5; i++)
        numbers[i] = world_rank * 10 + i;
    for (int i = 0; i < 3; i++)
        weights[i] = world_rank + i / 4.0;
    letter = (char)('a' + world_rank);
    OK(MPI_Sendrecv_replace(MPI_BOTTOM, 1, type, right, 1, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 5; i++)
        wrong += numbers[i] != left * 10 + i;
    for (int i = 0; i < 3; i++)
        wrong += weights[i] != left + i / 4.0;
    CHECK(wrong == 0 && letter == 'a' + left);

    OK(MPI_Bcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD));
    int root_left = world_size - 1;
    CHECK(numbers[4] == root_left * 10 + 4 && weights[2] == root_left + 0.5 && letter == 'a' + root_left);

    OK(MPI_Pack(MPI_BOTTOM, 1, type, packed, sizeof packed, &position, MPI_COMM_WORLD));
    CHECK(position >= 5 * 4 + 3 * 8 + 1);
    memset(numbers, 0, sizeof numbers);
    letter = 0;
    position = 0;
    OK(MPI_Unpack(packed, sizeof packed, &position, MPI_BOTTOM, 1, type, MPI_COMM_WORLD));
    CHECK(numbers[4] == root_left * 10 + 4 && letter == 'a' + root_left);
    OK(MPI_Type_free(&type));
    return finish();
}
