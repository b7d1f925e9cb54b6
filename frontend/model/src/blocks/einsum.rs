//! Einstein summation, as pairwise contractions, sums and transposes.

use mithril_ir::algebra::Var;
use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};
use mithril_ir::op::Class;

use super::elementwise::done;
use super::parameter::required;
use super::{BASE, Entry, Group, Kind, Meaning, Value, data, gives};
use crate::lower::Cx;

pub(super) const BLOCKS: &[Entry] = &[Entry {
    name: "Einsum",
    doc: "The sum of products given by `equation`, as in NumPy: `\"bij,bjk->bik\"`. `...` stands \
          for all unlabelled axes, which broadcast: `\"...ij,...jk->...ik\"`; if the result has \
          no `...`, they are summed. Without `->` the result has the axes of `...`, then the \
          labels that occur once, in alphabetical order.",
    formula: "einsum(equation, *inputs)",
    example: gives(&["[[1, 2]]", "[[3, 4], [5, 6]]"], "[[13. 16.]]").with_settings("\"ij,jk->ik\""),
    group: Group::Shape,
    parameters: &[
        required("equation", Kind::Str).doc("the labels of each input's axes and of the result's")
    ],
    inputs: &[data("inputs", Class::Number).many()],
    meaning: Meaning::Lower(lower),
    same_dtype: true,
    ..BASE
}];

/// Stands for `...` in a parsed equation.
const REST: char = '…';

/// The label of axis `at` of those that `...` stands for, taken from Unicode's private use area.
fn rest_label(at: usize) -> char {
    char::from_u32(0xE000 + at as u32).unwrap_or(REST)
}

/// An equation: the labels of each operand and of the result.
struct Equation {
    operands: Vec<Vec<char>>,
    output: Vec<char>,
}

/// A value with the label of each of its axes.
struct Term<'a> {
    value: Var<'a>,
    labels: Vec<char>,
}

fn lower(cx: &Cx) -> Result<Vec<Value>> {
    let inputs = cx.list("inputs");
    let equation = parse(cx.text("equation"), inputs.len())?;
    let open = |input: &Var, labels: &[char]| input.shape().rank().is_none() && has_rest(labels);
    if inputs.iter().zip(&equation.operands).any(|(input, labels)| open(input, labels))
        && let Some(value) = of_any_rank(&inputs, &equation)
    {
        return done(value);
    }
    let (terms, output) = labelled(inputs, equation)?;
    let mut rest = terms.into_iter().map(without_repeats);
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

fn has_rest(labels: &[char]) -> bool {
    labels.contains(&REST)
}

/// The operands with a label for each axis, and the labels of the result. Axes that `...` stands
/// for are numbered from the last one, as in broadcasting. An axis with one element loses its label
/// if another operand has more elements there. Errors: the number of labels differs from the number
/// of axes.
fn labelled<'a>(inputs: Vec<Var<'a>>, equation: Equation) -> Result<(Vec<Term<'a>>, Vec<char>)> {
    let mut counts = Vec::with_capacity(inputs.len());
    for (value, labels) in inputs.iter().zip(&equation.operands) {
        let named = labels.iter().filter(|c| **c != REST).count();
        let rank = value.shape().need_rank().map_err(|mut error| {
            let needs = error.needs_rank.as_mut().filter(|_| !has_rest(labels));
            needs.into_iter().for_each(|needs| needs.rank = Some(named));
            error
        })?;
        if rank < named || (rank > named && !has_rest(labels)) {
            let least = if has_rest(labels) { " at most, besides `...`" } else { "" };
            return Diagnostic::of(ErrorKind::Shapes, "the numbers of labels and axes differ")
                .got(format!("{} for {}", text(labels), value.shape()))
                .expected(format!("{rank} labels{least}"))
                .err();
        }
        counts.push(rank - named);
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let expand = |labels: &[char], count: usize| -> Vec<char> {
        let own = |c: &char| match *c == REST {
            true => (0..count).rev().map(rest_label).collect(),
            false => vec![*c],
        };
        labels.iter().flat_map(own).collect()
    };
    let terms = inputs.into_iter().zip(&equation.operands).zip(counts);
    let terms = terms.map(|((value, own), count)| Term { value, labels: expand(own, count) });
    let mut terms: Vec<Term> = terms.collect();
    for label in (0..most).map(rest_label) {
        broadcast(&mut terms, label);
    }
    Ok((terms, expand(&equation.output, most)))
}

/// Broadcasts axes with this label: removes those with one element, if another term has more.
fn broadcast(terms: &mut [Term], label: char) {
    let one = |term: &Term| {
        let at = term.labels.iter().position(|c| *c == label)?;
        Some((at, term.value.shape().dims[at].as_const() == Some(1)))
    };
    if terms.iter().filter_map(one).all(|(_, one)| one) {
        // If all have one element, the first term keeps its axis for the result.
        let mut having = terms.iter_mut().filter(|term| term.labels.contains(&label));
        having.next();
        having.for_each(|term| drop_axis(term, label));
        return;
    }
    let short = terms.iter_mut().filter(|term| one(term).is_some_and(|(_, one)| one));
    short.for_each(|term| drop_axis(term, label));
}

fn drop_axis(term: &mut Term, label: char) {
    term.value = term.value.squeeze(&[place(&term.labels, label)]);
    term.labels.retain(|c| *c != label);
}

/// The sum of products of operands with unknown rank, if it can be expressed without knowing the
/// rank: for a single operand, or as a matrix product. Operands with `...` must begin with it, and
/// the ranks of the others must be known.
fn of_any_rank<'a>(inputs: &[Var<'a>], equation: &Equation) -> Option<Var<'a>> {
    let (output, last) = equation.output.split_first()?;
    let named =
        |labels: &[char]| -> Vec<char> { labels.iter().copied().filter(|c| *c != REST).collect() };
    let fits = |(input, labels): (&Var, &Vec<char>)| match has_rest(labels) {
        true => labels[0] == REST,
        false => input.shape().rank() == Some(labels.len()),
    };
    if *output != REST || !inputs.iter().zip(&equation.operands).all(fits) {
        return None;
    }
    match (inputs, &equation.operands[..]) {
        ([x], [labels]) => of_one(*x, &named(labels), last),
        ([x, y], [x_labels, y_labels]) => {
            let (x_own, y_own) = (named(x_labels), named(y_labels));
            // A vector's axes of `...` would be read as the rows of a matrix.
            let vector = |own: &[char], labels: &[char], other: &[char]| {
                own.len() == 1 && has_rest(labels) && has_rest(other)
            };
            let mixed = vector(&x_own, x_labels, y_labels) || vector(&y_own, y_labels, x_labels);
            let lone = y_own.len() == 1 && has_rest(y_labels);
            if mixed || lone {
                return None;
            }
            matrices((*x, &x_own), (*y, &y_own), last)
        }
        _ => None,
    }
}

/// Sums over some of the last axes of a value, or swaps them.
fn of_one<'a>(x: Var<'a>, labels: &[char], output: &[char]) -> Option<Var<'a>> {
    if labels.iter().enumerate().any(|(i, c)| labels[..i].contains(c)) {
        return None;
    }
    let kept: Vec<char> = labels.iter().copied().filter(|c| output.contains(c)).collect();
    let lost = (0..labels.len()).filter(|&i| !output.contains(&labels[i]));
    let lost: Vec<i64> = lost.map(|i| i as i64 - labels.len() as i64).collect();
    let sum = if lost.is_empty() { x } else { x.sum(Some(&lost), false) };
    match (&kept[..], output) {
        (own, output) if own == output => Some(sum),
        ([a, b], [c, d]) if a == d && b == c => Some(sum.swap_last()),
        _ => None,
    }
}

/// The product of two values, taken as matrices or vectors over their last axes.
fn matrices<'a>(
    (x, x_labels): (Var<'a>, &[char]),
    (y, y_labels): (Var<'a>, &[char]),
    output: &[char],
) -> Option<Var<'a>> {
    let mut shared = x_labels.iter().filter(|c| y_labels.contains(c));
    let contracted = *shared.next().filter(|c| !output.contains(c))?;
    let rest = |labels: &[char]| -> Vec<char> {
        labels.iter().copied().filter(|c| *c != contracted).collect()
    };
    let (rows, columns) = (rest(x_labels), rest(y_labels));
    let small = shared.next().is_none() && rows.len() <= 1 && columns.len() <= 1;
    if !small || output != [&rows[..], &columns[..]].concat() {
        return None;
    }
    let swap = |value: Var<'a>, swapped: bool| if swapped { value.swap_last() } else { value };
    let x = swap(x, !rows.is_empty() && x_labels[0] == contracted);
    let y = swap(y, !columns.is_empty() && y_labels[1] == contracted);
    Some(x.matmul(y))
}

/// Labels in the notation of an equation.
fn text(labels: &[char]) -> String {
    labels.iter().map(|c| if *c == REST { "...".into() } else { c.to_string() }).collect()
}

fn parse(equation: &str, count: usize) -> Result<Equation> {
    let wrong = |why: &str| {
        Diagnostic::new(format!("the equation of `Einsum` {why}"))
            .got(format!("{equation:?}"))
            .hint("\"ij,jk->ik\" is a matrix product, \"...ij,...jk->...ik\" one for each batch")
            .err()
    };
    let whole: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let own = !whole.contains(REST);
    let whole = whole.replace("...", &REST.to_string());
    let (left, right) = match whole.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&*whole, None),
    };
    let operands: Vec<Vec<char>> = left.split(',').map(|s| s.chars().collect()).collect();
    let all = || operands.iter().flatten().copied();
    let known = |c: char| c.is_ascii_alphabetic() || c == REST;
    if !own || !all().chain(right.unwrap_or("").chars()).all(known) {
        return wrong("has labels that are not letters");
    }
    if operands.len() != count {
        return wrong(&format!("names {} operands, but {count} are connected", operands.len()));
    }
    if operands.iter().any(|own| own.iter().filter(|c| **c == REST).count() > 1) {
        return wrong("has two `...` in one operand");
    }
    let output: Vec<char> = match right {
        Some(right) => right.chars().collect(),
        None => {
            let once = |c: &char| *c != REST && all().filter(|o| o == c).count() == 1;
            let mut once: Vec<char> = all().filter(once).collect();
            once.sort_unstable();
            all().find(|c| *c == REST).into_iter().chain(once).collect()
        }
    };
    if output.iter().enumerate().any(|(i, c)| output[..i].contains(c)) {
        return wrong("repeats a label in its result");
    }
    if let Some(c) = output.iter().find(|c| **c != REST && all().all(|o| o != **c)) {
        return wrong(&format!("has `{c}` only in its result"));
    }
    Ok(Equation { operands, output })
}

fn place(labels: &[char], label: char) -> i64 {
    labels.iter().position(|c| *c == label).unwrap_or(0) as i64
}

/// Replaces axes with a repeated label in one operand by their diagonal.
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

/// Sums over the axes whose labels are not needed.
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

/// Contracts two terms.
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
