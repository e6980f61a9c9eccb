//! `autoscaling`, `v2` and `v1`. The Scale of `autoscaling/v1` is [`crate::scale`].

pub mod horizontalpodautoscaler;
