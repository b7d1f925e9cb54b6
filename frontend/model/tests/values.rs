//! Results of blocks, compared with values computed by hand.

mod harness;

use harness::{alone, f64s, first, i64s, options, run};
use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;
use mithril_model::{Block, IoKey, Literal, Mode, Model, Options, Setting, Source, block};

type Inputs = Vec<(&'static str, Tensor)>;

fn v(values: &[f64]) -> Tensor {
    f64s(&[values.len()], values)
}

fn m(rows: usize, values: &[f64]) -> Tensor {
    f64s(&[rows, values.len() / rows], values)
}

fn check(block: Result<Block>, inputs: Inputs, shape: &[usize], expected: &[f64]) {
    let block = block.unwrap_or_else(|e| panic!("{e}"));
    let got = first(&block, &inputs);
    assert_eq!(got.shape(), shape, "{}", block.kind());
    let values = got.to_f64s();
    for (a, b) in values.iter().zip(expected) {
        let close = (a - b).abs() <= 1e-6 * (1.0 + b.abs()) || (a.is_nan() && b.is_nan());
        assert!(close, "{}: {values:?}, expected {expected:?}", block.kind());
    }
    assert_eq!(values.len(), expected.len(), "{}", block.kind());
}

/// A model of a block with a list input. The inputs of the model have these names.
fn with_list_input(block: Result<Block>, names: &[&str]) -> Result<Block> {
    alone(block?.connect([("inputs", names.to_vec())])?)
}

#[test]
fn layers() {
    let x = m(2, &[1.0, 2.0, 3.0, 4.0]);
    check(
        block!(Linear(dimension = 1)),
        vec![("input", x.clone()), ("w", m(2, &[1.0, 10.0])), ("b", v(&[0.5]))],
        &[2, 1],
        &[21.5, 43.5],
    );
    check(
        block!(Linear(dimension = 1, use_bias = false)),
        vec![("input", x.clone()), ("w", m(2, &[1.0, 10.0]))],
        &[2, 1],
        &[21.0, 43.0],
    );
    check(
        block!(Embedding(num_embeddings = 3, dimension = 2)),
        vec![("input", i64s(&[2], &[2, 0])), ("w", m(3, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))],
        &[2, 2],
        &[4.0, 5.0, 0.0, 1.0],
    );
    check(
        block!(LayerNorm(eps = 0.0)),
        vec![("input", x.clone()), ("w", v(&[2.0, 2.0])), ("b", v(&[1.0, 0.0]))],
        &[2, 2],
        &[-1.0, 2.0, -1.0, 2.0],
    );
    check(
        block!(LayerNorm(eps = 0.0, use_scale = false)),
        vec![("input", x.clone()), ("b", v(&[1.0, 0.0]))],
        &[2, 2],
        &[0.0, 1.0, 0.0, 1.0],
    );
    check(
        block!(RMSNorm(eps = 0.0)),
        vec![("input", v(&[3.0, 4.0])), ("w", v(&[1.0, 1.0]))],
        &[2],
        &[3.0 / 12.5f64.sqrt(), 4.0 / 12.5f64.sqrt()],
    );
    check(
        block!(ElementWiseAffine()),
        vec![("input", x), ("w", v(&[2.0, 3.0])), ("b", v(&[1.0, 1.0]))],
        &[2, 2],
        &[3.0, 7.0, 7.0, 13.0],
    );
}

#[test]
fn batch_norm_updates_its_state() {
    let block = block!(BatchNorm1d(eps = 0.0)).unwrap();
    let inputs = vec![
        ("input", m(2, &[1.0, 10.0, 3.0, 30.0])),
        ("w", v(&[1.0, 1.0])),
        ("running_mean", v(&[0.0, 0.0])),
        ("running_var", v(&[1.0, 1.0])),
    ];
    let results = run(&block, &inputs, &options(&inputs));
    let names: Vec<&str> = results.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["output", "running_mean", "running_var"]);
    assert_eq!(results[0].1.to_f64s(), [-1.0, -1.0, 1.0, 1.0]);
    let close = |a: Vec<f64>, b: &[f64]| a.iter().zip(b).all(|(x, y)| (x - y).abs() < 1e-12);
    assert!(close(results[1].1.to_f64s(), &[0.2, 2.0]));
    // The unbiased variances of the batch are 2 and 200.
    assert!(close(results[2].1.to_f64s(), &[0.9 + 0.2, 0.9 + 20.0]));
    let inference = Options { mode: Mode::Inference, ..options(&inputs) };
    let results = run(&block, &inputs, &inference);
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].1.to_f64s(), [1.0, 10.0, 3.0, 30.0]);
}

#[test]
fn attention() {
    let one = f64s(&[1, 2, 2], &[1.0, 0.0, 0.0, 1.0]);
    let (e, n) = ((1.0 / 2f64.sqrt()).exp(), 1.0);
    let (a, b) = (e / (e + n), n / (e + n));
    check(
        block!(ScaledDotProduct()),
        vec![("query", one.clone()), ("key", one.clone()), ("value", one.clone())],
        &[1, 2, 2],
        &[a, b, b, a],
    );
    check(
        block!(ScaledDotProduct(is_causal = true)),
        vec![("query", one.clone()), ("key", one.clone()), ("value", one.clone())],
        &[1, 2, 2],
        &[1.0, 0.0, b, a],
    );
    // With identity projections and one head, the result is the same.
    let i = m(2, &[1.0, 0.0, 0.0, 1.0]);
    let weights = ["w_query", "w_key", "w_value", "w_output"].map(|n| (n, i.clone()));
    let mut inputs = vec![("input", one.clone())];
    inputs.extend(weights);
    check(
        block!(MultiHeadAttention(heads = 1, use_bias = false)),
        inputs,
        &[1, 2, 2],
        &[a, b, b, a],
    );
    check(
        block!(RotaryEmbedding()),
        vec![("input", m(2, &[1.0, 0.0, 1.0, 0.0]))],
        &[2, 2],
        &[1.0, 0.0, 1f64.cos(), 1f64.sin()],
    );
    check(
        block!(PositionalEncoding()),
        vec![("input", m(2, &[0.0, 0.0, 0.0, 0.0]))],
        &[2, 2],
        &[0.0, 1.0, 1f64.sin(), 1f64.cos()],
    );
}

#[test]
fn shapes() {
    let x = m(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let input = || vec![("input", x.clone())];
    check(block!(Reshape(shape = vec![3, -1])), input(), &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check(block!(Flatten()), input(), &[6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check(block!(Transpose()), input(), &[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    check(
        block!(Tile(reps = vec![2])),
        input(),
        &[2, 6],
        &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 4.0, 5.0, 6.0],
    );
    check(
        block!(Repeat(repeats = 2, axis = 1)),
        input(),
        &[2, 6],
        &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0],
    );
    check(block!(Roll(shift = 1, axis = 1)), input(), &[2, 3], &[3.0, 1.0, 2.0, 6.0, 4.0, 5.0]);
    check(block!(Roll(shift = -1, axis = 1)), input(), &[2, 3], &[2.0, 3.0, 1.0, 5.0, 6.0, 4.0]);
    check(
        block!(Pad(pad_width = vec![vec![0, 0], vec![1, 0]])),
        input(),
        &[2, 4],
        &[0.0, 1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0],
    );
    check(block!(Split(n = 3, axis = 1)), input(), &[2, 1], &[1.0, 4.0]);
}

#[test]
fn slices_and_ramps() {
    let x = m(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let input = || vec![("input", x.clone())];
    check(block!(Tril()), input(), &[2, 3], &[1.0, 0.0, 0.0, 4.0, 5.0, 0.0]);
    check(block!(Triu(diagonal = 1)), input(), &[2, 3], &[0.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
    check(block!(Diagonal(offset = 1)), input(), &[2], &[2.0, 6.0]);
    check(block!(Diagonal(offset = -1)), input(), &[1], &[4.0]);
    check(block!(TopK(k = 2)), input(), &[2, 2], &[3.0, 2.0, 6.0, 5.0]);
    check(block!(Slice(start = 1, axis = 1, step = 2)), input(), &[2, 1], &[2.0, 5.0]);
    check(block!(Shape()), input(), &[2], &[2.0, 3.0]);
    check(block!(Size()), input(), &[], &[6.0]);
    check(
        with_list_input(block!(Stack(axis = 1)), &["a", "b"]),
        vec![("a", v(&[1.0, 2.0])), ("b", v(&[3.0, 4.0]))],
        &[2, 2],
        &[1.0, 3.0, 2.0, 4.0],
    );
    check(block!(Arange(start = 2, stop = 7, step = 2)), vec![], &[3], &[2.0, 4.0, 6.0]);
    check(block!(Arange(start = 3)), vec![], &[3], &[0.0, 1.0, 2.0]);
    check(block!(Linspace(start = 0, stop = 1, num = 3)), vec![], &[3], &[0.0, 0.5, 1.0]);
    check(block!(Eye(n = 2)), vec![], &[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    check(
        block!(OneHot(classes = 3)),
        vec![("input", i64s(&[2], &[2, 0]))],
        &[2, 3],
        &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
    );
}

#[test]
fn indices() {
    let x = m(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let slice = |a: Option<i64>, b: Option<i64>, c: Option<i64>| {
        Setting::Slice(std::sync::Arc::new([a.into(), b.into(), c.into()]))
    };
    let all = || slice(None, None, None);
    let cases: Vec<(Vec<Setting>, &[usize], &[f64])> = vec![
        (vec![0.into()], &[3], &[1.0, 2.0, 3.0]),
        (vec![(-1).into()], &[3], &[4.0, 5.0, 6.0]),
        (vec![all(), 1.into()], &[2], &[2.0, 5.0]),
        (vec![Setting::Ellipsis, (-1).into()], &[2], &[3.0, 6.0]),
        (vec![1.into(), 2.into()], &[], &[6.0]),
        (vec![all(), slice(Some(1), None, None)], &[2, 2], &[2.0, 3.0, 5.0, 6.0]),
        (vec![all(), slice(None, Some(-1), None)], &[2, 2], &[1.0, 2.0, 4.0, 5.0]),
        (vec![all(), slice(None, None, Some(-1))], &[2, 3], &[3.0, 2.0, 1.0, 6.0, 5.0, 4.0]),
        (vec![Setting::None, 0.into()], &[1, 3], &[1.0, 2.0, 3.0]),
        (vec![0.into(), Setting::None], &[1, 3], &[1.0, 2.0, 3.0]),
        (vec![Setting::Ellipsis, Setting::None], &[2, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ];
    for (index, shape, expected) in cases {
        check(block!(Indexer(index = index)), vec![("input", x.clone())], shape, expected);
    }
    check(
        block!(Indexer()),
        vec![("input", x), ("index", i64s(&[2], &[1, 1]))],
        &[2, 3],
        &[4.0, 5.0, 6.0, 4.0, 5.0, 6.0],
    );
}

#[test]
fn einsum() {
    let (a, b) = (m(2, &[1.0, 2.0, 3.0, 4.0]), m(2, &[5.0, 6.0, 7.0, 8.0]));
    let two = |equation: &str| with_list_input(block!(Einsum(equation = equation)), &["a", "b"]);
    let given = || vec![("a", a.clone()), ("b", b.clone())];
    check(two("ij,jk->ik"), given(), &[2, 2], &[19.0, 22.0, 43.0, 50.0]);
    check(two("ij,jk->ki"), given(), &[2, 2], &[19.0, 43.0, 22.0, 50.0]);
    check(two("ij,ij->"), given(), &[], &[70.0]);
    check(two("ij,ij->ji"), given(), &[2, 2], &[5.0, 21.0, 12.0, 32.0]);
    check(two("ij,jk"), given(), &[2, 2], &[19.0, 22.0, 43.0, 50.0]);
    let one = |equation: &str| with_list_input(block!(Einsum(equation = equation)), &["a"]);
    check(one("ii->i"), vec![("a", a.clone())], &[2], &[1.0, 4.0]);
    check(one("ii"), vec![("a", a.clone())], &[], &[5.0]);
    check(one("ij->j"), vec![("a", a.clone())], &[2], &[4.0, 6.0]);
}

#[test]
fn losses() {
    let (x, y) = (v(&[0.5, -2.0]), v(&[0.0, 1.0]));
    let pair = || vec![("input", x.clone()), ("target", y.clone())];
    check(block!(SquaredError()), pair(), &[2], &[0.25, 9.0]);
    check(block!(AbsoluteError()), pair(), &[2], &[0.5, 3.0]);
    check(block!(Huber()), pair(), &[2], &[0.125, 2.5]);
    check(block!(HingeLoss()), pair(), &[2], &[1.0, 3.0]);
    check(block!(QuadHingeLoss()), pair(), &[2], &[1.0, 9.0]);
    check(block!(QuantileLoss(q = 0.9)), pair(), &[2], &[0.05, 2.7]);
    let softplus = |x: f64| x.exp().ln_1p();
    check(block!(BinaryCrossEntropy()), pair(), &[2], &[softplus(0.5), softplus(2.0)]);
    check(
        block!(BinaryCrossEntropy(pos_weight = 3.0)),
        pair(),
        &[2],
        &[softplus(0.5), 3.0 * softplus(2.0)],
    );
    check(
        block!(BinaryCrossEntropy(input_type = "probs")),
        vec![("input", v(&[0.25, 0.5])), ("target", v(&[0.0, 1.0]))],
        &[2],
        &[-(0.75f64.ln()), -(0.5f64.ln())],
    );
    check(
        block!(KLDivergence()),
        vec![("input", v(&[0.5, 0.5])), ("target", v(&[1.0, 0.0]))],
        &[2],
        &[2f64.ln(), 0.0],
    );
    check(
        block!(CosineEmbedding()),
        vec![("input", m(2, &[1.0, 0.0, 3.0, 4.0])), ("target", m(2, &[0.0, 1.0, 4.0, 3.0]))],
        &[2],
        &[1.0, 0.04],
    );
    check(block!(L1()), vec![("input", v(&[1.0, -2.0]))], &[], &[3.0]);
    check(block!(L2()), vec![("input", v(&[1.0, -2.0]))], &[], &[2.5]);
}

#[test]
fn cross_entropy() {
    let logits = m(2, &[0.0, 0.0, 1f64.ln(), 3f64.ln()]);
    let target = i64s(&[2], &[0, 1]);
    let (a, b) = (-(0.5f64.ln()), -(0.75f64.ln()));
    let given = || vec![("input", logits.clone()), ("target", target.clone())];
    check(block!(CrossEntropy()), given(), &[2], &[a, b]);
    check(block!(CrossEntropy(weights = vec![2.0, 1.0])), given(), &[2], &[2.0 * a, b]);
    check(block!(CrossEntropy(ignore_index = 1)), given(), &[2], &[a, 0.0]);
    let even = (-(0.75f64.ln()) - 0.25f64.ln()) / 2.0;
    check(block!(CrossEntropy(label_smoothing = 0.1)), given(), &[2], &[a, 0.9 * b + 0.1 * even]);
    check(
        block!(CrossEntropy(input_type = "probs")),
        vec![("input", m(1, &[0.25, 0.75])), ("target", i64s(&[1], &[1]))],
        &[1],
        &[b],
    );
    check(
        block!(CrossEntropy()),
        vec![("input", logits.clone()), ("target", m(2, &[1.0, 0.0, 0.5, 0.5]))],
        &[2],
        &[a, even],
    );
}

#[test]
fn metrics() {
    let scores = m(4, &[0.9, 0.1, 0.8, 0.2, 0.3, 0.7, 0.6, 0.4]);
    let given = || vec![("input", scores.clone()), ("target", i64s(&[4], &[0, 1, 1, 0]))];
    check(block!(Accuracy()), given(), &[], &[0.75]);
    check(block!(Precision()), given(), &[], &[(2.0 / 3.0 + 1.0) / 2.0]);
    check(block!(Recall()), given(), &[], &[(1.0 + 0.5) / 2.0]);
    check(block!(F1()), given(), &[], &[(0.8 + 2.0 / 3.0) / 2.0]);
    check(block!(F1(average = "micro")), given(), &[], &[0.75]);
    let binary = || vec![("input", v(&[0.9, 0.2, 0.7])), ("target", i64s(&[3], &[1, 1, 0]))];
    check(block!(Precision(average = "binary")), binary(), &[], &[0.5]);
    check(block!(Accuracy(binary = true)), binary(), &[], &[1.0 / 3.0]);
}

#[test]
fn composites() {
    let relu = || block!(Relu()).unwrap();
    check(
        block!(MLP(
            activations = vec![Setting::from(relu()), Setting::None],
            dimensions = vec![2, 1]
        )),
        vec![
            ("input", v(&[1.0])),
            ("linear_0.w", m(1, &[1.0, -1.0])),
            ("linear_0.b", v(&[0.0, 0.0])),
            ("linear_1.w", m(2, &[5.0, 7.0])),
            ("linear_1.b", v(&[1.0])),
        ],
        &[1],
        &[6.0],
    );
    check(block!(Residual(block = relu())), vec![("input", v(&[1.0, -2.0]))], &[2], &[2.0, -2.0]);
    check(
        block!(Layer(activation = relu(), dimension = 1)),
        vec![("input", v(&[1.0])), ("linear.w", m(1, &[-3.0])), ("linear.b", v(&[1.0]))],
        &[1],
        &[0.0],
    );
    check(
        block!(Sequential(blocks = vec![relu(), block!(Negate()).unwrap()])),
        vec![("input", v(&[1.0, -2.0]))],
        &[2],
        &[-1.0, 0.0],
    );
}

#[test]
fn expressions() {
    let model = Model::new();
    model
        .connect(block!(Buffer()).unwrap().connect([("input", "x"), ("output", "y")]).unwrap())
        .unwrap();
    let y = model.terminal("y").unwrap();
    let z = y.operate("*", 2.0).unwrap().operate_reflected("-", 1i64).unwrap();
    let z = z.operate("**", 2i64).unwrap();
    z.method("sum", vec![], vec![("axis", (-1).into())]).unwrap();
    check(model.block(), vec![("x", v(&[1.0, 2.0]))], &[], &[10.0]);
}

/// An expression of inputs joins the model that reads it, only once, and `set_output` names it.
#[test]
fn expressions_from_inputs() {
    let model = Model::new();
    let x = Source::from(IoKey::new("x"));
    let square = x.operate("*", &x).unwrap();
    let sum = square.method("add", vec![square.clone()], vec![], vec![]).unwrap();
    model.set_output("y", sum).unwrap();
    let rest = model.add_input("z").unwrap().operate("-", &square).unwrap();
    model.set_output("rest", &rest).unwrap();
    assert_eq!(model.len(), 3);
    let inputs = [("x", v(&[1.0, 2.0])), ("z", v(&[5.0, 5.0]))];
    let found = harness::run(&model.block().unwrap(), &inputs, &harness::options(&inputs));
    assert_eq!(found, [("y".into(), v(&[2.0, 8.0])), ("rest".into(), v(&[4.0, 1.0]))]);
    assert!(model.add_input("y").is_err());
}

#[test]
fn shapes_flow_into_reshape() {
    // `x.reshape((x.shape[0], -1))` of an input whose first dim may vary, also inside a nested
    // model.
    let inner = Model::new();
    let shape = inner.apply(block!(Shape()).unwrap().input("x").unwrap()).unwrap();
    let rows = shape.method("item", vec![Setting::from(0)], vec![]).unwrap();
    let reshape = block!(Reshape(shape = vec![Setting::from(rows), Setting::Int(-1)])).unwrap();
    inner.connect(reshape.input("x").unwrap().output("y").unwrap()).unwrap();
    let outer = Model::new();
    outer.connect(inner.seal().unwrap().connect([("x", "x"), ("y", "y")]).unwrap()).unwrap();
    let x = f64s(&[2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let options = Options {
        shapes: vec![("x".into(), vec!["batch".into(), 2.into(), 2.into()])],
        dtype: DType::F64,
        ..Options::default()
    };
    let module = harness::compile(&outer.block().unwrap(), &options);
    let main = module.entry().unwrap();
    assert_eq!(main.ty(main.results[0].value).to_string(), "tensor<batch x 4 x f64>");
    check(outer.block(), vec![("x", x)], &[2, 4], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn dropout_depends_only_on_the_path() {
    let two = |extra: bool| {
        let model = Model::new();
        let drop = || block!(Dropout(rate = 0.5)).unwrap();
        model.connect(drop().connect([("input", "x"), ("output", "a")]).unwrap()).unwrap();
        if extra {
            model.connect(drop().connect([("input", "x"), ("output", "b")]).unwrap()).unwrap();
        }
        model.block().unwrap()
    };
    let x = vec![("x", v(&[1.0; 64]))];
    let (small, large) = (run(&two(false), &x, &options(&x)), run(&two(true), &x, &options(&x)));
    assert_eq!(small[0].1, large[0].1);
    assert_ne!(large[0].1, large[1].1);
    let kept = small[0].1.to_f64s();
    assert!(kept.iter().all(|x| *x == 0.0 || *x == 2.0));
    let inference = Options { mode: Mode::Inference, ..options(&x) };
    let module = harness::compile(&two(true), &inference);
    assert_eq!(module.entry().unwrap().args.len(), 1);
}

#[test]
fn weak_numbers_take_the_dtype_of_other_operands() {
    let model = Model::new();
    let ids = block!(Add())
        .unwrap()
        .connect([("left", Source::from("ids")), ("right", 1i64.into())])
        .unwrap();
    model.connect(ids.output("next").unwrap()).unwrap();
    model
        .connect(
            block!(Embedding(num_embeddings = 4, dimension = 1)).unwrap().input("next").unwrap(),
        )
        .unwrap();
    let given = vec![("ids", i64s(&[2], &[0, 2])), ("embedding.w", m(4, &[0.0, 1.0, 2.0, 3.0]))];
    check(model.block(), given, &[2, 1], &[1.0, 3.0]);
    // The inputs are integers because of the blocks that read them.
    let module = harness::compile(&model.block().unwrap(), &Options::default());
    let main = module.entry().unwrap();
    assert_eq!(main.ty(main.arg(0)).dtype, DType::I64);
    let _ = Literal::from(1.0);
}
