//! Products of features: of a known number of them, whose indices are constants, and of an open one.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::shape::Shape;
use mithril_ir::tensor::Tensor;

use super::Value;
use super::elementwise::done;
use crate::lower::Cx;

pub(super) fn polynomial_features(cx: &Cx) -> Result<Vec<Value>> {
    let x = cx.var("input");
    let features = cx.last_dim("input")?;
    let Some(count) = features.as_const() else { return open_features(cx, &features) };
    let take = |v: Var<'_>, places: &[i64]| {
        let places = Tensor::from_i64s(cx.index, vec![places.len()], places);
        let places = cx.builder.var(cx.builder.constant(places));
        cx.op("take", &[cx.builder.var(v.value), places], &[("axis", (-1).into())]).value
    };
    let take = |v: Var, places: &[i64]| cx.builder.var(take(v, places));
    let mut parts = vec![];
    if cx.flag("include_bias") && count > 0 {
        parts.push(take(x, &[0]).full_like(1.0));
    }
    parts.push(x);
    // Where the products that begin with each feature start, among those of the last degree.
    let (mut last, mut starts): (Var, Vec<i64>) = (x, (0..count).collect());
    let mut length = count;
    for _ in 1..cx.int("degree") {
        let (mut firsts, mut rests, mut next) = (vec![], vec![], vec![]);
        for feature in 0..count {
            next.push(firsts.len() as i64);
            for rest in starts[feature as usize]..length {
                firsts.push(feature);
                rests.push(rest);
            }
            if firsts.len() > MOST_FEATURES {
                return Diagnostic::of(ErrorKind::Setting, "`PolynomialFeatures` has too many")
                    .got(format!("{count} features of degree {}", cx.int("degree")))
                    .expected(format!("at most {MOST_FEATURES} products of one degree"))
                    .err();
            }
        }
        length = firsts.len() as i64;
        last = take(x, &firsts) * take(last, &rests);
        starts = next;
        parts.push(last);
    }
    done(match &parts[..] {
        [only] => *only,
        _ => cx.op("concat", &parts, &[("axis", (-1).into())]),
    })
}

/// The largest degree of the products of an open number of features.
const MOST_OPEN: i64 = 12;
/// Of one degree: their indices are constants of the program.
const MOST_FEATURES: usize = 1 << 20;

/// The products of an open number of features. Those of one degree that begin with feature i follow
/// those that begin with earlier ones, and multiply it with the products of one degree less that
/// begin with feature i or later.
fn open_features(cx: &Cx, features: &Dim) -> Result<Vec<Value>> {
    let x = cx.var("input");
    if cx.int("degree") > MOST_OPEN {
        return Diagnostic::of(ErrorKind::Shapes, "`PolynomialFeatures` needs a known last dim")
            .got(x.shape())
            .expected(format!("the number of features, or a degree of at most {MOST_OPEN}"))
            .hint("give it in `shapes=`")
            .err();
    }
    let take = |v: Var<'_>, index: Var<'_>| {
        let [v, index] = [v, index].map(|own| cx.builder.var(own.value));
        cx.op("take", &[v, index], &[("axis", (-1).into())]).value
    };
    let mut parts = vec![];
    if cx.flag("include_bias") {
        let attrs = [
            ("axes", Attr::ints([-1])),
            ("starts", Shape::fixed(&[0]).into()),
            ("limits", Shape::fixed(&[1]).into()),
        ];
        parts.push(x.unary("slice", &attrs).full_like(1.0));
    }
    parts.push(x);
    let mut last = x;
    for degree in 2..=cx.int("degree") {
        let count: Dim = (0..degree).map(|i| features + i).product();
        let count = count.floor_div(&Dim::Const((1..=degree).product()));
        let first = first_features(cx, features, &count, degree);
        let place = cx.iota(Shape::new([count]), 0, cx.index);
        let rest = place - start(cx, first, degree) + start(cx, first, degree - 1);
        let [own, others] = [take(x, first), take(last, rest)].map(|value| cx.builder.var(value));
        last = own * others;
        parts.push(last);
        cx.builder.check()?;
    }
    done(match &parts[..] {
        [only] => *only,
        _ => cx.op("concat", &parts, &[("axis", (-1).into())]),
    })
}

/// The first feature of each product of this degree.
fn first_features<'a>(cx: &Cx<'a>, features: &Dim, count: &Dim, degree: i64) -> Var<'a> {
    // The products of every feature but the first one start with a mark.
    let later = (features + -1).max(&Dim::Const(0));
    let feature = cx.iota(Shape::new([later]), 0, cx.index) + 1.0;
    let marks = feature.scalar(0.0).broadcast_to(Shape::new([count.clone()]));
    let starts = start(cx, feature, degree);
    let ones = feature.scalar(1.0).broadcast_to(starts.shape());
    let axis = [("axis", 0.into())];
    cx.op("scatter_add", &[marks, starts, ones], &axis).unary("cumsum", &axis)
}

/// The number of products of this degree that begin with an earlier feature.
fn start<'a>(cx: &Cx<'a>, feature: Var<'a>, degree: i64) -> Var<'a> {
    let features = cx.var("input").dim(-1).cast(feature.dtype());
    let all = |features: Var<'a>| {
        // Combinations with repetition. Each quotient is an integer.
        (1..degree).fold(features, |product, i| {
            let next = product * (features + i as f64);
            next.binary("floor_div", next.scalar((i + 1) as f64))
        })
    };
    all(features) - all(features - feature)
}
