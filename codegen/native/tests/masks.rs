//! Attention with a mask and its gradients as native code, by LLVM and by Cranelift, against the
//! evaluator.

mod machine;

/// Attention of 2 batches of 4 heads, with what its gradient needs, and that.
fn source(mask: &str, groups: i64) -> String {
    let grouped = groups < 4;
    let (own, read) = (format!("{{grouped = {grouped}}}"), "%q, %k, %v, %y, %s, %g, %m, %most");
    let gradient = |of: i64| {
        format!("%d{of} = attention_gradient({read}) {{of = {of}, grouped = {grouped}}}\n")
    };
    let gradients: String = (0..3).map(gradient).collect();
    let text = format!(
        "mithril 1

func @f(%q: t<2 x 4 x n x 16 x f32>, %k: t<2 x {groups} x m x 16 x f32>, %v: t<2 x {groups} x m x 32 x f32>, %g: t<2 x 4 x n x 32 x f32>, %m: t<{mask}>) -> (y: t<2 x 4 x n x 32 x f32>, s: t<2 x 4 x n x f32>, most: t<2 x 4 x n x f32>, dq: t<2 x 4 x n x 16 x f32>, dk: t<2 x {groups} x m x 16 x f32>, dv: t<2 x {groups} x m x 32 x f32>) {{
%y = attention(%q, %k, %v, %m) {own}
%s = attention_logsumexp(%q, %k, %v, %m) {own}
%most = attention_row_max(%q, %k, %v, %m) {own}
{gradients}return %y, %s, %most, %d0, %d1, %d2
}}
"
    );
    text.replace("t<", "tensor<")
}

/// Queries that see no key, too: a bool for each query hides all keys of some.
#[test]
fn attention_and_its_gradients() {
    let sizes = [(1, 2), (7, 33), (65, 64), (17, 130), (3, 0), (0, 3)];
    for form in ["n x m", "2 x 1 x 1 x m", "n x 1", "2 x 4 x n x m", "m"] {
        for (dtype, groups) in [("bool", 4), ("f32", 2), ("f32", 4)] {
            for isa in machine::widths() {
                let mask = format!("{form} x {dtype}");
                let native =
                    machine::Native::of(&source(&mask, groups), (isa, machine::machine().1));
                assert_eq!(native.plan.kernels.len(), 2);
                // Of one key that is seen, gradients of the weights are nothing but rounding.
                let some = |m: usize| dtype == "f32" || m > 30;
                for (n, m) in sizes.into_iter().filter(|(_, m)| some(*m)) {
                    machine::agree(&native, &[("n", n), ("m", m)]);
                }
            }
        }
    }
}

/// Views whose keys are not neighbours are laid out first.
#[test]
fn masks_that_are_views() {
    let text = "mithril 1

func @f(%q: t<2 x 4 x n x 16 x f32>, %m: t<n x n x bool>, %w: t<4 x n x f32>) -> (x: t<2 x 4 x n x 16 x f32>, y: t<2 x 4 x n x 16 x f32>) {
%turned = transpose(%m) {permutation = [1, 0]}
%x = attention(%q, %q, %q, %turned)
%each = expand_dims(%w) {axes = [1]}
%wide = broadcast_in_dim(%each) {shape = [2 x 4 x n x n]}
%y = attention(%q, %q, %q, %wide)
return %x, %y
}
";
    let native = machine::Native::new(&text.replace("t<", "tensor<"));
    for n in [33, 70] {
        machine::agree(&native, &[("n", n)]);
    }
}
