//! Loading of relocatable objects.

/// x
pub struct Code;
