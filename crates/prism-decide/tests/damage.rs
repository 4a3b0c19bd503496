//! Profiles with numbers changed at random are refused or answered; nothing panics.

mod common;

use prism_decide::compare::{CompareOptions, compare};
use prism_decide::diff::{DiffOptions, diff};
use prism_decide::explain::{ExplainOptions, explain};
use prism_decide::place::{Objective, PlaceOptions, SensitivityOptions, place, sensitivity};
use prism_decide::scenario::{Donors, Job, Scenario};
use prism_decide::select::Layout;
use prism_engine::profile::Profile;
use prism_stats::stream;
use rand::RngExt;
use serde_json::Value;

/// Places of all numbers, the first few of every array.
fn numbers(value: &Value, place: &str, out: &mut Vec<String>) {
    match value {
        Value::Number(_) => out.push(place.to_owned()),
        Value::Array(items) => {
            for (i, item) in items.iter().take(4).enumerate() {
                numbers(item, &format!("{place}/{i}"), out);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                numbers(item, &format!("{place}/{key}"), out);
            }
        }
        _ => {}
    }
}

/// Asks everything of a profile; whether the answers are errors does not matter.
fn ask(good: &Profile, profile: &Profile) {
    let Ok(graph) = profile.step_graph() else { return };
    let layout = Layout {
        gpus_per_worker: profile.provenance.job.tp_size,
        replicas: graph.replicas(),
        stages: graph.stages(),
        gpus_per_node: 8,
    };
    let job = Job { graph: &graph, model: &profile.model, layout };
    let options = ExplainOptions {
        samples: 100,
        path_samples: 20,
        resamples: 4,
        ..ExplainOptions::default()
    };
    let _ = explain(&job, &options);
    let scenarios: Vec<Scenario> = ["heal rank=1", "repack", "rebalance", "slow-link x2 stage=0"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    let options = CompareOptions {
        samples: 100,
        resamples: 20,
        repetitions: 2,
        repetition_samples: 50,
        ..CompareOptions::default()
    };
    for scenario in scenarios {
        let _ = compare(&job, &[scenario], &Donors::new(), &options);
    }
    let options = PlaceOptions {
        samples: 100,
        search_samples: 64,
        random_orders: 2,
        keep_or_drop: true,
        ..PlaceOptions::default()
    };
    let _ = place(&graph, &profile.model, None, &options);
    let options = SensitivityOptions {
        slow: 1.2,
        objective: Objective::P95,
        samples: 100,
        seed: 1,
        threads: 0,
        confidence: 0.95,
        launch_delays: true,
    };
    let _ = sensitivity(&graph, &profile.model, &options);
    let options = DiffOptions { samples: 100, repetitions: 2, ..DiffOptions::default() };
    let _ = diff(good, profile, &options);
    let _ = diff(profile, good, &options);
}

#[test]
fn damaged_profiles_do_not_panic() {
    let job = common::Job::synthetic(&common::spec(2, 2, 3, 8, 1)).unwrap();
    let good = job.profile(&(0..8).collect::<Vec<_>>()).unwrap();
    let text = good.to_json().unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let mut places = Vec::new();
    numbers(&value, "", &mut places);
    let wild = [0.0, 1.0, 2.0, 3.0, -1.0, 255.0, 65_535.0, 4_294_967_295.0, 1e300, -1e30, 0.5];
    let (mut refused, mut asked) = (0, 0);
    for round in 0..80_u64 {
        let mut rng = stream(3, "damage", &[round]);
        let mut damaged = value.clone();
        let place = &places[rng.random_range(0..places.len())];
        let to = wild[rng.random_range(0..wild.len())];
        let slot = damaged.pointer_mut(place).unwrap();
        *slot = if slot.is_f64() { to.into() } else { (to as i64).into() };
        match Profile::from_json(&damaged.to_string()) {
            Ok(profile) => {
                asked += 1;
                ask(&good, &profile);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 10 && asked > 10, "{refused} refused, {asked} asked");
}
