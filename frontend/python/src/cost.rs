//! The cost of models, for Python.

use mithril_ir::dim::Dim;
use mithril_passes::cost::blocks::{self, BlockCost};
use pyo3::prelude::*;

/// What each block of a model costs: a table as text and in notebooks.
#[pyclass(frozen, module = "mithril._core")]
pub struct Costs(Vec<BlockCost>);

/// What one block costs in one forward pass, with the blocks inside it. Numbers; formulas as text
/// where they depend on dims that are not known.
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
    /// The blocks, the whole first, others in the order they compute in.
    #[getter]
    fn blocks(&self) -> Vec<Cost> {
        self.0.iter().cloned().map(Cost).collect()
    }

    /// The whole.
    #[getter]
    fn total(&self) -> Option<Cost> {
        self.0.first().cloned().map(Cost)
    }

    /// The block of a path, such as `h.0.attn`; `None` where there is none.
    fn at(&self, path: &str) -> Option<Cost> {
        self.0.iter().find(|block| block.path == path).cloned().map(Cost)
    }

    /// The table down to `depth`; of the whole model alone for 0 and less.
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
    /// The path; empty for the whole.
    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    /// Additions, multiplications, comparisons and functions such as `exp`, one each; two for each
    /// product of a contraction.
    #[getter]
    fn flops(&self) -> Number {
        Number::of(&self.0.cost.flops)
    }

    /// Bytes that its operations read and write, each for itself.
    #[getter]
    fn bytes(&self) -> Number {
        Number::of(&self.0.cost.bytes)
    }

    /// Elements of what it learns.
    #[getter]
    fn params(&self) -> Number {
        Number::of(&self.0.params)
    }

    /// The most bytes of inner values that are alive at once while it computes; where dims are not
    /// known, the maximum of what may be the most.
    #[getter]
    fn peak(&self) -> Number {
        Number::of(&self.0.peak)
    }

    fn __repr__(&self) -> String {
        let BlockCost { path, cost, peak, .. } = &self.0;
        format!("Cost({path:?}, {cost}, peak {peak} B)")
    }
}
