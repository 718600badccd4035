//! DeepSeek-V4's eager region with its real kernels, on both devices; and memory of one's own in graphs
//! and in kernels of one's own.

use scratchpool::cuda::cudarc::driver::LaunchConfig;
use scratchpool::cuda::{CaptureMode, Cuda, CudaError};
use scratchpool::{Backing, Constant, Device, Error, Host, Persistent, Tensor};
use scratchpool_examples::layers::{Case, eager, replayed};
use scratchpool_kernels::HostKernels;
use scratchpool_kernels::cuda::CudaKernels;

use crate::lab::{gpu, say};

#[test]
fn one_model_code_gives_the_hosts_bytes_on_the_gpu_eager_and_in_a_graph() {
    let Some(turn) = gpu("one model code gives the host's bytes") else { return };
    let cuda = &turn.gpu.cuda;
    let kernels = CudaKernels::new(cuda).unwrap();
    let case = Case::new(9, 0..8);
    let wanted = eager(&Host::in_order(), &HostKernels, &case, Backing::Arena).unwrap();
    wanted.verify(&case).unwrap();
    for backing in [Backing::Arena, Backing::PerCall, Backing::Sanitized] {
        let found = eager(cuda, &kernels, &case, backing).unwrap();
        let off = wanted.compare(&found).unwrap_or_else(|what| panic!("{backing:?}: {what}"));
        let dense = found.verify(&case).unwrap_or_else(|what| panic!("{backing:?}: {what}"));
        say(&format!(
            "RESULT eager region, {backing:?}: choices and caches the host's; attention {off:.1e} \
             from the host, {dense:.1e} from float64"
        ));
    }
    let found = replayed(cuda, &kernels, &case).unwrap();
    let off = wanted.compare(&found).unwrap_or_else(|what| panic!("in a graph: {what}"));
    say(&format!(
        "RESULT eager region, in a graph of padded rows: attention {off:.1e} from the host"
    ));
    // Nothing is left running, and the device is as usable as before.
    cuda.synchronize().unwrap();
}

const ADD: &str = r#"
extern "C" __global__ void add(const unsigned* a, const unsigned* b, unsigned* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}
"#;

#[test]
fn a_graph_keeps_memory_of_ones_own_and_own_kernels_take_it() {
    let Some(turn) = gpu("a graph keeps memory of one's own") else { return };
    let cuda = &turn.gpu.cuda;
    let module = cuda.compile(ADD).unwrap();
    let add = cuda.kernel(&module, "add").unwrap();
    let count = 1 << 20;
    let n = i32::try_from(count).unwrap();
    let grid = LaunchConfig::for_num_elems(count as u32);
    let stream = cuda.create_stream("main").unwrap();
    let streams = [stream.clone()];
    let mut sum = Persistent::<u32, Cuda, 1>::new(cuda, [count]).unwrap();
    // One is used before the capture, one only in it; both are gone before it ends.
    let early = Constant::new(cuda, &stream, [count], &vec![40; count]).unwrap();
    let late = Tensor::from_values(cuda, &stream, [count], &vec![2; count]).unwrap();
    assert_eq!(early.on(&stream).unwrap().shape(), [count]);
    let capture = cuda.capture(&streams, 1, CaptureMode::ThreadLocal).unwrap();
    {
        let (a, b) = (early.on(&stream).unwrap(), late.view());
        // SAFETY: all that touches it is given to one stream.
        let to = unsafe { sum.on_mut(&stream) }.unwrap();
        // SAFETY: the kernel takes these four, and touches `n` elements of each.
        unsafe { stream.kernel(&add).arg(&a).arg(&b).arg(&to).arg(&n).launch(grid) }.unwrap();
    }
    drop((early, late));
    let graph = capture.end().unwrap();
    assert_eq!(graph.arenas(), 3, "two constants and the sum");
    // Would take their place, had they been freed.
    let taken: Vec<_> = (0..4_u32)
        .map(|_| Constant::new(cuda, &stream, [count], &vec![7; count]).unwrap())
        .collect();
    graph.replay(1).unwrap();
    assert!(sum.to_vec(&stream).unwrap().iter().all(|x| *x == 42));
    drop((graph, taken));
    // Refused while captured, and usable afterwards.
    let capture = cuda.capture(&streams, 1, CaptureMode::ThreadLocal).unwrap();
    let refused = Constant::new(cuda, &stream, [1], &[1_u32]).err().map(|error| error.to_string());
    let expected = CudaError::Capturing { what: "allocating", stream: "any" };
    assert_eq!(refused, Some(Error::from(expected).to_string()));
    drop(capture);
    sum.fill_from(&stream, &vec![5; count]).unwrap();
    assert!(sum.to_vec(&stream).unwrap().iter().all(|x| *x == 5));
}

#[test]
fn memory_of_ones_own_is_given_back_when_nothing_uses_it() {
    let Some(turn) = gpu("memory of one's own is given back") else { return };
    let cuda = &turn.gpu.cuda;
    let stream = cuda.create_stream("main").unwrap();
    let held = |cuda: &Cuda| cuda.memory().unwrap().0;
    let bytes = 1 << 28;
    let before = held(cuda);
    let cache = Persistent::<u8, Cuda, 1>::new(cuda, [bytes]).unwrap();
    assert!(held(cuda) + bytes as u64 <= before, "taken");
    assert_eq!(cache.to_vec(&stream).unwrap().len(), bytes);
    drop(cache);
    assert!(held(cuda) + bytes as u64 / 2 > before, "given back");
}
