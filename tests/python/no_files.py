"""Runs a program as if mpi4py had been built without files: `python no_files.py PROGRAM ARGUMENTS...`.

The library has none so far, and says so by an error of MPI; one module of mpi4py's tests opens a file when it is imported
and takes only NotImplementedError for an answer. With that, everything else of the module can be run.
"""

import runpy
import sys

from mpi4py import MPI


class File(MPI.File):
    @classmethod
    def Open(cls, *arguments, **keywords):
        raise NotImplementedError("files")


MPI.File = File
sys.dont_write_bytecode = True
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
