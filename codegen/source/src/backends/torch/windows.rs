//! Spellings of convolutions and pooling.

/// One function for each number of spatial axes, such as `F.conv1d`, `F.conv2d` and `F.conv3d`.
macro_rules! by_axes {
    ($name:literal, $arguments:expr, $guards:literal) => {
        concat!(
            by_axes!(one $name, "2d", $arguments, "image", $guards),
            by_axes!(one $name, "1d", $arguments, "signal", $guards),
            by_axes!(one $name, "3d", $arguments, "volume", $guards),
        )
    };
    (one $name:literal, $axes:literal, $arguments:expr, $word:literal, $guards:literal) => {
        concat!("F.", $name, $axes, "(", $arguments, ") if x is ", $word, $guards, "; ")
    };
}

/// `bias` is an argument of the framework's function, `widened` and `plain` those of ours.
macro_rules! convolution {
    ($name:literal, $bias:literal, $plain:literal, $widened:literal, $own:literal, $guards:literal) => {
        concat!(
            by_axes!(
                $name,
                concat!(
                    "{x}, {weights}",
                    $bias,
                    "[, stride={strides.same}][, padding={low.same}][, dilation={dilations.same}]",
                    "[, groups={groups}]"
                ),
                $guards
            ),
            convolution!(own $name, "{x}, {weights}", $own, $plain, ") if acc is missing; "),
            convolution!(
                own $name,
                "{x}.to({acc}), {weights}.to({acc})",
                $own,
                $widened,
                ").to({dtype})"
            ),
        )
    };
    (own $name:literal, $operands:literal, $own:literal, $bias:literal, $end:literal) => {
        concat!(
            "_",
            $name,
            "(",
            $operands,
            "[, strides={strides.tuple}][, dilations={dilations.tuple}][, low={low.tuple}]",
            "[, high={high.tuple}]",
            $own,
            "[, groups={groups}]",
            $bias,
            $end
        )
    };
}

/// Pooling with the strides left out where they are the sizes, as they are by default.
macro_rules! pooling {
    ($name:literal, $rest:literal, $guards:literal, $own:literal) => {
        concat!(
            pooling!(strided $name, ", 1", $rest, " and strides is default", $guards),
            pooling!(strided $name, "", $rest, " and strides is sizes", $guards),
            pooling!(strided $name, ", {strides.same}", $rest, "", $guards),
            $own
        )
    };
    (strided $name:literal, $strides:literal, $rest:literal, $last:literal, $guards:literal) => {
        concat!(
            pooling!(one $name, "2d", $strides, $rest, "image", $guards, $last),
            pooling!(one $name, "1d", $strides, $rest, "signal", $guards, $last),
            pooling!(one $name, "3d", $strides, $rest, "volume", $guards, $last),
        )
    };
    (one $name:literal, $axes:literal, $strides:literal, $rest:literal, $word:literal,
     $guards:literal, $last:literal) => {
        concat!(
            "F.", $name, $axes, "({x}, {sizes.same}", $strides, $rest, ") if x is ", $word, $guards,
            $last, "; "
        )
    };
}

pub(super) const CONV: &str = convolution!(
    "conv",
    "",
    "",
    "",
    "[, interior={interior.tuple}]",
    " and low is symmetric and interior is default and acc is missing"
);

pub(super) const BIASED_CONV: &str = convolution!(
    "conv",
    ", {bias}",
    ", bias={bias}",
    ", bias={bias}.to({acc})",
    "[, interior={interior.tuple}]",
    " and low is symmetric and interior is default and acc is missing"
);

pub(super) const CONV_TRANSPOSE: &str =
    convolution!("conv_transpose", "", "", "", "", " and low is symmetric and acc is missing");

pub(super) const BIASED_CONV_TRANSPOSE: &str = convolution!(
    "conv_transpose",
    ", {bias}",
    ", bias={bias}",
    ", bias={bias}.to({acc})",
    "",
    " and low is symmetric and acc is missing"
);

pub(super) const MAX_POOL: &str = pooling!(
    "max_pool",
    "[, padding={low.same}][, dilation={dilations.same}]",
    " and low is symmetric",
    "_max_pool({x}, {sizes.tuple}[, strides={strides.tuple}][, dilations={dilations.tuple}]\
     [, low={low.tuple}][, high={high.tuple}])"
);

macro_rules! averages {
    ($axes:literal, $rest:literal, $word:literal, $guards:literal) => {
        concat!(
            averages!(one $axes, ", 1", $rest, $word, $guards, " and strides is default"),
            averages!(one $axes, "", $rest, $word, $guards, " and strides is sizes"),
            averages!(one $axes, ", {strides.same}", $rest, $word, $guards, ""),
        )
    };
    (one $axes:literal, $strides:literal, $rest:literal, $word:literal, $guards:literal,
     $last:literal) => {
        pooling!(one "avg_pool", $axes, $strides, $rest, $word, $guards, $last)
    };
}

macro_rules! own_average {
    ($last:literal) => {
        concat!(
            "_avg_pool({x}, {sizes.tuple}[, strides={strides.tuple}][, low={low.tuple}]",
            "[, high={high.tuple}][, uncounted={uncounted.tuple}][, count_pad={count_pad}])",
            $last
        )
    };
}

pub(super) const AVG_POOL: &str = concat!(
    own_average!(" if x is half; "),
    averages!(
        "2d",
        "[, padding={low.same}][, count_include_pad={count_pad}]",
        "image",
        " and low is symmetric and uncounted is default"
    ),
    averages!(
        "1d",
        "[, padding={low.same}][, count_include_pad={count_pad}]",
        "signal",
        " and low is symmetric and uncounted is default"
    ),
    averages!("3d", "", "volume", " and low is default and high is default"),
    own_average!(""),
);
