//! `prism predict --dp --pp --microbatches`.

mod common;

use common::{Folder, text};

const PLAN: &str = "dp=4,pp=4,microbatches=8";

fn job() -> Folder {
    let folder = Folder::empty();
    let effects = ["--effect", "worker=1%", "--effect", "step=2%", "--effect", "microbatch=5%"];
    let args = ["synth", "--plan", PLAN, "--steps", "20", "-qq", "-o", "job.parquet"];
    folder.done(&[&args[..], &effects].concat());
    folder.done(&["calibrate", "job.parquet", "-o", "profile.json", "-qq"]);
    folder
}

/// What was extrapolated is printed; a profile answers as its trace does.
#[test]
fn what_was_extrapolated_is_said() {
    let folder = job();
    let size = ["--dp", "8", "--pp", "8", "--microbatches", "16", "--samples", "400"];
    let ask = |input| {
        let args = ["predict", input, "--bootstrap", "4", "--json", "-q"];
        folder.json(&[&args[..], &size].concat())
    };
    let (profile, trace) = (ask("profile.json"), ask("job.parquet"));
    assert_eq!(profile["quantiles"], trace["quantiles"]);
    assert_eq!((&profile["replicas"], &profile["stages"]), (&8.into(), &8.into()));
    let resized = &profile["resized"];
    assert_eq!(resized["replicas"], serde_json::json!({ "from": 4, "to": 8 }));
    assert_eq!(resized["microbatches"], serde_json::json!({ "from": 8, "to": 16 }));
    let list = resized["extrapolations"].as_array().unwrap();
    let said = |what: &str| list.iter().any(|e| e["what"] == what);
    assert!(["workers", "layers", "collectives over replicas"].into_iter().all(said), "{list:?}");
    assert!(!resized["signatures_used"].as_array().unwrap().is_empty());
    let human =
        folder.done(&[&["predict", "profile.json", "--bootstrap", "0"][..], &size].concat());
    assert!(human.contains("What was extrapolated"), "{human}");
    let plain = folder.json(&[
        "predict",
        "profile.json",
        "--samples",
        "400",
        "--bootstrap",
        "0",
        "--json",
        "-q",
    ]);
    assert!(plain.get("resized").is_none());
}

/// What cannot be answered is refused with exit code 2 and a hint.
#[test]
fn refusals() {
    let folder = job();
    for (flags, says, hint) in [
        (&["--dp", "1000"][..], "outside of the stated range, 1 to 512", "--extrapolate"),
        (&["--pp", "17"], "outside of the stated range, 1 to 16", "--extrapolate"),
        (&["--microbatches", "65"], "outside of the stated range, 1 to 64", "--extrapolate"),
        (&["--dp", "0"], "0 is not in", "--help"),
        (&["--extrapolate"], "about another size", "--dp"),
        (&["--dp", "8", "--guarantee", "q=0.95,conf=0.95"], "another job", "--require"),
        (&["--dp", "100000", "--extrapolate"], "evaluated one by one", "fewer"),
    ] {
        let args =
            [&["predict", "profile.json", "--samples", "100", "--bootstrap", "0"][..], flags]
                .concat();
        let output = folder.run(&args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {message}");
        assert!(message.contains(says) && message.contains(hint), "{flags:?}: {message}");
    }
    let args = ["predict", "job.parquet", "--dp", "8", "--model", "iid"];
    assert_eq!(folder.run(&args).status.code(), Some(2));
}
