//! Metadata of a trace: YAML beside it, or JSON inside it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use crate::error::IoError;
use crate::op_table::JobMeta;
use crate::violation::{Place, Rule, Violations};

/// Metadata as read, and the keys that were not understood.
#[derive(Clone, Debug)]
pub(crate) struct ReadMeta {
    pub(crate) meta: JobMeta,
    pub(crate) unknown: Vec<String>,
}

impl<'de> Deserialize<'de> for ReadMeta {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetaVisitor)
    }
}

/// A scalar that may be written as a string or as a number.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_str<E>(self, v: &str) -> Result<Name, E> {
                Ok(Name(v.to_owned()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Name, E> {
                Ok(Name(v.to_string()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Name, E> {
                Ok(Name(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Name, E> {
                Ok(Name(v.to_string()))
            }
            fn visit_bool<E>(self, v: bool) -> Result<Name, E> {
                Ok(Name(v.to_string()))
            }
            fn visit_unit<E>(self) -> Result<Name, E> {
                Ok(Name(String::new()))
            }
        }
        deserializer.deserialize_any(V)
    }
}

struct MetaVisitor;

impl<'de> Visitor<'de> for MetaVisitor {
    type Value = ReadMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping with dp_size, pp_size, tp_size and world_size")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ReadMeta, A::Error> {
        let mut sizes: [Option<u32>; 6] = [None; 6];
        let (mut name, mut run) = (None, None);
        let mut unknown = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(slot) = SIZES.iter().position(|s| *s == key).and_then(|i| sizes.get_mut(i))
            {
                if slot.is_some() {
                    return Err(serde::de::Error::custom(format!("`{key}` is there twice")));
                }
                *slot = Some(map.next_value()?);
            } else if key == "trial_name" {
                name = Some(map.next_value::<Name>()?.0);
            } else if key == "run_id" {
                run = Some(map.next_value::<i64>()?);
            } else {
                map.next_value::<IgnoredAny>()?;
                unknown.push(key);
            }
        }
        let [dp, pp, tp, world, dsp, vpp] = sizes;
        let need = |v: Option<u32>, key: &'static str| {
            v.ok_or_else(|| <A::Error as serde::de::Error>::missing_field(key))
        };
        let meta = JobMeta {
            trial_name: name.unwrap_or_default(),
            run_id: run.unwrap_or(0),
            dp_size: need(dp, "dp_size")?,
            dsp_size: dsp.unwrap_or(1),
            pp_size: need(pp, "pp_size")?,
            tp_size: need(tp, "tp_size")?,
            vpp_size: vpp.unwrap_or(1),
            world_size: need(world, "world_size")?,
        };
        Ok(ReadMeta { meta, unknown })
    }
}

const SIZES: [&str; 6] = ["dp_size", "pp_size", "tp_size", "world_size", "dsp_size", "vpp_size"];

/// Parses YAML metadata.
///
/// # Errors
/// [`IoError::MetaUtf8`], [`IoError::MetaYaml`].
pub(crate) fn from_yaml(file: &str, bytes: &[u8]) -> Result<ReadMeta, IoError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|source| IoError::MetaUtf8 { file: file.to_owned(), source })?;
    serde_saphyr::from_str(text)
        .map_err(|e| IoError::MetaYaml { file: file.to_owned(), source: Box::new(e) })
}

/// Parses JSON metadata of a native file.
///
/// # Errors
/// [`IoError::MetaJson`].
pub(crate) fn from_json(file: &str, text: &str) -> Result<ReadMeta, IoError> {
    serde_json::from_str(text).map_err(|source| IoError::MetaJson { file: file.to_owned(), source })
}

/// The sizes must be positive and multiply to the world size.
pub(crate) fn check(meta: &JobMeta, report: &mut Violations) {
    let sizes = [
        ("dp_size", meta.dp_size),
        ("dsp_size", meta.dsp_size),
        ("pp_size", meta.pp_size),
        ("tp_size", meta.tp_size),
        ("vpp_size", meta.vpp_size),
        ("world_size", meta.world_size),
    ];
    for (key, _) in sizes.iter().filter(|(_, size)| *size == 0) {
        report.add(Rule::MetaAgrees, Place::Meta, || format!("{key} is 0"));
    }
    let product = u128::from(meta.dp_size)
        * u128::from(meta.dsp_size)
        * u128::from(meta.pp_size)
        * u128::from(meta.tp_size);
    if product != u128::from(meta.world_size) {
        report.add(Rule::MetaAgrees, Place::Meta, || {
            format!(
                "world_size is {}, but dp_size {} * dsp_size {} * pp_size {} * tp_size {} = {product}",
                meta.world_size, meta.dp_size, meta.dsp_size, meta.pp_size, meta.tp_size
            )
        });
    }
}

/// Where metadata of this trace is looked for, in order.
///
/// `trace-X.parquet` has `meta-X.yaml`; any `X.parquet` has `X.meta.yaml`; `.yml` is as good.
pub fn meta_candidates(trace: &Path) -> Vec<PathBuf> {
    let Some(name) = trace.file_name().and_then(|n| n.to_str()) else {
        return Vec::new();
    };
    let mut stem = name;
    for ext in [".gz", ".parquet", ".csv", ".txt"] {
        stem = stem.strip_suffix(ext).unwrap_or(stem);
    }
    if stem == name {
        stem = name.rsplit_once('.').map_or(name, |(s, _)| s);
    }
    let mut names = Vec::new();
    if let Some(rest) = stem.strip_prefix("trace-") {
        names.extend([format!("meta-{rest}.yaml"), format!("meta-{rest}.yml")]);
    }
    names.extend([format!("{stem}.meta.yaml"), format!("{stem}.meta.yml")]);
    names.into_iter().map(|n| trace.with_file_name(n)).collect()
}
