/// `int MPI_Alltoallw_c(const void *sendbuf, const MPI_Count sendcounts[], const MPI_Aint sdispls[], const MPI_Datatype sendtypes[], void *recvbuf, const MPI_Count recvcounts[], const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Alltoallw_c(sendbuf: *const c_void, sendcounts: *const i64, sdispls: *const i64, sendtypes: *const Handle<Datatype>, recvbuf: *mut c_void, recvcounts: *const i64, rdispls: *const i64, recvtypes: *const Handle<Datatype>, comm: Handle<Comm>) -> c_int {
    static CALL: Call = Call { name: "MPI_Alltoallw_c", parameters: &["sendbuf", "sendcounts", "sdispls", "sendtypes", "recvbuf", "recvcounts", "rdispls", "recvtypes", "comm"], any_time: false };
    let face = match Face::enter(&CALL) { Ok(face) => face, Err(code) => return code };
    // SAFETY: the program has passed what the standard demands of each pointer.
    let body = || -> Result<()> { unsafe {
        let comm = check::object::<Comm>(&face, 9, comm)?;
        let sendcounts = check::array(&face, 2, sendcounts, if !is_in_place(sendbuf.cast()) { check::peer_count(&comm) as usize } else { 0 })?;
        let sendcounts = Counts::Large(sendcounts);
        check::none_negative(&face, 2, sendcounts)?;
        let sdispls = check::array(&face, 3, sdispls, if !is_in_place(sendbuf.cast()) { check::peer_count(&comm) as usize } else { 0 })?;
        let sdispls = Counts::Large(sdispls);
        let recvcounts = check::array(&face, 6, recvcounts, check::peer_count(&comm) as usize)?;
        let recvcounts = Counts::Large(recvcounts);
        check::none_negative(&face, 6, recvcounts)?;
        let rdispls = check::array(&face, 7, rdispls, check::peer_count(&comm) as usize)?;
        let rdispls = Counts::Large(rdispls);
        let sendbuf = sendbuf.cast::<u8>();
        let sendtypes = check::array(&face, 4, sendtypes, if !is_in_place(sendbuf.cast()) { check::peer_count(&comm) as usize } else { 0 })?;
        let sendtypes = check::datatypes(&face, 4, sendtypes, |index| sendcounts.at(index) > 0, true)?;
        let recvbuf = recvbuf.cast::<u8>();
        let recvtypes = check::array(&face, 8, recvtypes, check::peer_count(&comm) as usize)?;
        let recvtypes = check::datatypes(&face, 8, recvtypes, |index| recvcounts.at(index) > 0, true)?;
        chapters::coll::alltoallw(&face, sendbuf, sendcounts, sdispls, &sendtypes, recvbuf, recvcounts, rdispls, &recvtypes, &comm)
    } };
    face.finish(body(), Given::Comm(comm.value))
}
