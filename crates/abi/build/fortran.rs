//! What C programs that meet Fortran find in `mpi.h`: `MPI_Fint`, and the conversions of handles and statuses.
//!
//! The ABI leaves them out, since the size of an `INTEGER` is the compiler's; it offers `MPI_Comm_toint` and its like
//! instead. Built upon these in the header, programs that convert run on every library with this ABI. The library
//! exports the conversions of handles by name, too, for those who look for them there (configure scripts do).
//! `MPI_F_STATUS_IGNORE` and its like are not here: they are addresses in the library of a Fortran compiler.
//!
//! MPI: §19.3.4, §19.3.5

use std::fmt::Write;

use crate::standard::{Function, Standard};

/// The type of an `INTEGER`.
pub const INTEGER: &str = "
/* What Fortran knows of C (MPI: sections 19.3.4 and 19.3.5). Define MPI_ABI_Fint where an INTEGER is no int. */
#if !defined(MPI_ABI_Fint)
#define MPI_ABI_Fint int
#endif
typedef MPI_ABI_Fint MPI_Fint;
#undef MPI_ABI_Fint
";

/// Statuses are copied number by number, since an `INTEGER` may be longer than an `int`. Those to be ignored have no
/// memory.
const STATUSES: &str = "
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L)
#define MPI_ABI_inline static inline
#else
#define MPI_ABI_inline static __inline__
#endif

MPI_ABI_inline int MPI_ABI_Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status)
{
    int i;
    if (!c_status || !f_status)
        return MPI_ERR_ARG;
    f_status[MPI_F_SOURCE] = c_status->MPI_SOURCE;
    f_status[MPI_F_TAG] = c_status->MPI_TAG;
    f_status[MPI_F_ERROR] = c_status->MPI_ERROR;
    for (i = 3; i < MPI_F_STATUS_SIZE; i++)
        f_status[i] = c_status->MPI_internal[i - 3];
    return MPI_SUCCESS;
}

MPI_ABI_inline int MPI_ABI_Status_f2c(const MPI_Fint *f_status, MPI_Status *c_status)
{
    int i;
    if (!c_status || !f_status)
        return MPI_ERR_ARG;
    c_status->MPI_SOURCE = (int)f_status[MPI_F_SOURCE];
    c_status->MPI_TAG = (int)f_status[MPI_F_TAG];
    c_status->MPI_ERROR = (int)f_status[MPI_F_ERROR];
    for (i = 3; i < MPI_F_STATUS_SIZE; i++)
        c_status->MPI_internal[i - 3] = (int)f_status[i];
    return MPI_SUCCESS;
}

MPI_ABI_inline int MPI_ABI_Status_c2f08(const MPI_Status *c_status, MPI_F08_status *f08_status)
{
    return MPI_ABI_Status_c2f(c_status, (MPI_Fint *)f08_status);
}

MPI_ABI_inline int MPI_ABI_Status_f082c(const MPI_F08_status *f08_status, MPI_Status *c_status)
{
    return MPI_ABI_Status_f2c((const MPI_Fint *)f08_status, c_status);
}

MPI_ABI_inline int MPI_ABI_Status_f2f08(const MPI_Fint *f_status, MPI_F08_status *f08_status)
{
    if (!f_status || !f08_status)
        return MPI_ERR_ARG;
    *f08_status = *(const MPI_F08_status *)f_status;
    return MPI_SUCCESS;
}

MPI_ABI_inline int MPI_ABI_Status_f082f(const MPI_F08_status *f08_status, MPI_Fint *f_status)
{
    if (!f_status || !f08_status)
        return MPI_ERR_ARG;
    *(MPI_F08_status *)f_status = *f08_status;
    return MPI_SUCCESS;
}
";

/// Conversions of statuses, which are functions of the header.
const STATUS_CONVERSIONS: [&str; 6] = ["c2f", "f2c", "c2f08", "f082c", "f2f08", "f082f"];

/// The part of the header that converts.
pub fn conversions(standard: &Standard) -> String {
    let mut text = String::from(STATUSES);
    for prefix in ["", "P"] {
        text.push('\n');
        for (name, function) in handles(standard) {
            writeln!(text, "#define {prefix}{name:<24} {prefix}{}", function.name).expect("strings take everything");
        }
        for name in STATUS_CONVERSIONS {
            let name = format!("MPI_Status_{name}");
            writeln!(text, "#define {prefix}{name:<24} {}", name.replacen("MPI_", "MPI_ABI_", 1))
                .expect("strings take everything");
        }
    }
    text
}

/// The conversions of handles, each with the function of the ABI that does the same.
pub fn handles(standard: &Standard) -> impl Iterator<Item = (String, &Function)> {
    standard.functions.iter().filter_map(|function| {
        let ways = [("_toint", "_c2f"), ("_fromint", "_f2c")];
        let (kind, way) = ways.iter().find_map(|(int, way)| Some((function.name.strip_suffix(int)?, way)))?;
        Some((format!("{kind}{way}"), function))
    })
}
