//! Maps values of loop code to Cranelift values: a scalar to one value, a vector to pieces.

use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::types::{F32, F64, I8, I32};
use cranelift_codegen::ir::{ConstantData, Endianness, InstBuilder, MemFlags, Type, Value};
use mithril_ir::dtype::DType;
use mithril_kernels::code::{Ty, V};

use crate::representation::{Pieces, Representation, count, lane, piece};
use crate::translator::Translator;
use crate::{Result, unsupported};

impl Translator<'_> {
    pub fn ty(&self, v: V) -> Ty {
        self.code.ty(v)
    }

    pub fn representation(&self, v: V) -> &Representation {
        &self.values[v.0 as usize]
    }

    pub fn set(&mut self, v: V, representation: Representation) {
        self.values[v.0 as usize] = representation;
    }

    /// The bits of a value, if it is a constant.
    pub fn constant(&self, v: V) -> Option<u64> {
        match self.representation(v) {
            Representation::Constant(bits) => Some(*bits),
            _ => None,
        }
    }

    /// Makes a constant of these bits: a scalar, or a piece with them in each lane.
    pub fn bits(&mut self, ty: Type, bits: u64) -> Value {
        let key = (ty, bits);
        if let Some(&known) = self.constants.get(&key) {
            return known;
        }
        let value = match ty {
            F32 => self.b.ins().f32const(Ieee32::with_bits(bits as u32)),
            F64 => self.b.ins().f64const(Ieee64::with_bits(bits)),
            _ if ty.is_vector() => {
                let bytes = bits.to_le_bytes();
                let lane = &bytes[..ty.lane_type().bytes() as usize];
                self.pattern(ty, lane.repeat(ty.lane_count() as usize))
            }
            _ => {
                let unused = 64 - ty.bits();
                self.b.ins().iconst(ty, (bits << unused) as i64 >> unused)
            }
        };
        self.constants.insert(key, value);
        value
    }

    /// Makes a constant piece of these bytes.
    pub fn pattern(&mut self, ty: Type, bytes: Vec<u8>) -> Value {
        let bytes = self.b.func.dfg.constants.insert(ConstantData::from(bytes));
        self.b.ins().vconst(ty, bytes)
    }

    /// The Cranelift value of a scalar.
    pub fn scalar(&mut self, v: V) -> Result<Value> {
        match *self.representation(v) {
            Representation::Scalar(value) => Ok(value),
            Representation::Constant(bits) => {
                let ty = lane(self.ty(v).dtype)?;
                Ok(self.bits(ty, bits))
            }
            _ => unsupported("a vector in place of a scalar"),
        }
    }

    /// The pieces of a vector that is not a mask.
    pub fn pieces(&mut self, v: V) -> Result<Pieces> {
        let Ty { dtype, lanes } = self.ty(v);
        let lane = lane(dtype)?;
        let same = |value: Value| Ok(std::iter::repeat_n(value, count(lane, lanes)).collect());
        match self.representation(v).clone() {
            Representation::Vector(pieces) => Ok(pieces),
            Representation::Splat(_, piece) => same(piece),
            Representation::Constant(bits) => same(self.bits(piece(lane), bits)),
            _ => unsupported("a scalar or a mask in place of a vector"),
        }
    }

    /// The pieces of a mask, converted to integers of this type.
    pub fn mask(&mut self, v: V, of: Type) -> Result<Pieces> {
        let lanes = self.ty(v).lanes;
        let same = |value: Value| Ok(std::iter::repeat_n(value, count(of, lanes)).collect());
        match self.representation(v).clone() {
            Representation::Constant(bits) => {
                let all = if bits & 1 == 0 { 0 } else { u64::MAX };
                same(self.bits(piece(of), all))
            }
            Representation::SplatBool(value) => {
                let all = self.b.ins().ineg(value);
                let all = if of == I8 { all } else { self.b.ins().sextend(of, all) };
                same(self.b.ins().splat(piece(of), all))
            }
            Representation::Mask(own, mut pieces) => {
                let mut own = own;
                while own.bytes() < of.bytes() {
                    pieces = self.widen(&pieces, lanes, own, true);
                    own = own.double_width().expect("a wider integer");
                }
                while own.bytes() > of.bytes() {
                    pieces = self.narrow_mask(&pieces, lanes, own);
                    own = own.half_width().expect("a narrower integer");
                }
                Ok(pieces)
            }
            _ => unsupported("numbers in place of a mask"),
        }
    }

    /// The integer type that represents a mask. Constants and splats can have any width.
    pub fn mask_lane(&self, v: V) -> Type {
        match self.representation(v) {
            Representation::Mask(own, _) => *own,
            _ => I32,
        }
    }

    /// Reinterprets the bits as another type of the same size.
    pub fn recast(&mut self, ty: Type, value: Value) -> Value {
        if self.b.func.dfg.value_type(value) == ty {
            return value;
        }
        let little = MemFlags::new().with_endianness(Endianness::Little);
        self.b.ins().bitcast(ty, little, value)
    }

    /// Appends the Cranelift values that represent a value as block arguments.
    pub fn flat(&mut self, v: V, into: &mut Vec<Value>) -> Result<()> {
        let Ty { dtype, lanes } = self.ty(v);
        match (lanes, dtype) {
            (1, _) => into.push(self.scalar(v)?),
            (_, DType::Bool) => into.extend(self.mask(v, I32)?),
            _ => into.extend(self.pieces(v)?),
        }
        Ok(())
    }

    /// The type and the number of values that [`Translator::flat`] gives for a value of this type.
    pub fn flat_types(&self, ty: Ty) -> Result<(Type, usize)> {
        match (ty.lanes, ty.dtype) {
            (1, dtype) => Ok((lane(dtype)?, 1)),
            (lanes, DType::Bool) => Ok((piece(I32), count(I32, lanes))),
            (lanes, dtype) => Ok((piece(lane(dtype)?), count(lane(dtype)?, lanes))),
        }
    }

    /// Sets a value from the Cranelift values that [`Translator::flat`] gives for its type.
    pub fn set_flat(&mut self, v: V, values: &[Value]) {
        let Ty { dtype, lanes } = self.ty(v);
        let representation = match (lanes, dtype) {
            (1, _) => Representation::Scalar(values[0]),
            (_, DType::Bool) => Representation::Mask(I32, values.into()),
            _ => Representation::Vector(values.into()),
        };
        self.set(v, representation);
    }
}
