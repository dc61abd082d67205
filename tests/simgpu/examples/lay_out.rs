//! `cargo run -p gctrace-simgpu --example lay_out -- FOLDER`: creates the folder of libraries.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: lay_out FOLDER")?;
    let library = gctrace_simgpu::find_library()?;
    gctrace_simgpu::lay_out(&library, std::path::Path::new(&folder))?;
    println!("{}", std::path::Path::new(&folder).display());
    Ok(())
}
