//! Layouts of values on a mesh, found from those of a few.

use mithril_ir::dim::Dim;
use mithril_ir::graph::Value;
use mithril_ir::text;
use mithril_passes::shard::bill::bill;
use mithril_passes::shard::layout::{Layout, Mesh};
use mithril_passes::shard::propagate::{Layouts, propagate};

/// The layouts of a module's entry. `given` has those of arguments by name.
fn found(source: &str, mesh: &Mesh, given: &[(&str, &str)]) -> Result<Layouts, String> {
    let module = text::parse(source).map_err(|error| error.to_string())?;
    let entry = module.entry().expect("an entry");
    let mut own: Vec<(Value, Layout)> = Vec::new();
    for (name, layout) in given {
        let (value, _) = entry
            .arguments()
            .find(|(_, argument)| *argument.name == **name)
            .unwrap_or_else(|| panic!("no argument `{name}`"));
        own.push((value, mesh.layout(layout).map_err(|error| error.to_string())?));
    }
    propagate(entry, mesh, &own, &[]).map_err(|error| error.to_string())
}

/// Each value with its layout, in the order of the text.
fn listing(source: &str, mesh: &Mesh, given: &[(&str, &str)]) -> String {
    let layouts = found(source, mesh, given).expect("layouts");
    let module = text::parse(source).expect("a module");
    let entry = module.entry().expect("an entry");
    let mut lines: Vec<String> = Vec::new();
    for (at, info) in entry.values.iter().enumerate() {
        let name = info.name.as_deref().map_or(format!("%{at}"), |name| format!("%{name}"));
        lines.push(format!("{name}: [{}]", mesh.text(&layouts.values[at])));
    }
    for (at, op) in entry.ops.iter().enumerate() {
        for axis in layouts.relations.contested(at, &layouts.values) {
            lines.push(format!("conflict: {} in {}", mesh.name(axis), op.op.name));
        }
    }
    let bill = bill(entry, mesh, &layouts);
    for (at, own) in bill.collectives() {
        let (kind, axis) = (own.kind.name(), mesh.name(own.axis));
        let op = entry.ops[at].op.name;
        lines.push(format!("{kind} over {axis} for {op}: {} B", own.bytes(entry)));
    }
    let flops: Dim = (0..entry.ops.len()).map(|at| bill.flops(entry, at)).sum();
    lines.push(format!("{flops} flop a device"));
    lines.join("\n")
}

fn mesh() -> Mesh {
    Mesh::new([("data", 2), ("model", 4)]).expect("a mesh")
}

const MLP: &str = "mithril 1

func @main(%x: tensor<8 x 16 x f32>, %w: tensor<16 x 32 x f32>, %b: tensor<32 x f32>, %v: tensor<32 x 16 x f32>) -> (y: tensor<8 x 16 x f32>) {
  %h = dot_general(%x, %w) {x_contract = [1], y_contract = [0]}
  %wide = broadcast_in_dim(%b) {shape = [8 x 32]}
  %s = add(%h, %wide)
  %a = tanh(%s)
  %y = dot_general(%a, %v) {x_contract = [1], y_contract = [0]}
  return %y
}
";

#[test]
fn a_divided_batch_reaches_all_activations() {
    insta::assert_snapshot!(listing(MLP, &mesh(), &[("x", "data,_")]));
}

#[test]
fn columns_and_rows_of_two_products() {
    insta::assert_snapshot!(listing(MLP, &mesh(), &[("w", "_,model"), ("x", "data,_")]));
}

#[test]
fn one_axis_for_two_dims_is_a_conflict() {
    let given = [("x", "data,_"), ("w", "_,data")];
    insta::assert_snapshot!(listing(MLP, &mesh(), &given));
}

const ATTENTION: &str = "mithril 1

func @main(%x: tensor<2 x 6 x 16 x f32>, %q: tensor<16 x 16 x f32>, %k: tensor<16 x 16 x f32>) -> (scores: tensor<2 x 4 x 6 x 6 x f32>) {
  %a = dot_general(%x, %q) {x_contract = [2], y_contract = [0]}
  %c = dot_general(%x, %k) {x_contract = [2], y_contract = [0]}
  %heads = reshape(%a) {shape = [2 x 6 x 4 x 4]}
  %others = reshape(%c) {shape = [2 x 6 x 4 x 4]}
  %scores = dot_general(%heads, %others) {x_batch = [0, 2], y_batch = [0, 2], x_contract = [3], y_contract = [3]}
  return %scores
}
";

#[test]
fn heads_are_divided_through_reshapes() {
    let given = [("q", "_,model"), ("x", "data,_,_")];
    insta::assert_snapshot!(listing(ATTENTION, &mesh(), &given));
}

/// Attention and its gradients, as plans have them.
const RINGS: &str = "mithril 1

func @main(%q: tensor<2 x 4 x 8 x 16 x f32>, %k: tensor<2 x 4 x 8 x 16 x f32>, %v: tensor<2 x 4 x 8 x 16 x f32>, %g: tensor<2 x 4 x 8 x 16 x f32>) -> (y: tensor<2 x 4 x 8 x 16 x f32>, dq: tensor<2 x 4 x 8 x 16 x f32>, dk: tensor<2 x 4 x 8 x 16 x f32>, dv: tensor<2 x 4 x 8 x 16 x f32>) {
  %y = attention(%q, %k, %v)
  %sums = attention_logsumexp(%q, %k, %v)
  %dq = attention_gradient(%q, %k, %v, %y, %sums, %g) {of = 0}
  %dk = attention_gradient(%q, %k, %v, %y, %sums, %g) {of = 1}
  %dv = attention_gradient(%q, %k, %v, %y, %sums, %g) {of = 2}
  return %y, %dq, %dk, %dv
}
";

#[test]
fn keys_and_values_go_round_a_divided_sequence() {
    let given = ["q", "k", "v", "g"].map(|name| (name, "_,data,model,_"));
    insta::assert_snapshot!(listing(RINGS, &mesh(), &given));
}

#[test]
fn two_axes_of_a_sequence_are_two_rings() {
    let given = ["q", "k", "v", "g"].map(|name| (name, "_,_,data+model,_"));
    insta::assert_snapshot!(listing(RINGS, &mesh(), &given));
}

/// Two heads of `q` share one of `k` and `v`.
#[test]
fn shared_keys_are_divided_with_the_heads_that_read_them() {
    let source = "mithril 1

func @main(%q: tensor<2 x 8 x 8 x 16 x f32>, %k: tensor<2 x 4 x 8 x 16 x f32>, %v: tensor<2 x 4 x 8 x 16 x f32>) -> (y: tensor<2 x 8 x 8 x 16 x f32>) {
  %y = attention(%q, %k, %v) {grouped = true}
  return %y
}
";
    insta::assert_snapshot!(listing(source, &mesh(), &[("q", "_,model,data,_")]));
}

const LOOKUP: &str = "mithril 1

func @main(%table: tensor<12 x 8 x f32>, %tokens: tensor<4 x 6 x i64>) -> (y: tensor<8 x f32>) {
  %rows = take(%table, %tokens) {axis = 0}
  %y = sum(%rows) {axes = [0, 1]}
  return %y
}
";

#[test]
fn tables_and_tokens() {
    let given = [("table", "_,model"), ("tokens", "data,_")];
    insta::assert_snapshot!(listing(LOOKUP, &mesh(), &given));
}

#[test]
fn rows_of_a_table_are_looked_up_where_they_are() {
    insta::assert_snapshot!(listing(LOOKUP, &mesh(), &[("table", "model,_")]));
}

/// Terms of a sum stay apart while they are only added up further: 4 elements are combined. Those of
/// a sum that something else reads are combined at once, and those of a product.
#[test]
fn terms_of_sums_are_combined_last() {
    let source = "mithril 1

func @main(%x: tensor<8 x 4 x 16 x f32>, %w: tensor<8 x 6 x f32>) -> (y: tensor<4 x f32>, z: tensor<4 x f32>, e: tensor<4 x f32>, v: tensor<4 x f32>) {
  %s = sum(%x) {axes = [0]}
  %t = sum(%s) {axes = [1], keepdim = true}
  %y = reshape(%t) {shape = [4]}
  %r = sum(%x) {axes = [0]}
  %z = sum(%r) {axes = [1]}
  %m = max(%r) {axes = [1]}
  %e = exp(%m)
  %p = dot_general(%x, %w) {x_contract = [0], y_contract = [0]}
  %v = sum(%p) {axes = [1, 2]}
  return %y, %z, %e, %v
}
";
    insta::assert_snapshot!(listing(source, &mesh(), &[("x", "data,_,_")]));
}

/// A constraint keeps its layout, and spreads it.
#[test]
fn constraints_are_given() {
    let constrained = MLP.replace(
        "%a = tanh(%s)",
        "%t = tanh(%s)\n  %a = constrain(%t) {axes = [1], by = \"model\"}",
    );
    insta::assert_snapshot!(listing(&constrained, &mesh(), &[("x", "data,_")]));
}

#[test]
fn wrong_layouts_are_explained() {
    let wrong = |given: &[(&str, &str)]| found(MLP, &mesh(), given).expect_err("an error");
    insta::assert_snapshot!(wrong(&[("x", "data")]));
    insta::assert_snapshot!(wrong(&[("x", "data+model,model")]));
    insta::assert_snapshot!(wrong(&[("b", "modl")]));
    let odd = MLP.replace("8 x 16 x f32", "7 x 16 x f32").replace("[8 x 32]", "[7 x 32]");
    let error = found(&odd, &mesh(), &[("x", "data,_")]).expect_err("an error");
    insta::assert_snapshot!(error);
}

#[test]
fn wrong_meshes_are_explained() {
    let wrong =
        |axes: &[(&str, i64)]| Mesh::new(axes.iter().copied()).expect_err("an error").to_string();
    insta::assert_snapshot!(wrong(&[]));
    insta::assert_snapshot!(wrong(&[("a", 0)]));
    insta::assert_snapshot!(wrong(&[("a", 2), ("a", 2)]));
    assert_eq!(mesh().devices(), 8);
    assert_eq!(mesh().to_string(), "data:2,model:4");
}
