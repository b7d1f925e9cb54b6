//! AMX on every processor: where the instructions trap, they are done here.
//!
//! Meanings and encodings are those of Intel's Architecture Instruction Set Extensions Programming
//! Reference, chapter 3.

// Each user takes a part of it.
#![allow(dead_code)]

use std::arch::x86_64::__cpuid_count;
use std::cell::RefCell;
use std::sync::Once;

use libc::{c_int, c_void};
use mithril_kernels::host::Host;
use mithril_kernels::isa::Isa;
use mithril_native::Options;

/// A processor that has AMX, which this one is from now on.
pub fn processor() -> (Options, Isa) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !granted() {
            trap();
        }
    });
    let host = Host::parse("x86-64-v4+amx-bf16").unwrap_or_else(|e| panic!("{e}"));
    (
        Options { cpu: host.level.cpu.into(), features: host.features, ..Options::default() },
        host.isa,
    )
}

/// Whether the processor has it and the system lets this process use it.
fn granted() -> bool {
    const ASK: c_int = 0x1023;
    const TILE_DATA: c_int = 18;
    #[allow(unused_unsafe)]
    // SAFETY: every processor of 64 bits has the instruction.
    let edx = unsafe { __cpuid_count(7, 0) }.edx;
    let there = edx >> 22 & 1 == 1 && edx >> 24 & 1 == 1;
    // SAFETY: it changes nothing but what this process may use.
    there && unsafe { libc::syscall(libc::SYS_arch_prctl, ASK, TILE_DATA) } == 0
}

const ROWS: usize = 16;
const BYTES: usize = 64;

/// What a thread holds: no sizes before they are configured.
struct Tiles {
    configured: bool,
    rows: [[u8; ROWS * BYTES]; 8],
}

thread_local! {
    static TILES: RefCell<Tiles> =
        const { RefCell::new(Tiles { configured: false, rows: [[0; ROWS * BYTES]; 8] }) };
}

/// Whether this thread's tiles have sizes: they are to be given back.
pub fn in_use() -> bool {
    TILES.with_borrow(|tiles| tiles.configured)
}

fn trap() {
    // SAFETY: the handler does what a handler may, and continues after the instruction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()), 0);
    }
}

unsafe extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives the context of the thread, whose next instruction can be read.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as *const u8;
        match run(at, registers) {
            Some(behind) => registers[libc::REG_RIP as usize] = behind as i64,
            // What it is not for ends the process, as ever.
            None => _ = libc::signal(libc::SIGILL, libc::SIG_DFL),
        }
    }
}

/// The bytes of an instruction after its opcode, and the registers.
struct Operands<'a> {
    at: *const u8,
    /// The bits that make numbers of registers greater than 7: of the base and of the index.
    base: usize,
    index: usize,
    registers: &'a [i64; 23],
}

/// Executes the instruction at `at` and returns the address after it; `None` if it is none of
/// these.
unsafe fn run(at: *const u8, registers: &[i64; 23]) -> Option<usize> {
    // SAFETY: the processor has read the instruction.
    unsafe {
        let byte = |i: usize| *at.add(i);
        if byte(0) != 0xC4 || byte(1) & 0x1F != 2 {
            return None;
        }
        let (prefix, opcode, mode) = (byte(2) & 3, byte(3), byte(4));
        let (reg, rm) = (mode as usize >> 3 & 7, mode as usize & 7);
        let third = !(byte(2) >> 3) as usize & 7;
        let bit = |i: u8| usize::from(byte(1) >> i & 1 == 0) * 8;
        let operands = Operands { at: at.add(4), base: bit(5), index: bit(6), registers };
        TILES.with_borrow_mut(|tiles| {
            let known = tiles.configured || opcode == 0x49 && prefix == 0;
            match (opcode, prefix, mode >> 6 == 3) {
                _ if !known => None,
                (0x49, 0, true) => {
                    tiles.configured = false;
                    Some(at as usize + 5)
                }
                (0x49, 0, false) => {
                    let (from, _, behind) = operands.address();
                    tiles.configure(from as *const u8);
                    Some(behind)
                }
                (0x49, 3, true) => {
                    tiles.rows[reg] = [0; ROWS * BYTES];
                    Some(at as usize + 5)
                }
                (0x4B, 3 | 1, false) => {
                    let (from, stride, behind) = operands.address();
                    for (i, row) in tiles.rows[reg].chunks_exact_mut(BYTES).enumerate() {
                        let from = (from + i as i64 * stride) as *const u8;
                        row.copy_from_slice(std::slice::from_raw_parts(from, BYTES));
                    }
                    Some(behind)
                }
                (0x4B, 2, false) => {
                    let (to, stride, behind) = operands.address();
                    for (i, row) in tiles.rows[reg].chunks_exact(BYTES).enumerate() {
                        let to = (to + i as i64 * stride) as *mut u8;
                        to.copy_from_nonoverlapping(row.as_ptr(), BYTES);
                    }
                    Some(behind)
                }
                (0x5C, 2, true) => {
                    let (x, y) = (tiles.rows[rm], tiles.rows[third]);
                    multiply(&mut tiles.rows[reg], &x, &y);
                    Some(at as usize + 5)
                }
                _ => None,
            }
        })
    }
}

impl Tiles {
    /// Takes sizes, which must be the greatest for all tiles.
    unsafe fn configure(&mut self, from: *const u8) {
        // SAFETY: it is what the instruction reads.
        let table = unsafe { std::slice::from_raw_parts(from, 64) };
        let bytes = table[16..32].chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        assert!(table[0] == 1 && bytes.eq([BYTES as u16; 8]), "{table:?}");
        assert!(table[48..56] == [ROWS as u8; 8], "{table:?}");
        *self = Tiles { configured: true, rows: [[0; ROWS * BYTES]; 8] };
    }
}

impl Operands<'_> {
    /// The address that a ModRM byte and what follows give, with the index apart, and what is
    /// behind.
    unsafe fn address(&self) -> (i64, i64, usize) {
        // SAFETY: the processor has read the instruction.
        unsafe {
            let (mode, rm) = (*self.at >> 6, *self.at & 7);
            let scaled = rm == 4;
            let (base, index, shift) = match scaled {
                true => {
                    let byte = *self.at.add(1) as usize;
                    (byte & 7, (byte >> 3 & 7) + self.index, byte >> 6)
                }
                false => (rm as usize, 4, 0),
            };
            let behind = self.at.add(if scaled { 2 } else { 1 });
            let word = || behind.cast::<i32>().read_unaligned() as i64;
            let (offset, length) = match mode {
                0 if base == 5 => (word(), 4),
                0 => (0, 0),
                1 => (*behind.cast::<i8>() as i64, 1),
                _ => (word(), 4),
            };
            let behind = behind as usize + length;
            let base = match (mode, base) {
                (0, 5) if scaled => 0,
                (0, 5) => behind as i64,
                _ => self.register(base + self.base),
            };
            let index = if index == 4 { 0 } else { self.register(index) << shift };
            (base + offset, index, behind)
        }
    }

    fn register(&self, number: usize) -> i64 {
        use libc::{
            REG_R8, REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RSI, REG_RSP,
        };
        let first = [REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI];
        let at = match first.get(number) {
            Some(&at) => at as usize,
            None => REG_R8 as usize + number - 8,
        };
        self.registers[at]
    }
}

/// TDPBF16PS: the even and the odd products of a sum are accumulated separately. Subnormal numbers
/// count as zero.
fn multiply(sums: &mut [u8], x: &[u8], y: &[u8]) {
    let flushed = |x: f32| if x.is_subnormal() { 0.0_f32.copysign(x) } else { x };
    let half = |tile: &[u8], at: usize| {
        flushed(f32::from_bits((u16::from_le_bytes([tile[at], tile[at + 1]]) as u32) << 16))
    };
    for row in 0..ROWS {
        for col in 0..ROWS {
            let mut parts = [0.0_f32; 2];
            for k in 0..ROWS {
                for (i, part) in parts.iter_mut().enumerate() {
                    let left = half(x, row * BYTES + 4 * k + 2 * i);
                    let right = half(y, k * BYTES + 4 * col + 2 * i);
                    *part = flushed(left.mul_add(right, *part));
                }
            }
            let at = row * BYTES + 4 * col;
            let sum = &mut sums[at..at + 4];
            let before = f32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
            let now = flushed(flushed(before) + flushed(parts[0] + parts[1]));
            sum.copy_from_slice(&now.to_le_bytes());
        }
    }
}
