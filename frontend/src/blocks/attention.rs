//! Attention, and the encodings of positions that go with it.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::layers::LAYER;
use super::parameter::{Range, required, with};
use super::{Default, Entry, Input, Kind, Meaning, Value, data, param};
use crate::block::Init;
use crate::lower::Cx;

const MASK: Input = data("mask", Class::Any).apart().optional();

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "ScaledDotProduct",
        doc: "`softmax(query keyᵀ scale + mask) value` over the last two axes (Vaswani et al. 2017, \
              eq. 1); `scale` is 1/sqrt(last dim of the query) where left out. A bool `mask` says \
              which keys are seen, a float one is added; `is_causal` hides later keys. With \
              `grouped`, each head of key and value (axis -3) serves several of the query.",
        parameters: &[
            with("is_causal", Kind::Bool, Default::Bool(false)),
            with("scale", Kind::Float(Range::Finite), Default::None),
            with("grouped", Kind::Bool, Default::Bool(false)),
        ],
        inputs: &[
            data("query", Class::Float),
            data("key", Class::Float),
            data("value", Class::Float),
            MASK,
        ],
        meaning: Meaning::Lower(|cx| {
            let operands = [cx.var("query"), cx.var("key"), cx.var("value")];
            done(attend(cx, operands, cx.flag("grouped"), cx.settings.float("scale")))
        }),
        ..LAYER
    },
    Entry {
        name: "MultiHeadAttention",
        doc: "Attention in `heads` subspaces of (…, length, width) (Vaswani et al. 2017, sec. \
              3.2.2): of `input` to itself, or to `context` where that is connected. With \
              `kv_heads`, several heads share keys and values (Ainslie et al. 2023).",
        parameters: &[
            required("heads", Kind::Count),
            with("kv_heads", Kind::Count, Default::None),
            with("is_causal", Kind::Bool, Default::Bool(false)),
            with("use_bias", Kind::Bool, Default::Bool(true)),
        ],
        inputs: &[
            data("input", Class::Float),
            data("context", Class::Float).optional(),
            MASK,
            param("w_query", Init::Normal, |cx| projection(cx, "input", false)),
            param("w_key", Init::Normal, |cx| projection(cx, "context", true)),
            param("w_value", Init::Normal, |cx| projection(cx, "context", true)),
            param("w_output", Init::Normal, |cx| projection(cx, "input", false)),
            param("b_query", Init::Zeros, |cx| bias(cx, false)).when(|s| s.flag("use_bias")),
            param("b_key", Init::Zeros, |cx| bias(cx, true)).when(|s| s.flag("use_bias")),
            param("b_value", Init::Zeros, |cx| bias(cx, true)).when(|s| s.flag("use_bias")),
            param("b_output", Init::Zeros, |cx| bias(cx, false)).when(|s| s.flag("use_bias")),
        ],
        meaning: Meaning::Lower(multi_head),
        ..LAYER
    },
    Entry {
        name: "RotaryEmbedding",
        doc: "Each pair of features of (…, length, width) turned by its position times \
              `base^(-2i / width)` (Su et al. 2021, eq. 34). Pairs are the halves of the last axis, \
              as Llama has them. `positions` are 0, 1, 2, … where left out.",
        parameters: &[with("base", Kind::Float(Range::Positive), Default::Float(10000.0))],
        inputs: &[data("input", Class::Float), data("positions", Class::Int).apart().optional()],
        meaning: Meaning::Lower(rotary),
        ..LAYER
    },
    Entry {
        name: "PositionalEncoding",
        doc: "`input`, (…, length, width), plus sines and cosines of its positions (Vaswani et al. \
              2017, sec. 3.5).",
        parameters: &[with("base", Kind::Float(Range::Positive), Default::Float(10000.0))],
        meaning: Meaning::Lower(|cx| {
            let x = cx.var("input");
            let [sine, cosine] = sine_and_cosine(cx, x)?;
            let pair = [sine.expand_dims(&[-1]), cosine.expand_dims(&[-1])];
            let pairs = cx.op("concat", &pair, &[("axis", (-1).into())]);
            let shape = x.shape();
            let last = shape.need_trailing(2)?;
            done(x + pairs.reshape(Shape::new(last.iter().cloned())))
        }),
        ..LAYER
    },
];

fn attend<'a>(cx: &Cx<'a>, operands: [Var<'a>; 3], grouped: bool, scale: Option<f64>) -> Var<'a> {
    let mut operands = operands.to_vec();
    operands.extend(cx.optional("mask"));
    let attrs = [
        ("scale", scale.into()),
        ("causal", cx.flag("is_causal").into()),
        ("grouped", grouped.into()),
    ];
    cx.op("attention", &operands, &attrs)
}

/// Heads of keys and values, and the width of one head.
fn heads(cx: &Cx) -> Result<(i64, i64, Dim)> {
    let heads = cx.int("heads");
    let shared = cx.settings.int("kv_heads").unwrap_or(heads);
    let width = cx.last_dim("input")?;
    let Some(each) = width.exact_div(&Dim::Const(heads)) else {
        let mut error = Diagnostic::new(
            "Incompatible shapes during compilation: the width does not divide into heads",
        )
        .got(format!("{width} into {heads}"))
        .expected("a last dim of `input` that is a multiple of `heads`");
        if width.as_const().is_none() {
            error = error.hint("give the shape of `input`, with a number as its last dim");
        }
        return error.err();
    };
    if heads % shared != 0 {
        return Diagnostic::new("`kv_heads` of `MultiHeadAttention` does not divide `heads`")
            .got(format!("{shared} and {heads}"))
            .err();
    }
    Ok((heads, shared, each))
}

fn context_of<'a>(cx: &Cx<'a>) -> Var<'a> {
    cx.optional("context").unwrap_or_else(|| cx.var("input"))
}

fn width(cx: &Cx, shared: bool) -> Result<Dim> {
    let (_, groups, each) = heads(cx)?;
    match shared {
        true => Ok(&each * &Dim::Const(groups)),
        false => cx.last_dim("input"),
    }
}

fn projection(cx: &Cx, from: &str, shared: bool) -> Result<Shape> {
    let from = if cx.optional(from).is_some() { from } else { "input" };
    Ok(Shape::new([cx.last_dim(from)?, width(cx, shared)?]))
}

fn bias(cx: &Cx, shared: bool) -> Result<Shape> {
    Ok(Shape::new([width(cx, shared)?]))
}

fn multi_head(cx: &Cx) -> Result<Vec<Value>> {
    let (count, groups, each) = heads(cx)?;
    let (input, context) = (cx.var("input"), context_of(cx));
    let project = |x: Var<'_>, name: &str| {
        let product = cx.builder.var(x.value).matmul(cx.var(&format!("w_{name}")));
        let bias = cx.optional(&format!("b_{name}"));
        bias.map_or(product, |b| product + b)
    };
    // (…, length, width) as (…, heads, length, width of a head).
    let split = |x: Var<'_>, heads: i64| -> Result<Value> {
        let mut shape = x.shape();
        shape.need_trailing(2)?;
        let at = shape.dims.len() - 1;
        shape.dims[at] = Dim::Const(heads);
        shape.dims.push(each.clone());
        let attrs = [("first", (-3).into()), ("second", (-2).into())];
        Ok(x.reshape(shape).unary("swap_axes", &attrs).value)
    };
    let split = |x: Var, heads: i64| split(x, heads).map(|v| cx.builder.var(v));
    let query = split(project(input, "query"), count)?.named("query");
    let key = split(project(context, "key"), groups)?.named("key");
    let value = split(project(context, "value"), groups)?.named("value");
    let seen = attend(cx, [query, key, value], groups != count, None).named("heads");
    let attrs = [("first", Attr::Int(-3)), ("second", Attr::Int(-2))];
    let joined = seen.unary("swap_axes", &attrs).reshape(input.shape()).named("joined");
    done(project(joined, "output"))
}

/// Sines and cosines of positions times frequencies: (length, width / 2).
fn sine_and_cosine<'a>(cx: &Cx<'a>, x: Var<'a>) -> Result<[Var<'a>; 2]> {
    let shape = x.shape();
    let last = shape.need_trailing(2)?;
    let width = &last[1];
    let Some(half) = width.exact_div(&Dim::Const(2)) else {
        return Diagnostic::new("Incompatible shapes during compilation: the last dim is not even")
            .got(&shape)
            .expected("pairs of features")
            .err();
    };
    // Halves count to 256 or 2048, and their angles are far off before.
    let dtype = x.dtype().widened();
    let ramp = cx.iota(Shape::new([half]), 0, dtype);
    let step = match width.as_const() {
        Some(width) => ramp * (-2.0 * cx.float("base").ln() / width as f64),
        None => ramp * (-2.0 * cx.float("base").ln()) / x.dim(-1).cast(dtype),
    };
    let positions = match cx.optional("positions") {
        Some(positions) => positions.cast(dtype),
        None => cx.iota(Shape::new([last[0].clone()]), 0, dtype),
    };
    let angles = positions.expand_dims(&[-1]) * step.exp();
    let of = |function, name| angles.unary(function, &[]).cast(x.dtype()).named(name);
    Ok([of("sin", "sine"), of("cos", "cosine")])
}

fn rotary(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let [sine, cosine] = sine_and_cosine(cx, x)?;
    let shape = x.shape();
    let half = shape.need_trailing(1)?[0].floor_div(&Dim::Const(2));
    let part = |start: Dim, limit: Dim| {
        let attrs = [
            ("axes", Attr::ints([-1])),
            ("starts", Shape::new([start]).into()),
            ("limits", Shape::new([limit]).into()),
        ];
        x.unary("slice", &attrs)
    };
    let (first, second) = (part(Dim::Const(0), half.clone()), part(half, Dim::Unknown));
    let turned = [first * cosine - second * sine, second * cosine + first * sine];
    let joined = cx.op("concat", &turned, &[("axis", (-1).into())]);
    // The two halves are as wide as the whole.
    done(joined.reshape(shape))
}
