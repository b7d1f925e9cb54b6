//! Loads relocatable objects, as compilers write them, into memory and makes them executable.
//!
//! An object is position-independent code of the small code model and needs no symbols but those
//! of [`EXTERNAL`]. Its contents are validated before use: a damaged object is an error.

mod layout;
mod link;
mod region;
mod x86_64;

use crate::kernel::Kernel;
use layout::{Layout, Object};
use region::{Access, Region};
use std::collections::HashMap;
use std::mem::transmute;
use std::ops::Range;

/// The symbols that an object may use without defining them.
pub const EXTERNAL: [&str; 3] = ["memcpy", "memmove", "memset"];

/// Why an object cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not an object, is truncated, or contradicts itself.
    #[error("damaged object: {0}")]
    Damaged(String),
    /// It is for another machine, or uses features that compiled kernels never use.
    #[error("unsupported object: {0}")]
    Unsupported(String),
    /// It needs a symbol that neither it nor [`EXTERNAL`] defines.
    #[error("undefined symbol {0}: an object may use {external} only", external = EXTERNAL.join(", "))]
    Undefined(String),
    /// An address does not fit into the field of its relocation.
    #[error("the address of {symbol} does not fit at {section} + {offset:#x}")]
    Range { symbol: String, section: String, offset: u64 },
    #[error("out of memory: {bytes} bytes for an object")]
    OutOfMemory { bytes: usize },
}

impl From<object::read::Error> for Error {
    fn from(error: object::read::Error) -> Error {
        Error::Damaged(error.to_string())
    }
}

/// Checks an object that is not loaded here: it may be for any processor.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Unsupported`] for one that is not relocatable, and
/// [`Error::Undefined`].
pub fn check(object: &[u8]) -> Result<(), Error> {
    link::check(&Object::parse(object)?)
}

/// The code and data of one object, at a fixed address until it is dropped.
///
/// No page is both writable and executable.
pub struct Code {
    region: Region,
    text: Range<usize>,
    /// The offset of each exported symbol in the region, in bytes.
    symbols: HashMap<String, usize>,
}

impl Code {
    /// Loads a relocatable ELF object for x86-64.
    ///
    /// # Errors
    /// Any [`Error`]; after one, nothing stays in memory.
    pub fn load(object: &[u8]) -> Result<Code, Error> {
        let object = Object::parse(object)?;
        if !object.is_for_this_machine() {
            return Err(Error::Unsupported("it is not for this machine".into()));
        }
        let layout = Layout::of(&object)?;
        let mut region = Region::new(layout.bytes)?;
        link::fill(&object, &layout, region.as_mut_slice())?;
        link::relocate(&object, &layout, &mut region)?;
        region.protect(layout.text.clone(), Access::Execute)?;
        region.protect(layout.constants.clone(), Access::Read)?;
        let symbols = link::exports(&object, &layout)?;
        Ok(Code { region, text: layout.text, symbols })
    }

    /// Loads a single function from position-independent machine code, and calls it `name`. The
    /// function starts at the first byte of the code.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and [`Error::Unsupported`] if memory may not be made executable.
    pub fn of_function(name: &str, code: &[u8]) -> Result<Code, Error> {
        let bytes = code.len().next_multiple_of(region::page());
        let mut region = Region::new(bytes)?;
        region.as_mut_slice()[..code.len()].copy_from_slice(code);
        region.protect(0..bytes, Access::Execute)?;
        Ok(Code { region, text: 0..code.len(), symbols: HashMap::from([(name.into(), 0)]) })
    }

    /// The address of a symbol that the object exports; valid until this is dropped.
    pub fn symbol(&self, name: &str) -> Option<*const u8> {
        Some(self.region.as_ptr().wrapping_add(*self.symbols.get(name)?))
    }

    /// The function of this name as a kernel; none if the object's code has no such symbol.
    ///
    /// Calling it is sound only if the symbol is a kernel and this object outlives the call.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        let offset = self.symbols.get(name).filter(|offset| self.text.contains(offset))?;
        let address = self.region.as_ptr().wrapping_add(*offset);
        // SAFETY: not null; the caller of the function guarantees that it is a kernel.
        Some(unsafe { transmute::<*const u8, Kernel>(address) })
    }
}
