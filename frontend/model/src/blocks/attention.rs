//! Attention.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::elementwise::done;
use super::layers::{INIT, LAYER};
use super::parameter::{Range, required, with};
use super::settings::Settings;
use super::{
    Default, Entry, Input, KEY, Kind, Meaning, Parameter, Value, data, gives, param, positions,
};
use crate::init::Init;
use crate::lower::Cx;

pub(super) const MASK: Input = Input {
    mask: true,
    ..data("mask", Class::Any)
        .own_dtype()
        .optional()
        .doc("bool: the keys that each query attends to; float: added to the scores")
};

/// Windows of this size and larger have no end on that side: sequences are shorter.
const UNLIMITED: i64 = 1 << 30;
const WINDOW: Parameter = with("window", Kind::Ints, Default::None).doc(
    "how many keys before and after its own position a query attends to: one number, or two where \
     they differ; -1 means all",
);
const SOFTCAP: Parameter =
    with("softcap", Kind::Float(Range::Positive), Default::None).doc("the bound of the scores");
const DROPOUT: Parameter = with("dropout", Kind::Float(Range::Unit), Default::Float(0.0))
    .doc("the rate of dropout of the weights of keys, in training");
/// The key of the dropout.
const DROPOUT_KEY: Input = Input { name: "dropout_key", ..KEY }
    .in_training()
    .when(|s| s.float("dropout").is_some_and(|p| p > 0.0));

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "ScaledDotProduct",
        doc: "`softmax(query keyᵀ scale + mask) value` over the last two axes (Vaswani et al. \
              2017, eq. 1); `scale` defaults to 1/sqrt(last dim of the query). The `mask` \
              broadcasts to the scores, (…, queries, keys): a bool mask is True where a query \
              attends to a key, a float mask is added to the scores. A query whose mask hides \
              every key gives 0. `is_causal` hides later keys, and `window` those that are \
              farther away (Beltagy et al. 2020). Positions count from the first query and the \
              first key, also where their numbers differ, as in PyTorch. `softcap` bounds scores, \
              before they are masked, to `softcap tanh(scores / softcap)` (Gemma Team 2024). With \
              `sinks`, the weights of a query add up to less than 1 (Xiao et al. 2024). With \
              `grouped`, several heads of the query share each head of key and value (axis -3).",
        formula: "softmax(query @ key.swapaxes(-1, -2) / sqrt(key.shape[-1]), -1) @ value",
        example: gives(&["[[1, 0]]", "[[9, 0], [0, 9]]", "[[1, 2], [3, 4]]"], "[[1.0034 2.0034]]"),
        parameters: &[
            with("is_causal", Kind::Bool, Default::Bool(false))
                .doc("each position attends only to itself and earlier ones"),
            with("scale", Kind::Float(Range::Finite), Default::None)
                .doc("the factor of the scores; defaults to 1/sqrt(last dim of `query`)"),
            with("grouped", Kind::Bool, Default::Bool(false))
                .doc("several heads of `query` share each head of `key` and `value`"),
            WINDOW,
            SOFTCAP,
            DROPOUT,
        ],
        inputs: &[
            data("query", Class::Float),
            data("key", Class::Float),
            data("value", Class::Float),
            MASK,
            data("sinks", Class::Float)
                .optional()
                .doc("one logit per head, (…, heads): a further score, whose value is 0"),
            DROPOUT_KEY,
        ],
        valid: valid_window,
        meaning: Meaning::Lower(|cx| {
            let operands = [cx.var("query"), cx.var("key"), cx.var("value")];
            let (mask, scale) = (cx.optional("mask"), cx.settings.float("scale"));
            let sinks = cx.optional("sinks");
            done(attend(cx, operands, [mask, sinks], cx.flag("grouped"), scale)?)
        }),
        ..LAYER
    },
    Entry {
        name: "MultiHeadAttention",
        doc: "Attention in `heads` subspaces of (…, length, width) (Vaswani et al. 2017, sec. \
              3.2.2): of `input` to itself, or to `context` if that is connected. With \
              `kv_heads`, several heads share keys and values (Ainslie et al. 2023). Initial values \
              are those of `torch.nn.MultiheadAttention`: `w_query`, `w_key` and `w_value` start \
              Xavier uniform (as one matrix if they read the same width), `w_output` uniform \
              within `1 / sqrt(width)`, biases at 0; `init` applies to each of these matrices \
              separately. The `mask` has the axes (batch, heads, queries, keys), (batch, queries, \
              keys), (queries, keys), (batch, keys) or (keys), where sizes of 1 broadcast: a bool \
              mask is True where a query attends to a key, a float mask is added to the scores. A \
              query whose mask hides every key gives 0. `window`, `softcap` and `sinks` are those of \
              `ScaledDotProduct`. A mask of two axes that could be either \
              (queries, keys) or (batch, keys) is an error.",
        example: gives(&["np.ones((2, 5, 8), \"float32\")"], "(2, 5, 8)").with_settings("heads=4"),
        parameters: &[
            required("heads", Kind::Count).doc("the number of heads, a divisor of the width"),
            with("kv_heads", Kind::Count, Default::None)
                .doc("the number of heads of keys and values; defaults to `heads`"),
            with("is_causal", Kind::Bool, Default::Bool(false))
                .doc("each position attends only to itself and earlier ones"),
            with("use_bias", Kind::Bool, Default::Bool(true))
                .doc("learn a bias for each projection"),
            INIT,
            WINDOW,
            SOFTCAP,
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
            MASK,
            param("w_query", Init::Projection, |cx| projection(cx, "input", false))
                .fan_of("w_key")
                .takes_init()
                .doc("(width, width)"),
            param("w_key", Init::Projection, |cx| projection(cx, "context", true))
                .fan_of("w_query")
                .takes_init()
                .doc("(width of the context, kv_heads * width / heads)"),
            param("w_value", Init::Projection, |cx| projection(cx, "context", true))
                .fan_of("w_query")
                .takes_init()
                .doc("(width of the context, kv_heads * width / heads)"),
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
            param("sinks", Init::Zeros, |cx| Ok(Shape::new([Dim::Const(cx.int("heads"))])))
                .when(|s| s.flag("use_sinks"))
                .doc("(heads)"),
            DROPOUT_KEY,
        ],
        valid: valid_window,
        meaning: Meaning::Lower(multi_head),
        ..LAYER
    },
];

/// The numbers of keys before and after its own position that a query attends to; `None` means all.
///
/// Errors: more than two numbers, or one below -1.
fn window(settings: &Settings) -> Result<[Option<i64>; 2]> {
    let [left, right] = match settings.ints("window").as_deref() {
        None => return Ok([None; 2]),
        Some([both]) => [*both; 2],
        Some([left, right]) => [*left, *right],
        Some(many) => {
            return Diagnostic::of(ErrorKind::Setting, "`window` has too many or too few numbers")
                .got(format!("{} numbers", many.len()))
                .expected("one number, or two: of keys before and after a query's position")
                .err();
        }
    };
    if let Some(low) = [left, right].into_iter().find(|count| *count < -1) {
        return Diagnostic::of(ErrorKind::Setting, "`window` holds a negative number")
            .got(low)
            .expected("numbers of at least 0, or -1 for all keys on that side")
            .err();
    }
    Ok([left, right].map(|count| Some(count).filter(|count| (0..UNLIMITED).contains(count))))
}

fn valid_window(settings: &Settings) -> Result<()> {
    window(settings).map(drop)
}

fn attend<'a>(
    cx: &Cx<'a>,
    operands: [Var<'a>; 3],
    [mask, sinks]: [Option<Var<'a>>; 2],
    grouped: bool,
    scale: Option<f64>,
) -> Result<Var<'a>> {
    let [left, right] = window(cx.settings)?;
    let mut operands = operands.to_vec();
    // A sink follows a mask, which hides nothing here.
    let all_seen = || cx.builder.var(cx.builder.constant(Tensor::scalar(DType::Bool, 1.0)));
    let mask = mask.or_else(|| sinks.map(|_| all_seen()));
    // PyTorch's own attention takes masks with two or more axes.
    operands.extend(mask.map(|mask| match mask.shape().rank() {
        Some(0) => mask.expand_dims(&[-2, -1]),
        Some(1) => mask.expand_dims(&[-2]),
        _ => mask,
    }));
    operands.extend(sinks);
    let attrs: [(&str, Attr); 6] = [
        ("scale", scale.into()),
        ("causal", cx.flag("is_causal").into()),
        ("left", left.into()),
        ("right", right.into()),
        ("softcap", cx.settings.float("softcap").into()),
        ("grouped", grouped.into()),
    ];
    match cx.optional("dropout_key").filter(|_| cx.training() && cx.float("dropout") > 0.0) {
        Some(key) => dropped(cx, operands, &attrs, grouped, key),
        None => Ok(cx.op("attention", &operands, &attrs)),
    }
}

/// Attention with dropout of the weights of keys.
fn dropped<'a>(
    cx: &Cx<'a>,
    mut operands: Vec<Var<'a>>,
    attrs: &[(&str, Attr)],
    grouped: bool,
    key: Var<'a>,
) -> Result<Var<'a>> {
    let (value, rate) = (operands.remove(2), cx.float("dropout"));
    let shape = value.shape();
    let weights = cx.op("attention_weights", &operands, attrs);
    cx.builder.check()?;
    let whole = weights.shape();
    let drawn = [("shape", whole.clone().into()), ("dtype", DType::F32.into())];
    let draw = key.unary("uniform", &drawn);
    let zero = weights.scalar(0.0);
    let larger = if rate < 1.0 { weights / (1.0 - rate) } else { zero };
    let weights = draw.binary("ge", draw.scalar(rate)).select(larger, zero);
    if !grouped {
        return Ok(weights.matmul(value));
    }
    // Each head of the values with its own heads of the query.
    let rank = whole.need_rank()?;
    let (front, own) = whole.dims.split_at(rank - 3);
    let groups = shape.need_trailing(3)?[0].clone();
    let times = own[0].exact_div(&groups).unwrap_or_else(|| own[0].floor_div(&groups));
    let split = [groups, times].into_iter().chain(own[1..].iter().cloned());
    let split = Shape::new(front.iter().cloned().chain(split).collect::<Vec<_>>());
    let product = weights.reshape(split).matmul(value.expand_dims(&[-3]));
    let width = shape.need_trailing(1)?[0].clone();
    let whole = whole.dims[..rank - 1].iter().cloned().chain([width]);
    Ok(product.reshape(Shape::new(whole.collect::<Vec<_>>())))
}

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
    // Reshapes (…, length, width) to (…, heads, length, head width).
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
    let mask = biased_mask(cx, [query, key], mask_of_heads(cx)?)?;
    let others = [mask, cx.optional("sinks")];
    let seen = attend(cx, [query, key, value], others, groups != count, None)?.named("heads");
    let attrs = [("first", Attr::Int(-3)), ("second", Attr::Int(-2))];
    let joined = seen.unary("swap_axes", &attrs).reshape(input.shape()).named("joined");
    done(project(joined, "output"))
}

/// The mask, with axes inserted so that it broadcasts to (batch, heads, queries, keys).
///
/// Errors: a mask with ambiguous axes, or with too many.
fn mask_of_heads<'a>(cx: &Cx<'a>) -> Result<Option<Var<'a>>> {
    let Some(mask) = cx.optional("mask") else { return Ok(None) };
    let (input, own) = (cx.var("input").shape(), mask.shape());
    let (rank, axes) = (input.need_rank()?, own.need_rank()?);
    // The number of axes before queries and keys.
    let batch = rank.saturating_sub(2);
    let has_batch = batch > 0 && axes == batch + 1;
    let is_of_keys = match axes {
        2 if has_batch => is_of_keys(cx, [&own.dims[0], &input.dims[0], &input.dims[1]])?,
        _ => has_batch,
    };
    Ok(Some(match axes {
        _ if is_of_keys => mask.expand_dims(&[-3, -2]),
        _ if axes == batch + 2 => mask.expand_dims(&[-3]),
        _ if axes <= 2 || axes == batch + 3 => mask,
        _ => return misread(&own, &input).expected(AXES).err(),
    }))
}

/// The mask with ALiBi's bias, if the block has one.
fn biased_mask<'a>(
    cx: &Cx<'a>,
    sides: [Var<'a>; 2],
    mask: Option<Var<'a>>,
) -> Result<Option<Var<'a>>> {
    if !cx.flag("alibi") {
        return Ok(mask);
    }
    let lengths = positions::lengths(sides)?;
    let bias = positions::alibi(cx, lengths, cx.int("heads"), sides[0].dtype());
    Ok(Some(match mask {
        None => bias,
        Some(mask) if mask.dtype() == DType::Bool => {
            mask.select(bias, bias.scalar(f64::NEG_INFINITY))
        }
        Some(mask) => mask + bias,
    }))
}

const AXES: &str = "(batch, heads, queries, keys), (batch, queries, keys), (queries, keys), (batch, keys) or (keys)";

fn misread(mask: &Shape, input: &Shape) -> Diagnostic {
    Diagnostic::of(ErrorKind::Shapes, "the axes of `mask`")
        .got(format!("{mask}, where `input` is {input}"))
}

/// Whether the axes of a mask are (batch, keys) rather than (queries, keys), decided by comparing
/// its first dim with the dims of batch and queries.
///
/// Errors: it may be either; it is neither.
fn is_of_keys(cx: &Cx, [first, batch, queries]: [&Dim; 3]) -> Result<bool> {
    // A first dim of 1 broadcasts the same way in both cases.
    if first.as_const() == Some(1) {
        return Ok(false);
    }
    let by = |same: &dyn Fn(&Dim, &Dim) -> Option<bool>| match [batch, queries]
        .map(|dim| same(first, dim))
    {
        [Some(true), Some(false) | None] | [None, Some(false)] => Some(true),
        [Some(false) | None, Some(true)] | [Some(false), None] => Some(false),
        [Some(true), Some(true)] | [Some(false), Some(false)] | [None, None] => None,
    };
    let found = by(&|one, other| cx.is_equal(one, other));
    if let Some(found) = found.or_else(|| by(&|one, other| cx.is_same_size(one, other))) {
        return Ok(found);
    }
    let (mask, input) = (cx.var("mask").shape(), cx.var("input").shape());
    let neither = [batch, queries].iter().all(|dim| cx.is_equal(first, dim) == Some(false));
    if neither {
        return misread(&mask, &input)
            .expected(format!("({queries}, keys) or ({batch}, keys)"))
            .err();
    }
    Diagnostic::new("a mask of two axes may be (queries, keys) or (batch, keys) here")
        .got(format!("`mask` of {mask}, where `input` is {input}"))
        .expected("three axes, or dims that decide it")
        .hint(
            "`mask[None]` is (1, queries, keys), `mask[:, None]` is (batch, 1, keys); in `shapes=` \
             the names of dims tell: {\"input\": [\"batch\", \"length\", None], \"mask\": \
             [\"batch\", \"length\"]}",
        )
        .err()
}
