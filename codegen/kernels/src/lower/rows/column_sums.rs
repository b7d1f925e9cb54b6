//! Column sums that are accumulated in the same pass that computes the rows. Each task sums the
//! columns of several rows. A second kernel adds up the sums of the tasks.

use mithril_ir::attr::Attr;
use mithril_ir::builder::Builder;
use mithril_ir::diagnostic::Result;
use mithril_ir::dim::{Dim, Symbol};
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Operation, ResultDef, Role};
use mithril_ir::op::access::Fold;
use mithril_ir::shape::{Shape, Type};
use mithril_passes::outline::Kernel;
use mithril_passes::outline::schedule::{ColumnReduction, LoopNest, Schedule};

use super::Rows;
use crate::code::{Binary, Mem, Ty, V};
use crate::loops::Loops;
use crate::lower::index::{Address, Index, Ix};
use crate::lower::lowered::Partial;
use crate::lower::nest::Nest;
use crate::lower::reduce::{Reducer, product};

/// The approximate number of elements of a task, and the minimum number of rows of a task.
const TASK_ELEMENTS: i64 = 1 << 15;
const MIN_ROWS: i64 = 8;
/// The maximum number of tasks if the number of rows is known. The second kernel reads one row of
/// sums per task.
const MAX_TASKS: i64 = 64;

/// A sum over rows, with one element for each column.
pub struct ColumnSum<'f> {
    op: &'f Operation,
    reducer: Reducer,
    /// The index of the result.
    pub result: usize,
    /// Scratch memory for the sums of the current task.
    sums: Mem,
}

/// The division of the rows into tasks.
#[derive(Clone)]
pub struct Blocks {
    rows: Dim,
    /// The maximum number of rows of a task.
    pub height: i64,
    /// Whether one task takes all rows.
    all: bool,
}

impl Blocks {
    /// The number of tasks. It is at least one, because sums over no rows are also stored.
    pub fn count(&self) -> Dim {
        match self.rows.as_const() {
            Some(0) => Dim::Const(1),
            _ => self.rows.ceil_div(&Dim::Const(self.height)),
        }
    }

    fn is_one(&self) -> bool {
        self.all || self.rows.as_const().is_some_and(|rows| rows <= self.height)
    }
}

impl<'f> Rows<'f> {
    /// Allocates scratch memory for the sums.
    pub fn open_column_sums(&mut self) {
        if self.schedule.column_sums.is_empty() {
            return;
        }
        let rows = product(&self.space[..self.outer]);
        let length = product(&self.space[self.outer..]);
        let mut height =
            length.as_const().map_or(MIN_ROWS, |n| (TASK_ELEMENTS / n.max(1)).max(MIN_ROWS));
        if let Some(rows) = rows.as_const() {
            height = height.max((rows as u64).div_ceil(MAX_TASKS as u64) as i64);
        }
        self.blocks = Some(Blocks { rows, height, all: self.nest.b.source().all_tasks });
        for &op in &self.schedule.column_sums {
            let f = self.nest.f;
            let op = &f.ops[op];
            let result = f.results.iter().position(|result| result.value == op.result());
            let result = result.expect("column sums are results of the kernel");
            let reducer = Reducer::of(op, Fold::Sum, self.nest.dtype(op.operands[0]));
            let at = self.nest.dim(&self.scratch.clone());
            let sums = self.nest.b.scratch(reducer.dtype, at);
            let bytes = &length * &Dim::Const(reducer.dtype.bytes() as i64);
            let lines = (&bytes + &Dim::Const(63)).floor_div(&Dim::Const(64));
            self.scratch = &self.scratch + &(&(&lines + &Dim::Const(1)) * &Dim::Const(64));
            self.column_sums.push(ColumnSum { op, reducer, result, sums });
        }
    }

    /// Computes all rows as one task, and stores their sums.
    pub fn one_block(&mut self, blocks: &Blocks) {
        self.clear_column_sums();
        self.all_rows();
        let task = self.nest.b.index(0);
        self.store_column_sums(task, blocks);
    }

    /// Computes the rows of a task, and stores their sums.
    pub fn block(&mut self, task: V, blocks: &Blocks) {
        self.clear_column_sums();
        let from = self.nest.b.times(task, blocks.height);
        let to = self.nest.b.offset(from, blocks.height);
        let rows = self.nest.dim(&blocks.rows);
        let to = self.nest.b.binary(Binary::Min, to, rows);
        self.each_row(from, to);
        self.store_column_sums(task, blocks);
    }

    fn clear_column_sums(&mut self) {
        let (zero, length) = (self.nest.b.index(0), product(&self.space[self.outer..]));
        let (length, lanes) = (self.nest.dim(&length), self.nest.lanes);
        for column_sum in &self.column_sums {
            let (sums, none) = (column_sum.sums, Ty::vector(column_sum.reducer.dtype, lanes));
            let none = self.nest.b.int(none, 0);
            self.nest.b.each(zero, length, lanes.into(), |b, i| b.store(sums, i, none, None));
        }
    }

    fn store_column_sums(&mut self, task: V, blocks: &Blocks) {
        let length = product(&self.space[self.outer..]);
        for column_sum in std::mem::take(&mut self.column_sums) {
            self.store_column_sum(&column_sum, task, blocks, &length);
            self.column_sums.push(column_sum);
        }
    }

    /// Stores the sums of a task.
    fn store_column_sum(&mut self, column_sum: &ColumnSum, task: V, blocks: &Blocks, length: &Dim) {
        let mut dims = vec![length.clone()];
        let mut mem = self.nest.results[column_sum.result];
        if !blocks.is_one() {
            dims.insert(0, blocks.count());
            let buffer = self.nest.f.args.len() + column_sum.result;
            mem = self.nest.b.buffer(buffer, column_sum.reducer.dtype, false);
        }
        let dtype = self.nest.b.mem_dtype(mem);
        let several = !blocks.is_one();
        let write = |nest: &mut Nest, i: V| {
            let sum = nest.b.load(column_sum.sums, i, nest.lanes, None);
            let value = column_sum.reducer.finish(&mut nest.b, &[sum], dtype);
            let place = [Ix::Uniform(task), Ix::Ascending(i)];
            nest.write(mem, &dims, if several { &place } else { &place[1..] }, value);
        };
        let (from, to) = (self.nest.b.index(0), self.nest.dim(length));
        let end = self.round_down(from, to, self.nest.lanes.into());
        self.steps(from, end, self.nest.lanes.into(), |nest, i| write(nest, i));
        self.remainder(end, to, &[], |nest, i, _| {
            write(nest, i);
            vec![]
        });
    }

    /// Returns the results that second kernels compute from the sums of the tasks.
    pub fn partials(&self) -> Result<Vec<Partial>> {
        let Some(blocks) = self.blocks.as_ref().filter(|blocks| !blocks.is_one()) else {
            return Ok(Vec::new());
        };
        let length = product(&self.space[self.outer..]);
        let partial = |column_sum: &ColumnSum<'f>| {
            let dtype = self.nest.dtype(column_sum.op.result());
            let second = second_kernel(column_sum.reducer.dtype, dtype, blocks.count(), &length)?;
            let bytes = &length * &Dim::Const(column_sum.reducer.dtype.bytes() as i64);
            let (result, count) = (column_sum.result, blocks.count());
            Ok(Partial { result, bytes: &bytes * &count, count, length: length.clone(), second })
        };
        self.column_sums.iter().map(partial).collect()
    }
}

impl ColumnSum<'_> {
    /// Adds the elements at `index` to the sums; `row` has the dims of a row.
    pub fn accumulate(&self, nest: &mut Nest, row: &[Dim], index: &Index) {
        let x = nest.pull(self.op.operands[0], index);
        let (at, lanes) = match nest.address(row, &index[index.len() - row.len()..]) {
            Address::Ascending(at) => (at, nest.lanes),
            Address::One(at) => (at, 1),
            Address::Descending(_) | Address::Scattered(_) => {
                nest.unsupported(self.op);
                return;
            }
        };
        let mask = nest.mask.filter(|_| lanes > 1);
        let before = nest.b.load(self.sums, at, lanes, mask);
        let sum = self.reducer.accumulate(&mut nest.b, &[before], x, mask)[0];
        nest.b.store(self.sums, at, sum, mask);
    }
}

/// Builds the kernel that adds up the sums of `count` tasks.
fn second_kernel(acc: DType, dtype: DType, count: Dim, length: &Dim) -> Result<Kernel> {
    let dim = |dim: &Dim, number: u32| match dim.as_const() {
        Some(_) => dim.clone(),
        None => Dim::symbol(Symbol::numbered(number)),
    };
    let dims = [dim(&count, 0), dim(length, 1)];
    let columns = Some(ColumnReduction { op: 0, fold: Fold::Sum });
    let loops = LoopNest { columns, ..LoopNest::over(&dims[1..]) };
    let b = Builder::new("kernel");
    let sums = b.arg("a0", Role::Data, Type::new(acc, Shape::new(dims)));
    let mut sum = b.op("sum", &[sums], &[("axes", Attr::Ints([0].into()))])?;
    if dtype != acc {
        sum = b.op("cast", &[sum], &[("dtype", Attr::DType(dtype))])?;
    }
    let function = b.finish(vec![ResultDef { name: "r0".into(), value: sum, state: None }])?;
    Ok(Kernel { function, schedule: Schedule::Loops(loops) })
}
