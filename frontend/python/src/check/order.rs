//! The order of the keys in a caller's dicts.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};

/// The keys of a dict in the order of an earlier call, with their slots. If a dict has the same
/// keys in the same order, iterating over it takes a third of the time of looking up each name.
pub struct Order(Vec<(Py<PyAny>, usize)>);

impl Order {
    /// The order of a dict that has passed the check. `slots` maps names to slots.
    pub fn of(dict: &Bound<'_, PyDict>, slots: &Bound<'_, PyDict>) -> PyResult<Order> {
        let seat = |key: Bound<'_, PyAny>| {
            let slot = slots.as_any().get_item(&key)?.extract()?;
            Ok((key.unbind(), slot))
        };
        dict.keys().iter().map(seat).collect::<PyResult<_>>().map(Order)
    }

    /// Calls `each` with the slot and the value of every entry until it returns false. Returns
    /// false if a value did not fit, or if the dict has other keys or another order.
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

/// Whether a key, borrowed from its dict, equals this name.
fn is_named(key: *mut ffi::PyObject, name: &Py<PyAny>) -> bool {
    // SAFETY: comparing strings runs no Python code, so the dict does not change meanwhile.
    key == name.as_ptr()
        || unsafe {
            ffi::PyUnicode_CheckExact(key) != 0
                && ffi::PyObject_RichCompareBool(key, name.as_ptr(), ffi::Py_EQ) == 1
        }
}

/// Iterates over a dict and yields keys as pointers. If Python code changes the dict meanwhile,
/// entries may be skipped.
struct Walk<'a, 'py> {
    dict: &'a Bound<'py, PyDict>,
    at: ffi::Py_ssize_t,
}

impl<'py> Iterator for Walk<'_, 'py> {
    type Item = (*mut ffi::PyObject, Bound<'py, PyAny>);

    fn next(&mut self) -> Option<Self::Item> {
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: it is a dict, and a reference to the value is taken before any other code runs.
        unsafe {
            match ffi::PyDict_Next(self.dict.as_ptr(), &mut self.at, &mut key, &mut value) {
                0 => None,
                _ => Some((key, Bound::from_borrowed_ptr(self.dict.py(), value))),
            }
        }
    }
}
