//! JAX.

use std::sync::OnceLock;

use mithril_passes::profile;
use mithril_passes::shard::attention;
use mithril_passes::target::{Language, Target};

use super::array_api;
use super::fourier::{complex_transform, inverse_real_transform, parts, real_transform};
use super::{Backend, Spellings};

pub static BACKEND: Backend = Backend {
    label: "JAX",
    target: Target {
        name: "jax",
        // XLA fuses the parts of attention on one device.
        takes: &|_, op| BACKEND.spells(op.op) && !attention::is_attention(op.op),
        pulls_back: &|_, _, by| BACKEND.spells(by),
        profile: profile::COMPILED,
        language: Language::Python,
        bodies: &["jax"],
        standard: |_| None,
    },
    takes_on_mesh: Some(&|function, op| {
        BACKEND.spells(op.op)
            && (!attention::is_attention(op.op) || attention::divides(function, op))
    }),
    module: "jnp",
    imports: &[],
    prelude: &[include_str!("prelude/jax.py"), include_str!("prelude/jax_attention.py")],
    spellings: SPELLINGS,
    random: &[],
    in_place: &[],
    scalar: "{dtype}({x})",
    array: "@array({x}, dtype={dtype})",
    full: "@full({shape}, {x}, dtype={dtype})",
    zeros: "@zeros({shape}, dtype={dtype})",
    ones: "@ones({shape}, dtype={dtype})",
    load: "@asarray({x})",
    load_bits: None,
    truth: "bool_",
    foreign: None,
    dtypes: None,
    infinities: None,
    lacks: &[],
    signed_sums: &[],
    devices: false,
    narrow: true,
    mixes: true,
    differentiates: true,
    differentiates_branches: true,
    loops: true,
    eager: false,
    lazy: false,
    known: OnceLock::new(),
};

macro_rules! triangular {
    ($operands:literal, $transposed:literal, $condition:literal) => {
        concat!(
            "jax.scipy.linalg.solve_triangular(",
            $operands,
            $transposed,
            ", lower={lower}[, unit_diagonal={unit_diagonal}])",
            $condition
        )
    };
}

const SPELLINGS: Spellings = &[
    // XLA (0.10.2) rounds downwards in casts to int8 that it fuses with the subtraction of a maximum.
    ("cast", "@trunc({x}).astype({dtype}) if dtype is i8 and x is float; {x}.astype({dtype})"),
    ("slice", "@split({x}, {parts}, axis={axes})[{part} / {parts}] if x is divided; {x}[{slices}]"),
    ("erf", "jax.scipy.special.erf({x})"),
    ("lgamma", "_lgamma({x})"),
    // JAX's digamma is not here: its derivative is wrong below 0.
    ("erfinv", "jax.scipy.special.erfinv({x})"),
    ("i0", "_i0({x})"),
    ("i1", "jax.scipy.special.i1({x})"),
    ("sinc", "_sinc({x})"),
    ("logit", "_logit({x})"),
    ("xlogy", "_xlogy({x}, {y})"),
    ("sigmoid", "jax.nn.sigmoid({x})"),
    ("softplus", "jax.nn.softplus({x}) if beta is default; jax.nn.softplus({x} * {beta}) / {beta}"),
    ("softsign", "jax.nn.soft_sign({x})"),
    ("relu", "jax.nn.relu({x})"),
    ("leaky_relu", "jax.nn.leaky_relu({x}, {slope})"),
    ("elu", "jax.nn.elu({x}[, alpha={alpha}])"),
    ("selu", "jax.nn.selu({x})"),
    ("gelu", "_gelu({x}) if gelu_gradient is used; jax.nn.gelu({x}, approximate=False)"),
    ("gelu_tanh", "jax.nn.gelu({x})"),
    ("silu", "jax.nn.silu({x})"),
    ("mish", "jax.nn.mish({x})"),
    ("hardswish", "jax.nn.hard_swish({x})"),
    ("hard_sigmoid", "jax.nn.hard_sigmoid({x})"),
    ("clamp", "@clip({x}[, min={min}][, max={max}])"),
    (
        "sum",
        "@sum({x}[, axis={axes}][, keepdims={keepdim}][, dtype={narrow}]) if acc is missing; \
         @sum({x}[, axis={axes}][, keepdims={keepdim}], dtype={acc}).astype({dtype})",
    ),
    ("max", "@max({x}[, axis={axes}][, keepdims={keepdim}])"),
    ("sort", "@sort({x}, axis={axis}[, descending={descending}])"),
    ("argsort", "@argsort({x}, axis={axis}[, descending={descending}])"),
    ("mean", "@mean({x}[, axis={axes}][, keepdims={keepdim}])"),
    ("variance", "@var({x}[, axis={axes}][, ddof={correction}][, keepdims={keepdim}])"),
    ("logsumexp", "jax.nn.logsumexp({x}[, axis={axes}][, keepdims={keepdim}])"),
    (
        "dot_general",
        "{x} * {y} if result is scaled; \
         {left} @ {right} if result is matmul and acc is missing; \
         @matmul({left}, {right}, preferred_element_type={acc}).astype({dtype}) if result is \
         matmul; \
         @einsum({equation}, {x}, {y}) if acc is missing; \
         @einsum({equation}, {x}, {y}, preferred_element_type={acc}).astype({dtype})",
    ),
    ("matmul", "{x} @ {y}"),
    (
        "iota",
        "@arange({shape.one}, dtype={dtype}) if shape is single; \
         jax.lax.broadcasted_iota({dtype}, {shape}, {axis.front})",
    ),
    (
        "sum_to",
        "@sum({x}, axis={summed}[, keepdims={kept}][, dtype={narrow}]) if result is summed; \
         _sum_to({x}, {shape})",
    ),
    (
        "pad",
        "{x} if x is scalar; \
         @pad({x}, {widths}) if value is zero and low is natural and high is natural and interior \
         is default; \
         @pad({x}, {widths}, constant_values={value.number}) if value is number and low is natural \
         and high is natural and interior is default; \
         jax.lax.pad({x}, {value}, {padding})",
    ),
    (
        "scatter_add",
        "{x}.at[{indices}].add({updates}) if axis == 0; \
         {x}.at[:, {indices}].add({updates}) if axis == 1; \
         {x}.at[..., {indices}].add({updates}) if axis == -1; \
         _scatter_add({x}, {indices}, {updates}, {axis})",
    ),
    ("grouped_matmul", "_grouped_matmul({x}, {w}, {group})"),
    ("grouped_outer", "_grouped_outer({x}, {y}, {group}, {groups})"),
    (
        "slice_update",
        "{x}.at[{slices}].set({update}) if update is smaller; \
         _slice_update({x}, @s_[{slices}], {update})",
    ),
    (
        "dynamic_slice",
        "jax.lax.dynamic_slice({x}, ({starts},), {sizes}) if starts is alike; \
         _dynamic_slice({x}, ({starts},), {sizes})",
    ),
    (
        "dynamic_update_slice",
        "jax.lax.dynamic_update_slice({x}, {update}, ({starts},)) if starts is alike; \
         _dynamic_update_slice({x}, {update}, ({starts},))",
    ),
    array_api::CONV,
    array_api::MAX_POOL,
    (
        "sum_pool",
        "_sum_pool({x}, {sizes.tuple}[, strides={strides.tuple}][, low={low.tuple}][, \
         high={high.tuple}])",
    ),
    ("one_hot", "jax.nn.one_hot({indices}, {classes}, dtype={dtype})"),
    ("random_bits", "jax.random.bits({key}, {shape}, {dtype})"),
    ("uniform", "jax.random.uniform({key}, {shape}, {dtype}[, {low}, {high}])"),
    ("normal", "jax.random.normal({key}, {shape}, {dtype})"),
    ("key_split", "jax.random.split({key}, {count})"),
    ("key_fold", "jax.random.fold_in({key}, {data.word})"),
    ("stop_gradient", "jax.lax.stop_gradient({x})"),
    ("constrain", "_constrain({x}, {mesh}, {spec})"),
    (
        "attention",
        "_attention({query}, {key}, {value}[, mask={mask}][, causal={causal}][, left={left}][, \
         right={right}][, softcap={softcap}][, scale={scale}])",
    ),
    ("softmax", "jax.nn.softmax({x}[, axis={axis}])"),
    ("log_softmax", "jax.nn.log_softmax({x}[, axis={axis}])"),
    ("cholesky", "@linalg.cholesky({x})"),
    ("det", "_det({x})"),
    (
        "triangular_solve",
        concat!(
            triangular!("{a}, {b}", ", trans=1", " if transposed == True and a is matrix; "),
            triangular!("{a}, {b}", "", " if a is matrix; "),
            // JAX takes a matrix beside several matrices for several vectors.
            triangular!("{a}, {b}[None]", ", trans=1", " if transposed == True and b is matrix; "),
            triangular!("{a}, {b}[None]", "", " if b is matrix; "),
            triangular!("{a}, {b}", ", trans=1", " if transposed == True; "),
            triangular!("{a}, {b}", "", ""),
        ),
    ),
    ("solve", "@linalg.solve({a}, {b})"),
    ("inverse", "@linalg.inv({x})"),
    ("gelu_gradient", "_gelu_gradient({gradient}, {x})"),
    ("gelu_tanh_gradient", "_gelu_tanh_gradient({gradient}, {x})"),
    ("silu_gradient", "_silu_gradient({gradient}, {x})"),
    (
        "fft",
        complex_transform!(
            "@fft.fft(",
            "jax.lax.complex({real.rows}, {imaginary.rows})",
            "jax.lax.complex({real.rows}.astype(@float32), {imaginary.rows}.astype(@float32))",
            "{real.rows}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ""
        ),
    ),
    (
        "inverse_fft",
        complex_transform!(
            "@fft.ifft(",
            "jax.lax.complex({real.rows}, {imaginary.rows})",
            "jax.lax.complex({real.rows}.astype(@float32), {imaginary.rows}.astype(@float32))",
            "{real.rows}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ""
        ),
    ),
    (
        "real_fft",
        real_transform!(
            "@fft.rfft(",
            "{x.rows}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ""
        ),
    ),
    (
        "inverse_real_fft",
        inverse_real_transform!(
            "@fft.irfft(",
            "jax.lax.complex({real.rows}, {imaginary.rows})",
            "jax.lax.complex({real.rows}.astype(@float32), {imaginary.rows}.astype(@float32))",
            "{real.rows}.astype(@float32)",
            "[, n={size.one}][, axis={axis}][, norm={norm}])",
            ".astype({dtype})",
            ""
        ),
    ),
];
