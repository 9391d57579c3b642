//! The predefined datatypes of the standard, one variant for each handle of its ABI.
//!
//! The facts about each type stand in one table, ordered by handle value; a test holds it against `standard/abi.json`.

/// A predefined datatype.
///
/// MPI: §3.2.2, §6.9.4 (pair types), §20 (handle values)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Basic {
    /// `MPI_AINT`
    Aint,
    /// `MPI_COUNT`
    Count,
    /// `MPI_OFFSET`
    Offset,
    /// `MPI_PACKED`
    Packed,
    /// `MPI_SHORT`
    Short,
    /// `MPI_INT`
    Int,
    /// `MPI_LONG`
    Long,
    /// `MPI_LONG_LONG_INT`, also `MPI_LONG_LONG`
    LongLong,
    /// `MPI_UNSIGNED_SHORT`
    UnsignedShort,
    /// `MPI_UNSIGNED`
    Unsigned,
    /// `MPI_UNSIGNED_LONG`
    UnsignedLong,
    /// `MPI_UNSIGNED_LONG_LONG`
    UnsignedLongLong,
    /// `MPI_FLOAT`
    Float,
    /// `MPI_C_COMPLEX`, also `MPI_C_FLOAT_COMPLEX`
    CFloatComplex,
    /// `MPI_CXX_FLOAT_COMPLEX`
    CxxFloatComplex,
    /// `MPI_DOUBLE`
    Double,
    /// `MPI_C_DOUBLE_COMPLEX`
    CDoubleComplex,
    /// `MPI_CXX_DOUBLE_COMPLEX`
    CxxDoubleComplex,
    /// `MPI_LOGICAL`
    Logical,
    /// `MPI_INTEGER`
    Integer,
    /// `MPI_REAL`
    Real,
    /// `MPI_COMPLEX`
    Complex,
    /// `MPI_DOUBLE_PRECISION`
    DoublePrecision,
    /// `MPI_DOUBLE_COMPLEX`
    DoubleComplex,
    /// `MPI_CHARACTER`
    Character,
    /// `MPI_LONG_DOUBLE`
    LongDouble,
    /// `MPI_C_LONG_DOUBLE_COMPLEX`
    CLongDoubleComplex,
    /// `MPI_CXX_LONG_DOUBLE_COMPLEX`
    CxxLongDoubleComplex,
    /// `MPI_FLOAT_INT`
    FloatInt,
    /// `MPI_DOUBLE_INT`
    DoubleInt,
    /// `MPI_LONG_INT`
    LongInt,
    /// `MPI_2INT`
    TwoInt,
    /// `MPI_SHORT_INT`
    ShortInt,
    /// `MPI_LONG_DOUBLE_INT`
    LongDoubleInt,
    /// `MPI_2REAL`
    TwoReal,
    /// `MPI_2DOUBLE_PRECISION`
    TwoDoublePrecision,
    /// `MPI_2INTEGER`
    TwoInteger,
    /// `MPI_C_BOOL`
    CBool,
    /// `MPI_CXX_BOOL`
    CxxBool,
    /// `MPI_WCHAR`
    Wchar,
    /// `MPI_INT8_T`
    Int8,
    /// `MPI_UINT8_T`
    Uint8,
    /// `MPI_CHAR`
    Char,
    /// `MPI_SIGNED_CHAR`
    SignedChar,
    /// `MPI_UNSIGNED_CHAR`
    UnsignedChar,
    /// `MPI_BYTE`
    Byte,
    /// `MPI_INT16_T`
    Int16,
    /// `MPI_UINT16_T`
    Uint16,
    /// `MPI_INT32_T`
    Int32,
    /// `MPI_UINT32_T`
    Uint32,
    /// `MPI_INT64_T`
    Int64,
    /// `MPI_UINT64_T`
    Uint64,
    /// `MPI_LOGICAL1`
    Logical1,
    /// `MPI_INTEGER1`
    Integer1,
    /// `MPI_LOGICAL2`
    Logical2,
    /// `MPI_INTEGER2`
    Integer2,
    /// `MPI_REAL2`
    Real2,
    /// `MPI_LOGICAL4`
    Logical4,
    /// `MPI_INTEGER4`
    Integer4,
    /// `MPI_REAL4`
    Real4,
    /// `MPI_COMPLEX4`
    Complex4,
    /// `MPI_LOGICAL8`
    Logical8,
    /// `MPI_INTEGER8`
    Integer8,
    /// `MPI_REAL8`
    Real8,
    /// `MPI_COMPLEX8`
    Complex8,
    /// `MPI_LOGICAL16`
    Logical16,
    /// `MPI_INTEGER16`
    Integer16,
    /// `MPI_REAL16`
    Real16,
    /// `MPI_COMPLEX16`
    Complex16,
    /// `MPI_COMPLEX32`
    Complex32,
}

/// The group of types that the standard's tables of reduction operations speak of.
///
/// MPI: §6.9.2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// C integers, fixed-width ones included.
    CInteger,
    /// Fortran `INTEGER`, sized ones included.
    FortranInteger,
    /// Real numbers of either language.
    Floating,
    /// Fortran `LOGICAL` and the C and C++ booleans.
    Logical,
    /// Complex numbers of any language.
    Complex,
    /// `MPI_BYTE`.
    Byte,
    /// `MPI_AINT`, `MPI_OFFSET`, `MPI_COUNT`.
    MultiLanguage,
    /// Printable characters, which are not numbers.
    Character,
    /// `MPI_PACKED`.
    Packed,
    /// A value followed by an index, for `MPI_MINLOC` and `MPI_MAXLOC`.
    Pair,
}

/// How the bytes of a number are to be read; its width follows from the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Signed,
    Unsigned,
    /// IEEE binary floating point of 2, 4, 8 or 16 bytes.
    Float,
    /// C's `long double`: the x87 format in 16 bytes, or IEEE quadruple precision, by platform.
    LongDouble,
    /// One byte that holds 0 or 1.
    Boolean,
    /// Zero is false; whichever other value the Fortran compiler uses is true.
    FortranLogical,
    Opaque,
}

/// One row of the table.
struct Row {
    basic: Basic,
    name: &'static str,
    abi_handle: usize,
    size_bytes: u8,
    alignment_bytes: u8,
    class: Class,
    scalar: Scalar,
}

impl Basic {
    /// How many there are.
    pub(crate) const KINDS: usize = 70;

    /// Every predefined datatype, in the order of handle values.
    pub fn all() -> impl ExactSizeIterator<Item = Basic> {
        TABLE.iter().map(|row| row.basic)
    }

    /// The bytes of data in one element; the gap inside or after a pair is not data.
    #[inline]
    pub fn size(self) -> u64 {
        u64::from(self.row().size_bytes)
    }

    /// The alignment in bytes that a C or Fortran compiler gives the type.
    #[inline]
    pub fn alignment(self) -> u64 {
        u64::from(self.row().alignment_bytes)
    }

    /// The distance in bytes from one element to the next in an array.
    pub fn extent(self) -> i64 {
        match self {
            Basic::ShortInt => 8,
            Basic::DoubleInt | Basic::LongInt => 16,
            Basic::LongDoubleInt => 32,
            _ => i64::from(self.row().size_bytes),
        }
    }

    /// The name of the handle, such as `"MPI_INT"`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The value of the handle in the standard ABI.
    pub fn abi_handle(self) -> usize {
        self.row().abi_handle
    }

    /// The predefined datatype whose handle has this value in the standard ABI.
    pub fn from_abi_handle(handle: usize) -> Option<Basic> {
        let index = TABLE.binary_search_by_key(&handle, |row| row.abi_handle).ok()?;
        Some(TABLE[index].basic)
    }

    /// The group the type belongs to in the standard's tables of reductions.
    pub fn class(self) -> Class {
        self.row().class
    }

    /// The types of the value and of the index of a pair type.
    ///
    /// MPI: §6.9.4
    pub fn pair_parts(self) -> Option<(Basic, Basic)> {
        PAIRS.iter().find(|(pair, _, _)| *pair == self).map(|&(_, value, index)| (value, index))
    }

    /// The predefined pair of the given value and index types, if there is one.
    ///
    /// MPI: §6.9.4, `MPI_Type_get_value_index`
    pub fn pair_of(value: Basic, index: Basic) -> Option<Basic> {
        PAIRS.iter().find(|(_, v, i)| *v == value && *i == index).map(|&(pair, _, _)| pair)
    }

    /// The predefined datatype of the given type class and size in bytes, preferring Fortran's sized types.
    ///
    /// MPI: §19.1.9, `MPI_Type_match_size`
    pub fn match_size(class: SizedClass, size_bytes: u64) -> Option<Basic> {
        let candidates: &[Basic] = match class {
            SizedClass::Logical => {
                &[Basic::Logical1, Basic::Logical2, Basic::Logical4, Basic::Logical8, Basic::Logical16]
            }
            SizedClass::Integer => {
                &[Basic::Integer1, Basic::Integer2, Basic::Integer4, Basic::Integer8, Basic::Integer16]
            }
            SizedClass::Real => &[Basic::Real2, Basic::Real4, Basic::Real8, Basic::Real16],
            SizedClass::Complex => &[Basic::Complex4, Basic::Complex8, Basic::Complex16, Basic::Complex32],
        };
        candidates.iter().copied().find(|basic| basic.size() == size_bytes)
    }

    /// Where the index of a pair stands, in bytes from the value.
    pub(crate) fn pair_index_displacement(self) -> Option<i64> {
        let (value, index) = self.pair_parts()?;
        Some(value.size().next_multiple_of(index.alignment()) as i64)
    }

    pub(crate) fn scalar(self) -> Scalar {
        self.row().scalar
    }

    #[inline]
    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

/// The classes `MPI_Type_match_size` chooses from.
///
/// MPI: §19.1.9
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizedClass {
    /// `MPI_TYPECLASS_LOGICAL`
    Logical,
    /// `MPI_TYPECLASS_INTEGER`
    Integer,
    /// `MPI_TYPECLASS_REAL`
    Real,
    /// `MPI_TYPECLASS_COMPLEX`
    Complex,
}

/// Pair type, type of its value, type of its index.
const PAIRS: [(Basic, Basic, Basic); 9] = [
    (Basic::FloatInt, Basic::Float, Basic::Int),
    (Basic::DoubleInt, Basic::Double, Basic::Int),
    (Basic::LongInt, Basic::Long, Basic::Int),
    (Basic::TwoInt, Basic::Int, Basic::Int),
    (Basic::ShortInt, Basic::Short, Basic::Int),
    (Basic::LongDoubleInt, Basic::LongDouble, Basic::Int),
    (Basic::TwoReal, Basic::Real, Basic::Real),
    (Basic::TwoDoublePrecision, Basic::DoublePrecision, Basic::DoublePrecision),
    (Basic::TwoInteger, Basic::Integer, Basic::Integer),
];

const fn row(
    basic: Basic,
    name: &'static str,
    abi_handle: usize,
    size_bytes: u8,
    alignment_bytes: u8,
    class: Class,
    scalar: Scalar,
) -> Row {
    Row { basic, name, abi_handle, size_bytes, alignment_bytes, class, scalar }
}

/// Ordered by handle value, and therefore by variant.
#[rustfmt::skip]
static TABLE: [Row; Basic::KINDS] = [
    row(Basic::Aint, "MPI_AINT", 0x201, 8, 8, Class::MultiLanguage, Scalar::Signed),
    row(Basic::Count, "MPI_COUNT", 0x202, 8, 8, Class::MultiLanguage, Scalar::Signed),
    row(Basic::Offset, "MPI_OFFSET", 0x203, 8, 8, Class::MultiLanguage, Scalar::Signed),
    row(Basic::Packed, "MPI_PACKED", 0x207, 1, 1, Class::Packed, Scalar::Opaque),
    row(Basic::Short, "MPI_SHORT", 0x208, 2, 2, Class::CInteger, Scalar::Signed),
    row(Basic::Int, "MPI_INT", 0x209, 4, 4, Class::CInteger, Scalar::Signed),
    row(Basic::Long, "MPI_LONG", 0x20a, 8, 8, Class::CInteger, Scalar::Signed),
    row(Basic::LongLong, "MPI_LONG_LONG_INT", 0x20b, 8, 8, Class::CInteger, Scalar::Signed),
    row(Basic::UnsignedShort, "MPI_UNSIGNED_SHORT", 0x20c, 2, 2, Class::CInteger, Scalar::Unsigned),
    row(Basic::Unsigned, "MPI_UNSIGNED", 0x20d, 4, 4, Class::CInteger, Scalar::Unsigned),
    row(Basic::UnsignedLong, "MPI_UNSIGNED_LONG", 0x20e, 8, 8, Class::CInteger, Scalar::Unsigned),
    row(Basic::UnsignedLongLong, "MPI_UNSIGNED_LONG_LONG", 0x20f, 8, 8, Class::CInteger, Scalar::Unsigned),
    row(Basic::Float, "MPI_FLOAT", 0x210, 4, 4, Class::Floating, Scalar::Float),
    row(Basic::CFloatComplex, "MPI_C_COMPLEX", 0x212, 8, 4, Class::Complex, Scalar::Float),
    row(Basic::CxxFloatComplex, "MPI_CXX_FLOAT_COMPLEX", 0x213, 8, 4, Class::Complex, Scalar::Float),
    row(Basic::Double, "MPI_DOUBLE", 0x214, 8, 8, Class::Floating, Scalar::Float),
    row(Basic::CDoubleComplex, "MPI_C_DOUBLE_COMPLEX", 0x216, 16, 8, Class::Complex, Scalar::Float),
    row(Basic::CxxDoubleComplex, "MPI_CXX_DOUBLE_COMPLEX", 0x217, 16, 8, Class::Complex, Scalar::Float),
    row(Basic::Logical, "MPI_LOGICAL", 0x218, 4, 4, Class::Logical, Scalar::FortranLogical),
    row(Basic::Integer, "MPI_INTEGER", 0x219, 4, 4, Class::FortranInteger, Scalar::Signed),
    row(Basic::Real, "MPI_REAL", 0x21a, 4, 4, Class::Floating, Scalar::Float),
    row(Basic::Complex, "MPI_COMPLEX", 0x21b, 8, 4, Class::Complex, Scalar::Float),
    row(Basic::DoublePrecision, "MPI_DOUBLE_PRECISION", 0x21c, 8, 8, Class::Floating, Scalar::Float),
    row(Basic::DoubleComplex, "MPI_DOUBLE_COMPLEX", 0x21d, 16, 8, Class::Complex, Scalar::Float),
    row(Basic::Character, "MPI_CHARACTER", 0x21e, 1, 1, Class::Character, Scalar::Opaque),
    row(Basic::LongDouble, "MPI_LONG_DOUBLE", 0x220, 16, 16, Class::Floating, Scalar::LongDouble),
    row(Basic::CLongDoubleComplex, "MPI_C_LONG_DOUBLE_COMPLEX", 0x224, 32, 16, Class::Complex, Scalar::LongDouble),
    row(Basic::CxxLongDoubleComplex, "MPI_CXX_LONG_DOUBLE_COMPLEX", 0x225, 32, 16, Class::Complex, Scalar::LongDouble),
    row(Basic::FloatInt, "MPI_FLOAT_INT", 0x228, 8, 4, Class::Pair, Scalar::Opaque),
    row(Basic::DoubleInt, "MPI_DOUBLE_INT", 0x229, 12, 8, Class::Pair, Scalar::Opaque),
    row(Basic::LongInt, "MPI_LONG_INT", 0x22a, 12, 8, Class::Pair, Scalar::Opaque),
    row(Basic::TwoInt, "MPI_2INT", 0x22b, 8, 4, Class::Pair, Scalar::Opaque),
    row(Basic::ShortInt, "MPI_SHORT_INT", 0x22c, 6, 4, Class::Pair, Scalar::Opaque),
    row(Basic::LongDoubleInt, "MPI_LONG_DOUBLE_INT", 0x22d, 20, 16, Class::Pair, Scalar::Opaque),
    row(Basic::TwoReal, "MPI_2REAL", 0x230, 8, 4, Class::Pair, Scalar::Opaque),
    row(Basic::TwoDoublePrecision, "MPI_2DOUBLE_PRECISION", 0x231, 16, 8, Class::Pair, Scalar::Opaque),
    row(Basic::TwoInteger, "MPI_2INTEGER", 0x232, 8, 4, Class::Pair, Scalar::Opaque),
    row(Basic::CBool, "MPI_C_BOOL", 0x238, 1, 1, Class::Logical, Scalar::Boolean),
    row(Basic::CxxBool, "MPI_CXX_BOOL", 0x239, 1, 1, Class::Logical, Scalar::Boolean),
    row(Basic::Wchar, "MPI_WCHAR", 0x23c, 4, 4, Class::Character, Scalar::Unsigned),
    row(Basic::Int8, "MPI_INT8_T", 0x240, 1, 1, Class::CInteger, Scalar::Signed),
    row(Basic::Uint8, "MPI_UINT8_T", 0x241, 1, 1, Class::CInteger, Scalar::Unsigned),
    row(Basic::Char, "MPI_CHAR", 0x243, 1, 1, Class::Character, Scalar::Signed),
    row(Basic::SignedChar, "MPI_SIGNED_CHAR", 0x244, 1, 1, Class::CInteger, Scalar::Signed),
    row(Basic::UnsignedChar, "MPI_UNSIGNED_CHAR", 0x245, 1, 1, Class::CInteger, Scalar::Unsigned),
    row(Basic::Byte, "MPI_BYTE", 0x247, 1, 1, Class::Byte, Scalar::Unsigned),
    row(Basic::Int16, "MPI_INT16_T", 0x248, 2, 2, Class::CInteger, Scalar::Signed),
    row(Basic::Uint16, "MPI_UINT16_T", 0x249, 2, 2, Class::CInteger, Scalar::Unsigned),
    row(Basic::Int32, "MPI_INT32_T", 0x250, 4, 4, Class::CInteger, Scalar::Signed),
    row(Basic::Uint32, "MPI_UINT32_T", 0x251, 4, 4, Class::CInteger, Scalar::Unsigned),
    row(Basic::Int64, "MPI_INT64_T", 0x258, 8, 8, Class::CInteger, Scalar::Signed),
    row(Basic::Uint64, "MPI_UINT64_T", 0x259, 8, 8, Class::CInteger, Scalar::Unsigned),
    row(Basic::Logical1, "MPI_LOGICAL1", 0x2c0, 1, 1, Class::Logical, Scalar::FortranLogical),
    row(Basic::Integer1, "MPI_INTEGER1", 0x2c1, 1, 1, Class::FortranInteger, Scalar::Signed),
    row(Basic::Logical2, "MPI_LOGICAL2", 0x2c8, 2, 2, Class::Logical, Scalar::FortranLogical),
    row(Basic::Integer2, "MPI_INTEGER2", 0x2c9, 2, 2, Class::FortranInteger, Scalar::Signed),
    row(Basic::Real2, "MPI_REAL2", 0x2ca, 2, 2, Class::Floating, Scalar::Float),
    row(Basic::Logical4, "MPI_LOGICAL4", 0x2d0, 4, 4, Class::Logical, Scalar::FortranLogical),
    row(Basic::Integer4, "MPI_INTEGER4", 0x2d1, 4, 4, Class::FortranInteger, Scalar::Signed),
    row(Basic::Real4, "MPI_REAL4", 0x2d2, 4, 4, Class::Floating, Scalar::Float),
    row(Basic::Complex4, "MPI_COMPLEX4", 0x2d3, 4, 2, Class::Complex, Scalar::Float),
    row(Basic::Logical8, "MPI_LOGICAL8", 0x2d8, 8, 8, Class::Logical, Scalar::FortranLogical),
    row(Basic::Integer8, "MPI_INTEGER8", 0x2d9, 8, 8, Class::FortranInteger, Scalar::Signed),
    row(Basic::Real8, "MPI_REAL8", 0x2da, 8, 8, Class::Floating, Scalar::Float),
    row(Basic::Complex8, "MPI_COMPLEX8", 0x2db, 8, 4, Class::Complex, Scalar::Float),
    row(Basic::Logical16, "MPI_LOGICAL16", 0x2e0, 16, 16, Class::Logical, Scalar::FortranLogical),
    row(Basic::Integer16, "MPI_INTEGER16", 0x2e1, 16, 16, Class::FortranInteger, Scalar::Signed),
    row(Basic::Real16, "MPI_REAL16", 0x2e2, 16, 16, Class::Floating, Scalar::Float),
    row(Basic::Complex16, "MPI_COMPLEX16", 0x2e3, 16, 8, Class::Complex, Scalar::Float),
    row(Basic::Complex32, "MPI_COMPLEX32", 0x2eb, 32, 16, Class::Complex, Scalar::Float),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_indexed_by_variant_and_ordered_by_handle() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.basic as usize, index, "{}", row.name);
            assert_eq!(Basic::from_abi_handle(row.abi_handle), Some(row.basic));
        }
        assert!(TABLE.is_sorted_by_key(|row| row.abi_handle));
        assert_eq!(Basic::from_abi_handle(512), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads a file")]
    fn handles_agree_with_the_standard_as_data() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../standard/abi.json");
        let text = std::fs::read_to_string(path).expect("the standard stands in the repository");
        let abi: serde_json::Value = serde_json::from_str(&text).expect("the standard is well-formed JSON");
        let handles = abi["handles"].as_array().expect("handles are a list");
        // MPI: §3.2.2 lists some of them as synonyms; the name is that of the first.
        let first_names = [("MPI_LONG_LONG", "MPI_LONG_LONG_INT"), ("MPI_C_FLOAT_COMPLEX", "MPI_C_COMPLEX")];
        let mut seen = 0;
        for handle in handles.iter().filter(|h| h[1] == "MPI_Datatype" && h[0] != "MPI_DATATYPE_NULL") {
            let value = handle[2].as_u64().expect("a handle has a value") as usize;
            let basic = Basic::from_abi_handle(value).unwrap_or_else(|| panic!("{} is missing", handle[0]));
            let listed = handle[0].as_str().expect("a handle has a name");
            let first = first_names.iter().find(|(synonym, _)| *synonym == listed);
            assert_eq!(basic.name(), first.map_or(listed, |(_, name)| name));
            seen += 1;
        }
        assert_eq!(seen, TABLE.len());
    }

    #[test]
    fn a_fixed_size_handle_carries_its_size() {
        // In the ABI the bits 3..6 of a fixed-size type's handle are the logarithm of its size.
        for basic in Basic::all().filter(|b| b.abi_handle() >= 576) {
            assert_eq!(basic.size(), 1 << ((basic.abi_handle() >> 3) & 7), "{}", basic.name());
        }
    }

    #[test]
    fn a_pair_is_laid_out_as_the_c_struct() {
        for (pair, value, index) in PAIRS {
            let displacement = pair.pair_index_displacement().expect("a pair has an index");
            let end = displacement as u64 + index.size();
            assert_eq!(pair.size(), value.size() + index.size());
            assert_eq!(pair.extent() as u64, end.next_multiple_of(pair.alignment()));
        }
    }
}
