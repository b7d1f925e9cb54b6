//! Spellings that backends share: those of NumPy, which most frameworks follow, and those of the
//! Python array API.

use super::Spellings;

pub const SPELLINGS: Spellings = &[
    ("add", "{x} + {y}"),
    ("sub", "{x} - {y}"),
    ("mul", "{x} * {y}"),
    ("div", "{x} / {y}"),
    ("floor_div", "{x} // {y}"),
    ("mod", "{x} % {y}"),
    ("pow", "{x} ** {y}"),
    ("atan2", "@arctan2({x}, {y})"),
    ("minimum", "@minimum({x}, {y})"),
    ("maximum", "@maximum({x}, {y})"),
    ("eq", "{x} == {y}"),
    ("ne", "{x} != {y}"),
    ("lt", "{x} < {y}"),
    ("le", "{x} <= {y}"),
    ("gt", "{x} > {y}"),
    ("ge", "{x} >= {y}"),
    ("and", "{x} & {y}"),
    ("or", "{x} | {y}"),
    ("xor", "{x} ^ {y}"),
    ("not", "~{x}"),
    ("shift_left", "{x} << {y}"),
    ("shift_right", "{x} >> {y}"),
    ("select", "@where({condition}, {yes}, {no})"),
    ("cast", "{x}.astype({dtype})"),
    ("neg", "-{x}"),
    ("abs", "@abs({x})"),
    ("sign", "@sign({x})"),
    ("floor", "@floor({x})"),
    ("ceil", "@ceil({x})"),
    ("round", "@round({x})"),
    ("is_nan", "@isnan({x})"),
    ("is_inf", "@isinf({x})"),
    ("exp", "@exp({x})"),
    ("expm1", "@expm1({x})"),
    ("log", "@log({x})"),
    ("log1p", "@log1p({x})"),
    ("sqrt", "@sqrt({x})"),
    ("sin", "@sin({x})"),
    ("cos", "@cos({x})"),
    ("tan", "@tan({x})"),
    ("asin", "@arcsin({x})"),
    ("acos", "@arccos({x})"),
    ("atan", "@arctan({x})"),
    ("sinh", "@sinh({x})"),
    ("cosh", "@cosh({x})"),
    ("tanh", "@tanh({x})"),
    ("square", "@square({x})"),
    ("reciprocal", "1 / {x}"),
    ("prod", "@prod({x}[, axis={axes}][, keepdims={keepdim}][, dtype={narrow}])"),
    ("min", "@min({x}[, axis={axes}][, keepdims={keepdim}])"),
    ("any", "@any({x}[, axis={axes}][, keepdims={keepdim}])"),
    ("all", "@all({x}[, axis={axes}][, keepdims={keepdim}])"),
    ("argmax", "@argmax({x}[, axis={axis}][, keepdims={keepdim}])"),
    ("argmin", "@argmin({x}[, axis={axis}][, keepdims={keepdim}])"),
    ("cumsum", "@cumsum({x}, axis={axis}[, dtype={narrow}])"),
    ("cumprod", "@cumprod({x}, axis={axis}[, dtype={narrow}])"),
    ("eye", "@eye({shape.dims}, dtype={dtype})"),
    ("dim", "{x}.shape[{axis}]"),
    ("element_count", "{x}.size"),
    (
        "broadcast_in_dim",
        "@zeros({shape}, dtype={dtype}) if x is zero and axes is default; \
         @ones({shape}, dtype={dtype}) if x is one and axes is default; \
         @full({shape}, {x.number}, dtype={dtype}) if x is number and axes is default; \
         @broadcast_to({x}, {shape}) if axes is default; \
         _broadcast({x}, {shape}, {axes.tuple})",
    ),
    ("reshape", "{x}.reshape({target})"),
    ("transpose", "{x}.T if permutation == (1, 0); @transpose({x}, {permutation.tuple})"),
    (
        "swap_axes",
        "{x}.T if x is matrix and first == -2 and second == -1; \
         @swapaxes({x}, {first}, {second})",
    ),
    ("expand_dims", "@expand_dims({x}, {axes})"),
    ("squeeze", "{x.picked} if x is picked; @squeeze({x}, {axes})"),
    ("slice", "{x}[{slices}]"),
    ("reverse", "@flip({x}, {axes})"),
    ("concat", "@concatenate([{inputs}], axis={axis})"),
    ("take", "{x}[{indices}] if axis == 0; @take({x}, {indices}, axis={axis})"),
    ("take_along", "@take_along_axis({x}, {indices}, axis={axis})"),
    ("scatter_add_along", "_scatter_add_along({x}, {indices}, {updates}, {axis})"),
    ("scatter_mul_along", "_scatter_mul_along({x}, {indices}, {updates}, {axis})"),
    ("scatter_max_along", "_scatter_max_along({x}, {indices}, {updates}, {axis})"),
    ("scatter_min_along", "_scatter_min_along({x}, {indices}, {updates}, {axis})"),
    ("dynamic_slice", "_dynamic_slice({x}, ({starts.number},), {sizes})"),
    ("dynamic_update_slice", "_dynamic_update_slice({x}, {update}, ({starts.number},))"),
    ("random_bits", "_random_bits({key}, {shape}, {dtype})"),
    ("uniform", "_uniform({key}, {shape}, {dtype}[, {low}, {high}])"),
    ("normal", "_normal({key}, {shape}, {dtype})"),
    ("key_split", "_key_split({key}, {count})"),
    ("key_fold", "_key_fold({key}, {data.word})"),
    ("optimization_barrier", "{x}"),
    ("constrain", "{x}"),
    ("stack", "@stack([{inputs}][, axis={axis}])"),
    ("tril", "@tril({x}[, {diagonal}])"),
    ("triu", "@triu({x}[, {diagonal}])"),
    ("diagonal", "@diagonal({x}[, {offset}], axis1=-2, axis2=-1)"),
    ("roll", "@roll({x}, {shift}, axis={axis})"),
    ("tile", "@tile({x}, {reps.tuple})"),
    ("repeat", "@repeat({x}, {repeats}, axis={axis})"),
    ("det", "@linalg.det({x})"),
    ("slogdet", "@linalg.slogdet({x})[{of} / 2]"),
    ("qr", "@linalg.qr({x})[{of} / 2]"),
    ("eigh", "@linalg.eigh({x})[{of} / 2]"),
    ("eigvalsh", "@linalg.eigvalsh({x})"),
    ("svd", "@linalg.svd({x}, full_matrices=False)[{of} / 3]"),
    ("matrix_power", "@linalg.matrix_power({x}, {n})"),
];

/// Spellings of the Python array API where it has other functions than NumPy 1 has.
pub const STANDARD: Spellings = &[
    ("asin", "@asin({x})"),
    ("acos", "@acos({x})"),
    ("atan", "@atan({x})"),
    ("atan2", "@atan2({x}, {y})"),
    ("cumsum", "@cumulative_sum({x}, axis={axis}[, dtype={narrow}])"),
    ("cumprod", "@cumulative_prod({x}, axis={axis}[, dtype={narrow}])"),
    ("concat", "@concat([{inputs}], axis={axis})"),
    ("transpose", "{x}.T if permutation == (1, 0); @permute_dims({x}, {permutation.tuple})"),
    ("diagonal", "@linalg.diagonal({x}[, offset={offset}])"),
    ("cast", "@astype({x}, {dtype})"),
    ("reshape", "@reshape({x}, {shape})"),
];

/// Convolutions and pooling by functions of the prelude. JAX has both, MLX that of pooling.
pub const CONV: (&str, &str) = (
    "conv",
    "_conv({x}, {weights}[, strides={strides.tuple}][, dilations={dilations.tuple}][, \
     low={low.tuple}][, high={high.tuple}][, interior={interior.tuple}][, \
     groups={groups}]) if acc is missing; _conv({x}.astype({acc}), \
     {weights}.astype({acc})[, strides={strides.tuple}][, dilations={dilations.tuple}][, \
     low={low.tuple}][, high={high.tuple}][, interior={interior.tuple}][, \
     groups={groups}]).astype({dtype})",
);
pub const MAX_POOL: (&str, &str) = (
    "max_pool",
    "_max_pool({x}, {sizes.tuple}[, strides={strides.tuple}][, \
     dilations={dilations.tuple}][, low={low.tuple}][, high={high.tuple}])",
);
