// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "Akunu",
    platforms: [.macOS(.v13), .iOS(.v16)],
    products: [.library(name: "Akunu", targets: ["Akunu"])],
    targets: [
        // Finds the header and the library through pkg-config: `scripts/capi install PREFIX`.
        .systemLibrary(name: "CAkunu", pkgConfig: "akunu"),
        .target(name: "Akunu", dependencies: ["CAkunu"]),
        // The README's example.
        .executableTarget(name: "Complete", dependencies: ["Akunu"], path: "Examples/Complete"),
        .testTarget(name: "AkunuTests", dependencies: ["Akunu"]),
    ]
)
