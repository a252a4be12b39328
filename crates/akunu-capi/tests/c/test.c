/* Everything the header promises, with tiny models:
 *
 *     test MODEL ENCODER      two GGUF files
 *
 * The models are random, so texts mean nothing; what must hold is how calls agree with each other. */
#include "check.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

static const uint32_t PROMPT[] = {73, 94, 5, 89, 57, 120, 6, 10};
enum { PROMPT_COUNT = sizeof PROMPT / sizeof *PROMPT, MANY = 16 };

/* The end token of the fixtures: forbidden where a test needs text that goes on. */
static const akunu_bias NO_END[] = {{2, -INFINITY}};

static akunu_sampling endless(void) {
    akunu_sampling sampling = {.size = sizeof sampling, .biases = NO_END, .bias_count = 1};
    return sampling;
}

static akunu_model *load(const char *path, size_t sequences) {
    akunu_load_options options = {.size = sizeof options, .threads = 1, .sequences = sequences};
    akunu_model *model = NULL;
    OK(akunu_model_load(path, &options, &model));
    CHECK(model != NULL);
    return model;
}

static akunu_sequence *sequence_of(akunu_model *model) {
    akunu_sequence *sequence = NULL;
    OK(akunu_sequence_create(model, &sequence));
    return sequence;
}

/* Pulls a generation to its end; the number of its tokens. */
static size_t pull(akunu_sequence *sequence, uint32_t *tokens, size_t capacity) {
    akunu_piece piece;
    akunu_status status;
    size_t count = 0;
    while ((status = akunu_generate_next(sequence, &piece)) == AKUNU_OK) {
        CHECK(strlen(piece.text) == piece.text_length);
        for (size_t i = 0; i < piece.token_count && count < capacity; i++)
            tokens[count++] = piece.tokens[i];
    }
    CHECK(status == AKUNU_DONE);
    return count;
}

static void version(void) {
    CHECK(akunu_abi_version() == AKUNU_ABI_VERSION);
    CHECK(strchr(akunu_version(), '.') != NULL);
}

static void models_describe_themselves(akunu_model *model) {
    akunu_model_info info = {.size = sizeof info};
    OK(akunu_model_get_info(model, &info));
    CHECK(info.size == sizeof info);
    CHECK(strcmp(info.architecture, "llama") == 0 && strcmp(info.backend, "cpu") == 0);
    CHECK(info.vocabulary == 128 && info.layers > 0 && info.heads >= info.kv_heads && info.parameters > 0);
    CHECK(info.memory > info.parameters && info.context > 0 && info.rope_theta > 1);

    size_t count = 0, length = 0;
    OK(akunu_tensor_count(model, &count));
    CHECK(count > 0);
    CHECK(akunu_tensor_name(model, 0, NULL, 0, &length) == AKUNU_SHORT_BUFFER && length > 0);
    char *name = malloc(length + 1);
    CHECK(akunu_tensor_name(model, 0, name, length, &length) == AKUNU_SHORT_BUFFER);
    OK(akunu_tensor_name(model, 0, name, length + 1, &length));
    CHECK(strlen(name) == length);
    free(name);
    akunu_tensor_info tensor = {.size = sizeof tensor};
    OK(akunu_tensor_get_info(model, 0, &tensor));
    CHECK(tensor.rank > 0 && tensor.shape[0] > 0 && strcmp(tensor.dtype, "F32") == 0);
    CHECK(akunu_tensor_get_info(model, count, &tensor) == AKUNU_NOT_FOUND);
}

static void text_becomes_tokens_and_text_again(akunu_model *model) {
    size_t count = 0, length = 0;
    CHECK(akunu_tokenize(model, "hello", 0, NULL, 0, &count) == AKUNU_SHORT_BUFFER && count > 0);
    uint32_t tokens[64];
    char text[64];
    OK(akunu_tokenize(model, "hello", 0, tokens, 64, &count));
    OK(akunu_detokenize(model, tokens, count, text, sizeof text, &length));
    CHECK(strcmp(text, "hello") == 0 && length == 5);
    OK(akunu_token_bytes(model, tokens[count - 1], text, sizeof text, &length));
    CHECK(length > 0);
    CHECK(akunu_token_bytes(model, 1u << 30, text, sizeof text, &length) == AKUNU_USAGE);
    tokens[count] = 1u << 30;
    CHECK(akunu_detokenize(model, tokens, count + 1, text, sizeof text, &length) == AKUNU_USAGE);
    bool ends = false;
    OK(akunu_token_is_end(model, 2, &ends));
    CHECK(ends);
    CHECK(akunu_tokenize(model, "\xff", 0, tokens, 64, &count) == AKUNU_USAGE);
    CHECK(akunu_tokenize(model, "hello", 8, tokens, 64, &count) == AKUNU_USAGE);
    akunu_message message = {"user", "hello"};
    CHECK(akunu_chat_tokens(model, &message, 1, tokens, 64, &count) == AKUNU_NOT_FOUND);
}

static void steps_chains_and_generations_agree(akunu_model *model) {
    akunu_sequence *sequence = sequence_of(model), *fork = NULL;
    akunu_sampling sampling = endless();
    uint32_t by_steps[MANY], by_chain[MANY], pulled[MANY], next;
    size_t position = 0;

    OK(akunu_sequence_set_sampling(sequence, &sampling));
    OK(akunu_sequence_prefill(sequence, PROMPT, PROMPT_COUNT, &next));
    OK(akunu_sequence_fork(sequence, &fork));
    by_steps[0] = by_chain[0] = next;
    for (size_t i = 1; i < MANY; i++)
        OK(akunu_sequence_step(sequence, by_steps[i - 1], &by_steps[i]));
    OK(akunu_sequence_chain(fork, by_chain[0], MANY - 1, by_chain + 1));
    CHECK(memcmp(by_steps, by_chain, sizeof by_steps) == 0);
    OK(akunu_sequence_position(fork, &position));
    CHECK(position == PROMPT_COUNT + MANY - 1);

    akunu_generate_options options = {.size = sizeof options, .sampling = &sampling, .max_tokens = MANY};
    OK(akunu_generate_begin(sequence, PROMPT, PROMPT_COUNT, &options));
    CHECK(pull(sequence, pulled, MANY) == MANY);
    CHECK(memcmp(by_steps, pulled, sizeof pulled) == 0);
    akunu_statistics statistics = {.size = sizeof statistics};
    OK(akunu_generate_statistics(sequence, &statistics));
    CHECK(statistics.finish == AKUNU_LENGTH && statistics.generated_tokens == MANY);
    CHECK(statistics.cached_tokens > 0 && statistics.prompt_tokens == PROMPT_COUNT);

    /* Half of it, and the other half appended. */
    uint32_t halves[MANY];
    options.max_tokens = MANY / 2;
    OK(akunu_generate_begin(sequence, PROMPT, PROMPT_COUNT, &options));
    CHECK(pull(sequence, halves, MANY / 2) == MANY / 2);
    options.append = true;
    OK(akunu_generate_begin(sequence, NULL, 0, &options));
    CHECK(pull(sequence, halves + MANY / 2, MANY / 2) == MANY / 2);
    CHECK(memcmp(by_steps, halves, sizeof halves) == 0);

    OK(akunu_sequence_rollback(sequence, 3));
    uint32_t tokens[8];
    size_t count = 0;
    OK(akunu_sequence_tokens(sequence, tokens, 8, &count));
    CHECK(count == 3 && memcmp(tokens, PROMPT, 3 * sizeof *tokens) == 0);
    CHECK(akunu_sequence_rollback(sequence, 4) == AKUNU_USAGE);
    OK(akunu_sequence_rollback(sequence, 0));

    float logits[2 * 128];
    CHECK(akunu_sequence_logits(sequence, PROMPT, 2, NULL, 0, &count) == AKUNU_SHORT_BUFFER && count == 256);
    OK(akunu_sequence_logits(sequence, PROMPT, 2, logits, 256, &count));
    CHECK(isfinite(logits[0]) && isfinite(logits[255]));
    OK(akunu_sequence_free(fork));
    OK(akunu_sequence_free(sequence));
}

/* A generation that cannot begin leaves the sequence as it was. */
static void a_refused_request_changes_nothing(akunu_model *model) {
    akunu_sequence *sequence = sequence_of(model);
    uint32_t next;
    size_t position = 0;
    OK(akunu_sequence_prefill(sequence, PROMPT, PROMPT_COUNT, &next));
    akunu_sampling sampling = {.size = sizeof sampling, .temperature = -1};
    akunu_generate_options options = {.size = sizeof options, .sampling = &sampling};
    CHECK(akunu_generate_begin(sequence, PROMPT, 1, &options) == AKUNU_USAGE);
    CHECK(strstr(akunu_error_message(), "temperature") && akunu_error_hint());
    CHECK(akunu_generate_begin(sequence, PROMPT, 0, NULL) == AKUNU_USAGE);
    CHECK(akunu_generate_begin(sequence, PROMPT, SIZE_MAX, NULL) == AKUNU_USAGE);
    CHECK(akunu_sequence_step(sequence, 1u << 31, &next) == AKUNU_USAGE);
    CHECK(akunu_sequence_chain(sequence, 1, SIZE_MAX, &next) == AKUNU_USAGE);
    CHECK(akunu_sequence_chain(sequence, 1, 100000, &next) == AKUNU_USAGE);
    OK(akunu_sequence_position(sequence, &position));
    CHECK(position == PROMPT_COUNT);
    akunu_piece piece;
    CHECK(akunu_generate_next(sequence, &piece) == AKUNU_USAGE);
    OK(akunu_sequence_free(sequence));
}

static void texts_follow_constraints(akunu_model *model) {
    akunu_sequence *sequence = sequence_of(model);
    akunu_constraint *constraint = NULL;
    OK(akunu_constraint_create(AKUNU_REGEX, "(ab|cd){3}", &constraint));
    akunu_generate_options options = {.size = sizeof options, .constraint = constraint};
    OK(akunu_generate_begin_text(sequence, "hello", &options));
    OK(akunu_constraint_free(constraint));
    char text[64] = "";
    akunu_piece piece;
    while (akunu_generate_next(sequence, &piece) == AKUNU_OK)
        strncat(text, piece.text, sizeof text - strlen(text) - 1);
    CHECK(strlen(text) == 6);
    for (const char *pair = text; *pair; pair += 2)
        CHECK(strncmp(pair, "ab", 2) == 0 || strncmp(pair, "cd", 2) == 0);
    CHECK(akunu_generate_begin_text(sequence, "hello", &options) == AKUNU_BAD_HANDLE);
    CHECK(akunu_constraint_create(AKUNU_GBNF, "root ::= (", &constraint) == AKUNU_USAGE && !constraint);
    CHECK(akunu_constraint_create(99, "x", &constraint) == AKUNU_USAGE);
    OK(akunu_constraint_create(AKUNU_JSON_OBJECT, NULL, &constraint));
    OK(akunu_constraint_free(constraint));
    OK(akunu_sequence_free(sequence));
}

struct listener {
    akunu_sequence *sequence;
    size_t heard, enough;
};

static bool listen(void *user, const akunu_piece *piece) {
    struct listener *listener = user;
    size_t position;
    /* The sequence is ours: nobody else gets in, not even we. */
    CHECK(akunu_sequence_position(listener->sequence, &position) == AKUNU_IN_USE);
    listener->heard += piece->token_count;
    return listener->heard < listener->enough;
}

static void a_callback_ends_a_generation(akunu_model *model) {
    struct listener listener = {sequence_of(model), 0, 5};
    akunu_sampling sampling = endless();
    akunu_generate_options options = {.size = sizeof options, .sampling = &sampling};
    akunu_statistics statistics = {.size = sizeof statistics};
    OK(akunu_generate(listener.sequence, PROMPT, PROMPT_COUNT, &options, listen, &listener, &statistics));
    CHECK(listener.heard >= 5 && listener.heard < 50 && statistics.finish == AKUNU_CANCELLED);
    OK(akunu_sequence_free(listener.sequence));
}

static void *stop_it(void *sequence) {
    OK(akunu_sequence_stop(sequence));
    return NULL;
}

static void another_thread_ends_a_generation(akunu_model *model) {
    akunu_sequence *sequence = sequence_of(model);
    akunu_sampling sampling = endless();
    /* Without an end: the oldest tokens make room. */
    akunu_generate_options options = {.size = sizeof options, .sampling = &sampling, .context_shift = true};
    akunu_piece piece;
    pthread_t thread;
    OK(akunu_generate_begin(sequence, PROMPT, PROMPT_COUNT, &options));
    OK(akunu_generate_next(sequence, &piece));
    CHECK(pthread_create(&thread, NULL, stop_it, sequence) == 0);
    while (akunu_generate_next(sequence, &piece) == AKUNU_OK)
        ;
    CHECK(pthread_join(thread, NULL) == 0);
    akunu_statistics statistics = {.size = sizeof statistics};
    OK(akunu_generate_statistics(sequence, &statistics));
    CHECK(statistics.finish == AKUNU_CANCELLED);
    OK(akunu_sequence_free(sequence));
}

struct texts {
    uint32_t tokens[3][MANY];
    size_t counts[3];
};

static bool collect(void *user, size_t index, const akunu_piece *piece) {
    struct texts *texts = user;
    for (size_t i = 0; i < piece->token_count; i++)
        texts->tokens[index][texts->counts[index]++] = piece->tokens[i];
    return index != 2 || texts->counts[2] < 2;
}

static void requests_run_together(const char *path) {
    akunu_model *model = load(path, 4);
    akunu_sequence *sequence = sequence_of(model);
    akunu_sampling sampling = endless();
    akunu_generate_options options = {.size = sizeof options, .sampling = &sampling, .max_tokens = MANY};
    uint32_t alone[MANY];
    OK(akunu_generate_begin(sequence, PROMPT, PROMPT_COUNT, &options));
    CHECK(pull(sequence, alone, MANY) == MANY);
    OK(akunu_sequence_free(sequence));

    akunu_scheduler *scheduler = NULL;
    OK(akunu_scheduler_create(model, &scheduler));
    OK(akunu_model_free(model));
    akunu_statistics statistics = {.size = sizeof statistics}, cancelled = {.size = sizeof cancelled};
    akunu_request requests[] = {{PROMPT, PROMPT_COUNT, &options, &statistics},
                                {PROMPT + 1, 4, &options, NULL},
                                {PROMPT + 2, 4, &options, &cancelled}};
    struct texts texts = {0};
    OK(akunu_scheduler_run(scheduler, requests, 3, collect, &texts));
    CHECK(texts.counts[0] == MANY && memcmp(texts.tokens[0], alone, sizeof alone) == 0);
    CHECK(texts.counts[1] == MANY && texts.counts[2] == 2);
    CHECK(statistics.finish == AKUNU_LENGTH && statistics.generated_tokens == MANY);
    CHECK(cancelled.finish == AKUNU_CANCELLED);
    requests[1].prompt_count = 0;
    CHECK(akunu_scheduler_run(scheduler, requests, 3, NULL, NULL) == AKUNU_USAGE);
    OK(akunu_scheduler_stop(scheduler));
    OK(akunu_scheduler_free(scheduler));
    CHECK(akunu_scheduler_stop(scheduler) == AKUNU_BAD_HANDLE);
}

static void an_embedder_has_the_weights_of_a_model(const char *path) {
    akunu_embedder_options options = {.size = sizeof options, .threads = 1};
    akunu_embedder *alone = NULL, *twin = NULL;
    size_t dimensions = 0, length = 0;
    uint32_t tokens[] = {3, 4, 5};
    OK(akunu_embedder_load(path, &options, &alone));
    OK(akunu_embedder_dimensions(alone, &dimensions));
    akunu_model *model = load(path, 1);
    OK(akunu_embedder_of(model, &options, &twin));
    OK(akunu_model_free(model));
    float *one = malloc(dimensions * sizeof *one), *other = malloc(dimensions * sizeof *other);
    OK(akunu_embed_tokens(alone, tokens, 3, 0, one, dimensions, &length));
    OK(akunu_embed_tokens(twin, tokens, 3, 0, other, dimensions, &length));
    CHECK(memcmp(one, other, dimensions * sizeof *one) == 0);
    free(one);
    free(other);
    OK(akunu_embedder_free(alone));
    OK(akunu_embedder_free(twin));
    CHECK(akunu_embedder_of(NULL, &options, &twin) == AKUNU_BAD_HANDLE && twin == NULL);
}

static void texts_become_vectors(const char *path) {
    akunu_embedder_options options = {.size = sizeof options, .threads = 1};
    akunu_embedder *embedder = NULL;
    size_t dimensions = 0, length = 0;
    OK(akunu_embedder_load(path, &options, &embedder));
    OK(akunu_embedder_dimensions(embedder, &dimensions));
    uint32_t tokens[] = {3, 4, 5};
    float *vector = malloc(dimensions * sizeof *vector);
    CHECK(akunu_embed_tokens(embedder, tokens, 3, 0, NULL, 0, &length) == AKUNU_SHORT_BUFFER);
    CHECK(length == dimensions);
    OK(akunu_embed_tokens(embedder, tokens, 3, 0, vector, dimensions, &length));
    double square = 0;
    for (size_t i = 0; i < dimensions; i++)
        square += (double)vector[i] * vector[i];
    CHECK(fabs(square - 1) < 1e-4);
    CHECK(akunu_embed_tokens(embedder, tokens, 0, 0, vector, dimensions, &length) == AKUNU_USAGE);
    CHECK(akunu_embed_tokens(embedder, tokens, 3, 64, vector, dimensions, &length) == AKUNU_USAGE);
    free(vector);
    OK(akunu_embedder_free(embedder));
}

static void steps_are_timed(akunu_model *model) {
    akunu_sequence *sequence = sequence_of(model);
    akunu_step_time steps[512];
    size_t count = 0;
    uint32_t next;
    OK(akunu_model_time_steps(model, true));
    OK(akunu_sequence_prefill(sequence, PROMPT, PROMPT_COUNT, &next));
    OK(akunu_model_step_times(model, steps, 512, &count));
    CHECK(count > 4 && steps[0].label[0] && steps[0].runs == 1);
    OK(akunu_model_time_steps(model, false));
    OK(akunu_sequence_free(sequence));
}

static void wrong_arguments_are_errors(akunu_model *model, const char *path) {
    akunu_sequence *sequence = sequence_of(model), *none = NULL;
    akunu_model *missing = model;
    akunu_piece piece;
    size_t count;
    CHECK(akunu_model_load("no/such/file.gguf", NULL, &missing) == AKUNU_NOT_FOUND && missing == NULL);
    CHECK(akunu_model_load(NULL, NULL, &missing) == AKUNU_USAGE);
    CHECK(akunu_model_load(path, NULL, NULL) == AKUNU_USAGE);
    akunu_load_options options = {.size = sizeof options, .backend = "abacus"};
    CHECK(akunu_model_load(path, &options, &missing) == AKUNU_USAGE);
    akunu_load_options no_size = {.threads = 1};
    CHECK(akunu_model_load(path, &no_size, &missing) == AKUNU_USAGE);
    options = (akunu_load_options){.size = sizeof options, .context = SIZE_MAX};
    CHECK(akunu_model_load(path, &options, &missing) == AKUNU_USAGE);

    CHECK(akunu_sequence_create(NULL, &none) == AKUNU_BAD_HANDLE && none == NULL);
    CHECK(akunu_sequence_create((akunu_model *)sequence, &none) == AKUNU_BAD_HANDLE);
    CHECK(akunu_sequence_create((akunu_model *)&count, &none) == AKUNU_BAD_HANDLE);
    CHECK(akunu_tokenize(model, NULL, 0, NULL, 0, &count) == AKUNU_USAGE);
    CHECK(akunu_tokenize(model, "x", 0, NULL, 4, NULL) == AKUNU_USAGE);
    OK(akunu_generate_begin(sequence, PROMPT, PROMPT_COUNT, NULL));
    CHECK(akunu_generate_next(sequence, NULL) == AKUNU_USAGE);
    OK(akunu_sequence_free(sequence));
    CHECK(akunu_sequence_free(sequence) == AKUNU_BAD_HANDLE);
    CHECK(akunu_generate_next(sequence, &piece) == AKUNU_BAD_HANDLE);
    CHECK(akunu_sequence_stop(sequence) == AKUNU_BAD_HANDLE);
    OK(akunu_sequence_free(NULL));
    OK(akunu_model_free(NULL));
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: test MODEL ENCODER\n");
        return 2;
    }
    version();
    akunu_model *model = load(argv[1], 2);
    models_describe_themselves(model);
    text_becomes_tokens_and_text_again(model);
    steps_chains_and_generations_agree(model);
    a_refused_request_changes_nothing(model);
    texts_follow_constraints(model);
    a_callback_ends_a_generation(model);
    another_thread_ends_a_generation(model);
    steps_are_timed(model);
    wrong_arguments_are_errors(model, argv[1]);
    requests_run_together(argv[1]);
    texts_become_vectors(argv[2]);
    an_embedder_has_the_weights_of_a_model(argv[1]);
    /* What was made from a model outlives it. */
    akunu_sequence *last = sequence_of(model);
    uint32_t next;
    OK(akunu_model_free(model));
    OK(akunu_sequence_prefill(last, PROMPT, PROMPT_COUNT, &next));
    OK(akunu_sequence_free(last));
    puts("the C interface: ok");
    return 0;
}
