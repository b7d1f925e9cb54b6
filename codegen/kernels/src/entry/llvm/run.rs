//! Prints a variant of an entry function: the launches of its kernels, in order and in loops.

use std::fmt::Write;

use mithril_runtime::program::Execution;
use mithril_runtime::size::Size;

use super::{Printer, line};
use crate::entry::{Base, Slot, Step};

/// Functions with more steps than this are not inlined.
const MAX_INLINED_STEPS: usize = 16;

impl Printer<'_> {
    /// Prints the function that launches a variant's kernels. Its pointers have been checked.
    ///
    /// Each pointer is loaded where it is used, and long functions are not inlined. Otherwise
    /// hundreds of pointers would be live across hundreds of calls, and LLVM's register allocation
    /// would take seconds.
    pub(super) fn run(&mut self, at: usize, variant: usize) {
        let entry = &self.library.interface.entries[at];
        let steps = &entry.variants[variant].steps;
        line!(
            self,
            "llvm.func internal @{}_run_{variant}({}%table: !llvm.ptr, %workspace: !llvm.ptr, \
             %threads: !llvm.ptr){} {{",
            entry.name,
            Self::symbols(entry),
            if steps.len() > MAX_INLINED_STEPS {
                " attributes {passthrough = [\"noinline\"]}"
            } else {
                ""
            }
        );
        let max_count = |length: fn(&Step) -> usize| steps.iter().map(length).max().unwrap_or(0);
        let buffers = self.array(max_count(|step| step.buffers.len()), "ptr");
        let dims = self.array(max_count(|step| step.dims.len()), "i64");
        let mut frame = Frame {
            entry: at,
            variant,
            scratch: self.offset_pointer("%workspace", &entry.workspace.scratch),
            own: self.size(&entry.workspace.own),
            buffers,
            dims,
            rows: vec![String::new(); entry.variants[variant].loops.len()],
        };
        self.parts(&mut frame, &entry.variants[variant].execution);
        line!(self, "llvm.return\n}}");
    }

    /// Prints steps and the loops around them.
    fn parts(&mut self, frame: &mut Frame, parts: &[Execution]) {
        let variant = &self.library.interface.entries[frame.entry].variants[frame.variant];
        for part in parts {
            match part {
                Execution::Launch(at) => self.step(frame, &variant.steps[*at]),
                Execution::Loop(number, inside) => self.iterate(frame, *number, inside),
            }
        }
    }

    /// Prints a loop.
    fn iterate(&mut self, frame: &mut Frame, number: usize, inside: &[Execution]) {
        let variant = &self.library.interface.entries[frame.entry].variants[frame.variant];
        let own = &variant.loops[number];
        let (zero, one, trips) = (self.int(0), self.int(1), self.size(&own.trips));
        let (head, body, end) = (self.label(), self.label(), self.label());
        let done = self.fresh();
        line!(self, "llvm.br {head}({zero} : i64)\n{head}({done}: i64):");
        let more = self.compare("slt", &done, &trips);
        line!(self, "llvm.cond_br {more}, {body}, {end}\n{body}:");
        if let (Some(condition), Some(slot)) = (own.condition, &variant.conditions[number]) {
            let (relation, inside) = (if condition.expected { "ne" } else { "eq" }, self.label());
            let address = self.buffer(frame, slot);
            let byte = self.value(format_args!("llvm.load {address} : !llvm.ptr -> i8"));
            let wide = self.value(format_args!("llvm.zext {byte} : i8 to i64"));
            let holds = self.compare(relation, &wide, &zero);
            line!(self, "llvm.cond_br {holds}, {inside}, {end}\n{inside}:");
        }
        let next = self.binary("add", &done, &one);
        frame.rows[number] = match own.reverse {
            false => done,
            true => self.binary("sub", &trips, &next),
        };
        self.parts(frame, inside);
        line!(self, "llvm.br {head}({next} : i64)\n{end}:");
    }

    fn step(&mut self, frame: &Frame, step: &Step) {
        let always_runs = match step.tasks {
            Size::Const(tasks) if tasks <= 0 => return,
            Size::Const(_) => true,
            _ => false,
        };
        let (tasks_value, zero) = (self.size(&step.tasks), self.int(0));
        let next = self.label();
        if !always_runs {
            let (any, own) = (self.compare("sgt", &tasks_value, &zero), self.label());
            line!(self, "llvm.cond_br {any}, {own}, {next}\n{own}:");
        }
        let buffers = step.buffers.iter().map(|slot| self.buffer(frame, slot));
        let buffers: Vec<String> = buffers.collect();
        let dims: Vec<String> = step.dims.iter().map(|dim| self.size(dim)).collect();
        match step.kernel {
            None => line!(
                self,
                "\"llvm.intr.memcpy\"({}, {}, {}) <{{isVolatile = false}}> : (!llvm.ptr, !llvm.ptr, \
                 i64) -> ()",
                buffers[1],
                buffers[0],
                dims[0]
            ),
            Some(kernel) => {
                for (at, buffer) in buffers.iter().enumerate() {
                    self.store(buffer, "!llvm.ptr", &frame.buffers, at);
                }
                for (at, dim) in dims.iter().enumerate() {
                    self.store(dim, "i64", &frame.dims, at);
                }
                let symbol = &self.library.kernels[frame.entry][frame.variant][kernel];
                let Frame { scratch, own, buffers, dims, .. } = frame;
                match (&step.tasks, &step.grain) {
                    (Size::Const(tasks), Size::Const(grain)) if tasks <= grain => line!(
                        self,
                        "llvm.call @{symbol}({scratch}, {buffers}, {dims}, {zero}, {tasks_value}) : \
                         (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64) -> ()"
                    ),
                    (_, grain) => {
                        let grain = self.size(grain);
                        let kernel =
                            self.value(format_args!("llvm.mlir.addressof @{symbol} : !llvm.ptr"));
                        let share = self.share_name();
                        line!(
                            self,
                            "llvm.call @{share}({kernel}, {scratch}, {own}, {buffers}, {dims}, \
                             {tasks_value}, {grain}, %threads) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, \
                             !llvm.ptr, i64, i64, !llvm.ptr) -> ()"
                        );
                    }
                }
            }
        }
        if !always_runs {
            line!(self, "llvm.br {next}\n{next}:");
        }
    }

    fn buffer(&mut self, frame: &Frame, slot: &Slot) -> String {
        let arguments = self.library.interface.entries[frame.entry].arguments.len();
        let base = match slot.base {
            Base::Argument(at) => self.load_pointer("%table", at),
            Base::Result(at) => self.load_pointer("%table", arguments + at),
            Base::Workspace => "%workspace".to_string(),
            Base::Constant(at) => {
                let symbol = &self.library.constants[frame.entry][frame.variant][at];
                self.value(format_args!("llvm.mlir.addressof @{symbol} : !llvm.ptr"))
            }
        };
        let mut place = self.offset_pointer(&base, &slot.offset);
        for (of_loop, bytes) in &slot.rows {
            let bytes = self.size(bytes);
            let offset = self.binary("mul", &frame.rows[*of_loop], &bytes);
            place = self.value(format_args!(
                "llvm.getelementptr {place}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
            ));
        }
        place
    }
}

/// The MLIR values that the steps of a function share.
struct Frame {
    entry: usize,
    variant: usize,
    scratch: String,
    /// The bytes of scratch memory that each thread needs.
    own: String,
    buffers: String,
    dims: String,
    /// The current row of each loop.
    rows: Vec<String>,
}
