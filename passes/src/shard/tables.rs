//! Tables of params whose rows are looked up by number, such as embeddings.

use mithril_ir::attr::Attr;
use mithril_ir::graph::{Function, Operation, Role, Value};
use mithril_ir::op::Kind;
use mithril_ir::op::access::{Access, Gather, Scatter};
use rustc_hash::FxHashMap;

use super::layout::{Layout, Mesh};

/// The number of elements of a row that a device keeps at least, if layouts are proposed. It is the
/// smallest width of a column shard in TorchRec's planner (`MIN_CW_DIM` in
/// `torchrec/distributed/planner/constants.py`). A lookup pays for its index and for a random access
/// to memory, whatever the width of a row, and each device with a part of the columns does all
/// lookups.
pub const LEAST_WIDTH: i64 = 128;

/// The bytes that a random access to memory moves at least: a cache line of x86-64 and of most ARM
/// cores. GPUs of NVIDIA move 32 bytes (CUDA C++ Best Practices Guide), so it is a bound for them.
const TRANSACTION: f64 = 64.0;

/// The params of a function whose rows are looked up, and their gradients.
#[derive(Debug, Default)]
pub struct Tables {
    /// The axis of each that counts its rows.
    rows: FxHashMap<Value, usize>,
}

impl Tables {
    /// `tied` has params with their gradients.
    pub fn of(function: &Function, tied: &[(Value, Value)]) -> Tables {
        let definitions = function.definitions();
        // Conversions to another dtype lie between a param and its lookups.
        let source = |mut value: Value| {
            let mut seen = vec![value];
            while let Some(at) = definitions[value.index()] {
                let op = &function.ops[at as usize];
                let [operand] = op.operands[..] else { break };
                let dims = |value: Value| &function.ty(value).shape.dims;
                if op.op.kind != Kind::Elementwise || dims(operand) != dims(value) {
                    break;
                }
                value = operand;
                seen.push(value);
            }
            seen
        };
        let gradients: FxHashMap<Value, Value> = tied.iter().copied().collect();
        let mut tables = Tables::default();
        for op in &function.ops {
            let (Some(axis), Some(table)) = (looked_up(function, op), op.operands.first()) else {
                continue;
            };
            let own = source(*table);
            let Some(param) = own.last().copied().filter(|value| is_param(function, *value)) else {
                continue;
            };
            let of_gradient = gradients.get(&param).map(|value| source(*value));
            let all = own.into_iter().chain(of_gradient.into_iter().flatten());
            tables.rows.extend(all.map(|value| (value, axis)));
        }
        tables
    }

    /// Whether a layout leaves too few elements of each row of a table on a device. Rows that are
    /// shorter from the start are not to be divided at all.
    pub fn is_narrow(
        &self,
        function: &Function,
        mesh: &Mesh,
        value: Value,
        layout: &Layout,
    ) -> bool {
        let Some(axis) = self.rows.get(&value) else { return false };
        let dims = function.ty(value).shape.dims.iter().zip(&layout.dims).skip(axis + 1);
        let parts: i64 = dims.clone().map(|(_, axes)| mesh.parts(axes)).product();
        let width: i64 =
            dims.map(|(dim, _)| dim.as_const().unwrap_or(i64::MAX)).fold(1, i64::saturating_mul);
        parts > 1 && width / parts < LEAST_WIDTH
    }
}

fn is_param(function: &Function, value: Value) -> bool {
    function.args.get(value.index()).is_some_and(|own| own.role == Role::Param)
}

/// The axis that counts the rows that an operation reads.
fn looked_up(function: &Function, op: &Operation) -> Option<usize> {
    match op.op.access {
        Access::Gather(Gather::Take) => row_axis(function, op),
        _ => None,
    }
}

/// The axis that counts rows, for a lookup or its gradient.
fn row_axis(function: &Function, op: &Operation) -> Option<usize> {
    if !matches!(op.op.access, Access::Gather(Gather::Take) | Access::Scatter(Scatter::Rows)) {
        return None;
    }
    let rank = function.ty(*op.operands.first()?).shape.dims.len();
    match op.attr("axis") {
        Attr::Int(axis) if rank > 0 => Some(axis.rem_euclid(rank as i64) as usize),
        _ => None,
    }
}

/// The bytes that a device moves for the rows that an operation looks up, or adds updates to, where
/// it has one of `parts` parts of each row. `None` stands for operations without lookups.
///
/// `rows` are the bytes of the rows. Each row takes whole transactions.
pub fn of_rows(function: &Function, op: &Operation, parts: f64, rows: f64) -> Option<f64> {
    row_axis(function, op).filter(|axis| *axis == 0)?;
    let ty = function.ty(*op.operands.first()?);
    let elements: f64 =
        ty.shape.dims.iter().skip(1).map(|dim| dim.as_const().unwrap_or(1) as f64).product();
    let row = elements * f64::from(ty.dtype.bits()) / 8.0 / parts;
    (row > 0.0).then(|| rows * (row / TRANSACTION).ceil() * TRANSACTION / row)
}
