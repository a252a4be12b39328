import CAkunu
import Dispatch

/// A text under way, piece by piece. It goes on as far as it is read; leaving the loop or cancelling the task ends it.
public struct Generation: AsyncSequence, Sendable {
    public typealias Element = String

    private let state: State

    init(sequence: OpaquePointer) {
        state = State(sequence)
    }

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(state: state)
    }

    /// Why the text ended; absent while it goes on.
    public func finish() throws -> Finish? {
        try state.finish()
    }

    /// Why a text ended.
    public enum Finish: UInt32, Sendable {
        /// The model said that it is done, or nothing may follow.
        case end = 1
        /// A stop string came.
        case stopString = 2
        /// As many tokens as were asked for, or as the context holds.
        case length = 3
        /// It was cancelled.
        case cancelled = 4
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let state: State

        /// Whole characters, or nothing at the end.
        public mutating func next() async throws -> String? {
            let state = state
            return try await withTaskCancellationHandler {
                try Task.checkCancellation()
                let piece = try await withCheckedThrowingContinuation { continuation in
                    state.queue.async { continuation.resume(with: Result { try state.next() }) }
                }
                try Task.checkCancellation()
                return piece
            } onCancel: {
                state.stop()
            }
        }
    }

    /// The sequence, and the queue on which it works: calls on a sequence must not overlap.
    fileprivate final class State: @unchecked Sendable {
        let queue = DispatchQueue(label: "akunu.generation")
        private let sequence: OpaquePointer

        init(_ sequence: OpaquePointer) {
            self.sequence = sequence
        }

        deinit {
            akunu_sequence_free(sequence)
        }

        func next() throws -> String? {
            var piece = akunu_piece()
            let status = akunu_generate_next(sequence, &piece)
            if status == AKUNU_DONE {
                return nil
            }
            try check(status)
            return piece.text.map { String(cString: $0) } ?? ""
        }

        func stop() {
            akunu_sequence_stop(sequence)
        }

        func finish() throws -> Finish? {
            var statistics = akunu_statistics()
            statistics.size = MemoryLayout<akunu_statistics>.size
            try check(queue.sync { akunu_generate_statistics(sequence, &statistics) })
            return Finish(rawValue: statistics.finish)
        }
    }
}

/// How text is generated. As it is made, the likeliest token is taken until the model or the context ends.
public struct GenerateOptions: Sendable {
    /// 0 always takes the likeliest token.
    public var temperature: Float = 0
    /// Keeps this many of the likeliest; 0 keeps all.
    public var topK: UInt32 = 0
    /// Keeps this share of the probability.
    public var topP: Float = 1
    /// Keeps what has this share of the best one's probability.
    public var minP: Float = 0
    /// Divides the logits of tokens that came lately.
    public var repeatPenalty: Float = 1
    /// The same seed gives the same text.
    public var seed: UInt64 = 0
    /// Most tokens.
    public var maxTokens: Int?
    /// Texts that end the generation and are not part of it.
    public var stop: [String] = []
    /// What the text must be like.
    public var constraint: Constraint?

    public init() {}

    /// Calls `body` with the same in C's words.
    func withC<Result>(_ body: (UnsafePointer<akunu_generate_options>) throws -> Result) throws -> Result {
        var sampling = akunu_sampling()
        sampling.size = MemoryLayout<akunu_sampling>.size
        sampling.temperature = temperature
        sampling.top_k = topK
        sampling.top_p = topP
        sampling.min_p = minP
        sampling.repeat_penalty = repeatPenalty
        sampling.seed = seed
        let held = try constraint.map { try $0.create() }
        defer { held.map { _ = akunu_constraint_free($0) } }
        return try withCStrings(stop) { stop in
            try withUnsafePointer(to: sampling) { sampling in
                var options = akunu_generate_options()
                options.size = MemoryLayout<akunu_generate_options>.size
                options.sampling = sampling
                options.max_tokens = maxTokens ?? 0
                options.constraint = held
                return try stop.withUnsafeBufferPointer { stop in
                    options.stop = stop.baseAddress
                    options.stop_count = stop.count
                    return try body(&options)
                }
            }
        }
    }
}

/// What a text must be like.
public enum Constraint: Sendable {
    case jsonObject
    case jsonSchema(String)
    case regex(String)
    /// A grammar in llama.cpp's notation.
    case gbnf(String)
    /// A grammar in llguidance's variant of Lark.
    case lark(String)

    func create() throws -> OpaquePointer {
        let (language, source): (Int32, String?) = switch self {
        case .jsonObject: (AKUNU_JSON_OBJECT, nil)
        case .jsonSchema(let source): (AKUNU_JSON_SCHEMA, source)
        case .regex(let source): (AKUNU_REGEX, source)
        case .gbnf(let source): (AKUNU_GBNF, source)
        case .lark(let source): (AKUNU_LARK, source)
        }
        return try withOptionalCString(source) { source in
            try created { akunu_constraint_create(UInt32(language), source, &$0) }
        }
    }
}
