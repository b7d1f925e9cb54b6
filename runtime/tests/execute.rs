//! Programs from end to end: values, symbols, threads, errors, text.

mod programs;

use bytes::Bytes;
use mithril_runtime::code::Code;
use mithril_runtime::execute::{Error, Executable};
use mithril_runtime::memory::Block;
use mithril_runtime::program::{Buffer, Place, Program};
use mithril_runtime::size::Size::{Const, Symbol};
use mithril_runtime::threads::Pool;
use programs::{KERNELS, centered, executable, launch};
use std::sync::Arc;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let number = |i: usize| ((i as u32).wrapping_mul(2654435761) ^ seed) as f32 / 2e9;
    (0..count).map(number).collect()
}

/// What `centered` computes, straightforwardly.
fn expected(a: &[f32], b: &[f32], columns: usize) -> Vec<f32> {
    let sums: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
    let row = |row: &[f32]| {
        let mean = row.iter().sum::<f32>() / columns as f32;
        row.iter().map(|x| (x - mean) * 0.5).collect::<Vec<_>>()
    };
    sums.chunks(columns).flat_map(row).collect()
}

fn run(program: &Executable, symbols: &[i64], rows: usize, columns: usize, pool: &Pool) {
    let (a, b) = (numbers(rows * columns, 1), numbers(rows * columns, 2));
    let mut results: Vec<Vec<f32>> = vec![vec![0.0; rows * columns], vec![0.0; columns]];
    let to: Vec<_> = results.iter_mut().map(|r| r.as_mut_ptr().cast()).collect();
    // SAFETY: all arrays have the lengths of their buffers.
    unsafe { program.run(&[a.as_ptr().cast(), b.as_ptr().cast()], symbols, &to, pool) }
        .expect("a run");
    let all = expected(&a, &b, columns);
    assert_eq!(results[0], all);
    assert_eq!(results[1], all[(rows - 1) * columns..]);
}

#[test]
fn values_do_not_depend_on_threads() {
    let fixed = executable(centered(Const(9), Const(33)));
    let free = executable(centered(Symbol(0), Symbol(1)));
    for pool in [1, 2, 3].map(Pool::new) {
        run(&fixed, &[], 9, 33, &pool);
        for rows in [1, 2, 9, 100] {
            for columns in [1, 33, 20_000] {
                run(&free, &[rows as i64, columns as i64], rows, columns, &pool);
            }
        }
    }
}

/// It is known by how it adds.
unsafe extern "C" fn add_backwards(
    _: *mut u8,
    at: *const *mut u8,
    dims: *const i64,
    lo: i64,
    hi: i64,
) {
    // SAFETY: the launch gives three buffers of rows, and some of the rows.
    unsafe {
        let columns = *dims.add(1);
        for i in (lo * columns..hi * columns).rev().map(|i| i as usize) {
            let number = |buffer: usize| (*at.add(buffer)).cast::<f32>().add(i);
            *number(2) = *number(1) + *number(0);
        }
    }
}

/// Kernels may be replaced while many calls run; replacing a kernel that does not exist is an
/// error.
#[test]
fn kernels_are_replaced_while_calls_run() {
    let program = executable(centered(Const(9), Const(333)));
    let code = || Arc::new(Code::of_function("nothing", &[0xc3]).expect("memory"));
    let calls = || (0..200).for_each(|_| run(&program, &[], 9, 333, &Pool::new(1)));
    std::thread::scope(|scope| {
        let callers = [(); 4].map(|()| scope.spawn(calls));
        for turn in 0..100 {
            let kernel = if turn % 2 == 0 { add_backwards } else { KERNELS[0] };
            // SAFETY: both add.
            unsafe { program.replace(0, kernel, code()) }.expect("a kernel");
        }
        callers.into_iter().for_each(|caller| caller.join().expect("the calls are right"));
    });
    // SAFETY: it is refused.
    let missing = unsafe { program.replace(4, KERNELS[0], code()) };
    let expected = "invalid program: there is no kernel 4 of 4";
    assert_eq!(missing.expect_err("it is refused").to_string(), expected);
}

#[test]
fn prepared_programs_are_evicted() {
    let program = executable(centered(Symbol(0), Const(3)));
    let pool = Pool::new(1);
    for rows in (1..100).chain([1, 99, 50]) {
        run(&program, &[rows], rows as usize, 3, &pool);
    }
}

#[test]
fn temporaries_share_the_arena() {
    let program = executable(centered(Symbol(0), Const(16)));
    let prepared = program.prepare(&[10]).expect("sizes");
    assert_eq!(prepared.arena_bytes(), 2 * 640);
    assert_eq!(prepared.result_bytes(), [640, 64]);
    assert_eq!(program.result_bytes(&[1]), Ok(vec![64, 64]));
    assert_eq!(prepared.symbols(), [10]);
}

#[test]
fn empty_launches_are_skipped() {
    let mut program = centered(Symbol(0), Const(3));
    // The last row of none is nowhere.
    program.buffers.truncate(6);
    program.buffers.push(Buffer { bytes: Const(0), place: Place::Result(1) });
    program.launches.truncate(3);
    let program = executable(program);
    let nothing = Block::empty();
    let (from, to) = ([nothing.as_ptr().cast_const(); 2], [nothing.as_ptr(); 2]);
    // SAFETY: buffers of no bytes.
    unsafe { program.run(&from, &[0], &to, &Pool::new(2)) }.expect("a run");
    assert_eq!(program.result_bytes(&[0]), Ok(vec![0, 0]));
}

#[test]
fn invalid_programs_are_errors() {
    type Change = fn(&mut Program);
    let error = |change: Change| {
        let mut program = centered(Symbol(0), Const(3));
        change(&mut program);
        let constant = Bytes::from(vec![0; 4]);
        let made = Executable::new(program, KERNELS.to_vec(), vec![], vec![constant]);
        made.err().expect("an error").to_string()
    };
    let cases: [(Change, &str); 9] = [
        (|p| p.launches[1].kernel = 4, "launch 1 names kernel 4 of 4"),
        (|p| p.launches[1].buffers[0] = 8, "launch 1 names buffer 8 of 8"),
        (|p| p.launches[1].tasks = Symbol(1), "launch 1 names symbol 1 of 1"),
        (|p| p.buffers[1].place = Place::Argument(2), "buffer 1 names argument 2 of 2"),
        (|p| p.buffers[4].place = Place::Constant(1), "buffer 4 names constant 1 of 1"),
        (|p| p.buffers[5].place = Place::Temporary, "result 0 has 0 buffers instead of one"),
        (|p| p.buffers[5].place = Place::Result(1), "result 0 has 0 buffers instead of one"),
        (|p| p.buffers[5].place = Place::Result(2), "buffer 5 names result 2 of 2"),
        (
            |p| p.buffers[6].place = Place::Alias { of: 6, offset: Const(0) },
            "buffer 6 names earlier buffer 6 of 6",
        ),
    ];
    for (change, message) in cases {
        assert_eq!(error(change), format!("invalid program: {message}"));
    }
}

#[test]
fn invalid_calls_are_errors() {
    let program = executable(centered(Symbol(0), Symbol(1)));
    let pool = Pool::new(1);
    let null = std::ptr::null_mut::<u8>();
    let run = |args, symbols: &[i64], results| {
        // SAFETY: refused before anything is touched.
        let run = unsafe {
            program.run(&vec![null.cast_const(); args], symbols, &vec![null; results], &pool)
        };
        run.expect_err("an error").to_string()
    };
    assert_eq!(run(1, &[1, 1], 2), "1 arguments given, 2 expected");
    assert_eq!(run(2, &[1, 1], 3), "3 results given, 2 expected");
    assert_eq!(run(2, &[1], 2), "1 symbols given, 2 expected");
    assert_eq!(
        run(2, &[-1, 2], 2),
        "the length of buffer 0 is (s0*s1*4), which is -8 for symbols [-1, 2]"
    );
    assert_eq!(
        run(2, &[i64::MAX, 2], 2),
        "the length of buffer 0 is (s0*s1*4), which is undefined for symbols [9223372036854775807, 2]"
    );
    assert_eq!(
        run(2, &[0, 1], 2),
        "the offset of buffer 6 is ((s0 + -1)*s1*4), which is -4 for symbols [0, 1]"
    );
    let exabytes = run(2, &[1 << 28, 1 << 29], 2);
    assert!(exabytes.starts_with("out of memory: "), "{exabytes}");
}

#[test]
fn aliases_lie_within_their_buffer() {
    let mut program = centered(Const(4), Const(4));
    program.buffers[6].bytes = Const(17);
    let half = || vec![Bytes::from(vec![0; 4])];
    let made = Executable::new(program, KERNELS.to_vec(), vec![], half());
    let message = made.err().expect("an error").to_string();
    assert_eq!(
        message,
        "buffer 6 from byte 48 of the 64 of buffer 5 is 17, which is 17 for symbols []"
    );
    let mut program = centered(Const(4), Const(4));
    program.buffers[4].bytes = Const(5);
    let made = Executable::new(program, KERNELS.to_vec(), vec![], half());
    assert!(matches!(made.err(), Some(Error::Size { value: Some(5), .. })));
}

#[test]
fn programs_have_text() {
    let mut program = centered(Symbol(0), Const(3));
    program.launches.insert(0, launch(0, &[0, 1, 2], &Const(1), &Const(0)));
    let expected = "\
program: 1 symbols, 2 arguments, 2 results
  b0 = argument 0, (s0*3*4) bytes
  b1 = argument 1, (s0*3*4) bytes
  b2 = temporary, (s0*3*4) bytes
  b3 = temporary, (s0*3*4) bytes
  b4 = constant 0, 4 bytes
  b5 = result 0, (s0*3*4) bytes
  b6 = b5 from ((s0 + -1)*3*4), 12 bytes
  b7 = result 1, 12 bytes
  k0(b0, b1, b2) dims [1, 0] tasks 1 grain 1
  k0(b0, b1, b2) dims [s0, 3] tasks s0 grain 1 scratch 12
  k1(b2, b3) dims [s0, 3] tasks s0 grain 1 scratch 12
  k2(b3, b5, b4) dims [s0, 3] tasks s0 grain 1 scratch 12
  k3(b6, b7) dims [12] tasks 1 grain 4
";
    assert_eq!(program.to_string(), expected);
}

#[test]
fn a_call_ends_between_two_launches() {
    let program = executable(centered(Const(9), Const(33)));
    let (a, b) = (numbers(9 * 33, 1), numbers(9 * 33, 2));
    let mut results = [vec![0f32; 9 * 33], vec![0f32; 33]];
    let to: Vec<_> = results.iter_mut().map(|r| r.as_mut_ptr().cast()).collect();
    let from = [a.as_ptr().cast(), b.as_ptr().cast()];
    let launches = program.program().launches.len();
    assert!(launches > 1);
    for last in 1..=launches {
        let mut asked = 0;
        let mut stop = || {
            asked += 1;
            asked == last
        };
        // SAFETY: all arrays have the lengths of their buffers.
        let ran = unsafe { program.run_until(&from, &[], &to, &Pool::new(1), &mut stop) };
        assert_eq!((ran, asked), (Err(Error::Interrupted), last));
    }
    run(&program, &[], 9, 33, &Pool::new(1));
}
