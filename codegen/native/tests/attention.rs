//! Attention as native code, against the evaluator.

mod machine;

use machine::{check, f};

#[test]
fn attention() {
    let text = f(
        "%q: t<2 x 3 x 17 x 8 x f32>, %k: t<2 x 3 x 17 x 8 x f32>, %v: t<2 x 3 x 17 x 8 x f32>) -> (y: t<2 x 3 x 17 x 8 x f32>)",
        "%0 = attention(%q, %k, %v) {causal = true}\nreturn %0",
    );
    check(&text, &[]);
}

#[test]
fn heads_are_views_of_one_matrix() {
    let text = f(
        "%x: t<2 x 9 x 96 x f32>) -> (y: t<2 x 9 x 32 x f32>)",
        "%0 = reshape(%x) {shape = [2 x 9 x 3 x 4 x 8]}
         %1 = transpose(%0) {permutation = [2, 0, 3, 1, 4]}
         %2 = slice(%1) {axes = [0], starts = [0], limits = [1]}
         %3 = slice(%1) {axes = [0], starts = [1], limits = [2]}
         %4 = slice(%1) {axes = [0], starts = [2], limits = [3]}
         %q = reshape(%2) {shape = [2 x 4 x 9 x 8]}
         %k = reshape(%3) {shape = [2 x 4 x 9 x 8]}
         %v = reshape(%4) {shape = [2 x 4 x 9 x 8]}
         %5 = attention(%q, %k, %v)
         %6 = transpose(%5) {permutation = [0, 2, 1, 3]}
         %7 = reshape(%6) {shape = [2 x 9 x 32]}
         return %7",
    );
    check(&text, &[]);
}

#[test]
fn attention_as_one_kernel() {
    for (s, t, d, e) in
        [(1, 1, 16, 16), (17, 17, 16, 32), (64, 64, 64, 64), (70, 130, 16, 16), (130, 130, 32, 16)]
    {
        for causal in [true, false] {
            if causal && s != t {
                continue;
            }
            let text = f(
                &format!(
                    "%q: t<2 x 3 x {s} x {d} x f32>, %k: t<2 x 3 x {t} x {d} x f32>, %v: t<2 x 3 x {t} x {e} x f32>) -> (y: t<2 x 3 x {s} x {e} x f32>)"
                ),
                &format!("%0 = attention(%q, %k, %v) {{causal = {causal}}}\nreturn %0"),
            );
            let native = machine::Native::new(&text);
            assert_eq!(native.plan.kernels.len(), 1);
            machine::agree(&native, &[]);
        }
    }
}

/// Attention, its sums and its gradients, of operands `%q`, `%k`, `%v` and `%g`.
fn with_gradients(attrs: &str) -> String {
    format!(
        "%y = attention(%q, %k, %v) {{{attrs}}}
         %s = attention_logsumexp(%q, %k, %v) {{{attrs}}}
         %dq = attention_gradient(%q, %k, %v, %y, %s, %g) {{of = 0, {attrs}}}
         %dk = attention_gradient(%q, %k, %v, %y, %s, %g) {{of = 1, {attrs}}}
         %dv = attention_gradient(%q, %k, %v, %y, %s, %g) {{of = 2, {attrs}}}
         return %y, %s, %dq, %dk, %dv"
    )
}

/// Of two keys at least: with one the weights are 1 whatever the operands are, and their gradients
/// nothing but what was rounded.
#[test]
fn gradients_of_attention() {
    for (s, t, d, e) in [
        (1, 2, 16, 16),
        (2, 2, 16, 16),
        (17, 17, 16, 32),
        (64, 64, 64, 64),
        (70, 130, 80, 16),
        (130, 130, 32, 16),
    ] {
        for causal in [true, false] {
            if causal && s != t {
                continue;
            }
            let text = f(
                &format!(
                    "%q: t<2 x 3 x {s} x {d} x f32>, %k: t<2 x 3 x {t} x {d} x f32>, %v: t<2 x 3 x {t} x {e} x f32>, %g: t<2 x 3 x {s} x {e} x f32>) -> (y: t<2 x 3 x {s} x {e} x f32>, s: t<2 x 3 x {s} x f32>, dq: t<2 x 3 x {s} x {d} x f32>, dk: t<2 x 3 x {t} x {d} x f32>, dv: t<2 x 3 x {t} x {e} x f32>)"
                ),
                &with_gradients(&format!("causal = {causal}, scale = 0.2")),
            );
            for isa in machine::widths() {
                let native = machine::Native::of(&text, (isa, machine::machine().1));
                assert_eq!(native.plan.kernels.len(), 2);
                machine::agree(&native, &[]);
            }
        }
    }
}

#[test]
fn gradients_of_groups_at_any_length() {
    let text = f(
        "%q: t<b x 4 x n x 16 x f32>, %k: t<b x 2 x m x 16 x f32>, %v: t<b x 2 x m x 16 x f32>, %g: t<b x 4 x n x 16 x f32>) -> (y: t<b x 4 x n x 16 x f32>, s: t<b x 4 x n x f32>, dq: t<b x 4 x n x 16 x f32>, dk: t<b x 2 x m x 16 x f32>, dv: t<b x 2 x m x 16 x f32>)",
        &with_gradients("grouped = true"),
    );
    let native = machine::Native::new(&text);
    for (b, n, m) in [(1, 1, 2), (2, 5, 70), (1, 65, 64), (0, 3, 4), (1, 0, 3), (2, 3, 0)] {
        machine::agree(&native, &[("b", b), ("n", n), ("m", m)]);
    }
}

#[test]
fn attention_of_groups_at_any_length() {
    let text = f(
        "%q: t<b x n x 4 x 16 x f32>, %k: t<b x m x 2 x 16 x f32>, %v: t<b x m x 2 x 16 x f32>) -> (y: t<b x n x 4 x 16 x f32>)",
        "%0 = transpose(%q) {permutation = [0, 2, 1, 3]}
         %1 = transpose(%k) {permutation = [0, 2, 1, 3]}
         %2 = transpose(%v) {permutation = [0, 2, 1, 3]}
         %3 = attention(%0, %1, %2) {grouped = true}
         %4 = transpose(%3) {permutation = [0, 2, 1, 3]}
         return %4",
    );
    let native = machine::Native::new(&text);
    for (b, n, m) in [(1, 1, 1), (2, 5, 70), (1, 65, 64), (0, 3, 4), (1, 0, 3), (2, 3, 0)] {
        machine::agree(&native, &[("b", b), ("n", n), ("m", m)]);
    }
}

/// Heads that only a product reads are written side by side at once.
#[test]
fn attention_stores_merged_heads() {
    for (batch, s) in [("2", "17"), ("b", "n"), ("1", "70")] {
        for (causal, back) in [(true, "[0, 2, 1, 3]"), (false, "[2, 0, 1, 3]")] {
            let shape = match back {
                "[0, 2, 1, 3]" => format!("{batch} x {s}"),
                _ => format!("{s} x {batch}"),
            };
            let native = machine::Native::new(&f(
                &format!(
                    "%q: t<{batch} x 3 x {s} x 16 x f32>, %k: t<{batch} x 3 x {s} x 16 x f32>, %v: t<{batch} x 3 x {s} x 32 x f32>, %w: t<96 x 8 x f32>) -> (y: t<{shape} x 8 x f32>)"
                ),
                &format!(
                    "%0 = attention(%q, %k, %v) {{causal = {causal}}}
                     %1 = transpose(%0) {{permutation = {back}}}
                     %2 = reshape(%1) {{shape = [{shape} x 96]}}
                     %3 = matmul(%2, %w)
                     return %3"
                ),
            ));
            assert_eq!(native.plan.kernels.len(), 2);
            machine::agree(&native, &[("b", 2), ("n", 33)]);
        }
    }
    // Who reads the heads as well has them as they are.
    let native = machine::Native::new(&f(
        "%q: t<2 x 3 x 9 x 16 x f32>, %w: t<48 x 8 x f32>) -> (y: t<2 x 9 x 8 x f32>, h: t<2 x 3 x 9 x 16 x f32>)",
        "%0 = attention(%q, %q, %q)
         %1 = transpose(%0) {permutation = [0, 2, 1, 3]}
         %2 = reshape(%1) {shape = [2 x 9 x 48]}
         %3 = matmul(%2, %w)
         return %3, %0",
    ));
    machine::agree(&native, &[]);
}
