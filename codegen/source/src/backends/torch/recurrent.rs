//! Recurrent layers, which PyTorch has whole.

use mithril_ir::dim::Dim;
use mithril_ir::external::TargetBody;
use mithril_ir::graph::Function;

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
    let flip = if is_reversed { ".flip(1)" } else { "" };
    let output = if collects { "output" } else { "_" };
    lines.push(format!("{output}, {} = torch.{name}(", states.join(", ")));
    lines.extend(arguments(&first, flip, biases(given("b"), given("b_new"), width)));
    lines.push(")".into());
    let last = states.iter().map(|name| format!("{name}[0]")).collect();
    lines.push(returned(format!("output{flip}"), last));
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
        format!("{{input}}{flip}"),
        first,
        // cuDNN makes views of the weights, which transposed ones do not allow.
        format!("[{{w}}.T.contiguous(), {{u}}.T.contiguous(){biases}]"),
        format!("has_biases={has_biases}"),
        "num_layers=1".into(),
        "dropout=0.0".into(),
        "train=torch.is_grad_enabled()".into(),
        "bidirectional=False".into(),
        "batch_first=True".into(),
    ]
    .map(|argument| format!("    {argument},"))
}
