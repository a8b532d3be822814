fn main() {
    // Else Cargo builds the crate again whenever any file of the repository has changed, were it a test or a page of the docs.
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "node")]
    napi_build::setup();
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos") {
        // The C bindings name libraries that we use nothing of. Each would be loaded whenever a keeper starts.
        println!("cargo::rustc-link-arg=-Wl,-dead_strip_dylibs");
        // Otherwise it would call itself by its path on the machine that has built it.
        println!("cargo::rustc-link-arg-cdylib=-Wl,-install_name,@rpath/spawn-owned.node");
    }
}
