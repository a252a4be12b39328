//! Where values lie: one buffer, in which what is no longer read makes room for what is written next.

use akunu_program::{Error, Result};

/// Places values first-fit. All sizes are in floats.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// Free ranges below `end`, ascending: (start, length).
    free: Vec<(usize, usize)>,
    end: usize,
    /// The most that was ever in use.
    pub(crate) size: usize,
}

/// Values begin at multiples of 16 bytes.
const ALIGNMENT: usize = 4;

impl Arena {
    /// Room for so many floats.
    pub(crate) fn take(&mut self, floats: usize) -> Result<u32> {
        let floats = floats.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let start = match self.free.iter().position(|&(_, length)| length >= floats) {
            Some(i) => {
                let (start, length) = self.free[i];
                if length == floats {
                    self.free.remove(i);
                } else {
                    self.free[i] = (start + floats, length - floats);
                }
                start
            }
            None => {
                let start = self.end;
                self.end += floats;
                self.size = self.size.max(self.end);
                start
            }
        };
        let fits = u32::try_from(start + floats).is_ok();
        let start = u32::try_from(start).ok().filter(|_| fits);
        start.ok_or_else(|| Error::Batch("values take more than 16 GiB: use a smaller batch".into()))
    }

    /// Gives room back.
    pub(crate) fn give(&mut self, start: u32, floats: usize) {
        let (start, floats) = (start as usize, floats.next_multiple_of(ALIGNMENT).max(ALIGNMENT));
        let i = self.free.partition_point(|&(other, _)| other < start);
        self.free.insert(i, (start, floats));
        if i + 1 < self.free.len() && start + floats == self.free[i + 1].0 {
            self.free[i].1 += self.free.remove(i + 1).1;
        }
        if i > 0 && self.free[i - 1].0 + self.free[i - 1].1 == start {
            self.free[i - 1].1 += self.free.remove(i).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_given_back_is_joined_and_used_again() {
        let mut arena = Arena::default();
        let [a, b, c] = [10, 20, 30].map(|n| arena.take(n).unwrap());
        assert_eq!((a, b, c, arena.size), (0, 12, 32, 64));
        arena.give(a, 10);
        arena.give(b, 20);
        assert_eq!(arena.take(32).unwrap(), 0);
        arena.give(c, 30);
        assert_eq!(arena.take(8).unwrap(), 32);
        assert_eq!(arena.size, 64);
    }
}
