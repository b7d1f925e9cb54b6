//! Interprets loop code and checks its memory accesses, for tests. It runs code for any processor
//! on any machine.
//!
//! Tasks run one after the other, and each byte of memory records which task wrote it. A run stops
//! at the first violation: a read or write out of bounds, a read of a byte that another task wrote,
//! two tasks that write the same byte, a store to constant memory, a misaligned streaming store, or
//! an undefined division. Undefined values (read from unwritten memory, shifted by at least the
//! width, converted out of range) may be computed, but must not be used as an address, mask,
//! condition or divisor, or be stored in a buffer. After the last task, every byte of the results
//! must have been written.

mod lane;
mod lanes;
mod memory;
mod tiles;

use std::fmt;

use mithril_ir::dtype::DType;

use crate::code::print::line;
use crate::code::{Code, Inst, Region, Stmt, Ty, V};
use lane::Lane;
pub use memory::Buffer;
use memory::Memories;
use tiles::Tiles;

/// The arguments of a launch.
pub struct Launch<'a> {
    pub buffers: &'a mut [Buffer],
    pub dims: &'a [i64],
    pub tasks: i64,
    /// The size of the scratch memory in bytes.
    pub scratch: usize,
}

/// A violation of the rules above, with its location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Violation {
    pub what: String,
    /// The statement, and then the loops around it with their counters, innermost first.
    pub places: Vec<String>,
    pub task: Option<i64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.what)?;
        self.places.iter().try_for_each(|place| write!(f, "\n  at: {place}"))?;
        self.task.map_or(Ok(()), |task| write!(f, "\n  task: {task}"))
    }
}

/// The result of running a statement, or a violation.
type Run<T> = std::result::Result<T, Violation>;

fn violation<T>(what: impl Into<String>) -> Run<T> {
    Err(Violation { what: what.into(), places: Vec::new(), task: None })
}

/// The lanes of a value.
type Value = Vec<Lane>;

/// Runs a kernel that has passed [`verify`](crate::code::verify::verify).
///
/// Errors: the first violation of the rules at the head of this file.
pub fn run(code: &Code, launch: Launch) -> Run<()> {
    let Launch { buffers, dims, tasks, scratch } = launch;
    for task in 0..tasks {
        let mut machine = Machine {
            code,
            memories: Memories::new(buffers, scratch, task),
            tiles: Tiles::default(),
            dims,
            task,
            values: vec![Value::new(); code.types.len()],
        };
        machine
            .block(&code.body)
            .map_err(|violation| Violation { task: Some(task), ..violation })?;
    }
    memory::written(buffers)
}

struct Machine<'a> {
    code: &'a Code,
    memories: Memories<'a>,
    tiles: Tiles,
    dims: &'a [i64],
    task: i64,
    values: Vec<Value>,
}

impl Machine<'_> {
    fn block(&mut self, body: &[Stmt]) -> Run<()> {
        for stmt in body {
            self.statement(stmt).map_err(|mut violation| {
                violation.places.push(line(self.code, stmt));
                violation
            })?;
        }
        Ok(())
    }

    fn ty(&self, v: V) -> Ty {
        self.code.ty(v)
    }

    fn get(&self, v: V) -> &[Lane] {
        &self.values[v.0 as usize]
    }

    fn set(&mut self, v: V, value: Value) {
        debug_assert_eq!(value.len(), self.ty(v).lanes as usize);
        self.values[v.0 as usize] = value;
    }

    /// Returns a scalar that determines control flow or an address, which must be defined.
    fn require_defined(&self, v: V) -> Run<u64> {
        match self.get(v)[0] {
            Lane { defined: true, bits } => Ok(bits),
            _ => violation(format!("{v} is undefined, but determines control flow or an address")),
        }
    }

    fn index(&self, v: V) -> Run<i64> {
        self.require_defined(v).map(|bits| bits as i64)
    }

    /// Returns the lanes that a mask selects: all lanes if there is no mask.
    fn mask(&self, mask: Option<V>, lanes: u32) -> Run<Vec<bool>> {
        let Some(mask) = mask else { return Ok(vec![true; lanes as usize]) };
        let lane = |lane: &Lane| match lane.defined {
            true => Ok(lane.bits != 0),
            false => violation(format!("a lane of the mask {mask} is undefined")),
        };
        self.get(mask).iter().map(lane).collect()
    }

    fn statement(&mut self, stmt: &Stmt) -> Run<()> {
        match &stmt.inst {
            Inst::For { from, to, step, carried, region } => {
                let bounds = [self.index(*from)?, self.index(*to)?, self.index(*step)?];
                let carried = carried.iter().map(|&v| self.get(v).to_vec()).collect();
                let left = self.repeat(bounds, carried, region)?;
                stmt.results.iter().zip(left).for_each(|(&v, value)| self.set(v, value));
            }
            Inst::If { condition, yes, no } => {
                let region = if self.require_defined(*condition)? != 0 { yes } else { no };
                self.block(&region.body)?;
                self.assign(&stmt.results, region);
            }
            Inst::CallPrivate(number, args) => {
                let function = &self.code.functions[*number as usize];
                let args: Vec<Value> = args.iter().map(|&v| self.get(v).to_vec()).collect();
                function.params.iter().zip(args).for_each(|(&v, value)| self.set(v, value));
                self.block(&function.body)?;
                self.assign(&stmt.results, function);
            }
            Inst::Store { mem, at, value, mask, streaming } => {
                let ty = self.ty(*value);
                let (at, mask) = (self.index(*at)?, self.mask(*mask, ty.lanes)?);
                let base = self.base(*mem)?;
                let aligned = if *streaming { ty.lanes as usize } else { 1 };
                let memory = &self.code.memories[mem.0 as usize];
                let value = &self.values[value.0 as usize];
                self.memories.aligned(memory, base, at, aligned)?;
                for (lane, number) in value.iter().zip(0..).filter(|(_, n)| mask[*n as usize]) {
                    self.memories.store(memory, base, at.wrapping_add(number), *lane)?;
                }
            }
            Inst::Scatter { mem, at, value, mask } => {
                let places = self.places(*at)?;
                let mask = self.mask(*mask, places.len() as u32)?;
                let base = self.base(*mem)?;
                let memory = &self.code.memories[mem.0 as usize];
                for (lane, place) in places.into_iter().enumerate().filter(|(lane, _)| mask[*lane])
                {
                    let value = self.values[value.0 as usize][lane];
                    self.memories.store(memory, base, require_defined(place)?, value)?;
                }
            }
            // A prefetch may use any address.
            Inst::Prefetch { .. } => {}
            Inst::Tile(op) => self.tile(*op)?,
            inst => {
                let value = self.value(self.ty(stmt.results[0]), inst)?;
                self.set(stmt.results[0], value);
            }
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        [from, to, step]: [i64; 3],
        mut carried: Vec<Value>,
        region: &Region,
    ) -> Run<Vec<Value>> {
        if step < 1 {
            return violation(format!("a loop has step {step}"));
        }
        let mut at = from;
        while at < to {
            let given = [vec![Lane::of(at as u64)]].into_iter().chain(carried);
            region.params.iter().zip(given).for_each(|(&v, value)| self.set(v, value));
            self.block(&region.body).map_err(|mut violation| {
                violation.places.push(format!("{} is {at}", region.params[0]));
                violation
            })?;
            carried = region.yields.iter().map(|&v| self.get(v).to_vec()).collect();
            at = at.saturating_add(step);
        }
        Ok(carried)
    }

    /// Assigns the values that a region yields to a statement's results.
    fn assign(&mut self, results: &[V], region: &Region) {
        let values: Vec<Value> = region.yields.iter().map(|&v| self.get(v).to_vec()).collect();
        results.iter().zip(values).for_each(|(&v, value)| self.set(v, value));
    }

    /// Returns the index of each lane of a gather or scatter, or `None` for undefined indices.
    fn places(&self, at: V) -> Run<Vec<Option<i64>>> {
        let dtype = self.ty(at).dtype;
        let place = |lane: &Lane| lane.defined.then(|| lane::integer(dtype, lane.bits) as i64);
        Ok(self.get(at).iter().map(place).collect())
    }

    fn value(&mut self, ty: Ty, inst: &Inst) -> Run<Value> {
        match inst {
            Inst::Dim(n) => Ok(vec![Lane::of(self.dims[*n as usize] as u64)]),
            Inst::First => Ok(vec![Lane::of(self.task as u64)]),
            Inst::Last => Ok(vec![Lane::of(self.task as u64 + 1)]),
            Inst::Load { mem, at, mask } => {
                let (at, mask) = (self.index(*at)?, self.mask(*mask, ty.lanes)?);
                let base = self.base(*mem)?;
                let memory = &self.code.memories[mem.0 as usize];
                let lane = |(number, read): (i64, bool)| match read {
                    true => self.memories.load(memory, base, at.wrapping_add(number)),
                    false => Ok(Lane::of(0)),
                };
                (0..).zip(mask).map(lane).collect()
            }
            Inst::Gather { mem, at, mask } => {
                let places = self.places(*at)?;
                let mask = self.mask(*mask, ty.lanes)?;
                let base = self.base(*mem)?;
                let memory = &self.code.memories[mem.0 as usize];
                let lane = |(place, read): (Option<i64>, bool)| match read {
                    true => self.memories.load(memory, base, require_defined(place)?),
                    false => Ok(Lane::of(0)),
                };
                places.into_iter().zip(mask).map(lane).collect()
            }
            inst => self.computed(ty, inst),
        }
    }

    /// The byte offset of a memory.
    fn base(&self, mem: crate::code::Mem) -> Run<i64> {
        match self.code.memories[mem.0 as usize].place {
            crate::code::Place::Scratch(offset) => self.index(offset),
            _ => Ok(0),
        }
    }
}

fn require_defined(place: Option<i64>) -> Run<i64> {
    place.map_or_else(|| violation("an index is undefined"), Ok)
}

/// Whether arithmetic supports the dtype.
fn is_computed(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16) && !dtype.is_storage_only()
}
