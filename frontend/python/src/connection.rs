//! Connections, and the values that a terminal can be connected to.

// PyO3 generates unsafe calls in the expansion of our macro, where its own `allow` is lost.
#![allow(unsafe_op_in_unsafe_fn)]

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_ir::graph::Role;
use mithril_model::blocks::{Entry, Meaning};
use mithril_model::model::{Method as Named, methods};
use mithril_model::naming::snake_case;
use mithril_model::{Setting, Source, blocks};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use super::dtype;
use super::error::{Answer, Error, guarded};
use super::value::{setting, source};

/// A value inside a model. Operators and methods of a connection add blocks to its model. An
/// expression of `IOKey`s joins the model that first reads it.
#[pyclass(frozen, subclass, module = "mithril._core")]
pub struct Connection(pub Source);

impl From<mithril_model::Connection> for Connection {
    fn from(connection: mithril_model::Connection) -> Connection {
        Connection(connection.into())
    }
}

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
            Ok(Connection(match reflected {
                true => other.operate(symbol, &self.0)?,
                false => self.0.operate(symbol, other)?,
            }))
        })
    }

    fn property(&self, name: &str) -> Answer<Connection> {
        guarded(|| Ok(Connection(self.0.method(name, Vec::new(), Vec::new(), Vec::new())?)))
    }

    /// The connection inside a model. Errors: an expression that belongs to no model yet.
    fn in_model(&self) -> Answer<&mithril_model::Connection> {
        match &self.0 {
            Source::Connection(connection) => Ok(connection),
            Source::Key(_)
            | Source::Expression(_)
            | Source::Name(_)
            | Source::Literal(_)
            | Source::List(_) => Err(Diagnostic::of(
                ErrorKind::OtherModel,
                "the expression belongs to no model until a block reads it",
            )
            .hint("`x = model.add_input(\"x\")` is an input of a model")
            .into()),
        }
    }

    /// The number of elements of a list output; `None` if it is not a list.
    fn count(&self) -> Option<usize> {
        match &self.0 {
            Source::Connection(connection) => connection.elements(),
            Source::Key(_)
            | Source::Expression(_)
            | Source::Name(_)
            | Source::Literal(_)
            | Source::List(_) => None,
        }
    }
}

/// NumPy's ufuncs that are operators, and the operators.
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

/// NumPy's functions whose names differ from those of our methods.
const RENAMED: [(&str, &str); 9] = [
    ("absolute", "abs"),
    ("negative", "neg"),
    ("arcsin", "asin"),
    ("arccos", "acos"),
    ("arctan", "atan"),
    ("arctan2", "atan2"),
    ("isnan", "is_nan"),
    ("isinf", "is_inf"),
    ("rint", "round"),
];

/// The method of this name.
fn named(name: &str) -> Option<&'static Named> {
    methods().iter().find(|m| m.name == name)
}

/// The block that computes a NumPy function. `None` if there is none, or if it has another number
/// of inputs.
fn block_of(ufunc: &str, inputs: usize) -> Option<&'static str> {
    let renamed = RENAMED.iter().find(|(name, _)| *name == ufunc);
    let method = named(renamed.map_or(ufunc, |(_, method)| method))?;
    let own = blocks::find(method.block)?.inputs;
    (own.len() == inputs).then_some(method.block)
}

/// The error for a function that needs concrete numbers. `name` is the last part of its name.
fn no_value(function: &str, name: &str) -> Error {
    let what = format!(
        "Unexpected argument: {function} takes numbers, but a connection has no value before a call"
    );
    let same = |e: &&Entry| {
        matches!(e.meaning, Meaning::Op(op) if op == name) || snake_case(e.name) == name
    };
    let hint = if named(name).is_some() {
        format!("use the method `.{name}()` of the connection")
    } else if let Some(entry) = blocks::table().find(same) {
        format!("use the block `{}` of `mithril.models`", entry.name)
    } else if let Some(place) = blocks::elsewhere::elsewhere(name) {
        place.to_string()
    } else {
        "use the blocks of `mithril.models`".to_string()
    };
    Diagnostic::of(ErrorKind::NoValueYet, what).got("a connection").hint(hint).into()
}

/// The error for a function of a framework, such as `np.concatenate` or `torch.exp`.
fn no_value_for(framework: &str, function: &Bound<'_, PyAny>) -> Answer<Error> {
    let name: String = match function.getattr_opt("__name__")? {
        Some(name) => name.extract()?,
        None => function.str()?.extract()?,
    };
    Ok(no_value(&format!("`{framework}.{name}`"), &name))
}

/// Implements the operators by their names in Python's data model.
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

            /// An element of a list output, or `Indexer` of an array.
            fn __getitem__(&self, index: &Bound<'_, PyAny>) -> Answer<Connection> {
                guarded(|| {
                    if self.count().is_some() {
                        let Ok(at) = index.extract() else {
                            return Err(Diagnostic::of(ErrorKind::Connection, "an element of a list output takes one \
                                                        index")
                                .got(index.repr()?)
                                .expected("an integer")
                                .into());
                        };
                        return Ok(self.in_model()?.element(at)?.into());
                    }
                    let parameter = blocks::find("Indexer").map(|e| &e.parameters[0]);
                    let index = setting(index, parameter)?;
                    Ok(Connection(self.0.method("item", Vec::new(), vec![index], Vec::new())?))
                })
            }

            fn __len__(&self) -> Answer<usize> {
                let open = "only a list output has a length before a call";
                let error = Diagnostic::of(ErrorKind::NoValueYet, open)
                    .hint("`.len()` is the first dim, as a value of the model");
                self.count().ok_or_else(|| error.into())
            }

            /// The elements of a list output.
            fn __iter__(slf: &Bound<'_, Self>) -> Answer<Py<PyAny>> {
                let own = slf.borrow();
                let Some(count) = own.count() else {
                    let what = "a connection cannot be iterated over before a call";
                    return Err(Diagnostic::of(ErrorKind::NoValueYet, what)
                        .hint("use `x[i]` for an element, or `Split` for several outputs")
                        .into());
                };
                let list = own.in_model()?;
                let all = (0..count).map(|at| Ok(Connection::from(list.element(at as i64)?)));
                let all = all.collect::<mithril_ir::diagnostic::Result<Vec<_>>>()?;
                Ok(all.into_pyobject(slf.py())?.try_iter()?.into_any().unbind())
            }

            fn __contains__(&self, other: &Bound<'_, PyAny>) -> Answer<bool> {
                let _ = other;
                Err(Diagnostic::of(ErrorKind::NoValueYet, "the elements of a connection are not known before a call",
                )
                .hint("use `(x == 3).any()`, which is a value of the model")
                .into())
            }

            /// A comparison of connections is a block, which has no truth value before a call.
            fn __bool__(&self) -> Answer<bool> {
                Err(Diagnostic::of(ErrorKind::NoValueYet, "a connection has no truth value before a call",
                )
                .hint("use `Where` to choose elements, and `&`, `|` and `~` to combine conditions")
                .into())
            }

            /// NumPy's operators and elementwise functions: `np.exp(c)`, `np.maximum(c, 1.0)`.
            ///
            /// Errors: a function that no block computes; `out=` and other keywords.
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
                if method != "__call__" || kwargs.is_some_and(|k| !k.is_empty()) {
                    return Err(no_value(&format!("`np.{name}`"), &name));
                }
                let sources: Answer<Option<Vec<Source>>> =
                    guarded(|| inputs.iter().map(|value| source(&value)).collect());
                let Some(sources) = sources? else {
                    return Err(no_value(&format!("`np.{name}` of None"), &name));
                };
                let symbol = UFUNCS.iter().find(|(ufunc, _)| *ufunc == name);
                match (symbol, &sources[..], block_of(&name, sources.len())) {
                    (Some((_, symbol)), [left, right], _) => {
                        guarded(|| Ok(Connection(left.operate(symbol, right)?)))
                    }
                    (_, _, Some(block)) => guarded(|| Ok(Connection(Source::of(block, sources)?))),
                    (_, _, None) => Err(no_value(&format!("`np.{name}`"), &name)),
                }
            }

            #[pyo3(signature = (*_args: "object", **_kwargs: "object"))]
            fn __array__(
                &self,
                _args: &Bound<'_, PyTuple>,
                _kwargs: Option<&Bound<'_, PyDict>>,
            ) -> Answer<Py<PyAny>> {
                Err(no_value("an array of NumPy", "array"))
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
                Err(no_value_for("np", function)?)
            }

            /// Raises a `TypeError`, after which PyTorch leaves operators to the connection.
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
                Err(no_value_for("torch", function)?)
            }

            #[pyo3(signature = (_digits: "object"=None))]
            fn __round__(&self, _digits: Option<&Bound<'_, PyAny>>) -> Answer<i64> {
                Err(no_value("`round`", "round"))
            }

            fn __float__(&self) -> Answer<f64> {
                Err(no_value("`float`", "float"))
            }

            fn __int__(&self) -> Answer<i64> {
                Err(no_value("`int`", "int"))
            }

            fn __complex__(&self) -> Answer<f64> {
                Err(no_value("`complex`", "complex"))
            }

            /// Methods and properties that are blocks: `.sum(axis=1)`, `.shape`.
            fn __getattr__(
                slf: &Bound<'_, Connection>,
                name: &Bound<'_, PyString>,
            ) -> PyResult<Py<PyAny>> {
                let py = slf.py();
                let name: &str = &name.to_string_lossy();
                let Some(method) = named(name) else {
                    let names = methods().iter().map(|m| &*m.name);
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
                let bound = Method { of: slf.clone().unbind(), method };
                Ok(bound.into_pyobject(py)?.into_any().unbind())
            }

            fn __dir__(slf: &Bound<'_, Connection>) -> PyResult<Vec<String>> {
                let mut names: Vec<String> = slf.get_type().dir()?.extract()?;
                names.extend(methods().iter().map(|method| method.name.clone()));
                Ok(names)
            }

            fn __hash__(slf: &Bound<'_, Connection>) -> isize {
                slf.as_ptr() as isize >> 4
            }

            fn __repr__(&self) -> String {
                match &self.0 {
                    Source::Connection(connection) => format!("{connection:?}"),
                    Source::Key(key) => match &key.name {
                        Some(name) => format!("IOKey(\"{name}\")"),
                        None => "IOKey()".into(),
                    },
                    Source::Expression(block) => format!("Connection({})", block.kind()),
                    Source::Name(_) | Source::Literal(_) | Source::List(_) => "Connection()".into(),
                }
            }

            /// The name of the terminal, if it has one.
            #[getter]
            pub fn name(&self) -> Option<String> {
                match &self.0 {
                    Source::Connection(connection) => connection.name().map(|n| n.to_string()),
                    Source::Key(key) => key.name.as_ref().map(|n| n.to_string()),
                    Source::Expression(_)
                    | Source::Name(_)
                    | Source::Literal(_)
                    | Source::List(_) => None,
                }
            }

            /// The dtype, if it is stated or follows from stated dtypes. None if it is known
            /// only at compile time, such as that of the backend's floats.
            #[getter]
            fn dtype(&self) -> Option<dtype::DType> {
                let known = match &self.0 {
                    Source::Connection(connection) => connection.dtype(),
                    Source::Key(key) => key.dtype,
                    Source::Expression(_)
                    | Source::Name(_)
                    | Source::Literal(_)
                    | Source::List(_) => None,
                };
                known.map(dtype::DType)
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

/// A method of a connection. It is called with the other inputs of its block, then the settings.
#[pyclass(frozen, module = "mithril._core")]
pub struct Method {
    of: Py<Connection>,
    method: &'static Named,
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
            let entry = blocks::find(self.method.block);
            let parameters = entry.map_or(&[][..], |e| e.parameters);
            // A shape is a setting, unless a single connection gives it.
            let whole = args.len() == 1 && args.get_item(0)?.is_instance_of::<Connection>();
            let is_setting = |name: &str| !whole && parameters.iter().any(|p| p.name == name);
            let data = |input: &&blocks::Input| input.role == Role::Data && !is_setting(input.name);
            let inputs = entry.map_or(0, |e| e.inputs.iter().filter(data).count());
            let others = args.len().min(inputs.saturating_sub(1));
            let mut sources = Vec::new();
            for value in args.iter().take(others) {
                sources.extend(source(&value)?);
            }
            let rest: Vec<_> = args.iter().skip(others).collect();
            // `x.reshape(2, 3)` means `x.reshape((2, 3))`.
            let spread = parameters.len() == 1 && rest.len() > 1;
            let mut positional: Vec<Setting> = Vec::new();
            for (i, value) in rest.iter().enumerate() {
                let parameter = if spread { None } else { parameters.get(i) };
                positional.push(setting(value, parameter)?);
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
            let of = &self.of.get().0;
            Ok(Connection(of.method(&self.method.name, sources, positional, named)?))
        })
    }

    fn __repr__(&self) -> String {
        format!("<method `{}` of a connection: the block {}>", self.method.name, self.method.block)
    }
}
