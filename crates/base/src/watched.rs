//! What a tool that watches the memory of a process, as Valgrind does, can not see by itself: where another process has
//! written. It would take what came that way for memory that was never written.
//!
//! A tool is spoken to by a sequence of instructions that does nothing else (Valgrind: "The Client Request mechanism").

use crate::memory::WriteRange;

const IS_RUNNING: u64 = 0x1001;
/// Of Memcheck, whose requests begin with its letters.
const MAKE_DEFINED: u64 = (b'M' as u64) << 24 | (b'C' as u64) << 16 | 2;

/// True if a tool watches this process.
#[inline]
pub fn is_watched() -> bool {
    request(IS_RUNNING, [0; 2]) != 0
}

/// Another process has written this memory.
pub fn written_by_others(range: WriteRange) {
    request(MAKE_DEFINED, [range.address() as u64, range.len_bytes() as u64]);
}

/// What the tool answers; 0 if there is none.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn request(what: u64, about: [u64; 2]) -> u64 {
    let arguments = [what, about[0], about[1], 0, 0, 0];
    let answer;
    // SAFETY: to a processor this turns a register round twice, exchanges another with itself, and changes flags. A tool
    // reads the arguments, which outlive it, and what it notes about memory changes none.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            inout("rdx") 0u64 => answer,
            in("rax") arguments.as_ptr(),
            options(nostack)
        );
    }
    answer
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn request(_: u64, _: [u64; 2]) -> u64 {
    0
}
