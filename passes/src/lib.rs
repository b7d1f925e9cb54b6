//! The passes of Mithril: the driver, one file per pass, and the rewrite rules.

pub mod autodiff;
