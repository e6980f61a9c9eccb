//! What a PriorityLevelConfiguration must be.

use k8s_openapi::api::flowcontrol::v1::{LimitResponse, LimitedPriorityLevelConfiguration, PriorityLevelConfiguration, QueuingConfiguration};

use crate::prelude::*;

/// The level of requests that never wait.
const EXEMPT: &str = "exempt";

const MAX_QUEUES: i32 = 10_000_000;

/// Bits of the hash that deals a flow its hand.
const MAX_HASH_BITS: u32 = 60;

pub fn level(object: &PriorityLevelConfiguration) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = object.spec.clone().unwrap_or_default();
    let here = path.child("type");
    if (text(&object.metadata.name) == EXEMPT) != (spec.type_ == "Exempt") {
        errors.push(FieldError::invalid(&here, &spec.type_, "must be 'Exempt' if and only if `name` is 'exempt'"));
    }
    match (spec.type_.as_str(), &spec.limited) {
        ("Exempt", limited) => {
            if limited.is_some() {
                errors.push(FieldError::forbidden(&path.child("limited"), "must be nil if the type is not Limited"));
            }
            if let Some(exempt) = &spec.exempt {
                shares(exempt.nominal_concurrency_shares, exempt.lendable_percent, &path.child("exempt"), &mut errors);
            }
        }
        ("Limited", limited) => {
            if spec.exempt.is_some() {
                errors.push(FieldError::forbidden(&path.child("exempt"), "must be nil if the type is Limited"));
            }
            match limited {
                Some(limited) => self::limited(limited, &path.child("limited"), &mut errors),
                None => errors.push(FieldError::required(&path.child("limited"), "must not be empty when type is Limited")),
            }
        }
        (other, _) => errors.push(FieldError::not_supported(&here, other, &["Exempt", "Limited"])),
    }
    errors
}

fn shares(nominal: Option<i32>, lendable: Option<i32>, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(shares) = nominal.filter(|s| *s < 0) {
        errors.push(FieldError::invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer"));
    }
    if let Some(percent) = lendable.filter(|p| !(0..=100).contains(p)) {
        errors.push(FieldError::invalid(&path.child("lendablePercent"), percent, "must be between 0 and 100, inclusive"));
    }
}

fn limited(limited: &LimitedPriorityLevelConfiguration, path: &Path<'_>, errors: &mut ErrorList) {
    shares(limited.nominal_concurrency_shares, limited.lendable_percent, path, errors);
    if let Some(percent) = limited.borrowing_limit_percent.filter(|p| *p < 0) {
        let why = "if specified, must be a non-negative integer";
        errors.push(FieldError::invalid(&path.child("borrowingLimitPercent"), percent, why));
    }
    response(&limited.limit_response.clone().unwrap_or_default(), &path.child("limitResponse"), errors);
}

fn response(response: &LimitResponse, path: &Path<'_>, errors: &mut ErrorList) {
    let here = path.child("queuing");
    match (response.type_.as_str(), &response.queuing) {
        ("Reject", None) => {}
        ("Reject", Some(_)) => errors.push(FieldError::forbidden(&here, "must be nil if limited.limitResponse.type is not Limited")),
        ("Queue", None) => errors.push(FieldError::required(&here, "must not be empty if limited.limitResponse.type is Limited")),
        ("Queue", Some(queuing)) => queues(queuing, &here, errors),
        (other, _) => errors.push(FieldError::not_supported(&path.child("type"), other, &["Queue", "Reject"])),
    }
}

fn queues(queuing: &QueuingConfiguration, path: &Path<'_>, errors: &mut ErrorList) {
    let number = |field: Option<i32>| field.unwrap_or_default();
    let (length, queues, hand) = (number(queuing.queue_length_limit), number(queuing.queues), number(queuing.hand_size));
    let mut positive = |field: &str, value: i32| {
        if value <= 0 {
            errors.push(FieldError::invalid(&path.child(field), value, "must be positive"));
        }
        value > 0
    };
    positive("queueLengthLimit", length);
    if positive("queues", queues) && queues > MAX_QUEUES {
        errors.push(FieldError::invalid(&path.child("queues"), queues, format!("must not be greater than {MAX_QUEUES}")));
    }
    let here = path.child("handSize");
    if hand <= 0 {
        errors.push(FieldError::invalid(&here, hand, "must be positive"));
    } else if hand > queues {
        errors.push(FieldError::invalid(&here, hand, format!("should not be greater than queues ({queues})")));
    } else if entropy_bits(queues, hand) > MAX_HASH_BITS {
        let why = format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}");
        errors.push(FieldError::invalid(&here, hand, why));
    }
}

/// How many bits it takes to deal a hand from that many queues.
fn entropy_bits(queues: i32, hand: i32) -> u32 {
    let hands: f64 = (0..hand).map(|dealt| f64::from(queues - dealt).log2()).sum();
    // The largest is 10^7 queues times the bits of one, which fits.
    hands.ceil() as u32
}
