//! Initial values: their distributions, and the seeds and names that they depend on.

use mithril_model::init::Draw;

fn drawn(draw: &Draw, seed: u64, name: &str, shape: &[usize]) -> Vec<f64> {
    draw.values(seed, name, shape).unwrap()
}

/// The mean, the variance, and the mean of the fourth powers.
fn moments(values: &[f64]) -> [f64; 3] {
    let mean = |power: i32| values.iter().map(|v| v.powi(power)).sum::<f64>() / values.len() as f64;
    [mean(1), mean(2), mean(4)]
}

fn assert_close(got: [f64; 3], expected: [f64; 3]) {
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 0.02, "{got} and {expected}");
    }
}

#[test]
fn moments_match_the_distributions() {
    let shape = [1000, 300];
    assert_close(moments(&drawn(&Draw::Normal(1.0), 3, "w", &shape)), [0.0, 1.0, 3.0]);
    assert_close(moments(&drawn(&Draw::Uniform(-1.0, 1.0), 3, "w", &shape)), [0.0, 1.0 / 3.0, 0.2]);
    // A standard normal number within two deviations has the variance 0.7737.
    let truncated = drawn(&Draw::TruncatedNormal, 3, "w", &shape);
    assert_close(moments(&truncated), [0.0, 0.7737, 1.4156]);
    assert!(truncated.iter().all(|v| v.abs() <= 2.0));
    assert!(drawn(&Draw::Constant(0.5), 3, "w", &[7]).iter().all(|v| *v == 0.5));
}

#[test]
fn numbers_depend_on_seed_name_and_index() {
    for draw in [Draw::Normal(2.0), Draw::Uniform(0.0, 1.0), Draw::TruncatedNormal] {
        let own = drawn(&draw, 1, "w", &[1001]);
        // The same numbers on one thread and on several.
        assert_eq!(own, drawn(&draw, 1, "w", &[1 << 17])[..1001]);
        assert_ne!(own, drawn(&draw, 2, "w", &[1001]));
        assert_ne!(own, drawn(&draw, 1, "v", &[1001]));
        assert!(own.windows(2).all(|two| two[0] != two[1]));
    }
}

#[test]
fn orthogonal_matrices_have_orthonormal_rows_or_columns() {
    for [rows, columns] in [[5, 9], [9, 5], [6, 6], [1, 1]] {
        let values = drawn(&Draw::Orthogonal, 0, "w", &[rows, columns]);
        let (count, other) = (rows.min(columns), rows.max(columns));
        let at = |i: usize, k: usize| match rows <= columns {
            true => values[i * columns + k],
            false => values[k * columns + i],
        };
        for (i, j) in (0..count).flat_map(|i| (0..count).map(move |j| (i, j))) {
            let product: f64 = (0..other).map(|k| at(i, k) * at(j, k)).sum();
            let expected = if i == j { 1.0 } else { 0.0 };
            assert!((product - expected).abs() < 1e-14, "{rows} x {columns}: {product}");
        }
    }
    assert!(drawn(&Draw::Orthogonal, 0, "w", &[0, 3]).is_empty());
}
