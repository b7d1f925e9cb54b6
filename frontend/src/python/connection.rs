//! Connections, and what a terminal is connected to.

// PyO3 writes unsafe calls into what our own macro expands to, where its own allowance is lost.
#![allow(unsafe_op_in_unsafe_fn)]

use mithril_ir::diagnostic::Diagnostic;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::dtype;
use super::fault::{Answer, Fault, guarded};
use super::value::{
    literal, optional_list, optional_text, optional_truth, refuse, setting, shape, source, truth,
};
use crate::blocks::{Entry, Meaning};
use crate::model::METHODS;
use crate::naming::snake_case;
use crate::{Setting, blocks};

/// A value inside a model. Operators and methods on it add the blocks that compute them.
#[pyclass(frozen, module = "mithril._core")]
pub struct Connection(pub crate::Connection);

impl Connection {
    fn apply(&self, symbol: &str, other: &Bound<'_, PyAny>, reflected: bool) -> Answer<Connection> {
        guarded(|| {
            let Some(other) = source(other)? else {
                return Err(Diagnostic::new(format!(
                    "`{symbol}` takes a connection or a constant"
                ))
                .got("None")
                .into());
            };
            let result = match reflected {
                true => self.0.operate_reflected(symbol, other)?,
                false => self.0.operate(symbol, other)?,
            };
            Ok(Connection(result))
        })
    }

    fn property(&self, name: &str) -> Answer<Connection> {
        guarded(|| Ok(Connection(self.0.method(name, Vec::new(), Vec::new())?)))
    }
}

/// NumPy's functions that operators on its arrays call, and the operators.
const UFUNCS: [(&str, &str); 19] = [
    ("add", "+"),
    ("subtract", "-"),
    ("multiply", "*"),
    ("divide", "/"),
    ("floor_divide", "//"),
    ("remainder", "%"),
    ("power", "**"),
    ("matmul", "@"),
    ("bitwise_and", "&"),
    ("bitwise_or", "|"),
    ("bitwise_xor", "^"),
    ("left_shift", "<<"),
    ("right_shift", ">>"),
    ("equal", "=="),
    ("not_equal", "!="),
    ("less", "<"),
    ("less_equal", "<="),
    ("greater", ">"),
    ("greater_equal", ">="),
];

/// The error of a function that computes at once, whose last name is `name`.
fn no_array(function: &str, name: &str) -> Fault {
    let what = format!(
        "Unexpected argument: {function} takes numbers, and a connection has none before a call"
    );
    let named = |e: &&Entry| {
        matches!(e.meaning, Meaning::Op(op) if op == name) || snake_case(e.name) == name
    };
    let hint = if METHODS.iter().any(|m| m.name == name) {
        format!("`.{name}()` of a connection is a value of the model")
    } else if let Some(entry) = blocks::table().find(named) {
        format!("the block `{}` of `mithril.models` computes values of the model", entry.name)
    } else {
        "the blocks of `mithril.models` compute values of the model".to_string()
    };
    Diagnostic::new(what).got("a connection").hint(hint).into()
}

/// The error of a function of a framework, as `np.concatenate` or `torch.exp`.
fn no_array_of(framework: &str, function: &Bound<'_, PyAny>) -> Answer<Fault> {
    let name: String = match function.getattr_opt("__name__")? {
        Some(name) => name.extract()?,
        None => function.str()?.extract()?,
    };
    Ok(no_array(&format!("`{framework}.{name}`"), &name))
}

/// The operators by their names in Python's data model.
macro_rules! operators {
    (
        pairs: { $($pair:ident $symbol:literal),* $(,)? }
        reflected: { $($back:ident $of:literal),* $(,)? }
        alone: { $($alone:ident $method:literal),* $(,)? }
    ) => {
        #[pymethods]
        impl Connection {
            $(fn $pair(&self, other: &Bound<'_, PyAny>) -> Answer<Connection> {
                self.apply($symbol, other, false)
            })*
            $(fn $back(&self, other: &Bound<'_, PyAny>) -> Answer<Connection> {
                self.apply($of, other, true)
            })*
            $(fn $alone(&self) -> Answer<Connection> {
                self.property($method)
            })*

            fn __pow__(
                &self,
                other: &Bound<'_, PyAny>,
                modulo: Option<&Bound<'_, PyAny>>,
            ) -> Answer<Connection> {
                let _ = modulo;
                self.apply("**", other, false)
            }

            fn __rpow__(
                &self,
                other: &Bound<'_, PyAny>,
                modulo: Option<&Bound<'_, PyAny>>,
            ) -> Answer<Connection> {
                let _ = modulo;
                self.apply("**", other, true)
            }

            /// An element of a list output, or a part of an array.
            fn __getitem__(&self, index: &Bound<'_, PyAny>) -> Answer<Connection> {
                guarded(|| {
                    if self.0.elements().is_some() {
                        let Ok(at) = index.extract() else {
                            return Err(Diagnostic::new("an element of a list output is one index")
                                .got(index.repr()?)
                                .expected("an integer")
                                .into());
                        };
                        return Ok(Connection(self.0.element(at)?));
                    }
                    let parameter = blocks::find("Indexer").map(|e| &e.parameters[0]);
                    let index = setting(index, parameter)?;
                    Ok(Connection(self.0.method("item", vec![index], Vec::new())?))
                })
            }

            fn __len__(&self) -> Answer<usize> {
                let open = "only a list output has a length before it is computed";
                let error = Diagnostic::new(open)
                    .hint("`.len()` is the first dim as a value of the model");
                self.0.elements().ok_or_else(|| error.into())
            }

            /// The elements of a list output.
            fn __iter__(slf: &Bound<'_, Self>) -> Answer<Py<PyAny>> {
                let own = slf.borrow();
                let Some(count) = own.0.elements() else {
                    let what = "a connection has no elements to go through before it is computed";
                    return Err(Diagnostic::new(what)
                        .hint("`x[i]` is a part of it; `Split` makes several outputs")
                        .into());
                };
                let all = (0..count).map(|at| Ok(Connection(own.0.element(at as i64)?)));
                let all = all.collect::<mithril_ir::diagnostic::Result<Vec<_>>>()?;
                Ok(all.into_pyobject(slf.py())?.try_iter()?.into_any().unbind())
            }

            fn __contains__(&self, other: &Bound<'_, PyAny>) -> Answer<bool> {
                let _ = other;
                Err(Diagnostic::new(
                    "what a connection contains is not known before a call",
                )
                .hint("`(x == 3).any()` is a value of the model")
                .into())
            }

            /// A comparison of connections is a block of the model, which has no truth before a call.
            fn __bool__(&self) -> Answer<bool> {
                Err(Diagnostic::new(
                    "a connection has no truth value: it stands for what a call computes",
                )
                .hint("choose elements with `Where`; `&`, `|` and `~` combine conditions")
                .into())
            }

            /// NumPy leaves operators on connections to them. Errors: another function of NumPy.
            #[pyo3(signature = (
                ufunc: "object", method: "str", *inputs: "object", **kwargs: "object"
            ))]
            fn __array_ufunc__(
                &self,
                ufunc: &Bound<'_, PyAny>,
                method: &str,
                inputs: &Bound<'_, PyTuple>,
                kwargs: Option<&Bound<'_, PyDict>>,
            ) -> Answer<Connection> {
                let name: String = ufunc.getattr("__name__")?.extract()?;
                let plain = method == "__call__" && kwargs.is_none_or(|k| k.is_empty());
                let symbol = UFUNCS.iter().find(|(ufunc, _)| plain && *ufunc == name);
                let (Some((_, symbol)), Ok((left, right))) = (symbol, inputs.extract()) else {
                    return Err(no_array(&format!("`np.{name}`"), &name));
                };
                let (left, right): (Bound<'_, PyAny>, Bound<'_, PyAny>) = (left, right);
                match left.cast::<Connection>() {
                    Ok(left) => left.get().apply(symbol, &right, false),
                    Err(_) => self.apply(symbol, &left, true),
                }
            }

            #[pyo3(signature = (*_args: "object", **_kwargs: "object"))]
            fn __array__(
                &self,
                _args: &Bound<'_, PyTuple>,
                _kwargs: Option<&Bound<'_, PyDict>>,
            ) -> Answer<Py<PyAny>> {
                Err(no_array("an array of NumPy", "array"))
            }

            #[pyo3(signature = (
                function: "object", _types: "object", _args: "object", _kwargs: "object"
            ))]
            fn __array_function__(
                &self,
                function: &Bound<'_, PyAny>,
                _types: &Bound<'_, PyAny>,
                _args: &Bound<'_, PyAny>,
                _kwargs: &Bound<'_, PyAny>,
            ) -> Answer<Py<PyAny>> {
                Err(no_array_of("np", function)?)
            }

            /// PyTorch leaves operators on connections to them, as it does for each `TypeError`.
            /// Errors: another function of PyTorch.
            #[classmethod]
            #[pyo3(signature = (
                function: "object", _types: "object", _args: "object"=None, _kwargs: "object"=None
            ))]
            fn __torch_function__(
                _class: &Bound<'_, PyType>,
                function: &Bound<'_, PyAny>,
                _types: &Bound<'_, PyAny>,
                _args: Option<&Bound<'_, PyAny>>,
                _kwargs: Option<&Bound<'_, PyAny>>,
            ) -> Answer<Py<PyAny>> {
                Err(no_array_of("torch", function)?)
            }

            #[pyo3(signature = (_digits: "object"=None))]
            fn __round__(&self, _digits: Option<&Bound<'_, PyAny>>) -> Answer<i64> {
                Err(no_array("`round`", "round"))
            }

            fn __float__(&self) -> Answer<f64> {
                Err(no_array("`float`", "float"))
            }

            fn __int__(&self) -> Answer<i64> {
                Err(no_array("`int`", "int"))
            }

            fn __complex__(&self) -> Answer<f64> {
                Err(no_array("`complex`", "complex"))
            }

            /// Methods and properties that are blocks: `.sum(axis=1)`, `.shape`.
            fn __getattr__(slf: &Bound<'_, Connection>, name: &str) -> PyResult<Py<PyAny>> {
                let py = slf.py();
                let Some(method) = METHODS.iter().find(|m| m.name == name) else {
                    let names = METHODS.iter().map(|m| m.name);
                    let near = mithril_ir::diagnostic::did_you_mean(name, names);
                    let hint = near.map(|n| format!("\n  hint: {n}")).unwrap_or_default();
                    return Err(PyAttributeError::new_err(format!(
                        "a connection has no `{name}`{hint}"
                    )));
                };
                if method.property && !["neg", "invert", "abs"].contains(&name) {
                    let result = slf.get().property(name)?;
                    return Ok(result.into_pyobject(py)?.into_any().unbind());
                }
                let bound = Method { of: slf.clone().unbind(), name: method.name };
                Ok(bound.into_pyobject(py)?.into_any().unbind())
            }

            fn __dir__(slf: &Bound<'_, Connection>) -> PyResult<Vec<String>> {
                let mut names: Vec<String> = slf.get_type().dir()?.extract()?;
                names.extend(METHODS.iter().map(|method| method.name.to_string()));
                Ok(names)
            }

            fn __hash__(slf: &Bound<'_, Connection>) -> isize {
                slf.as_ptr() as isize >> 4
            }

            fn __repr__(&self) -> String {
                format!("{:?}", self.0)
            }

            /// The name of the terminal, if it has one.
            #[getter]
            fn name(&self) -> Option<String> {
                self.0.name().map(|name| name.to_string())
            }
        }
    };
}

operators! {
    pairs: {
        __add__ "+", __sub__ "-", __mul__ "*", __truediv__ "/", __floordiv__ "//", __mod__ "%",
        __matmul__ "@", __and__ "&", __or__ "|", __xor__ "^", __lshift__ "<<", __rshift__ ">>",
        __eq__ "==", __ne__ "!=", __lt__ "<", __le__ "<=", __gt__ ">", __ge__ ">=",
    }
    reflected: {
        __radd__ "+", __rsub__ "-", __rmul__ "*", __rtruediv__ "/", __rfloordiv__ "//",
        __rmod__ "%", __rmatmul__ "@", __rand__ "&", __ror__ "|", __rxor__ "^", __rlshift__ "<<",
        __rrshift__ ">>",
    }
    alone: {
        __neg__ "neg", __invert__ "invert", __abs__ "abs",
    }
}

/// A method of a connection, to be called with the settings of its block.
#[pyclass(frozen, module = "mithril._core")]
pub struct Method {
    of: Py<Connection>,
    name: &'static str,
}

#[pymethods]
impl Method {
    #[pyo3(signature = (*args: "object", **kwargs: "object"))]
    fn __call__(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<Connection> {
        guarded(|| {
            let method = METHODS.iter().find(|m| m.name == self.name);
            let entry = method.and_then(|m| blocks::find(m.block));
            let parameters = entry.map_or(&[][..], |e| e.parameters);
            // `x.reshape(2, 3)` is `x.reshape((2, 3))`.
            let spread = parameters.len() == 1 && args.len() > 1;
            let mut positional: Vec<Setting> = Vec::new();
            for (i, value) in args.iter().enumerate() {
                let parameter = if spread { None } else { parameters.get(i) };
                positional.push(setting(&value, parameter)?);
            }
            if spread {
                positional = vec![Setting::List(positional.into())];
            }
            let mut named = Vec::new();
            for (name, value) in kwargs.into_iter().flatten() {
                let name: String = name.extract()?;
                let parameter = parameters.iter().find(|p| p.name == name);
                named.push((name, setting(&value, parameter)?));
            }
            let named = named.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            Ok(Connection(self.of.get().0.method(self.name, positional, named)?))
        })
    }
}

/// A connection with what is known of it: a name makes it a terminal of the model; `expose` makes
/// it an output even where something inside reads it.
#[pyclass(frozen, module = "mithril._core")]
pub struct IOKey(pub crate::IoKey);

const KNOWN: &[&str] =
    &["name", "value", "shape", "dtype", "differentiable", "expose", "connections"];

#[pymethods]
impl IOKey {
    #[new]
    #[pyo3(signature = (
        name: "str | None"=None, *, value=None, shape=None, dtype=None,
        differentiable: "bool | None"=None, expose: "bool"=false,
        connections: "list[object] | None"=None, **unknown: "object",
    ))]
    // Each is a keyword in Python.
    #[allow(clippy::too_many_arguments)]
    fn new(
        #[pyo3(from_py_with = optional_text)] name: Option<String>,
        value: Option<&Bound<'_, PyAny>>,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_truth)] differentiable: Option<bool>,
        #[pyo3(from_py_with = truth)] expose: bool,
        #[pyo3(from_py_with = optional_list)] connections: Option<Vec<Bound<'_, PyAny>>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> Answer<IOKey> {
        refuse("IOKey", unknown, KNOWN)?;
        let connections: Answer<Vec<_>> =
            connections.unwrap_or_default().iter().map(source).collect();
        Ok(IOKey(crate::IoKey {
            name: name.map(Into::into),
            value: value.map(literal).transpose()?,
            shape: shape.map(self::shape).transpose()?.map(Into::into),
            dtype: dtype.map(dtype::of).transpose()?,
            differentiable,
            expose,
            connections: connections?.into_iter().flatten().collect(),
        }))
    }

    fn __repr__(&self) -> String {
        match &self.0.name {
            Some(name) => format!("IOKey(\"{name}\")"),
            None => "IOKey()".into(),
        }
    }
}
