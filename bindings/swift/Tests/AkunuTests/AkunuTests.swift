import XCTest

@testable import Akunu

/// With a tiny random model, whose path is in AKUNU_TINY.
final class AkunuTests: XCTestCase {
    func model() throws -> Akunu {
        var options = Akunu.Options()
        options.threads = 1
        return try Akunu(model: path(), options: options)
    }

    func path() throws -> String {
        try XCTUnwrap(ProcessInfo.processInfo.environment["AKUNU_TINY"], "set AKUNU_TINY to a small GGUF file")
    }

    func length(_ tokens: Int) -> GenerateOptions {
        var options = GenerateOptions()
        options.maxTokens = tokens
        return options
    }

    func testPiecesComeAndTheEndSaysWhy() async throws {
        let generation = try model().complete("hello", options: length(8))
        var text = ""
        for try await piece in generation { text += piece }
        XCTAssertFalse(text.isEmpty)
        XCTAssertNotNil(try generation.finish())
    }

    func testTheSameTextWhateverIsBesideIt() async throws {
        let akunu = try model()
        let options = length(16)
        @Sendable func text() async throws -> String {
            var text = ""
            for try await piece in try akunu.complete("hello", options: options) { text += piece }
            return text
        }
        let alone = try await text()
        async let first = text()
        async let second = text()
        let both = try await [first, second]
        XCTAssertEqual(both, [alone, alone])
    }

    func testTextsAreHeldToAForm() async throws {
        var options = length(32)
        options.constraint = .regex("[0-9]{4}")
        var text = ""
        for try await piece in try model().complete("hello", options: options) { text += piece }
        XCTAssertEqual(text.filter(\.isNumber).count, text.count)
    }

    func testCancellingEndsAGeneration() async throws {
        let akunu = try model()
        let task = Task {
            for try await _ in try akunu.complete("hello", options: self.length(100_000)) {}
        }
        task.cancel()
        let result = await task.result
        XCTAssertThrowsError(try result.get()) { error in XCTAssert(error is CancellationError, "\(error)") }
    }

    func testTokensAndBack() throws {
        let akunu = try model()
        XCTAssert(try akunu.detokenize(akunu.tokenize("hello")).contains("hello"))
    }

    func testVectorsHaveLengthOne() throws {
        let vectors = try Embedder(model: path()).embed(["hello", "hello there"])
        XCTAssertEqual(vectors.count, 2)
        for vector in vectors {
            XCTAssertEqual(vector.reduce(0) { $0 + $1 * $1 }, 1, accuracy: 1e-4)
        }
    }

    func testAMissingModelIsAnError() {
        XCTAssertThrowsError(try Akunu(model: "no/such/model.gguf")) { error in
            XCTAssertEqual((error as? AkunuError)?.kind, .notFound)
        }
    }
}
