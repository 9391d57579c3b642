//! How to make a datatype, as data: built both by the library and by the oracle.

use std::sync::Arc;

use datatype::{ArrayOrder, Basic, Combiner, DISTRIBUTE_DEFAULT_ARGUMENT, Darray, Datatype, Distribution, TypeError};
use proptest::prelude::*;

use crate::model::Model;

#[derive(Clone, Debug)]
pub enum Recipe {
    Basic(Basic),
    Dup(Box<Recipe>),
    Contiguous(i64, Box<Recipe>),
    Vector(i64, i64, i64, Box<Recipe>),
    Hvector(i64, i64, i64, Box<Recipe>),
    Indexed(Vec<(i64, i64)>, Box<Recipe>),
    Hindexed(Vec<(i64, i64)>, Box<Recipe>),
    IndexedBlock(i64, Vec<i64>, Box<Recipe>),
    HindexedBlock(i64, Vec<i64>, Box<Recipe>),
    Struct(Vec<(i64, i64, Recipe)>),
    /// Size, subsize and start of each dimension.
    Subarray(Vec<(i64, i64, i64)>, ArrayOrder, Box<Recipe>),
    Darray(Darray, Box<Recipe>),
    Resized(i64, i64, Box<Recipe>),
}

/// Random recipes of a few entries, to be repeated often.
pub fn short_recipe() -> impl Strategy<Value = Recipe> {
    recipe().prop_filter("there are many of it", |recipe| recipe.weight() <= 24)
}

/// Random recipes of a few levels.
pub fn recipe() -> impl Strategy<Value = Recipe> {
    // Long double is left out: not every bit pattern of its bytes survives a conversion.
    let leaves: Vec<Basic> = Basic::all()
        .filter(|basic| {
            let parts = basic.pair_parts().map_or(*basic, |(value, _)| value);
            !parts.name().contains("LONG_DOUBLE")
        })
        .collect();
    let leaf = prop_oneof![
        3 => prop::sample::select(vec![Basic::Int, Basic::Double, Basic::Char, Basic::Short]),
        1 => prop::sample::select(leaves),
    ];
    leaf.prop_map(Recipe::Basic)
        .prop_recursive(4, 24, 3, |inner| {
            let old = inner.clone().prop_map(Box::new);
            let pairs = || prop::collection::vec((0i64..4, -6i64..12), 0..5);
            let order = prop_oneof![Just(ArrayOrder::C), Just(ArrayOrder::Fortran)];
            prop_oneof![
                old.clone().prop_map(Recipe::Dup),
                (0i64..4, old.clone()).prop_map(|(n, old)| Recipe::Contiguous(n, old)),
                (0i64..4, 0i64..3, -5i64..6, old.clone()).prop_map(|(n, b, s, old)| Recipe::Vector(n, b, s, old)),
                (0i64..4, 0i64..3, -40i64..60, old.clone()).prop_map(|(n, b, s, old)| Recipe::Hvector(n, b, s, old)),
                (pairs(), old.clone()).prop_map(|(pairs, old)| Recipe::Indexed(pairs, old)),
                (pairs(), old.clone()).prop_map(|(pairs, old)| {
                    Recipe::Hindexed(pairs.into_iter().map(|(n, d)| (n, d * 5)).collect(), old)
                }),
                (0i64..3, prop::collection::vec(-6i64..9, 0..5), old.clone())
                    .prop_map(|(n, places, old)| Recipe::IndexedBlock(n, places, old)),
                (0i64..3, prop::collection::vec(-40i64..70, 0..5), old.clone())
                    .prop_map(|(n, places, old)| Recipe::HindexedBlock(n, places, old)),
                prop::collection::vec((0i64..3, -30i64..80, inner), 0..4).prop_map(Recipe::Struct),
                (prop::collection::vec(dimension(), 1..4), order.clone(), old.clone())
                    .prop_map(|(dimensions, order, old)| Recipe::Subarray(dimensions, order, old)),
                (darray(order), old.clone()).prop_map(|(array, old)| Recipe::Darray(array, old)),
                (-20i64..20, -10i64..60, old).prop_map(|(lb, extent, old)| Recipe::Resized(lb, extent, old)),
            ]
        })
        .prop_filter("the oracle is slow", |recipe| recipe.weight() <= if cfg!(miri) { 60 } else { 3000 })
}

fn dimension() -> impl Strategy<Value = (i64, i64, i64)> {
    (1i64..5)
        .prop_flat_map(|size| (1..=size).prop_flat_map(move |subsize| (Just(size), Just(subsize), 0..=size - subsize)))
}

fn darray(order: impl Strategy<Value = ArrayOrder>) -> impl Strategy<Value = Darray> {
    let distribution = prop_oneof![Just(Distribution::None), Just(Distribution::Block), Just(Distribution::Cyclic)];
    let dimension = (1i64..7, distribution, 1i64..4, prop_oneof![Just(DISTRIBUTE_DEFAULT_ARGUMENT), 1i64..5]);
    let dimension = dimension.prop_map(|(global, distribution, processes, darg)| match distribution {
        Distribution::None => (global, distribution, 1, DISTRIBUTE_DEFAULT_ARGUMENT),
        Distribution::Block if darg * processes < global => {
            (global, distribution, processes, DISTRIBUTE_DEFAULT_ARGUMENT)
        }
        _ => (global, distribution, processes, darg),
    });
    (prop::collection::vec(dimension, 1..4), order, 0i64..1000).prop_map(|(dimensions, order, seed)| {
        let psizes: Vec<i64> = dimensions.iter().map(|d| d.2).collect();
        let size = psizes.iter().product();
        Darray {
            size,
            rank: seed % size,
            gsizes: dimensions.iter().map(|d| d.0).collect(),
            distributions: dimensions.iter().map(|d| d.1).collect(),
            dargs: dimensions.iter().map(|d| d.3).collect(),
            psizes,
            order,
        }
    })
}

impl Recipe {
    pub fn build(&self) -> Result<Arc<Datatype>, TypeError> {
        match self {
            Recipe::Basic(basic) => Ok(Datatype::predefined(*basic)),
            Recipe::Dup(old) => Datatype::dup(&old.build()?),
            Recipe::Contiguous(count, old) => Datatype::contiguous(*count, &old.build()?),
            Recipe::Vector(count, length, stride, old) => Datatype::vector(*count, *length, *stride, &old.build()?),
            Recipe::Hvector(count, length, stride, old) => Datatype::hvector(*count, *length, *stride, &old.build()?),
            Recipe::Indexed(blocks, old) => {
                let (lengths, places): (Vec<i64>, Vec<i64>) = blocks.iter().copied().unzip();
                Datatype::indexed(&lengths, &places, &old.build()?)
            }
            Recipe::Hindexed(blocks, old) => {
                let (lengths, places): (Vec<i64>, Vec<i64>) = blocks.iter().copied().unzip();
                Datatype::hindexed(&lengths, &places, &old.build()?)
            }
            Recipe::IndexedBlock(length, places, old) => Datatype::indexed_block(*length, places, &old.build()?),
            Recipe::HindexedBlock(length, places, old) => Datatype::hindexed_block(*length, places, &old.build()?),
            Recipe::Struct(blocks) => {
                let lengths: Vec<i64> = blocks.iter().map(|block| block.0).collect();
                let places: Vec<i64> = blocks.iter().map(|block| block.1).collect();
                let types: Result<Vec<_>, _> = blocks.iter().map(|block| block.2.build()).collect();
                Datatype::create_struct(&lengths, &places, &types?)
            }
            Recipe::Subarray(dimensions, order, old) => {
                let sizes: Vec<i64> = dimensions.iter().map(|d| d.0).collect();
                let subsizes: Vec<i64> = dimensions.iter().map(|d| d.1).collect();
                let starts: Vec<i64> = dimensions.iter().map(|d| d.2).collect();
                Datatype::subarray(&sizes, &subsizes, &starts, *order, &old.build()?)
            }
            Recipe::Darray(array, old) => Datatype::darray(array, &old.build()?),
            Recipe::Resized(lb, extent, old) => Datatype::resized(*lb, *extent, &old.build()?),
        }
    }

    pub fn model(&self) -> Model {
        let mut new = Model::default();
        match self {
            Recipe::Basic(basic) => return Model::basic(*basic),
            Recipe::Dup(old) => return old.model(),
            Recipe::Contiguous(count, old) => new.append(0, *count, &old.model()),
            Recipe::Vector(count, length, stride, old) => {
                let old = old.model();
                (0..*count).for_each(|turn| new.append(turn * stride * (old.ub() - old.lb()), *length, &old));
            }
            Recipe::Hvector(count, length, stride, old) => {
                let old = old.model();
                (0..*count).for_each(|turn| new.append(turn * stride, *length, &old));
            }
            Recipe::Indexed(blocks, old) => {
                let old = old.model();
                blocks.iter().for_each(|(length, at)| new.append(at * (old.ub() - old.lb()), *length, &old));
            }
            Recipe::Hindexed(blocks, old) => {
                let old = old.model();
                blocks.iter().for_each(|(length, at)| new.append(*at, *length, &old));
            }
            Recipe::IndexedBlock(length, places, old) => {
                let old = old.model();
                places.iter().for_each(|at| new.append(at * (old.ub() - old.lb()), *length, &old));
            }
            Recipe::HindexedBlock(length, places, old) => {
                let old = old.model();
                places.iter().for_each(|at| new.append(*at, *length, &old));
            }
            Recipe::Struct(blocks) => {
                blocks.iter().for_each(|(length, at, old)| new.append(*at, *length, &old.model()));
            }
            Recipe::Subarray(dimensions, order, old) => {
                let sizes: Vec<i64> = dimensions.iter().map(|d| d.0).collect();
                let inside = |index: &[i64]| {
                    index.iter().zip(dimensions).all(|(i, (_, length, start))| (*start..start + length).contains(i))
                };
                return array(&sizes, *order, &old.model(), inside);
            }
            Recipe::Darray(darray, old) => {
                let mut place = darray.rank;
                let mut coordinates = vec![0; darray.psizes.len()];
                for dimension in (0..darray.psizes.len()).rev() {
                    coordinates[dimension] = place % darray.psizes[dimension];
                    place /= darray.psizes[dimension];
                }
                let owner = |dimension: usize, index: i64| {
                    let (global, processes) = (darray.gsizes[dimension], darray.psizes[dimension]);
                    let default = darray.dargs[dimension] == DISTRIBUTE_DEFAULT_ARGUMENT;
                    match darray.distributions[dimension] {
                        Distribution::None => 0,
                        Distribution::Block if default => index / ((global + processes - 1) / processes),
                        Distribution::Block => index / darray.dargs[dimension],
                        Distribution::Cyclic if default => index % processes,
                        Distribution::Cyclic => index / darray.dargs[dimension] % processes,
                    }
                };
                let mine = |index: &[i64]| (0..index.len()).all(|d| owner(d, index[d]) == coordinates[d]);
                return array(&darray.gsizes, darray.order, &old.model(), mine);
            }
            Recipe::Resized(lb, extent, old) => return old.model().resized(*lb, *extent),
        }
        new
    }

    /// About how many entries the oracle will list.
    fn weight(&self) -> i64 {
        match self {
            Recipe::Basic(_) => 1,
            Recipe::Dup(old) | Recipe::Resized(_, _, old) => old.weight(),
            Recipe::Contiguous(count, old) => count * old.weight(),
            Recipe::Vector(count, length, _, old) | Recipe::Hvector(count, length, _, old) => {
                count * length * old.weight()
            }
            Recipe::Indexed(blocks, old) | Recipe::Hindexed(blocks, old) => {
                blocks.iter().map(|block| block.0).sum::<i64>() * old.weight()
            }
            Recipe::IndexedBlock(length, places, old) | Recipe::HindexedBlock(length, places, old) => {
                length * places.len() as i64 * old.weight()
            }
            Recipe::Struct(blocks) => blocks.iter().map(|block| block.0 * block.2.weight()).sum(),
            Recipe::Subarray(dimensions, _, old) => dimensions.iter().map(|d| d.0).product::<i64>() * old.weight(),
            Recipe::Darray(array, old) => array.gsizes.iter().product::<i64>() * old.weight(),
        }
    }
}

/// Visits every element of a global array in memory order and keeps those that are `mine`.
fn array(sizes: &[i64], order: ArrayOrder, old: &Model, mine: impl Fn(&[i64]) -> bool) -> Model {
    let extent = old.ub() - old.lb();
    let all: i64 = sizes.iter().product();
    let mut new = Model::default();
    for element in 0..all {
        let mut index = vec![0; sizes.len()];
        let mut rest = element;
        let mut split = |dimension: usize| {
            index[dimension] = rest % sizes[dimension];
            rest /= sizes[dimension];
        };
        match order {
            ArrayOrder::C => (0..sizes.len()).rev().for_each(&mut split),
            ArrayOrder::Fortran => (0..sizes.len()).for_each(&mut split),
        }
        if mine(&index) {
            new.append(element * extent, 1, old);
        }
    }
    new.resized(0, all * extent)
}

/// Makes a type again from its envelope and contents alone, as a layered library would.
pub fn from_contents(datatype: &Datatype) -> Arc<Datatype> {
    let (envelope, contents) = (datatype.envelope(), datatype.contents());
    assert_eq!(envelope.integers, contents.integers.len());
    assert_eq!(envelope.addresses, contents.addresses.len());
    assert_eq!(envelope.datatypes, contents.datatypes.len());
    assert_eq!((envelope.large_counts, contents.large_counts.len()), (0, 0));
    let olds: Vec<Arc<Datatype>> = contents.datatypes.iter().map(|old| from_contents(old)).collect();
    let (i, a) = (&contents.integers, &contents.addresses);
    let made = match envelope.combiner {
        Combiner::Named => Ok(Datatype::predefined(datatype.as_basic().expect("a named type is a basic one"))),
        Combiner::Dup => Datatype::dup(&olds[0]),
        Combiner::Contiguous => Datatype::contiguous(i[0], &olds[0]),
        Combiner::Vector => Datatype::vector(i[0], i[1], i[2], &olds[0]),
        Combiner::Hvector => Datatype::hvector(i[0], i[1], a[0], &olds[0]),
        Combiner::Indexed => {
            let (lengths, places) = i[1..].split_at(i[0] as usize);
            Datatype::indexed(lengths, places, &olds[0])
        }
        Combiner::Hindexed => Datatype::hindexed(&i[1..], a, &olds[0]),
        Combiner::IndexedBlock => Datatype::indexed_block(i[1], &i[2..], &olds[0]),
        Combiner::HindexedBlock => Datatype::hindexed_block(i[1], a, &olds[0]),
        Combiner::Struct => Datatype::create_struct(&i[1..], a, &olds),
        Combiner::Subarray => {
            let n = i[0] as usize;
            Datatype::subarray(&i[1..][..n], &i[1 + n..][..n], &i[1 + 2 * n..][..n], order(i[1 + 3 * n]), &olds[0])
        }
        Combiner::Darray => {
            let n = i[2] as usize;
            let array = Darray {
                size: i[0],
                rank: i[1],
                gsizes: i[3..][..n].to_vec(),
                distributions: i[3 + n..][..n].iter().map(|value| distribution(*value)).collect(),
                dargs: i[3 + 2 * n..][..n].to_vec(),
                psizes: i[3 + 3 * n..][..n].to_vec(),
                order: order(i[3 + 4 * n]),
            };
            Datatype::darray(&array, &olds[0])
        }
        Combiner::Resized => Datatype::resized(a[0], a[1], &olds[0]),
        other => panic!("no recipe makes {other:?}"),
    };
    made.expect("what could be made once can be made again")
}

fn order(value: i64) -> ArrayOrder {
    [ArrayOrder::C, ArrayOrder::Fortran].into_iter().find(|order| *order as i64 == value).expect("an order")
}

fn distribution(value: i64) -> Distribution {
    let all = [Distribution::None, Distribution::Block, Distribution::Cyclic];
    all.into_iter().find(|distribution| *distribution as i64 == value).expect("a distribution")
}
