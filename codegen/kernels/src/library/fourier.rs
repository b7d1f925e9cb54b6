//! Discrete Fourier transforms along an axis. A task transforms several lines at once, one in each
//! lane, so that all arithmetic is on vectors. A single line is transformed on its own.
//!
//! An inverse transform is a forward one with the real and the imaginary parts exchanged.

mod chirp;
mod large;
mod passes;
mod plan;
mod squares;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::Operation;
use mithril_ir::op::access::{Access, Fourier, Library};
use mithril_ir::op::fourier::{norm_name, scaled_by};
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::code::{Binary, Mem, Ty, Unary, V};
use crate::loops::Loops;
use crate::lower::index::{Index, Ix};
use crate::lower::nest::register_dtype;
use crate::lower::reduce::product;
use plan::Plan;

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel { shares, ..LibraryKernel::plain("fourier") },
    lower: |function, op, isa| {
        standalone::lower(function, op, isa, |own| own.fourier(isa.fma || isa.source.vectorizes))
    },
};

/// The minimum number of elements per thread. With fewer, starting a thread does not pay.
const MIN_THREAD_ELEMENTS: i64 = 1 << 15;
/// The number of lines of a task in code for C, whose compiler vectorizes over them.
const LINES_IN_C: i64 = 8;

fn transform_of(op: &Operation) -> Option<Fourier> {
    match op.op.access {
        Access::Library(Library::Fourier(transform)) => Some(transform),
        _ => None,
    }
}

/// Whether the operations are the two parts of one transform.
fn shares(a: &Operation, b: &Operation) -> bool {
    let attrs = |op: &Operation| ["axis", "size", "norm"].map(|name| op.attr(name).clone());
    transform_of(a) == transform_of(b) && a.operands == b.operands && attrs(a) == attrs(b)
}

/// The lines that a task transforms, and where their elements are.
struct Lines<'a> {
    transform: Fourier,
    plan: &'a Plan,
    axis: usize,
    /// The dims of the operand, with 1 along the axis, and the number of lines.
    others: Vec<Dim>,
    count: V,
    /// The lengths of the operand and of the transform.
    given: V,
    length: V,
}

impl Standalone<'_> {
    fn fourier(&mut self, fuses: bool) -> Dim {
        let transform = transform_of(self.op).expect("the entry is that of Fourier transforms");
        let axis = self.axis();
        let x = self.op.operands[0];
        let dims = self.nest.dims(x).to_vec();
        let length = self.transform_length(transform, axis);
        let mut others = dims.clone();
        others[axis] = Dim::Const(1);
        let lines = product(&others);
        let unit = match (lines.as_const(), i64::from(self.nest.lanes)) {
            (Some(count), 1) => count.clamp(1, LINES_IN_C),
            (None, 1) => LINES_IN_C,
            // Less than a third of a vector would be used.
            (Some(count), lanes) if count * 3 < lanes => 1,
            (_, lanes) => lanes,
        };
        if let Some(length) = length.as_const() {
            self.grain = (MIN_THREAD_ELEMENTS / (length * unit).max(1)).max(1);
        }
        let dtype = register_dtype(self.nest.dtype(x));
        let plan = Plan::new(&mut self.nest, &length, unit, dtype, fuses);
        self.scratch = plan.scratch.clone();
        let (given, size) = (self.nest.dim(&dims[axis]), self.nest.dim(&length));
        let count = self.nest.dim(&lines);
        let own = Lines { transform, plan: &plan, axis, others, count, given, length: size };
        let tasks = lines.ceil_div(&Dim::Const(unit));
        self.tasks(&[tasks], |standalone, task| {
            let task = standalone.nest.as_value(task[0]);
            let first = standalone.nest.b.times(task, unit);
            own.load(standalone, first);
            let source = plan.transform(&mut standalone.nest.b);
            own.store(standalone, first, source);
        })
    }

    /// The number of elements that are transformed.
    fn transform_length(&self, transform: Fourier, axis: usize) -> Dim {
        match (transform, self.op.attr("size")) {
            (_, Attr::Shape(size)) => size.dims[0].clone(),
            (Fourier::InverseReal, _) => self.nest.dims(self.op.result())[axis].clone(),
            _ => self.nest.dims(self.op.operands[0])[axis].clone(),
        }
    }
}

impl Lines<'_> {
    /// Calls `body` for each vector of lines, or for each line, with its place, whose index along
    /// the axis is not set, and the number of lines before it.
    fn each_vector(
        &self,
        own: &mut Standalone,
        first: V,
        body: impl FnOnce(&mut Standalone, &Index, V),
    ) {
        let (lanes, unit) = (own.nest.lanes, self.plan.unit);
        let (zero, last) = (own.nest.b.index(0), own.nest.b.offset(self.count, -1));
        if unit == 1 || lanes == 1 {
            let unit = own.nest.b.index(unit);
            return own.each(zero, unit, 1, |own, before| {
                let line = own.nest.b.add(first, before);
                let line = own.nest.b.binary(Binary::Min, line, last);
                let place = own.nest.unravel(&self.others, Ix::Uniform(line));
                body(own, &place, before);
            });
        }
        let inner = self.others.last().and_then(Dim::as_const).unwrap_or(0);
        let ix = match inner > 0 && inner % i64::from(lanes) == 0 {
            true => Ix::Ascending(first),
            false => {
                let all = own.nest.as_vector(Ix::Ascending(first));
                let last = own.nest.splat(last, lanes);
                Ix::Scattered(own.nest.b.binary(Binary::Min, all, last))
            }
        };
        let place = own.nest.unravel(&self.others, ix);
        body(own, &place, zero);
    }

    /// Whether the elements of a single line are next to each other.
    fn is_contiguous(&self, own: &Standalone) -> bool {
        let inner = &self.others[self.axis + 1..];
        let alone = self.plan.unit == 1 && own.nest.lanes > 1;
        alone && inner.iter().all(|dim| dim.as_const() == Some(1))
    }

    /// Calls `body` for each index from `start` to `to` along the axis, or for vectors of indices if
    /// lines are contiguous.
    fn each_element(
        &self,
        own: &mut Standalone,
        mut start: V,
        to: V,
        mut body: impl FnMut(&mut Standalone, V, Ix),
    ) {
        if self.is_contiguous(own) {
            let size = own.nest.b.index(i64::from(own.nest.lanes));
            let rest = own.nest.b.binary(Binary::Rem, to, size);
            let whole = own.nest.b.sub(to, rest);
            own.each(start, whole, i64::from(own.nest.lanes), |own, i| {
                body(own, i, Ix::Ascending(i));
            });
            start = whole;
        }
        own.each(start, to, 1, |own, i| body(own, i, Ix::Uniform(i)));
    }

    /// The number of elements of a line that are loaded: half of a spectrum is completed by
    /// conjugates.
    fn loaded(&self, own: &mut Standalone) -> V {
        let b = &mut own.nest.b;
        match self.transform {
            Fourier::InverseReal => {
                let two = b.index(2);
                let half = b.div(self.length, two);
                b.offset(half, 1)
            }
            Fourier::Forward | Fourier::Inverse | Fourier::Real => self.length,
        }
    }

    /// Loads lines, cut or padded with zeros to the length of the transform.
    fn load(&self, own: &mut Standalone, first: V) {
        let loaded = self.loaded(own);
        let known = own.nest.b.binary(Binary::Min, self.given, loaded);
        let start = self.load_squares(own, first, known);
        self.each_vector(own, first, |own, place, before| {
            self.each_element(own, start, known, |own, i, ix| {
                let mut place = place.clone();
                place[self.axis] = ix;
                let lanes = self.width(own, &place);
                let mut parts = Vec::new();
                for value in own.op.operands.clone() {
                    let v = own.nest.pull(value, &place);
                    parts.push(own.nest.splat(v, lanes));
                }
                let zeros = Ty { dtype: self.plan.dtype, lanes };
                let zeros = own.nest.b.number(zeros, 0.0);
                self.put(own, i, before, [parts[0], parts.get(1).copied().unwrap_or(zeros)]);
            });
            let lanes = self.width(own, place);
            let zeros = own.nest.b.number(Ty { dtype: self.plan.dtype, lanes }, 0.0);
            own.each(known, loaded, 1, |own, i| self.put(own, i, before, [zeros; 2]));
        });
        if self.transform == Fourier::InverseReal {
            self.mirror(own, loaded);
        }
    }

    /// The number of elements that are loaded at once. If a task has a line in each lane, all lanes
    /// are set, even if there is only one line: each lane is a copy of it, and is stored.
    fn width(&self, own: &Standalone, place: &Index) -> u32 {
        let (lanes, all) = (own.nest.lanes_of(place), own.nest.lanes);
        if self.plan.unit == i64::from(all) { lanes.max(all) } else { lanes }
    }

    /// Whether real and imaginary parts are exchanged.
    fn is_inverse(&self) -> bool {
        matches!(self.transform, Fourier::Inverse | Fourier::InverseReal)
    }

    /// The memory of the real parts and of the imaginary ones.
    fn parts(&self) -> [Mem; 2] {
        let Plan { re, im, .. } = self.plan;
        if self.is_inverse() { [*im, *re] } else { [*re, *im] }
    }

    /// Stores element `i` of lines before they are transformed.
    fn put(&self, own: &mut Standalone, i: V, before: V, parts: [V; 2]) {
        let b = &mut own.nest.b;
        let at = b.times(i, self.plan.unit);
        let at = b.add(at, before);
        for (mem, v) in self.parts().into_iter().zip(parts) {
            b.store(mem, at, v, None);
        }
    }

    /// Completes spectra of real numbers: element `n - k` is the conjugate of element `k`.
    fn mirror(&self, own: &mut Standalone, loaded: V) {
        let (plan, [re, im]) = (self.plan, self.parts());
        let b = &mut own.nest.b;
        let (one, count) = (b.index(1), b.sub(self.length, loaded));
        let end = b.add(count, one);
        b.each(one, end, 1, |b, k| {
            let other = b.sub(self.length, k);
            let (from, to) = (b.times(k, plan.unit), b.times(other, plan.unit));
            plan.each_line(b, |b, line, lanes| {
                let (from, to) = (b.add(from, line), b.add(to, line));
                let (x, y) = (b.load(re, from, lanes, None), b.load(im, from, lanes, None));
                b.store(re, to, x, None);
                let y = b.unary(Unary::Neg, y);
                b.store(im, to, y, None);
            });
        });
    }

    /// Stores the parts of the transformed lines that are results, scaled.
    fn store(&self, own: &mut Standalone, first: V, source: V) {
        let results = self.results(own);
        let dims = own.nest.dims(own.op.result());
        let kept = own.nest.dim(&dims[self.axis].clone());
        let scale = self.scale(own);
        let start = self.store_squares(own, first, source, kept, (&results, scale));
        self.each_vector(own, first, |own, place, before| {
            self.each_element(own, start, kept, |own, k, ix| {
                let mut place = place.clone();
                place[self.axis] = ix;
                let lanes = own.nest.lanes_of(&place);
                let at = own.nest.b.times(k, self.plan.unit);
                let at = own.nest.b.add(at, before);
                let at = own.nest.b.add(at, source);
                for &(result, part) in &results {
                    let mut v = own.nest.b.load(self.parts()[part], at, lanes, None);
                    if let Some(scale) = scale {
                        let scale = own.nest.splat(scale, lanes);
                        v = own.nest.b.mul(v, scale);
                    }
                    own.nest.write(own.nest.results[result], dims, &place, v);
                }
            });
        });
    }

    /// The results, each with the part that it is.
    fn results(&self, own: &Standalone) -> Vec<(usize, usize)> {
        let part = |at: usize| {
            let op = own.nest.definition(own.nest.f.results[at].value).unwrap_or(own.op);
            let second = op.op.attr_index("of").is_some_and(|i| op.attrs[i] == Attr::Int(1));
            (at, usize::from(second))
        };
        (0..own.nest.f.results.len()).map(part).collect()
    }

    /// The number that results are multiplied by, if it is not 1.
    fn scale(&self, own: &mut Standalone) -> Option<V> {
        let power = scaled_by(norm_name(own.op.attr("norm")), self.is_inverse())?;
        let b = &mut own.nest.b;
        if let Some(length) = b.constant(self.length) {
            let scale = (length as f64).powf(-power);
            return Some(b.number(Ty::scalar(self.plan.dtype), scale));
        }
        let mut length = b.convert(self.length, DType::F64);
        if power == 0.5 {
            length = b.unary(Unary::Sqrt, length);
        }
        let one = b.number(Ty::scalar(DType::F64), 1.0);
        let scale = b.div(one, length);
        Some(b.convert(scale, self.plan.dtype))
    }
}
