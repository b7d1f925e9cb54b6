//! Padding by elements of the input.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::shape::Shape;

use super::elementwise::done;
use super::example::Example;
use super::layers::LAYER;
use super::parameter::required;
use super::windows::pair;
use super::{Entry, Kind, Parameter, Settings, Value, gives};
use crate::lower::Cx;
use crate::setting::Setting;

const PADDING: Parameter = required("padding", Kind::Padding).doc(
    "a number for both ends of all axes after the first two; or the numbers before and after each \
     axis, the last axis first, as in PyTorch: `(left, right, top, bottom)`; or a pair (before, \
     after) for each of the last axes, in their order",
);
const INPUT: &[&str] = &["[[[1, 2, 3]]]"];

pub(super) const BLOCKS: &[Entry] = &[
    pad(
        "ReflectionPad",
        "`input`, (batch, channels, …), with each axis reflected at its first and last element, \
         as in `torch.nn.ReflectionPad2d`.",
        gives(INPUT, "[[[3. 2. 1. 2. 3. 2.]]]").with_settings("padding=[(2, 1)]"),
        |cx| padded(cx, Border::Reflected),
    ),
    pad(
        "ReplicationPad",
        "`input`, (batch, channels, …), with the first and the last element of each axis \
         repeated, as in `torch.nn.ReplicationPad2d`.",
        gives(INPUT, "[[[1. 1. 1. 2. 3. 3.]]]").with_settings("padding=[(2, 1)]"),
        |cx| padded(cx, Border::Repeated),
    ),
    pad(
        "CircularPad",
        "`input`, (batch, channels, …), with each axis continued from its other end, as in \
         `torch.nn.CircularPad2d`.",
        gives(INPUT, "[[[2. 3. 1. 2. 3. 1.]]]").with_settings("padding=[(2, 1)]"),
        |cx| padded(cx, Border::Continued),
    ),
];

const fn pad(
    name: &'static str,
    doc: &'static str,
    example: Example,
    lower: fn(&Cx) -> Result<Vec<Value>>,
) -> Entry {
    Entry { example, parameters: &[PADDING], valid, ..LAYER.row(name, doc, lower) }
}

/// The padding of the last axes: one pair for each, or a single pair for all after the first two.
fn pairs(settings: &Settings) -> Vec<[i64; 2]> {
    match (settings.get("padding"), flat(settings)) {
        (_, Some(numbers)) => numbers.rchunks(2).map(|side| [side[0], side[1]]).collect(),
        (Setting::List(items), None) => items.iter().map(pair).collect(),
        (other, None) => vec![pair(other)],
    }
}

/// The padding, if it is a list of numbers as in PyTorch, the last axis first.
fn flat(settings: &Settings) -> Option<Vec<i64>> {
    settings.get("padding").as_list()?.iter().map(Setting::as_int).collect()
}

fn valid(settings: &Settings) -> Result<()> {
    if let Some(numbers) = flat(settings)
        && numbers.len() % 2 == 1
    {
        return Diagnostic::new("`padding` must have two numbers for each axis")
            .got(settings.get("padding").text())
            .expected("(left, right), (left, right, top, bottom) or such a list for three axes")
            .err();
    }
    match pairs(settings).iter().flatten().find(|n| **n < 0) {
        Some(least) => Diagnostic::new("`padding` must be at least 0")
            .got(least)
            .expected("integers of at least 0")
            .hint("use `Slice` to remove elements")
            .err(),
        None => Ok(()),
    }
}

/// Which elements are put before and after an axis.
#[derive(Clone, Copy)]
pub(super) enum Border {
    Reflected,
    Repeated,
    Continued,
}

impl Border {
    /// The least size of an axis with this padding.
    fn least(self, [low, high]: [i64; 2]) -> i64 {
        match self {
            Border::Reflected => low.max(high) + 1,
            Border::Repeated => 1,
            Border::Continued => low.max(high),
        }
    }

    fn sides<'a>(self, axis: &Axis<'a>, [low, high]: [i64; 2]) -> [Var<'a>; 2] {
        let (number, end) = (Dim::Const, |back: i64| &axis.dim + -back);
        match self {
            Border::Reflected => [
                axis.reversed(axis.slice(number(1), low)),
                axis.reversed(axis.slice(end(high + 1), high)),
            ],
            Border::Repeated => [
                axis.repeated(axis.slice(number(0), 1), low),
                axis.repeated(axis.slice(end(1), 1), high),
            ],
            Border::Continued => [axis.slice(end(low), low), axis.slice(number(0), high)],
        }
    }
}

/// One axis of an array.
struct Axis<'a> {
    x: Var<'a>,
    at: usize,
    dim: Dim,
}

impl<'a> Axis<'a> {
    /// The `count` elements from `start` on, which the axis has.
    fn slice(&self, start: Dim, count: i64) -> Var<'a> {
        let attrs = [
            ("axes", Attr::ints([self.at as i64])),
            ("limits", Shape::new([&start + count]).into()),
            ("starts", Shape::new([start]).into()),
        ];
        let slice = self.x.unary("slice", &attrs);
        let mut shape = slice.shape();
        shape.dims[self.at] = Dim::Const(count);
        slice.reshape(shape)
    }

    fn repeated(&self, x: Var<'a>, count: i64) -> Var<'a> {
        let mut shape = x.shape();
        shape.dims[self.at] = Dim::Const(count);
        x.broadcast_to(shape)
    }

    fn reversed(&self, x: Var<'a>) -> Var<'a> {
        x.unary("reverse", &[("axes", Attr::ints([self.at as i64]))])
    }
}

fn padded(cx: &Cx, border: Border) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let mut pairs = pairs(cx.settings);
    let rank = x.shape().need_rank()?;
    if cx.settings.get("padding").as_list().is_none() {
        pairs = vec![pairs[0]; rank.saturating_sub(2)];
    }
    if rank < pairs.len() || pairs.is_empty() {
        return Diagnostic::of(ErrorKind::Shapes, "`input` has too few axes to pad")
            .got(x.shape())
            .expected("(batch, channels, …)")
            .err();
    }
    done(border.extend(cx, x, &pairs)?)
}

impl Border {
    /// The border of this name, or `None` for zeros.
    pub(super) fn named(name: &str) -> Option<Border> {
        match name {
            "reflect" => Some(Border::Reflected),
            "replicate" => Some(Border::Repeated),
            "circular" => Some(Border::Continued),
            _ => None,
        }
    }

    /// Pads each of the last axes by a pair. Errors, at compile time or at run time: an axis with
    /// fewer elements than its padding needs.
    pub(super) fn extend<'a>(
        self,
        cx: &Cx<'a>,
        mut x: Var<'a>,
        pairs: &[[i64; 2]],
    ) -> Result<Var<'a>> {
        let shape = x.shape();
        let rank = shape.need_rank()?;
        for (at, &pair) in (rank - pairs.len()..rank).zip(pairs) {
            if pair == [0, 0] {
                continue;
            }
            let least = self.least(pair);
            let dim = shape.dims[at].clone();
            cx.need(&dim, least, || {
                Diagnostic::of(ErrorKind::Shapes, format!("`padding` is too large for axis {at}"))
                    .got(format!("{} and {} elements, for an axis of {dim}", pair[0], pair[1]))
                    .expected(format!("an axis of at least {least}"))
            })?;
            let axis = Axis { x, at, dim };
            let [before, after] = self.sides(&axis, pair);
            let parts: Vec<Var> = [(before, pair[0]), (x, 1), (after, pair[1])]
                .into_iter()
                .filter_map(|(part, count)| (count > 0).then_some(part))
                .collect();
            x = cx.op("concat", &parts, &[("axis", (at as i64).into())]);
        }
        Ok(x)
    }
}
