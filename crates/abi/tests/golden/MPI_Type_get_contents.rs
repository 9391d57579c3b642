/// `int MPI_Type_get_contents(MPI_Datatype datatype, int max_integers, int max_addresses, int max_datatypes, int array_of_integers[], MPI_Aint array_of_addresses[], MPI_Datatype array_of_datatypes[])`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_Type_get_contents(datatype: Handle<Datatype>, max_integers: c_int, max_addresses: c_int, max_datatypes: c_int, array_of_integers: *mut c_int, array_of_addresses: *mut i64, array_of_datatypes: *mut Handle<Datatype>) -> c_int {
    static CALL: Call = Call { name: "MPI_Type_get_contents", parameters: &["datatype", "max_integers", "max_addresses", "max_datatypes", "array_of_integers", "array_of_addresses", "array_of_datatypes"], any_time: false };
    let face = match Face::enter_local(&CALL) { Ok(face) => face, Err(code) => return code };
    // SAFETY: the program has passed what the standard demands of each pointer.
    let body = || -> Result<()> { unsafe {
        let max_integers = i64::from(max_integers);
        check::not_negative(&face, 2, i64::from(max_integers))?;
        let max_addresses = i64::from(max_addresses);
        check::not_negative(&face, 3, i64::from(max_addresses))?;
        let max_datatypes = i64::from(max_datatypes);
        check::not_negative(&face, 4, i64::from(max_datatypes))?;
        let datatype = check::object::<Datatype>(&face, 1, datatype)?;
        let array_of_integers_len = check::length(&face, 2, i64::from(max_integers))?;
        if array_of_integers_len > 0 { check::pointer(&face, 5, array_of_integers)?; }
        let array_of_addresses_len = check::length(&face, 3, i64::from(max_addresses))?;
        if array_of_addresses_len > 0 { check::pointer(&face, 6, array_of_addresses)?; }
        let array_of_datatypes_len = check::length(&face, 4, i64::from(max_datatypes))?;
        if array_of_datatypes_len > 0 { check::pointer(&face, 7, array_of_datatypes)?; }
        chapters::datatype::type_get_contents(&face, &datatype, max_integers, max_addresses, None, max_datatypes, OutArray::new(array_of_integers, array_of_integers_len), OutArray::new(array_of_addresses, array_of_addresses_len), None, OutArray::new(array_of_datatypes, array_of_datatypes_len))
    } };
    face.finish(body(), Given::Nothing)
}
