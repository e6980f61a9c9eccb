//! Logs and traces.
//!
//! Logs go to standard error, for people or as JSON lines; spans carry the cluster, so every line of a request or task names it. Traces are
//! exported over OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` is set, and cost next to nothing when it is not.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            _ => Err("must be \"human\" or \"json\""),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT cannot be used")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    #[error("a log subscriber is already set")]
    Subscriber(#[source] tracing_subscriber::util::TryInitError),
}

/// Exports what is still buffered when it is dropped; keep it until the process ends.
#[must_use]
pub struct TelemetryGuard(Option<SdkTracerProvider>);

/// The part of traces that is kept unless a caller's `traceparent` says otherwise: at most one request in a hundred costs an export.
const SAMPLED: f64 = 0.01;

/// What is logged without `RUST_LOG`. The libraries' own chatter is of no use to an operator.
const DEFAULT_FILTER: &str = "info,openraft=error,h2=warn,hyper=warn,rustls=warn,tonic=warn";

/// Sets up logs and traces for the process; call it once, inside the runtime.
pub fn init(service: &'static str, format: LogFormat) -> Result<TelemetryGuard, TelemetryError> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Human => lines.with_target(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).boxed(),
    };
    let provider = match std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT") {
        None => None,
        Some(_) => Some(provider(service)?),
    };
    // Requests' own spans are at debug level: without an exporter they are never made, and they never reach the log unless it is asked for them.
    let of_requests = Targets::new().with_target("wheelhouse", LevelFilter::DEBUG);
    let traces = provider.as_ref().map(|p| tracing_opentelemetry::layer().with_tracer(p.tracer(service)).with_filter(of_requests));
    tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces).try_init().map_err(TelemetryError::Subscriber)?;
    Ok(TelemetryGuard(provider))
}

fn provider(service: &'static str) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = SpanExporter::builder().with_tonic().build().map_err(TelemetryError::Exporter)?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(SAMPLED))))
        .with_resource(Resource::builder().with_service_name(service).build())
        .build())
}

impl Drop for TelemetryGuard {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take() {
            // The collector may be gone; there is nobody left to tell.
            let _ = provider.shutdown();
        }
    }
}
