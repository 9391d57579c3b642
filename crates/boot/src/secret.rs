//! What the processes of a job know and nobody else, and bytes as text that goes through a process manager or a pipe.

use fabric::FabricError;
use rustix::rand::{GetRandomFlags, getrandom};

/// So many random bytes, up to 256.
pub(crate) fn draw<const N: usize>() -> Result<[u8; N], FabricError> {
    let mut drawn = [0; N];
    // Up to 256 bytes come whole.
    getrandom(&mut drawn, GetRandomFlags::empty())
        .map_err(|why| FabricError::System { operation: "drawing a secret", reason: why.to_string() })?;
    Ok(drawn)
}

pub(crate) fn to_text(bytes: &[u8]) -> String {
    // A process manager takes no empty value.
    std::iter::once("x".to_owned()).chain(bytes.iter().map(|byte| format!("{byte:02x}"))).collect()
}

/// The bytes that a text stands for; `None` if it is none that [`to_text`] writes.
pub(crate) fn from_text(text: &str) -> Option<Vec<u8>> {
    let pairs = text.strip_prefix('x')?.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>().filter(|bytes| to_text(bytes) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_travel_as_text() {
        let drawn: [u8; 40] = draw().expect("random bytes");
        for case in [&b""[..], b"\x00\xff\x10", &drawn] {
            assert_eq!(from_text(&to_text(case)).as_deref(), Some(case));
        }
        for damaged in ["", "00", "x0g", "xé", "x123"] {
            assert_eq!(from_text(damaged), None, "{damaged}");
        }
        for (first, second) in (0..128u8).flat_map(|first| (0..128u8).map(move |second| (first, second))) {
            let text: String = ['x', first.into(), second.into()].into_iter().collect();
            assert!(from_text(&text).is_none_or(|bytes| to_text(&bytes) == text), "{text:?}");
        }
    }
}
