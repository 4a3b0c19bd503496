//! The AVX-512 code over a scalar model of its intrinsics.

#![allow(unused_unsafe, clippy::used_underscore_items, clippy::duplicate_mod)]

use super::{Simd, table};

mod arch512;
#[path = "../avx512.rs"]
mod avx512;

pub(crate) use avx512::Avx512;
