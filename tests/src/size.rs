//! The size of the longest tests: small by default, and complete with `TEST_SIZE=large`, as in
//! `.ci/run`.

/// Whether the environment asks for the large form of the longest tests.
pub fn large_tests() -> bool {
    match std::env::var("TEST_SIZE").as_deref() {
        Err(_) | Ok("small") => false,
        Ok("large") => true,
        Ok(other) => panic!("TEST_SIZE is {other:?}; allowed: small, large"),
    }
}

/// Returns the first value in the large form, and the second in the small form.
pub fn large_or<T>(large: T, small: T) -> T {
    if large_tests() { large } else { small }
}
