//! Every program compiles for every architecture that is promised, on a machine without a GPU.

use scratchpool::cuda::nvrtc;
use scratchpool_kernels::cuda::{Architecture, PROGRAMS};

#[test]
fn every_program_compiles_for_ampere_hopper_and_blackwell() {
    if let Err(error) = nvrtc::check() {
        println!("SKIPPED {} compilations: {error}", 4 * PROGRAMS.len());
        return;
    }
    let mut compiled = 0;
    let own = [(8, 0), (9, 0), (10, 0)].map(|(major, minor)| Architecture::of(major, minor));
    for architecture in own.into_iter().chain([Architecture::common_to(10, 0)]) {
        let architecture = architecture.unwrap();
        for program in &PROGRAMS {
            let code = program.compile(&architecture).unwrap_or_else(|error| panic!("{error}"));
            for kernel in program.kernels {
                let name = kernel.as_bytes();
                let named = code.windows(name.len()).any(|bytes| bytes == name);
                assert!(named, "{kernel} is not in {} for {}", program.name, architecture.name());
            }
            compiled += 1;
        }
    }
    println!("RESULT compiled {compiled} programs");
}
