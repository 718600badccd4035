//! Memory of one's own: for one stream, for all, and in declared order.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::cell::RefCell;
use std::rc::Rc;

use scratchpool::{Constant, Device, Error, Host, HostSlice, Persistent, Tensor};

#[test]
fn tensors_refuse_shapes_that_overflow_and_values_that_do_not_fit() {
    let host = Host::in_order();
    let stream = host.create_stream("main").unwrap();
    let huge = Tensor::<f32, _, 2>::new(&host, &stream, [usize::MAX, 2]);
    assert!(matches!(huge.unwrap_err(), Error::Overflow { .. }));
    let few = Tensor::from_values(&host, &stream, [3], &[1.0_f32]);
    assert_eq!(few.unwrap_err().to_string(), "1 values were given for 3 elements");
}

#[test]
fn a_constant_is_read_on_every_stream_and_by_nobody_while_it_is_replaced() {
    for seed in 0..20 {
        let host = Host::random(seed);
        let streams = ["main", "aux"].map(|name| host.create_stream(name).unwrap());
        let mut table = Constant::new(&host, &streams[0], [2, 3], &[0_u32; 6]).unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for value in 1..4 {
            table.replace(&streams[1], &[value; 6]).unwrap();
            for stream in &streams {
                let (seen, argument) = (Rc::clone(&seen), table.on(stream).unwrap());
                let note = move |all: HostSlice<'_, u32, 2>| {
                    seen.borrow_mut().push((all.shape(), all.row(1).to_vec()));
                };
                stream.launch(argument, note).unwrap();
            }
        }
        // Dropped with launches still queued.
        drop(table);
        host.synchronize().unwrap();
        let expected = [1, 1, 2, 2, 3, 3].map(|value| ([2, 3], vec![value; 3]));
        assert_eq!(*seen.borrow(), expected, "seed {seed}");
    }
}

#[test]
fn memory_of_ones_own_is_refused_on_another_devices_stream() {
    let (host, other) = (Host::in_order(), Host::in_order());
    let (stream, foreign) =
        (host.create_stream("main").unwrap(), other.create_stream("main").unwrap());
    let mut constant = Constant::new(&host, &stream, [2], &[1.0_f32; 2]).unwrap();
    let mut cache = Persistent::<f32, _, 1>::new(&host, [2]).unwrap();
    let is_foreign = |error: Option<Error>| assert!(matches!(error, Some(Error::ForeignMemory)));
    is_foreign(Constant::new(&host, &foreign, [2], &[1.0_f32; 2]).err());
    is_foreign(Tensor::<f32, _, 1>::new(&host, &foreign, [2]).err());
    is_foreign(Tensor::from_values(&host, &foreign, [2], &[1.0_f32; 2]).err());
    is_foreign(constant.on(&foreign).err());
    is_foreign(constant.replace(&foreign, &[2.0; 2]).err());
    // SAFETY: nothing is launched with it.
    is_foreign(unsafe { cache.on(&foreign) }.err());
    // SAFETY: as above.
    is_foreign(unsafe { cache.on_mut(&foreign) }.err());
    is_foreign(cache.to_vec(&foreign).err());
    is_foreign(cache.fill_from(&foreign, &[2.0; 2]).err());
    assert!(cache.fill_from(&stream, &[2.0; 3]).is_err());
    cache.fill_from(&stream, &[2.0; 2]).unwrap();
    assert_eq!(cache.to_vec(&stream).unwrap(), [2.0; 2]);
    let view = constant.on(&stream).unwrap();
    assert_eq!(view.to_vec(&host).unwrap(), [1.0; 2]);
    is_foreign(view.to_vec(&other).err());
    let mut tensor = Tensor::<f32, _, 1>::new(&host, &stream, [2]).unwrap();
    is_foreign(tensor.view_mut().fill_from(&other, &[3.0; 2]).err());
    assert_eq!(tensor.to_vec().unwrap(), [0.0; 2]);
}

#[test]
fn rows_of_arguments_are_cut_alike_for_reading_and_writing() {
    let host = Host::in_order();
    let stream = host.create_stream("main").unwrap();
    let mut cache = Persistent::<u32, _, 2>::new(&host, [4, 2]).unwrap();
    // SAFETY: all that touches it is given to one stream.
    let rows = unsafe { cache.on_mut(&stream) }.unwrap().slice_rows(1..3).unwrap();
    stream
        .launch(rows, |mut rows| {
            assert_eq!((rows.shape(), rows.len()), ([2, 2], 4));
            rows.row_mut(1).fill(5);
        })
        .unwrap();
    assert_eq!(cache.to_vec(&stream).unwrap(), [0, 0, 0, 0, 5, 5, 0, 0]);
    // SAFETY: as above.
    let all = unsafe { cache.on(&stream) }.unwrap();
    assert_eq!(all.slice_rows(2..3).unwrap().address(), all.address() + 2 * 2 * 4);
    assert!(all.slice_rows(3..5).is_err());
}
