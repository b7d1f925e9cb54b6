//! Which inputs hold indices, of what axis and which of their elements.

use mithril_ir::text;
use mithril_passes::indexed::{Indexed, indexed};

fn found(source: &str) -> Vec<Indexed> {
    let module = text::parse(source).unwrap_or_else(|e| panic!("{}", e.render("", source)));
    indexed(&module).expect("every function is there")
}

/// `argument[axis: start+count*step]: extent`, and `-` where a negative index counts from the end.
fn shown(source: &str) -> Vec<String> {
    let line = |own: &Indexed| {
        let part: Vec<String> = own
            .part
            .iter()
            .map(|r| format!("[{}: {}+{}*{}]", r.axis, r.start, r.count, r.step))
            .collect();
        let sign = if own.from_end { "-" } else { "" };
        format!("{}{}: {}{sign} {:?}", own.argument, part.concat(), own.extent, own.ignored)
    };
    found(source).iter().map(line).collect()
}

#[test]
fn indices_are_found_where_they_are_read() {
    let source = "mithril 1
func @main(%ids: tensor<b x t x i64>, %w: tensor<10 x 4 x f32> param) -> (y: tensor<b x t x 4 x f32>) {
  %y = take(%w, %ids) {axis = 0} @ \"embedding\"
  return %y
}
";
    let all = found(source);
    assert_eq!(shown(source), ["ids: 10- []"]);
    assert_eq!(all[0].readers.to_string(), "embedding");
}

#[test]
fn labels_have_the_length_of_the_last_axis() {
    let source = "mithril 1
func @main(%logits: tensor<b x c x f32>, %labels: tensor<b x i32>) -> (y: tensor<b x f32>) {
  %y = cross_entropy(%logits, %labels)
  return %y
}
";
    assert_eq!(shown(source), ["labels: c []"]);
}

#[test]
fn implied_index_ranges_are_dropped() {
    let source = "mithril 1
func @main(%ids: tensor<b x i64>, %w: tensor<10 x 4 x f32>, %logits: tensor<b x 10 x f32>) -> (y: tensor<b x 4 x f32>, z: tensor<b x f32>) {
  %y = take(%w, %ids) {axis = 0}
  %z = cross_entropy(%logits, %ids)
  return %y, %z
}
";
    assert_eq!(shown(source), ["ids: 10 []"]);
}

#[test]
fn parts_are_followed_through_calls_and_layouts() {
    let source = "mithril 1
func @main(%ids: tensor<b x 6 x i64>, %w: tensor<10 x 4 x f32>) -> (y: tensor<2 x b x 4 x f32>) {
  %0 = slice(%ids) {axes = [1], starts = [1], limits = [5], steps = [2]}
  %1 = swap_axes(%0) {first = 0, second = 1}
  %y = call(%1, %w) {callee = @turn}
  return %y
}

func @turn(%i: tensor<*shape x i64>, %w: tensor<n x m x f32>) -> (y: tensor<*shape x m x f32>) {
  %y = take(%w, %i) {axis = 0}
  return %y
}
";
    assert_eq!(shown(source), ["ids[1: 1+2*2]: 10- []"]);
}

#[test]
fn scan_bodies_read_one_slice() {
    let source = "mithril 1
func @main(%h: tensor<4 x f32>, %ids: tensor<t x i64>, %w: tensor<10 x 4 x f32>) -> (last: tensor<4 x f32>) {
  %last = scan(%h, %ids, %w) {callee = @step, carries = 1, sequences = 1}
  return %last
}

func @step(%h: tensor<4 x f32>, %i: tensor<i64>, %w: tensor<n x 4 x f32>) -> (h: tensor<4 x f32>) {
  %0 = take(%w, %i) {axis = 0}
  %1 = add(%h, %0)
  return %1
}
";
    assert_eq!(shown(source), ["ids: 10- []"]);
}

#[test]
fn computed_indices_are_not_reported() {
    let source = "mithril 1
func @main(%ids: tensor<b x i64>, %more: tensor<b x i64>, %w: tensor<10 x 4 x f32>) -> (y: tensor<b x 4 x f32>) {
  %0 = add(%ids, %more)
  %y = take(%w, %0) {axis = 0}
  return %y
}
";
    assert!(shown(source).is_empty());
}
