//! Contractions with gathered operands: windows, paddings, and axes that cannot be merged.

use mithril_ir::dtype::DType;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_ir::text as mir;
use mithril_kernels::isa::Isa;
use mithril_kernels::target::TARGETS;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_runtime::program::Place;

use crate::cases::Random;
use crate::check_agreement;
use crate::program::{Interpreted, LEVELS, isa};

/// A contraction with the sizes `h`, `w` and `n`, which are tested as constants and as symbols.
struct Form {
    arguments: &'static str,
    body: &'static str,
    result: &'static str,
    /// Values of `n`, `h` and `w`.
    sizes: &'static [[i64; 3]],
}

const PLAIN: &[[i64; 3]] = &[[1, 3, 3], [2, 5, 9], [3, 8, 17], [1, 12, 33], [2, 70, 4], [0, 4, 4]];

const FORMS: &[Form] = &[
    // A convolution: weights and the windows of a padded operand.
    Form {
        arguments: "%x: tensor<n x 3 x h x w x T>, %k: tensor<n x 5 x 3 x 3 x 3 x T>",
        body: "%p = pad(%x, %zero) {low = [0, 0, 1, 1], high = [0, 0, 1, 1]}\n  \
               %v = windows(%p) {axes = [2, 3], sizes = [3, 3]}\n  \
               %y = dot_general(%k, %v) {x_batch = [0], y_batch = [0], x_contract = [2, 3, 4], y_contract = [1, 4, 5]}",
        result: "n x 5 x h x w",
        sizes: PLAIN,
    },
    // Strides, dilations, no padding, and a crop.
    Form {
        arguments: "%x: tensor<n x 3 x h x w x T>, %k: tensor<n x 5 x 3 x 2 x 2 x T>",
        body: "%p = pad(%x, %zero) {low = [0, 0, -1, 2], high = [0, 0, 1, 0]}\n  \
               %v = windows(%p) {axes = [2, 3], sizes = [2, 2], strides = [2, 1], dilations = [1, 2]}\n  \
               %y = dot_general(%k, %v) {x_batch = [0], y_batch = [0], x_contract = [2, 3, 4], y_contract = [1, 4, 5]}",
        result: "n x 5 x h//2 x w",
        sizes: PLAIN,
    },
    // The gradient of the operand, which has zeros between the elements.
    Form {
        arguments: "%x: tensor<n x 3 x h x w x T>, %k: tensor<n x 3 x 5 x 3 x 3 x T>",
        body: "%p = pad(%x, %zero) {low = [0, 0, 2, 2], high = [0, 0, 2, 3], interior = [0, 0, 1, 2]}\n  \
               %v = windows(%p) {axes = [2, 3], sizes = [3, 3]}\n  \
               %r = reverse(%k) {axes = [3, 4]}\n  \
               %y = dot_general(%r, %v) {x_batch = [0], y_batch = [0], x_contract = [1, 3, 4], y_contract = [1, 4, 5]}",
        result: "n x 5 x (h + max(h - 1, 0) + 2) x (w + 2*max(w - 1, 0) + 3)",
        sizes: &[[1, 3, 3], [2, 5, 9], [3, 8, 17], [2, 35, 4]],
    },
    // The gradient of the weights, which contracts positions.
    Form {
        arguments: "%x: tensor<n x 3 x h x w x T>, %k: tensor<n x 5 x h x w x T>",
        body: "%p = pad(%x, %zero) {low = [0, 0, 1, 1], high = [0, 0, 1, 1]}\n  \
               %v = windows(%p) {axes = [2, 3], sizes = [3, 3]}\n  \
               %y = dot_general(%k, %v) {x_contract = [0, 2, 3], y_contract = [0, 2, 3]}",
        result: "5 x 3 x 3 x 3",
        sizes: PLAIN,
    },
    // The windows are the first operand, and run along one axis.
    Form {
        arguments: "%x: tensor<n x h x w x T>, %k: tensor<h x 4 x 7 x T>",
        body: "%p = pad(%x, %zero) {low = [0, 0, 3], high = [0, 0, 0]}\n  \
               %v = windows(%p) {axes = [-1], sizes = [4]}\n  \
               %y = dot_general(%v, %k) {x_contract = [1, 3], y_contract = [0, 1]}",
        result: "n x w x 7",
        sizes: PLAIN,
    },
    // Both operands are windows; one is reversed, transposed and reshaped.
    Form {
        arguments: "%x: tensor<n x h x 12 x T>, %k: tensor<12 x h x w x T>",
        body: "%v = windows(%x) {axes = [2], sizes = [5], strides = [3]}\n  \
               %p = pad(%k, %zero) {low = [0, 0, 2], high = [0, 0, 2]}\n  \
               %u = windows(%p) {axes = [2], sizes = [5]}\n  \
               %t = transpose(%u) {permutation = [3, 1, 2, 0]}\n  \
               %s = reshape(%t) {shape = [5 x h x w x 4 x 3]}\n  \
               %r = reverse(%s) {axes = [2]}\n  \
               %y = dot_general(%v, %r) {x_contract = [1, 3], y_contract = [1, 0]}",
        result: "n x 3 x w x 4 x 3",
        sizes: &[[1, 3, 3], [2, 5, 9], [3, 8, 17], [9, 2, 33]],
    },
    // A single result, and dense operands whose contracted axes cannot be merged.
    Form {
        arguments: "%x: tensor<n x 3 x h x w x T>, %k: tensor<n x 5 x h x w x T>",
        body: "%y = dot_general(%k, %x) {x_contract = [0, 2], y_contract = [0, 2]}",
        result: "5 x w x 3 x w",
        sizes: &[[1, 3, 3], [2, 5, 9], [3, 8, 17], [2, 70, 4]],
    },
    Form {
        arguments: "%x: tensor<2 x n x h x w x T>, %k: tensor<h x 2 x n x w x T>",
        body: "%y = dot_general(%k, %x) {x_contract = [0, 1, 2, 3], y_contract = [2, 0, 1, 3]}",
        result: "",
        sizes: PLAIN,
    },
];

impl Form {
    /// The module for operands of a dtype. If `sizes` are given, they replace the symbols.
    fn source(&self, dtype: DType, sizes: Option<[i64; 3]>) -> String {
        let result = match self.result {
            "" => format!("tensor<{dtype}>"),
            dims => format!("tensor<{dims} x {dtype}>"),
        };
        let text = format!(
            "func @f({}) -> (y: {result}) {{\n  \
             %zero = constant() {{value = dense<tensor<{dtype}>, 0.0>}}\n  {}\n  return %y\n}}\n",
            self.arguments.replace("x T>", &format!("x {dtype}>")),
            self.body
        );
        let fixed = sizes.map_or(text.clone(), |sizes| {
            let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '%');
            let number = |word: &str| {
                let name = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
                let at = ["n", "h", "w"].iter().position(|own| *own == name);
                at.map_or(word.to_string(), |at| word.replacen(name, &sizes[at].to_string(), 1))
            };
            words.map(number).collect()
        });
        format!("mithril 1\n\n{fixed}")
    }
}

fn check(form: &Form, dtype: DType, isa: &Isa) {
    let random = &mut Random(11);
    let parse = |source: String| mir::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let open = parse(form.source(dtype, None));
    let wide = if dtype.bits() == 16 { DType::F64 } else { dtype };
    let truth = parse(form.source(wide, None));
    let mut arguments = Vec::new();
    for &sizes in form.sizes {
        let fixed = parse(form.source(dtype, Some(sizes)));
        let entry = fixed.entry().expect("an entry");
        let array = |value| {
            let shape = entry.ty(value).shape.as_fixed().expect("numbers for sizes");
            let count = shape.iter().product();
            let numbers: Vec<f64> = (0..count).map(|_| random.range(-4, 5) as f64 / 2.0).collect();
            Tensor::from_f64s(dtype, shape, &numbers)
        };
        let tensors: Vec<Tensor> = entry.arguments().map(|(value, _)| value).map(array).collect();
        let own = parse(form.source(wide, Some(sizes)));
        assert_eq!(
            check_agreement(&fixed, &own, isa, std::slice::from_ref(&tensors)),
            1,
            "{sizes:?}"
        );
        arguments.push(tensors);
    }
    assert_eq!(check_agreement(&open, &truth, isa, &arguments), arguments.len());
}

#[test]
fn gathered_contractions_at_every_level() {
    for (number, form) in FORMS.iter().enumerate() {
        for level in LEVELS {
            println!("form {number} for {level}");
            check(form, DType::F32, &isa(level));
        }
    }
}

#[test]
fn gathered_contractions_of_other_dtypes() {
    for (number, form) in FORMS.iter().enumerate() {
        for level in LEVELS {
            println!("form {number} for {level}");
            check(form, DType::BF16, &isa(level));
        }
        check(form, DType::F64, &isa(LEVELS[0]));
        check(form, DType::F64, &isa(LEVELS[1]));
    }
}

/// The sizes in bytes of the temporaries of a function, and of its gradients.
fn temporary_bytes(body: &str) -> [Vec<i64>; 2] {
    let source = format!(
        "mithril 1\n\nfunc @f(%x: tensor<2 x 8 x 20 x 20 x f32> param \"x\", %w: tensor<8 x 8 x 3 x 3 x f32> \
         param \"w\") -> (y: tensor<2 x 8 x 20 x 20 x f32>) {{\n  %y = {body}\n  return %y\n}}\n"
    );
    let module = mir::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
    let pipeline = Pipeline::parse("autodiff,inline{limit=all,repeated=all},cse,dce", TARGETS);
    let (both, _) =
        Driver::default().run(&pipeline.expect("a pipeline"), &module).expect("gradients");
    let gradients = both.get("gradients").expect("gradients");
    [module, Module::of(gradients.as_ref().clone())].map(|module| {
        let plan = Interpreted::new(&module, &isa("x86-64-v3")).plan;
        let buffers = plan.program.buffers.iter().filter(|own| own.place == Place::Temporary);
        buffers.map(|own| own.bytes.eval(&[]).expect("a size")).collect()
    })
}

/// Materialized windows would be nine times as large as the operand. No temporary is that large.
#[test]
fn windows_are_not_materialized() {
    let operand = 2 * 8 * 20 * 20 * 4;
    for body in [
        "conv(%x, %w) {low = [1, 1], high = [1, 1]}",
        "max_pool(%x) {sizes = [3, 3], low = [1, 1], high = [1, 1]}",
    ] {
        let [forward, gradients] = temporary_bytes(body);
        assert!(forward.is_empty(), "{body}: {forward:?}");
        assert!(gradients.iter().all(|bytes| *bytes <= operand), "{body}: {gradients:?}");
        assert!(gradients.iter().sum::<i64>() <= 2 * operand, "{body}: {gradients:?}");
    }
}
