//! The result of a calibration.

use prism_engine::profile::Profile;
use prism_model::{
    ComputeSignature, Effect, EffectKind, ImpliedDependency, LawChoice, RegimeKind, TransferModel,
};

use crate::csv_table::number;
use crate::number::{count, p_value, percent, seconds};
use crate::replay::{errors_line, ids};
use crate::{Document, ReportError, Table, Tone, csv_text};

/// Rows of a long table that are shown without being asked for all.
const SHOWN: usize = 12;

/// A profile for people; with all rows of long tables if asked.
pub fn calibrate_document(profile: &Profile, all: bool) -> Document {
    let (model, provenance) = (&profile.model, &profile.provenance);
    let windows = model.windows.last().map_or(1, |w| *w as usize + 1);
    let mut document = Document::new(format!(
        "Calibrated on {}: {} steps in {} window{}, {} replicas x {} stages, {} microbatches",
        provenance.sources.first().map_or("synthetic data", |s| s.name.as_str()),
        count(model.steps.len()),
        windows,
        if windows == 1 { "" } else { "s" },
        model.replicas,
        profile.graph.stages,
        model.microbatches,
    ));
    document.line(errors_line(
        provenance.builder,
        &provenance.zero_delay_error,
        &provenance.reference_error,
        &provenance.with_delay_error,
    ));
    document.table(effects(&model.effects, provenance.alpha));
    let limit = if all { usize::MAX } else { SHOWN };
    shorten(&mut document, signatures(&model.compute.signatures), limit);
    shorten(&mut document, laws(profile), limit);
    shorten(&mut document, transfers(&model.transfers), limit);
    regimes(&mut document, profile);
    shorten(&mut document, implied(profile), limit);
    if !provenance.steps_dropped.is_empty() {
        document
            .warnings
            .push(format!("dropped as incomplete: {}", ids(&provenance.steps_dropped)));
    }
    document
}

/// One row an effect.
///
/// # Errors
/// [`ReportError::Csv`].
pub fn calibrate_csv(profile: &Profile) -> Result<String, ReportError> {
    let header = ["effect", "kept", "sd_log", "test", "statistic", "p_value", "reason"];
    let rows: Vec<Vec<String>> = profile
        .model
        .effects
        .iter()
        .map(|e| {
            let test = e.test.as_ref();
            vec![
                e.kind.to_string(),
                e.kept.to_string(),
                number(Some(e.sd_log)),
                test.map_or_else(String::new, |t| t.name.clone()),
                number(test.map(|t| t.statistic)),
                number(test.map(|t| t.p_value)),
                e.reason.clone(),
            ]
        })
        .collect();
    csv_text(&header, &rows)
}

/// Adds a table with at most `limit` rows, and says how many are left out.
fn shorten(document: &mut Document, mut table: Table, limit: usize) {
    let left_out = table.rows.len().saturating_sub(limit);
    table.rows.truncate(limit);
    document.table(table);
    if left_out > 0 {
        document.line(format!("and {left_out} more; `-v` shows all"));
    }
}

/// Kept effects by falling s.d., then the dropped.
pub(crate) fn by_size(effects: &[Effect]) -> Vec<&Effect> {
    let mut sorted: Vec<&Effect> = effects.iter().collect();
    sorted.sort_by(|a, b| b.kept.cmp(&a.kept).then(b.sd_log.total_cmp(&a.sd_log)));
    sorted
}

/// An effect in a few words.
pub(crate) fn in_words(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::Worker => "replicas differ for good",
        EffectKind::Position => "positions of a microbatch differ for good",
        EffectKind::Step => "a whole step is slower",
        EffectKind::StepWorker => "one replica is slower in one step",
        EffectKind::Microbatch => "a microbatch is longer, on all stages, both ways",
        EffectKind::Residual => "each operation by itself",
        EffectKind::Congestion => "a step's transfers are slower together",
        EffectKind::WorkerSpread => "replicas differ in spread",
        EffectKind::Window => "windows of steps differ",
        _ => "",
    }
}

fn effects(effects: &[Effect], alpha: f64) -> Table {
    let title = format!("Effects in log time, tested at {}", percent(alpha));
    let mut table = Table::new(title, &["effect", ">s.d.", "test", ">p", "", "reason"]);
    for effect in by_size(effects) {
        let test = effect.test.as_ref();
        let cells = vec![
            effect.kind.to_string(),
            percent(effect.sd_log),
            test.map_or("-".to_owned(), |t| format!("{} = {:.2}", t.name, t.statistic)),
            test.map_or("-".to_owned(), |t| p_value(t.p_value)),
            if effect.kept { "kept" } else { "dropped" }.to_owned(),
            effect.reason.clone(),
        ];
        table.toned(cells, if effect.kept { Tone::Plain } else { Tone::Dim });
    }
    table
}

fn signatures(signatures: &[ComputeSignature]) -> Table {
    let mut table = Table::new(
        "Compute",
        &[
            "signature",
            ">geometric mean",
            ">microbatch load",
            ">step load",
            ">microbatch s.d.",
            ">residual s.d.",
        ],
    );
    for s in signatures {
        table.row(vec![
            s.signature.to_string(),
            seconds(s.base_log_s.exp()),
            format!("{:.3}", s.microbatch_load),
            format!("{:.3}", s.step_load),
            percent(s.microbatch_sd_log),
            percent(s.residual_sd_log),
        ]);
    }
    table
}

/// Laws of the compute effects' factors.
fn laws(profile: &Profile) -> Table {
    let compute = &profile.model.compute;
    let mut table = law_table("Laws of the factors (for parametric draws)");
    let shared = [
        ("step", &compute.step_law),
        ("step-worker", &compute.step_worker_law),
        ("microbatch", &compute.microbatch_law),
    ];
    for (name, law) in shared {
        law_row(&mut table, name.to_owned(), law.as_ref());
    }
    for s in &compute.signatures {
        law_row(&mut table, format!("residual of {}", s.signature), s.residual_law.as_ref());
    }
    table
}

/// Laws of point-to-point transfers.
fn transfers(transfers: &[TransferModel]) -> Table {
    let mut table = law_table("Laws of the transfers (for parametric draws)");
    for transfer in transfers {
        for (member, law) in transfer.members.iter().zip(&transfer.laws) {
            law_row(&mut table, member.to_string(), law.as_ref());
        }
    }
    table
}

fn law_table(title: &str) -> Table {
    Table::new(title, &["of", ">values", "law", ">KS", "others by KS"])
}

fn law_row(table: &mut Table, name: String, law: Option<&LawChoice>) {
    let Some(law) = law else { return };
    let losers: Vec<String> = law
        .losers
        .iter()
        .map(|l| match l.ks {
            Some(ks) => format!("{} {ks:.3}", l.family),
            None => format!("{} failed", l.family),
        })
        .collect();
    table.row(vec![
        name,
        count(law.n),
        law.law.family().to_string(),
        format!("{:.3}", law.ks),
        losers.join(", "),
    ]);
}

fn regimes(document: &mut Document, profile: &Profile) {
    let mut table =
        Table::new("Regimes, kept at their observed frequency", &["", ">excess", "steps", "note"]);
    for regime in &profile.model.regimes {
        let kind = match regime.kind {
            RegimeKind::Outlier => "outlier steps",
            RegimeKind::EarlyWindow => "early window",
            _ => "other",
        };
        table.row(vec![
            kind.to_owned(),
            format!("{:+.1} %", 100.0 * regime.excess),
            ids(&regime.steps),
            regime.note.clone(),
        ]);
    }
    document.table(table);
}

/// Dependencies found in the data.
fn implied(profile: &Profile) -> Table {
    let mut table = Table::new(
        "Dependencies that no rule states but the times show",
        &["operation", "waits for", ">on replicas", ">mean lag"],
    );
    let steps = profile.model.steps.len().max(1);
    let name = |id: u32| match profile.graph.ops.get(id as usize) {
        Some(op) => format!("{}[{}]@stage{}", op.kind, op.seq, op.stage),
        None => format!("operation {id}"),
    };
    for dependency in &profile.model.implied {
        let active: Vec<f64> = dependency
            .lag_s
            .iter()
            .filter(|l| **l > ImpliedDependency::INACTIVE_S)
            .map(|l| f64::from(*l))
            .collect();
        let mean = active.iter().sum::<f64>() / active.len().max(1) as f64;
        table.row(vec![
            name(dependency.op),
            name(dependency.on),
            format!("{} of {}", active.len() / steps, profile.model.replicas),
            seconds(mean),
        ]);
    }
    table
}
