//! Where the time of a function goes: its launches, each timed by itself.
//!
//! cargo run --release -p mithril-native --example profile -- model.mir [symbol=size]...

#[path = "../tests/machine/mod.rs"]
mod machine;

use std::time::Instant;

use mithril_ir::graph::Module;
use mithril_ir::text;
use mithril_runtime::memory::Block;
use mithril_runtime::program::Program;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file");
    let source = std::fs::read_to_string(path).expect("it can be read");
    let begin = Instant::now();
    let native = machine::Native::new(&source);
    println!("compiled in {:.1} ms, {} kernels", ms(begin), native.plan.kernels.len());
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
        let best = time(&native, program, at, &blocks, &sizes);
        total += best;
        println!("{best:9.4} ms  {launch}   {}", native.plan.locs[at].shortest().unwrap_or(""));
    }
    println!("{total:9.4} ms in all");
    if std::env::var("KERNELS").is_ok() {
        for (i, kernel) in native.plan.kernels.iter().enumerate() {
            println!("k{i}: {}", text::print(&Module::of(kernel.function.clone())));
        }
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn time(
    native: &machine::Native,
    program: &Program,
    at: usize,
    blocks: &[Block],
    sizes: &[i64],
) -> f64 {
    let launch = &program.launches[at];
    let mut scratch = Block::new(1 << 24).expect("memory");
    scratch.as_mut_slice().fill(0);
    let buffers: Vec<*mut u8> = launch.buffers.iter().map(|&b| blocks[b].as_ptr()).collect();
    let dims: Vec<i64> = launch.dims.iter().map(|d| d.eval(sizes).expect("a dim")).collect();
    let tasks = launch.tasks.eval(sizes).expect("tasks");
    let Some(kernel) = native.kernels.get(launch.kernel) else {
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
