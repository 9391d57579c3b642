/// `int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Send(buf: *const c_void, count: c_int, datatype: Handle<Datatype>, dest: c_int, tag: c_int, comm: Handle<Comm>) -> c_int {
    static CALL: Call = Call { name: "MPI_Send", parameters: &["buf", "count", "datatype", "dest", "tag", "comm"], any_time: false };
    #[cold]
    #[inline(never)]
    unsafe extern "C" fn whole(buf: *const c_void, count: c_int, datatype: Handle<Datatype>, dest: c_int, tag: c_int, comm: Handle<Comm>) -> c_int {
        let face = match Face::enter(&CALL) { Ok(face) => face, Err(code) => return code };
        // SAFETY: the program has passed what the standard demands of each pointer.
        let body = || -> Result<()> { unsafe {
            let comm = check::object::<Comm>(&face, 6, comm)?;
            let count = i64::from(count);
            check::not_negative(&face, 2, i64::from(count))?;
            check::destination(&face, 4, dest, &comm)?;
            check::tag(&face, 5, tag)?;
            let datatype = check::datatype(&face, 3, datatype, count)?;
            check::committed(&face, 3, &datatype)?;
            let buf = buf.cast::<u8>();
            check::not_in_place(&face, 1, buf)?;
            check::buffer(&face, 1, buf, count, &datatype)?;
            chapters::p2p::send(&face, buf, count, &datatype, dest, tag, &comm)
        } };
        face.finish(body(), Given::Comm(comm.value))
    }
    let attempt = || -> Option<()> {
        use crate::face::brief as check;
        let face = Face::for_attempt(&CALL)?;
        // SAFETY: as in the whole call; besides, nothing is freed while objects are looked at.
        unsafe {
            let comm = check::object::<Comm>(&face, 6, comm)?;
            let count = i64::from(count);
            check::not_negative(&face, 2, i64::from(count))?;
            check::destination(&face, 4, dest, &comm)?;
            check::tag(&face, 5, tag)?;
            let datatype = check::datatype(&face, 3, datatype, count)?;
            check::committed(&face, 3, &datatype)?;
            let buf = buf.cast::<u8>();
            check::not_in_place(&face, 1, buf)?;
            check::buffer(&face, 1, buf, count, &datatype)?;
            chapters::p2p::send_at_once(&face, buf, count, &datatype, dest, tag, &comm)
        }
    };
    // SAFETY: passed on.
    if attempt().is_some() { 0 } else { unsafe { whole(buf, count, datatype, dest, tag, comm) } }
}
