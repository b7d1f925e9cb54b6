//! The cost of models, for Python.

use mithril_ir::dim::Dim;
use mithril_passes::cost::blocks::{self, BlockCost};
use pyo3::prelude::*;

/// The costs of the blocks of a model. It prints as a table, also in notebooks.
#[pyclass(frozen, module = "mithril._core")]
pub struct Costs(Vec<BlockCost>);

/// The cost of one block in one forward pass, including the blocks inside it. Costs are numbers, or
/// formulas as text if they depend on unknown dims.
#[pyclass(frozen, module = "mithril._core")]
pub struct Cost(BlockCost);

impl Costs {
    pub fn new(blocks: Vec<BlockCost>) -> Costs {
        Costs(blocks)
    }
}

/// A number, or a formula that depends on unknown dims.
#[derive(IntoPyObject)]
pub enum Number {
    Known(i64),
    Formula(String),
}

impl Number {
    fn of(dim: &Dim) -> Number {
        dim.as_const().map_or_else(|| Number::Formula(dim.to_string()), Number::Known)
    }
}

#[pymethods]
impl Costs {
    /// The costs of the whole model, then of its blocks in the order of computation.
    #[getter]
    fn blocks(&self) -> Vec<Cost> {
        self.0.iter().cloned().map(Cost).collect()
    }

    /// The cost of the whole model.
    #[getter]
    fn total(&self) -> Option<Cost> {
        self.0.first().cloned().map(Cost)
    }

    /// The cost of the block at a path, such as `h.0.attn`. None if there is no such block.
    fn at(&self, path: &str) -> Option<Cost> {
        self.0.iter().find(|block| block.path == path).cloned().map(Cost)
    }

    /// The table down to `depth` levels. A depth of 0 or less gives only the whole model.
    #[pyo3(signature = (depth=1))]
    fn table(&self, depth: i64) -> String {
        blocks::table(&self.0, depth.max(0) as usize).text()
    }

    fn __str__(&self) -> String {
        self.table(1)
    }

    fn __repr__(&self) -> String {
        self.table(1)
    }

    fn _repr_html_(&self) -> String {
        blocks::table(&self.0, 2).html()
    }
}

#[pymethods]
impl Cost {
    /// The path of the block; empty for the whole model.
    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    /// The number of floating-point operations. Additions, multiplications, comparisons and
    /// functions such as `exp` count as one each. Each product of a contraction, with its addition,
    /// counts as two.
    #[getter]
    fn flops(&self) -> Number {
        Number::of(&self.0.cost.flops)
    }

    /// The bytes that its operations read and write, without fusion.
    #[getter]
    fn bytes(&self) -> Number {
        Number::of(&self.0.cost.bytes)
    }

    /// The number of elements of its params.
    #[getter]
    fn params(&self) -> Number {
        Number::of(&self.0.params)
    }

    /// The peak memory of inner values in bytes. If dims are not known, this is the `max` of the
    /// formulas that may be the largest.
    #[getter]
    fn peak(&self) -> Number {
        Number::of(&self.0.peak)
    }

    /// The bytes of all inner values together, without views. Gradients by a framework keep at most
    /// these.
    #[getter]
    fn kept(&self) -> Number {
        Number::of(&self.0.kept)
    }

    fn __repr__(&self) -> String {
        let BlockCost { path, cost, peak, .. } = &self.0;
        format!("Cost({path:?}, {cost}, peak {peak} B)")
    }
}
