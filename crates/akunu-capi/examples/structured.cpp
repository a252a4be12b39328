// Continues a text, with an answer of a given form: structured MODEL PROMPT
#include <akunu.hpp>
#include <iostream>

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: structured MODEL PROMPT\n";
        return 2;
    }
    try {
        akunu::Model model(argv[1]);
        akunu::Sequence sequence(model);
        akunu::Constraint words(AKUNU_REGEX, "[a-z]{1,8}( [a-z]{1,8}){0,3}");
        akunu_generate_options options = {};
        options.max_tokens = 32;
        options.constraint = words.get();
        auto statistics = sequence.generate(argv[2], options, [](std::string_view piece) {
            std::cout << piece << std::flush;
            return true;
        });
        std::cout << "\n";
        std::cerr << statistics.generated_tokens << " tokens of " << model.info().architecture << "\n";
    } catch (const akunu::Error &error) {
        std::cerr << "error: " << error.what() << "\n";
        return 1;
    }
}
