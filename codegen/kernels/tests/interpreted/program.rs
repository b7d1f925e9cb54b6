//! Runs programs in the interpreter: a simple, slow executor of launch lists.

use std::collections::HashMap;
use std::ops::Range;

use mithril_ir::dim::Symbol;
use mithril_ir::graph::Module;
use mithril_ir::tensor::Tensor;
use mithril_kernels::code::verify::verify;
use mithril_kernels::host::Host;
use mithril_kernels::interpret::{self, Buffer};
use mithril_kernels::isa::Isa;
use mithril_kernels::program::{self, Plan};
use mithril_kernels::target::TARGETS;
use mithril_passes::driver::Driver;
use mithril_passes::pipeline::Pipeline;
use mithril_runtime::program::{Condition, Launch, Place};
use mithril_runtime::size::Size;

pub const LEVELS: [&str; 6] =
    ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+avx512bf16", "x86-64-v4+amx-bf16", "arm64"];

pub fn isa(level: &str) -> Isa {
    Host::parse(level).unwrap_or_else(|e| panic!("{e}")).isa
}

/// A planned module whose kernels the interpreter runs.
pub struct Interpreted {
    pub module: Module,
    pub plan: Plan,
}

impl Interpreted {
    pub fn new(module: &Module, isa: &Isa) -> Interpreted {
        let pipeline = "inline{limit=all,repeated=all},legalize{target=cpu},split-reductions,canonicalize,cse,dce";
        let pipeline = Pipeline::parse(pipeline, TARGETS).expect("the pipeline");
        let (legal, _) = Driver::default().run(&pipeline, module).unwrap_or_else(|e| panic!("{e}"));
        let entry = legal.entry().expect("an entry");
        let plan = program::plan(&legal, entry, isa).unwrap_or_else(|e| panic!("{e}"));
        for kernel in &plan.kernels {
            let code = &kernel.lowered.code;
            verify(code).unwrap_or_else(|e| panic!("{e}\n{code}"));
        }
        Interpreted { module: module.clone(), plan }
    }

    /// Runs the program, and returns its results.
    pub fn run(&self, args: &[Tensor]) -> Vec<Tensor> {
        let entry = self.module.entry().expect("an entry");
        let mut sizes: HashMap<Symbol, i64> = HashMap::new();
        for ((value, _), tensor) in entry.arguments().zip(args) {
            for (dim, size) in entry.ty(value).shape.dims.iter().zip(tensor.shape()) {
                if let Some(symbol) = dim.as_symbol() {
                    sizes.insert(symbol.clone(), *size as i64);
                }
            }
        }
        let symbols = self.plan.symbols.iter().map(|symbol| sizes[symbol]).collect();
        let mut memory = Memory::new(&self.plan, symbols, args);
        memory.launches(0..self.plan.program.launches.len(), 0);
        let result = |(i, result): (usize, &mithril_ir::graph::ResultDef)| {
            let ty = entry.ty(result.value);
            let dims = ty.shape.dims.iter().map(|dim| {
                dim.evaluate(&|symbol| sizes.get(symbol).copied()).expect("a size") as usize
            });
            let is = |place: &Place| *place == Place::Result(i);
            let buffers = &self.plan.program.buffers;
            let at = buffers.iter().position(|buffer| is(&buffer.place)).expect("its buffer");
            let bytes = memory.bytes(at).to_vec();
            Tensor::from_bytes(ty.dtype, dims.collect(), bytes).expect("the result's size")
        };
        entry.results.iter().enumerate().map(result).collect()
    }
}

/// The buffers of a program. Each is a part of a region.
struct Memory<'a> {
    plan: &'a Plan,
    symbols: Vec<i64>,
    regions: Vec<Vec<u8>>,
    /// The current iteration of each loop.
    turns: Vec<i64>,
}

impl Memory<'_> {
    fn new<'a>(plan: &'a Plan, symbols: Vec<i64>, args: &[Tensor]) -> Memory<'a> {
        let mut memory =
            Memory { plan, symbols, regions: Vec::new(), turns: vec![0; plan.program.loops.len()] };
        for buffer in &plan.program.buffers {
            memory.regions.push(match buffer.place {
                Place::Argument(n) => args[n].bytes().to_vec(),
                Place::Constant(n) => plan.constants[n].value().expect("memory").bytes().to_vec(),
                Place::Result(_) | Place::Temporary => {
                    vec![0x5a; memory.size(&buffer.bytes) as usize]
                }
                // These buffers are parts of other buffers.
                Place::Alias { .. } | Place::Row { .. } => Vec::new(),
            });
        }
        memory
    }

    fn size(&self, size: &Size) -> i64 {
        size.eval(&self.symbols).expect("a size")
    }

    /// The region of a buffer, and the buffer's byte range in it.
    fn place(&self, buffer: usize) -> (usize, Range<usize>) {
        let own = &self.plan.program.buffers[buffer];
        let bytes = self.size(&own.bytes) as usize;
        let (of, offset) = match &own.place {
            Place::Alias { of, offset } => (*of, self.size(offset) as usize),
            Place::Row { of, of_loop } => (*of, self.turns[*of_loop] as usize * bytes),
            _ => return (buffer, 0..bytes),
        };
        let (region, outer) = self.place(of);
        (region, outer.start + offset..outer.start + offset + bytes)
    }

    fn bytes(&self, buffer: usize) -> &[u8] {
        let (region, bytes) = self.place(buffer);
        &self.regions[region][bytes]
    }

    /// Runs launches. Launches in loops from number `inside` on run once per iteration.
    fn launches(&mut self, range: Range<usize>, inside: usize) {
        let plan = self.plan;
        let mut at = range.start;
        while at < range.end {
            let loops = plan.program.loops.iter().enumerate().skip(inside);
            let mut own = loops.filter(|(_, l)| l.launches.start == at && !l.launches.is_empty());
            let Some((number, own)) = own.next() else {
                self.launch(&plan.program.launches[at]);
                at += 1;
                continue;
            };
            let trips = self.size(&own.trips);
            for turn in 0..trips {
                let holds = |own: &Condition| (self.bytes(own.buffer)[0] != 0) == own.expected;
                if !own.condition.as_ref().is_none_or(holds) {
                    break;
                }
                self.turns[number] = if own.reverse { trips - 1 - turn } else { turn };
                self.launches(own.launches.clone(), number + 1);
            }
            at = own.launches.end;
        }
    }

    fn launch(&mut self, launch: &Launch) {
        let places: Vec<_> = launch.buffers.iter().map(|&buffer| self.place(buffer)).collect();
        let Some(kernel) = self.plan.kernels.get(launch.kernel) else {
            // The runtime's copy kernel.
            let from = self.bytes(launch.buffers[0]).to_vec();
            let (region, bytes) = places[1].clone();
            return self.regions[region][bytes].copy_from_slice(&from);
        };
        let reads = kernel.outlined.function.args.len();
        let mut buffers: Vec<Buffer> = (places.iter().enumerate())
            .map(|(at, place)| match at < reads || places[..reads].contains(place) {
                true => Buffer::input(self.regions[place.0][place.1.clone()].to_vec()),
                false => Buffer::result(place.1.len()),
            })
            .collect();
        let dims: Vec<i64> = launch.dims.iter().map(|dim| self.size(dim)).collect();
        let run = interpret::Launch {
            buffers: &mut buffers,
            dims: &dims,
            tasks: self.size(&launch.tasks),
            scratch: self.size(&launch.scratch) as usize,
        };
        let code = &kernel.lowered.code;
        if let Err(violation) = interpret::run(code, run) {
            let source = kernel.outlined.to_string();
            panic!("{violation}\ndims: {dims:?}\n{source}\n{code}");
        }
        for (place, buffer) in places.iter().zip(&buffers).skip(reads) {
            self.regions[place.0][place.1.clone()].copy_from_slice(buffer.bytes());
        }
    }
}
