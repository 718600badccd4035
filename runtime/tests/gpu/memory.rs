//! Memory of one's own in graphs, and in kernels of one's own.

use scratchpool::cuda::cudarc::driver::LaunchConfig;
use scratchpool::cuda::{CaptureMode, Cuda, CudaError};
use scratchpool::{Constant, Device, Error, Persistent, Tensor};

use crate::lab::gpu;

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
