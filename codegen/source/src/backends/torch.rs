//! PyTorch.

mod recurrent;
mod windows;

use std::sync::OnceLock;

use mithril_ir::dtype::DType;
use mithril_ir::graph::{Function, Operation, Role, Value};
use mithril_passes::profile;
use mithril_passes::shard::attention::is_attention;
use mithril_passes::target::{Language, Target};

pub use recurrent::transposed_params;

use super::attention::{has_backward_kernel, has_kernel};
use super::fourier::{complex_transform, inverse_real_transform, parts, real_transform};
use super::{Backend, Spellings};

pub static BACKEND: Backend = Backend {
    label: "PyTorch",
    target: Target {
        name: "torch",
        takes: &|f, op| {
            BACKEND.spells(op.op) && (!is_attention(op.op) || has_kernel(op)) && is_fixed(f, op)
        },
        pulls_back: &|f, op, by| {
            BACKEND.spells(by) && (!is_attention(by) || has_backward_kernel(f, op))
        },
        profile: profile::FRAMEWORK,
        language: Language::Python,
        bodies: &["torch"],
        standard: recurrent::standard,
    },
    takes_on_mesh: None,
    module: "torch",
    imports: &[],
    prelude: &[include_str!("prelude/torch.py"), include_str!("prelude/torch_random.py")],
    spellings: SPELLINGS,
    random: &[
        ("key_fold", "(*_key_words({key}), {data.word})"),
        ("key_split", "_keys({key}, {count}[, {device}])"),
        ("random_bits", "_bits({key}, {shape}, {dtype}[, {device}])"),
        (
            "uniform",
            "@rand({shape}, generator=_generator({key}[, {device}]), dtype={dtype}[, \
             device={device}]) if low is default and high is default; _rand({key}, {shape}, \
             {dtype}, {low}, {high}[, {device}])",
        ),
        (
            "normal",
            "@randn({shape}, generator=_generator({key}[, {device}]), dtype={dtype}[, \
             device={device}])",
        ),
    ],
    in_place: &[
        ("add", "{x}.add_({y})"),
        ("sub", "{x}.sub_({y})"),
        ("mul", "{x}.mul_({y}) if y is number"),
        ("div", "{x}.div_({y}) if y is number"),
        ("neg", "{x}.neg_()"),
        ("relu", "@relu_({x})"),
        ("sigmoid", "@sigmoid_({x})"),
        ("tanh", "@tanh_({x})"),
        ("selu", "F.selu({x}, inplace=True)"),
    ],
    scalar: "@tensor({x}, dtype={dtype}[, device={device}])",
    array: "@tensor({x}, dtype={dtype}[, device={device}])",
    full: "@full({shape}, {x}, dtype={dtype}[, device={device}])",
    zeros: "@zeros({shape}, dtype={dtype}[, device={device}])",
    ones: "@ones({shape}, dtype={dtype}[, device={device}])",
    load: "@from_numpy({x})",
    load_bits: Some("@from_numpy({x}).view({dtype})"),
    truth: "bool",
    foreign: None,
    dtypes: None,
    infinities: None,
    lacks: &[DType::I4, DType::U4],
    signed_sums: &[DType::U64],
    devices: true,
    narrow: false,
    mixes: true,
    differentiates: true,
    differentiates_branches: true,
    loops: false,
    eager: true,
    lazy: false,
    known: OnceLock::new(),
};

const SPELLINGS: Spellings = &[
    // Under autocast, the sum of a product and a bias would have the dtype of the bias. Elsewhere,
    // `F.linear` takes longer for small products: 8.3 instead of 7.0 µs for (8, 64) @ (64, 64), and
    // 125 instead of 102 µs for (4096, 64) @ (64, 10) on one core.
    (
        "add",
        "F.linear({input}, {weights.T}, {bias}) if result is linear and result is mixed; {x} + {y}",
    ),
    ("slice", "{x}.chunk({parts}, {axes})[{part} / {parts}] if x is divided; {x}[{slices}]"),
    ("floor_div", "@div({x.array}, {y}, rounding_mode=\"floor\") if x is float; {x} // {y}"),
    ("mod", "({x}.to(torch.int64) % {y}).to(torch.uint32) if x is u32; {x} % {y}"),
    ("atan2", "@atan2({x.array}, {y.array})"),
    (
        "minimum",
        "{x}.clamp(max={y}) if y is number; \
         {y}.clamp(max={x}) if x is number; \
         @minimum({x}, {y})",
    ),
    (
        "maximum",
        "{x}.clamp(min={y}) if y is number; \
         {y}.clamp(min={x}) if x is number; \
         @maximum({x}, {y})",
    ),
    ("cast", "{x}.to({dtype})"),
    ("asin", "@asin({x})"),
    ("acos", "@acos({x})"),
    ("atan", "@atan({x})"),
    ("erf", "@erf({x})"),
    ("lgamma", "@lgamma({x})"),
    ("digamma", "@digamma({x})"),
    ("erfinv", "@erfinv({x})"),
    ("i0", "@i0({x})"),
    ("i1", "@special.i1({x})"),
    ("sign", "_sign({x}) if x is float; @sign({x})"),
    ("sinc", "_sinc({x})"),
    ("logit", "@logit({x})"),
    ("xlogy", "@xlogy({x.array}, {y.array})"),
    ("reciprocal", "@reciprocal({x})"),
    ("sigmoid", "@sigmoid({x})"),
    ("softplus", "F.softplus({x}[, beta={beta}], threshold=40.0)"),
    ("softsign", "F.softsign({x})"),
    ("relu", "@relu({x})"),
    ("leaky_relu", "F.leaky_relu({x}, {slope})"),
    ("elu", "F.elu({x}[, alpha={alpha}])"),
    ("selu", "F.selu({x})"),
    ("gelu", "F.gelu({x})"),
    ("gelu_tanh", "F.gelu({x}, approximate=\"tanh\")"),
    ("silu", "F.silu({x})"),
    ("mish", "F.mish({x})"),
    ("hardswish", "F.hardswish({x})"),
    ("hard_sigmoid", "F.hardsigmoid({x})"),
    ("clamp", "{x} if min is default and max is default; @clamp({x}[, min={min}][, max={max}])"),
    (
        "sum",
        "{x} if axes is empty; \
         @sum({x}, dim=None, keepdim=True[, dtype={narrow}]) if axes is default and keepdim == \
         True and acc is missing; \
         @sum({x}[, dim={axes}][, keepdim={keepdim}][, dtype={narrow}]) if acc is missing; \
         @sum({x}, dim=None, keepdim=True, dtype={acc}).to({dtype}) if axes is default and keepdim \
         == True; \
         @sum({x}[, dim={axes}][, keepdim={keepdim}], dtype={acc}).to({dtype})",
    ),
    (
        "prod",
        "@prod({x}, dim={axes}[, keepdim={keepdim}][, dtype={narrow}]) if axes is single; \
         @prod({x}[, dtype={narrow}]) if axes is default and keepdim is default; \
         _prod({x}, {axes}, {keepdim})",
    ),
    ("max", "{x} if axes is empty; @amax({x}[, dim={axes}][, keepdim={keepdim}])"),
    ("min", "{x} if axes is empty; @amin({x}[, dim={axes}][, keepdim={keepdim}])"),
    (
        "any",
        "{x} if axes is empty; \
         @any({x}, dim=None, keepdim=True) if axes is default and keepdim == True; \
         @any({x}[, dim={axes}][, keepdim={keepdim}])",
    ),
    (
        "all",
        "{x} if axes is empty; \
         @all({x}, dim=None, keepdim=True) if axes is default and keepdim == True; \
         @all({x}[, dim={axes}][, keepdim={keepdim}])",
    ),
    ("argmax", "@argmax({x}[, dim={axis}][, keepdim={keepdim}])"),
    ("argmin", "@argmin({x}[, dim={axis}][, keepdim={keepdim}])"),
    ("cumsum", "@cumsum({x}, dim={axis}[, dtype={narrow}])"),
    ("cumprod", "@cumprod({x}, dim={axis}[, dtype={narrow}])"),
    ("sort", "@sort({x}, dim={axis}[, descending={descending}], stable=True).values"),
    ("argsort", "@argsort({x}, dim={axis}[, descending={descending}], stable=True)"),
    (
        "mean",
        "{x} if axes is empty; \
         @mean({x}, dim=None, keepdim=True) if axes is default and keepdim == True; \
         @mean({x}[, dim={axes}][, keepdim={keepdim}])",
    ),
    (
        "variance",
        "{x} - {x} if axes is empty; \
         @var({x}, dim={axes}, correction={correction}[, keepdim={keepdim}])",
    ),
    (
        "logsumexp",
        "{x} if axes is empty; \
         @logsumexp({x}.flatten(), 0) if axes is default and keepdim is default; \
         @logsumexp({x}.flatten(), 0).reshape({result}) if axes is default; \
         @logsumexp({x}, {axes}[, keepdim={keepdim}])",
    ),
    (
        "dot_general",
        "{x} * {y} if result is scaled; \
         {left} @ {right} if result is matmul and acc is missing; \
         ({left}.to({acc}) @ {right}.to({acc})).to({dtype}) if result is matmul; \
         @einsum({equation}, {x}, {y}) if acc is missing; \
         @einsum({equation}, {x}.to({acc}), {y}.to({acc})).to({dtype})",
    ),
    ("matmul", "{x} @ {y}"),
    (
        "iota",
        "@arange({shape.one}, dtype={dtype}[, device={device}]) if shape is single; \
         _iota({shape}, {axis}, {dtype}[, {device}])",
    ),
    ("eye", "@eye({shape.dims}, dtype={dtype}[, device={device}])"),
    ("element_count", "{x}.numel()"),
    (
        "broadcast_in_dim",
        "@zeros({shape}, dtype={dtype}[, device={device}]) if x is zero and axes is default; \
         @ones({shape}, dtype={dtype}[, device={device}]) if x is one and axes is default; \
         @full({shape}, {x.number}, dtype={dtype}[, device={device}]) if x is number and axes is \
         default; \
         {x}.expand({shape}) if axes is default; \
         _broadcast({x}, {shape}, {axes.tuple})",
    ),
    (
        "sum_to",
        "@sum({x}, dim={summed}[, keepdim={kept}][, dtype={narrow}]) if result is summed; \
         _sum_to({x}, {shape})",
    ),
    ("transpose", "{x}.T if permutation == (1, 0); {x}.permute({permutation.tuple})"),
    ("expand_dims", "{x}.unsqueeze({axes}) if axes is single; _expand_dims({x}, {axes})"),
    ("reverse", "@flip({x}, {axes.tuple})"),
    ("concat", "@cat([{inputs}], dim={axis})"),
    (
        "pad",
        "F.pad({x}, {pads}) if value is zero and interior is default; \
         F.pad({x}, {pads}, value={value.number}) if value is number and interior is default; \
         _pad({x}, {value.number}, {padding})",
    ),
    (
        "take",
        "{x}[{indices}] if axis == 0 and indices is index; \
         {x}[:, {indices}] if axis == 1 and indices is index; \
         {x}[..., {indices}] if axis == -1 and indices is index; \
         _take({x}, {indices}, {axis})",
    ),
    (
        "take_along",
        "@take_along_dim({x}, {indices}, dim={axis}) if indices is i64; \
         @take_along_dim({x}, {indices}.to(@int64), dim={axis})",
    ),
    (
        "scatter_add",
        "{x}.index_put(({indices},), {updates}, accumulate=True) if axis == 0 and indices is \
         index; \
         _scatter_add({x}, {indices}, {updates}, {axis})",
    ),
    (
        "scatter_add_along",
        "@scatter_add({x}, {axis}, {indices}, {updates}) if indices is i64; \
         @scatter_add({x}, {axis}, {indices}.to(@int64), {updates})",
    ),
    (
        "scatter_mul_along",
        "@scatter_reduce({x}, {axis}, {indices}, {updates}, \"prod\") if indices is i64; \
         @scatter_reduce({x}, {axis}, {indices}.to(@int64), {updates}, \"prod\")",
    ),
    (
        "scatter_max_along",
        "@scatter_reduce({x}, {axis}, {indices}, {updates}, \"amax\") if indices is i64; \
         @scatter_reduce({x}, {axis}, {indices}.to(@int64), {updates}, \"amax\")",
    ),
    (
        "scatter_min_along",
        "@scatter_reduce({x}, {axis}, {indices}, {updates}, \"amin\") if indices is i64; \
         @scatter_reduce({x}, {axis}, {indices}.to(@int64), {updates}, \"amin\")",
    ),
    ("slice_update", "_slice_update({x}, {bounds}, {update})"),
    (
        "one_hot",
        "@zeros({result}, dtype={dtype}[, device={device}]) if classes == 0; \
         F.one_hot({indices}, {classes}) if indices is i64 and dtype is i64; \
         F.one_hot({indices}, {classes}).to({dtype}) if indices is i64; \
         F.one_hot({indices}.to(@int64), {classes}).to({dtype})",
    ),
    ("stop_gradient", "{x}.detach()"),
    ("constrain", "_constrain({x}, {split})"),
    ("softmax", "@softmax({x}, {axis})"),
    ("log_softmax", "@log_softmax({x}, {axis})"),
    (
        "layer_norm",
        "@native_layer_norm({x}, ({x.last},), {weight}, {bias}, {epsilon})[0 / 3] if \
         layer_norm_mean is sibling; \
         F.layer_norm({x}, ({x.last},)[, {weight}][, {bias}][, eps={epsilon}])",
    ),
    ("rms_norm", "F.rms_norm({x}, ({x.last},)[, {weight}], eps={epsilon})"),
    (
        "cross_entropy",
        "F.cross_entropy({logits}, {target}, reduction=\"none\") if logits is matrix and target \
         is i64; \
         F.cross_entropy({logits}, {target}.long(), reduction=\"none\") if logits is matrix; \
         -@log_softmax({logits}, -1).gather(-1, {target}.unsqueeze(-1)).squeeze(-1) if target is \
         i64; \
         -@log_softmax({logits}, -1).gather(-1, {target}.long().unsqueeze(-1)).squeeze(-1)",
    ),
    ("stack", "@stack([{inputs}][, dim={axis}])"),
    (
        "tril",
        "@tril({x}.to(@int64)[, {diagonal}]).to({dtype}) if x is unsigned; \
         @tril({x}[, {diagonal}])",
    ),
    (
        "triu",
        "@triu({x}.to(@int64)[, {diagonal}]).to({dtype}) if x is unsigned; \
         @triu({x}[, {diagonal}])",
    ),
    ("diagonal", "@diagonal({x}[, {offset}], dim1=-2, dim2=-1)"),
    ("conv", windows::CONV),
    ("biased_conv", windows::BIASED_CONV),
    ("conv_transpose", windows::CONV_TRANSPOSE),
    ("biased_conv_transpose", windows::BIASED_CONV_TRANSPOSE),
    ("max_pool", windows::MAX_POOL),
    ("avg_pool", windows::AVG_POOL),
    (
        "sum_pool",
        "_sum_pool({x}, {sizes.tuple}[, strides={strides.tuple}][, low={low.tuple}][, \
         high={high.tuple}])",
    ),
    ("batch_norm", "F.batch_norm({x}, {mean}, {variance}[, {weight}][, {bias}][, eps={epsilon}])"),
    (
        "batch_norm_training",
        "_batch_norm({x}, {mean}, {variance}, {weight}, {bias}, {momentum}, {epsilon})[{of} / 3]",
    ),
    ("grouped_matmul", "_grouped_matmul({x}, {w}, {group})"),
    ("grouped_outer", "_grouped_outer({x}, {y}, {group}, {groups})"),
    ("roll", "@roll({x}, {shift}, {axis})"),
    ("cholesky", "_cholesky({x})"),
    (
        "triangular_solve",
        "@linalg.solve_triangular({a}.mT, {b}, upper={lower}[, unitriangular={unit_diagonal}]) if \
         transposed == True; \
         @linalg.solve_triangular({a}, {b}, upper=False[, unitriangular={unit_diagonal}]) if lower \
         == True; \
         @linalg.solve_triangular({a}, {b}, upper=True[, unitriangular={unit_diagonal}])",
    ),
    ("solve", "@linalg.solve_ex({a}, {b}).result"),
    ("inverse", "@linalg.inv_ex({x}).inverse"),
    ("logdet", "@logdet({x})"),
    ("eigh", "_of_finite(@linalg.eigh, {x}, @tril({x}))[{of} / 2]"),
    ("eigvalsh", "_of_finite(@linalg.eigvalsh, {x}, @tril({x}))"),
    ("svd", "_of_finite(@linalg.svd, {x}, full_matrices=False)[{of} / 3]"),
    ("repeat", "{x}.repeat_interleave({repeats}, dim={axis})"),
    (
        "attention",
        "_attention({query}, {key}, {value}[, causal={causal}][, scale={scale}][, \
         grouped={grouped}])[0 / 2] if attention_logsumexp is sibling; \
         F.scaled_dot_product_attention({query}, {key}, {value}[, is_causal={causal}][, \
         scale={scale}][, enable_gqa={grouped}]) if mask is default and left is default and right \
         is default; F.scaled_dot_product_attention({query}, {key}, {value}, attn_mask={mask}[, \
         scale={scale}][, enable_gqa={grouped}]) if causal is default and left is default and \
         right is default; F.scaled_dot_product_attention({query}, {key}, {value}, \
         attn_mask=_window({query}, {key}[, mask={mask}][, left={left}][, right={right}][, \
         causal={causal}])[, scale={scale}][, enable_gqa={grouped}])",
    ),
    (
        "attention_logsumexp",
        "_attention({query}, {key}, {value}[, causal={causal}][, scale={scale}][, \
         grouped={grouped}])[1 / 2]",
    ),
    (
        "attention_gradient",
        "_attention_gradient({query}, {key}, {value}, {output}, {logsumexp}, {gradient}[, \
         causal={causal}][, scale={scale}][, grouped={grouped}])[{of} / 3]",
    ),
    ("relu_gradient", "@ops.aten.threshold_backward({gradient}, {y}, 0)"),
    ("sigmoid_gradient", "@ops.aten.sigmoid_backward({gradient}, {y})"),
    ("tanh_gradient", "@ops.aten.tanh_backward({gradient}, {y})"),
    ("gelu_gradient", "@ops.aten.gelu_backward({gradient}, {x})"),
    ("gelu_tanh_gradient", "@ops.aten.gelu_backward({gradient}, {x}, approximate=\"tanh\")"),
    ("silu_gradient", "@ops.aten.silu_backward({gradient}, {x})"),
    ("softplus_gradient", "@ops.aten.softplus_backward({gradient}, {x}, {beta}, 40.0)"),
    ("leaky_relu_gradient", "@ops.aten.leaky_relu_backward({gradient}, {x}, {slope}, False)"),
    ("elu_gradient", "@ops.aten.elu_backward({gradient}, {alpha}, 1.0, 1.0, False, {x})"),
    (
        "selu_gradient",
        "@ops.aten.elu_backward({gradient}, 1.6732632423543772, 1.0507009873554805, 1.0, False, \
         {x})",
    ),
    ("mish_gradient", "@ops.aten.mish_backward({gradient}, {x})"),
    ("hardswish_gradient", "@ops.aten.hardswish_backward({gradient}, {x})"),
    ("softmax_gradient", "@ops.aten._softmax_backward_data({gradient}, {y}, {axis}, {y}.dtype)"),
    (
        "log_softmax_gradient",
        "@ops.aten._log_softmax_backward_data({gradient}, {y}, {axis}, {y}.dtype)",
    ),
    ("layer_norm_mean", "@native_layer_norm({x}, ({x.last},), {weight}, {bias}, {epsilon})[1 / 3]"),
    (
        "layer_norm_reciprocal",
        "@native_layer_norm({x}, ({x.last},), {weight}, {bias}, {epsilon})[2 / 3]",
    ),
    (
        "layer_norm_gradient",
        "@ops.aten.native_layer_norm_backward({gradient}, {x}, ({x.last},), {mean}, {reciprocal}, \
         {weight}, {bias}, {wanted.3})[{of} / 3]",
    ),
    (
        "fft",
        complex_transform!(
            "@fft.fft(",
            "@complex({real}, {imaginary})",
            "@complex({real}.float(), {imaginary}.float())",
            "{real}.float()",
            "[, n={size.one}][, dim={axis}][, norm={norm}])",
            ".to({dtype})",
            ""
        ),
    ),
    (
        "inverse_fft",
        complex_transform!(
            "@fft.ifft(",
            "@complex({real}, {imaginary})",
            "@complex({real}.float(), {imaginary}.float())",
            "{real}.float()",
            "[, n={size.one}][, dim={axis}][, norm={norm}])",
            ".to({dtype})",
            ""
        ),
    ),
    (
        "real_fft",
        real_transform!(
            "@fft.rfft(",
            "{x}.float()",
            "[, n={size.one}][, dim={axis}][, norm={norm}])",
            ".to({dtype})",
            ""
        ),
    ),
    (
        "inverse_real_fft",
        inverse_real_transform!(
            "@fft.irfft(",
            "@complex({real}, {imaginary})",
            "@complex({real}.float(), {imaginary}.float())",
            "{real}.float()",
            "[, n={size.one}][, dim={axis}][, norm={norm}])",
            ".to({dtype})",
            ""
        ),
    ),
];

/// Whether the running statistics of a batch norm are states. PyTorch's function gives them no
/// gradients.
fn is_fixed(function: &Function, op: &Operation) -> bool {
    let is_state = |value: &Value| {
        function.args.get(value.index()).is_some_and(|argument| argument.role == Role::State)
    };
    let reads = matches!(op.op.name, "batch_norm" | "batch_norm_training");
    !reads || op.operands[1..3].iter().all(is_state)
}
