//! What the data of the standard does not say about single calls.

/// Calls that are legal before initialisation and after finalisation, from any thread.
///
/// MPI: §11.4.1, §11.6
pub const ANY_TIME: &[&str] = &[
    "MPI_Abi_get_fortran_booleans",
    "MPI_Abi_get_fortran_info",
    "MPI_Abi_get_info",
    "MPI_Abi_get_version",
    "MPI_Abi_set_fortran_booleans",
    "MPI_Abi_set_fortran_info",
    "MPI_Add_error_class",
    "MPI_Add_error_code",
    "MPI_Add_error_string",
    "MPI_Error_class",
    "MPI_Error_string",
    "MPI_Finalized",
    "MPI_Get_hw_resource_info",
    "MPI_Get_library_version",
    "MPI_Get_version",
    "MPI_Info_create",
    "MPI_Info_create_env",
    "MPI_Info_delete",
    "MPI_Info_dup",
    "MPI_Info_free",
    "MPI_Info_get",
    "MPI_Info_get_nkeys",
    "MPI_Info_get_nthkey",
    "MPI_Info_get_string",
    "MPI_Info_get_valuelen",
    "MPI_Info_set",
    "MPI_Init",
    "MPI_Init_thread",
    "MPI_Initialized",
    "MPI_Pcontrol",
    "MPI_Remove_error_class",
    "MPI_Remove_error_code",
    "MPI_Remove_error_string",
    "MPI_Session_attach_buffer",
    "MPI_Session_call_errhandler",
    "MPI_Session_create_errhandler",
    "MPI_Session_finalize",
    "MPI_Session_get_errhandler",
    "MPI_Session_get_info",
    "MPI_Session_get_nth_pset",
    "MPI_Session_get_num_psets",
    "MPI_Session_get_pset_info",
    "MPI_Session_init",
    "MPI_Session_set_errhandler",
    "MPI_Group_from_session_pset",
    "MPI_Errhandler_free",
];

/// Of those, the calls that look at nothing but constants and what threads may look at together.
pub const GATELESS: &[&str] =
    &["MPI_Abi_get_version", "MPI_Finalized", "MPI_Get_version", "MPI_Initialized", "MPI_Pcontrol"];

/// Calls that a process with an open session can make before it has met the other processes.
///
/// MPI: §11.3 (a session is opened and asked locally)
pub fn needs_no_others(name: &str) -> bool {
    let families = [
        "MPI_Group_",
        "MPI_Type_",
        "MPI_Op_",
        "MPI_Status_",
        "MPI_Get_elements",
        "MPI_Get_address",
        "MPI_Get_processor_name",
    ];
    families.iter().any(|family| name.starts_with(family))
        || matches!(name, "MPI_Alloc_mem" | "MPI_Free_mem" | "MPI_Get_count" | "MPI_Get_count_c")
        || name.ends_with("_create_errhandler")
        || name.ends_with("_create_keyval")
        || name.ends_with("_free_keyval")
}

/// Calls that look at an object, write what they see and return: they run no code of the user, free nothing and meet nobody.
/// Programs make them often. Others that often need no more have a first attempt of their own, see `build/entries.rs`.
pub const BRIEF: &[&str] = &[
    "MPI_Comm_get_attr",
    "MPI_Comm_rank",
    "MPI_Comm_remote_size",
    "MPI_Comm_size",
    "MPI_Comm_test_inter",
    "MPI_Get_count",
    "MPI_Get_count_c",
    "MPI_Get_elements",
    "MPI_Get_elements_c",
    "MPI_Get_elements_x",
    "MPI_Group_rank",
    "MPI_Group_size",
    "MPI_Pack",
    "MPI_Pack_c",
    "MPI_Pack_size",
    "MPI_Pack_size_c",
    "MPI_Type_get_extent",
    "MPI_Type_get_extent_c",
    "MPI_Type_get_extent_x",
    "MPI_Type_get_true_extent",
    "MPI_Type_get_true_extent_c",
    "MPI_Type_get_true_extent_x",
    "MPI_Type_size",
    "MPI_Type_size_c",
    "MPI_Type_size_x",
    "MPI_Unpack",
    "MPI_Unpack_c",
];

/// Calls that receive: their tag may be a wildcard.
pub fn receives(name: &str) -> bool {
    let receiving = ["MPI_Recv", "MPI_Irecv", "MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe"];
    receiving.iter().any(|call| name == *call || name.strip_prefix(call).is_some_and(|rest| rest.starts_with('_')))
}

/// Calls whose parameter may point nowhere although its kind does not say so.
pub fn may_be_null(function: &str, parameter: &str) -> bool {
    matches!(
        (function, parameter),
        ("MPI_Get_address" | "MPI_Free_mem", _)
            | ("MPI_Init" | "MPI_Init_thread", "argc" | "argv")
            | ("MPI_Comm_get_name" | "MPI_Info_get_string", "value")
            | ("MPI_Session_get_nth_pset", "pset_name")
    ) || function.starts_with("MPI_T_")
}

/// For a handle that matters at the local leader only, the parameter whose rank tells who that is.
pub fn leader_side(function: &str, parameter: &str) -> Option<&'static str> {
    match (function, parameter) {
        ("MPI_Intercomm_create", "peer_comm") => Some("local_comm"),
        ("MPI_Intercomm_create_from_groups", "remote_group") => Some("local_group"),
        _ => None,
    }
}

/// Rust has reserved words that C has not.
pub fn rust_name(name: &str) -> String {
    match name {
        "type" | "in" | "match" | "ref" | "self" | "final" | "where" => format!("{name}_"),
        "..." => "varargs".to_owned(),
        name => name.to_owned(),
    }
}

/// A prototype of the ABI's list as the standard itself has it.
///
/// The list declares the count of partitioned communication as `int`, in two forms; the standard
/// (MPI §4.2.1) has one form, with `MPI_Count`. A caller that passes 64 bits suits both.
pub fn corrected(prototype: &str) -> String {
    prototype.replace("int partitions, int count", "int partitions, MPI_Count count")
}
