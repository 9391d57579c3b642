# mpiexec -n 4 python hello.py
from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
print(f"Hello from rank {world.rank} of {world.size}; our ranks add up to {total}")
