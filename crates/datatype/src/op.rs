//! Reduction operations: the predefined ones and those of users.
//!
//! MPI: §6.9

use std::sync::Arc;

use crate::basic::Basic;
use crate::buffer::{Elements, RecvBuf, SendBuf};
use crate::datatype::Datatype;

/// A predefined reduction operation; the values are those of the standard ABI's handles.
///
/// MPI: §6.9.2
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PredefinedOp {
    /// `MPI_SUM`
    Sum = 33,
    /// `MPI_MIN`
    Min = 34,
    /// `MPI_MAX`
    Max = 35,
    /// `MPI_PROD`
    Prod = 36,
    /// `MPI_BAND`
    Band = 40,
    /// `MPI_BOR`
    Bor = 41,
    /// `MPI_BXOR`
    Bxor = 42,
    /// `MPI_LAND`
    Land = 48,
    /// `MPI_LOR`
    Lor = 49,
    /// `MPI_LXOR`
    Lxor = 50,
    /// `MPI_MINLOC`
    Minloc = 56,
    /// `MPI_MAXLOC`
    Maxloc = 57,
    /// `MPI_REPLACE`
    Replace = 60,
    /// `MPI_NO_OP`
    NoOp = 61,
}

impl PredefinedOp {
    /// Every predefined operation, in the order of handle values.
    pub const ALL: [PredefinedOp; 14] = [
        PredefinedOp::Sum,
        PredefinedOp::Min,
        PredefinedOp::Max,
        PredefinedOp::Prod,
        PredefinedOp::Band,
        PredefinedOp::Bor,
        PredefinedOp::Bxor,
        PredefinedOp::Land,
        PredefinedOp::Lor,
        PredefinedOp::Lxor,
        PredefinedOp::Minloc,
        PredefinedOp::Maxloc,
        PredefinedOp::Replace,
        PredefinedOp::NoOp,
    ];

    /// The value of the handle in the standard ABI.
    pub fn abi_handle(self) -> usize {
        self as usize
    }

    /// The operation whose handle has this value in the standard ABI.
    pub fn from_abi_handle(handle: usize) -> Option<PredefinedOp> {
        Self::ALL.into_iter().find(|op| op.abi_handle() == handle)
    }

    /// The name of the handle, such as `"MPI_SUM"`.
    pub fn name(self) -> &'static str {
        match self {
            PredefinedOp::Sum => "MPI_SUM",
            PredefinedOp::Min => "MPI_MIN",
            PredefinedOp::Max => "MPI_MAX",
            PredefinedOp::Prod => "MPI_PROD",
            PredefinedOp::Band => "MPI_BAND",
            PredefinedOp::Bor => "MPI_BOR",
            PredefinedOp::Bxor => "MPI_BXOR",
            PredefinedOp::Land => "MPI_LAND",
            PredefinedOp::Lor => "MPI_LOR",
            PredefinedOp::Lxor => "MPI_LXOR",
            PredefinedOp::Minloc => "MPI_MINLOC",
            PredefinedOp::Maxloc => "MPI_MAXLOC",
            PredefinedOp::Replace => "MPI_REPLACE",
            PredefinedOp::NoOp => "MPI_NO_OP",
        }
    }

    /// True if the standard defines the operation for this type.
    pub fn supports(self, basic: Basic) -> bool {
        crate::reduce::kernel(self, basic).is_some()
    }
}

/// A reduction function given by the user.
pub trait UserFunction: Send + Sync {
    /// `inout[i] = input[i] op inout[i]` for `count` elements of `datatype`.
    fn apply(&self, input: *const u8, inout: *mut u8, count: u64, datatype: &Arc<Datatype>);
}

/// A reduction operation; cheap to clone.
///
/// MPI: §6.9
#[derive(Clone)]
pub struct Op(Kind);

#[derive(Clone)]
enum Kind {
    Predefined(PredefinedOp),
    User { commutes: bool, function: Arc<dyn UserFunction> },
}

/// Why a reduction could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The standard does not define the operation for the type.
    #[error("{op} is not defined for {datatype}")]
    Undefined {
        /// The operation's name.
        op: &'static str,
        /// The datatype, by its name or the call that made it.
        datatype: String,
    },
    /// Both sides must hold equally many whole elements of the datatype, laid out by it.
    #[error(
        "the buffers hold {input_bytes} and {inout_bytes} bytes, not equally many elements laid out as the datatype"
    )]
    Mismatch {
        /// Bytes of the first argument.
        input_bytes: u64,
        /// Bytes of the second argument.
        inout_bytes: u64,
    },
}

impl Op {
    /// One of the standard's operations.
    pub fn predefined(op: PredefinedOp) -> Op {
        Op(Kind::Predefined(op))
    }

    /// A user's function and whether its arguments may change places.
    pub fn user(commutes: bool, function: Arc<dyn UserFunction>) -> Op {
        Op(Kind::User { commutes, function })
    }

    /// True if the arguments may change places.
    pub fn commutes(&self) -> bool {
        match &self.0 {
            Kind::Predefined(op) => *op != PredefinedOp::Replace && *op != PredefinedOp::NoOp,
            Kind::User { commutes, .. } => *commutes,
        }
    }

    /// The predefined operation this is, if it is one.
    #[inline]
    pub fn as_predefined(&self) -> Option<PredefinedOp> {
        match &self.0 {
            Kind::Predefined(op) => Some(*op),
            Kind::User { .. } => None,
        }
    }

    /// True if a collective call may reduce elements of this type with the operation: a user's function takes any type,
    /// a predefined operation only the predefined types it is defined for, and those of one-sided communication none.
    #[inline]
    pub fn supports(&self, datatype: &Datatype) -> bool {
        match &self.0 {
            Kind::User { .. } => true,
            Kind::Predefined(_) => self.predefined_for(datatype).is_some(),
        }
    }

    /// The operation on elements of this type, if it is a predefined one that supports them, see [`Op::supports`].
    #[inline]
    pub fn predefined_for(&self, datatype: &Datatype) -> Option<PackedOp> {
        match self.as_predefined()? {
            PredefinedOp::Replace | PredefinedOp::NoOp => None,
            op => crate::reduce::kernel(op, datatype.named_basic()?).map(PackedOp),
        }
    }

    /// The operation on elements of this type that stand packed, if it is a predefined one and the standard defines it for
    /// them: a user's function wants them laid out.
    #[inline]
    pub fn packed(&self, datatype: &Datatype) -> Option<PackedOp> {
        let op = self.as_predefined()?;
        crate::reduce::kernel(op, datatype.uniform_basic()?).map(PackedOp)
    }

    /// `inout[i] = input[i] op inout[i]` for every element; both sides are elements of `datatype`, equally many.
    ///
    /// A predefined operation also takes derived types all of whose leaves are of one type it supports.
    ///
    /// # Errors
    /// [`OpError`], before anything was changed.
    pub fn reduce(&self, datatype: &Arc<Datatype>, input: &SendBuf, inout: &mut RecvBuf) -> Result<(), OpError> {
        let mismatch = || OpError::Mismatch { input_bytes: input.len_bytes(), inout_bytes: inout.len_bytes() };
        match &self.0 {
            Kind::Predefined(op) => {
                let undefined = || OpError::Undefined { op: op.name(), datatype: datatype.described() };
                let PackedOp(kernel) = self.packed(datatype).ok_or_else(undefined)?;
                if input.len_bytes() != inout.len_bytes() || !input.len_bytes().is_multiple_of(datatype.size().max(1)) {
                    return Err(mismatch());
                }
                crate::reduce::apply(kernel, input, inout);
                Ok(())
            }
            Kind::User { function, .. } => {
                let (from, to) = (input.elements(datatype), inout.elements(datatype));
                match (from, to) {
                    (Some(Elements { origin: from, count }), Some(to)) if count == to.count => {
                        if count > 0 {
                            function.apply(from, to.origin, count, datatype);
                        }
                        Ok(())
                    }
                    _ => Err(mismatch()),
                }
            }
        }
    }
}

/// A predefined operation on packed elements of one type, found once for any number of uses.
#[derive(Clone, Copy)]
pub struct PackedOp(crate::reduce::Kernel);

impl PackedOp {
    /// `inout[i] = input[i] op inout[i]` for as many elements as both sides hold.
    #[inline]
    pub fn reduce(self, input: &[u8], inout: &mut RecvBuf) {
        crate::reduce::apply_packed(self.0, input, inout, 0);
    }

    /// The same of elements that need not stand packed; both sides are equally many bytes.
    #[inline]
    pub fn reduce_from(self, input: &SendBuf, inout: &mut RecvBuf) {
        crate::reduce::apply(self.0, input, inout);
    }

    /// The same where all stand packed.
    ///
    /// # Panics
    /// If both sides are not equally many bytes.
    #[inline]
    pub fn reduce_packed(self, input: &[u8], inout: &mut [u8]) {
        assert_eq!(input.len(), inout.len(), "equally many");
        let crate::reduce::Kernel(kernel) = self.0;
        kernel(input, inout);
    }

    /// The same where those that are changed stand packed.
    ///
    /// # Panics
    /// If both sides are not equally many bytes.
    #[inline]
    pub fn reduce_to(self, input: &SendBuf, inout: &mut [u8]) {
        assert_eq!(input.len_bytes(), inout.len() as u64, "equally many");
        crate::reduce::apply_to_packed(self.0, input, inout);
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Predefined(op) => f.write_str(op.name()),
            Kind::User { commutes, .. } => write!(f, "Op::user(commutes: {commutes})"),
        }
    }
}
