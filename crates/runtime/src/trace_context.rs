//! The W3C `traceparent` header, in and out of spans.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The header's name.
pub const TRACEPARENT: &str = "traceparent";

/// The present span as a `traceparent`; `None` when nothing is traced.
pub fn current() -> Option<String> {
    let context = tracing::Span::current().context();
    let span = context.span().span_context().clone();
    span.is_valid().then(|| format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags()))
}

/// Makes `span` a child of the caller's. A malformed header is ignored, as the specification demands.
pub fn adopt(span: &tracing::Span, traceparent: &str) {
    let Some(parent) = parse(traceparent) else { return };
    let context = opentelemetry::Context::new().with_remote_span_context(parent);
    // Fails only for a span that was already entered or is not traced at all.
    let _ = span.set_parent(context);
}

fn parse(text: &str) -> Option<SpanContext> {
    let mut parts = text.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lower_hex = |s: &str, length: usize| s.len() == length && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !lower_hex(version, 2) || version == "ff" || !lower_hex(trace, 32) || !lower_hex(parent, 16) || !lower_hex(flags, 2) {
        return None;
    }
    // Version 00 has exactly four parts; later ones may add more.
    if version == "00" && parts.next().is_some() {
        return None;
    }
    let (trace, parent) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(parent).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let context = SpanContext::new(trace, parent, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_parents_count() {
        assert!(parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").is_some_and(|c| c.is_sampled()));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
