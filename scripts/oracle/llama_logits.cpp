// The logits of a prompt as llama.cpp computes them.
//
//     llama_logits MODEL.gguf CONTEXT OUT.bin < TOKENS
//
// TOKENS are ids separated by white space. OUT.bin becomes F32 little-endian [tokens][vocabulary]. The cache is F32, flash attention is off
// and weights stay as the file has them (no repacking, no AMX), so that what remains is llama.cpp's plain arithmetic. To build it against
// a static build of llama.cpp in LLAMA/build:
//
//     g++ -O1 -std=c++17 -I LLAMA/include -I LLAMA/ggml/include llama_logits.cpp -o llama_logits -fopenmp -ldl -lpthread
//         LLAMA/build/src/libllama.a LLAMA/build/ggml/src/libggml.a LLAMA/build/ggml/src/libggml-cpu.a LLAMA/build/ggml/src/libggml-base.a

#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <vector>

namespace {

[[noreturn]] void fail(const char * what) {
    std::fprintf(stderr, "llama_logits: %s\n", what);
    std::exit(1);
}

void errors_only(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 4) {
        fail("usage: llama_logits MODEL.gguf CONTEXT OUT.bin < TOKENS");
    }
    std::vector<llama_token> tokens;
    for (llama_token id; std::cin >> id;) {
        tokens.push_back(id);
    }
    if (tokens.empty()) {
        fail("no tokens on standard input");
    }

    llama_log_set(errors_only, nullptr);
    llama_backend_init();
    llama_model_params loading = llama_model_default_params();
    loading.use_extra_bufts = false;
    std::unique_ptr<llama_model, decltype(&llama_model_free)> model(llama_model_load_from_file(argv[1], loading), llama_model_free);
    if (!model) {
        fail("the model does not load");
    }

    llama_context_params settings = llama_context_default_params();
    settings.n_ctx = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
    settings.n_batch = settings.n_ubatch = 64;
    settings.n_threads = settings.n_threads_batch = 1;
    settings.type_k = settings.type_v = GGML_TYPE_F32;
    settings.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    std::unique_ptr<llama_context, decltype(&llama_free)> context(llama_init_from_model(model.get(), settings), llama_free);
    if (!context) {
        fail("the context does not start");
    }

    llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
    for (size_t i = 0; i < tokens.size(); i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = static_cast<llama_pos>(i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = static_cast<int32_t>(tokens.size());
    if (llama_decode(context.get(), batch) != 0) {
        fail("decoding failed");
    }

    const size_t vocabulary = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
    std::ofstream out(argv[3], std::ios::binary);
    for (size_t i = 0; i < tokens.size(); i++) {
        const float * row = llama_get_logits_ith(context.get(), static_cast<int32_t>(i));
        out.write(reinterpret_cast<const char *>(row), static_cast<std::streamsize>(vocabulary * sizeof(float)));
    }
    llama_batch_free(batch);
    return out.good() ? 0 : 1;
}
