import Akunu

@main
struct Complete {
    static func main() async throws {
        let akunu = try Akunu(model: "smollm2")
        var options = GenerateOptions()
        options.maxTokens = 32
        for try await piece in try akunu.complete("The capital of France is", options: options) {
            print(piece, terminator: "")
        }
    }
}
