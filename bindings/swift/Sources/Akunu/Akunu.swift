import CAkunu

/// A model that is ready to run. Tasks may share it.
///
///     let akunu = try Akunu(model: "smollm2")
///     for try await piece in try akunu.complete("Once upon a time") {
///         print(piece, terminator: "")
///     }
public final class Akunu: @unchecked Sendable {
    /// How a model is loaded.
    public struct Options: Sendable {
        /// "cpu", "cuda", "metal" or "reference"; akunu chooses when absent.
        public var backend: String?
        /// Positions of one text; the model's own, at most 4096, when absent.
        public var context: Int?
        /// Threads; all cores when absent.
        public var threads: Int?
        /// Generations that can go on at the same time.
        public var sequences = 4

        public init() {}
    }

    private let handle: OpaquePointer

    /// Loads a model: a file, a directory, or the name of one that `akunu pull` fetched. This takes a while; call it off the main thread.
    public init(model: String, options: Options = Options()) throws {
        guard akunu_abi_version() == UInt32(AKUNU_ABI_VERSION) else {
            throw AkunuError(kind: .usage, message: "libakunu is of another version than this package", hint: nil)
        }
        var load = akunu_load_options()
        load.size = MemoryLayout<akunu_load_options>.size
        load.context = options.context ?? 0
        load.threads = options.threads ?? 0
        load.sequences = options.sequences
        handle = try withOptionalCString(options.backend) { backend in
            load.backend = backend
            return try created { akunu_model_load(model, &load, &$0) }
        }
    }

    deinit {
        akunu_model_free(handle)
    }

    /// Continues a text. Nothing is computed before the first piece is asked for.
    public func complete(_ prompt: String, options: GenerateOptions = GenerateOptions()) throws -> Generation {
        try begin(options) { akunu_generate_begin_text($0, prompt, $1) }
    }

    /// Answers a conversation, given whole every time. Names of special tokens in what was said are ordinary text.
    public func chat(_ messages: [Message], options: GenerateOptions = GenerateOptions()) throws -> Generation {
        try withCStrings(messages.flatMap { [$0.role, $0.content] }) { strings in
            let said = stride(from: 0, to: strings.count, by: 2).map {
                akunu_message(role: strings[$0], content: strings[$0 + 1])
            }
            return try begin(options) { akunu_generate_begin_chat($0, said, said.count, $1) }
        }
    }

    /// The tokens of a text, with what the model expects around it.
    public func tokenize(_ text: String) throws -> [UInt32] {
        try filled(0) { akunu_tokenize(handle, text, UInt32(AKUNU_ADD_SPECIAL), $0, $1, &$2) }
    }

    /// The text of tokens.
    public func detokenize(_ tokens: [UInt32]) throws -> String {
        var length = 0
        _ = akunu_detokenize(handle, tokens, tokens.count, nil, 0, &length)
        // A zero follows that the length does not count.
        var buffer = [CChar](repeating: 0, count: length + 1)
        try check(akunu_detokenize(handle, tokens, tokens.count, &buffer, buffer.count, &length))
        return String(decoding: buffer.prefix(length).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    private func begin(
        _ options: GenerateOptions,
        with start: (OpaquePointer, UnsafePointer<akunu_generate_options>) -> akunu_status
    ) throws -> Generation {
        let sequence = try created { akunu_sequence_create(handle, &$0) }
        let generation = Generation(sequence: sequence)
        try options.withC { options in try check(start(sequence, options)) }
        return generation
    }
}

/// One message of a conversation.
public struct Message: Sendable {
    /// "system", "user", "assistant", or another the model's template knows.
    public var role: String
    /// What was said.
    public var content: String

    public init(role: String, content: String) {
        self.role = role
        self.content = content
    }
}

/// A model that makes vectors of texts. Tasks may share it.
public final class Embedder: @unchecked Sendable {
    private let handle: OpaquePointer

    /// Loads a model: a file, a directory, or the name of one that `akunu pull` fetched.
    public init(model: String = "minilm") throws {
        handle = try created { akunu_embedder_load(model, nil, &$0) }
    }

    deinit {
        akunu_embedder_free(handle)
    }

    /// One vector of length 1 for each text.
    public func embed(_ texts: [String]) throws -> [[Float]] {
        guard !texts.isEmpty else { return [] }
        let numbers: [Float] = try withCStrings(texts) { strings in
            var dimensions = 0
            try check(akunu_embedder_dimensions(handle, &dimensions))
            var vectors = [Float](repeating: 0, count: texts.count * dimensions)
            var length = 0
            try check(akunu_embed(handle, strings, texts.count, 0, &vectors, vectors.count, &length))
            return vectors
        }
        let width = numbers.count / texts.count
        return stride(from: 0, to: numbers.count, by: width).map { Array(numbers[$0..<$0 + width]) }
    }
}
