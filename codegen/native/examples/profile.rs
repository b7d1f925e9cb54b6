//! Where the time of a function goes: its kernels as they are compiled, and its launches, each
//! timed by itself; by LLVM, and by Cranelift.
//!
//! cargo run --release -p mithril-native --example profile -- model.mir [symbol=size]...

#[path = "../tests/machine/mod.rs"]
mod machine;

use std::time::Instant;

use mithril_instant::Machine;
use mithril_kernels::host::chosen;
use mithril_native::{Stage, compile};
use mithril_runtime::kernel::Kernel;
use mithril_runtime::memory::Block;
use mithril_runtime::program::Program;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file");
    let source = std::fs::read_to_string(path).expect("it can be read");
    let begin = Instant::now();
    let native = machine::Native::new(&source);
    println!("compiled in {:.1} ms, {} kernels", ms(begin), native.plan.kernels.len());
    compile_times(&native);
    let sizes: Vec<i64> = args.map(|a| a.parse().expect("a size")).collect();
    let program = &native.plan.program;
    let blocks: Vec<Block> = (program.buffers.iter())
        .map(|b| {
            let bytes = b.bytes.eval(&sizes).expect("a size") as usize;
            let mut block = Block::new(bytes).expect("memory");
            block.as_mut_slice().fill(0);
            block
        })
        .collect();
    let mut total = 0.0;
    for (at, launch) in program.launches.iter().enumerate() {
        let [best, instant] = [&native.kernels, &native.instants]
            .map(|kernels| time(kernels, program, at, &blocks, &sizes));
        total += best;
        let from = native.plan.locs[at].shortest().unwrap_or("");
        println!("{best:9.4} ms {instant:9.4}  {launch}   {from}");
    }
    println!("{total:9.4} ms in all");
    if std::env::var("KERNELS").is_ok() {
        for (i, kernel) in native.plan.kernels.iter().enumerate() {
            println!("k{i}: {}", kernel.outlined);
        }
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn compile_times(native: &machine::Native) {
    let (machine, options) = (
        Machine::of(&chosen(None).expect("a processor")).expect("one of Cranelift's"),
        machine::machine().1,
    );
    for (at, kernel) in native.plan.kernels.iter().enumerate() {
        let code = &kernel.lowered.code;
        let least = |run: &dyn Fn() -> usize| {
            let once = || {
                let begin = Instant::now();
                (run(), ms(begin))
            };
            (0..5).map(|_| once()).fold((0, f64::INFINITY), |(_, a), (n, b)| (n, a.min(b)))
        };
        let (_, llvm) = least(&|| {
            compile(&kernel.text(), &options, Stage::Object).map_or(0, |object| object.len())
        });
        let (bytes, instant) = least(&|| machine.compile(code).map_or(0, |code| code.len()));
        println!("{llvm:9.2} ms {instant:9.3}, {bytes} bytes  k{at}, {} values", code.types.len());
    }
}

fn time(kernels: &[Kernel], program: &Program, at: usize, blocks: &[Block], sizes: &[i64]) -> f64 {
    let launch = &program.launches[at];
    let mut scratch = Block::new(1 << 24).expect("memory");
    scratch.as_mut_slice().fill(0);
    let buffers: Vec<*mut u8> = launch.buffers.iter().map(|&b| blocks[b].as_ptr()).collect();
    let dims: Vec<i64> = launch.dims.iter().map(|d| d.eval(sizes).expect("a dim")).collect();
    let tasks = launch.tasks.eval(sizes).expect("tasks");
    let Some(kernel) = kernels.get(launch.kernel) else {
        return 0.0;
    };
    let mut best = f64::INFINITY;
    for _ in 0..12 {
        let begin = Instant::now();
        // SAFETY: the blocks have the sizes that the program says.
        unsafe { kernel(scratch.as_ptr(), buffers.as_ptr(), dims.as_ptr(), 0, tasks) };
        best = best.min(ms(begin));
    }
    best
}
