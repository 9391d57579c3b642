//! Values as bytes: little endian, fields one after the other, in front of a choice its number.
//!
//! What comes from the stream is read into checked types: a number that stands for nothing, or bytes that end too early,
//! are an error.

use std::io;
use std::time::Duration;

/// A value that goes over the stream.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut &[u8]) -> io::Result<Self>;
}

/// The bytes of `value`.
pub(super) fn to_bytes(value: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// The value that `bytes` are, all of them.
pub(super) fn from_bytes<T: Wire>(mut bytes: &[u8]) -> io::Result<T> {
    let value = T::take(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(malformed("bytes are left over")) }
}

pub(super) fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn part<'a>(from: &mut &'a [u8], len: usize) -> io::Result<&'a [u8]> {
    let (part, rest) = from.split_at_checked(len).ok_or_else(|| malformed("the bytes end too early"))?;
    *from = rest;
    Ok(part)
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut &[u8]) -> io::Result<Self> {
                let bytes = part(from, size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("as many as were asked for")))
            }
        }
    )*};
}

numbers! { u8 u32 u64 }

/// A struct by its fields.
macro_rules! fields {
    ($type:ident { $($field:tt),* }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(from: &mut &[u8]) -> io::Result<Self> {
                Ok(Self { $($field: Wire::take(from)?),* })
            }
        }
    };
}

/// An enum by the numbers of its variants.
macro_rules! variants {
    ($type:ident { $($number:literal => $name:ident $(($($place:ident),*))? $({ $($field:ident),* })?,)* }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name $(($($place),*))? $({ $($field),* })? => {
                        out.push($number);
                        $($($place.put(out);)*)?
                        $($($field.put(out);)*)?
                    })*
                    // Of an enum that may grow.
                    #[allow(unreachable_patterns)]
                    other => panic!("{other:?} has no number yet"),
                }
            }

            fn take(from: &mut &[u8]) -> io::Result<Self> {
                Ok(match u8::take(from)? {
                    $($number => {
                        $($(let $place = Wire::take(from)?;)*)?
                        $($(let $field = Wire::take(from)?;)*)?
                        Self::$name $(($($place),*))? $({ $($field),* })?
                    })*
                    other => return Err(malformed(&format!("{other} is no {}", stringify!($type)))),
                })
            }
        }
    };
}

pub(super) use {fields, variants};

impl Wire for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn take(_: &mut &[u8]) -> io::Result<Self> {
        Ok(())
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(malformed(&format!("{other} is no truth value"))),
        }
    }
}

impl Wire for usize {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u64).put(out);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        u64::take(from)?.try_into().map_err(|_| malformed("a length beyond this machine"))
    }
}

impl Wire for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        match (u64::take(from)?, u32::take(from)?) {
            (seconds, nanoseconds @ 0..1_000_000_000) => Ok(Self::new(seconds, nanoseconds)),
            _ => Err(malformed("more than a second of nanoseconds")),
        }
    }
}

/// Bytes behind their number.
impl Wire for Box<[u8]> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        let len = usize::take(from)?;
        part(from, len).map(Self::from)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        let bytes = <Box<[u8]>>::take(from)?;
        Self::from_utf8(bytes.into()).map_err(|_| malformed("not UTF-8"))
    }
}

/// The words of errors. They are kept for ever, as those of this program are: a test has few.
impl Wire for &'static str {
    fn put(&self, out: &mut Vec<u8>) {
        (*self).to_owned().put(out);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        String::take(from).map(|text| &*text.leak())
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        (0..usize::take(from)?).map(|_| T::take(from)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        if bool::take(from)? { T::take(from).map(Ok) } else { E::take(from).map(Err) }
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(from: &mut &[u8]) -> io::Result<Self> {
        part(from, N).map(|bytes| bytes.try_into().expect("as many as were asked for"))
    }
}
