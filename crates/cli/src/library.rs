//! The installed `libmpi_abi.so.1`, opened to be asked about itself.

use anyhow::{Context, Result, bail};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// `MPI_MAX_LIBRARY_VERSION_STRING` of the standard ABI.
const VERSION_STRING_MAX: usize = 8192;

/// An opened library; it stays open until the program ends.
pub struct Library {
    /// Where it lies.
    pub path: PathBuf,
    handle: *mut c_void,
}

impl Library {
    /// The library beside this program: `bin/../lib/libmpi_abi.so.1`.
    ///
    /// # Errors
    /// If it is not there or does not load.
    pub fn beside_this_program() -> Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let prefix = program.parent().and_then(Path::parent).context("this program lies in no installation")?;
        Self::open(prefix.join("lib/libmpi_abi.so.1"))
    }

    fn open(path: PathBuf) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).context("a path with a zero byte")?;
        // SAFETY: `name` is a terminated string that outlives the call; the library's constructors start no MPI.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            bail!("cannot load {}: {}", path.display(), last_error());
        }
        Ok(Self { path, handle })
    }

    /// What `MPI_Get_library_version` says.
    ///
    /// # Errors
    /// If the library has no such call or it fails.
    pub fn version(&self) -> Result<String> {
        let symbol = self.symbol(c"PMPI_Get_library_version")?;
        // SAFETY: the standard ABI fixes the type of this symbol.
        let call: extern "C" fn(*mut c_char, *mut c_int) -> c_int = unsafe { std::mem::transmute(symbol) };
        let (mut text, mut length) = (vec![0_u8; VERSION_STRING_MAX], 0);
        if call(text.as_mut_ptr().cast(), &mut length) != 0 {
            bail!("MPI_Get_library_version failed");
        }
        text.truncate(usize::try_from(length).unwrap_or(0).min(VERSION_STRING_MAX));
        Ok(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// The procedures of the standard and whether the library implements them, in the standard's order.
    ///
    /// # Errors
    /// If the library does not tell.
    pub fn coverage(&self) -> Result<Vec<(String, bool)>> {
        let symbol = self.symbol(c"ferrovia_coverage")?;
        // SAFETY: the library exports this symbol as a function without arguments that returns a static string.
        let call: extern "C" fn() -> *const c_char = unsafe { std::mem::transmute(symbol) };
        // SAFETY: see above; the string is terminated and never freed.
        let text = unsafe { CStr::from_ptr(call()) };
        Ok(parse_coverage(&text.to_string_lossy()))
    }

    fn symbol(&self, name: &CStr) -> Result<*mut c_void> {
        // SAFETY: the handle came from dlopen and is never closed; the name is terminated.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if symbol.is_null() {
            bail!("{} has no {}", self.path.display(), name.to_string_lossy());
        }
        Ok(symbol)
    }
}

/// Lines of `NAME implemented` or `NAME missing`.
fn parse_coverage(text: &str) -> Vec<(String, bool)> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, state)| (name.to_owned(), state == "implemented"))
        .collect()
}

fn last_error() -> String {
    // SAFETY: dlerror returns null or a terminated string, valid until the next dl call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null, and no dl call in between.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_parsed() {
        let table = parse_coverage("MPI_Send implemented\nMPI_Put missing\n\nnonsense\n");
        assert_eq!(table, [("MPI_Send".to_owned(), true), ("MPI_Put".to_owned(), false)]);
    }

    #[test]
    fn an_absent_library_is_an_error_with_its_path() {
        let error = Library::open(PathBuf::from("/nowhere/libmpi_abi.so.1")).err().unwrap();
        assert!(error.to_string().contains("/nowhere/libmpi_abi.so.1"));
    }
}
