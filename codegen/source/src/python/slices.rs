//! Slices and padding as templates name them.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::Result;
use mithril_ir::graph::Operation;

use super::body::{Binding, Body};
use super::expr::{Argument, Expr};

impl<'m> Body<'_, 'm> {
    /// If the operation squeezes a slice that is not yet written: that slice, and the axes along
    /// which the two together take one element. `squeeze(x[:1], 0)` is `x[0]`.
    pub fn picked(&self, op: &Operation) -> Option<(&'m Operation, Vec<usize>)> {
        let value = *op.operands.first()?;
        if !matches!(self.bindings[value.index()], Binding::Pending(Expr::Index(..))) {
            return None;
        }
        let ops = &self.function.ops;
        let slice = &ops[ops.partition_point(|o| o.first <= value).checked_sub(1)?];
        if slice.op.attr_index("starts").is_none() || op.op.attr_index("axes").is_none() {
            return None;
        }
        let shape = &self.function.ty(value).shape;
        let place = |axis: &i64| Some(shape.dims.len() - shape.axis_from_back(*axis).ok()?);
        let ones: Vec<usize> = ints(slice, "axes").iter().map(place).collect::<Option<_>>()?;
        let squeezed: Vec<usize> = ints(op, "axes").iter().map(place).collect::<Option<_>>()?;
        let (Attr::Shape(starts), Attr::Shape(limits)) =
            (slice.attr("starts"), slice.attr("limits"))
        else {
            return None;
        };
        let one = |at: &usize| {
            let i = ones.iter().position(|axis| axis == at)?;
            let start = starts.dims[i].as_const()?;
            let last = start == -1 && limits.dims[i].is_unknown();
            (last || limits.dims[i].as_const() == Some(start + 1)).then_some(())
        };
        (!squeezed.is_empty() && squeezed.iter().all(|at| one(at).is_some()))
            .then_some((slice, squeezed))
    }

    /// The expression of a slice that has an index in place of a range for each axis of `picked`.
    pub fn pick(&mut self, slice: &'m Operation, picked: &[usize]) -> Result<Expr> {
        let items = self.cut(slice, picked)?;
        match self.array(slice.result())? {
            Expr::Index(head, _) => Ok(Expr::Index(head, items)),
            other => Ok(other),
        }
    }

    /// The items between the brackets of a slice.
    pub fn slices(&mut self, op: &'m Operation) -> Result<Vec<Expr>> {
        self.cut(op, &[])
    }

    fn cut(&mut self, op: &'m Operation, picked: &[usize]) -> Result<Vec<Expr>> {
        let shape = self.function.ty(op.operands[0]).shape.clone();
        let (Attr::Ints(axes), Attr::Shape(starts), Attr::Shape(limits)) =
            (op.attr("axes"), op.attr("starts"), op.attr("limits"))
        else {
            return Ok(vec![Expr::name("...")]);
        };
        let count = shape.dims.len();
        let whole = || Expr::Range([None, None, None]);
        let mut items: Vec<Expr> = (0..count).map(|_| whole()).collect();
        for (i, axis) in axes.iter().enumerate() {
            let at = count - shape.axis_from_back(*axis)?;
            let (start, limit) = (&starts.dims[i], &limits.dims[i]);
            let open = limit.is_unknown() || *limit == shape.dims[at];
            let step = match op.attr("steps") {
                Attr::Ints(steps) => steps[i],
                _ => 1,
            };
            if picked.contains(&at) {
                items[at] = self.dim(start)?;
                continue;
            }
            let boxed = |e: Expr| Some(Box::new(e));
            items[at] = Expr::Range([
                if start.as_const() == Some(0) { None } else { boxed(self.dim(start)?) },
                if open { None } else { boxed(self.dim(limit)?) },
                if step == 1 { None } else { boxed(Expr::int(step)) },
            ]);
        }
        if shape.lead.is_some() {
            items.insert(0, Expr::name("..."));
            return Ok(items);
        }
        let before = items.iter().take_while(|item| **item == whole()).count();
        if before >= 2 && before + 1 == count {
            items.drain(..before);
            items.insert(0, Expr::name("..."));
            return Ok(items);
        }
        while items.len() > 1 && items.last() == Some(&whole()) {
            items.pop();
        }
        match items.is_empty() {
            true => Ok(vec![Expr::name("...")]),
            false => Ok(items),
        }
    }
}

/// `slice(start, stop, step)`.
pub fn slice_object(range: Expr) -> Expr {
    let Expr::Range(parts) = range else {
        return range;
    };
    let part = |p: Option<Box<Expr>>| Argument::plain(p.map_or(Expr::name("None"), |p| *p));
    let [start, stop, step] = parts;
    let args = match (&start, &step) {
        (None, None) => vec![part(stop)],
        (Some(_), None) => vec![part(start), part(stop)],
        (_, Some(_)) => vec![part(start), part(stop), part(step)],
    };
    Expr::name("slice").call(args)
}

fn ints<'a>(op: &'a Operation, name: &str) -> &'a [i64] {
    match op.op.attr_index(name).map(|at| &op.attrs[at]) {
        Some(Attr::Ints(v)) => v,
        _ => &[],
    }
}

/// One tuple per axis, with its values of these attributes.
pub fn paddings(op: &Operation, names: &[&str]) -> Vec<Expr> {
    let axis = |i: usize| {
        let of = |name: &&str| Expr::int(ints(op, name).get(i).copied().unwrap_or(0));
        Expr::Tuple(names.iter().map(of).collect())
    };
    (0..ints(op, "low").len()).map(axis).collect()
}

/// The low and high padding of each axis, the last axis first.
pub fn backward_pads(op: &Operation) -> Vec<Expr> {
    let (low, high) = (ints(op, "low"), ints(op, "high"));
    let pairs = low.iter().zip(high).rev();
    pairs.flat_map(|(l, h)| [Expr::int(*l), Expr::int(*h)]).collect()
}
