//! Linear algebra. Each matrix of a batch is a task, which works on a copy of it in scratch memory.
//!
//! The inner loops subtract products of rows from rows, which is most of the arithmetic of every
//! factorisation. Sums of small blocks of results stay in registers.

mod bidiagonal;
mod cholesky;
mod eigen;
mod elimination;
mod implicit;
mod products;
mod qr;
mod reflection;
mod rotation;
mod singular;
mod substitution;
mod sweeps;
mod work;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Operation, Value};
use mithril_ir::op::access::{Access, Library, Matrix};
use mithril_passes::library::LibraryKernel;

use super::LibraryEntry;
use super::standalone::{self, Standalone};
use crate::code::{Mem, V};
use crate::lower::index::{Index, Ix};
use work::Rows;

pub const ENTRY: LibraryEntry = LibraryEntry {
    fusion: LibraryKernel { shares, ..LibraryKernel::plain("matrix") },
    lower: |function, op, isa| standalone::lower(function, op, isa, Standalone::matrix),
};

/// A thread pays from about this many steps of arithmetic on.
const THREAD_WORK: i64 = 50_000;

fn matrix(op: &Operation) -> Option<Matrix> {
    match op.op.access {
        Access::Library(Library::Matrix(matrix)) => Some(matrix),
        _ => None,
    }
}

/// Whether both operations are parts of one result: the attribute `of` is the number of the part.
fn shares(a: &Operation, b: &Operation) -> bool {
    let attrs = |op: &Operation| -> Vec<Attr> {
        let named = op.op.attrs.iter().zip(&op.attrs);
        named.filter(|(def, _)| def.name != "of").map(|(_, attr)| attr.clone()).collect()
    };
    let parts = |op: &Operation| op.op.attr_index("of").is_some();
    matrix(a).is_some()
        && matrix(a) == matrix(b)
        && parts(a)
        && a.operands == b.operands
        && attrs(a) == attrs(b)
}

/// A matrix of an operand.
pub struct Operand {
    value: Value,
    /// The index of the matrix in the batch.
    place: Index,
    /// Its memory, unless its elements are computed, such as those of a transposed array.
    memory: Option<Rows>,
}

impl Operand {
    /// The elements of row `i` from column `j` on: one per lane, or a single one. Lanes that are
    /// not in the mask are 0.
    pub fn load(&self, own: &mut Standalone, i: V, j: V, lanes: u32, mask: Option<V>) -> V {
        if let Some(rows) = &self.memory {
            let at = rows.element(&mut own.nest.b, i, j);
            return own.nest.b.load(rows.mem, at, lanes, mask);
        }
        let mut index = self.place.clone();
        let column = if lanes == 1 { Ix::Uniform(j) } else { Ix::Ascending(j) };
        index.extend([Ix::Uniform(i), column]);
        own.nest.mask = mask;
        let v = own.nest.pull(self.value, &index);
        own.nest.mask = None;
        let b = &mut own.nest.b;
        let v = b.splat(v, lanes);
        let zero = b.number(b.ty(v), 0.0);
        mask.map_or(v, |mask| b.select(mask, v, zero))
    }
}

impl Standalone<'_> {
    fn matrix(&mut self) -> Dim {
        let dims = self.nest.dims(self.op.operands[0]);
        let size = dims[dims.len() - 2..].iter().map(|dim| dim.as_const().unwrap_or(64)).max();
        let work = size.unwrap_or(0).saturating_pow(3).max(1);
        self.grain = (THREAD_WORK / work).max(1);
        match matrix(self.op) {
            Some(Matrix::TriangularSolve) => self.triangular_solve(),
            Some(Matrix::Solve) => self.solve(),
            Some(Matrix::Determinant) => self.determinant(),
            Some(Matrix::LogDeterminant) => self.log_determinant(),
            Some(Matrix::Qr) => self.qr(),
            Some(Matrix::Eigen) => self.eigen(),
            Some(Matrix::Singular) => self.singular(),
            Some(Matrix::Cholesky) | None => self.cholesky(),
        }
    }

    /// The dims of an operand without those of its matrices, and those of its matrices.
    fn split_dims(&self, value: Value) -> (Vec<Dim>, [Dim; 2]) {
        let dims = self.nest.dims(value);
        let (batch, last) = dims.split_at(dims.len() - 2);
        (batch.to_vec(), [last[0].clone(), last[1].clone()])
    }

    /// The dtype in which the matrices are, and in which all arithmetic is.
    fn dtype(&self) -> DType {
        self.nest.dtype(self.op.operands[0])
    }

    /// An operand's matrix at an index of the batch.
    fn operand(&mut self, number: usize, place: &[Ix]) -> Operand {
        let value = self.op.operands[number];
        let (batch, [rows, columns]) = self.split_dims(value);
        let place = self.nest.broadcast(&batch, place);
        let memory = self.nest.arg(value).map(|mem| {
            let number = self.nest.flat_index(&batch, &place);
            let number = self.nest.as_value(number);
            let (size, stride) = (self.nest.dim(&(rows * &columns)), self.nest.dim(&columns));
            Rows { mem, at: self.nest.b.mul(number, size), stride }
        });
        Operand { value, place, memory }
    }

    /// The memory of part `of` of the result, if it is a result of the kernel.
    fn part(&self, of: i64) -> Option<(Mem, Value)> {
        let is = |op: &&Operation| matches!(op.attr("of"), Attr::Int(own) if *own == of);
        let mut ops = self.nest.f.ops.iter().filter(|op| matrix(op).is_some());
        let value = ops.find(is).map(Operation::result)?;
        let at = self.nest.f.results.iter().position(|result| result.value == value)?;
        Some((self.nest.results[at], value))
    }
}
