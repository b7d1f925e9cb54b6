//! Spellings of convolutions.

/// The function for a number of axes. It takes channels last, and the bias is added there.
macro_rules! channels_last {
    ($bias:tt, $kind:literal, $name:literal, $in:literal, $out:literal) => {
        concat!(
            channels_last!(
                $bias,
                $kind,
                $name,
                $in,
                $out,
                "[, padding={low.same}][, dilation={dilations.same}]",
                "low is symmetric"
            ),
            channels_last!(
                $bias,
                $kind,
                "conv_general",
                $in,
                $out,
                ", padding=({low.tuple}, {high.tuple})[, kernel_dilation={dilations.same}]",
                "low is natural and high is natural"
            ),
        )
    };
    (($open:literal, $close:literal), $kind:literal, $name:literal, $in:literal, $out:literal,
     $rest:literal, $padding:literal) => {
        concat!(
            $open,
            "@",
            $name,
            "({x}.transpose(",
            $in,
            "), {weights}.transpose(",
            $in,
            ")",
            "[, stride={strides.same}]",
            $rest,
            "[, groups={groups}])",
            $close,
            ".transpose(",
            $out,
            ") if x is ",
            $kind,
            " and x is filled and weights is filled and ",
            $padding,
            " and interior is default and acc is missing; ",
        )
    };
}

/// MLX has no convolution in float64, and none over three axes with groups. It ends the process for
/// arrays without channels, and refuses gradients of empty batches: a function of the prelude does
/// these, whose arguments `plain` and `widened` are the bias.
macro_rules! convolution {
    ($bias:tt, $plain:literal, $widened:literal) => {
        concat!(
            convolution!(own "{x}, {weights}", $plain, ") if x is f64 and acc is missing; "),
            channels_last!($bias, "image", "conv2d", "0, 2, 3, 1", "0, 3, 1, 2"),
            channels_last!($bias, "signal", "conv1d", "0, 2, 1", "0, 2, 1"),
            channels_last!(
                $bias, "volume and groups is default", "conv3d", "0, 2, 3, 4, 1", "0, 4, 1, 2, 3"
            ),
            convolution!(own "{x}, {weights}", $plain, ") if acc is missing; "),
            convolution!(
                own "{x}.astype({acc}), {weights}.astype({acc})", $widened, ").astype({dtype})"
            ),
        )
    };
    (own $operands:literal, $bias:literal, $end:literal) => {
        concat!(
            "_conv(", $operands, $bias,
            "[, strides={strides.tuple}][, dilations={dilations.tuple}][, low={low.tuple}]",
            "[, high={high.tuple}][, interior={interior.tuple}][, groups={groups}]", $end
        )
    };
}

pub(super) const CONV: &str = convolution!(("", ""), "", "");

pub(super) const BIASED_CONV: &str =
    convolution!(("(", " + {bias})"), ", bias={bias}", ", bias={bias}.astype({acc})");
