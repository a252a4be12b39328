import CAkunu
import Foundation

/// What a call of the library failed with.
public struct AkunuError: Error, CustomStringConvertible {
    /// What sort of failure.
    public let status: akunu_status
    /// What went wrong.
    public let message: String
    /// What can be done about it, where that is not plain from the message.
    public let hint: String?

    public var description: String { hint.map { "\(message) (\($0))" } ?? message }

    /// The error of the call that just failed on this thread.
    init(_ status: akunu_status) {
        self.status = status
        message = akunu_error_message().map { String(cString: $0) } ?? "unknown"
        hint = akunu_error_hint().map { String(cString: $0) }
    }
}

func check(_ status: akunu_status) throws {
    if status != AKUNU_OK { throw AkunuError(status) }
}

/// How text is generated.
public struct GenerateOptions: Sendable {
    /// Most tokens; 0 until the model or the context ends.
    public var maxTokens = 0
    /// 0 always takes the likeliest token.
    public var temperature: Float = 0
    /// Keeps this many of the likeliest; 0 keeps all.
    public var topK: UInt32 = 0
    /// Keeps this share of the probability; 0 or 1 keeps all.
    public var topP: Float = 0
    /// Where chance comes from: the same seed gives the same text.
    public var seed: UInt64 = 0
    /// Whether the prompt goes on from what was said before, instead of replacing it.
    public var append = false

    public init() {}
}

/// A model and one sequence of it: what was generated stays in the cache for what is asked next.
///
///     let akunu = try Akunu(path: "model.gguf")
///     for try await piece in akunu.generate("Once upon a time") { print(piece, terminator: "") }
///
/// One generation at a time: a second one fails with AKUNU_IN_USE.
public final class Akunu: @unchecked Sendable {
    // Handles are numbers in the library's tables, which it guards itself.
    private let model: OpaquePointer
    private let sequence: OpaquePointer
    private let queue = DispatchQueue(label: "akunu")

    /// Loads a model: a path, or a name that `akunu pull` fetched.
    public init(path: String, context: Int = 0, threads: Int = 0) throws {
        var options = akunu_load_options()
        options.size = MemoryLayout<akunu_load_options>.size
        options.context = context
        options.threads = threads
        var model: OpaquePointer?
        try check(akunu_model_load(path, &options, &model))
        var sequence: OpaquePointer?
        let status = akunu_sequence_create(model, &sequence)
        guard status == AKUNU_OK, let model, let sequence else {
            defer { akunu_model_free(model) }
            throw AkunuError(status)
        }
        self.model = model
        self.sequence = sequence
    }

    deinit {
        akunu_sequence_free(sequence)
        akunu_model_free(model)
    }

    /// Continues a text, piece by piece. Leaving the loop, or cancelling its task, ends the generation.
    public func generate(_ prompt: String, options: GenerateOptions = GenerateOptions()) -> AsyncThrowingStream<String, Error> {
        AsyncThrowingStream { continuation in
            continuation.onTermination = { [self] reason in
                if case .cancelled = reason { akunu_sequence_stop(sequence) }
            }
            queue.async { [self] in
                do {
                    try begin(prompt, options)
                    var piece = akunu_piece()
                    var status = akunu_generate_next(sequence, &piece)
                    while status == AKUNU_OK {
                        if case .terminated = continuation.yield(String(cString: piece.text)) {
                            akunu_sequence_stop(sequence)
                        }
                        status = akunu_generate_next(sequence, &piece)
                    }
                    if status != AKUNU_DONE { throw AkunuError(status) }
                    continuation.finish()
                } catch {
                    continuation.finish(throwing: error)
                }
            }
        }
    }

    /// Ends what is being generated, from any thread.
    public func stop() { akunu_sequence_stop(sequence) }

    /// The tokens of a text.
    public func tokenize(_ text: String) throws -> [UInt32] {
        var count = 0
        let status = akunu_tokenize(model, text, 0, nil, 0, &count)
        if status != AKUNU_SHORT_BUFFER { try check(status) }
        var tokens = [UInt32](repeating: 0, count: count)
        try check(akunu_tokenize(model, text, 0, &tokens, count, &count))
        return tokens
    }

    private func begin(_ prompt: String, _ wanted: GenerateOptions) throws {
        var sampling = akunu_sampling()
        sampling.size = MemoryLayout<akunu_sampling>.size
        sampling.temperature = wanted.temperature
        sampling.top_k = wanted.topK
        sampling.top_p = wanted.topP
        sampling.seed = wanted.seed
        try withUnsafePointer(to: &sampling) { sampling in
            var options = akunu_generate_options()
            options.size = MemoryLayout<akunu_generate_options>.size
            options.sampling = sampling
            options.max_tokens = wanted.maxTokens
            options.append = wanted.append
            try check(akunu_generate_begin_text(sequence, prompt, &options))
        }
    }
}
