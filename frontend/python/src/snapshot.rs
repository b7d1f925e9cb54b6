//! Copies of blocks that later changes do not affect.

use std::collections::BTreeMap;
use std::sync::Arc;

use mithril_model::Terminal;
use mithril_model::place::Place;
use pyo3::prelude::*;

use super::block::{Block, Inner, lock};
use super::error::{Answer, guarded};

/// A block in the form in which it was compiled. Later additions to a model do not change it.
#[pyclass(frozen, module = "mithril._core")]
pub struct Snapshot {
    block: mithril_model::Block,
    /// The block without losses, metrics and their targets.
    plain: mithril_model::Block,
}

#[pymethods]
impl Snapshot {
    #[new]
    #[pyo3(signature = (block: "Block"))]
    fn new(block: &Bound<'_, Block>) -> Answer<Snapshot> {
        guarded(|| {
            let current = block.get().current()?;
            let plain = match block.get().inner()? {
                Inner::Block(_) | Inner::Model(_) => current.clone(),
                Inner::Train(model) => lock(model).trained().clone(),
            };
            Ok(Snapshot { block: current, plain })
        })
    }

    /// The block.
    #[getter]
    fn block(&self) -> Block {
        Block::of(self.block.clone())
    }

    /// The snapshot without losses, metrics and their targets.
    #[getter]
    fn plain(&self) -> Snapshot {
        Snapshot { block: self.plain.clone(), plain: self.plain.clone() }
    }

    /// The blocks inside that run elsewhere: their paths, and the names of their backends and
    /// devices. Outer blocks come before those inside them. The path of the whole is empty.
    #[getter]
    fn places(&self) -> Vec<(String, Option<String>, Option<String>)> {
        let text = |name: Option<&Arc<str>>| name.map(|name| name.to_string());
        let whole = Some(self.block.place().clone()).filter(|own| !own.is_inherited());
        let whole = whole.map(|own| (String::new(), own));
        let places = whole.into_iter().chain(self.block.places());
        let place = |(path, own): (String, Place)| {
            (path, text(own.backend.as_ref()), text(own.device.as_ref()))
        };
        places.map(place).collect()
    }

    /// The devices of params by name, as far as the model's author stated them.
    #[getter]
    fn devices(&self) -> BTreeMap<String, String> {
        let stated =
            |input: &Terminal| Some((input.name.to_string(), input.device.as_ref()?.to_string()));
        self.block.inputs().iter().filter_map(stated).collect()
    }

    /// The names of the blocks and terminals directly inside.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.block.names_inside().map(|name| name.to_string()).collect()
    }
}
