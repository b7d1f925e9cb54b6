//! The part specific to x86-64: relocation types, and stubs that jump to any address.

use object::elf;

/// How a relocation computes its value, and the field that it writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Uses the address of the symbol's entry in the table of addresses (GOT), not the symbol's.
    pub by_table: bool,
    /// The value is relative to the address of the field (PC-relative).
    pub relative: bool,
    pub field: Field,
}

/// The integer that a relocation writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    U32,
    I32,
    I64,
}

/// The form of a relocation type; none for types that position-independent code of the small code
/// model does not use.
pub fn form(kind: u32) -> Option<Form> {
    let (by_table, relative, field) = match kind {
        elf::R_X86_64_64 => (false, false, Field::I64),
        elf::R_X86_64_32 => (false, false, Field::U32),
        elf::R_X86_64_32S => (false, false, Field::I32),
        elf::R_X86_64_PC64 => (false, true, Field::I64),
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => (false, true, Field::I32),
        elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => {
            (true, true, Field::I32)
        }
        _ => return None,
    };
    Some(Form { by_table, relative, field })
}

impl Field {
    /// The length of the field in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Field::U32 | Field::I32 => 4,
            Field::I64 => 8,
        }
    }

    /// Writes a value; false if it does not fit. `to` has the length of the field.
    pub fn write(self, to: &mut [u8], value: i64) -> bool {
        let fits = match self {
            Field::U32 => u32::try_from(value).is_ok(),
            Field::I32 => i32::try_from(value).is_ok(),
            Field::I64 => true,
        };
        if fits {
            to.copy_from_slice(&value.to_le_bytes()[..self.bytes()]);
        }
        fits
    }
}

/// The length in bytes of a stub, which jumps to any address.
pub const STUB: usize = 16;

/// A stub: `jmp *[rip]`, followed by the address of the target.
pub fn stub(address: u64) -> [u8; STUB] {
    let mut stub = [0; STUB];
    stub[..2].copy_from_slice(&[0xff, 0x25]);
    stub[6..14].copy_from_slice(&address.to_le_bytes());
    stub
}
