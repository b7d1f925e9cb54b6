//! Rows of a table at indices, and their sums, means and maxima over bags.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::{Shape, unify};

use super::elementwise::done;
use super::indexer::slice;
use super::layers::{INIT, LAYER};
use super::parameter::{Range, required, with};
use super::reduce::norm;
use super::{Default, Entry, Input, Kind, Meaning, Parameter, Settings, Value, data, gives, param};
use crate::init::Init;
use crate::lower::Cx;

/// The rows of an embedding.
const TABLE: Input = param("w", Init::Normal, |cx| {
    let dims = [cx.int("num_embeddings"), cx.int("dimension")];
    Ok(Shape::new(dims.map(Dim::Const)))
})
.transposed()
.takes_init()
.doc("(num_embeddings, dimension)");

const COUNT: Parameter = required("num_embeddings", Kind::Count).doc("the number of rows of `w`");
const WIDTH: Parameter = required("dimension", Kind::Count).doc("the width of a row");
const MAX_NORM: Parameter = with("max_norm", Kind::Float(Range::NotNegative), Default::None)
    .doc("the largest norm of a row; longer rows are scaled down as they are read");
const NORM_TYPE: Parameter = with("norm_type", Kind::Float(Range::Ordered), Default::Float(2.0))
    .doc("the order of that norm; for infinity, it is the largest magnitude");
const BY_FREQUENCY: Parameter = with("scale_grad_by_freq", Kind::Bool, Default::Bool(false))
    .doc("divide the gradient of each row by the number of times that its index occurs in `input`");

pub(super) const BLOCKS: &[Entry] = &[EMBEDDING, EMBEDDING_BAG];

const EMBEDDING: Entry = Entry {
    name: "Embedding",
    doc: "The rows of `w`, which is (num_embeddings, dimension), at the indices `input`. `w` \
          starts standard normal, as in `torch.nn.Embedding`, or as given by `init`, with \
          `dimension` as its fan in. With `max_norm`, a row whose norm is larger is multiplied by \
          `max_norm / (norm + 1e-7)`. As in PyTorch, the gradient is that of the row without this \
          factor. PyTorch changes `w` as well; a call here does not.",
    formula: "w[input]",
    example: gives(&["[2, 0]"], "[[4. 5.]\n [0. 1.]]")
        .with_settings("num_embeddings=3, dimension=2")
        .with_params(&["[[0, 1], [2, 3], [4, 5]]"]),
    parameters: &[
        COUNT,
        WIDTH,
        INIT,
        with("padding_idx", Kind::Int, Default::None)
            .doc("the index of a row that has no gradient; may count from the end"),
        MAX_NORM,
        NORM_TYPE,
        BY_FREQUENCY,
    ],
    inputs: &[data("input", Class::Int).own_dtype().doc("indices of rows, of any shape"), TABLE],
    valid: valid_padding,
    meaning: Meaning::Lower(|cx| {
        let rows = rows(cx)?;
        done(counted(cx).map_or(rows, |others| others.select(rows, rows.stop_gradient())))
    }),
    ..LAYER
};

const EMBEDDING_BAG: Entry = Entry {
    name: "EmbeddingBag",
    doc: "The sum, mean or maximum of the rows of `w` at the indices of each bag, as in \
          `torch.nn.EmbeddingBag`. A bag is a row of `input`, or the indices from one of the \
          `offsets` to the next. The rows are those of `Embedding`, and `w` starts as there. \
          Indices that are `padding_idx` do not count; a bag of no others gives 0. \
          `per_sample_weights` multiply the rows of a sum. Of equal maxima, the first has the \
          gradient.",
    formula: "mean(w[input], 1)",
    example: gives(&["[[2, 0], [1, 1]]"], "[[2. 3.]\n [2. 3.]]")
        .with_settings("num_embeddings=3, dimension=2")
        .with_params(&["[[0, 1], [2, 3], [4, 5]]"]),
    parameters: &[
        COUNT,
        WIDTH,
        with("mode", Kind::OneOf(&["sum", "mean", "max"]), Default::Str("mean"))
            .doc("how the rows of a bag are combined"),
        with("padding_idx", Kind::Int, Default::None)
            .doc("the index of a row that is left out of bags; may count from the end"),
        INIT,
        MAX_NORM,
        NORM_TYPE,
        BY_FREQUENCY,
        with("include_last_offset", Kind::Bool, Default::Bool(false))
            .doc("the last of the `offsets` is the end of the last bag, not the start of another"),
    ],
    inputs: &[
        data("input", Class::Int)
            .own_dtype()
            .doc("(bags, indices of rows), or indices of rows with `offsets`"),
        TABLE,
        data("per_sample_weights", Class::Float)
            .optional()
            .doc("a factor for each index, in mode \"sum\""),
        data("offsets", Class::Int)
            .own_dtype()
            .optional()
            .doc("where each bag starts in `input`: 0 first, then in ascending order"),
    ],
    valid: |settings| {
        valid_padding(settings)?;
        match settings.flag("scale_grad_by_freq") && settings.text("mode") == "max" {
            false => Ok(()),
            true => {
                let what = "`scale_grad_by_freq` of `EmbeddingBag` is for sums and means";
                Diagnostic::of(ErrorKind::Setting, what)
                    .got("mode=\"max\"")
                    .expected("mode=\"sum\" or mode=\"mean\"")
                    .err()
            }
        }
    },
    meaning: Meaning::Lower(embedding_bag),
    ..LAYER
};

/// Errors: a padding index out of range.
fn valid_padding(settings: &Settings) -> Result<()> {
    let (Some(at), Some(count)) = (settings.int("padding_idx"), settings.int("num_embeddings"))
    else {
        return Ok(());
    };
    if (-count..count).contains(&at) {
        return Ok(());
    }
    Diagnostic::of(ErrorKind::Setting, "`padding_idx` is out of range")
        .got(at)
        .expected(format!("an integer from {} to {}", -count, count - 1))
        .err()
}

/// The rows at the indices, with their norms limited.
fn rows<'a>(cx: &Cx<'a>) -> Result<Var<'a>> {
    let rows = cx.op("take", &[cx.var("w"), cx.var("input")], &[("axis", 0.into())]);
    cx.builder.check()?;
    let most = cx.settings.float("max_norm");
    let by_frequency = cx.flag("scale_grad_by_freq");
    if most.is_none() && !by_frequency {
        return Ok(rows);
    }
    let value = most.map_or(rows, |most| limited(rows, most, cx.float("norm_type")));
    if !cx.training() {
        return Ok(value);
    }
    // This adds 0, which has the gradient of the rows. The difference of infinities is NaN.
    let is_infinite = rows.unary("is_inf", &[]);
    let finite = is_infinite.select(rows.scalar(0.0), rows);
    let mut zero = finite - finite.stop_gradient();
    if by_frequency {
        let wide = zero.widened();
        zero = (wide / frequencies(cx).cast(wide.dtype())).cast(rows.dtype());
    }
    Ok(value.stop_gradient() + zero)
}

/// Scales rows whose norm is larger than `most`.
fn limited<'a>(rows: Var<'a>, most: f64, order: f64) -> Var<'a> {
    let wide = rows.widened();
    let size = norm(wide, order, Some(&[-1]), true).named("norms");
    let factor = size.scalar(most) / (size + 1e-7);
    let longer = size.binary("gt", size.scalar(most));
    (wide * longer.select(factor, size.scalar(1.0))).cast(rows.dtype())
}

/// How many times each index occurs in `input`, with a last axis of size 1.
fn frequencies<'a>(cx: &Cx<'a>) -> Var<'a> {
    let input = cx.var("input");
    let places = input.reshape(Shape::new([Dim::Unknown]));
    let zero = input.cast(cx.index).scalar(0.0);
    let zeros = zero.broadcast_to(Shape::new([Dim::Const(cx.int("num_embeddings"))]));
    let ones = zero.scalar(1.0).broadcast_to(places.shape());
    let axis = [("axis", 0.into())];
    let counts = cx.op("scatter_add", &[zeros, places, ones], &axis).named("counts");
    cx.op("take", &[counts, input], &axis).expand_dims(&[-1])
}

/// Whether each index is another than `padding_idx`, with a last axis of size 1. `None`: all are.
fn counted<'a>(cx: &Cx<'a>) -> Option<Var<'a>> {
    let (at, count) = (cx.settings.int("padding_idx")?, cx.int("num_embeddings"));
    let input = cx.var("input");
    let front = at.rem_euclid(count);
    let is_other = |at: i64| input.binary("ne", input.scalar(at as f64));
    Some(is_other(front).binary("and", is_other(front - count)).expand_dims(&[-1]))
}

/// Checks that there are bags of indices, and that factors fit them.
fn check_bags(cx: &Cx) -> Result<()> {
    let bags = cx.var("input");
    let error = |what: &str, got: Shape, expected: &str| {
        Diagnostic::of(ErrorKind::Shapes, what).got(got).expected(expected)
    };
    match cx.optional("offsets") {
        Some(offsets) => {
            cx.need_rank(bags, 1, || {
                let what = "`input` of `EmbeddingBag` has bags, but `offsets` divide it as well";
                let hint = "leave out `offsets`: each row of a matrix is a bag";
                error(what, bags.shape(), "(indices)").hint(hint)
            })?;
            cx.need_rank(offsets, 1, || {
                let what = "`offsets` of `EmbeddingBag` are not a vector";
                error(what, offsets.shape(), "(bags)")
            })?;
            if cx.flag("include_last_offset") {
                cx.need(&offsets.shape().dims[0], 1, || {
                    let what = "`offsets` of `EmbeddingBag` do not include the last";
                    error(what, offsets.shape(), "at least one, the end of the last bag")
                })?;
            }
        }
        None => {
            cx.need_rank(bags, 2, || {
                let error =
                    error("`EmbeddingBag` takes bags of indices", bags.shape(), "(bags, indices)");
                match bags.shape().rank() {
                    Some(1) => error.hint("`offsets` are the starts of bags in a vector"),
                    _ => error,
                }
            })?;
            if cx.flag("include_last_offset") {
                let what = "`include_last_offset` of `EmbeddingBag` needs `offsets`";
                return Diagnostic::of(ErrorKind::Setting, what)
                    .got("bags that are rows of `input`")
                    .expected("the input `offsets`, or include_last_offset=False")
                    .err();
            }
        }
    }
    check_factors(cx)
}

/// Errors: factors in another mode than a sum, or of another shape than the indices.
fn check_factors(cx: &Cx) -> Result<()> {
    let Some(factors) = cx.optional("per_sample_weights") else { return Ok(()) };
    if cx.text("mode") != "sum" {
        let what = "`per_sample_weights` of `EmbeddingBag` multiply the rows of a sum";
        return Diagnostic::of(ErrorKind::Setting, what)
            .got(format!("mode=\"{}\"", cx.text("mode")))
            .expected("mode=\"sum\"")
            .err();
    }
    let (shape, bags) = (factors.shape(), cx.var("input").shape());
    let mut guards = Vec::new();
    let same = shape.rank() == bags.rank()
        && shape.dims.iter().zip(&bags.dims).all(|(a, b)| unify(a, b, &mut guards).is_some());
    if !same {
        let what = "`per_sample_weights` of `EmbeddingBag` do not have the shape of `input`";
        return Diagnostic::of(ErrorKind::Shapes, what).got(&shape).expected(&bags).err();
    }
    cx.builder.add_guards(guards);
    Ok(())
}

/// Indices that are divided into bags by offsets.
struct Divided<'a> {
    /// For each index, the number of offsets up to it: 0 before the first bag, which is left out,
    /// and 1 in the first bag.
    places: Var<'a>,
    /// The number of offsets.
    offsets: Dim,
    bags: Dim,
}

impl<'a> Divided<'a> {
    /// `None`: the bags are rows.
    fn of(cx: &Cx<'a>) -> Option<Divided<'a>> {
        let offsets = cx.optional("offsets")?;
        let count = offsets.shape().dims[0].clone();
        let size = cx.var("input").shape().dims[0].clone();
        let axis = [("axis", 0.into())];
        let zero = offsets.cast(cx.index).scalar(0.0);
        // Bags that are empty may start after the last index.
        let starts = zero.broadcast_to(Shape::new([&size + &Dim::Const(1)]));
        let ones = zero.scalar(1.0).broadcast_to(Shape::new([count.clone()]));
        let starts = cx.op("scatter_add", &[starts, offsets, ones], &axis).named("starts");
        let places =
            slice(starts.unary("cumsum", &axis), &[(0, Dim::Const(0), size, 1)]).named("bag");
        let bags = match cx.flag("include_last_offset") {
            true => &count - &Dim::Const(1),
            false => count.clone(),
        };
        Some(Divided { places, offsets: count, bags })
    }

    /// `value` for each number of offsets and each column of `rows`.
    fn filled(&self, rows: Var<'a>, value: Var<'a>) -> Var<'a> {
        let columns = rows.shape().dims[1].clone();
        value.broadcast_to(Shape::new([&self.offsets + &Dim::Const(1), columns]))
    }

    /// The values of the bags.
    fn bags(&self, values: Var<'a>) -> Var<'a> {
        slice(values, &[(0, Dim::Const(1), &self.bags + &Dim::Const(1), 1)])
    }

    /// The sums of the rows of each bag.
    fn sums(&self, cx: &Cx<'a>, rows: Var<'a>) -> Var<'a> {
        let zeros = self.filled(rows, rows.scalar(0.0));
        self.bags(cx.op("scatter_add", &[zeros, self.places, rows], &[("axis", 0.into())]))
    }

    /// The maxima of the rows of each bag, without those that do not count. Empty bags give 0.
    fn maxima(&self, cx: &Cx<'a>, rows: Var<'a>, counted: Option<Var<'a>>) -> Var<'a> {
        let axis = [("axis", 0.into())];
        let only = |mask: Var<'a>| counted.map_or(mask, |counted| counted.binary("and", mask));
        let fixed = rows.stop_gradient();
        let lowest = rows.scalar(f64::NEG_INFINITY);
        let kept = counted.map_or(fixed, |counted| counted.select(fixed, lowest));
        let places = self.places.expand_dims(&[-1]).broadcast_to(rows.shape());
        let operands = [self.filled(rows, lowest), places, kept];
        let maxima = cx.op("scatter_max_along", &operands, &axis).named("maxima");
        let own = cx.op("take_along", &[maxima, places], &axis);
        let is_max = kept.binary("eq", own).binary("or", kept.unary("is_nan", &[]));
        // The gradient goes to the first of equal maxima: the one with the least index. The index
        // after the last one, that of a row of zeros, stands for no row.
        let none = rows.dim(0).cast(cx.index);
        let index = only(is_max).select(cx.iota(rows.shape(), 0, cx.index), none);
        let operands = [self.filled(rows, none), places, index];
        let first = self.bags(cx.op("scatter_min_along", &operands, &axis));
        let zeros = rows.scalar(0.0);
        let zeros = zeros.broadcast_to(Shape::new([Dim::Const(1), rows.shape().dims[1].clone()]));
        cx.op("take_along", &[cx.op("concat", &[rows, zeros], &axis), first], &axis)
    }
}

fn embedding_bag<'a>(cx: &Cx<'a>) -> Result<Vec<Value>> {
    check_bags(cx)?;
    let w = cx.var("w");
    let mut rows = rows(cx)?.widened();
    if let Some(factors) = cx.optional("per_sample_weights") {
        rows = rows * factors.widened().expand_dims(&[-1]);
    }
    let (counted, divided) = (counted(cx), Divided::of(cx));
    let sums = |v: Var<'a>| match &divided {
        Some(bags) => bags.sums(cx, v),
        None => v.sum(Some(&[1]), false),
    };
    let kept = || counted.map_or(rows, |counted| counted.select(rows, rows.scalar(0.0)));
    done(match (cx.text("mode"), &divided) {
        ("sum", _) => sums(kept()).cast(w.dtype()),
        ("mean", _) => {
            let count = match (counted, &divided) {
                (Some(counted), _) => sums(counted.cast(rows.dtype())),
                (None, Some(bags)) => {
                    let ones = rows.scalar(1.0);
                    let column = [bags.places.shape().dims[0].clone(), Dim::Const(1)];
                    sums(ones.broadcast_to(Shape::new(column)))
                }
                (None, None) => rows.count(Some(&[1])),
            };
            let count = count.binary("maximum", count.scalar(1.0));
            (sums(kept()) / count).cast(w.dtype())
        }
        (_, Some(bags)) => bags.maxima(cx, rows, counted).cast(w.dtype()),
        (_, None) => maxima(cx, rows, counted)?.cast(w.dtype()),
    })
}

/// The maxima of bags that are rows of `input`. Errors: there are no indices.
fn maxima<'a>(cx: &Cx<'a>, rows: Var<'a>, counted: Option<Var<'a>>) -> Result<Var<'a>> {
    let bags = cx.var("input").shape();
    cx.need(&bags.dims[1], 1, || {
        Diagnostic::of(ErrorKind::Shapes, "`EmbeddingBag` has no maximum of empty bags")
            .got(&bags)
            .expected("at least one index in each bag")
    })?;
    let lowest = rows.scalar(f64::NEG_INFINITY);
    let rows = counted.map_or(rows, |counted| counted.select(rows, lowest));
    let attrs = [("axis", 1.into()), ("keepdim", true.into())];
    let first = rows.unary("argmax", &attrs);
    let max = cx.op("take_along", &[rows, first], &[("axis", 1.into())]).squeeze(&[1]);
    Ok(counted.map_or(max, |counted| {
        counted.reduce("any", Some(&[1]), false).select(max, max.scalar(0.0))
    }))
}
