//! Many calls at one time: the same bits each, and no more memory. One test: it measures all of the
//! process.

mod programs;

use mithril_runtime::memory::Block;
use mithril_runtime::size::Size::{Const, Symbol};
use mithril_runtime::threads::Pool;
use programs::{centered, executable};
use std::sync::Barrier;
use std::{fs, thread};

const THREADS: usize = 8;
const CALLS: usize = 10_000;

/// The memory of the process, in bytes.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("statm");
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

#[test]
fn many_calls_give_the_same_bits_in_the_same_memory() {
    let program = executable(centered(Symbol(0), Const(40)));
    let pool = Pool::new(2);
    let inputs: Vec<f32> = (0..2000).map(|i| (i as f32).sin()).collect();
    let call = |rows: usize| {
        let bytes = program.result_bytes(&[rows as i64]).expect("sizes");
        let results: Vec<_> = bytes.iter().map(|n| Block::new(*n).expect("memory")).collect();
        let to: Vec<_> = results.iter().map(Block::as_ptr).collect();
        let from = inputs.as_ptr().cast::<u8>();
        // SAFETY: no more rows are asked for than there are; results are as long as they say.
        unsafe { program.run(&[from, from.add(80)], &[rows as i64], &to, &pool) }.expect("a run");
        results
    };
    let rows = [1, 7, 30, 49];
    let expected = rows.map(call);
    let (warm, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (warm, done, expected) = (&warm, &done, &expected);
            scope.spawn(move || {
                for i in 0..CALLS {
                    let which = (i / 16 + thread) % rows.len();
                    for (got, expected) in call(rows[which]).iter().zip(&expected[which]) {
                        assert!(got.as_slice() == expected.as_slice());
                    }
                    if i == CALLS / 10 {
                        warm.wait();
                    }
                }
                done.wait();
            });
        }
        warm.wait();
        let before = resident();
        done.wait();
        let after = resident();
        assert!(after < before + (1 << 20), "{before} bytes became {after}");
    });
}
