import XCTest

@testable import Akunu

/// With a tiny random model, whose path is in AKUNU_TINY.
final class AkunuTests: XCTestCase {
    func path() throws -> String {
        try XCTUnwrap(ProcessInfo.processInfo.environment["AKUNU_TINY"], "set AKUNU_TINY to a small GGUF file")
    }

    func testPiecesCome() async throws {
        let akunu = try Akunu(path: path(), threads: 1)
        var options = GenerateOptions()
        options.maxTokens = 8
        var text = ""
        for try await piece in akunu.generate("hello", options: options) { text += piece }
        XCTAssertFalse(text.isEmpty)
    }

    func testAMissingModelIsAnError() {
        XCTAssertThrowsError(try Akunu(path: "no/such/model.gguf")) { error in
            XCTAssertEqual((error as? AkunuError)?.status, AKUNU_NOT_FOUND)
        }
    }
}
