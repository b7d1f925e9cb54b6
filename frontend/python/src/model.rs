//! The Python classes of models under construction and models to be trained.

use std::sync::Mutex;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind};
use mithril_model::Loss;
use mithril_model::block::quoted;
use mithril_model::naming::snake_case;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use super::block::{Block, Inner};
use super::connection::Connection;
use super::dtype;
use super::error::{Answer, Error, guarded};
use super::file::{json, read};
use super::value::{
    class, names, number, optional_dict, optional_list, optional_text, optional_truth, refuse,
    shape, shapes, text, truth, uncalled,
};

/// A model under construction. `model |= block` adds a block with the connections it was given;
/// `model += block` also connects its standard input to the last standard output.
#[pyclass(frozen, subclass, extends = Block, module = "mithril._core")]
pub struct Model;

impl Model {
    fn of_text(py: Python<'_>, text: &str) -> Answer<Py<Model>> {
        let model = mithril_model::Model::from_block(&mithril_model::Block::from_json(text)?)?;
        let base = Block::holding(Inner::Model(model));
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
            settings_fit(args, kwargs)?;
        }
        let kind = class.name()?.to_string();
        let base = Block::holding(Inner::Model(mithril_model::Model::of_kind(&kind)));
        Ok(PyClassInitializer::from(base).add_subclass(Model))
    }

    #[pyo3(signature = (
        *, name: "str | None"=None, checkpoint: "bool"=false, gradient: "Block | None"=None
    ))]
    fn __init__(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = optional_text)] name: Option<String>,
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
        Ok(model.set_checkpoint(checkpoint)?)
    }

    /// A model that can be built further, from a JSON text that `to_json` wrote.
    #[staticmethod]
    #[pyo3(signature = (text: "str"))]
    fn from_json(py: Python<'_>, text: &Bound<'_, PyAny>) -> Answer<Py<Model>> {
        guarded(|| Model::of_text(py, &json(text)?))
    }

    /// A model that can be built further, from a file that `save` wrote.
    #[staticmethod]
    #[pyo3(signature = (path: "str | PathLike[str]"))]
    fn load(py: Python<'_>, path: &Bound<'_, PyAny>) -> Answer<Py<Model>> {
        guarded(|| Model::of_text(py, &read(path)?))
    }

    fn __ior__(slf: &Bound<'_, Model>, block: &Bound<'_, PyAny>) -> Answer<()> {
        let block = taken(block, "|=")?;
        guarded(|| Ok(slf.as_super().get().model()?.connect(block)?))
    }

    fn __iadd__(slf: &Bound<'_, Model>, block: &Bound<'_, PyAny>) -> Answer<()> {
        let block = taken(block, "+=")?;
        guarded(|| Ok(slf.as_super().get().model()?.extend(block)?))
    }

    /// Makes terminals outputs even where something inside reads them.
    #[pyo3(signature = (*names: "str"))]
    fn expose(slf: &Bound<'_, Model>, names: &Bound<'_, PyTuple>) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        Ok(self::names("expose", names)?.iter().try_for_each(|name| model.expose(name))?)
    }

    /// Takes terminals off the outputs.
    #[pyo3(signature = (*names: "str"))]
    fn discard(slf: &Bound<'_, Model>, names: &Bound<'_, PyTuple>) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        Ok(self::names("discard", names)?.iter().try_for_each(|name| model.discard(name))?)
    }

    /// Gives a terminal another name.
    #[pyo3(signature = (old: "str", new: "str"))]
    fn rename(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = text)] old: String,
        #[pyo3(from_py_with = text)] new: String,
    ) -> Answer<()> {
        Ok(slf.as_super().get().model()?.rename(&old, &new)?)
    }

    /// States shapes of terminals, in a dict or by keyword: numbers, names of dims, or `None` where
    /// a dim may vary.
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

    /// States dtypes of terminals, in a dict or by keyword.
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

    /// Says what `+=` connects of the model where it is a block of another.
    #[pyo3(signature = (*, input: "str | None"=None, output: "str | None"=None))]
    fn set_standard(
        slf: &Bound<'_, Model>,
        #[pyo3(from_py_with = optional_text)] input: Option<String>,
        #[pyo3(from_py_with = optional_text)] output: Option<String>,
    ) -> Answer<()> {
        Ok(slf.as_super().get().model()?.set_standard(input.as_deref(), output.as_deref())?)
    }

    /// A new input of the model, which expressions may start from. `shape` has numbers, names of
    /// dims, and None where a dim may vary.
    ///
    /// Errors: a name that a block of the model writes.
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

    /// `model.y = connection` makes an output `y` of a connection or an expression. Other values,
    /// and names that begin with an underscore, are attributes as ever.
    fn __setattr__(
        slf: &Bound<'_, Model>,
        name: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> Answer<()> {
        let text: String = name.extract()?;
        match value.cast::<Connection>() {
            Ok(value) if !text.starts_with('_') => {
                if slf.get_type().hasattr(name)? {
                    let what = format!("`{text}` is an attribute that models have");
                    return Err(Diagnostic::new(what)
                        .hint(format!("`Buffer()(input=…, output=\"{text}\")` names an output so"))
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

    /// A model is one, however many blocks it has.
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

const SETTINGS: &[&str] = &["name", "checkpoint", "gradient"];

/// Checks the settings of a model. Errors: one that is positional, or that models do not have.
fn settings_fit(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> Answer<()> {
    if let Some(first) = args.iter().next() {
        let what = "Unexpected argument: `Model` takes its settings by keyword";
        let name = first.extract::<String>();
        let hint = name.map(|name| format!("`Model(name=\"{name}\")` gives it a name")).ok();
        let error = Diagnostic::of(ErrorKind::Argument, what).got(first.repr()?);
        return Err(Diagnostic { hint, ..error.expected(quoted(SETTINGS)) }.into());
    }
    refuse("Model", kwargs, SETTINGS)
}

/// The block that defines a gradient.
pub fn gradient_of(value: &Bound<'_, PyAny>) -> Answer<mithril_model::Block> {
    block_in(value, "`gradient` must be a block")?.get().sealed()
}

/// The block to add to a model.
fn taken(value: &Bound<'_, PyAny>, operator: &str) -> Answer<mithril_model::Block> {
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

/// A model and what it is trained for: losses, regularizers, metrics. The total is the output
/// `final_cost`, which `output_gradients=True` differentiates. The model can no longer be changed.
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
            let base = Block::holding(Inner::Train(Box::new(Mutex::new(train))));
            Ok(PyClassInitializer::from(base).add_subclass(TrainModel))
        })
    }

    #[pyo3(signature = (model))]
    fn __init__(&self, model: &Bound<'_, PyAny>) {
        let _ = model;
    }

    /// Adds `coef` times a loss of the output `input` (default: `"output"`) against the new
    /// input `target` (`"target"`), reduced to a number by `reduce_steps`: by default the mean.
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
            refuse("add_loss", unknown, &known)?;
            let loss = needed("add_loss", "loss", loss)?;
            let mut how = Loss { coef, input, target, ..Loss::default() };
            if let Some(steps) = reduce_steps {
                how.reduce_steps = sealed(&steps)?;
            }
            let loss = block_in(loss, "`loss` must be a block")?.get().sealed()?;
            Ok(slf.as_super().get().train()?.add_loss(loss, how)?)
        })
    }

    /// Adds `coef` times a regularizer of a param: its name, or a compiled regular expression, which
    /// chooses the params in whose names `search` finds it.
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
            refuse(method, unknown, &["regularizer", "coef", "input"])?;
            let regularizer = needed(method, "regularizer", regularizer)?;
            let (coef, input) = (needed(method, "coef", coef)?, needed(method, "input", input)?);
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

    /// Adds a metric of the output `input` (default: `"output"`) against `target`
    /// (`"target"`), as the output `name`: by default the kind of the metric in snake case.
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
            refuse("add_metric", unknown, &known)?;
            let metric = needed("add_metric", "metric", metric)?;
            let metric = block_in(metric, "`metric` must be a block")?.get().sealed()?;
            let name = name.unwrap_or_else(|| snake_case(metric.kind()));
            let steps = sealed(&reduce_steps.unwrap_or_default())?;
            let mut train = slf.as_super().get().train()?;
            Ok(train.add_metric(metric, steps, &input, &target, &name)?)
        })
    }

    /// Sets how the losses, as one array, are reduced to one number; by default their sum.
    #[pyo3(signature = (combiner: "Block | None"=None, **unknown: "object"))]
    fn set_loss_combiner(
        slf: &Bound<'_, TrainModel>,
        combiner: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        refuse("set_loss_combiner", unknown, &["combiner"])?;
        let combiner = needed("set_loss_combiner", "combiner", combiner)?;
        let combiner = block_in(combiner, "`combiner` must be a block")?.get().sealed()?;
        Ok(slf.as_super().get().train()?.set_loss_combiner(combiner)?)
    }
}

/// A required argument. Errors: it is missing.
fn needed<T>(method: &str, name: &str, value: Option<T>) -> Answer<T> {
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
