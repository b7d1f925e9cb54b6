//! Losses that contain layers: over classes by frequency, over classes of a linear layer, and of a
//! distance that is given.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::dim::Dim;
use mithril_ir::graph::Role;
use mithril_ir::op::Class;
use mithril_ir::shape::Shape;

use super::cross_entropy;
use super::elementwise::done;
use super::layers::INIT;
use super::losses::LOSS;
use super::parameter::{Range, required, with};
use super::{Default, Entry, Kind, Meaning, Settings, Value, Wrapper, build, data, gives, written};
use crate::definition::{Outlet, Terminal};
use crate::init::{Init, Start};
use crate::lower::Cx;
use crate::model::{Model, Source};
use crate::setting::Setting;

pub(super) const BLOCKS: &[Entry] = &[
    Entry {
        name: "LinearCrossEntropy",
        doc: "`CrossEntropy` of the logits that a `Linear` computes from `input`, (…, features). Its \
              param is `linear.w`. With `sizes`, there are as many logits of each class as their \
              product, and `target` is (…, sizes …). `init` is that of the `Linear`.",
        example: written(
            "block = ml.LinearCrossEntropy(classes=3, ignore_index=-1)\n\
             compiled = ml.compile(block, ml.NumpyBackend())\n\
             params = compiled.randomize_params()\n\
             inputs = {\"input\": np.ones((5, 4), \"float32\"), \"target\": np.array([0, 2, -1, 1, 0])}\n\
             outputs = compiled.evaluate(params, inputs)\n\
             print(outputs[\"output\"].shape, outputs[\"weight\"])\n",
            "(5,) [1. 1. 0. 1. 1.]",
        ),
        parameters: &[
            required("classes", Kind::Count).doc("the number of classes"),
            with("sizes", Kind::COUNTS, Default::None)
                .doc("the sizes of the axes of `target` after those of the samples"),
            with("use_bias", Kind::Bool, Default::Bool(false)).doc("learn a bias `linear.b`"),
            cross_entropy::WEIGHTS,
            with("label_smoothing", Kind::Float(Range::Unit), Default::Float(0.0))
                .doc("the share of each target that is spread evenly over all classes"),
            cross_entropy::IGNORED,
            INIT,
        ],
        inputs: &[
            data("input", Class::Float),
            data("target", Class::Int)
                .own_dtype()
                .doc("a class for each sample, or a float for each class"),
        ],
        outputs: cross_entropy::OUTPUTS,
        meaning: Meaning::Compose(linear_cross_entropy),
        ..LOSS
    },
    Entry {
        name: "AdaptiveLogSoftmax",
        source: "Grave et al. 2017",
        doc: "The negative logarithm of the probability of `target`, an integer for each row of \
              `input`, (…, features), for classes that are sorted by frequency. The first \
              `cutoffs[0]` classes are in the head; each further range of classes, up to the next \
              cutoff, is a cluster, of which the head has one logit. A cluster has the weights \
              `w_in_0`, (features, features / div_value), and `w_out_0`, the next one has a width \
              that is `div_value` times less, and so on. `log_probs` are those of all classes. \
              They start as in `torch.nn.AdaptiveLogSoftmaxWithLoss`, whose `output` is the negated \
              loss.",
        example: written(
            "block = ml.AdaptiveLogSoftmax(classes=10, cutoffs=[2, 6], return_log_probs=True)\n\
             compiled = ml.compile(block, ml.NumpyBackend())\n\
             params = compiled.randomize_params()\n\
             inputs = {\"input\": np.ones((5, 32), \"float32\"), \"target\": np.arange(5)}\n\
             outputs = compiled.evaluate(params, inputs)\n\
             print(outputs[\"output\"].shape, outputs[\"log_probs\"].shape)\n\
             print(compiled.params)\n",
            "(5,) (5, 10)\n('w_head', 'w_in_0', 'w_out_0', 'w_in_1', 'w_out_1')",
        ),
        parameters: &[
            required("classes", Kind::Count).doc("the number of classes"),
            required("cutoffs", Kind::COUNTS)
                .doc("the first class of each cluster, in ascending order"),
            with("div_value", Kind::Float(Range::Positive), Default::Float(4.0))
                .doc("the factor between the widths of clusters"),
            with("head_bias", Kind::Bool, Default::Bool(false))
                .doc("learn a bias `b_head` of the head"),
            with("return_log_probs", Kind::Bool, Default::Bool(false))
                .doc("also return `log_probs`, (…, classes)"),
        ],
        inputs: &[],
        outputs: &[],
        valid: |settings| cutoffs(settings).map(drop),
        meaning: Meaning::Wrap(&Wrapper {
            terminals: adaptive_terminals,
            outlets: adaptive_outlets,
            shape: adaptive_shape,
            lower: adaptive,
        }),
        ..LOSS
    },
    Entry {
        name: "TripletMarginWithDistance",
        doc: "`max(0, distance(anchor, positive) - distance(anchor, negative) + margin)` for a \
              block of two inputs as `distance`. `TripletMargin` is the loss of norms.",
        example: gives(&["[[0, 0]]", "[[3, 4]]", "[[0, 2]]"], "[2.]")
            .with_settings("ml.CosineSimilarity(), margin=2"),
        parameters: &[
            with("distance", Kind::Block, Default::None).doc(
                "the block that computes the distance of two inputs; defaults to \
                      `PairwiseDistance`",
            ),
            with("margin", Kind::Float(Range::Finite), Default::Float(1.0))
                .doc("the difference from which on there is no loss"),
            with("swap", Kind::Bool, Default::Bool(false)).doc(
                "use the distance of `negative` from `positive` where that is the smaller one",
            ),
        ],
        inputs: &[
            data("anchor", Class::Float),
            data("positive", Class::Float).doc("vectors that should be near"),
            data("negative", Class::Float).doc("vectors that should be far"),
        ],
        meaning: Meaning::Compose(triplet),
        ..LOSS
    },
];

fn linear_cross_entropy(settings: &Settings) -> Result<Model> {
    let own = |name: &'static str| (name, settings.get(name).clone());
    let classes = settings.int("classes").unwrap_or(1);
    let sizes = settings.ints("sizes").unwrap_or_default();
    let width = sizes.iter().product::<i64>() * classes;
    let named = vec![("dimension", Setting::Int(width)), own("use_bias"), own("init")];
    let linear = build("Linear", vec![], named)?.named("linear")?;
    let model = Model::of_kind("linear_cross_entropy");
    let mut logits = model.apply(linear.input("input")?)?;
    if !sizes.is_empty() {
        let all: Vec<i64> = [classes].into_iter().chain(sizes.iter().copied()).collect();
        let named = vec![("axis", Setting::Int(-1)), ("sizes", all.into())];
        logits = model.apply(build("Unflatten", vec![], named)?.input(logits)?)?;
    }
    let axis = -1 - sizes.len() as i64;
    let named =
        vec![own("weights"), own("label_smoothing"), own("ignore_index"), ("axis", axis.into())];
    let loss = build("CrossEntropy", vec![], named)?;
    let mut given: Vec<(&str, Source)> =
        vec![("input", logits.into()), ("target", "target".into()), ("output", "output".into())];
    if cross_entropy::is_weighted(settings) {
        given.push(("weight", "weight".into()));
    }
    model.connect(loss.connect(given)?)?;
    model.set_standard(Some("input"), Some("output"))?;
    Ok(model)
}

/// The distances of two pairs, and the loss. Errors: a block without two inputs.
fn triplet(settings: &Settings) -> Result<Model> {
    let distance = match settings.block("distance") {
        Some(block) => block.clone(),
        None => build("PairwiseDistance", vec![], vec![])?,
    };
    let inputs = distance.inputs().iter().filter(|t| t.role == Role::Data && !t.optional);
    let names: Vec<String> = inputs.map(|terminal| terminal.name.to_string()).collect();
    let [left, right] = &names[..] else {
        return Diagnostic::of(ErrorKind::Setting, "a distance is a block of two inputs")
            .got(format!("`{}`, which has {}", distance.kind(), names.len()))
            .expected("a block such as `PairwiseDistance` or `CosineSimilarity`")
            .err();
    };
    let model = Model::of_kind("triplet");
    for name in ["anchor", "positive", "negative"] {
        model.add_input(name)?;
    }
    let between = |one: &str, other: &str| {
        let given: [(&str, Source); 2] = [(left, one.into()), (right, other.into())];
        model.apply(distance.clone().connect(given)?)
    };
    let pair = |kind: &str, left: Source, right: Source| {
        let block = build(kind, vec![], vec![])?;
        model.apply(block.connect([("left", left), ("right", right)])?)
    };
    let near = between("anchor", "positive")?;
    let mut far = between("anchor", "negative")?;
    if settings.flag("swap") {
        far = pair("Minimum", far.into(), between("positive", "negative")?.into())?;
    }
    let difference = pair("Subtract", near.into(), far.into())?;
    let margin = settings.float("margin").unwrap_or(1.0);
    let loss = pair("Add", difference.into(), margin.into())?;
    model.connect(build("Relu", vec![], vec![])?.input(loss)?.output("output")?)?;
    model.set_standard(Some("anchor"), Some("output"))?;
    Ok(model)
}

/// The first class of each cluster, and the number of classes. Errors: they are not ascending.
fn cutoffs(settings: &Settings) -> Result<Vec<i64>> {
    let mut all = match settings.get("cutoffs") {
        Setting::Int(one) => vec![*one],
        _ => settings.ints("cutoffs").unwrap_or_default(),
    };
    let classes = settings.int("classes").unwrap_or(1);
    all.push(classes);
    if all.len() > 1 && all.windows(2).all(|pair| pair[0] < pair[1]) {
        return Ok(all);
    }
    Diagnostic::of(ErrorKind::Setting, "`cutoffs` of `AdaptiveLogSoftmax` are not in order")
        .got(settings.get("cutoffs").text())
        .expected(format!("different integers in ascending order, from 1 to {}", classes - 1))
        .err()
}

fn adaptive_terminals(settings: &Settings) -> Result<Vec<Terminal>> {
    let learned = |name: String, fan_of: Option<u32>| Terminal {
        role: Role::Param,
        inferred: true,
        start: Start { fan_of, ..Init::FanIn.into() },
        ..Terminal::data(name, Class::Float)
    };
    let mut terminals = vec![
        Terminal::data("input", Class::Float),
        Terminal { own_dtype: true, ..Terminal::data("target", Class::Int) },
        learned("w_head".into(), None),
    ];
    if settings.flag("head_bias") {
        terminals.push(learned("b_head".into(), Some(2)));
    }
    for cluster in 0..cutoffs(settings)?.len() - 1 {
        terminals.push(learned(format!("w_in_{cluster}"), None));
        terminals.push(learned(format!("w_out_{cluster}"), None));
    }
    Ok(terminals)
}

fn adaptive_outlets(settings: &Settings) -> Result<Vec<Outlet>> {
    let names =
        ["output"].into_iter().chain(settings.flag("return_log_probs").then_some("log_probs"));
    Ok(names.map(|name| Outlet { name: name.into(), list: None }).collect())
}

/// The width of a cluster: that of the input, divided. Errors: it would be 0; the width of the input
/// is not known and `div_value` is no integer.
fn cluster_width(cx: &Cx, cluster: usize) -> Result<Dim> {
    let (features, by) = (cx.last_dim("input")?, cx.float("div_value"));
    let by = by.powi(cluster as i32 + 1);
    let too_narrow = || {
        Diagnostic::of(ErrorKind::Shapes, format!("cluster {cluster} would have a width of 0"))
            .got(format!("{features} features, divided by {by}"))
            .expected("more features, fewer cutoffs, or a smaller `div_value`")
    };
    match features.as_const() {
        Some(count) => match (count as f64 / by).floor() {
            width if width >= 1.0 => Ok(Dim::Const(width as i64)),
            _ => too_narrow().err(),
        },
        None if by.fract() == 0.0 && by < 1e15 => {
            let width = features.floor_div(&Dim::Const(by as i64));
            cx.need(&width, 1, too_narrow)?;
            Ok(width)
        }
        None => Diagnostic::of(ErrorKind::Shapes, "the width of a cluster is not known")
            .got(format!("{features} features, divided by {by}"))
            .expected("a known last dim of `input`, or an integer as `div_value`")
            .err(),
    }
}

fn adaptive_shape(cx: &Cx, name: &str) -> Result<Shape> {
    let cutoffs = cutoffs(cx.settings)?;
    let clusters = cutoffs.len() - 1;
    let head = Dim::Const(cutoffs[0] + clusters as i64);
    let number = |prefix: &str| name.strip_prefix(prefix)?.parse::<usize>().ok();
    if name == "b_head" {
        return Ok(Shape::new([head]));
    }
    let features = cx.last_dim("input")?;
    if let Some(cluster) = number("w_in_") {
        return Ok(Shape::new([features, cluster_width(cx, cluster)?]));
    }
    if let Some(cluster) = number("w_out_").filter(|cluster| *cluster < clusters) {
        let classes = Dim::Const(cutoffs[cluster + 1] - cutoffs[cluster]);
        return Ok(Shape::new([cluster_width(cx, cluster)?, classes]));
    }
    Ok(Shape::new([features, head]))
}

/// A range of the last axis.
fn range<'a>(x: Var<'a>, start: i64, limit: i64) -> Var<'a> {
    let bound = |at: i64| Shape::new([Dim::Const(at)]).into();
    let attrs = [("axes", Attr::ints([-1])), ("starts", bound(start)), ("limits", bound(limit))];
    x.unary("slice", &attrs)
}

fn adaptive(cx: &Cx) -> Result<Vec<Value>> {
    let (input, cutoffs) = (cx.var("input"), cutoffs(cx.settings)?);
    let (short, target) = (cutoffs[0], cx.var("target"));
    let (rows, own) = (input.shape(), target.shape());
    let wrong = || {
        Diagnostic::of(ErrorKind::Shapes, "`target` does not match `input`")
            .got(format!("{own} for an input of shape {rows}"))
            .expected("a class for each row of `input`")
    };
    if rows.need_rank()? == 0 || own.need_rank()? != rows.dims.len() - 1 {
        return wrong().err();
    }
    for (one, other) in own.dims.iter().zip(&rows.dims) {
        cx.need_same(one, other, wrong)?;
    }
    let axis = [("axis", (-1).into())];
    let scores = input.matmul(cx.var("w_head"));
    let scores = cx.optional("b_head").map_or(scores, |b| scores + b);
    let head = scores.unary("log_softmax", &axis).named("head");
    // Reading the classes from a list checks that they are within.
    let every = cx.iota(Shape::new([Dim::Const(cutoffs[cutoffs.len() - 1])]), 0, cx.index);
    let class = cx.op("take", &[every, target], &[("axis", 0.into())]);
    let mut entry = class;
    let mut found: Option<Var> = None;
    let mut parts = vec![range(head, 0, short)];
    for (i, bounds) in cutoffs.windows(2).enumerate() {
        let hidden = input.matmul(cx.var(&format!("w_in_{i}")));
        let tail = hidden.matmul(cx.var(&format!("w_out_{i}"))).unary("log_softmax", &axis);
        let tail = tail.named("tail");
        let first = class.scalar(bounds[0] as f64);
        let inside = class.binary("ge", first);
        let inside = inside.binary("and", class.binary("lt", class.scalar(bounds[1] as f64)));
        let place = inside.select(class - first, class.scalar(0.0));
        let own = cx.op("pick", &[tail, place], &axis);
        let own = inside.select(own, own.scalar(0.0));
        found = Some(found.map_or(own, |found| found + own));
        entry = inside.select(class.scalar((short + i as i64) as f64), entry);
        let at = short + i as i64;
        parts.push(tail + range(head, at, at + 1));
    }
    let mut likely = cx.op("pick", &[head, entry], &axis);
    likely = found.map_or(likely, |found| likely + found);
    let mut outputs = done(-likely)?;
    if cx.flag("return_log_probs") {
        outputs.push(cx.op("concat", &parts, &axis).value);
    }
    Ok(outputs)
}
