//! tmp
mod error;
pub mod fit;
pub mod htest;
pub mod ks;
mod law;
pub mod quantile;
mod root;
mod special;

pub use error::{Result, StatsError};
pub use fit::{Fitted, fit};
pub use law::{
    Constant, Distribution, Empirical, Family, Gamma, Law, LogNormal, Normal, RawLaw,
    ShiftedLogNormal, StudentT,
};
