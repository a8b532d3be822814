#[allow(clippy::disallowed_methods)] // No JavaScript changes the environment of a build.
fn main() {
    // Without this line Cargo rebuilds the crate after every change in the repository, even of a
    // test or a page of the docs.
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "node")]
    napi_build::setup();
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos") {
        // The C bindings link libraries that this code does not use. The loader would load them at
        // every start of a keeper.
        println!("cargo::rustc-link-arg=-Wl,-dead_strip_dylibs");
        // Without this the addon's install name would be its path on the build machine.
        println!("cargo::rustc-link-arg-cdylib=-Wl,-install_name,@rpath/spawn-owned.node");
    }
}
