//! The search for layouts against all layouts of small models.

use mithril_ir::graph::{Function, Role, Value};
use mithril_ir::text;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_passes::shard::layout::{Layout, Mesh};
use mithril_passes::shard::machine::Machine;
use mithril_passes::shard::problem::{Problem, params_with_gradients, repeats};
use mithril_passes::shard::search::{Plan, choices, evaluate, search};
use mithril_passes::shard::tables::Tables;

const PERCEPTRON: &str = "mithril 1

func @main(%x: tensor<64 x 32 x f32>, %w: tensor<32 x 128 x f32> param, %b: tensor<128 x f32> param, %v: tensor<128 x 16 x f32> param) -> (y: tensor<64 x 16 x f32>) {
  %h = dot_general(%x, %w) {x_contract = [1], y_contract = [0]}
  %s = add(%h, %b)
  %a = tanh(%s)
  %y = dot_general(%a, %v) {x_contract = [1], y_contract = [0]}
  return %y
}
";

const LOOKUP: &str = "mithril 1

func @main(%tokens: tensor<16 x 4 x i64>, %table: tensor<1024 x 8 x f32> param, %w: tensor<8 x 12 x f32> param) -> (y: tensor<16 x 12 x f32>) {
  %rows = take(%table, %tokens) {axis = 0}
  %mean = sum(%rows) {axes = [1]}
  %y = dot_general(%mean, %w) {x_contract = [1], y_contract = [0]}
  return %y
}
";

const ATTENTION: &str = "mithril 1

func @main(%x: tensor<4 x 16 x 32 x f32>, %q: tensor<32 x 32 x f32> param, %k: tensor<32 x 32 x f32> param, %o: tensor<32 x 32 x f32> param) -> (y: tensor<4 x 16 x 32 x f32>) {
  %a = dot_general(%x, %q) {x_contract = [2], y_contract = [0]}
  %c = dot_general(%x, %k) {x_contract = [2], y_contract = [0]}
  %heads = reshape(%a) {shape = [4 x 16 x 4 x 8]}
  %others = reshape(%c) {shape = [4 x 16 x 4 x 8]}
  %scores = dot_general(%heads, %others) {x_batch = [0, 2], y_batch = [0, 2], x_contract = [3], y_contract = [3]}
  %weights = softmax(%scores) {axis = -1}
  %mixed = dot_general(%weights, %others) {x_batch = [0, 1], y_batch = [0, 2], x_contract = [3], y_contract = [1]}
  %back = transpose(%mixed) {permutation = [0, 2, 1, 3]}
  %flat = reshape(%back) {shape = [4 x 16 x 32]}
  %y = dot_general(%flat, %o) {x_contract = [2], y_contract = [0]}
  return %y
}
";

/// A training step of a model.
fn step(source: &str) -> Function {
    let module = text::parse(source).expect("a module");
    let passes = "autodiff{outputs=true},inline{limit=all},legalize,canonicalize,cse,dce";
    let pipeline = Pipeline::parse(passes, &[]).expect("passes");
    let (module, _) = Driver::default().run(&pipeline, &module).expect("a step");
    Function::clone(module.called_from_outside().last().expect("gradients"))
}

/// The arguments that are divided.
fn arguments(function: &Function) -> Vec<Value> {
    let divided = function
        .arguments()
        .filter(|(_, argument)| matches!(argument.role, Role::Param | Role::Data));
    divided.map(|(value, _)| value).collect()
}

/// The params with their gradients.
fn tied(function: &Function) -> Vec<(Value, Value)> {
    let outputs = function.args.iter().filter(|arg| arg.role == Role::Cotangent).count();
    params_with_gradients(function, outputs)
}

fn solved<T>(
    function: &Function,
    mesh: &Mesh,
    (machine, memory): (&str, f64),
    given: &[(Value, Layout)],
    solve: impl Fn(&Problem) -> T,
) -> T {
    let tied = tied(function);
    let groups: Vec<Vec<Value>> =
        arguments(function).into_iter().map(|value| vec![value]).collect();
    solve(&Problem {
        function,
        tied: &tied,
        mesh,
        machine: Machine::find(machine).expect("a machine"),
        given,
        groups: &groups,
        repeats: &repeats(function),
        memory,
        optimizer_states: 2.0,
    })
}

/// The time of the best of all layouts of the arguments.
fn exhaustive(function: &Function, mesh: &Mesh, machine: (&str, f64)) -> f64 {
    let tables = Tables::of(function, &tied(function));
    let mut all: Vec<Vec<(Value, Layout)>> = vec![Vec::new()];
    for value in arguments(function) {
        let own = choices(function, mesh, &tables, value);
        let extended = all.into_iter().flat_map(|before| {
            own.clone().into_iter().map(move |layout| {
                let mut given = before.clone();
                given.push((value, layout));
                given
            })
        });
        all = extended.collect();
    }
    let plans =
        all.iter().map(|given| solved(function, mesh, machine, given, evaluate).expect("a plan"));
    let fitting = plans.filter(|plan| plan.memory <= machine.1);
    fitting.map(|plan| plan.time.total()).fold(f64::INFINITY, f64::min)
}

/// A lookup of long rows, which may be divided.
fn wide() -> String {
    LOOKUP.replace("x 8 x", "x 512 x").replace("<8 x 12", "<512 x 12")
}

fn best(function: &Function, mesh: &Mesh, machine: (&str, f64)) -> Plan {
    solved(function, mesh, machine, &[], search).expect("a plan")
}

#[test]
fn plans_are_within_a_tenth_of_the_best_layouts() {
    let meshes: [&[(&str, i64)]; 4] =
        [&[("a", 2)], &[("a", 4)], &[("a", 1), ("b", 4)], &[("a", 2), ("b", 2)]];
    for source in [PERCEPTRON, LOOKUP, &wide(), ATTENTION] {
        let function = step(source);
        for axes in meshes {
            let mesh = Mesh::new(axes.iter().copied()).expect("a mesh");
            for machine in ["cpu-gloo", "8xH100", "TPU-v5e-16"] {
                let found = best(&function, &mesh, (machine, 1e9)).time.total();
                let least = exhaustive(&function, &mesh, (machine, 1e9));
                assert!(found <= 1.1 * least, "{mesh} of {machine}: {found} s, at best {least} s");
            }
        }
    }
}

/// Tables are divided by rows where their columns would be narrow, and given layouts are kept.
#[test]
fn narrow_tables_are_divided_by_rows() {
    let sizes: [&[(&str, i64)]; 4] = [&[("a", 2)], &[("a", 4)], &[("a", 8)], &[("a", 2), ("b", 2)]];
    for width in [16, 32, 64, 128] {
        let source = LOOKUP
            .replace("16 x", "512 x")
            .replace("1024 x 8 x", &format!("1048576 x {width} x"))
            .replace("<8 x 12", &format!("<{width} x 12"));
        let function = step(&source);
        let table = function.arg(1);
        for axes in sizes {
            let mesh = Mesh::new(axes.iter().copied()).expect("a mesh");
            for machine in ["cpu-gloo", "8xH100", "TPU-v5e-16"] {
                let plan = best(&function, &mesh, (machine, 1e12));
                let found = mesh.text(&plan.values[table.index()]);
                assert!(found.ends_with(",_") && !found.starts_with('_'), "{width}: {found}");
            }
            let given = mesh.layout("_,a").expect("a layout");
            let kept = [(table, given.clone())];
            let plan = solved(&function, &mesh, ("8xH100", 1e12), &kept, search).expect("a plan");
            assert_eq!(plan.values[table.index()], given);
        }
    }
}

/// With less memory than the fastest layout needs, the search finds one that fits, if there is one.
#[test]
fn plans_fit_into_the_memory() {
    let mesh = Mesh::new([("a", 2), ("b", 2)]).expect("a mesh");
    for source in [PERCEPTRON, LOOKUP] {
        let function = step(source);
        let plenty = best(&function, &mesh, ("cpu-gloo", 1e9));
        let limit = 0.7 * plenty.memory;
        let least = exhaustive(&function, &mesh, ("cpu-gloo", limit));
        assert!(least.is_finite(), "no layout needs {limit} bytes");
        let plan = best(&function, &mesh, ("cpu-gloo", limit));
        assert!(plan.memory <= limit && plan.time.total() <= 1.1 * least);
    }
}

#[test]
fn too_little_memory_is_explained() {
    let mesh = Mesh::new([("a", 2)]).expect("a mesh");
    let function = step(PERCEPTRON);
    let error = solved(&function, &mesh, ("cpu-gloo", 1e3), &[], search);
    insta::assert_snapshot!(error.expect_err("an error"));
}
