# mpiexec -n 2 python pipeline.py
#
# Partitioned communication: even ranks fill an array piece by piece and send each piece as it becomes ready; their
# neighbours work on what has arrived while the rest is still being made.
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
pieces, length = 8, 1000
data = np.zeros((pieces, length))
partner = world.rank ^ 1
if partner < world.size and world.rank % 2 == 0:
    request = world.Psend_init(data, pieces, partner, tag=0)
    request.Start()
    for piece in range(pieces):
        data[piece] = piece + 1
        request.Pready(piece)
    request.Wait()
    request.Free()
elif partner < world.size:
    request = world.Precv_init(data, pieces, partner, tag=0)
    request.Start()
    total = 0.0
    for piece in range(pieces):
        while not request.Parrived(piece):
            time.sleep(0.0005)
        total += data[piece].sum()
    request.Wait()
    request.Free()
    assert total == length * pieces * (pieces + 1) / 2, total
    print(f"rank {world.rank} has added up {pieces} pieces: {total:.0f}")
