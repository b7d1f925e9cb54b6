//! One layer of a recurrent network, in one direction. The blocks `RNN`, `LSTM` and `GRU` consist
//! of these.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::layers::{INIT, USE_BIAS};
use super::parameter::{required, with};
use super::recurrent::{
    ACTIVATION, CELL, DIMENSION, GRU_B, GRU_B_NEW, GRU_U, GRU_W, LSTM_B, LSTM_U, LSTM_W,
    PROJECTED_B, PROJECTED_U, PROJECTED_W, PROJECTION, RNN_B, RNN_U, RNN_W, Recurrence, Step,
    hidden_width, width,
};
use super::{Default, Entry, Input, Kind, Meaning, Output, Parameter, Settings, Value, data, out};
use crate::lower::{Cx, Scan};

/// The number of the layer among all layers and directions, which finds its first state.
const INDEX: Parameter = required("index", Kind::Int).doc("the number of the first state");
/// The number of layers times that of directions.
const COUNT: Parameter = required("count", Kind::Count).doc("the number of first states");
pub(super) const REVERSE: Parameter = with("reverse", Kind::Bool, Default::Bool(false))
    .doc("go from the last element of each sequence to the first");
pub(super) const COLLECT: Parameter =
    with("return_sequence", Kind::Bool, Default::Bool(true)).doc("return the state of each step");

const SEQUENCE: Input = data("input", Class::Float).doc("(batch, time, features)");
pub(super) const LENGTHS: Input = data("lengths", Class::Int).own_dtype().optional().doc(
    "(batch), the length of each sequence, from 0 to the size of the time axis; what lies beyond is \
     not read, and gives zeros; defaults to the whole time axis",
);
pub(super) const HIDDEN: Input = data("hidden", Class::Float)
    .optional()
    .doc("the first state, (layers * directions, batch, dimension); defaults to 0");
pub(super) const CELL_STATE: Input = data("cell", Class::Float)
    .optional()
    .doc("the first memory, (layers * directions, batch, dimension); defaults to 0");

const PARAMETERS: &[Parameter] =
    &[DIMENSION, ACTIVATION, USE_BIAS, INIT, REVERSE, COLLECT, INDEX, COUNT];
/// Those of an LSTM.
const LSTM_PARAMETERS: &[Parameter] =
    &[DIMENSION, ACTIVATION, USE_BIAS, INIT, REVERSE, COLLECT, INDEX, COUNT, PROJECTED];
pub(super) const PROJECTED: Parameter = with("projection", Kind::Count, Default::None)
    .doc("the width to which a learned matrix projects the hidden state; none if omitted");
const OUTPUT: Output = out("output").when(|s| s.flag("return_sequence"));

pub(super) static RNN_LAYER: Entry = Entry {
    name: "RNNLayer",
    parameters: PARAMETERS,
    inputs: &[SEQUENCE, LENGTHS, HIDDEN, RNN_W, RNN_U, RNN_B],
    outputs: &[OUTPUT, out("last_hidden")],
    meaning: Meaning::Lower(|cx| layer(cx, Recurrence::Rnn)),
    ..CELL
};

pub(super) static LSTM_LAYER: Entry = Entry {
    name: "LSTMLayer",
    parameters: LSTM_PARAMETERS,
    inputs: &[
        SEQUENCE,
        LENGTHS,
        HIDDEN,
        CELL_STATE,
        LSTM_W.when(is_plain),
        LSTM_U.when(is_plain),
        LSTM_B.when(|s| is_plain(s) && s.flag("use_bias")),
        PROJECTED_W.when(is_projected),
        PROJECTED_U.when(is_projected),
        PROJECTED_B.when(|s| is_projected(s) && s.flag("use_bias")),
        PROJECTION.when(is_projected),
    ],
    outputs: &[OUTPUT, out("last_hidden"), out("last_cell")],
    meaning: Meaning::Lower(|cx| layer(cx, Recurrence::Lstm)),
    ..CELL
};

pub(super) static GRU_LAYER: Entry = Entry {
    name: "GRULayer",
    parameters: PARAMETERS,
    inputs: &[SEQUENCE, LENGTHS, HIDDEN, GRU_W, GRU_U, GRU_B, GRU_B_NEW],
    outputs: &[OUTPUT, out("last_hidden")],
    meaning: Meaning::Lower(|cx| layer(cx, Recurrence::Gru)),
    ..CELL
};

fn is_projected(settings: &Settings) -> bool {
    !is_plain(settings)
}

fn is_plain(settings: &Settings) -> bool {
    settings.get("projection").is_none()
}

/// The states of a layer with their widths.
fn states(cx: &Cx, kind: Recurrence) -> Vec<(&'static str, Dim)> {
    let cell = (kind == Recurrence::Lstm).then(|| ("cell", width(cx)));
    [("hidden", hidden_width(cx))].into_iter().chain(cell).collect()
}

/// The first state of this layer, (batch, width), if one is given. Errors: another shape.
fn first<'a>(cx: &Cx<'a>, name: &str, batch: &Dim, width: Dim) -> Result<Option<Var<'a>>> {
    let own = Shape::new([batch.clone(), width.clone()]);
    let Some(states) = cx.optional(name) else { return Ok(None) };
    let wanted = Shape::new([Dim::Const(cx.int("count")), batch.clone(), width]);
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, format!("`{name}` has the wrong shape"))
            .got(states.shape())
            .expected(format!("{wanted}: (layers * directions, batch, width)"))
    };
    if states.shape().need_rank()? != 3 {
        return wrong().err();
    }
    for (one, other) in states.shape().dims.iter().zip(&wanted.dims) {
        cx.need_same(one, other, wrong)?;
    }
    let index = cx.int("index");
    let [starts, limits] = [index, index + 1].map(|at| Shape::new([Dim::Const(at)]));
    let axes: &[i64] = &[0];
    let attrs = [("axes", axes.into()), ("starts", starts.into()), ("limits", limits.into())];
    Ok(Some(states.unary("slice", &attrs).reshape(own)))
}

/// Whether each step lies within the sequence, (time, batch, 1). `None`: all do. Errors: lengths of
/// another shape.
fn inside<'a>(cx: &Cx<'a>, batch: &Dim, time: &Dim) -> Result<Option<Var<'a>>> {
    let Some(lengths) = cx.optional("lengths") else { return Ok(None) };
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`lengths` has the wrong shape")
            .got(lengths.shape())
            .expected(format!("[{batch}], a length for each sequence"))
    };
    if lengths.shape().need_rank()? != 1 {
        return wrong().err();
    }
    cx.need_same(&lengths.shape().dims[0], batch, wrong)?;
    let inside = cx.within(lengths, time).transpose(&[1, 0]);
    Ok(Some(inside.expand_dims(&[-1]).named("inside")))
}

fn layer(cx: &Cx, kind: Recurrence) -> Result<Vec<Value>> {
    let shape = cx.var("input").shape();
    if shape.need_rank()? != 3 {
        return Diagnostic::of(ErrorKind::Shapes, "recurrent layers take a batch of sequences")
            .got(shape)
            .expected("(batch, time, features)")
            .err();
    }
    let (batch, time) = (&shape.dims[0], &shape.dims[1]);
    let mut given = Vec::new();
    for (name, width) in states(cx, kind) {
        given.extend(first(cx, name, batch, width)?.map(|state| (name, state)));
    }
    let mask = inside(cx, batch, time)?;
    if mask.is_some() || is_projected(cx.settings) {
        return sequence(cx, kind, &given, mask);
    }
    let others = ["input", "w", "u", "b", "b_new"].into_iter();
    let others = others.filter_map(|name| Some((name, cx.optional(name)?)));
    let operands: Vec<_> = others.chain(given).collect();
    let output = cx.flag("return_sequence").then_some("output");
    let last = ["last_hidden", "last_cell"].into_iter().take(states(cx, kind).len());
    let results: Vec<&'static str> = output.into_iter().chain(last).collect();
    cx.standard(&standard_name(cx, kind), &operands, &results, |cx| {
        let own = |(name, _)| Some((name, cx.optional(name)?));
        let given: Vec<_> = states(cx, kind).into_iter().filter_map(own).collect();
        sequence(cx, kind, &given, None)
    })
}

/// The name of the standard function that a layer computes.
fn standard_name(cx: &Cx, kind: Recurrence) -> String {
    let name = match kind {
        Recurrence::Rnn => format!("rnn_{}", cx.text("activation")),
        Recurrence::Lstm => "lstm".into(),
        Recurrence::Gru => "gru".into(),
    };
    if cx.flag("reverse") { format!("{name}_reversed") } else { name }
}

/// The sequence as one scan, from these states, or else zeros. `mask` tells which steps are within
/// their sequence.
fn sequence<'a>(
    cx: &Cx<'a>,
    kind: Recurrence,
    given: &[(&'static str, Var<'a>)],
    mask: Option<Var<'a>>,
) -> Result<Vec<Value>> {
    let batch = cx.var("input").shape().dims[0].clone();
    let carry = |(name, width)| {
        let own = given.iter().find(|(other, _)| *other == name).map(|(_, state)| *state);
        let zero = cx.var("input").scalar(0.0);
        (name, own.unwrap_or_else(|| zero.broadcast_to(Shape::new([batch.clone(), width]))))
    };
    let carries: Vec<_> = states(cx, kind).into_iter().map(carry).collect();
    let product = cx.var("input").transpose(&[1, 0, 2]).matmul(cx.var("w"));
    let sums = cx.optional("b").map_or(product, |b| product + b).named("sums");
    let is_lstm = kind == Recurrence::Lstm;
    let mut sequences = vec![("sum", sums)];
    sequences.extend(mask.map(|mask| ("inside", mask)));
    let mut captures = vec![("u", cx.var("u"))];
    let last = ["b_new", "w_projection"].into_iter();
    captures.extend(last.filter_map(|name| Some((name, cx.optional(name)?))));
    let collects = cx.flag("return_sequence");
    let names = ["next_hidden", "next_cell"].into_iter().take(carries.len());
    let results: Vec<&'static str> = names.chain(collects.then_some("output")).collect();
    let is_relu = cx.text("activation") == "relu";
    let (own, count, width) = (mask.is_some(), carries.len(), cx.int("dimension"));
    let scan = Scan {
        name: kind.step(),
        carries: &carries,
        sequences: &sequences,
        captures: &captures,
        reverse: cx.flag("reverse"),
        results: &results,
    };
    let mut results = cx.scan(&scan, |values| {
        let (old, rest) = values.split_at(count);
        let (u, last) = (rest[1 + usize::from(own)], rest.get(2 + usize::from(own)).copied());
        let (b_new, projection) = if is_lstm { (None, last) } else { (last, None) };
        let (hidden, cell) = (Some(old[0]), is_lstm.then(|| old[1]));
        let step = Step { kind, width, is_relu, sum: rest[0], hidden, cell, u, b_new, projection };
        let new = step.next();
        let mask = own.then(|| rest[1]);
        let kept = |(new, old): (&Var<'_>, &Var<'_>)| select(mask, *new, *old).value;
        let next: Vec<Value> = new.iter().zip(old).map(kept).collect();
        let mut next: Vec<Var> = next.into_iter().map(|value| u.builder.var(value)).collect();
        if collects {
            let zero = new[0].scalar(0.0);
            next.push(mask.map_or(next[0], |mask| mask.select(new[0], zero)));
        }
        next
    })?;
    if collects {
        let stacked = results.split_off(count);
        results.insert(0, stacked[0].transpose(&[1, 0, 2]));
    }
    Ok(results.into_iter().map(|value| value.value).collect())
}

/// `new` where the mask holds, else `old`.
fn select<'a>(mask: Option<Var<'a>>, new: Var<'a>, old: Var<'a>) -> Var<'a> {
    mask.map_or(new, |mask| mask.select(new, old))
}
