//! What the tests of kernels share: random inputs, and where a case's outputs are.
//!
//! A case runs on a [`Bench`], and what it writes is a [`Memory`]: poisoned before, and read back whole, with
//! what lies around it. The same case runs guarded, in the allocating form, and in a pool's views.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "a test's helper may fail the test"
)]

pub mod arguments;
pub mod cases;
pub mod pooled;
pub mod prefill;

use std::cell::RefCell;
use std::fmt;

use scratchpool::{Device, Element, Tensor, View, ViewMut, bf16};
use scratchpool_kernels::{Error, Kernels};

/// Where outputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In memory of their own, at an odd multiple of 16 bytes, with poison on both sides.
    Guarded,
    /// Where the allocating form puts them.
    Allocated,
    /// In a pool's views, as far as a pool holds such; the caches guarded.
    Pool,
}

/// A device, its kernels and a stream.
pub struct Rig<D: Device, K: Kernels<D>> {
    pub device: D,
    pub kernels: K,
    pub stream: D::Stream,
    /// What is done around every launch: nothing, or a capture and a replay.
    pub around: fn(&D::Stream, &mut dyn FnMut()),
    /// Where outputs are.
    pub place: Place,
    /// What is in an output before, and around it.
    pub poison: u8,
}

impl<D: Device, K: Kernels<D>> Rig<D, K> {
    pub fn new(device: D, kernels: K) -> Self {
        let stream = device.create_stream("main").unwrap();
        let around = |_: &_, launch: &mut dyn FnMut()| launch();
        Self { device, kernels, stream, around, place: Place::Guarded, poison: POISON }
    }

    pub fn load<T: Element, const R: usize>(
        &self,
        shape: [usize; R],
        values: &[T],
    ) -> Tensor<'_, T, D, R> {
        Tensor::from_values(&self.device, &self.stream, shape, values).unwrap()
    }
}

/// A small random generator: `SplitMix64`.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap()
    }

    /// In -1..1, a sum of three, so that it thins out towards the ends.
    pub fn unit(&mut self) -> f32 {
        let bits = self.next();
        let part =
            |shift: u32| f32::from(u16::try_from(bits >> shift & 0xffff).unwrap()) / 32768.0 - 1.0;
        (part(0) + part(16) + part(32)) / 3.0
    }

    pub fn floats(&mut self, n: usize, magnitude: f32) -> Vec<f32> {
        (0..n).map(|_| self.unit() * magnitude).collect()
    }

    pub fn bf16s(&mut self, n: usize, magnitude: f32) -> Vec<bf16> {
        (0..n).map(|_| bf16::from_f32(self.unit() * magnitude)).collect()
    }

    /// Rows of `width` of very different magnitudes; some all zero, some with one special element.
    pub fn wild_rows(&mut self, rows: usize, width: usize) -> Vec<bf16> {
        const MAGNITUDES: [f32; 9] = [0.0, 1e-40, 1e-30, 1e-5, 0.02, 1.0, 448.0, 1e4, 1e30];
        const SPECIAL: [f32; 6] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 448.0, -0.0, 3e38];
        let mut values = Vec::with_capacity(rows * width);
        for _ in 0..rows {
            let magnitude = MAGNITUDES[self.below(MAGNITUDES.len())];
            let from = values.len();
            values.extend(self.bf16s(width, magnitude));
            if self.below(8) == 0 {
                let special = SPECIAL[self.below(SPECIAL.len())];
                values[from + self.below(width)] = bf16::from_f32(special);
            }
        }
        values
    }

    /// The same in f32, with scores of a softmax in mind: a few infinite below.
    pub fn wild_floats(&mut self, rows: usize, width: usize) -> Vec<f32> {
        const SPECIAL: [f32; 4] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0];
        let mut values = Vec::with_capacity(rows * width);
        for _ in 0..rows {
            let magnitude = [0.0, 1e-40, 1e-30, 1e-5, 1.0, 448.0, 1e4, 1e30][self.below(8)];
            let from = values.len();
            values.extend(self.floats(width, magnitude));
            match self.below(8) {
                0 => values[from + self.below(width)] = SPECIAL[self.below(SPECIAL.len())],
                1 => values[from..].fill(f32::NEG_INFINITY),
                _ => {}
            }
        }
        values
    }

    /// One of a few.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Different slots, shuffled, a few of them replaced by ones that are no entry.
    pub fn slots(&mut self, n: usize, capacity: usize, bad: bool) -> Vec<i64> {
        let mut all: Vec<i64> = (0..i64::try_from(capacity).unwrap()).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, self.below(i + 1));
        }
        all.truncate(n);
        let beyond = i64::try_from(capacity).unwrap();
        if bad {
            for slot in &mut all {
                match self.below(16) {
                    0 => *slot = -1,
                    1 => *slot = beyond,
                    2 => *slot = i64::MAX,
                    _ => {}
                }
            }
        }
        all
    }
}

/// A table of `max_pos` rows with the plain frequencies.
pub fn rope_table(max_pos: usize) -> Vec<f32> {
    let mut table = Vec::with_capacity(max_pos * 64);
    for position in 0..u32::try_from(max_pos).unwrap() {
        let angle = |pair: u32| f64::from(position) * 10_000_f64.powf(-f64::from(pair) / 32.0);
        table.extend((0..32).map(|pair| angle(pair).cos() as f32));
        table.extend((0..32).map(|pair| angle(pair).sin() as f32));
    }
    table
}

pub const POISON: u8 = 0xA5;

/// What a case wrote: each output's bytes, by name.
#[derive(Clone, Debug, Default)]
pub struct Outcome(pub Vec<(&'static str, Vec<u8>)>);

impl Outcome {
    pub fn get(&self, name: &str) -> &[u8] {
        &self.0.iter().find(|(each, _)| *each == name).unwrap().1
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// One launch, or a few that belong together, with inputs of its own.
pub trait Case: fmt::Debug {
    /// Rows of what it writes into a pool.
    fn tokens(&self) -> usize;

    /// The buffers that it needs of a pool.
    fn shapes(&self) -> pooled::Shapes;

    /// Runs it.
    fn body<D: Device, K: Kernels<D>>(&self, bench: &Bench<'_, D, K>) -> Outcome;

    /// Compares with the reference: byte for byte where nothing else is said. Gives the largest error, of
    /// what is allowed.
    fn compare(&self, reference: &Outcome, found: &Outcome) -> f64 {
        same(self, reference, found);
        0.0
    }

    fn run<D: Device, K: Kernels<D>>(&self, rig: &Rig<D, K>) -> Outcome {
        match rig.place {
            Place::Pool => pooled::in_a_pool(rig, self),
            Place::Guarded | Place::Allocated => {
                self.body(&Bench { rig, stream: &rig.stream, views: RefCell::default() })
            }
        }
    }
}

/// Byte for byte.
pub fn same(case: &(impl fmt::Debug + ?Sized), reference: &Outcome, found: &Outcome) {
    assert_eq!(reference.0.len(), found.0.len());
    for ((name, reference), (_, found)) in reference.0.iter().zip(&found.0) {
        assert_same(&format!("{case:?}: {name}"), reference, found);
    }
}

/// Some rows of a pool's buffer.
pub struct PoolView {
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    /// Where the buffer starts.
    pub start: *mut u8,
    /// Bytes from there to the rows, and bytes of all rows that the buffer has.
    pub before: usize,
    pub room: usize,
}

/// Where a case runs.
pub struct Bench<'b, D: Device, K: Kernels<D>> {
    pub rig: &'b Rig<D, K>,
    /// The stream of all arguments: the rig's, or the pool's.
    pub stream: &'b D::Stream,
    /// A pool's views that no output has taken yet.
    pub views: RefCell<Vec<PoolView>>,
}

impl<'b, D: Device, K: Kernels<D>> Bench<'b, D, K> {
    pub fn launch(&self, launch: impl FnOnce(&K, &D::Stream) -> Result<(), Error>) {
        let mut launch = Some(launch);
        (self.rig.around)(self.stream, &mut || {
            let launch = launch.take().unwrap();
            launch(&self.rig.kernels, self.stream).unwrap();
        });
        assert!(launch.is_none());
    }

    /// An input.
    pub fn load<T: Element, const R: usize>(
        &self,
        shape: [usize; R],
        values: &[T],
    ) -> Tensor<'b, T, D, R> {
        Tensor::from_values(&self.rig.device, self.stream, shape, values).unwrap()
    }

    /// What an argument holds.
    pub fn read<T: Element, const R: usize>(&self, view: View<'_, T, D, R>) -> Vec<u8> {
        let mut bytes = vec![0; view.len() * size_of::<T>()];
        // SAFETY: the argument is live and of this many bytes.
        unsafe {
            self.rig.device.read_bytes(self.stream, view.as_ptr().cast(), &mut bytes).unwrap();
        }
        bytes
    }

    /// An output that a pool can hold, poisoned; `allocate` is its allocating form.
    pub fn out<T: Element, const R: usize>(
        &self,
        shape: [usize; R],
        allocate: impl FnOnce(&D, &'b D::Stream) -> Result<Tensor<'b, T, D, R>, scratchpool::Error>,
    ) -> Memory<'b, T, D, R> {
        match self.rig.place {
            Place::Guarded => self.guarded(shape, &[]),
            Place::Allocated => self.allocated(allocate(&self.rig.device, self.stream).unwrap()),
            Place::Pool => {
                let mut views = self.views.borrow_mut();
                let fits = |view: &PoolView| view.dtype == T::DTYPE.as_str() && view.shape == shape;
                let at = views.iter().position(fits).unwrap_or_else(|| panic!("no {shape:?}"));
                let view = views.remove(at);
                self.memory(Owner::Pool(view.start), shape, view.before, view.room)
            }
        }
    }

    /// An output of an allocating form.
    pub fn allocated<T: Element, const R: usize>(
        &self,
        tensor: Tensor<'b, T, D, R>,
    ) -> Memory<'b, T, D, R> {
        let (shape, bytes) = (tensor.view().shape(), tensor.view().len() * size_of::<T>());
        let memory = self.memory(Owner::Allocated(tensor), shape, 0, bytes);
        memory.write(&vec![self.rig.poison; bytes]);
        memory
    }

    /// Memory that outlives launches, such as a cache, with what is in it before; poisoned, if that
    /// is nothing.
    pub fn kept<T: Element, const R: usize>(
        &self,
        shape: [usize; R],
        values: &[T],
    ) -> Memory<'b, T, D, R> {
        if self.rig.place != Place::Allocated {
            return self.guarded(shape, values);
        }
        let memory = self.allocated(Tensor::new(&self.rig.device, self.stream, shape).unwrap());
        if !values.is_empty() {
            memory.write(&bytes_of(values));
        }
        memory
    }

    fn guarded<T: Element, const R: usize>(
        &self,
        shape: [usize; R],
        values: &[T],
    ) -> Memory<'b, T, D, R> {
        const BEFORE: usize = 48;
        let len = shape.iter().product::<usize>() * size_of::<T>();
        let mut bytes = vec![self.rig.poison; BEFORE + len + 64];
        if !values.is_empty() {
            bytes[BEFORE..BEFORE + len].copy_from_slice(&bytes_of(values));
        }
        let whole = self.load([bytes.len()], &bytes);
        self.memory(Owner::Guarded(whole), shape, BEFORE, bytes.len())
    }

    fn memory<T: Element, const R: usize>(
        &self,
        owner: Owner<'b, T, D, R>,
        shape: [usize; R],
        before: usize,
        room: usize,
    ) -> Memory<'b, T, D, R> {
        let Rig { device, poison, .. } = self.rig;
        Memory { owner, shape, before, room, device, stream: self.stream, poison: *poison }
    }
}

enum Owner<'b, T: Element, D: Device, const R: usize> {
    Guarded(Tensor<'b, u8, D, 1>),
    Allocated(Tensor<'b, T, D, R>),
    Pool(*mut u8),
}

/// What a case writes, and what lies around it.
pub struct Memory<'b, T: Element, D: Device, const R: usize> {
    owner: Owner<'b, T, D, R>,
    shape: [usize; R],
    /// Bytes in front of the elements, and bytes in all.
    before: usize,
    room: usize,
    device: &'b D,
    stream: &'b D::Stream,
    poison: u8,
}

impl<T: Element, D: Device, const R: usize> Memory<'_, T, D, R> {
    fn start(&self) -> *mut u8 {
        match &self.owner {
            Owner::Guarded(tensor) => tensor.view().as_ptr().cast_mut(),
            Owner::Allocated(tensor) => tensor.view().as_ptr().cast_mut().cast(),
            Owner::Pool(start) => *start,
        }
    }

    fn write(&self, bytes: &[u8]) {
        // SAFETY: the memory is live and has this many bytes; nothing else uses it at this time.
        unsafe { self.device.write_bytes(self.stream, self.start(), bytes).unwrap() };
    }

    /// As an output.
    pub fn out(&mut self) -> ViewMut<'_, T, D, R> {
        let start = self.start().wrapping_add(self.before).cast::<T>();
        // SAFETY: live, aligned, of this many elements, and exclusive while borrowed.
        unsafe { ViewMut::from_raw_parts(start, self.shape, self.stream) }
    }

    /// As an input of a later launch.
    pub fn view(&self) -> View<'_, T, D, R> {
        let start = self.start().wrapping_add(self.before).cast::<T>();
        // SAFETY: live, aligned, of this many elements, and not written while borrowed.
        unsafe { View::from_raw_parts(start, self.shape, self.stream) }
    }

    /// The elements' bytes. What lies around them must still be poison.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.room];
        // SAFETY: the memory is live and has this many bytes.
        unsafe { self.device.read_bytes(self.stream, self.start(), &mut all).unwrap() };
        let end = self.before + self.shape.iter().product::<usize>() * size_of::<T>();
        let around = all[..self.before].iter().chain(&all[end..]);
        assert!(around.clone().all(|byte| *byte == self.poison), "written outside of the output");
        all.truncate(end);
        all.split_off(self.before)
    }
}

/// f32 with NaN in one form: a device and a host make different ones.
pub fn canonical(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len());
    for word in bytes.chunks(4) {
        match word {
            [a, b, c, d] if f32::from_le_bytes([*a, *b, *c, *d]).is_nan() => all.extend([0xff; 4]),
            word => all.extend(word),
        }
    }
    all
}

pub fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub fn ints_of(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub fn bf16s_of(bytes: &[u8]) -> Vec<bf16> {
    bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]])).collect()
}

pub fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
    // SAFETY: elements are plain bytes without padding.
    unsafe { core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
        .to_vec()
}

/// Where two arenas differ first.
pub fn assert_same(name: &str, host: &[u8], device: &[u8]) {
    assert_eq!(host.len(), device.len(), "{name}");
    if let Some(at) = host.iter().zip(device).position(|(a, b)| a != b) {
        let count = host.iter().zip(device).filter(|(a, b)| a != b).count();
        let around = at.saturating_sub(4)..(at + 12).min(host.len());
        panic!(
            "{name}: {count} of {} bytes differ, first at {at}: reference {:02x?}, device {:02x?}",
            host.len(),
            &host[around.clone()],
            &device[around]
        );
    }
}
