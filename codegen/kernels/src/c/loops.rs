//! Loop annotations for C compilers.

/// The macro before a loop that must not be unrolled, and its definition.
pub const ROLLED: (&str, &str) = (
    "MITHRIL_ROLLED",
    "\
/* Prevents unrolling of a short loop that adds to a float. GCC before 12.4, and 13 before 13.3, may
 * merge it with the enclosing loop and then add some of the numbers twice (GCC bug 110381). */
#if defined(__GNUC__) && !defined(__clang__) && (__GNUC__ < 12 \\
    || (__GNUC__ == 12 && __GNUC_MINOR__ < 4) || (__GNUC__ == 13 && __GNUC_MINOR__ < 3))
#define MITHRIL_ROLLED _Pragma(\"GCC unroll 1\")
#else
#define MITHRIL_ROLLED
#endif
",
);
