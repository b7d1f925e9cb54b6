//! How long programs are estimated to take.

mod targets;

use mithril_ir::text;
use mithril_passes::estimate::of_module;

fn time(source: &str) -> u64 {
    let module = text::parse(source).unwrap_or_else(|e| panic!("{}", e.render("", source)));
    of_module(&module, targets::TARGETS[0]).expect("a time")
}

#[test]
fn scan_estimates_count_every_step() {
    let scan = |length: &str| {
        time(&format!(
            "mithril 1
func @main(%h: tensor<8 x f32>, %x: tensor<{length} x 8 x f32>) -> (last: tensor<8 x f32>, all: tensor<{length} x 8 x f32>) {{
  %last, %all = scan(%h, %x) {{callee = @step, carries = 1}}
  return %last, %all
}}

func @step(%h: tensor<8 x f32>, %x: tensor<8 x f32>) -> (h: tensor<8 x f32>, y: tensor<8 x f32>) {{
  %0 = add(%h, %x)
  %1 = tanh(%0)
  return %1, %0
}}
"
        ))
    };
    let once = scan("1");
    assert!(once > 0);
    assert_eq!(scan("50"), 50 * once);
    assert_eq!(scan("0"), 0);
    // A symbol stands for as many as elsewhere.
    assert_eq!(scan("n"), 128 * once);
}
