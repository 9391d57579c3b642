//! Asking a status and making one.
//!
//! MPI: §3.2.5, §3.8.4, §13.3

use datatype::Datatype;
use mpi_core::constants::UNDEFINED;
use mpi_core::{ErrorClass, Result};

use crate::face::{CStatus, CountOut, Face, Out};

/// Writes the number of elements of `datatype` that were received.
#[inline]
pub(crate) fn get_count(_face: &Face, status: &CStatus, datatype: &Datatype, count: CountOut) -> Result<()> {
    count.set(datatype.count_in(status.len_bytes()).unwrap_or(i64::from(UNDEFINED)));
    Ok(())
}

#[inline]
pub(crate) fn get_elements(_face: &Face, status: &CStatus, datatype: &Datatype, count: CountOut) -> Result<()> {
    count.set(datatype.elements_in(status.len_bytes()).unwrap_or(i64::from(UNDEFINED)));
    Ok(())
}

#[inline]
pub(crate) fn get_elements_x(_face: &Face, status: &CStatus, datatype: &Datatype, count: Out<i64>) -> Result<()> {
    count.set(datatype.elements_in(status.len_bytes()).unwrap_or(i64::from(UNDEFINED)));
    Ok(())
}

pub(crate) fn test_cancelled(_face: &Face, status: &CStatus, flag: Out<i32>) -> Result<()> {
    flag.set_flag(status.is_cancelled());
    Ok(())
}

pub(crate) fn status_set_cancelled(_face: &Face, status: &mut CStatus, flag: bool) -> Result<()> {
    status.set_cancelled(flag);
    Ok(())
}

pub(crate) fn status_set_elements(_face: &Face, status: &mut CStatus, datatype: &Datatype, count: i64) -> Result<()> {
    set_elements(status, datatype, count)
}

pub(crate) fn status_set_elements_x(_face: &Face, status: &mut CStatus, datatype: &Datatype, count: i64) -> Result<()> {
    set_elements(status, datatype, count)
}

pub(crate) fn status_get_source(_face: &Face, status: &CStatus, source: Out<i32>) -> Result<()> {
    source.set(status.MPI_SOURCE);
    Ok(())
}

pub(crate) fn status_set_source(_face: &Face, status: &mut CStatus, source: i32) -> Result<()> {
    status.MPI_SOURCE = source;
    Ok(())
}

pub(crate) fn status_get_tag(_face: &Face, status: &CStatus, tag: Out<i32>) -> Result<()> {
    tag.set(status.MPI_TAG);
    Ok(())
}

pub(crate) fn status_set_tag(_face: &Face, status: &mut CStatus, tag: i32) -> Result<()> {
    status.MPI_TAG = tag;
    Ok(())
}

pub(crate) fn status_get_error(_face: &Face, status: &CStatus, error: Out<i32>) -> Result<()> {
    error.set(status.MPI_ERROR);
    Ok(())
}

pub(crate) fn status_set_error(_face: &Face, status: &mut CStatus, error: i32) -> Result<()> {
    status.MPI_ERROR = error;
    Ok(())
}

/// Makes a status that says `count` elements of `datatype` were received.
///
/// The status keeps a length in bytes: that of the whole elements of the type, and, if `count` basic
/// elements end inside of one, the part of it that holds exactly the rest.
fn set_elements(status: &mut CStatus, datatype: &Datatype, count: i64) -> Result<()> {
    let too_much =
        || ErrorClass::Count.error(format!("{count} elements of this datatype are more than can be counted"));
    let wanted = u64::try_from(count).map_err(|_| too_much())?;
    let per_element = match datatype.elements_in(datatype.size()) {
        Some(elements) if elements > 0 => elements as u64,
        _ => 0,
    };
    if per_element == 0 {
        status.set_len_bytes(0);
        return Ok(());
    }
    let whole = (wanted / per_element).checked_mul(datatype.size()).ok_or_else(too_much)?;
    let rest = wanted % per_element;
    // Lengths within one element that end between basic elements grow with their number.
    let partial = (0..=datatype.size())
        .find(|bytes| datatype.elements_in(*bytes).is_some_and(|elements| elements as u64 == rest));
    status.set_len_bytes(whole.checked_add(partial.unwrap_or(0)).ok_or_else(too_much)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use datatype::Basic;
    use mpi_core::Status;

    use super::*;

    #[test]
    fn elements_set_are_elements_got() {
        let int = Datatype::predefined(Basic::Int);
        let double = Datatype::predefined(Basic::Double);
        let mixed = Datatype::create_struct(&[2, 1], &[0, 8], &[int, double]).unwrap();
        for count in 0..20 {
            let mut status = CStatus::new(&Status::EMPTY);
            set_elements(&mut status, &mixed, count).unwrap();
            assert_eq!(mixed.elements_in(status.len_bytes()), Some(count));
        }
        let mut status = CStatus::new(&Status::EMPTY);
        assert!(set_elements(&mut status, &mixed, i64::MAX).is_err());
    }
}
