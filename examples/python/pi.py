# mpiexec -n 4 python pi.py
#
# Each rank adds up its share of the area under 4 / (1 + x^2) between 0 and 1.
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
steps = 1_000_000
x = (np.arange(world.rank, steps, world.size) + 0.5) / steps
share = np.array([np.sum(4.0 / (1.0 + x * x)) / steps])
total = np.empty(1)
world.Allreduce(share, total, op=MPI.SUM)
assert abs(total[0] - np.pi) < 1e-9, total
if world.rank == 0:
    print(f"pi is about {total[0]:.12f}")
