//! Layouts of a model on a device mesh and what they cost, for Python.

use std::collections::{BTreeMap, HashMap};

use mithril_driver::calibration;
use mithril_driver::compile::sharding::{Sharding, ShardingRequest};
use mithril_passes::cost::scaled;
use mithril_passes::shard::blocks::{self, BlockBill, seconds};
use mithril_passes::shard::layout::{Axis, Layout, Mesh};
use mithril_passes::shard::residuals::Residual;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use super::error::{Answer, guarded};
use super::program::Program;

/// The mesh axes that divide an array, with the axes of the array that they divide.
type Split = Vec<(String, i64)>;

/// How many conflicts a table begins with.
const SHOWN: usize = 4;

/// The same as Python has it.
type TensorSplit = BTreeMap<String, usize>;

/// How params and inputs are divided over a device mesh, and what that costs. It is a mapping from
/// names to `tensor_split`, and prints as a table.
#[pyclass(frozen, mapping, module = "mithril._core")]
pub struct Shardings(Sharding);

/// What a block costs on a device of a mesh, including the blocks inside it.
#[pyclass(frozen, module = "mithril._core")]
pub struct BlockSharding {
    bill: BlockBill,
    mesh: Mesh,
}

impl Shardings {
    fn split(&self, layout: &Layout) -> TensorSplit {
        split(&self.0.request.mesh, layout)
    }

    fn find(&self, name: &str) -> Option<TensorSplit> {
        let found = self.0.arguments.iter().find(|(own, _)| **own == *name);
        found.map(|(_, layout)| self.split(layout))
    }

    fn summary(&self) -> String {
        let Sharding { request, blocks, memory, .. } = &self.0;
        let time = blocks.first().map(|whole| whole.time).unwrap_or_default();
        format!(
            "mesh {} of {}: {} a step ({} compute, {} transfer), {} a device\n",
            request.mesh,
            request.machine.name,
            seconds(time.total()),
            seconds(time.compute),
            seconds(time.transfer),
            scaled(*memory, "B"),
        )
    }
}

fn split(mesh: &Mesh, layout: &Layout) -> TensorSplit {
    let dims = layout.dims.iter().enumerate();
    dims.flat_map(|(axis, by)| by.iter().map(move |own| (mesh.name(*own).to_string(), axis)))
        .collect()
}

/// How params and inputs of a program are divided over a mesh. `given` has mesh axes with the axes
/// that they divide, by name, and `residuals` the same for residual values by their shape; with
/// `choose`, the others are chosen, and else they follow from these.
///
/// Errors: a wrong mesh; an unknown machine; those of `propose_sharding` and `explain_sharding`.
#[pyfunction]
#[pyo3(signature = (
    program, mesh, machine, memory, optimizer_states, given, residuals, dims: "dict[str, int]", *,
    choose,
))]
#[allow(clippy::too_many_arguments)]
pub fn sharding(
    program: &Bound<'_, Program>,
    mesh: Split,
    machine: &str,
    memory: Option<f64>,
    optimizer_states: f64,
    given: Vec<(String, Split)>,
    residuals: Vec<(Vec<i64>, Split)>,
    dims: HashMap<String, i64>,
    choose: bool,
) -> Answer<Shardings> {
    guarded(|| {
        let mut dims: Vec<(String, i64)> = dims.into_iter().collect();
        dims.sort_unstable();
        let (mesh, machine) = (Mesh::new(mesh)?, calibration::machine(machine)?);
        let residuals = residuals.into_iter().map(|(dims, split)| Residual { dims, split });
        let residuals = residuals.collect();
        let request =
            ShardingRequest { mesh, machine, memory, optimizer_states, given, residuals, dims };
        let program = &program.get().program;
        Ok(Shardings(match choose {
            true => program.propose_sharding(&request)?,
            false => program.explain_sharding(&request)?,
        }))
    })
}

/// The bytes that a device of this machine sends along each axis of a mesh in a second.
///
/// Errors: a wrong mesh; an unknown machine.
#[pyfunction]
pub fn links(mesh: Split, machine: &str) -> Answer<BTreeMap<String, f64>> {
    guarded(|| {
        let (mesh, machine) = (Mesh::new(mesh)?, calibration::machine(machine)?);
        let each = mesh.axes().enumerate();
        let bytes = |at| machine.link(&mesh, at as Axis).bytes;
        Ok(each.map(|(at, (name, _))| (name.to_string(), bytes(at))).collect())
    })
}

#[pymethods]
impl Shardings {
    fn __getitem__(&self, name: &str) -> PyResult<TensorSplit> {
        self.find(name).ok_or_else(|| PyKeyError::new_err(name.to_string()))
    }

    fn __contains__(&self, name: &str) -> bool {
        self.0.arguments.iter().any(|(own, _)| **own == *name)
    }

    fn __len__(&self) -> usize {
        self.0.arguments.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.keys().into_pyobject(py)?.try_iter()?.into_any())
    }

    /// The names of params and inputs.
    fn keys(&self) -> Vec<String> {
        self.0.arguments.iter().map(|(name, _)| name.to_string()).collect()
    }

    /// The splits, in the order of the names.
    fn values(&self) -> Vec<TensorSplit> {
        self.0.arguments.iter().map(|(_, layout)| self.split(layout)).collect()
    }

    /// The names with their splits.
    fn items(&self) -> Vec<(String, TensorSplit)> {
        let each = self.0.arguments.iter();
        each.map(|(name, layout)| (name.to_string(), self.split(layout))).collect()
    }

    /// The split of a param or input; None if there is none of this name.
    fn get(&self, name: &str) -> Option<TensorSplit> {
        self.find(name)
    }

    /// The splits of residual values, which blocks read and add to, by their shape.
    #[getter]
    fn residuals(&self) -> Vec<(Vec<i64>, TensorSplit)> {
        let each = self.0.residuals.iter();
        each.map(|(dims, layout)| (dims.clone(), self.split(layout))).collect()
    }

    /// The axes of the mesh with their sizes.
    #[getter]
    fn mesh(&self) -> BTreeMap<String, i64> {
        self.0.request.mesh.axes().map(|(name, size)| (name.to_string(), size)).collect()
    }

    /// The name of the machine.
    #[getter]
    fn machine(&self) -> &str {
        self.0.request.machine.name
    }

    /// The seconds of a step.
    #[getter]
    fn seconds(&self) -> f64 {
        self.0.blocks.first().map_or(0.0, |whole| whole.time.total())
    }

    /// The bytes that a device uses at most.
    #[getter]
    fn memory(&self) -> f64 {
        self.0.memory
    }

    /// The number of layouts of the whole model that were compared.
    #[getter]
    fn compared(&self) -> usize {
        self.0.compared
    }

    /// The costs of the whole model, then of its blocks in the order of computation.
    #[getter]
    fn blocks(&self) -> Vec<BlockSharding> {
        let mesh = &self.0.request.mesh;
        let own = |bill: &BlockBill| BlockSharding { bill: bill.clone(), mesh: mesh.clone() };
        self.0.blocks.iter().map(own).collect()
    }

    /// The table of blocks down to `depth` levels. A depth of 0 or less gives only the whole model.
    #[pyo3(signature = (depth=1))]
    fn table(&self, depth: i64) -> String {
        blocks::table(&self.0.blocks, &self.0.request.mesh, depth.max(0) as usize).text()
    }

    /// A picture of the forward pass in the language of Graphviz: blocks down to `depth` levels with
    /// the layouts of their params, and the layout of what they compute, which colors them.
    #[pyo3(signature = (depth=1))]
    fn dot(&self, depth: usize) -> String {
        self.0.dot(depth)
    }

    /// The params, inputs and residual values that are divided, each with the mesh axes of its
    /// dims.
    #[getter]
    fn layouts(&self) -> String {
        let mesh = &self.0.request.mesh;
        let arguments = self.0.arguments.iter().map(|(name, layout)| (name.to_string(), layout));
        let residuals = self.0.residuals.iter().map(|(dims, layout)| {
            let dims: Vec<String> = dims.iter().map(i64::to_string).collect();
            (format!("residual values of {}", dims.join(" x ")), layout)
        });
        let divided = arguments.chain(residuals).filter(|(_, layout)| !layout.is_replicated());
        divided.map(|(name, layout)| format!("{name}: {}\n", mesh.text(layout))).collect()
    }

    /// The blocks, down to `depth` levels, in which a mesh axis divides several dims of one operation,
    /// though it can divide only one, and the collectives that settle it, as lines of text. Of the
    /// ways to divide such an operation, the one that sends the least is taken.
    #[pyo3(signature = (depth=1))]
    fn conflicts(&self, depth: usize) -> Vec<String> {
        blocks::conflicts(&self.0.blocks, &self.0.request.mesh, depth)
    }

    fn __str__(&self) -> String {
        let conflicts = self.conflicts(1);
        let shown = conflicts.iter().take(SHOWN).map(|line| format!("conflict in {line}\n"));
        let more = conflicts.len().saturating_sub(SHOWN);
        let rest = if more > 0 { format!("{more} more in `conflicts()`\n") } else { String::new() };
        let conflicts = shown.chain([rest]).collect::<String>();
        format!("{}{}{conflicts}{}", self.summary(), self.layouts(), self.table(1))
    }

    fn __repr__(&self) -> String {
        self.__str__()
    }

    fn _repr_html_(&self) -> String {
        let table = blocks::table(&self.0.blocks, &self.0.request.mesh, 2).html();
        format!("<pre>{}{}</pre>{table}", self.summary(), self.layouts())
    }
}

#[pymethods]
impl BlockSharding {
    /// The path of the block; empty for the whole model.
    #[getter]
    fn path(&self) -> &str {
        &self.bill.path
    }

    /// Floating-point operations of a device.
    #[getter]
    fn flops(&self) -> f64 {
        self.bill.flops
    }

    /// Bytes of memory that a device reads and writes.
    #[getter]
    fn traffic(&self) -> f64 {
        self.bill.traffic
    }

    /// The `tensor_split` of what the forward pass of the block computes last; None if it computes
    /// nothing.
    #[getter]
    fn split(&self) -> Option<TensorSplit> {
        self.bill.layout.as_ref().map(|own| split(&self.mesh, own))
    }

    /// Seconds of computation.
    #[getter]
    fn compute(&self) -> f64 {
        self.bill.time.compute
    }

    /// Seconds in which data is on its way.
    #[getter]
    fn transfer(&self) -> f64 {
        self.bill.time.transfer
    }

    /// Collectives: kind, mesh axis, how many there are, and the bytes that a device sends in all.
    #[getter]
    fn collectives(&self) -> Vec<(&'static str, String, usize, f64)> {
        let each = self.bill.collectives.iter();
        each.map(|((kind, axis), (count, bytes))| {
            (kind.name(), self.mesh.name(*axis).to_string(), *count, *bytes)
        })
        .collect()
    }

    fn __repr__(&self) -> String {
        let path = if self.bill.path.is_empty() { "the model" } else { &self.bill.path };
        format!("BlockSharding({path}, {})", seconds(self.bill.time.total()))
    }
}
