//! Losses, regularizers and metrics. Values are compared with those of torch and scikit-learn,
//! gradients with central differences.

mod harness;

use std::f64::consts::LN_2;

use harness::{f64s, i64s, options, run};
use mithril_ir::diagnostic::Result;
use mithril_ir::dtype::DType;
use mithril_ir::evaluate::evaluate;
use mithril_ir::tensor::Tensor;
use mithril_model::{Block, DimSpec, Options, block, lower};
use mithril_passes::autodiff::Autodiff;
use mithril_passes::context::PassContext;
use mithril_passes::pass::Pass;

type Inputs = [(&'static str, Tensor)];

fn assert_close(name: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{name}: {got:?}");
    for (got, expected) in got.iter().zip(expected) {
        let close = (got - expected).abs() <= 1e-9 * expected.abs().max(1.0);
        assert!(got == expected || close, "{name}: {got} against {expected}");
    }
}

fn value(block: &Block, inputs: &Inputs) -> Vec<f64> {
    let result = run(block, inputs, &options(inputs)).remove(0).1;
    result.to_f64s()
}

/// The gradients of the sum of the first result with respect to each float input.
fn gradients(block: &Block, inputs: &Inputs) -> Vec<(String, Vec<f64>)> {
    let module = lower(block, &options(inputs)).unwrap_or_else(|e| panic!("{e}"));
    let floats = inputs.iter().filter(|(_, t)| t.dtype().is_float());
    let wrt: Vec<String> = floats.map(|(n, _)| n.to_string()).collect();
    let pass = Autodiff { wrt: wrt.clone(), into: "derived".into(), ..Autodiff::default() };
    let module =
        pass.run(&module, &mut PassContext::new("autodiff")).unwrap_or_else(|e| panic!("{e}"));
    let main = module.entry().unwrap();
    let given = |name: &str| inputs.iter().find(|(n, _)| *n == name).unwrap().1.clone();
    let mut args: Vec<Tensor> = main.args.iter().map(|a| given(&a.name)).collect();
    for (i, result) in evaluate(&module, main, &args).unwrap().iter().enumerate() {
        let seed = if i == 0 { 1.0 } else { 0.0 };
        args.push(f64s(result.shape(), &vec![seed; result.len()]));
    }
    let derived = evaluate(&module, module.get("derived").unwrap(), &args);
    let derived = derived.unwrap_or_else(|e| panic!("{e}"));
    let names = main.args.iter().map(|a| a.name.to_string());
    let names = names.filter(|n| wrt.contains(n));
    names.zip(derived.iter().map(Tensor::to_f64s)).collect()
}

/// Checks the value, and compares the gradients with central differences.
fn check(name: &str, block: Result<Block>, inputs: &Inputs, expected: &[f64]) {
    let block = block.unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_close(name, &value(&block, inputs), expected);
    for (input, gradient) in gradients(&block, inputs) {
        let at = inputs.iter().position(|(n, _)| *n == input).unwrap();
        let own = inputs[at].1.clone();
        for (i, got) in gradient.iter().enumerate() {
            let nudged = |by: f64| -> f64 {
                let mut values = own.to_f64s();
                values[i] += by;
                let mut inputs = inputs.to_vec();
                inputs[at].1 = f64s(own.shape(), &values);
                value(&block, &inputs).iter().sum()
            };
            let slope = (nudged(1e-6) - nudged(-1e-6)) / 2e-6;
            let close = (got - slope).abs() <= 1e-5 * slope.abs().max(1.0);
            assert!(close, "{name}: d {input}[{i}] is {got} against {slope}");
        }
    }
}

fn input(shape: &[usize], values: &[f64]) -> (&'static str, Tensor) {
    ("input", f64s(shape, values))
}

fn target(shape: &[usize], values: &[f64]) -> (&'static str, Tensor) {
    ("target", f64s(shape, values))
}

fn classes(shape: &[usize], values: &[i64]) -> (&'static str, Tensor) {
    ("target", i64s(shape, values))
}

#[test]
fn losses_of_numbers() {
    let pair = [input(&[3], &[1.5, -2.0, 0.25]), target(&[3], &[1.0, 1.0, 1.0])];
    check("squared", block!(SquaredError()), &pair, &[0.25, 9.0, 0.5625]);
    check("absolute", block!(AbsoluteError()), &pair, &[0.5, 3.0, 0.75]);
    check("hinge", block!(HingeLoss()), &pair, &[0.0, 3.0, 0.75]);
    check("hinge^2", block!(QuadHingeLoss()), &pair, &[0.0, 9.0, 0.5625]);
    check("quantile", block!(QuantileLoss(q = 0.9)), &pair, &[0.05, 2.7, 0.675]);
    let errors = [input(&[4], &[0.3, -2.0, 0.0, 4.0]), target(&[4], &[0.0; 4])];
    check("huber", block!(Huber()), &errors, &[0.045, 1.5, 0.0, 3.5]);
    let wide = block!(Huber(delta = 2.5));
    check("huber 2.5", wide, &errors, &[0.045, 2.0, 0.0, 6.875]);
    // A scalar is compared with every element.
    let one = [input(&[2], &[3.0, 4.0]), target(&[], &[1.0])];
    check("against one", block!(SquaredError()), &one, &[4.0, 9.0]);
}

#[test]
fn cross_entropy_of_class_indices() {
    let x = || input(&[2, 3], &[1.0, -2.0, 0.5, 0.0, 3.0, -1.0]);
    let w = || vec![0.5, 1.0, 2.0];
    let of = [x(), classes(&[2], &[2, 0])];
    let table: [(&str, Result<Block>, [f64; 2]); 4] = [
        ("plain", block!(CrossEntropy()), [1.004596902342, 3.065883903757]),
        ("weights", block!(CrossEntropy(weights = w())), [2.009193804685, 1.532941951879]),
        (
            "smoothing",
            block!(CrossEntropy(label_smoothing = 0.1)),
            [1.071263569009, 2.999217237091],
        ),
        (
            "weights, smoothing",
            block!(CrossEntropy(weights = w(), label_smoothing = 0.1)),
            [2.000477396156, 1.704000878796],
        ),
    ];
    for (name, block, expected) in table {
        check(name, block, &of, &expected);
    }
    let ignored = [x(), classes(&[2], &[2, -100])];
    let plain = block!(CrossEntropy(ignore_index = -100));
    check("ignored", plain, &ignored, &[1.004596902342, 0.0]);
    let all = block!(CrossEntropy(ignore_index = -100, weights = w(), label_smoothing = 0.1));
    check("ignored, weights", all, &ignored, &[2.000477396156, 0.0]);
    let soft = [x(), target(&[2, 3], &[0.2, 0.3, 0.5, 1.0, 0.0, 0.0])];
    let exact = [1.654596902342, 3.065883903757];
    check("soft", block!(CrossEntropy()), &soft, &exact);
    let spread = block!(CrossEntropy(weights = w(), label_smoothing = 0.1));
    check("soft, spread", spread, &soft, &[2.087995068891, 1.704000878796]);
    let columns = [0.0, 0.3, 0.6, 0.9, 0.1, 0.4, 0.7, 1.0, 0.2, 0.5, 0.8, 1.1];
    let columns = [input(&[2, 3, 2], &columns), classes(&[2, 2], &[0, 2, 1, 1])];
    let torch = block!(CrossEntropy(axis = 1, weights = w(), label_smoothing = 0.2));
    let expected = [0.813034714306, 2.29457417299, 1.450828870546, 1.450828870546];
    check("axis 1", torch, &columns, &expected);
}

#[test]
fn losses_of_probabilities() {
    let of = [input(&[2, 3], &[0.1, 0.2, 0.7, 0.5, 0.25, 0.25]), classes(&[2], &[2, 0])];
    let probs = || block!(CrossEntropy(input_type = "probs"));
    check("probs", probs(), &of, &[0.356674943939, LN_2]);
    let robust = block!(CrossEntropy(input_type = "probs", robust = true));
    check("robust", robust, &of, &[0.356674943939, LN_2]);
    let logs = block!(CrossEntropy(input_type = "log_probs"));
    check("log_probs", logs, &of, &[-0.7, -0.5]);
    let of = [input(&[3], &[0.9, 0.2, 0.5]), target(&[3], &[1.0, 0.0, 0.3])];
    let expected = [0.105360515658, 0.223143551314, LN_2];
    let probs = block!(BinaryCrossEntropy(input_type = "probs"));
    check("binary probs", probs, &of, &expected);
    let of = [input(&[3], &[0.1, 0.2, 0.7]), target(&[3], &[0.3, 0.5, 0.2])];
    let expected = [0.3295836866, 0.458145365937, -0.250552593699];
    check("kl", block!(KLDivergence()), &of, &expected);
    let logs = [input(&[2], &[-1.0, -2.0]), target(&[2], &[0.5, 1.0])];
    let kl = block!(KLDivergence(input_type = "log_probs"));
    check("kl of logs", kl, &logs, &[0.5 * 0.5f64.ln() + 0.5, 2.0]);
}

#[test]
fn binary_cross_entropy() {
    let of = [input(&[4], &[0.5, -3.0, 0.0, 20.0]), target(&[4], &[1.0, 0.0, 0.3, 0.0])];
    let expected = [0.47407698418, 0.048587351574, LN_2, 20.000000002061];
    check("binary", block!(BinaryCrossEntropy()), &of, &expected);
    let expected = [1.42223095254, 0.048587351574, 1.109035488896, 20.000000002061];
    let weighted = block!(BinaryCrossEntropy(pos_weight = 3.0));
    check("binary, weight", weighted, &of, &expected);
    // `softplus(x) - x` would be 0 here.
    let sure = [input(&[2], &[60.0, -60.0]), target(&[2], &[1.0, 0.0])];
    let loss = value(&block!(BinaryCrossEntropy()).unwrap(), &sure);
    assert!(loss.iter().all(|v| *v > 8e-27 && *v < 9e-27), "{loss:?}");
}

#[test]
fn likelihoods() {
    let of = [input(&[3], &[0.5, -1.0, 2.0]), target(&[3], &[1.0, 0.0, 3.0])];
    let expected = [1.148721270700, 0.367879441171, 1.389056098931];
    check("poisson", block!(PoissonNLL()), &of, &expected);
    let rates = [input(&[2], &[0.5, 2.0]), target(&[2], &[1.0, 3.0])];
    let expected = [1.193147160560, -0.079441556680];
    check("rates", block!(PoissonNLL(log_input = false)), &rates, &expected);
    // Stirling's term is added for targets above 1 alone.
    let few = [input(&[2], &[0.5, 2.0]), target(&[2], &[0.999, 3.0])];
    let full = block!(PoissonNLL(log_input = false, full = true));
    check("rates, full", full, &few, &[1.192454013399, 1.684639986863]);
    let normal = [
        input(&[2], &[1.0, 2.0]),
        target(&[2], &[0.5, 4.0]),
        ("variance", f64s(&[2], &[0.25, 4.0])),
    ];
    check("gaussian", block!(GaussianNLL()), &normal, &[-0.193147180560, 1.193147180560]);
    let full = block!(GaussianNLL(full = true));
    check("gaussian, full", full, &normal, &[0.725791352645, 2.112085713764]);
    let of = [input(&[2, 2], &[-0.5, -1.0, -2.0, -0.25]), classes(&[2], &[1, 0])];
    check("nll", block!(NegativeLogLikelihood()), &of, &[1.0, 2.0]);
    let weighted = block!(NegativeLogLikelihood(weights = vec![3.0, 0.5], ignore_index = 1));
    check("nll, weights", weighted, &of, &[0.0, 6.0]);
}

#[test]
fn margins() {
    let of = [input(&[3], &[0.5, -2.0, 0.0]), target(&[3], &[1.0, 1.0, -1.0])];
    check("soft", block!(SoftMargin()), &of, &[0.474076984180, 2.126928011042, LN_2]);
    let scores = |target: &[f64]| {
        let [left, right] = [[1.0, 2.0, 3.0], [2.0, 1.0, 1.0]].map(|v| f64s(&[3], &v));
        [("left", left), ("right", right), ("target", f64s(&[3], target))]
    };
    let ranking = block!(MarginRanking(margin = 0.5));
    check("ranking", ranking, &scores(&[1.0, 1.0, -1.0]), &[1.5, 0.0, 2.5]);
    let vectors = [
        ("anchor", f64s(&[1, 2], &[0.0, 0.0])),
        ("positive", f64s(&[1, 2], &[3.0, 4.0])),
        ("negative", f64s(&[1, 2], &[3.0, 0.0])),
    ];
    check("triplet", block!(TripletMargin(eps = 0.0)), &vectors, &[3.0]);
    check("city", block!(TripletMargin(eps = 0.0, p = 1.0)), &vectors, &[5.0]);
    // `positive` and `negative` are 4 apart.
    let far = [vectors[0].clone(), vectors[1].clone(), ("negative", f64s(&[1, 2], &[6.0, 8.0]))];
    check("apart", block!(TripletMargin(eps = 0.0, margin = 6.0)), &far, &[1.0]);
    let swapped = block!(TripletMargin(eps = 0.0, margin = 7.0, swap = true));
    check("swapped", swapped, &[far[0].clone(), far[1].clone(), vectors[2].clone()], &[9.0]);
    let of = [input(&[3], &[0.5, -3.0, 0.0]), target(&[3], &[1.0, 0.0, 0.3])];
    let expected = [0.016893372629376, 0.000081962493373, 0.103972077084];
    check("focal", block!(FocalLoss()), &of, &expected);
    let masks = [input(&[2, 2], &[0.5, 1.0, 0.0, 0.25]), target(&[2, 2], &[1.0, 1.0, 0.0, 0.0])];
    check("dice", block!(Dice()), &masks, &[1.0 - 4.0 / 4.5, 1.0 - 1.0 / 1.25]);
    check("dice, all", block!(Dice(axis = vec![0, 1])), &masks, &[1.0 - 4.0 / 4.75]);
}

#[test]
fn cosine_embedding() {
    let of = |label: Option<&[f64]>| {
        let mut inputs = vec![
            input(&[2, 3], &[1.0, 2.0, 3.0, 1.0, 0.0, -1.0]),
            target(&[2, 3], &[2.0, 1.0, 0.0, 1.0, 1.0, -1.0]),
        ];
        inputs.extend(label.map(|l| ("label", f64s(&[2], l))));
        inputs
    };
    let alike = [0.521908556266, 0.183503419073];
    check("cosine", block!(CosineEmbedding()), &of(None), &alike);
    let labelled = |margin: f64| {
        let model = mithril_model::Model::new();
        let block = block!(CosineEmbedding(margin = margin))?;
        model.connect(block.connect([("label", "label")])?)?;
        model.block()
    };
    let apart = [0.278091443734, 0.183503419073];
    check("cosine, label", labelled(0.2), &of(Some(&[-1.0, 1.0])), &apart);
    let zeros = [input(&[1, 2], &[0.0, 0.0]), target(&[1, 2], &[1.0, 2.0])];
    let block = block!(CosineEmbedding()).unwrap();
    assert_close("of nothing", &value(&block, &zeros), &[1.0]);
    assert!(finite(&gradients(&block, &zeros)));
}

#[test]
fn regularizers() {
    let x = [input(&[2, 2], &[1.0, -2.0, 3.0, 0.5])];
    check("l1", block!(L1()), &x, &[6.5]);
    check("l2", block!(L2()), &x, &[7.125]);
    let of =
        [input(&[2, 2], &[1.0, -2.0, 3.0, 0.5]), ("kernel", f64s(&[2, 2], &[2.0, 1.0, 0.0, 4.0]))];
    // Rows (1, -2) and (3, 0.5): 2 - 2 + 16 and 18 + 1.5 + 1, halved.
    check("quadratic", block!(QuadraticForm()), &of, &[18.25]);
}

fn finite(gradients: &[(String, Vec<f64>)]) -> bool {
    gradients.iter().all(|(_, g)| g.iter().all(|v| v.is_finite()))
}

/// Checks that the loss and its gradients are finite.
fn stays_finite(name: &str, block: Result<Block>, inputs: &Inputs) {
    let block = block.unwrap_or_else(|e| panic!("{name}: {e}"));
    let loss = value(&block, inputs);
    assert!(loss.iter().all(|v| v.is_finite()), "{name}: {loss:?}");
    let gradients = gradients(&block, inputs);
    assert!(finite(&gradients), "{name}: {gradients:?}");
}

#[test]
fn cross_entropy_stays_finite() {
    let sure = || input(&[2, 3], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let probs = || block!(CrossEntropy(input_type = "probs"));
    let of = [sure(), classes(&[2], &[2, 0])];
    stays_finite("a probability of 0 for another class", probs(), &of);
    let of = [sure(), target(&[2, 3], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0])];
    stays_finite("a probability of 0 with target 0", probs(), &of);
    let ignoring = block!(CrossEntropy(input_type = "probs", ignore_index = 1));
    let of = [sure(), classes(&[2], &[1, 0])];
    stays_finite("a probability of 0 for an ignored target", ignoring, &of);
    let robust = block!(CrossEntropy(input_type = "probs", robust = true));
    let of = [sure(), classes(&[2], &[0, 1])];
    stays_finite("a probability of 0 for the class, robust", robust, &of);
    let weights = vec![0.0, 1.0, 1.0];
    let weighted = block!(CrossEntropy(input_type = "probs", weights = weights));
    let of = [sure(), classes(&[2], &[0, 0])];
    stays_finite("a class without weight", weighted, &of);
    let of = [input(&[1, 3], &[f64::NEG_INFINITY, 1.0, 2.0]), target(&[1, 3], &[0.0, 0.5, 0.5])];
    stays_finite("a hidden class", block!(CrossEntropy()), &of);
    let of = [input(&[1, 3], &[1e4, 0.0, -1e4]), classes(&[1], &[2])];
    stays_finite("large logits", block!(CrossEntropy()), &of);
}

#[test]
fn binary_losses_stay_finite() {
    let probs = block!(BinaryCrossEntropy(input_type = "probs"));
    let sure = [input(&[2], &[0.0, 1.0]), target(&[2], &[0.0, 1.0])];
    stays_finite("sure", probs, &sure);
    stays_finite("no mass", block!(KLDivergence()), &sure);
    let robust = block!(BinaryCrossEntropy(input_type = "probs", robust = true));
    let wrong = [input(&[2], &[0.0, 1.0]), target(&[2], &[1.0, 0.0])];
    stays_finite("wrong, robust", robust, &wrong);
    let large = [input(&[2], &[1e4, -1e4]), target(&[2], &[0.0, 1.0])];
    stays_finite("large logits", block!(BinaryCrossEntropy()), &large);
}

/// A robust logarithm of 0 is finite in f16 too. The cutoff for f32 would round to 0 there.
#[test]
fn robust_logarithms_of_f16_are_finite() {
    let inputs =
        [("input", Tensor::from_f64s(DType::F16, vec![1, 2], &[0.0, 1.0])), classes(&[1], &[0])];
    let block = block!(CrossEntropy(input_type = "probs", robust = true)).unwrap();
    let options = Options { dtype: DType::F16, ..options(&inputs) };
    let loss = run(&block, &inputs, &options).remove(0).1.to_f64s();
    assert!(loss[0].is_finite() && loss[0] > 9.0, "{loss:?}");
}

/// The shape of a target is inferred from the shape of the input.
#[test]
fn shapes_of_targets_are_inferred() {
    let table = [
        (block!(SquaredError()), "[4 x 3]"),
        (block!(CrossEntropy()), "[4]"),
        (block!(CrossEntropy(axis = 0)), "[3]"),
        (block!(Accuracy()), "[4]"),
        (block!(Precision(average = "binary")), "[4 x 3]"),
        (block!(AUC()), "[4]"),
    ];
    for (block, expected) in table {
        let shape = vec![DimSpec::Number(4), DimSpec::Number(3)];
        let options = Options { shapes: vec![("input".into(), shape)], ..Options::default() };
        let module = harness::compile(&block.unwrap(), &options);
        let main = module.entry().unwrap();
        let (value, _) = main.arguments().find(|(_, a)| &*a.name == "target").unwrap();
        assert_eq!(main.ty(value).shape.to_string(), expected);
    }
    for block in [
        block!(SquaredError()),
        block!(CrossEntropy(label_smoothing = 0.1, ignore_index = 0)),
        block!(BinaryCrossEntropy()),
        block!(F1()),
        block!(Recall(average = "micro")),
    ] {
        harness::compile(&block.unwrap(), &Options::default());
    }
}

const SCORES: [f64; 24] = [
    0.5, 0.3, 0.1, 0.1, 0.2, 0.4, 0.3, 0.1, 0.6, 0.1, 0.2, 0.1, 0.1, 0.2, 0.6, 0.1, 0.3, 0.4, 0.2,
    0.1, 0.1, 0.5, 0.3, 0.1,
];

#[test]
fn metrics_of_classes() {
    let scored = [input(&[6, 4], &SCORES), classes(&[6], &[0, 1, 1, 2, 1, 1])];
    let labels = [("input", i64s(&[6], &[0, 1, 0, 2, 1, 1])), classes(&[6], &[0, 1, 1, 2, 1, 1])];
    let table = [
        (block!(Precision()), 5.0 / 6.0),
        (block!(Precision(average = "micro")), 5.0 / 6.0),
        (block!(Precision(average = "weighted")), 11.0 / 12.0),
        (block!(Recall()), 11.0 / 12.0),
        (block!(Recall(average = "weighted")), 5.0 / 6.0),
        (block!(F1()), 0.84126984127),
        (block!(F1(average = "micro")), 5.0 / 6.0),
        (block!(F1(average = "weighted")), 0.849206349206),
        (block!(Accuracy()), 5.0 / 6.0),
        (block!(AUC()), 0.85),
        (block!(AUC(average = "weighted")), 0.8),
    ];
    for (block, expected) in table {
        let block = block.unwrap();
        assert_close(block.kind(), &value(&block, &scored), &[expected]);
    }
    for (block, expected) in [
        (block!(Precision(classes = 4)), 5.0 / 6.0),
        (block!(F1(average = "weighted", classes = 4)), 0.849206349206),
        (block!(F1(average = "micro")), 5.0 / 6.0),
        (block!(Accuracy()), 5.0 / 6.0),
    ] {
        let block = block.unwrap();
        assert_close(block.kind(), &value(&block, &labels), &[expected]);
    }
    let one_hot = [input(&[2, 2], &[0.9, 0.1, 0.2, 0.8]), target(&[2, 2], &[1.0, 0.0, 1.0, 0.0])];
    assert_close("one-hot", &value(&block!(Accuracy()).unwrap(), &one_hot), &[0.5]);
}

#[test]
fn binary_metrics() {
    let scores = [0.9, 0.4, 0.6, 0.6, 0.1, 0.4, 0.8, 0.2];
    let of = [input(&[8], &scores), classes(&[8], &[1, 0, 1, 0, 0, 1, 0, 0])];
    let floats = [input(&[8], &scores), target(&[8], &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0])];
    let none = [input(&[2], &[0.1, 0.2]), classes(&[2], &[0, 0])];
    let table = [
        (block!(Accuracy(binary = true)), 0.625, 1.0),
        (block!(Precision(average = "binary")), 0.5, 0.0),
        (block!(Recall(average = "binary")), 2.0 / 3.0, 0.0),
        (block!(F1(average = "binary")), 4.0 / 7.0, 0.0),
        (block!(AUC(average = "binary")), 0.733333333333333, 0.0),
    ];
    for (block, expected, of_none) in table {
        let block = block.unwrap();
        assert_close(block.kind(), &value(&block, &of), &[expected]);
        assert_close(block.kind(), &value(&block, &floats), &[expected]);
        assert_close(block.kind(), &value(&block, &none), &[of_none]);
    }
}
