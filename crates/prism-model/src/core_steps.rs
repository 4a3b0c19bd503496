//! Which steps of a run are its core: neither warm-up nor stalls.

/// Steps at every start of a run that are taken for warm-up.
pub const WARM_UP_STEPS: usize = 10;
/// Steps over which the running median goes that a stall is held against.
pub const STALL_WINDOW: usize = 21;
/// A stall exceeds the running median by more than this many s.d. (by the MAD) …
pub const STALL_SDS: f64 = 6.0;
/// … and by more than this share of it.
pub const STALL_LEAST: f64 = 0.02;
