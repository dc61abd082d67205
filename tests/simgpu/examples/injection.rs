//! A library for CUDA_INJECTION64_PATH: creates the file that INJECTION_WITNESS names. For the
//! tests.

#[unsafe(no_mangle)]
extern "C" fn InitializeInjection() -> i32 {
    let witness = std::env::var_os("INJECTION_WITNESS");
    witness.map_or(0, |path| i32::from(std::fs::write(path, "injected").is_ok()))
}
