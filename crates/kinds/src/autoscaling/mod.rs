//! `autoscaling/v2`. The Scale of `autoscaling/v1` is [`crate::scale`].

pub mod horizontalpodautoscaler;
