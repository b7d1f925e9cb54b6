//! NumPy.

use std::sync::OnceLock;

use mithril_passes::profile;
use mithril_passes::target::{Language, Target};

use super::fourier::{complex_transform, inverse_real_transform, parts, real_transform};
use super::{Backend, Spellings};

pub static BACKEND: Backend = Backend {
    label: "NumPy",
    target: Target {
        name: "numpy",
        takes: &|_, op| BACKEND.spells(op.op),
        pulls_back: &|_, _, by| BACKEND.spells(by),
        profile: profile::PLAIN,
        language: Language::Python,
        bodies: &["numpy"],
        standard: |_| None,
    },
    takes_on_mesh: None,
    module: "np",
    imports: &[],
    prelude: &[include_str!("prelude/numpy.py"), include_str!("prelude/numpy_random.py")],
    spellings: SPELLINGS,
    random: &[
        ("key_fold", "(*{key}, {data.word})"),
        ("key_split", "@random.default_rng({key}).integers(0, 4294967296, ({count}, 2), @uint32)"),
        ("random_bits", "_bits({key}, {shape}, {dtype})"),
        (
            "uniform",
            "@random.default_rng({key}).random({shape}, {dtype}) if low is default and high is \
             default and dtype is f32; _rand({key}, {shape}, {dtype}[, {low}, {high}])",
        ),
        (
            "normal",
            "@random.default_rng({key}).standard_normal({shape}, {dtype}) if dtype is f32; \
             _randn({key}, {shape}, {dtype})",
        ),
    ],
    in_place: &[],
    scalar: "{dtype}({x})",
    array: "@array({x}, dtype={dtype})",
    full: "@full({shape}, {x}, dtype={dtype})",
    zeros: "@zeros({shape}, dtype={dtype})",
    ones: "@ones({shape}, dtype={dtype})",
    load: "{x}",
    load_bits: None,
    truth: "bool_",
    foreign: Some("ml_dtypes"),
    dtypes: None,
    infinities: None,
    lacks: &[],
    signed_sums: &[],
    devices: false,
    narrow: false,
    mixes: false,
    differentiates: false,
    differentiates_branches: false,
    loops: false,
    eager: true,
    lazy: false,
    known: OnceLock::new(),
};

const SPELLINGS: Spellings = &[
    ("erf", "_erf({x})"),
    ("i0", "@i0({x})"),
    ("sinc", "@sinc({x})"),
    ("sigmoid", "_sigmoid({x})"),
    ("relu", "@maximum({x}, 0)"),
    ("leaky_relu", "@where({x} > 0, {x}, {slope} * {x})"),
    ("silu", "{x} * _sigmoid({x})"),
    // ml_dtypes does not convert between its integers of 4 bits.
    (
        "cast",
        "{x}.astype(@int8).astype({dtype}) if x is u4 and dtype is i4; \
         {x}.astype(@int8).astype({dtype}) if x is i4 and dtype is u4; \
         {x}.astype({dtype})",
    ),
    (
        "clamp",
        "@maximum({x}, {min}) if max is default; \
         @minimum({x}, {max}) if min is default; \
         @clip({x}, {min}, {max})",
    ),
    (
        "sum",
        "@sum({x}[, axis={axes}][, keepdims={keepdim}], dtype=@float32).astype({dtype}) if x is \
         half and acc is missing; \
         @sum({x}[, axis={axes}][, keepdims={keepdim}][, dtype={narrow}]) if acc is missing; \
         @sum({x}[, axis={axes}][, keepdims={keepdim}], dtype={acc}).astype({dtype})",
    ),
    (
        "max",
        "@max({x}[, axis={axes}][, keepdims={keepdim}], initial=-@inf) if axes is vacant and \
         is_inf is reader; \
         @max({x}[, axis={axes}][, keepdims={keepdim}])",
    ),
    // `ml_dtypes` has no order of NaN.
    (
        "sort",
        "_sort({x}.astype(@float32), {axis}, {descending}).astype({dtype}) if x is bf16; \
         _sort({x}, {axis}, {descending})",
    ),
    (
        "argsort",
        "_argsort({x}.astype(@float32), {axis}, {descending}) if x is bf16; \
         _argsort({x}, {axis}, {descending})",
    ),
    (
        "mean",
        "@mean({x}[, axis={axes}][, keepdims={keepdim}], dtype=@float32).astype({dtype}) if x is \
         half; \
         @mean({x}[, axis={axes}][, keepdims={keepdim}])",
    ),
    (
        "variance",
        "@var({x}[, axis={axes}][, ddof={correction}][, keepdims={keepdim}], \
         dtype=@float32).astype({dtype}) if x is half; \
         @var({x}[, axis={axes}][, ddof={correction}][, keepdims={keepdim}])",
    ),
    (
        "dot_general",
        "{x} * {y} if result is scaled; \
         ({left}.astype(@float32) @ {right}.astype(@float32)).astype({dtype}) if result is matmul \
         and x is half and acc is missing; \
         {left} @ {right} if result is matmul and acc is missing; \
         ({left}.astype({acc}) @ {right}.astype({acc})).astype({dtype}) if result is matmul; \
         @tensordot({x}.astype(@float32), {y}.astype(@float32), {contracted}).astype({dtype}) if \
         result is tensordot and x is half and acc is missing; \
         @tensordot({x}, {y}, {contracted}) if result is tensordot and acc is missing; \
         @tensordot({x}.astype({acc}), {y}.astype({acc}), {contracted}).astype({dtype}) if result \
         is tensordot; \
         @einsum({equation}, {x}.astype(@float32), {y}.astype(@float32)).astype({dtype}) if x is \
         half and acc is missing; \
         @einsum({equation}, {x}, {y}) if acc is missing; \
         @einsum({equation}, {x}.astype({acc}), {y}.astype({acc})).astype({dtype})",
    ),
    (
        "matmul",
        "({x}.astype(@float32) @ {y}.astype(@float32)).astype({dtype}) if x is half; \
         {x} @ {y}",
    ),
    (
        "iota",
        "@arange({shape.one}, dtype={dtype}) if shape is single; \
         _iota({shape}, {axis}, {dtype})",
    ),
    (
        "sum_to",
        "_sum_to({x}, {shape}) if x is half; \
         @sum({x}, axis={summed}[, keepdims={kept}][, dtype={narrow}]) if result is summed; \
         _sum_to({x}, {shape})",
    ),
    (
        "pad",
        "{x} if x is scalar; \
         @pad({x}, {widths}) if value is zero and low is natural and high is natural and interior \
         is default; \
         @pad({x}, {widths}, constant_values={value.number}) if low is natural and high is natural \
         and interior is default; \
         _pad({x}, {value.number}, {padding})",
    ),
    (
        "windows",
        "_windows({x}, {axes.tuple}, {sizes.tuple}[, strides={strides.tuple}][, \
         dilations={dilations.tuple}])",
    ),
    ("skew", "_skew({x}, {axes.tuple}, {taps.tuple}, {shifts.tuple})"),
    (
        "conv",
        "_conv({x}.astype(@float32), {weights}.astype(@float32)[, strides={strides.tuple}][, \
         dilations={dilations.tuple}][, low={low.tuple}][, high={high.tuple}][, \
         interior={interior.tuple}][, groups={groups}]).astype({dtype}) if x is half and acc \
         is missing; _fft_conv({x}, {weights}[, low={low.tuple}][, high={high.tuple}]) if weights \
         is long and strides is default and dilations is default and interior is default and \
         groups is default and acc is missing; \
         _row_conv({x}, {weights}[, dilations={dilations.tuple}][, \
         low={low.tuple}][, high={high.tuple}]) if weights is few and strides is default and \
         interior is default and groups is default and acc is missing; \
         _conv({x}, {weights}[, strides={strides.tuple}][, \
         dilations={dilations.tuple}][, low={low.tuple}][, high={high.tuple}][, \
         interior={interior.tuple}][, groups={groups}]) if acc is missing; \
         _conv({x}.astype({acc}), {weights}.astype({acc})[, strides={strides.tuple}][, \
         dilations={dilations.tuple}][, low={low.tuple}][, high={high.tuple}][, \
         interior={interior.tuple}][, groups={groups}]).astype({dtype})",
    ),
    ("scatter_add", "_scatter_add({x}, {indices}, {updates}, {axis})"),
    ("grouped_matmul", "_grouped_matmul({x}, {w}, {group})"),
    ("grouped_outer", "_grouped_outer({x}, {y}, {group}, {groups})"),
    ("slice_update", "_slice_update({x}, @s_[{slices}], {update})"),
    ("stop_gradient", "{x}"),
    (
        "fft",
        complex_transform!(
            "@fft.fft(",
            "{real} + 1j * {imaginary}",
            "{real}.astype(@float32) + 1j * {imaginary}.astype(@float32)",
            "{real}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ".astype({dtype})"
        ),
    ),
    (
        "inverse_fft",
        complex_transform!(
            "@fft.ifft(",
            "{real} + 1j * {imaginary}",
            "{real}.astype(@float32) + 1j * {imaginary}.astype(@float32)",
            "{real}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ".astype({dtype})"
        ),
    ),
    (
        "real_fft",
        real_transform!(
            "@fft.rfft(",
            "{x}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ".astype({dtype})"
        ),
    ),
    (
        "inverse_real_fft",
        inverse_real_transform!(
            "@fft.irfft(",
            "{real} + 1j * {imaginary}",
            "{real}.astype(@float32) + 1j * {imaginary}.astype(@float32)",
            "{real}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ".astype({dtype})"
        ),
    ),
    ("cholesky", "_cholesky({x})"),
    (
        "triangular_solve",
        "_triangular_solve({a}, {b}, {lower}[, transposed={transposed}][, \
         unit_diagonal={unit_diagonal}])",
    ),
    ("solve", "_solve({a}, {b})"),
    ("inverse", "_inverse({x})"),
    ("eigh", "_of_finite(@linalg.eigh, {x}, @tril({x}))[{of} / 2]"),
    ("eigvalsh", "_of_finite(@linalg.eigvalsh, {x}, @tril({x}))"),
    ("svd", "_of_finite(@linalg.svd, {x}, full_matrices=False)[{of} / 3]"),
];
