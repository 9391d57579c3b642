/// `int MPI_Waitsome(int incount, MPI_Request array_of_requests[], int *outcount, int array_of_indices[], MPI_Status *array_of_statuses)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Waitsome(incount: c_int, array_of_requests: *mut Handle<Request>, outcount: *mut c_int, array_of_indices: *mut c_int, array_of_statuses: *mut CStatus) -> c_int {
    static CALL: Call = Call { name: "MPI_Waitsome", parameters: &["incount", "array_of_requests", "outcount", "array_of_indices", "array_of_statuses"], any_time: false };
    let face = match Face::enter(&CALL) { Ok(face) => face, Err(code) => return code };
    // SAFETY: the program has passed what the standard demands of each pointer.
    let body = || -> Result<()> { unsafe {
        check::not_negative(&face, 1, i64::from(incount))?;
        let array_of_requests_len = check::length(&face, 1, i64::from(incount))?;
        check::requests(&face, 2, check::array(&face, 2, array_of_requests, array_of_requests_len)?)?;
        check::pointer(&face, 3, outcount)?;
        let array_of_indices_len = check::length(&face, 1, i64::from(incount))?;
        if array_of_indices_len > 0 { check::pointer(&face, 4, array_of_indices)?; }
        let array_of_statuses_len = check::length(&face, 1, i64::from(incount))?;
        chapters::request::waitsome(&face, incount, Requests::new(&face, array_of_requests as *mut _, array_of_requests_len), Out::new(outcount), OutArray::new(array_of_indices, array_of_indices_len), StatusesOut::new(array_of_statuses, array_of_statuses_len))
    } };
    face.finish(body(), Given::Nothing)
}
