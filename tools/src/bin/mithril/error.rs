//! `mithril error`: prints the documentation page of an error code.

use mithril_ir::diagnostic::{Diagnostic, ErrorKind, Result, did_you_mean};

macro_rules! pages {
    ($($code:literal)*) => {
        &[$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),*]
    };
}

const PAGES: &[(&str, &str)] = pages! {
    "E0100" "E0101" "E0102" "E0103" "E0104" "E0105" "E0106" "E0107" "E0108"
    "E0109" "E0110" "E0111" "E0201" "E0202" "E0203" "E0204" "E0205" "E0301" "E0302"
    "E0303" "E0304" "E0402" "E0403" "E0501" "E0502" "E0503" "E0504" "E0506"
    "E0601" "E0602" "E0901"
};

/// The page of a code, or, without a code, the list of all codes. Errors: the code is unknown.
pub fn page(code: Option<&str>) -> Result<String> {
    let Some(code) = code else {
        let kinds = ErrorKind::ALL.iter();
        return Ok(kinds.map(|kind| format!("{}  {}\n", kind.code(), kind.heading())).collect());
    };
    match PAGES.iter().find(|(own, _)| own.eq_ignore_ascii_case(code)) {
        Some((_, page)) => Ok(page.to_string()),
        None => {
            let error = Diagnostic::new(format!("there is no error `{code}`"));
            let near = did_you_mean(code, PAGES.iter().map(|(code, _)| *code));
            let hint = near.or_else(|| Some("`mithril error` lists all of them".into()));
            Err(Box::new(Diagnostic { hint, ..error }))
        }
    }
}
