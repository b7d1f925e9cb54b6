//! Generates the op reference page from the table.

use std::fmt::Write;

use super::{Arity, AttrDef, Default, Gradient, Kind, Meaning, Op, Operand, table};

/// The reference of every operation, as Markdown. `whole` returns the backends that have their own
/// spelling of an operation.
pub fn reference(whole: &dyn Fn(Op) -> Vec<&'static str>) -> String {
    let mut page = String::from(
        "# Operations\n\nEvery operation of the intermediate representation, generated from the \
         op table. *Whole* lists the Python targets that have the operation built in; the others \
         decompose it.\n",
    );
    let mut kinds: Vec<Kind> = Vec::new();
    table().for_each(|op| kinds.extend((!kinds.contains(&op.kind)).then_some(op.kind)));
    for kind in kinds {
        let _ = write!(page, "\n## {kind:?}\n");
        let own = table().filter(|op| op.kind == kind);
        own.for_each(|op| page.push_str(&entry(op, &whole(op))));
    }
    page
}

fn entry(op: Op, whole: &[&str]) -> String {
    let operands = op.operands.iter().map(operand).collect::<Vec<_>>().join(", ");
    let mut text = format!("\n### `{}({operands})`\n\n{}\n\n", op.name, op.doc);
    for attr in op.attrs {
        let _ = writeln!(text, "- `{}`: {}", attr.name, attribute(attr));
    }
    for operand in op.operands {
        let _ = writeln!(text, "- `{}`: {}", operand.name, operand.class.name());
    }
    let _ = writeln!(text, "- means: {}", meaning(op));
    let pullback = op.pullback.map(|own| format!("; `{}` on targets that have it", own.by));
    let _ = writeln!(text, "- gradient: {}{}", gradient(op), pullback.unwrap_or_default());
    let _ = writeln!(
        text,
        "- whole: {}",
        if whole.is_empty() { "none".to_string() } else { whole.join(", ") }
    );
    if !op.note.is_empty() {
        let _ = writeln!(text, "- note: {}", op.note);
    }
    text
}

fn operand(operand: &Operand) -> String {
    match operand.arity {
        Arity::One => operand.name.to_string(),
        Arity::Optional => format!("{}?", operand.name),
        Arity::Many => format!("{}...", operand.name),
    }
}

fn attribute(attr: &AttrDef) -> String {
    let kind = attr.kind.name();
    match attr.default {
        Default::Required => format!("{kind}, required"),
        Default::None => format!("{kind}, optional"),
        Default::Bool(v) => format!("{kind}, `{v}` by default"),
        Default::Int(v) => format!("{kind}, `{v}` by default"),
        Default::Float(v) => format!("{kind}, `{v:?}` by default"),
    }
}

fn meaning(op: Op) -> String {
    match op.meaning {
        Meaning::Scalar(text) => format!("`{text}`, element by element"),
        Meaning::Kernel(_) => "a primitive of the evaluator".to_string(),
        Meaning::Decompose(_) => "a decomposition into other operations".to_string(),
        Meaning::Call(_) => "the function it calls".to_string(),
    }
}

fn gradient(op: Op) -> String {
    match op.gradient {
        Gradient::Partials(texts) => format!("`{}`", texts.join("`, `")),
        Gradient::Rule(_) => "a rule of its own".to_string(),
        Gradient::Zero => "none".to_string(),
        Gradient::Callee
        | Gradient::Recompute
        | Gradient::Scan
        | Gradient::Branches
        | Gradient::While => "that of the function it calls".to_string(),
        Gradient::Vjp => "the function `vjp`".to_string(),
        Gradient::Derived => match super::partials(op) {
            Some(_) => "that of its primitive".to_string(),
            None => "from its decomposition".to_string(),
        },
    }
}
