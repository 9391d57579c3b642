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

/// The bytes that a text stands for; `None` if it is damaged.
pub(crate) fn from_text(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix('x')?;
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
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
        for damaged in ["", "00", "x0g", "xé"] {
            assert_eq!(from_text(damaged), None, "{damaged}");
        }
    }
}
