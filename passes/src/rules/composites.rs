//! Recognises composites in the primitives that people write them with.

use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::op::infer::as_ints;
use mithril_ir::scalar::round::mantissa_bits;

use super::Class::{Fast, Reassociating, Recognise};
use super::masks;
use super::matched::Match;
use super::pattern::{Pattern, any, near, number, op, product, unary, vars};
use super::{Attrs, Rule, axes_of, choice, recognise};

pub(super) fn rules() -> Vec<Rule> {
    [activations(), soft(), norms(), attention()].into_iter().flatten().collect()
}

fn activations() -> Vec<Rule> {
    let [x, c] = vars();
    let [exp, tanh, erf, abs] = ["exp", "tanh", "erf", "abs"].map(unary);
    let [square, sigmoid, log1p, expm1] = ["square", "sigmoid", "log1p", "expm1"].map(unary);
    let softplus = unary("softplus");
    let gt = |x, y| op("gt", [x, y]);
    let select = |c, x, y| op("select", [c, x, y]);
    let cube = any([square(x) * x, product(x, x, x)]);
    // sqrt(2 / pi) (x + 0.044715 x³), where the sum may already be multiplied by x.
    let inner = any([
        near(0.797_884_560_802_865_4) * (x + near(0.044_715) * cube),
        near(0.797_884_560_802_865_4) * (x + product(near(0.044_715), square(x), x)),
        near(0.797_884_560_802_865_4) * (x + ((near(0.044_715) * x) * x) * x),
        product(near(0.797_884_560_802_865_4), x, 1.0 + near(0.044_715) * square(x)),
    ]);
    let half = number(0.5);
    let root = any([x * near(FRAC_1_SQRT_2), x / near(SQRT_2)]);
    vec![
        recognise("sigmoid", 1.0 / (1.0 + exp(-x)), sigmoid(x)),
        recognise("sigmoid-exp", exp(x) / (1.0 + exp(x)), sigmoid(x)),
        recognise("sigmoid-neg", 1.0 / (1.0 + exp(x)), sigmoid(-x)),
        recognise("sigmoid-tanh", half * (1.0 + tanh(half * x)), sigmoid(x)),
        // At 0, the gradient of the form written with |x| is 0; that of `sigmoid` is 1/4, which is
        // correct.
        recognise(
            "sigmoid-select",
            select(op("ge", [x, number(0.0)]), sigmoid(abs(x)), sigmoid(-abs(x))),
            sigmoid(x),
        ),
        recognise("silu", x * sigmoid(x), op("silu", [x])),
        recognise("silu-div", x / (1.0 + exp(-x)), op("silu", [x])),
        recognise("softplus", log1p(exp(x)), softplus(x)),
        recognise("log-sigmoid", op("log", [sigmoid(x)]), -softplus(-x)),
        recognise("mish", x * tanh(softplus(x)), op("mish", [x])),
        recognise("softsign", x / (1.0 + abs(x)), op("softsign", [x])),
        recognise("gelu", product(half, x, 1.0 + erf(root)), op("gelu", [x])),
        recognise("gelu-half", (x * (1.0 + erf(root))) / 2.0, op("gelu", [x])),
        recognise("gelu-tanh", product(half, x, 1.0 + tanh(inner)), op("gelu_tanh", [x])),
        recognise("tanh", (exp(x) - exp(-x)) / (exp(x) + exp(-x)), tanh(x)),
        recognise("tanh-sigmoid", 2.0 * sigmoid(2.0 * x) - 1.0, tanh(x)),
        recognise("tanh-exp", (exp(2.0 * x) - 1.0) / (exp(2.0 * x) + 1.0), tanh(x)),
        recognise("tanh-expm1", expm1(2.0 * x) / (exp(2.0 * x) + 1.0), tanh(x)),
        recognise("sinh", (exp(x) - exp(-x)) * 0.5, op("sinh", [x])),
        recognise("cosh", (exp(x) + exp(-x)) * 0.5, op("cosh", [x])),
        recognise("tan", op("sin", [x]) / op("cos", [x]), op("tan", [x])),
        recognise("elu", select(gt(x, number(0.0)), x, expm1(x)), op("elu", [x])),
        recognise(
            "elu-alpha",
            select(gt(x, number(0.0)), x, c * expm1(x)),
            op("elu", [x]).with(|m| Some(vec![("alpha", m.number(1)?.into())])),
        ),
        recognise(
            "leaky-relu",
            select(gt(x, number(0.0)), x, c * x),
            op("leaky_relu", [x]).with(|m| Some(vec![("slope", m.number(1)?.into())])),
        ),
    ]
}

fn soft() -> Vec<Rule> {
    let [x, y, i] = vars();
    let [exp, log, sum, softmax] = ["exp", "log", "sum", "softmax"].map(unary);
    let [log_softmax, logsumexp, neg] = ["log_softmax", "logsumexp", "neg"].map(unary);
    let take_along = |x, i| op("take_along", [x, i]);
    let [squeeze, expand] = ["squeeze", "expand_dims"].map(unary);
    let one_hot = unary("one_hot");
    vec![
        recognise("softmax", exp(x) / sum(exp(x)), softmax(x).with(|m| axis(m, "sum"))),
        recognise("softmax-shift", softmax(x - y), softmax(x).with(shifted)),
        recognise("softmax-shift-add", softmax(x + y), softmax(x).with(shifted)),
        recognise("exp-log-softmax", exp(log_softmax(x)), softmax(x).with(softmax_axis_attr)),
        recognise("log-softmax", log(softmax(x)), log_softmax(x).with(softmax_axis_attr)),
        recognise("log-softmax-shift", log_softmax(x - y), log_softmax(x).with(shifted)),
        recognise(
            "log-softmax-sum",
            x - logsumexp(x),
            log_softmax(x).with(|m| axis(m, "logsumexp")),
        ),
        recognise("logsumexp", log(sum(exp(x))), logsumexp(x).with(|m| reduction_axes(m, "sum"))),
        recognise(
            "logsumexp-shift",
            y + logsumexp(x - y),
            logsumexp(x).with(|m| {
                let axes = reduction_axes(m, "logsumexp")?;
                let at = axis_of(m, "logsumexp")?;
                (keeps(m, "logsumexp") && is_one(m, 1, at)).then_some(axes)
            }),
        ),
        recognise(
            "softmax-logsumexp",
            exp(x - logsumexp(x)),
            softmax(x).with(|m| axis(m, "logsumexp")),
        ),
        recognise(
            "cross-entropy",
            neg(squeeze(take_along(log_softmax(x), expand(i)))),
            op("cross_entropy", [x, i]),
        )
        .when(takes_one_per_row),
        choice(
            Fast,
            "cross-entropy-one-hot",
            neg(sum(one_hot(i) * log_softmax(x))),
            op("cross_entropy", [x, i]),
        )
        .when(|m| {
            let last = |name| axis_of(m, name) == Some(-1);
            let classes = m.find("one_hot").map(|at| m.attr(at, "classes").clone());
            let known = m.shape(0).dims.last().and_then(|dim| dim.as_const()).map(Attr::Int);
            last("sum") && softmax_axis(m, "log_softmax") == Some(-1) && classes == known
        }),
    ]
}

fn norms() -> Vec<Rule> {
    let [x, e, w, b, n] = vars();
    let [sum, mean, variance, square] = ["sum", "mean", "variance", "square"].map(unary);
    let [sqrt, layer_norm, rms_norm] = ["sqrt", "layer_norm", "rms_norm"].map(unary);
    let centred = x - mean(x);
    let over = |x, power| any([x / sqrt(power), x * op("pow", [power, number(-0.5)])]);
    let epsilon = |m: &Match| Some(vec![("epsilon", m.number(1)?.into())]);
    let same_epsilon = |m: &Match| {
        let at = m.find("layer_norm").or_else(|| m.find("rms_norm"))?;
        Some(vec![("epsilon", m.attr(at, "epsilon").clone())])
    };
    vec![
        choice(Recognise, "mean", any([sum(x) / n, sum(x) * n]), mean(x).with(mean_of_sum)),
        choice(Reassociating, "mean-scaled", sum(x / n), mean(x).with(mean_of_sum)),
        choice(Recognise, "variance", mean(square(centred)), variance(x).with(of_deviations)),
        choice(
            Recognise,
            "variance-of-mean",
            mean(square(x)) - square(mean(x)),
            variance(x).with(of_deviations),
        ),
        choice(
            Recognise,
            "variance-centred",
            variance(x - mean(x)),
            variance(x).with(|m| {
                (is_same(m, "variance", "mean"))
                    .then(|| m.find("variance").map(|at| m.attrs(at)))?
            }),
        ),
        recognise("layer-norm", over(centred, variance(x) + e), layer_norm(x).with(epsilon))
            .when(|m| reduces_last(m, "mean") && reduces_last(m, "variance") && is_uncorrected(m)),
        recognise(
            "layer-norm-rms",
            rms_norm(centred),
            layer_norm(x).with(|m| Some(vec![("epsilon", m.attr(0, "epsilon").clone())])),
        )
        .when(|m| reduces_last(m, "mean")),
        recognise(
            "layer-norm-weight",
            layer_norm(x) * w,
            op("layer_norm", [x, w]).with(same_epsilon),
        )
        .when(|m| m.shape(2).rank() == Some(1)),
        recognise(
            "layer-norm-bias",
            op("layer_norm", [x, w]) + b,
            op("layer_norm", [x, w, b]).with(same_epsilon),
        )
        .when(|m| m.shape(3).rank() == Some(1)),
        recognise("rms-norm", over(x, mean(square(x)) + e), rms_norm(x).with(epsilon))
            .when(|m| reduces_last(m, "mean")),
        recognise("rms-norm-weight", rms_norm(x) * w, op("rms_norm", [x, w]).with(same_epsilon))
            .when(|m| m.shape(2).rank() == Some(1)),
    ]
}

fn attention() -> Vec<Rule> {
    let [q, k, v, c, mask] = vars();
    let matmul = |x, y| op("matmul", [x, y]);
    let transposed = any([op("swap_axes", [k]), op("transpose", [k])]);
    let plain = matmul(q, transposed);
    let scores = any([
        plain * c,
        plain / c,
        matmul(q * c, transposed),
        matmul(q / c, transposed),
        matmul(q, transposed * c),
        matmul(q, transposed / c),
    ]);
    let softmax = unary("softmax");
    let select = |c, x, y| op("select", [c, x, y]);
    let nothing = number(f64::NEG_INFINITY);
    let hidden = select(mask, scores, nothing);
    let of =
        |scores, operands: [Pattern; 3]| (matmul(softmax(scores), v), op("attention", operands));
    let by = |mask| op("attention", [q, k, v, mask]);
    let masked = |scores| (matmul(softmax(scores), v), by(mask));
    let ((unscaled, plainly), (left, right)) = (of(plain, [q, k, v]), of(scores, [q, k, v]));
    let (added, with_added) = masked(scores + mask);
    let (chosen, with_chosen) = masked(hidden);
    vec![
        recognise("attention-unscaled", unscaled, plainly.with(scaled)).when(is_attention),
        recognise("attention", left, right.with(scaled)).when(is_attention),
        recognise("attention-mask", added, with_added.with(scaled))
            .when(|m| is_attention(m) && m.uniform(4).is_none()),
        recognise("attention-select", chosen, with_chosen.with(scaled)).when(is_attention),
        recognise(
            "attention-select-not",
            matmul(softmax(select(mask, nothing, scores)), v),
            by(!mask).with(scaled),
        )
        .when(is_attention),
        recognise(
            "attention-causal",
            by(mask),
            op("attention", [q, k, v]).with(|m| Some(m.attrs_but(0, "causal", true.into()))),
        )
        .when(|m| masks::is_causal(m, 4)),
    ]
}

/// The scale of the scores, from the fourth variable, which multiplies or divides them. Omitted if
/// it is the default.
fn scaled(m: &Match) -> Option<Attrs> {
    let scale = match m.vars()[3] {
        None => 1.0,
        Some(_) if m.find("div").is_some() => 1.0 / m.number(3)?,
        Some(_) => m.number(3)?,
    };
    let width = m.shape(0).dims.last().and_then(Dim::as_const);
    let usual = width.is_some_and(|width| is_close(m, scale * (width as f64).sqrt(), 1.0));
    Some(if usual { Attrs::new() } else { vec![("scale", scale.into())] })
}

/// Whether the last two axes of the keys are swapped, and the weights are a softmax over the keys.
fn is_attention(m: &Match) -> bool {
    let rank = m.shape(1).dims.len() as i64;
    let front = |attr: &Attr| match attr {
        Attr::Int(axis) => axis.rem_euclid(rank.max(1)),
        _ => -1,
    };
    let last_two = match (m.find("swap_axes"), m.find("transpose")) {
        (Some(at), _) => {
            let pair = [front(m.attr(at, "first")), front(m.attr(at, "second"))];
            pair == [rank - 2, rank - 1] || pair == [rank - 1, rank - 2]
        }
        (_, Some(at)) => m.axes(at, "permutation", rank as usize).is_some_and(|order| {
            let transposed = |axis: usize| match rank as usize - axis {
                1 => axis - 1,
                2 => axis + 1,
                _ => axis,
            };
            order.iter().enumerate().all(|(axis, from)| *from == transposed(axis))
        }),
        _ => false,
    };
    let known = [0, 1, 2].iter().all(|i| m.shape(*i).rank().is_some_and(|rank| rank >= 2));
    rank >= 2 && known && last_two && softmax_axis(m, "softmax") == Some(-1)
}

/// The attribute `axis` of an operation, counted from the back.
fn softmax_axis(m: &Match, name: &str) -> Option<i64> {
    let at = m.find(name)?;
    match m.attr(at, "axis") {
        Attr::Int(axis) if *axis < 0 => Some(*axis),
        Attr::Int(axis) => Some(*axis - m.operand(at, 0).shape.rank()? as i64),
        _ => None,
    }
}

/// The only axis that an operation reduces, counted from the back.
fn axis_of(m: &Match, name: &str) -> Option<i64> {
    let at = m.find(name)?;
    match as_ints(m.attr(at, "axes")) {
        Some([axis]) if *axis < 0 => Some(*axis),
        Some([axis]) => Some(*axis - m.operand(at, 0).shape.rank()? as i64),
        _ => None,
    }
}

fn keeps(m: &Match, name: &str) -> bool {
    m.find(name).is_some_and(|at| *m.attr(at, "keepdim") == Attr::Bool(true))
}

/// The only axis that an operation reduces and keeps as 1, as the attribute `axis`.
fn axis(m: &Match, name: &str) -> Option<Attrs> {
    let last = axis_of(m, name).filter(|_| keeps(m, name))? == -1;
    let written = as_ints(m.attr(m.find(name)?, "axes"))?[0];
    Some(vec![("axis", if last { -1 } else { written }.into())])
}

fn softmax_axis_attr(m: &Match) -> Option<Attrs> {
    let name = ["softmax", "log_softmax"].into_iter().find(|name| m.find(name).is_some())?;
    Some(vec![("axis", softmax_axis(m, name)?.into())])
}

/// Whether a variable has size 1 along an axis, counted from the back, or lacks that axis.
fn is_one(m: &Match, var: usize, axis: i64) -> bool {
    let shape = m.shape(var);
    let at = shape.dims.len() as i64 + axis;
    shape.lead.is_none() && (at < 0 || shape.dims[at as usize].as_const() == Some(1))
}

/// The axis of a softmax, if the value subtracted from or added to its operand is constant along
/// it.
fn shifted(m: &Match) -> Option<Attrs> {
    let attrs = softmax_axis_attr(m)?;
    let at = softmax_axis(
        m,
        ["softmax", "log_softmax"].into_iter().find(|name| m.find(name).is_some())?,
    )?;
    is_one(m, 1, at).then_some(attrs)
}

/// The axes of a reduction over one axis, and whether they are kept.
fn reduction_axes(m: &Match, name: &str) -> Option<Attrs> {
    axis_of(m, name)?;
    axes_of(m, name)
}

/// The axes of a sum, if it is divided by the number of elements summed or multiplied by its
/// reciprocal.
fn mean_of_sum(m: &Match) -> Option<Attrs> {
    let at = m.find("sum")?;
    let operand = m.shape(0);
    let axes = match as_ints(m.attr(at, "axes")) {
        Some(axes) => axes.to_vec(),
        None => (0..operand.rank()? as i64).collect(),
    };
    // If the number has more elements than `x`, each element of `x` is added more than once.
    if *operand != m.operand(at, 0).shape {
        return None;
    }
    let dim = |axis: &i64| {
        let at = if *axis < 0 { operand.dims.len() as i64 + axis } else { *axis };
        operand.dims.get(at as usize)?.as_const()
    };
    let counts: Option<Vec<i64>> = axes.iter().map(dim).collect();
    let count = counts?.iter().product::<i64>() as f64;
    let number = m.uniform(4)?;
    let fits = match m.find("div") {
        Some(_) => number == count,
        None => is_close(m, number * count, 1.0),
    };
    fits.then(|| axes_of(m, "sum"))?
}

/// Whether two numbers are equal up to rounding in the result's dtype.
fn is_close(m: &Match, number: f64, other: f64) -> bool {
    let step = 0.5f64.powi(mantissa_bits(m.result.dtype) as i32);
    (number - other).abs() <= 4.0 * step * other.abs()
}

/// Whether two reductions are over the same axes, and the inner one keeps them as 1.
fn is_same(m: &Match, outer: &str, inner: &str) -> bool {
    let both = m.find(outer).zip(m.find(inner));
    both.is_some_and(|(a, b)| a != b && m.attr(a, "axes") == m.attr(b, "axes")) && keeps(m, inner)
}

/// The axes of a mean of squares from which means are subtracted before or after squaring.
fn of_deviations(m: &Match) -> Option<Attrs> {
    let means = m.all("mean");
    let [first, second] = means[..] else {
        return None;
    };
    let inside = m.find("sub").is_some_and(|at| at > first);
    let axes = m.attr(first, "axes") == m.attr(second, "axes");
    let keep = |at: usize| *m.attr(at, "keepdim") == Attr::Bool(true);
    let fits = axes && if inside { keep(second) } else { keep(first) == keep(second) };
    fits.then(|| axes_of(m, "mean"))?
}

fn reduces_last(m: &Match, name: &str) -> bool {
    axis_of(m, name) == Some(-1) && keeps(m, name)
}

/// Whether a variance divides by the number of elements.
fn is_uncorrected(m: &Match) -> bool {
    m.find("variance").is_some_and(|at| *m.attr(at, "correction") == Attr::Float(0.0))
}

/// Whether one element per row is taken, at the indices.
fn takes_one_per_row(m: &Match) -> bool {
    let one = |name: &str| {
        let at = m.find(name)?;
        let axes = as_ints(m.attr(at, "axes"))?;
        let rank = m.shape(0).rank()? as i64;
        Some(axes.len() == 1 && axes[0].rem_euclid(rank) == rank - 1)
    };
    one("squeeze") == Some(true)
        && one("expand_dims") == Some(true)
        && softmax_axis(m, "take_along") == Some(-1)
        && softmax_axis(m, "log_softmax") == Some(-1)
}
