//! Packed forms of whole messages, and the memory they were in, which is kept for those that come next: fresh memory costs a
//! page fault each 4 KiB, and is registered anew.
//!
//! In use and kept together they are at most `FERROVIA_DATATYPE_POOL_MAX`. What was not used for a whole period is given
//! back (`port::shrinking`). Without a port there are no periods, and nothing is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datatype::{Basic, Datatype, RecvBuf, Scratch, SendBuf};

/// Kept memory serves forms that need all of it, down to one part in so many.
const WASTE_MAX: u64 = 2;
/// Why there is memory.
const HELD: &str = "it goes when the form is dropped";

/// The packed forms of a process.
#[derive(Clone)]
pub(crate) struct PackedForms(Arc<Mutex<Forms>>);

#[derive(Debug, Default)]
struct Forms {
    bytes_max: u64,
    keeps: bool,
    /// Bytes of forms in use.
    used_bytes: u64,
    /// Memory of forms that are over, that of the last one at the end.
    kept: VecDeque<Scratch>,
    kept_bytes: u64,
    /// What was kept all the time since the period began.
    idle_bytes: u64,
}

/// Memory for one packed form, given back when this is dropped; buffers of it may live on.
pub(crate) struct PackedForm {
    memory: Option<Scratch>,
    home: Option<PackedForms>,
}

impl PackedForm {
    /// Memory of its own, which counts for nothing and goes with it.
    pub(crate) fn apart(len_bytes: u64) -> Option<PackedForm> {
        Some(PackedForm { memory: Some(memory_for(len_bytes)?), home: None })
    }

    /// The first `len_bytes`, to send.
    pub(crate) fn send(&self, len_bytes: u64) -> SendBuf {
        self.memory.as_ref().expect(HELD).send().slice(0, len_bytes)
    }

    /// The first `len_bytes`, to receive into.
    pub(crate) fn recv(&mut self, len_bytes: u64) -> RecvBuf {
        self.memory.as_mut().expect(HELD).recv().slice(0, len_bytes)
    }
}

impl Drop for PackedForm {
    fn drop(&mut self) {
        if let (Some(home), Some(memory)) = (&self.home, self.memory.take()) {
            home.lock().take_back(memory);
        }
    }
}

impl PackedForms {
    /// No form yet; `keeps` memory of forms that are over.
    pub(crate) fn new(bytes_max: usize, keeps: bool) -> Self {
        Self(Arc::new(Mutex::new(Forms { bytes_max: bytes_max as u64, keeps, ..Forms::default() })))
    }

    /// Memory for a form; `None` if there is no room.
    pub(crate) fn take(&self, len_bytes: u64) -> Option<PackedForm> {
        let memory = self.lock().take(len_bytes)?;
        Some(PackedForm { memory: Some(memory), home: Some(self.clone()) })
    }

    /// Bytes of forms in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.lock().used_bytes
    }

    /// Bytes of memory that is kept.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.lock().kept_bytes
    }

    /// A period is over: gives back what was not used in it. True if anything went.
    pub(crate) fn end_period(&self) -> bool {
        let mut forms = self.lock();
        let idle_bytes = forms.idle_bytes;
        let went = forms.let_go(idle_bytes);
        forms.idle_bytes = forms.kept_bytes;
        went
    }

    fn lock(&self) -> MutexGuard<'_, Forms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forms {
    fn take(&mut self, len_bytes: u64) -> Option<Scratch> {
        let free_bytes = self.bytes_max.checked_sub(self.used_bytes)?.checked_sub(len_bytes)?;
        let fits = |memory: &Scratch| {
            (len_bytes..=len_bytes.saturating_mul(WASTE_MAX)).contains(&memory.count()) && !memory.is_shared()
        };
        let memory = match self.kept.iter().rposition(fits).and_then(|at| self.kept.remove(at)) {
            Some(memory) => {
                self.kept_bytes -= memory.count();
                memory
            }
            None => {
                self.let_go(self.kept_bytes.saturating_sub(free_bytes));
                memory_for(len_bytes)?
            }
        };
        self.used_bytes += memory.count();
        self.idle_bytes = self.idle_bytes.min(self.kept_bytes);
        Some(memory)
    }

    fn take_back(&mut self, memory: Scratch) {
        self.used_bytes -= memory.count();
        if self.keeps {
            self.kept_bytes += memory.count();
            self.kept.push_back(memory);
        }
    }

    /// Lets so many bytes go at least, those that were used first.
    fn let_go(&mut self, bytes: u64) -> bool {
        let least = self.kept_bytes.saturating_sub(bytes);
        let before = self.kept_bytes;
        while self.kept_bytes > least
            && let Some(memory) = self.kept.pop_front()
        {
            self.kept_bytes -= memory.count();
        }
        self.idle_bytes = self.idle_bytes.min(self.kept_bytes);
        before > self.kept_bytes
    }
}

fn memory_for(len_bytes: u64) -> Option<Scratch> {
    Scratch::new(len_bytes, &Datatype::predefined(Basic::Byte)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(form: &PackedForm) -> Option<usize> {
        form.send(1).address()
    }

    #[test]
    fn memory_of_a_form_serves_the_next_of_about_its_length() {
        let forms = PackedForms::new(1000, true);
        let first = forms.take(400).unwrap();
        let place = address(&first);
        assert_eq!((forms.used_bytes(), forms.kept_bytes()), (400, 0));
        drop(first);
        assert_eq!((forms.used_bytes(), forms.kept_bytes()), (0, 400));
        let short = forms.take(199).unwrap();
        assert_ne!(address(&short), place, "a short one does not take much memory");
        let again = forms.take(200).unwrap();
        assert_eq!(address(&again), place);
        assert_eq!((forms.used_bytes(), forms.kept_bytes()), (599, 0), "all of the memory counts");
    }

    #[test]
    fn what_is_in_use_and_what_is_kept_have_one_limit() {
        let forms = PackedForms::new(1000, true);
        let (first, second) = (forms.take(600), forms.take(400));
        assert!(first.is_some() && second.is_some() && forms.take(1).is_none());
        drop((first, second));
        assert_eq!(forms.kept_bytes(), 1000);
        let large = forms.take(700);
        assert!(large.is_some());
        assert_eq!((forms.used_bytes(), forms.kept_bytes()), (700, 0), "the older one went first and did not suffice");
        assert!(forms.take(u64::MAX).is_none() && forms.take(301).is_none() && forms.take(300).is_some());
    }

    #[test]
    fn memory_that_a_buffer_still_shows_is_not_used_again() {
        let forms = PackedForms::new(1000, true);
        let form = forms.take(400).unwrap();
        let buf = form.send(400);
        drop(form);
        let other = forms.take(400).unwrap();
        assert_ne!(address(&other), buf.address());
        drop(buf);
        assert!(forms.take(400).is_some());
        assert_eq!(forms.kept_bytes(), 400);
    }

    #[test]
    fn what_was_not_used_for_a_period_is_given_back() {
        let forms = PackedForms::new(1000, true);
        drop((forms.take(300), forms.take(200)));
        assert!(!forms.end_period(), "it was used in this one");
        drop(forms.take(200));
        assert!(forms.end_period());
        assert_eq!(forms.kept_bytes(), 200);
        assert!(forms.end_period() && !forms.end_period());
        assert_eq!(forms.kept_bytes(), 0);
        let keeps_nothing = PackedForms::new(1000, false);
        drop(keeps_nothing.take(300));
        assert_eq!((keeps_nothing.used_bytes(), keeps_nothing.kept_bytes()), (0, 0));
    }
}
