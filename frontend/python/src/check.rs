//! Checks the arrays of each call of a compiled model: names, ranks, dims and dtypes.

use std::sync::{Arc, Mutex};

use mithril_driver::call::signature::{Binding, Group, Mismatch, Signature, Sizes, Slot};
use mithril_driver::compile::Program;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::dtype::DType;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use smallvec::SmallVec;

use super::arrays::{Reader, Seen, attributes};
use super::error::Answer;
pub use explain::{Rejection, renamed_params};
use order::Order;

mod explain;
mod order;
mod pytorch;

/// Arrays that index an axis, with their slots.
type IndexArrays<'py> = SmallVec<[(usize, Bound<'py, PyAny>); 2]>;

/// Checks the arrays of a call against the signature of a program.
#[pyclass(frozen, module = "mithril._core")]
pub struct Checker {
    pub reader: Arc<Reader>,
    pub signature: Signature,
    /// The names of the slots.
    pub keys: Vec<Py<PyString>>,
    /// The slots by name, of each group.
    slots: [Py<PyDict>; 4],
    memory: Mutex<Caches>,
}

/// Caches that make the check of a similar call faster. Arrays and results are not cached: each
/// check reads all arrays.
#[derive(Default)]
struct Caches {
    orders: [Option<Order>; 4],
    seen: Seen,
}

/// The dicts of a call: params, inputs, state and output gradients.
pub type Dicts<'a, 'py> = [Option<&'a Bound<'py, PyDict>>; 4];

/// A callback that receives the index of a slot and its array.
type See<'a, 'py> = &'a mut dyn FnMut(usize, &Bound<'py, PyAny>);

impl Checker {
    /// `rename` maps a dtype to the one that the framework has instead.
    pub fn new(
        py: Python<'_>,
        program: &Program,
        reader: impl Into<Arc<Reader>>,
        rename: &dyn Fn(DType) -> DType,
    ) -> PyResult<Checker> {
        let signature = Signature::new(program, rename);
        let keys = signature.slots.iter().map(|slot| PyString::intern(py, &slot.name).unbind());
        let keys: Vec<Py<PyString>> = keys.collect();
        let slots = Group::ALL.map(|_| PyDict::new(py));
        for (at, (slot, key)) in signature.slots.iter().zip(&keys).enumerate() {
            slots[slot.group as usize].set_item(key, at)?;
        }
        let slots = slots.map(Bound::unbind);
        Ok(Checker { reader: reader.into(), signature, keys, slots, memory: Mutex::default() })
    }

    /// Checks a call completely and returns the values of the symbols. `see` receives each array
    /// and its slot. If the order of a dict has changed, it receives them twice.
    pub fn check_all<'py>(
        &self,
        py: Python<'py>,
        dicts: &Dicts<'_, 'py>,
        see: See<'_, 'py>,
    ) -> Result<Binding, Rejection> {
        if self.signature.indexed.is_empty() {
            return self.check_types(py, dicts, see);
        }
        let mut index_arrays = IndexArrays::new();
        let mut both = |at: usize, value: &Bound<'py, PyAny>| {
            see(at, value);
            if self.signature.slots[at].indexes {
                index_arrays.retain(|(own, _)| *own != at);
                index_arrays.push((at, value.clone()));
            }
        };
        let binding = self.check_types(py, dicts, &mut both)?;
        for (at, value) in &index_arrays {
            if let Some(elements) = self.reader.elements(value, self.signature.everywhere) {
                self.signature.check_indices(*at, &elements, &binding)?;
            }
        }
        Ok(binding)
    }

    /// Checks names, ranks, dims and dtypes.
    fn check_types<'py>(
        &self,
        py: Python<'py>,
        dicts: &Dicts<'_, 'py>,
        see: See<'_, 'py>,
    ) -> Result<Binding, Rejection> {
        // Python may run a call of another thread in the middle of this one. That call uses no
        // caches.
        let Ok(mut memory) = self.memory.try_lock() else {
            return self.first_wrong(py, dicts, &mut Seen::default(), see);
        };
        if let Some(binding) = self.fits_as_before(dicts, &mut memory, see) {
            return Ok(binding);
        }
        let binding = self.first_wrong(py, dicts, &mut memory.seen, see)?;
        for ((dict, slots), order) in dicts.iter().zip(&self.slots).zip(&mut memory.orders) {
            if let Some(dict) = dict {
                *order = Order::of(dict, slots.bind(py)).ok();
            }
        }
        Ok(binding)
    }

    /// Returns the values of the symbols if the call fits, and each dict has the same keys in the
    /// same order as before.
    fn fits_as_before<'py>(
        &self,
        dicts: &Dicts<'_, 'py>,
        memory: &mut Caches,
        see: See<'_, 'py>,
    ) -> Option<Binding> {
        let Caches { orders, seen } = memory;
        let mut binding = self.signature.binding();
        let mut sizes = Sizes::new();
        let mut each = |at: usize, value: &Bound<'py, PyAny>| {
            see(at, value);
            self.reads(at, value, &mut binding, &mut sizes, seen).is_ok()
        };
        let known = dicts.iter().zip(orders).all(|(dict, order)| match (dict, order) {
            (None, _) => true,
            (Some(dict), Some(order)) => order.walk(dict, &mut each),
            (Some(_), None) => false,
        });
        (known && self.signature.check_late(&binding).is_ok()).then_some(binding)
    }

    /// Finds the first error, in the order of the program's arguments.
    fn first_wrong<'py>(
        &self,
        py: Python<'py>,
        dicts: &Dicts<'_, 'py>,
        seen: &mut Seen,
        see: See<'_, 'py>,
    ) -> Result<Binding, Rejection> {
        let mut found = [0; 4];
        let mut binding = self.signature.binding();
        let mut sizes = Sizes::new();
        let is_output = |slot: &Slot| slot.group == Group::OutputGradients;
        let outputs = self.signature.slots.iter().position(is_output);
        for (at, slot) in self.signature.slots.iter().enumerate() {
            let Some(dict) = dicts[slot.group as usize] else {
                continue;
            };
            // Check the inputs first: if they do not fit together, the outputs have no shape to
            // compare with.
            if Some(at) == outputs {
                self.signature.check_late(&binding).map_err(Rejection::Mismatch)?;
            }
            match item(dict, self.keys[at].bind(py)) {
                Some(value) => {
                    see(at, &value);
                    self.reads(at, &value, &mut binding, &mut sizes, seen)?;
                }
                None if slot.optional => continue,
                None => return Err(Rejection::Names(slot.group)),
            }
            found[slot.group as usize] += 1;
        }
        for group in Group::ALL {
            let given = dicts[group as usize].map_or(0, |dict| dict.len());
            if given != found[group as usize] {
                return Err(Rejection::Names(group));
            }
        }
        self.signature.check_late(&binding).map_err(Rejection::Mismatch)?;
        Ok(binding)
    }

    /// Reads an array and binds the symbols to its sizes.
    fn reads(
        &self,
        at: usize,
        value: &Bound<'_, PyAny>,
        binding: &mut Binding,
        sizes: &mut Sizes,
        seen: &mut Seen,
    ) -> Result<(), Rejection> {
        let Some(dtype) = self.reader.read(value, sizes, seen) else {
            return Err(Rejection::Foreign(at));
        };
        let slot = &self.signature.slots[at];
        if dtype != slot.ty.dtype && dtype.is_int() && slot.any_integer {
            return Err(Rejection::Foreign(at));
        }
        let right = dtype == slot.ty.dtype && self.signature.take(at, sizes, binding);
        right.then_some(()).ok_or(Rejection::Mismatch(Mismatch::Slot(at)))
    }
}

impl Checker {
    /// The values of the symbols that these arrays of any framework determine, and whether their
    /// sizes agree. Dtypes are compared only for slots whose dtype comes from a call. Inputs are
    /// read first, so that params bind only the remaining symbols.
    fn bound<'py>(&self, py: Python<'py>, dicts: &Dicts<'_, 'py>) -> (Binding, bool) {
        let (mut binding, mut fits) = (self.signature.binding(), true);
        let (mut sizes, mut seen) = (Sizes::new(), Seen::default());
        for group in [Group::Inputs, Group::Params, Group::State] {
            let Some(dict) = dicts[group as usize] else { continue };
            let slots = self.signature.slots.iter().enumerate();
            for (at, slot) in slots.filter(|(_, slot)| slot.group == group) {
                let Some(value) = item(dict, self.keys[at].bind(py)) else { continue };
                let own = self.reader.read(&value, &mut sizes, &mut seen);
                if let Some(dtype) = own.or_else(|| attributes(&value, &mut sizes)) {
                    fits &= !slot.dtype_of_call || dtype == slot.ty.dtype;
                    fits &= self.signature.take(at, &sizes, &mut binding);
                }
            }
        }
        (binding, fits)
    }
}

fn item<'py>(dict: &Bound<'py, PyDict>, key: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    dict.get_item(key).ok().flatten()
}

/// The dict of a group of arrays. Errors: the value is not a dict.
fn arrays_of<'a, 'py>(
    value: &'a Bound<'py, PyAny>,
    group: Group,
) -> Answer<&'a Bound<'py, PyDict>> {
    value.cast::<PyDict>().map_err(|_| {
        let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        let what = format!("`{}` must be a dict of arrays by name", group.name());
        let mapping = value.hasattr("keys").unwrap_or(false);
        let dict = mapping.then(|| format!("convert it with `dict({})`", group.name()));
        let error = Diagnostic::of(ErrorKind::NotADict, what)
            .got(class)
            .expected("a dict, which is empty (`{}`) if there are none");
        Diagnostic { hint: dict, ..error }.into()
    })
}

/// The arguments of a call as dicts. Errors: one of them is not a dict.
pub fn dicts<'a, 'py>(given: &[Option<&'a Bound<'py, PyAny>>; 4]) -> Answer<Dicts<'a, 'py>> {
    let mut dicts: Dicts = [None; 4];
    for ((dict, value), group) in dicts.iter_mut().zip(given).zip(Group::ALL) {
        *dict = value.map(|value| arrays_of(value, group)).transpose()?;
    }
    Ok(dicts)
}

#[pymethods]
impl Checker {
    /// Whether the program takes these arrays as they are. False if an array must be converted to
    /// the framework first.
    ///
    /// Errors: a missing or unknown name; an array of the framework with a wrong rank, dim or
    /// dtype.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
        output_gradients: "dict[str, object] | None"=None,
    ))]
    fn check(
        &self,
        params: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        state: Option<&Bound<'_, PyAny>>,
        output_gradients: Option<&Bound<'_, PyAny>>,
    ) -> Answer<bool> {
        let py = params.py();
        let dicts = dicts(&[Some(params), Some(inputs), state, output_gradients])?;
        match self.check_all(py, &dicts, &mut |_, _| ()) {
            Ok(_) => Ok(true),
            Err(Rejection::Foreign(_)) => Ok(false),
            Err(wrong) => Err(self.explain(py, &dicts, wrong).into()),
        }
    }

    /// Like `check`, but returns False instead of raising an error.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
        output_gradients: "dict[str, object] | None"=None,
    ))]
    fn fits(
        &self,
        params: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        state: Option<&Bound<'_, PyAny>>,
        output_gradients: Option<&Bound<'_, PyAny>>,
    ) -> Answer<bool> {
        let dicts = dicts(&[Some(params), Some(inputs), state, output_gradients])?;
        Ok(self.check_all(params.py(), &dicts, &mut |_, _| ()).is_ok())
    }

    /// Whether the program fits these arrays of any framework. Compares sizes, and the dtypes that
    /// the program has from the arrays of an earlier call. Missing arrays, names and other dtypes
    /// are not checked.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
    ))]
    fn admits(
        &self,
        params: &Bound<'_, PyAny>,
        inputs: &Bound<'_, PyAny>,
        state: Option<&Bound<'_, PyAny>>,
    ) -> Answer<bool> {
        let dicts = dicts(&[Some(params), Some(inputs), state, None])?;
        let (binding, fits) = self.bound(params.py(), &dicts);
        Ok(fits && self.signature.check_late(&binding).is_ok())
    }

    /// Like `check`, but raises an error also for a value that is not an array of the framework.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
        output_gradients: "dict[str, object] | None"=None,
    ))]
    fn require(
        &self,
        params: &Bound<'_, PyDict>,
        inputs: &Bound<'_, PyDict>,
        state: Option<&Bound<'_, PyDict>>,
        output_gradients: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        let py = params.py();
        let dicts = [Some(params), Some(inputs), state, output_gradients];
        match self.check_all(py, &dicts, &mut |_, _| ()) {
            Ok(_) => Ok(()),
            Err(wrong) => Err(self.explain(py, &dicts, wrong).into()),
        }
    }

    /// The shapes of params and states that these arrays determine, by name.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
    ) -> "dict[str, list[int]]")]
    fn shapes<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyAny>,
        inputs: &Bound<'py, PyAny>,
        state: Option<&Bound<'py, PyAny>>,
    ) -> Answer<Bound<'py, PyDict>> {
        let (binding, _) = self.bound(py, &dicts(&[Some(params), Some(inputs), state, None])?);
        let shapes = PyDict::new(py);
        for (at, slot) in self.signature.slots.iter().enumerate() {
            let lead = match slot.lead {
                None => Some(&[][..]),
                Some(at) => binding.leads[at].as_deref(),
            };
            let dims: Option<Vec<i64>> = slot
                .ty
                .shape
                .dims
                .iter()
                .map(|dim| self.signature.evaluate(dim, &binding))
                .collect();
            if let (Group::Params | Group::State, Some(lead), Some(dims)) = (slot.group, lead, dims)
            {
                shapes.set_item(self.keys[at].bind(py), [lead, &dims].concat())?;
            }
        }
        Ok(shapes)
    }
}
