//! `x[…]` with NumPy's semantics: integers, slices, new axes, an ellipsis, an integer array, and
//! indices that are data.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::Value;
use super::elementwise::done;
use crate::lower::Cx;
use crate::setting::Setting;

/// The bounds of a slice: axis, start, limit and step.
pub(super) type Bounds = (i64, Dim, Dim, i64);

/// The steps that compute an indexing expression, grouped by kind.
#[derive(Default)]
struct Plan<'a> {
    bounds: Vec<Bounds>,
    reversed: Vec<i64>,
    /// The slices that are applied after axes are reversed.
    strided: Vec<Bounds>,
    /// Axes indexed by one scalar that is data.
    taken: Vec<(i64, Var<'a>)>,
    /// Axes indexed by one constant integer.
    dropped: Vec<i64>,
    /// The axis indexed by an array.
    gathered: Option<(i64, Var<'a>)>,
    /// New axes, by their index in the result.
    inserted: Vec<i64>,
}

pub(super) fn lower(cx: &Cx) -> Result<Vec<Value>> {
    if let Some(index) = cx.optional("index") {
        return done(cx.op("take", &[cx.var("input"), index], &[("axis", 0.into())]));
    }
    let setting = cx.settings.get("index");
    let items = setting.as_list().unwrap_or(std::slice::from_ref(setting));
    let plan = plan(cx, items)?;
    let mut value = slice(cx.var("input"), &plan.bounds);
    if !plan.reversed.is_empty() {
        value = value.unary("reverse", &[("axes", plan.reversed[..].into())]);
    }
    value = slice(value, &plan.strided);
    // Each taken axis stays as an axis of size 1, so that the indices of the other axes do not
    // change.
    for (axis, index) in plan.taken {
        let attrs = [("axis", axis.into())];
        value = cx.op("take", &[value, index.expand_dims(&[0])], &attrs);
    }
    if !plan.dropped.is_empty() {
        value = value.squeeze(&plan.dropped);
    }
    if let Some((axis, indices)) = plan.gathered {
        let axis = axis - moved(axis, &plan.dropped);
        value = cx.op("take", &[value, indices], &[("axis", axis.into())]);
    }
    if !plan.inserted.is_empty() {
        value = value.expand_dims(&plan.inserted);
    }
    done(value)
}

/// The index of an axis after other axes are dropped.
fn moved(axis: i64, dropped: &[i64]) -> i64 {
    let before = dropped.iter().filter(|d| axis >= 0 && (0..axis).contains(*d)).count();
    let dropped_after = dropped.iter().filter(|d| axis < 0 && (axis..0).contains(*d)).count();
    before as i64 - dropped_after as i64
}

fn plan<'a>(cx: &Cx<'a>, items: &[Setting]) -> Result<Plan<'a>> {
    let shape = cx.var("input").shape();
    let gap = items.iter().position(|s| *s == Setting::Ellipsis);
    let (front, back) = match gap {
        Some(at) => (&items[..at], &items[at + 1..]),
        None => (items, &items[..0]),
    };
    if back.contains(&Setting::Ellipsis) {
        return Diagnostic::new("an index has at most one `...`").err();
    }
    check_arrays(items)?;
    let reads = |items: &[Setting]| items.iter().filter(|s| !s.is_none()).count();
    let (first, last) = (reads(front), reads(back));
    if first > 0 && shape.lead.is_some() {
        shape.need_rank()?;
    }
    shape.need_trailing(last)?;
    if shape.lead.is_none() && first + last > shape.dims.len() {
        return Diagnostic::of(ErrorKind::Shapes, "too many indices")
            .got(format!("{} for {shape}", first + last))
            .expected(format!("at most {}", shape.dims.len()))
            .err();
    }
    let mut plan = Plan::default();
    let mut computed = terminals(cx).into_iter();
    let mut axis = 0;
    let mut place = 0;
    for item in front {
        add(cx, &mut plan, &shape, item, &mut axis, place, &mut computed)?;
        place += axes(item);
    }
    let mut axis = -(last as i64);
    let mut place = -back.iter().map(axes).sum::<i64>();
    for item in back {
        add(cx, &mut plan, &shape, item, &mut axis, place, &mut computed)?;
        place += axes(item);
    }
    Ok(plan)
}

/// The number of result axes that an item produces.
fn axes(item: &Setting) -> i64 {
    match item {
        Setting::Int(_) | Setting::Terminal => 0,
        Setting::Tensor(array) => array.shape().len() as i64,
        _ => 1,
    }
}

/// Checks for supported combinations. Errors: more than one array; integers that are not adjacent
/// to the array, for which NumPy would move axes.
fn check_arrays(items: &[Setting]) -> Result<()> {
    let arrays = items.iter().filter(|s| matches!(s, Setting::Tensor(_))).count();
    let picks = |s: &Setting| matches!(s, Setting::Tensor(_)) || axes(s) == 0;
    let runs = items.chunk_by(|a, b| picks(a) == picks(b)).filter(|run| picks(&run[0])).count();
    match (arrays, runs) {
        (0, _) | (1, 1) => Ok(()),
        (1, _) => Diagnostic::new("an index has integers that are not next to its array")
            .expected("integers next to the array, so that the axes keep their order")
            .hint("index twice: `x[:, 0][…]`")
            .err(),
        _ => Diagnostic::new("an index has at most one array")
            .got(format!("{arrays} arrays"))
            .hint("index twice, or use `Gather` and `einsum`")
            .err(),
    }
}

/// The array of an index. Negative indices are counted from the front if the dim is known. Errors:
/// an index out of range.
fn indices<'a>(cx: &Cx<'a>, shape: &Shape, axis: i64, array: &Tensor) -> Result<Var<'a>> {
    let dim = &shape.dims[shape.dims.len() - shape.axis_from_back(axis)?];
    let mut places = array.to_i64s();
    for place in &mut places {
        check_range(cx, shape, axis, *place)?;
        if let (true, Some(n)) = (*place < 0, dim.as_const()) {
            *place += n;
        }
    }
    let array = Tensor::from_i64s(cx.index, array.shape().to_vec(), &places);
    Ok(cx.builder.var(cx.builder.constant(array)))
}

fn terminals<'a>(cx: &Cx<'a>) -> Vec<Var<'a>> {
    (0..).map_while(|i| cx.optional(&format!("index_{i}"))).collect()
}

fn add<'a>(
    cx: &Cx<'a>,
    plan: &mut Plan<'a>,
    shape: &Shape,
    item: &Setting,
    axis: &mut i64,
    place: i64,
    computed: &mut dyn Iterator<Item = Var<'a>>,
) -> Result<()> {
    let at = *axis;
    match item {
        Setting::None => {
            plan.inserted.push(place);
            return Ok(());
        }
        Setting::Int(i) => {
            check_range(cx, shape, at, *i)?;
            let limit = if *i == -1 { Dim::Unknown } else { Dim::Const(i + 1) };
            plan.bounds.push((at, Dim::Const(*i), limit, 1));
            plan.dropped.push(at);
        }
        Setting::Terminal => {
            if let Some(index) = computed.next() {
                plan.taken.push((at, index));
                plan.dropped.push(at);
            }
        }
        Setting::Tensor(array) => {
            plan.gathered = Some((at, indices(cx, shape, at, array)?));
        }
        Setting::Slice(parts) => {
            cut(cx, plan, at, parts, computed)?;
        }
        _ => {}
    }
    *axis += 1;
    Ok(())
}

/// Checks a constant index. Errors, at compile time or at run time: it is out of range.
fn check_range(cx: &Cx, shape: &Shape, axis: i64, index: i64) -> Result<()> {
    let dim = &shape.dims[shape.dims.len() - shape.axis_from_back(axis)?];
    let least = if index < 0 { -index } else { index + 1 };
    cx.need(dim, least, || {
        Diagnostic::of(ErrorKind::Shapes, "the index is out of range")
            .got(format!("index {index} of axis {axis} of {shape}"))
            .expected(match dim.as_const() {
                Some(n) if n > 0 => format!("an index from {} to {}", -n, n - 1),
                _ => "no index: the axis has no elements".to_string(),
            })
    })
}

/// Adds a slice of one axis to the plan.
fn cut<'a>(
    cx: &Cx<'a>,
    plan: &mut Plan<'a>,
    axis: i64,
    parts: &[Setting; 3],
    computed: &mut dyn Iterator<Item = Var<'a>>,
) -> Result<()> {
    let mut dims = Vec::new();
    for _ in parts.iter().filter(|part| **part == Setting::Terminal) {
        if let Some(value) = computed.next() {
            dims.push(cx.known_scalar(value, "index")?);
        }
    }
    let mut dims = dims.into_iter();
    let [start, limit] = [0, 1].map(|i| bound_of(&parts[i], &mut dims));
    let step = parts[2].as_int().unwrap_or(1);
    if step == 0 {
        return Diagnostic::new("the step of a slice is 0").expected("another integer").err();
    }
    let (from, to) = match step > 0 {
        true => (start.unwrap_or(Dim::Const(0)), limit.unwrap_or(Dim::Unknown)),
        false => backward(cx, axis, start, limit)?,
    };
    let whole = |from: &Dim, to: &Dim| *from == Dim::Const(0) && to.is_unknown();
    if step < 0 {
        plan.reversed.push(axis);
        if step < -1 {
            plan.strided.push((axis, Dim::Const(0), Dim::Unknown, -step));
        }
    }
    if !whole(&from, &to) || step > 1 {
        plan.bounds.push((axis, from, to, step.max(1)));
    }
    Ok(())
}

/// The range that a slice with a negative step covers, in ascending order: from `limit + 1` through
/// `start`.
fn backward(cx: &Cx, axis: i64, start: Option<Dim>, limit: Option<Dim>) -> Result<(Dim, Dim)> {
    let one = Dim::Const(1);
    let to = match start {
        Some(start) if start.as_const() != Some(-1) => &start + &one,
        _ => Dim::Unknown,
    };
    let from = match limit {
        // A limit of -1 is the last element: the range would begin after it, so it is empty.
        Some(limit) if limit.as_const() == Some(-1) => {
            let shape = cx.var("input").shape();
            shape.dims[shape.dims.len() - shape.axis_from_back(axis)?].clone()
        }
        Some(limit) => &limit + &one,
        None => Dim::Const(0),
    };
    Ok((from, to))
}

/// A bound of a slice; `None` if it is left out.
pub(super) fn bound_of(part: &Setting, computed: &mut dyn Iterator<Item = Dim>) -> Option<Dim> {
    match part {
        Setting::Int(v) => Some(Dim::Const(*v)),
        Setting::Terminal => computed.next(),
        _ => None,
    }
}

/// Slices several axes of `x`.
pub(super) fn slice<'a>(x: Var<'a>, bounds: &[Bounds]) -> Var<'a> {
    if bounds.is_empty() {
        return x;
    }
    let attrs = [
        ("axes", Attr::ints(bounds.iter().map(|b| b.0))),
        ("starts", Shape::new(bounds.iter().map(|b| b.1.clone())).into()),
        ("limits", Shape::new(bounds.iter().map(|b| b.2.clone())).into()),
        ("steps", Attr::ints(bounds.iter().map(|b| b.3))),
    ];
    x.unary("slice", &attrs)
}
