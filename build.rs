fn main() {
    #[cfg(feature = "node")]
    napi_build::setup();
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos") {
        // The C bindings name libraries that we use nothing of. Each would be loaded whenever a keeper starts.
        println!("cargo::rustc-link-arg=-Wl,-dead_strip_dylibs");
    }
}
