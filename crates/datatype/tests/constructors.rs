//! Bounds, errors and contents of derived types in cases worth naming; random ones stand in `oracle`.

use std::sync::Arc;

use datatype::{
    ArrayOrder, Basic, Combiner, DISTRIBUTE_DEFAULT_ARGUMENT, Darray, Datatype, Distribution, LentSendBuf, RecvBuf,
    Segment, SendBuf, TypeError, UserMemoryMut,
};

type Made = Result<Arc<Datatype>, TypeError>;

fn int() -> Arc<Datatype> {
    Datatype::predefined(Basic::Int)
}

fn double() -> Arc<Datatype> {
    Datatype::predefined(Basic::Double)
}

fn bounds(datatype: &Datatype) -> (i64, i64, i64, i64) {
    (datatype.lb(), datatype.extent(), datatype.true_lb(), datatype.true_extent())
}

fn message(made: Made) -> String {
    made.expect_err("the arguments are wrong").to_string()
}

#[test]
fn a_struct_is_padded_to_its_strictest_alignment() -> Result<(), TypeError> {
    let char = Datatype::predefined(Basic::Char);
    let padded = Datatype::create_struct(&[1, 1], &[0, 8], &[double(), char.clone()])?;
    assert_eq!((padded.size(), bounds(&padded)), (9, (0, 16, 0, 9)));
    let inner = Datatype::create_struct(&[1, 1], &[1, 4], &[char, int()])?;
    assert_eq!(bounds(&inner), (1, 8, 1, 7));
    // The padding of a part is not data: it does not count for the whole,
    let outer = Datatype::create_struct(&[1, 1], &[0, 0], &[inner, int()])?;
    assert_eq!(bounds(&outer), (0, 8, 0, 8));
    // unless the part stands where its alignment is broken: then it needs the room it has in an array.
    let rows = Datatype::hvector(3, 4, 25, &int())?;
    assert_eq!(bounds(&rows), (0, 68, 0, 66));
    let planes = Datatype::hvector(2, 3, 4 * 68 + 1, &rows)?;
    assert_eq!(bounds(&planes), (0, 480, 0, 4 * 68 + 1 + 2 * 68 + 66));
    Ok(())
}

#[test]
fn explicit_bounds_stick() -> Result<(), TypeError> {
    let wide = Datatype::resized(-4, 12, &int())?;
    assert_eq!(bounds(&wide), (-4, 12, 0, 4));
    let pair = Datatype::contiguous(2, &wide)?;
    assert_eq!(bounds(&pair), (-4, 24, 0, 16));
    let with_more = Datatype::create_struct(&[1, 1], &[0, 100], &[wide, double()])?;
    assert_eq!(bounds(&with_more), (-4, 12, 0, 108));
    let again = Datatype::resized(0, 8, &with_more)?;
    assert_eq!(bounds(&again), (0, 8, 0, 108));
    Ok(())
}

#[test]
fn a_type_without_data_is_no_wider_than_its_marks() -> Result<(), TypeError> {
    let nothing = Datatype::contiguous(0, &int())?;
    assert_eq!((nothing.size(), bounds(&nothing)), (0, (0, 0, 0, 0)));
    assert_eq!((nothing.count_in(0), nothing.count_in(4)), (Some(0), None));
    let room = Datatype::resized(-8, 24, &nothing)?;
    let rooms = Datatype::contiguous(2, &room)?;
    assert_eq!(bounds(&rooms), (-8, 48, 0, 0));
    assert_eq!(Datatype::create_struct(&[], &[], &[])?.size(), 0);
    Ok(())
}

#[test]
fn what_is_regular_is_one_run() -> Result<(), TypeError> {
    let dense = [
        Datatype::vector(5, 3, 3, &int())?,
        Datatype::indexed(&[2, 1, 3], &[0, 2, 3], &int())?,
        Datatype::create_struct(&[1, 2], &[0, 8], &[double(), int()])?,
        Datatype::subarray(&[4, 6], &[4, 6], &[0, 0], ArrayOrder::C, &double())?,
        Datatype::dup(&Datatype::contiguous(7, &double())?)?,
    ];
    assert!(dense.iter().all(|datatype| datatype.is_contiguous()));
    let rows = Datatype::subarray(&[8, 6], &[3, 6], &[2, 0], ArrayOrder::C, &int())?;
    let memory = [0u8; 8 * 6 * 4];
    // SAFETY: the subarray lies inside the array, which outlives the buffer.
    let buffer = unsafe { SendBuf::new(memory.as_ptr(), 1, &rows) };
    assert_eq!(buffer.address(), Some(memory.as_ptr().addr() + 48));
    assert_eq!(buffer.len_bytes(), 72);
    assert!(!rows.is_contiguous());
    Ok(())
}

#[test]
fn blocks_are_counted() -> Result<(), TypeError> {
    assert_eq!(Datatype::vector(128, 3, 10, &int())?.block_count(), 128);
    assert_eq!(Datatype::vector(128, 10, 10, &int())?.block_count(), 1);
    assert_eq!(Datatype::indexed(&[1, 1, 1, 100], &[0, 2, 4, 6], &int())?.block_count(), 4);
    assert_eq!(Datatype::indexed(&[1, 100, 100], &[0, 2, 200], &int())?.block_count(), 3);
    // Few neighbours among many equal ones do not make the loop over them one over different lengths.
    assert_eq!(Datatype::indexed(&[1, 2, 1, 3, 1], &[0, 2, 5, 7, 11], &double())?.block_count(), 8);
    assert_eq!(Datatype::indexed(&[8, 16], &[0, 10], &double())?.block_count(), 3);
    assert_eq!(Datatype::indexed(&[9, 18], &[0, 10], &double())?.block_count(), 2, "these are long");
    assert_eq!(Datatype::contiguous(0, &int())?.block_count(), 0);
    let two = Datatype::indexed(&[1, 1], &[0, 2], &int())?;
    assert_eq!(Datatype::vector(5, 1, 9, &two)?.block_count(), 10);
    Ok(())
}

#[test]
fn huge_regular_types_cost_nothing() -> Result<(), TypeError> {
    let many = Datatype::vector(1 << 40, 1, 2, &double())?;
    assert_eq!((many.size(), many.elements_in(1 << 30)), (1 << 43, Some(1 << 27)));
    let planes = Datatype::hvector(1 << 10, 1, 1 << 45, &many)?;
    // SAFETY: only asked where memory would be, never touched.
    let buffer = unsafe { SendBuf::new(std::ptr::without_provenance(1 << 12), 1, &planes) };
    let mut segments = [Segment::default(); 2];
    assert_eq!(buffer.segments_at((1 << 43) * 5 + 8 * 7 + 3, &mut segments), 2);
    let at = (1 << 12) + 5 * (1 << 45) + 16 * 7;
    assert_eq!(segments[0], Segment { address: at + 3, len_bytes: 5 });
    assert_eq!(segments[1], Segment { address: at + 16, len_bytes: 8 });
    Ok(())
}

#[test]
fn errors_name_the_argument_and_its_value() {
    assert_eq!(message(Datatype::contiguous(-1, &int())), "count is -1, but must not be negative");
    let negative = Datatype::indexed(&[1, -2], &[0, 1], &int());
    assert_eq!(message(negative), "array_of_blocklengths[1] is -2, but must not be negative");
    let uneven = Datatype::create_struct(&[1, 1], &[0], &[int()]);
    assert_eq!(message(uneven), "array_of_displacements has 1 entries where 2 are needed");
    let outside = Datatype::subarray(&[4, 4], &[2, 2], &[0, 3], ArrayOrder::C, &int());
    assert_eq!(message(outside), "array_of_starts[1] is 3, but must be from 0 to 2");
    assert_eq!(
        message(Datatype::f90_integer(40)),
        "no supported type has decimal precision None and exponent range Some(40)"
    );
}

#[test]
fn what_does_not_fit_64_bits_is_refused() -> Result<(), TypeError> {
    let overflow = |made: Made| matches!(made, Err(TypeError::Overflow { .. }));
    assert!(overflow(Datatype::contiguous(i64::MAX, &int())));
    assert!(overflow(Datatype::vector(3, 1, i64::MAX, &int())));
    assert!(
        overflow(Datatype::vector(0, i64::MAX, 1, &int())),
        "a block that does not fit, though there is none of it"
    );
    let nothing = Datatype::vector(i64::MAX, 0, i64::MAX / 4, &int());
    assert!(nothing.is_ok_and(|nothing| nothing.size() == 0), "as many empty blocks as one likes");
    assert!(overflow(Datatype::hvector(3, 1, i64::MAX, &int())));
    assert!(overflow(Datatype::hindexed(&[1, 1], &[i64::MIN, i64::MAX - 4], &int())));
    assert!(overflow(Datatype::hindexed(&[1], &[i64::MAX], &int())));
    assert!(overflow(Datatype::resized(i64::MAX, 1, &int())));
    let backward = Datatype::resized(0, i64::MIN, &int())?;
    assert!(overflow(Datatype::hindexed(&[2], &[1 << 62], &backward)));
    let overlapping = Datatype::hvector(1 << 40, 1, 0, &double())?;
    assert!(overflow(Datatype::hvector(1 << 40, 1, 0, &overlapping)));
    let sizes = [1 << 21; 3];
    assert!(overflow(Datatype::subarray(&sizes, &[1; 3], &[0; 3], ArrayOrder::C, &double())));
    assert!(Datatype::vector(1, 4, i64::MAX, &int()).is_ok());
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of levels, and no pointer into memory")]
fn nesting_has_a_limit_and_long_chains_are_freed() -> Result<(), TypeError> {
    let mut chain = int();
    for _ in 0..100_000 {
        chain = Datatype::dup(&chain)?;
    }
    assert_eq!(chain.size(), 4);
    drop(chain);
    // Twenty numbers at no regular distance, behind the nest so far.
    let places: Vec<i64> = (0..21).map(|place| place * place * 8).collect();
    let mut nest = Datatype::vector(2, 1, 3, &int())?;
    for _ in 0..1000 {
        let mut types = vec![int(); 21];
        types[7] = nest;
        match Datatype::create_struct(&[1; 21], &places, &types) {
            Ok(next) => nest = next,
            Err(error) => {
                assert_eq!(error, TypeError::TooDeep { depth: 257, depth_max: 256 });
                return Ok(());
            }
        }
    }
    panic!("a type of 1000 levels was made");
}

#[test]
fn a_distributed_array_is_checked() {
    let array = Darray {
        size: 6,
        rank: 5,
        gsizes: vec![10, 9],
        distributions: vec![Distribution::Block, Distribution::Cyclic],
        dargs: vec![5, DISTRIBUTE_DEFAULT_ARGUMENT],
        psizes: vec![2, 3],
        order: ArrayOrder::C,
    };
    let made = |change: &dyn Fn(&mut Darray)| {
        let mut array = array.clone();
        change(&mut array);
        Datatype::darray(&array, &int())
    };
    assert_eq!(made(&|_| ()).map(|datatype| (datatype.size(), datatype.extent())), Ok((60, 360)));
    assert_eq!(message(made(&|array| array.rank = 6)), "rank is 6, but must be from 0 to 5");
    assert_eq!(message(made(&|array| array.psizes[0] = 3)), "array_of_psizes multiplies to 9, but size is 6");
    let small = "array_of_dargs[0] is 4: 4 x 2 processes do not cover 10 elements";
    assert_eq!(message(made(&|array| array.dargs[0] = 4)), small);
    let not_dealt = "array_of_psizes[1] is 3, but must be from 1 to 1";
    assert_eq!(message(made(&|array| array.distributions[1] = Distribution::None)), not_dealt);
}

#[test]
fn large_count_calls_give_large_counts_back() -> Result<(), TypeError> {
    let check = |made: Arc<Datatype>, integers: &[i64], large_counts: &[i64]| {
        made.declare_large_count();
        let contents = made.contents();
        assert_eq!((&*contents.integers, &*contents.large_counts), (integers, large_counts));
        assert!(contents.addresses.is_empty());
        assert_eq!(made.envelope().large_counts, large_counts.len());
    };
    check(Datatype::contiguous(3, &int())?, &[], &[3]);
    check(Datatype::hvector(2, 3, 40, &int())?, &[], &[2, 3, 40]);
    check(Datatype::hindexed(&[1, 2], &[8, 16], &int())?, &[], &[2, 1, 2, 8, 16]);
    check(Datatype::resized(-4, 8, &int())?, &[], &[-4, 8]);
    check(Datatype::subarray(&[5, 6], &[1, 2], &[3, 4], ArrayOrder::C, &int())?, &[2, 12], &[5, 6, 1, 2, 3, 4]);
    Ok(())
}

#[test]
fn what_a_type_was_made_of_is_told() -> Result<(), TypeError> {
    let rows = Datatype::vector(2, 1, 3, &int())?;
    let made = Datatype::create_struct(&[1, 2], &[0, 16], &[double(), rows.clone()])?;
    let parts = made.contents().datatypes;
    assert_eq!(parts.iter().map(|part| part.as_basic()).collect::<Vec<_>>(), [Some(Basic::Double), None]);
    assert!(Arc::ptr_eq(&parts[1], &rows), "a derived type is the same object");
    assert_eq!(rows.contents().datatypes[0].as_basic(), Some(Basic::Int));
    let dup = Datatype::dup(&int())?;
    let of_dup = Datatype::contiguous(2, &dup)?.contents();
    assert!(Arc::ptr_eq(&of_dup.datatypes[0], &dup), "a duplicate of a named type is a derived one");
    Ok(())
}

#[test]
fn names_flags_and_predefined_types() -> Result<(), TypeError> {
    let int = int();
    assert_eq!((int.name().as_str(), int.is_committed(), int.is_predefined()), ("MPI_INT", true, true));
    assert_eq!(int.envelope().combiner, Combiner::Named);
    let new = Datatype::contiguous(2, &int)?;
    assert_eq!((new.name().as_str(), new.is_committed(), new.is_predefined()), ("", false, false));
    new.commit();
    new.set_name("a pair");
    let copy = Datatype::dup(&new)?;
    assert_eq!((new.name().as_str(), copy.name().as_str(), copy.is_committed()), ("a pair", "", true));
    let real = Datatype::f90_real(Some(15), None)?;
    assert_eq!((real.size(), real.combiner(), real.is_predefined()), (8, Combiner::F90Real, true));
    assert_eq!(real.contents().integers, [15, -32766]);
    assert_eq!(Datatype::f90_complex(Some(6), Some(37))?.size(), 8);
    assert_eq!(Datatype::f90_integer(9)?.size(), 4);
    assert!(Datatype::f90_real(None, None).is_err());
    Ok(())
}

#[test]
fn a_lent_datatype_is_counted_by_clones_alone() -> Result<(), TypeError> {
    let numbers = [1i32, 2, 3, 4, 5, 6];
    let packed_of = |buf: &SendBuf| {
        let mut packed = [0; 8];
        assert_eq!(buf.pack_at(0, &mut packed), 8);
        bytemuck::cast::<_, [i32; 2]>(packed)
    };
    for datatype in [Datatype::vector(2, 1, 3, &int())?, Datatype::contiguous(2, &int())?] {
        let uses = Arc::strong_count(&datatype);
        let (clone, slice, packed) = {
            // SAFETY: all elements lie in the numbers, which nobody writes to.
            let lent = unsafe { LentSendBuf::new(numbers.as_ptr().cast(), 1, &datatype) };
            assert_eq!(Arc::strong_count(&datatype), uses);
            (lent.clone(), lent.slice(4, 4), packed_of(&lent))
        };
        assert_eq!(packed_of(&clone), packed, "it holds what the lent one held");
        drop((clone, slice));
        assert_eq!(Arc::strong_count(&datatype), uses, "and no more");
    }
    Ok(())
}

#[test]
fn absolute_addresses_count_from_the_bottom() -> Result<(), TypeError> {
    let mut numbers = [1i32, 2, 3, 4];
    let address = |index: usize| (&raw const numbers[index]).expose_provenance() as i64;
    let scattered = Datatype::hindexed(&[1, 2], &[address(3), address(0)], &int())?;
    let single = Datatype::hindexed(&[1], &[address(1)], &int())?;
    // SAFETY: the displacements are the addresses of live numbers.
    let memory = unsafe { UserMemoryMut::new(std::ptr::null_mut()) };
    let mut packed = [0; 12];
    assert_eq!(memory.send(0, 1, &scattered).pack_at(0, &mut packed), 12);
    assert_eq!(bytemuck::cast::<_, [i32; 3]>(packed), [4, 1, 2]);
    assert_eq!(memory.recv(0, 1, &single).unpack_at(0, &9i32.to_ne_bytes()), 4);
    assert_eq!(std::hint::black_box(&mut numbers), &[1, 9, 3, 4]);
    Ok(())
}

#[test]
fn owned_bytes_come_back() {
    let mut buffer = RecvBuf::from_owned(vec![0; 5].into());
    assert_eq!(buffer.unpack_at(2, &[7; 9]), 3);
    let reader = buffer.reader();
    assert_eq!(reader.as_contiguous(), Some(&[0, 0, 7, 7, 7][..]));
    drop(reader);
    assert_eq!(buffer.into_owned().as_deref(), Some(&[0, 0, 7, 7, 7][..]));
    assert_eq!(SendBuf::empty().as_contiguous(), Some(&[][..]));
    assert_eq!(RecvBuf::empty().contiguous_mut(), Some(&mut [][..]));
}
