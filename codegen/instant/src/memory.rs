//! Loads and stores. Gathers, scatters, and accesses whose mask is not full go lane by lane through
//! a stack slot.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{
    InstBuilder, MemFlags, StackSlot, StackSlotData, StackSlotKind, Type, Value,
};
use mithril_ir::dtype::DType;
use mithril_kernels::code::{Mem, Place, Ty, V};

use crate::representation::{PIECE, Pieces, Representation, lane, piece};
use crate::translator::Translator;
use crate::{Result, unsupported};

/// Bytes of a stack slot: the widest vectors have 64 lanes, and each may have an 8-byte index.
const SLOT: u32 = 512;
/// The slot that holds elements, and the one that holds their indices.
const ELEMENTS: usize = 0;
const INDICES: usize = 1;

/// A base address and an offset in bytes.
type Address = (Value, i32);

fn flags() -> MemFlags {
    MemFlags::new().with_notrap()
}

impl Translator<'_> {
    fn base(&mut self, mem: Mem) -> Result<Value> {
        match self.code.memories[mem.0 as usize].place {
            Place::Buffer(n) => Ok(self.arguments()?.buffers[n as usize]),
            Place::Scratch(offset) => {
                let offset = self.scalar(offset)?;
                let scratch = self.arguments()?.scratch;
                Ok(self.b.ins().iadd(scratch, offset))
            }
            Place::Local(_) => unsupported("portable code"),
        }
    }

    fn element(&self, mem: Mem) -> Result<Type> {
        lane(self.code.memories[mem.0 as usize].dtype)
    }

    /// The address of an element, given its index.
    fn address(&mut self, mem: Mem, at: V) -> Result<Address> {
        let size = i64::from(self.element(mem)?.bytes());
        if let Some(bits) = self.constant(at) {
            let offset = (bits as i64).wrapping_mul(size);
            if let Ok(offset @ ..0x4000_0000) = i32::try_from(offset) {
                return Ok((self.base(mem)?, offset));
            }
        }
        let (root, added) = self.split_sum(at);
        match i32::try_from(added.wrapping_mul(size)) {
            Ok(offset @ -0x4000_0000..0x4000_0000) => Ok((self.pointer(mem, root)?, offset)),
            _ => Ok((self.pointer(mem, at)?, 0)),
        }
    }

    fn pointer(&mut self, mem: Mem, at: V) -> Result<Value> {
        if let Some(&known) = self.addresses.get(&(mem, at)) {
            return Ok(known);
        }
        let (base, index) = (self.base(mem)?, self.scalar(at)?);
        let size = self.element(mem)?.bytes();
        let pointer = self.offset_by(base, index, size);
        self.addresses.insert((mem, at), pointer);
        Ok(pointer)
    }

    /// The address `index` elements after `base`; an element has `size` bytes.
    fn offset_by(&mut self, base: Value, index: Value, size: u32) -> Value {
        let index = self.sign_extended(index);
        let bytes = match size {
            1 => index,
            _ => self.b.ins().ishl_imm(index, i64::from(size.trailing_zeros())),
        };
        self.b.ins().iadd(base, bytes)
    }

    pub fn load(&mut self, ty: Ty, mem: Mem, at: V, mask: Option<V>) -> Result<Representation> {
        let own = self.element(mem)?;
        let address = self.address(mem, at)?;
        if ty.lanes == 1 {
            let value = self.b.ins().load(own, flags(), address.0, address.1);
            return Ok(Representation::Scalar(match ty.dtype {
                DType::Bool => self.b.ins().band_imm(value, 1),
                _ => value,
            }));
        }
        let pieces = match mask {
            None => self.load_pieces(own, ty.lanes, address),
            Some(mask) => self.load_masked(own, ty.lanes, address, mask)?,
        };
        Ok(self.loaded(ty, pieces))
    }

    /// Converts loaded pieces to a value. Bools are stored as bytes, of which only the lowest bit
    /// is read.
    fn loaded(&mut self, ty: Ty, pieces: Pieces) -> Representation {
        if ty.dtype != DType::Bool {
            return Representation::Vector(pieces);
        }
        let one = self.bits(piece(I8), 1);
        let truth = |x| {
            let bit = self.b.ins().band(x, one);
            self.b.ins().ineg(bit)
        };
        Representation::Mask(I8, pieces.into_iter().map(truth).collect())
    }

    fn load_pieces(&mut self, own: Type, lanes: u32, (base, offset): Address) -> Pieces {
        let bytes = lanes * own.bytes();
        if bytes < PIECE {
            return [self.load_short(own, bytes, (base, offset))].into_iter().collect();
        }
        let offsets = (0..bytes / PIECE).map(|at| offset + (at * PIECE) as i32);
        offsets.map(|at| self.b.ins().load(piece(own), flags(), base, at)).collect()
    }

    /// A piece of fewer bytes.
    fn load_short(&mut self, own: Type, bytes: u32, (base, offset): Address) -> Value {
        let (int, value) = match bytes {
            8 => (I64, self.b.ins().load(I64, flags(), base, offset)),
            4 => (I32, self.b.ins().load(I32, flags(), base, offset)),
            _ => (I32, self.b.ins().uload16(I32, flags(), base, offset)),
        };
        let vector = self.b.ins().scalar_to_vector(piece(int), value);
        self.recast(piece(own), vector)
    }

    fn store_pieces(&mut self, own: Type, lanes: u32, pieces: &[Value], (base, offset): Address) {
        let bytes = lanes * own.bytes();
        if bytes >= PIECE {
            for (at, &piece) in pieces.iter().enumerate() {
                self.b.ins().store(flags(), piece, base, offset + (at as u32 * PIECE) as i32);
            }
            return;
        }
        let int = match bytes {
            8 => I64,
            4 => I32,
            _ => I16,
        };
        let value = self.recast(piece(int), pieces[0]);
        let value = self.b.ins().extractlane(value, 0);
        self.b.ins().store(flags(), value, base, offset);
    }

    pub fn store(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) -> Result<()> {
        let own = self.element(mem)?;
        let address = self.address(mem, at)?;
        let lanes = self.ty(value).lanes;
        if lanes == 1 {
            let value = self.scalar(value)?;
            self.b.ins().store(flags(), value, address.0, address.1);
            return Ok(());
        }
        let pieces = self.stored(value)?;
        let Some(mask) = mask else {
            self.store_pieces(own, lanes, &pieces, address);
            return Ok(());
        };
        let bits = self.mask_bits(mask)?;
        let base = self.b.ins().iadd_imm(address.0, i64::from(address.1));
        let [all, some, after] = [(); 3].map(|()| self.b.create_block());
        self.branch_if_all(bits, lanes, all, some);
        self.enter(all);
        self.store_pieces(own, lanes, &pieces, (base, 0));
        self.jump(after, &[]);
        self.enter(some);
        let slot = self.slot(ELEMENTS);
        self.store_pieces(own, lanes, &pieces, (slot, 0));
        self.each_bit(bits, |t, lane| {
            let [from, to] = [slot, base].map(|base| t.offset_by(base, lane, own.bytes()));
            t.copy(own, from, to);
            Ok(())
        })?;
        self.jump(after, &[]);
        self.enter(after);
        Ok(())
    }

    /// The pieces that are stored for a vector. A mask is stored as bytes.
    fn stored(&mut self, value: V) -> Result<Pieces> {
        match self.ty(value).dtype {
            DType::Bool => self.zeros_and_ones(value, I8),
            _ => self.pieces(value),
        }
    }

    fn load_masked(
        &mut self,
        own: Type,
        lanes: u32,
        (base, offset): Address,
        mask: V,
    ) -> Result<Pieces> {
        let bits = self.mask_bits(mask)?;
        let base = self.b.ins().iadd_imm(base, i64::from(offset));
        let count = crate::representation::count(own, lanes);
        let [all, some] = [(); 2].map(|()| self.b.create_block());
        let after = self.new_block(std::iter::repeat_n(piece(own), count));
        self.branch_if_all(bits, lanes, all, some);
        self.enter(all);
        let pieces = self.load_pieces(own, lanes, (base, 0));
        self.jump(after, &pieces);
        self.enter(some);
        let slot = self.cleared_slot(own, lanes);
        self.each_bit(bits, |t, lane| {
            let [from, to] = [base, slot].map(|base| t.offset_by(base, lane, own.bytes()));
            t.copy(own, from, to);
            Ok(())
        })?;
        let pieces = self.load_pieces(own, lanes, (slot, 0));
        self.jump(after, &pieces);
        Ok(self.enter(after).into_iter().collect())
    }

    pub fn gather(&mut self, ty: Ty, mem: Mem, at: V, mask: Option<V>) -> Result<Representation> {
        let own = self.element(mem)?;
        let bits = self.bits_or_all(mask, ty.lanes)?;
        let base = self.base(mem)?;
        let indices = self.store_indices(at)?;
        let slot = self.cleared_slot(own, ty.lanes);
        let index = lane(self.ty(at).dtype)?;
        self.each_bit(bits, |t, lane| {
            let from = t.element_address(base, indices, index, lane, own);
            let to = t.offset_by(slot, lane, own.bytes());
            t.copy(own, from, to);
            Ok(())
        })?;
        let pieces = self.load_pieces(own, ty.lanes, (slot, 0));
        Ok(self.loaded(ty, pieces))
    }

    pub fn scatter(&mut self, mem: Mem, at: V, value: V, mask: Option<V>) -> Result<()> {
        let (own, lanes) = (self.element(mem)?, self.ty(value).lanes);
        let bits = self.bits_or_all(mask, lanes)?;
        let base = self.base(mem)?;
        let indices = self.store_indices(at)?;
        let index = lane(self.ty(at).dtype)?;
        let (slot, pieces) = (self.slot(ELEMENTS), self.stored(value)?);
        self.store_pieces(own, lanes, &pieces, (slot, 0));
        self.each_bit(bits, |t, lane| {
            let to = t.element_address(base, indices, index, lane, own);
            let from = t.offset_by(slot, lane, own.bytes());
            t.copy(own, from, to);
            Ok(())
        })
    }

    /// Stores the indices of a gather or scatter to a slot, and returns its address.
    fn store_indices(&mut self, at: V) -> Result<Value> {
        let slot = self.slot(INDICES);
        let pieces = self.pieces(at)?;
        self.store_pieces(lane(self.ty(at).dtype)?, self.ty(at).lanes, &pieces, (slot, 0));
        Ok(slot)
    }

    /// The address of the element of a lane.
    fn element_address(
        &mut self,
        base: Value,
        indices: Value,
        index: Type,
        lane: Value,
        own: Type,
    ) -> Value {
        let index_address = self.offset_by(indices, lane, index.bytes());
        let element = self.b.ins().load(index, flags(), index_address, 0);
        self.offset_by(base, element, own.bytes())
    }

    fn copy(&mut self, own: Type, from: Value, to: Value) {
        let value = self.b.ins().load(own, flags(), from, 0);
        self.b.ins().store(flags(), value, to, 0);
    }

    fn slot(&mut self, which: usize) -> Value {
        let slot: StackSlot = *self.slots[which].get_or_insert_with(|| {
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, SLOT, 4);
            self.b.create_sized_stack_slot(data)
        });
        self.b.ins().stack_addr(I64, slot, 0)
    }

    /// The slot of elements, filled with zeros for this many lanes.
    fn cleared_slot(&mut self, own: Type, lanes: u32) -> Value {
        let slot = self.slot(ELEMENTS);
        let zero = self.bits(piece(own), 0);
        let zeros = vec![zero; crate::representation::count(own, lanes)];
        self.store_pieces(own, lanes, &zeros, (slot, 0));
        slot
    }

    // Masks as bits.

    fn bits_or_all(&mut self, mask: Option<V>, lanes: u32) -> Result<Value> {
        match mask {
            Some(mask) => self.mask_bits(mask),
            None => Ok(self.b.ins().iconst(I64, all(lanes))),
        }
    }

    /// Packs a mask into one bit per lane; the first lane is the lowest bit.
    fn mask_bits(&mut self, mask: V) -> Result<Value> {
        let lanes = self.ty(mask).lanes;
        let pieces = self.mask(mask, I8)?;
        let mut bits = None;
        for (at, piece) in pieces.into_iter().enumerate() {
            let own = self.b.ins().vhigh_bits(I64, piece);
            let own = self.b.ins().ishl_imm(own, at as i64 * i64::from(PIECE));
            bits = Some(bits.map_or(own, |bits| self.b.ins().bor(bits, own)));
        }
        match bits {
            Some(bits) => Ok(self.b.ins().band_imm(bits, all(lanes))),
            None => unsupported("a mask without lanes"),
        }
    }

    fn branch_if_all(
        &mut self,
        bits: Value,
        lanes: u32,
        all_set: cranelift_codegen::ir::Block,
        some: cranelift_codegen::ir::Block,
    ) {
        let full = self.b.ins().icmp_imm(IntCC::Equal, bits, all(lanes));
        self.b.ins().brif(full, all_set, &[], some, &[]);
    }

    /// Emits a loop over the set bits, from the lowest on. `body` emits its statements, given the
    /// lane.
    fn each_bit(
        &mut self,
        bits: Value,
        body: impl FnOnce(&mut Self, Value) -> Result<()>,
    ) -> Result<()> {
        let [body_block, exit] = [self.new_block([I64]), self.b.create_block()];
        let any = self.b.ins().icmp_imm(IntCC::NotEqual, bits, 0);
        self.b.ins().brif(any, body_block, &[bits.into()], exit, &[]);
        let bits = self.enter(body_block)[0];
        let lane = self.b.ins().ctz(bits);
        body(self, lane)?;
        let less = self.b.ins().iadd_imm(bits, -1);
        let rest = self.b.ins().band(bits, less);
        let more = self.b.ins().icmp_imm(IntCC::NotEqual, rest, 0);
        self.b.ins().brif(more, body_block, &[rest.into()], exit, &[]);
        self.enter(exit);
        Ok(())
    }
}

/// The bit mask with this many lanes set.
fn all(lanes: u32) -> i64 {
    (u64::MAX >> (64 - lanes)) as i64
}
