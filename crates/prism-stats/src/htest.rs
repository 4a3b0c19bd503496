//! Shim.
use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor, StudentsT};
/// P(F > x).
pub fn f_sf(x: f64, d1: f64, d2: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    FisherSnedecor::new(d1, d2).map_or(1.0, |d| d.sf(x))
}
/// P(chi2 > x).
pub fn chi_square_sf(x: f64, df: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    ChiSquared::new(df).map_or(1.0, |d| d.sf(x))
}
/// P(|T| > |x|).
pub fn t_two_sided(x: f64, df: f64) -> f64 {
    StudentsT::new(0.0, 1.0, df).map_or(1.0, |d| 2.0 * d.sf(x.abs()))
}
