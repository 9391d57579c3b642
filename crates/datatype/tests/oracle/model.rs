//! The type map as the standard defines it: a list of entries.

use datatype::Basic;

/// One entry of a type map.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A number; the leaf is the predefined type it is part of, which differs for the two parts of a pair.
    Data { basic: Basic, leaf: Basic, displacement: i64 },
    /// The lower bound is here.
    LowerMark(i64),
    /// The upper bound is here.
    UpperMark(i64),
    /// The padding of a part ends here, which stands where its alignment is broken.
    Padding(i64),
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub entries: Vec<Entry>,
}

impl Model {
    pub fn basic(leaf: Basic) -> Model {
        let data = |basic, displacement| Entry::Data { basic, leaf, displacement };
        let entries = match leaf.pair_parts() {
            Some((value, index)) => {
                let behind = value.size().next_multiple_of(index.alignment()) as i64;
                vec![data(value, 0), data(index, behind)]
            }
            None => vec![data(leaf, 0)],
        };
        Model { entries }
    }

    /// `count` copies at their extent, the first at `displacement`, appended.
    pub fn append(&mut self, displacement: i64, count: i64, old: &Model) {
        for turn in 0..count {
            let way = displacement + turn * (old.ub() - old.lb());
            self.entries.extend(old.entries.iter().map(|entry| entry.moved(way)));
            if old.data().count() > 0 && way % old.alignment() != 0 {
                self.entries.push(Entry::Padding(way + old.padded_end()));
            }
        }
    }

    /// The same with other bounds.
    pub fn resized(&self, lb: i64, extent: i64) -> Model {
        let mut entries: Vec<Entry> =
            self.data().map(|(basic, leaf, displacement)| Entry::Data { basic, leaf, displacement }).collect();
        entries.extend([Entry::LowerMark(lb), Entry::UpperMark(lb + extent)]);
        Model { entries }
    }

    pub fn size(&self) -> u64 {
        self.data().map(|(basic, ..)| basic.size()).sum()
    }

    pub fn lb(&self) -> i64 {
        let marks = self.entries.iter().filter_map(|entry| match entry {
            Entry::LowerMark(at) => Some(*at),
            _ => None,
        });
        marks.min().unwrap_or(self.true_lb())
    }

    pub fn ub(&self) -> i64 {
        let marks = self.entries.iter().filter_map(|entry| match entry {
            Entry::UpperMark(at) => Some(*at),
            _ => None,
        });
        marks.max().unwrap_or_else(|| self.padded_end())
    }

    fn alignment(&self) -> i64 {
        self.data().map(|(basic, ..)| basic.alignment()).max().unwrap_or(1) as i64
    }

    fn padded_end(&self) -> i64 {
        let padding = self.entries.iter().filter_map(|entry| match entry {
            Entry::Padding(at) => Some(*at),
            _ => None,
        });
        let mut ub = padding.max().unwrap_or(i64::MIN).max(self.true_ub());
        while (ub - self.true_lb()) % self.alignment() != 0 {
            ub += 1;
        }
        ub
    }

    pub fn true_lb(&self) -> i64 {
        self.data().map(|(_, _, displacement)| displacement).min().unwrap_or(0)
    }

    pub fn true_ub(&self) -> i64 {
        self.data().map(|(basic, _, displacement)| displacement + basic.size() as i64).max().unwrap_or(0)
    }

    pub fn uniform(&self) -> Option<Basic> {
        let (_, first, _) = self.data().next()?;
        self.data().all(|(_, leaf, _)| leaf == first).then_some(first)
    }

    /// The displacement of each packed byte of `count` elements.
    pub fn bytes(&self, count: u64) -> Vec<i64> {
        let mut all = Model::default();
        all.append(0, count as i64, self);
        all.data().flat_map(|(basic, _, displacement)| displacement..displacement + basic.size() as i64).collect()
    }

    pub fn overlaps(&self, count: u64) -> bool {
        let mut places = self.bytes(count);
        places.sort_unstable();
        places.windows(2).any(|two| two[0] == two[1])
    }

    pub fn elements_in(&self, bytes: u64) -> Option<i64> {
        let (mut left, mut elements) = (bytes, 0);
        let sizes: Vec<u64> = self.data().map(|(basic, ..)| basic.size()).collect();
        if sizes.is_empty() {
            return (bytes == 0).then_some(0);
        }
        for size in sizes.iter().cycle() {
            if left == 0 {
                break;
            }
            left = left.checked_sub(*size)?;
            elements += 1;
        }
        Some(elements)
    }

    pub fn external_size(&self) -> u64 {
        let external = |basic: Basic| match basic {
            Basic::Long | Basic::UnsignedLong => 4,
            Basic::Wchar => 2,
            _ => basic.size(),
        };
        self.data().map(|(basic, ..)| external(basic)).sum()
    }

    fn data(&self) -> impl Iterator<Item = (Basic, Basic, i64)> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Data { basic, leaf, displacement } => Some((*basic, *leaf, *displacement)),
            _ => None,
        })
    }
}

impl Entry {
    fn moved(self, way: i64) -> Entry {
        match self {
            Entry::Data { basic, leaf, displacement } => Entry::Data { basic, leaf, displacement: displacement + way },
            Entry::LowerMark(at) => Entry::LowerMark(at + way),
            Entry::UpperMark(at) => Entry::UpperMark(at + way),
            Entry::Padding(at) => Entry::Padding(at + way),
        }
    }
}
