//! Reduction operations of the user's own.
//!
//! MPI: §6.9.5

use std::sync::Arc;

use datatype::{Datatype, Op, UserFunction};
use mpi_core::Result;

use crate::face::process::Process;
use crate::face::{Face, Handle, InOutHandle, Out, OutHandle, UserFunctionPointer};

pub(crate) fn op_create(face: &Face, user_fn: UserFunctionPointer, commute: bool, op: OutHandle<Op>) -> Result<()> {
    op.set(face, Op::user(commute, Arc::new(CallUser(user_fn))))
}

pub(crate) fn op_free(face: &Face, op: InOutHandle<Op>) -> Result<()> {
    op.release(face)
}

pub(crate) fn op_commutative(_face: &Face, op: &Op, commute: Out<i32>) -> Result<()> {
    commute.set_flag(op.commutes());
    Ok(())
}

/// A function of the user as the reductions call it.
struct CallUser(UserFunctionPointer);

impl UserFunction for CallUser {
    fn apply(&self, input: *const u8, inout: *mut u8, count: u64, datatype: &Arc<Datatype>) {
        // Given out for the length of the call if the program has freed its own.
        let process = Process::this();
        let Ok(value) = process.handle_for::<Datatype>(Arc::clone(datatype)) else { return };
        let mut handle = Handle::new(value);
        match self.0 {
            UserFunctionPointer::Large(function) => {
                let mut len = count as i64;
                // SAFETY: the program's function, called as the standard says.
                unsafe { function(input.cast_mut().cast(), inout.cast(), &mut len, &mut handle) };
            }
            UserFunctionPointer::Small(function) => {
                let mut done = 0;
                while done < count {
                    let step = (count - done).min(i32::MAX as u64);
                    let mut len = step as i32;
                    let offset_bytes = (done as i64 * datatype.extent()) as isize;
                    let (input, inout) = (input.wrapping_offset(offset_bytes), inout.wrapping_offset(offset_bytes));
                    // SAFETY: as above; both addresses are those of element `done`.
                    unsafe { function(input.cast_mut().cast(), inout.cast(), &mut len, &mut handle) };
                    done += step;
                }
            }
        }
        process.release_shown::<Datatype>(value);
    }
}
