//! Which key each descriptor of each call asks for.

use std::sync::Arc;

/// Digits of a key's number in a request.
pub(super) const DIGITS: usize = 9;
/// One more than the largest number of [`DIGITS`] digits.
pub(super) const MAX_KEYS: u64 = 1_000_000_000;

/// How often which key is asked for.
#[derive(Debug, Clone)]
pub(super) enum Keys {
    /// Each of so many alike.
    Uniform(u64),
    /// By weight.
    Weighted(Arc<Weights>),
    /// One key only.
    Hot,
    /// Never the same again, until [`MAX_KEYS`] are used up.
    Unique,
}

/// Weights of keys 0 up to their number, by Walker's alias method: a draw takes constant time.
#[derive(Debug)]
pub(super) struct Weights {
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Share of the slot that is its own, in 2³² parts; the rest belongs to `alias`.
    own: u32,
    alias: u32,
}

impl Weights {
    /// Key k has weight (k + 1) ^ −`exponent`.
    pub(super) fn zipf(keys: u32, exponent: f64) -> Self {
        Self::new(&(1..=keys).map(|rank| f64::from(rank).powf(-exponent)).collect::<Vec<_>>())
    }

    fn new(weights: &[f64]) -> Self {
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut left: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let mut slots: Vec<Slot> =
            (0..weights.len()).map(|key| Slot { own: u32::MAX, alias: key as u32 }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..weights.len()).partition(|&key| left[key] < 1.0);
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            // A float cast saturates, so rounding cannot leave the range.
            slots[poor] = Slot { own: (left[poor] * 2_f64.powi(32)) as u32, alias: rich as u32 };
            left[rich] -= 1.0 - left[poor];
            if left[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Self { slots }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let place = rng.below(self.slots.len() as u64);
        let slot = self.slots[place as usize];
        if (rng.next() >> 32) as u32 <= slot.own { place } else { slot.alias.into() }
    }
}

/// SplitMix64: a few cycles a number, and good enough to choose keys and gaps.
#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A sample of the exponential distribution with mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        let unit = ((self.next() >> 11) + 1) as f64 / 2_f64.powi(53);
        -unit.ln()
    }
}

/// Draws the keys of one connection.
#[derive(Debug)]
pub(super) struct Sampler {
    keys: Keys,
    rng: Rng,
    unique: u64,
    stride: u64,
}

impl Sampler {
    /// The sampler of connection `index` of `connections`. Unique keys begin at `first` and no
    /// two connections of a run share one.
    pub(super) fn new(keys: Keys, seed: u64, first: u64, index: u64, connections: u64) -> Self {
        let rng = Rng::new(seed.wrapping_add(index << 32));
        Self { keys, rng, unique: first + index, stride: connections }
    }

    pub(super) fn next(&mut self) -> u64 {
        match &self.keys {
            Keys::Uniform(keys) => self.rng.below(*keys),
            Keys::Weighted(weights) => weights.draw(&mut self.rng),
            Keys::Hot => 0,
            Keys::Unique => {
                let key = self.unique % MAX_KEYS;
                self.unique += self.stride;
                key
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(keys: Keys, size: usize, draws: u64) -> Vec<f64> {
        let mut sampler = Sampler::new(keys, 42, 0, 0, 1);
        let mut counts = vec![0.0; size];
        for _ in 0..draws {
            counts[sampler.next() as usize] += 1.0;
        }
        counts
    }

    /// Chi-squared over the degrees of freedom; 1 is expected, and its deviation is √(2 / df).
    #[track_caller]
    fn check(keys: Keys, weights: &[f64]) {
        let draws = 2_000_000;
        let total: f64 = weights.iter().sum();
        let counts = counts(keys, weights.len(), draws);
        let chi: f64 = counts
            .iter()
            .zip(weights)
            .map(|(count, weight)| {
                let want = weight / total * draws as f64;
                (count - want).powi(2) / want
            })
            .sum();
        let freedom = (weights.len() - 1) as f64;
        let deviations = (chi / freedom - 1.0).abs() / (2.0 / freedom).sqrt();
        assert!(deviations < 4.0, "{deviations} deviations off");
    }

    #[test]
    fn keys_are_drawn_by_their_weights() {
        for exponent in [0.5, 1.0, 1.4] {
            let weights: Vec<f64> = (1..=1_000).map(|k| f64::from(k).powf(-exponent)).collect();
            check(Keys::Weighted(Arc::new(Weights::zipf(1_000, exponent))), &weights);
        }
        check(Keys::Weighted(Arc::new(Weights::zipf(50, 0.0))), &[1.0; 50]);
        check(Keys::Uniform(1_000), &[1.0; 1_000]);
    }

    #[test]
    fn one_key_is_always_itself() {
        assert_eq!(counts(Keys::Hot, 1, 10), [10.0]);
        assert_eq!(counts(Keys::Uniform(1), 1, 10), [10.0]);
        assert_eq!(counts(Keys::Weighted(Arc::new(Weights::zipf(1, 1.0))), 1, 10), [10.0]);
    }

    #[test]
    fn unique_keys_are_not_shared() {
        let mut seen: Vec<u64> = (0..3)
            .map(|index| Sampler::new(Keys::Unique, 1, 100, index, 3))
            .flat_map(|mut sampler| std::iter::repeat_with(move || sampler.next()).take(50))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (100..250).collect::<Vec<_>>());
        assert_eq!(Sampler::new(Keys::Unique, 1, MAX_KEYS, 5, 8).next(), 5, "nine digits only");
    }

    #[test]
    fn exponential_gaps_have_mean_one() {
        let mut rng = Rng::new(7);
        let mean = (0..100_000).map(|_| rng.exponential()).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
