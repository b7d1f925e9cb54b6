//! Facts about an operation that templates test: the conditions of alternatives, and defaults.

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::{Arity, Kind};
use mithril_ir::shape::{Shape, Type};
use rustc_hash::FxHashSet;

use super::contraction;
use super::expr::MAX_PARTS;
use super::neighbours::Neighbours;
use super::template::{Guard, Test};

/// The form in which an operand is available.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OperandForm {
    Array,
    /// A Python number that stands for an array of rank 0.
    Number,
    /// The same, with a value known at compile time.
    Literal(f64),
}

/// An operation and the forms in which its operands are available.
pub struct Facts<'a> {
    pub op: &'a Operation,
    pub function: &'a Function,
    /// The other operations of the function.
    pub neighbours: &'a Neighbours<'a>,
    /// The names of all operations of the module.
    pub used: &'a FxHashSet<&'static str>,
    /// The form of each operand.
    pub operand_forms: &'a [OperandForm],
    /// Whether the framework widens sums of integers of this dtype.
    pub widens: bool,
    /// Whether the operation squeezes a slice, so that the two become a single index.
    pub is_picked: bool,
    /// The weights of the product to which the operation adds a bias, if the two become a single
    /// call.
    pub weights: Option<&'a Type>,
    /// Whether the framework chooses the dtypes of operations.
    pub is_mixed: bool,
    /// Whether new arrays must be given a device.
    pub devices: bool,
}

impl<'a> Facts<'a> {
    /// The position of the first value of the operand of this name.
    pub fn operand(&self, name: &str) -> Option<usize> {
        let at = self.op.op.operands.iter().position(|o| o.name == name)?;
        (at < self.op.operands.len()).then_some(at)
    }

    pub fn attr(&self, name: &str) -> Option<&'a Attr> {
        let at = self.op.op.attr_index(name)?;
        self.op.attrs.get(at)
    }

    fn ty(&self, operand: usize) -> &'a Type {
        self.function.ty(self.op.operands[operand])
    }

    pub fn holds(&self, guard: &Guard) -> bool {
        match &guard.test {
            Test::Equals(text) => self.attr(&guard.slot).is_some_and(|a| written(a) == *text),
            Test::Is(word) => match word.as_str() {
                "default" => self.is_default(&guard.slot),
                "sibling" => self.is_sibling(&guard.slot),
                "reader" => self.is_reader(&guard.slot),
                "vacant" => self.is_vacant(&guard.slot),
                "used" => self.is_used(&guard.slot),
                "summed" => self.summed().is_some(),
                "scaled" => contraction::scales((self.function, self.op)),
                "matmul" => contraction::matmul((self.function, self.op)).is_some(),
                "tensordot" => contraction::contracted((self.function, self.op)).is_some(),
                "symmetric" => self.is_symmetric(),
                "few" => self.has_few_filters(),
                "long" => self.has_long_filters(),
                "divided" => self.part().is_some(),
                "linear" => self.weights.is_some(),
                "mixed" => self.is_mixed,
                "sizes" => self.attr(&guard.slot) == self.attr("sizes"),
                "signal" => self.is_batch_of(1),
                "image" => self.is_batch_of(2),
                "volume" => self.is_batch_of(3),
                _ => match (self.operand(&guard.slot), self.attr(&guard.slot)) {
                    (Some(at), _) => self.operand_is(at, word),
                    (None, Some(attr)) => attr_is(attr, word),
                    (None, None) => match guard.slot.as_str() {
                        "result" => type_is(self.function.ty(self.op.result()), word),
                        "weights" => self.weights.is_some_and(|ty| type_is(ty, word)),
                        _ => false,
                    },
                },
            },
        }
    }

    /// Whether an operation of this name exists on the same operands.
    fn is_sibling(&self, name: &str) -> bool {
        self.neighbours.siblings(name, &self.op.operands).next().is_some()
    }

    /// Whether an operation of this name reads the result.
    fn is_reader(&self, name: &str) -> bool {
        self.neighbours.readers(self.op.result()).any(|op| op.op.name == name)
    }

    /// Whether one of these axes of the first operand may be empty; true if that is not known.
    fn is_vacant(&self, slot: &str) -> bool {
        let shape = &self.ty(0).shape;
        let may_be = |dim: &Dim| dim.lower_bound().is_none_or(|least| least < 1);
        let Some(Attr::Ints(axes)) = self.attr(slot) else {
            return shape.lead.is_some() || shape.dims.iter().any(may_be);
        };
        let dim = |axis: i64| match (axis < 0, shape.lead.is_some()) {
            (true, _) => shape.dims.get((axis + shape.dims.len() as i64) as usize),
            (false, true) => None,
            (false, false) => shape.dims.get(axis as usize),
        };
        axes.iter().any(|axis| dim(*axis).is_none_or(may_be))
    }

    /// Whether an operand is known to have fewer elements than the first along some axis.
    fn is_smaller(&self, operand: usize) -> bool {
        let (whole, part) = (&self.ty(0).shape.dims, &self.ty(operand).shape.dims);
        let is_shorter = |(n, k): (&Dim, &Dim)| matches!((n.as_const(), k.as_const()), (Some(n), Some(k)) if k < n);
        whole.iter().rev().zip(part.iter().rev()).any(is_shorter)
    }

    /// Whether the first operand is a batch of channels with this number of axes, which the windows
    /// of the operation slide over. Frameworks may refuse arrays without channels.
    fn is_batch_of(&self, axes: usize) -> bool {
        let shape = &self.ty(0).shape;
        let slides = match self.attr("sizes") {
            Some(Attr::Ints(sizes)) => sizes.len() == axes,
            _ => true,
        };
        let some =
            |shape: &Shape| shape.dims.iter().take(2).skip(1).all(|d| d.as_const() != Some(0));
        slides
            && shape.rank() == Some(axes + 2)
            && self.op.operands.iter().all(|v| some(&self.function.ty(*v).shape))
    }

    /// Whether the padding after each axis is that before it, and at most half of a pooling window.
    fn is_symmetric(&self) -> bool {
        let (Some(low), Some(high)) = (self.attr("low"), self.attr("high")) else {
            return false;
        };
        let fits = |i: usize, padding: i64| match self.attr("sizes") {
            Some(Attr::Ints(sizes)) => 2 * padding <= sizes[i],
            _ => true,
        };
        let mut padding = match low {
            Attr::Ints(list) => &list[..],
            _ => &[],
        }
        .iter()
        .enumerate();
        low == high && padding.all(|(i, n)| *n >= 0 && fits(i, *n))
    }

    /// Whether a convolution has so few filters, and windows so much smaller than the images, that
    /// copying windows of all axes would take longer than products for all rows.
    fn has_few_filters(&self) -> bool {
        let [x, weights] = [0, 1].map(|at| &self.ty(at).shape);
        let sizes: Option<Vec<i64>> = weights.dims.iter().map(Dim::as_const).collect();
        let (Some(_), Some(sizes), Some(axes)) = (weights.rank(), sizes, x.dims.get(2..)) else {
            return false;
        };
        let [filters, channels, taps @ ..] = &sizes[..] else { return false };
        let Some((last, others)) = taps.split_last() else { return false };
        let is_few = *filters > 0 && 4 * filters <= channels * last;
        let fits = |(tap, n): (&i64, &Dim)| n.as_const().is_none_or(|n| 4 * tap <= n);
        (is_few || (*filters, *channels) == (1, 1)) && others.iter().zip(axes).all(fits)
    }

    /// Whether the filters of a convolution have so many taps that Fourier transforms cost less
    /// than sums over taps. Times are in nanoseconds, as measured with NumPy.
    fn has_long_filters(&self) -> bool {
        /// For one element of a transform, whatever its size.
        const TRANSFORM: f64 = 5.0;
        /// For one product of complex numbers, with and without a sum over channels.
        const PRODUCTS: [f64; 2] = [8.0, 2.0];
        /// For one tap of one position. Up to four filters share what it takes to read the image.
        const TAP: f64 = 0.25;
        let [x, weights] = [0, 1].map(|at| &self.ty(at).shape);
        let (Some(_), [filters, channels, taps @ ..]) = (weights.rank(), &weights.dims[..]) else {
            return false;
        };
        let taps: Option<Vec<i64>> = taps.iter().map(Dim::as_const).collect();
        let (Some(filters), Some(channels), Some(taps)) =
            (filters.as_const(), channels.as_const(), taps)
        else {
            return false;
        };
        let axes = x.dims.iter().skip(2).zip(&taps);
        if axes.into_iter().any(|(n, tap)| n.as_const().is_some_and(|n| n < 2 * tap)) {
            return false;
        }
        let batch = x.dims.first().and_then(Dim::as_const).unwrap_or(1);
        let shares: f64 = [filters, channels, batch].iter().map(|n| 1.0 / *n as f64).sum();
        let sum = TAP * taps.iter().product::<i64>() as f64 / filters.min(4) as f64;
        sum >= TRANSFORM * shares + PRODUCTS[usize::from(channels == 1)]
    }

    /// If slices of the first operand divide one of its axes into equal parts: which of them this
    /// slice is, and how many there are. Single elements are no parts, since they are indexed.
    pub fn part(&self) -> Option<(usize, usize)> {
        let (axis, at, count) = self.part_of(self.op)?;
        let siblings = || self.neighbours.siblings(self.op.op.name, &self.op.operands);
        let exists = |at| siblings().any(|op| self.part_of(op) == Some((axis, at, count)));
        (0..count).all(exists).then_some((at, count))
    }

    /// The axis of a slice, and which of equal parts along it the slice could be.
    fn part_of(&self, op: &Operation) -> Option<(i64, usize, usize)> {
        let (Attr::Ints(axes), Attr::Shape(starts), Attr::Shape(limits)) =
            (op.attr("axes"), op.attr("starts"), op.attr("limits"))
        else {
            return None;
        };
        let (&[axis], [start], [limit]) = (&axes[..], &starts.dims[..], &limits.dims[..]) else {
            return None;
        };
        if matches!(op.attr("steps"), Attr::Ints(steps) if **steps != [1]) {
            return None;
        }
        let shape = &self.ty(0).shape;
        let dim = &shape.dims[shape.dims.len() - shape.axis_from_back(axis).ok()?];
        let n = dim.as_const()?;
        let start = start.as_const().map(|start| if start < 0 { start + n } else { start })?;
        let limit = if limit.is_unknown() { n } else { limit.as_const()? };
        let size = limit - start;
        if size < 2 || n % size != 0 || start % size != 0 {
            return None;
        }
        let count = usize::try_from(n / size).ok().filter(|count| *count <= MAX_PARTS)?;
        (count > 1).then_some((axis, (start / size) as usize, count))
    }

    /// Whether the elements of an operand depend on floats, as those of `argmax` do.
    fn depends_on_floats(&self, at: usize) -> bool {
        let mut seen = FxHashSet::default();
        let mut left = vec![self.op.operands[at]];
        while let Some(value) = left.pop() {
            let Some(op) = self.neighbours.producer(value).filter(|_| seen.insert(value)) else {
                continue;
            };
            if op.operands.iter().any(|v| self.function.ty(*v).dtype.is_float()) {
                return true;
            }
            left.extend(&op.operands);
        }
        false
    }

    /// Whether the elements of an operand are random floats, none of which is NaN.
    fn is_drawn(&self, at: usize) -> bool {
        let producer = self.neighbours.producer(self.op.operands[at]);
        producer.is_some_and(|op| matches!(op.op.name, "uniform" | "normal"))
    }

    /// Whether arithmetic computes the elements of an operand. Others are constant, are positions
    /// that an operation found, or come from an argument, whose indices each call checks.
    fn is_calculated(&self, at: usize) -> bool {
        let mut left = vec![self.op.operands[at]];
        while let Some(value) = left.pop() {
            let Some(op) = self.neighbours.producer(value) else { continue };
            let is_int = |v: &Value| self.function.ty(*v).dtype.is_int();
            match (op.op.kind, op.op.name) {
                (Kind::Constant, _) => {}
                (_, "iota" | "argmax" | "argmin" | "argsort" | "argtopk") => {}
                (Kind::Layout | Kind::Barrier, _) => left.extend(&op.operands),
                (_, "expand_dims" | "squeeze" | "swap_axes" | "sort") => left.extend(&op.operands),
                (_, "cast") if op.operands.iter().all(is_int) => left.extend(&op.operands),
                _ => return true,
            }
        }
        false
    }

    /// Whether the module has an operation of this name.
    fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    fn operand_is(&self, at: usize, word: &str) -> bool {
        match (word, self.operand_forms.get(at).copied().unwrap_or(OperandForm::Array)) {
            ("number", form) => form != OperandForm::Array,
            ("array", form) => form == OperandForm::Array,
            ("zero", form) => form == OperandForm::Literal(0.0),
            ("picked", _) => self.is_picked,
            ("smaller", _) => self.is_smaller(at),
            ("computed", _) => self.depends_on_floats(at),
            ("drawn", _) => self.is_drawn(at),
            ("fixed", _) => self.ty(at).shape.as_fixed().is_some(),
            ("calculated", _) => self.is_calculated(at),
            ("one", form) => form == OperandForm::Literal(1.0),
            ("alike", _) => {
                let dtype = |i: usize| self.ty(i).dtype;
                (at..self.op.operands.len()).all(|i| dtype(i) == dtype(at))
            }
            _ => type_is(self.ty(at), word),
        }
    }

    /// The axes over which summing the first operand gives the result's shape, and whether they are
    /// kept as dims of 1. Either leading axes are dropped, or some axes become 1.
    pub fn summed(&self) -> Option<(Vec<i64>, bool)> {
        let (x, to) = (&self.ty(0).shape, &self.function.ty(self.op.result()).shape);
        if x.lead.is_some() || to.lead.is_some() || x.dims.len() < to.dims.len() {
            return None;
        }
        let new = x.dims.len() - to.dims.len();
        let differ = |(i, dim): (usize, &Dim)| (x.dims[new + i] != *dim).then_some(i);
        let differing: Vec<usize> = to.dims.iter().enumerate().filter_map(differ).collect();
        if new > 0 && differing.is_empty() {
            return Some(((0..new as i64).collect(), false));
        }
        let ones = differing.iter().all(|&i| to.dims[i].as_const() == Some(1));
        let axes = differing.iter().map(|&i| i as i64).collect();
        (new == 0 && ones && !differing.is_empty()).then_some((axes, true))
    }

    /// Whether an optional attribute of windows has the values that it has if it is left out.
    fn is_neutral(&self, name: &str, attr: &Attr) -> bool {
        let usual = match name {
            "strides" | "dilations" => 1,
            "low" | "high" | "interior" | "uncounted" => 0,
            _ => return false,
        };
        let definition = self.op.op.attrs.iter().find(|a| a.name == name);
        definition.is_some_and(|d| d.default.value() == Some(Attr::None))
            && matches!(attr, Attr::Ints(list) if list.iter().all(|n| *n == usual))
    }

    /// Whether the slot is absent or at its default, so that an optional segment may omit it.
    pub fn is_default(&self, slot: &str) -> bool {
        let name = slot.split('.').next().unwrap_or(slot);
        if let Some(at) = self.op.op.operands.iter().position(|o| o.name == name) {
            let operand = &self.op.op.operands[at];
            return operand.arity != Arity::One && at >= self.op.operands.len();
        }
        match (name, self.attr(name)) {
            (_, Some(attr)) if self.is_neutral(name, attr) => true,
            (_, Some(attr)) => {
                let definition = self.op.op.attrs.iter().find(|a| a.name == name);
                definition.and_then(|d| d.default.value()).as_ref() == Some(attr)
            }
            ("pads", None) => self.is_default("low") && self.is_default("high"),
            ("kept", None) => self.summed().is_none_or(|(_, kept)| !kept),
            ("narrow", None) => !self.widens,
            ("device", None) => !self.devices,
            (_, None) => false,
        }
    }
}

/// An attribute as it is written in conditions.
fn written(attr: &Attr) -> String {
    match attr {
        Attr::Int(v) => v.to_string(),
        Attr::Float(v) => format!("{v:?}"),
        Attr::Bool(true) => "True".into(),
        Attr::Bool(false) => "False".into(),
        Attr::Ints(v) => match &v[..] {
            [one] => format!("({one},)"),
            _ => {
                let each: Vec<String> = v.iter().map(i64::to_string).collect();
                format!("({})", each.join(", "))
            }
        },
        Attr::None
        | Attr::Str(_)
        | Attr::DType(_)
        | Attr::Shape(_)
        | Attr::Function(_)
        | Attr::Tensor(_) => String::new(),
    }
}

fn attr_is(attr: &Attr, word: &str) -> bool {
    match (attr, word) {
        (Attr::Ints(v), "single") => v.len() == 1,
        (Attr::Ints(v), "empty") => v.is_empty(),
        (Attr::Ints(v), "natural") => v.iter().all(|n| *n >= 0),
        (Attr::Shape(s), "single") => s.lead.is_none() && s.dims.len() == 1,
        (Attr::None, "missing") => true,
        (Attr::DType(d), _) => dtype_is(*d, word),
        _ => false,
    }
}

fn type_is(ty: &Type, word: &str) -> bool {
    match word {
        "scalar" => ty.shape.rank() == Some(0),
        "vector" => ty.shape.rank() == Some(1),
        "matrix" => ty.shape.rank() == Some(2),
        "filled" => {
            let some = |dim: &Dim| dim.lower_bound().is_some_and(|least| least > 0);
            ty.shape.lead.is_none() && ty.shape.dims.iter().all(some)
        }
        _ => dtype_is(ty.dtype, word),
    }
}

fn dtype_is(dtype: DType, word: &str) -> bool {
    match word {
        "half" => matches!(dtype, DType::F16 | DType::BF16),
        "index" => matches!(dtype, DType::I32 | DType::I64),
        "integer" => dtype.is_int(),
        "unsigned" => matches!(dtype, DType::U16 | DType::U32 | DType::U64),
        "short" => dtype.is_int() && dtype.bits() < 32,
        "float" => dtype.is_float(),
        "bool" => dtype == DType::Bool,
        _ => DType::ALL.iter().any(|d| *d == dtype && d.name() == word),
    }
}
