use serde_json::{Value, json};

use super::*;
use crate::reconciler::testing::Cluster;

struct Run(Cluster);

impl Run {
    /// Made at 00:10:00.
    fn new(spec: Value) -> Self {
        let mut cron = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "namespace": "a"},
            "spec": {
                "schedule": "*/5 * * * *",
                "jobTemplate": {
                    "metadata": {"labels": {"app": "c"}},
                    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
                },
            },
        });
        wheelhouse_meta::patch::merge_value(&mut cron["spec"], spec);
        let mut cluster = Cluster::default();
        cluster.create(cron);
        Self(cluster)
    }

    fn settle(&mut self) -> Option<Timestamp> {
        self.0.settle(&CronJobController, &Key::new("a", "c"), &mut ())
    }

    fn jobs(&self) -> Vec<String> {
        self.0.names(&JOBS, "a")
    }

    fn ends(&mut self, name: &str, kind: &str) {
        let now = json!(api_time(self.0.now));
        self.0.edit(&JOBS, "a", name, |job| {
            job["status"] = json!({"startTime": now, "completionTime": now, "conditions": [{"type": kind, "status": "True"}]});
        });
        self.settle();
    }

    fn status(&self) -> Value {
        self.0.get(&CRON_JOBS, "a", "c")["status"].clone()
    }

    fn told(&self, event: &str) -> bool {
        self.0.events.iter().any(|told| told == event)
    }
}

/// Minutes since the epoch at 00:10:00.
const NOW_MINUTES: i64 = 29_453_770;

#[test]
fn a_job_is_made_at_every_tick() {
    let mut run = Run::new(json!({}));
    let begun = run.0.now;
    assert_eq!(run.settle(), Some(begun.plus(Duration::from_secs(300) + DELAY)));
    assert!(run.jobs().is_empty());
    run.0.wait(301);
    run.settle();
    let name = format!("c-{}", NOW_MINUTES + 5);
    assert_eq!(run.jobs(), std::slice::from_ref(&name));
    let job = run.0.get(&JOBS, "a", &name);
    assert_eq!(job["metadata"]["annotations"][SCHEDULED], "2026-01-01T00:15:00Z");
    assert_eq!((&job["metadata"]["labels"]["app"], &job["metadata"]["ownerReferences"][0]["kind"]), (&json!("c"), &json!("CronJob")));
    let status = run.status();
    assert_eq!((&status["active"][0]["name"], &status["lastScheduleTime"]), (&json!(name), &json!("2026-01-01T00:15:00Z")));
    assert_eq!(run.0.events, [format!("SuccessfulCreate: Created job {name}")]);
    run.ends(&name, "Complete");
    let status = run.status();
    assert_eq!((&status["active"], &status["lastSuccessfulTime"]), (&Value::Null, &json!("2026-01-01T00:15:01Z")));
    assert!(run.told(&format!("SawCompletedJob: Saw completed job: {name}, condition: Complete")));
}

#[test]
fn zones_and_suspension_are_minded() {
    let mut run = Run::new(json!({"schedule": "0 2 * * *", "timeZone": "Europe/Berlin"}));
    run.0.wait(3000);
    run.settle();
    let names = run.jobs();
    assert_eq!(names.len(), 1);
    assert_eq!(run.0.get(&JOBS, "a", &names[0])["metadata"]["annotations"][SCHEDULED], "2026-01-01T02:00:00+01:00");
    let mut run = Run::new(json!({"suspend": true}));
    run.0.wait(3000);
    assert_eq!((run.settle(), run.jobs().len()), (None, 0));
}

#[test]
fn policies_say_what_becomes_of_the_job_before() {
    for (policy, count) in [("Allow", 2), ("Forbid", 1), ("Replace", 1)] {
        let mut run = Run::new(json!({"concurrencyPolicy": policy}));
        for _ in 0..2 {
            run.0.wait(300);
            run.settle();
        }
        assert_eq!((run.jobs().len(), run.status()["active"].as_array().unwrap().len()), (count, count), "{policy}");
        let newest = if policy == "Forbid" { NOW_MINUTES + 5 } else { NOW_MINUTES + 10 };
        assert_eq!(run.jobs().last(), Some(&format!("c-{newest}")), "{policy}");
        let kept = run.told("JobAlreadyActive: Not starting job because prior execution is running and concurrency policy is Forbid");
        assert_eq!(kept, policy == "Forbid");
        assert_eq!(run.told(&format!("SuccessfulDelete: Deleted job c-{}", NOW_MINUTES + 5)), policy == "Replace");
    }
}

#[test]
fn a_job_that_waits_for_another_is_made_when_that_ends() {
    let mut run = Run::new(json!({"concurrencyPolicy": "Forbid"}));
    for _ in 0..3 {
        run.0.wait(300);
        run.settle();
    }
    run.ends(&format!("c-{}", NOW_MINUTES + 5), "Failed");
    assert_eq!(run.jobs(), [format!("c-{}", NOW_MINUTES + 5), format!("c-{}", NOW_MINUTES + 15)], "the last of the missed ticks");
}

#[test]
fn ticks_that_were_slept_through() {
    let mut run = Run::new(json!({"startingDeadlineSeconds": 60}));
    run.0.wait(400);
    run.settle();
    assert!(run.jobs().is_empty(), "the deadline has passed");
    let mut run = Run::new(json!({}));
    run.0.wait(300 * 150 + 20);
    run.settle();
    assert_eq!(run.jobs(), [format!("c-{}", NOW_MINUTES + 750)]);
    assert!(run.told("TooManyMissedTimes: too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"));
}

#[test]
fn history_is_kept_up_to_its_limits() {
    let mut run = Run::new(json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}));
    for end in ["Complete", "Failed", "Complete", "Failed"] {
        run.0.wait(300);
        run.settle();
        let last = run.jobs().last().unwrap().clone();
        run.ends(&last, end);
    }
    assert_eq!(run.jobs(), [format!("c-{}", NOW_MINUTES + 15), format!("c-{}", NOW_MINUTES + 20)]);
}

#[test]
fn a_job_that_goes_missing_is_told_and_not_made_again() {
    let mut run = Run::new(json!({}));
    run.0.wait(300);
    run.settle();
    let name = run.jobs()[0].clone();
    run.0.delete(&JOBS, "a", &name);
    run.settle();
    assert!(run.jobs().is_empty() && run.status()["active"].is_null());
    assert!(run.told(&format!("MissingJob: Active job went missing: {name}")));
}
