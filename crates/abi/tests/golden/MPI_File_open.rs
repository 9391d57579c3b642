/// `int MPI_File_open(MPI_Comm comm, const char *filename, int amode, MPI_Info info, MPI_File *fh)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_File_open(comm: Handle<Comm>, filename: *const c_char, amode: c_int, info: Handle<Info>, fh: *mut Handle<File>) -> c_int {
    static CALL: Call = Call { name: "MPI_File_open", parameters: &["comm", "filename", "amode", "info", "fh"], any_time: false };
    let face = match Face::enter(&CALL) { Ok(face) => face, Err(code) => return code };
    face.fail(face.unsupported(), Given::Comm(comm.value))
}
