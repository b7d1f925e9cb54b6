//! Attention with several heads.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::attention::{DROPOUT, DROPOUT_KEY, Form, MASK, SOFTCAP, WINDOW, attend, valid_window};
use super::attention_masks::{alibi, band, both, mask_of_heads, mask_of_keys, with_keys_seen};
use super::layers::{INIT, LAYER};
use super::parameter::{required, with};
use super::{Default, Entry, Input, Kind, Meaning, Value, data, gives, out, param};
use crate::init::Init;
use crate::lower::Cx;

pub(super) const BLOCKS: &[Entry] = &[Entry {
    name: "MultiHeadAttention",
    doc: "Attention in `heads` subspaces of (…, length, width) (Vaswani et al. 2017, sec. \
          3.2.2): of `input` to itself, or to `context` if that is connected, whose values \
          come from `value` if that is. With `kv_heads`, several heads share keys and values \
          (Ainslie et al. 2023). Initial values are those of `torch.nn.MultiheadAttention`: \
          `w_query`, `w_key` and `w_value` start Xavier uniform (as one matrix if they read \
          the width of `input`), `w_output` uniform within `1 / sqrt(width)`, biases at 0; \
          `init` applies to each of these matrices separately. The `mask` has the axes (batch, \
          heads, queries, keys), (batch, queries, keys), (queries, keys), (batch, keys) or \
          (keys), where sizes of 1 broadcast: a bool mask is True where a query attends to a \
          key, a float mask is added to the scores. A query whose mask hides every key gives \
          0. The `key_mask`, (batch, keys), hides keys from all queries, in addition to the \
          `mask`. `add_bias_kv` and `add_zero_attn` add keys after the others, which every \
          query attends to. `return_weights` gives the further output `weights`, (batch, \
          heads, queries, keys), in training those after `dropout`. `window`, `softcap` and \
          `sinks` are those of `ScaledDotProduct`. A mask of two axes that could be either \
          (queries, keys) or (batch, keys) is an error.",
    example: gives(&["np.ones((2, 5, 8), \"float32\")"], "(2, 5, 8) (2, 4, 5, 5)")
        .with_settings("heads=4, return_weights=True"),
    parameters: &[
        required("heads", Kind::Count).doc("the number of heads, a divisor of the width"),
        with("kv_heads", Kind::Count, Default::None)
            .doc("the number of heads of keys and values; defaults to `heads`"),
        with("is_causal", Kind::Bool, Default::Bool(false))
            .doc("each position attends only to itself and earlier ones"),
        with("use_bias", Kind::Bool, Default::Bool(true)).doc("learn a bias for each projection"),
        INIT,
        WINDOW,
        SOFTCAP,
        with("add_bias_kv", Kind::Bool, Default::Bool(false))
            .doc("learn one more key and its value"),
        with("add_zero_attn", Kind::Bool, Default::Bool(false))
            .doc("add a key and a value of zeros"),
        with("return_weights", Kind::Bool, Default::Bool(false))
            .doc("also return `weights`, those of the keys"),
        with("alibi", Kind::Bool, Default::Bool(false))
            .doc("add the bias of `AlibiBias` to the scores"),
        with("use_sinks", Kind::Bool, Default::Bool(false))
            .doc("learn the logit of a sink for each head, a further score whose value is 0"),
        DROPOUT,
    ],
    inputs: &[
        data("input", Class::Float),
        data("context", Class::Float)
            .optional()
            .doc("the sequence that is attended to; defaults to `input`"),
        data("value", Class::Float)
            .optional()
            .doc("the sequence that values come from, as long as `context`, which is the default"),
        MASK,
        Input { name: "key_mask", ..MASK }.doc(
            "(batch, keys); bool: the keys that queries attend to; float: added to their scores",
        ),
        param("w_query", Init::Projection, |cx| projection(cx, "input", false))
            .fan_of("w_key")
            .takes_init()
            .doc("(width, width)"),
        param("w_key", Init::Projection, |cx| projection(cx, "context", true))
            .fan_of("w_query")
            .takes_init()
            .doc("(width of the context, kv_heads * width / heads)"),
        param("w_value", Init::Projection, |cx| projection(cx, "value", true))
            .fan_of("w_query")
            .takes_init()
            .doc("(width of the value, kv_heads * width / heads)"),
        param("w_output", Init::FanIn, |cx| projection(cx, "input", false))
            .takes_init()
            .doc("(width, width)"),
        param("b_query", Init::Zeros, |cx| bias(cx, false))
            .when(|s| s.flag("use_bias"))
            .doc("(width)"),
        param("b_key", Init::Zeros, |cx| bias(cx, true))
            .when(|s| s.flag("use_bias"))
            .doc("(kv_heads * width / heads)"),
        param("b_value", Init::Zeros, |cx| bias(cx, true))
            .when(|s| s.flag("use_bias"))
            .doc("(kv_heads * width / heads)"),
        param("b_output", Init::Zeros, |cx| bias(cx, false))
            .when(|s| s.flag("use_bias"))
            .doc("(width)"),
        param("bias_key", Init::XavierNormal, added)
            .when(|s| s.flag("add_bias_kv"))
            .doc("(1, 1, kv_heads * width / heads)"),
        param("bias_value", Init::XavierNormal, added)
            .when(|s| s.flag("add_bias_kv"))
            .doc("(1, 1, kv_heads * width / heads)"),
        param("sinks", Init::Zeros, |cx| Ok(Shape::new([Dim::Const(cx.int("heads"))])))
            .when(|s| s.flag("use_sinks"))
            .doc("(heads)"),
        DROPOUT_KEY,
    ],
    outputs: &[out("output"), out("weights").when(|s| s.flag("return_weights"))],
    valid: valid_window,
    meaning: Meaning::Lower(multi_head),
    ..LAYER
}];

/// The number of key/value heads, and the width of one head.
fn heads(cx: &Cx) -> Result<(i64, i64, Dim)> {
    let heads = cx.int("heads");
    let shared = cx.settings.int("kv_heads").unwrap_or(heads);
    let width = cx.last_dim("input")?;
    let each = cx.divide(&width, heads, || {
        Diagnostic::of(ErrorKind::Shapes, "the width is not a multiple of `heads`")
            .got(format!("width {width}, heads {heads}"))
            .expected("a last dim of `input` that is a multiple of `heads`")
    })?;
    if heads % shared != 0 {
        return Diagnostic::new("`kv_heads` of `MultiHeadAttention` does not divide `heads`")
            .got(format!("{shared} and {heads}"))
            .err();
    }
    Ok((heads, shared, each))
}

/// The sequence of this name, or the one that it defaults to.
fn sequence<'a>(cx: &Cx<'a>, name: &str) -> Var<'a> {
    match cx.optional(name) {
        Some(own) => own,
        None if name == "value" => sequence(cx, "context"),
        None => cx.var("input"),
    }
}

fn width(cx: &Cx, shared: bool) -> Result<Dim> {
    let (_, groups, each) = heads(cx)?;
    match shared {
        true => Ok(&each * &Dim::Const(groups)),
        false => cx.last_dim("input"),
    }
}

fn projection(cx: &Cx, from: &str, shared: bool) -> Result<Shape> {
    let from = sequence(cx, from).shape().need_trailing(1)?[0].clone();
    Ok(Shape::new([from, width(cx, shared)?]))
}

fn bias(cx: &Cx, shared: bool) -> Result<Shape> {
    Ok(Shape::new([width(cx, shared)?]))
}

/// The shape of an added key or value, which is that of PyTorch.
fn added(cx: &Cx) -> Result<Shape> {
    Ok(Shape::new([Dim::Const(1), Dim::Const(1), width(cx, true)?]))
}

fn multi_head(cx: &Cx) -> Result<Vec<Value>> {
    let (count, groups, each) = heads(cx)?;
    let input = cx.var("input");
    let project = |x: Var<'_>, name: &str| {
        let product = cx.builder.var(x.value).matmul(cx.var(&format!("w_{name}")));
        let bias = cx.optional(&format!("b_{name}"));
        bias.map_or(product, |b| product + b)
    };
    let split = |x: Var, heads: i64, name: &str| -> Result<Value> {
        Ok(heads_of(project(x, name), heads, &each)?.named(name).value)
    };
    let split = |from: &str, heads: i64, name: &str| {
        split(sequence(cx, from), heads, name).map(|value| cx.builder.var(value))
    };
    let query = split("input", count, "query")?;
    let (key, value) = (split("context", groups, "key")?, split("value", groups, "value")?);
    let mut mask = both(mask_of_heads(cx)?, mask_of_keys(cx)?);
    mask = both(mask, alibi(cx, [query, key])?);
    let more = i64::from(cx.flag("add_bias_kv")) + i64::from(cx.flag("add_zero_attn"));
    if more > 0 {
        mask = both(mask, band(cx, [query, key])?);
        let keys = key.shape().need_trailing(2)?[0].clone();
        mask = mask.map(|mask| with_keys_seen(cx, mask, keys, more)).transpose()?;
    }
    let [key, value] = [(key, "bias_key"), (value, "bias_value")]
        .map(|(x, bias)| if more > 0 { with_added(cx, x, bias, &each) } else { Ok(x) });
    let form = Form {
        is_grouped: groups != count,
        scale: None,
        is_masked: more > 0,
        gives_weights: cx.flag("return_weights"),
    };
    let (seen, weights) = attend(cx, [query, key?, value?], [mask, cx.optional("sinks")], &form)?;
    let attrs = [("first", Attr::Int(-3)), ("second", Attr::Int(-2))];
    let seen = seen.named("heads").unary("swap_axes", &attrs);
    let joined = seen.reshape(input.shape()).named("joined");
    let output = project(joined, "output").value;
    let weights = weights.filter(|_| form.gives_weights).map(|weights| weights.value);
    Ok([output].into_iter().chain(weights).collect())
}

/// Reshapes (…, length, width) to (…, heads, length, head width).
fn heads_of<'a>(x: Var<'a>, heads: i64, each: &Dim) -> Result<Var<'a>> {
    let mut shape = x.shape();
    shape.need_trailing(2)?;
    let at = shape.dims.len() - 1;
    shape.dims[at] = Dim::Const(heads);
    shape.dims.push(each.clone());
    let attrs = [("first", (-3).into()), ("second", (-2).into())];
    Ok(x.reshape(shape).unary("swap_axes", &attrs))
}

/// Keys or values, (…, heads, length, head width), with the learned one and zeros after them.
fn with_added<'a>(cx: &Cx<'a>, x: Var<'a>, bias: &str, each: &Dim) -> Result<Var<'a>> {
    let shape = x.shape();
    let at = shape.need_rank()? - 2;
    let mut one = shape.clone();
    one.dims[at] = Dim::Const(1);
    let mut parts = vec![x];
    if let Some(bias) = cx.optional(bias) {
        let own = Shape::new([one.dims[at - 1].clone(), Dim::Const(1), each.clone()]);
        parts.push(bias.reshape(own).broadcast_to(one.clone()));
    }
    if cx.flag("add_zero_attn") {
        parts.push(x.scalar(0.0).broadcast_to(one));
    }
    Ok(cx.op("concat", &parts, &[("axis", (-2).into())]))
}
