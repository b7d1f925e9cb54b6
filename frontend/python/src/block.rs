//! The Python class of blocks.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use mithril_driver::files::{publish, put};
use mithril_driver::summary::{html, table};
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::dtype::DType as Element;
use mithril_ir::graph::Role;
use mithril_model::summary::{Row, summary};
use mithril_model::{blocks, lower};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::connection::Connection;
use super::cost::Costs;
use super::dtype;
use super::error::{Answer, Error, guarded};
use super::file::{block_of_text, file_block, json};
use super::keywords::Keywords;
use super::model::gradient_of;
use super::value::{integer, no_unicode, optional_dict, settings, shapes, source, truth};

pub enum Inner {
    Block(mithril_model::Block),
    Model(mithril_model::Model),
    Train(Box<Mutex<mithril_model::TrainModel>>),
}

/// Methods that only compiled models have.
const COMPILED: &[&str] =
    &["bind", "code", "evaluate", "evaluate_gradients", "export", "randomize_params"];

/// A part of a model, which can also be compiled by itself. Calling a block connects its terminals,
/// by name or in order: inputs, then outputs.
#[pyclass(frozen, subclass, weakref, module = "mithril._core")]
pub struct Block {
    inner: OnceLock<Inner>,
}

pub fn lock(model: &Mutex<mithril_model::TrainModel>) -> MutexGuard<'_, mithril_model::TrainModel> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Block {
    /// The terminal of this name in a model.
    fn terminal(&self, name: &str) -> Result<Connection> {
        match self.inner.get() {
            Some(Inner::Model(model)) if !name.starts_with("__") => {
                Ok(model.terminal(name)?.into())
            }
            Some(Inner::Train(model)) if !name.starts_with("__") => {
                Ok(lock(model).model().terminal(name)?.into())
            }
            Some(Inner::Block(block)) => {
                let own = block.inputs().iter().map(|t| &*t.name);
                let own: Vec<&str> = own.chain(block.outputs().iter().map(|o| &*o.name)).collect();
                let mut error = Diagnostic::of(
                    ErrorKind::Terminal,
                    format!("`{}` has no `{name}`", block.kind()),
                );
                error.hint = match own.contains(&name) {
                    true => Some(
                        "add the block to a model, name its terminals there, and read them from \
                         the model"
                            .into(),
                    ),
                    false => did_you_mean(name, own.into_iter()),
                };
                error.err()
            }
            _ => Diagnostic::of(ErrorKind::Terminal, format!("there is no `{name}`")).err(),
        }
    }

    fn rows(&self, shapes: Option<&Bound<'_, PyDict>>, depth: usize) -> Answer<Vec<Row>> {
        let block = self.current()?;
        let mut options = lower::Options::default();
        if let Some(given) = shapes {
            options.shapes = self::shapes(given)?;
        } else {
            // Shows types if the shapes that the model states are enough to infer them.
            let stated = block.inputs().iter().any(|t| t.shape.is_some());
            let typed = stated.then(|| summary(&block, Some(&options), depth));
            return match typed {
                Some(Ok(rows)) => Ok(rows),
                Some(Err(_)) | None => Ok(summary(&block, None, depth)?),
            };
        }
        Ok(summary(&block, Some(&options), depth)?)
    }

    /// The training model. Errors: it is another kind of block.
    pub fn train(&self) -> Answer<MutexGuard<'_, mithril_model::TrainModel>> {
        match self.inner()? {
            Inner::Train(model) => Ok(lock(model)),
            Inner::Block(_) | Inner::Model(_) => {
                Err(Diagnostic::of(ErrorKind::Training, "this is not a `TrainModel`").into())
            }
        }
    }

    pub fn of(block: mithril_model::Block) -> Block {
        Block { inner: OnceLock::from(Inner::Block(block)) }
    }

    pub fn wrapping(inner: Inner) -> Block {
        Block { inner: OnceLock::from(inner) }
    }

    pub fn inner(&self) -> Answer<&Inner> {
        self.inner.get().ok_or_else(|| {
            Diagnostic::of(ErrorKind::EmptyModel, "this block has not been constructed")
                .hint("call `super().__init__(…)` in the subclass")
                .into()
        })
    }

    /// The block for use inside a model. Afterwards a model can no longer be changed.
    pub fn sealed(&self) -> Answer<mithril_model::Block> {
        match self.inner()? {
            Inner::Block(block) => Ok(block.clone()),
            Inner::Model(model) => Ok(model.seal()?),
            Inner::Train(model) => Ok(lock(model).seal()?),
        }
    }

    /// The block in its current form.
    pub fn current(&self) -> Answer<mithril_model::Block> {
        match self.inner()? {
            Inner::Block(block) => Ok(block.clone()),
            Inner::Model(model) => Ok(model.block()?),
            Inner::Train(model) => Ok(lock(model).finish()?),
        }
    }

    /// The model under construction. Errors: it is another kind of block.
    pub fn model(&self) -> Answer<&mithril_model::Model> {
        match self.inner()? {
            Inner::Model(model) => Ok(model),
            Inner::Block(_) | Inner::Train(_) => Err(Diagnostic::of(
                ErrorKind::Argument,
                format!("`{}` is a block, but only a model can contain other blocks", self.kind()?),
            )
            .hint("create one with `Model()`")
            .into()),
        }
    }
}

/// A string or None. Errors: it is neither.
fn text(keyword: &str, value: &Bound<'_, PyAny>) -> Answer<Option<String>> {
    value.extract().map_err(|_| {
        let class = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
        let what = match keyword {
            "name" => "`name` must be the name of the block".to_string(),
            _ => format!("`{keyword}` of a block must be a name"),
        };
        let error = Diagnostic::of(ErrorKind::Name, what).got(class);
        no_unicode(value).unwrap_or(error.expected("a string")).into()
    })
}

/// The terminals of a model, such as "x -> y, not compiled".
fn terminals(block: &mithril_model::Block) -> String {
    let inputs = block.inputs().iter().filter(|t| t.role == Role::Data).map(|t| &*t.name);
    let outputs = block.outputs().iter().map(|o| &*o.name);
    let join = |names: Vec<&str>| names.join(", ");
    format!("{} -> {}, not compiled", join(inputs.collect()), join(outputs.collect()))
}

/// Whether the value is an array of a framework with at least one axis.
fn is_array(value: &Bound<'_, PyAny>) -> bool {
    let axes = || value.getattr("shape").and_then(|shape| shape.len());
    !value.is_instance_of::<Connection>() && axes().is_ok_and(|axes| axes > 0)
}

/// The error for a block that is called with arrays, as if it would compute with them.
fn called_with_arrays(block: &mithril_model::Block) -> Error {
    let kind = block.kind();
    let inputs = block.inputs().iter().filter(|t| t.role == Role::Data && !t.optional);
    let arrays: Vec<String> = inputs.map(|t| format!("\"{}\": …", t.name)).collect();
    Diagnostic::of(
        ErrorKind::Argument,
        format!("Unexpected argument: `{kind}` cannot compute with arrays before it is compiled"),
    )
    .got("only arrays")
    .expected("names or connections, as calling a block connects it in a model")
    .hint(format!(
        "use `ml.compile(block).evaluate(params, {{{}}})` to compute; pass a constant by name",
        arrays.join(", ")
    ))
    .into()
}

#[pymethods]
impl Block {
    #[new]
    #[pyo3(signature = (*_args: "object", **_kwargs: "object"))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Block {
        Block { inner: OnceLock::new() }
    }

    /// Creates the block with these settings. The class has the name of the block.
    #[pyo3(signature = (*args: "object", **kwargs: "object"))]
    fn __init__(
        slf: &Bound<'_, Block>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        guarded(|| {
            let kind: Option<String> = match slf.getattr_opt("_entry")? {
                Some(kind) => Some(kind.extract()?),
                None => None,
            };
            let Some(entry) = kind.as_deref().and_then(blocks::find) else {
                return Err(Diagnostic::new(
                    "`Block` is the base class of all blocks and cannot be \
                                            constructed",
                )
                .hint("create a model with `Model()`")
                .into());
            };
            let kwargs = kwargs.map(|k| k.copy()).transpose()?;
            let defines = |keyword: &str| entry.parameters.iter().any(|p| p.name == keyword);
            let common = Keywords::taken_from(kwargs.as_ref(), &defines, &text)?;
            let gradient = common.gradient.as_ref().map(gradient_of).transpose()?;
            let (positional, named) = settings(entry, args, kwargs.as_ref())?;
            let named = named.iter().map(|(name, value)| (name.as_str(), value.clone()));
            let block = common.applied(entry.block(positional, named.collect())?, gradient)?;
            let _ = slf.get().inner.set(Inner::Block(block));
            Ok(())
        })
    }

    /// Returns the block with its terminals connected to names, connections, constants, or lists of
    /// these. Positional arguments connect terminals in order.
    ///
    /// Errors: `TerminalError` for an unknown terminal; `MithrilError` for a terminal that is
    /// connected twice, or more arguments than terminals.
    #[pyo3(signature = (*args: "object", **kwargs: "object"))]
    fn __call__(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<Block> {
        guarded(|| {
            let arrays = kwargs.is_none() && !args.is_empty();
            if arrays && args.iter().all(|value| is_array(&value)) {
                return Err(called_with_arrays(&self.current()?));
            }
            let mut block = self.sealed()?;
            let mut in_order = Vec::new();
            for value in args {
                match source(&value)? {
                    Some(value) => in_order.push(value),
                    None => {
                        return Err(Diagnostic::of(
                            ErrorKind::Connection,
                            "a positional terminal is None",
                        )
                        .hint("pass the following terminals by name")
                        .into());
                    }
                }
            }
            block = block.connect_in_order(in_order)?;
            for (name, value) in kwargs.into_iter().flatten() {
                if let Some(value) = source(&value)? {
                    block = block.connect([(name.extract::<String>()?, value)])?;
                }
            }
            Ok(Block::of(block))
        })
    }

    /// The same as calling the block.
    #[pyo3(signature = (*args: "object", **kwargs: "object"))]
    fn connect(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<Block> {
        self.__call__(args, kwargs)
    }

    /// The kind of the block, such as `Linear`, or the class of a model.
    #[getter]
    fn kind(&self) -> Answer<String> {
        Ok(match self.inner()? {
            Inner::Block(block) => block.kind().to_string(),
            Inner::Model(model) => model.kind().to_string(),
            Inner::Train(_) => "TrainModel".into(),
        })
    }

    /// The name that the block was given, or None.
    #[getter]
    fn name(&self) -> Answer<Option<String>> {
        Ok(match self.inner()? {
            Inner::Block(block) => block.name().map(String::from),
            Inner::Model(model) => model.name().map(|name| name.to_string()),
            Inner::Train(_) => None,
        })
    }

    /// The names of the inputs, in the order of positional connections.
    #[getter]
    fn inputs(&self) -> Answer<Vec<String>> {
        let block = self.current()?;
        Ok(block.inputs().iter().map(|t| t.name.to_string()).collect())
    }

    /// The names of the outputs.
    #[getter]
    fn outputs(&self) -> Answer<Vec<String>> {
        let block = self.current()?;
        Ok(block.outputs().iter().map(|o| o.name.to_string()).collect())
    }

    /// A table of the blocks inside, down to `depth` levels: their terminals and numbers of params.
    /// With `shapes` of the inputs, or if the model states them, also the types of terminals.
    ///
    /// Errors: as for compiling with these shapes.
    #[pyo3(signature = (shapes: "dict[str, list[int | str | None]] | None"=None, *, depth: "int"=1))]
    fn summary(
        &self,
        #[pyo3(from_py_with = optional_dict)] shapes: Option<&Bound<'_, PyDict>>,
        #[pyo3(from_py_with = integer)] depth: i64,
    ) -> Answer<String> {
        let depth = usize::try_from(depth).map_err(|_| {
            let what = Diagnostic::new("`depth` must be a number of levels of blocks");
            Box::new(what.got(depth).expected("0 or more"))
        })?;
        guarded(|| Ok(table(&self.rows(shapes, depth)?)))
    }

    /// The estimated cost of each block in one forward pass: floating-point operations, bytes of
    /// memory traffic, params, and the peak memory of inner values in bytes. `shapes` gives the
    /// shapes of inputs. Costs are formulas if dims have no numbers.
    ///
    /// Errors: as for compiling with these shapes.
    #[pyo3(signature = (shapes: "dict[str, list[int | str | None]] | None"=None, *, dtype: "DType | str | None"=None, inference: "bool"=true))]
    fn cost(
        &self,
        #[pyo3(from_py_with = optional_dict)] shapes: Option<&Bound<'_, PyDict>>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = truth)] inference: bool,
    ) -> Answer<Costs> {
        guarded(|| {
            let options = lower::Options {
                shapes: shapes.map(self::shapes).transpose()?.unwrap_or_default(),
                dtype: dtype.map_or(Ok(Element::F32), dtype::of)?,
                mode: if inference { lower::Mode::Inference } else { lower::Mode::Training },
                ..lower::Options::default()
            };
            Ok(Costs::new(mithril_driver::cost::cost(&self.current()?, &options)?))
        })
    }

    fn _repr_html_(&self) -> Answer<String> {
        guarded(|| Ok(html(&self.rows(None, 2)?)))
    }

    /// The block as JSON text, which `from_json` reads. It includes constant arrays, but not
    /// params.
    ///
    /// Errors: `MithrilError` for a function as `init`.
    fn to_json(&self) -> Answer<String> {
        guarded(|| Ok(self.current()?.to_json()?))
    }

    /// Reads a block from a JSON text that `to_json` wrote. Bodies of custom operations are code,
    /// which runs with the model: only `trust_code=True` reads a text with such bodies.
    ///
    /// Errors: `MithrilError` for text of another format, of a newer version, or with bodies that
    /// are not trusted.
    #[staticmethod]
    #[pyo3(signature = (text: "str", trust_code: "bool"=false))]
    fn from_json(
        text: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = truth)] trust_code: bool,
    ) -> Answer<Block> {
        guarded(|| Ok(Block::of(block_of_text(&json(text)?, trust_code)?)))
    }

    /// Writes the block to a file, as JSON. Params are not included.
    ///
    /// Errors: `MithrilError` for a file that cannot be written; as for `to_json`.
    #[pyo3(signature = (path: "str | PathLike[str]"))]
    fn save(&self, path: &Bound<'_, PyAny>) -> Answer<()> {
        let path = super::file::path("save", path)?;
        let text = self.to_json()?;
        Ok(publish(&path, |temporary| put(temporary, text.as_bytes()))?)
    }

    /// Reads a block from a file that `save` wrote. `trust_code` is that of `from_json`.
    ///
    /// Errors: `MithrilError` for a file that cannot be read; as for `from_json`.
    #[staticmethod]
    #[pyo3(signature = (path: "str | PathLike[str]", trust_code: "bool"=false))]
    fn load(
        path: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = truth)] trust_code: bool,
    ) -> Answer<Block> {
        guarded(|| Ok(Block::of(file_block(path, trust_code)?)))
    }

    /// A copy with the same settings, name and connections, but its own params. Params that are
    /// shared inside the block are shared inside the copy. The copy of a model can be changed.
    ///
    /// Errors: a `TrainModel`.
    fn copy<'py>(slf: &Bound<'py, Block>) -> Answer<Bound<'py, PyAny>> {
        let py = slf.py();
        match slf.get().inner()? {
            Inner::Block(block) => {
                let class = slf.get_type();
                let copy = class.call_method1("__new__", (&class,))?;
                let _ = copy
                    .cast::<Block>()
                    .map_err(PyErr::from)?
                    .get()
                    .inner
                    .set(Inner::Block(block.copy()));
                Ok(copy)
            }
            Inner::Model(model) => {
                let base = Block::wrapping(Inner::Model(model.copy()));
                let copy = PyClassInitializer::from(base).add_subclass(super::model::Model);
                Ok(Bound::new(py, copy)?.into_any())
            }
            Inner::Train(_) => Err(Diagnostic::new("a `TrainModel` cannot be copied")
                .hint("`TrainModel(model.copy())` trains a copy of the model")
                .into()),
        }
    }

    /// Copies and pickles are made through JSON. They have their own params.
    ///
    /// Errors: the block has connections to a model under construction, or is a `TrainModel`.
    fn __reduce__<'py>(slf: &Bound<'py, Block>) -> Answer<(Bound<'py, PyAny>, (String, bool))> {
        guarded(|| {
            let class = match slf.get().inner()? {
                Inner::Model(_) => slf.py().get_type::<super::model::Model>().into_any(),
                Inner::Block(block) if block.given().is_empty() => {
                    slf.py().get_type::<Block>().into_any()
                }
                Inner::Block(_) | Inner::Train(_) => {
                    let what = "a block with connections, or a `TrainModel`, cannot be copied";
                    return Err(Diagnostic::new(what)
                        .hint("copy the block or the model that it is made from")
                        .into());
                }
            };
            // A pickle is code itself, so its bodies are trusted as much as it is.
            Ok((class.getattr("from_json")?, (slf.get().to_json()?, true)))
        })
    }

    fn __repr__(&self) -> Answer<String> {
        if let Inner::Block(block) = self.inner()? {
            return Ok(block.text());
        }
        let name = self.name()?.map(|name| format!("name=\"{name}\""));
        let terminals = match self.current() {
            Ok(block) => Some(terminals(&block)),
            // The model is empty or has a cycle.
            Err(_) => None,
        };
        let parts: Vec<String> = name.into_iter().chain(terminals).collect();
        Ok(format!("{}({})", self.kind()?, parts.join(", ")))
    }

    fn __getattr__(&self, name: &Bound<'_, PyString>) -> Answer<Connection> {
        // Names of terminals are always valid Unicode.
        let name: &str = &name.to_string_lossy();
        let found = self.terminal(name).map_err(|error| match COMPILED.contains(&name) {
            true => Box::new(
                error.hint(format!("compile it first: `ml.compile(model, backend).{name}`")),
            ),
            false => error,
        });
        Ok(found?)
    }
}
