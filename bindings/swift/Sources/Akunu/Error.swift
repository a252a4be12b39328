import CAkunu

/// What went wrong, and what can be done about it.
public struct AkunuError: Error, CustomStringConvertible, Sendable {
    public enum Kind: UInt32, Sendable {
        case inUse = 3, badHandle, usage, notFound, badData, unsupported, denied, unavailable, system, stopped, `internal`
    }

    public let kind: Kind
    public let message: String
    public let hint: String?

    public var description: String {
        hint.map { "\(message) (hint: \($0))" } ?? message
    }
}

/// Throws unless a call went well. What went wrong is kept for each thread, so this must follow the call at once.
func check(_ status: akunu_status) throws {
    guard status != AKUNU_OK else { return }
    throw AkunuError(
        kind: AkunuError.Kind(rawValue: UInt32(status.rawValue)) ?? .internal,
        message: akunu_error_message().map { String(cString: $0) } ?? "unknown error",
        hint: akunu_error_hint().map { String(cString: $0) }
    )
}

/// The handle a call creates.
func created(_ call: (inout OpaquePointer?) -> akunu_status) throws -> OpaquePointer {
    var handle: OpaquePointer?
    try check(call(&handle))
    guard let handle else {
        throw AkunuError(kind: .internal, message: "there is no handle", hint: nil)
    }
    return handle
}

/// What a call writes into a buffer, which is asked for its length first.
func filled<Element>(
    _ zero: Element,
    _ call: (UnsafeMutablePointer<Element>?, Int, inout Int) -> akunu_status
) throws -> [Element] {
    var length = 0
    let status = call(nil, 0, &length)
    guard status == AKUNU_SHORT_BUFFER else {
        try check(status)
        return []
    }
    var buffer = [Element](repeating: zero, count: length)
    try check(call(&buffer, length, &length))
    return buffer
}

/// Calls `body` with C strings that live as long as it runs.
func withCStrings<Result>(_ strings: [String], _ body: ([UnsafePointer<CChar>?]) throws -> Result) rethrows -> Result {
    let copies = strings.map { string -> UnsafeMutablePointer<CChar> in
        let bytes = string.utf8CString
        let copy = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count)
        bytes.withUnsafeBufferPointer { copy.initialize(from: $0.baseAddress!, count: $0.count) }
        return copy
    }
    defer { copies.forEach { $0.deallocate() } }
    return try body(copies.map { UnsafePointer($0) })
}

func withOptionalCString<Result>(_ string: String?, _ body: (UnsafePointer<CChar>?) throws -> Result) rethrows -> Result {
    guard let string else { return try body(nil) }
    return try string.withCString { try body($0) }
}
