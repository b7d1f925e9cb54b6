//! Every rule of the table is proved by the evaluator: what it makes of its left side gives the
//! same numbers, on random and on special values, and the same gradients.

mod proofs;

use mithril_passes::rules::Class::{Exact, Fast, Reassociating, Recognise};
use mithril_passes::rules::matched::Match;
use mithril_passes::rules::pattern::{among, number, op, vars};
use mithril_passes::rules::{RULES, Rule, choice};
use proofs::{examples, prove, small};

#[test]
fn every_rule_keeps_the_numbers() {
    // Layouts and casts need attributes: they are tried on all that is small.
    let by_example = |rule: &Rule| examples().any(|example| example.rule == rule.name);
    let apart = |rule: &Rule| rule.always && ["layout", "cast"].contains(&rule.topic);
    let rules = RULES.iter().filter(|rule| !apart(rule) || by_example(rule));
    let failures: Vec<String> =
        rules.filter_map(|rule| Some(format!("{}: {}", rule.name, prove(rule).err()?))).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Integers of eight bits and bools: all values and pairs. Shapes: all of at most three axes of at
/// most three elements, with all axes and shapes for attributes, and of two operands all that
/// broadcast; of what is joined all of at most two axes.
#[test]
fn every_rule_holds_for_all_small_cases() {
    let check = |rule: &'static Rule| match small::prove(rule) {
        Ok(true) => None,
        Ok(false) if examples().any(|example| example.rule == rule.name) => None,
        Ok(false) => Some(format!("{}: it never fires", rule.name)),
        Err(why) => Some(format!("{}: {why}", rule.name)),
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    // The rules of one topic follow each other, and take about as long.
    let part = |at: usize| RULES.iter().skip(at).step_by(cores).filter_map(check).collect();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|at| scope.spawn(move || part(at))).collect();
        let found = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        found.flat_map(|found: Vec<String>| found).collect()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn examples_are_of_rules() {
    for example in examples() {
        let known = RULES.iter().any(|rule| rule.name == example.rule);
        assert!(known, "there is no rule `{}`", example.rule);
    }
}

/// Rules that look right, and are not in their class.
fn wrong() -> Vec<Rule> {
    let [x, y, z] = vars();
    let unary = |name: &'static str| move |x| op(name, [x]);
    let [exp, log, abs, sqrt] = ["exp", "log", "abs", "sqrt"].map(unary);
    let [square, relu, tanh] = ["square", "relu", "tanh"].map(unary);
    let [floor, sigmoid, sin] = ["floor", "sigmoid", "sin"].map(unary);
    let pair = |name: &'static str| move |x, y| op(name, [x, y]);
    let [lt, ge, maximum, minimum] = ["lt", "ge", "maximum", "minimum"].map(pair);
    let select = |c, x, y| op("select", [c, x, y]);
    let zero = number(0.0);
    vec![
        choice(Exact, "add-zero-wrongly", x + 0.0, x),
        choice(Exact, "sub-same-float", op("sub", [x, x]), zero),
        choice(Exact, "mul-zero-float", x * 0.0, zero),
        choice(Exact, "associate", (x + y) + z, x + (y + z)),
        choice(Exact, "not-lt-float", !lt(x, y), ge(x, y)),
        choice(Exact, "div-as-mul", x / y, x * (1.0 / y)),
        choice(Exact, "neg-sub-float", -(x - y), y - x),
        choice(Exact, "relu-select", relu(x), select(lt(x, zero), zero, x)),
        choice(Exact, "maximum-swapped", maximum(-x, y), -maximum(x, -y)),
        choice(Exact, "floor-neg", floor(-x), -floor(x)),
        choice(Exact, "abs-mul", abs(x * y), abs(x) * y),
        choice(Recognise, "sqrt-square-plain", sqrt(square(x)), x),
        choice(Recognise, "square-exp", square(exp(x)), exp(square(x))),
        choice(Recognise, "sigmoid-minus", 1.0 - sigmoid(x), -sigmoid(x)),
        choice(Recognise, "naive-tanh", tanh(x), (exp(x) - exp(-x)) / (exp(x) + exp(-x))),
        choice(Recognise, "naive-sigmoid", sigmoid(x), exp(x) / (1.0 + exp(x))),
        choice(Exact, "maximum-twice", maximum(maximum(x, y), y), maximum(x, y)),
        choice(Recognise, "halve-later", x * 0.5 + y * 0.5, (x + y) * 0.5),
        choice(Reassociating, "distribute-wrongly", x * (y + z), x * y + z),
        choice(Reassociating, "sub-associate", (x - y) - z, x - (y - z)),
        choice(Reassociating, "minimum-of-sum", minimum(x, y) + z, minimum(x + z, y)),
        choice(Fast, "log-add", log(x + y), log(x) + log(y)),
        choice(Fast, "sin-double", sin(2.0 * x), 2.0 * sin(x)),
    ]
}

/// Rules of integers and shapes that hold nearly everywhere.
fn wrong_somewhere() -> Vec<Rule> {
    let [x, y] = vars();
    let unary = |name: &'static str| move |x| op(name, [x]);
    let [abs, sign] = ["abs", "sign"].map(unary);
    let [transpose, swap, reverse] = ["transpose", "swap_axes", "reverse"].map(unary);
    let [broadcast, slice, cast, sum] = ["broadcast_in_dim", "slice", "cast", "sum"].map(unary);
    let pair = |name: &'static str| move |x, y| op(name, [x, y]);
    let [lt, maximum, minimum] = ["lt", "maximum", "minimum"].map(pair);
    let zero = number(0.0);
    let rule = |name, left, right| choice(Exact, name, left, right);
    let outer = |m: &Match| Some(m.attrs(0));
    let inner = |m: &Match| Some(m.attrs(1));
    vec![
        // The least number is its own negative, and unsigned ones have none below 0.
        rule("abs-is-positive", maximum(abs(x), zero), abs(x)),
        rule("abs-neg-unsigned", abs(-x), abs(x)),
        rule("maximum-neg-int", maximum(-x, -y), -minimum(x, y)),
        // Differences, squares and products wrap.
        rule("lt-by-sub", lt(x - y, zero), lt(x, y)),
        rule("sign-mul", sign(x * y), sign(x) * sign(y)),
        rule("and-is-minimum", x & y, minimum(x, y)),
        rule("not-is-neg", !x, -x),
        // Of squares, of axes of one size, and of small dims.
        rule("transpose-swapped", transpose(transpose(x)), transpose(x).with(inner)),
        rule("swap-any", swap(swap(x)), x),
        rule("reverse-any", reverse(reverse(x)), x),
        rule("broadcast-any-axes", broadcast(x), x),
        rule("slice-outer", slice(slice(x)), slice(x).with(outer)),
        rule("slice-of-any-part", slice(among("concat", x)), slice(x).with(outer)),
        rule("sum-once", sum(broadcast(x)), sum(x).with(outer)),
        rule("cast-any", cast(cast(x)), x),
        rule(
            "transpose-reverse",
            transpose(reverse(x)),
            reverse(transpose(x).with(outer)).with(inner),
        ),
    ]
}

#[test]
fn wrong_rules_are_caught() {
    let rules: &'static [Rule] = wrong().leak();
    assert!(rules.len() >= 20);
    for rule in rules {
        assert!(prove(rule).is_err(), "{} passes for right", rule.name);
    }
    let rules: &'static [Rule] = wrong_somewhere().leak();
    for rule in rules {
        assert!(small::prove(rule).is_err(), "{} passes for right", rule.name);
    }
}
