//! The error classes of the standard ABI: values, names and texts in one table.
//!
//! MPI: §9.4

/// An MPI error class with the value of the standard ABI.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
#[repr(i32)]
pub enum ErrorClass {
    /// `MPI_ERR_BUFFER`: invalid buffer pointer.
    Buffer = 1,
    /// `MPI_ERR_COUNT`: invalid count argument.
    Count = 2,
    /// `MPI_ERR_TYPE`: invalid datatype.
    Type = 3,
    /// `MPI_ERR_TAG`: invalid tag.
    Tag = 4,
    /// `MPI_ERR_COMM`: invalid communicator.
    Comm = 5,
    /// `MPI_ERR_RANK`: invalid rank.
    Rank = 6,
    /// `MPI_ERR_REQUEST`: invalid request.
    Request = 7,
    /// `MPI_ERR_ROOT`: invalid root.
    Root = 8,
    /// `MPI_ERR_GROUP`: invalid group.
    Group = 9,
    /// `MPI_ERR_OP`: invalid reduction operation.
    Op = 10,
    /// `MPI_ERR_TOPOLOGY`: invalid topology.
    Topology = 11,
    /// `MPI_ERR_DIMS`: invalid dimension argument.
    Dims = 12,
    /// `MPI_ERR_ARG`: invalid argument.
    Arg = 13,
    /// `MPI_ERR_UNKNOWN`: unknown error.
    Unknown = 14,
    /// `MPI_ERR_TRUNCATE`: message truncated on receive.
    Truncate = 15,
    /// `MPI_ERR_OTHER`: known error not in this list.
    Other = 16,
    /// `MPI_ERR_INTERN`: internal error in the library.
    Intern = 17,
    /// `MPI_ERR_PENDING`: pending request.
    Pending = 18,
    /// `MPI_ERR_IN_STATUS`: the error code is in the status.
    InStatus = 19,
    /// `MPI_ERR_ACCESS`: permission denied.
    Access = 20,
    /// `MPI_ERR_AMODE`: invalid access mode.
    Amode = 21,
    /// `MPI_ERR_ASSERT`: invalid assertion.
    Assert = 22,
    /// `MPI_ERR_BAD_FILE`: invalid file name.
    BadFile = 23,
    /// `MPI_ERR_BASE`: invalid base address.
    Base = 24,
    /// `MPI_ERR_CONVERSION`: error in a data conversion function.
    Conversion = 25,
    /// `MPI_ERR_DISP`: invalid displacement.
    Disp = 26,
    /// `MPI_ERR_DUP_DATAREP`: data representation already defined.
    DupDatarep = 27,
    /// `MPI_ERR_FILE_EXISTS`: the file exists.
    FileExists = 28,
    /// `MPI_ERR_FILE_IN_USE`: the file is in use.
    FileInUse = 29,
    /// `MPI_ERR_FILE`: invalid file handle.
    File = 30,
    /// `MPI_ERR_INFO_KEY`: the info key is too long or empty.
    InfoKey = 31,
    /// `MPI_ERR_INFO_NOKEY`: no such key in the info object.
    InfoNokey = 32,
    /// `MPI_ERR_INFO_VALUE`: the info value is too long.
    InfoValue = 33,
    /// `MPI_ERR_INFO`: invalid info object.
    Info = 34,
    /// `MPI_ERR_IO`: input/output error.
    Io = 35,
    /// `MPI_ERR_KEYVAL`: invalid attribute key.
    Keyval = 36,
    /// `MPI_ERR_LOCKTYPE`: invalid lock type.
    Locktype = 37,
    /// `MPI_ERR_NAME`: unknown service name.
    Name = 38,
    /// `MPI_ERR_NO_MEM`: out of memory.
    NoMem = 39,
    /// `MPI_ERR_NOT_SAME`: a collective argument differs between processes.
    NotSame = 40,
    /// `MPI_ERR_NO_SPACE`: no space left on the device.
    NoSpace = 41,
    /// `MPI_ERR_NO_SUCH_FILE`: no such file.
    NoSuchFile = 42,
    /// `MPI_ERR_PORT`: invalid port name.
    Port = 43,
    /// `MPI_ERR_QUOTA`: quota exceeded.
    Quota = 44,
    /// `MPI_ERR_READ_ONLY`: read-only file or file system.
    ReadOnly = 45,
    /// `MPI_ERR_RMA_ATTACH`: memory cannot be attached.
    RmaAttach = 46,
    /// `MPI_ERR_RMA_CONFLICT`: conflicting accesses to a window.
    RmaConflict = 47,
    /// `MPI_ERR_RMA_RANGE`: target memory is not part of the window.
    RmaRange = 48,
    /// `MPI_ERR_RMA_SHARED`: memory cannot be shared.
    RmaShared = 49,
    /// `MPI_ERR_RMA_SYNC`: wrong synchronization of window calls.
    RmaSync = 50,
    /// `MPI_ERR_SERVICE`: cannot unpublish the service name.
    Service = 51,
    /// `MPI_ERR_SIZE`: invalid size.
    Size = 52,
    /// `MPI_ERR_SPAWN`: cannot start processes.
    Spawn = 53,
    /// `MPI_ERR_UNSUPPORTED_DATAREP`: unsupported data representation.
    UnsupportedDatarep = 54,
    /// `MPI_ERR_UNSUPPORTED_OPERATION`: unsupported operation.
    UnsupportedOperation = 55,
    /// `MPI_ERR_WIN`: invalid window.
    Win = 56,
    /// `MPI_ERR_RMA_FLAVOR`: wrong flavor of window for this call.
    RmaFlavor = 57,
    /// `MPI_ERR_PROC_ABORTED`: a process has aborted.
    ProcAborted = 58,
    /// `MPI_ERR_VALUE_TOO_LARGE`: the value does not fit into the output argument.
    ValueTooLarge = 59,
    /// `MPI_ERR_SESSION`: invalid session.
    Session = 60,
    /// `MPI_ERR_ERRHANDLER`: invalid error handler.
    Errhandler = 61,
    /// `MPI_ERR_ABI`: error in the ABI settings.
    Abi = 62,
    /// `MPI_T_ERR_CANNOT_INIT`: the tool interface cannot be initialized.
    ToolCannotInit = 1001,
    /// `MPI_T_ERR_NOT_ACCESSIBLE`: the tool interface is not accessible now.
    ToolNotAccessible = 1002,
    /// `MPI_T_ERR_NOT_INITIALIZED`: the tool interface is not initialized.
    ToolNotInitialized = 1003,
    /// `MPI_T_ERR_NOT_SUPPORTED`: not supported by the tool interface.
    ToolNotSupported = 1004,
    /// `MPI_T_ERR_MEMORY`: out of memory in the tool interface.
    ToolMemory = 1005,
    /// `MPI_T_ERR_INVALID`: invalid use of the tool interface.
    ToolInvalid = 1006,
    /// `MPI_T_ERR_INVALID_INDEX`: invalid tool index.
    ToolInvalidIndex = 1007,
    /// `MPI_T_ERR_INVALID_ITEM`: invalid tool item.
    ToolInvalidItem = 1008,
    /// `MPI_T_ERR_INVALID_SESSION`: invalid tool session.
    ToolInvalidSession = 1009,
    /// `MPI_T_ERR_INVALID_HANDLE`: invalid tool handle.
    ToolInvalidHandle = 1010,
    /// `MPI_T_ERR_INVALID_NAME`: unknown tool variable or category.
    ToolInvalidName = 1011,
    /// `MPI_T_ERR_OUT_OF_HANDLES`: no more tool handles.
    ToolOutOfHandles = 1012,
    /// `MPI_T_ERR_OUT_OF_SESSIONS`: no more tool sessions.
    ToolOutOfSessions = 1013,
    /// `MPI_T_ERR_CVAR_SET_NOT_NOW`: the control variable cannot be set at this moment.
    ToolCvarSetNotNow = 1014,
    /// `MPI_T_ERR_CVAR_SET_NEVER`: the control variable can never be set.
    ToolCvarSetNever = 1015,
    /// `MPI_T_ERR_PVAR_NO_WRITE`: the performance variable cannot be written.
    ToolPvarNoWrite = 1016,
    /// `MPI_T_ERR_PVAR_NO_STARTSTOP`: the performance variable cannot be started or stopped.
    ToolPvarNoStartstop = 1017,
    /// `MPI_T_ERR_PVAR_NO_ATOMIC`: the performance variable cannot be read and reset at once.
    ToolPvarNoAtomic = 1018,
}

/// Every class with its standard name and a short text, in order of value.
const CLASSES: [(ErrorClass, &str, &str); 80] = [
    (ErrorClass::Buffer, "MPI_ERR_BUFFER", "invalid buffer pointer"),
    (ErrorClass::Count, "MPI_ERR_COUNT", "invalid count argument"),
    (ErrorClass::Type, "MPI_ERR_TYPE", "invalid datatype"),
    (ErrorClass::Tag, "MPI_ERR_TAG", "invalid tag"),
    (ErrorClass::Comm, "MPI_ERR_COMM", "invalid communicator"),
    (ErrorClass::Rank, "MPI_ERR_RANK", "invalid rank"),
    (ErrorClass::Request, "MPI_ERR_REQUEST", "invalid request"),
    (ErrorClass::Root, "MPI_ERR_ROOT", "invalid root"),
    (ErrorClass::Group, "MPI_ERR_GROUP", "invalid group"),
    (ErrorClass::Op, "MPI_ERR_OP", "invalid reduction operation"),
    (ErrorClass::Topology, "MPI_ERR_TOPOLOGY", "invalid topology"),
    (ErrorClass::Dims, "MPI_ERR_DIMS", "invalid dimension argument"),
    (ErrorClass::Arg, "MPI_ERR_ARG", "invalid argument"),
    (ErrorClass::Unknown, "MPI_ERR_UNKNOWN", "unknown error"),
    (ErrorClass::Truncate, "MPI_ERR_TRUNCATE", "message truncated on receive"),
    (ErrorClass::Other, "MPI_ERR_OTHER", "known error not in this list"),
    (ErrorClass::Intern, "MPI_ERR_INTERN", "internal error in the library"),
    (ErrorClass::Pending, "MPI_ERR_PENDING", "pending request"),
    (ErrorClass::InStatus, "MPI_ERR_IN_STATUS", "the error code is in the status"),
    (ErrorClass::Access, "MPI_ERR_ACCESS", "permission denied"),
    (ErrorClass::Amode, "MPI_ERR_AMODE", "invalid access mode"),
    (ErrorClass::Assert, "MPI_ERR_ASSERT", "invalid assertion"),
    (ErrorClass::BadFile, "MPI_ERR_BAD_FILE", "invalid file name"),
    (ErrorClass::Base, "MPI_ERR_BASE", "invalid base address"),
    (ErrorClass::Conversion, "MPI_ERR_CONVERSION", "error in a data conversion function"),
    (ErrorClass::Disp, "MPI_ERR_DISP", "invalid displacement"),
    (ErrorClass::DupDatarep, "MPI_ERR_DUP_DATAREP", "data representation already defined"),
    (ErrorClass::FileExists, "MPI_ERR_FILE_EXISTS", "the file exists"),
    (ErrorClass::FileInUse, "MPI_ERR_FILE_IN_USE", "the file is in use"),
    (ErrorClass::File, "MPI_ERR_FILE", "invalid file handle"),
    (ErrorClass::InfoKey, "MPI_ERR_INFO_KEY", "the info key is too long or empty"),
    (ErrorClass::InfoNokey, "MPI_ERR_INFO_NOKEY", "no such key in the info object"),
    (ErrorClass::InfoValue, "MPI_ERR_INFO_VALUE", "the info value is too long"),
    (ErrorClass::Info, "MPI_ERR_INFO", "invalid info object"),
    (ErrorClass::Io, "MPI_ERR_IO", "input/output error"),
    (ErrorClass::Keyval, "MPI_ERR_KEYVAL", "invalid attribute key"),
    (ErrorClass::Locktype, "MPI_ERR_LOCKTYPE", "invalid lock type"),
    (ErrorClass::Name, "MPI_ERR_NAME", "unknown service name"),
    (ErrorClass::NoMem, "MPI_ERR_NO_MEM", "out of memory"),
    (ErrorClass::NotSame, "MPI_ERR_NOT_SAME", "a collective argument differs between processes"),
    (ErrorClass::NoSpace, "MPI_ERR_NO_SPACE", "no space left on the device"),
    (ErrorClass::NoSuchFile, "MPI_ERR_NO_SUCH_FILE", "no such file"),
    (ErrorClass::Port, "MPI_ERR_PORT", "invalid port name"),
    (ErrorClass::Quota, "MPI_ERR_QUOTA", "quota exceeded"),
    (ErrorClass::ReadOnly, "MPI_ERR_READ_ONLY", "read-only file or file system"),
    (ErrorClass::RmaAttach, "MPI_ERR_RMA_ATTACH", "memory cannot be attached"),
    (ErrorClass::RmaConflict, "MPI_ERR_RMA_CONFLICT", "conflicting accesses to a window"),
    (ErrorClass::RmaRange, "MPI_ERR_RMA_RANGE", "target memory is not part of the window"),
    (ErrorClass::RmaShared, "MPI_ERR_RMA_SHARED", "memory cannot be shared"),
    (ErrorClass::RmaSync, "MPI_ERR_RMA_SYNC", "wrong synchronization of window calls"),
    (ErrorClass::Service, "MPI_ERR_SERVICE", "cannot unpublish the service name"),
    (ErrorClass::Size, "MPI_ERR_SIZE", "invalid size"),
    (ErrorClass::Spawn, "MPI_ERR_SPAWN", "cannot start processes"),
    (ErrorClass::UnsupportedDatarep, "MPI_ERR_UNSUPPORTED_DATAREP", "unsupported data representation"),
    (ErrorClass::UnsupportedOperation, "MPI_ERR_UNSUPPORTED_OPERATION", "unsupported operation"),
    (ErrorClass::Win, "MPI_ERR_WIN", "invalid window"),
    (ErrorClass::RmaFlavor, "MPI_ERR_RMA_FLAVOR", "wrong flavor of window for this call"),
    (ErrorClass::ProcAborted, "MPI_ERR_PROC_ABORTED", "a process has aborted"),
    (ErrorClass::ValueTooLarge, "MPI_ERR_VALUE_TOO_LARGE", "the value does not fit into the output argument"),
    (ErrorClass::Session, "MPI_ERR_SESSION", "invalid session"),
    (ErrorClass::Errhandler, "MPI_ERR_ERRHANDLER", "invalid error handler"),
    (ErrorClass::Abi, "MPI_ERR_ABI", "error in the ABI settings"),
    (ErrorClass::ToolCannotInit, "MPI_T_ERR_CANNOT_INIT", "the tool interface cannot be initialized"),
    (ErrorClass::ToolNotAccessible, "MPI_T_ERR_NOT_ACCESSIBLE", "the tool interface is not accessible now"),
    (ErrorClass::ToolNotInitialized, "MPI_T_ERR_NOT_INITIALIZED", "the tool interface is not initialized"),
    (ErrorClass::ToolNotSupported, "MPI_T_ERR_NOT_SUPPORTED", "not supported by the tool interface"),
    (ErrorClass::ToolMemory, "MPI_T_ERR_MEMORY", "out of memory in the tool interface"),
    (ErrorClass::ToolInvalid, "MPI_T_ERR_INVALID", "invalid use of the tool interface"),
    (ErrorClass::ToolInvalidIndex, "MPI_T_ERR_INVALID_INDEX", "invalid tool index"),
    (ErrorClass::ToolInvalidItem, "MPI_T_ERR_INVALID_ITEM", "invalid tool item"),
    (ErrorClass::ToolInvalidSession, "MPI_T_ERR_INVALID_SESSION", "invalid tool session"),
    (ErrorClass::ToolInvalidHandle, "MPI_T_ERR_INVALID_HANDLE", "invalid tool handle"),
    (ErrorClass::ToolInvalidName, "MPI_T_ERR_INVALID_NAME", "unknown tool variable or category"),
    (ErrorClass::ToolOutOfHandles, "MPI_T_ERR_OUT_OF_HANDLES", "no more tool handles"),
    (ErrorClass::ToolOutOfSessions, "MPI_T_ERR_OUT_OF_SESSIONS", "no more tool sessions"),
    (ErrorClass::ToolCvarSetNotNow, "MPI_T_ERR_CVAR_SET_NOT_NOW", "the control variable cannot be set at this moment"),
    (ErrorClass::ToolCvarSetNever, "MPI_T_ERR_CVAR_SET_NEVER", "the control variable can never be set"),
    (ErrorClass::ToolPvarNoWrite, "MPI_T_ERR_PVAR_NO_WRITE", "the performance variable cannot be written"),
    (
        ErrorClass::ToolPvarNoStartstop,
        "MPI_T_ERR_PVAR_NO_STARTSTOP",
        "the performance variable cannot be started or stopped",
    ),
    (
        ErrorClass::ToolPvarNoAtomic,
        "MPI_T_ERR_PVAR_NO_ATOMIC",
        "the performance variable cannot be read and reset at once",
    ),
];

impl ErrorClass {
    /// The value of the standard ABI.
    pub const fn value(self) -> i32 {
        self as i32
    }

    /// The class with this ABI value, if it is a predefined one other than success.
    pub fn from_value(value: i32) -> Option<Self> {
        let at = CLASSES.binary_search_by_key(&value, |(class, _, _)| class.value()).ok()?;
        Some(CLASSES[at].0)
    }

    /// The name in the standard, for instance `MPI_ERR_TRUNCATE`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// A few words of explanation without the name.
    pub fn text(self) -> &'static str {
        self.row().2
    }

    /// All predefined classes in order of value, success excluded.
    pub fn all() -> impl Iterator<Item = ErrorClass> {
        CLASSES.iter().map(|(class, _, _)| *class)
    }

    fn row(self) -> &'static (ErrorClass, &'static str, &'static str) {
        let at = CLASSES
            .binary_search_by_key(&self.value(), |(class, _, _)| class.value())
            .expect("the table lists every class");
        &CLASSES[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_standard() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../standard/abi.json");
        let text = std::fs::read_to_string(path).unwrap();
        let abi: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut seen = 0;
        for pair in abi["integers"].as_array().unwrap() {
            let name = pair[0].as_str().unwrap();
            let value = pair[1].as_i64().unwrap() as i32;
            let is_class = name.starts_with("MPI_ERR_") || name.starts_with("MPI_T_ERR_");
            if !is_class || name == "MPI_ERR_LASTCODE" {
                continue;
            }
            let class = ErrorClass::from_value(value).expect(name);
            assert_eq!(class.name(), name);
            assert_eq!(class.value(), value);
            assert!(!class.text().is_empty());
            seen += 1;
        }
        assert_eq!(seen, ErrorClass::all().count());
        assert!(CLASSES.is_sorted_by_key(|(class, _, _)| class.value()));
    }

    #[test]
    fn success_and_unknown_values_are_no_class() {
        for value in [0, -1, 63, 1000, 1019, 16383, i32::MAX] {
            assert_eq!(ErrorClass::from_value(value), None);
        }
    }
}
