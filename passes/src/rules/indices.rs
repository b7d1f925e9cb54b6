//! Reads at computed indices, and bounds on such indices.

use mithril_ir::attr::Attr;
use mithril_ir::graph::Value;
use mithril_ir::op::get;
use mithril_ir::scalar::round::int_range;
use mithril_ir::shape::{Shape, axis_of};
use mithril_ir::tensor::Tensor;

use super::Class::{Exact, Recognise};
use super::matched::{Facts, Match, Producer};
use super::pattern::{any, number, op, unary, vars};
use super::{Attrs, Rule, choice};

/// The maximum number of operations to look through.
const MAX_DEPTH: usize = 8;

pub(super) fn rules() -> Vec<Rule> {
    let [i, w] = vars();
    let [one_hot, cast, expand] = ["one_hot", "cast", "expand_dims"].map(unary);
    let iota = op("iota", []);
    let take = |x, at| op("take", [x, at]);
    let chosen = any([one_hot(i), cast(op("eq", [expand(i), iota]))]);
    let product = op("matmul", [chosen, w]);
    // An index that is out of range selects no row.
    let [first, last] = [0, 1].map(|_| op("constant", []));
    let [first, last] = [first.with(zero), last.with(last_class)];
    let within = op("minimum", [op("maximum", [i, first]), last]);
    let inside = expand(op("eq", [within, i])).with(|_| Some(vec![("axes", Attr::ints([-1]))]));
    let row = take(w, within).with(first_axis);
    vec![
        choice(Recognise, "one-hot-take", product, take(w, i).with(first_axis))
            .when(|m| classes(m).is_some_and(|count| is_in_bounds(m, 0, count))),
        choice(Recognise, "one-hot-select", product, op("select", [inside, row, number(0.0)])),
        choice(Exact, "take-of-iota", take(iota, i), cast(i).with(own_dtype)).when(is_in_range),
        choice(Exact, "take-by-iota", take(w, iota), op("slice", [w]).with(from_the_start)),
    ]
}

fn first_axis(_: &Match) -> Option<Attrs> {
    Some(vec![("axis", Attr::Int(0))])
}

fn own_dtype(m: &Match) -> Option<Attrs> {
    Some(vec![("dtype", m.result.dtype.into())])
}

/// The number of classes by which the rows of a matrix are selected.
fn classes(m: &Match) -> Option<i64> {
    let count = match (m.find("one_hot"), m.find("expand_dims"), m.find("iota")) {
        (Some(at), ..) => m.attr(at, "classes").as_int(),
        (_, Some(expand), Some(iota)) => {
            let rank = m.shape(0).rank()? + 1;
            let last = m.axes(expand, "axes", rank)? == [rank - 1];
            shape(m.attr(iota, "shape")).filter(|shape| last && shape.rank() == Some(1))?.dims[0]
                .as_const()?
        }
        _ => return None,
    };
    (count > 0 && m.shape(1).rank() == Some(2)).then_some(count)
}

fn shape(attr: &Attr) -> Option<&Shape> {
    match attr {
        Attr::Shape(shape) => Some(shape),
        _ => None,
    }
}

fn zero(m: &Match) -> Option<Attrs> {
    integer(m, 0)
}

fn last_class(m: &Match) -> Option<Attrs> {
    let high = i64::try_from(int_range(m.dtype(0)).1).unwrap_or(i64::MAX);
    integer(m, (classes(m)? - 1).min(high))
}

/// A literal of the dtype of the indices.
fn integer(m: &Match, value: i64) -> Option<Attrs> {
    let tensor = || Tensor::from_i64s(m.dtype(0), Vec::new(), &[value]);
    m.dtype(0).is_int().then(|| vec![("value", Attr::from(tensor()))])
}

/// For a take from an iota: whether each index is in range, and the iota's dtype can represent it.
fn is_in_range(m: &Match) -> bool {
    let ramp = m.find("iota").and_then(|at| shape(m.attr(at, "shape")));
    let count = ramp.filter(|shape| shape.rank() == Some(1)).and_then(|s| s.dims[0].as_const());
    let kept = |count: i64| Tensor::scalar(m.result.dtype, count as f64).element_f64(0);
    count.is_some_and(|count| is_in_bounds(m, 0, count) && kept(count) == count as f64)
}

/// For a take by an iota: the bounds of a slice from the start, if the axis has enough elements.
fn from_the_start(m: &Match) -> Option<Attrs> {
    let count = &m.operand(0, 1).shape;
    let axis = axis_of(m.attr(0, "axis").as_int(), m.shape(1).rank()?)?;
    let dim = &m.shape(1).dims[axis];
    let [count] = &count.dims[..] else {
        return None;
    };
    (dim - count).lower_bound().filter(|low| *low >= 0)?;
    Some(vec![
        ("axes", Attr::ints([axis as i64])),
        ("starts", Shape::fixed(&[0]).into()),
        ("limits", Shape::new([count.clone()]).into()),
    ])
}

/// Whether all elements of a variable are valid indices into `count` elements.
fn is_in_bounds(m: &Match, var: usize, count: i64) -> bool {
    let (low, high) = bounds(m.facts(), m.var(var), MAX_DEPTH);
    low >= 0 && high < i128::from(count)
}

/// Lower and upper bounds of the elements of a value.
fn bounds(facts: &dyn Facts, value: Value, depth: usize) -> (i128, i128) {
    let dtype = facts.ty(value).dtype;
    let all = if dtype.is_float() { (i128::MIN, i128::MAX) } else { int_range(dtype) };
    if depth == 0 || dtype.is_float() {
        return all;
    }
    let ops = BOUNDED.into_iter().chain(REARRANGING).map(get);
    let bounds = ops.flat_map(|op| facts.producers(value, op)).filter_map(|producer| {
        let operand = |at: usize| bounds(facts, producer.operands[at], depth - 1);
        let (low, high) = through(facts, &producer, &operand)?;
        (all.0 <= low && high <= all.1).then_some((low, high))
    });
    bounds.fold(all, |a, b| (a.0.max(b.0), a.1.min(b.1)))
}

/// Operations that bound the elements of their results.
const BOUNDED: [&str; 10] = [
    "constant", "iota", "argmax", "argmin", "argsort", "argtopk", "maximum", "minimum", "select",
    "mod",
];

/// Operations whose results contain the elements of their first operand, possibly cast.
const REARRANGING: [&str; 10] = [
    "cast",
    "take",
    "broadcast_in_dim",
    "reshape",
    "transpose",
    "swap_axes",
    "expand_dims",
    "squeeze",
    "slice",
    "reverse",
];

fn through(
    facts: &dyn Facts,
    producer: &Producer,
    operand: &dyn Fn(usize) -> (i128, i128),
) -> Option<(i128, i128)> {
    let attr = |name: &str| producer.op.attr_index(name).map(|at| &producer.attrs[at]);
    let ty = |at: usize| facts.ty(producer.operands[at]);
    let below = |shape: &Shape, axis: i64| {
        let dim = shape.dims[axis_of(axis, shape.rank()?)?].as_const().filter(|dim| *dim > 0)?;
        Some((0, i128::from(dim) - 1))
    };
    match producer.op.name {
        "constant" => match attr("value")? {
            Attr::Tensor(tensor) => {
                let numbers = tensor.to_i64s();
                Some(((*numbers.iter().min()?).into(), (*numbers.iter().max()?).into()))
            }
            _ => None,
        },
        "iota" => below(shape(attr("shape")?)?, attr("axis")?.as_int()),
        "argmax" | "argmin" | "argsort" | "argtopk" => match attr("axis")? {
            Attr::Int(axis) => below(&ty(0).shape, *axis),
            _ => {
                let count = ty(0).shape.elements()?.as_const().filter(|count| *count > 0)?;
                Some((0, i128::from(count) - 1))
            }
        },
        "maximum" => Some((operand(0).0.max(operand(1).0), operand(0).1.max(operand(1).1))),
        "minimum" => Some((operand(0).0.min(operand(1).0), operand(0).1.min(operand(1).1))),
        "select" => Some((operand(1).0.min(operand(2).0), operand(1).1.max(operand(2).1))),
        // The remainder has the sign of the divisor.
        "mod" => match operand(1) {
            (1.., high) => Some((0, high - 1)),
            _ => None,
        },
        "cast" if ty(0).dtype.is_float() => None,
        _ => Some(operand(0)),
    }
}
