//! An argument ends with the tensor that it is of.

use scratchpool::{Device, Host, Tensor, View};

fn main() {
    let host = Host::in_order();
    let stream = host.create_stream("main").unwrap();
    let view: View<'_, f32, Host, 1> = {
        let tensor = Tensor::new(&host, &stream, [4]).unwrap();
        tensor.view()
    };
    assert_eq!(view.shape(), [4]);
}
