//! Templates of Fourier transforms, from the spellings that differ between frameworks: complex
//! numbers of two operands, casts of f16 and bf16 to f32 and back, and the arguments. `{x.rows}` is
//! `x` in row-major order, for a framework that must be told so.

/// Both parts of a complex value, where conditions hold.
macro_rules! parts {
    ($value:tt, $cast:literal, $conditions:literal) => {
        concat!(
            concat!$value, ".real", $cast, " if of == 0", $conditions, "; ",
            concat!$value, ".imag", $cast, " if of == 1", $conditions, "; "
        )
    };
}

/// A transform of complex numbers to complex numbers.
macro_rules! complex_transform {
    (
        $call:literal, $complex:literal, $complex_half:literal, $half:literal, $arguments:literal,
        $cast:literal, $cast_f32:literal
    ) => {
        concat!(
            parts!(($call, $complex_half, $arguments), $cast, " and imaginary is half"),
            parts!(($call, $complex, $arguments), $cast_f32, " and imaginary is f32"),
            parts!(($call, $complex, $arguments), "", " and imaginary is float"),
            parts!(($call, $half, $arguments), $cast, " and real is half"),
            parts!(($call, "{real.rows}", $arguments), $cast_f32, " and real is f32"),
            $call,
            "{real.rows}",
            $arguments,
            ".real if of == 0; ",
            $call,
            "{real.rows}",
            $arguments,
            ".imag"
        )
    };
}

/// A transform of real numbers to complex numbers.
macro_rules! real_transform {
    (
        $call:literal, $half:literal, $arguments:literal, $cast:literal, $cast_f32:literal
    ) => {
        concat!(
            parts!(($call, $half, $arguments), $cast, " and x is half"),
            parts!(($call, "{x.rows}", $arguments), $cast_f32, " and x is f32"),
            $call,
            "{x.rows}",
            $arguments,
            ".real if of == 0; ",
            $call,
            "{x.rows}",
            $arguments,
            ".imag"
        )
    };
}

/// A transform of complex numbers to real numbers.
macro_rules! inverse_real_transform {
    (
        $call:literal, $complex:literal, $complex_half:literal, $half:literal, $arguments:literal,
        $cast:literal, $cast_f32:literal
    ) => {
        concat!(
            $call,
            $complex_half,
            $arguments,
            $cast,
            " if imaginary is half; ",
            $call,
            $complex,
            $arguments,
            $cast_f32,
            " if imaginary is f32; ",
            $call,
            $complex,
            $arguments,
            " if imaginary is float; ",
            $call,
            $half,
            $arguments,
            $cast,
            " if real is half; ",
            $call,
            "{real.rows}",
            $arguments,
            $cast_f32,
            " if real is f32; ",
            $call,
            "{real.rows}",
            $arguments
        )
    };
}

pub(super) use {complex_transform, inverse_real_transform, parts, real_transform};
