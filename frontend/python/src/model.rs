//! The Python classes of models under construction and training models.

use std::iter::once;
use std::sync::Mutex;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, did_you_mean};
use mithril_ir::graph::Role;
use mithril_model::Loss;
use mithril_model::block::quoted;
use mithril_model::naming::snake_case;
use mithril_model::place::Place;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use super::block::{Block, Inner};
use super::connection::Connection;
use super::dtype;
use super::error::{Answer, Error, guarded};
use super::file::{block_of_text, file_block, json};
use super::keywords::numerics;
use super::value::{
    check_keywords, check_keywords_or, class, names, number, optional_dict, optional_list,
    optional_text, optional_truth, shape, shapes, text, truth, uncalled,
};

/// A model under construction. `model |= block` adds a block with the connections that it was
/// given. `model += block` also connects the block's standard input to the last standard output.
#[pyclass(frozen, subclass, extends = Block, module = "mithril._core")]
pub struct Model;

impl Model {
    fn loaded(py: Python<'_>, block: &mithril_model::Block) -> Answer<Py<Model>> {
        let model = mithril_model::Model::from_block(block)?;
        let base = Block::wrapping(Inner::Model(model));
        Ok(Py::new(py, PyClassInitializer::from(base).add_subclass(Model))?)
    }
}

#[pymethods]
impl Model {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*args: "object", **kwargs: "object"))]
    fn new(
        class: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<PyClassInitializer<Model>> {
        // A subclass may take any arguments.
        if class.is(class.py().get_type::<Model>()) {
            check_settings(args, kwargs)?;
        }
        let kind = class.name()?.to_string();
        let base = Block::wrapping(Inner::Model(mithril_model::Model::of_kind(&kind)));
        Ok(PyClassInitializer::from(base).add_subclass(Model))
    }

    #[pyo3(signature = (
        *, name: "str | None"=None, backend: "str | None"=None, device: "str | None"=None,
        dtype: "object"=None, precision: "int | None"=None, acc: "object"=None, checkpoint: "bool"=false, gradient: "Block | None"=None
    ))]
    // These are the keywords of Python's constructor.
    #[allow(clippy::too_many_arguments)]
    fn __init__(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = optional_text)] name: Option<String>,
        #[pyo3(from_py_with = optional_text)] backend: Option<String>,
        #[pyo3(from_py_with = optional_text)] device: Option<String>,
        dtype: Option<&Bound<'_, PyAny>>,
        precision: Option<&Bound<'_, PyAny>>,
        acc: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = truth)] checkpoint: bool,
        gradient: Option<&Bound<'_, PyAny>>,
    ) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        if let Some(name) = name {
            model.set_name(&name)?;
        }
        if let Some(gradient) = gradient {
            model.set_gradient(&gradient_of(gradient)?)?;
        }
        model.set_numerics(numerics(dtype, precision, acc)?)?;
        model.set_place(Place::new(backend.as_deref(), device.as_deref())?)?;
        Ok(model.set_checkpoint(checkpoint)?)
    }

    /// Reads a model from a JSON text that `to_json` wrote. The model can be extended. Bodies of
    /// custom operations are code, which runs with the model: only `trust_code=True` reads a text
    /// with such bodies.
    ///
    /// Errors: `MithrilError` for text of another format, of a newer version, or with bodies that
    /// are not trusted.
    #[staticmethod]
    #[pyo3(signature = (text: "str", trust_code: "bool"=false))]
    fn from_json(
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = truth)] trust_code: bool,
    ) -> Answer<Py<Model>> {
        guarded(|| Model::loaded(py, &block_of_text(&json(text)?, trust_code)?))
    }

    /// Reads a model from a file that `save` wrote. The model can be extended. `trust_code` is that
    /// of `from_json`.
    ///
    /// Errors: `MithrilError` for a file that cannot be read; as for `from_json`.
    #[staticmethod]
    #[pyo3(signature = (path: "str | PathLike[str]", trust_code: "bool"=false))]
    fn load(
        py: Python<'_>,
        path: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = truth)] trust_code: bool,
    ) -> Answer<Py<Model>> {
        guarded(|| Model::loaded(py, &file_block(path, trust_code)?))
    }

    fn __ior__(slf: &Bound<'_, Model>, block: &Bound<'_, PyAny>) -> Answer<()> {
        let block = block_to_add(block, "|=")?;
        guarded(|| Ok(slf.as_super().get().model()?.connect(block)?))
    }

    fn __iadd__(slf: &Bound<'_, Model>, block: &Bound<'_, PyAny>) -> Answer<()> {
        let block = block_to_add(block, "+=")?;
        guarded(|| Ok(slf.as_super().get().model()?.extend(block)?))
    }

    /// Makes terminals outputs even if blocks inside read them.
    ///
    /// Errors: `TerminalError` for an unknown name; `MithrilError` for an input.
    #[pyo3(signature = (*names: "str"))]
    fn expose(slf: &Bound<'_, Model>, names: &Bound<'_, PyTuple>) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        Ok(self::names("expose", names)?.iter().try_for_each(|name| model.expose(name))?)
    }

    /// Removes terminals from the outputs.
    ///
    /// Errors: `TerminalError` for an unknown name; `MithrilError` for an input.
    #[pyo3(signature = (*names: "str"))]
    fn discard(slf: &Bound<'_, Model>, names: &Bound<'_, PyTuple>) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        Ok(self::names("discard", names)?.iter().try_for_each(|name| model.discard(name))?)
    }

    /// Renames a terminal.
    ///
    /// Errors: `TerminalError` for an unknown name; `MithrilError` for a name that is taken.
    #[pyo3(signature = (old: "str", new: "str"))]
    fn rename(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = text)] old: String,
        #[pyo3(from_py_with = text)] new: String,
    ) -> Answer<()> {
        Ok(slf.as_super().get().model()?.rename(&old, &new)?)
    }

    /// States the shapes of terminals, in a dict or by keyword. A shape has numbers, names of dims,
    /// and None for a dim that may vary. The compiler checks them.
    ///
    /// Errors: `TerminalError` for an unknown name.
    #[pyo3(signature = (shapes: "dict[str, list[int | str | None]] | None"=None, /, **kwargs: "object"))]
    fn set_shapes(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = optional_dict)] shapes: Option<&Bound<'_, PyDict>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        for given in [shapes, kwargs].into_iter().flatten() {
            model.set_shapes(self::shapes(given)?)?;
        }
        Ok(())
    }

    /// States the dtypes of terminals, in a dict or by keyword. The compiler checks them.
    ///
    /// Errors: `TerminalError` for an unknown name.
    #[pyo3(signature = (types: "dict[str, object] | None"=None, /, **kwargs: "object"))]
    fn set_types(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = optional_dict)] types: Option<&Bound<'_, PyDict>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        for (name, dtype) in [types, kwargs].into_iter().flatten().flatten() {
            model.set_types([(name.extract::<String>()?, dtype::of(&dtype)?)])?;
        }
        Ok(())
    }

    /// Chooses the standard input and output, which `+=` connects when the model is used as a
    /// block.
    ///
    /// Errors: `TerminalError` for an unknown name.
    #[pyo3(signature = (*, input: "str | None"=None, output: "str | None"=None))]
    fn set_standard(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = optional_text)] input: Option<String>,
        #[pyo3(from_py_with = optional_text)] output: Option<String>,
    ) -> Answer<()> {
        Ok(slf.as_super().get().model()?.set_standard(input.as_deref(), output.as_deref())?)
    }

    /// Adds an input to the model and returns its connection. `shape` has numbers, names of dims,
    /// and None for a dim that may vary. `differentiable` makes the input a param.
    ///
    /// Errors: `MithrilError` for the name of a value that a block computes.
    #[pyo3(signature = (
        name: "str", *, shape: "list[int | str | None] | None"=None, dtype: "object"=None,
        differentiable: "bool | None"=None,
    ))]
    fn add_input(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = text)] name: String,
        shape: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_truth)] differentiable: Option<bool>,
    ) -> Answer<Connection> {
        let key = mithril_model::IoKey {
            shape: shape.map(self::shape).transpose()?.map(Into::into),
            dtype: dtype.map(dtype::of).transpose()?,
            differentiable,
            ..mithril_model::IoKey::new(&name)
        };
        Ok(slf.as_super().get().model()?.add_input(key)?.into())
    }

    /// `model.y = connection` makes a connection or an expression an output `y`. Other values, and
    /// names that begin with an underscore, are ordinary attributes.
    fn __setattr__(
        slf: &Bound<'_, Model>,
        name: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> Answer<()> {
        let text: String = name.extract()?;
        match value.cast::<Connection>() {
            Ok(value) if !text.starts_with('_') => {
                if slf.get_type().hasattr(name)? {
                    let what = format!("`{text}` is already an attribute of models");
                    return Err(Diagnostic::new(what)
                        .hint(format!(
                            "use `Buffer()(input=…, output=\"{text}\")` to give an output this name"
                        ))
                        .into());
                }
                guarded(|| {
                    let model = slf.as_super().get().model()?;
                    Ok(model.set_output(&text, value.get().0.clone())?)
                })
            }
            Ok(_) | Err(_) => attribute(slf, name, Some(value)),
        }
    }

    fn __delattr__(slf: &Bound<'_, Model>, name: &Bound<'_, PyString>) -> Answer<()> {
        attribute(slf, name, None)
    }

    /// The number of blocks added so far.
    fn __len__(slf: &Bound<'_, Model>) -> Answer<usize> {
        Ok(slf.as_super().get().model()?.len())
    }

    /// A model is true even if it has no blocks.
    fn __bool__(&self) -> bool {
        true
    }
}

/// Sets or deletes an attribute as usual in Python.
fn attribute(
    model: &Bound<'_, Model>,
    name: &Bound<'_, PyString>,
    value: Option<&Bound<'_, PyAny>>,
) -> Answer<()> {
    let value = value.map_or(std::ptr::null_mut(), Bound::as_ptr);
    // SAFETY: model, name and value are borrowed, and the interpreter is attached.
    let done = unsafe { ffi::PyObject_GenericSetAttr(model.as_ptr(), name.as_ptr(), value) };
    if done == 0 { Ok(()) } else { Err(PyErr::fetch(model.py()).into()) }
}

const SETTINGS: &[&str] =
    &["name", "backend", "device", "dtype", "precision", "acc", "checkpoint", "gradient"];

/// Checks the settings of a model. Errors: one that is positional, or that models do not have.
fn check_settings(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> Answer<()> {
    if let Some(first) = args.iter().next() {
        let what = "Unexpected argument: `Model` takes its settings by keyword";
        let name = first.extract::<String>();
        let hint = name.map(|name| format!("use `Model(name=\"{name}\")` for the name")).ok();
        let error = Diagnostic::of(ErrorKind::Argument, what).got(first.repr()?);
        return Err(Diagnostic { hint, ..error.expected(quoted(SETTINGS)) }.into());
    }
    check_keywords("Model", kwargs, SETTINGS)
}

/// The block that defines a gradient.
pub fn gradient_of(value: &Bound<'_, PyAny>) -> Answer<mithril_model::Block> {
    block_in(value, "`gradient` must be a block")?.get().sealed()
}

/// The block to add to a model.
fn block_to_add(value: &Bound<'_, PyAny>, operator: &str) -> Answer<mithril_model::Block> {
    let what = format!("Unexpected argument: `model {operator}` adds a block");
    block_in(value, &what)?.get().sealed()
}

/// The argument as a block. Errors: it is not a block.
fn block_in<'a, 'py>(value: &'a Bound<'py, PyAny>, what: &str) -> Answer<&'a Bound<'py, Block>> {
    value.cast::<Block>().map_err(|_| {
        let error = Diagnostic::of(ErrorKind::Argument, what)
            .got(class(value))
            .expected("a block or a model");
        Error::from(Diagnostic { hint: uncalled(value), ..error })
    })
}

/// A model with its training objective: losses, regularizers and metrics. The total cost is the
/// output `final_cost`, whose gradients `output_gradients=True` computes. The model can no longer
/// be changed.
#[pyclass(frozen, extends = Block, module = "mithril._core")]
pub struct TrainModel;

#[pymethods]
impl TrainModel {
    #[new]
    #[pyo3(signature = (model: "Block"))]
    fn new(model: &Bound<'_, PyAny>) -> Answer<PyClassInitializer<TrainModel>> {
        guarded(|| {
            let model = block_in(model, "`TrainModel` trains a model")?;
            let train = mithril_model::TrainModel::new(&model.get().sealed()?)?;
            let base = Block::wrapping(Inner::Train(Box::new(Mutex::new(train))));
            Ok(PyClassInitializer::from(base).add_subclass(TrainModel))
        })
    }

    #[pyo3(signature = (model))]
    fn __init__(&self, model: &Bound<'_, PyAny>) {
        let _ = model;
    }

    /// Adds `coef` times a loss, which compares the output `input` (default `"output"`) with
    /// `target` (default `"target"`), a new input or a terminal of the model. The blocks
    /// `reduce_steps` reduce the loss to a number; the default is the mean.
    ///
    /// Errors: `TerminalError` for an unknown output; `UsageError` for invalid arguments.
    #[pyo3(signature = (
        loss: "Block | None"=None, reduce_steps: "list[Block] | None"=None, coef: "float"=1.0,
        input: "str"="output".to_string(), target: "str"="target".to_string(), **unknown: "object",
    ))]
    fn add_loss(
        slf: &Bound<'_, TrainModel>,
        loss: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_list)] reduce_steps: Option<Vec<Bound<'_, PyAny>>>,
        #[pyo3(from_py_with = number)] coef: f64,
        #[pyo3(from_py_with = text)] input: String,
        #[pyo3(from_py_with = text)] target: String,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        guarded(|| {
            let known = ["loss", "reduce_steps", "coef", "input", "target"];
            check_criterion("add_loss", unknown, &known, loss)?;
            let loss = required("add_loss", "loss", loss)?;
            let mut how = Loss { coef, input, target, ..Loss::default() };
            if let Some(steps) = reduce_steps {
                how.reduce_steps = sealed(&steps)?;
            }
            let loss = block_in(loss, "`loss` must be a block")?.get().sealed()?;
            Ok(slf.as_super().get().train()?.add_loss(loss, how)?)
        })
    }

    /// Adds `coef` times the sum of a regularizer over params. `input` is the name of a param, or a
    /// compiled regular expression: the params in whose names `search` finds a match are
    /// regularized.
    ///
    /// Errors: `TerminalError` if no param matches; `UsageError` for invalid arguments.
    #[pyo3(signature = (
        regularizer: "Block | None"=None, coef=None, input=None, **unknown: "object"
    ))]
    fn add_regularization(
        slf: &Bound<'_, TrainModel>,
        regularizer: Option<&Bound<'_, PyAny>>,
        coef: Option<f64>,
        input: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        guarded(|| {
            let method = "add_regularization";
            check_keywords(method, unknown, &["regularizer", "coef", "input"])?;
            let regularizer = required(method, "regularizer", regularizer)?;
            let (coef, input) =
                (required(method, "coef", coef)?, required(method, "input", input)?);
            let regularizer =
                block_in(regularizer, "`regularizer` must be a block")?.get().sealed()?;
            let mut train = slf.as_super().get().train()?;
            if let Ok(key) = input.extract::<String>() {
                return Ok(train.add_regularization(regularizer, coef, &key)?);
            }
            let names = train.model().block()?;
            let mut chosen = Vec::new();
            for terminal in names.inputs() {
                if input.call_method1("search", (&*terminal.name,))?.is_truthy()? {
                    chosen.push(terminal.name.clone());
                }
            }
            let chosen = |name: &str| chosen.iter().any(|c| **c == *name);
            Ok(train.add_regularization_where(&regularizer, coef, chosen)?)
        })
    }

    /// Adds a metric as the output `name`. It compares the output `input` (default `"output"`) with
    /// `target` (default `"target"`). The default name is the kind of the metric in snake case.
    ///
    /// Errors: `TerminalError` for an unknown output; `MithrilError` for a name that is taken.
    #[pyo3(signature = (
        metric: "Block | None"=None, reduce_steps: "list[Block] | None"=None,
        input: "str"="output".to_string(), target: "str"="target".to_string(),
        name: "str | None"=None, **unknown: "object",
    ))]
    fn add_metric(
        slf: &Bound<'_, TrainModel>,
        metric: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_list)] reduce_steps: Option<Vec<Bound<'_, PyAny>>>,
        #[pyo3(from_py_with = text)] input: String,
        #[pyo3(from_py_with = text)] target: String,
        #[pyo3(from_py_with = optional_text)] name: Option<String>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        guarded(|| {
            let known = ["metric", "reduce_steps", "input", "target", "name"];
            check_criterion("add_metric", unknown, &known, metric)?;
            let metric = required("add_metric", "metric", metric)?;
            let metric = block_in(metric, "`metric` must be a block")?.get().sealed()?;
            let name = name.unwrap_or_else(|| snake_case(metric.kind()));
            let steps = sealed(&reduce_steps.unwrap_or_default())?;
            let mut train = slf.as_super().get().train()?;
            Ok(train.add_metric(metric, steps, &input, &target, &name)?)
        })
    }

    /// Sets the block that reduces a vector of all losses to one number. The default is the sum.
    ///
    /// Errors: `UsageError` for an invalid argument.
    #[pyo3(signature = (combiner: "Block | None"=None, **unknown: "object"))]
    fn set_loss_combiner(
        slf: &Bound<'_, TrainModel>,
        combiner: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        check_keywords("set_loss_combiner", unknown, &["combiner"])?;
        let combiner = required("set_loss_combiner", "combiner", combiner)?;
        let combiner = block_in(combiner, "`combiner` must be a block")?.get().sealed()?;
        Ok(slf.as_super().get().train()?.set_loss_combiner(combiner)?)
    }
}

/// Rejects unknown keywords of a method that adds a loss or a metric. The hint names the terminals of
/// that block, which are connected by a call of it.
fn check_criterion(
    method: &str,
    given: Option<&Bound<'_, PyDict>>,
    known: &[&str],
    block: Option<&Bound<'_, PyAny>>,
) -> Answer<()> {
    let block = block.and_then(|block| block.cast::<Block>().ok()?.get().sealed().ok());
    check_keywords_or(method, given, known, |name| {
        let block = block.as_ref()?;
        let inputs = block.inputs().iter().filter(|t| matches!(t.role, Role::Data));
        let names: Vec<&str> = inputs.map(|terminal| &*terminal.name).collect();
        let kind = block.kind();
        let call = |terminal: &str| format!("{kind}(…)({terminal}=…)");
        if names.contains(&name) {
            return Some(format!("`{name}` is a terminal of the block: {}", call(name)));
        }
        did_you_mean(name, known.iter().copied()).or_else(|| {
            let near = names.iter().find(|own| did_you_mean(name, once(**own)).is_some());
            let near = near.map(|own| format!("did you mean the terminal `{own}`: {}", call(own)));
            let all = || format!("the terminals of `{kind}` are {}", quoted(&names));
            near.or_else(|| Some(format!("{}: {}", all(), call(names.last()?))))
        })
    })
}

/// A required argument. Errors: it is missing.
fn required<T>(method: &str, name: &str, value: Option<T>) -> Answer<T> {
    let what = || {
        Diagnostic::of(
            ErrorKind::Argument,
            format!("Unexpected argument: `{method}` needs `{name}`"),
        )
    };
    value.ok_or_else(|| what().got("nothing").into())
}

fn sealed(blocks: &[Bound<'_, PyAny>]) -> Answer<Vec<mithril_model::Block>> {
    let each =
        blocks.iter().map(|block| block_in(block, "a reduce step must be a block")?.get().sealed());
    each.collect()
}
