//! Programs and kernels written by hand, for the tests that run them.

// Each user takes a part of it.
#![allow(dead_code)]

use bytes::Bytes;
use mithril_runtime::execute::Executable;
use mithril_runtime::kernel::{Kernel, copy};
use mithril_runtime::program::{Buffer, Launch, Place, Program};
use mithril_runtime::size::Size;
use std::slice;

/// Rows of `dims[1]` numbers: buffer 2 is the sum of buffers 0 and 1. A task is a row.
unsafe extern "C" fn add(_: *mut u8, at: *const *mut u8, dims: *const i64, lo: i64, hi: i64) {
    // SAFETY: the launch gives buffers of `rows x columns` numbers, or more, and rows of them.
    unsafe {
        let range = (lo * *dims.add(1)) as usize..(hi * *dims.add(1)) as usize;
        let number = |buffer: usize, i: usize| (*at.add(buffer)).cast::<f32>().add(i);
        range.for_each(|i| *number(2, i) = *number(0, i) + *number(1, i));
    }
}

/// Buffer 1 is each row of buffer 0 less its mean, which is summed up in scratch.
unsafe extern "C" fn center(
    scratch: *mut u8,
    at: *const *mut u8,
    dims: *const i64,
    lo: i64,
    hi: i64,
) {
    // SAFETY: the launch gives buffers of `rows x columns` numbers, or more, and rows of them.
    unsafe {
        assert!(scratch.addr().is_multiple_of(64));
        let columns = *dims.add(1) as usize;
        let (from, to) = ((*at).cast::<f32>(), (*at.add(1)).cast::<f32>());
        for row in lo as usize..hi as usize {
            let row = row * columns;
            let sums = slice::from_raw_parts_mut(scratch.cast::<f32>(), columns);
            let mut sum = 0.0;
            for (i, partial) in sums.iter_mut().enumerate() {
                sum += *from.add(row + i);
                *partial = sum;
            }
            (0..columns).for_each(|i| *to.add(row + i) = *from.add(row + i) - sum / columns as f32);
        }
    }
}

/// Buffer 1 is buffer 0 times the first number of buffer 2.
unsafe extern "C" fn scale(_: *mut u8, at: *const *mut u8, dims: *const i64, lo: i64, hi: i64) {
    // SAFETY: the launch gives buffers of `rows x columns` numbers, or more, and rows of them.
    unsafe {
        let range = (lo * *dims.add(1)) as usize..(hi * *dims.add(1)) as usize;
        let number = |buffer: usize, i: usize| (*at.add(buffer)).cast::<f32>().add(i);
        range.for_each(|i| *number(1, i) = *number(0, i) * *number(2, 0));
    }
}

/// As the tests number them.
pub const KERNELS: [Kernel; 4] = [add, center, scale, copy];

pub fn launch(kernel: usize, buffers: &[usize], rows: &Size, columns: &Size) -> Launch {
    Launch {
        kernel,
        buffers: buffers.to_vec(),
        dims: vec![rows.clone(), columns.clone()],
        tasks: rows.clone(),
        grain: Size::Const(1),
        scratch: columns.clone() * 4,
    }
}

/// Result 0 is `center(a + b) * 0.5` of two arguments of `rows x columns` numbers; result 1 is its
/// last row.
pub fn centered(rows: Size, columns: Size) -> Program {
    let bytes = rows.clone() * columns.clone() * 4;
    let buffer = |place| Buffer { bytes: bytes.clone(), place };
    let row = |place| Buffer { bytes: columns.clone() * 4, place };
    let last = (rows.clone() + -1) * columns.clone() * 4;
    Program {
        symbols: rows.symbols().max(columns.symbols()),
        args: 2,
        results: 2,
        buffers: vec![
            buffer(Place::Argument(0)),
            buffer(Place::Argument(1)),
            buffer(Place::Temporary),
            buffer(Place::Temporary),
            Buffer { bytes: Size::Const(4), place: Place::Constant(0) },
            buffer(Place::Result(0)),
            row(Place::Alias { of: 5, offset: last }),
            row(Place::Result(1)),
        ],
        launches: vec![
            launch(0, &[0, 1, 2], &rows, &columns),
            launch(1, &[2, 3], &rows, &columns),
            launch(2, &[3, 5, 4], &rows, &columns),
            Launch::copy(3, 6, 7, columns.clone() * 4),
        ],
        ..Program::default()
    }
}

/// Made ready, with the constant 0.5.
pub fn executable(program: Program) -> Executable {
    let half = Bytes::from(0.5f32.to_le_bytes().to_vec());
    Executable::new(program, KERNELS.to_vec(), vec![], vec![half]).expect("a program")
}
