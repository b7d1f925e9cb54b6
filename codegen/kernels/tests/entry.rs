//! C interfaces of functions: names, headers, checks and workspaces.

use mithril_ir::graph::Module;
use mithril_ir::text;
use mithril_kernels::entry::{Base, Interface, header};
use mithril_kernels::isa::Isa;
use mithril_kernels::program::{Plan, plan};
use mithril_kernels::target::TARGETS;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;

const ISA: Isa = Isa { fma: true, f16: true, ..Isa::new(32, 16) };

struct Model {
    module: Module,
    plans: Vec<Plan>,
}

impl Model {
    /// Parses a module with the functions in `source`, where `t` stands for `tensor`.
    fn new(source: &str, passes: &str) -> Model {
        let source = format!("mithril 1\n\n{}", source.replace("t<", "tensor<"));
        let module = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let pipeline = format!(
            "{passes}inline{{limit=all,repeated=all}},legalize{{target=cpu}},canonicalize,cse,dce"
        );
        let pipeline = Pipeline::parse(&pipeline, TARGETS).expect("the pipeline");
        let (module, _) =
            Driver::default().run(&pipeline, &module).unwrap_or_else(|e| panic!("{e}"));
        let plans = module
            .called_from_outside()
            .map(|f| plan(&module, f, &ISA).unwrap_or_else(|e| panic!("{e}")));
        let plans = plans.collect();
        Model { module, plans }
    }

    fn interface(&self, name: &str) -> Interface {
        let functions = self.module.called_from_outside().zip(&self.plans);
        let functions: Vec<_> = functions.map(|(f, plan)| (&**f, vec![plan])).collect();
        Interface::new(name, &functions, &[]).unwrap_or_else(|e| panic!("{e}"))
    }
}

const MLP: &str = "\
func @main(%x: t<batch x 4 x f32>, %w: t<4 x 3 x f32> param \"linear.w\") -> (y: t<batch x 3 x f32>) {
  %0 = matmul(%x, %w)
  %y = tanh(%0)
  return %y
}";

#[test]
fn headers_describe_parameters() {
    let model = Model::new(MLP, "autodiff{outputs=true},");
    let text = header(&model.interface("mlp"), "mlp, made by a test");
    for part in [
        "typedef struct mithril_mlp_params {\n  const float *linear_w; /* param `linear.w`: f32 [4, 3] */\n} mithril_mlp_params;",
        "size_t mithril_mlp_workspace_bytes(int64_t batch);",
        "int mithril_mlp(\n    int64_t batch,\n    const float *x,\n    const mithril_mlp_params *params,\n    float *y,\n    void *workspace);",
        "float *linear_w; /* gradient of `linear.w`: f32 [4, 3] */\n} mithril_mlp_param_gradients;",
        "int mithril_mlp_gradients(\n    int64_t batch,\n    const float *x,\n    const float *y_gradient,\n    const mithril_mlp_params *params,\n    float *y,\n    const mithril_mlp_param_gradients *gradients,\n    void *workspace);",
        "Computes the outputs and the gradients of params.",
        "x: input `x`: f32 [batch, 4]",
    ] {
        assert!(text.contains(part), "{part}\n\nis not in\n\n{text}");
    }
    assert_eq!(text.matches("typedef struct mithril_mlp_params").count(), 1, "{text}");
    assert!(text.lines().all(|line| line.len() <= 120), "{text}");
}

#[test]
fn names_are_valid_in_c() {
    let model = Model::new(
        "func @main(%int: t<n x f32>, %b: t<n x bool>) -> (n: t<n x f32>) {\n\
         %r = select(%b, %int, %int)\n%s = exp(%r)\nreturn %s\n}",
        "",
    );
    let interface = model.interface("2 models");
    let entry = &interface.entries[0];
    assert_eq!(entry.name, "mithril_x2_models");
    assert_eq!(entry.symbols[0].name, "n");
    assert_eq!(entry.arguments.iter().map(|a| &*a.name).collect::<Vec<_>>(), ["int_", "b"]);
    assert_eq!(entry.results[0].name, "n_1");
    assert!(header(&interface, "").contains("const uint8_t *b"));
}

#[test]
fn dims_are_checked() {
    let model = Model::new(
        "func @main(%x: t<n x f32>, %z: t<n - 2 x f32>) -> (y: t<n - 2 x f32>) where n <= 512 {\n\
         %y = exp(%z)\nreturn %y\n}",
        "",
    );
    let interface = model.interface("cut");
    let entry = &interface.entries[0];
    let fits = |n: i64| n <= entry.limit && entry.checks.iter().all(|check| check.holds(&[n]));
    assert!(fits(2) && fits(512) && !fits(1) && !fits(513));
    assert!(entry.checks.iter().any(|check| check.text == "n - 2 >= 0"), "{:?}", entry.checks);
}

/// Temporaries that live at the same time are disjoint, inside the workspace, and 64-byte aligned.
#[test]
fn live_temporaries_are_disjoint() {
    let chain = "\
        %0 = matmul(%x, %w)\n%1 = tanh(%0)\n%2 = matmul(%1, %v)\n%3 = softmax(%2)\n\
        %4 = matmul(%3, %w)\n%5 = matmul(%4, %v)\n%6 = add(%5, %2)\n%7 = matmul(%6, %w)\nreturn %7";
    let (mut shared, mut total) = (0, 0);
    for batch in ["batch", "17", "batch + 1"] {
        let model = Model::new(
            &format!(
                "func @main(%x: t<{batch} x 5 x f32>, %b: t<batch x f32>, %w: t<5 x 33 x f32>, \
                 %v: t<33 x 5 x f32>) -> (y: t<{batch} x 33 x f32>) {{\n{chain}\n}}"
            ),
            "",
        );
        let program = &model.plans[0].program;
        let interface = model.interface("chain");
        let entry = &interface.entries[0];
        let lives = mithril_runtime::plan::lifetimes(program);
        let slots = entry.workspace.slots(0, program);
        for batch in [0, 1, 3, 64, 1000] {
            let symbols = [batch];
            let temporaries = slots.iter().enumerate().filter(|(_, s)| s.base == Base::Workspace);
            let placed: Vec<(i64, i64, (usize, usize))> = temporaries
                .map(|(at, slot)| {
                    let start = slot.offset.eval(&symbols).unwrap();
                    let bytes = program.buffers[at].bytes.eval(&symbols).unwrap();
                    (start, start + bytes, lives[at].unwrap())
                })
                .collect();
            assert!(placed.len() > 2, "{program}");
            let scratch = entry.workspace.scratch.eval(&symbols).unwrap();
            for (at, a) in placed.iter().enumerate() {
                assert!(a.0 % 64 == 0 && a.1 <= scratch, "{a:?} in {scratch}");
                for b in &placed[at + 1..] {
                    let together = a.2.0 <= b.2.1 && b.2.0 <= a.2.1;
                    assert!(!together || a.1 <= b.0 || b.1 <= a.0, "{a:?} {b:?}\n{program}");
                }
            }
            shared += scratch;
            total += placed.iter().map(|(start, end, _)| end - start).sum::<i64>();
        }
    }
    assert!(shared < total * 3 / 4, "{shared} bytes for {total}");
}
