//! The attributes every communicator has without anybody setting them.
//!
//! MPI: §9.1.2, §11.10.1, appendix A.1.1

use crate::constants::{ANY_SOURCE, PROC_NULL, TAG_UB};
use crate::error::ErrorRegistry;
use crate::world::World;

/// An attribute the library provides; the values are those of the standard ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum PredefinedAttribute {
    /// `MPI_TAG_UB`: the greatest tag.
    TagUb = 501,
    /// `MPI_IO`: who can do input and output by the means of the language.
    Io = 502,
    /// `MPI_HOST`: the rank of the host process.
    Host = 503,
    /// `MPI_WTIME_IS_GLOBAL`: 1 if the clocks of all processes agree.
    WtimeIsGlobal = 504,
    /// `MPI_APPNUM`: number of the command in a start of several programs.
    AppNum = 505,
    /// `MPI_LASTUSEDCODE`: the greatest error code in use.
    LastUsedCode = 506,
    /// `MPI_UNIVERSE_SIZE`: how many processes the user thinks could run at once.
    UniverseSize = 507,
}

impl PredefinedAttribute {
    /// All of them in order of their keys.
    pub const ALL: [PredefinedAttribute; 7] = [
        PredefinedAttribute::TagUb,
        PredefinedAttribute::Io,
        PredefinedAttribute::Host,
        PredefinedAttribute::WtimeIsGlobal,
        PredefinedAttribute::AppNum,
        PredefinedAttribute::LastUsedCode,
        PredefinedAttribute::UniverseSize,
    ];

    /// The attribute with this key of the standard ABI.
    pub fn from_key(key: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|attribute| *attribute as i32 == key)
    }

    /// The value, if it is known.
    pub fn value(self, world: &World, registry: &ErrorRegistry) -> Option<i32> {
        match self {
            PredefinedAttribute::TagUb => Some(TAG_UB),
            PredefinedAttribute::Io => Some(ANY_SOURCE),
            PredefinedAttribute::Host => Some(PROC_NULL),
            // The clocks of other machines are not compared.
            PredefinedAttribute::WtimeIsGlobal => Some(i32::from(world.comm_world().size() == 1)),
            PredefinedAttribute::AppNum => world.process_manager().appnum(),
            PredefinedAttribute::LastUsedCode => Some(registry.last_used_code()),
            PredefinedAttribute::UniverseSize => world.process_manager().universe_size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_agree_with_the_standard() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../standard/abi.json");
        let abi: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let value = |name: &str| {
            let pairs = abi["integers"].as_array().unwrap();
            pairs.iter().find(|pair| pair[0] == name).unwrap()[1].as_i64().unwrap() as i32
        };
        let names = ["TAG_UB", "IO", "HOST", "WTIME_IS_GLOBAL", "APPNUM", "LASTUSEDCODE", "UNIVERSE_SIZE"];
        for (attribute, name) in PredefinedAttribute::ALL.into_iter().zip(names) {
            assert_eq!(attribute as i32, value(&format!("MPI_{name}")));
            assert_eq!(PredefinedAttribute::from_key(attribute as i32), Some(attribute));
        }
        assert_eq!(PredefinedAttribute::from_key(0), None);
    }
}
