//! Embeddings of samples in few dimensions that keep distances or neighbours.

use mithril_ir::algebra::Var;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::classical::{square_root, squares};
use super::elementwise::done;
use super::parameter::{Range, required, with};
use super::reduce::above_zero;
use super::{
    BASE, Default, Entry, Group, Input, Kind, Output, Parameter, Settings, Value, data, gives, out,
    param, written,
};
use crate::init::Init;
use crate::lower::Cx;

const DISTANCES: Input = data("distances", Class::Float).doc("of the samples, (n, n)");
const PREDICTED: Input = data("pred_distances", Class::Float).doc("of their embeddings, (n, n)");
const JOINT: Input =
    data("p_joint", Class::Float).doc("the probabilities of pairs, (n, n), which sum to 1");
const CALCULATE: Parameter = with("calculate_p_joint", Kind::Bool, Default::Bool(true))
    .doc("compute the probabilities of pairs from distances; otherwise they are `p_joint`");
const PERPLEXITY: Parameter =
    with("perplexity", Kind::Float(Range::Positive), Default::Float(30.0))
        .doc("the effective number of neighbours of a sample");
const DIMENSION: Parameter =
    required("prediction_dim", Kind::Count).doc("the number of dims of an embedding");
const SOURCE: Parameter =
    with("input_type", Kind::OneOf(&["distances", "points"]), Default::Str("distances"))
        .doc("whether `distances` is given, or samples as `input`");
const POINTS: Input =
    data("input", Class::Float).when(takes_points).doc("the samples, (n, features)");
const COORDS: Input = param("coords", Init::Normal, |cx| {
    let name = ["input", "distances", "p_joint"].into_iter().find(|n| cx.optional(n).is_some());
    let shape = cx.var(name.unwrap_or("distances")).shape();
    let samples = shape.need_trailing(2)?[0].clone();
    Ok(Shape::new([samples, Dim::Const(cx.int("prediction_dim"))]))
})
.doc("(n, `prediction_dim`)");
const OUTPUTS: &[Output] = &[out("output"), out("predicted_coords")];

const MANIFOLD: Entry = Entry { group: Group::Layer, same_dtype: true, ..BASE };

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        formula: "sqrt(sum((distances - pred_distances) ** 2) / sum(distances**2))",
        example: gives(&["[[0, 3], [3, 0]]", "[[0, 2], [2, 0]]"], "0.33333334"),
        inputs: &[DISTANCES, PREDICTED],
        ..MANIFOLD.row(
            "MDSCore",
            "The stress of an embedding (Kruskal 1964): the root of the sum of squared errors of \
             distances, over the sum of squared `distances`. scikit-learn's normalized stress \
             divides by the squares of the embedding's distances instead.",
            |cx| done(stress(cx.var("distances"), cx.var("pred_distances"))),
        )
    },
    Entry {
        example: gives(&["[[0, 3], [3, 0]]"], "0.33333334 [[0. 0.]\n [2. 0.]]")
            .with_settings("prediction_dim=2")
            .with_params(&["[[0, 0], [2, 0]]"]),
        parameters: &[DIMENSION, SOURCE],
        inputs: &[DISTANCES.when(|s| !takes_points(s)), POINTS, COORDS],
        outputs: OUTPUTS,
        ..MANIFOLD.row(
            "MDS",
            "Multidimensional scaling: the stress (`MDSCore`) of learned embeddings, which are \
             also the output `predicted_coords`. Minimising it trains them. They start standard \
             normal.",
            |cx| {
                let coords = cx.var("coords");
                let given = match cx.optional("input").map(Var::widened) {
                    Some(points) => square_root(squares(points, points)?),
                    None => cx.var("distances"),
                };
                let places = coords.widened();
                let predicted = square_root(squares(places, places)?);
                Ok(vec![stress(given, predicted).cast(coords.dtype()).value, coords.value])
            },
        )
    },
    Entry {
        example: written(
            "compiled = ml.compile(ml.TSNECore(perplexity=1.5), ml.NumpyBackend())\n\
             inputs = {\n\
             \x20\x20\x20\x20\"distances\": np.float32([[0, 1, 2], [1, 0, 2], [2, 2, 0]]),\n\
             \x20\x20\x20\x20\"pred_distances\": np.float32([[0, 1, 3], [1, 0, 3], [3, 3, 0]]),\n\
             }\n\
             print(f\"{compiled.evaluate({}, inputs)['output']:.4f}\")\n",
            "0.0452",
        ),
        parameters: &[PERPLEXITY, CALCULATE],
        inputs: &[DISTANCES.when(calculates), JOINT.when(|s| !calculates(s)), PREDICTED],
        ..MANIFOLD.row(
            "TSNECore",
            "The Kullback-Leibler divergence of t-SNE: of the probabilities of pairs of samples \
             from those of their embeddings, which fall with distance as Student's t (van der \
             Maaten & Hinton 2008). The former have no gradient, unless `p_joint` is given.",
            |cx| {
                let d = cx.var("pred_distances");
                divergence(cx, cx.optional("distances").map(|d| d * d), d * d)
            },
        )
    },
    Entry {
        example: gives(&["[[0, 1, 2], [1, 0, 2], [2, 2, 0]]"], "() (3, 2)")
            .with_settings("prediction_dim=2, perplexity=1.5"),
        parameters: &[DIMENSION, SOURCE, PERPLEXITY, CALCULATE],
        inputs: &[
            DISTANCES.when(|s| !takes_points(s) && calculates(s)),
            data("input", Class::Float)
                .when(|s| takes_points(s) && calculates(s))
                .doc("the samples, (n, features)"),
            JOINT.when(|s| !calculates(s)),
            COORDS,
        ],
        outputs: OUTPUTS,
        ..MANIFOLD.row(
            "TSNE",
            "t-SNE: the divergence (`TSNECore`) of learned embeddings, which are also the output \
             `predicted_coords`. Minimising it trains them. They start standard normal.",
            |cx| {
                let coords = cx.var("coords");
                let given = match cx.optional("input") {
                    Some(points) => Some(squares(points, points)?),
                    None => cx.optional("distances").map(|d| d * d),
                };
                let mut outputs = divergence(cx, given, squares(coords, coords)?)?;
                outputs.push(coords.value);
                Ok(outputs)
            },
        )
    },
];

fn takes_points(settings: &Settings) -> bool {
    settings.text("input_type") == "points"
}

fn calculates(settings: &Settings) -> bool {
    settings.flag("calculate_p_joint")
}

fn stress<'a>(distances: Var<'a>, predicted: Var<'a>) -> Var<'a> {
    let (own, other) = (distances.widened(), predicted.widened());
    let error = own - other;
    let ratio = (error * error).sum(None, false) / (own * own).sum(None, false);
    above_zero(ratio, |v| v.sqrt()).cast(distances.dtype())
}

/// The divergence of the probabilities of pairs from those of embeddings with these squared
/// distances. The former are given, or follow from squared distances.
fn divergence(cx: &Cx, given: Option<Var>, embedded: Var) -> Result<Vec<Value>> {
    let embedded = cx.builder.var(embedded.value);
    let dtype = embedded.dtype();
    let pairs = Pairs::of(cx, embedded.shape())?;
    let joint = match given {
        Some(squares) => {
            let squares = cx.builder.var(squares.value);
            pairs.check(&squares.shape())?;
            pairs.probabilities(squares.widened().stop_gradient(), cx.float("perplexity"))
        }
        None => {
            pairs.check(&cx.var("p_joint").shape())?;
            cx.var("p_joint").widened()
        }
    };
    let sum = |v: Var<'_>| v.sum(None, false).value;
    let sum = |v: Var| cx.builder.var(sum(v));
    // q = 1 / (1 + d²) over the sum of all, so that log q is a difference of logarithms.
    let squares = embedded.widened();
    let affinity = pairs.only((squares + 1.0).unary("reciprocal", &[]));
    let joint = pairs.only(joint);
    let entropy = sum(joint.binary("xlogy", joint));
    let cross = sum(joint * squares.unary("log1p", &[]));
    done((entropy + cross + sum(joint) * sum(affinity).log()).cast(dtype))
}

/// All pairs of different samples.
struct Pairs<'a> {
    /// Whether two samples differ.
    differ: Var<'a>,
}

impl<'a> Pairs<'a> {
    /// Errors: a matrix that is not square.
    fn of(cx: &Cx<'a>, shape: Shape) -> Result<Pairs<'a>> {
        let square = match &shape.dims[..] {
            [rows, columns] => cx.is_equal(rows, columns) != Some(false),
            _ => false,
        };
        if shape.need_rank()? != 2 || !square {
            return not_square(&shape);
        }
        let samples = shape.dims[0].clone();
        let row = cx.iota(Shape::new([samples.clone(), Dim::Const(1)]), 0, DType::I32);
        let column = cx.iota(Shape::new([samples]), 0, DType::I32);
        Ok(Pairs { differ: row.binary("ne", column) })
    }

    fn check(&self, shape: &Shape) -> Result<()> {
        if shape.need_rank()? != 2 { not_square(shape) } else { Ok(()) }
    }

    /// The values of pairs, and 0 on the diagonal.
    fn only(&self, values: Var<'a>) -> Var<'a> {
        self.differ.select(values, values.scalar(0.0))
    }

    /// The joint probabilities of pairs with these squared distances. The width of each sample's
    /// normal distribution gives its neighbours the entropy of `perplexity` equal ones.
    fn probabilities(&self, squares: Var<'a>, perplexity: f64) -> Var<'a> {
        let row = |v: Var<'a>, by: &str| v.reduce(by, Some(&[1]), true);
        let far = squares.scalar(f64::INFINITY);
        let nearest = row(self.differ.select(squares, far), "min");
        // A common factor of the probabilities of a row: none of them overflows.
        let squares = self.only(squares - nearest);
        let mean = row(squares, "mean");
        let none = mean.binary("eq", mean.scalar(0.0));
        let squares = squares / none.select(mean.scalar(1.0), mean);
        let search = Search { pairs: self, squares, start: mean, entropy: perplexity.ln() };
        let mut precision = search.bisected();
        for _ in 0..NEWTON {
            precision = search.improved(precision);
        }
        let conditional = search.at(precision).probabilities;
        let both = conditional + conditional.transpose(&[1, 0]);
        both / both.sum(None, false)
    }
}

fn not_square<T>(shape: &Shape) -> Result<T> {
    Diagnostic::of(ErrorKind::Shapes, "distances are not those of all pairs of samples")
        .got(shape)
        .expected("a matrix (n, n)")
        .err()
}

/// The halvings leave 2^-26 of the range of logarithms, beyond which Newton's method converges at
/// once: the entropy is smooth and monotonic.
const HALVINGS: usize = 26;
const NEWTON: usize = 2;
/// The logarithm of the smallest and the largest precision, in units of the mean distance.
const RANGE: (f64, f64) = (-12.0, 36.0);

/// The search for the precision of each row: the logarithm of the factor of its squared distances.
struct Search<'a, 'p> {
    pairs: &'p Pairs<'a>,
    /// In units of their mean.
    squares: Var<'a>,
    /// Of the shape of a precision.
    start: Var<'a>,
    entropy: f64,
}

/// The distribution of a row at a precision, and its entropy.
struct Distribution<'a> {
    probabilities: Var<'a>,
    /// The distances times the precision, and their mean.
    energies: Var<'a>,
    mean: Var<'a>,
    entropy: Var<'a>,
}

impl<'a> Search<'a, '_> {
    fn at(&self, precision: Var<'a>) -> Distribution<'a> {
        let energies = self.squares * precision.exp();
        let weights = self.pairs.only((-energies).exp());
        let sum = |v: Var<'a>| v.sum(Some(&[1]), true);
        let total = sum(weights);
        // A single sample has no pairs.
        let total = total.binary("eq", total.scalar(0.0)).select(total.scalar(1.0), total);
        let mean = sum(energies * weights) / total;
        Distribution { probabilities: weights / total, energies, mean, entropy: total.log() + mean }
    }

    fn bisected(&self) -> Var<'a> {
        let start = |x: f64| self.start.full_like(x);
        let (mut low, mut high) = (start(RANGE.0), start(RANGE.1));
        for _ in 0..HALVINGS {
            let middle = (low + high) * 0.5;
            let entropy = self.at(middle).entropy;
            // A larger precision has less entropy.
            let wide = entropy.binary("gt", entropy.scalar(self.entropy));
            (low, high) = (wide.select(middle, low), wide.select(high, middle));
        }
        (low + high) * 0.5
    }

    /// A step of Newton's method: the slope of the entropy is minus the variance of the energies.
    fn improved(&self, precision: Var<'a>) -> Var<'a> {
        let now = self.at(precision);
        let deviation = now.energies - now.mean;
        let variance = (now.probabilities * deviation * deviation).sum(Some(&[1]), true);
        let none = variance.binary("eq", variance.scalar(0.0));
        let variance = none.select(variance.scalar(f64::INFINITY), variance);
        let step = (now.entropy - self.entropy) / variance;
        // There is no step where distances are equal, or at the ends of the range.
        let small = step.unary("abs", &[]).binary("lt", step.scalar(1e-3));
        small.select(precision + step, precision)
    }
}
