//! The costs of an idle stack: alarms, the dashboard, Contributor Insights, and one schedule.
//!
//! The functions, the API, the queue and on-demand tables cost nothing without requests. The
//! functions also publish no custom metrics then, because the embedded metric format only writes
//! events. This module counts the other parts for each profile of the template. Its tests compare
//! the counts with the templates.

use serde::Serialize;
use sharding::internal::PAGES;

use super::costs::{GB, INSIGHT_RULES, LOG_BYTES, MEMORY_GB};
use super::options::{Architecture, ProfileName};
use super::prices::{Evidence, MONTH_HOURS, Price, Prices};

/// The metrics of the alarms of every stack. AWS bills an alarm on a metric-math expression once
/// for each of its metrics, here 5xx and requests of the API. (CloudWatch user guide, "CloudWatch
/// billing and cost".)
const ALARM_METRICS: u32 = 23;
/// The metrics of the alarms of a canary deployment, one for each function.
const CANARY_ALARM_METRICS: u32 = 3;
/// Minutes between two runs of the schedule that sets alarms back to OK.
const REARM_MINUTES: f64 = 5.0;
/// The duration of such a run. Assumed: it waits for a few requests to CloudWatch and DynamoDB.
const REARM_SECONDS: f64 = 1.0;
/// DynamoDB's requests to KMS for the metadata table's key during such a run. Assumed: DynamoDB
/// caches a key for about the time between two runs.
const KMS_REQUESTS: f64 = 1.0;
pub(super) const MONTH_DAYS: f64 = MONTH_HOURS / 24.0;

/// The settings of a template profile that cause costs.
#[derive(Debug)]
pub(super) struct Profile {
    /// The profile's name in the template.
    pub(super) name: &'static str,
    /// `CanaryDeployment`
    canary: bool,
    /// `Dashboard`
    dashboard: bool,
    /// `LogRetentionDays`
    pub(super) log_days: u32,
    /// `XRayTracing` is Active. At rest the runs are so few that X-Ray samples all of them.
    pub(super) traced: bool,
    /// `EncryptionKey` is not the key that DynamoDB owns.
    encrypted_by_kms: bool,
}

/// The columns of `Settings` in template.yaml.
static PROFILES: [Profile; 3] = [
    Profile {
        name: "development",
        canary: false,
        dashboard: false,
        log_days: 7,
        traced: false,
        encrypted_by_kms: false,
    },
    Profile {
        name: "standard",
        canary: false,
        dashboard: true,
        log_days: 30,
        traced: false,
        encrypted_by_kms: false,
    },
    Profile {
        name: "production",
        canary: true,
        dashboard: true,
        log_days: 365,
        traced: true,
        encrypted_by_kms: true,
    },
];

impl Profile {
    /// Returns the profile of this name.
    pub(super) fn of(name: ProfileName) -> &'static Self {
        let [development, standard, production] = &PROFILES;
        match name {
            ProfileName::Development => development,
            ProfileName::Standard => standard,
            ProfileName::Production => production,
        }
    }
}

/// The costs of a month of idle stacks, at list prices without free allowances.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AtRest {
    /// The costs of each profile of the template with its default settings.
    pub profiles: Vec<IdleStack>,
    /// The costs of each stored GB: storage and point-in-time recovery.
    pub usd_per_stored_gb: f64,
}

/// An idle stack of one profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdleStack {
    /// The profile.
    pub profile: &'static str,
    /// The lines.
    pub lines: Vec<IdleLine>,
    /// The sum.
    pub usd: f64,
}

/// One line of the costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdleLine {
    /// The part of the stack.
    pub part: IdlePart,
    /// The quantity in a month.
    pub quantity: f64,
    /// The unit of the quantity.
    pub unit: String,
    /// The cost of a month.
    pub usd: f64,
    /// The reliability of the price.
    pub evidence: Evidence,
}

/// A part of a stack with costs at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdlePart {
    /// Alarms.
    Alarms,
    /// The dashboard.
    Dashboard,
    /// Contributor Insights of the main table.
    ContributorInsights,
    /// The schedule that sets alarms back to OK: its runs, and their use of the function and the
    /// table.
    Schedule,
}

impl IdlePart {
    /// Every part, in the order of the table.
    pub(super) const ALL: [Self; 4] =
        [Self::Alarms, Self::Dashboard, Self::ContributorInsights, Self::Schedule];

    /// The name in the text.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Alarms => "alarms",
            Self::Dashboard => "dashboard",
            Self::ContributorInsights => "Contributor Insights",
            Self::Schedule => "schedule that re-arms the alarms",
        }
    }
}

impl IdleStack {
    /// The costs of one part.
    pub(super) fn usd_of(&self, part: IdlePart) -> f64 {
        self.lines.iter().filter(|line| line.part == part).map(|line| line.usd).sum()
    }
}

/// Calculates the costs of a month of every profile.
pub(super) fn at_rest(architecture: Architecture, prices: &Prices) -> AtRest {
    AtRest {
        profiles: PROFILES.iter().map(|profile| idle(profile, architecture, prices)).collect(),
        usd_per_stored_gb: prices.dynamodb_storage.of(1.0)
            + prices.dynamodb_point_in_time_recovery.of(1.0),
    }
}

fn idle(profile: &Profile, architecture: Architecture, prices: &Prices) -> IdleStack {
    let alarm_metrics = ALARM_METRICS + if profile.canary { CANARY_ALARM_METRICS } else { 0 };
    let mut lines =
        vec![line(IdlePart::Alarms, f64::from(alarm_metrics), &prices.cloudwatch_alarm_metrics)];
    if profile.dashboard {
        lines.push(line(IdlePart::Dashboard, 1.0, &prices.cloudwatch_dashboards));
    }
    lines.push(line(
        IdlePart::ContributorInsights,
        INSIGHT_RULES,
        &prices.contributor_insights_rules,
    ));
    lines.extend(schedule(profile, architecture, prices));
    IdleStack { profile: profile.name, usd: lines.iter().map(|line| line.usd).sum(), lines }
}

fn schedule(profile: &Profile, architecture: Architecture, prices: &Prices) -> Vec<IdleLine> {
    let runs = MONTH_HOURS * 60.0 / REARM_MINUTES;
    // Each run reads the table's item and every page of the directory. A new table has one copy of
    // each page.
    let read_units = runs * f64::from(1 + PAGES);
    let logs = runs * LOG_BYTES / GB;
    let per_gb_second = match architecture {
        Architecture::Arm64 => &prices.lambda_gb_seconds_arm64,
        Architecture::X86 => &prices.lambda_gb_seconds_x86_64,
    };
    let mut parts = vec![
        (runs, &prices.scheduler_invocations),
        (runs, &prices.lambda_requests),
        (runs * REARM_SECONDS * MEMORY_GB, per_gb_second),
        (read_units, &prices.dynamodb_read_request_units),
        (logs, &prices.log_ingestion),
        (logs * f64::from(profile.log_days) / MONTH_DAYS, &prices.log_storage),
    ];
    if profile.traced {
        parts.push((runs, &prices.xray_traces));
    }
    if profile.encrypted_by_kms {
        parts.push((runs * KMS_REQUESTS, &prices.kms_requests));
    }
    parts.into_iter().map(|(quantity, price)| line(IdlePart::Schedule, quantity, price)).collect()
}

fn line(part: IdlePart, quantity: f64, price: &Price) -> IdleLine {
    IdleLine {
        part,
        quantity,
        unit: price.unit.clone(),
        usd: price.of(quantity),
        evidence: price.evidence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn an_idle_month_costs_what_a_calculation_by_hand_gives() {
        let at_rest = at_rest(Architecture::Arm64, &Prices::published().unwrap());
        // 730 x 12 = 8,760 runs: 1.00 a million for the schedule; 0.20 a million for requests;
        // 0.0000133334 for a second of 0.25 GB each; 0.125 a million for 5 read units each; 0.50 a
        // GB for 1,600 bytes of logs each.
        let runs = 0.008_76 + 0.001_752 + 0.029_2 + 0.005_475 + 0.007_008;
        // 0.014016 GB of logs a month at 0.03 a GB-month, for 7, 30 and 365 days.
        let kept = [0.000_097, 0.000_415, 0.005_046];
        // 8,760 traces at 5.00 a million, and requests to KMS at 0.03 for 10,000.
        let production = 0.043_8 + 0.026_28;
        let rows = [
            ("development", [2.30, 0.0, 1.00, runs + kept[0]]),
            ("standard", [2.30, 3.00, 1.00, runs + kept[1]]),
            ("production", [2.60, 3.00, 1.00, runs + kept[2] + production]),
        ];
        assert_eq!(at_rest.profiles.len(), rows.len());
        for (stack, (profile, usd)) in at_rest.profiles.iter().zip(rows) {
            assert_eq!(stack.profile, profile);
            for (part, usd) in IdlePart::ALL.into_iter().zip(usd) {
                assert!(
                    (stack.usd_of(part) - usd).abs() < 0.000_01,
                    "{profile}, {part:?}: {}",
                    stack.usd_of(part)
                );
            }
            assert!((stack.usd - usd.iter().sum::<f64>()).abs() < 0.000_1, "{stack:?}");
        }
        assert!((at_rest.usd_per_stored_gb - 0.45).abs() < 1e-9);
    }

    /// A resource of a template, as its lines. The first one is its name.
    struct Resource(Vec<String>);

    impl Resource {
        fn is(&self, kind: &str) -> bool {
            self.has(&format!("    Type: {kind}"))
        }

        fn has(&self, line: &str) -> bool {
            self.0.iter().any(|own| own == line)
        }

        fn count(&self, part: &str) -> u32 {
            self.0.iter().filter(|own| own.contains(part)).count() as u32
        }

        fn condition(&self) -> Option<&str> {
            self.0.iter().find_map(|line| line.strip_prefix("    Condition: "))
        }
    }

    fn root() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn root_template() -> String {
        std::fs::read_to_string(root().join("template.yaml")).unwrap()
    }

    /// The resources of the root template and of those that it nests.
    fn resources() -> Vec<Resource> {
        let nested =
            std::fs::read_dir(root().join("templates")).unwrap().map(|file| file.unwrap().path());
        let nested = nested.filter(|path| path.extension().is_some_and(|is| is == "yaml"));
        let nested: Vec<String> =
            nested.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        nested
            .iter()
            .chain([&root_template()])
            .flat_map(|template| resources_of(template))
            .collect()
    }

    fn resources_of(template: &str) -> Vec<Resource> {
        let section = template.lines().skip_while(|line| *line != "Resources:").skip(1);
        let mut resources: Vec<Resource> = Vec::new();
        for line in section.take_while(|line| line.is_empty() || line.starts_with(' ')) {
            if line.starts_with("  ")
                && !line.starts_with("   ")
                && !line.trim_start().starts_with('#')
            {
                resources.push(Resource(Vec::new()));
            }
            if let Some(resource) = resources.last_mut() {
                resource.0.push(line.to_owned());
            }
        }
        resources
    }

    #[test]
    fn the_counts_are_those_of_the_templates() {
        let resources = resources();
        let of = |kind: &'static str| resources.iter().filter(move |resource| resource.is(kind));
        let (mut of_all, mut of_canaries, mut of_replicas) = (0, 0, 0);
        for alarm in of("AWS::CloudWatch::Alarm") {
            let metrics = alarm.count("MetricStat:").max(1);
            match alarm.condition() {
                None => of_all += metrics,
                Some("Canary") => of_canaries += metrics,
                // The profiles have no read replicas.
                Some("FirstReplica" | "SecondReplica" | "ThirdReplica") => of_replicas += metrics,
                Some(other) => {
                    panic!(
                        "{} exists on the condition {other}, which no profile includes",
                        alarm.0[0]
                    )
                }
            }
            // Alarms of 10 and 30 seconds cost three times as much.
            assert!(
                !alarm
                    .0
                    .iter()
                    .any(|line| line.ends_with("Period: 10") || line.ends_with("Period: 30"))
            );
        }
        assert_eq!((of_all, of_canaries), (ALARM_METRICS, CANARY_ALARM_METRICS));
        assert_eq!(of_replicas, 3, "docs/costs.md: one for each read replica");
        for other in ["CompositeAlarm", "AnomalyDetector", "InsightRule", "MetricStream"] {
            let kind = format!("AWS::CloudWatch::{other}");
            assert!(
                !resources.iter().any(|resource| resource.is(&kind)),
                "{kind} has a price of its own"
            );
        }
        assert_eq!(of("AWS::CloudWatch::Dashboard").count(), 1);
        let schedules: Vec<&Resource> = of("AWS::Scheduler::Schedule")
            .filter(|schedule| schedule.condition().is_none())
            .collect();
        let expression = format!("      ScheduleExpression: rate({REARM_MINUTES} minutes)");
        assert!(matches!(schedules[..], [only] if only.has(&expression)), "{expression}");
        let with_insights: Vec<&Resource> = of("AWS::DynamoDB::Table")
            .filter(|table| table.has("      ContributorInsightsSpecification:"))
            .collect();
        assert!(matches!(with_insights[..], [only] if only.has("        Mode: THROTTLED_KEYS")));
    }

    /// A profile's expected value of a setting.
    type ValueOf = fn(&Profile) -> String;

    #[test]
    fn the_profiles_are_the_columns_of_the_settings() {
        let template = root_template();
        // Each setting that can cause costs at rest.
        let settings: [(&str, ValueOf); 10] = [
            ("CanaryDeployment", |profile| profile.canary.to_string()),
            ("Dashboard", |profile| profile.dashboard.to_string()),
            ("LogRetentionDays", |profile| profile.log_days.to_string()),
            ("XRayTracing", |profile| {
                if profile.traced { "Active" } else { "PassThrough" }.to_owned()
            }),
            ("EncryptionKey", |profile| {
                if profile.encrypted_by_kms { "aws-managed" } else { "aws-owned" }.to_owned()
            }),
            ("ShardScalerMemory", |_| "256".to_owned()),
            ("CapacityMode", |_| "on-demand".to_owned()),
            ("ReadReplicas", |_| "0".to_owned()),
            ("PeakSchedule", |_| String::new()),
            ("DrainSchedule", |_| String::new()),
        ];
        for (setting, value) in settings {
            let columns = PROFILES
                .each_ref()
                .map(|profile| format!("{}: \"{}\"", profile.name, value(profile)))
                .join(", ");
            let line = format!("    {setting}: {{{columns}}}");
            assert!(
                template.lines().any(|own| own.starts_with(&line)),
                "template.yaml has no line '{line}'"
            );
        }
    }
}
