//! A stand-in for the NVIDIA driver: it executes nothing, keeps the rules that captures have, and writes
//! down every call. Compiled by the test to a library of the driver's name (see `main.rs`).
//!
//! Things are named in the order of their making: streams `s1`, events `e1`, graphs `g1`, blocks `m1`.
//! Memory is the host's, so that copies work; a block that was freed is kept, so that what is still
//! launched with it can be named.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Status = c_uint;
const SUCCESS: Status = 0;
const INVALID: Status = 1;
const CAPTURE_UNSUPPORTED: Status = 900;
const CAPTURE_INVALIDATED: Status = 901;
const CAPTURE_UNJOINED: Status = 904;
const CAPTURE_ISOLATION: Status = 905;
const CAPTURED_EVENT: Status = 907;

#[derive(Default)]
struct State {
    log: Vec<String>,
    current: usize,
    streams: BTreeMap<usize, Stream>,
    events: BTreeMap<usize, Event>,
    blocks: Vec<Block>,
    kernels: Vec<String>,
    made: [usize; 4],
    /// Handles are not used again: some things outlive their test.
    generation: usize,
    captures: usize,
    open: BTreeMap<usize, Capture>,
    /// The next so-many-th call of a name fails.
    fail: Option<(String, usize)>,
}

#[derive(Default)]
struct Stream {
    /// The capture it takes part in.
    capture: Option<usize>,
}

#[derive(Default)]
struct Event {
    capture: Option<usize>,
}

#[derive(Default)]
struct Capture {
    origin: usize,
    invalid: bool,
    /// Streams that took part and were not joined into the origin since.
    unjoined: Vec<usize>,
}

struct Block {
    start: usize,
    bytes: usize,
    freed: bool,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut State) -> T) -> T {
    let mut guard: MutexGuard<'_, Option<State>> =
        STATE.lock().unwrap_or_else(PoisonError::into_inner);
    act(guard.get_or_insert_with(State::default))
}

impl State {
    /// Writes a call down, unless it is to fail.
    fn note(&mut self, call: &str, what: String) -> Status {
        if let Some((name, left)) = &mut self.fail
            && *name == call
        {
            if *left == 0 {
                self.fail = None;
                self.log.push(format!("{call} fails"));
                return INVALID;
            }
            *left -= 1;
        }
        let mark = if what.is_empty() { "" } else { " " };
        self.log.push(format!("{call}{mark}{what}"));
        SUCCESS
    }

    fn make(&mut self, kind: usize) -> usize {
        self.made[kind] += 1;
        (self.generation << 20) + 0x1000 * (kind + 1) + self.made[kind]
    }

    fn block(&self, address: usize) -> String {
        let inside = |it: &&Block| (it.start..it.start + it.bytes.max(1)).contains(&address);
        let at = self.blocks.iter().rposition(|it| inside(&it));
        at.map_or_else(
            || format!("{address:#x}"),
            |at| {
                let block = &self.blocks[at];
                let freed = if block.freed { "!freed" } else { "" };
                format!("m{}+{}{freed}", at + 1, address - block.start)
            },
        )
    }

    /// What work on a stream does to the captures: nothing, or it becomes part of one.
    fn work(&mut self, stream: usize) -> Status {
        let Some(capture) = self.streams.get(&stream).and_then(|it| it.capture) else {
            return SUCCESS;
        };
        let Some(open) = self.open.get_mut(&capture) else { return INVALID };
        if open.invalid {
            return CAPTURE_INVALIDATED;
        }
        if stream != open.origin && !open.unjoined.contains(&stream) {
            open.unjoined.push(stream);
        }
        SUCCESS
    }

    /// A call that is not allowed while something is captured.
    fn forbidden(&mut self, stream: Option<usize>) -> Status {
        let hit: Vec<usize> = match stream {
            Some(stream) => {
                self.streams.get(&stream).and_then(|it| it.capture).into_iter().collect()
            }
            None => self.open.keys().copied().collect(),
        };
        for capture in &hit {
            if let Some(open) = self.open.get_mut(capture) {
                open.invalid = true;
            }
        }
        if hit.is_empty() { SUCCESS } else { CAPTURE_UNSUPPORTED }
    }
}

fn name(handle: usize) -> String {
    let letter = ["s", "e", "g", "k"];
    let kind = (handle >> 12 & 0xff).wrapping_sub(1);
    letter.get(kind).map_or_else(
        || if handle < 3 { "default".to_owned() } else { format!("{handle:#x}") },
        |letter| format!("{letter}{}", handle & 0xfff),
    )
}

/// Takes the log: lines, ended by zero. Given back to [`standin_free`].
#[unsafe(no_mangle)]
pub extern "C" fn standin_take_log() -> *mut c_char {
    let text = with(|state| std::mem::take(&mut state.log).join("\n"));
    std::ffi::CString::new(text).unwrap_or_default().into_raw()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_free(text: *mut c_char) {
    // SAFETY: it came from `standin_take_log`.
    drop(unsafe { std::ffi::CString::from_raw(text) });
}

/// Makes the next call of a name fail, after `calls` that succeed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn standin_fail(call: *const c_char, calls: usize) {
    // SAFETY: the test gives a string that ends.
    let call = unsafe { CStr::from_ptr(call) }.to_string_lossy().into_owned();
    with(|state| state.fail = Some((call, calls)));
}

/// Forgets everything but the context.
#[unsafe(no_mangle)]
pub extern "C" fn standin_reset() {
    with(|state| {
        let (current, generation) = (state.current, state.generation + 1);
        *state = State { current, generation, ..State::default() };
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_: c_uint) -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: here and below, the caller's pointers are valid, as for the driver.
    unsafe { *version = 13_000 };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    unsafe { *count = 1 };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    unsafe { *device = ordinal };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_int,
    _: c_int,
) -> Status {
    // 75 and 76 are the compute capability, 115 memory pools.
    unsafe {
        *value = match attribute {
            75 => 9,
            76 => 0,
            _ => 1,
        }
    };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _: c_int) -> Status {
    unsafe { *context = 0xc0de };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> Status {
    unsafe { *context = with(|state| state.current) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> Status {
    with(|state| state.current = context);
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Status {
    with(|state| match state.forbidden(None) {
        SUCCESS => state.note("idle", String::new()),
        refused => refused,
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, all: *mut usize) -> Status {
    unsafe { (*free, *all) = (1 << 30, 1 << 31) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut usize, _: c_uint) -> Status {
    with(|state| {
        let made = state.make(0);
        state.streams.insert(made, Stream::default());
        unsafe { *stream = made };
        SUCCESS
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: usize) -> Status {
    with(|state| state.note("destroy", name(stream)))
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: usize) -> Status {
    with(|state| match state.forbidden(Some(stream)) {
        SUCCESS => state.note("sync", name(stream)),
        refused => refused,
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, _: c_uint) -> Status {
    with(|state| {
        let made = state.make(1);
        state.events.insert(made, Event::default());
        unsafe { *event = made };
        SUCCESS
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(_: usize) -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: usize, stream: usize) -> Status {
    with(|state| {
        let capture = state.streams.get(&stream).and_then(|it| it.capture);
        if let Some(it) = state.events.get_mut(&event) {
            it.capture = capture;
        }
        state.note("record", format!("{} {}", name(event), name(stream)))
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _: c_uint) -> Status {
    with(|state| {
        let of_event = state.events.get(&event).and_then(|it| it.capture);
        let of_stream = state.streams.get(&stream).and_then(|it| it.capture);
        let alive = of_event.is_some_and(|it| state.open.contains_key(&it));
        match (of_event, of_stream) {
            (None, None) => {}
            (Some(_), _) if !alive => return CAPTURED_EVENT,
            (None, Some(_)) => return CAPTURE_ISOLATION,
            (Some(event), Some(stream)) if event != stream => return CAPTURE_ISOLATION,
            (Some(event), None) => {
                if let Some(it) = state.streams.get_mut(&stream) {
                    it.capture = Some(event);
                }
            }
            (Some(_), Some(_)) => {}
        }
        // A wait of the origin joins what the event's stream holds.
        if let Some(open) = of_event.and_then(|it| state.open.get_mut(&it))
            && open.origin == stream
        {
            open.unjoined.clear();
        }
        state.work(stream);
        state.note("wait", format!("{} {}", name(stream), name(event)))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: usize, _: c_uint) -> Status {
    with(|state| {
        state.captures += 1;
        let capture = state.captures;
        state.open.insert(capture, Capture { origin: stream, ..Capture::default() });
        if let Some(it) = state.streams.get_mut(&stream) {
            it.capture = Some(capture);
        }
        state.note("begin", name(stream))
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> Status {
    with(|state| {
        let capture = state.streams.get(&stream).and_then(|it| it.capture);
        let Some(open) = capture.and_then(|it| state.open.remove(&it)) else { return INVALID };
        for it in state.streams.values_mut().filter(|it| it.capture == capture) {
            it.capture = None;
        }
        unsafe { *graph = 0 };
        if open.invalid {
            return CAPTURE_INVALIDATED;
        }
        if !open.unjoined.is_empty() {
            return CAPTURE_UNJOINED;
        }
        let made = state.make(2);
        unsafe { *graph = made };
        state.note("end", format!("{} {}", name(stream), name(made)))
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: usize, status: *mut c_uint) -> Status {
    let capturing = with(|state| state.streams.get(&stream).and_then(|it| it.capture).is_some());
    unsafe { *status = c_uint::from(capturing) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut usize,
    graph: usize,
    _: u64,
) -> Status {
    unsafe { *exec = graph };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(exec: usize, stream: usize) -> Status {
    with(|state| state.note("replay", format!("{} {}", name(exec), name(stream))))
}
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphUpload(_: usize, _: usize) -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(exec: usize) -> Status {
    with(|state| state.note("destroy", name(exec)))
}
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(_: usize) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut usize, _: *const c_void) -> Status {
    unsafe { *module = 1 };
    SUCCESS
}
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(_: usize) -> Status {
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    _: usize,
    called: *const c_char,
) -> Status {
    let called = unsafe { CStr::from_ptr(called) }.to_string_lossy().into_owned();
    with(|state| {
        state.kernels.push(called);
        unsafe { *function = state.kernels.len() };
        SUCCESS
    })
}

/// A kernel takes the address of the word that it touches.
unsafe fn launched(
    function: usize,
    stream: usize,
    arguments: *mut *mut c_void,
    how: &str,
) -> Status {
    let word = unsafe { (*arguments).cast::<usize>().read_unaligned() };
    with(|state| {
        let refused = state.work(stream);
        if refused != SUCCESS {
            return refused;
        }
        let kernel = state.kernels.get(function - 1).cloned().unwrap_or_default();
        let word = state.block(word);
        state.note("launch", format!("{} {kernel} {how} {word}", name(stream)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    stream: usize,
    arguments: *mut *mut c_void,
    _: *mut *mut c_void,
) -> Status {
    unsafe { launched(function, stream, arguments, "full") }
}

#[repr(C)]
pub struct Config {
    dims: [c_uint; 6],
    shared: c_uint,
    stream: usize,
    attributes: *const c_void,
    count: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const Config,
    function: usize,
    arguments: *mut *mut c_void,
    _: *mut *mut c_void,
) -> Status {
    let (stream, count) = unsafe { ((*config).stream, (*config).count) };
    let how = if count > 0 { "programmatic" } else { "full" };
    unsafe { launched(function, stream, arguments, how) }
}

fn allocate(state: &mut State, bytes: usize) -> usize {
    let words = vec![0_u64; bytes.div_ceil(8) + 64].leak();
    let start = (words.as_ptr().addr() + 255) & !255;
    state.blocks.push(Block { start, bytes, freed: false });
    start
}

fn freed(state: &mut State, start: usize) -> String {
    let text = state.block(start);
    if let Some(block) = state.blocks.iter_mut().rev().find(|it| it.start == start) {
        block.freed = true;
    }
    text
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(start: *mut usize, bytes: usize) -> Status {
    with(|state| {
        let refused = state.forbidden(None);
        if refused != SUCCESS {
            return refused;
        }
        unsafe { *start = allocate(state, bytes) };
        let made = state.blocks.len();
        state.note("alloc", format!("m{made} {bytes}"))
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(start: usize) -> Status {
    with(|state| {
        let refused = state.forbidden(None);
        if refused != SUCCESS {
            return refused;
        }
        let text = freed(state, start);
        state.note("free", text)
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(start: *mut usize, bytes: usize, stream: usize) -> Status {
    with(|state| {
        state.work(stream);
        unsafe { *start = allocate(state, bytes) };
        let made = state.blocks.len();
        state.note("alloc", format!("m{made} {bytes} on {}", name(stream)))
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(start: usize, stream: usize) -> Status {
    with(|state| {
        state.work(stream);
        let text = freed(state, start);
        state.note("free", format!("{text} on {}", name(stream)))
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(start: usize, value: u8, bytes: usize) -> Status {
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(start).write_bytes(value, bytes) };
    SUCCESS
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(
    start: usize,
    _: u8,
    bytes: usize,
    stream: usize,
) -> Status {
    with(|state| {
        state.work(stream);
        let text = state.block(start);
        state.note("set", format!("{} {text} {bytes}", name(stream)))
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut u8,
    from: usize,
    bytes: usize,
    stream: usize,
) -> Status {
    unsafe { std::ptr::with_exposed_provenance::<u8>(from).copy_to_nonoverlapping(to, bytes) };
    with(|state| {
        state.work(stream);
        let text = state.block(from);
        state.note("get", format!("{} {text} {bytes}", name(stream)))
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: usize,
    from: *const u8,
    bytes: usize,
    stream: usize,
) -> Status {
    unsafe {
        std::ptr::with_exposed_provenance_mut::<u8>(to).copy_from_nonoverlapping(from, bytes)
    };
    with(|state| {
        state.work(stream);
        let text = state.block(to);
        state.note("put", format!("{} {text} {bytes}", name(stream)))
    })
}
