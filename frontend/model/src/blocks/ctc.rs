//! Connectionist temporal classification: the likelihood of labels without an alignment.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::{Guard, Shape, unify};

use super::elementwise::done;
use super::losses::LOSS;
use super::parameter::with;
use super::{Default, Entry, Kind, Value, data, gives};
use crate::lower::{Cx, Scan};

/// The logarithm of a probability of 0. It is finite, so that differences are numbers.
const NEVER: f64 = -1e30;

pub(super) const BLOCKS: &[Entry] = &[Entry {
    example: gives(&["[[[0, 0], [0, 0]]]", "[[1]]"], "[0.2877]"),
    parameters: &[
        with("blank", Kind::Int, Default::Int(0)).doc("the class that stands for no label"),
        with("input_type", Kind::OneOf(&["logits", "log_probs"]), Default::Str("logits"))
            .doc("the meaning of `input`: scores, or logarithms of probabilities"),
        with("zero_infinity", Kind::Bool, Default::Bool(false))
            .doc("a loss of 0 instead of infinity where no alignment is possible"),
    ],
    inputs: &[
        data("input", Class::Float).doc("(batch, time, classes)"),
        data("target", Class::Int).own_dtype().doc("the labels, (batch, length)"),
        data("input_lengths", Class::Int).own_dtype().optional().doc(
            "(batch), the number of steps of each input, at most the size of the time axis, \
                 which is the default",
        ),
        data("target_lengths", Class::Int)
            .own_dtype()
            .optional()
            .doc("(batch), the number of labels of each target, at most the length, the default"),
    ],
    ..LOSS.row(
        "CTC",
        "The negative log-likelihood of the labels `target`, one number for each sample, summed \
         over all alignments: each step of `input` gives a label or the `blank` class, repeated \
         labels are joined, and blanks are dropped (Graves et al. 2006). It is infinite if the \
         labels do not fit into the steps; its gradient is 0 there. It is computed in single \
         precision at least.",
        ctc,
    )
}];

/// The extent of a batch of samples.
struct Extent {
    batch: Dim,
    time: Dim,
    labels: Dim,
}

impl Extent {
    /// The states of an alignment: the labels, with blanks around each.
    fn states(&self) -> Dim {
        &self.labels * &Dim::Const(2) + Dim::Const(1)
    }

    fn of(cx: &Cx) -> Result<Extent> {
        let (input, target) = (cx.var("input").shape(), cx.var("target").shape());
        if input.need_rank()? != 3 {
            return Diagnostic::of(ErrorKind::Shapes, "`CTC` takes scores of each step")
                .got(&input)
                .expected("(batch, time, classes)")
                .err();
        }
        let wrong = |name: &str, own: &Shape, expected: &str| {
            let what = format!("`{name}` has the wrong shape");
            let error = Diagnostic::of(ErrorKind::Shapes, what).got(own).expected(expected);
            let rows = own.dims.first().and_then(Dim::as_const);
            if name == "target" && own.rank() == Some(1) {
                error.hint("pad the targets to one length, and connect `target_lengths`")
            } else if rows.is_some() && rows == input.dims[1].as_const() {
                error.hint("PyTorch's `input` is (time, batch, classes): transpose it")
            } else {
                error
            }
        };
        let (batch, classes) = (input.dims[0].clone(), input.dims[2].as_const());
        let blank = cx.int("blank");
        if blank < 0 || classes.is_some_and(|classes| blank >= classes) {
            return Diagnostic::of(ErrorKind::Setting, "`blank` of `CTC` is no class")
                .got(blank)
                .expected(format!("a class of `input`, at least 0 and below {}", input.dims[2]))
                .err();
        }
        let check = |name: &str, rank: usize, expected: &str| -> Result<()> {
            let Some(own) = cx.optional(name).map(Var::shape) else { return Ok(()) };
            let mut guards: Vec<Guard> = Vec::new();
            let fits =
                own.need_rank()? == rank && unify(&own.dims[0], &batch, &mut guards).is_some();
            if !fits {
                return wrong(name, &own, expected).err();
            }
            cx.builder.add_guards(guards);
            Ok(())
        };
        check("target", 2, &format!("({batch}, length)"))?;
        check("input_lengths", 1, &format!("({batch})"))?;
        check("target_lengths", 1, &format!("({batch})"))?;
        let (time, labels) = (input.dims[1].clone(), target.dims[1].clone());
        Ok(Extent { batch, time, labels })
    }
}

fn ctc(cx: &Cx) -> Result<Vec<Value>> {
    let extent = Extent::of(cx)?;
    let logits = cx.text("input_type") == "logits";
    let input = cx.var("input").widened();
    let scores = match logits {
        true => input.unary("log_softmax", &[("axis", (-1).into())]),
        false => input,
    };
    let (labels, allowed) = states(cx, &extent);
    let shape = [&extent.batch, &extent.time, &extent.states()].map(Dim::clone);
    let places = labels.expand_dims(&[1]).broadcast_to(Shape::new(shape));
    let emitted = cx.op("take_along", &[scores, places], &[("axis", (-1).into())]);
    let emitted = emitted.binary("maximum", emitted.scalar(NEVER)).transpose(&[1, 0, 2]);
    let (last, scale) = alignments(cx, &extent, emitted.named("emitted"), allowed)?;
    let ends = last_states(cx, &extent, last.scalar(0.0));
    let total = sum_of(last + ends, &[-1]) + scale.squeeze(&[-1]);
    let impossible = total.binary("lt", total.scalar(NEVER / 2.0));
    let without = if cx.flag("zero_infinity") { 0.0 } else { f64::INFINITY };
    let loss = impossible.select(total.scalar(without), -total);
    done(loss.cast(cx.var("input").dtype()))
}

/// `log(sum(exp(x)))` over the axes.
fn sum_of<'a>(x: Var<'a>, axes: &[i64]) -> Var<'a> {
    let top = x.reduce("max", Some(axes), true).stop_gradient();
    (x - top).exp().sum(Some(axes), false).log() + top.squeeze(axes)
}

/// The class of each state, (batch, states), and 0 where a state may follow the one two before it,
/// which holds for a label that differs from the one before, and `NEVER` elsewhere.
fn states<'a>(cx: &Cx<'a>, extent: &Extent) -> (Var<'a>, Var<'a>) {
    let target = cx.var("target");
    let blank = target.scalar(cx.int("blank") as f64);
    // Labels beyond the length may be no classes.
    let target = cx
        .optional("target_lengths")
        .map_or(target, |lengths| cx.within(lengths, &extent.labels).select(target, blank));
    let concat = |parts: &[Var<'a>]| cx.op("concat", parts, &[("axis", (-1).into())]);
    let column =
        |count: i64| blank.broadcast_to(Shape::new([extent.batch.clone(), Dim::Const(count)]));
    let each = target.expand_dims(&[-1]);
    let blanks = blank.broadcast_to(each.shape());
    let pairs = Shape::new([extent.batch.clone(), &extent.labels * &Dim::Const(2)]);
    let own = concat(&[concat(&[blanks, each]).reshape(pairs), column(1)]);
    let before = slice(concat(&[column(2), own]), 0, extent);
    let follows = own.binary("ne", blank).binary("and", own.binary("ne", before));
    let zero = cx.builder.var(cx.var("input").widened().scalar(0.0).value);
    (own, follows.select(zero, zero.scalar(NEVER)))
}

/// As many columns as there are states, from column `start`.
fn slice<'v>(of: Var<'v>, start: i64, extent: &Extent) -> Var<'v> {
    let starts = Shape::new([Dim::Const(start)]);
    let limits = Shape::new([extent.states() + Dim::Const(start)]);
    let axes: &[i64] = &[-1];
    let attrs = [("axes", axes.into()), ("starts", starts.into()), ("limits", limits.into())];
    of.unary("slice", &attrs)
}

/// The log-likelihood of all alignments of the input that end in each state, (batch, states), as a
/// difference from the greatest one, (batch, 1). So long sequences keep their accuracy.
fn alignments<'a>(
    cx: &Cx<'a>,
    extent: &Extent,
    emitted: Var<'a>,
    allowed: Var<'a>,
) -> Result<(Var<'a>, Var<'a>)> {
    let batch = &extent.batch;
    let shape = Shape::new([batch.clone(), extent.states()]);
    // Before the first step, an alignment is in the first state.
    let start = cx.iota(shape.clone(), 1, cx.index);
    let zero = emitted.scalar(0.0);
    let never = emitted.scalar(NEVER);
    let start = start.binary("lt", start.scalar(1.0)).select(zero, never).broadcast_to(shape);
    let scale = zero.broadcast_to(Shape::new([batch.clone(), Dim::Const(1)]));
    let mut sequences = vec![("emitted", emitted)];
    sequences.extend(cx.optional("input_lengths").map(|lengths| {
        ("inside", cx.within(lengths, &extent.time).transpose(&[1, 0]).expand_dims(&[-1]))
    }));
    let scan = Scan {
        name: "ctc_step",
        carries: &[("likelihood", start), ("scale", scale)],
        sequences: &sequences,
        captures: &[("allowed", allowed)],
        reverse: false,
        results: &["next_likelihood", "next_scale"],
    };
    let has_lengths = sequences.len() > 1;
    let done = cx.scan(&scan, |values| {
        let (old, scale, emitted) = (values[0], values[1], values[2]);
        let allowed = values[3 + usize::from(has_lengths)];
        // The dims of the step's own function.
        let (shape, states) = (old.shape(), old.shape().dims[1].clone());
        let column = Shape::new([shape.dims[0].clone(), Dim::Const(2)]);
        let never = old.scalar(NEVER).broadcast_to(column);
        let axis = [("axis", (-1).into())];
        let padded = mithril_ir::algebra::build(old.builder, "concat", &[never, old], &axis);
        let before = |start: i64| {
            let axes: &[i64] = &[-1];
            let limits = Shape::new([&states + &Dim::Const(start)]);
            let starts = Shape::new([Dim::Const(start)]);
            let attrs =
                [("axes", axes.into()), ("starts", starts.into()), ("limits", limits.into())];
            padded.unary("slice", &attrs)
        };
        let (one, two) = (before(1), before(0) + allowed);
        let top = old.binary("maximum", one).binary("maximum", two).stop_gradient();
        let sum = (old - top).exp() + (one - top).exp() + (two - top).exp();
        let new = sum.log() + top + emitted;
        let greatest = new.reduce("max", Some(&[-1]), true).stop_gradient();
        let (new, next_scale) = (new - greatest, scale + greatest);
        match has_lengths {
            true => vec![values[3].select(new, old), values[3].select(next_scale, scale)],
            false => vec![new, next_scale],
        }
    })?;
    Ok((done[0], done[1]))
}

/// 0 for the last label and the blank after it, in which alignments end, and `NEVER` elsewhere.
fn last_states<'a>(cx: &Cx<'a>, extent: &Extent, zero: Var<'a>) -> Var<'a> {
    let shape = Shape::new([Dim::Const(1), extent.states()]);
    let (number, last) = match cx.optional("target_lengths") {
        Some(lengths) => {
            let last = lengths.expand_dims(&[1]) * 2.0;
            (cx.iota(shape, 1, lengths.dtype()), last)
        }
        None => {
            let target = cx.var("target");
            let last = target.dim(1).cast(cx.index) * 2.0;
            (cx.iota(shape, 1, cx.index), last)
        }
    };
    let is_last = number.binary("ge", last - 1.0).binary("and", last.binary("ge", number));
    is_last.select(zero, zero.scalar(NEVER))
}
