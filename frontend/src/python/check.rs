//! The check of every call: names, ranks, dims and dtypes of what a compiled model is given.

use std::sync::{Arc, Mutex};

use mithril_ir::diagnostic::{Diagnostic, did_you_mean};
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::graph::Role;
use mithril_ir::shape::{Guard, Type};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyWeakrefMethods, PyWeakrefReference};
use smallvec::SmallVec;

use super::arrays::{Reader, Sizes, attributes};
use super::fault::Answer;
use crate::compile::Program;

/// Which of the dicts of a call an argument lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Params,
    Inputs,
    State,
    OutputGradients,
}

impl Group {
    const ALL: [Group; 4] = [Group::Params, Group::Inputs, Group::State, Group::OutputGradients];

    fn name(self) -> &'static str {
        match self {
            Group::Params => "params",
            Group::Inputs => "inputs",
            Group::State => "state",
            Group::OutputGradients => "output_gradients",
        }
    }
}

/// One array of a call.
struct Slot {
    name: Arc<str>,
    key: Py<PyString>,
    group: Group,
    /// Whether it may be left out: gradients of outputs that nothing depends on.
    optional: bool,
    ty: Type,
    /// The symbol of the leading rank variable, if any, and what each dim must be.
    lead: Option<usize>,
    dims: SmallVec<[Want; 4]>,
    /// Whether a dim is an expression, which waits for all symbols.
    late: bool,
}

/// A param or a state as it was in the call before, where arrays are dear to read. Values are never
/// kept: this says only that an array, while it lives, need not be read again.
#[derive(Default)]
struct Recent {
    address: usize,
    array: Option<Py<PyWeakrefReference>>,
    sizes: Sizes,
}

type Known = Vec<Recent>;

impl Recent {
    fn is(&self, value: &Bound<'_, PyAny>) -> bool {
        self.address == value.as_ptr() as usize
            && self.array.as_ref().is_some_and(|array| {
                array.bind(value.py()).upgrade().is_some_and(|living| living.is(value))
            })
    }

    /// Remembers an array that was read. Arrays seen once, as those of a functional update are, cost
    /// no weak reference.
    fn meet(&mut self, value: &Bound<'_, PyAny>, sizes: &Sizes) {
        let address = value.as_ptr() as usize;
        self.array = match self.address == address {
            true => PyWeakrefReference::new(value).ok().map(Bound::unbind),
            false => None,
        };
        self.address = address;
        self.sizes.clone_from(sizes);
    }
}

/// What one size must be.
enum Want {
    Is(i64),
    /// The value of this symbol; the first that is met gives it.
    Symbol(usize),
    Equals(Dim),
    Anything,
}

/// What the symbols stand for in one call.
struct Binding {
    /// Negative: not known yet.
    values: SmallVec<[i64; 8]>,
    leads: SmallVec<[Option<Sizes>; 1]>,
}

/// Checks the arrays of a call against the signature of a program.
#[pyclass(frozen, module = "mithril._core")]
pub struct Checker {
    reader: Reader,
    slots: Vec<Slot>,
    symbols: Vec<Symbol>,
    leads: Vec<Symbol>,
    guards: Vec<Guard>,
    known: Mutex<Known>,
}

type Dicts<'a, 'py> = [Option<&'a Bound<'py, PyDict>>; 4];

impl Checker {
    /// `rename` gives the dtype that a framework has in the place of one.
    pub fn new(
        py: Python<'_>,
        program: &Program,
        reader: Reader,
        rename: &dyn Fn(DType) -> DType,
    ) -> Checker {
        let mut checker = Checker {
            reader,
            slots: Vec::new(),
            symbols: Vec::new(),
            leads: Vec::new(),
            guards: program.guards.clone(),
            known: Mutex::default(),
        };
        for arg in &program.arguments {
            checker.add(py, &arg.name, group_of(arg.role), &arg.ty, rename);
        }
        for result in program.results.iter().filter(|r| r.state.is_none()) {
            if result.ty.dtype.is_float() {
                checker.add(py, &result.name, Group::OutputGradients, &result.ty, rename);
            }
        }
        if let Ok(known) = checker.known.get_mut() {
            known.resize_with(checker.slots.len(), Recent::default);
        }
        checker
    }

    fn add(
        &mut self,
        py: Python<'_>,
        name: &Arc<str>,
        group: Group,
        ty: &Type,
        rename: &dyn Fn(DType) -> DType,
    ) {
        let symbol = |all: &mut Vec<Symbol>, own: &Symbol| match all.iter().position(|s| s == own) {
            Some(at) => at,
            None => {
                all.push(own.clone());
                all.len() - 1
            }
        };
        let dims = ty.shape.dims.iter().map(|dim| match (dim.as_const(), dim.as_symbol()) {
            (Some(size), _) => Want::Is(size),
            (None, Some(own)) => Want::Symbol(symbol(&mut self.symbols, own)),
            _ if dim.is_unknown() => Want::Anything,
            _ => {
                dim.for_each_symbol(&mut |own| {
                    symbol(&mut self.symbols, own);
                });
                Want::Equals(dim.clone())
            }
        });
        let dims: SmallVec<[Want; 4]> = dims.collect();
        self.slots.push(Slot {
            key: PyString::intern(py, name).unbind(),
            name: name.clone(),
            group,
            optional: group == Group::OutputGradients,
            lead: ty.shape.lead.as_ref().map(|own| symbol(&mut self.leads, own)),
            ty: Type::new(rename(ty.dtype), ty.shape.clone()),
            late: dims.iter().any(|want| matches!(want, Want::Equals(_))),
            dims,
        });
    }

    fn binding(&self) -> Binding {
        Binding {
            values: SmallVec::from_elem(-1, self.symbols.len()),
            leads: SmallVec::from_elem(None, self.leads.len()),
        }
    }

    /// Whether all is as it must be. `Some(slot)`: this one is not, or is no array yet.
    fn first_wrong(&self, py: Python<'_>, dicts: &Dicts<'_, '_>) -> Result<(), Wrong> {
        let mut found = [0; 4];
        let mut binding = self.binding();
        let mut sizes = Sizes::new();
        let mut later: SmallVec<[usize; 4]> = SmallVec::new();
        // Another thread's call, which Python may run in the middle of this one, does without.
        let mut known = self.known.try_lock().ok().filter(|_| self.reader.is_dear());
        for (at, slot) in self.slots.iter().enumerate() {
            let Some(dict) = dicts[slot.group as usize] else {
                continue;
            };
            let Some(value) = item(dict, slot.key.bind(py)) else {
                if slot.optional {
                    continue;
                }
                return Err(Wrong::Names(slot.group));
            };
            found[slot.group as usize] += 1;
            let lasting = matches!(slot.group, Group::Params | Group::State);
            let recent = known.as_deref_mut().filter(|_| lasting).map(|known| &mut known[at]);
            match recent {
                Some(recent) if recent.is(&value) => sizes.clone_from(&recent.sizes),
                recent => {
                    match self.reader.read(&value, &mut sizes) {
                        None => return Err(Wrong::Foreign(at)),
                        Some(dtype) if dtype != slot.ty.dtype => return Err(Wrong::Slot(at)),
                        Some(_) => {}
                    }
                    if let Some(recent) = recent {
                        recent.meet(&value, &sizes);
                    }
                }
            }
            if !binding.take(slot, &sizes) {
                return Err(Wrong::Slot(at));
            }
            if slot.late {
                later.push(at);
            }
        }
        for group in Group::ALL {
            let given = dicts[group as usize].map_or(0, |dict| dict.len());
            if given != found[group as usize] {
                return Err(Wrong::Names(group));
            }
        }
        self.settle(py, dicts, &binding, &later)
    }

    /// What needs all symbols: dims that are expressions, and guards.
    fn settle(
        &self,
        py: Python<'_>,
        dicts: &Dicts<'_, '_>,
        binding: &Binding,
        later: &[usize],
    ) -> Result<(), Wrong> {
        let mut sizes = Sizes::new();
        for &at in later {
            let slot = &self.slots[at];
            let value = dicts[slot.group as usize].and_then(|d| item(d, slot.key.bind(py)));
            let Some(value) = value else { continue };
            self.reader.read(&value, &mut sizes);
            let front = sizes.len() - slot.dims.len();
            let fits = slot.dims.iter().zip(&sizes[front..]).all(|(want, size)| match want {
                Want::Equals(dim) => self.evaluate(dim, binding).is_none_or(|v| v == *size),
                Want::Is(_) | Want::Symbol(_) | Want::Anything => true,
            });
            if !fits {
                return Err(Wrong::Slot(at));
            }
        }
        for (at, guard) in self.guards.iter().enumerate() {
            let (left, right) = (&guard.left, &guard.right);
            if let (Some(a), Some(b)) =
                (self.evaluate(left, binding), self.evaluate(right, binding))
            {
                if a != b {
                    return Err(Wrong::Guard(at, a, b));
                }
            }
        }
        Ok(())
    }

    fn evaluate(&self, dim: &Dim, binding: &Binding) -> Option<i64> {
        dim.evaluate(&|symbol| {
            let at = self.symbols.iter().position(|s| s == symbol)?;
            (binding.values[at] >= 0).then_some(binding.values[at])
        })
    }
}

/// Why a call is not right.
enum Wrong {
    Names(Group),
    Slot(usize),
    /// No array of the framework: one to be converted, or one that is not there yet.
    Foreign(usize),
    Guard(usize, i64, i64),
}

impl Binding {
    /// Binds the symbols of a slot to sizes. False: they do not fit.
    fn take(&mut self, slot: &Slot, sizes: &[i64]) -> bool {
        let Some(front) = sizes.len().checked_sub(slot.dims.len()) else {
            return false;
        };
        let (leading, trailing) = sizes.split_at(front);
        match slot.lead.map(|at| &mut self.leads[at]) {
            None if front > 0 => return false,
            None => {}
            Some(Some(known)) if known[..] != *leading => return false,
            Some(known) => *known = Some(leading.into()),
        }
        slot.dims.iter().zip(trailing).all(|(want, size)| match want {
            Want::Is(own) => own == size,
            Want::Symbol(at) if self.values[*at] < 0 => {
                self.values[*at] = *size;
                true
            }
            Want::Symbol(at) => self.values[*at] == *size,
            Want::Equals(_) | Want::Anything => true,
        })
    }
}

fn group_of(role: Role) -> Group {
    match role {
        Role::Param => Group::Params,
        Role::Data | Role::Key | Role::Constant => Group::Inputs,
        Role::State => Group::State,
        Role::Cotangent => Group::OutputGradients,
    }
}

fn item<'py>(dict: &Bound<'py, PyDict>, key: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    dict.get_item(key).ok().flatten()
}

#[pymethods]
impl Checker {
    /// Whether all arrays are the framework's own and what they must be. False: some are to be
    /// converted first.
    ///
    /// Errors: a name that is missing or unknown; an array of another rank, dim or dtype.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
        output_gradients: "dict[str, object] | None"=None,
    ))]
    fn check(
        &self,
        params: &Bound<'_, PyDict>,
        inputs: &Bound<'_, PyDict>,
        state: Option<&Bound<'_, PyDict>>,
        output_gradients: Option<&Bound<'_, PyDict>>,
    ) -> Answer<bool> {
        let py = params.py();
        let dicts = [Some(params), Some(inputs), state, output_gradients];
        match self.first_wrong(py, &dicts) {
            Ok(()) => Ok(true),
            Err(Wrong::Foreign(_)) => Ok(false),
            Err(wrong) => Err(self.explain(py, &dicts, wrong).into()),
        }
    }

    /// Raises what `check` found wrong with what is not even an array of the framework.
    #[pyo3(signature = (
        params: "dict[str, object]",
        inputs: "dict[str, object]",
        state: "dict[str, object] | None"=None,
        output_gradients: "dict[str, object] | None"=None,
    ))]
    fn insist(
        &self,
        params: &Bound<'_, PyDict>,
        inputs: &Bound<'_, PyDict>,
        state: Option<&Bound<'_, PyDict>>,
        output_gradients: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        let py = params.py();
        let dicts = [Some(params), Some(inputs), state, output_gradients];
        match self.first_wrong(py, &dicts) {
            Ok(()) => Ok(()),
            Err(wrong) => Err(self.explain(py, &dicts, wrong).into()),
        }
    }

    /// The shapes of params and state that the inputs leave no choice for, by name.
    #[pyo3(signature = (
        params: "dict[str, object]", inputs: "dict[str, object]"
    ) -> "dict[str, list[int]]")]
    fn shapes<'py>(
        &self,
        py: Python<'py>,
        params: &Bound<'py, PyDict>,
        inputs: &Bound<'py, PyDict>,
    ) -> Answer<Bound<'py, PyDict>> {
        let mut binding = self.binding();
        let mut sizes = Sizes::new();
        for dict in [inputs, params] {
            for slot in &self.slots {
                let Some(value) = item(dict, slot.key.bind(py)) else {
                    continue;
                };
                if attributes(&value, &mut sizes).is_some() {
                    binding.take(slot, &sizes);
                }
            }
        }
        let shapes = PyDict::new(py);
        for slot in &self.slots {
            let lead = match slot.lead {
                None => Some(&[][..]),
                Some(at) => binding.leads[at].as_deref(),
            };
            let dims: Option<Vec<i64>> =
                slot.ty.shape.dims.iter().map(|dim| self.evaluate(dim, &binding)).collect();
            if let (Group::Params | Group::State, Some(lead), Some(dims)) = (slot.group, lead, dims)
            {
                shapes.set_item(slot.key.bind(py), [lead, &dims].concat())?;
            }
        }
        Ok(shapes)
    }
}

impl Checker {
    fn explain(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, wrong: Wrong) -> Diagnostic {
        match wrong {
            Wrong::Names(group) => self.names(dicts[group as usize], group),
            Wrong::Slot(at) | Wrong::Foreign(at) => self.mismatch(py, dicts, at),
            Wrong::Guard(at, left, right) => {
                let guard = &self.guards[at];
                Diagnostic::new("Incompatible shapes: dims that must be equal are not")
                    .got(format!("{left} and {right}"))
                    .expected(format!("{} == {}", guard.left, guard.right))
            }
        }
    }

    /// A dict with other names than the program has.
    fn names(&self, dict: Option<&Bound<'_, PyDict>>, group: Group) -> Diagnostic {
        let where_ = group.name();
        let own: Vec<&str> =
            self.slots.iter().filter(|s| s.group == group).map(|s| &*s.name).collect();
        let keys = dict.map(|d| d.keys().iter().map(|k| k.to_string()).collect::<Vec<_>>());
        let keys = keys.unwrap_or_default();
        let expected = match own.is_empty() {
            true => "none: the model has none".to_string(),
            false => own.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
        };
        let unknown = keys.iter().find(|key| !own.contains(&key.as_str()));
        if let Some(unknown) = unknown {
            let mut error = Diagnostic::new(format!(
                "Terminal not found: the model has no `{unknown}` among its {where_}"
            ))
            .expected(expected);
            error.hint = did_you_mean(unknown, own.iter().copied());
            return error;
        }
        let missing: Vec<String> = (own.iter().filter(|n| !keys.iter().any(|k| k == *n)))
            .map(|n| format!("`{n}`"))
            .collect();
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let error = Diagnostic::new(format!("{} {verb} missing from {where_}", missing.join(", ")));
        match keys.is_empty() {
            true => error.got("nothing").expected(expected),
            false => error
                .got(keys.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", "))
                .expected(expected),
        }
    }

    /// A value that is no array, or of another type.
    fn mismatch(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, at: usize) -> Diagnostic {
        let slot = &self.slots[at];
        let (name, group) = (&slot.name, slot.group.name());
        let value = dicts[slot.group as usize].and_then(|d| item(d, slot.key.bind(py)));
        let Some(value) = value else {
            return Diagnostic::new(format!("`{name}` is missing from {group}"));
        };
        let mut sizes = Sizes::new();
        let expected = self.expected(py, dicts, at);
        let Some(dtype) = attributes(&value, &mut sizes) else {
            let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
            return Diagnostic::new(format!("`{name}` of {group} is no array of the backend"))
                .got(class)
                .expected(expected)
                .hint("`backend.array(x)` makes one");
        };
        let got = shown(dtype, sizes.iter().map(|s| s.to_string()));
        if dtype != slot.ty.dtype {
            let error = Diagnostic::new(format!(
                "Incompatible shapes: `{name}` of {group} has another dtype"
            ))
            .got(got)
            .expected(expected);
            return match (dtype.is_float(), slot.ty.dtype.is_float()) {
                (true, true) => {
                    error.hint("`backend.array(x)` casts floats to the backend's dtype")
                }
                _ => error.hint(format!("`backend.cast(x, \"{}\")`", slot.ty.dtype.array_name())),
            };
        }
        let what = match slot.lead.is_none() && sizes.len() != slot.dims.len() {
            true => "rank",
            false => "shape",
        };
        let place = if what == "rank" { "another rank" } else { "another shape" };
        Diagnostic::new(format!("Incompatible shapes: `{name}` of {group} has {place}"))
            .got(got)
            .expected(expected)
    }

    /// The type a slot must have, with what the slots before it say of its symbols.
    fn expected(&self, py: Python<'_>, dicts: &Dicts<'_, '_>, at: usize) -> String {
        let mut binding = self.binding();
        let mut sizes = Sizes::new();
        for slot in &self.slots[..at] {
            let value = dicts[slot.group as usize].and_then(|d| item(d, slot.key.bind(py)));
            if value.is_some_and(|v| attributes(&v, &mut sizes).is_some()) {
                binding.take(slot, &sizes);
            }
        }
        let slot = &self.slots[at];
        let lead = slot.lead.map(|lead| match &binding.leads[lead] {
            Some(known) => known.iter().map(i64::to_string).collect::<Vec<_>>(),
            None => vec!["...".to_string()],
        });
        let dims = slot.ty.shape.dims.iter().map(|dim| match self.evaluate(dim, &binding) {
            Some(size) if dim.as_const().is_none() => format!("{dim}={size}"),
            _ => dim.to_string(),
        });
        shown(slot.ty.dtype, lead.into_iter().flatten().chain(dims))
    }
}

/// `float32[32, 784]`.
fn shown(dtype: DType, dims: impl Iterator<Item = String>) -> String {
    format!("{}[{}]", dtype.array_name(), dims.collect::<Vec<_>>().join(", "))
}
