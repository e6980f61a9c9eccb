//! Which metrics to read, and what each says about the size.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, CrossVersionObjectReference, ExternalMetricStatus, HorizontalPodAutoscaler, MetricIdentifier, MetricSpec,
    MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus, ResourceMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::jiff;
use serde_json::{Value, json};
use wheelhouse_base::Timestamp;
use wheelhouse_meta::duration::GoDuration;
use wheelhouse_meta::quantity::Quantity;

use super::replicas::{self, Sample, Tolerance};
use super::target::{Target, resource_of};
use crate::owned::selector;
use crate::plan::{Effect, EffectKind};
use crate::reconciler::group_of;
use crate::validation::text;
use crate::view::View;

/// A pod's sample covers so long if it does not say.
const WINDOW: Duration = Duration::from_secs(60);

pub struct Proposal {
    pub replicas: i32,
    pub name: String,
    pub status: MetricStatus,
}

/// Why a metric says nothing.
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
    /// The message as the sum of all failures quotes it.
    pub wrapped: String,
}

/// The id of the effect that reads the metric at this place of the list.
pub fn id(at: usize) -> String {
    at.to_string()
}

/// One effect for each metric, each a GET of a metrics API.
pub fn effects(autoscaler: &HorizontalPodAutoscaler, target: &Target, view: &View) -> Vec<Effect> {
    let metrics = autoscaler.spec.metrics.iter().flatten().enumerate();
    let effect = |(at, metric): (usize, &MetricSpec)| {
        let path = path(text(&autoscaler.metadata.namespace), metric, target, view)?;
        Some(Effect { kind: EffectKind::ReadMetrics, id: id(at), input: json!({"path": path}) })
    };
    metrics.filter_map(effect).collect()
}

fn path(namespace: &str, metric: &MetricSpec, target: &Target, view: &View) -> Option<String> {
    let of_target = encoded(&target.selector.to_string());
    let query = |name: &str, metric: &MetricIdentifier| {
        let wanted = metric.selector.as_ref().map(|wanted| encoded(&selector(Some(wanted)).to_string())).filter(|wanted| !wanted.is_empty());
        wanted.map_or_else(String::new, |wanted| format!("{name}={wanted}"))
    };
    let custom = format!("/apis/custom.metrics.k8s.io/v1beta2/namespaces/{}", encoded(namespace));
    match metric.type_.as_str() {
        "Resource" | "ContainerResource" => {
            Some(format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?labelSelector={of_target}", encoded(namespace)))
        }
        "Pods" => {
            let source = metric.pods.as_ref()?;
            let more = query("&metricLabelSelector", &source.metric);
            Some(format!("{custom}/pods/*/{}?labelSelector={of_target}{more}", encoded(&source.metric.name)))
        }
        "Object" => {
            let source = metric.object.as_ref()?;
            let (resource, more) = (described(namespace, &source.described_object, view), query("?metricLabelSelector", &source.metric));
            Some(format!("{custom}/{resource}/{}/{}{more}", encoded(&source.described_object.name), encoded(&source.metric.name)))
        }
        "External" => {
            let source = metric.external.as_ref()?;
            let more = query("?labelSelector", &source.metric);
            Some(format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}{more}", encoded(namespace), encoded(&source.metric.name)))
        }
        _ => None,
    }
}

/// `ingresses.networking.k8s.io`. A kind of which there is no object is named by the usual plural.
fn described(namespace: &str, object: &CrossVersionObjectReference, view: &View) -> String {
    let group = group_of(text(&object.api_version));
    let known = resource_of(group, &object.kind, namespace, view);
    let plural = known.map_or_else(|| format!("{}s", object.kind.to_lowercase()), |resource| resource.plural.into_owned());
    if group.is_empty() { plural } else { format!("{plural}.{group}") }
}

/// Percent-encoding of everything that is not plain in a path or query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// What one metric asks for, from what was read of it.
pub fn propose(
    autoscaler: &HorizontalPodAutoscaler,
    metric: &MetricSpec,
    outcome: Option<&Result<Value, String>>,
    target: &Target,
    view: &View,
    now: Timestamp,
) -> Result<Proposal, Failure> {
    let read = || match outcome {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(error.clone()),
        None => Err("no answer".to_owned()),
    };
    let cx = Calculation { autoscaler, target, pods: target.pods(view), now };
    match metric.type_.as_str() {
        "Resource" => cx.resource(metric, read()),
        "ContainerResource" => cx.container(metric, read()),
        "Pods" => cx.per_pod(metric, read()),
        "Object" => cx.object(metric, read()),
        "External" => cx.external(metric, read()),
        other => Err(failure("InvalidMetricSourceType", format!("unknown metric source type {other:?}"), "")),
    }
}

fn failure(reason: &'static str, message: String, prefix: &str) -> Failure {
    Failure { reason, wrapped: format!("{prefix}{message}"), message }
}

struct Calculation<'a> {
    autoscaler: &'a HorizontalPodAutoscaler,
    target: &'a Target,
    pods: Vec<Arc<Pod>>,
    now: Timestamp,
}

type Read<'v> = Result<&'v Value, String>;

impl Calculation<'_> {
    fn tolerance(&self) -> Tolerance {
        Tolerance::of(self.autoscaler.spec.behavior.as_ref())
    }

    fn resource(&self, metric: &MetricSpec, read: Read<'_>) -> Result<Proposal, Failure> {
        let Some(source) = &metric.resource else { return Err(failure("InvalidMetricSourceType", "no resource".into(), "")) };
        let name = &source.name;
        let samples = |value: &Value| pod_samples(value, |pod| total(pod["containers"].as_array()?.iter(), name));
        let (replicas, current, how) = self.usage(name, None, &source.target, read, samples).map_err(|error| {
            let what = if source.target.average_utilization.is_some() { "utilization" } else { "usage" };
            failure(
                "FailedGetResourceMetric",
                format!("failed to get {name} {what}: {error}"),
                &format!("failed to get {name} resource metric value: "),
            )
        })?;
        let name = format!("{name} resource{how}");
        let status = ResourceMetricStatus { name: source.name.clone(), current };
        Ok(Proposal { replicas, name, status: MetricStatus { type_: metric.type_.clone(), resource: Some(status), ..MetricStatus::default() } })
    }

    fn container(&self, metric: &MetricSpec, read: Read<'_>) -> Result<Proposal, Failure> {
        let Some(source) = &metric.container_resource else { return Err(failure("InvalidMetricSourceType", "no container resource".into(), "")) };
        let (name, container) = (&source.name, &source.container);
        let samples =
            |value: &Value| pod_samples(value, |pod| total(pod["containers"].as_array()?.iter().filter(|c| c["name"] == container.as_str()), name));
        let (replicas, current, how) = self.usage(name, Some(container), &source.target, read, samples).map_err(|error| {
            let prefix = format!("failed to get {name} container metric value: ");
            failure("FailedGetContainerResourceMetric", format!("failed to get {name} utilization: {error}"), &prefix)
        })?;
        let shown = format!("{name} container resource{how}");
        let status = ContainerResourceMetricStatus { name: name.clone(), container: container.clone(), current };
        let status = MetricStatus { type_: metric.type_.clone(), container_resource: Some(status), ..MetricStatus::default() };
        Ok(Proposal { replicas, name: shown, status })
    }

    /// Usage of a resource against what is requested, or against a plain number for each pod.
    fn usage(
        &self,
        resource: &str,
        container: Option<&str>,
        wanted: &MetricTarget,
        read: Read<'_>,
        samples: impl Fn(&Value) -> BTreeMap<String, Sample>,
    ) -> Result<(i32, MetricValueStatus, &'static str), String> {
        let unable =
            |error: String| format!("unable to get metrics for resource {resource}: unable to fetch metrics from resource metrics API: {error}");
        let samples = samples(read.map_err(unable)?);
        if samples.is_empty() {
            return Err(format!("unable to get metrics for resource {resource}: no metrics returned from resource metrics API"));
        }
        let is_cpu = resource == "cpu";

        if let Some(percent) = wanted.average_utilization {
            let requests = replicas::requests(&self.pods, resource, container)?;
            let found = replicas::by_utilization(&self.pods, samples, &requests, percent, self.target.replicas, self.tolerance(), is_cpu, self.now)?;
            let current = MetricValueStatus { average_utilization: Some(found.utilization), average_value: Some(shown(found.average)), value: None };
            return Ok((found.replicas, current, " utilization (percentage of request)"));
        }
        let average = wanted
            .average_value
            .as_ref()
            .and_then(milli)
            .ok_or("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")?;
        let found = replicas::by_average(&self.pods, samples, average, self.target.replicas, self.tolerance(), is_cpu, self.now)?;
        Ok((found.replicas, MetricValueStatus { average_value: Some(shown(found.average)), ..MetricValueStatus::default() }, ""))
    }

    fn per_pod(&self, metric: &MetricSpec, read: Read<'_>) -> Result<Proposal, Failure> {
        let Some(source) = &metric.pods else { return Err(failure("InvalidMetricSourceType", "no pods metric".into(), "")) };
        let name = &source.metric.name;
        let fail = |error: String| failure("FailedGetPodsMetric", error, "failed to get pods metric value: ");
        let read = read.map_err(|error| fail(format!("unable to get metric {name}: unable to fetch metrics from custom metrics API: {error}")))?;
        let wanted = source.target.average_value.as_ref().and_then(milli).ok_or_else(|| fail("no average value to aim at".into()))?;
        let found =
            replicas::by_average(&self.pods, custom_samples(read), wanted, self.target.replicas, self.tolerance(), false, self.now).map_err(fail)?;
        let current = MetricValueStatus { average_value: Some(shown(found.average)), ..MetricValueStatus::default() };
        let status = PodsMetricStatus { current, metric: source.metric.clone() };
        let status = MetricStatus { type_: metric.type_.clone(), pods: Some(status), ..MetricStatus::default() };
        Ok(Proposal { replicas: found.replicas, name: format!("pods metric {name}"), status })
    }

    fn object(&self, metric: &MetricSpec, read: Read<'_>) -> Result<Proposal, Failure> {
        let Some(source) = &metric.object else { return Err(failure("InvalidMetricSourceType", "no object metric".into(), "")) };
        let (name, object) = (&source.metric.name, &source.described_object);
        let fail = |error: String| failure("FailedGetObjectMetric", error, "failed to get object metric value: ");
        let unable = |error| format!("unable to get metric {name}: {} on {}/{error}", object.kind, text(&self.autoscaler.metadata.namespace));
        let read = read.map_err(|error| fail(unable(error)))?;
        let usage = read["items"].as_array().and_then(|items| items.first()).and_then(|item| milli_of(&item["value"]));
        let usage = usage.ok_or_else(|| fail(unable("no metrics returned from custom metrics API".into())))?;
        let (replicas, current) = self.whole(usage, &source.target).map_err(fail)?;
        let status = ObjectMetricStatus { current, described_object: object.clone(), metric: source.metric.clone() };
        let status = MetricStatus { type_: metric.type_.clone(), object: Some(status), ..MetricStatus::default() };
        Ok(Proposal { replicas, name: format!("{} metric {name}", object.kind), status })
    }

    fn external(&self, metric: &MetricSpec, read: Read<'_>) -> Result<Proposal, Failure> {
        let Some(source) = &metric.external else { return Err(failure("InvalidMetricSourceType", "no external metric".into(), "")) };
        let (name, namespace) = (&source.metric.name, text(&self.autoscaler.metadata.namespace));
        let fail = |error: String| failure("FailedGetExternalMetric", error, &format!("failed to get {name} external metric value: "));
        let wanted = selector(source.metric.selector.as_ref());
        let unable = |error: String| {
            format!("unable to get external metric {namespace}/{name}/{wanted}: unable to fetch metrics from external metrics API: {error}")
        };
        let read = read.map_err(|error| fail(unable(error)))?;
        let values: Option<Vec<i64>> = read["items"].as_array().map(|items| items.iter().filter_map(|item| milli_of(&item["value"])).collect());
        let values =
            values.filter(|values| !values.is_empty()).ok_or_else(|| fail(unable("no metrics returned from external metrics API".into())))?;
        let (replicas, current) = self.whole(values.iter().sum(), &source.target).map_err(fail)?;
        let status = ExternalMetricStatus { current, metric: source.metric.clone() };
        let status = MetricStatus { type_: metric.type_.clone(), external: Some(status), ..MetricStatus::default() };
        Ok(Proposal { replicas, name: format!("external metric {name}"), status })
    }

    /// A value that is not any pod's own: as a whole, or shared out among all replicas.
    fn whole(&self, usage: i64, wanted: &MetricTarget) -> Result<(i32, MetricValueStatus), String> {
        if let Some(value) = wanted.value.as_ref().and_then(milli).filter(|_| wanted.type_ == "Value") {
            let replicas = replicas::by_value(&self.pods, usage, value, self.target.replicas, self.tolerance());
            return Ok((replicas, MetricValueStatus { value: Some(shown(usage)), ..MetricValueStatus::default() }));
        }
        let average = wanted.average_value.as_ref().and_then(milli).ok_or("neither a value target nor an average value target was set")?;
        let (replicas, each) = replicas::by_share(usage, average, self.target.observed, self.tolerance());
        Ok((replicas, MetricValueStatus { average_value: Some(shown(each)), ..MetricValueStatus::default() }))
    }
}

fn shown(milli: i64) -> ApiQuantity {
    ApiQuantity(Quantity::from_milli(milli).canonical())
}

pub fn milli(quantity: &ApiQuantity) -> Option<i64> {
    Quantity::parse(&quantity.0).ok().map(|quantity| quantity.milli_value())
}

fn milli_of(value: &Value) -> Option<i64> {
    Quantity::from_json(value).ok().map(|quantity| quantity.milli_value())
}

fn at(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse::<jiff::Timestamp>().ok().map(|at| Timestamp::from_micros(at.as_microsecond()))
}

/// The sum over containers; `None` if one of them does not report the resource.
fn total<'v>(containers: impl Iterator<Item = &'v Value>, resource: &str) -> Option<i64> {
    let values: Option<Vec<i64>> = containers.map(|container| milli_of(&container["usage"][resource])).collect();
    values.filter(|values| !values.is_empty()).map(|values| values.iter().sum())
}

fn pod_samples(list: &Value, usage: impl Fn(&Value) -> Option<i64>) -> BTreeMap<String, Sample> {
    let sample = |pod: &Value| {
        let window = pod["window"].as_str().and_then(|text| GoDuration::parse(text).ok());
        let window = window.and_then(|window| u64::try_from(window.0).ok()).map_or(WINDOW, Duration::from_nanos);
        Some((pod["metadata"]["name"].as_str()?.to_owned(), Sample { milli: usage(pod)?, at: at(&pod["timestamp"]), window }))
    };
    list["items"].as_array().into_iter().flatten().filter_map(sample).collect()
}

fn custom_samples(list: &Value) -> BTreeMap<String, Sample> {
    let sample = |item: &Value| {
        let window = item["windowSeconds"].as_u64().map_or(WINDOW, Duration::from_secs);
        Some((item["describedObject"]["name"].as_str()?.to_owned(), Sample { milli: milli_of(&item["value"])?, at: at(&item["timestamp"]), window }))
    };
    list["items"].as_array().into_iter().flatten().filter_map(sample).collect()
}
