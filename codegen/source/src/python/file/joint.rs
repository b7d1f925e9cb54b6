//! The function that returns outputs and gradients together: it runs the forward pass, gets the
//! gradients of the outputs, and runs the backward pass.

use mithril_ir::diagnostic::Result;
use mithril_ir::graph::{Function, ResultDef, Role};
use rustc_hash::FxHashSet;

use super::release::release;
use super::{Body, Expr, File, Lines, Statement, string};

/// The name of that function in files.
const NAME: &str = "outputs_and_gradients";

/// Whether the function returns the entry's results followed by gradients. If no output is a float,
/// it takes no cotangents and its gradients are zeros.
pub fn is_joint(entry: &Function, function: &Function) -> bool {
    let same = |(a, b): (&ResultDef, &ResultDef)| a.name == b.name && a.state == b.state;
    let params = entry.args.iter().filter(|arg| arg.role == Role::Param);
    let params: FxHashSet<&str> = params.map(|arg| &*arg.name).collect();
    let learned = |r: &ResultDef| params.contains(&*r.name);
    let takes = function.args.iter().any(|arg| arg.role == Role::Cotangent);
    function.results.len() > entry.results.len()
        && entry.results.iter().zip(&function.results).all(same)
        && (takes || function.results[entry.results.len()..].iter().all(learned))
}

/// The sections of the function, in the order they are written.
struct Parts {
    arguments: Vec<Statement>,
    forward: Vec<Statement>,
    outputs: Expr,
    /// Statements that read the gradients of the outputs.
    seeds: Vec<Statement>,
    backward: Vec<Statement>,
    gradients: Expr,
    /// The next state, if the model has state.
    states: Option<Expr>,
}

impl Parts {
    fn of(body: &mut Body<'_, '_>, count: usize, state: bool) -> Result<Parts> {
        let function = body.function;
        let (outputs, backward) = function.results.split_at(count);
        let cotangents = body.hide_arguments(Role::Cotangent);
        let live = body.survey();
        body.guards()?;
        let forward_ops: Vec<bool> = needed(function, outputs)
            .iter()
            .zip(&live)
            .map(|(needed, live)| *needed && *live)
            .collect();
        body.write_operations(&forward_ops)?;
        let (mut outputs_dict, mut states, mut gradients_dict) =
            (Vec::new(), Vec::new(), Vec::new());
        for result in outputs {
            let value = body.array(result.value)?;
            match &result.state {
                Some(argument) => states.push((string(argument), value)),
                None => outputs_dict.push((string(&result.name), value)),
            }
        }
        let forward = std::mem::take(&mut body.statements);
        body.restore_arguments(cotangents, backward, "_gradient");
        let backward_ops: Vec<bool> =
            live.iter().zip(&forward_ops).map(|(live, written)| *live && !written).collect();
        body.write_operations(&backward_ops)?;
        for result in backward {
            gradients_dict.push((string(&result.name), body.array(result.value)?));
        }
        let mut parts = Parts {
            arguments: body.header(&["params", "inputs", "state"]),
            forward,
            outputs: Expr::Dict(outputs_dict),
            seeds: body.header(&["output_gradients"]),
            backward: std::mem::take(&mut body.statements),
            gradients: Expr::Dict(gradients_dict),
            states: state.then_some(Expr::Dict(states)),
        };
        if body.file.backend.eager {
            let at_end: Vec<&Expr> =
                [&parts.outputs, &parts.gradients].into_iter().chain(&parts.states).collect();
            let names = body.computed_arrays();
            release(&mut [&mut parts.forward, &mut parts.backward], &names, &at_end);
        }
        Ok(parts)
    }
}

impl<'m> File<'m> {
    /// Writes two functions. `outputs_and_gradients` computes the outputs, calls its last argument
    /// with them to get their gradients, and runs the backward pass. The function called
    /// `gradients` takes the gradients of the outputs as an argument. The first `count` results are
    /// the entry's.
    pub fn joint(
        &mut self,
        gradients: &str,
        count: usize,
        function: &'m Function,
        state: bool,
    ) -> Result<[String; 2]> {
        self.define_called(function)?;
        let parts = Parts::of(&mut Body::new(self, function, ""), count, state)?;
        let own = if state { ", state" } else { "" };
        let params = [format!("params, inputs{own}, output_gradients")];
        let mut lines = Lines::default();
        lines.def(NAME, &params);
        self.write_body(&mut lines, 4, &parts.arguments);
        self.write_body(&mut lines, 4, &parts.forward);
        self.assign(&mut lines, "outputs", parts.outputs);
        if !parts.seeds.is_empty() {
            let asked = Expr::name("output_gradients(outputs)");
            self.assign(&mut lines, "output_gradients", asked);
        }
        self.write_body(&mut lines, 4, &parts.seeds);
        self.write_body(&mut lines, 4, &parts.backward);
        self.assign(&mut lines, "gradients", parts.gradients);
        if let Some(states) = parts.states {
            self.assign(&mut lines, "state", states);
        }
        lines.statement(4, "return ", &Expr::Name(format!("outputs, gradients{own}")));

        let mut gradients_lines = Lines::default();
        gradients_lines.def(gradients, &params);
        let given = "lambda _: output_gradients";
        let call = format!("{NAME}(params, inputs{own}, {given})[1]");
        gradients_lines.statement(4, "return ", &Expr::Name(call));
        Ok([lines.into_text(), gradients_lines.into_text()])
    }

    fn assign(&mut self, lines: &mut Lines, name: &str, value: Expr) {
        self.note(&value);
        lines.statement(4, &format!("{name} = "), &value);
    }
}

/// For each operation, whether the results need it.
fn needed(function: &Function, results: &[ResultDef]) -> Vec<bool> {
    let mut live = vec![false; function.values.len()];
    results.iter().for_each(|r| live[r.value.index()] = true);
    let mut needed = vec![false; function.ops.len()];
    for (i, op) in function.ops.iter().enumerate().rev() {
        needed[i] = op.results().any(|v| live[v.index()]);
        if needed[i] {
            op.operands.iter().for_each(|v| live[v.index()] = true);
        }
    }
    needed
}
