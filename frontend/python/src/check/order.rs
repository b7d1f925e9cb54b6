//! The order in which a caller's dicts have their names.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

/// The names of a dict as it was before, in its order, each with its slot. A dict of the same keys
/// is walked, which takes a third of the time of looking up names.
pub struct Order(Vec<(Py<PyAny>, usize)>);

impl Order {
    /// The order of a dict whose names are right. `slots` gives the slot of a name.
    pub fn of(dict: &Bound<'_, PyDict>, slots: &Bound<'_, PyDict>) -> PyResult<Order> {
        let seat = |key: Bound<'_, PyAny>| {
            let slot = slots.as_any().get_item(&key)?.extract()?;
            Ok((key.unbind(), slot))
        };
        dict.keys().iter().map(seat).collect::<PyResult<_>>().map(Order)
    }

    /// Calls `each` with the slot and the value of every entry, while it says that they fit. False:
    /// one did not, or the dict has other keys or another order.
    pub fn walk<'py>(
        &self,
        dict: &Bound<'py, PyDict>,
        mut each: impl FnMut(usize, &Bound<'py, PyAny>) -> bool,
    ) -> bool {
        let mut entries = Walk { dict, at: 0 };
        let known = self.0.iter().all(|(own, slot)| match entries.next() {
            Some((key, value)) => is_named(key, own) && each(*slot, &value),
            None => false,
        });
        known && entries.next().is_none()
    }
}

/// Whether a key, borrowed of its dict, is this name.
fn is_named(key: *mut ffi::PyObject, name: &Py<PyAny>) -> bool {
    // SAFETY: the dict is not changed in between: names are strings, which compare by themselves.
    key == name.as_ptr()
        || unsafe {
            ffi::PyUnicode_CheckExact(key) != 0
                && ffi::PyObject_RichCompareBool(key, name.as_ptr(), ffi::Py_EQ) == 1
        }
}

/// The entries of a dict, keys only as addresses. Where Python code changes the dict meanwhile, some
/// may be left out.
struct Walk<'a, 'py> {
    dict: &'a Bound<'py, PyDict>,
    at: ffi::Py_ssize_t,
}

impl<'py> Iterator for Walk<'_, 'py> {
    type Item = (*mut ffi::PyObject, Bound<'py, PyAny>);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: it is a dict, and the value is owned before anything else happens.
        unsafe {
            match ffi::PyDict_Next(self.dict.as_ptr(), &mut self.at, &mut key, &mut value) {
                0 => None,
                _ => Some((key, Bound::from_borrowed_ptr(self.dict.py(), value))),
            }
        }
    }
}
