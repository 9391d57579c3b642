/// `double MPI_Wtime(void)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Wtime() -> f64 {
    chapters::environment::wtime()
}
