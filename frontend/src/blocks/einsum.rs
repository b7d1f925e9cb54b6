//! Einstein summation: contractions of pairs, sums and transposes.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::op::Class;

use super::elementwise::done;
use super::parameter::required;
use super::{BASE, Entry, Group, Kind, Meaning, Value, data};
use crate::lower::Cx;

pub(super) const BLOCKS: &[Entry] = &[Entry {
    name: "Einsum",
    doc: "The sum of products that `equation` says, as NumPy has it: `\"bij,bjk->bik\"`. Without \
          `->` the result has the labels that occur once, in alphabetical order.",
    group: Group::Shape,
    parameters: &[required("equation", Kind::Str)],
    inputs: &[data("inputs", Class::Number).many()],
    meaning: Meaning::Lower(lower),
    keeps: true,
    ..BASE
}];

/// A value with the label of each of its axes.
struct Term<'a> {
    value: Var<'a>,
    labels: Vec<char>,
}

fn lower(cx: &Cx) -> Result<Vec<Value>> {
    let equation = cx.text("equation");
    let inputs = cx.list("inputs");
    let (operands, output) = parse(equation, inputs.len())?;
    let mut terms = Vec::new();
    for (value, labels) in inputs.into_iter().zip(operands) {
        let rank = value.shape().need_rank()?;
        if rank != labels.len() {
            return Diagnostic::new(
                "Incompatible shapes during compilation: labels and axes differ in number",
            )
            .got(format!("{} for {}", labels.iter().collect::<String>(), value.shape()))
            .expected(format!("{rank} labels"))
            .err();
        }
        terms.push(without_repeats(Term { value, labels }));
    }
    let mut rest = terms.into_iter();
    let mut total = rest.next().expect("there is an input for each operand");
    let mut others: Vec<Term> = rest.collect();
    while !others.is_empty() {
        let next = others.remove(0);
        let needed = |c: char| output.contains(&c) || others.iter().any(|t| t.labels.contains(&c));
        total = pair(cx, total, next, &needed);
    }
    total = summed(total, &|c| output.contains(&c));
    let order = output.iter().map(|c| place(&total.labels, *c));
    let order: Vec<i64> = order.collect();
    let sorted = order.iter().enumerate().all(|(i, &p)| i as i64 == p);
    done(if sorted { total.value } else { total.value.transpose(&order) })
}

fn parse(equation: &str, count: usize) -> Result<(Vec<Vec<char>>, Vec<char>)> {
    let wrong = |why: &str| {
        Diagnostic::new(format!("the equation of `Einsum` {why}"))
            .got(format!("\"{equation}\""))
            .hint("\"ij,jk->ik\" is a matrix product")
            .err()
    };
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match text.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&*text, None),
    };
    let operands: Vec<Vec<char>> = left.split(',').map(|s| s.chars().collect()).collect();
    let all = || operands.iter().flatten().copied();
    if !all().chain(right.unwrap_or("").chars()).all(|c| c.is_ascii_alphabetic()) {
        return wrong("has labels that are not letters");
    }
    if operands.len() != count {
        return wrong(&format!("names {} operands, {count} are connected", operands.len()));
    }
    let output: Vec<char> = match right {
        Some(right) => right.chars().collect(),
        None => {
            let mut once: Vec<char> =
                all().filter(|c| all().filter(|o| o == c).count() == 1).collect();
            once.sort_unstable();
            once
        }
    };
    if output.iter().enumerate().any(|(i, c)| output[..i].contains(c)) {
        return wrong("repeats a label in its result");
    }
    if let Some(c) = output.iter().find(|c| all().all(|o| o != **c)) {
        return wrong(&format!("has `{c}` in its result alone"));
    }
    Ok((operands, output))
}

fn place(labels: &[char], label: char) -> i64 {
    labels.iter().position(|c| *c == label).unwrap_or(0) as i64
}

/// Diagonals in place of labels that one operand repeats.
fn without_repeats<'a>(mut term: Term<'a>) -> Term<'a> {
    loop {
        let labels = &term.labels;
        let repeated = (0..labels.len()).find_map(|i| {
            let j = (i + 1..labels.len()).find(|&j| labels[j] == labels[i])?;
            Some((i, j))
        });
        let Some((i, j)) = repeated else {
            return term;
        };
        let others = (0..labels.len()).filter(|k| *k != i && *k != j);
        let order: Vec<usize> = others.chain([i, j]).collect();
        let permutation: Vec<i64> = order.iter().map(|&k| k as i64).collect();
        let moved = term.value.transpose(&permutation);
        term = Term {
            value: moved.unary("diagonal", &[]),
            labels: order[..order.len() - 1].iter().map(|&k| labels[k]).collect(),
        };
    }
}

/// Sums over the labels that nothing needs.
fn summed<'a>(term: Term<'a>, needed: &dyn Fn(char) -> bool) -> Term<'a> {
    let lost: Vec<i64> =
        (0..term.labels.len()).filter(|&i| !needed(term.labels[i])).map(|i| i as i64).collect();
    if lost.is_empty() {
        return term;
    }
    Term {
        value: term.value.sum(Some(&lost), false),
        labels: term.labels.into_iter().filter(|c| needed(*c)).collect(),
    }
}

/// The contraction of two terms.
fn pair<'a>(cx: &Cx<'a>, x: Term<'a>, y: Term<'a>, needed: &dyn Fn(char) -> bool) -> Term<'a> {
    let (x_labels, y_labels) = (x.labels.clone(), y.labels.clone());
    let x = summed(x, &|c| needed(c) || y_labels.contains(&c));
    let y = summed(y, &|c| needed(c) || x_labels.contains(&c));
    let both = x.labels.iter().copied().filter(|c| y.labels.contains(c));
    let (batch, contract): (Vec<char>, Vec<char>) = both.partition(|c| needed(*c));
    let axes =
        |term: &Term, labels: &[char]| Attr::ints(labels.iter().map(|c| place(&term.labels, *c)));
    let attrs = [
        ("x_batch", axes(&x, &batch)),
        ("y_batch", axes(&y, &batch)),
        ("x_contract", axes(&x, &contract)),
        ("y_contract", axes(&y, &contract)),
    ];
    let rest = |term: &Term| -> Vec<char> {
        let own = term.labels.iter().copied();
        own.filter(|c| !batch.contains(c) && !contract.contains(c)).collect()
    };
    let labels = [batch.clone(), rest(&x), rest(&y)].concat();
    Term { value: cx.op("dot_general", &[x.value, y.value], &attrs), labels }
}
