//! Sequences of different lengths: which steps are inside them, and states that the others leave as
//! they are.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::graph::Role;
use mithril_ir::op::Class;

use super::elementwise::done;
use super::recurrent::CELL;
use super::wiring::as_model;
use super::{Entry, Meaning, Value, data};
use crate::block::Block;
use crate::definition::{Terminal, Wired};
use crate::lower::Cx;
use crate::model::{Model, Source};

/// Whether each step of (batch, time, …) is inside its sequence, (batch, time).
pub(super) static INSIDE: Entry = Entry {
    name: "InsideSequence",
    inputs: &[data("input", Class::Any), data("lengths", Class::Int).own_dtype()],
    meaning: Meaning::Lower(inside),
    same_dtype: false,
    ..CELL
};

/// `new` where a step is inside its sequence, else `old`, which is 0 if it is left out.
static KEPT: Entry = Entry {
    name: "KeptState",
    inputs: &[
        data("new", Class::Any),
        data("old", Class::Any).optional(),
        data("inside", Class::Bool).own_dtype(),
    ],
    meaning: Meaning::Lower(keep),
    ..CELL
};

/// The input of a masked body that tells whether a step is inside.
pub(super) const STEP: &str = "inside_sequence";

/// A body whose steps beyond the end of a sequence, which the input [`STEP`] tells, leave the carries
/// as they are and give 0 for other outputs. Errors: a body without the terminals in `carry`, which
/// has the terminals of the body.
pub(super) fn masked(body: &Block, carry: &[(&str, &str)], named: &[&str]) -> Result<Block> {
    let own = as_model(body, named)?;
    let model = Model::of_kind(body.kind());
    let inputs = own.inputs().iter().filter(|terminal| terminal.role == Role::Data);
    let mut given: Vec<(String, Source)> =
        inputs.map(|terminal| (terminal.name.to_string(), (*terminal.name).into())).collect();
    for outlet in own.outputs() {
        given.push((outlet.name.to_string(), format!("inner_{}", outlet.name).as_str().into()));
    }
    model.connect(own.clone().named("body")?.connect(given)?)?;
    for outlet in own.outputs() {
        let name = &*outlet.name;
        let mut given: Vec<(&str, Source)> = vec![
            ("new", format!("inner_{name}").as_str().into()),
            ("inside", STEP.into()),
            ("output", name.into()),
        ];
        if let Some((input, _)) = carry.iter().find(|(_, output)| *output == name) {
            given.push(("old", (*input).into()));
        }
        model.connect(KEPT.block(vec![], vec![])?.connect(given)?)?;
    }
    let optional = own.inputs().iter().filter(|terminal| terminal.optional);
    model.set_optional(optional.map(|terminal| &*terminal.name));
    model.block()
}

/// The block with the input `lengths` in the place of [`STEP`]. Errors: there is no other sequence;
/// the body has an input of this name.
pub(super) fn with_lengths(mut wired: Wired) -> Result<Wired> {
    let at = wired.inputs.iter().position(|terminal| &*terminal.name == STEP).unwrap_or(0);
    if wired.body.sequences.len() < 2 || wired.body.steps.is_some() {
        return Diagnostic::of(ErrorKind::Setting, "`use_lengths` of `Scan` needs a sequence")
            .expected("at least one input of the body that takes slices")
            .err();
    }
    if wired.inputs.iter().any(|terminal| &*terminal.name == "lengths") {
        return Diagnostic::of(ErrorKind::Setting, "the body of `Scan` has an input `lengths`")
            .expected("another name, as `use_lengths` adds an input of this name")
            .err();
    }
    wired.inputs[at] = Terminal { own_dtype: true, ..Terminal::data("lengths", Class::Int) };
    wired.body.lengths = Some(at as u32);
    Ok(wired)
}

/// The block that gives `next_…` from the state of this name, `new_…` and `inside`.
pub(super) fn kept(state: &str) -> Result<Block> {
    let given: [(&str, Source); 4] = [
        ("new", format!("new_{state}").as_str().into()),
        ("old", state.into()),
        ("inside", "inside".into()),
        ("output", format!("next_{state}").as_str().into()),
    ];
    KEPT.block(vec![], vec![])?.connect(given)
}

fn inside(cx: &Cx) -> Result<Vec<Value>> {
    let (shape, lengths) = (cx.var("input").shape(), cx.var("lengths"));
    let own = lengths.shape();
    if shape.need_rank()? < 2 {
        return Diagnostic::of(ErrorKind::Shapes, "`input` is no batch of sequences")
            .got(&shape)
            .expected("(batch, time, …)")
            .err();
    }
    let (batch, time) = (&shape.dims[0], &shape.dims[1]);
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`lengths` has the wrong shape")
            .got(&own)
            .expected(format!("[{batch}], a length for each sequence"))
    };
    if own.need_rank()? != 1 {
        return wrong().err();
    }
    cx.need_same(&own.dims[0], batch, wrong)?;
    done(cx.within(lengths, time))
}

fn keep(cx: &Cx) -> Result<Vec<Value>> {
    let (new, inside) = (cx.var("new"), cx.var("inside"));
    let later: Vec<i64> = (1..new.shape().need_rank()?.max(1) as i64).collect();
    let inside = if later.is_empty() { inside } else { inside.expand_dims(&later) };
    let old = cx.optional("old").unwrap_or_else(|| new.scalar(0.0));
    done(inside.select(new, old))
}
