//! Joins products that share an operand: each becomes a slice of one product with the concatenation
//! of their other operands. Each element is computed by the same sum as before.

use egg::Id;
use indexmap::IndexMap;
use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation, Role, Value};
use mithril_ir::loc::Loc;
use mithril_ir::op::infer::{as_ints, complete_attrs};
use mithril_ir::op::{self, Op};
use mithril_ir::shape::{Shape, Type};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::terms::{Operator, Terms, is_opaque};
use crate::rules::Rule;

/// The properties that products must have in common to be joined.
#[derive(PartialEq, Eq, Hash)]
struct Common {
    op: Op,
    attrs: SmallVec<[Attr; 2]>,
    shared: Id,
    /// The index of the operand that is not shared.
    operand: usize,
    /// Its type, with the joined axis set to 0.
    rest: Type,
    /// Its axis along which products are joined.
    axis: usize,
    /// How many axes of the result follow the joined one.
    axes_after: usize,
    /// Whether they depend on cotangents of outputs. Products that do not are available earlier, so
    /// they are not joined with products that do.
    backward: bool,
}

/// One of the products to join.
#[derive(Clone, Copy)]
struct Product {
    class: Id,
    other: Id,
    operation: usize,
}

/// Applies the rule to all products that share an operand; with `transposed`, only to those whose
/// shared operand is transposed. Returns the number of batches.
pub fn join(terms: &mut Terms, rule: &'static Rule, transposed: bool) -> usize {
    let before = terms.batches.len();
    let users = users(terms.source);
    for (common, products) in groups(terms, rule) {
        if products.len() > 1 && (!transposed || is_transposed(terms, common.shared)) {
            let whole = product(terms, rule, &common, &products);
            whole.and_then(|whole| biased(terms, rule, &users, &products, whole));
        }
    }
    terms.graph.rebuild();
    terms.batches.len() - before
}

/// Whether a value is the result of a transpose.
fn is_transposed(terms: &Terms, class: Id) -> bool {
    let transposes = ["swap_axes", "transpose"].map(op::get);
    terms.graph[class].nodes.iter().any(|term| match terms.operator(term) {
        Operator::Op { op, .. } => transposes.contains(op),
        Operator::Leaf(..) => false,
    })
}

/// Groups of products that have all but one operand in common and do not depend on each other.
fn groups(terms: &Terms, rule: &Rule) -> IndexMap<Common, Vec<Product>, FxBuildHasher> {
    let mut groups: IndexMap<Common, Vec<Product>, FxBuildHasher> = IndexMap::default();
    let fits = |op: &Operation| rule.left.roots().iter().any(|left| left.may_be(op.op));
    let backward = backward(terms.source);
    let all = terms.source.ops.iter().enumerate();
    for (operation, product_op) in all.filter(|(_, op)| !is_opaque(op) && fits(op)) {
        let class = terms.class(product_op.result());
        for operand in [1, 0] {
            let other = terms.class(product_op.operands[operand]);
            let Some(mut common) = common(terms, product_op, operand) else { continue };
            common.backward = backward[product_op.result().index()];
            let group = groups.entry(common).or_default();
            let known = |product: &Product| product.class == class || product.other == other;
            if !group.iter().any(known) && !reads(terms.source, operation, group) {
                group.push(Product { class, other, operation });
            }
        }
    }
    groups
}

/// The properties that others must share with this product to be joined along an axis of operand
/// `operand`; `None` if that operand has no axis of its own.
fn common(terms: &Terms, product_op: &Operation, operand: usize) -> Option<Common> {
    let classes = [0, 1].map(|at| terms.class(product_op.operands[at]));
    let shapes = classes.map(|class| &terms.ty(class).shape);
    let (axis, axes_after) = own_axis(product_op, [shapes[0].rank()?, shapes[1].rank()?], operand)?;
    if shapes.iter().any(|shape| shape.dims.iter().any(Dim::is_unknown)) {
        return None;
    }
    let mut rest = terms.ty(classes[operand]).clone();
    let width = std::mem::replace(&mut rest.shape.dims[axis], Dim::Const(0));
    // Products with vectors are fast enough on their own.
    if width.as_const() == Some(1) {
        return None;
    }
    let (op, attrs, shared) = (product_op.op, product_op.attrs.clone(), classes[1 - operand]);
    Some(Common { op, attrs, shared, operand, rest, axis, axes_after, backward: false })
}

/// The last axis that only this operand of a product has, and the number of axes of the result
/// after it.
fn own_axis(product_op: &Operation, ranks: [usize; 2], operand: usize) -> Option<(usize, usize)> {
    let rank = ranks[operand];
    let axes = |name| {
        product_op.op.attr_index(name).and_then(|at| as_ints(&product_op.attrs[at])).unwrap_or(&[])
    };
    let shared_axes = |operand: usize| match (product_op.op.attr_index("x_contract"), operand) {
        (Some(_), 0) => [axes("x_batch"), axes("x_contract")].concat(),
        (Some(_), _) => [axes("y_batch"), axes("y_contract")].concat(),
        // In a matrix product, all but the last two axes are batch axes, which broadcast.
        (None, 0) => (0..ranks[0] as i64).filter(|axis| axis + 2 != ranks[0] as i64).collect(),
        (None, _) => (0..ranks[1] as i64)
            .filter(|axis| axis + 1 != ranks[1] as i64 || ranks[1] == 1)
            .collect(),
    };
    let is_shared = |axis: &usize| {
        shared_axes(operand).iter().any(|shared| shared.rem_euclid(rank as i64) as usize == *axis)
    };
    let axis = (0..rank).rev().find(|axis| !is_shared(axis))?;
    let axes_after = if operand == 0 { ranks[1] - shared_axes(1).len() } else { 0 };
    Some((axis, axes_after))
}

/// Whether an operation depends on one of the products, all of which precede it.
fn reads(source: &Function, operation: usize, group: &[Product]) -> bool {
    let Some(first) = group.first() else {
        return false;
    };
    let mut needed = vec![false; source.values.len()];
    let need = |op: &Operation, needed: &mut Vec<bool>| {
        op.operands.iter().for_each(|value| needed[value.index()] = true);
    };
    need(&source.ops[operation], &mut needed);
    for at in (first.operation..operation).rev() {
        let op = &source.ops[at];
        if op.results().any(|value| needed[value.index()]) {
            if group.iter().any(|product| product.operation == at) {
                return true;
            }
            need(op, &mut needed);
        }
    }
    false
}

/// The joined value, of which the products are slices.
struct Whole {
    value: Id,
    /// How many axes follow the joined one.
    axes_after: usize,
    widths: Vec<Dim>,
}

/// Adds the product with the concatenation of all other operands, and merges each product with its
/// slice of that.
fn product(
    terms: &mut Terms,
    rule: &'static Rule,
    common: &Common,
    products: &[Product],
) -> Option<Whole> {
    let origin = origin(terms, rule, products.iter().map(|product| product.operation));
    let others = products.iter().map(|product| product.other).collect();
    let joined = side_by_side(terms, others, common.axis, origin)?;
    let mut operands = SmallVec::from_iter([common.shared, common.shared]);
    operands[common.operand] = joined;
    let value = terms.operation_on(common.op, common.attrs.clone(), operands, origin)?;
    let width = |product: &Product| terms.ty(product.other).shape.dims[common.axis].clone();
    let widths = products.iter().map(width).collect();
    let whole = Whole { value, axes_after: common.axes_after, widths };
    parts(terms, &whole, products.iter().map(|product| product.class), origin)?;
    Some(whole)
}

/// Joins the additions of a bias as well, if each product is read by an addition of a vector along
/// its last axis.
fn biased(
    terms: &mut Terms,
    rule: &'static Rule,
    users: &[Vec<u32>],
    products: &[Product],
    whole: Whole,
) -> Option<()> {
    if whole.axes_after != 0 {
        return None;
    }
    let add = op::get("add");
    let sum = |product: &Product| {
        let result = terms.source.ops[product.operation].result();
        users[result.index()].iter().find_map(|&at| {
            let op = &terms.source.ops[at as usize];
            let row = *op.operands.iter().find(|value| **value != result)?;
            let shape = &terms.ty(terms.class(row)).shape;
            let width = terms.ty(product.class).shape.dims.last();
            let fits = op.op == add && shape.rank() == Some(1) && shape.dims.first() == width;
            fits.then(|| (at as usize, terms.class(op.result()), terms.class(row)))
        })
    };
    let sums: Vec<(usize, Id, Id)> = products.iter().map(sum).collect::<Option<_>>()?;
    let origin = origin(terms, rule, sums.iter().map(|(at, ..)| *at));
    let rows = sums.iter().map(|(.., row)| *row).collect();
    let row = side_by_side(terms, rows, 0, origin)?;
    let operands = SmallVec::from_iter([whole.value, row]);
    let value = terms.operation_on(add, SmallVec::new(), operands, origin)?;
    parts(terms, &Whole { value, ..whole }, sums.iter().map(|(_, class, _)| *class), origin)
}

fn side_by_side(
    terms: &mut Terms,
    operands: SmallVec<[Id; 3]>,
    axis: usize,
    origin: u32,
) -> Option<Id> {
    let concat = op::get("concat");
    let attrs = complete_attrs(concat, &[("axis", Attr::Int(axis as i64))]).ok()?;
    terms.operation_on(concat, attrs, operands, origin)
}

/// Merges each class with its slice of the whole, if all slices have the right types.
fn parts(
    terms: &mut Terms,
    whole: &Whole,
    classes: impl Iterator<Item = Id>,
    origin: u32,
) -> Option<()> {
    let slice = op::get("slice");
    let axis = terms.ty(whole.value).shape.rank()? - 1 - whole.axes_after;
    let mut start = Dim::Const(0);
    let mut parts = Vec::with_capacity(whole.widths.len());
    for (class, width) in classes.zip(&whole.widths) {
        let limit = &start + width;
        let attrs = [
            ("axes", Attr::ints([axis as i64])),
            ("starts", Shape::new([start]).into()),
            ("limits", Shape::new([limit.clone()]).into()),
        ];
        let attrs = complete_attrs(slice, &attrs).ok()?;
        let part = terms.operation_on(slice, attrs, SmallVec::from_iter([whole.value]), origin)?;
        if terms.ty(part) != terms.ty(class) {
            return None;
        }
        parts.push((class, part));
        start = limit;
    }
    terms.batches.push(parts.iter().map(|(class, _)| (*class, origin)).collect());
    for (class, part) in parts {
        terms.graph.union(class, part);
    }
    Some(())
}

fn origin(terms: &mut Terms, rule: &'static Rule, from: impl Iterator<Item = usize>) -> u32 {
    let mut loc = Loc::unknown();
    from.for_each(|at| loc.merge(&terms.source.ops[at].loc));
    terms.origin(loc, None, Some(rule), SmallVec::new())
}

/// By value, whether it depends on cotangents of outputs.
pub fn backward(source: &Function) -> Vec<bool> {
    let mut all = vec![false; source.values.len()];
    for (value, argument) in source.arguments() {
        all[value.index()] = argument.role == Role::Cotangent;
    }
    for op in &source.ops {
        let reads = op.operands.iter().any(|value| all[value.index()]);
        op.results().for_each(|value| all[value.index()] = reads);
    }
    all
}

/// By value, the operations that read it.
fn users(source: &Function) -> Vec<Vec<u32>> {
    let mut users = vec![Vec::new(); source.values.len()];
    for (at, op) in source.ops.iter().enumerate() {
        op.operands.iter().for_each(|value: &Value| users[value.index()].push(at as u32));
    }
    users
}
