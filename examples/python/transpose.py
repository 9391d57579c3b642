# mpiexec -n 4 python transpose.py
#
# A matrix whose rows are spread over the ranks becomes its transpose, spread the same way. Each rank sends every other
# one a block; a datatype describes the columns of that block, so nothing is packed by hand.
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rows = 3
size = rows * world.size
mine = (np.arange(rows * size) + world.rank * rows * size).reshape(rows, size).astype("d")
theirs = np.empty((rows, size))

# One column of my rows, and how far the next one is away.
column = MPI.DOUBLE.Create_vector(rows, 1, size).Create_resized(0, MPI.DOUBLE.size)
column.Commit()
received = np.empty((world.size, rows, rows))
world.Alltoall([mine, rows, column], [received, rows * rows, MPI.DOUBLE])
for source in range(world.size):
    theirs[:, source * rows : (source + 1) * rows] = received[source]

whole = np.arange(size * size, dtype="d").reshape(size, size)
assert np.array_equal(theirs, whole.T[world.rank * rows : (world.rank + 1) * rows]), theirs
if world.rank == 0:
    print(f"a matrix of {size} by {size}, transposed on {world.size} ranks")
