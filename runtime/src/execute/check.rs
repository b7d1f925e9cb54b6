//! Whether a program names only what there is.

use super::Error;
use crate::program::{Place, Program};
use crate::size::Size;

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
