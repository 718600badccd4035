//! Views as operands of cuBLAS and NCCL: through cudarc's own interfaces, and as raw pointers; in eager
//! steps, in a graph, and on a stream that is not the view's own.

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use scratchpool::cuda::cudarc::cublas::result::CublasError;
use scratchpool::cuda::cudarc::cublas::{self, CudaBlas, Gemm, GemmConfig};
use scratchpool::cuda::cudarc::nccl::result::{NcclError, NcclStatus, get_nccl_version};
use scratchpool::cuda::cudarc::nccl::{self, Comm, Id, ReduceOp};
use scratchpool::cuda::{CaptureMode, Lend as _, Stream};
use scratchpool::{
    Backing, Device, Element, Error, View, ViewMut, ViolationKind, bf16, scratch_pool,
};

use crate::lab::{Gpu, Lab as _, Turn, gpu, say, skipped};

/// A library that the loader does not find. cudarc panics at its first call, so it is asked for before.
struct Missing {
    library: &'static str,
    file: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { library, file } = self;
        write!(f, "{library} was not found; put the folder of {file} into LD_LIBRARY_PATH")
    }
}

/// The device, where cuBLAS is installed as well.
fn gpu_with_cublas(test: &str) -> Option<Turn> {
    let turn = gpu(test)?;
    // SAFETY: loading the library runs its initialisers, as any use of it does.
    if unsafe { cublas::sys::is_culib_present() } {
        return Some(turn);
    }
    skipped(test, &Missing { library: "cuBLAS", file: "libcublas.so.13" });
    None
}

/// The device, where NCCL is installed as well.
fn gpu_with_nccl(test: &str) -> Option<Turn> {
    let turn = gpu(test)?;
    // SAFETY: as above.
    if unsafe { nccl::sys::is_culib_present() } {
        return Some(turn);
    }
    skipped(test, &Missing { library: "NCCL", file: "libnccl.so" });
    None
}

/// A matrix product in three types.
#[scratch_pool(align = 256, rows = max_rows, dims(max_rows: runtime(64), inner = 96, columns = 80))]
#[step(fill, writes(left, right))]
#[step(multiply, reads(left, right), writes(product))]
#[step(take, reads(product))]
pub struct Matmul {
    /// The left operand.
    #[group(left)]
    #[shape(max_rows, inner)]
    pub left_f32: f32,
    /// The same in double precision.
    #[group(left)]
    #[shape(max_rows, inner)]
    pub left_f64: f64,
    /// The same in half precision.
    #[group(left)]
    #[shape(max_rows, inner)]
    pub left_bf16: bf16,
    /// The right operand.
    #[group(right)]
    #[shape(inner, columns)]
    pub right_f32: f32,
    /// The same in double precision.
    #[group(right)]
    #[shape(inner, columns)]
    pub right_f64: f64,
    /// The same in half precision.
    #[group(right)]
    #[shape(inner, columns)]
    pub right_bf16: bf16,
    /// Their product.
    #[group(product)]
    #[shape(max_rows, columns)]
    pub product_f32: f32,
    /// The same in double precision.
    #[group(product)]
    #[shape(max_rows, columns)]
    pub product_f64: f64,
    /// The same in half precision.
    #[group(product)]
    #[shape(max_rows, columns)]
    pub product_bf16: bf16,
}

const MAX: usize = 64;
const INNER: usize = 96;
const COLUMNS: usize = 80;

/// An element that small integers are turned into, rounding to nearest.
trait Number: Element + PartialEq + fmt::Debug {
    fn of(value: i16) -> Self;
}
impl Number for f32 {
    fn of(value: i16) -> Self {
        value.into()
    }
}
impl Number for f64 {
    fn of(value: i16) -> Self {
        value.into()
    }
}
impl Number for bf16 {
    fn of(value: i16) -> Self {
        Self::from_f32(value.into())
    }
}
impl Number for i32 {
    fn of(value: i16) -> Self {
        value.into()
    }
}

/// Integers from -4 to 4, others for each seed. Their products add up exactly in any order.
fn small(seed: u32, len: usize) -> Vec<i16> {
    (0..len as u32)
        .map(|at| {
            let mixed = (at ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(2_654_435_761);
            (mixed >> 16) as i16 % 5
        })
        .collect()
}

fn all<T: Number>(values: &[i16]) -> Vec<T> {
    values.iter().copied().map(T::of).collect()
}

/// The operands of a round, and their product, row-major.
struct Operands {
    left: Vec<i16>,
    right: Vec<i16>,
    product: Vec<i16>,
}

impl Operands {
    fn new(seed: u32, rows: usize) -> Self {
        let (left, right) = (small(2 * seed, rows * INNER), small(2 * seed + 1, INNER * COLUMNS));
        let entry = |at: usize| {
            let (row, column) = (at / COLUMNS, at % COLUMNS);
            (0..INNER).map(|k| left[row * INNER + k] * right[k * COLUMNS + column]).sum()
        };
        let product = (0..rows * COLUMNS).map(entry).collect();
        Self { left, right, product }
    }
}

fn extent(value: usize) -> c_int {
    value.try_into().unwrap()
}

/// The product of row-major views. cuBLAS counts by columns, so it is told their transposes, and to
/// multiply them the other way round.
fn gemm<T: Number>(
    blas: &CudaBlas,
    left: View<'_, T, Gpu, 2>,
    right: View<'_, T, Gpu, 2>,
    product: &mut ViewMut<'_, T, Gpu, 2>,
) -> Result<(), CublasError>
where
    CudaBlas: Gemm<T>,
{
    let [[rows, inner], [_, columns]] = [left.shape(), right.shape()].map(|it| it.map(extent));
    let config = GemmConfig {
        transa: cublas::sys::cublasOperation_t::CUBLAS_OP_N,
        transb: cublas::sys::cublasOperation_t::CUBLAS_OP_N,
        m: columns,
        n: rows,
        k: inner,
        alpha: T::of(1),
        lda: columns,
        ldb: inner,
        beta: T::of(0),
        ldc: columns,
    };
    // SAFETY: the extents are those of the views.
    unsafe { blas.gemm(config, &right, &left, product) }
}

/// The same for a type that cudarc's trait takes with a feature of its own: by address.
fn gemm_raw(
    blas: &CudaBlas,
    stream: &Stream,
    left: View<'_, bf16, Gpu, 2>,
    right: View<'_, bf16, Gpu, 2>,
    product: ViewMut<'_, bf16, Gpu, 2>,
) -> Result<(), CublasError> {
    use cublas::sys::cudaDataType_t::CUDA_R_16BF as KIND;
    let [[rows, inner], [_, columns]] = [left.shape(), right.shape()].map(|it| it.map(extent));
    let [left, right] = [left, right].map(|view| view.lend(stream));
    let product = product.lend(stream);
    assert_eq!(left.bytes, rows as usize * INNER * 2);
    let none = cublas::sys::cublasOperation_t::CUBLAS_OP_N;
    let (one, zero) = (1_f32, 0_f32);
    // SAFETY: the extents are those of the views, and the handle's stream is theirs.
    unsafe {
        cublas::result::gemm_ex(
            *blas.handle(),
            none,
            none,
            columns,
            rows,
            inner,
            (&raw const one).cast(),
            right.address as *const _,
            KIND,
            columns,
            left.address as *const _,
            KIND,
            inner,
            (&raw const zero).cast(),
            product.address as *mut _,
            KIND,
            columns,
            cublas::sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
            cublas::sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        )
    }
}

/// A pool with the stream on which its library works.
fn matmul(gpu: &Gpu, backing: Backing) -> (Matmul<Gpu>, Stream) {
    let stream = gpu.create_stream("main").unwrap();
    let dims = matmul::Dims { max_rows: MAX };
    let pool = Matmul::with_streams(gpu, dims, backing, [[stream.clone()]]).unwrap();
    (pool, stream)
}

fn fill(gpu: &Gpu, layer: &mut matmul::Layer<'_, Gpu>, operands: &Operands) -> Result<(), Error> {
    let mut step = layer.fill()?;
    let mut out = step.buffers();
    out.left_f32.fill_from(gpu, &all(&operands.left))?;
    out.left_f64.fill_from(gpu, &all(&operands.left))?;
    out.left_bf16.fill_from(gpu, &all(&operands.left))?;
    out.right_f32.fill_from(gpu, &all(&operands.right))?;
    out.right_f64.fill_from(gpu, &all(&operands.right))?;
    out.right_bf16.fill_from(gpu, &all(&operands.right))
}

fn multiply(blas: &CudaBlas, layer: &mut matmul::Layer<'_, Gpu>) -> Result<(), Error> {
    let mut step = layer.multiply()?;
    let stream = step.stream();
    let mut it = step.buffers();
    gemm(blas, it.left_f32, it.right_f32, &mut it.product_f32).unwrap();
    gemm(blas, it.left_f64, it.right_f64, &mut it.product_f64).unwrap();
    gemm_raw(blas, stream, it.left_bf16, it.right_bf16, it.product_bf16).unwrap();
    Ok(())
}

fn take(gpu: &Gpu, layer: &mut matmul::Layer<'_, Gpu>, operands: &Operands) -> Result<(), Error> {
    let mut step = layer.take()?;
    let read = step.buffers();
    assert_eq!(read.product_f32.to_vec(gpu)?, all::<f32>(&operands.product));
    assert_eq!(read.product_f64.to_vec(gpu)?, all::<f64>(&operands.product));
    assert_eq!(read.product_bf16.to_vec(gpu)?, all::<bf16>(&operands.product));
    Ok(())
}

#[test]
fn cublas_multiplies_views_in_eager_passes() {
    let Some(turn) = gpu_with_cublas("cuBLAS multiplies views in eager passes") else { return };
    for backing in [Backing::Arena, Backing::PerCall, Backing::Sanitized] {
        let (mut pool, stream) = matmul(&turn.gpu, backing);
        let blas = CudaBlas::new(Arc::clone(&stream)).unwrap();
        for (seed, rows) in [MAX, 1, 17, 33, MAX].into_iter().enumerate() {
            let operands = Operands::new(seed as u32, rows);
            let mut pass = pool.begin(rows).unwrap();
            let mut layer = pass.layer(0).unwrap();
            fill(&turn.gpu, &mut layer, &operands).unwrap();
            multiply(&blas, &mut layer).unwrap();
            take(&turn.gpu, &mut layer, &operands).unwrap();
            drop(layer);
            pass.finish().unwrap();
        }
    }
    say(
        "RESULT cuBLAS, f32 and f64 as views, bf16 by address, 1 to 64 rows: products as on the host",
    );
}

#[test]
fn cublas_multiplies_views_in_a_graph() {
    let Some(turn) = gpu_with_cublas("cuBLAS multiplies views in a graph") else { return };
    let (mut pool, stream) = matmul(&turn.gpu, Backing::Arena);
    let blas = CudaBlas::new(Arc::clone(&stream)).unwrap();
    let mut pass = pool.begin(MAX).unwrap();
    let mut layer = pass.layer(0).unwrap();
    // Once before the capture: libraries load their kernels at first use.
    let first = Operands::new(1, MAX);
    fill(&turn.gpu, &mut layer, &first).unwrap();
    multiply(&blas, &mut layer).unwrap();
    take(&turn.gpu, &mut layer, &first).unwrap();
    drop(layer);
    drop(pass);
    let mut pass = pool.begin(MAX).unwrap();
    let streams = pass.streams().to_vec();
    let mut layer = pass.layer(0).unwrap();
    fill(&turn.gpu, &mut layer, &first).unwrap();
    let capture = turn.gpu.cuda.capture(&streams, MAX, CaptureMode::ThreadLocal).unwrap();
    multiply(&blas, &mut layer).unwrap();
    let graph = capture.end().unwrap();
    drop(layer);
    drop(pass);
    for seed in 2..12 {
        let operands = Operands::new(seed, MAX);
        let mut pass = pool.begin(MAX).unwrap();
        let mut layer = pass.layer(0).unwrap();
        fill(&turn.gpu, &mut layer, &operands).unwrap();
        graph.replay(MAX).unwrap();
        take(&turn.gpu, &mut layer, &operands).unwrap();
    }
    say("RESULT cuBLAS in a graph, 10 replays: products as on the host");
}

#[test]
fn cublas_on_another_stream_comes_after_the_views_own_and_before_what_follows_there() {
    let Some(turn) = gpu_with_cublas("cuBLAS on another stream") else { return };
    let gpu = &turn.gpu;
    let (mut pool, stream) = matmul(gpu, Backing::Arena);
    let other = gpu.create_stream("other").unwrap();
    let blas = CudaBlas::new(Arc::clone(&other)).unwrap();
    for seed in 0..10 {
        let operands = Operands::new(seed, MAX);
        let mut pass = pool.begin(MAX).unwrap();
        let mut layer = pass.layer(0).unwrap();
        let mut step = layer.fill().unwrap();
        let mut out = step.buffers();
        out.right_f32.fill_from(gpu, &all(&operands.right)).unwrap();
        out.left_f32.fill_from(gpu, &all(&operands.left)).unwrap();
        // What the view's own stream is still to write when the library is called.
        gpu.spin(&stream, 500).unwrap();
        stream.memset_zeros(&mut out.left_f32).unwrap();
        drop(step);
        let mut step = layer.multiply().unwrap();
        let mut it = step.buffers();
        gpu.spin(&stream, 500).unwrap();
        stream.memset_zeros(&mut it.product_f32).unwrap();
        gpu.spin(&other, 500).unwrap();
        gemm(&blas, it.left_f32, it.right_f32, &mut it.product_f32).unwrap();
        assert_eq!(
            it.product_f32.as_view().to_vec(gpu).unwrap(),
            [0.0; MAX * COLUMNS],
            "the library did not wait for the view's stream"
        );
        // And the other way round: a product that the view's own stream must not read too early.
        drop(step);
        drop(layer);
        drop(pass);
        let mut pass = pool.begin(MAX).unwrap();
        let mut layer = pass.layer(0).unwrap();
        fill(gpu, &mut layer, &operands).unwrap();
        let mut step = layer.multiply().unwrap();
        let mut it = step.buffers();
        stream.memset_zeros(&mut it.product_f32).unwrap();
        gpu.spin(&other, 500).unwrap();
        gemm(&blas, it.left_f32, it.right_f32, &mut it.product_f32).unwrap();
        assert_eq!(
            it.product_f32.as_view().to_vec(gpu).unwrap(),
            all::<f32>(&operands.product),
            "the view's stream did not wait for the library"
        );
    }
    say(
        "RESULT cuBLAS on another stream, 10 rounds: after the view's own, before what follows there",
    );
}

#[test]
fn the_sanitizer_finds_a_library_on_another_stream() {
    let Some(turn) = gpu_with_cublas("the sanitizer finds cuBLAS on another stream") else {
        return;
    };
    let (mut pool, _) = matmul(&turn.gpu, Backing::Sanitized);
    let other = turn.gpu.create_stream("other").unwrap();
    let blas = CudaBlas::new(Arc::clone(&other)).unwrap();
    let operands = Operands::new(5, MAX);
    let mut pass = pool.begin(MAX).unwrap();
    let mut layer = pass.layer(0).unwrap();
    fill(&turn.gpu, &mut layer, &operands).unwrap();
    let mut step = layer.multiply().unwrap();
    let mut it = step.buffers();
    gemm(&blas, it.left_f32, it.right_f32, &mut it.product_f32).unwrap();
    drop(step);
    drop(layer);
    let Err(Error::Violation(found)) = pass.finish() else { panic!("not found") };
    // The last of the three operands.
    assert_eq!(
        (found.kind, found.buffer.as_str()),
        (ViolationKind::WrongStream, "product.product_f32")
    );
    assert_eq!((found.step, found.stream), ("multiply", "main"));
    say(&format!("RESULT the sanitizer found cuBLAS on another stream: {found}"));
}

/// Values sent and received.
#[scratch_pool(align = 256, rows = max_rows, dims(max_rows: runtime(64), width = 1024))]
#[step(fill, writes(sent))]
#[step(exchange, reads(sent), writes(received))]
#[step(take, reads(received))]
pub struct Exchange {
    /// Values to send.
    #[group(sent)]
    #[shape(max_rows, width)]
    pub sent_f32: f32,
    /// Counts to send.
    #[group(sent)]
    #[shape(max_rows)]
    pub sent_i32: i32,
    /// Values received.
    #[group(received)]
    #[shape(max_rows, width)]
    pub received_f32: f32,
    /// Counts received.
    #[group(received)]
    #[shape(max_rows)]
    pub received_i32: i32,
}

/// What is called for all ranks, of which there is one: each hands on what it is given.
const COLLECTIVES: [&str; 6] =
    ["all_reduce", "all_reduce_in_place", "broadcast", "all_gather", "reduce_scatter", "reduce"];

fn done(result: Result<NcclStatus, NcclError>) {
    if let Err(error) = result {
        panic!("{:?}", error.0);
    }
}

fn collective<T, const R: usize>(
    comm: &Comm,
    stream: &Stream,
    which: usize,
    sent: View<'_, T, Gpu, R>,
    mut received: ViewMut<'_, T, Gpu, R>,
) where
    T: Number + nccl::NcclType,
{
    let (sum, to) = (ReduceOp::Sum, &mut received);
    match COLLECTIVES[which] {
        "all_reduce" => done(comm.all_reduce(&sent, to, &sum)),
        "all_reduce_in_place" => {
            stream.memcpy_dtod(&sent, to).unwrap();
            done(comm.all_reduce_in_place(to, &ReduceOp::Max));
        }
        "broadcast" => done(comm.broadcast(Some(&sent), to, 0)),
        "all_gather" => done(comm.all_gather(&sent, to)),
        "reduce_scatter" => done(comm.reduce_scatter(&sent, to, &sum)),
        _ => done(comm.reduce(&sent, Some(to), &ReduceOp::Min, 0)),
    }
}

fn send(gpu: &Gpu, layer: &mut exchange::Layer<'_, Gpu>, seed: u32) -> Result<(), Error> {
    let mut step = layer.fill()?;
    let mut out = step.buffers();
    let (values, counts) = (small(seed, out.sent_f32.len()), small(seed, out.sent_i32.len()));
    out.sent_f32.fill_from(gpu, &all(&values))?;
    out.sent_i32.fill_from(gpu, &all(&counts))
}

fn exchange(comm: &Comm, layer: &mut exchange::Layer<'_, Gpu>, which: usize) -> Result<(), Error> {
    let mut step = layer.exchange()?;
    let stream = step.stream();
    let mut it = step.buffers();
    stream.memset_zeros(&mut it.received_f32).unwrap();
    stream.memset_zeros(&mut it.received_i32).unwrap();
    collective(comm, stream, which, it.sent_f32, it.received_f32);
    collective(comm, stream, which, it.sent_i32, it.received_i32);
    Ok(())
}

fn receive(gpu: &Gpu, layer: &mut exchange::Layer<'_, Gpu>, seed: u32) -> Result<(), Error> {
    let mut step = layer.take()?;
    let read = step.buffers();
    let (values, counts) =
        (small(seed, read.received_f32.len()), small(seed, read.received_i32.len()));
    assert_eq!(read.received_f32.to_vec(gpu)?, all::<f32>(&values));
    assert_eq!(read.received_i32.to_vec(gpu)?, all::<i32>(&counts));
    Ok(())
}

/// A communicator of one rank.
fn alone(stream: &Stream) -> Comm {
    let made = Id::new().and_then(|id| Comm::from_rank(Arc::clone(stream), 0, 1, id));
    made.unwrap_or_else(|error| panic!("{:?}", error.0))
}

fn exchange_pool(gpu: &Gpu, backing: Backing) -> (Exchange<Gpu>, Stream) {
    let stream = gpu.create_stream("main").unwrap();
    let dims = exchange::Dims { max_rows: MAX };
    let pool = Exchange::with_streams(gpu, dims, backing, [[stream.clone()]]).unwrap();
    (pool, stream)
}

#[test]
fn nccl_takes_views_in_eager_passes_and_in_graphs() {
    let Some(turn) = gpu_with_nccl("NCCL takes views") else { return };
    let gpu = &turn.gpu;
    for backing in [Backing::Arena, Backing::Sanitized] {
        let (mut pool, stream) = exchange_pool(gpu, backing);
        let comm = alone(&stream);
        for which in 0..COLLECTIVES.len() {
            for (seed, rows) in [MAX, 1, 17].into_iter().enumerate() {
                let seed = seed as u32 + 10 * which as u32;
                let mut pass = pool.begin(rows).unwrap();
                let mut layer = pass.layer(0).unwrap();
                send(gpu, &mut layer, seed).unwrap();
                exchange(&comm, &mut layer, which).unwrap();
                receive(gpu, &mut layer, seed).unwrap();
                drop(layer);
                pass.finish().unwrap();
            }
        }
    }
    let (mut pool, stream) = exchange_pool(gpu, Backing::Arena);
    let comm = alone(&stream);
    for which in 0..COLLECTIVES.len() {
        let mut pass = pool.begin(MAX).unwrap();
        let streams = pass.streams().to_vec();
        let mut layer = pass.layer(0).unwrap();
        send(gpu, &mut layer, 0).unwrap();
        let capture = gpu.cuda.capture(&streams, MAX, CaptureMode::ThreadLocal).unwrap();
        exchange(&comm, &mut layer, which).unwrap();
        let graph = capture.end().unwrap();
        drop(layer);
        drop(pass);
        for seed in 1..4 {
            let mut pass = pool.begin(MAX).unwrap();
            let mut layer = pass.layer(0).unwrap();
            send(gpu, &mut layer, seed).unwrap();
            graph.replay(MAX).unwrap();
            receive(gpu, &mut layer, seed).unwrap();
        }
    }
    let version = get_nccl_version().unwrap_or_else(|error| panic!("{:?}", error.0));
    say(&format!("RESULT NCCL {version}, one rank, eager and captured: {COLLECTIVES:?} as sent"));
}

#[test]
fn nccl_on_another_stream_comes_after_the_views_own_and_is_found() {
    let Some(turn) = gpu_with_nccl("NCCL on another stream") else { return };
    let gpu = &turn.gpu;
    let other = gpu.create_stream("other").unwrap();
    let comm = alone(&other);
    let (mut pool, stream) = exchange_pool(gpu, Backing::Arena);
    for seed in 0..10 {
        let mut pass = pool.begin(MAX).unwrap();
        let mut layer = pass.layer(0).unwrap();
        send(gpu, &mut layer, seed).unwrap();
        let mut step = layer.exchange().unwrap();
        let it = step.buffers();
        let (sent, mut received) = (it.sent_f32, it.received_f32);
        // Late zeros of the view's own stream, then the late values of the other.
        gpu.spin(&stream, 500).unwrap();
        stream.memset_zeros(&mut received).unwrap();
        gpu.spin(&other, 500).unwrap();
        done(comm.all_reduce(&sent, &mut received, &ReduceOp::Sum));
        let values = small(seed, received.len());
        assert_eq!(received.as_view().to_vec(gpu).unwrap(), all::<f32>(&values));
    }
    let (mut pool, _) = exchange_pool(gpu, Backing::Sanitized);
    let mut pass = pool.begin(MAX).unwrap();
    let mut layer = pass.layer(0).unwrap();
    send(gpu, &mut layer, 1).unwrap();
    exchange(&comm, &mut layer, 0).unwrap();
    drop(layer);
    let Err(Error::Violation(found)) = pass.finish() else { panic!("not found") };
    assert_eq!((found.kind, found.step), (ViolationKind::WrongStream, "exchange"));
    say(&format!("RESULT NCCL on another stream, 10 rounds in order; the sanitizer: {found}"));
}
