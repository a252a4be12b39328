// akunu for C++17: objects that free themselves, and exceptions. A thin layer over akunu.h, which explains everything.
//
//     akunu::Model model("model.gguf");
//     akunu::Sequence sequence(model);
//     sequence.generate("Once upon a time", {}, [](std::string_view piece) { std::cout << piece; return true; });
#ifndef AKUNU_HPP
#define AKUNU_HPP

#include "akunu.h"

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace akunu {

// What a call of the library failed with.
class Error : public std::runtime_error {
  public:
    explicit Error(akunu_status status)
        : std::runtime_error(akunu_error_message() ? akunu_error_message() : "unknown"), status_(status) {}
    akunu_status status() const noexcept { return status_; }

  private:
    akunu_status status_;
};

inline void check(akunu_status status) {
    if (status != AKUNU_OK)
        throw Error(status);
}

namespace detail {
template <auto Free> struct Freer {
    template <typename T> void operator()(T *handle) const noexcept { Free(handle); }
};
} // namespace detail

class Model {
  public:
    explicit Model(const std::string &path, akunu_load_options options = {}) {
        options.size = sizeof options;
        akunu_model *model = nullptr;
        check(akunu_model_load(path.c_str(), &options, &model));
        handle_.reset(model);
    }

    akunu_model *get() const noexcept { return handle_.get(); }

    akunu_model_info info() const {
        akunu_model_info info = {};
        info.size = sizeof info;
        check(akunu_model_get_info(get(), &info));
        return info;
    }

    std::vector<uint32_t> tokenize(const std::string &text, uint32_t flags = 0) const {
        size_t count = 0;
        akunu_status status = akunu_tokenize(get(), text.c_str(), flags, nullptr, 0, &count);
        if (status != AKUNU_SHORT_BUFFER)
            check(status);
        std::vector<uint32_t> tokens(count);
        check(akunu_tokenize(get(), text.c_str(), flags, tokens.data(), count, &count));
        return tokens;
    }

  private:
    std::unique_ptr<akunu_model, detail::Freer<akunu_model_free>> handle_;
};

class Constraint {
  public:
    // `language` is AKUNU_JSON_SCHEMA, AKUNU_REGEX and so on.
    Constraint(uint32_t language, const std::string &source) {
        akunu_constraint *constraint = nullptr;
        check(akunu_constraint_create(language, source.c_str(), &constraint));
        handle_.reset(constraint);
    }

    akunu_constraint *get() const noexcept { return handle_.get(); }

  private:
    std::unique_ptr<akunu_constraint, detail::Freer<akunu_constraint_free>> handle_;
};

class Sequence {
  public:
    explicit Sequence(const Model &model) {
        akunu_sequence *sequence = nullptr;
        check(akunu_sequence_create(model.get(), &sequence));
        handle_.reset(sequence);
    }

    akunu_sequence *get() const noexcept { return handle_.get(); }

    // Continues a text. `hear` gets every piece and says whether to go on; what it throws ends the generation and is passed on.
    akunu_statistics generate(const std::string &prompt, akunu_generate_options options,
                              const std::function<bool(std::string_view)> &hear) {
        options.size = sizeof options;
        check(akunu_generate_begin_text(get(), prompt.c_str(), &options));
        akunu_piece piece;
        akunu_status status;
        while ((status = akunu_generate_next(get(), &piece)) == AKUNU_OK)
            if (!hear(std::string_view(piece.text, piece.text_length)))
                stop();
        if (status != AKUNU_DONE)
            check(status);
        akunu_statistics statistics = {};
        statistics.size = sizeof statistics;
        check(akunu_generate_statistics(get(), &statistics));
        return statistics;
    }

    // For any thread.
    void stop() const { check(akunu_sequence_stop(get())); }

  private:
    std::unique_ptr<akunu_sequence, detail::Freer<akunu_sequence_free>> handle_;
};

class Embedder {
  public:
    explicit Embedder(const std::string &path, akunu_embedder_options options = {}) {
        options.size = sizeof options;
        akunu_embedder *embedder = nullptr;
        check(akunu_embedder_load(path.c_str(), &options, &embedder));
        handle_.reset(embedder);
    }

    akunu_embedder *get() const noexcept { return handle_.get(); }

    std::vector<float> embed(const std::string &text, uint32_t flags = 0) const {
        size_t length = 0;
        check(akunu_embedder_dimensions(get(), &length));
        std::vector<float> vector(length);
        const char *texts[] = {text.c_str()};
        check(akunu_embed(get(), texts, 1, flags, vector.data(), length, &length));
        return vector;
    }

  private:
    std::unique_ptr<akunu_embedder, detail::Freer<akunu_embedder_free>> handle_;
};

} // namespace akunu

#endif
