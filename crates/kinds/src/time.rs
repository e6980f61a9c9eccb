//! Between the house's clock and the API's times.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use wheelhouse_base::Timestamp;

/// `Time` has whole seconds.
pub fn api_time(at: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(at.as_secs()).unwrap_or_default())
}

pub fn micro_time(at: Timestamp) -> MicroTime {
    MicroTime(jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default())
}

pub fn timestamp(time: &Time) -> Timestamp {
    Timestamp::from_micros(time.0.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_there_and_back_in_whole_seconds() {
        let at = Timestamp::from_micros(1_767_226_200_999_999);
        assert_eq!(timestamp(&api_time(at)), Timestamp::from_secs(1_767_226_200));
    }
}
