//! tinygrad.

use std::sync::OnceLock;

use mithril_ir::attr::Attr;
use mithril_ir::dim::Dim;
use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation};
use mithril_ir::op::access::{Access, Attention, Library};
use mithril_passes::profile;
use mithril_passes::target::{Language, Target};

use super::{Backend, Spellings, array_api};

pub static BACKEND: Backend = Backend {
    label: "tinygrad",
    target: Target {
        name: "tinygrad",
        takes: &|f, op| BACKEND.spells(op.op) && supports(f, op),
        pulls_back: &|_, _, by| BACKEND.spells(by),
        profile: profile::FRAMEWORK,
        language: Language::Python,
        bodies: &["tinygrad"],
        standard: |_| None,
    },
    takes_on_mesh: None,
    module: "Tensor",
    imports: &[],
    prelude: &[
        include_str!("prelude/tinygrad.py"),
        include_str!("prelude/tinygrad_functions.py"),
        include_str!("prelude/tinygrad_fourier.py"),
        include_str!("prelude/tinygrad_order.py"),
        include_str!("prelude/tinygrad_matrices.py"),
    ],
    spellings: SPELLINGS,
    // The framework's own generator is the one whose bits are exact.
    random: &[],
    in_place: &[],
    scalar: "Tensor({x}, dtype={dtype})",
    array: "Tensor({x}, dtype={dtype})",
    full: "@full({shape}, {x}, dtype={dtype})",
    zeros: "@zeros({shape}, dtype={dtype})",
    ones: "@ones({shape}, dtype={dtype})",
    load: "Tensor({x})",
    load_bits: Some("Tensor({x}).bitcast({dtype})"),
    truth: "bool",
    foreign: None,
    dtypes: Some("dtypes"),
    infinities: Some("math"),
    lacks: &[DType::I4, DType::U4, DType::F8E4M3, DType::F8E5M2],
    signed_sums: &[],
    devices: false,
    narrow: false,
    mixes: true,
    differentiates: true,
    // Reading a condition computes values for good, and gradients end at them.
    differentiates_branches: false,
    loops: false,
    eager: false,
    lazy: true,
    known: OnceLock::new(),
};

/// `conv2d` has any number of axes, and `bias` is its argument.
macro_rules! conv2d {
    ($bias:literal, $kind:literal) => {
        concat!(
            conv2d!($bias, $kind, "{low.same}", "low is symmetric"),
            conv2d!($bias, $kind, "{pads}", "low is natural and high is natural")
        )
    };
    ($bias:literal, $kind:literal, $padding:literal, $guard:literal) => {
        concat!(
            "{x}.conv2d({weights}",
            $bias,
            "[, groups={groups}][, stride={strides.same}][, dilation={dilations.same}]",
            "[, padding=",
            $padding,
            "]) if x is ",
            $kind,
            " and ",
            $guard,
            " and interior is default and acc is missing; "
        )
    };
}

/// `bias` is an argument of tinygrad's function, `plain` and `widened` those of ours.
macro_rules! convolution {
    ($bias:literal, $plain:literal, $widened:literal) => {
        concat!(
            conv2d!($bias, "image"),
            conv2d!($bias, "signal"),
            conv2d!($bias, "volume"),
            convolution!(own "{x}, {weights}", $plain, ") if acc is missing; "),
            convolution!(own "{x}.cast({acc}), {weights}.cast({acc})", $widened, ").cast({dtype})"),
        )
    };
    (own $operands:literal, $bias:literal, $end:literal) => {
        concat!(
            "_conv(",
            $operands,
            $bias,
            "[, strides={strides.tuple}][, dilations={dilations.tuple}][, low={low.tuple}]",
            "[, high={high.tuple}][, interior={interior.tuple}][, groups={groups}]",
            $end
        )
    };
}

const SPELLINGS: Spellings = &[
    ("slice", "{x}.chunk({parts}, {axes})[{part} / {parts}] if x is divided; {x}[{slices}]"),
    // tinygrad's own comparisons hold for NaN.
    (
        "le",
        "{x} <= {y} if x is drawn and y is number; _at_most({x.array}, {y.array}) if x is float; \
         {x} <= {y}",
    ),
    (
        "ge",
        "{x} >= {y} if x is drawn and y is number; _at_most({y.array}, {x.array}) if x is float; \
         {x} >= {y}",
    ),
    (
        "floor_div",
        "_floor_div({x.array}, {y.array}) if x is float; \
         _integer_div({x.array}, {y.array}) if y is array; \
         _integer_div({x.array}, {y.array}) if y is zero; \
         {x} // {y}",
    ),
    (
        "mod",
        "_mod({x.array}, {y.array}) if x is float; \
         _integer_mod({x.array}, {y.array}) if y is array; \
         _integer_mod({x.array}, {y.array}) if y is zero; \
         {x} % {y}",
    ),
    (
        "pow",
        "_integer_pow({x.array}, {y.array}) if x is integer; \
         ({x.array}.float() ** {y}).cast({dtype}) if x is half and y is number; \
         ({x.array}.float() ** {y.array}.float()).cast({dtype}) if x is half; \
         {x} ** {y}",
    ),
    ("atan2", "_atan2({x.array}, {y.array})"),
    // tinygrad's own ones lose a NaN of the second operand.
    (
        "minimum",
        "{y}.minimum({x}) if x is number; \
         {x}.minimum({y}) if y is number; \
         _minimum({x.array}, {y.array}) if x is float; \
         {x}.minimum({y})",
    ),
    (
        "maximum",
        "{y}.maximum({x}) if x is number; \
         {x}.maximum({y}) if y is number; \
         _maximum({x.array}, {y.array}) if x is float; \
         {x}.maximum({y})",
    ),
    ("eq", "{y}.eq({x}) if x is number; {x}.eq({y})"),
    ("shift_left", "_shift_left({x.array}, {y.array}) if y is array; {x} << {y}"),
    ("shift_right", "_shift_right({x.array}, {y.array}) if y is array; {x} >> {y}"),
    ("select", "{condition.array}.where({yes}, {no})"),
    // A cast would pass gradients on to integers and bools.
    (
        "cast",
        "{x}.detach().cast({dtype}) if x is float and dtype is integer; \
         {x}.detach().cast({dtype}) if x is integer and dtype is float and x is computed; \
         {x}.detach().cast({dtype}) if x is bool and dtype is float and x is computed; \
         {x}.cast({dtype})",
    ),
    ("abs", "{x}.abs()"),
    ("sign", "_sign({x}) if x is float; {x}.sign()"),
    ("floor", "{x}.floor()"),
    ("ceil", "{x}.ceil()"),
    ("round", "_round({x})"),
    ("is_nan", "_isnan({x})"),
    ("is_inf", "{x}.isinf()"),
    ("exp", "{x}.exp()"),
    ("expm1", "_expm1({x})"),
    ("log", "{x}.log()"),
    ("log1p", "_log1p({x})"),
    ("sqrt", "{x}.sqrt()"),
    ("sin", "{x}.sin()"),
    ("cos", "_cos({x})"),
    ("tan", "_tan({x})"),
    ("asin", "_asin({x})"),
    ("acos", "_acos({x})"),
    ("atan", "_atan({x})"),
    ("sinh", "_sinh({x})"),
    ("cosh", "{x}.cosh()"),
    ("tanh", "_tanh({x})"),
    ("erf", "_erf({x})"),
    ("logit", "_logit({x})"),
    ("sinc", "_sinc({x})"),
    ("xlogy", "_xlogy({x.array}, {y.array})"),
    ("selu", "1.0507009873554805 * _elu({x}, 1.6732632423543772)"),
    ("elu", "_elu({x}[, {alpha}])"),
    ("square", "{x}.square()"),
    ("sigmoid", "_sigmoid({x})"),
    ("silu", "{x} * _sigmoid({x})"),
    ("gelu_tanh", "{x}.gelu()"),
    ("mish", "_mish({x})"),
    ("relu", "_relu({x})"),
    ("leaky_relu", "{x}.leaky_relu({slope})"),
    (
        "clamp",
        "{x}.clip(min_={min}) if max is default; \
         {x}.clip(max_={max}) if min is default; \
         {x}.clip({min}, {max})",
    ),
    (
        "sum",
        "{x}.sum([, {axes}][, keepdim={keepdim}][, dtype={narrow}]) if acc is missing; \
         {x}.sum([, {axes}][, keepdim={keepdim}], dtype={acc}).cast({dtype})",
    ),
    ("prod", "{x}.prod([, {axes}][, keepdim={keepdim}])"),
    // So do these, and they do not order NaN.
    (
        "max",
        "_max({x}[, {axes}][, keepdim={keepdim}]) if x is float; \
         {x}.max([, {axes}][, keepdim={keepdim}])",
    ),
    (
        "min",
        "_min({x}[, {axes}][, keepdim={keepdim}]) if x is float; \
         {x}.min([, {axes}][, keepdim={keepdim}])",
    ),
    ("any", "{x}.any([, {axes}][, keepdim={keepdim}])"),
    ("all", "{x}.all([, {axes}][, keepdim={keepdim}])"),
    (
        "argmax",
        "_argmax({x}).cast({dtype}).reshape({result}) if x is float and axis is default and \
         keepdim == True; \
         {x}.argmax().cast({dtype}).reshape({result}) if axis is default and keepdim == True; \
         _argmax({x}[, {axis}][, keepdim={keepdim}]) if x is float and dtype is i32; \
         _argmax({x}[, {axis}][, keepdim={keepdim}]).cast({dtype}) if x is float; \
         {x}.argmax([, {axis}][, keepdim={keepdim}]) if dtype is i32; \
         {x}.argmax([, {axis}][, keepdim={keepdim}]).cast({dtype})",
    ),
    (
        "argmin",
        "_argmin({x}).cast({dtype}).reshape({result}) if x is float and axis is default and \
         keepdim == True; \
         {x}.argmin().cast({dtype}).reshape({result}) if axis is default and keepdim == True; \
         _argmin({x}[, {axis}][, keepdim={keepdim}]) if x is float and dtype is i32; \
         _argmin({x}[, {axis}][, keepdim={keepdim}]).cast({dtype}) if x is float; \
         {x}.argmin([, {axis}][, keepdim={keepdim}]) if dtype is i32; \
         {x}.argmin([, {axis}][, keepdim={keepdim}]).cast({dtype})",
    ),
    (
        "cumsum",
        "_cumsum({x}, {axis}) if x is calculated; {x}.cumsum({axis}).cast({dtype}) if x is short; \
         {x}.cumsum({axis})",
    ),
    ("cumprod", "_cumprod({x}, {axis}) if x is calculated; {x}.cumprod({axis})"),
    (
        "sort",
        "_sort({x}, {axis}[, descending={descending}]) if x is float; \
         {x}.sort({axis}[, descending={descending}])[0 / 2]",
    ),
    (
        "argsort",
        "_argsort({x}, {axis}[, descending={descending}]) if x is float and dtype is i32; \
         _argsort({x}, {axis}[, descending={descending}]).cast({dtype}) if x is float; \
         {x}.argsort({axis}[, descending={descending}]) if dtype is i32; \
         {x}.argsort({axis}[, descending={descending}]).cast({dtype})",
    ),
    ("mean", "{x}.mean([, {axes}][, keepdim={keepdim}])"),
    ("variance", "{x}.var([, {axes}][, keepdim={keepdim}], correction={correction})"),
    ("softmax", "{x}.softmax({axis})"),
    ("log_softmax", "{x}.log_softmax({axis})"),
    (
        "cross_entropy",
        "-_take_along({logits}.log_softmax(-1), {target}.unsqueeze(-1), -1).squeeze(-1) if target \
         is calculated; \
         -{logits}.log_softmax(-1).gather(-1, {target}.unsqueeze(-1)).squeeze(-1) if target is \
         index; \
         -_take_along({logits}.log_softmax(-1), {target}.unsqueeze(-1), -1).squeeze(-1)",
    ),
    (
        "layer_norm",
        "{x}.layernorm(eps={epsilon}) * {weight} + {bias} if weight is float and bias is float; \
         {x}.layernorm(eps={epsilon}) * {weight} if weight is float; \
         {x}.layernorm(eps={epsilon}) + {bias} if bias is float; \
         {x}.layernorm(eps={epsilon})",
    ),
    (
        "attention",
        "{query}.scaled_dot_product_attention({key}, {value}[, is_causal={causal}][, \
         enable_gqa={grouped}])",
    ),
    (
        "dot_general",
        "{x} * {y} if result is scaled; \
         {left} @ {right} if result is matmul and acc is missing; \
         {left}.matmul({right}, dtype={acc}).cast({dtype}) if result is matmul; \
         @einsum({equation}, {x}, {y}).cast({dtype}) if acc is missing and x is short; \
         @einsum({equation}, {x}, {y}) if acc is missing; \
         @einsum({equation}, {x}, {y}, dtype={acc}).cast({dtype})",
    ),
    ("matmul", "{x} @ {y}"),
    (
        "iota",
        "@arange({shape.one}, dtype={dtype}) if shape is single; _iota({shape}, {axis}, {dtype})",
    ),
    ("element_count", "{x}.numel()"),
    (
        "broadcast_in_dim",
        "@zeros({shape}, dtype={dtype}) if x is zero and axes is default; \
         @ones({shape}, dtype={dtype}) if x is one and axes is default; \
         @full({shape}, {x.number}, dtype={dtype}) if x is number and axes is default; \
         {x}.expand({shape}) if axes is default; \
         _broadcast({x}, {shape}, {axes.tuple})",
    ),
    ("transpose", "{x}.T if permutation == (1, 0); {x}.permute({permutation.tuple})"),
    (
        "swap_axes",
        "{x}.T if x is matrix and first == -2 and second == -1; \
         {x}.transpose({first}, {second})",
    ),
    (
        "expand_dims",
        "{x}.unsqueeze({axes}) if axes is single; \
         {x}.reshape({result.args}) if x is fixed; \
         _expand_dims({x}, {axes.tuple})",
    ),
    (
        "squeeze",
        "{x.picked} if x is picked; \
         {x}.squeeze({axes}) if axes is single; \
         {x}.reshape({result.args}) if x is fixed; \
         _squeeze({x}, {axes.tuple})",
    ),
    ("reverse", "{x}.flip({axes})"),
    ("concat", "@cat({inputs}, dim={axis})"),
    ("stack", "@stack({inputs}[, dim={axis}])"),
    (
        "sum_to",
        "{x}.sum({summed}[, keepdim={kept}][, dtype={narrow}]) if result is summed; \
         _sum_to({x}, {shape})",
    ),
    (
        "pad",
        "{x} if x is scalar; \
         {x}.pad({widths}) if value is zero and interior is default; \
         {x}.pad({widths}, value={value.number}) if value is number and interior is default; \
         _pad({x}, {value.number}, {padding})",
    ),
    (
        "take",
        "_take({x}, {indices}, {axis}) if x is calculated; \
         {x}[{indices}.cast(dtypes.int32)] if axis == 0 and indices is short; \
         {x}[{indices}] if axis == 0; \
         {x}[:, {indices}.cast(dtypes.int32)] if axis == 1 and indices is short; \
         {x}[:, {indices}] if axis == 1; \
         _take({x}, {indices}, {axis})",
    ),
    ("take_along", "_take_along({x}, {indices}, {axis})"),
    ("scatter_add", "_scatter_add({x}, {indices}, {updates}, {axis})"),
    ("scatter_add_along", "_scatter_along({x}, {indices}, {updates}, {axis}, \"sum\")"),
    ("scatter_mul_along", "_scatter_along({x}, {indices}, {updates}, {axis}, \"prod\")"),
    ("scatter_max_along", "_scatter_extremum({x}, {indices}, {updates}, {axis}, \"amax\")"),
    ("scatter_min_along", "_scatter_extremum({x}, {indices}, {updates}, {axis}, \"amin\")"),
    ("slice_update", "_slice_update({x}, {bounds}, {update})"),
    (
        "windows",
        "_windows({x}, {axes.tuple}, {sizes.tuple}[, strides={strides.tuple}][, \
         dilations={dilations.tuple}])",
    ),
    ("skew", "_skew({x}, {axes.tuple}, {taps.tuple}, {shifts.tuple})"),
    ("conv", convolution!("", "", "")),
    ("biased_conv", convolution!(", {bias}", ", bias={bias}", ", bias={bias}.cast({acc})")),
    (
        "avg_pool",
        "{x}.avg_pool2d({sizes.tuple}, 1[, padding={pads}][, count_include_pad={count_pad}]) if \
         strides is default; \
         {x}.avg_pool2d({sizes.tuple}[, padding={pads}][, count_include_pad={count_pad}]) if \
         strides is sizes; \
         {x}.avg_pool2d({sizes.tuple}, {strides.tuple}[, padding={pads}][, \
         count_include_pad={count_pad}])",
    ),
    ("batch_norm", "{x}.batchnorm({weight}, {bias}, {mean}, ({variance} + {epsilon}).rsqrt())"),
    array_api::MAX_POOL,
    ("grouped_matmul", "_grouped_matmul({x}, {w}, {group})"),
    ("grouped_outer", "_grouped_outer({x}, {y}, {group}, {groups})"),
    ("stop_gradient", "{x}.detach()"),
    ("tril", "{x}.tril([, {diagonal}])"),
    ("triu", "{x}.triu([, {diagonal}])"),
    ("diagonal", "{x}.diagonal([, {offset}], dim1=-2, dim2=-1)"),
    ("roll", "{x}.roll({shift}, {axis})"),
    ("tile", "{x}.repeat({reps.tuple})"),
    ("repeat", "{x}.repeat_interleave({repeats}, {axis})"),
    ("eye", "@eye({shape.dims}, dtype={dtype})"),
    ("cholesky", "_cholesky({x})"),
    (
        "triangular_solve",
        "_triangular_solve({a}, {b}, {lower}[, transposed={transposed}][, \
         unit_diagonal={unit_diagonal}])",
    ),
    ("solve", "_solve({a}, {b})"),
    ("inverse", ""),
    ("det", "_det({x})"),
    ("slogdet", "_slogdet({x})[{of} / 2]"),
    ("qr", "_qr({x})[{of} / 2]"),
    ("eigh", "_eigh({x})[{of} / 2]"),
    ("eigvalsh", ""),
    ("svd", "_svd({x})[{of} / 3]"),
    ("matrix_power", ""),
    (
        "fft",
        "_fourier({real}, {imaginary}[, n={size.one}][, axis={axis}][, norm={norm}])[{of} / 2]",
    ),
    (
        "inverse_fft",
        "_fourier({real}, {imaginary}[, n={size.one}][, axis={axis}][, norm={norm}], \
         inverse=True)[{of} / 2]",
    ),
    ("real_fft", "_real_fourier({x}[, n={size.one}][, axis={axis}][, norm={norm}])[{of} / 2]"),
    (
        "inverse_real_fft",
        "_inverse_real_fourier({real}, {imaginary}[, n={size.one}][, axis={axis}][, norm={norm}])",
    ),
];

/// Whether tinygrad's function computes this use of the operation as it is defined.
fn supports(function: &Function, op: &Operation) -> bool {
    match (op.op.access, op.op.name) {
        (Access::Library(Library::Attention(kind)), _) => {
            kind == Attention::Output && has_kernel(function, op)
        }
        (_, "layer_norm" | "batch_norm") => function.ty(op.operands[0]).dtype.bits() >= 32,
        (_, "avg_pool") => averages(function, op),
        _ => true,
    }
}

/// Whether `scaled_dot_product_attention` has this attention: the default scale, no mask and no
/// window. Its causal mask is aligned with the first query and key.
fn has_kernel(function: &Function, op: &Operation) -> bool {
    let default = |name| matches!(op.attr(name), Attr::None);
    let plain = ["scale", "softcap", "left", "right"].into_iter().all(default);
    let grouped = matches!(op.attr("grouped"), Attr::Bool(true));
    let [q, k, v] = [0, 1, 2].map(|i| &function.ty(op.operands[i]).shape);
    let ranks = [q, k, v].iter().all(|shape| shape.rank() == Some(4));
    let fits = |q: &[Dim], k: &[Dim], v: &[Dim]| {
        let heads = (grouped || q[1] == k[1]) && k[1] == v[1];
        let some = q.iter().chain(k).chain(v).all(|dim| dim.as_const() != Some(0));
        some && heads && q[0] == k[0] && q[0] == v[0]
    };
    plain && op.operands.len() == 3 && ranks && fits(&q.dims, &k.dims, &v.dims)
}

/// Whether `avg_pool2d` has this pooling: over all axes of an array with channels, of which it
/// counts all of the padding or none.
fn averages(function: &Function, op: &Operation) -> bool {
    let shape = &function.ty(op.operands[0]).shape;
    let ints = |name| match op.attr(name) {
        Attr::Ints(list) => Some(list),
        _ => None,
    };
    let axes = ints("sizes").map_or(0, |sizes| sizes.len());
    let is_padded = |name| ints(name).is_none_or(|list| list.iter().all(|n| *n >= 0));
    let some = shape.dims.iter().skip(1).all(|dim| dim.as_const() != Some(0));
    let counts = ints("uncounted").is_none_or(|list| list.iter().all(|n| *n == 0));
    let both = ints("low").is_some() == ints("high").is_some();
    axes > 0
        && shape.rank() == Some(axes + 2)
        && some
        && counts
        && both
        && ["low", "high"].into_iter().all(is_padded)
}
