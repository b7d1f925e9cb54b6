//! Blocks and models as Python classes.

use std::sync::OnceLock;

use mithril_ir::diagnostic::{Diagnostic, did_you_mean};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::connection::Connection;
use super::dtype;
use super::fault::{Answer, Fault, guarded};
use super::value::{settings, shapes, source};
use crate::blocks;

enum Inner {
    Block(crate::Block),
    Model(crate::Model),
}

/// What a model is built from, and can be compiled alone. Calling it connects its terminals, by
/// name or in their order: inputs, then outputs.
#[pyclass(frozen, subclass, weakref, module = "mithril._core")]
pub struct Block {
    inner: OnceLock<Inner>,
}

impl Block {
    pub fn of(block: crate::Block) -> Block {
        Block {
            inner: OnceLock::from(Inner::Block(block)),
        }
    }

    fn inner(&self) -> Answer<&Inner> {
        self.inner.get().ok_or_else(|| {
            Diagnostic::new("this block has not been constructed")
                .hint("a subclass of a block calls `super().__init__(…)`")
                .into()
        })
    }

    /// The block, to be part of a model: a model can no longer be changed.
    pub fn sealed(&self) -> Answer<crate::Block> {
        match self.inner()? {
            Inner::Block(block) => Ok(block.clone()),
            Inner::Model(model) => Ok(model.seal()?),
        }
    }

    /// The block as it stands.
    pub fn current(&self) -> Answer<crate::Block> {
        match self.inner()? {
            Inner::Block(block) => Ok(block.clone()),
            Inner::Model(model) => Ok(model.block()?),
        }
    }

    fn model(&self) -> Answer<&crate::Model> {
        match self.inner()? {
            Inner::Model(model) => Ok(model),
            Inner::Block(block) => Err(Diagnostic::new(format!(
                "`{}` is a block, and only models are built from others",
                block.kind()
            ))
            .hint("`Model()` begins one")
            .into()),
        }
    }
}

#[pymethods]
impl Block {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Block {
        Block {
            inner: OnceLock::new(),
        }
    }

    /// The entry of the block table that the class is named after, with these settings.
    #[pyo3(signature = (*args, **kwargs))]
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
                return Err(
                    Diagnostic::new("`Block` is what all blocks are, and none itself")
                        .hint("`Model()` begins a model")
                        .into(),
                );
            };
            let kwargs = kwargs.map(|k| k.copy()).transpose()?;
            let name = match &kwargs {
                Some(kwargs) if kwargs.contains("name")? => {
                    let name: Option<String> = kwargs
                        .get_item("name")?
                        .map(|n| n.extract())
                        .transpose()?
                        .flatten();
                    kwargs.del_item("name")?;
                    name
                }
                _ => None,
            };
            let (positional, named) = settings(entry, args, kwargs.as_ref())?;
            let named = named
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone()));
            let mut block = entry.block(positional, named.collect())?;
            if let Some(name) = name {
                block = block.named(&name)?;
            }
            let _ = slf.get().inner.set(Inner::Block(block));
            Ok(())
        })
    }

    /// The same block with its terminals connected to names, connections, constants or lists.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<Block> {
        guarded(|| {
            let mut block = self.sealed()?;
            let mut in_order = Vec::new();
            for value in args {
                match source(&value)? {
                    Some(value) => in_order.push(value),
                    None => {
                        return Err(Diagnostic::new("a terminal given by its place is None")
                            .hint("name the terminals that follow")
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

    /// The same as calling it.
    #[pyo3(signature = (*args, **kwargs))]
    fn connect(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<Block> {
        self.__call__(args, kwargs)
    }

    /// What kind of block it is: `Linear`, or the class of a model.
    #[getter]
    fn kind(&self) -> Answer<String> {
        Ok(match self.inner()? {
            Inner::Block(block) => block.kind().to_string(),
            Inner::Model(model) => model.kind().to_string(),
        })
    }

    /// The name it was given, if any.
    #[getter]
    fn name(&self) -> Answer<Option<String>> {
        Ok(match self.inner()? {
            Inner::Block(block) => block.name().map(String::from),
            Inner::Model(model) => model.name().map(|name| name.to_string()),
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

    fn __repr__(&self) -> Answer<String> {
        let name = self
            .name()?
            .map(|name| format!("name=\"{name}\""))
            .unwrap_or_default();
        Ok(format!("{}({name})", self.kind()?))
    }

    fn __getattr__(&self, name: &str) -> Answer<Connection> {
        match self.inner.get() {
            Some(Inner::Model(model)) if !name.starts_with("__") => {
                Ok(Connection(model.terminal(name)?))
            }
            Some(Inner::Block(block)) => {
                let own = block.inputs().iter().map(|t| &*t.name);
                let own: Vec<&str> = own
                    .chain(block.outputs().iter().map(|o| &*o.name))
                    .collect();
                let mut error = Diagnostic::new(format!(
                    "Terminal not found: `{}` has no `{name}`",
                    block.kind()
                ));
                error.hint = match own.contains(&name) {
                    true => Some("a block's terminals are values once it is in a model: name them, and read them from the model".into()),
                    false => did_you_mean(name, own.into_iter()),
                };
                Err(error.into())
            }
            _ => Err(Diagnostic::new(format!("Terminal not found: there is no `{name}`")).into()),
        }
    }
}

/// A model under construction. `model |= block` adds a block with the connections it was given;
/// `model += block` also connects its standard input to the last standard output.
#[pyclass(frozen, subclass, extends = Block, module = "mithril._core")]
pub struct Model;

#[pymethods]
impl Model {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        class: &Bound<'_, PyType>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Model>> {
        let kind = class.name()?.to_string();
        let inner = OnceLock::from(Inner::Model(crate::Model::of_kind(&kind)));
        Ok(PyClassInitializer::from(Block { inner }).add_subclass(Model))
    }

    #[pyo3(signature = (*, name=None))]
    fn __init__(slf: &Bound<'_, Model>, name: Option<&str>) -> Answer<()> {
        if let Some(name) = name {
            slf.as_super().get().model()?.set_name(name)?;
        }
        Ok(())
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
    #[pyo3(signature = (*names))]
    fn expose(slf: &Bound<'_, Model>, names: Vec<String>) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        Ok(names.iter().try_for_each(|name| model.expose(name))?)
    }

    /// Takes terminals off the outputs.
    #[pyo3(signature = (*names))]
    fn discard(slf: &Bound<'_, Model>, names: Vec<String>) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        Ok(names.iter().try_for_each(|name| model.discard(name))?)
    }

    /// Gives a terminal another name.
    fn rename(slf: &Bound<'_, Model>, old: &str, new: &str) -> Answer<()> {
        Ok(slf.as_super().get().model()?.rename(old, new)?)
    }

    /// States shapes of terminals, in a dict or by keyword: numbers, names of dims, or `None` where
    /// a dim may vary.
    #[pyo3(signature = (shapes=None, /, **kwargs))]
    fn set_shapes(
        slf: &Bound<'_, Model>,
        shapes: Option<&Bound<'_, PyDict>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        for given in [shapes, kwargs].into_iter().flatten() {
            model.set_shapes(self::shapes(given)?)?;
        }
        Ok(())
    }

    /// States dtypes of terminals, in a dict or by keyword.
    #[pyo3(signature = (types=None, /, **kwargs))]
    fn set_types(
        slf: &Bound<'_, Model>,
        types: Option<&Bound<'_, PyDict>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Answer<()> {
        let model = slf.as_super().get().model()?;
        for (name, dtype) in [types, kwargs].into_iter().flatten().flatten() {
            model.set_types([(name.extract::<String>()?, dtype::of(&dtype)?)])?;
        }
        Ok(())
    }

    /// Says what `+=` connects of the model where it is a block of another.
    #[pyo3(signature = (*, input=None, output=None))]
    fn set_standard(
        slf: &Bound<'_, Model>,
        input: Option<&str>,
        output: Option<&str>,
    ) -> Answer<()> {
        Ok(slf.as_super().get().model()?.set_standard(input, output)?)
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

/// A block that is added to a model.
fn taken(value: &Bound<'_, PyAny>, operator: &str) -> Answer<crate::Block> {
    if let Ok(block) = value.cast::<Block>() {
        return block.get().sealed();
    }
    let class = value.get_type();
    let error = Diagnostic::new(format!(
        "Unexpected argument: `model {operator}` adds a block"
    ))
    .got(class.name()?)
    .expected("a block or a model");
    Err(Fault::from(match class.is_subclass_of::<PyType>()? {
        true => error.hint("the class is to be called: `model += Relu()`"),
        false => error,
    }))
}
