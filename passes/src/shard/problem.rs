//! What is to be divided over a mesh.

use mithril_ir::graph::{Function, Operation, Role, Value};
use mithril_ir::op::Kind;

use super::layout::{Layout, Mesh};
use super::machine::Machine;
use super::shorten;

/// What is to be divided, over which mesh, and for which machine.
pub struct Problem<'a> {
    /// A function of primitives and attentions whose dims are numbers: the forward pass, or also the
    /// gradients.
    pub function: &'a Function,
    /// Pairs of values that get the same layout: params and their gradients.
    pub tied: &'a [(Value, Value)],
    pub mesh: &'a Mesh,
    pub machine: &'a Machine,
    /// Layouts that are decided; the first ones come before the later ones.
    pub given: &'a [(Value, Layout)],
    /// Arguments that are divided alike, such as the same param of equal layers.
    pub groups: &'a [Vec<Value>],
    /// How often each operation occurs in the model that this function stands for.
    pub repeats: &'a [f64],
    /// The bytes that a device may use.
    pub memory: f64,
    /// The number of arrays as large as the params that the optimizer keeps.
    pub optimizer_states: f64,
}

/// The params of a function with their gradients, which are the results from `first` on.
pub fn params_with_gradients(function: &Function, first: usize) -> Vec<(Value, Value)> {
    let params = function.arguments().filter(|(_, argument)| argument.role == Role::Param);
    let gradients = function.results.iter().skip(first).map(|result| result.value);
    params.map(|(value, _)| value).zip(gradients).collect()
}

impl Problem<'_> {
    /// The pairs of `tied` whose gradient is computed, and the params of those whose gradient is
    /// constant, as it is for layers that are left out.
    pub fn gradients(&self) -> (Vec<(Value, Value)>, Vec<Value>) {
        let definitions = self.function.definitions();
        let is_constant = |mut value: Value| loop {
            let op = definitions[value.index()].map(|at| &self.function.ops[at as usize]);
            match op.map(|op| (op.op.kind, op.operands.first())) {
                Some((Kind::Constant, _)) => return true,
                Some((Kind::Layout, Some(operand))) => value = *operand,
                _ => return false,
            }
        };
        let (constant, computed): (Vec<_>, Vec<_>) =
            self.tied.iter().copied().partition(|(_, gradient)| is_constant(*gradient));
        (computed, constant.into_iter().map(|(param, _)| param).collect())
    }
}

/// How often each operation of a shortened function occurs in the whole model.
pub fn repeats(function: &Function) -> Vec<f64> {
    let each = |op: &Operation| {
        let paths = op.loc.paths().iter();
        paths.map(|path| shorten::repeats(path)).fold(1.0, f64::max)
    };
    function.ops.iter().map(each).collect()
}

/// The first operation that depends on a cotangent; the number of operations if none does.
pub fn first_of_gradients(function: &Function) -> usize {
    let mut depends = vec![false; function.values.len()];
    for (value, argument) in function.arguments() {
        depends[value.index()] = argument.role == Role::Cotangent;
    }
    let reads = |op: &&Operation| op.operands.iter().any(|v| depends[v.index()]);
    let first = function.ops.iter().position(|op| reads(&op));
    first.unwrap_or(function.ops.len())
}

/// Which values depend on inputs.
pub fn of_inputs(function: &Function) -> Vec<bool> {
    let mut depends = vec![false; function.values.len()];
    for (value, argument) in function.arguments() {
        depends[value.index()] = matches!(argument.role, Role::Data | Role::State);
    }
    for op in &function.ops {
        if op.operands.iter().any(|value| depends[value.index()]) {
            op.results().for_each(|value| depends[value.index()] = true);
        }
    }
    depends
}
