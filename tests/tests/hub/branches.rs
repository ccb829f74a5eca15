//! The branch of a slower function, by traces in bundles of both builds.

use super::{User, login};
use backtrail_tests::compiled::compiled_and_recorded;
use backtrail_tests::hub_process::{HubProcess, token, until};
use serde_json::Value;

/// A program whose builds take another way in one branch. It crashes at its end.
const SOURCE: &str = "#include <stdlib.h>
volatile long total;
__attribute__((noinline)) long weigh(long item)
{
    long weight = item & 7;
    if (item % STEP == 0)
        total += item / 3;
    return weight;
}
int main(void)
{
    for (long item = 1; item <= 4000; item++)
        total += weigh(item);
    abort();
}
";
/// The line of the branch, and the one after it.
const BRANCH: [u64; 2] = [6, 7];

/// Returns the folded stacks of a host.
fn stacks(host: usize, weigh: usize) -> String {
    format!(
        "main;weigh {}\nmain;print {}\nmain;read 900\n",
        weigh + host,
        800 + 3 * host
    )
}

#[test]
fn regression_names_the_branch_that_goes_another_way() {
    let folder = tempfile::tempdir().unwrap();
    let token = token(folder.path(), &["ingest", "read", "admin"]).unwrap();
    let hub = HubProcess::start(folder.path(), &[]).unwrap();
    let user = User::new();
    login(&user, &hub, &token);
    let get = |path: &str| {
        let answer = hub.request("GET", path, Some(&token), b"").unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    };
    let compared = |before: &str, after: &str| -> Value {
        let query = format!("service=scale&event=samples&before={before}&after={after}&intervals=1");
        get(&format!("/api/v1/profiles/regressions?{query}"))["changes"].clone()
    };
    for host in 0..8 {
        for (build, weigh) in [("1", 300), ("2", 700), ("3", 300)] {
            let path = format!("/api/v1/profiles?service=scale&host=h{host}&build={build}");
            let body = stacks(host, weigh);
            let answer = hub.request("POST", &path, Some(&token), body.as_bytes()).unwrap();
            assert_eq!(answer.status, 204, "{}", answer.text());
        }
    }
    let without = compared("1", "2");
    assert_eq!(
        (&without[0]["function"], &without[0]["branch"]),
        (&"weigh".into(), &Value::Null)
    );

    // The later build has a line more before the function.
    for (build, step, before) in [("1", "40", ""), ("2", "2", "// A comment.\n")] {
        let flags = ["-g", "-O1", &format!("-DSTEP={step}")];
        let source = user.home().join("weigh.c");
        std::fs::write(&source, format!("{before}{SOURCE}")).unwrap();
        let bundle = compiled_and_recorded("cc", &flags, source.to_str().unwrap());
        let path = bundle.path.to_str().unwrap();
        let arguments = ["push", path, "--service", "scale", "--build", build, "--json"];
        let pushed: Value = serde_json::from_str(&user.run(&arguments).exited(0).stdout).unwrap();
        let id = pushed["id"].as_str().unwrap().to_owned();
        until("the bundle is stored", || {
            let crash = get(&format!("/api/v1/crashes/{id}"));
            assert_ne!(crash["bundle"], "refused", "{crash}");
            (crash["bundle"] == "stored").then_some(())
        });
        // The analysis of a page has no list of branches.
        assert_eq!(
            get(&format!("/api/v1/crashes/{id}"))["analysis"].get("branches"),
            None
        );
    }
    let changes = compared("1", "2");
    let change = &changes[0];
    assert_eq!(change["function"], "weigh", "{changes}");
    let branch = &change["branch"];
    assert!(branch["file"].as_str().unwrap().ends_with(".c"), "{changes}");
    // Lines are those of the later build.
    assert_eq!(branch["line"], BRANCH[0] + 1, "{changes}");
    assert_eq!(branch["next"], BRANCH[1] + 1, "{changes}");
    assert_eq!(branch["executions"], serde_json::json!([4000, 4000]));
    assert_eq!(
        (&branch["before"], &branch["after"]),
        (&0.025.into(), &0.5.into())
    );
    // A function that is not slower has no branch.
    assert_eq!(compared("1", "3"), serde_json::json!([]));
}
