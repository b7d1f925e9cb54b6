//! Launches that run more than once, on a row of a buffer after the other.

mod programs;

use mithril_runtime::execute::Executable;
use mithril_runtime::program::{Buffer, Launch, Loop, Place, Program};
use mithril_runtime::size::Size::{self, Const, Symbol};
use mithril_runtime::threads::Pool;
use programs::{KERNELS, executable, launch};

/// Three numbers.
const ROW: i64 = 12;

/// Running sums of the rows of each of `s0` blocks of `s1` rows, each block from its last row on,
/// and the sum of all; both begin with argument 1.
fn sums() -> Program {
    let buffer = |bytes: Size, place| Buffer { bytes, place };
    let block = Symbol(1) * ROW;
    let row = |of, of_loop| Place::Row { of, of_loop };
    Program {
        symbols: 2,
        args: 2,
        results: 2,
        buffers: vec![
            buffer(Symbol(0) * block.clone(), Place::Argument(0)),
            buffer(Const(ROW), Place::Argument(1)),
            buffer(Symbol(0) * block.clone(), Place::Result(0)),
            buffer(Const(ROW), Place::Result(1)),
            buffer(Const(ROW), Place::Temporary),
            buffer(block.clone(), row(0, 0)),
            buffer(Const(ROW), row(5, 1)),
            buffer(block, row(2, 0)),
            buffer(Const(ROW), row(7, 1)),
        ],
        launches: vec![
            Launch::copy(3, 1, 4, Const(ROW)),
            launch(0, &[4, 6, 8], &Const(1), &Const(3)),
            Launch::copy(3, 8, 4, Const(ROW)),
            Launch::copy(3, 4, 3, Const(ROW)),
        ],
        loops: vec![
            Loop { launches: 1..3, trips: Symbol(0), reverse: false, condition: None },
            Loop { launches: 1..3, trips: Symbol(1), reverse: true, condition: None },
        ],
        ..Program::default()
    }
}

#[test]
fn loops_advance_rows() {
    let program = executable(sums());
    let pool = Pool::new(1);
    for (blocks, rows) in [(1, 1), (2, 3), (3, 1), (1, 4), (0, 2), (2, 0), (2, 3)] {
        let x: Vec<f32> = (0..blocks * rows * 3).map(|i| (i * i % 7) as f32).collect();
        let first = [1.0f32, 2.0, 3.0];
        let (mut want, mut sum) = (vec![0.0f32; x.len()], first);
        for (at, column) in (0..blocks * rows).flat_map(|row| (0..3).map(move |c| (row, c))) {
            let row = at / rows * rows + (rows - 1 - at % rows);
            sum[column] += x[row * 3 + column];
            want[row * 3 + column] = sum[column];
        }
        let (mut y, mut last) = (vec![0.0f32; x.len()], [0.0f32; 3]);
        let args = [x.as_ptr().cast(), first.as_ptr().cast()];
        let results = [y.as_mut_ptr().cast(), last.as_mut_ptr().cast()];
        let symbols = [blocks as i64, rows as i64];
        // SAFETY: the arrays have the lengths of their buffers.
        unsafe { program.run(&args, &symbols, &results, &pool) }.expect("a run");
        assert_eq!((y, last), (want, sum), "{blocks} blocks of {rows} rows");
    }
}

#[test]
fn loops_have_text() {
    let text = sums().to_string();
    let expected = "  b8 = row of b7 by loop 1, 12 bytes
  k3(b1, b4) dims [12] tasks 1 grain 4
  loop 0: s0 times
    loop 1: s1 times, in reverse
      k0(b4, b6, b8) dims [1, 3] tasks 1 grain 1 scratch 12
      k3(b8, b4) dims [12] tasks 1 grain 4
  k3(b4, b3) dims [12] tasks 1 grain 4
";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn invalid_loops_are_errors() {
    type Change = fn(&mut Program);
    let error = |change: Change| {
        let mut program = sums();
        change(&mut program);
        let made = Executable::new(program, KERNELS.to_vec(), vec![], vec![]);
        made.err().expect("an error").to_string()
    };
    let cases: [(Change, &str); 5] = [
        (|p| p.loops[1].launches.end = 5, "loop 1 names launch 5 of 5"),
        (
            |p| p.loops[1].launches = 2..4,
            "loop 1 overlaps an earlier loop without being nested in it",
        ),
        (|p| p.loops[1].trips = Symbol(2), "loop 1 names symbol 2 of 2"),
        (|p| p.loops[1].launches = 2..3, "launch 1 is not in the loop of buffer 6"),
        (|p| p.buffers[6].place = Place::Row { of: 5, of_loop: 2 }, "buffer 6 names loop 2 of 2"),
    ];
    for (change, message) in cases {
        assert_eq!(error(change), format!("invalid program: {message}"));
    }
    let mut program = sums();
    program.buffers[8].bytes = Const(16);
    let error = executable(program).result_bytes(&[1, 2]).expect_err("an error").to_string();
    assert_eq!(error, "buffer 8, 2 times in buffer 7 is 16, which is 16 for symbols [1, 2]");
}
