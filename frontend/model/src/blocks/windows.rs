//! The settings of blocks that slide windows over the last axes of their input.

use mithril_ir::attr::Attr;
use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result};

use super::parameter::{required, with};
use super::{Default, Kind, Parameter, Settings};
use crate::lower::Cx;
use crate::setting::Setting;

pub(super) const KERNEL: Parameter = required("kernel_size", Kind::COUNTS)
    .doc("the size of a window along all axes, or along each of them");
pub(super) const STRIDE: Parameter =
    with("stride", Kind::COUNTS, Default::Int(1)).doc("the distance between positions of a window");
pub(super) const STRIDE_OF_KERNEL: Parameter = with("stride", Kind::COUNTS, Default::None)
    .doc("the distance between positions of a window; defaults to `kernel_size`");
pub(super) const PADDING: Parameter = with(
    "padding",
    Kind::OrOneOf(&Kind::Padding, &["same", "valid"]),
    Default::Int(0),
)
.doc(
    "the padding: a number for all sides, one or a pair (before, after) for each axis, \"valid\" \
    for no padding, or \"same\" for an output as large as the input, with a `stride` of 1",
);
pub(super) const DILATION: Parameter =
    with("dilation", Kind::COUNTS, Default::Int(1)).doc("the distance between taps of a window");

/// One number per axis. A stride that is left out equals the kernel size.
pub(super) fn each_axis(settings: &Settings, name: &str, axes: usize) -> Vec<i64> {
    match settings.ints(name) {
        Some(list) if list.len() == 1 => vec![list[0]; axes],
        Some(list) => list,
        None => each_axis(settings, "kernel_size", axes),
    }
}

/// The padding of one axis: a number for both ends, or a pair.
pub(super) fn pair(item: &Setting) -> [i64; 2] {
    match item.as_list() {
        Some(pair) => [0, 1].map(|side| pair.get(side).and_then(Setting::as_int).unwrap_or(0)),
        None => [item.as_int().unwrap_or(0); 2],
    }
}

/// The padding before and after each axis.
pub(super) fn padding(settings: &Settings, axes: usize) -> Vec<[i64; 2]> {
    match settings.get("padding") {
        Setting::List(items) => items.iter().map(pair).collect(),
        Setting::Str(name) if &**name == "same" => {
            let sizes = each_axis(settings, "kernel_size", axes).into_iter();
            let reach = sizes.zip(dilations(settings, axes)).map(|(size, by)| by * (size - 1));
            reach.map(|reach| [reach / 2, reach - reach / 2]).collect()
        }
        Setting::Str(_) => vec![[0; 2]; axes],
        other => vec![pair(other); axes],
    }
}

/// The dilation of each axis; 1 for blocks without that parameter.
pub(super) fn dilations(settings: &Settings, axes: usize) -> Vec<i64> {
    match settings.ints("dilation") {
        Some(_) => each_axis(settings, "dilation", axes),
        None => vec![1; axes],
    }
}

/// An attribute that is left out where it has its default value everywhere.
pub(super) fn unless(
    name: &'static str,
    list: Vec<i64>,
    usual: i64,
) -> Option<(&'static str, Attr)> {
    list.iter().any(|n| *n != usual).then(|| (name, Attr::ints(list)))
}

/// The attributes of windows: strides, dilations and padding. Those with default values are left
/// out.
pub(super) fn attrs(settings: &Settings, axes: usize) -> Vec<(&'static str, Attr)> {
    let padding = padding(settings, axes);
    let side = |side: usize| padding.iter().map(|pair| pair[side]).collect::<Vec<i64>>();
    let lists = [
        unless("strides", each_axis(settings, "stride", axes), 1),
        unless("dilations", dilations(settings, axes), 1),
        unless("low", side(0), 0),
        unless("high", side(1), 0),
    ];
    lists.into_iter().flatten().collect()
}

/// Checks the settings for this number of axes. Errors: a list of another length; negative padding;
/// `padding="same"` with a stride other than 1.
pub(super) fn valid(settings: &Settings, axes: usize) -> Result<()> {
    for name in ["kernel_size", "stride", "dilation", "output_padding"] {
        let count = settings.ints(name).map_or(axes, |list| list.len());
        if count != axes && count != 1 {
            return counted(name, count, axes);
        }
    }
    let padding = padding(settings, axes);
    if padding.len() != axes {
        return counted("padding", padding.len(), axes);
    }
    if let Some(least) = padding.iter().flatten().find(|n| **n < 0) {
        return Diagnostic::new("`padding` must be at least 0")
            .got(least)
            .expected("integers of at least 0")
            .hint("use `Slice` to remove elements")
            .err();
    }
    let strided = each_axis(settings, "stride", axes).iter().any(|n| *n != 1);
    if settings.text("padding") == "same" && strided {
        return Diagnostic::new("`padding=\"same\"` needs a `stride` of 1")
            .got(settings.get("stride").text())
            .expected("1, or a padding in numbers")
            .err();
    }
    Ok(())
}

/// Checks the settings of a pooling for this number of axes. As in PyTorch, the padding of one side
/// is at most half a window, or that of two sides a whole one: a window of padding alone has no
/// maximum. Errors: those of `valid`; more padding.
pub(super) fn valid_pooling(settings: &Settings, axes: usize) -> Result<()> {
    valid(settings, axes)?;
    let sizes = each_axis(settings, "kernel_size", axes).into_iter();
    let spans = sizes.zip(dilations(settings, axes));
    let spans = spans.map(|(size, by)| by.saturating_mul(size - 1).saturating_add(1));
    for ([low, high], span) in padding(settings, axes).into_iter().zip(spans) {
        if low.saturating_add(high) <= span && low.max(high) < span {
            continue;
        }
        let (got, expected) = match low == high {
            true => (low.to_string(), format!("at most {}, half of a window", span / 2)),
            false => (
                format!("{low} and {high}"),
                format!("at most {span} on both sides together, and fewer on each of them"),
            ),
        };
        return Diagnostic::new("`padding` is too large for the windows")
            .got(format!("{got}, for windows that span {span}"))
            .expected(expected)
            .hint("use `Pad` to add more elements")
            .err();
    }
    Ok(())
}

/// The number of axes that a list as `setting` is for. Errors: an axis of the channels or of the
/// batch would be one of them.
pub(super) fn listed(cx: &Cx, setting: &str, count: usize) -> Result<usize> {
    let shape = cx.var("input").shape();
    if count < shape.need_rank()? {
        return Ok(count);
    }
    let what = format!("`{setting}` is for more axes than `input` has after its channels");
    Diagnostic::of(ErrorKind::Shapes, what)
        .got(format!("a list of {count}, for {shape}"))
        .expected("a number for each of the last axes of (channels, …) or (batch, channels, …)")
        .err()
}

pub(super) fn counted(name: &str, count: usize, axes: usize) -> Result<()> {
    let (what, expected) = match axes {
        1 => ("1 axis".to_string(), "one value".to_string()),
        _ => (format!("{axes} axes"), format!("one value, or a list of {axes}")),
    };
    Diagnostic::new(format!("`{name}` must be given for {what}"))
        .got(format!("a list of {count}"))
        .expected(expected)
        .err()
}

/// An integer attribute that is left out where it is 1.
pub(super) fn unless_one(name: &'static str, number: i64) -> Option<(&'static str, Attr)> {
    (number != 1).then(|| (name, number.into()))
}

/// The number of axes after the first two.
pub(super) fn after_channels(cx: &Cx) -> Result<usize> {
    let shape = cx.var("input").shape();
    match shape.need_rank()? {
        rank @ 3.. => Ok(rank - 2),
        _ => Diagnostic::of(ErrorKind::Shapes, "`input` has no axes to pool")
            .got(&shape)
            .expected("(batch, channels, …)")
            .err(),
    }
}

#[cfg(test)]
mod tests {
    use crate::Setting;
    use crate::blocks::build;

    fn pair(low: i64, high: i64) -> Setting {
        Setting::List([Setting::List([Setting::Int(low), Setting::Int(high)].into())].into())
    }

    #[test]
    fn the_padding_of_pools_is_at_most_half_a_window() {
        for (kernel, dilation, padding, is_valid) in [
            (2, 1, Setting::Int(1), true),
            (2, 1, Setting::Int(2), false),
            (3, 1, Setting::Int(1), true),
            (3, 1, Setting::Int(2), false),
            (3, 2, Setting::Int(2), true),
            (1, 1, Setting::Int(1), false),
            (4, 1, "same".into(), true),
            (3, 1, pair(0, 2), true),
            (2, 1, pair(0, 2), false),
            (3, 1, pair(2, 2), false),
            (3, 1, Setting::Int(i64::MAX), false),
        ] {
            let mut named = vec![("kernel_size", Setting::Int(kernel)), ("padding", padding)];
            named.push(("stride", Setting::Int(1)));
            if dilation == 1 {
                assert_eq!(build("AvgPool1d", vec![], named.clone()).is_ok(), is_valid);
            }
            named.push(("dilation", Setting::Int(dilation)));
            assert_eq!(build("MaxPool1d", vec![], named).is_ok(), is_valid, "kernel {kernel}");
        }
    }
}
