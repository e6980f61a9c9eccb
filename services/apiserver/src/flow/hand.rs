//! Shuffle sharding: the queues that one flow may use.
//!
//! A flow's hash deals it a hand of distinct queues, as cards are dealt from a deck. Two flows seldom get the same hand, so one that fills all of
//! its queues leaves most others a free one (KEP-1040).

/// The queues of a flow: at most `size` of `queues`, all different, in the order they were dealt.
pub fn deal(hash: u64, queues: usize, size: usize) -> Vec<usize> {
    let (mut rest, mut hand) = (u128::from(hash), Vec::with_capacity(size));
    // The cards dealt so far, ascending: the next one counts past them.
    let mut dealt: Vec<usize> = Vec::with_capacity(size);
    for at in 0..size.min(queues) {
        let left = (queues - at) as u128;
        let mut card = (rest % left) as usize;
        rest /= left;
        let mut place = 0;
        while place < dealt.len() && card >= dealt[place] {
            card += 1;
            place += 1;
        }
        dealt.insert(place, card);
        hand.push(card);
    }
    hand
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn hands_are_distinct_queues_and_differ() {
        let mut hands = BTreeSet::new();
        for flow in 0..1000_u64 {
            let hand = deal(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), 128, 6);
            let set: BTreeSet<usize> = hand.iter().copied().collect();
            assert_eq!(set.len(), 6, "{hand:?}");
            assert!(set.iter().all(|queue| *queue < 128));
            hands.insert(set);
        }
        assert!(hands.len() > 990, "{}", hands.len());
        assert_eq!(deal(7, 3, 8).len(), 3);
        assert_eq!(deal(u64::MAX, 1, 1), [0]);
    }
}
