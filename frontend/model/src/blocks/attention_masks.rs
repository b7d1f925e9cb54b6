//! Masks of attention with several heads.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::shape::Shape;

use super::attention::window;
use super::positions;
use crate::lower::Cx;

/// The mask, with axes inserted so that it broadcasts to (batch, heads, queries, keys).
///
/// Errors: a mask with ambiguous axes, or with too many.
pub(super) fn mask_of_heads<'a>(cx: &Cx<'a>) -> Result<Option<Var<'a>>> {
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

/// The mask of keys, (…, keys), with axes inserted so that it broadcasts to (batch, heads, queries,
/// keys).
///
/// Errors: a mask with other axes.
pub(super) fn mask_of_keys<'a>(cx: &Cx<'a>) -> Result<Option<Var<'a>>> {
    let Some(mask) = cx.optional("key_mask") else { return Ok(None) };
    let (input, own) = (cx.var("input").shape(), mask.shape());
    let (batch, axes) = (input.need_rank()?.saturating_sub(2), own.need_rank()?);
    match axes {
        1 => Ok(Some(mask)),
        _ if axes == batch + 1 => Ok(Some(mask.expand_dims(&[-3, -2]))),
        _ => Diagnostic::of(ErrorKind::Shapes, "the axes of `key_mask`")
            .got(format!("{own}, where `input` is {input}"))
            .expected("(batch, keys) or (keys)")
            .hint("the `mask` may differ between queries")
            .err(),
    }
}

/// Both of two masks.
pub(super) fn both<'a>(one: Option<Var<'a>>, other: Option<Var<'a>>) -> Option<Var<'a>> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    let hides = |seen: Var<'a>, added: Var<'a>| seen.select(added, added.scalar(f64::NEG_INFINITY));
    Some(match [one, other].map(|mask| mask.dtype() == DType::Bool) {
        [true, true] => one.binary("and", other),
        [true, false] => hides(one, other),
        [false, true] => hides(other, one),
        [false, false] => one + other,
    })
}

/// The bias of `AlibiBias`, if the block has one.
pub(super) fn alibi<'a>(cx: &Cx<'a>, sides: [Var<'a>; 2]) -> Result<Option<Var<'a>>> {
    if !cx.flag("alibi") {
        return Ok(None);
    }
    let lengths = positions::lengths(sides)?;
    Ok(Some(positions::alibi(cx, lengths, cx.int("heads"), sides[0].dtype())))
}

/// What `is_causal` and `window` hide, as a mask, (queries, keys).
pub(super) fn band<'a>(cx: &Cx<'a>, sides: [Var<'a>; 2]) -> Result<Option<Var<'a>>> {
    let [left, right] = window(cx.settings)?;
    let right = if cx.flag("is_causal") { Some(right.unwrap_or(0).min(0)) } else { right };
    let [queries, keys] = positions::lengths(sides)?;
    let query = cx.iota(Shape::new([queries, Dim::Const(1)]), 0, DType::I64);
    let key = cx.iota(Shape::new([Dim::Const(1), keys]), 1, DType::I64);
    let before = left.map(|left| key.binary("ge", query - left as f64));
    Ok(both(before, right.map(|right| key.binary("le", query + right as f64))))
}

/// The mask for `more` further keys after the `keys`, which every query attends to.
pub(super) fn with_keys_seen<'a>(
    cx: &Cx<'a>,
    mask: Var<'a>,
    keys: Dim,
    more: i64,
) -> Result<Var<'a>> {
    let mask = if mask.shape().need_rank()? == 0 { mask.expand_dims(&[-1]) } else { mask };
    let mut shape = mask.shape();
    let last = shape.dims.len() - 1;
    shape.dims[last] = keys;
    let seen = mask.scalar(if mask.dtype() == DType::Bool { 1.0 } else { 0.0 });
    let attrs = [
        ("low", Attr::ints(vec![0; last + 1])),
        ("high", Attr::ints([vec![0; last], vec![more]].concat())),
    ];
    Ok(cx.op("pad", &[mask.broadcast_to(shape), seen], &attrs))
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
