//! Functions that MPI 3.0 removed and programs still call: other libraries with this ABI export them, too.
//!
//! MPI: §17.1

/// One of them: its prototype, and the function of the standard that does just the same. Those that have none
/// are written in `src/removed.rs`.
pub struct Removed {
    pub prototype: &'static str,
    pub same_as: Option<&'static str>,
}

pub const REMOVED: &[Removed] = &[
    same("int MPI_Address(void *location, MPI_Aint *address)", "MPI_Get_address"),
    same(
        "int MPI_Errhandler_create(MPI_Comm_errhandler_function *comm_errhandler_fn, MPI_Errhandler *errhandler)",
        "MPI_Comm_create_errhandler",
    ),
    same("int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *errhandler)", "MPI_Comm_get_errhandler"),
    same("int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler errhandler)", "MPI_Comm_set_errhandler"),
    own("int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent)"),
    same(
        "int MPI_Type_hindexed(int count, int array_of_blocklengths[], MPI_Aint array_of_displacements[], \
         MPI_Datatype oldtype, MPI_Datatype *newtype)",
        "MPI_Type_create_hindexed",
    ),
    same(
        "int MPI_Type_hvector(int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype, \
         MPI_Datatype *newtype)",
        "MPI_Type_create_hvector",
    ),
    own("int MPI_Type_lb(MPI_Datatype datatype, MPI_Aint *displacement)"),
    same(
        "int MPI_Type_struct(int count, int array_of_blocklengths[], MPI_Aint array_of_displacements[], \
         MPI_Datatype array_of_types[], MPI_Datatype *newtype)",
        "MPI_Type_create_struct",
    ),
    own("int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint *displacement)"),
];

const fn same(prototype: &'static str, as_this: &'static str) -> Removed {
    Removed { prototype, same_as: Some(as_this) }
}

const fn own(prototype: &'static str) -> Removed {
    Removed { prototype, same_as: None }
}

impl Removed {
    pub fn name(&self) -> &'static str {
        let (head, _) = self.prototype.split_once('(').expect("a prototype has parameters");
        head.trim_start_matches("int ")
    }
}
