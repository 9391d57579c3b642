/// `int MPI_Get_count(const MPI_Status *status, MPI_Datatype datatype, int *count)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Get_count(status: *const CStatus, datatype: Handle<Datatype>, count: *mut c_int) -> c_int {
    static CALL: Call = Call { name: "MPI_Get_count", parameters: &["status", "datatype", "count"], any_time: false };
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn whole(status: *const CStatus, datatype: Handle<Datatype>, count: *mut c_int) -> c_int {
        let face = match Face::enter_local(&CALL) { Ok(face) => face, Err(code) => return code };
        // SAFETY: the program has passed what the standard demands of each pointer.
        let body = || -> Result<()> { unsafe {
            let datatype = check::object::<Datatype>(&face, 2, datatype)?;
            check::pointer(&face, 1, status)?;
            check::pointer(&face, 3, count)?;
            chapters::status::get_count(&face, &*status, &datatype, CountOut::Small(Out::new(count)))
        } };
        face.finish(body(), Given::Nothing)
    }
    let attempt = || -> Option<()> {
        use crate::face::brief as check;
        let face = Face::for_attempt(&CALL)?;
        // SAFETY: as in the whole call; besides, nothing is freed while objects are looked at.
        unsafe {
            let datatype = check::object::<Datatype>(&face, 2, datatype)?;
            check::pointer(&face, 1, status)?;
            check::pointer(&face, 3, count)?;
            chapters::status::get_count(&face, &*status, &datatype, CountOut::Small(Out::new(count))).ok()
        }
    };
    // SAFETY: passed on.
    if attempt().is_some() { 0 } else { unsafe { whole(status, datatype, count) } }
}
