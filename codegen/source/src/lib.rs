//! Source code from Mithril IR: one emitter per Python framework, and C. Needs no LLVM.
