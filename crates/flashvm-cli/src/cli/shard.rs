//! `--shard I/N`: one of N parts of a list of jobs, for engines that run a command many times (Slurm's arrays).

use std::str::FromStr;

/// Part `index` (from 1) of `parts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    index: usize,
    parts: usize,
}

impl Shard {
    /// The jobs of this part: each `parts`-th one, so that parts have as many small sizes as large ones.
    pub(crate) fn of<T>(self, jobs: Vec<T>) -> Vec<T> {
        let part = jobs.into_iter().skip(self.index - 1).step_by(self.parts);
        part.collect()
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, parts)| {
            let (index, parts) = (index.parse().ok()?, parts.parse().ok()?);
            (1 <= index && index <= parts).then_some(Self { index, parts })
        });
        numbers.ok_or_else(|| {
            format!("'{text}' is no part of a whole: write I/N with 1 <= I <= N, such as 3/8")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_in_one_part() {
        for (jobs, parts) in [(0, 1), (1, 4), (7, 3), (12, 5)] {
            let mut all: Vec<usize> = (1..=parts)
                .flat_map(|index| Shard { index, parts }.of((0..jobs).collect()))
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..jobs).collect::<Vec<_>>(), "{jobs} in {parts}");
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        assert_eq!("3/8".parse(), Ok(Shard { index: 3, parts: 8 }));
        for text in [
            "", "3", "0/8", "9/8", "3/0", "-1/2", "a/b", "1/2/3", "1.0/2",
        ] {
            let refused = text.parse::<Shard>().expect_err(text);
            assert!(refused.contains("such as 3/8"), "{refused}");
        }
    }
}
