//! What the tests of kernels share: random inputs, and memory with guards around every output.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a test's helper may fail the test"
)]

pub mod cases;
pub mod pooled;

use scratchpool::{Device, Element, bf16};
use scratchpool_kernels::{Error, In, Kernels, Out, Tensor};

/// A device, its kernels and a stream.
pub struct Rig<D: Device, K: Kernels<D>> {
    pub device: D,
    pub kernels: K,
    pub stream: D::Stream,
    /// What is done around every launch: nothing, or a capture and a replay.
    pub around: fn(&D::Stream, &mut dyn FnMut()),
}

impl<D: Device, K: Kernels<D>> Rig<D, K> {
    pub fn new(device: D, kernels: K) -> Self {
        let stream = device.create_stream("main").unwrap();
        Self { device, kernels, stream, around: |_, launch| launch() }
    }

    pub fn launch(&self, launch: impl FnOnce(&K, &D::Stream) -> Result<(), Error>) {
        let mut launch = Some(launch);
        (self.around)(&self.stream, &mut || {
            let launch = launch.take().unwrap();
            launch(&self.kernels, &self.stream).unwrap();
        });
        assert!(launch.is_none());
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

/// Memory for outputs: each at an odd multiple of 16 bytes, poison before, between and behind.
#[derive(Clone)]
pub struct Arena {
    pub bytes: Vec<u8>,
}

pub const POISON: u8 = 0xA5;

impl Arena {
    pub fn new() -> Self {
        Self { bytes: vec![POISON; 48] }
    }

    /// Room for `len` elements; gives its offset.
    pub fn room<T: Element>(&mut self, len: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(32) + 16;
        self.bytes.resize(at + len * size_of::<T>(), POISON);
        let end = self.bytes.len();
        self.bytes.resize(end + 64, POISON);
        at
    }

    /// Room for values that are there before.
    pub fn room_for(&mut self, bytes: &[u8]) -> usize {
        let at = self.room::<u8>(bytes.len());
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        at
    }
}

/// A part of an arena as an output.
///
/// # Safety
///
/// Parts in use at the same time do not overlap.
pub unsafe fn part<'a, T: Element, D: Device, const R: usize>(
    arena: &'a mut Tensor<'_, u8, D, 1>,
    at: usize,
    shape: [usize; R],
) -> Out<'a, T, D, R> {
    let mut whole = arena.view_mut();
    let start = whole.as_mut_ptr().wrapping_add(at).cast::<T>();
    let stream = whole.stream();
    // SAFETY: `room` made it fit and aligned; disjoint by the caller's promise.
    unsafe { core::mem::transmute(Out::<'_, T, D, R>::from_raw_parts(start, shape, stream)) }
}

/// A part of an arena as an input.
///
/// # Safety
///
/// Nothing writes it at the same time.
pub unsafe fn part_in<'a, T: Element, D: Device, const R: usize>(
    arena: &'a Tensor<'_, u8, D, 1>,
    at: usize,
    shape: [usize; R],
) -> In<'a, T, D, R> {
    let whole = arena.view();
    let start = whole.as_ptr().wrapping_add(at).cast::<T>();
    // SAFETY: `room` made it fit and aligned.
    unsafe { In::from_raw_parts(start, shape, whole.stream()) }
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
