//! Recurrent layers, which PyTorch has whole.

use std::sync::Arc;

use mithril_ir::dim::Dim;
use mithril_ir::external::TargetBody;
use mithril_ir::graph::{Function, Module, Role};
use rustc_hash::{FxHashMap, FxHashSet};

/// The arguments whose transposes PyTorch's functions take.
const WEIGHTS: [&str; 2] = ["w", "u"];

/// The params that the source transposes for PyTorch's recurrent functions. It copies them at each
/// call, unless they lie transposed in memory.
pub fn transposed_params(module: &Module) -> FxHashSet<Arc<str>> {
    let mut found = FxHashSet::default();
    for entry in module.called_from_outside() {
        let arguments: FxHashMap<_, _> =
            entry.arguments().filter(|(_, arg)| arg.role == Role::Param).collect();
        for op in &entry.ops {
            let callees = op.functions().filter_map(|name| module.get(name));
            for callee in callees.filter(|f| f.external && f.computes.is_some()) {
                let operands = callee.args.iter().zip(&op.operands);
                let weights = operands.filter(|(arg, _)| WEIGHTS.contains(&&*arg.name));
                found.extend(weights.filter_map(|(_, v)| Some(arguments.get(v)?.name.clone())));
            }
        }
    }
    found
}

/// The body of a recurrent layer by PyTorch's own function. `None`: it has none for this function.
pub(super) fn standard(function: &Function) -> Option<TargetBody> {
    let computes = function.computes.as_deref()?;
    let (name, is_reversed) = match computes.strip_suffix("_reversed") {
        Some(name) => (name, true),
        None => (computes, false),
    };
    let states: &[&str] = match name {
        "lstm" => &["hidden", "cell"],
        "gru" | "rnn_tanh" | "rnn_relu" => &["hidden"],
        _ => return None,
    };
    let place = |name: &str| function.args.iter().position(|arg| *arg.name == *name);
    let dims = |name: &str| Some(&function.ty(function.arg(place(name)?)).shape.dims);
    let (input, width) = (dims("input")?, dims("u")?.first()?.as_const()?);
    if input.contains(&Dim::Const(0)) || width == 0 {
        return None;
    }
    let collects = function.results.len() > states.len();
    let given = |name: &str| place(name).is_some();
    let state = |name: &&str| match given(name) {
        true => (format!("{{{name}}}.unsqueeze(0)"), format!("{{{name}}}")),
        false => ("zeros".into(), "zeros[0]".into()),
    };
    let (first, same): (Vec<String>, Vec<String>) = states.iter().map(state).unzip();
    let zeros = format!("{{input}}.new_zeros((1, {{input}}.shape[0], {width}))");
    let mut lines: Vec<String> =
        first.contains(&"zeros".into()).then(|| format!("zeros = {zeros}")).into_iter().collect();
    let returned = |output: String, last: Vec<String>| {
        let output = collects.then_some(output);
        format!("return {}", output.into_iter().chain(last).collect::<Vec<_>>().join(", "))
    };
    if input[1].as_const().is_none() {
        // PyTorch refuses sequences without steps.
        let empty = format!("{{input}}.new_zeros(({{input}}.shape[0], 0, {width}))");
        lines.push("if not {input}.shape[1]:".into());
        lines.push(format!("    {}", returned(empty, same)));
    }
    let flip = if is_reversed { ".flip(0)" } else { "" };
    let output = if collects { "output" } else { "_" };
    lines.push(format!("{output}, {} = torch.{name}(", states.join(", ")));
    lines.extend(arguments(&first, flip, biases(given("b"), given("b_new"), width)));
    lines.push(")".into());
    let last = states.iter().map(|name| format!("{name}[0]")).collect();
    lines.push(returned(format!("output{flip}.transpose(0, 1)"), last));
    Some(TargetBody { target: "torch".into(), text: lines.join("\n").into() })
}

/// Whether there are biases, and their part of the list of weights. PyTorch has two biases.
fn biases(has: bool, has_new: bool, width: i64) -> (&'static str, String) {
    match (has, has_new) {
        (false, _) => ("False", String::new()),
        (true, false) => ("True", ", {b}, torch.zeros_like({b})".into()),
        (true, true) => ("True", format!(", {{b}}, F.pad({{b_new}}, ({}, 0))", 2 * width)),
    }
}

/// The arguments of the call, one a line.
fn arguments(first: &[String], flip: &str, biases: (&str, String)) -> [String; 9] {
    let first = match first {
        [only] => only.clone(),
        several => format!("({})", several.join(", ")),
    };
    let (has_biases, biases) = biases;
    [
        // One matrix product for all steps needs an array in the order of the steps.
        format!("{{input}}.transpose(0, 1){flip}.contiguous()"),
        first,
        // cuDNN makes views of the weights, which transposed ones do not allow.
        format!("[{{w}}.T.contiguous(), {{u}}.T.contiguous(){biases}]"),
        format!("has_biases={has_biases}"),
        "num_layers=1".into(),
        "dropout=0.0".into(),
        "train=torch.is_grad_enabled()".into(),
        "bidirectional=False".into(),
        "batch_first=False".into(),
    ]
    .map(|argument| format!("    {argument},"))
}
