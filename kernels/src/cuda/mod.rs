//! CUDA sources, their compilation and launch.
