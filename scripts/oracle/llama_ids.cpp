// The token ids llama.cpp gives texts.
//
//     llama_ids MODEL.gguf parse|plain < TEXTS
//
// TEXTS end with a zero byte each. Every line of the output has the ids of one text, with what the model wants around it. `parse` takes the
// names of special tokens for those tokens. To build it against a static build of llama.cpp in LLAMA/build:
//
//     g++ -O1 -std=c++17 -I LLAMA/include -I LLAMA/ggml/include llama_ids.cpp -o llama_ids -fopenmp -ldl -lpthread
//         LLAMA/build/src/libllama.a LLAMA/build/ggml/src/libggml.a LLAMA/build/ggml/src/libggml-cpu.a LLAMA/build/ggml/src/libggml-base.a

#include "llama.h"

#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

static void errors_only(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

int main(int argc, char ** argv) {
    if (argc != 3 || (std::strcmp(argv[2], "parse") != 0 && std::strcmp(argv[2], "plain") != 0)) {
        std::fputs("usage: llama_ids MODEL.gguf parse|plain < TEXTS\n", stderr);
        return 2;
    }
    const bool parse = std::strcmp(argv[2], "parse") == 0;
    llama_log_set(errors_only, nullptr);
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_model * model = llama_model_load_from_file(argv[1], params);
    if (model == nullptr) {
        return 1;
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    std::vector<llama_token> ids;
    for (std::string text; std::getline(std::cin, text, '\0');) {
        ids.resize(2 * text.size() + 8);
        const int count = llama_tokenize(vocab, text.data(), text.size(), ids.data(), ids.size(), true, parse);
        for (int i = 0; i < count; i++) {
            std::printf(i == 0 ? "%d" : " %d", ids[i]);
        }
        std::putchar('\n');
    }
    llama_model_free(model);
}
