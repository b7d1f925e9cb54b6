//! Convolutions and pooling: padding, scales and sums that they can take over, and forms that cost
//! less.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::infer::as_ints;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::Class::{Exact, Reassociating, Recognise};
use super::matched::Match;
use super::pattern::{Pattern, number, op, unary, vars};
use super::{Attrs, Rule, choice};

pub(super) fn rules() -> Vec<Rule> {
    [padding(), filters(), biased(), norms(), pools(), whole(), pointwise(), merged()]
        .into_iter()
        .flatten()
        .collect()
}

fn conv(x: Pattern, w: Pattern) -> Pattern {
    op("conv", [x, w])
}

/// Windows that read zeros (or -inf, for maxima) past the ends need no padded copy of the operand.
fn padding() -> Vec<Rule> {
    let [x, w] = vars();
    let pad = |value: f64| op("pad", [x, number(value)]);
    let [max_pool, sum_pool, avg_pool] = ["max_pool", "sum_pool", "avg_pool"].map(unary);
    vec![
        choice(Exact, "conv-pad", conv(pad(0.0), w), conv(x, w).with(|m| padded(m, 2)))
            .when(|m| is_plain(m.attr(0, "interior"), 0)),
        choice(
            Exact,
            "max-pool-pad",
            max_pool(pad(f64::NEG_INFINITY)),
            max_pool(x).with(padded_windows),
        ),
        choice(Exact, "sum-pool-pad", sum_pool(pad(0.0)), sum_pool(x).with(padded_windows)),
        choice(
            Exact,
            "avg-pool-pad",
            avg_pool(pad(0.0)),
            avg_pool(x).with(|m| {
                let mut attrs = padded_windows(m)?;
                let counts = attrs.iter_mut().find(|(name, _)| *name == "count_pad")?;
                counts.1 = Attr::Bool(true);
                Some(attrs)
            }),
        )
        .when(|m| ["low", "high", "uncounted"].iter().all(|name| is_plain(m.attr(0, name), 0))),
    ]
}

/// Whether a list of integers has only this number, or is left out.
fn is_plain(attr: &Attr, value: i64) -> bool {
    as_ints(attr).is_none_or(|list| list.iter().all(|&own| own == value))
}

/// The attributes of windows over the padded operand, with the padding as their own. The first
/// `front` axes have no windows and must not be padded.
fn padded(m: &Match, front: usize) -> Option<Attrs> {
    let pad = m.find("pad")?;
    let rank = m.shape(0).rank()?;
    let mut attrs = m.attrs(0);
    for side in ["low", "high"] {
        let more = as_ints(m.attr(pad, side))?;
        let is_natural = more.len() == rank && more.iter().all(|&count| count >= 0);
        if !is_natural || more[..front].iter().any(|&count| count > 0) {
            return None;
        }
        let own = as_ints(m.attr(0, side));
        if own.is_some_and(|own| own.iter().any(|&count| count < 0)) {
            return None;
        }
        let sums =
            more[front..].iter().enumerate().map(|(i, count)| count + own.map_or(0, |own| own[i]));
        let sums = Attr::ints(sums);
        attrs.iter_mut().filter(|(name, _)| *name == side).for_each(|(_, old)| *old = sums.clone());
    }
    is_plain(m.attr(pad, "interior"), 0).then_some(attrs)
}

/// The same for pooling, whose windows cover the last axes.
fn padded_windows(m: &Match) -> Option<Attrs> {
    let sizes = as_ints(m.attr(0, "sizes"))?.len();
    padded(m, m.shape(0).rank()?.checked_sub(sizes)?)
}

/// Moves scales and sums to where there are fewer elements. A scale per filter, as of a batch norm,
/// goes into the weights, which are often constants.
fn filters() -> Vec<Rule> {
    let [x, w, y, c] = vars();
    let same = |m: &Match| Some(m.attrs(m.find("conv")?));
    vec![
        choice(
            Reassociating,
            "conv-filter-scale",
            conv(x, w) * c,
            conv(x, w * op("reshape", [c]).with(per_filter)).with(same),
        )
        .when(|m| m.uniform(3).is_none()),
        // A batch norm with running statistics subtracts a mean first.
        choice(
            Reassociating,
            "conv-filter-norm",
            (conv(x, w) - y) * c,
            conv(x, w * op("reshape", [c]).with(per_filter)).with(same) - y * c,
        )
        .when(|m| m.uniform(3).is_none() && m.shape(2) == m.shape(3)),
        choice(Reassociating, "conv-scaled", conv(x * c, w), conv(x, w * c).with(same))
            .when(is_number),
        choice(Reassociating, "conv-scaled-after", conv(x, w) * c, conv(x, w * c).with(same))
            .when(is_number),
        choice(
            Reassociating,
            "conv-add-weights",
            conv(x, w) + conv(x, y),
            conv(x, w + y).with(same),
        )
        .when(|m| m.shape(1) == m.shape(2) && have_equal_attrs(m)),
        choice(
            Reassociating,
            "conv-add-inputs",
            conv(x, w) + conv(y, w),
            conv(x + y, w).with(same),
        )
        .when(|m| m.shape(0) == m.shape(2) && have_equal_attrs(m)),
    ]
}

/// Finds convolutions with a bias, which some frameworks have whole.
fn biased() -> Vec<Rule> {
    let [x, w, _, b] = vars();
    let right = |to| op(to, [x, w, op("reshape", [b]).with(bias)]).with(own_attrs);
    let rule = |name, from, to| choice(Recognise, name, op(from, [x, w]) + b, right(to));
    vec![
        rule("conv-bias", "conv", "biased_conv").when(|m| m.uniform(3).is_none()),
        rule("conv-transpose-bias", "conv_transpose", "biased_conv_transpose")
            .when(|m| m.uniform(3).is_none()),
    ]
}

/// The attributes of the convolution.
fn own_attrs(m: &Match) -> Option<Attrs> {
    m.find("conv").or_else(|| m.find("conv_transpose")).map(|at| m.attrs(at))
}

/// The shape of a bias with one element for each filter.
fn bias(m: &Match) -> Option<Attrs> {
    let weights = m.shape(1);
    let filters = match m.find("conv_transpose") {
        Some(at) => &weights.dims[1] * &Dim::Const(m.attr(at, "groups").as_int()),
        None => weights.dims[0].clone(),
    };
    along_axis_1(m, 3, weights.rank()?, &filters)
}

/// The operations of a batch norm, which a convolution before it can take over.
fn norms() -> Vec<Rule> {
    let [x, mean, variance, weight, bias] = vars();
    let along = |v| op("expand_dims", [v]).with(later_axes);
    let epsilon = op("constant", []).with(epsilon_literal);
    let normal = (x - along(mean)) / unary("sqrt")(along(variance) + epsilon);
    let scaled = normal * along(weight);
    let norm = op("batch_norm", [x, mean, variance]);
    let weighted = op("batch_norm", [x, mean, variance, weight]);
    let whole = op("batch_norm", [x, mean, variance, weight, bias]);
    vec![
        choice(Exact, "batch-norm-parts", norm, normal).when(is_plain_norm),
        choice(Exact, "batch-norm-weight-parts", weighted, scaled).when(is_plain_norm),
        choice(Exact, "batch-norm-bias-parts", whole, scaled + along(bias)).when(is_plain_norm),
    ]
}

/// Whether a batch norm is computed in its own dtype, and has axes after the channels.
fn is_plain_norm(m: &Match) -> bool {
    matches!(m.dtype(0), DType::F32 | DType::F64) && m.shape(0).rank().is_some_and(|rank| rank > 2)
}

/// The axes after the channels.
fn later_axes(m: &Match) -> Option<Attrs> {
    Some(vec![("axes", Attr::ints(1..m.shape(0).rank()? as i64 - 1))])
}

/// The constant that is added to a variance.
fn epsilon_literal(m: &Match) -> Option<Attrs> {
    let Attr::Float(epsilon) = m.attr(0, "epsilon") else { return None };
    let tensor = Tensor::scalar(m.dtype(0), *epsilon);
    Some(vec![("value", tensor.into())])
}

/// The shape of a value that broadcasts along axis 1 of an array of this rank, without its other
/// axes.
fn along_axis_1(m: &Match, at: usize, rank: usize, size: &Dim) -> Option<Attrs> {
    let shape = m.shape(at);
    let own = shape.rank()?;
    let place = own.checked_sub(rank - 1)?;
    let others = shape.dims.iter().enumerate().filter(|(axis, _)| *axis != place);
    let is_alone = others.into_iter().all(|(_, dim)| dim.as_const() == Some(1));
    let fits = is_alone && own <= rank && shape.dims[place] == *size;
    fits.then(|| vec![("shape", Shape::new([size.clone()]).into())])
}

/// Moves elementwise functions and sums to where there are fewer elements.
fn pools() -> Vec<Rule> {
    let [x, _, y, c] = vars();
    let [max_pool, avg_pool, sum_pool] = ["max_pool", "avg_pool", "sum_pool"].map(unary);
    let pooled = |m: &Match| {
        let at = ["max_pool", "avg_pool", "sum_pool"].iter().find_map(|name| m.find(name))?;
        Some(m.attrs(at))
    };
    let relu = unary("relu");
    vec![
        // The gradients differ where an element is NaN.
        choice(Reassociating, "max-pool-relu", max_pool(relu(x)), relu(max_pool(x).with(pooled)))
            .when(no_window_is_padding),
        choice(Reassociating, "avg-pool-scaled", avg_pool(x * c), avg_pool(x).with(pooled) * c)
            .when(is_number),
        choice(Reassociating, "sum-pool-scaled", sum_pool(x * c), sum_pool(x).with(pooled) * c)
            .when(is_number),
        choice(
            Reassociating,
            "avg-pool-add",
            avg_pool(x) + avg_pool(y),
            avg_pool(x + y).with(pooled),
        )
        .when(|m| {
            let all = m.all("avg_pool");
            m.shape(0) == m.shape(2) && all.len() == 2 && m.attrs(all[0]) == m.attrs(all[1])
        }),
    ]
}

/// Whether the fourth variable is a number without axes.
fn is_number(m: &Match) -> bool {
    m.uniform(3).is_some() && m.shape(3).rank() == Some(0)
}

fn have_equal_attrs(m: &Match) -> bool {
    let all = m.all("conv");
    all.len() == 2 && m.attrs(all[0]) == m.attrs(all[1])
}

/// The shape of a scale of the result of a convolution, as a factor of its weights: one number for
/// each filter.
fn per_filter(m: &Match) -> Option<Attrs> {
    let weights = m.shape(1);
    let rank = weights.rank()?;
    along_axis_1(m, 3, rank, &weights.dims[0])?;
    let ones = (1..rank).map(|_| Dim::Const(1));
    let shape = Shape::new([weights.dims[0].clone()].into_iter().chain(ones));
    Some(vec![("shape", shape.into())])
}

/// Whether every window has an element of the operand, also where it is padded.
fn no_window_is_padding(m: &Match) -> bool {
    ["low", "high"].iter().all(|side| is_plain(m.attr(0, side), 0))
}

/// One window over the whole operand is a reduction.
fn whole() -> Vec<Rule> {
    let [x] = vars();
    let reduced = |name: &'static str| op(name, [x]).with(window_axes);
    let pool = |name: &'static str| op(name, [x]);
    vec![
        choice(Exact, "max-pool-whole", pool("max_pool"), reduced("max")),
        choice(Reassociating, "sum-pool-whole", pool("sum_pool"), reduced("sum")),
        choice(Reassociating, "avg-pool-whole", pool("avg_pool"), reduced("mean")),
    ]
}

/// The axes of windows that cover the whole operand, without padding.
fn window_axes(m: &Match) -> Option<Attrs> {
    let sizes = as_ints(m.attr(0, "sizes"))?;
    let rank = m.shape(0).rank()?;
    let front = rank.checked_sub(sizes.len())?;
    let covers = (m.shape(0).dims[front..].iter().zip(sizes))
        .all(|(dim, size)| dim.as_const() == Some(*size) && *size > 0);
    let padding = ["low", "high"].iter().all(|side| is_plain(m.attr(0, side), 0));
    let dilated = m.find("max_pool").is_some_and(|at| !is_plain(m.attr(at, "dilations"), 1));
    let counted = m.find("avg_pool").is_none_or(|at| is_plain(m.attr(at, "uncounted"), 0));
    let axes = Attr::ints((front..rank).map(|axis| axis as i64));
    (covers && padding && !dilated && counted && !sizes.is_empty())
        .then(|| vec![("axes", axes), ("keepdim", true.into())])
}

/// A convolution whose kernel is one element is a product of matrices.
fn pointwise() -> Vec<Rule> {
    let [x, w] = vars();
    let reshape = unary("reshape");
    let product = op("matmul", [reshape(w).with(filter_matrix), reshape(x).with(pixel_columns)]);
    let right = reshape(product).with(super::layout::own_shape);
    vec![choice(Reassociating, "conv-pointwise", conv(x, w), right).when(is_pointwise)]
}

fn is_pointwise(m: &Match) -> bool {
    mixes_channels(m, 1) && m.shape(0).rank().is_some_and(|rank| rank > 2)
}

/// Whether the outermost convolution only mixes channels; variable `weights` has its weights.
fn mixes_channels(m: &Match, weights: usize) -> bool {
    let ones = m.shape(weights).dims.iter().skip(2).all(|dim| dim.as_const() == Some(1));
    let plain = [("strides", 1), ("low", 0), ("high", 0), ("interior", 0)];
    let plain = plain.iter().all(|(name, value)| is_plain(m.attr(0, name), *value));
    let alone = *m.attr(0, "groups") == Attr::Int(1) && *m.attr(0, "acc") == Attr::None;
    ones && plain && alone
}

/// A convolution that only mixes the channels of another one goes into its weights, and a bias
/// between the two through its own.
fn merged() -> Vec<Rule> {
    let [x, w, v, b] = vars();
    let reshape = unary("reshape");
    let product = op("matmul", [reshape(v).with(mixed), reshape(w).with(taps_of_filters)]);
    let both = conv(x, reshape(product).with(merged_weights)).with(inner_attrs);
    let bias = conv(reshape(b).with(one_sample), v).with(|m| Some(m.attrs(0)));
    vec![
        choice(Reassociating, "conv-mixed-after", conv(conv(x, w), v), both)
            .when(|m| mixes_channels(m, 2) && inner_is_plain(m)),
        choice(Reassociating, "conv-mixed-after-bias", conv(conv(x, w) + b, v), both + bias)
            .when(|m| mixes_channels(m, 2) && inner_is_plain(m) && one_sample(m).is_some()),
    ]
}

/// The inner convolution.
fn inner(m: &Match) -> Option<usize> {
    m.all("conv").get(1).copied()
}

fn inner_attrs(m: &Match) -> Option<Attrs> {
    Some(m.attrs(inner(m)?))
}

fn inner_is_plain(m: &Match) -> bool {
    inner(m)
        .is_some_and(|at| *m.attr(at, "groups") == Attr::Int(1) && *m.attr(at, "acc") == Attr::None)
}

/// (filters of the outer convolution, filters of the inner one)
fn mixed(m: &Match) -> Option<Attrs> {
    Some(vec![("shape", Shape::new(m.shape(2).dims.iter().take(2).cloned()).into())])
}

/// (filters, channels and taps)
fn taps_of_filters(m: &Match) -> Option<Attrs> {
    let dims = &m.shape(1).dims;
    let taps: Dim = dims.get(1..)?.iter().cloned().product();
    Some(vec![("shape", Shape::new([dims[0].clone(), taps]).into())])
}

/// The weights of the inner convolution with the filters of the outer one.
fn merged_weights(m: &Match) -> Option<Attrs> {
    let rest = m.shape(1).dims.iter().skip(1).cloned();
    let dims = m.shape(2).dims.iter().take(1).cloned().chain(rest);
    Some(vec![("shape", Shape::new(dims).into())])
}

/// The shape of a bias per channel as that of one sample with one position.
fn one_sample(m: &Match) -> Option<Attrs> {
    let weights = m.shape(1);
    let rank = weights.rank()?;
    along_axis_1(m, 3, rank, &weights.dims[0])?;
    let ones = (2..rank).map(|_| Dim::Const(1));
    let dims = [Dim::Const(1), weights.dims[0].clone()].into_iter().chain(ones);
    Some(vec![("shape", Shape::new(dims).into())])
}

/// (filters, channels)
fn filter_matrix(m: &Match) -> Option<Attrs> {
    let shape = Shape::new(m.shape(1).dims.iter().take(2).cloned());
    Some(vec![("shape", shape.into())])
}

/// (batch, channels, pixels)
fn pixel_columns(m: &Match) -> Option<Attrs> {
    let dims = &m.shape(0).dims;
    let pixels: Dim = dims[2..].iter().cloned().product();
    let shape = Shape::new(dims[..2].iter().cloned().chain([pixels]));
    Some(vec![("shape", shape.into())])
}
