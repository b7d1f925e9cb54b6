//! Checks that a program names only things that exist.

use super::Error;
use crate::program::{Loop, Place, Program};
use crate::size::Size;
use std::ops::Range;

/// Checks the indices of a program that has this many kernels and constants.
pub fn program(program: &Program, kernels: usize, constants: usize) -> Result<(), Error> {
    let mut placed = vec![0; program.results];
    for (index, buffer) in program.buffers.iter().enumerate() {
        let of = || format!("buffer {index}");
        size(program, of, &buffer.bytes)?;
        match &buffer.place {
            Place::Argument(argument) => named(of, "argument", *argument, program.args)?,
            Place::Constant(constant) => named(of, "constant", *constant, constants)?,
            Place::Alias { of: whole, offset } => {
                named(of, "earlier buffer", *whole, index)?;
                size(program, of, offset)?;
            }
            Place::Row { of: whole, of_loop, .. } => {
                named(of, "earlier buffer", *whole, index)?;
                named(of, "loop", *of_loop, program.loops.len())?;
            }
            Place::Result(result) => {
                named(of, "result", *result, program.results)?;
                placed[*result] += 1;
            }
            Place::Temporary => {}
        }
    }
    if let Some(result) = placed.iter().position(|n| *n != 1) {
        let places = placed[result];
        return Err(Error::Invalid(format!("result {result} is the place of {places} buffers")));
    }
    for (index, launch) in program.launches.iter().enumerate() {
        let of = || format!("launch {index}");
        named(of, "kernel", launch.kernel, kernels)?;
        for buffer in &launch.buffers {
            named(of, "buffer", *buffer, program.buffers.len())?;
        }
        let sizes = [&launch.tasks, &launch.grain, &launch.scratch];
        launch.dims.iter().chain(sizes).try_for_each(|s| size(program, of, s))?;
    }
    loops(program)
}

/// Checks that loops are nested or disjoint, and that rows are used only inside their loops.
fn loops(program: &Program) -> Result<(), Error> {
    for (index, own) in program.loops.iter().enumerate() {
        let of = || format!("loop {index}");
        let Range { start, end } = own.launches;
        named(of, "launch", end, program.launches.len() + 1)?;
        size(program, of, &own.trips)?;
        let nested = program.loops[..index].iter().all(|Loop { launches: before, .. }| {
            let inside = before.start <= start && end <= before.end;
            inside || before.end <= start
        });
        if start > end || !nested {
            return Err(Error::Invalid(format!(
                "loop {index} is neither inside others nor behind"
            )));
        }
    }
    let own = |buffer: usize| -> Vec<usize> {
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
        if let Some(buffer) = launch.buffers.iter().find(|&&b| !own(b).into_iter().all(inside)) {
            return Err(Error::Invalid(format!(
                "launch {index} is not in the loop of buffer {buffer}"
            )));
        }
    }
    Ok(())
}

fn named(of: impl Fn() -> String, what: &str, index: usize, count: usize) -> Result<(), Error> {
    if index < count {
        return Ok(());
    }
    Err(Error::Invalid(format!("{} names {what} {index} of {count}", of())))
}

fn size(program: &Program, of: impl Fn() -> String, size: &Size) -> Result<(), Error> {
    match size.symbols() {
        0 => Ok(()),
        used => named(of, "symbol", used - 1, program.symbols),
    }
}
