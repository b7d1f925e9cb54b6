//! Random draws from explicit keys: Threefry-2x32-20 in JAX's partitionable layout.

use super::access::{Access, Random};
use super::{
    BASE, Class, DTypeRule, Default, Gradient, Infer, Kind, Meaning, OpDef, Operand, ShapeRule,
    attr, operand,
};
use crate::attr::AttrKind;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::eval::{layout, random, threefry};
use crate::shape::Shape;

const KEY: &[Operand] = &[operand("key", Class::Key)];
const SHAPE: super::AttrDef = attr("shape", AttrKind::Shape, Default::Required);
const DTYPE: super::AttrDef = attr("dtype", AttrKind::DType, Default::Required);

const DRAW: OpDef = OpDef {
    kind: Kind::Random,
    operands: KEY,
    attrs: &[SHAPE, DTYPE],
    shape: ShapeRule::Rule(|cx| {
        let shape = drawn(cx)?;
        cx.dtype_attr("dtype", DType::is_float, "a float")?;
        Ok(shape)
    }),
    dtype: DTypeRule::Attr("dtype"),
    gradient: Gradient::Zero,
    ..BASE
};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "random_bits",
        access: Access::Random(Random::Bits),
        doc: "Uniform unsigned integers of `dtype`. The bits are those of `jax.random.bits`.",
        shape: ShapeRule::Rule(|cx| {
            let shape = drawn(cx)?;
            cx.dtype_attr("dtype", DType::is_unsigned_int, "an unsigned integer")?;
            Ok(shape)
        }),
        meaning: Meaning::Kernel(|i| {
            threefry::random_bits(i.key(), &i.shape("shape"), i.dtype().bits())
        }),
        ..DRAW
    },
    OpDef {
        name: "uniform",
        access: Access::Random(Random::Uniform),
        doc: "Uniform floats in [`low`, `high`). The bits are those of `jax.random.uniform`.",
        attrs: &[
            SHAPE,
            DTYPE,
            attr("low", AttrKind::Float, Default::Float(0.0)),
            attr("high", AttrKind::Float, Default::Float(1.0)),
        ],
        meaning: Meaning::Kernel(|i| {
            random::uniform(i.key(), &i.shape("shape"), i.dtype(), i.float("low"), i.float("high"))
        }),
        ..DRAW
    },
    OpDef {
        name: "normal",
        access: Access::Random(Random::Normal),
        doc: "Standard normal floats: `sqrt(2) * erfinv(u)` of a uniform u in (-1, 1), \
              as `jax.random.normal` draws them.",
        meaning: Meaning::Kernel(|i| random::normal(i.key(), &i.shape("shape"), i.dtype())),
        note: "Targets agree within a few ulp, as they round the inverse error function \
               differently.",
        ..DRAW
    },
    OpDef {
        name: "key_split",
        access: Access::Random(Random::KeySplit),
        doc: "`count` new keys derived from `key`, as rows. The bits are those of \
              `jax.random.split`.",
        attrs: &[attr("count", AttrKind::Int, Default::Int(2))],
        shape: ShapeRule::Rule(|cx| {
            key_shape(cx)?;
            Ok(Shape::new([Dim::Const(cx.int("count")), Dim::Const(2)]))
        }),
        dtype: DTypeRule::Fixed(DType::U32),
        meaning: Meaning::Kernel(|i| {
            Ok(threefry::key_array(&threefry::split(i.key(), i.int("count") as usize)))
        }),
        ..DRAW
    },
    OpDef {
        name: "key_fold",
        access: Access::Random(Random::KeyFold),
        doc: "A new key derived from `key` and a number. The bits are those of \
              `jax.random.fold_in`.",
        attrs: &[attr("data", AttrKind::Int, Default::Required)],
        shape: ShapeRule::Rule(|cx| {
            key_shape(cx)?;
            Ok(Shape::fixed(&[2]))
        }),
        dtype: DTypeRule::Fixed(DType::U32),
        meaning: Meaning::Kernel(|i| {
            let key = threefry::fold_in(i.key(), i.int("data") as u32);
            layout::reshape(&threefry::key_array(&[key]), &[2])
        }),
        ..DRAW
    },
];

fn key_shape(cx: &mut Infer) -> Result<()> {
    let key = cx.shape(0).clone();
    cx.same(&key, &Shape::fixed(&[2]), "the key and tensor<2 x u32>")
}

fn drawn(cx: &mut Infer) -> Result<Shape> {
    key_shape(cx)?;
    cx.whole_shape("shape")
}
