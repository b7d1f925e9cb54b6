//! Prints operations on tile registers (AMX). Each statement is one instruction.

use std::fmt::Write;

use super::{Printer, line};
use crate::code::{Mem, TILE_BYTES, TILE_ROWS, TileOp, V};

/// The number of tile registers.
const TILES: usize = 8;

impl Printer<'_> {
    /// Prints the table of tile sizes: the number of the palette, then the bytes per row of each
    /// tile (16 bits each), then the rows of each tile.
    pub fn tile_sizes(&mut self) {
        let mut table = [0; 64];
        table[0] = 1;
        for tile in 0..TILES {
            table[16 + 2 * tile] = TILE_BYTES;
            table[48 + tile] = TILE_ROWS;
        }
        let table: Vec<String> = table.iter().map(i64::to_string).collect();
        line!(
            self,
            "llvm.mlir.global internal constant @tiles(dense<[{}]> : tensor<64xi8>) {{alignment = \
             64 : i64}} : !llvm.array<64 x i8>",
            table.join(", ")
        );
    }

    pub fn configure_tiles(&mut self) {
        line!(
            self,
            "%tiles = llvm.mlir.addressof @tiles : !llvm.ptr\n\
             llvm.call_intrinsic \"llvm.x86.ldtilecfg\"(%tiles) : (!llvm.ptr) -> ()"
        );
    }

    pub fn release_tiles(&mut self) {
        line!(self, "llvm.call_intrinsic \"llvm.x86.tilerelease\"() : () -> ()");
    }

    pub fn tile(&mut self, op: TileOp) {
        match op {
            TileOp::Zero(tile) => {
                let tile = self.number(tile);
                line!(self, "llvm.call_intrinsic \"llvm.x86.tilezero\"({tile}) : (i8) -> ()");
            }
            TileOp::Load { tile, mem, at, stride } => {
                self.move_tile("tileloadd64", tile, mem, (at, stride));
            }
            TileOp::Store { tile, mem, at, stride } => {
                self.move_tile("tilestored64", tile, mem, (at, stride));
            }
            TileOp::Dot { sum, x, y } => {
                let [sum, x, y] = [sum, x, y].map(|tile| self.number(tile));
                line!(
                    self,
                    "llvm.call_intrinsic \"llvm.x86.tdpbf16ps\"({sum}, {x}, {y}) : (i8, i8, i8) -> \
                     ()"
                );
            }
        }
    }

    fn move_tile(&mut self, name: &str, tile: u8, mem: Mem, (at, stride): (V, V)) {
        let (tile, pointer) = (self.number(tile), self.address(mem, at));
        let (size, bytes) = (self.fresh(), self.fresh());
        let element = self.code.memories[mem.0 as usize].dtype.bytes();
        line!(self, "{size} = arith.constant {element} : i64");
        line!(self, "{bytes} = arith.muli {}, {size} : i64", self.name(stride));
        line!(
            self,
            "llvm.call_intrinsic \"llvm.x86.{name}\"({tile}, {pointer}, {bytes}) : (i8, !llvm.ptr, \
             i64) -> ()"
        );
    }

    /// Prints the number of a tile as a constant operand.
    fn number(&mut self, tile: u8) -> String {
        let name = self.fresh();
        line!(self, "{name} = arith.constant {tile} : i8");
        name
    }
}
