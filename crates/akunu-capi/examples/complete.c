#include <akunu.h>
#include <stdio.h>

int main(void) {
    akunu_model *model;
    akunu_sequence *sequence;
    akunu_piece piece;
    akunu_generate_options options = {.size = sizeof options, .max_tokens = 32};
    if (akunu_model_load("smollm2", NULL, &model) || akunu_sequence_create(model, &sequence) ||
        akunu_generate_begin_text(sequence, "The capital of France is", &options))
        return fprintf(stderr, "%s\n", akunu_error_message()), 1;
    while (akunu_generate_next(sequence, &piece) == AKUNU_OK)
        fputs(piece.text, stdout);
}
