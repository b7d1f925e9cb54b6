//! Factors: how the axes of an operation's operands and results belong together, for dividing
//! arrays over devices. Derived from what the op table says about elements, in the manner of the
//! factors of Shardy (openxla.org) and GSPMD (Xu et al. 2021).

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::Kind;
use mithril_ir::op::access::{
    Access, Attention, Fold, Gather, Library, Pieces, Scatter, fold_axes,
};
use mithril_ir::op::infer::as_ints;
use mithril_ir::op::view::IndexMap;

/// What devices can do with parts of a factor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// Each part of the results depends on the same part of the operands alone.
    Parallel,
    /// Each part of the operands gives one term of the results. This fold combines the terms.
    Reduced(Fold),
    /// A device needs all of it.
    Whole,
    /// A device needs all of it, but not at one time: parts may go round the devices that have the
    /// parts of this factor.
    Passed { by: usize },
}

impl Division {
    /// Whether the computation can be divided along the factor.
    pub fn divides(self) -> bool {
        matches!(self, Division::Parallel | Division::Reduced(_))
    }
}

/// A dimension of an operation's computation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Factor {
    pub division: Division,
    /// The number of parts into which it can be divided at most; the number of parts must divide it.
    pub size: Dim,
}

/// The factors of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Factors {
    pub factors: Vec<Factor>,
    /// For each operand, the factor of each axis. Without those that a rank variable stands for.
    pub operands: Vec<Vec<usize>>,
    /// The same for each result.
    pub results: Vec<Vec<usize>>,
    /// The operand that only one of the terms of a reduction takes; the others take the fold's
    /// neutral element in its place.
    pub once: Option<usize>,
}

impl Factors {
    /// The factors of an operation of a function. A composite other than attention has those of its
    /// decomposition, which are not looked at here: all its axes are whole.
    pub fn of(function: &Function, op: &Operation) -> Factors {
        let dims = |value| function.ty(value).shape.dims.to_vec();
        let mut factors = Factors::default();
        for value in &op.operands {
            let own = dims(*value).into_iter().map(|size| factors.add(Division::Whole, size));
            let own = own.collect();
            factors.operands.push(own);
        }
        for value in op.results() {
            let own = dims(value).into_iter().map(|size| factors.add(Division::Whole, size));
            let own = own.collect();
            factors.results.push(own);
        }
        // Axes that a rank variable stands for shift all others.
        let ranked = op.operands.iter().copied().chain(op.results());
        if ranked.into_iter().all(|value| function.ty(value).shape.lead.is_none()) {
            factors.join(function, op);
        }
        factors.without_unused()
    }

    fn add(&mut self, division: Division, size: Dim) -> usize {
        self.factors.push(Factor { division, size });
        self.factors.len() - 1
    }

    fn join(&mut self, function: &Function, op: &Operation) {
        match op.op.access {
            Access::Meaning if op.op.kind == Kind::Elementwise => self.broadcast(),
            Access::Meaning => {}
            // Each device makes its own part.
            Access::Constant(_) | Access::Random(_) => {}
            Access::View(_) if op.op.kind == Kind::Barrier => self.first_axes(),
            Access::View(_) => {
                if let Some(map) = function.index_map(op) {
                    self.view(&map);
                }
            }
            Access::Pieces(Pieces::Concat) => self.along(op),
            Access::Pieces(Pieces::Pad) => self.pad(op),
            Access::Gather(Gather::Take) => self.take(op),
            Access::Gather(Gather::TakeAlong) => self.take_along(op),
            // An axis is parallel if the slice has all of it.
            Access::Gather(Gather::SliceUpdate | Gather::DynamicSlice | Gather::DynamicUpdate) => {
                self.same_axes(&[])
            }
            Access::Fold(fold) => self.fold(function, op, Some(fold)),
            Access::Library(Library::ArgExtremum { .. }) => self.fold(function, op, None),
            Access::Contract => self.contract(op),
            Access::Scatter(Scatter::Rows) => self.scatter_rows(op),
            Access::Scatter(Scatter::Along(fold)) => self.scatter_along(op, fold),
            Access::Library(
                Library::Cumulative(_) | Library::Sort { .. } | Library::Fourier(_),
            ) => {
                self.along(op);
            }
            Access::Library(Library::Matrix(_)) => self.batches(2),
            Access::Library(Library::Grouped { .. }) => {}
            Access::Library(Library::Attention(of)) => self.attention(op, of),
        }
    }

    /// Makes one factor of two axes, which can be divided as long as both can.
    fn link(&mut self, one: usize, other: usize, division: Division) {
        if one != other {
            let places = self.operands.iter_mut().chain(&mut self.results).flatten();
            places.filter(|own| **own == other).for_each(|own| *own = one);
            let (size, second) = (&self.factors[one].size, &self.factors[other].size);
            if size != second && second.exact_div(size).is_none() {
                self.factors[one].size = second.clone();
            }
        }
        self.factors[one].division = division;
    }

    /// Whether two axes have the same size as far as is known.
    fn fits(&self, one: usize, other: usize) -> bool {
        self.factors[one].size == self.factors[other].size
    }

    /// Operands are aligned at their last axes; axes of size 1 are repeated.
    fn broadcast(&mut self) {
        let Some(result) = self.results.first().cloned() else { return };
        for at in 0..self.operands.len() {
            let operand = self.operands[at].clone();
            for (own, wanted) in operand.iter().rev().zip(result.iter().rev()) {
                if self.fits(*own, *wanted) {
                    self.link(*wanted, *own, Division::Parallel);
                }
            }
        }
        result.iter().for_each(|own| self.factors[*own].division = Division::Parallel);
    }

    /// The result has the axes of the first operand. Others are not read.
    fn first_axes(&mut self) {
        let (from, to) = (self.operands[0].clone(), self.results[0].clone());
        for (one, other) in to.iter().zip(&from) {
            self.link(*one, *other, Division::Parallel);
        }
    }

    /// All operands and results have the same axes, of which these are whole.
    fn same_axes(&mut self, whole: &[usize]) {
        let Some(first) = self.results.first().cloned() else { return };
        let all = (0..self.operands.len()).map(|at| (true, at));
        let all: Vec<(bool, usize)> =
            all.chain((1..self.results.len()).map(|at| (false, at))).collect();
        for (is_operand, at) in all {
            let own = if is_operand { &self.operands[at] } else { &self.results[at] }.clone();
            if own.len() != first.len() {
                continue;
            }
            for (axis, (one, other)) in first.iter().zip(&own).enumerate() {
                if !whole.contains(&axis) && self.fits(*one, *other) {
                    self.link(*one, *other, Division::Parallel);
                }
            }
        }
    }

    /// All axes but that of the attribute `axis` are the same.
    fn along(&mut self, op: &Operation) {
        let rank = self.operands.first().map_or(0, Vec::len);
        let axis = match op.op.attr_index("axis").map(|at| &op.attrs[at]) {
            Some(Attr::Int(axis)) => axis.rem_euclid(rank.max(1) as i64) as usize,
            _ => return,
        };
        self.same_axes(&[axis]);
    }

    /// `x` and the indices have the same axes but one; the result has those of the indices.
    fn take_along(&mut self, op: &Operation) {
        self.along(op);
        let (indices, to) = (self.operands[1].clone(), self.results[0].clone());
        for (own, read) in to.iter().zip(&indices) {
            self.link(*own, *read, Division::Parallel);
        }
        self.looked_up(op);
    }

    /// Along the axis that indices count, each device reads the elements that it has, and others are
    /// 0 in its term.
    fn looked_up(&mut self, op: &Operation) {
        let x = &self.operands[0];
        if let Attr::Int(axis) = op.attr("axis") {
            let axis = axis.rem_euclid(x.len().max(1) as i64) as usize;
            if let Some(own) = x.get(axis) {
                self.factors[*own].division = Division::Reduced(Fold::Sum);
            }
        }
    }

    fn view(&mut self, map: &IndexMap) {
        let (from, to) = (self.operands[0].clone(), self.results[0].clone());
        match map {
            IndexMap::Affine(axes) => {
                let mut read = vec![0; to.len()];
                let terms = axes.iter().flat_map(|own| &own.terms);
                terms.for_each(|(axis, _)| read[*axis] += 1);
                for (own, map) in from.iter().zip(axes) {
                    if let Some(axis) = map.same_axis().filter(|axis| read[*axis] == 1) {
                        if self.fits(*own, to[axis]) {
                            self.link(to[axis], *own, Division::Parallel);
                        }
                    }
                }
                // Axes along which the operand is repeated.
                let repeated = to.iter().zip(&read).filter(|(_, count)| **count == 0);
                repeated.for_each(|(own, _)| self.factors[*own].division = Division::Parallel);
            }
            IndexMap::Reshape(pairs) => {
                for (result, operand) in pairs {
                    let is_long = |own: &&usize| self.factors[**own].size.as_const() != Some(1);
                    let first = |all: &[usize]| all.iter().find(is_long).copied();
                    let (Some(one), Some(other)) =
                        (first(&to[result.clone()]), first(&from[operand.clone()]))
                    else {
                        continue;
                    };
                    let (size, second) = (&self.factors[one].size, &self.factors[other].size);
                    // The outer axes are divided alike if one is a multiple of the other.
                    if size.exact_div(second).is_some() || second.exact_div(size).is_some() {
                        self.link(one, other, Division::Parallel);
                    }
                }
            }
        }
    }

    fn pad(&mut self, op: &Operation) {
        let changed = |axis: usize| {
            ["low", "high", "interior"].iter().any(|name| {
                let own = op.op.attr_index(name).and_then(|at| as_ints(&op.attrs[at]));
                own.and_then(|own| own.get(axis).copied()).is_some_and(|own| own != 0)
            })
        };
        let rank = self.results[0].len();
        let whole: Vec<usize> = (0..rank).filter(|axis| changed(*axis)).collect();
        self.same_axes(&whole);
    }

    /// The indices replace an axis of the operand.
    fn take(&mut self, op: &Operation) {
        let (x, indices, to) =
            (self.operands[0].clone(), self.operands[1].clone(), self.results[0].clone());
        let Attr::Int(axis) = op.attr("axis") else { return };
        let axis = axis.rem_euclid(x.len().max(1) as i64) as usize;
        for (at, own) in to.iter().enumerate() {
            let read = match at {
                _ if at < axis => x[at],
                _ if at < axis + indices.len() => indices[at - axis],
                _ => x[at + 1 - indices.len()],
            };
            self.link(*own, read, Division::Parallel);
        }
        self.looked_up(op);
    }

    fn fold(&mut self, function: &Function, op: &Operation, fold: Option<Fold>) {
        let (operand, result) = (function.ty(op.operands[0]), function.ty(op.result()));
        let axes = fold_axes(op.op, &op.attrs, operand, result);
        let (from, to) = (self.operands[0].clone(), self.results[0].clone());
        for (own, (folded, place)) in from.iter().zip(axes.folded.iter().zip(&axes.places)) {
            match (folded, place, fold) {
                (false, Some(place), _) => self.link(to[*place], *own, Division::Parallel),
                (true, _, Some(fold)) => self.factors[*own].division = Division::Reduced(fold),
                (true, _, None) | (false, None, _) => {}
            }
        }
    }

    fn contract(&mut self, op: &Operation) {
        let ints = |name: &str| as_ints(op.attr(name)).unwrap_or(&[]).to_vec();
        let (x, y, to) =
            (self.operands[0].clone(), self.operands[1].clone(), self.results[0].clone());
        let axes = |name: &str, of: &[usize]| -> Vec<usize> {
            let rank = of.len().max(1) as i64;
            ints(name).iter().map(|axis| axis.rem_euclid(rank) as usize).collect()
        };
        let (x_batch, y_batch) = (axes("x_batch", &x), axes("y_batch", &y));
        let (x_sum, y_sum) = (axes("x_contract", &x), axes("y_contract", &y));
        for (one, other) in x_sum.iter().zip(&y_sum) {
            self.link(x[*one], y[*other], Division::Reduced(Fold::Sum));
        }
        for (one, other) in x_batch.iter().zip(&y_batch) {
            self.link(x[*one], y[*other], Division::Parallel);
        }
        let free = |of: &[usize], batch: &[usize], sum: &[usize]| -> Vec<usize> {
            let rest = (0..of.len()).filter(|axis| !batch.contains(axis) && !sum.contains(axis));
            rest.map(|axis| of[axis]).collect()
        };
        let read = x_batch.iter().map(|axis| x[*axis]);
        let read = read.chain(free(&x, &x_batch, &x_sum)).chain(free(&y, &y_batch, &y_sum));
        for (own, read) in to.iter().zip(read.collect::<Vec<_>>()) {
            self.link(*own, read, Division::Parallel);
        }
    }

    /// `x`, indices and updates, whose axes of the indices replace one axis of `x`. Updates of
    /// different indices are added.
    fn scatter_rows(&mut self, op: &Operation) {
        let (x, indices, updates, to) = (
            self.operands[0].clone(),
            self.operands[1].clone(),
            self.operands[2].clone(),
            self.results[0].clone(),
        );
        let Attr::Int(axis) = op.attr("axis") else { return };
        let axis = axis.rem_euclid(x.len().max(1) as i64) as usize;
        for (at, own) in to.iter().enumerate() {
            self.link(*own, x[at], Division::Parallel);
            // Along `axis`, each device adds the updates of the rows that it has.
            if at != axis {
                let update = if at < axis { at } else { at + indices.len() - 1 };
                self.link(*own, updates[update], Division::Parallel);
            }
        }
        for (at, own) in indices.iter().enumerate() {
            self.link(*own, updates[axis + at], Division::Reduced(Fold::Sum));
        }
        self.once = Some(0);
    }

    /// `x`, indices and updates have the same axes; along one of them, elements are combined.
    fn scatter_along(&mut self, op: &Operation, fold: Fold) {
        let rank = self.results[0].len();
        let Attr::Int(axis) = op.attr("axis") else { return };
        let axis = axis.rem_euclid(rank.max(1) as i64) as usize;
        let (indices, updates) = (self.operands[1].clone(), self.operands[2].clone());
        self.same_axes(&[axis]);
        if indices.len() == rank && updates.len() == rank {
            self.link(indices[axis], updates[axis], Division::Reduced(fold));
        }
        self.once = Some(0);
    }

    /// Each query is computed by itself from all keys. The gradients of keys and values are sums
    /// over the queries.
    fn attention(&mut self, op: &Operation, of: Attention) {
        let is_of_keys = of == Attention::Gradient && op.attr("of").as_int() != 0;
        let is_sum = matches!(of, Attention::LogSumExp | Attention::RowMax);
        let given = |name: &str| op.operand_index(name).map(|at| self.operands[at].clone());
        let mask = given("mask").unwrap_or_default();
        let [query, key, value] = [0, 1, 2].map(|at| self.operands[at].clone());
        // Log-sum-exps and maxima have no features.
        let sums = ["logsumexp", "row_max"].into_iter().filter_map(given).map(|own| (own, 1));
        let arrays = ["output", "gradient"].into_iter().filter_map(given).map(|own| (own, 2));
        let mut of_queries: Vec<(Vec<usize>, usize)> = sums.chain(arrays).collect();
        let mut of_keys = vec![(value, 2)];
        let result = (self.results[0].clone(), if is_sum { 1 } else { 2 });
        if is_of_keys { &mut of_keys } else { &mut of_queries }.push(result);
        let batches = query.len() - 2;
        let all = || of_queries.iter().chain(&of_keys);
        if key.len() != query.len() || all().any(|(own, last)| own.len() != batches + last) {
            return;
        }
        let (queries, keys) = (query[batches], key[batches]);
        let division = if is_of_keys { Division::Reduced(Fold::Sum) } else { Division::Parallel };
        of_queries.iter().for_each(|(own, _)| self.link(queries, own[batches], division));
        let passed = Division::Passed { by: queries };
        of_keys.iter().for_each(|(own, _)| self.link(keys, own[batches], passed));
        let grouped = matches!(op.attr("grouped"), Attr::Bool(true));
        for axis in 0..batches {
            let all = || all().map(|(own, _)| own[axis]).chain([key[axis]]);
            // Several heads of a query may share one of its keys. All are divided as those are.
            let has_groups = grouped && axis + 1 == batches;
            let fits = |own: usize| match has_groups {
                true => self.is_multiple(query[axis], own),
                false => self.fits(query[axis], own),
            };
            if all().all(fits) {
                all().for_each(|own| self.link(query[axis], own, Division::Parallel));
            }
        }
        self.mask(&mask, &query[..=batches]);
    }

    /// The mask of an attention has the batches, heads and rows of queries, or repeats one of them. A
    /// device needs all columns.
    fn mask(&mut self, mask: &[usize], queries: &[usize]) {
        for (own, wanted) in mask.iter().rev().skip(1).zip(queries.iter().rev()) {
            if self.is_multiple(*own, *wanted) {
                self.link(*wanted, *own, self.factors[*wanted].division);
            }
        }
    }

    /// Whether the first axis is known to be as long as the second one, or several times as long.
    fn is_multiple(&self, one: usize, other: usize) -> bool {
        self.factors[one].size.exact_div(&self.factors[other].size).is_some()
    }

    /// All axes but the last ones are batches of all operands and results.
    fn batches(&mut self, last: usize) {
        let ranks = self.operands.iter().chain(&self.results).map(Vec::len);
        let batches = self.operands.first().map_or(0, Vec::len).saturating_sub(last);
        if ranks.clone().any(|rank| rank < batches) {
            return;
        }
        for axis in 0..batches {
            let all: Vec<usize> =
                self.operands.iter().chain(&self.results).map(|own| own[axis]).collect();
            if all.iter().all(|own| self.fits(all[0], *own)) {
                all[1..].iter().for_each(|own| self.link(all[0], *own, Division::Parallel));
                self.factors[all[0]].division = Division::Parallel;
            }
        }
    }

    /// The same factors without those that no axis has any more.
    fn without_unused(mut self) -> Factors {
        let mut numbers = vec![None; self.factors.len()];
        let mut kept = Vec::new();
        for own in self.operands.iter_mut().chain(&mut self.results).flatten() {
            let number = *numbers[*own].get_or_insert_with(|| {
                kept.push(self.factors[*own].clone());
                kept.len() - 1
            });
            *own = number;
        }
        for own in &mut kept {
            if let Division::Passed { by } = &mut own.division {
                *by = numbers[*by].unwrap_or_default(); // an axis of an operand
            }
        }
        Factors { factors: kept, ..self }
    }
}
