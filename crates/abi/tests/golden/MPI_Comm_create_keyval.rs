/// `int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function *comm_copy_attr_fn, MPI_Comm_delete_attr_function *comm_delete_attr_fn, int *comm_keyval, void *extra_state)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Comm_create_keyval(comm_copy_attr_fn: Option<MPI_Comm_copy_attr_function>, comm_delete_attr_fn: Option<MPI_Comm_delete_attr_function>, comm_keyval: *mut c_int, extra_state: *mut c_void) -> c_int {
    static CALL: Call = Call { name: "MPI_Comm_create_keyval", parameters: &["comm_copy_attr_fn", "comm_delete_attr_fn", "comm_keyval", "extra_state"], any_time: false };
    let face = match Face::enter_local(&CALL) { Ok(face) => face, Err(code) => return code };
    // SAFETY: the program has passed what the standard demands of each pointer.
    let body = || -> Result<()> { unsafe {
        check::pointer(&face, 3, comm_keyval)?;
        chapters::attribute::comm_create_keyval(&face, comm_copy_attr_fn, comm_delete_attr_fn, Out::new(comm_keyval), extra_state)
    } };
    face.finish(body(), Given::Nothing)
}
