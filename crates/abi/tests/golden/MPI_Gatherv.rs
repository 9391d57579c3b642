/// `int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Gatherv(sendbuf: *const c_void, sendcount: c_int, sendtype: Handle<Datatype>, recvbuf: *mut c_void, recvcounts: *const c_int, displs: *const c_int, recvtype: Handle<Datatype>, root: c_int, comm: Handle<Comm>) -> c_int {
    static CALL: Call = Call { name: "MPI_Gatherv", parameters: &["sendbuf", "sendcount", "sendtype", "recvbuf", "recvcounts", "displs", "recvtype", "root", "comm"], any_time: false };
    let face = match Face::enter(&CALL) { Ok(face) => face, Err(code) => return code };
    // SAFETY: the program has passed what the standard demands of each pointer.
    let body = || -> Result<()> { unsafe {
        let comm = check::object::<Comm>(&face, 9, comm)?;
        let at_root = check::is_root(root, &comm);
        let sendcount = i64::from(sendcount);
        if check::is_member(root, &comm) && !is_in_place(sendbuf.cast()) { check::not_negative(&face, 2, i64::from(sendcount))?; }
        check::root(&face, 8, root, &comm)?;
        let sendtype = if check::is_member(root, &comm) && !is_in_place(sendbuf.cast()) { check::datatype(&face, 3, sendtype, sendcount)? } else { check::insignificant_datatype(&face, sendtype) };
        if check::is_member(root, &comm) && !is_in_place(sendbuf.cast()) { check::committed(&face, 3, &sendtype)?; }
        let recvcounts = check::array(&face, 5, recvcounts, if at_root { check::peer_count(&comm) as usize } else { 0 })?;
        let recvcounts = Counts::Small(recvcounts);
        check::none_negative(&face, 5, recvcounts)?;
        let displs = check::array(&face, 6, displs, if at_root { check::peer_count(&comm) as usize } else { 0 })?;
        let displs = Counts::Small(displs);
        let recvtype = if at_root { check::object::<Datatype>(&face, 7, recvtype)? } else { check::insignificant_datatype(&face, recvtype) };
        if at_root { check::committed(&face, 7, &recvtype)?; }
        let sendbuf = sendbuf.cast::<u8>();
        if check::is_member(root, &comm) { check::buffer(&face, 1, sendbuf, sendcount, &sendtype)?; }
        let recvbuf = recvbuf.cast::<u8>();
        if at_root { check::not_in_place(&face, 4, recvbuf)?; }
        chapters::coll::gatherv(&face, sendbuf, sendcount, &sendtype, recvbuf, recvcounts, displs, &recvtype, root, &comm)
    } };
    face.finish(body(), Given::Comm(comm.value))
}
