//! Programmatic dependent launches: a kernel overlaps the one in front of it where its step says so and
//! nowhere else, and every order that the declaration promises holds, eagerly and in a graph.
//!
//! Each case is a **lead**, which lets its dependents start, looks for their word for so long at most,
//! dawdles, and only then writes; and a **next**, which leaves its word before anything else. So the
//! lead's own result says whether the two overlapped, and what is read too early is stale.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr;

use scratchpool::cuda::cudarc::driver::CudaFunction;
use scratchpool::cuda::cudarc::driver::sys;
use scratchpool::cuda::{CaptureMode, Cuda, Memory, Stream, nvrtc};
use scratchpool::tables::Launch;
use scratchpool::{Device, Error, ViewMut, scratch_pool};

use crate::lab::{Gpu, ONE, gpu, say};

const SOURCE: &str = r#"
typedef unsigned int u32;
typedef unsigned long long u64;

// A cell: the word of the next kernel; 1 and whether the lead met it; 1 and the stale values that were seen.
// What is written in a case of a run. Buffers share bytes, so no two cases write the same.
__device__ u32 value(const u32* tag, u32 of) { return *tag * 64 + of; }

__device__ void busy(u64 cycles) {
    long long end = clock64() + (long long)cycles;
    while (clock64() < end) {}
}

extern "C" __global__ void lead(u32* cell, const u32* tag, u32* to, u32 of, u64 patience, u64 late) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    volatile u32* word = cell;
    long long end = clock64() + (long long)patience;
    u32 met = 0;
    while (!met && clock64() < end) met = *word == *tag;
    busy(late);
    *to = value(tag, of);
    cell[1] = 1 + met;
}

__device__ void greet(u32* cell, const u32* tag) {
    *(volatile u32*)cell = *tag;
    __threadfence();
}

__device__ void look(u32* cell, const u32* tag, const u32* a, u32 of_a, const u32* b, u32 of_b, u32* to, u32 of) {
    u32 stale = 0;
    if (a) stale += *(const volatile u32*)a != value(tag, of_a);
    if (b) stale += *(const volatile u32*)b != value(tag, of_b);
    if (to) *to = value(tag, of);
    cell[2] = 1 + stale;
}

// As launched in full or early.
extern "C" __global__ void next(u32* cell, const u32* tag, const u32* a, u32 of_a, const u32* b, u32 of_b, u32* to, u32 of) {
    greet(cell, tag);
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    look(cell, tag, a, of_a, b, of_b, to, of);
}

// As launched dependent. Only its word goes ahead.
extern "C" __global__ void next_dependent(u32* cell, const u32* tag, const u32* a, u32 of_a, const u32* b, u32 of_b, u32* to, u32 of) {
    greet(cell, tag);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    look(cell, tag, a, of_a, b, of_b, to, of);
}
"#;

/// Cycles of a microsecond, about.
const CYCLES: u64 = 1_980;
/// How long a lead looks for a word that has to come, and for one that must not, in microseconds.
const PATIENT: u64 = 50_000;
const BRIEF: u64 = 300;
/// How long a lead dawdles before it writes.
const LATE: u64 = 200;
/// How often each pool's pass is run, eagerly and as a graph.
const RUNS: u32 = 20;
/// Bytes of a cell.
const CELL: u64 = 16;
/// Cells of a board.
const CELLS: usize = 12;

/// What is known of one case: whether the lead met the next, and how many stale values it saw.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    met: Option<bool>,
    stale: Option<u32>,
}

/// What kernels say to one another and to the host, in memory that is no pool's.
struct Board<'g> {
    gpu: &'g Gpu,
    memory: Memory,
    stream: Stream,
    lead: CudaFunction,
    next: CudaFunction,
    next_dependent: CudaFunction,
}

impl<'g> Board<'g> {
    fn new(gpu: &'g Gpu) -> Self {
        let module = gpu.cuda.compile(SOURCE).unwrap();
        let kernel = |name| gpu.cuda.kernel(&module, name).unwrap();
        Self {
            gpu,
            memory: gpu.cuda.allocate(CELL * (1 + CELLS as u64), 256).unwrap(),
            stream: gpu.cuda.create_stream("board").unwrap(),
            lead: kernel("lead"),
            next: kernel("next"),
            next_dependent: kernel("next_dependent"),
        }
    }

    fn tag(&self) -> u64 {
        Cuda::base(&self.memory).addr() as u64
    }

    fn cell(&self, case: usize) -> u64 {
        assert!(case < CELLS);
        self.tag() + CELL * (1 + case as u64)
    }

    /// Wipes the board and sets the tag of the next run.
    fn start(&self, tag: u32) {
        let mut words = vec![0_u32; 4 * (1 + CELLS)];
        words[0] = tag;
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        self.gpu.cuda.synchronize().unwrap();
        // SAFETY: the board's own bytes, when nothing is in flight.
        unsafe { self.gpu.cuda.write_bytes(&self.stream, Cuda::base(&self.memory), &bytes) }
            .unwrap();
    }

    /// Waits for the run, and reads the board.
    fn seen<const N: usize>(&self) -> [Seen; N] {
        self.gpu.cuda.synchronize().unwrap();
        let mut bytes = vec![0; CELL as usize * (1 + CELLS)];
        // SAFETY: the board's own bytes, when nothing is in flight.
        unsafe { self.gpu.cuda.read_bytes(&self.stream, Cuda::base(&self.memory), &mut bytes) }
            .unwrap();
        let words: Vec<u32> =
            bytes.chunks(4).map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect();
        std::array::from_fn(|case| {
            let cell = &words[4 * (1 + case)..];
            Seen { met: cell[1].checked_sub(1).map(|met| met > 0), stale: cell[2].checked_sub(1) }
        })
    }

    fn lead(&self, case: usize, to: ViewMut<'_, u32, Gpu, 1>, patience: u64) -> Result<(), Error> {
        // SAFETY: the view's own word, on its own stream.
        unsafe { self.lead_raw(to.stream(), case, to.address(), patience) }
    }

    /// # Safety
    ///
    /// The word is the stream's step's to write.
    unsafe fn lead_raw(
        &self,
        stream: &Stream,
        case: usize,
        to: u64,
        patience: u64,
    ) -> Result<(), Error> {
        let (cell, tag) = (self.cell(case), self.tag());
        let (of, patience, late) = (case as u32, patience * CYCLES, LATE * CYCLES);
        let call = stream.kernel(&self.lead).arg(&cell).arg(&tag).arg(&to).arg(&of);
        // SAFETY: the kernel takes these six; it touches the board and the caller's word.
        unsafe { call.arg(&patience).arg(&late).launch(ONE) }
    }

    /// Reads up to two words, each with the case that writes it, and writes one.
    ///
    /// # Safety
    ///
    /// The words are the stream's step's to read and to write, or 0. The function is `next`, or, in a
    /// step that is declared dependent, `next_dependent`.
    unsafe fn next(
        &self,
        function: &CudaFunction,
        stream: &Stream,
        case: usize,
        [a, b]: [(u64, usize); 2],
        to: u64,
    ) -> Result<(), Error> {
        let (cell, tag, of) = (self.cell(case), self.tag(), case as u32);
        let (of_a, of_b) = (a.1 as u32, b.1 as u32);
        let call = stream.kernel(function).arg(&cell).arg(&tag);
        let call = call.arg(&a.0).arg(&of_a).arg(&b.0).arg(&of_b).arg(&to).arg(&of);
        // SAFETY: the kernel takes these eight; it touches the board and the caller's words. What goes
        // ahead of the kernel in front of it is its word on the board, which is made for that.
        unsafe { call.launch(ONE) }
    }
}

/// No word to read.
const NONE: (u64, usize) = (0, 0);

/// Every kind of launch behind a lead, and behind a lead and an empty step of every kind.
#[scratch_pool(align = 256)]
#[step(full_lead, writes(full_x))]
#[step(full_next, reads(full_x))]
#[step(dependent_lead, writes(dependent_x))]
#[step(dependent_next, launch = dependent, reads(dependent_x))]
#[step(early_lead, writes(early_x))]
#[step(early_next, launch = early, writes(early_y))]
#[step(early_check, reads(early_x, early_y))]
#[step(behind_full_lead, writes(behind_full_x))]
#[step(behind_full_empty)]
#[step(behind_full_next, launch = dependent, reads(behind_full_x))]
#[step(behind_dependent_lead, writes(behind_dependent_x))]
#[step(behind_dependent_empty, launch = dependent)]
#[step(behind_dependent_next, launch = early, reads(behind_dependent_x))]
#[step(behind_early_lead, writes(behind_early_x))]
#[step(behind_early_empty, launch = early)]
#[step(behind_early_next, launch = dependent, writes(behind_early_y))]
#[step(behind_early_check, reads(behind_early_x, behind_early_y))]
pub struct Kinds {
    /// Read in full.
    #[group(full_x)]
    #[shape(1)]
    pub full_x: u32,
    /// Read by a dependent kernel.
    #[group(dependent_x)]
    #[shape(1)]
    pub dependent_x: u32,
    /// Not to be touched by the early kernel.
    #[group(early_x)]
    #[shape(1)]
    pub early_x: u32,
    /// What the early kernel writes.
    #[group(early_y)]
    #[shape(1)]
    pub early_y: u32,
    /// Read by a dependent kernel behind an empty full step.
    #[group(behind_full_x)]
    #[shape(1)]
    pub behind_full_x: u32,
    /// Read by an early kernel behind an empty dependent step, which comes after the write.
    #[group(behind_dependent_x)]
    #[shape(1)]
    pub behind_dependent_x: u32,
    /// Not to be touched behind an empty early step.
    #[group(behind_early_x)]
    #[shape(1)]
    pub behind_early_x: u32,
    /// What the dependent kernel behind an empty early step writes.
    #[group(behind_early_y)]
    #[shape(1)]
    pub behind_early_y: u32,
}

/// The cases of [`Kinds`]; the last two are checks behind the early ones.
const KINDS: [&str; 8] = [
    "full",
    "dependent",
    "early",
    "behind full",
    "behind dependent",
    "behind early",
    "check early",
    "check behind early",
];

/// One pass of [`Kinds`].
fn kinds(board: &Board<'_>, layer: &mut kinds::Layer<'_, Gpu>) -> Result<(), Error> {
    board.lead(0, layer.full_lead()?.buffers().full_x, BRIEF)?;
    let mut step = layer.full_next()?;
    let x = step.buffers().full_x;
    // SAFETY: here and below, views of the very step, with the kernel for its kind.
    unsafe { board.next(&board.next, x.stream(), 0, [(x.address(), 0), NONE], 0) }?;
    drop(step);

    board.lead(1, layer.dependent_lead()?.buffers().dependent_x, PATIENT)?;
    let mut step = layer.dependent_next()?;
    let x = step.buffers().dependent_x;
    // SAFETY: see above.
    unsafe { board.next(&board.next_dependent, x.stream(), 1, [(x.address(), 1), NONE], 0) }?;
    drop(step);

    board.lead(2, layer.early_lead()?.buffers().early_x, PATIENT)?;
    let mut step = layer.early_next()?;
    let y = step.buffers().early_y;
    // SAFETY: see above.
    unsafe { board.next(&board.next, y.stream(), 2, [NONE; 2], y.address()) }?;
    drop(step);
    let mut step = layer.early_check()?;
    let read = step.buffers();
    let words = [(read.early_x.address(), 2), (read.early_y.address(), 2)];
    // SAFETY: see above.
    unsafe { board.next(&board.next, step.stream(), 6, words, 0) }?;
    drop(step);

    board.lead(3, layer.behind_full_lead()?.buffers().behind_full_x, BRIEF)?;
    drop(layer.behind_full_empty()?);
    let mut step = layer.behind_full_next()?;
    let x = step.buffers().behind_full_x;
    // SAFETY: see above.
    unsafe { board.next(&board.next_dependent, x.stream(), 3, [(x.address(), 3), NONE], 0) }?;
    drop(step);

    board.lead(4, layer.behind_dependent_lead()?.buffers().behind_dependent_x, BRIEF)?;
    drop(layer.behind_dependent_empty()?);
    let mut step = layer.behind_dependent_next()?;
    let x = step.buffers().behind_dependent_x;
    // SAFETY: see above.
    unsafe { board.next(&board.next, x.stream(), 4, [(x.address(), 4), NONE], 0) }?;
    drop(step);

    board.lead(5, layer.behind_early_lead()?.buffers().behind_early_x, PATIENT)?;
    drop(layer.behind_early_empty()?);
    let mut step = layer.behind_early_next()?;
    let y = step.buffers().behind_early_y;
    // SAFETY: see above.
    unsafe { board.next(&board.next_dependent, y.stream(), 5, [NONE; 2], y.address()) }?;
    drop(step);
    let mut step = layer.behind_early_check()?;
    let read = step.buffers();
    let words = [(read.behind_early_x.address(), 5), (read.behind_early_y.address(), 5)];
    // SAFETY: see above.
    unsafe { board.next(&board.next, step.stream(), 7, words, 0) }
}

/// How often leads met their next, and all that was stale or did not run at all, by case.
fn tally<const N: usize>(names: [&'static str; N], runs: &[[Seen; N]]) -> [(u32, u32); N] {
    let mut all = [(0, 0); N];
    for run in runs {
        for (case, (seen, sum)) in run.iter().zip(&mut all).enumerate() {
            sum.0 += u32::from(seen.met == Some(true));
            sum.1 += seen.stale.unwrap_or_else(|| panic!("`{}` did not run", names[case]));
        }
    }
    all
}

fn report<const N: usize>(how: &str, names: [&str; N], all: [(u32, u32); N]) {
    for (name, (met, stale)) in names.into_iter().zip(all) {
        say(&format!(
            "RESULT {how}, `{name}`: overlapped in {met} of {RUNS} runs, {stale} stale values"
        ));
    }
}

/// What [`Kinds`] declares: where kernels overlap, and that nothing stale is ever seen.
fn assert_kinds(how: &str, runs: &[[Seen; 8]]) {
    let all = tally(KINDS, runs);
    report(how, KINDS, all);
    let met = all.map(|(met, _)| met > 0);
    assert_eq!(met, [false, true, true, false, false, true, false, false], "{how}");
    assert_eq!(all.map(|(_, stale)| stale), [0; 8], "{how}");
}

#[test]
fn the_kernels_compile_where_the_compiler_is_found() {
    if let Err(error) = nvrtc::check() {
        say(&format!("SKIPPED compiling the kernels of programmatic launches: {error}"));
        return;
    }
    let ptx = nvrtc::compile(SOURCE, (9, 0), &[]).unwrap().to_src();
    assert_eq!(ptx.matches("griddepcontrol.wait").count(), 1);
    assert_eq!(ptx.matches("griddepcontrol.launch_dependents").count(), 3);
}

#[test]
fn kernels_overlap_where_their_steps_say_so_and_only_there() {
    let Some(turn) = gpu("kernels overlap where declared") else { return };
    let board = Board::new(&turn.gpu);
    let mut pool = Kinds::allocate(&turn.gpu).unwrap();
    let mut run = |tag| {
        board.start(tag);
        let mut pass = pool.begin().unwrap();
        kinds(&board, &mut pass.layer(0).unwrap()).unwrap();
        pass.finish().unwrap();
        board.seen()
    };
    let runs: Vec<_> = (1..=RUNS).map(&mut run).collect();
    assert_kinds("eager", &runs);
}

/// The edges of the graph that a stream is captured into, those that let the later kernel start before
/// the earlier one ends, and the others; nodes by case, and whether they are its lead.
fn edges(board: &Board<'_>, stream: &Stream) -> [BTreeSet<[(usize, bool); 2]>; 2] {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut graph, mut count) = (ptr::null_mut(), 0);
    let (mut last, mut last_edges, mut lasts) = (ptr::null(), ptr::null(), 0);
    // SAFETY: the stream is being captured; each pointer is to a value of ours, or null where nothing
    // is asked.
    unsafe {
        sys::cuStreamGetCaptureInfo_v3(
            stream.handle(),
            &raw mut status,
            ptr::null_mut(),
            &raw mut graph,
            &raw mut last,
            &raw mut last_edges,
            &raw mut lasts,
        )
        .result()
        .unwrap();
        sys::cuGraphGetEdges_v2(
            graph,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut count,
        )
        .result()
        .unwrap();
    }
    assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
    let plain = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
    let mut data = vec![plain; count];
    // SAFETY: the arrays have room for so many edges.
    unsafe {
        sys::cuGraphGetEdges_v2(
            graph,
            from.as_mut_ptr(),
            to.as_mut_ptr(),
            data.as_mut_ptr(),
            &raw mut count,
        )
        .result()
        .unwrap();
    }
    let mut sets = [BTreeSet::new(), BTreeSet::new()];
    for ((from, to), data) in from.into_iter().zip(to).zip(data) {
        let programmatic = sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8;
        let set = usize::from(data.type_ != programmatic);
        sets[set].insert([from, to].map(|node| case_of(board, node)));
    }
    sets
}

/// The case of a kernel of a graph, and whether it is the lead. What is no kernel is beyond all cases.
fn case_of(board: &Board<'_>, node: sys::CUgraphNode) -> (usize, bool) {
    let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: a node of a graph that lives.
    unsafe { sys::cuGraphNodeGetType(node, &raw mut kind) }.result().unwrap();
    if kind != sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
        return (CELLS, false);
    }
    let mut params = std::mem::MaybeUninit::<sys::CUDA_KERNEL_NODE_PARAMS>::zeroed();
    // SAFETY: a kernel of a graph that lives; its parameters live as long. All of our kernels take the
    // address of their cell first.
    let (function, cell) = unsafe {
        sys::cuGraphKernelNodeGetParams_v2(node, params.as_mut_ptr()).result().unwrap();
        let params = params.assume_init();
        let first: *mut c_void = *params.kernelParams;
        (params.func, first.cast::<u64>().read_unaligned())
    };
    let lead = function == board.lead.cu_function();
    ((((cell - board.tag()) / CELL) - 1) as usize, lead)
}

#[test]
fn a_captured_pass_has_programmatic_edges_just_where_declared_and_overlaps_there() {
    let Some(turn) = gpu("a captured pass overlaps where declared") else { return };
    let board = Board::new(&turn.gpu);
    let mut pool = Kinds::allocate(&turn.gpu).unwrap();
    let mut pass = pool.begin().unwrap();
    let streams = pass.streams().to_vec();
    let capture = turn.gpu.cuda.capture(&streams, 0, CaptureMode::ThreadLocal).unwrap();
    kinds(&board, &mut pass.layer(0).unwrap()).unwrap();
    let [programmatic, full] = edges(&board, &streams[0]);
    drop(pass);
    let graph = capture.end().unwrap();
    say(&format!("RESULT captured: programmatic {programmatic:?}, full {full:?}"));
    let declared = [1, 2, 5].map(|case| [(case, true), (case, false)]);
    assert_eq!(programmatic, BTreeSet::from(declared));
    let runs: Vec<_> = (1..=RUNS)
        .map(|tag| {
            board.start(tag);
            graph.replay(0).unwrap();
            board.seen()
        })
        .collect();
    assert_kinds("captured", &runs);
}

/// Events recorded behind early kernels, and waited for in front of early and dependent ones; in front of
/// the first, nothing else is on its stream in a graph. And a memset in front of a dependent kernel.
#[scratch_pool(align = 256)]
#[step(first_side, on = side, after(prev.first_next), writes(first_z))]
#[step(first_next, launch = early, after(first_side), reads(first_z))]
#[step(cover_lead, after(prev.cover_side), writes(cover_x))]
#[step(cover_next, launch = early, writes(cover_y))]
#[step(cover_side, on = side, after(cover_next), reads(cover_x, cover_y))]
#[step(early_lead, writes(early_x))]
#[step(early_side, on = side, after(prev.early_next), writes(early_z))]
#[step(early_next, launch = early, after(early_side), reads(early_z))]
#[step(early_check, reads(early_x))]
#[step(dependent_lead, writes(dependent_x))]
#[step(dependent_side, on = side, after(prev.dependent_next), writes(dependent_z))]
#[step(dependent_next, launch = dependent, after(dependent_side), reads(dependent_x, dependent_z))]
#[step(set_lead, writes(set_x, set_zero))]
#[step(set_next, launch = dependent, reads(set_x, set_zero))]
pub struct Across {
    /// Written on the side, read by the first kernel of the main stream.
    #[group(first_z)]
    #[shape(1)]
    pub first_z: u32,
    /// Written in front of an early kernel, read behind that kernel's event.
    #[group(cover_x)]
    #[shape(1)]
    pub cover_x: u32,
    /// Written by the early kernel.
    #[group(cover_y)]
    #[shape(1)]
    pub cover_y: u32,
    /// Not to be touched by the early kernel.
    #[group(early_x)]
    #[shape(1)]
    pub early_x: u32,
    /// Written on the side, read by the early kernel.
    #[group(early_z)]
    #[shape(1)]
    pub early_z: u32,
    /// Written in front of the dependent kernel that reads it.
    #[group(dependent_x)]
    #[shape(1)]
    pub dependent_x: u32,
    /// Written on the side, read by the dependent kernel.
    #[group(dependent_z)]
    #[shape(1)]
    pub dependent_z: u32,
    /// Written by the kernel in front of the memset.
    #[group(set_x)]
    #[shape(1)]
    pub set_x: u32,
    /// Written by a kernel, then set to zero.
    #[group(set_zero)]
    #[shape(1)]
    pub set_zero: u32,
}

/// The cases of [`Across`] that look at something; leads on the side have cells of their own.
const ACROSS: [&str; 7] = [
    "early in front of an event",
    "behind the event of an early kernel",
    "early behind a wait",
    "in full behind that",
    "dependent behind a wait",
    "early behind a wait alone",
    "dependent behind a memset",
];

/// One pass of [`Across`].
fn across(board: &Board<'_>, layer: &mut across::Layer<'_, Gpu>) -> Result<(), Error> {
    board.lead(7, layer.first_side()?.buffers().first_z, 2 * BRIEF)?;
    let mut step = layer.first_next()?;
    let z = step.buffers().first_z;
    // SAFETY: here and below, views of the very step, with the kernel for its kind.
    unsafe { board.next(&board.next, z.stream(), 5, [(z.address(), 7), NONE], 0) }?;
    drop(step);

    board.lead(0, layer.cover_lead()?.buffers().cover_x, PATIENT)?;
    let mut step = layer.cover_next()?;
    let y = step.buffers().cover_y;
    // SAFETY: see above.
    unsafe { board.next(&board.next, y.stream(), 0, [NONE; 2], y.address()) }?;
    drop(step);
    let mut step = layer.cover_side()?;
    let read = step.buffers();
    let words = [(read.cover_x.address(), 0), (read.cover_y.address(), 0)];
    // SAFETY: see above.
    unsafe { board.next(&board.next, step.stream(), 1, words, 0) }?;
    drop(step);

    board.lead(2, layer.early_lead()?.buffers().early_x, 0)?;
    board.lead(8, layer.early_side()?.buffers().early_z, 2 * BRIEF)?;
    let mut step = layer.early_next()?;
    let z = step.buffers().early_z;
    // SAFETY: see above.
    unsafe { board.next(&board.next, z.stream(), 2, [(z.address(), 8), NONE], 0) }?;
    drop(step);
    let mut step = layer.early_check()?;
    let x = step.buffers().early_x;
    // SAFETY: see above.
    unsafe { board.next(&board.next, x.stream(), 3, [(x.address(), 2), NONE], 0) }?;
    drop(step);

    board.lead(4, layer.dependent_lead()?.buffers().dependent_x, 0)?;
    board.lead(9, layer.dependent_side()?.buffers().dependent_z, 2 * BRIEF)?;
    let mut step = layer.dependent_next()?;
    let read = step.buffers();
    let words = [(read.dependent_x.address(), 4), (read.dependent_z.address(), 9)];
    // SAFETY: see above.
    unsafe { board.next(&board.next_dependent, step.stream(), 4, words, 0) }?;
    drop(step);

    let mut step = layer.set_lead()?;
    let stream = step.stream();
    let mut out = step.buffers();
    board.lead(10, out.set_x, 0)?;
    // SAFETY: see above.
    unsafe { board.next(&board.next, stream, 11, [NONE; 2], out.set_zero.address()) }?;
    stream.memset_zeros(&mut out.set_zero).map_err(Error::device)?;
    drop(step);
    let mut step = layer.set_next()?;
    let read = step.buffers();
    let words = [(read.set_x.address(), 10), (read.set_zero.address(), 11)];
    // SAFETY: see above.
    unsafe { board.next(&board.next_dependent, step.stream(), 6, words, 0) }
}

#[test]
fn events_cover_early_kernels_and_waits_hold_in_front_of_programmatic_ones() {
    let Some(turn) = gpu("events and programmatic launches") else { return };
    let board = Board::new(&turn.gpu);
    let mut pool = Across::allocate(&turn.gpu).unwrap();
    let mut eager = Vec::new();
    for tag in 1..=RUNS {
        board.start(tag);
        let mut pass = pool.begin().unwrap();
        across(&board, &mut pass.layer(0).unwrap()).unwrap();
        pass.finish().unwrap();
        eager.push(board.seen());
    }
    let eager = tally(ACROSS, &eager);
    report("eager", ACROSS, eager);

    let mut pass = pool.begin().unwrap();
    let streams = pass.streams().to_vec();
    let capture = turn.gpu.cuda.capture(&streams, 0, CaptureMode::ThreadLocal).unwrap();
    across(&board, &mut pass.layer(0).unwrap()).unwrap();
    let [programmatic, full] = edges(&board, &streams[0]);
    drop(pass);
    let graph = capture.end().unwrap();
    say(&format!("RESULT captured across: programmatic {programmatic:?}, full {full:?}"));
    let mut captured = Vec::new();
    for tag in 1..=RUNS {
        board.start(RUNS + tag);
        graph.replay(0).unwrap();
        captured.push(board.seen());
    }
    let captured = tally(ACROSS, &captured);
    report("captured", ACROSS, captured);
    for all in [eager, captured] {
        assert!(all[0].0 > 0, "the early kernel never overlapped, so nothing was shown");
        // The last sees the zero of the memset, which is not the value that was there before.
        assert_eq!(all.map(|(_, stale)| stale), [0, 0, 0, 0, 0, 0, RUNS]);
    }
    let declared = BTreeSet::from([[(0, true), (0, false)]]);
    assert_eq!(programmatic, declared, "an edge from another stream must be full");
}

#[test]
fn a_full_launch_comes_after_the_whole_chain_even_where_its_middle_is_early() {
    let Some(turn) = gpu("a full launch behind a chain whose middle is early") else { return };
    let (board, cuda) = (Board::new(&turn.gpu), &turn.gpu.cuda);
    let stream = cuda.create_stream("chain").unwrap();
    let memory = cuda.allocate(8, 256).unwrap();
    let x = Cuda::base(&memory).addr() as u64;
    // No pool has such a chain: the planner refuses it. Here its word is only ever compared.
    let step = |launch, issue: &dyn Fn() -> Result<(), Error>| {
        // SAFETY: a race is what is looked for: one aligned word is read or written at a time.
        unsafe { cuda.enter_step(&stream, launch) }.unwrap();
        issue().unwrap();
        cuda.leave_step(&stream).unwrap();
    };
    let mut runs = Vec::new();
    for tag in 1..=RUNS {
        board.start(tag);
        // SAFETY: here and below, words of the block above; a race is what is looked for, and one
        // aligned word is read or written at a time.
        step(Launch::Full, &|| unsafe { board.lead_raw(&stream, 0, x, PATIENT) });
        // SAFETY: see above.
        step(Launch::Early, &|| unsafe { board.next(&board.next, &stream, 0, [NONE; 2], 0) });
        step(Launch::Dependent, &|| {
            // SAFETY: see above.
            unsafe { board.next(&board.next_dependent, &stream, 1, [(x, 0), NONE], 0) }
        });
        // SAFETY: see above.
        step(Launch::Full, &|| unsafe { board.next(&board.next, &stream, 2, [(x, 0), NONE], 0) });
        runs.push(board.seen());
    }
    let names = ["early", "dependent behind early", "full behind both"];
    let all = tally(names, &runs);
    report("chain", names, all);
    assert!(all[0].0 > 0, "the early kernel never overlapped, so nothing was shown");
    // Whether the dependent kernel sees stale values is the machine's affair: no pool relies on it.
    assert_eq!(all[2].1, 0);
}
