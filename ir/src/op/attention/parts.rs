//! The parts of attention that its decomposition and its gradient share: scores, masks and weights.

use crate::algebra::{Rule, Var};
use crate::attr::Attr;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::scalar::round;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The operands of attention, prepared for its decomposition and its gradient.
pub struct Parts<'a> {
    /// `query keyᵀ scale`, after `softcap`.
    products: Var<'a>,
    /// The derivative of the capped scores with respect to the scores.
    pub slope: Option<Var<'a>>,
    /// Keys and values, repeated so that each query head has its own.
    pub heads: [Var<'a>; 2],
    pub scale: Var<'a>,
    /// `None`: each query attends to every key.
    mask: Option<Var<'a>>,
    /// Whether the mask may hide all keys of a query.
    may_hide_all: bool,
    /// The logit of the sink of each query, with a last axis of size 1.
    sink: Option<Var<'a>>,
}

impl<'a> Parts<'a> {
    pub fn of(r: &Rule<'a>) -> Parts<'a> {
        let (query, key) = (r.arg(0), r.arg(1));
        // The weights do not depend on the values.
        let value = if r.op.operands[2].name == "value" { r.arg(2) } else { key };
        let heads = match r.bool("grouped") {
            true => [repeat_heads(key, query), repeat_heads(value, query)],
            false => [key, value],
        };
        let width = query.shape().dims.last().and_then(Dim::as_const);
        let (scaled, scale) = match r.float("scale").or(width.map(|w| 1.0 / (w as f64).sqrt())) {
            Some(scale) => (query * scale, query.scalar(scale)),
            None => {
                let root = query.dim(-1).cast(query.dtype()).sqrt();
                (query / root, query.scalar(1.0) / root)
            }
        };
        let mut products = scaled.matmul(heads[0].swap_last()).named("scores");
        let mut slope = None;
        if let Some(cap) = r.float("softcap") {
            let bounded = (products / cap).unary("tanh", &[]);
            slope = Some(products.scalar(1.0) - bounded * bounded);
            products = (bounded * cap).named("capped");
        }
        let named = |name: &str| {
            let at = r.op.operands.iter().position(|o| o.name == name);
            at.and_then(|i| r.optional(i))
        };
        let (given, window) = (named("mask"), window(r, products));
        let may_hide_all = given.is_some() || window_may_hide_all(r, products);
        let mask = match (given, window) {
            (Some(mask), Some(window)) if mask.dtype() == DType::Bool => {
                Some(mask.binary("and", window))
            }
            (Some(mask), Some(window)) => Some(window.select(mask, mask.scalar(f64::NEG_INFINITY))),
            (mask, window) => mask.or(window),
        };
        let sink = named("sink").map(|sink| {
            let mut rows = products.shape();
            rows.dims.pop();
            rows.dims.push(Dim::Const(1));
            sink.expand_dims(&[-2, -1]).broadcast_to(rows)
        });
        Parts { products, slope, heads, scale, mask, may_hide_all, sink }
    }

    /// The scores, with -inf for masked keys, followed by the logit of the sink.
    pub fn scores(&self) -> Var<'a> {
        let scores = match self.mask {
            Some(mask) if mask.dtype() == DType::Bool => {
                mask_scores(self.products, mask, self.minus_infinity())
            }
            Some(mask) => self.products + mask,
            None => self.products,
        };
        self.with_sink(scores)
    }

    fn with_sink(&self, scores: Var<'a>) -> Var<'a> {
        let Some(sink) = self.sink else { return scores };
        let all = [scores, sink];
        let attrs = [("axis", (-1).into())];
        crate::algebra::build(scores.builder, "concat", &all, &attrs).named("scores_and_sink")
    }

    /// The softmax of the scores. If a mask may exclude all keys of a query, also returns which
    /// queries have a key left. The scores of the other queries are not masked, so that their
    /// weights are finite (and unused): the softmax of a row of -inf is NaN, and so is its
    /// gradient, even if it is multiplied by 0. A sink is never masked.
    pub fn weights(&self) -> (Var<'a>, Option<Var<'a>>) {
        let softmax = |scores: Var<'a>| scores.unary("softmax", &[]).named("weights");
        if self.sink.is_some() {
            let weights = self.scores().unary("softmax", &[]);
            return (self.without_sink(weights).named("weights"), None);
        }
        let Some(mask) = self.mask.filter(|_| self.may_hide_all) else {
            return (softmax(self.scores()), None);
        };
        // A mask without axes is the same for every key.
        let over_keys = |fold: &str| match mask.shape().rank() == Some(0) {
            true => mask,
            false => mask.reduce(fold, Some(&[-1]), true),
        };
        if mask.dtype() == DType::Bool {
            let has_key = over_keys("any").named("has_key");
            let fill = has_key.select(self.minus_infinity(), self.products.scalar(0.0));
            return (softmax(mask_scores(self.products, mask, fill)), Some(has_key));
        }
        let has_key =
            over_keys("max").binary("ne", mask.scalar(f64::NEG_INFINITY)).named("has_key");
        (softmax(self.products + has_key.select(mask, mask.scalar(0.0))), Some(has_key))
    }

    fn without_sink(&self, weights: Var<'a>) -> Var<'a> {
        let keys = self.products.shape().dims.last().cloned().unwrap_or(Dim::Unknown);
        let attrs = [
            ("axes", Attr::ints([-1])),
            ("starts", Shape::new([Dim::Const(0)]).into()),
            ("limits", Shape::new([keys]).into()),
        ];
        weights.unary("slice", &attrs)
    }

    fn minus_infinity(&self) -> Var<'a> {
        self.products.scalar(f64::NEG_INFINITY)
    }
}

/// Sets the rows of queries without any key to 0.
pub fn zero_fully_masked<'a>(rows: Var<'a>, has_key: Option<Var<'a>>) -> Var<'a> {
    has_key.map_or(rows, |has_key| has_key.select(rows, rows.scalar(0.0)))
}

/// The row maximum of the scores, or the lowest finite value if all are -inf, so that subtracting
/// it from the scores never gives NaN.
pub fn row_max<'a>(scores: Var<'a>, keepdim: bool) -> Var<'a> {
    let lowest = scores.scalar(-round::max_finite(scores.dtype()));
    scores.reduce("max", Some(&[-1]), keepdim).binary("maximum", lowest)
}

fn mask_scores<'a>(scores: Var<'a>, allowed: Var<'a>, fill: Var<'a>) -> Var<'a> {
    allowed.select(scores, fill).named("masked")
}

/// Windows of this size and larger have no end on that side: indices of keys are smaller.
const UNLIMITED: i64 = 1 << 30;

/// The number of keys before and after a query's own position that it attends to; `None` means all
/// of them.
fn sides(r: &Rule) -> [Option<i64>; 2] {
    let side = |name: &str| match r.attr(name) {
        Attr::Int(count) => Some(*count).filter(|&count| count < UNLIMITED),
        _ => None,
    };
    let right = side("right");
    let right = if r.bool("causal") { Some(right.map_or(0, |right| right.min(0))) } else { right };
    [side("left"), right]
}

/// The keys that `causal`, `left` and `right` let each query attend to: a band of a matrix.
fn window<'a>(r: &Rule<'a>, scores: Var<'a>) -> Option<Var<'a>> {
    let [left, right] = sides(r);
    left.or(right)?;
    let shape = scores.shape();
    let last = shape.need_trailing(2).ok()?;
    let allowed = r.build("constant", &[], &[("value", Tensor::scalar(DType::Bool, 1.0).into())]);
    let mut allowed = allowed.broadcast_to(Shape::new(last.iter().cloned()));
    if let Some(right) = right {
        allowed = allowed.unary("tril", &[("diagonal", right.into())]);
    }
    if let Some(left) = left {
        allowed = allowed.unary("triu", &[("diagonal", (-left).into())]);
    }
    let name = if left.is_none() && right == Some(0) { "causal" } else { "window" };
    Some(allowed.named(name))
}

/// Whether the window may hide all keys of a query. Without a limit to the left, every query
/// attends at least to the first key; with as many keys as queries, at least to its own position.
fn window_may_hide_all(r: &Rule, scores: Var) -> bool {
    let shape = scores.shape();
    let same = shape.need_trailing(2).is_ok_and(|last| last[0] == last[1]);
    sides(r)[0].is_some() && !same
}

/// Repeats keys or values so that each head of `query` has its own.
fn repeat_heads<'a>(v: Var<'a>, query: Var<'a>) -> Var<'a> {
    let (shape, heads) = (v.shape(), query.shape());
    let (Ok(own), Ok(all)) = (shape.need_trailing(3), heads.need_trailing(3)) else {
        return v;
    };
    let times = all[0].exact_div(&own[0]).unwrap_or_else(|| all[0].floor_div(&own[0]));
    let front = &shape.dims[..shape.dims.len() - 3];
    let dims = |middle: Vec<Dim>| Shape {
        lead: shape.lead.clone(),
        dims: front.iter().cloned().chain(middle).collect(),
    };
    let each = dims(vec![own[0].clone(), times, own[1].clone(), own[2].clone()]);
    let flat = dims(vec![all[0].clone(), own[1].clone(), own[2].clone()]);
    v.expand_dims(&[-3]).broadcast_to(each).reshape(flat)
}
