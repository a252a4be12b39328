#include <akunu.hpp>
#include <iostream>

int main() {
    akunu::Model model("smollm2");
    akunu::Sequence sequence(model);
    akunu_generate_options options = {};
    options.max_tokens = 32;
    sequence.generate("The capital of France is", options, [](std::string_view piece) {
        std::cout << piece << std::flush;
        return true;
    });
}
