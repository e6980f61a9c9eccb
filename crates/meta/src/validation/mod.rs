//! Checks that many kinds share: names, labels, addresses and object metadata.
//!
//! String formats return messages (`Vec<String>`), checks of fields return an [`ErrorList`](crate::field::ErrorList).

mod labels;
mod names;
mod net;
mod object_meta;
pub mod options;

pub use labels::{LabelSelectorOptions, label_selector, label_selector_requirement, labels};
pub use names::{
    DNS_LABEL_MAX, DNS_SUBDOMAIN_MAX, LABEL_MAX, c_identifier, config_map_key, dns1035_label, dns1123_label, dns1123_subdomain,
    dns1123_subdomain_bytes, dns1123_subdomain_with_underscore, env_var_name, http_header_name, in_range, label_value, mask_trailing_dash,
    max_length_error, path_segment_name, path_segment_prefix, percent, port_name, port_number, qualified_name, range_error, regex_error,
    relaxed_env_var_name, user_or_group_id, wildcard_dns1123_subdomain,
};
pub use net::{cidr, cidr_strict, ip, ip_strict, parse_cidr, parse_ip};
pub use object_meta::{
    NameFormat, TOTAL_ANNOTATION_SIZE_MAX, annotations, finalizer_name, finalizers, immutable, managed_fields, no_new_finalizers, nonnegative,
    object_meta_create, object_meta_update, owner_references,
};
pub use options::{delete_options, dry_run, field_manager, field_validation};

#[cfg(test)]
mod golden;
