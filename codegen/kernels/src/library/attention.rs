//! Attention as one kernel, and its gradients as another. Both work on blocks of queries and keys,
//! so the full score matrix is never in memory.
//!
//! Scratch memory is transposed: lanes are queries, so row maxima, sums and rescaling are
//! elementwise vector arithmetic. Elements of keys and values are loaded one at a time and
//! broadcast.

mod backward;
mod forward;
mod fusion;
mod masks;
mod plain;
mod tiles;

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, Result};
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Value};
use mithril_ir::op::access::Attention;
use mithril_passes::library::LibraryKernel;
use mithril_passes::outline::strides::{Strided, strided};

use super::LibraryEntry;
use crate::code::{Mem, V};
use crate::isa::Isa;
use crate::lower::index::Ix;
use crate::lower::lowered::Lowered;
use crate::lower::nest::Nest;
use fusion::{is_attention, transposed};
use tiles::Head;

/// The operands and attributes of an attention kernel.
struct Site {
    operands: Vec<Strided>,
    /// The dims of each operand.
    dims: Vec<Vec<Dim>>,
    /// The head size of queries and keys, and the head size of values.
    width: i64,
    value_width: i64,
    grouped: bool,
    window: Window,
    scale: f64,
    softcap: Option<f64>,
    /// The indices of the mask and of the logits of sinks among the operands.
    mask: Option<usize>,
    sink: Option<usize>,
}

/// The keys that a query attends to by its position, apart from a mask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Window {
    All,
    /// The keys up to the query's own position, of which there are as many as queries.
    Causal,
    /// The keys from `left` before the query's position to `right` after it; `None` means all keys
    /// on that side.
    Band {
        left: Option<i64>,
        right: Option<i64>,
    },
}

/// Windows of this size and larger have no end on that side: indices of rows are smaller.
const UNLIMITED: i64 = 1 << 30;

impl Window {
    fn of(op: &Operation, is_square: bool) -> Window {
        let side = |name: &str| match op.attr(name) {
            Attr::Int(count) => Some(*count).filter(|&count| count < UNLIMITED),
            _ => None,
        };
        let (left, right) = (side("left"), side("right"));
        let right = if matches!(op.attr("causal"), Attr::Bool(true)) { Some(0) } else { right };
        match (left, right) {
            (None, None) => Window::All,
            (None, Some(0)) if is_square => Window::Causal,
            _ => Window::Band { left, right },
        }
    }
}

/// The mask for one head of queries.
#[derive(Clone, Copy)]
struct Mask {
    head: Head,
    /// The stride from one key to the next: 1, or 0 if all keys share an element.
    step: i64,
    /// Whether the mask is added to the scores. Otherwise it is boolean, and sets scores to -inf
    /// where it is false.
    is_additive: bool,
}

/// The memory of attention's output, and the stride of each axis.
struct Output {
    mem: Mem,
    strides: Vec<Dim>,
}

impl Output {
    /// The output of one head.
    fn head(&self, nest: &mut Nest, place: &[V]) -> Head {
        let mut at = nest.b.index(0);
        for (&i, stride) in place.iter().zip(&self.strides) {
            let stride = nest.dim(stride);
            let step = nest.b.mul(i, stride);
            at = nest.b.add(at, step);
        }
        Head { mem: self.mem, at, stride: nest.dim(&self.strides[place.len()]) }
    }
}

/// Indices of the operands.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
/// Indices of further operands of the gradient.
const OUTPUT: usize = 3;
const LOGS: usize = 4;
const GRADIENT: usize = 5;
const ROW_MAX: usize = 7;

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel {
        fits: fusion::fits,
        shares: fusion::shares,
        stores: fusion::stores,
        reads_views: true,
        ..LibraryKernel::plain("attention")
    },
    lower,
};

fn lower(function: &Function, op: &Operation, isa: &Isa) -> Result<Lowered> {
    let nest = Nest::new(function, isa);
    let operands: Option<Vec<Strided>> =
        op.operands.iter().map(|&v| strided(function, &nest.definitions, v)).collect();
    let Some(operands) = operands else {
        return Diagnostic::new("the operands of attention have no strided layout").err();
    };
    let dims: Vec<Vec<Dim>> = op.operands.iter().map(|&v| nest.dims(v).to_vec()).collect();
    let last = |dims: &[Dim]| dims.last().and_then(Dim::as_const).unwrap_or(0);
    let (width, value_width) = (last(&dims[QUERY]), last(&dims[VALUE]));
    let flag = |name: &str| matches!(op.attr(name), Attr::Bool(true));
    let scale = match op.attr("scale") {
        Attr::Float(scale) => *scale,
        _ => 1.0 / (width as f64).sqrt(),
    };
    let softcap = match op.attr("softcap") {
        Attr::Float(cap) => Some(*cap),
        _ => None,
    };
    let rows = |side: usize| &dims[side][dims[side].len() - 2];
    let window = Window::of(op, rows(QUERY) == rows(KEY));
    let [mask, sink] = ["mask", "sink"].map(|name| op.operand_index(name));
    let grouped = flag("grouped");
    let site =
        Site { operands, dims, width, value_width, grouped, window, scale, softcap, mask, sink };
    let gradient = fusion::attention_result(op) == Some(Attention::Gradient);
    Ok(match (gradient, isa.source.vectorizes) {
        (true, true) => plain::backward(nest, &site),
        (true, false) => backward::lower(nest, &site, isa),
        (false, true) => plain::forward(nest, &site),
        (false, false) => forward::lower(nest, &site, isa),
    })
}

impl Site {
    /// The leading axes of an operand: all but the last two, which are the rows (queries, keys or
    /// values) and their elements.
    fn heads(&self, side: usize) -> &[Dim] {
        let dims = &self.dims[side];
        &dims[..dims.len() - 2]
    }

    /// The number of heads of queries that share one head of keys.
    fn group_size(&self) -> i64 {
        let [all, own] = [QUERY, KEY].map(|side| self.heads(side).last().and_then(Dim::as_const));
        match (self.grouped, all.zip(own)) {
            (true, Some((all, own))) => all / own.max(1),
            _ => 1,
        }
    }

    /// Returns the part of an operand for one head of queries. If the operand has no last axis, its
    /// rows are single elements.
    fn head(&self, nest: &mut Nest, side: usize, place: &[V]) -> Head {
        let at = self.head_offset(nest, side, place);
        let mem = self.mem(nest, side);
        Head { mem, at, stride: nest.dim(&self.operands[side].strides[place.len()]) }
    }

    fn mem(&self, nest: &Nest, side: usize) -> Mem {
        nest.arg(self.operands[side].root).expect("operands of kernels are arguments")
    }

    /// Returns the offset of that part. Axes of size 1 are broadcast. With groups, several heads of
    /// queries use one head of keys.
    fn head_offset(&self, nest: &mut Nest, side: usize, place: &[V]) -> V {
        let (strided, dims) = (&self.operands[side], &self.dims[side]);
        let mut at = nest.dim(&strided.offset);
        for (axis, &i) in place.iter().enumerate() {
            let mut i = i;
            if is_one(&dims[axis]) {
                continue;
            }
            if matches!(side, KEY | VALUE) && axis + 1 == place.len() && self.group_size() > 1 {
                let times = nest.b.index(self.group_size());
                i = nest.b.div(i, times);
            }
            let stride = nest.dim(&strided.strides[axis]);
            let step = nest.b.mul(i, stride);
            at = nest.b.add(at, step);
        }
        at
    }

    /// The axis of the mask along queries, if it exists and its size is not 1.
    fn mask_rows(&self) -> Option<usize> {
        let dims = &self.dims[self.mask?];
        dims.len().checked_sub(2).filter(|&axis| !is_one(&dims[axis]))
    }

    fn mask(&self, nest: &mut Nest, place: &[V]) -> Option<Mask> {
        let side = self.mask?;
        let dims = &self.dims[side];
        let missing = place.len() - dims.len().saturating_sub(2);
        let at = self.head_offset(nest, side, &place[missing..]);
        let rows = self.mask_rows();
        let stride = rows.map_or(Dim::Const(0), |axis| self.operands[side].strides[axis].clone());
        let mem = self.mem(nest, side);
        Some(Mask {
            head: Head { mem, at, stride: nest.dim(&stride) },
            step: i64::from(dims.last().is_some_and(|keys| !is_one(keys))),
            is_additive: nest.b.mem_dtype(mem) != DType::Bool,
        })
    }

    /// The logit of the sink of one head of queries.
    fn sink(&self, nest: &mut Nest, place: &[V]) -> Option<V> {
        let side = self.sink?;
        let missing = place.len() - self.dims[side].len();
        let at = self.head_offset(nest, side, &place[missing..]);
        let mem = self.mem(nest, side);
        Some(nest.b.load(mem, at, 1, None))
    }

    /// The memory of attention's output, if the kernel writes it.
    fn output(&self, nest: &Nest) -> Option<Output> {
        let mut results = nest.f.results.iter().zip(&nest.results);
        results.find_map(|(result, &mem)| {
            let transposed = transposed(nest.f, &nest.definitions, result.value)?;
            Some(Output { mem, strides: transposed.strides })
        })
    }

    /// The memory and the value of the result whose operation `is` selects, if there is one.
    fn result(&self, nest: &Nest, is: impl Fn(&Operation) -> bool) -> Option<(Mem, Value)> {
        let ops = nest.f.ops.iter().filter(|op| is_attention(op));
        let value = ops.filter(|op| is(op)).map(Operation::result).next()?;
        let at = nest.f.results.iter().position(|result| result.value == value)?;
        Some((nest.results[at], value))
    }
}

fn is_one(dim: &Dim) -> bool {
    dim.as_const() == Some(1)
}

/// Splits a task number into indices along the axes `heads`.
fn place(nest: &mut Nest, heads: &[Dim], task: V) -> Vec<V> {
    let place = nest.unravel(heads, Ix::Uniform(task));
    place.into_iter().map(|ix| nest.as_value(ix)).collect()
}
