//! Puts the two blocks of a `While` or a `Cond` into one model, and finds their terminals.

use std::sync::Arc;

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};
use mithril_ir::graph::Role;
use mithril_ir::op::Class;

use super::wiring::{Wiring, as_model};
use crate::block::{Block, quoted};
use crate::definition::{Control, Outlet, Terminal, Wired};
use crate::identity::{Identity, ParamId};
use crate::model::{Model, Source};

/// The name of the output that says whether a `While` goes on.
const RUNNING: &str = "running";

/// The inputs of a block that are arrays: those that must be given, and those in `wanted`.
fn open_inputs<'b>(block: &'b Block, wanted: &[&str]) -> Vec<&'b str> {
    let data = block.inputs().iter().filter(|terminal| terminal.role == Role::Data);
    let open = data.filter(|terminal| !terminal.optional || wanted.contains(&&*terminal.name));
    open.map(|terminal| &*terminal.name).collect()
}

/// A name that starts with `base` and is not in `taken`.
fn unused(base: String, taken: &[&str]) -> String {
    let mut name = base;
    while taken.contains(&&*name) {
        name.push('_');
    }
    name
}

fn wrong(what: impl Into<String>) -> Diagnostic {
    let what: String = what.into();
    Diagnostic::of(ErrorKind::Setting, what)
}

/// Errors: the block has random numbers or states inside.
fn check_plain(block: &Block) -> Result<()> {
    let Some(terminal) = block.inputs().iter().find(|t| matches!(t.role, Role::Key | Role::State))
    else {
        return Ok(());
    };
    let what = if terminal.role == Role::Key { "random numbers" } else { "a running state" };
    wrong("the condition of `While` must compute from its inputs and params only")
        .got(format!("{} inside `{}`", what, block.kind()))
        .hint("compute it in the body, and carry the result")
        .err()
}

/// The inputs that the body carries, each with its output. Errors: they are not given, and the body
/// has several outputs.
fn carried<'b>(body: &'b Block, carry: Vec<(&'b str, &'b str)>) -> Result<Vec<(&'b str, &'b str)>> {
    if !carry.is_empty() {
        return Ok(carry);
    }
    match (body.standard_input(), body.outputs()) {
        (Some(input), [output]) => Ok(vec![(&input.name, &output.name)]),
        (_, outputs) => {
            let names: Vec<&str> = outputs.iter().map(|own| &*own.name).collect();
            wrong("`While` does not know what the body carries")
                .got(format!("the outputs {}", quoted(&names)))
                .expected("`carry`, a dict from inputs of the body to outputs")
                .err()
        }
    }
}

/// Errors: the body lacks an input or an output in `carry`.
fn check_carry(body: &Block, carry: &[(&str, &str)]) -> Result<()> {
    let wanted: Vec<&str> = carry.iter().map(|(input, _)| *input).collect();
    let inputs = open_inputs(body, &wanted);
    let outputs: Vec<&str> = body.outputs().iter().map(|own| &*own.name).collect();
    let named = carry
        .iter()
        .flat_map(|(input, output)| [("input", *input, &inputs), ("output", *output, &outputs)]);
    for (what, name, names) in named {
        if names.contains(&name) {
            continue;
        }
        let what = format!("the body `{}` of `While` has no {what} `{name}`", body.kind());
        let error = Diagnostic::of(ErrorKind::Terminal, what);
        let mut error = error.got(format!("`{name}` in `carry`")).expected(quoted(names));
        error.hint = did_you_mean(name, names.iter().copied());
        return error.err();
    }
    Ok(())
}

/// The block of a `While`. One step is a model of the body, and of the condition for the next step.
///
/// Errors: terminals that the blocks lack; a condition with several outputs, states or random
/// numbers.
pub(crate) fn repeated(
    condition: &Block,
    body: &Block,
    carry: Vec<(&str, &str)>,
    max_steps: Option<i64>,
) -> Result<Wired> {
    let named: Vec<&str> = carry.iter().map(|(input, _)| *input).collect();
    let condition = &as_model(condition, &named)?;
    let body = &as_model(body, &named)?;
    check_plain(condition)?;
    let [decision] = condition.outputs() else {
        let names: Vec<&str> = condition.outputs().iter().map(|own| &*own.name).collect();
        return wrong("the condition of `While` must have one output, a bool")
            .got(quoted(&names))
            .err();
    };
    let carry = carried(body, carry)?;
    let inputs: Vec<&str> = carry.iter().map(|(input, _)| *input).collect();
    check_carry(body, &carry)?;
    let mut taken = open_inputs(body, &inputs);
    taken.extend(open_inputs(condition, &inputs));
    let model = Model::of_kind(body.kind());
    let next: Vec<(&str, String)> =
        carry.iter().map(|(_, out)| (*out, unused((*out).to_string(), &taken))).collect();
    let own = open_inputs(body, &inputs).into_iter().map(|input| (input, input));
    let made = next.iter().map(|(output, name)| (*output, &**name));
    let wires = own.chain(made).map(|(own, name)| (own.to_string(), Source::from(name)));
    model.connect(body.clone().named("body")?.connect(wires)?)?;
    let running = unused(RUNNING.into(), &taken);
    let mut wires: Vec<(String, Source)> = vec![(decision.name.to_string(), (&*running).into())];
    for input in open_inputs(condition, &inputs) {
        let carried = inputs.iter().position(|own| *own == input);
        let name = carried.map_or(input, |at| &*next[at].1);
        wires.push((input.to_string(), name.into()));
    }
    model.connect(condition.clone().named("condition")?.connect(wires)?)?;
    next.iter().try_for_each(|(_, name)| model.expose(name))?;
    let step = model.block()?;
    let pairs = inputs.iter().zip(&next).map(|(input, (_, name))| (*input, &**name));
    let wiring = Wiring {
        kind: "While",
        carry: pairs.collect(),
        steps: Some(max_steps.unwrap_or(1)),
        over: None,
        collect: Some(Vec::new()),
        axis: 0,
        reverse: false,
    };
    let mut wired = wiring.of(&step)?;
    let at = step.outputs().iter().position(|own| *own.name == *running);
    wired.body.control = Control::While { running: at.unwrap_or_default() as u32, max_steps };
    wired.body.steps = None;
    wired.outputs =
        carry.iter().map(|(_, output)| Outlet { name: (*output).into(), list: None }).collect();
    Ok(wired)
}

/// The block of a `Cond`: a condition, and the inputs of both branches.
///
/// Errors: the branches have other outputs, or none.
pub(crate) fn branches(then: &Block, otherwise: &Block) -> Result<Wired> {
    let (then, otherwise) = (&as_model(then, &[])?, &as_model(otherwise, &[])?);
    let names = |block: &Block| -> Vec<Arc<str>> {
        block.outputs().iter().map(|own| own.name.clone()).collect()
    };
    let (mut own, mut other) = (names(then), names(otherwise));
    let outputs = own.clone();
    own.sort();
    other.sort();
    if own != other || own.is_empty() {
        return wrong("the blocks of `Cond` must have the same outputs")
            .got(format!("{} in `then`, {} in `otherwise`", quoted(&own), quoted(&other)))
            .hint("put a block into a `Model` to name its outputs")
            .err();
    }
    let inputs = [then, otherwise].into_iter().flat_map(|block| open_inputs(block, &[]));
    let inputs: Vec<&str> = inputs.collect();
    let model = Model::of_kind("Cond");
    let mut taken = inputs.clone();
    taken.push("condition");
    for (block, name) in [(then, "then"), (otherwise, "otherwise")] {
        let mut wires: Vec<(String, Source)> = Vec::new();
        for input in open_inputs(block, &[]) {
            wires.push((input.to_string(), input.into()));
        }
        for output in &outputs {
            let wire = unused(format!("{name}_{output}"), &taken);
            wires.push((output.to_string(), (&*wire).into()));
        }
        model.connect(block.clone().named(name)?.connect(wires)?)?;
    }
    let both = model.block()?;
    if let Some(input) = both.inputs().iter().find(|own| *own.name == *"condition") {
        return wrong("a block of `Cond` must not have an input `condition`")
            .got(format!("`{}`, which is the name of the input of `Cond` itself", input.name))
            .hint("put the block into a `Model` with another name for it")
            .err();
    }
    let condition = Terminal::data("condition", Class::Bool);
    let condition = Terminal { own_dtype: true, shape: Some([].into()), ..condition };
    let mut terminals = vec![condition];
    terminals.extend(both.inputs().iter().cloned());
    let mut ids = vec![ParamId { block: Identity::new(), input: 0 }];
    ids.extend(both.ids.iter().copied());
    let mut wired = both.wired(Control::Branches);
    wired.inputs = terminals;
    wired.outputs = outputs.into_iter().map(|name| Outlet { name, list: None }).collect();
    wired.ids = ids.into();
    Ok(wired)
}
