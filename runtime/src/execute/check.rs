//! Checks that the indices of a program are in range.

use super::Error;
use crate::program::{Loop, Place, Program};
use crate::size::Size;
use std::ops::Range;

/// Checks the indices of a program that has this many kernels and constants.
pub fn program(program: &Program, kernels: usize, constants: usize) -> Result<(), Error> {
    let mut buffers_of_result = vec![0; program.results];
    for (index, buffer) in program.buffers.iter().enumerate() {
        let of = || format!("buffer {index}");
        check_size(program, of, &buffer.bytes)?;
        match &buffer.place {
            Place::Argument(argument) => check_index(of, "argument", *argument, program.args)?,
            Place::Constant(constant) => check_index(of, "constant", *constant, constants)?,
            Place::Alias { of: whole, offset } => {
                check_index(of, "earlier buffer", *whole, index)?;
                check_size(program, of, offset)?;
            }
            Place::Row { of: whole, of_loop, .. } => {
                check_index(of, "earlier buffer", *whole, index)?;
                check_index(of, "loop", *of_loop, program.loops.len())?;
            }
            Place::Result(result) => {
                check_index(of, "result", *result, program.results)?;
                buffers_of_result[*result] += 1;
            }
            Place::Temporary => {}
        }
    }
    if let Some(result) = buffers_of_result.iter().position(|n| *n != 1) {
        let count = buffers_of_result[result];
        return Err(Error::Invalid(format!("result {result} has {count} buffers instead of one")));
    }
    for (index, launch) in program.launches.iter().enumerate() {
        let of = || format!("launch {index}");
        check_index(of, "kernel", launch.kernel, kernels)?;
        for buffer in &launch.buffers {
            check_index(of, "buffer", *buffer, program.buffers.len())?;
        }
        let sizes = [&launch.tasks, &launch.grain, &launch.scratch];
        launch.dims.iter().chain(sizes).try_for_each(|s| check_size(program, of, s))?;
    }
    check_loops(program)
}

/// Checks that loops are nested or disjoint, and that rows are used only inside their loops.
fn check_loops(program: &Program) -> Result<(), Error> {
    for (index, loop_) in program.loops.iter().enumerate() {
        let of = || format!("loop {index}");
        let Range { start, end } = loop_.launches;
        check_index(of, "launch", end, program.launches.len() + 1)?;
        check_size(program, of, &loop_.trips)?;
        if let Some(condition) = loop_.condition {
            check_index(of, "buffer", condition.buffer, program.buffers.len())?;
        }
        let nested = program.loops[..index].iter().all(|Loop { launches: before, .. }| {
            let inside = before.start <= start && end <= before.end;
            inside || before.end <= start
        });
        if start > end || !nested {
            return Err(Error::Invalid(format!(
                "loop {index} overlaps an earlier loop without being nested in it"
            )));
        }
    }
    let loops_of = |buffer: usize| -> Vec<usize> {
        let mut loops = Vec::new();
        let mut buffer = buffer;
        loop {
            match program.buffers[buffer].place {
                Place::Row { of, of_loop, .. } => {
                    loops.push(of_loop);
                    buffer = of;
                }
                Place::Alias { of, .. } => buffer = of,
                _ => return loops,
            }
        }
    };
    for (index, launch) in program.launches.iter().enumerate() {
        let inside = |at: usize| program.loops[at].launches.contains(&index);
        if let Some(buffer) = launch.buffers.iter().find(|&&b| !loops_of(b).into_iter().all(inside))
        {
            return Err(Error::Invalid(format!(
                "launch {index} is not in the loop of buffer {buffer}"
            )));
        }
    }
    Ok(())
}

fn check_index(
    of: impl Fn() -> String,
    what: &str,
    index: usize,
    count: usize,
) -> Result<(), Error> {
    if index < count {
        return Ok(());
    }
    Err(Error::Invalid(format!("{} names {what} {index} of {count}", of())))
}

fn check_size(program: &Program, of: impl Fn() -> String, size: &Size) -> Result<(), Error> {
    match size.symbols() {
        0 => Ok(()),
        used => check_index(of, "symbol", used - 1, program.symbols),
    }
}
