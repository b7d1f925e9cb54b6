//! What a call, a block and a job cost; `cargo test --release --test overhead -- --nocapture`
//! prints it. Bounds are wide, as machines are busy.

use mithril_runtime::execute::Executable;
use mithril_runtime::memory::Block;
use mithril_runtime::program::{Buffer, Launch, Place, Program};
use mithril_runtime::size::Size::{self, Const, Symbol};
use mithril_runtime::threads::Pool;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use std::{hint, thread};

unsafe extern "C" fn nothing(_: *mut u8, _: *const *mut u8, _: *const i64, _: i64, _: i64) {}

/// Nanoseconds of one call: the best of many rounds, as others disturb some.
fn best(name: &str, calls: u32, mut call: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    let best = (0..50).map(round).fold(f64::MAX, f64::min);
    println!("{name}: {best:.1} ns");
    best
}

fn program(rows: Size, launches: usize) -> Executable {
    let buffer = |place| Buffer { bytes: rows.clone() * 4, place };
    let launch = Launch {
        kernel: 0,
        buffers: vec![0, 1, 2],
        dims: vec![rows.clone()],
        tasks: rows.clone(),
        grain: Const(1),
        scratch: Const(64),
    };
    let places = [Place::Argument(0), Place::Argument(1), Place::Result(0)];
    let program = Program {
        symbols: rows.symbols(),
        args: 2,
        results: 1,
        buffers: places.map(buffer).to_vec(),
        launches: vec![launch; launches],
        loops: vec![],
    };
    Executable::new(program, vec![nothing], vec![], vec![]).expect("a program")
}

#[test]
fn calls_cost_little() {
    let pool = Pool::new(1);
    let (from, to) = ([1f32; 8], &mut [0f32; 8]);
    let (args, results) = ([from.as_ptr().cast::<u8>(); 2], [to.as_mut_ptr().cast::<u8>()]);
    let run = |program: &Executable, symbols: &[i64]| {
        // SAFETY: the kernel does nothing.
        unsafe { program.run(&args, symbols, &results, &pool) }.expect("a run");
    };
    let (fixed, free, ten) = (program(Const(8), 1), program(Symbol(0), 1), program(Const(8), 10));
    let one = best("one launch", 10_000, || run(&fixed, &[]));
    let symbol = best("one launch, a symbol", 10_000, || run(&free, &[8]));
    let mut rows = 1;
    let turns = best("one launch, a symbol in turns", 10_000, || {
        rows = rows % 8 + 1;
        run(&free, &[rows]);
    });
    let ten = best("ten launches", 10_000, || run(&ten, &[]));
    assert!(one < 1000.0 && symbol < 1000.0 && turns < 5000.0 && ten < 5000.0);
}

#[test]
fn blocks_cost_little() {
    for bytes in [64, 1 << 16, 1 << 24] {
        let name = format!("a block of {bytes} bytes, taken and returned");
        let cost = best(&name, 10_000, || drop(hint::black_box(Block::new(bytes))));
        assert!(cost < 2000.0);
    }
}

#[test]
fn jobs_cost_little() {
    let pool = Pool::new(2);
    let meet = || {
        // Returns only when two threads are in.
        let inside = AtomicUsize::new(0);
        pool.run(2, 1, &|_, _, _| {
            inside.fetch_add(1, SeqCst);
            while inside.load(SeqCst) < 2 {
                hint::spin_loop();
            }
        });
    };
    meet();
    best("two threads meet, awake", 200, meet);
    let asleep = (0..30).map(|_| {
        thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        meet();
        start.elapsed().as_nanos()
    });
    println!("two threads meet, one asleep: {} ns", asleep.min().unwrap_or(0));
    best("a job of eight pieces, awake", 1000, || pool.run(8, 1, &|_, _, _| {}));
    let serial = Pool::new(1);
    let cost = best("a job on one thread", 10_000, || serial.run(8, 1, &|_, _, _| {}));
    assert!(cost < 500.0);
}
