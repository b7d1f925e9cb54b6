//! Whole functions as native code, against the evaluator.

mod amx;
mod machine;

use machine::{check, f};
use mithril_kernels::host::{self, Host};
use mithril_kernels::isa::Isa;
use mithril_native::Options;

#[test]
fn elementwise_and_broadcasting() {
    for n in [1, 7, 16, 33] {
        let text = f(
            &format!("%x: t<4 x {n} x f32>, %y: t<{n} x f32>) -> (r: t<4 x {n} x f32>)"),
            "%0 = mul(%x, %y)\n%1 = add(%0, %x)\n%2 = exp(%1)\nreturn %2",
        );
        check(&text, &[]);
    }
}

#[test]
fn symbols() {
    let text = f(
        "%x: t<n x m x f32>, %y: t<m x f32>) -> (r: t<n x m x f32>, s: t<n x f32>)",
        "%0 = mul(%x, %y)\n%1 = relu(%0)\n%2 = sum(%1) {axes = [1]}\nreturn %1, %2",
    );
    let native = machine::Native::new(&text);
    for (n, m) in [(1, 1), (3, 17), (5, 64), (2, 130), (0, 5), (4, 0)] {
        machine::agree(&native, &[("n", n), ("m", m)]);
    }
}

#[test]
fn rows() {
    for n in [1, 10, 16, 70, 256] {
        let text = f(
            &format!(
                "%x: t<5 x {n} x f32>, %w: t<{n} x f32>, %b: t<{n} x f32>) -> (r: t<5 x {n} x f32>, s: t<5 x {n} x f32>)"
            ),
            "%0 = softmax(%x)\n%1 = layer_norm(%0, %w, %b)\nreturn %0, %1",
        );
        check(&text, &[]);
    }
}

#[test]
fn columns() {
    for n in [1, 10, 16, 70, 256, 300] {
        let text = f(
            &format!("%x: t<9 x {n} x f32>) -> (r: t<{n} x f32>, s: t<{n} x f32>, m: t<f32>)"),
            "%0 = sum(%x) {axes = [0]}\n%1 = max(%x) {axes = [0]}\n%2 = mean(%x)\nreturn %0, %1, %2",
        );
        check(&text, &[]);
    }
}

#[test]
fn contractions() {
    for (m, k, n) in [(8, 8, 8), (1, 33, 17), (33, 127, 17), (64, 70, 1)] {
        let text = f(
            &format!(
                "%x: t<{m} x {k} x f32>, %w: t<{k} x {n} x f32>, %b: t<{n} x f32>, %r: t<{m} x {n} x f32>) -> (y: t<{m} x {n} x f32>)"
            ),
            "%0 = matmul(%x, %w)\n%1 = add(%0, %b)\n%2 = gelu_tanh(%1)\n%3 = add(%2, %r)\nreturn %3",
        );
        check(&text, &[]);
    }
}

#[test]
fn views() {
    let text = f(
        "%x: t<2 x 6 x 32 x f32>, %y: t<2 x 6 x 32 x f32>) -> (a: t<2 x 32 x 6 x f32>, b: t<12 x 32 x f32>, c: t<2 x 6 x 4 x 8 x f32>, d: t<2 x 12 x 32 x f32>, e: t<2 x 3 x 32 x f32>, g: t<2 x 8 x 40 x f32>, h: t<2 x 6 x 32 x f32>)",
        "%0 = transpose(%x) {permutation = [0, 2, 1]}
         %1 = reshape(%x) {shape = [12 x 32]}
         %2 = exp(%1)
         %3 = reshape(%x) {shape = [2 x 6 x 4 x 8]}
         %4 = neg(%3)
         %5 = concat(%x, %y) {axis = 1}
         %6 = slice(%x) {axes = [1], starts = [1], limits = [6], steps = [2]}
         %z = constant() {value = dense<t<f32>, 7.0>}
         %7 = pad(%x, %z) {low = [0, 1, 3], high = [0, 1, 5]}
         %8 = reverse(%y) {axes = [1, 2]}
         return %0, %2, %4, %5, %6, %7, %8",
    );
    check(&text, &[]);
}

#[test]
fn positions() {
    let text = f(
        "%x: t<5 x 33 x f32>, %i: t<7 x i64>, %j: t<5 x 4 x i32>, %u: t<7 x 33 x f32>, %s: t<i64>) -> (a: t<7 x 33 x f32>, b: t<5 x 4 x f32>, c: t<5 x 33 x f32>, d: t<5 x 8 x f32>, e: t<5 x 33 x f32>, g: t<5 x 33 x f32>)",
        "%0 = take(%x, %i) {axis = 0}
         %1 = take_along(%x, %j) {axis = 1}
         %2 = scatter_add(%x, %i, %u) {axis = 0}
         %z = constant() {value = dense<t<i64>, 0>}
         %3 = dynamic_slice(%x, %z, %s) {sizes = [5 x 8]}
         %4 = dynamic_update_slice(%x, %3, %z, %s)
         %5 = slice_update(%x, %3) {axes = [1], starts = [2], limits = [18], steps = [2]}
         return %0, %1, %2, %3, %4, %5",
    );
    check(&text, &[]);
}

#[test]
fn orders() {
    for n in [1, 2, 17, 100] {
        let text = f(
            &format!(
                "%x: t<3 x {n} x f32>) -> (a: t<3 x {n} x f32>, b: t<3 x {n} x i64>, c: t<3 x {n} x f32>, d: t<3 x i64>, e: t<i64>, g: t<3 x {n} x f32>)"
            ),
            "%0 = sort(%x)
             %1 = argsort(%x)
             %2 = sort(%x) {descending = true}
             %3 = argmax(%x) {axis = 1}
             %4 = argmin(%x)
             %5 = cumsum(%x) {axis = 1}
             return %0, %1, %2, %3, %4, %5",
        );
        check(&text, &[]);
    }
}

#[test]
fn random() {
    let text = f(
        "%k: t<2 x u32> key) -> (a: t<5 x 17 x f32>, b: t<33 x f64>, c: t<33 x u64>, d: t<33 x u8>, e: t<4 x 2 x u32>, g: t<40 x f32>)",
        "%0 = uniform(%k) {shape = [5 x 17], dtype = f32}
         %1 = uniform(%k) {shape = [33], dtype = f64}
         %2 = random_bits(%k) {shape = [33], dtype = u64}
         %3 = random_bits(%k) {shape = [33], dtype = u8}
         %4 = key_split(%k) {count = 4}
         %5 = normal(%k) {shape = [40], dtype = f32}
         return %0, %1, %2, %3, %4, %5",
    );
    check(&text, &[]);
}

#[test]
fn results_that_are_arguments_or_each_other() {
    let text = f(
        "%x: t<3 x 4 x f32>) -> (a: t<3 x 4 x f32>, b: t<4 x 3 x f32>, c: t<3 x 4 x f32>, d: t<3 x 4 x f32>, e: t<12 x f32>)",
        "%0 = exp(%x)
         %1 = transpose(%x) {permutation = [1, 0]}
         %2 = reshape(%0) {shape = [12]}
         return %x, %1, %0, %0, %2",
    );
    check(&text, &[]);
}

#[test]
fn results_that_are_literals_and_contracted() {
    let text = f(
        "%x: t<2 x 3 x f32>) -> (a: t<2 x 2 x f32>, b: t<3 x 2 x f32>)",
        "%w = constant() {value = dense<t<3 x 2 x f32>, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>}
         %0 = matmul(%x, %w)
         return %0, %w",
    );
    check(&text, &[]);
}

/// The text of so many numbers.
fn literal(count: i64) -> String {
    let numbers = (0..count).map(|i| format!("{}.5", i * 7 % 11 - 5));
    format!("[{}]", numbers.collect::<Vec<_>>().join(", "))
}

#[test]
fn constant_weights_are_packed() {
    for (m, k, n) in [("3", 17, 33), ("40", 64, 5), ("n", 9, 70)] {
        let text = f(
            &format!("%x: t<{m} x {k} x f32>) -> (y: t<{m} x {n} x f32>, z: t<{k} x {k} x f32>)"),
            &format!(
                "%w = constant() {{value = dense<t<{k} x {n} x f32>, {}>}}
                 %t = transpose(%w) {{permutation = [1, 0]}}
                 %0 = matmul(%x, %w)
                 %1 = relu(%0)
                 %z = matmul(%w, %t)
                 return %1, %z",
                literal(k * n)
            ),
        );
        check(&text, &[("n", 13)]);
    }
    let text = f(
        "%x: t<3 x 5 x 4 x f32>) -> (y: t<3 x 5 x 6 x f32>)",
        &format!(
            "%w = constant() {{value = dense<t<3 x 4 x 6 x f32>, {}>}}
             %y = matmul(%x, %w)
             return %y",
            literal(72)
        ),
    );
    check(&text, &[]);
}

#[test]
fn constant_weights_are_packed_for_tiles() {
    if machine::machine().0.bytes < 64 {
        return;
    }
    let (options, isa) = amx::processor();
    for (m, k, n) in [("3", 17, 33), ("40", 64, 5), ("n", 70, 70), ("32", 600, 40)] {
        let numbers = literal(k * n);
        let text = f(
            &format!(
                "%x: t<{m} x {k} x bf16>) -> (y: t<{m} x {n} x bf16>, z: t<{m} x {n} x bf16>)"
            ),
            &format!(
                "%w = constant() {{value = dense<t<{k} x {n} x bf16>, {numbers}>}}
                 %v = constant() {{value = dense<t<{n} x {k} x bf16>, {numbers}>}}
                 %y = matmul(%x, %w)
                 %t = transpose(%v) {{permutation = [1, 0]}}
                 %0 = matmul(%x, %t)
                 %z = relu(%0)
                 return %y, %z"
            ),
        );
        let native = machine::Native::of(&text, (isa, options.clone()));
        assert!(native.plan.kernels.iter().any(|kernel| kernel.lowered.code.tiles), "{text}");
        machine::agree(&native, &[("n", 45)]);
        assert!(!amx::in_use(), "kernels give the tiles back");
    }
}

/// The first of equal elements, and of NaN, wherever lanes begin.
#[test]
fn positions_of_extrema() {
    for dims in ["17", "33 x 7", "7 x 33", "n x 50", "2 x 270 x 3", "3 x n x m"] {
        let rank = dims.matches('x').count() + 1;
        for dtype in ["f32", "f64", "i8", "u32", "bf16"] {
            let folds = (0..rank).map(|axis| {
                let left = dims.split(" x ").enumerate().filter(|(a, _)| *a != axis);
                let left = left.map(|(_, dim)| format!("{dim} x ")).collect::<String>();
                (format!("axis = {axis}"), left)
            });
            let all: Vec<_> = folds.chain([(String::new(), String::new())]).collect();
            let types = all.iter().enumerate().flat_map(|(i, (_, left))| {
                ["a", "b"].map(|name| format!("{name}{i}: t<{left}i64>"))
            });
            let ops = all.iter().enumerate().map(|(i, (axis, _))| {
                format!("%a{i} = argmax(%0) {{{axis}}}\n%b{i} = argmin(%0) {{{axis}}}\n")
            });
            let results: Vec<String> = (0..all.len()).map(|i| format!("%a{i}, %b{i}")).collect();
            // Numbers with many ties, and the root of what is below 0.
            let floats = "%r = floor(%x)\n%s = sqrt(%r)\n%0 = add(%s, %r)\n";
            let text = f(
                &format!("%x: t<{dims} x {dtype}>) -> ({})", types.collect::<Vec<_>>().join(", ")),
                &format!(
                    "{}{}return {}",
                    if dtype.contains('f') { floats } else { "%0 = neg(%x)\n" },
                    ops.collect::<String>(),
                    results.join(", ")
                ),
            );
            check(&text, &[("n", 19), ("m", 37)]);
        }
    }
}

#[test]
fn backwards() {
    for dims in ["17", "33 x 7", "7 x 33", "n x 50", "3 x n x m"] {
        for axis in 0..=dims.matches('x').count() {
            for dtype in ["f32", "f64", "i8", "bool", "bf16"] {
                let text = f(
                    &format!(
                        "%x: t<{dims} x {dtype}>) -> (y: t<{dims} x {dtype}>, z: t<{dims} x {dtype}>)"
                    ),
                    &format!(
                        "%y = reverse(%x) {{axes = [{axis}]}}\n%0 = maximum(%x, %y)\n\
                         %z = reverse(%0) {{axes = [{axis}]}}\nreturn %y, %z"
                    )
                    .replace("maximum", if dtype == "bool" { "or" } else { "maximum" }),
                );
                check(&text, &[("n", 19), ("m", 37)]);
            }
        }
    }
}

/// Dividing a row by one number multiplies by its reciprocal, without a difference in the results.
#[test]
fn quotients_by_one_number_are_exact() {
    let specials = "[0.0, -0.0, 1.0, 49.0, inf, -inf, nan, 1e-45, 1e-38, 3e38, 0.1, -7.5, 2.9, \
                    -1e-38, 5.0, 4.9e-32, 7e30]";
    for (dtype, least) in [("f32", f32::MIN_POSITIVE as f64), ("f64", f64::MIN_POSITIVE)] {
        let text = f(
            &format!(") -> (r: t<17 x 17 x {dtype}>)"),
            &format!(
                "%x = constant() {{value = dense<t<17 x {dtype}>, {specials}>}}
                 %y = constant() {{value = dense<t<17 x 1 x {dtype}>, {specials}>}}
                 %r = div(%x, %y)
                 return %r"
            ),
        );
        let native = machine::Native::new(&text);
        let entry = native.module.entry().expect("an entry");
        let want = mithril_ir::evaluate::evaluate(&native.module, entry, &[]).expect("values");
        let got = native.run(&[]);
        let numbers: Vec<f64> = specials
            .trim_matches(['[', ']'])
            .split(", ")
            .map(|x| x.parse().expect("a number"))
            .collect();
        let ulp = if dtype == "f32" { f32::EPSILON as f64 } else { f64::EPSILON };
        for (i, (w, g)) in want[0].to_f64s().iter().zip(got[0].to_f64s()).enumerate() {
            // What is left of a tiny number is subnormal, and so may its quotient be.
            let tiny = numbers[i % 17].abs() < least / ulp || w.abs() < least;
            let near = tiny && (w - g).abs() <= ulp * w.abs().max(least);
            let same = w.to_bits() == g.to_bits() || (w.is_nan() && g.is_nan()) || near;
            assert!(same, "{dtype}: number {} by number {}: want {w:e}, got {g:e}", i % 17, i / 17);
        }
    }
}

/// Sums over rows are gathered in blocks of rows, on the way through what they are sums of.
#[test]
fn column_sums_during_row_loops() {
    for (rows, n) in [("7", 5), ("300", 70), ("1000", 333), ("n", 33), ("1", 16)] {
        let text = f(
            &format!(
                "%x: t<{rows} x {n} x f32>, %c: t<{rows} x {n} x f32>, %w: t<{n} x f32>) -> (l: t<f32>, dx: t<{rows} x {n} x f32>, dw: t<{n} x f32>, db: t<{n} x f32>)"
            ),
            "%0 = mul(%x, %w)
             %1 = silu(%0)
             %2 = mul(%1, %c)
             %l = sum(%2)
             %3 = mul(%1, %x)
             %dw = sum(%3) {axes = [0]}
             %4 = mul(%c, %w)
             %5 = add(%4, %1)
             %db = sum(%5) {axes = [0]}
             return %l, %5, %dw, %db",
        );
        let native = machine::Native::new(&text);
        machine::agree(&native, &[("n", 150)]);
        machine::agree(&native, &[("n", 1)]);
        machine::agree(&native, &[("n", 0)]);
    }
    for dtype in ["f64", "bf16", "i32"] {
        let text = f(
            &format!(
                "%x: t<3 x 90 x 5 x 7 x {dtype}>) -> (y: t<3 x 90 x 5 x 7 x {dtype}>, s: t<5 x 7 x {dtype}>)"
            ),
            "%y = mul(%x, %x)
             %s = sum(%y) {axes = [0, 1]}
             return %y, %s",
        );
        check(&text, &[]);
    }
}

#[test]
fn gradients_of_norms() {
    let text = f(
        "%x: t<b x 40 x 96 x f32>, %w: t<96 x f32>, %c: t<b x 40 x 96 x f32>) -> (y: t<b x 40 x 96 x f32>, g: t<96 x f32>, h: t<96 x f32>, l: t<f32>)",
        "%0 = mean(%x) {axes = [-1], keepdim = true}
         %1 = sub(%x, %0)
         %2 = mul(%1, %1)
         %3 = mean(%2) {axes = [-1], keepdim = true}
         %4 = sqrt(%3)
         %5 = div(%1, %4)
         %6 = mul(%5, %c)
         %7 = mul(%c, %w)
         %8 = mul(%7, %5)
         %9 = mean(%8) {axes = [-1], keepdim = true}
         %10 = mul(%5, %9)
         %11 = sub(%7, %10)
         %12 = div(%11, %4)
         %g = sum(%6) {axes = [0, 1]}
         %h = sum(%c) {axes = [0, 1]}
         %l = sum(%6)
         return %12, %g, %h, %l",
    );
    check(&text, &[("b", 3)]);
}

/// Lanes that follow each other may be cut by a view that begins anywhere.
#[test]
fn views_with_any_offset() {
    let text = f(
        "%x: t<2 x 133 x f32>, %z: t<4 x 48 x f32>) -> (y: t<2 x 2 x 64 x f32>, w: t<2 x 260 x f32>, v: t<8 x 32 x f32>)",
        "%0 = slice(%x) {axes = [1], starts = [5], limits = [133], steps = [1]}
         %1 = reshape(%0) {shape = [2 x 2 x 64]}
         %y = exp(%1)
         %2 = reshape(%1) {shape = [2 x 128]}
         %3 = transpose(%1) {permutation = [1, 0, 2]}
         %4 = reshape(%3) {shape = [2 x 128]}
         %5 = slice(%x) {axes = [1], starts = [0], limits = [4], steps = [1]}
         %6 = concat(%5, %2, %4) {axis = 1}
         %w = sin(%6)
         %zero = constant() {value = dense<t<f32>, 0.5>}
         %7 = pad(%z, %zero) {low = [0, 3], high = [0, 13], interior = [0, 0]}
         %8 = reshape(%7) {shape = [8 x 32]}
         %v = exp(%8)
         return %y, %w, %v",
    );
    check(&text, &[]);
}

/// Large results go past the caches where that pays.
#[test]
fn streams() {
    let isa = Isa { streams: true, ..machine::machine().0 };
    for text in [
        f("%x: t<2048 x 1040 x f32>) -> (y: t<2048 x 1040 x f32>)", "%y = softmax(%x)\nreturn %y"),
        f(
            "%x: t<2048 x 2 x 520 x f32>, %c: t<f32>) -> (y: t<2048 x 2 x 520 x f32>)",
            "%y = mul(%x, %c)\nreturn %y",
        ),
    ] {
        let native = machine::Native::of(&text, (isa, machine::machine().1));
        assert!(native.plan.kernels.iter().any(|kernel| kernel.text().contains("nontemporal")));
        machine::agree(&native, &[]);
    }
}

/// The row maximum is computed once, also if several axes number the rows.
#[test]
fn rows_of_several_axes_stream() {
    let isa = Isa { streams: true, ..machine::machine().0 };
    let loops = ["2048 x 1040", "4 x 512 x 1040"].map(|shape| {
        let signature = format!("%x: t<{shape} x f32>) -> (y: t<{shape} x f32>)");
        let text = f(&signature, "%y = softmax(%x)\nreturn %y");
        let native = machine::Native::of(&text, (isa, machine::machine().1));
        machine::agree(&native, &[]);
        let texts = native.plan.kernels.iter().map(|kernel| kernel.text());
        texts.map(|text| text.matches("scf.for").count()).sum::<usize>()
    });
    assert!(loops[0] > 0 && loops[0] == loops[1], "{loops:?}");
}

/// Rows and lines of every length, around the axis and along it, with indices of any rank.
#[test]
fn scatters() {
    for dtype in ["f32", "f64", "bf16", "i32"] {
        for (axis, shape, updates) in [
            (0, "n x m", "k x 2 x m"),
            (1, "3 x n x m", "3 x k x 2 x m"),
            (1, "m x n", "m x k x 2"),
            (0, "n x 2 x m", "k x 2 x 2 x m"),
            (-1, "n", "k x 2"),
        ] {
            let native = machine::Native::new(&f(
                &format!(
                    "%x: t<{shape} x {dtype}>, %i: t<k x 2 x i64>, %u: t<{updates} x {dtype}>) -> (a: t<{shape} x {dtype}>, b: t<{shape} x {dtype}>)"
                ),
                &format!(
                    "%0 = scatter_add(%x, %i, %u) {{axis = {axis}}}
                     %1 = sub(%x, %x)
                     %2 = scatter_add(%1, %i, %u) {{axis = {axis}}}
                     return %0, %2"
                ),
            ));
            for (n, m, k) in [(9, 7, 5), (1, 130, 3), (40, 16, 33), (3, 5, 0), (0, 3, 2), (5, 0, 2)]
            {
                machine::agree(&native, &[("n", n), ("m", m), ("k", k)]);
            }
        }
        let native = machine::Native::new(&f(
            &format!(
                "%x: t<n x m x {dtype}>, %i: t<k x m x i64>, %u: t<k x m x {dtype}>, %j: t<n x k x i64>, %v: t<n x k x {dtype}>) -> (a: t<n x m x {dtype}>, b: t<n x m x {dtype}>)"
            ),
            "%0 = scatter_add_along(%x, %i, %u) {axis = 0}
             %1 = scatter_add_along(%x, %j, %v) {axis = 1}
             return %0, %1",
        ));
        for (n, m, k) in [(9, 7, 5), (1, 130, 3), (4, 3, 0), (0, 3, 2), (3, 0, 2)] {
            machine::agree(&native, &[("n", n), ("m", m), ("k", k)]);
        }
    }
}

/// The gradient of a linear layer's weights has a row for each feature, and sums over an open
/// batch; few rows are computed while one operand is read from end to end.
#[test]
fn few_features_and_an_open_batch() {
    for level in ["x86-64-v2", "x86-64-v3"] {
        let host = Host::parse(level).unwrap_or_else(|e| panic!("{e}"));
        if !host::levels().iter().any(|own| own.name() == host.name()) {
            continue;
        }
        let options =
            Options { cpu: host.level.cpu.into(), features: host.features, ..Options::default() };
        for (features, dtype) in (1..=16).flat_map(|n| [(n, "f32"), (n, "f64"), (n, "i32")]) {
            let text = f(
                &format!(
                    "%x: t<batch x {features} x {dtype}>, %d: t<batch x n x {dtype}>) -> (w: t<{features} x n x {dtype}>)"
                ),
                "%0 = dot_general(%x, %d) {x_contract = [0], y_contract = [0]}\nreturn %0",
            );
            let native = machine::Native::of(&text, (host.isa, options.clone()));
            for (batch, n) in [(1, 1), (9, 10), (16, 33), (33, 130), (0, 5)] {
                machine::agree(&native, &[("batch", batch), ("n", n)]);
            }
        }
    }
}
